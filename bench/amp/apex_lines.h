/* What apex prints at verbosity 1, in its own words, so that logs of both can be compared line by line.
 * Applies to apex's levels; decides nothing. */
#ifndef AB_BENCH_AMP_APEX_LINES_H
#define AB_BENCH_AMP_APEX_LINES_H

#include "bench/amp/policy.h"

#include <stdio.h>

AB_BEGIN_DECLS

/* Whether the policy asks for the lines and apex would print them (not with enabled=False). */
bool ab_apex_prints(const ab_policy *policy);

/* The properties before and after overrides, as amp.initialize prints them. Needs a level of apex. */
AB_MUST_CHECK ab_status ab_apex_print_properties(const ab_policy *policy, FILE *out);

/* The line of a skipped step: `scale` is the loss scale after it, `loss_id` the scaler that overflowed. */
void ab_apex_print_skip(int loss_id, double scale, FILE *out);

AB_END_DECLS

#endif
