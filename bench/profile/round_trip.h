/* How long it takes one thread to notice what another wrote. Processors that share a cache take some tens of
 * nanoseconds each way; those that do not take a few hundred, and data that one thread wrote and another
 * reads is as slow. Virtual machines do not say which of the two their processors are, and it may change. */
#ifndef AB_BENCH_PROFILE_ROUND_TRIP_H
#define AB_BENCH_PROFILE_ROUND_TRIP_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

/* Nanoseconds in which a cache line goes from the calling thread to the next one of the pool and back: the
 * least of several means over some hundred trips, in about a millisecond. 0: there is one thread, or the
 * other did not come within that time for `patience_ns`, because the machine is busy. */
double ab_round_trip_ns(int64_t patience_ns);

AB_END_DECLS

#endif
