/* CPU level of our own kernels. It is detected once, at run time; AMPBENCH_CPU_ISA (plain, avx2, avx512,
 * avx512bitalg) or ab_isa_force lowers it, never raises it. oneDNN has its own selection
 * (ONEDNN_MAX_CPU_ISA). */
#ifndef AB_KERNELS_VEC_ISA_H
#define AB_KERNELS_VEC_ISA_H

#include "kernels/core/status.h"

AB_BEGIN_DECLS

typedef enum ab_isa {
    AB_ISA_PLAIN,        /* plain C for the compiler's baseline */
    AB_ISA_AVX2,         /* AVX2 + F16C + FMA + BMI1 + BMI2 + POPCNT */
    AB_ISA_AVX512,       /* AVX-512 F, BW, DQ, VL */
    AB_ISA_AVX512_BITALG /* the former + VBMI, VBMI2, GFNI, BITALG, VPOPCNTDQ */
} ab_isa;

/* The level in force; the first call reads the CPU and AMPBENCH_CPU_ISA. Thread-safe after the first call. */
ab_isa ab_isa_get(void);

/* The highest level this CPU supports, regardless of ab_isa_force. */
ab_isa ab_isa_best(void);

/* For tests: sets the level in force. AB_UNAVAILABLE if the CPU lacks it. */
AB_MUST_CHECK ab_status ab_isa_force(ab_isa isa);

/* "plain", "avx2", ...; find: AB_USAGE with the nearest name for an unknown one. */
const char *ab_isa_name(ab_isa isa);
AB_MUST_CHECK ab_status ab_isa_find(const char *name, ab_isa *isa);

/* AB_BY_ISA(type, name): declares the tables name_plain, name_avx2 and name_avx512, which a vec_*.c file
 * defines once per level, and defines the function name_get(), which returns that of the level in force. */
#if defined(__x86_64__)
#define AB_BY_ISA(type, name)                                                                                \
    extern const type name##_plain, name##_avx2, name##_avx512;                                              \
    static inline const type *name##_get(void) {                                                             \
        const ab_isa isa = ab_isa_get();                                                                     \
        return isa >= AB_ISA_AVX512 ? &name##_avx512 : isa == AB_ISA_AVX2 ? &name##_avx2 : &name##_plain;    \
    }
#else
#define AB_BY_ISA(type, name)                                                                                \
    extern const type name##_plain;                                                                          \
    static inline const type *name##_get(void) { return &name##_plain; }
#endif

/* AB_ISA_TABLE(type) = {...}; in a vec_*.c file defines that table of the level that it is compiled for. */
#define AB_ISA_TABLE(type) AB_ISA_TABLE_OF(type, AB_ISA_SUFFIX)
#define AB_ISA_TABLE_OF(type, level) AB_ISA_TABLE_NAMED(type, level) /* expands `level` */
#define AB_ISA_TABLE_NAMED(type, level)                                                                      \
    extern const type type##_##level;                                                                        \
    const type type##_##level

AB_END_DECLS

#endif
