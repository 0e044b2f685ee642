/* How many steps the rounds after the first repeat. They are there for their times and to show that losses
 * repeat; training to the end again adds nothing to that where the first steps take as long as all. Pure
 * arithmetic on the times passed in. */
#ifndef AB_BENCH_RUN_TIMED_STEPS_H
#define AB_BENCH_RUN_TIMED_STEPS_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_TIMED_STEPS_LEAST = 200 };

/* The steps that a later round needs, of `steps`: those of a quarter of a second, AB_TIMED_STEPS_LEAST at
 * least, doubled until their median time is within 5 % of that of all steps. All of them where no such number
 * is left: the machine is busy, or steps become slower while a cell trains. time_ns[n]: the steps of the
 * cell's first round. n = 0: nothing is known, so all. */
int64_t ab_timed_steps(const double *time_ns, int64_t n, int64_t steps);

AB_END_DECLS

#endif
