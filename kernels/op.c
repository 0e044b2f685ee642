/* The list of operators and the helpers every kernel uses to read stored formats and to store with one rounding. */
#include "kernels/op.h"

#include "kernels/blocks.h"
#include "kernels/convert.h"
#include "kernels/core/nearest.h"
#include "kernels/vec_ops.h"

#include <omp.h>
#include <string.h>

static const ab_op *const ops[] = {
#define AB_OP(name, op_class) &ab_op_##name,
#include "kernels/ops.def"
#undef AB_OP
};

static const ab_op_class classes[] = {
#define AB_OP(name, op_class) AB_CLASS_##op_class,
#include "kernels/ops.def"
#undef AB_OP
};

int ab_op_count(void) { return (int)AB_COUNT_OF(ops); }
const ab_op *ab_op_at(int i) { return ops[i]; }
ab_op_class ab_op_class_at(int i) { return classes[i]; }

ab_status ab_op_find(const char *name, const ab_op **op, int *index) {
    const char *names[AB_COUNT_OF(ops)];
    for (int i = 0; i < ab_op_count(); i++) {
        names[i] = ops[i]->name;
        if (strcmp(names[i], name) != 0) continue;
        *op = ops[i];
        if (index) *index = i;
        return AB_OK;
    }
    const char *nearest = ab_nearest(name, names, ab_op_count());
    return nearest ? ab_fail(AB_CONFIG, "unknown op \"%s\"; did you mean \"%s\"?", name, nearest)
                   : ab_fail(AB_CONFIG, "unknown op \"%s\"; `ampbench list` shows the ops there are", name);
}

/* ---- reading and storing ---------------------------------------------------------------------------------- */

void ab_emit(const ab_exec *exec, ab_tensor *dst, int64_t offset, const float *values, int64_t n) {
    if (exec->observer && !ab_is_f32(dst))
        exec->observer->see(exec->observer, dst->id, omp_get_thread_num(), values, n);
    ab_narrow(ab_element(dst, offset), dst->format, values, n);
}

void ab_emit_all(const ab_exec *exec, ab_tensor *dst, const float *values) {
    int64_t n = ab_tensor_count(dst);
    if (values == dst->data) return;
#pragma omp parallel for schedule(static) if (n >= AB_PARALLEL_MIN)
    for (int64_t at = 0; at < n; at += AB_WIDE_BLOCK)
        ab_emit(exec, dst, at, values + at, ab_min64(AB_WIDE_BLOCK, n - at));
}

const float *ab_view_f32(const ab_tensor *tensor, float *scratch) {
    if (ab_is_f32(tensor)) return tensor->data;
    int64_t n = ab_tensor_count(tensor);
#pragma omp parallel for schedule(static) if (n >= AB_PARALLEL_MIN)
    for (int64_t at = 0; at < n; at += AB_WIDE_BLOCK)
        ab_widen(scratch + at, ab_element(tensor, at), tensor->format, ab_min64(AB_WIDE_BLOCK, n - at));
    return scratch;
}

void ab_cast(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    int64_t n = ab_tensor_count(dst);
#pragma omp parallel for schedule(static) if (n >= AB_PARALLEL_MIN)
    for (int64_t at = 0; at < n; at += AB_BLOCK) {
        float buffer[AB_BLOCK];
        int64_t block = ab_min64(AB_BLOCK, n - at);
        ab_emit(exec, dst, at, ab_read(src, at, block, buffer), block);
    }
}

void ab_accumulate(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    ab_map_tensors(exec, dst, ab_vec_ops_get()->add, dst, src);
}
