/* Extremes by comparing bits: for non-negative numbers of a format the codes are ordered like the values,
 * infinity is above all finite codes, and NaNs are above infinity. Values are only decoded one by one if some
 * are non-finite. Tensors of a device are reduced there, or copied. */
#include "kernels/backend/extremes.h"

#include "kernels/backend/fallback.h"
#include "kernels/core/parallel.h"
#include "kernels/format/convert.h"
#include "kernels/ops/blocks.h"
#include "kernels/vec/vec_ops.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 1 << 15, WIDEN = 1 << 10, MOST_CHUNKS = 64 };

typedef struct scan {
    const ab_tensor *tensor;
    int bytes;
    int64_t count, chunk;
    int32_t largest[MOST_CHUNKS]; /* code */
} scan;

/* Signed arithmetic on codes without the sign bit: compilers vectorise it. */
static int32_t largest32(const char *data, int64_t n) {
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, data + 4 * i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

static int32_t largest16(const char *data, int64_t n) {
    int16_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        int16_t bits;
        memcpy(&bits, data + 2 * i, sizeof bits);
        bits = (int16_t)(bits & 0x7fff);
        most = bits > most ? bits : most;
    }
    return most;
}

static void scan_chunk(void *argument, int64_t chunk, int thread) {
    scan *s = argument;
    int64_t first = chunk * s->chunk, n = s->count - first < s->chunk ? s->count - first : s->chunk;
    const char *data = (const char *)s->tensor->data + first * s->bytes;
    (void)thread;
    s->largest[chunk] = s->bytes == 4 ? largest32(data, n) : largest16(data, n);
}

/* Bytes of an element whose code can be compared; 0: none. */
static int comparable(const ab_format *format) {
    if (format->storage_bytes == 0) return 4; /* an fp32 container */
    return format->infinity && (format->storage_bytes == 2 || format->storage_bytes == 4)
               ? format->storage_bytes
               : 0;
}

static double value_of(const ab_tensor *tensor, int bytes, int32_t code) {
    const uint16_t half = (uint16_t)code;
    float value;
    if (bytes == 4)
        memcpy(&value, &code, sizeof value);
    else
        ab_widen(&value, &half, tensor->format, 1);
    return (double)value;
}

/* ---- one by one ------------------------------------------------------------------------------ */

static int64_t widen(const ab_tensor *tensor, int64_t first, float values[WIDEN]) {
    int64_t left = ab_tensor_count(tensor) - first, n = left < WIDEN ? left : WIDEN;
    ab_widen(values, (const char *)tensor->data + ab_format_bytes(tensor->format, first), tensor->format, n);
    return n;
}

static ab_tensor_extremes count_all(const ab_tensor *tensor) {
    ab_tensor_extremes found = {.largest = 0};
    float values[WIDEN];
    for (int64_t first = 0, n; first < ab_tensor_count(tensor); first += n) {
        n = widen(tensor, first, values);
        for (int64_t i = 0; i < n; i++) {
            found.nan += isnan(values[i]) != 0;
            found.infinite += isinf(values[i]) != 0;
            if (isfinite(values[i])) found.largest = fmax(found.largest, fabs((double)values[i]));
        }
    }
    return found;
}

static int places_here(const ab_tensor *tensor, int64_t *place, int most) {
    int found = 0;
    float values[WIDEN];
    for (int64_t first = 0, n; first < ab_tensor_count(tensor) && found < most; first += n) {
        n = widen(tensor, first, values);
        for (int64_t i = 0; i < n && found < most; i++)
            if (!isfinite(values[i])) place[found++] = first + i;
    }
    return found;
}

/* ---- on the host ----------------------------------------------------------------------------- */

static ab_tensor_extremes extremes_here(const ab_tensor *tensor) {
    scan s = {.tensor = tensor, .count = tensor->format ? ab_tensor_count(tensor) : 0, .chunk = CHUNK};
    if (s.count == 0) return (ab_tensor_extremes){.largest = 0};
    s.bytes = comparable(tensor->format);
    if (s.bytes == 0) return count_all(tensor);
    if (s.count > (int64_t)CHUNK * MOST_CHUNKS) s.chunk = (s.count + MOST_CHUNKS - 1) / MOST_CHUNKS;
    const int64_t chunks = (s.count + s.chunk - 1) / s.chunk;
    if (chunks > 1)
        ab_parallel_for(chunks, scan_chunk, &s);
    else
        scan_chunk(&s, 0, 0);
    int32_t most = 0;
    for (int64_t i = 0; i < chunks; i++) most = s.largest[i] > most ? s.largest[i] : most;
    const double largest = value_of(tensor, s.bytes, most);
    return isfinite(largest) ? (ab_tensor_extremes){.largest = largest} : count_all(tensor);
}

/* ---- on a device ----------------------------------------------------------------------------- */

static ab_tensor_extremes extremes_of_copy(const ab_tensor *tensor) {
    ab_tensor copy = {.data = NULL};
    ab_tensor_extremes found = {.largest = 0};
    if (tensor->format && ab_host_copy(tensor, &copy) == AB_OK) found = extremes_here(&copy);
    ab_host_copy_free(&copy);
    return found;
}

static int places_of_copy(const ab_tensor *tensor, int64_t *place, int most) {
    ab_tensor copy = {.data = NULL};
    int found = ab_host_copy(tensor, &copy) == AB_OK ? places_here(&copy, place, most) : 0;
    ab_host_copy_free(&copy);
    return found;
}

/* ---- interface ------------------------------------------------------------------------------- */

void ab_extremes_of_all(const ab_tensor *const *tensor, int count, ab_tensor_extremes *found) {
    const ab_backend *backend = count > 0 ? ab_backend_of(tensor[0]->device) : &ab_backend_cpu;
    const ab_reductions *own = backend->reductions;
    if (own && own->extremes(tensor, count, found) == AB_OK) return;
    for (int i = 0; i < count; i++)
        found[i] = backend->host_memory ? extremes_here(tensor[i]) : extremes_of_copy(tensor[i]);
}

ab_tensor_extremes ab_extremes_of(const ab_tensor *tensor) {
    ab_tensor_extremes found;
    ab_extremes_of_all(&tensor, 1, &found);
    return found;
}

int ab_extremes_places(const ab_tensor *tensor, int64_t *place, int most) {
    const ab_backend *backend = ab_backend_of(tensor->device);
    int found = 0;
    if (!tensor->format) return 0;
    if (backend->reductions && backend->reductions->places(tensor, place, most, &found) == AB_OK)
        return found;
    return backend->host_memory ? places_here(tensor, place, most) : places_of_copy(tensor, place, most);
}

/* ---- finite ---------------------------------------------------------------------------------- */

typedef struct finite_scan {
    const ab_tensor *tensor;
    int bytes;
    _Atomic bool found; /* a value that is not finite */
} finite_scan;

static void finite_block(void *argument, int64_t block, int thread) {
    finite_scan *s = argument;
    const int64_t first = block * AB_WIDE_BLOCK,
                  n = ab_min64(AB_WIDE_BLOCK, ab_tensor_count(s->tensor) - first);
    const void *data = (const char *)s->tensor->data + first * s->bytes;
    const int mantissa = s->tensor->format->precision - 1;
    (void)thread;
    if (!(s->bytes == 4
              ? ab_vec_ops_get()->finite(data, n)
              : ab_vec_ops_get()->finite_bits(data, (uint16_t)(0x7fffu >> mantissa << mantissa), n)))
        s->found = true;
}

bool ab_extremes_finite(const ab_tensor *tensor) {
    const int bytes = tensor->format ? comparable(tensor->format) : 0;
    if (bytes > 0 && ab_backend_of(tensor->device)->host_memory) {
        finite_scan s = {.tensor = tensor, .bytes = bytes};
        const int64_t n = ab_tensor_count(tensor);
        ab_for_chunks(n, ab_div_up(n, AB_WIDE_BLOCK), finite_block, &s);
        return !s.found;
    }
    ab_tensor_extremes found = ab_extremes_of(tensor);
    return found.infinite == 0 && found.nan == 0;
}

static void elements_here(const ab_tensor *tensor, const int64_t *place, int64_t n, float *values) {
    for (int64_t i = 0; i < n; i++)
        ab_widen(&values[i], (const char *)tensor->data + ab_format_bytes(tensor->format, place[i]),
                 tensor->format, 1);
}

ab_status ab_elements_of(const ab_tensor *tensor, const int64_t *place, int64_t n, float *values) {
    const ab_backend *backend = ab_backend_of(tensor->device);
    ab_tensor copy = {.data = NULL};
    if (backend->reductions && backend->reductions->elements(tensor, place, n, values) == AB_OK) return AB_OK;
    const ab_status status = backend->host_memory ? AB_OK : ab_host_copy(tensor, &copy);
    if (status == AB_OK) elements_here(backend->host_memory ? tensor : &copy, place, n, values);
    ab_host_copy_free(&copy);
    return status;
}

bool ab_extremes_rows_finite(const ab_tensor *tensor, int front) {
    enum { MOST = 32 };
    float values[MOST];
    if (!tensor->format || tensor->shape.ndim == 0) return ab_extremes_finite(tensor);
    const int64_t rows = tensor->shape.dim[0], width = rows > 0 ? ab_tensor_count(tensor) / rows : 0;
    const int64_t n = width < front ? width : front < MOST ? front : MOST;
    for (int64_t row = 0; row < rows; row++) {
        ab_widen(values, (const char *)tensor->data + ab_format_bytes(tensor->format, row * width),
                 tensor->format, n);
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(values[i])) return false;
    }
    return true;
}
