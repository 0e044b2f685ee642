/* Block formats: narrow elements with a shared scale. MX (OCP Microscaling Formats specification 1.0) and
 * NVFP4 (NVIDIA, arXiv 2509.25149). Emulated on the CPU: exact values, no packed arithmetic.
 *
 * Blocks are runs of consecutive elements; the last one may be short. To quantise along another axis,
 * callers gather that axis first; blocks and values then differ.
 *
 * A non-finite value never becomes finite: it becomes NaN if elements have a NaN (mxfp8), else the scale
 * of its block, and so the whole block, becomes NaN. Non-finite values are ignored when scales are
 * chosen. */
#ifndef AB_KERNELS_FORMAT_BLOCK_FORMAT_H
#define AB_KERNELS_FORMAT_BLOCK_FORMAT_H

#include "kernels/format/format.h"

AB_BEGIN_DECLS

typedef struct ab_block_format {
    const char *name;
    int block; /* elements that share a scale */
    const ab_format *element;
    const ab_format *scale; /* NULL: E8M0, a power of two 2^(code - 127), code 255 nan */
    const char *text;
} ab_block_format;

/* mxfp8, mxfp4, nvfp4 */
int ab_block_format_count(void);
const ab_block_format *ab_block_format_at(int i);
AB_MUST_CHECK ab_status ab_block_format_find(const char *name, const ab_block_format **format);

/* Number of scales for n elements; bytes of elements, scales and tensor scale as packed by hardware. */
int64_t ab_block_count(const ab_block_format *format, int64_t n);
size_t ab_block_format_bytes(const ab_block_format *format, int64_t n);

/* The fp32 scale of a whole tensor whose largest finite magnitude is `amax`. Formats with E8M0 scales: 1.
 * nvfp4: amax / (448 * 6), so that the block holding amax gets the largest scale; 1 when amax is 0. */
float ab_block_tensor_scale(const ab_block_format *format, float amax);

/* codes[i]: encoding of element i, one per byte (not packed); scales[b]: encoding of block b's scale.
 *   E8M0: the smallest power of two with amax / scale <= the element's max (rounded up, so that no element
 * saturates), at least 2^-127;
 *   nvfp4: amax / (6 * tensor_scale) rounded to nearest even in E4M3, saturating; elements of a block whose
 *         scale rounds to 0 become 0.
 * Elements are x / (scale * tensor_scale), rounded by `rounding` (not stochastic) and saturated. */
void ab_block_encode(const ab_block_format *format, const ab_rounding *rounding, float tensor_scale,
                     const float *x, int64_t n, uint8_t *codes, uint8_t *scales);

/* x[i] = element * scale * tensor_scale, rounded once to fp32. */
void ab_block_decode(const ab_block_format *format, float tensor_scale, const uint8_t *codes,
                     const uint8_t *scales, int64_t n, float *x);

/* Quantises n values in place: tensor scale, encode and decode. */
void ab_block_round(const ab_block_format *format, const ab_rounding *rounding, float *values, int64_t n);

AB_END_DECLS

#endif
