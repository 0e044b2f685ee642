/* Reductions over ranks beside brute force: every hop in double, rounded by the scalar reference of the
 * format, for every scheme, odd numbers of ranks and of elements, every start of a ring and every CPU level.
 * And the known loss of a half ring over many ranks. */
#include "kernels/collective/collective.h"
#include "kernels/core/rng.h"
#include "kernels/format/convert.h"
#include "kernels/vec/isa.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 64, ELEMENTS = 83 };

static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};

/* ---- brute force ----------------------------------------------------------------------------- */

static double hop(const ab_format *wire, double a, double b) {
    return ab_format_round(wire, &nearest, a + b);
}

static double chain(const ab_format *wire, const double *x, int64_t ranks, int64_t start) {
    double sum = x[start];
    for (int64_t k = 1; k < ranks; k++) sum = hop(wire, sum, x[(start + k) % ranks]);
    return sum;
}

/* Subtrees of the largest power of two below the number of ranks, left first. */
static double tree(const ab_format *wire, const double *x, int64_t ranks) {
    if (ranks == 1) return x[0];
    int64_t left = 1;
    while (2 * left < ranks) left *= 2;
    return hop(wire, tree(wire, x, left), tree(wire, x + left, ranks - left));
}

static double grouped(const ab_format *wire, const double *x, int64_t ranks, int64_t start, int64_t group) {
    double sum[RANKS];
    int64_t groups = 0;
    for (int64_t first = 0; first < ranks; first += group) {
        int64_t members = ranks - first < group ? ranks - first : group;
        sum[groups++] = chain(wire, x + first, members, start % members);
    }
    return chain(wire, sum, groups, start / group);
}

static double expected(const ab_reduction *r, const double *x, int64_t ranks, int64_t start) {
    const char *name = r->scheme->name;
    if (strcmp(name, "ring") == 0) return chain(r->wire, x, ranks, start);
    if (strcmp(name, "rank-order") == 0) return chain(r->wire, x, ranks, 0);
    if (strcmp(name, "tree") == 0) return tree(r->wire, x, ranks);
    if (strcmp(name, "hierarchical") == 0) return grouped(r->wire, x, ranks, start, r->group);
    if (strcmp(name, "alltoall") == 0)
        return ab_format_round(r->wire, &nearest, chain(&ab_format_fp32, x, ranks, 0));
    double sum = 0;
    for (int64_t k = 0; k < ranks; k++) sum += x[k];
    return ab_format_round(r->wire, &nearest, ab_format_round(&ab_format_fp32, &nearest, sum));
}

/* ---- contributions --------------------------------------------------------------------------- */

/* Normal numbers over 24 binades with some zeros, subnormals, large values and, in two columns, inf and NaN.
 */
static float draw(uint32_t rank, uint32_t element) {
    const ab_rng_block block = ab_rng_at(7, AB_RNG_SAMPLE, rank, element);
    const uint32_t *word = block.word;
    float unit = (float)(word[0] >> 8) * 0x1p-24F - 0.5F;
    int exponent = (int)(word[1] % 24) - 12;
    if (element == 5 && rank == 1) return INFINITY;
    if (element == 6 && rank == 2) return NAN;
    if (element % 11 == 0) return ldexpf(unit, -20);
    if (element % 13 == 0) return ldexpf(unit, 16);
    return word[2] % 50 == 0 ? 0 : ldexpf(unit, exponent);
}

static float contribution[RANKS][ELEMENTS];

static void fill(const ab_reduction *r, int64_t ranks) {
    for (uint32_t k = 0; k < (uint32_t)ranks; k++) {
        for (uint32_t i = 0; i < ELEMENTS; i++) contribution[k][i] = draw(k, i);
        ab_reduce_send(r, ranks, contribution[k], contribution[k], ELEMENTS);
    }
}

static void check_sum(const ab_reduction *r, int64_t ranks, int64_t start) {
    const float *row[RANKS];
    float sum[ELEMENTS];
    for (int64_t k = 0; k < ranks; k++) row[k] = contribution[k];
    float *scratch = malloc((size_t)(ab_reduce_scratch(r, ranks, ELEMENTS) + 1) * sizeof *scratch);
    assert_non_null(scratch);
    ab_reduce_block block = {row, ranks, ELEMENTS, start, sum, scratch};
    ab_reduce(r, &block);
    free(scratch);
    for (int i = 0; i < ELEMENTS; i++) {
        double x[RANKS];
        for (int64_t k = 0; k < ranks; k++) x[k] = (double)contribution[k][i];
        double want = expected(r, x, ranks, start);
        if (isnan(want))
            assert_true(isnan(sum[i]));
        else
            assert_true((double)sum[i] == want);
    }
}

static const char *const scheme[] = {"ring", "tree", "hierarchical:4", "rank-order", "alltoall", "exact"};
static const ab_format *const wire[] = {&ab_format_fp32, &ab_format_fp16, &ab_format_bf16};

static void check_schemes(void) {
    static const int64_t counts[] = {1, 2, 3, 4, 7, 8, 33, RANKS};
    for (size_t s = 0; s < AB_COUNT_OF(scheme); s++)
        for (size_t w = 0; w < AB_COUNT_OF(wire); w++)
            for (size_t c = 0; c < AB_COUNT_OF(counts); c++) {
                ab_reduction r = {.wire = wire[w], .divide = AB_DIVIDE_PRE};
                assert_int_equal(ab_reduction_parse_scheme(scheme[s], &r), AB_OK);
                fill(&r, counts[c]);
                for (int64_t start = 0; start<counts[c]; start += counts[c]> 8 ? 5 : 1)
                    check_sum(&r, counts[c], start);
            }
}

static void sums_equal_brute_force_at_every_cpu_level(void **state) {
    (void)state;
    for (int isa = AB_ISA_PLAIN; isa <= (int)ab_isa_best(); isa++) {
        assert_int_equal(ab_isa_force((ab_isa)isa), AB_OK);
        check_schemes();
    }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

/* ---- means ----------------------------------------------------------------------------------- */

/* What one value of every rank becomes, by formula. */
static double mean_of_equal(const char *divide, const ab_format *format, int64_t ranks, float value) {
    ab_reduction r = {.wire = format};
    assert_int_equal(ab_reduction_parse_scheme("exact", &r), AB_OK);
    assert_int_equal(ab_reduction_parse_divide(divide, &r), AB_OK);
    const float *row[RANKS];
    float sent = value, sum = 0;
    ab_reduce_send(&r, ranks, &sent, &sent, 1);
    ab_round_array(&sent, format, &nearest, 1);
    for (int64_t k = 0; k < ranks; k++) row[k] = &sent;
    ab_reduce_block block = {row, ranks, 1, 0, &sum, NULL};
    ab_reduce(&r, &block);
    ab_reduce_finish(&r, ranks, &sum, 1);
    return (double)sum;
}

static void division_overflows_and_flushes_where_it_should(void **state) {
    (void)state;
    const ab_format *half = &ab_format_fp16;
    assert_true(isinf(mean_of_equal("post", half, 64, 2000)));
    assert_true(mean_of_equal("pre", half, 64, 2000) == 2000);
    assert_true(mean_of_equal("sqrt", half, 64, 2000) == 2000);
    assert_true(mean_of_equal("8", half, 64, 2000) == 2000);
    assert_true(mean_of_equal("pre", half, 64, 0x1p-20F) == 0);
    assert_true(mean_of_equal("post", half, 64, 0x1p-20F) == 0x1p-20);
    assert_true(mean_of_equal("sqrt", half, 64, 0x1p-20F) == 0x1p-20);
}

/* ncclAvg's reciprocal of 12 in bf16 is 0.083496: 0.195 % too large. */
static void average_in_the_wire_format_has_the_bias_of_its_reciprocal(void **state) {
    (void)state;
    double mean = 0;
    for (int i = 0; i < 4096; i++) { /* enough values for roundings to average out */
        float value = 1.0F + (float)i / 4096;
        mean += mean_of_equal("avg", &ab_format_bf16, 12, value) / (double)value / 4096;
    }
    if (!(fabs(mean - 1.00195) < 0.001)) fail_msg("mean %.6f", mean);
}

static void the_root_factor_divides_the_ranks(void **state) {
    (void)state;
    static const int64_t expect[][2] = {{1, 1}, {2, 2},  {4, 2},  {6, 4},    {8, 4},
                                        {9, 2}, {16, 4}, {64, 8}, {1024, 32}};
    for (size_t i = 0; i < AB_COUNT_OF(expect); i++)
        assert_int_equal(ab_reduce_sqrt_factor(expect[i][0]), expect[i][1]);
}

/* ---- many ranks ------------------------------------------------------------------------------ */

typedef struct loss {
    double error, bias;
} loss;

/* Contributions signal + noise, each of unit size; each element starts its ring at another rank. */
static loss measure(const char *name, const ab_format *format, int64_t ranks, int64_t elements) {
    ab_reduction r = {.wire = format, .divide = AB_DIVIDE_PRE};
    assert_int_equal(ab_reduction_parse_scheme(name, &r), AB_OK);
    float *value = malloc((size_t)(ranks * elements) * sizeof *value);
    const float **row = malloc((size_t)ranks * sizeof *row);
    float *scratch = malloc((size_t)(ab_reduce_scratch(&r, ranks, 1) + 1) * sizeof *scratch);
    double *truth = calloc((size_t)elements, sizeof *truth);
    assert_true(value && row && scratch && truth);
    for (int64_t k = 0; k < ranks; k++)
        for (int64_t i = 0; i < elements; i++) {
            float x = ab_rng_normal(11, AB_RNG_SAMPLE, UINT32_MAX, (uint64_t)i) +
                      ab_rng_normal(11, AB_RNG_SAMPLE, (uint32_t)k, (uint64_t)i);
            truth[i] += (double)x / (double)ranks;
            value[k * elements + i] = x;
        }
    ab_reduce_send(&r, ranks, value, value, ranks * elements);
    double error = 0, dot = 0, size = 0;
    for (int64_t i = 0; i < elements; i++) {
        float sum = 0;
        for (int64_t k = 0; k < ranks; k++) row[k] = value + k * elements + i;
        ab_reduce_block block = {row, ranks, 1, i * 37 % ranks, &sum, scratch};
        ab_reduce(&r, &block);
        error += ((double)sum - truth[i]) * ((double)sum - truth[i]);
        dot += (double)sum * truth[i];
        size += truth[i] * truth[i];
    }
    free(value);
    free(row);
    free(scratch);
    free(truth);
    return (loss){sqrt(error / size), dot / size - 1};
}

static void assert_near(double found, double expect, double share) {
    if (!(fabs(found - expect) <= share * fabs(expect)))
        fail_msg("expected %g within %g %%, found %g", expect, 100 * share, found);
}

/* Errors and biases of a simulation in NumPy and ml_dtypes that shares no code with this one. */
static void a_half_ring_over_many_ranks_loses_what_is_known(void **state) {
    (void)state;
    assert_near(measure("ring", &ab_format_bf16, 64, 2048).error, 8e-3, 0.2);
    assert_near(measure("tree", &ab_format_bf16, 64, 2048).error, 2.7e-3, 0.2);
    assert_near(measure("ring", &ab_format_fp16, 64, 2048).error, 1e-3, 0.2);
    loss ring = measure("ring", &ab_format_bf16, 1024, 1024);
    assert_near(ring.error, 0.35, 0.1);
    assert_near(ring.bias, -0.32, 0.1);
    assert_near(measure("tree", &ab_format_bf16, 1024, 1024).error, 2.6e-3, 0.2);
    assert_near(measure("ring", &ab_format_fp16, 1024, 1024).error, 3.9e-3, 0.2);
    ring = measure("ring", &ab_format_bf16, 8192, 256);
    assert_near(ring.error, 0.87, 0.1);
    assert_near(ring.bias, -0.87, 0.1);
    ring = measure("ring", &ab_format_fp16, 8192, 256);
    assert_near(ring.error, 0.34, 0.1);
    assert_near(ring.bias, -0.31, 0.1);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void names_are_read_and_wrong_ones_explained(void **state) {
    (void)state;
    ab_reduction r = {.divide = AB_DIVIDE_PRE};
    char text[AB_REDUCTION_TEXT];
    assert_int_equal(ab_reduction_parse_scheme("hierarchical:8", &r), AB_OK);
    assert_string_equal(ab_reduction_scheme_text(&r, text), "hierarchical:8");
    assert_int_equal(ab_reduction_parse_divide("16", &r), AB_OK);
    assert_string_equal(ab_reduction_divide_text(&r, text), "16");
    assert_int_equal(ab_reduction_parse_scheme("rign", &r), AB_USAGE);
    assert_non_null(strstr(ab_error_message(), "nearest: ring"));
    assert_int_equal(ab_reduction_parse_scheme("hierarchical", &r), AB_USAGE);
    assert_int_equal(ab_reduction_parse_scheme("ring:4", &r), AB_USAGE);
    assert_int_equal(ab_reduction_parse_divide("0", &r), AB_USAGE);
    assert_int_equal(ab_reduction_parse_divide("nan", &r), AB_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_equal_brute_force_at_every_cpu_level),
        cmocka_unit_test(division_overflows_and_flushes_where_it_should),
        cmocka_unit_test(average_in_the_wire_format_has_the_bias_of_its_reciprocal),
        cmocka_unit_test(the_root_factor_divides_the_ranks),
        cmocka_unit_test(a_half_ring_over_many_ranks_loses_what_is_known),
        cmocka_unit_test(names_are_read_and_wrong_ones_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
