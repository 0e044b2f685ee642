/* Which of the compiled variants of our own loops runs: the one for the CPU level in force at the call. */
#include "kernels/isa.h"
#include "kernels/vec_ops.h"

#if defined(__x86_64__)
extern const ab_vec_ops ab_vec_ops_plain, ab_vec_ops_avx2, ab_vec_ops_avx512;
#else
extern const ab_vec_ops ab_vec_ops_plain;
#endif

const ab_vec_ops *ab_vec_ops_get(void) {
#if defined(__x86_64__)
    static const ab_vec_ops *const tables[] = {[AB_ISA_PLAIN] = &ab_vec_ops_plain,
                                               [AB_ISA_AVX2] = &ab_vec_ops_avx2,
                                               [AB_ISA_AVX512] = &ab_vec_ops_avx512,
                                               [AB_ISA_AVX512_BITALG] = &ab_vec_ops_avx512};
    return tables[ab_isa_get()];
#else
    return &ab_vec_ops_plain;
#endif
}
