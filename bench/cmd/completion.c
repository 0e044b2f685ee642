/* `ampbench completion SHELL`: completions, generated from the help of the commands. */
#include "bench/cmd/cmd.h"
#include "bench/help/usage.h"

#include <stdio.h>

ab_status ab_cmd_completion(int argc, char **argv) {
    if (argc > 1 && ab_is_help(argv[1])) {
        puts("usage: ampbench completion bash|zsh|fish\n\n"
             "Prints completions for a shell: commands, options, and the names that options take.\n\n"
             "bash: put the output into ~/.local/share/bash-completion/completions/ampbench\n"
             "zsh: put it into a folder of $fpath as _ampbench\n"
             "fish: put it into ~/.config/fish/completions/ampbench.fish");
        return AB_OK;
    }
    if (argc != 2)
        return ab_fail(AB_USAGE, "completion: expected bash, zsh or fish, found %d words", argc - 1);
    return ab_completion_write(argv[1], stdout);
}
