/* Selects the compiled variant of our own loops for the CPU level in force at the call. */
#include "kernels/vec/isa.h"
#include "kernels/vec/vec_conv.h"
#include "kernels/vec/vec_lookup.h"
#include "kernels/vec/vec_math.h"
#include "kernels/vec/vec_ops.h"

#if defined(__x86_64__)

extern const ab_vec_ops ab_vec_ops_plain, ab_vec_ops_avx2, ab_vec_ops_avx512;
extern const ab_vec_conv ab_vec_conv_plain, ab_vec_conv_avx2, ab_vec_conv_avx512;

const ab_vec_ops *ab_vec_ops_get(void) {
    static const ab_vec_ops *const tables[] = {[AB_ISA_PLAIN] = &ab_vec_ops_plain,
                                               [AB_ISA_AVX2] = &ab_vec_ops_avx2,
                                               [AB_ISA_AVX512] = &ab_vec_ops_avx512,
                                               [AB_ISA_AVX512_BITALG] = &ab_vec_ops_avx512};
    return tables[ab_isa_get()];
}

const ab_vec_conv *ab_vec_conv_get(void) {
    static const ab_vec_conv *const tables[] = {[AB_ISA_PLAIN] = &ab_vec_conv_plain,
                                                [AB_ISA_AVX2] = &ab_vec_conv_avx2,
                                                [AB_ISA_AVX512] = &ab_vec_conv_avx512,
                                                [AB_ISA_AVX512_BITALG] = &ab_vec_conv_avx512};
    return tables[ab_isa_get()];
}

extern const ab_vec_math ab_vec_math_plain, ab_vec_math_avx2, ab_vec_math_avx512;

const ab_vec_math *ab_vec_math_get(void) {
    static const ab_vec_math *const tables[] = {[AB_ISA_PLAIN] = &ab_vec_math_plain,
                                                [AB_ISA_AVX2] = &ab_vec_math_avx2,
                                                [AB_ISA_AVX512] = &ab_vec_math_avx512,
                                                [AB_ISA_AVX512_BITALG] = &ab_vec_math_avx512};
    return tables[ab_isa_get()];
}

extern const ab_vec_lookup ab_vec_lookup_plain, ab_vec_lookup_avx2, ab_vec_lookup_avx512,
    ab_vec_lookup_avx512bitalg;

const ab_vec_lookup *ab_vec_lookup_get(void) {
    static const ab_vec_lookup *const tables[] = {[AB_ISA_PLAIN] = &ab_vec_lookup_plain,
                                                  [AB_ISA_AVX2] = &ab_vec_lookup_avx2,
                                                  [AB_ISA_AVX512] = &ab_vec_lookup_avx512,
                                                  [AB_ISA_AVX512_BITALG] = &ab_vec_lookup_avx512bitalg};
    return tables[ab_isa_get()];
}

#else

extern const ab_vec_ops ab_vec_ops_plain;
extern const ab_vec_conv ab_vec_conv_plain;
extern const ab_vec_math ab_vec_math_plain;
extern const ab_vec_lookup ab_vec_lookup_plain;

const ab_vec_ops *ab_vec_ops_get(void) { return &ab_vec_ops_plain; }
const ab_vec_conv *ab_vec_conv_get(void) { return &ab_vec_conv_plain; }
const ab_vec_math *ab_vec_math_get(void) { return &ab_vec_math_plain; }
const ab_vec_lookup *ab_vec_lookup_get(void) { return &ab_vec_lookup_plain; }

#endif
