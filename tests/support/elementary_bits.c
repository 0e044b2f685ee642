/* See elementary_bits.h. ELEMENTARY_BUILD: the name of the function in this build. */
#include "tests/support/elementary_bits.h"

#include "kernels/core/elementary.h"
#include "kernels/core/elementary64.h"

/* FNV-1a of 64 bits, eight bytes at a time. NaNs are all alike. */
static uint64_t add(uint64_t sum, uint64_t bits) { return (sum ^ bits) * UINT64_C(0x100000001b3); }

static uint64_t add_float(uint64_t sum, float y) { return add(sum, y != y ? 0x7fc00000u : ab_bits_of(y)); }

static uint64_t add_double(uint64_t sum, double y) { return add(sum, y != y ? 0x7ffu : ab_bits64_of(y)); }

/* Every 65,521st fp32 number. */
static elementary_bits of_float(const char *name, float (*f)(float)) {
    elementary_bits row = {name, UINT64_C(0xcbf29ce484222325)};
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 65521)
        row.sum = add_float(row.sum, f(ab_float_of((uint32_t)bits)));
    return row;
}

/* 64 bits from a number (splitmix64's finaliser). */
static uint64_t mixed(uint64_t n) {
    n *= UINT64_C(0x9e3779b97f4a7c15);
    n = (n ^ n >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    n = (n ^ n >> 27) * UINT64_C(0x94d049bb133111eb);
    return n ^ n >> 31;
}

/* Number i of a sample of doubles: in turn any pattern, and fractions in (-1, 1) times 1, 32 and 1024. */
static double sample(uint64_t i) {
    static const double size[] = {1.0, 32.0, 1024.0};
    const uint64_t bits = mixed(i);
    if (i % 4 == 0) return ab_double_of(bits);
    const double fraction = (double)(bits >> 11) * 0x1p-53 * size[i % 4 - 1];
    return bits & 1u ? -fraction : fraction;
}

static elementary_bits of_double(const char *name, double (*f)(double)) {
    elementary_bits row = {name, UINT64_C(0xcbf29ce484222325)};
    for (uint64_t i = 0; i < 40000; i++) row.sum = add_double(row.sum, f(sample(i)));
    return row;
}

static elementary_bits of_pow(void) {
    elementary_bits row = {"ab_pow", UINT64_C(0xcbf29ce484222325)};
    for (uint64_t i = 0; i < 20000; i++) {
        const double x = sample(2 * i), y = sample(2 * i + 1);
        row.sum = add_double(row.sum, ab_pow(x, y));
        row.sum = add_double(row.sum, ab_pow(fabs(x), y));
        row.sum = add_double(row.sum, ab_pow(fabs(y) * 0x1p-5, (double)(i % 1000)));
    }
    return row;
}

void ELEMENTARY_BUILD(elementary_bits row[ELEMENTARY_FUNCTIONS]) {
    const elementary_bits all[ELEMENTARY_FUNCTIONS] = {of_float("ab_expf", ab_expf),
                                                       of_float("ab_logf", ab_logf),
                                                       of_float("ab_log1pf", ab_log1pf),
                                                       of_float("ab_tanhf", ab_tanhf),
                                                       of_float("ab_f_sigmoid", ab_f_sigmoid),
                                                       of_float("ab_f_silu_slope", ab_f_silu_slope),
                                                       of_float("ab_f_gelu", ab_f_gelu),
                                                       of_float("ab_f_gelu_slope", ab_f_gelu_slope),
                                                       of_float("ab_f_gelu_tanh", ab_f_gelu_tanh),
                                                       of_float("ab_f_gelu_tanh_slope", ab_f_gelu_tanh_slope),
                                                       of_double("ab_exp", ab_exp),
                                                       of_double("ab_log", ab_log),
                                                       of_double("ab_cospi", ab_cospi),
                                                       of_pow()};
    memcpy(row, all, sizeof all);
}
