/* Runs subjects through all inputs in chunks that stay in the first-level cache and compares them with the
 * oracle. */
#include "bench/prove/prove.h"

#include "bench/prove/oracle.h"
#include "kernels/format/convert.h"
#include "kernels/vec/isa.h"

#include <omp.h>
#include <string.h>

enum { CHUNK = 2048, BLOCK_BITS = 24 };

/* ---- subjects -------------------------------------------------------------------------------- */

static uint32_t fp32_bits(double x) {
    float value = (float)x;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Neighbouring inputs mostly share their result, so decoding only what changed halves the time. */
static void convert_scalar(const ab_format *format, const ab_rounding *rounding, const float *x, int64_t n,
                           uint32_t *codes, uint32_t *values) {
    for (int64_t i = 0; i < n; i++) {
        codes[i] = (uint32_t)ab_format_encode(format, rounding, (double)x[i]);
        bool same = i > 0 && codes[i] == codes[i - 1];
        values[i] = same ? values[i - 1] : fp32_bits(ab_format_decode(format, codes[i]));
    }
}

static void spread_codes(uint32_t *codes, const void *packed, size_t bytes, int64_t n) {
    const uint8_t *bytes8 = packed;
    const uint16_t *bytes16 = packed;
    if (bytes == sizeof *bytes8)
        for (int64_t i = 0; i < n; i++) codes[i] = bytes8[i];
    else if (bytes == sizeof *bytes16)
        for (int64_t i = 0; i < n; i++) codes[i] = bytes16[i];
    else
        memcpy(codes, packed, (size_t)n * sizeof *codes);
}

static bool is_plain_rne(const ab_rounding *rounding) {
    return rounding->mode == AB_ROUND_NEAREST_EVEN && !rounding->saturate && rounding->ftz == AB_FTZ_NONE;
}

/* The array kernels at the current CPU level. Codes are decoded again, so that decoding is tested too; for
 * stored formats ab_narrow and ab_widen are used instead of the generic kernels. */
static void convert_vector(const ab_format *format, const ab_rounding *rounding, const float *x, int64_t n,
                           uint32_t *codes, uint32_t *values) {
    uint32_t packed[CHUNK], decoded_bits[CHUNK];
    float rounded[CHUNK], decoded[CHUNK];
    bool stored = is_plain_rne(rounding) && format->storage_bytes == 2;
    memcpy(rounded, x, (size_t)n * sizeof *x);
    ab_round_array(rounded, format, rounding, n);
    if (stored) {
        ab_narrow(packed, format, x, n);
        ab_widen(decoded, packed, format, n);
    } else {
        ab_encode_array(packed, format, rounding, x, n);
        ab_decode_array(decoded, packed, format, n);
    }
    spread_codes(codes, packed, ab_code_bytes(format), n);
    memcpy(values, rounded, (size_t)n * sizeof *values);
    memcpy(decoded_bits, decoded, (size_t)n * sizeof *decoded);
    for (int64_t i = 0; i < n; i++) /* if the two results differ, make the code wrong */
        codes[i] = values[i] == decoded_bits[i] ? codes[i] : ~codes[i];
}

/* The values are the instruction's codes, widened by our own code. */
static void convert_hardware(const ab_format *format, const ab_rounding *rounding, const float *x, int64_t n,
                             uint32_t *codes, uint32_t *values) {
    uint16_t packed[CHUNK];
    float widened[CHUNK];
    ab_hardware_find(format, rounding)->convert(packed, x, n);
    ab_widen(widened, packed, format, n);
    spread_codes(codes, packed, sizeof *packed, n);
    memcpy(values, widened, (size_t)n * sizeof *values);
}

/* ---- one block ------------------------------------------------------------------------------- */

typedef struct job {
    const ab_subject *subject;
    const ab_format *format;
    const ab_rounding *rounding;
    bool wants_tally;
} job;

typedef struct partial {
    ab_proof_verdict verdict;
    ab_proof_tally tally;
} partial;

static const uint64_t fnv_start = UINT64_C(0xcbf29ce484222325), fnv_prime = UINT64_C(0x100000001b3);

static void compare(ab_proof_verdict *verdict, uint32_t first, const uint32_t *expected,
                    const uint32_t *expected_values, const uint32_t *got, const uint32_t *got_values) {
    size_t bytes = CHUNK * sizeof *got;
    verdict->inputs += CHUNK;
    if (memcmp(expected, got, bytes) == 0 && memcmp(expected_values, got_values, bytes) == 0) return;
    for (uint32_t i = 0; i < CHUNK; i++) {
        if (expected[i] == got[i] && expected_values[i] == got_values[i]) continue;
        if (verdict->mismatches++ > 0) continue;
        verdict->input = first + i;
        verdict->expected = expected[i];
        verdict->got = got[i];
    }
}

static void tally_codes(ab_proof_tally *tally, const ab_format *format, const uint32_t *codes) {
    uint32_t magnitudes = (1U << (format->bits - 1)) - 1, min_normal = 1U << (format->precision - 1);
    uint32_t last = (uint32_t)ab_format_max_code(format);
    uint32_t infinity = format->infinity ? last + 1 : UINT32_MAX;
    uint32_t zero = 0, below = 0, infinite = 0, nan = 0;
    for (int i = 0; i < CHUNK; i++) {
        uint32_t magnitude = codes[i] & magnitudes;
        zero += magnitude == 0;
        below += magnitude < min_normal;
        infinite += magnitude == infinity;
        nan += magnitude > last;
    }
    tally->zero += zero;
    tally->subnormal += below - zero;
    tally->normal += CHUNK - below - nan;
    tally->infinite += infinite;
    tally->nan += nan - infinite;
    for (int i = 0; i < CHUNK; i += 2)
        tally->checksum = (tally->checksum ^ (codes[i] | (uint64_t)codes[i + 1] << 32)) * fnv_prime;
}

static void try_block(const job *work, uint32_t block, partial *result) {
    float x[CHUNK];
    uint32_t inputs[CHUNK], expected[CHUNK], expected_values[CHUNK], codes[CHUNK], values[CHUNK];
    const uint32_t exponent = 0x7f800000U;
    result->tally.checksum = fnv_start;
    for (uint32_t at = 0; at < 1U << BLOCK_BITS; at += CHUNK) {
        uint32_t first = (block << BLOCK_BITS) + at;
        if (work->subject->skips_subnormals && (first & exponent) == 0) continue;
        for (uint32_t i = 0; i < CHUNK; i++) inputs[i] = first + i;
        memcpy(x, inputs, sizeof x);
        ab_oracle_round(work->format, work->rounding, first, CHUNK, expected, expected_values);
        work->subject->convert(work->format, work->rounding, x, CHUNK, codes, values);
        compare(&result->verdict, first, expected, expected_values, codes, values);
        if (work->wants_tally) tally_codes(&result->tally, work->format, codes);
    }
}

/* ---- all blocks ------------------------------------------------------------------------------ */

static void add_partial(ab_proof_verdict *verdict, ab_proof_tally *tally, const partial *part) {
    if (verdict->mismatches == 0) {
        verdict->input = part->verdict.input;
        verdict->expected = part->verdict.expected;
        verdict->got = part->verdict.got;
    }
    verdict->inputs += part->verdict.inputs;
    verdict->mismatches += part->verdict.mismatches;
    tally->zero += part->tally.zero;
    tally->subnormal += part->tally.subnormal;
    tally->normal += part->tally.normal;
    tally->infinite += part->tally.infinite;
    tally->nan += part->tally.nan;
    tally->checksum = (tally->checksum ^ part->tally.checksum) * fnv_prime;
}

ab_status ab_prove_check(const ab_format *format, const ab_rounding *rounding) {
    if (!ab_oracle_covers(format))
        return ab_fail(AB_UNAVAILABLE,
                       "format %s: proofs cover formats whose values are all fp32 values "
                       "(at most 24 significand and 8 exponent bits)",
                       format->name);
    if (rounding->mode == AB_ROUND_STOCHASTIC)
        return ab_fail(AB_UNAVAILABLE,
                       "mode sr: proofs cover rne, rna, rz, ru and rd; the unit tests enumerate sr");
    return AB_OK;
}

ab_status ab_prove_subject(const ab_subject *subject, const ab_format *format, const ab_rounding *rounding,
                           int first_block, int blocks, ab_proof_verdict *verdict, ab_proof_tally *tally) {
    partial parts[AB_PROVE_BLOCKS] = {0};
    job work = {subject, format, rounding, tally != NULL};
    ab_proof_tally sum = {0};
    AB_TRY(ab_prove_check(format, rounding));
#pragma omp parallel for schedule(dynamic, 1)
    for (int i = 0; i < blocks; i++) try_block(&work, (uint32_t)(first_block + i), &parts[i]);
    memset(verdict, 0, sizeof *verdict);
    verdict->subject = subject->name;
    sum.checksum = fnv_start;
    for (int i = 0; i < blocks; i++) add_partial(verdict, &sum, &parts[i]);
    if (tally != NULL) *tally = sum;
    return AB_OK;
}

/* ---- all implementations --------------------------------------------------------------------- */

static ab_status try_subject(const ab_subject *subject, const ab_format *format, const ab_rounding *rounding,
                             ab_proof *proof, ab_proof_tally *tally) {
    ab_proof_verdict *verdict = &proof->verdict[proof->verdicts++];
    return ab_prove_subject(subject, format, rounding, 0, AB_PROVE_BLOCKS, verdict, tally);
}

/* Leaves the CPU level changed. */
static ab_status try_levels(const ab_format *format, const ab_rounding *rounding, bool every_level,
                            ab_proof *proof) {
    ab_isa last = ab_isa_get() < AB_ISA_AVX512 ? ab_isa_get()
                                               : AB_ISA_AVX512; /* the level above converts in the same way */
    for (int isa = every_level ? AB_ISA_PLAIN : (int)last; isa <= (int)last; isa++) {
        const ab_subject vector = {ab_isa_name((ab_isa)isa), convert_vector, false};
        AB_TRY(ab_isa_force((ab_isa)isa));
        AB_TRY(try_subject(&vector, format, rounding, proof, NULL));
    }
    return AB_OK;
}

ab_status ab_prove(const ab_format *format, const ab_rounding *rounding, bool every_level, ab_proof *proof) {
    const ab_subject scalar = {"scalar", convert_scalar, false};
    const ab_hardware_convert *hardware = ab_hardware_find(format, rounding);
    const ab_isa before = ab_isa_get();
    double start = omp_get_wtime();
    memset(proof, 0, sizeof *proof);
    AB_TRY(try_subject(&scalar, format, rounding, proof, &proof->tally));
    ab_status status = try_levels(format, rounding, every_level, proof);
    AB_TRY(ab_isa_force(before));
    AB_TRY(status);
    if (hardware != NULL) {
        const ab_subject instruction = {hardware->name, convert_hardware, hardware->flushes_inputs};
        AB_TRY(try_subject(&instruction, format, rounding, proof, NULL));
    }
    proof->seconds = omp_get_wtime() - start;
    return AB_OK;
}

/* One function per convert instruction, each compiled for its own extension and called only where the CPU has
 * it. */

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
