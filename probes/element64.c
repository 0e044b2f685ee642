/* The list of second opinions, and what their families share. */
#include "probes/element64.h"

#include "kernels/convert.h"

static const ab_element64_kind *const kinds[] = {
#define AB_SECOND_OPINION(id) &ab_element64_##id,
#include "probes/element64.def"
#undef AB_SECOND_OPINION
};

bool ab_element64_of(const ab_op_run *run, int wrote, int64_t i, ab_element64 *result) {
    *result = (ab_element64){.value = 0};
    for (size_t k = 0; k < AB_COUNT_OF(kinds); k++) {
        if (kinds[k]->op != run->op) continue;
        return run->backward ? kinds[k]->backward(run, wrote, i, result) : kinds[k]->forward(run, i, result);
    }
    return false;
}

double ab_read64(const ab_tensor *tensor, int64_t i) {
    float value;
    if (!tensor->format) return (double)((const int32_t *)tensor->data)[i];
    ab_widen(&value, (const char *)tensor->data + ab_format_bytes(tensor->format, i), tensor->format, 1);
    return (double)value;
}

const void *ab_attr64(const ab_op_run *run, const char *name) {
    for (const ab_attr *attr = run->op->attrs; attr && attr->name; attr++)
        if (strcmp(attr->name, name) == 0) return (const char *)run->io->attrs + attr->offset;
    return NULL;
}

int64_t ab_broadcast64(const ab_shape *from, const ab_shape *to, int64_t i) {
    int64_t index = 0, step = 1;
    for (int d = 1; d <= from->ndim; d++) {
        const int64_t size = to->dim[to->ndim - d], mine = from->dim[from->ndim - d];
        if (mine != 1) index += i % size * step;
        i /= size;
        step *= mine;
    }
    return index;
}
