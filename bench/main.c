/* The program: finds the subcommand, runs it, maps its status to an exit status. The only place that exits.
 */
#include "bench/cmd/cmd.h"
#include "bench/help/command.h"
#include "bench/run/worker.h"
#include "build_info.h"
#include "kernels/core/nearest.h"
#include "kernels/core/show.h"

#include <stdio.h>
#include <string.h>

static ab_status unknown_command(const char *word) {
    const char *near = ab_nearest(word, ab_command_names, ab_command_count);
    return ab_fail(AB_USAGE, "unknown command '%s'%s%s%s (see `ampbench help`)", word,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static ab_status dispatch(int argc, char **argv) {
    if (argc < 2 || ab_is_help(argv[1])) return ab_cmd_help(0, NULL);
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0 || strcmp(word, "version") == 0) {
        puts("ampbench " AB_VERSION "\n" AB_COPYRIGHT "\nLicense: " AB_LICENSE);
        return AB_OK;
    }
    if (strcmp(word, "worker") == 0) return ab_worker_main(argc - 1, argv + 1);
    if (word[0] == '-') return ab_cmd_run(argc, argv); /* options without a command: the main job */
    for (int i = 0; i < ab_command_count; i++)
        if (strcmp(word, ab_commands[i].name) == 0) return ab_commands[i].run(argc - 1, argv + 1);
    return unknown_command(word);
}

int main(int argc, char **argv) {
    ab_status status = dispatch(argc, argv);
    if (status != AB_OK && ab_error_message()[0]) ab_print(stderr, "ampbench: %s\n", ab_error_message());
    if (fflush(stdout) != 0 && status == AB_OK) {
        perror("ampbench: cannot write to stdout");
        return 1;
    }
    return ab_status_exit(status);
}
