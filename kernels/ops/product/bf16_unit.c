/* The choice of a unit for bf16 products; see bf16_unit.h. */
#include "kernels/ops/product/bf16_unit.h"

#include "kernels/vec/isa.h"

#include <stddef.h>

#if defined(__x86_64__)
static bool vectors_pay(void) { return __builtin_cpu_is("amd") != 0; }
#else
static bool vectors_pay(void) { return false; }
#endif

const ab_bf16_unit *ab_bf16_unit_get(bool any) {
    if (ab_isa_get() != AB_ISA_AVX512_BITALG) return NULL;
    const ab_bf16_unit *tiles = ab_bf16_unit_amx();
    if (tiles) return tiles;
    return any || vectors_pay() ? ab_bf16_unit_avx512() : NULL;
}
