/* Views of tensors; see strided.h. */
#include "kernels/strided.h"

#include "kernels/blocks.h"
#include "kernels/convert.h"

#include <string.h>

/* ---- making ----------------------------------------------------------------------------------------------- */

static void contiguous_strides(const ab_shape *shape, int64_t *stride) {
    int64_t step = 1;
    for (int i = shape->ndim - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape->dim[i];
    }
}

/* Drops dimensions of one element and joins neighbours that one stride walks. */
static ab_strided merged(const ab_strided *view) {
    ab_strided m = {.ndim = 0};
    for (int i = 0; i < view->ndim; i++) {
        int last = m.ndim - 1;
        if (view->dim[i] == 1) continue;
        if (m.ndim && m.stride[last] == view->stride[i] * view->dim[i]) {
            m.dim[last] *= view->dim[i];
            m.stride[last] = view->stride[i];
            continue;
        }
        m.dim[m.ndim] = view->dim[i];
        m.stride[m.ndim++] = view->stride[i];
    }
    if (m.ndim == 0) m = (ab_strided){.ndim = 1, .dim = {1}, .stride = {1}};
    return m;
}

ab_strided ab_strided_broadcast(const ab_shape *from, const ab_shape *to) {
    ab_strided view = {.ndim = to->ndim};
    int64_t stride[AB_MAX_DIMS];
    int missing = to->ndim - from->ndim;
    contiguous_strides(from, stride);
    for (int i = 0; i < to->ndim; i++) {
        bool repeated = i < missing || from->dim[i - missing] == 1;
        view.dim[i] = to->dim[i];
        view.stride[i] = repeated ? 0 : stride[i - missing];
    }
    return merged(&view);
}

ab_strided ab_strided_permute(const ab_shape *from, const int64_t *order) {
    ab_strided view = {.ndim = from->ndim};
    int64_t stride[AB_MAX_DIMS];
    contiguous_strides(from, stride);
    for (int i = 0; i < from->ndim; i++) {
        view.dim[i] = from->dim[order[i]];
        view.stride[i] = stride[order[i]];
    }
    return merged(&view);
}

ab_strided ab_strided_along(const ab_shape *whole, unsigned axes) {
    ab_strided view = {.ndim = whole->ndim};
    int64_t step = 1;
    for (int i = whole->ndim - 1; i >= 0; i--) {
        bool left_out = axes >> i & 1u;
        view.dim[i] = whole->dim[i];
        view.stride[i] = left_out ? 0 : step;
        if (!left_out) step *= whole->dim[i];
    }
    return merged(&view);
}

/* ---- reading ---------------------------------------------------------------------------------------------- */

/* A run along the last dimension. */
static void read_run(const ab_tensor *tensor, int64_t offset, int64_t stride, int64_t n, float *out) {
    enum { RUN = 512 };
    if (stride == 1) {
        if (ab_is_f32(tensor))
            memcpy(out, ab_element(tensor, offset), (size_t)n * sizeof *out);
        else
            ab_widen(out, ab_element(tensor, offset), tensor->format, n);
    } else if (stride == 0) {
        float buffer, value = *ab_read(tensor, offset, 1, &buffer);
        for (int64_t i = 0; i < n; i++) out[i] = value;
    } else if (ab_is_f32(tensor)) {
        const float *from = (const float *)tensor->data + offset;
        for (int64_t i = 0; i < n; i++) out[i] = from[i * stride];
    } else {
        const uint16_t *from = (const uint16_t *)tensor->data + offset;
        uint16_t gathered[RUN];
        for (int64_t at = 0; at < n; at += RUN) {
            int64_t count = ab_min64(RUN, n - at);
            for (int64_t i = 0; i < count; i++) gathered[i] = from[(at + i) * stride];
            ab_widen(out + at, gathered, tensor->format, count);
        }
    }
}

/* Steps to the start of the next row: dimensions before the last count like digits. */
static int64_t next_row(const ab_strided *view, int64_t *index, int64_t offset) {
    for (int i = view->ndim - 2; i >= 0; i--) {
        offset += view->stride[i];
        if (++index[i] < view->dim[i]) return offset;
        offset -= view->stride[i] * view->dim[i];
        index[i] = 0;
    }
    return offset;
}

const float *ab_strided_read(const ab_strided *view, const ab_tensor *tensor, int64_t at, int64_t n,
                             float *buffer) {
    const int last = view->ndim - 1;
    int64_t index[AB_MAX_DIMS], offset = 0, rest = at;
    for (int i = last; i >= 0; i--) {
        index[i] = rest % view->dim[i];
        rest /= view->dim[i];
        if (i < last) offset += index[i] * view->stride[i];
    }
    int64_t column = index[last];
    if (view->stride[last] == 1 && ab_is_f32(tensor) && column + n <= view->dim[last])
        return (const float *)tensor->data + offset + column;
    for (int64_t done = 0; done < n; column = 0) {
        int64_t run = ab_min64(view->dim[last] - column, n - done);
        read_run(tensor, offset + column * view->stride[last], view->stride[last], run, buffer + done);
        done += run;
        offset = next_row(view, index, offset);
    }
    return buffer;
}

/* ---- shapes ----------------------------------------------------------------------------------------------- */

bool ab_broadcast_shape(const ab_shape *a, const ab_shape *b, ab_shape *out) {
    out->ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int i = 1; i <= out->ndim; i++) {
        int64_t of_a = i <= a->ndim ? a->dim[a->ndim - i] : 1, of_b = i <= b->ndim ? b->dim[b->ndim - i] : 1;
        if (of_a != of_b && of_a != 1 && of_b != 1) return false;
        out->dim[out->ndim - i] = of_a == 1 ? of_b : of_a;
    }
    return true;
}

unsigned ab_broadcast_axes(const ab_shape *from, const ab_shape *to) {
    unsigned axes = 0;
    const int missing = to->ndim - from->ndim;
    for (int i = 0; i < to->ndim; i++)
        if (i < missing || (from->dim[i - missing] == 1 && to->dim[i] != 1)) axes |= 1u << i;
    return axes;
}
