/* FNV-1a 64: tells whether two sequences of bytes are the same run after run. Not for security. */
#ifndef AB_BENCH_RUN_DIGEST_H
#define AB_BENCH_RUN_DIGEST_H

#include "kernels/core/compiler.h"

#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_digest {
    uint64_t state;
} ab_digest;

/* start, then add as often as needed: equal bytes in equal order give equal digests, however they are cut. */
ab_digest ab_digest_start(void);
ab_digest ab_digest_add(ab_digest digest, const void *bytes, size_t count);
/* 16 hex digits into text[17]; returns text. */
const char *ab_digest_text(ab_digest digest, char text[17]);

AB_END_DECLS

#endif
