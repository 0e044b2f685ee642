/* FNV-1a 64 (Fowler, Noll, Vo; RFC 9923). */
#include "bench/run/digest.h"

#include "kernels/core/text.h"

#include <inttypes.h>
#include <stdio.h>

ab_digest ab_digest_start(void) { return (ab_digest){0xCBF29CE484222325u}; }

ab_digest ab_digest_add(ab_digest digest, const void *bytes, size_t count) {
    const unsigned char *next = bytes;
    for (size_t i = 0; i < count; i++) digest.state = (digest.state ^ next[i]) * 0x100000001B3u;
    return digest;
}

const char *ab_digest_text(ab_digest digest, char text[17]) {
    ab_text_exact(text, 17, "%016" PRIx64, digest.state);
    return text;
}
