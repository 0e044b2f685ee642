/* The clock, and statistics of step times within one process. Statistics across processes are in reports. */
#ifndef AB_BENCH_TIMER_TIMER_H
#define AB_BENCH_TIMER_TIMER_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

/* CLOCK_MONOTONIC, comparable between processes. */
int64_t ab_monotonic_ns(void);

/* Processor time of all threads of this process; of the calling thread. They stand still while other programs
 * have the processor. */
int64_t ab_processor_ns(void);
int64_t ab_thread_processor_ns(void);

/* Median of n values (mean of the middle two); 0 for n = 0. Reorders `values`. */
double ab_median(double *values, int64_t n);

/* How many of the first step times are warm-up: the smallest k after which the medians of a sliding window of
 * 5 stay within 2 robust standard deviations (1.4826 MAD) of the median of the last half; at most 30 % of n.
 */
int64_t ab_warmup_steps(const int64_t *time_ns, int64_t n);

/* A fixed chain of dependent integer operations: the same number of cycles whenever it is called. */
void ab_busy_loop(int64_t loops);

/* Nanoseconds of AB_CLOCK_LOOPS loops of ab_busy_loop, the minimum of several attempts: a proxy for the
 * processor's clock rate (a virtual machine hides the real one). Takes a few milliseconds. */
enum { AB_CLOCK_LOOPS = 100000 };
int64_t ab_clock_loop_ns(void);

/* Total nanoseconds that runnable threads of this process waited for a processor; -1 if the system does not
 * report it. */
int64_t ab_run_delay_ns(void);

AB_END_DECLS

#endif
