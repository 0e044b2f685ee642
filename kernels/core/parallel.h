/* Threads of this process: one loop over chunks, shared by as many threads as were started.
 *
 * Chunks are claimed one at a time, and the caller works too. It waits only for chunks that somebody has
 * claimed, never for a thread that has not woken up yet: on a busy machine a second thread that gets no
 * processor costs nothing, where a barrier of all threads would cost its waiting time in every loop. Which
 * thread runs a chunk is left to chance, so work must be split by the problem alone and partial results kept
 * by chunk: then results do not depend on the number of threads. */
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

/* Ends the other threads; back to one thread. */
void ab_parallel_stop(void);

/* Threads there are: thread numbers are below this. */
int ab_parallel_threads(void);

/* Loops use no more than `threads` of them from now on, those with the lowest numbers; less than 1 means 1.
 * Threads that are not in use sleep. Not while a loop runs. */
void ab_parallel_use(int threads);

/* Nanoseconds the caller has slept so far because a chunk that another thread had claimed was not done. */
int64_t ab_parallel_waited_ns(void);

/* The thread of the chunk that runs on this thread; 0 outside chunks. */
int ab_parallel_thread(void);

/* Calls work(argument, chunk, thread) once for every chunk in [0, chunks). Chunks that run at the same time
 * have different threads. Returns when all are done; their writes are visible then. Called from within a
 * chunk it runs on that thread alone. */
typedef void (*ab_work)(void *argument, int64_t chunk, int thread);
void ab_parallel_for(int64_t chunks, ab_work work, void *argument);

AB_END_DECLS

#endif
