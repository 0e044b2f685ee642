/* The thread pool. One atomic word holds the job number and the next chunk, so that a late thread can
 * claim a chunk only of the job whose fields it has read. */
#define _POSIX_C_SOURCE 200809L
#include "kernels/core/parallel.h"

#include "kernels/core/subnormals.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

enum { SPIN = 2000 }; /* polls before a thread sleeps: some ten microseconds */

/* ticket: job number in the high half, next chunk in the low half */
static const uint64_t chunk_mask = 0xFFFFFFFFu;
static _Atomic uint64_t ticket;
static _Atomic int64_t job_chunks;
static _Atomic int job_threads; /* threads below this may work on the job */
static _Atomic(ab_work) job_work;
static void *_Atomic job_argument;
static _Atomic int job_subnormals; /* the caller's mode */
static _Atomic int64_t finished;   /* chunks of the job that are done */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_there = PTHREAD_COND_INITIALIZER, work_done = PTHREAD_COND_INITIALIZER;
static pthread_cond_t more_in_use = PTHREAD_COND_INITIALIZER; /* unused threads wait for this */
static _Atomic int sleeping;                                  /* threads in use wait here for work */
static _Atomic bool caller_sleeping;                          /* the caller waits for the last chunk */
static _Atomic bool stopping;

static pthread_t handle[AB_PARALLEL_MAX_THREADS];
static int thread_count = 1;
static _Atomic int threads_used = 1; /* changed while holding the lock */
static int64_t waited_ns;
static _Thread_local int current_thread = -1; /* thread index inside a chunk; -1 outside chunks */

int ab_parallel_threads(void) { return thread_count; }
int64_t ab_parallel_waited_ns(void) { return waited_ns; }
int ab_parallel_thread(void) { return current_thread >= 0 ? current_thread : 0; }

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void finish_chunk(int64_t chunks) {
    if (atomic_fetch_add(&finished, 1) + 1 != chunks || !atomic_load(&caller_sleeping)) return;
    pthread_mutex_lock(&lock);
    pthread_cond_signal(&work_done);
    pthread_mutex_unlock(&lock);
}

/* Claims and runs one chunk of the current job. Returns false if none is left for this thread. */
static bool run_one(int thread) {
    uint64_t seen = atomic_load(&ticket);
    int64_t chunks = atomic_load(&job_chunks);
    int threads = atomic_load(&job_threads);
    ab_work work = atomic_load(&job_work);
    void *argument = atomic_load(&job_argument);
    ab_subnormals subnormals = (ab_subnormals)atomic_load(&job_subnormals);
    int64_t chunk = (int64_t)(seen & chunk_mask);
    if (chunk >= chunks || thread >= threads)
        return atomic_load(&ticket) != seen; /* a new job may have come between the loads */
    if (!atomic_compare_exchange_strong(&ticket, &seen, seen + 1)) return true;
    current_thread = thread;
    ab_subnormals_set(subnormals);
    work(argument, chunk, thread);
    current_thread = -1;
    finish_chunk(chunks);
    return true;
}

static bool work_left(void) {
    return (int64_t)(atomic_load(&ticket) & chunk_mask) < atomic_load(&job_chunks) || atomic_load(&stopping);
}

static bool in_use(int thread) { return thread < atomic_load(&threads_used); }

/* Sleeps until there may be work for this thread or the pool stops. */
static void sleep_until_work(int thread) {
    for (int i = 0; i < SPIN && in_use(thread); i++) {
        if (work_left()) return;
        relax();
    }
    pthread_mutex_lock(&lock);
    while (!in_use(thread) && !atomic_load(&stopping)) pthread_cond_wait(&more_in_use, &lock);
    atomic_fetch_add(&sleeping, 1);
    while (!work_left() && in_use(thread)) pthread_cond_wait(&work_there, &lock);
    atomic_fetch_sub(&sleeping, 1);
    pthread_mutex_unlock(&lock);
}

static void *thread_main(void *argument) {
    int thread = (int)(intptr_t)argument;
    while (!atomic_load(&stopping)) {
        while (run_one(thread)) continue;
        sleep_until_work(thread);
    }
    return NULL;
}

static void wake_threads(void) {
    if (atomic_load(&sleeping) == 0) return;
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&work_there);
    pthread_mutex_unlock(&lock);
}

/* Wakes all sleeping threads, in use or not. Called with the lock held. */
static void wake_all(void) {
    pthread_cond_broadcast(&work_there);
    pthread_cond_broadcast(&more_in_use);
}

void ab_parallel_use(int threads) {
    threads = threads < 1 ? 1 : threads < thread_count ? threads : thread_count;
    if (threads == atomic_load(&threads_used)) return;
    pthread_mutex_lock(&lock);
    atomic_store(&threads_used, threads);
    wake_all();
    pthread_mutex_unlock(&lock);
}

void ab_parallel_stop(void) {
    pthread_mutex_lock(&lock);
    atomic_store(&stopping, true);
    wake_all();
    pthread_mutex_unlock(&lock);
    for (int i = 1; i < thread_count; i++) pthread_join(handle[i], NULL);
    thread_count = 1;
    atomic_store(&threads_used, 1);
    atomic_store(&stopping, false);
}

ab_status ab_parallel_start(int threads) {
    if (threads < 1 || threads > AB_PARALLEL_MAX_THREADS)
        return ab_fail(AB_USAGE, "threads: expected 1 to %d, found %d", AB_PARALLEL_MAX_THREADS, threads);
    ab_parallel_stop();
    for (; thread_count < threads; thread_count++) {
        int error = pthread_create(&handle[thread_count], NULL, thread_main, (void *)(intptr_t)thread_count);
        if (error)
            return ab_fail(AB_SYSTEM, "cannot start thread %d of %d: %s", thread_count + 1, threads,
                           strerror(error));
    }
    ab_parallel_use(threads);
    return AB_OK;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void wait_for_claimed(int64_t chunks) {
    for (int i = 0; i < SPIN; i++) {
        if (atomic_load(&finished) == chunks) return;
        relax();
    }
    const int64_t since = now_ns();
    pthread_mutex_lock(&lock);
    atomic_store(&caller_sleeping, true);
    while (atomic_load(&finished) != chunks) pthread_cond_wait(&work_done, &lock);
    atomic_store(&caller_sleeping, false);
    pthread_mutex_unlock(&lock);
    waited_ns += now_ns() - since;
}

void ab_parallel_for(int64_t chunks, ab_work work, void *argument) {
    const int threads = atomic_load(&threads_used);
    if (threads == 1 || chunks <= 1 || current_thread >= 0) {
        int thread = current_thread >= 0 ? current_thread : 0;
        for (int64_t i = 0; i < chunks; i++) work(argument, i, thread);
        return;
    }
    /* no thread can claim a chunk while the fields change: the last job's chunks are all claimed, and
     * job_chunks is 0 until the end */
    atomic_store(&job_chunks, 0);
    atomic_store(&job_threads, threads);
    atomic_store(&job_work, work);
    atomic_store(&job_argument, argument);
    atomic_store(&job_subnormals, (int)ab_subnormals_mode());
    atomic_store(&finished, 0);
    atomic_store(&ticket, ((atomic_load(&ticket) >> 32) + 1) << 32);
    atomic_store(&job_chunks, chunks);
    wake_threads();
    while (run_one(0)) continue;
    wait_for_claimed(chunks);
}
