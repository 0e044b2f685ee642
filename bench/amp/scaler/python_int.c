/* Exact integers of up to 1,024 bits, in limbs. */
#include "bench/amp/scaler/python_int.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { LIMBS = 34 }; /* 1,088 bits: any product that starts below 2^1024 fits */

static int top_bit(const uint32_t *limb) {
    int i = LIMBS - 1, b = 31;
    while (i >= 0 && limb[i] == 0) i--;
    while (i >= 0 && !(limb[i] >> b & 1u)) b--;
    return i < 0 ? -1 : 32 * i + b;
}

static bool bit(const uint32_t *limb, int i) { return i >= 0 && (limb[i / 32] >> (i % 32) & 1u) != 0; }

/* The top 53 bits, rounded to nearest even. */
static double rounded(const uint32_t *limb) {
    int top = top_bit(limb), low = top - 52;
    uint64_t digits = 0;
    for (int i = top; i >= low; i--) digits = 2 * digits + bit(limb, i);
    bool half = bit(limb, low - 1), rest = false;
    for (int i = 0; i < low - 1; i++) rest = rest || bit(limb, i);
    digits += half && (rest || (digits & 1u));
    return ldexp((double)digits, low);
}

/* The product in double; more factors than MOST change nothing but 0 and infinity. */
static double ordinary(double base, double factor, double power) {
    enum { MOST = 4096 };
    for (int n = 0; n < power && n < MOST && isfinite(base) && base != 0; n++) base *= factor;
    return base;
}

/* Doublings, and powers of two in general, are shifts: exact, or beyond the largest double. */
static double shifted(uint64_t start, uint64_t by, double power) {
    int bits = 0;
    while (by >> bits > 1) bits++;
    return power < 1024 ? ldexp((double)start, bits * (int)ceil(power)) : HUGE_VAL;
}

double ab_python_int(double base, double factor, double power) {
    uint32_t limb[LIMBS] = {0};
    if (!(base >= 0 && base <= 0x1p53) || !(factor < 0x1p31)) return ordinary(base, factor, power);
    uint64_t start = (uint64_t)base, by = (uint64_t)factor;
    limb[0] = (uint32_t)start;
    limb[1] = (uint32_t)(start >> 32);
    if (base == 0) return 0;
    if (by > 1 && (by & (by - 1)) == 0 && power > 0) return shifted(start, by, power);
    for (double n = 0; n < power && by > 1; n++) {
        uint64_t carry = 0;
        for (int i = 0; i < LIMBS; i++) {
            carry += by * limb[i];
            limb[i] = (uint32_t)carry;
            carry >>= 32;
        }
        if (top_bit(limb) >= 1024) return HUGE_VAL;
    }
    return rounded(limb);
}
