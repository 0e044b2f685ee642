/* Philox4x32-10 and the distributions for training. */
#include "kernels/core/rng.h"

#include "kernels/core/elementary64.h"

#include <math.h>

ab_rng_block ab_philox4x32_10(ab_rng_block counter, uint32_t key0, uint32_t key1) {
    return ab_philox(counter, key0, key1);
}

ab_rng_block ab_rng_at(uint64_t seed, ab_rng_stream stream, uint32_t step, uint64_t index) {
    ab_rng_block counter = {{(uint32_t)index, (uint32_t)(index >> 32), step, (uint32_t)stream}};
    return ab_philox4x32_10(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
}

float ab_rng_uniform(uint64_t seed, ab_rng_stream stream, uint32_t step, uint64_t index) {
    return (float)(ab_rng_at(seed, stream, step, index).word[0] >> 8) * 0x1p-24f;
}

float ab_rng_normal(uint64_t seed, ab_rng_stream stream, uint32_t step, uint64_t index) {
    ab_rng_block block = ab_rng_at(seed, stream, step, index);
    double u = ((double)block.word[0] + 0.5) * 0x1p-32; /* never 0 */
    double v = (double)block.word[1] * 0x1p-32;
    return (float)(sqrt(-2.0 * ab_log(u)) * ab_cospi(2.0 * v));
}

uint64_t ab_rng_below(uint64_t seed, ab_rng_stream stream, uint32_t step, uint64_t index, uint64_t bound) {
    ab_rng_block block = ab_rng_at(seed, stream, step, index);
    uint64_t low = (uint64_t)block.word[1], high = (uint64_t)block.word[0];
    /* high word of (high:low) * bound, for bound < 2^63 */
    uint64_t lower = low * (bound & 0xFFFFFFFFu);
    uint64_t middle = high * (bound & 0xFFFFFFFFu) + (lower >> 32);
    uint64_t cross = low * (bound >> 32) + (middle & 0xFFFFFFFFu);
    return high * (bound >> 32) + (middle >> 32) + (cross >> 32);
}

uint32_t ab_rng_name(const char *name) {
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash;
}
