/* Values, attributes and dropout masks as the fp64 references of all op families read them. */
#include "probes/element64/element64.h"

#include "kernels/core/rng.h"
#include "kernels/format/convert.h"

const ab_format ab_format_stored64 = {
    .name = "fp64", .bits = 64, .precision = 53, .emin = -1022, .emax = 1023, .infinity = true, .nan = true};

double ab_read64(const ab_tensor *tensor, int64_t i) {
    float value;
    if (tensor->format == &ab_format_stored64) return ((const double *)tensor->data)[i];
    if (!tensor->format) return (double)((const int32_t *)tensor->data)[i];
    ab_widen(&value, (const char *)tensor->data + ab_format_bytes(tensor->format, i), tensor->format, 1);
    return (double)value;
}

const void *ab_attr64(const ab_op_run *run, const char *name) {
    for (const ab_attr *attr = run->op->attrs; attr && attr->name; attr++)
        if (strcmp(attr->name, name) == 0) return (const char *)run->io->attrs + attr->offset;
    return NULL;
}

static void copy_attr(const ab_op_run *run, const char *name, void *to, size_t bytes) {
    const void *field = ab_attr64(run, name);
    if (field) memcpy(to, field, bytes);
}

double ab_number64(const ab_op_run *run, const char *name) {
    double number = 0;
    copy_attr(run, name, &number, sizeof number);
    return number;
}

int64_t ab_integer64(const ab_op_run *run, const char *name) {
    int64_t number = 0;
    copy_attr(run, name, &number, sizeof number);
    return number;
}

bool ab_boolean64(const ab_op_run *run, const char *name) {
    bool truth = false;
    copy_attr(run, name, &truth, sizeof truth);
    return truth;
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

/* The dropout mask as vec_math.h defines it: the upper 24 bits of word i % 4 of block i / 4. */
double ab_dropout_mask64(const ab_op_run *run, double p, int64_t i) {
    const ab_exec *exec = run->exec;
    if (p == 0 || !ab_is_training64(run)) return 1;
    const double kept = p < 1 ? 1 / (1 - p) : 0;
    if (!exec || exec->device_step) return kept;
    const uint64_t block = (uint64_t)run->io->instance << 32 | (uint64_t)(i / 4);
    const ab_rng_block words = ab_rng_at(exec->seed, AB_RNG_DROPOUT, exec->step, block);
    return (double)(words.word[i % 4] >> 8) >= p * 0x1p24 ? kept : 0;
}
