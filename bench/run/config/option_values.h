/* Texts of options as checked values. An option that is not given leaves the value as it is. A wrong text is
 * AB_USAGE, and the message names the option, what was expected and what was found. */
#ifndef AB_BENCH_RUN_CONFIG_OPTION_VALUES_H
#define AB_BENCH_RUN_CONFIG_OPTION_VALUES_H

#include "bench/run/config/config.h"

AB_BEGIN_DECLS

/* An integer from low to high. */
AB_MUST_CHECK ab_status ab_option_integer(const ab_options *options, ab_option_id id, int64_t low,
                                          int64_t high, int64_t *value);
/* A number from low to high. */
AB_MUST_CHECK ab_status ab_option_real(const ab_options *options, ab_option_id id, double low, double high,
                                       double *value);
/* "3%" or "0.03"; 0 to 1. */
AB_MUST_CHECK ab_status ab_option_share(const ab_options *options, ab_option_id id, double *share);
/* "512MiB", "2GB", "1.5GiB" or bytes. */
AB_MUST_CHECK ab_status ab_option_bytes(const ab_options *options, ab_option_id id, int64_t *bytes);
/* Index of the text among `names`. */
AB_MUST_CHECK ab_status ab_option_choice(const ab_options *options, ab_option_id id, const char *const *names,
                                         int count, int *choice);
/* Calls `take` for each comma-separated item. */
AB_MUST_CHECK ab_status ab_option_list(const ab_options *options, ab_option_id id, ab_run_config *config,
                                       ab_status (*take)(ab_run_config *config, const char *item));

AB_END_DECLS

#endif
