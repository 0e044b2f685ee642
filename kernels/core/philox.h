/* Philox4x32-10 as an inline function for kernels on every device. Source: see rng.h. */
#ifndef AB_CORE_PHILOX_H
#define AB_CORE_PHILOX_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

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

AB_END_DECLS

#endif
