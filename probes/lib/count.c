/* Checks of tensors and passes over their values. */
#include "probes/lib/count.h"

#include "kernels/format/convert.h"
#include "probes/lib/device.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 4096 };

const ab_format *ab_lib_format(int32_t dtype) {
    switch (dtype) {
    case AMPPROBE_FP32:
        return &ab_format_fp32;
    case AMPPROBE_FP16:
        return &ab_format_fp16;
    case AMPPROBE_BF16:
        return &ab_format_bf16;
    case AMPPROBE_FP64:
        return &ab_format_fp64;
    default:
        return NULL;
    }
}

/* Whether count values that lie stride apart reach beyond the storage, or beyond any address. */
static bool reaches_beyond(const ampprobe_tensor *t, int64_t size) {
    const int64_t stride = t->stride < 0 ? -t->stride : t->stride;
    if (t->count > 1 && stride > (INT64_MAX / size - 1) / (t->count - 1)) return true;
    const int64_t bytes = ((t->count - 1) * stride + 1) * size;
    return t->storage_bytes > 0 && bytes > t->storage_bytes;
}

ampprobe_skip ab_lib_unreadable(const ampprobe_tensor *t) {
    const ab_format *format = ab_lib_format(t->dtype);
    if (t->count <= 0 || !t->data) return AMPPROBE_SKIP_EMPTY;
    if (!format) return AMPPROBE_SKIP_DTYPE;
    if (t->device != AMPPROBE_HOST && t->device != AMPPROBE_CUDA) return AMPPROBE_SKIP_DEVICE;
    if (t->storage_bytes < 0 || t->stride == INT64_MIN || (t->stride == 0 && t->count > 1))
        return AMPPROBE_SKIP_LAYOUT;
    if (reaches_beyond(t, format->storage_bytes)) return AMPPROBE_SKIP_LAYOUT;
    if ((uintptr_t)t->data % (uintptr_t)format->storage_bytes) return AMPPROBE_SKIP_ALIGN;
    return t->device == AMPPROBE_CUDA && !ab_lib_device_has(t) ? AMPPROBE_SKIP_DEVICE : AMPPROBE_COUNTED;
}

/* The stride where it means something. */
static int64_t stride_of(const ampprobe_tensor *t) { return t->count > 1 ? t->stride : 1; }

static const char *value_at(const ampprobe_tensor *t, const ab_format *format, int64_t i) {
    return (const char *)t->data + i * stride_of(t) * format->storage_bytes;
}

int64_t ab_lib_census(const ampprobe_tensor *t, int32_t every, int64_t turn, ab_census *census) {
    const ab_format *format = ab_lib_format(t->dtype);
    if (every <= 1) {
        ab_census_add_strided(census, t->data, format, t->count, stride_of(t));
        return t->count;
    }
    const int64_t blocks = (t->count + AB_CENSUS_BLOCK - 1) / AB_CENSUS_BLOCK;
    const int64_t step = every < blocks ? every : blocks;
    int64_t counted = 0;
    for (int64_t b = turn % step; b < blocks; b += step) {
        const int64_t first = b * AB_CENSUS_BLOCK, left = t->count - first;
        const int64_t n = left < AB_CENSUS_BLOCK ? left : AB_CENSUS_BLOCK;
        ab_census_add_strided(census, value_at(t, format, first), format, n, stride_of(t));
        counted += n;
    }
    return counted;
}

/* ---- finite check ---------------------------------------------------------------------------- */

/* A value is finite if its exponent bits are not all set. Plain loops over the bits, which compilers turn
 * into vector code. */
static int32_t count32(const char *data, int64_t n) {
    int32_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, data + 4 * i, sizeof bits);
        count += (bits & 0x7f800000u) == 0x7f800000u;
    }
    return count;
}

static int32_t count16(const char *data, int64_t n, uint16_t mask) {
    int32_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, data + 2 * i, sizeof bits);
        count += (bits & mask) == mask;
    }
    return count;
}

static int32_t count64(const char *data, int64_t n) {
    int32_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, data + 8 * i, sizeof bits);
        count += (bits & 0x7ff0000000000000u) == 0x7ff0000000000000u;
    }
    return count;
}

static int32_t count_chunk(int32_t dtype, const char *data, int64_t n) {
    switch (dtype) {
    case AMPPROBE_FP32:
        return count32(data, n);
    case AMPPROBE_FP64:
        return count64(data, n);
    default:
        return count16(data, n, dtype == AMPPROBE_FP16 ? 0x7c00u : 0x7f80u);
    }
}

int64_t ab_lib_nonfinite(const ampprobe_tensor *t) {
    const ab_format *format = ab_lib_format(t->dtype);
    const int64_t chunk = stride_of(t) == 1 ? CHUNK : 1;
    int64_t count = 0;
    for (int64_t i = 0; i < t->count; i += chunk)
        count += count_chunk(t->dtype, value_at(t, format, i), t->count - i < chunk ? t->count - i : chunk);
    return count;
}

bool ab_lib_pick(const ampprobe_tensor *t, int64_t first, int64_t step, int64_t n, float *values) {
    const ab_format *format = ab_lib_format(t->dtype);
    if (t->device == AMPPROBE_CUDA) return ab_lib_device_pick(t, first, step, n, values) == AB_OK;
    for (int64_t i = 0; i < n; i++) ab_widen(&values[i], value_at(t, format, first + i * step), format, 1);
    return true;
}
