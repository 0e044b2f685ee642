/* Options that would have no effect. */
#ifndef AB_BENCH_RUN_NEEDS_H
#define AB_BENCH_RUN_NEEDS_H

#include "bench/run/config.h"

AB_BEGIN_DECLS

/* AB_USAGE if an option is given that cannot act in this run (needs.def): the message names it and what is
 * missing. `config`: of these options. */
AB_MUST_CHECK ab_status ab_needs_check(const ab_options *options, const ab_run_config *config);

AB_END_DECLS

#endif
