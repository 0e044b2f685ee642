/* What commands share that take the options of `ampbench run` and write no record. */
#include "bench/cmd/run_options.h"

#include "bench/cmd/cmd.h"

bool ab_asks_for_help(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (ab_is_help(argv[i])) return true;
    return false;
}

ab_status ab_refuse_outputs(const ab_options *options, const char *command, const char *what) {
    char name[AB_OPTION_NAME];
    for (int i = 0; i < AB_OPTION_COUNT; i++)
        if (options->given[i] && ab_option_trait_of((ab_option_id)i) == AB_OPTION_TRAIT_output)
            return ab_fail(AB_USAGE, "%s: %s: %s goes to stdout and nothing is written; leave the option out",
                           command, ab_option_name((ab_option_id)i, name), what);
    return AB_OK;
}
