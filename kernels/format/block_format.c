/* Scalar block quantisation. Quotients are computed in double: with operands of at most 28 bits they are
 * either exact ties or far enough from one, so the single rounding to the element's format is correct. */
#include "kernels/format/block_format.h"
#include "kernels/core/text.h"

#include <math.h>
#include <string.h>

enum { E8M0_BIAS = 127, E8M0_NAN = 255, LONGEST_BLOCK = 32 };

static const ab_block_format rows[] = {
    {"mxfp8", 32, &ab_format_fp8_e4m3, NULL, "OCP MXFP8: E4M3 elements, E8M0 scale per 32"},
    {"mxfp4", 32, &ab_format_fp4_e2m1, NULL, "OCP MXFP4: E2M1 elements, E8M0 scale per 32"},
    {"nvfp4", 16, &ab_format_fp4_e2m1, &ab_format_fp8_e4m3,
     "NVFP4: E2M1 elements, E4M3 scale per 16, fp32 scale per tensor"},
};

int ab_block_format_count(void) { return (int)AB_COUNT_OF(rows); }

const ab_block_format *ab_block_format_at(int i) { return &rows[i]; }

ab_status ab_block_format_find(const char *name, const ab_block_format **format) {
    const char *names[AB_COUNT_OF(rows)];
    *format = NULL;
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        names[i] = rows[i].name;
        if (strcmp(name, rows[i].name) == 0) *format = &rows[i];
    }
    if (*format != NULL) return AB_OK;
    const char *near = ab_nearest(name, names, (int)AB_COUNT_OF(names));
    return ab_fail(AB_CONFIG, "unknown block format \"%s\"; expected mxfp8, mxfp4 or nvfp4%s%s",
                   ab_text_brief(name, 60), near != NULL ? "; nearest: " : "", near != NULL ? near : "");
}

int64_t ab_block_count(const ab_block_format *format, int64_t n) {
    return (n + format->block - 1) / format->block;
}

size_t ab_block_format_bytes(const ab_block_format *format, int64_t n) {
    size_t elements = ((size_t)n * (size_t)format->element->bits + 7) / 8;
    return elements + (size_t)ab_block_count(format, n) + (format->scale != NULL ? sizeof(float) : 0);
}

/* ---- scales ---------------------------------------------------------------------------------- */

static float finite_amax(const float *x, int64_t n) {
    float amax = 0;
    for (int64_t i = 0; i < n; i++) {
        float magnitude = fabsf(x[i]);
        if (isfinite(magnitude) && magnitude > amax) amax = magnitude;
    }
    return amax;
}

float ab_block_tensor_scale(const ab_block_format *format, float amax) {
    if (format->scale == NULL || amax == 0) return 1;
    double largest = ab_format_max(format->scale) * ab_format_max(format->element);
    float scale = (float)((double)amax / largest);
    return scale > 0 ? scale : 0x1p-149F;
}

/* ceil(log2(amax / max)) from the exponents and significands of both. */
static uint8_t e8m0_scale(const ab_format *element, float amax) {
    int amax_exponent = 0, max_exponent = 0;
    if (amax == 0) return 0;
    double amax_part = frexp((double)amax, &amax_exponent);
    double max_part = frexp(ab_format_max(element), &max_exponent);
    int exponent = amax_exponent - max_exponent + (amax_part > max_part ? 1 : 0);
    return (uint8_t)(exponent < -E8M0_BIAS ? 0 : exponent + E8M0_BIAS);
}

static uint8_t scale_code(const ab_block_format *format, float tensor_scale, float amax) {
    static const ab_rounding saturating = {AB_ROUND_NEAREST_EVEN, true, AB_FTZ_NONE, 0, 0};
    if (format->scale == NULL) return e8m0_scale(format->element, amax);
    double wanted = (double)amax / (ab_format_max(format->element) * (double)tensor_scale);
    return (uint8_t)ab_format_encode(format->scale, &saturating, wanted);
}

static double scale_value(const ab_block_format *format, uint8_t code) {
    if (format->scale != NULL) return ab_format_decode(format->scale, code);
    return code == E8M0_NAN ? (double)NAN : ldexp(1.0, code - E8M0_BIAS);
}

static uint8_t nan_scale(const ab_block_format *format) {
    static const ab_rounding rne = {AB_ROUND_NEAREST_EVEN, false, AB_FTZ_NONE, 0, 0};
    return format->scale == NULL ? (uint8_t)E8M0_NAN
                                 : (uint8_t)ab_format_encode(format->scale, &rne, (double)NAN);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Codes of one block and of its scale. */
static uint8_t encode_block(const ab_block_format *format, const ab_rounding *rounding, float tensor_scale,
                            const float *x, int64_t n, uint8_t *codes) {
    ab_rounding own = *rounding;
    uint8_t scale = scale_code(format, tensor_scale, finite_amax(x, n));
    double divisor = scale_value(format, scale) * (double)tensor_scale;
    bool all_finite = true;
    own.saturate = true;
    for (int64_t i = 0; i < n; i++) {
        bool finite = isfinite(x[i]) != 0;
        double quotient = divisor == 0 ? copysign(0, (double)x[i]) : (double)x[i] / divisor;
        if (!finite) quotient = copysign((double)NAN, (double)x[i]);
        codes[i] = (uint8_t)ab_format_encode(format->element, &own, quotient);
        all_finite = all_finite && finite;
    }
    return all_finite || format->element->nan ? scale : nan_scale(format);
}

static void decode_block(const ab_block_format *format, float tensor_scale, const uint8_t *codes,
                         uint8_t scale, int64_t n, float *x) {
    double factor = scale_value(format, scale) * (double)tensor_scale;
    for (int64_t i = 0; i < n; i++) x[i] = (float)(ab_format_decode(format->element, codes[i]) * factor);
}

static int64_t block_length(const ab_block_format *format, int64_t n, int64_t at) {
    return n - at < format->block ? n - at : format->block;
}

void ab_block_encode(const ab_block_format *format, const ab_rounding *rounding, float tensor_scale,
                     const float *x, int64_t n, uint8_t *codes, uint8_t *scales) {
    for (int64_t at = 0; at < n; at += format->block)
        *scales++ =
            encode_block(format, rounding, tensor_scale, x + at, block_length(format, n, at), codes + at);
}

void ab_block_decode(const ab_block_format *format, float tensor_scale, const uint8_t *codes,
                     const uint8_t *scales, int64_t n, float *x) {
    for (int64_t at = 0; at < n; at += format->block)
        decode_block(format, tensor_scale, codes + at, *scales++, block_length(format, n, at), x + at);
}

void ab_block_round(const ab_block_format *format, const ab_rounding *rounding, float *values, int64_t n) {
    float tensor_scale = ab_block_tensor_scale(format, finite_amax(values, n));
    uint8_t codes[LONGEST_BLOCK];
    for (int64_t at = 0; at < n; at += format->block) {
        int64_t length = block_length(format, n, at);
        uint8_t scale = encode_block(format, rounding, tensor_scale, values + at, length, codes);
        decode_block(format, tensor_scale, codes, scale, length, values + at);
    }
}
