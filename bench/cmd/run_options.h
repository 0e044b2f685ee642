/* What commands share that take the options of `ampbench run` and write no record. */
#ifndef AB_BENCH_CMD_RUN_OPTIONS_H
#define AB_BENCH_CMD_RUN_OPTIONS_H

#include "bench/run/config/options.h"

AB_BEGIN_DECLS

/* Whether --help is among the arguments. */
bool ab_asks_for_help(int argc, char **argv);

/* Refuses options that say what a run writes: AB_USAGE. `command`: "plan"; `what`: what goes to stdout
 * instead, "a plan". */
AB_MUST_CHECK ab_status ab_refuse_outputs(const ab_options *options, const char *command, const char *what);

AB_END_DECLS

#endif
