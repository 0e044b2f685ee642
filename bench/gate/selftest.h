/* The gate measures itself: the same program in both arms, and with work added to every step. */
#ifndef AB_BENCH_GATE_SELFTEST_H
#define AB_BENCH_GATE_SELFTEST_H

#include "bench/gate/measure.h"

AB_BEGIN_DECLS

/* Runs seven arms (base, twin, and 1, 2, 3, 5, 10 % more work), prints the rates and writes the calibration to `json` (NULL:
 * <folder>/calibration.json; "-": stdout). plan: options, rounds (0: 120), folder; the arms are set here. Clears the plan. */
AB_MUST_CHECK ab_status ab_gate_selftest(ab_gate_plan *plan, const char *json);

AB_END_DECLS

#endif
