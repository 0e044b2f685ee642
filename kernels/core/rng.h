/* Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
 * as 1, 2, 3", SC'11, section 3.3). A value is a pure function of (seed, stream, step, index), so weights,
 * batch order and masks are the same on every device and thread count. */
#ifndef AB_CORE_RNG_H
#define AB_CORE_RNG_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

/* Philox4x32-10 as an inline function for kernels on every device. Source: above. */

typedef struct ab_rng_block {
    uint32_t word[4];
} ab_rng_block;

/* Philox4x32-10 of `counter` under the key (key0, key1). */
static inline AB_HOST_DEVICE ab_rng_block ab_philox(ab_rng_block counter, uint32_t key0, uint32_t key1) {
    enum { ROUNDS = 10 };
    uint32_t *c = counter.word;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53u * c[0];
        uint64_t product1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(product1 >> 32) ^ c[1] ^ key0, (uint32_t)product1,
                            (uint32_t)(product0 >> 32) ^ c[3] ^ key1, (uint32_t)product0};
        for (int i = 0; i < 4; i++) c[i] = next[i];
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

/* The use of a random sequence; part of the counter, so that uses never share values. Append only. */
typedef enum ab_rng_stream {
    AB_RNG_INIT = 1,      /* initial weights; step = hash of the parameter's name */
    AB_RNG_ORDER = 2,     /* shuffled batch order; step = epoch */
    AB_RNG_SYNTHETIC = 3, /* the synthetic data set; step = sample */
    AB_RNG_ROUNDING = 4,  /* stochastic rounding */
    AB_RNG_DROPOUT = 5,   /* masks; step = training step */
    AB_RNG_SAMPLE = 6,    /* elements sampled by a probe */
    AB_RNG_DESIGN = 7     /* order of the cells in a round */
} ab_rng_stream;

/* Four words for counter (index, step, stream) under key `seed`. */
ab_rng_block ab_rng_at(uint64_t seed, ab_rng_stream stream, uint32_t step, uint64_t index);

/* The bare function, for the published test vectors. */
ab_rng_block ab_philox4x32_10(ab_rng_block counter, uint32_t key0, uint32_t key1);

/* Word 0 of ab_rng_at as uniform in [0, 1), multiples of 2^-24. */
float ab_rng_uniform(uint64_t seed, ab_rng_stream stream, uint32_t step, uint64_t index);

/* Standard normal from words 0 and 1 by Box-Muller, computed in double, rounded once. */
float ab_rng_normal(uint64_t seed, ab_rng_stream stream, uint32_t step, uint64_t index);

/* Uniform integer in [0, bound), bound >= 1, without modulo bias beyond 2^-64 (64 x 64 -> 128 multiply). */
uint64_t ab_rng_below(uint64_t seed, ab_rng_stream stream, uint32_t step, uint64_t index, uint64_t bound);

/* FNV-1a of a name: the `step` of AB_RNG_INIT. */
uint32_t ab_rng_name(const char *name);

AB_END_DECLS

#endif
