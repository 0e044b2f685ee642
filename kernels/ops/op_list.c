/* The list of operators, and helpers to read stored formats and to store with one rounding. */
#include "kernels/ops/op.h"

#include "kernels/core/text.h"
#include "kernels/format/convert.h"
#include "kernels/ops/blocks.h"
#include "kernels/vec/vec_ops.h"

#include <string.h>

static const ab_op *const ops[] = {
#define AB_OP(name, op_class, traits) &ab_op_##name,
#include "kernels/ops/ops.def"
#undef AB_OP
};

static const ab_op_class classes[] = {
#define AB_OP(name, op_class, traits) AB_CLASS_##op_class,
#include "kernels/ops/ops.def"
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

unsigned ab_op_needs(const ab_op *op, const void *attrs, int inputs, unsigned wanted) {
    return op->needs ? op->needs(attrs, inputs, wanted) : op->backward_needs;
}

unsigned ab_io_needs(const ab_op *op, const ab_op_io *io) {
    unsigned wanted = 0;
    int inputs = 0;
    for (int i = 0; i < AB_MAX_INPUTS && io->in[i]; i++, inputs++)
        if (io->din[i]) wanted |= 1u << i;
    return ab_op_needs(op, io->attrs, inputs, wanted);
}

/* ---- reading and storing --------------------------------------------------------------------- */

void ab_emit(const ab_exec *exec, ab_tensor *dst, int64_t offset, const float *values, int64_t n) {
    if (exec->observer && !ab_is_f32(dst))
        exec->observer->see(exec->observer, dst->id, ab_parallel_thread(), values, n);
    ab_narrow(ab_element(dst, offset), dst->format, values, n);
}

typedef struct whole_job {
    const ab_exec *exec;
    ab_tensor *dst;
    const ab_tensor *src;
    const float *values;
    float *scratch;
} whole_job;

static void emit_block(void *argument, int64_t chunk, int thread) {
    const whole_job *job = argument;
    (void)thread;
    int64_t at = chunk * AB_WIDE_BLOCK;
    ab_emit(job->exec, job->dst, at, job->values + at,
            ab_min64(AB_WIDE_BLOCK, ab_tensor_count(job->dst) - at));
}

void ab_emit_all(const ab_exec *exec, ab_tensor *dst, const float *values) {
    whole_job job = {.exec = exec, .dst = dst, .values = values};
    int64_t n = ab_tensor_count(dst);
    if (values != dst->data) ab_for_chunks(n, ab_div_up(n, AB_WIDE_BLOCK), emit_block, &job);
}

static void widen_block(void *argument, int64_t chunk, int thread) {
    const whole_job *job = argument;
    (void)thread;
    int64_t at = chunk * AB_WIDE_BLOCK, n = ab_min64(AB_WIDE_BLOCK, ab_tensor_count(job->src) - at);
    ab_widen(job->scratch + at, ab_element(job->src, at), job->src->format, n);
}

const float *ab_view_f32(const ab_tensor *tensor, float *scratch) {
    if (ab_is_f32(tensor)) return tensor->data;
    whole_job job = {.src = tensor, .scratch = scratch};
    int64_t n = ab_tensor_count(tensor);
    ab_for_chunks(n, ab_div_up(n, AB_WIDE_BLOCK), widen_block, &job);
    return scratch;
}

static void cast_block(void *argument, int64_t chunk, int thread) {
    const whole_job *job = argument;
    (void)thread;
    float buffer[AB_BLOCK];
    int64_t at = chunk * AB_BLOCK, n = ab_min64(AB_BLOCK, ab_tensor_count(job->dst) - at);
    float *values = ab_target(job->dst, at, buffer);
    ab_emit(job->exec, job->dst, at, ab_read(job->src, at, n, values), n);
}

void ab_cast(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    whole_job job = {.exec = exec, .dst = dst, .src = src};
    int64_t n = ab_tensor_count(dst);
    ab_for_chunks(n, ab_div_up(n, AB_BLOCK), cast_block, &job);
}

void ab_accumulate(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    ab_map_tensors(exec, dst, ab_vec_ops_get()->add, dst, src);
}
