/* Checksums of the bits of elementary.h and elementary64.h over fixed samples, compiled in several ways
 * (CMakeLists.txt), each with a name of its own. No way may change a bit. */
#ifndef AB_TESTS_SUPPORT_ELEMENTARY_BITS_H
#define AB_TESTS_SUPPORT_ELEMENTARY_BITS_H

#include <stdint.h>

enum { ELEMENTARY_FUNCTIONS = 14 };

typedef struct elementary_bits {
    const char *name;
    uint64_t sum;
} elementary_bits;

/* Fills all rows; the same names in the same order from each. */
typedef void elementary_build(elementary_bits row[ELEMENTARY_FUNCTIONS]);

elementary_build elementary_bits_O0, elementary_bits_O1, elementary_bits_O3, elementary_bits_avx2,
    elementary_bits_avx512;

#endif
