/* The census counts what its definition says, at every CPU level the same bits: hostile data, short
 * lengths, odd starts, strides, stored formats. The oracle classifies with frexp and the limits of the
 * formats written as decimal fractions. */
#include "kernels/census/census.h"
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

enum { LONG = 40 * AB_CENSUS_BLOCK + 77 };

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint32_t random_word(uint32_t seed, uint64_t i) {
    return ab_rng_at(seed, AB_RNG_SAMPLE, 7, i).word[0];
}

static double uniform(uint32_t seed, uint64_t i) { return (random_word(seed, i) + 0.5) * 0x1p-32; }

static double normal(uint32_t seed, uint64_t i) {
    return sqrt(-2.0 * log(uniform(seed, 2 * i))) * cos(6.283185307179586 * uniform(seed, 2 * i + 1));
}

/* ---- the oracle ------------------------------------------------------------------------------ */

/* First significands, in 1 .. 2, of the classes after the first. */
static const double common_limits[] = {1.0 + 0x1p-23, 1.75,          1.8125 + 0x1p-23,
                                       1.875,         2.0 - 0x1p-10, 2.0 - 0x1p-11};
static const double outer_limits[] = {1.0 + 0x1p-23,           1.0 + 0x1p-16 + 0x1p-23,
                                      1.0 + 0x1p-13 + 0x1p-23, 1.75,
                                      1.8125 + 0x1p-23,        1.875,
                                      2.0 - 0x1p-7 - 0x1p-23,  2.0 - 0x1p-8,
                                      2.0 - 0x1p-10 - 0x1p-23, 2.0 - 0x1p-10,
                                      2.0 - 0x1p-11,           2.0 - 0x1p-23};

static void oracle_add(ab_census *census, double x) {
    int exponent = 0, column = 0;
    double significand = 2.0 * frexp(fabs(x), &exponent);
    census->count++;
    if (isnan(x))
        census->nan++;
    else if (isinf(x))
        *(x > 0 ? &census->pos_inf : &census->neg_inf) += 1;
    else if (x == 0.0)
        census->zero++;
    if (!isfinite(x) || x == 0.0) return;
    exponent--;
    if (abs(exponent) <= 66)
        for (size_t i = 0; i < AB_COUNT_OF(common_limits); i++) column += significand >= common_limits[i];
    else
        for (size_t i = 0; i < AB_COUNT_OF(outer_limits); i++) column += significand >= outer_limits[i];
    census->bin[exponent + 149][column]++;
    census->subnormal += exponent < -126;
    census->sum_squares += x * x;
    if (fabs(x) > (double)census->max_abs) census->max_abs = (float)fabs(x);
    if (census->min_abs == 0.0f || fabs(x) < (double)census->min_abs) census->min_abs = (float)fabs(x);
}

static void assert_same_counts(const ab_census *got, const ab_census *want) {
    assert_int_equal(got->count, want->count);
    assert_int_equal(got->zero, want->zero);
    assert_int_equal(got->nan, want->nan);
    assert_int_equal(got->pos_inf, want->pos_inf);
    assert_int_equal(got->neg_inf, want->neg_inf);
    assert_int_equal(got->subnormal, want->subnormal);
    assert_int_equal(bits_of(got->min_abs), bits_of(want->min_abs));
    assert_int_equal(bits_of(got->max_abs), bits_of(want->max_abs));
    assert_memory_equal(got->bin, want->bin, sizeof got->bin);
}

/* ---- data ------------------------------------------------------------------------------------ */

static const uint32_t specials[] = {
    0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7f800001, 0xffffffff, 0x00000001, 0x807fffff,
    0x00400000, 0x00800000, 0x3f800000, 0xbf800001, 0x3fe80000, 0x3fe80001, 0x3fe7ffff, 0x3fdfffff,
    0x3fe00000, 0x3ff00000, 0x3fefffff, 0x3fff0000, 0x3ffeffff, 0x3ffefffe, 0x3fff8000, 0x3fff7fff,
    0x3fffdfff, 0x3fffe000, 0x3ffff000, 0x3fffefff, 0x3fffffff, 0x3f800080, 0x3f800081, 0x3f800400,
    0x3f800401, 0x1e800000, 0x1effffff, 0x61000000, 0x617fffff, 0x7f7fffff,
};

typedef enum kind {
    GRADIENT,
    RECTIFIED,
    WIDE,
    BF16,
    BITS,
    SPECIAL,
    ONE_VALUE,
    TINY,
    DRIFT,
    TIES,
    KINDS
} kind;

static float datum(kind k, uint32_t seed, uint64_t i) {
    uint32_t word = random_word(seed + 100u * (uint32_t)k, i);
    float g = (float)(normal(seed + 50u, i) * 1e-3);
    switch (k) {
    case GRADIENT:
        return g;
    case RECTIFIED:
        return g > 0.0f ? g : 0.0f;
    case WIDE:
        return (float)exp2(-20.0 + 25.0 * normal(seed, i));
    case BF16:
        return float_of(bits_of(g) & 0xffff0000u);
    case SPECIAL:
        return float_of(specials[word % AB_COUNT_OF(specials)]);
    case ONE_VALUE:
        return float_of(specials[seed % AB_COUNT_OF(specials)]);
    case TINY:
        return float_of(word & 0x80ffffffu);
    case DRIFT:
        return ldexpf(g, (int)(i / (2 * AB_CENSUS_BLOCK)) * 7 % 90 - 45);
    case TIES:
        return float_of((word & 0xff800000u) | (specials[word % AB_COUNT_OF(specials)] & 0x7fffffu));
    case BITS:
    case KINDS:
        break;
    }
    return float_of(word);
}

static void fill(float *values, kind k, uint32_t seed, int64_t n) {
    for (int64_t i = 0; i < n; i++) values[i] = datum(k, seed, (uint64_t)i);
}

/* ---- tests ----------------------------------------------------------------------------------- */

typedef struct fixture {
    ab_census want, got;
    float values[LONG + 8];
} fixture;

static int set_up(void **state) {
    *state = malloc(sizeof(fixture));
    return *state == NULL;
}

static int tear_down(void **state) {
    free(*state);
    return ab_isa_force(ab_isa_best()) != AB_OK;
}

static void short_arrays_are_counted_by_the_definition(void **state) {
    fixture *f = *state;
    for (int k = 0; k < KINDS; k++) {
        for (int n = 0; n <= 257; n++) {
            fill(f->values, (kind)k, (uint32_t)n, n + n % 5);
            ab_census_clear(&f->want);
            ab_census_clear(&f->got);
            for (int i = 0; i < n; i++) oracle_add(&f->want, (double)f->values[n % 5 + i]);
            ab_census_add(&f->got, f->values + n % 5, n);
            assert_same_counts(&f->got, &f->want);
        }
    }
}

static void long_arrays_are_counted_by_the_definition(void **state) {
    fixture *f = *state;
    static const int64_t lengths[] = {
        1535, 1536, 1537, AB_CENSUS_BLOCK - 1, AB_CENSUS_BLOCK, AB_CENSUS_BLOCK + 1, 5 * AB_CENSUS_BLOCK,
        LONG};
    for (int k = 0; k < KINDS; k++) {
        fill(f->values, (kind)k, 3, LONG + 1);
        for (size_t l = 0; l < AB_COUNT_OF(lengths); l++) {
            ab_census_clear(&f->want);
            ab_census_clear(&f->got);
            for (int64_t i = 0; i < lengths[l]; i++) oracle_add(&f->want, (double)f->values[i + 1]);
            ab_census_add(&f->got, f->values + 1, lengths[l]);
            assert_same_counts(&f->got, &f->want);
        }
    }
}

static void every_level_gives_the_same_bits(void **state) {
    fixture *f = *state;
    for (int k = 0; k < KINDS; k++) {
        for (uint32_t seed = 0; seed < (k == ONE_VALUE ? AB_COUNT_OF(specials) : 3); seed++) {
            int64_t n = LONG - (k == ONE_VALUE ? 37 * AB_CENSUS_BLOCK : 0);
            fill(f->values, (kind)k, seed, n);
            assert_int_equal(ab_isa_force(AB_ISA_PLAIN), AB_OK);
            ab_census_clear(&f->want);
            ab_census_add(&f->want, f->values, n);
            for (int level = 1; level <= (int)ab_isa_best(); level++) {
                assert_int_equal(ab_isa_force((ab_isa)level), AB_OK);
                ab_census_clear(&f->got);
                ab_census_add(&f->got, f->values, n);
                assert_memory_equal(&f->got, &f->want, sizeof f->got);
            }
        }
    }
}

/* Windows, ties and lists change from block to block: each level has to follow. */
static void blocks_of_different_kinds_follow_each_other(void **state) {
    fixture *f = *state;
    for (int64_t i = 0; i < LONG; i++)
        f->values[i] =
            datum((kind)(random_word(11, (uint64_t)(i / (AB_CENSUS_BLOCK / 4))) % KINDS), 5, (uint64_t)i);
    ab_census_clear(&f->want);
    for (int64_t i = 0; i < LONG; i++) oracle_add(&f->want, (double)f->values[i]);
    for (int level = 0; level <= (int)ab_isa_best(); level++) {
        assert_int_equal(ab_isa_force((ab_isa)level), AB_OK);
        ab_census_clear(&f->got);
        ab_census_add(&f->got, f->values, LONG);
        assert_same_counts(&f->got, &f->want);
    }
}

/* Counts f->values[0 .. n) at every level. */
static void assert_levels_count_by_the_definition(fixture *f, int64_t n) {
    ab_census_clear(&f->want);
    for (int64_t i = 0; i < n; i++) oracle_add(&f->want, (double)f->values[i]);
    for (int level = 0; level <= (int)ab_isa_best(); level++) {
        assert_int_equal(ab_isa_force((ab_isa)level), AB_OK);
        ab_census_clear(&f->got);
        ab_census_add(&f->got, f->values, n);
        assert_same_counts(&f->got, &f->want);
    }
}

/* Adders hold 2^k blocks: none may be lost or counted twice, whatever is left in them. */
static void every_number_of_blocks_is_counted(void **state) {
    fixture *f = *state;
    fill(f->values, GRADIENT, 12, LONG);
    for (int blocks = 1; blocks <= 18; blocks++)
        assert_levels_count_by_the_definition(f, (int64_t)blocks * AB_CENSUS_BLOCK - blocks % 3);
}

/* Windows of one to seven groups, and more than fit; every mantissa class, or one alone. */
static void windows_of_every_width_are_counted(void **state) {
    enum { N = 9 * AB_CENSUS_BLOCK };
    fixture *f = *state;
    static const uint32_t mantissas[][2] = {{0, 0x7fffff},
                                            {0x700000, 0x7fdfff},
                                            {0x680001, 0x6fffff},
                                            {0x600000, 0x67ffff},
                                            {0x7e0000, 0x7fffff}};
    for (uint32_t width = 1; width <= 72; width += 7 + width / 16) {
        for (size_t m = 0; m < AB_COUNT_OF(mantissas); m++) {
            uint32_t base = 61 + 53 * width % 61, range = mantissas[m][1] - mantissas[m][0] + 1;
            for (uint64_t i = 0; i < N; i++)
                f->values[i] =
                    float_of((base + random_word(21, i) % width) << 23 |
                             (mantissas[m][0] + random_word(22, i) % range) | (uint32_t)(i % 3 == 0) << 31);
            assert_levels_count_by_the_definition(f, N);
        }
    }
}

static void a_million_values_outlive_the_first_window(void **state) {
    enum { MANY = 300 * AB_CENSUS_BLOCK };
    fixture *f = *state;
    float *values = malloc(MANY * sizeof *values);
    assert_non_null(values);
    fill(f->values, GRADIENT, 9, LONG);
    for (int i = 0; i < MANY; i++) values[i] = ldexpf(f->values[i % LONG], i < MANY / 2 ? 0 : -9);
    ab_census_clear(&f->want);
    for (int i = 0; i < MANY; i++) oracle_add(&f->want, (double)values[i]);
    for (int level = 0; level <= (int)ab_isa_best(); level++) {
        assert_int_equal(ab_isa_force((ab_isa)level), AB_OK);
        ab_census_clear(&f->got);
        ab_census_add(&f->got, values, MANY);
        assert_same_counts(&f->got, &f->want);
    }
    free(values);
}

static void sums_of_squares_keep_seven_digits(void **state) {
    fixture *f = *state;
    static const int shifts[] = {0, -55, 60, -130, 110};
    for (size_t s = 0; s < AB_COUNT_OF(shifts); s++) {
        long double want = 0.0L;
        for (int64_t i = 0; i < LONG; i++) {
            f->values[i] = ldexpf(datum(GRADIENT, 2, (uint64_t)i), shifts[s]);
            if (s == 0 && i % 1001 == 0) f->values[i] = i % 2 ? NAN : -INFINITY;
            if (isfinite(f->values[i])) want += (long double)f->values[i] * (long double)f->values[i];
        }
        ab_census_clear(&f->got);
        ab_census_add(&f->got, f->values, LONG);
        assert_true(fabsl((long double)f->got.sum_squares - want) <= 2e-7L * want);
    }
}

/* The rule for blocks that fp32 squares would spoil: double, and nothing lost. */
static void squares_of_tiny_and_huge_values_are_exact(void **state) {
    fixture *f = *state;
    const float values[3] = {0x1p-149f, -0x1p-140f, 0x1p-130f};
    const float huge[3] = {0x1p127f, -0x1p126f, INFINITY};
    ab_census_clear(&f->got);
    ab_census_add(&f->got, values, 3);
    assert_true(f->got.sum_squares == 0x1p-298 + 0x1p-280 + 0x1p-260);
    ab_census_clear(&f->got);
    ab_census_add(&f->got, huge, 3);
    assert_true(f->got.sum_squares == 0x1p254 + 0x1p252);
}

static void strided_equals_gathered(void **state) {
    fixture *f = *state;
    static const int64_t strides[] = {2, 3, 17, 0, -1, -5};
    const ab_format *const formats[] = {&ab_format_fp32, &ab_format_fp16, &ab_format_bf16, &ab_format_fp64};
    enum { N = 2 * AB_CENSUS_BLOCK + 41 };
    unsigned char *data = calloc(N * 17 + 17, 8), *gathered = calloc(N, 8);
    assert_non_null(data);
    assert_non_null(gathered);
    for (size_t i = 0; i < (N * 17 + 17) * 2; i++) {
        uint32_t word = random_word(1, i);
        memcpy(data + 4 * i, &word, 4);
    }
    for (size_t s = 0; s < AB_COUNT_OF(strides); s++) {
        for (size_t k = 0; k < AB_COUNT_OF(formats); k++) {
            size_t size = (size_t)formats[k]->storage_bytes;
            const unsigned char *first = data + (strides[s] < 0 ? (size_t)(N * 5) * size : 0);
            for (int64_t i = 0; i < N; i++)
                memcpy(gathered + (size_t)i * size, first + i * strides[s] * (int64_t)size, size);
            ab_census_clear(&f->want);
            ab_census_clear(&f->got);
            ab_census_add_stored(&f->want, gathered, formats[k], N);
            ab_census_add_strided(&f->got, first, formats[k], N, strides[s]);
            assert_memory_equal(&f->got, &f->want, sizeof f->got);
        }
    }
    free(data);
    free(gathered);
}

static void data_need_not_be_aligned(void **state) {
    fixture *f = *state;
    const ab_format *const formats[] = {&ab_format_fp32, &ab_format_fp16, &ab_format_bf16, &ab_format_fp64};
    enum { N = AB_CENSUS_BLOCK + 99 };
    unsigned char *data = malloc(N * 8 + 8), *moved = malloc(N * 8 + 8);
    assert_non_null(data);
    assert_non_null(moved);
    for (uint32_t i = 0; i < N * 2; i++) {
        uint32_t word = random_word(2, i);
        memcpy(data + (size_t)4 * i, &word, 4);
    }
    for (size_t k = 0; k < AB_COUNT_OF(formats); k++) {
        ab_census_clear(&f->want);
        ab_census_add_stored(&f->want, data, formats[k], N);
        for (size_t shift = 1; shift < 8; shift++) {
            memcpy(moved + shift, data, N * (size_t)formats[k]->storage_bytes);
            ab_census_clear(&f->got);
            ab_census_add_stored(&f->got, moved + shift, formats[k], N);
            assert_memory_equal(&f->got, &f->want, sizeof f->got);
        }
    }
    free(data);
    free(moved);
}

static void all_16_bit_patterns_are_counted_by_value(void **state) {
    fixture *f = *state;
    const ab_format *const formats[] = {&ab_format_fp16, &ab_format_bf16};
    uint16_t *codes = malloc(65536 * sizeof *codes);
    assert_non_null(codes);
    for (uint32_t i = 0; i < 65536; i++) codes[i] = (uint16_t)(i * 40503u);
    for (size_t k = 0; k < AB_COUNT_OF(formats); k++) {
        int64_t subnormal = 0;
        ab_census_clear(&f->want);
        for (uint32_t i = 0; i < 65536; i++) {
            double x = ab_format_decode(formats[k], codes[i]);
            oracle_add(&f->want, x);
            subnormal += x != 0.0 && fabs(x) < ab_format_min_normal(formats[k]);
        }
        f->want.subnormal = subnormal;
        for (int level = 0; level <= (int)ab_isa_best(); level++) {
            assert_int_equal(ab_isa_force((ab_isa)level), AB_OK);
            ab_census_clear(&f->got);
            ab_census_add_stored(&f->got, codes, formats[k], 65536);
            assert_same_counts(&f->got, &f->want);
        }
    }
    free(codes);
}

enum { HALVES = 9 * AB_CENSUS_BLOCK + 77 };

/* Subnormal is what the stored format calls so; all else, to the last bit of the sum of squares, is as of
 * fp32. */
static void assert_halves_count_as_widened(fixture *f, const uint16_t *codes, const ab_format *format) {
    ab_widen(f->values, codes, format, HALVES);
    for (int level = 0; level <= (int)ab_isa_best(); level++) {
        assert_int_equal(ab_isa_force((ab_isa)level), AB_OK);
        ab_census_clear(&f->want);
        ab_census_clear(&f->got);
        ab_census_add(&f->want, f->values, HALVES);
        ab_census_add_stored(&f->got, codes, format, HALVES);
        f->want.subnormal = f->got.subnormal;
        assert_memory_equal(&f->got, &f->want, sizeof f->got);
    }
}

static void halves_count_as_their_fp32_values_do(void **state) {
    fixture *f = *state;
    const ab_format *const formats[] = {&ab_format_fp16, &ab_format_bf16};
    static const int shifts[] = {0, 9, -8};
    uint16_t *codes = malloc(HALVES * sizeof *codes);
    assert_non_null(codes);
    for (int k = 0; k < KINDS; k++) {
        for (size_t s = 0; s < AB_COUNT_OF(shifts) * AB_COUNT_OF(formats); s++) {
            const ab_format *format = formats[s % 2];
            fill(f->values, (kind)k, (uint32_t)s, HALVES);
            for (int64_t i = 0; i < HALVES; i++) f->values[i] = ldexpf(f->values[i], shifts[s / 2]);
            ab_narrow(codes, format, f->values, HALVES);
            assert_halves_count_as_widened(f, codes, format);
        }
    }
    free(codes);
}

/* Codes of a few exponents and every mantissa: windows of one group, with and without zeros and subnormals.
 */
static void halves_of_few_exponents_count_as_their_fp32_values_do(void **state) {
    fixture *f = *state;
    uint16_t *codes = malloc(HALVES * sizeof *codes);
    assert_non_null(codes);
    for (uint32_t base = 0; base < 0x7c00; base += 0xc00) {
        for (int64_t i = 0; i < HALVES; i++) {
            uint32_t word = random_word(31 + base, (uint64_t)i);
            codes[i] = (uint16_t)((word & 0x8000u) | ((base + word % 0x1000) & 0x7fffu));
            if (base % 0x1800 == 0 && word >> 28 == 0) codes[i] = 0;
        }
        assert_halves_count_as_widened(f, codes, &ab_format_fp16);
        assert_halves_count_as_widened(f, codes, &ab_format_bf16);
    }
    free(codes);
}

/* Lanes so different in size that the order in which they are added shows. */
static void lanes_of_halves_are_those_of_fp32(void **state) {
    fixture *f = *state;
    uint16_t *codes = malloc(HALVES * sizeof *codes);
    assert_non_null(codes);
    for (int64_t i = 0; i < HALVES; i++) {
        uint32_t exponent = 127 - 60 + 3 * (uint32_t)(i * 11 % 32);
        codes[i] = (uint16_t)(exponent << 7 | (random_word(41, (uint64_t)i) & 0x7fu));
    }
    assert_halves_count_as_widened(f, codes, &ab_format_bf16);
    free(codes);
}

static void formats_without_storage_are_kept_in_fp32(void **state) {
    fixture *f = *state;
    const float values[] = {0.0f, 0x1p-9f, -0x1p-7f, 0x1p-6f, 448.0f, NAN};
    ab_census_clear(&f->got);
    ab_census_add_stored(&f->got, values, &ab_format_fp8_e4m3, 6);
    assert_int_equal(f->got.subnormal, 2); /* below 2^-6 */
    assert_int_equal(f->got.nan, 1);
    assert_int_equal(ab_census_nonzero(&f->got), 4);
}

static void merging_equals_counting_together(void **state) {
    fixture *f = *state;
    ab_census *part = malloc(sizeof *part);
    assert_non_null(part);
    fill(f->values, SPECIAL, 4, LONG);
    ab_census_clear(&f->want);
    ab_census_clear(&f->got);
    ab_census_add(&f->want, f->values, LONG);
    for (int64_t i = 0; i < LONG; i += 1000) {
        ab_census_clear(part);
        ab_census_add(part, f->values + i, LONG - i < 1000 ? LONG - i : 1000);
        ab_census_merge(&f->got, part);
    }
    assert_same_counts(&f->got, &f->want);
    assert_true(fabs(f->got.sum_squares - f->want.sum_squares) <= 1e-6 * f->want.sum_squares);
    ab_census_clear(part);
    f->want = f->got;
    ab_census_merge(&f->got, part);
    assert_memory_equal(&f->got, &f->want, sizeof f->got);
    ab_census_merge(part, &f->got);
    assert_memory_equal(part, &f->got, sizeof *part);
    free(part);
}

static void counts_by_exponent_add_up(void **state) {
    fixture *f = *state;
    int64_t sum = 0;
    fill(f->values, BITS, 6, LONG);
    ab_census_clear(&f->got);
    ab_census_add(&f->got, f->values, LONG);
    for (int e = AB_CENSUS_EMIN; e <= AB_CENSUS_EMAX; e++) sum += ab_census_at(&f->got, e);
    assert_int_equal(sum, ab_census_nonzero(&f->got));
    assert_int_equal(ab_census_at(&f->got, AB_CENSUS_EMIN - 1), 0);
    assert_int_equal(ab_census_at(&f->got, AB_CENSUS_EMAX + 1), 0);
}

static void an_empty_array_changes_nothing(void **state) {
    fixture *f = *state;
    memset(&f->got, 0x5a, sizeof f->got);
    f->want = f->got;
    ab_census_add(&f->got, NULL, 0);
    ab_census_add_stored(&f->got, NULL, &ab_format_bf16, 0);
    assert_memory_equal(&f->got, &f->want, sizeof f->got);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_arrays_are_counted_by_the_definition),
        cmocka_unit_test(long_arrays_are_counted_by_the_definition),
        cmocka_unit_test(every_level_gives_the_same_bits),
        cmocka_unit_test(blocks_of_different_kinds_follow_each_other),
        cmocka_unit_test(every_number_of_blocks_is_counted),
        cmocka_unit_test(windows_of_every_width_are_counted),
        cmocka_unit_test(a_million_values_outlive_the_first_window),
        cmocka_unit_test(sums_of_squares_keep_seven_digits),
        cmocka_unit_test(squares_of_tiny_and_huge_values_are_exact),
        cmocka_unit_test(strided_equals_gathered),
        cmocka_unit_test(data_need_not_be_aligned),
        cmocka_unit_test(all_16_bit_patterns_are_counted_by_value),
        cmocka_unit_test(halves_count_as_their_fp32_values_do),
        cmocka_unit_test(halves_of_few_exponents_count_as_their_fp32_values_do),
        cmocka_unit_test(lanes_of_halves_are_those_of_fp32),
        cmocka_unit_test(formats_without_storage_are_kept_in_fp32),
        cmocka_unit_test(merging_equals_counting_together),
        cmocka_unit_test(counts_by_exponent_add_up),
        cmocka_unit_test(an_empty_array_changes_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
