/* Dealing micro-batches to ranks, and one simulated reduction beside a plain loop over elements and ranks. */
#include "bench/ranks/ranks.h"
#include "bench/ranks/simulate.h"
#include "kernels/core/parallel.h"
#include "kernels/core/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MICRO = 5, COUNT = 2500, RANKS = 37 };

static void every_round_of_ranks_has_every_micro_batch_once(void **state) {
    (void)state;
    int32_t micro[RANKS];
    int orders = 0;
    ab_ranks_deal(MICRO, RANKS, micro);
    for (int first = 0; first < RANKS; first += MICRO) {
        unsigned seen = 0;
        int n = RANKS - first < MICRO ? RANKS - first : MICRO;
        for (int i = 0; i < n; i++) seen |= 1U << micro[first + i];
        assert_int_equal(seen, (1U << n) - 1);
        if (n == MICRO) orders += memcmp(micro, micro + first, MICRO * sizeof *micro) != 0;
    }
    assert_true(orders >= RANKS / MICRO - 2); /* the rounds differ in order */
}

/* ---- one reduction --------------------------------------------------------------------------- */

static float value[MICRO][COUNT];

static void fill(void) {
    for (uint32_t m = 0; m < MICRO; m++)
        for (uint32_t i = 0; i < COUNT; i++)
            value[m][i] = ldexpf(ab_rng_normal(3, AB_RNG_SAMPLE, m, i) + 1, (int)(i % 7) - 3);
    value[2][100] = INFINITY; /* left out */
    value[0][200] = 1e6F;     /* beyond fp16 after the division by 37 is not, before it is */
}

/* bf16 ring, divided first, buckets of 1000 elements of the flat gradient, in a loop over elements. */
static ab_ranks_sums brute_force(const int32_t *micro, int64_t position, int64_t bucket) {
    static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    ab_ranks_sums sums = {0};
    int64_t chunk = (bucket + RANKS - 1) / RANKS;
    for (int64_t i = 0; i < COUNT; i++) {
        double mean = 0, sum = 0;
        int64_t start = ((position + i) % bucket / chunk + 1) % RANKS;
        bool finite = true;
        for (int64_t k = 0; k < RANKS; k++) {
            float x = value[micro[(start + k) % RANKS]][i];
            finite = finite && isfinite(x);
            mean += (double)x / RANKS;
            const double cast = ab_format_round(&ab_format_bf16, &nearest, (double)x);
            const float divided = (float)cast * (float)(1.0 / RANKS);
            double sent = ab_format_round(&ab_format_bf16, &nearest, (double)divided);
            sum = k == 0 ? sent : ab_format_round(&ab_format_bf16, &nearest, sum + sent);
        }
        if (!finite) {
            sums.not_finite++;
            continue;
        }
        sums.finite++;
        sums.error2 += (sum - mean) * (sum - mean);
        sums.mean2 += mean * mean;
    }
    return sums;
}

static ab_ranks_job job_of(const int32_t *micro) {
    ab_ranks_job job = {.value = value[0],
                        .micro_batches = MICRO,
                        .count = COUNT,
                        .position = 333,
                        .stride = 1,
                        .bucket = 1000,
                        .scale = 1,
                        .reduction = {.wire = &ab_format_bf16, .divide = AB_DIVIDE_PRE},
                        .ranks = RANKS,
                        .micro = micro};
    assert_int_equal(ab_reduction_parse_scheme("ring", &job.reduction), AB_OK);
    return job;
}

static void a_simulated_ring_equals_a_loop_over_elements(void **state) {
    (void)state;
    int32_t micro[RANKS];
    fill();
    ab_ranks_deal(MICRO, RANKS, micro);
    ab_ranks_job job = job_of(micro);
    ab_ranks_sums found, expected = brute_force(micro, job.position, job.bucket);
    assert_int_equal(ab_ranks_simulate(&job, &found), AB_OK);
    assert_int_equal(found.not_finite, 1);
    assert_int_equal(found.finite, expected.finite);
    assert_true(fabs(found.error2 - expected.error2) <= 1e-9 * expected.error2);
    assert_true(fabs(found.mean2 - expected.mean2) <= 1e-9 * expected.mean2);
}

static void threads_do_not_change_a_bit(void **state) {
    (void)state;
    int32_t micro[RANKS];
    ab_ranks_sums one, three;
    fill();
    ab_ranks_deal(MICRO, RANKS, micro);
    ab_ranks_job job = job_of(micro);
    assert_int_equal(ab_ranks_simulate(&job, &one), AB_OK);
    assert_int_equal(ab_parallel_start(3), AB_OK);
    assert_int_equal(ab_ranks_simulate(&job, &three), AB_OK);
    ab_parallel_stop();
    assert_memory_equal(&one, &three, sizeof one);
}

static void a_stride_takes_blocks_evenly(void **state) {
    (void)state;
    assert_int_equal(ab_ranks_selected(COUNT, 1), COUNT);
    assert_int_equal(ab_ranks_selected(COUNT, 2), AB_RANKS_BLOCK + COUNT - 2 * AB_RANKS_BLOCK);
    assert_int_equal(ab_ranks_selected(COUNT, 100), AB_RANKS_BLOCK);
    assert_int_equal(ab_ranks_selected(3, 100), 3);
}

static void fp16_overflows_after_the_sum_and_not_before(void **state) {
    (void)state;
    int32_t micro[RANKS];
    ab_ranks_sums sums;
    fill();
    ab_ranks_deal(MICRO, RANKS, micro);
    ab_ranks_job job = job_of(micro);
    job.reduction.wire = &ab_format_fp16;
    assert_int_equal(ab_ranks_simulate(&job, &sums), AB_OK);
    int64_t pre = sums.overflowed;
    job.reduction.divide = AB_DIVIDE_POST;
    assert_int_equal(ab_ranks_simulate(&job, &sums), AB_OK);
    assert_int_equal(pre, 1); /* 8 ranks have the micro-batch with 1e6: their sum over 37 is 2e5 */
    assert_int_equal(sums.overflowed, 1);
    job.scale = 4096;
    assert_int_equal(ab_ranks_simulate(&job, &sums), AB_OK);
    assert_true(sums.overflowed > COUNT / 2);
}

/* ---- where the error exceeds the noise ------------------------------------------------------- */

static void a_crossing_is_interpolated_on_logarithmic_axes(void **state) {
    (void)state;
    ab_ranks_question question = {.rules = 1, .counts = 3, .count = {8, 32, 128}};
    ab_ranks_outcome outcome[3] = {
        {.error = 0.01, .noise = 0.4}, {.error = 0.05, .noise = 0.2}, {.error = 0.4, .noise = 0.1}};
    ab_ranks_result result = {.question = &question, .outcome = outcome};
    assert_true(fabs(ab_ranks_crossing(&result, 0) - 64) < 1e-9); /* ratios 1/4 and 4: half way */
    outcome[2].error = 0.01;
    assert_true(isinf(ab_ranks_crossing(&result, 0)));
    outcome[0].overflowed = 0.5;
    assert_true(ab_ranks_crossing(&result, 0) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_round_of_ranks_has_every_micro_batch_once),
        cmocka_unit_test(a_simulated_ring_equals_a_loop_over_elements),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(a_stride_takes_blocks_evenly),
        cmocka_unit_test(fp16_overflows_after_the_sum_and_not_before),
        cmocka_unit_test(a_crossing_is_interpolated_on_logarithmic_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
