/* What-if intervals from exponents alone, against every value rounded to the format: the exact count is
 * within, and no interval is wider than the one octave that holds the limit. */
#include "reports/inspect/recorded.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { VALUES = 4000, FIRST = -60, BINS = 100 };

static uint64_t state_of_draws = 1;

static double draw(void) {
    state_of_draws = state_of_draws * 6364136223846793005u + 1442695040888963407u;
    return (double)(state_of_draws >> 11) * 0x1p-53;
}

/* A tensor of a record: its exponents and extremes. `powers`: values that are powers of two too. */
static cJSON *record_of(double *value, int octaves, int lowest, bool powers) {
    double counts[BINS] = {0}, least = INFINITY, most = 0;
    for (int i = 0; i < VALUES; i++) {
        const int exponent = lowest + (int)(draw() * octaves);
        value[i] = (double)(float)ldexp(powers && i % 4 == 0 ? 1 : 1 + draw(), exponent);
        counts[ilogb(value[i]) - FIRST]++;
        least = fmin(least, value[i]);
        most = fmax(most, value[i]);
    }
    cJSON *tensor = cJSON_CreateObject(), *exponents = cJSON_AddObjectToObject(tensor, "exponents");
    cJSON_AddNumberToObject(exponents, "first", FIRST);
    cJSON_AddItemToObject(exponents, "counts", cJSON_CreateDoubleArray(counts, BINS));
    cJSON_AddNumberToObject(tensor, "min_abs", least);
    cJSON_AddNumberToObject(tensor, "max_abs", most);
    return tensor;
}

/* Values within a factor of two below or above the limit: what an interval may leave open. */
static int near(const double *value, double limit) {
    int count = 0;
    for (int i = 0; i < VALUES; i++) count += value[i] >= limit / 2 && value[i] <= limit * 2;
    return count;
}

static void is_within(ab_recorded_range range, int exact, int open) {
    assert_true(range.low <= exact && exact <= range.high);
    assert_true(range.high - range.low <= open);
    if (open == 0) assert_true(range.low == exact);
}

static void exact_counts_are_within(const double *value, const cJSON *tensor, const ab_format *format,
                                    double scale) {
    const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    const double zero = ab_format_flush_limit(format) / scale, top = ab_format_overflow_limit(format) / scale;
    int flushed = 0, overflowed = 0;
    for (int i = 0; i < VALUES; i++) {
        const double stored = ab_format_round(format, &nearest, value[i] * scale);
        flushed += stored == 0;
        overflowed += !isfinite(stored);
    }
    is_within(ab_recorded_flushed(tensor, format, scale), flushed, near(value, zero));
    is_within(ab_recorded_overflowed(tensor, format, scale), overflowed, near(value, top));
}

static void intervals_hold_the_exact_counts(void **state) {
    (void)state;
    static const ab_format *const formats[] = {&ab_format_fp16, &ab_format_bf16, &ab_format_fp8_e4m3,
                                               &ab_format_fp8_e5m2};
    static const double scales[] = {1, 1024, 0x1p-6, 3, 0.7, 65536};
    static const int spans[][2] = {{50, -40}, {4, -27}, {6, 5}, {1, 8}};
    static double value[VALUES];
    for (size_t r = 0; r < 2 * AB_COUNT_OF(spans); r++) {
        const int *span = spans[r / 2];
        cJSON *tensor = record_of(value, span[0], span[1], r % 2);
        for (size_t f = 0; f < AB_COUNT_OF(formats); f++)
            for (size_t s = 0; s < AB_COUNT_OF(scales); s++)
                exact_counts_are_within(value, tensor, formats[f], scales[s]);
        cJSON_Delete(tensor);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(intervals_hold_the_exact_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
