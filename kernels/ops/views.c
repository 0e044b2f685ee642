/* Reads strided views. */
#include "kernels/ops/views.h"

#include "kernels/format/convert.h"
#include "kernels/ops/blocks.h"

#include <string.h>

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

/* Advances index to the next row, carrying over the dimensions before the last. */
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
