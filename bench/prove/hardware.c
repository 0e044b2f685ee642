/* One function per convert instruction, each compiled for its own extension and called only where the CPU has
 * it. */
#include "bench/prove/hardware.h"

#include <string.h>

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

enum {
    LANES = 8,
    NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC,
    ZERO = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC,
    UP = _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC,
    DOWN = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC
};

/* The mode is a field of the instruction, so each mode is a function. */
__attribute__((target("avx,f16c"))) static void fp16_rne(uint16_t *codes, const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES)
        _mm_storeu_si128((__m128i *)(void *)(codes + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(values + i), NEAREST));
}

__attribute__((target("avx,f16c"))) static void fp16_rz(uint16_t *codes, const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES)
        _mm_storeu_si128((__m128i *)(void *)(codes + i), _mm256_cvtps_ph(_mm256_loadu_ps(values + i), ZERO));
}

__attribute__((target("avx,f16c"))) static void fp16_ru(uint16_t *codes, const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES)
        _mm_storeu_si128((__m128i *)(void *)(codes + i), _mm256_cvtps_ph(_mm256_loadu_ps(values + i), UP));
}

__attribute__((target("avx,f16c"))) static void fp16_rd(uint16_t *codes, const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES)
        _mm_storeu_si128((__m128i *)(void *)(codes + i), _mm256_cvtps_ph(_mm256_loadu_ps(values + i), DOWN));
}

__attribute__((target("avx512f,avx512vl,avx512bf16"))) static void bf16_rne(uint16_t *codes,
                                                                            const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        __m128bh half = _mm256_cvtneps_pbh(_mm256_loadu_ps(values + i));
        memcpy(codes + i, &half, sizeof half);
    }
}

/* CPUID leaf 1, ECX 29; clang 14 cannot ask for "f16c" by name. The AVX check covers operating system
 * support. */
static bool has_f16c(void) {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx >> 29 & 1U);
}

static bool has_bf16(void) {
    return __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
}

static const struct {
    bool (*present)(void);
    ab_hardware_convert convert;
} instructions[] = {
    {has_f16c, {"vcvtps2ph", &ab_format_fp16, AB_ROUND_NEAREST_EVEN, false, fp16_rne}},
    {has_f16c, {"vcvtps2ph", &ab_format_fp16, AB_ROUND_TOWARD_ZERO, false, fp16_rz}},
    {has_f16c, {"vcvtps2ph", &ab_format_fp16, AB_ROUND_UP, false, fp16_ru}},
    {has_f16c, {"vcvtps2ph", &ab_format_fp16, AB_ROUND_DOWN, false, fp16_rd}},
    {has_bf16, {"vcvtneps2bf16", &ab_format_bf16, AB_ROUND_NEAREST_EVEN, true, bf16_rne}},
};

const ab_hardware_convert *ab_hardware_find(const ab_format *format, const ab_rounding *rounding) {
    if (rounding->saturate || rounding->ftz != AB_FTZ_NONE) return NULL;
    for (size_t i = 0; i < AB_COUNT_OF(instructions); i++) {
        const ab_hardware_convert *convert = &instructions[i].convert;
        if (convert->format == format && convert->mode == rounding->mode && instructions[i].present())
            return convert;
    }
    return NULL;
}

#else

const ab_hardware_convert *ab_hardware_find(const ab_format *format, const ab_rounding *rounding) {
    (void)format;
    (void)rounding;
    return NULL;
}

#endif
