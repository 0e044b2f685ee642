/* The process's thread pool: a parallel loop over chunks.
 *
 * Threads claim chunks one at a time, first of their own share (the caller of the first chunks), then of
 * others'. Loops over the same data thus find it in the caches of the threads that used it last. The caller
 * waits only for claimed chunks, never for a thread that has not woken up: on a busy machine a thread without
 * a processor costs nothing, whereas a barrier over all threads would wait for it in every loop. The
 * assignment of chunks to threads is not deterministic. Chunks must depend on the problem only and partial
 * results must be kept per chunk, so that results do not depend on the number of threads. */
#ifndef AB_CORE_PARALLEL_H
#define AB_CORE_PARALLEL_H

#include "kernels/core/status.h"

#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_PARALLEL_MAX_THREADS = 256 };

/* Makes `threads` threads (the caller's included) available to ab_parallel_for, 1 to AB_PARALLEL_MAX_THREADS.
 * May be called again to change the number; not while a loop runs. Before the first call there is one thread.
 */
AB_MUST_CHECK ab_status ab_parallel_start(int threads);

/* Joins the worker threads; afterwards there is one thread. */
void ab_parallel_stop(void);

/* Number of threads; thread indices are below it. */
int ab_parallel_threads(void);

/* Limits later loops to the `threads` threads with the lowest indices; less than 1 means 1. Unused threads
 * sleep. Must not be called while a loop runs. */
void ab_parallel_use(int threads);

/* Total nanoseconds that the caller has slept waiting for chunks claimed by other threads. */
int64_t ab_parallel_waited_ns(void);

/* Index of the calling thread inside a chunk; 0 outside chunks. */
int ab_parallel_thread(void);

/* Calls work(argument, chunk, thread) once for every chunk in [0, chunks). Concurrent chunks have
 * different thread indices. Returns when all are done, with their writes visible. A call from within a
 * chunk runs on that thread only. Chunks treat subnormals as the caller does (subnormals.h), whenever their
 * threads were started. */
typedef void (*ab_work)(void *argument, int64_t chunk, int thread);
void ab_parallel_for(int64_t chunks, ab_work work, void *argument);

AB_END_DECLS

#endif
