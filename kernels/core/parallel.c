/* The thread pool. The chunks of a job are dealt to its threads in equal ranges, the first to the caller. A
 * thread claims the chunks of its own range in order, then those that other ranges have left. So it finds
 * most of what it wrote in one loop in its own cache in the next, which goes over the same rows.
 *
 * An atomic word per range holds a job's number and the claimed chunks, so that a late thread can claim a
 * chunk only of the job whose fields it has read. */
#define _POSIX_C_SOURCE 200809L
#include "kernels/core/parallel.h"

#include "kernels/core/subnormals.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

enum { SPIN = 2000 }; /* polls before a thread sleeps: some ten microseconds */

/* What is polled, what describes the job and what one thread writes lie in cache lines of their own: a store
 * to a line that another processor reads waits until the line has come back. */
enum { CACHE_LINE = 64 };

static struct {
    _Alignas(
        CACHE_LINE) _Atomic uint64_t word; /* number of a job in the high half, claimed chunks in the low */
} claims[AB_PARALLEL_MAX_THREADS];

/* The last job. Stores release and loads acquire, so that whoever reads a field of a new job finds `number`
 * odd or that job's afterwards. */
static struct {
    _Alignas(CACHE_LINE) _Atomic uint32_t number; /* even; odd while the fields below change */
    _Atomic int threads, subnormals;              /* subnormals: the caller's mode */
    _Atomic int64_t chunks;
    _Atomic(ab_work) work;
    void *_Atomic argument;
} job;

static _Alignas(CACHE_LINE) _Atomic uint32_t called_number; /* of the last job, written after all of it */
static _Alignas(CACHE_LINE) _Atomic int64_t finished;       /* chunks of the job that are done */

static _Alignas(CACHE_LINE) pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
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

/* A job as one thread has read it. */
typedef struct {
    uint32_t number;
    int threads; /* threads below this may work on it */
    int ranges;
    int64_t chunks;
    ab_work work;
    void *argument;
    ab_subnormals subnormals;
} job_view;

int ab_parallel_threads(void) { return thread_count; }
int64_t ab_parallel_waited_ns(void) { return waited_ns; }
int ab_parallel_thread(void) { return current_thread >= 0 ? current_thread : 0; }

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void finish_chunks(int64_t done, int64_t chunks) {
    if (atomic_fetch_add(&finished, done) + done != chunks || !atomic_load(&caller_sleeping)) return;
    pthread_mutex_lock(&lock);
    pthread_cond_signal(&work_done);
    pthread_mutex_unlock(&lock);
}

#define READ(field) atomic_load_explicit(&job.field, memory_order_acquire)
#define WRITE(field, value) atomic_store_explicit(&job.field, value, memory_order_release)

/* Returns false while the fields change. */
static bool read_job(job_view *view) {
    view->number = READ(number);
    view->threads = READ(threads);
    view->chunks = READ(chunks);
    view->ranges = (int)(view->chunks < view->threads ? view->chunks : view->threads);
    view->work = READ(work);
    view->argument = READ(argument);
    view->subnormals = (ab_subnormals)READ(subnormals);
    return view->number % 2 == 0 && READ(number) == view->number;
}

/* The first chunk of a range; of the one after the last range: the number of chunks. */
static int64_t start_of(const job_view *view, int64_t range) {
    return (view->chunks * range + view->ranges - 1) / view->ranges;
}

/* Claims the next chunk of a range; -1: none is left. */
static int64_t claim(const job_view *view, int range) {
    const int64_t start = start_of(view, range);
    const uint64_t none_claimed = (uint64_t)view->number << 32;
    const uint64_t all_claimed = none_claimed + (uint64_t)(start_of(view, range + 1) - start);
    uint64_t seen = atomic_load(&claims[range].word);
    while (seen >= none_claimed && seen < all_claimed)
        if (atomic_compare_exchange_weak(&claims[range].word, &seen, seen + 1))
            return start + (int64_t)(seen - none_claimed);
    return -1;
}

static void run_one(const job_view *view, int64_t chunk, int thread) {
    current_thread = thread;
    ab_subnormals_set(view->subnormals);
    view->work(view->argument, chunk, thread);
    current_thread = -1;
}

/* Runs chunks of a job until none is left to claim; counts those of a range at once. */
static void run_all(const job_view *view, int thread) {
    for (int i = 0; i < view->ranges; i++) {
        const int range = (thread + i) % view->ranges;
        int64_t done = 0;
        for (int64_t chunk; (chunk = claim(view, range)) >= 0; done++) run_one(view, chunk, thread);
        if (done) finish_chunks(done, view->chunks);
    }
}

static bool in_use(int thread) { return thread < atomic_load(&threads_used); }

/* Whether there is a job that a thread has not seen, or the pool stops. */
static bool called(uint32_t last_seen) {
    return atomic_load(&called_number) != last_seen || atomic_load(&stopping);
}

/* Sleeps until there may be work for this thread or the pool stops. */
static void sleep_until_called(int thread, uint32_t last_seen) {
    for (int i = 0; i < SPIN && in_use(thread); i++) {
        if (called(last_seen)) return;
        relax();
    }
    pthread_mutex_lock(&lock);
    while (!in_use(thread) && !atomic_load(&stopping)) pthread_cond_wait(&more_in_use, &lock);
    atomic_fetch_add(&sleeping, 1);
    while (!called(last_seen) && in_use(thread)) pthread_cond_wait(&work_there, &lock);
    atomic_fetch_sub(&sleeping, 1);
    pthread_mutex_unlock(&lock);
}

static void *thread_main(void *argument) {
    const int thread = (int)(intptr_t)argument;
    uint32_t last_seen = 0;
    while (!atomic_load(&stopping)) {
        job_view view;
        if (called(last_seen) && read_job(&view)) {
            last_seen = view.number;
            if (thread < view.threads) run_all(&view, thread);
        }
        sleep_until_called(thread, last_seen);
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

/* All chunks of the last job are done, so no thread can claim one while the fields change. */
static job_view start_job(int threads, int64_t chunks, ab_work work, void *argument) {
    const job_view view = {.number = READ(number) + 2,
                           .threads = threads,
                           .ranges = (int)(chunks < threads ? chunks : threads),
                           .chunks = chunks,
                           .work = work,
                           .argument = argument,
                           .subnormals = ab_subnormals_mode()};
    WRITE(number, view.number - 1);
    WRITE(threads, threads);
    WRITE(chunks, chunks);
    WRITE(work, work);
    WRITE(argument, argument);
    WRITE(subnormals, (int)view.subnormals);
    atomic_store_explicit(&finished, 0, memory_order_release);
    for (int range = 0; range < view.ranges; range++)
        atomic_store_explicit(&claims[range].word, (uint64_t)view.number << 32, memory_order_release);
    WRITE(number, view.number);
    atomic_store(&called_number, view.number);
    return view;
}

void ab_parallel_for(int64_t chunks, ab_work work, void *argument) {
    const int threads = atomic_load(&threads_used);
    if (threads == 1 || chunks <= 1 || current_thread >= 0) {
        int thread = current_thread >= 0 ? current_thread : 0;
        for (int64_t i = 0; i < chunks; i++) work(argument, i, thread);
        return;
    }
    const job_view view = start_job(threads, chunks, work, argument);
    wake_threads();
    run_all(&view, 0);
    wait_for_claimed(chunks);
}
