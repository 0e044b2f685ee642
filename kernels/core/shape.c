/* Shapes: counting, comparing, printing. */
#include "kernels/core/shape.h"

#include "kernels/core/text.h"

#include <string.h>

int64_t ab_shape_count(const ab_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->ndim; i++) count *= shape->dim[i];
    return count;
}

int ab_shape_equal(const ab_shape *a, const ab_shape *b) {
    if (a->ndim != b->ndim) return 0;
    for (int i = 0; i < a->ndim; i++)
        if (a->dim[i] != b->dim[i]) return 0;
    return 1;
}

int ab_shape_check(const ab_shape *shape) {
    if (shape->ndim < 0 || shape->ndim > AB_MAX_DIMS) return 0;
    int64_t count = 1;
    for (int i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] < 1 || count > (INT64_MAX / 8) / shape->dim[i]) return 0;
        count *= shape->dim[i];
    }
    return 1;
}

bool ab_shape_in_bounds(const ab_shape *shape) {
    return ab_shape_check(shape) && ab_shape_count(shape) <= (int64_t)1 << 40;
}

const char *ab_dims_text(const int64_t *dim, int ndim, char *text, size_t size) {
    ab_text_show(text, size, "[");
    for (int i = 0; i < ndim; i++) {
        if (strlen(text) > size - 32) {
            ab_text_append(text, size, ", ...");
            break;
        }
        ab_text_append(text, size, i ? ", %lld" : "%lld", (long long)dim[i]);
    }
    ab_text_append(text, size, "]");
    return text;
}

const char *ab_shape_text(const ab_shape *shape, char *text) {
    ab_text_show(text, AB_SHAPE_TEXT, "[");
    for (int i = 0; i < shape->ndim; i++)
        ab_text_append(text, AB_SHAPE_TEXT, i ? ", %lld" : "%lld", (long long)shape->dim[i]);
    ab_text_append(text, AB_SHAPE_TEXT, "]");
    return text;
}
