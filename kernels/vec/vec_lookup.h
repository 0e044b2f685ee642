/* Tables of 256 values, looked up by bytes. Compiled once per CPU level (vec_lookup.c); with AVX-512 the
 * table is in registers, cut into planes: with VBMI one for each byte of a value, else one for each two
 * bytes. */
#ifndef AB_KERNELS_VEC_VEC_LOOKUP_H
#define AB_KERNELS_VEC_VEC_LOOKUP_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_LOOKUP = 256 };

/* A table as the loops read it; made by the level that reads it. */
typedef struct ab_lookup_table {
    int bytes; /* of a value: 4 (float) or 2 */
    union {
        float word[AB_LOOKUP];
        uint16_t half[AB_LOOKUP];
        uint8_t byte_plane[4][AB_LOOKUP];
        uint16_t half_plane[2][AB_LOOKUP];
    } as;
} ab_lookup_table;

typedef struct ab_vec_lookup {
    /* Makes the table of 256 floats (bytes: 4) or 16-bit codes (2). */
    void (*prepare)(ab_lookup_table *table, const void *values, int bytes);
    /* to[i] = the value of from[i] for i < n; to: floats, or 16-bit codes */
    void (*look_up)(void *to, const ab_lookup_table *table, const uint8_t *from, int64_t n);
} ab_vec_lookup;

/* The loops of the CPU level in force (dispatch.c). */
const ab_vec_lookup *ab_vec_lookup_get(void);

AB_END_DECLS

#endif
