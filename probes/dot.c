/* Rounded and exact accumulators. Rounding uses the scalar definition of a format: slow, but identical on
 * every CPU. */
#include "probes/dot.h"

#include <math.h>

static const ab_accumulator accumulators[] = {
    {"fp16", {"fp16", 16, 11, -14, 15, true, true, 0, ""}, 0},
    {"bf16", {"bf16", 16, 8, -126, 127, true, true, 0, ""}, 0},
    {"fp32", {"fp32", 32, 24, -126, 127, true, true, 0, ""}, 0},
    {"14-bit", {"14-bit", 22, 14, -126, 127, true, true, 0, ""}, 0},
    {"chunk128", {"14-bit", 22, 14, -126, 127, true, true, 0, ""}, 128},
};

int ab_accumulator_count(void) { return (int)AB_COUNT_OF(accumulators); }
const ab_accumulator *ab_accumulator_at(int i) { return &accumulators[i]; }

ab_dot ab_dot_in(const ab_accumulator *accumulator, const float *a, const float *b, int64_t n) {
    const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    ab_dot dot = {0};
    float promoted = 0;
    for (int64_t i = 0; i < n; i++) {
        /* fp32 products are exact in double; the sum is rounded to 53 bits before it is rounded to the
         * accumulator's */
        double product = (double)a[i] * (double)b[i];
        double next = ab_format_round(&accumulator->format, &nearest, dot.sum + product);
        dot.addends += product != 0;
        dot.swamped += product != 0 && next == dot.sum;
        dot.sum = next;
        if (accumulator->chunk == 0 || (i + 1) % accumulator->chunk != 0) continue;
        promoted += (float)dot.sum;
        dot.sum = 0;
    }
    if (accumulator->chunk != 0) dot.sum = (double)(promoted + (float)dot.sum);
    return dot;
}

/* ---- exact ----------------------------------------------------------------------------------- */

/* A fixed-point number wide enough for every product of two fp32 numbers (Kulisch's long accumulator): limb i
 * counts units of 2^(32 i + LOWEST). Limbs hold 32 bits; higher bits are carries. */
enum { LOWEST = -352, LIMBS = 21 };

typedef struct long_sum {
    int64_t limb[LIMBS];
} long_sum;

/* Adds a product: its 53-bit integer significand, shifted into place, touches at most three limbs. */
static void add_product(long_sum *sum, double x) {
    int exponent;
    int64_t significand = (int64_t)ldexp(frexp(x, &exponent), 53);
    if (significand == 0) return;
    int place = exponent - 53 - LOWEST, limb = place / 32, shift = place % 32;
    int64_t sign = significand < 0 ? -1 : 1;
    uint64_t magnitude = (uint64_t)(significand * sign), low = magnitude & 0xFFFFFFFFu,
             high = magnitude >> 32;
    low <<= shift;
    high <<= shift;
    sum->limb[limb] += sign * (int64_t)(low & 0xFFFFFFFFu);
    sum->limb[limb + 1] += sign * (int64_t)((low >> 32) + (high & 0xFFFFFFFFu));
    sum->limb[limb + 2] += sign * (int64_t)(high >> 32);
}

/* Normalises limbs to [0, 2^32), except the last, which keeps the sign. */
static void carry(long_sum *sum) {
    for (int i = 0; i + 1 < LIMBS; i++) {
        int64_t low = sum->limb[i] & 0xFFFFFFFF;
        sum->limb[i + 1] += (sum->limb[i] - low) / ((int64_t)1 << 32);
        sum->limb[i] = low;
    }
}

static double value_of(long_sum *sum) {
    carry(sum);
    double sign = 1;
    if (sum->limb[LIMBS - 1] < 0) { /* a negative sum is read by its magnitude */
        for (int i = 0; i < LIMBS; i++) sum->limb[i] = -sum->limb[i];
        carry(sum);
        sign = -1;
    }
    double value = 0;
    for (int i = LIMBS - 1; i >= 0; i--) value += ldexp((double)sum->limb[i], 32 * i + LOWEST);
    return sign * value;
}

double ab_dot_exact(const float *a, const float *b, int64_t n) {
    long_sum sum = {{0}};
    for (int64_t i = 0; i < n; i++) add_product(&sum, (double)a[i] * (double)b[i]);
    return value_of(&sum);
}
