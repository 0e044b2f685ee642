/* What commands share that take the options of `ampbench run` and write no record. */
#ifndef AB_BENCH_CMD_RUN_OPTIONS_H
#define AB_BENCH_CMD_RUN_OPTIONS_H

#include "bench/run/config/options.h"

AB_BEGIN_DECLS

/* Whether --help is among the arguments. */
bool ab_asks_for_help(int argc, char **argv);

/* Warns of given options that name what a run writes; `what`: what goes to stdout instead, "a plan". */
void ab_warn_of_outputs(const ab_options *options, const char *what);

AB_END_DECLS

#endif
