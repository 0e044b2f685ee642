/* Threads and chunks: every chunk runs once whatever the number of threads, late threads and nested loops
 * included. */
#define _POSIX_C_SOURCE 200809L
#include "kernels/core/parallel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { CHUNKS = 1000, LANES = 4 };

typedef struct tally {
    _Atomic int runs[CHUNKS];
    _Atomic int in_lane[LANES]; /* chunks that run there right now */
    _Atomic bool shared_lane, wrong_lane;
} tally;

static void count(void *argument, int64_t chunk, int thread) {
    tally *t = argument;
    if (thread < 0 || thread >= ab_parallel_threads() || thread != ab_parallel_thread())
        atomic_store(&t->wrong_lane, true);
    if (atomic_fetch_add(&t->in_lane[thread], 1) != 0) atomic_store(&t->shared_lane, true);
    atomic_fetch_add(&t->runs[chunk], 1);
    atomic_fetch_sub(&t->in_lane[thread], 1);
}

static void expect_each_once(tally *t, int64_t chunks, int times) {
    for (int64_t i = 0; i < CHUNKS; i++) assert_int_equal(atomic_load(&t->runs[i]), i < chunks ? times : 0);
    assert_false(atomic_load(&t->shared_lane));
    assert_false(atomic_load(&t->wrong_lane));
}

static void every_chunk_runs_once_for_any_number_of_lanes(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 3, 7, 64, CHUNKS};
    for (int threads = 1; threads <= LANES; threads++) {
        assert_int_equal(ab_parallel_start(threads), AB_OK);
        assert_int_equal(ab_parallel_threads(), threads);
        for (size_t s = 0; s < AB_COUNT_OF(sizes); s++) {
            tally t = {.shared_lane = false};
            for (int i = 0; i < 50; i++) ab_parallel_for(sizes[s], count, &t);
            expect_each_once(&t, sizes[s], 50);
        }
    }
    ab_parallel_stop();
    assert_int_equal(ab_parallel_threads(), 1);
}

/* Loops follow each other at once, so that threads which wake up late meet the next loop's chunks. */
static void loops_in_a_row_do_not_mix_their_chunks(void **state) {
    (void)state;
    assert_int_equal(ab_parallel_start(LANES), AB_OK);
    for (int i = 0; i < 5000; i++) {
        tally t = {.shared_lane = false};
        int64_t chunks = 2 + i % 5;
        ab_parallel_for(chunks, count, &t);
        for (int64_t c = 0; c < 8; c++) assert_int_equal(atomic_load(&t.runs[c]), c < chunks);
    }
    ab_parallel_stop();
}

static void inner(void *argument, int64_t chunk, int thread) {
    tally *t = argument;
    assert_int_equal(thread, ab_parallel_thread());
    atomic_fetch_add(&t->runs[chunk], 1);
}

static void outer(void *argument, int64_t chunk, int thread) {
    (void)chunk;
    (void)thread;
    ab_parallel_for(10, inner, argument);
}

static void loops_inside_chunks_run_on_their_lane(void **state) {
    (void)state;
    tally t = {.shared_lane = false};
    assert_int_equal(ab_parallel_start(LANES), AB_OK);
    ab_parallel_for(20, outer, &t);
    ab_parallel_stop();
    expect_each_once(&t, 10, 20);
}

static void note_thread(void *argument, int64_t chunk, int thread) {
    pthread_t *threads = argument;
    threads[chunk] = pthread_self();
    assert_int_equal(thread, 0);
    const struct timespec moment = {0, 200000}; /* time for another thread to come */
    nanosleep(&moment, NULL);
}

static void one_lane_in_use_is_the_callers(void **state) {
    (void)state;
    pthread_t threads[20];
    assert_int_equal(ab_parallel_start(LANES), AB_OK);
    ab_parallel_use(1);
    assert_int_equal(ab_parallel_threads(), LANES);
    ab_parallel_for(20, note_thread, threads);
    for (int i = 0; i < 20; i++) assert_true(pthread_equal(threads[i], pthread_self()));
    ab_parallel_use(LANES + 7); /* no more than there are */
    tally t = {.shared_lane = false};
    ab_parallel_for(CHUNKS, count, &t);
    expect_each_once(&t, CHUNKS, 1);
    ab_parallel_stop();
}

/* Which threads work, and how many at the same time; a chunk waits for `wanted` threads to be in the loop. */
typedef struct crowd {
    pthread_mutex_t lock;
    pthread_t thread[LANES];
    int threads, wanted;
    bool high_number; /* a thread number that is not below `wanted` */
} crowd;

static void join_crowd(void *argument, int64_t chunk, int thread) {
    crowd *c = argument;
    const struct timespec moment = {0, 500000};
    (void)chunk;
    for (bool all = false; !all;) {
        pthread_mutex_lock(&c->lock);
        int i = 0;
        while (i < c->threads && !pthread_equal(c->thread[i], pthread_self())) i++;
        if (i == c->threads && i < LANES) c->thread[c->threads++] = pthread_self();
        c->high_number |= thread >= c->wanted;
        all = c->threads >= c->wanted;
        pthread_mutex_unlock(&c->lock);
        nanosleep(&moment, NULL); /* time for one thread too many to come */
    }
}

/* As many as are in use do come: every chunk waits for them. None more do, in loops with many chunks for
 * each. */
static void as_many_threads_work_as_are_in_use(void **state) {
    (void)state;
    static const int used[] = {2, 4, 3, 2, 1, 3, 4};
    assert_int_equal(ab_parallel_start(LANES), AB_OK);
    for (size_t u = 0; u < AB_COUNT_OF(used); u++) {
        ab_parallel_use(used[u]);
        for (int loop = 0; loop < 5; loop++) {
            crowd c = {.lock = PTHREAD_MUTEX_INITIALIZER, .wanted = used[u]};
            ab_parallel_for(5 * LANES, join_crowd, &c);
            assert_int_equal(c.threads, used[u]);
            assert_false(c.high_number);
        }
    }
    ab_parallel_stop();
}

/* The number changes between short loops: no loop hangs, no chunk is lost. */
static void the_number_in_use_may_change_between_any_two_loops(void **state) {
    (void)state;
    assert_int_equal(ab_parallel_start(LANES), AB_OK);
    for (int i = 0; i < 3000; i++) {
        tally t = {.shared_lane = false};
        ab_parallel_use(i * 7 % 5);
        ab_parallel_for(i % 50, count, &t);
        expect_each_once(&t, i % 50, 1);
    }
    ab_parallel_stop();
}

static void late(void *argument, int64_t chunk, int thread) {
    (void)argument;
    (void)chunk;
    const struct timespec moment = {0, 1000000}, long_moment = {0, 30000000};
    nanosleep(thread == 0 ? &moment : &long_moment, NULL);
}

static void waiting_for_another_lane_is_counted(void **state) {
    (void)state;
    assert_int_equal(ab_parallel_start(2), AB_OK);
    int64_t before = ab_parallel_waited_ns();
    for (int i = 0; i < 20 && ab_parallel_waited_ns() == before; i++) ab_parallel_for(4, late, NULL);
    assert_true(ab_parallel_waited_ns() > before);
    before = ab_parallel_waited_ns();
    ab_parallel_use(1);
    ab_parallel_for(4, late, NULL);
    assert_int_equal(ab_parallel_waited_ns(), before);
    ab_parallel_stop();
}

/* The first chunk of every thread. No chunk ends before all threads have one, so none is claimed by another.
 */
typedef struct first_chunks {
    _Atomic int64_t of[LANES]; /* -1: the thread has none yet */
    _Atomic int threads;
} first_chunks;

static void note_first(void *argument, int64_t chunk, int thread) {
    first_chunks *f = argument;
    const struct timespec moment = {0, 100000};
    if (atomic_load(&f->of[thread]) >= 0) return;
    atomic_store(&f->of[thread], chunk);
    atomic_fetch_add(&f->threads, 1);
    while (atomic_load(&f->threads) < LANES) nanosleep(&moment, NULL);
}

static void threads_start_at_their_own_share_of_the_chunks(void **state) {
    (void)state;
    static const struct {
        int64_t chunks, first[LANES];
    } cases[] = {{4, {0, 1, 2, 3}}, {6, {0, 2, 3, 5}}, {100, {0, 25, 50, 75}}};
    assert_int_equal(ab_parallel_start(LANES), AB_OK);
    for (size_t c = 0; c < AB_COUNT_OF(cases); c++)
        for (int loop = 0; loop < 20; loop++) {
            first_chunks f = {.of = {-1, -1, -1, -1}};
            ab_parallel_for(cases[c].chunks, note_first, &f);
            for (int t = 0; t < LANES; t++) assert_int_equal(atomic_load(&f.of[t]), cases[c].first[t]);
        }
    ab_parallel_stop();
}

/* The chunk that ends last, and how many have ended. */
typedef struct held {
    int64_t chunk;
    int64_t others;
    _Atomic int64_t ended;
} held;

static void end_last(void *argument, int64_t chunk, int thread) {
    held *h = argument;
    (void)thread;
    const struct timespec moment = {0, 100000};
    while (chunk == h->chunk && atomic_load(&h->ended) < h->others) nanosleep(&moment, NULL);
    atomic_fetch_add(&h->ended, 1);
}

static void the_share_of_a_thread_that_is_held_up_is_done_by_others(void **state) {
    (void)state;
    assert_int_equal(ab_parallel_start(2), AB_OK);
    for (int64_t chunk = 0; chunk < 20; chunk++) {
        held h = {.chunk = chunk, .others = 19};
        ab_parallel_for(20, end_last, &h);
        assert_int_equal(atomic_load(&h.ended), 20);
    }
    ab_parallel_stop();
}

static void numbers_of_lanes_out_of_range_are_refused(void **state) {
    (void)state;
    assert_int_equal(ab_parallel_start(0), AB_USAGE);
    assert_int_equal(ab_parallel_start(AB_PARALLEL_MAX_THREADS + 1), AB_USAGE);
    assert_int_equal(ab_parallel_threads(), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chunk_runs_once_for_any_number_of_lanes),
        cmocka_unit_test(loops_in_a_row_do_not_mix_their_chunks),
        cmocka_unit_test(loops_inside_chunks_run_on_their_lane),
        cmocka_unit_test(one_lane_in_use_is_the_callers),
        cmocka_unit_test(as_many_threads_work_as_are_in_use),
        cmocka_unit_test(the_number_in_use_may_change_between_any_two_loops),
        cmocka_unit_test(waiting_for_another_lane_is_counted),
        cmocka_unit_test(threads_start_at_their_own_share_of_the_chunks),
        cmocka_unit_test(the_share_of_a_thread_that_is_held_up_is_done_by_others),
        cmocka_unit_test(numbers_of_lanes_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
