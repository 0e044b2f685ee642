/* The gate measures itself: the same program in both arms, and with work added to every step. */
#ifndef AB_BENCH_GATE_SELFTEST_H
#define AB_BENCH_GATE_SELFTEST_H

#include "bench/gate/measure.h"

AB_BEGIN_DECLS

/* Runs a base, an identical second arm, and an arm for each of `effects` (shares of a step's work to add;
 * NULL: 1, 2, 3, 5, 10 %), prints the rates and writes the calibration to `json` (NULL:
 * <folder>/calibration.json; "-": stdout). plan: options, rounds (0: 120), folder; the arms are set here.
 * Clears the plan. */
AB_MUST_CHECK ab_status ab_gate_selftest(ab_gate_plan *plan, const double *effects, int count,
                                         const char *json);
enum { AB_GATE_EFFECTS = AB_GATE_ARMS - 2, AB_GATE_SELFTEST_ROUNDS = 20000 };

AB_END_DECLS

#endif
