/* The program: finds the subcommand, runs it, maps its status to an exit status. The only place that exits.
 */
#define _POSIX_C_SOURCE 200809L
#include "bench/cmd/cmd.h"
#include "bench/cmd/commands.h"
#include "bench/run/run.h"
#include "bench/run/worker.h"
#include "build_info.h"
#include "kernels/core/process_setup.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "probes/lib/record_text.h"
#include "reports/record/observed.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ab_status unknown_command(const char *word) {
    const char *near = ab_nearest(word, ab_command_names, ab_command_count);
    return ab_fail(AB_USAGE, "unknown command '%s'%s%s%s (see `ampbench help`)", word,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* An empty word where a file or a name belongs: most likely a variable of the shell that is not set. Options
 * check their own values. */
static ab_status check_words(int argc, char **argv) {
    for (int i = 2; i < argc; i++)
        if (argv[i][0] == '\0' && argv[i - 1][0] != '-')
            return ab_fail(AB_USAGE, "%s: expected a file or a name, found an empty word", argv[1]);
    return AB_OK;
}

static ab_status dispatch(int argc, char **argv) {
    if (argc < 2 || ab_is_help(argv[1])) return ab_cmd_help(0, NULL);
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0 || strcmp(word, "version") == 0) {
        puts("ampbench " AB_VERSION "\n" AB_COPYRIGHT "\nLicense: " AB_LICENSE);
        return AB_OK;
    }
    if (strcmp(word, "worker") == 0) return ab_worker_main(argc - 1, argv + 1);
    if (strcmp(word, "part") == 0) return ab_run_part(argc - 1, argv + 1);
    AB_TRY(check_words(argc, argv));
    if (word[0] == '-') return ab_cmd_run(argc, argv); /* options without a command: the main job */
    for (int i = 0; i < ab_command_count; i++)
        if (strcmp(word, ab_commands[i].name) == 0) return ab_commands[i].run(argc - 1, argv + 1);
    return unknown_command(word);
}

static void print_error(void) {
    if (ab_error_message()[0]) ab_print(stderr, "ampbench: %s\n", ab_error_message());
}

/* Lost output comes before every other failure (`ampbench help exit`), but not before an interruption. */
static ab_status end_output(ab_status status) {
    const ab_status written = ab_stdout_end();
    if (written == AB_OK) return status;
    print_error();
    return status == AB_INTERRUPTED ? status : written;
}

static bool ended; /* main returns */

/* Libraries end the program where they get no memory (libgomp: "Thread creation failed"), and some before
 * main: say so, if memory is limited, with the status of out of memory. */
static void on_exit_by_library(void) {
    char limits[AB_LIMITS_TEXT], line[AB_LIMITS_TEXT + 80]; /* ab_print would need memory */
    if (ended || !ab_memory_limits(limits)) return;
    ab_text_show(line, sizeof line,
                 "ampbench: a library ended the program, most likely for want of memory: %s\n", limits);
    fputs(line, stderr);
    _exit(ab_status_exit(AB_NO_MEMORY));
}

static void watch_libraries(void) {
    static bool watched;
    if (!watched) watched = atexit(on_exit_by_library) == 0;
}

/* Runs before the constructors of the libraries where the loader knows of such functions. A sanitizer's own
 * constructor must come first, and it takes more memory than any limit that we test. */
#if !defined(AB_SANITIZED)
__attribute__((section(".preinit_array"),
               used)) static void (*const before_libraries)(void) = watch_libraries;
#endif

int main(int argc, char **argv) {
    ab_process_begin();
    watch_libraries();
    ab_observed_set_newer(ab_lib_record_text);
    ab_usage_set_commands(ab_commands, ab_command_count);
    ab_status status = ab_note_memory_limits(dispatch(argc, argv));
    if (status != AB_OK) print_error();
    status = end_output(status);
    ended = true;
    return ab_status_exit(status);
}
