/* FNV-1a 64: a digest to compare byte sequences across runs. Not for security. */
#ifndef AB_BENCH_RUN_DIGEST_H
#define AB_BENCH_RUN_DIGEST_H

#include "kernels/core/compiler.h"

#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_digest {
    uint64_t state;
} ab_digest;

/* Call start, then add any number of times: equal bytes in equal order give equal digests, however they are
 * split. */
ab_digest ab_digest_start(void);
ab_digest ab_digest_add(ab_digest digest, const void *bytes, size_t count);
/* Writes 16 hex digits into text[17]; returns text. */
const char *ab_digest_text(ab_digest digest, char text[17]);

AB_END_DECLS

#endif
