/* Runs one operator by itself, the way a plan's executor does: shapes inferred, tensors, workspace and state
 * allocated to the byte (so that a sanitizer sees every overrun), prepare, bind, forward, backward, release.
 * For tests only. */
#ifndef AB_TESTS_ORACLE_OP_RUN_H
#define AB_TESTS_ORACLE_OP_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/core/parallel.h"
#include "kernels/ops/op.h"
#include "kernels/vec/isa.h"
#include "oracle/stored.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { OP_RUN_BLOCKS = 32, OP_RUN_GUARD = 64, OP_RUN_GUARD_BYTE = 0xa5 };

/* result: of out, din and dparam; NULL for that of the tensor they belong to. */
typedef struct op_formats {
    const ab_format *activation, *param, *result;
} op_formats;

typedef struct op_run {
    const ab_op *op;
    ab_exec exec;
    ab_op_io io;
    int inputs, params, saved;
    ab_tensor in[AB_MAX_INPUTS], din[AB_MAX_INPUTS], out, dout;
    ab_tensor param[AB_MAX_PARAMS], dparam[AB_MAX_PARAMS], saved_tensor[AB_MAX_SAVED];
    ab_param_spec spec[AB_MAX_PARAMS];
    unsigned char *block[OP_RUN_BLOCKS];
    size_t block_bytes[OP_RUN_BLOCKS];
    int blocks;
} op_run;

/* Attributes of an op, set by the names a network file uses. */
typedef struct op_attrs {
    _Alignas(16) unsigned char bytes[256];
} op_attrs;

static inline void op_attrs_set(const ab_op *op, op_attrs *attrs, const char *name, double first,
                                double second) {
    const ab_attr *a = op->attrs;
    while (a->name && strcmp(a->name, name) != 0) a++;
    if (!a->name) fail_msg("%s has no attribute %s", op->name, name);
    const int64_t pair[2] = {fabs(first) < 0x1p63 ? (int64_t)first : 0,
                             fabs(second) < 0x1p63 ? (int64_t)second : 0};
    bool truth = first != 0.0;
    const struct {
        const void *value;
        size_t bytes;
    } field[] = {[AB_ATTR_INT] = {pair, sizeof pair[0]},
                 [AB_ATTR_PAIR] = {pair, sizeof pair},
                 [AB_ATTR_FLOAT] = {&first, sizeof first},
                 [AB_ATTR_BOOL] = {&truth, sizeof truth},
                 [AB_ATTR_CHOICE] = {pair, sizeof pair[0]}};
    if (a->kind >= AB_COUNT_OF(field) || !field[a->kind].value) fail_msg("%s: no number", name);
    assert_true(a->offset + field[a->kind].bytes <= sizeof attrs->bytes);
    memcpy(attrs->bytes + a->offset, field[a->kind].value, field[a->kind].bytes);
}

/* Everything at its default. */
static inline op_attrs op_attrs_default(const ab_op *op) {
    op_attrs attrs = {{0}};
    assert_true(op->attrs_bytes <= sizeof attrs.bytes);
    for (const ab_attr *a = op->attrs; a && a->name; a++)
        if (a->kind != AB_ATTR_FLOATS && a->kind != AB_ATTR_INTS)
            op_attrs_set(op, &attrs, a->name, a->fallback, a->fallback);
    return attrs;
}

/* A 64-byte aligned block with a guard behind it. */
static inline void *op_run_block(op_run *r, size_t bytes) {
    size_t all = (bytes + OP_RUN_GUARD + 63) / 64 * 64;
    unsigned char *block = aligned_alloc(64, all);
    assert_non_null(block);
    memset(block, OP_RUN_GUARD_BYTE, all); /* uninitialised memory is huge and negative, never zero */
    r->block_bytes[r->blocks] = bytes;
    r->block[r->blocks++] = block;
    return block;
}

static inline void op_run_check_guards(const op_run *r) {
    for (int i = 0; i < r->blocks; i++)
        for (size_t k = r->block_bytes[i]; k < r->block_bytes[i] + OP_RUN_GUARD; k++)
            if (r->block[i][k] != OP_RUN_GUARD_BYTE) fail_msg("%s wrote behind block %d", r->op->name, i);
}

static inline ab_tensor op_run_tensor(op_run *r, ab_shape shape, const ab_format *format, int id) {
    ab_tensor t = {.shape = shape, .format = format, .device = &ab_device_cpu, .id = id};
    t.data = op_run_block(r, format ? ab_format_bytes(format, ab_tensor_count(&t))
                                    : (size_t)ab_tensor_count(&t) * sizeof(int32_t));
    return t;
}

/* Sets up tensors; bit i of `floats`: in[i] is floating though the op would take ids. in[i] of format NULL
 * (ids) if integer_inputs says so. The run's own exec comes from `exec` (no workspace yet). What is not
 * wanted can be set NULL in io before op_run_prepare. */
static inline void op_run_open_floats(op_run *r, const ab_op *op, const void *attrs, const ab_shape *in,
                                      int inputs, op_formats formats, const ab_exec *exec, unsigned floats) {
    const ab_format *saved_format[AB_MAX_SAVED];
    ab_shape out_shape, saved_shape[AB_MAX_SAVED];
    const ab_format *result = formats.result ? formats.result : formats.activation;
    const ab_format *param_result = formats.result ? formats.result : formats.param;
    memset(r, 0, sizeof *r);
    r->op = op;
    r->exec = *exec;
    r->inputs = inputs;
    r->io.attrs = attrs;
    assert_int_equal(op->infer(attrs, in, inputs, &out_shape), AB_OK);
    for (int i = 0; i < inputs; i++) {
        bool ids = ((op->integer_inputs | op->maybe_integer) & ~floats) >> i & 1u;
        r->in[i] = op_run_tensor(r, in[i], ids ? NULL : formats.activation, i);
        r->io.in[i] = &r->in[i];
        if (ids) continue;
        r->din[i] = op_run_tensor(r, in[i], result, 100 + i);
        r->io.din[i] = &r->din[i];
    }
    r->out = op_run_tensor(r, out_shape, op->is_loss ? &ab_format_fp32 : result, 10);
    r->dout = op_run_tensor(r, out_shape, op->is_loss ? &ab_format_fp32 : formats.activation, 110);
    r->io.out = &r->out;
    r->io.dout = &r->dout;
    r->params = op->params ? op->params(attrs, in, r->spec) : 0;
    for (int i = 0; i < r->params; i++) {
        r->param[i] = op_run_tensor(r, r->spec[i].shape, formats.param, 20 + i);
        r->io.param[i] = &r->param[i];
        if (r->spec[i].kind != AB_PARAM_WEIGHT) continue;
        r->dparam[i] = op_run_tensor(r, r->spec[i].shape, param_result, 120 + i);
        r->io.dparam[i] = &r->dparam[i];
    }
    r->saved = op->saved ? op->saved(attrs, in, &out_shape, saved_shape, saved_format) : 0;
    for (int i = 0; i < r->saved; i++) {
        r->saved_tensor[i] = op_run_tensor(r, saved_shape[i], saved_format[i], 30 + i);
        r->io.saved[i] = &r->saved_tensor[i];
    }
    r->io.params_version = 1;
}

static inline void op_run_open(op_run *r, const ab_op *op, const void *attrs, const ab_shape *in, int inputs,
                               op_formats formats, const ab_exec *exec) {
    op_run_open_floats(r, op, attrs, in, inputs, formats, exec, 0);
}

/* Random numbers in [-1, 1) (stored in the tensor's format) in inputs, parameters and dout. */
static inline void op_run_fill(const ab_tensor *tensor, uint64_t seed) {
    if (!tensor->data || !tensor->format) return;
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++) oracle_put(tensor, i, oracle_random(seed, i));
}

static inline void op_run_fill_all(op_run *r, uint64_t seed) {
    for (int i = 0; i < r->inputs; i++) op_run_fill(&r->in[i], seed + 1 + (uint64_t)i);
    for (int i = 0; i < r->params; i++) op_run_fill(&r->param[i], seed + 11 + (uint64_t)i);
    op_run_fill(&r->dout, seed + 21);
}

/* AB_OK or the status of prepare (AB_UNAVAILABLE: this path does not exist here). */
static inline ab_status op_run_prepare(op_run *r) {
    size_t workspace = 0, state = 0;
    ab_status status = r->op->prepare ? r->op->prepare(&r->exec, &r->io, &workspace, &state) : AB_OK;
    if (status != AB_OK) return status;
    r->exec.workspace = op_run_block(r, workspace);
    r->exec.workspace_bytes = workspace;
    if (r->op->bind) r->op->bind(&r->io, op_run_block(r, state));
    return AB_OK;
}

/* Runs both passes in the place of the host's op, results in r's tensors; false: not this one. Tests of ops
 * are built a second time for a GPU, with such a function (tests/gpu/on_gpu.h). */
typedef bool (*op_run_elsewhere)(op_run *r);
static AB_UNUSED op_run_elsewhere op_run_device; /* NULL: none */

/* `many` rows of a large case, fewer where each costs much (an emulated GPU). */
static AB_UNUSED int op_run_part = 1;
static inline int64_t op_run_rows(int64_t many) { return (many + op_run_part - 1) / op_run_part; }

static inline void op_run_both(op_run *r) {
    if (op_run_device && op_run_device(r)) return;
    assert_int_equal(r->op->forward(&r->exec, &r->io), AB_OK);
    assert_int_equal(r->op->backward(&r->exec, &r->io), AB_OK);
    op_run_check_guards(r);
}

static inline void op_run_close(op_run *r) {
    if (r->op->release) r->op->release(&r->io);
    for (int i = 0; i < r->blocks; i++) free(r->block[i]);
    r->blocks = 0;
}

/* Fails unless the stored value is the exact one up to `error` (of the fp32 computation) and one rounding to
 * the format. */
static inline void op_run_near(const op_run *r, const char *what, const ab_tensor *tensor, int64_t i,
                               double exact, double error) {
    double stored = oracle_get(tensor, i), bound = error * (1.0 + 0x1p-20);
    bound += oracle_half_ulp(tensor->format, fabs(exact) + error);
    if (isnan(exact) && isnan(stored)) return;
    if (fabs(exact) - error >= ldexp(1.0, tensor->format->emax + 1) && isinf(stored)) return;
    if (!(fabs(stored - exact) <= bound))
        fail_msg("%s %s[%lld] in %s is %.17g, expected %.17g within %.3g", r->op->name, what, (long long)i,
                 tensor->format->name, stored, exact, bound);
}

/* Every stored byte of two tensors is equal. */
static inline bool op_run_same_bits(const ab_tensor *a, const ab_tensor *b) {
    return memcmp(a->data, b->data, ab_format_bytes(a->format, ab_tensor_count(a))) == 0;
}

/* Two runs of one op stored the same bits. */
static inline void op_run_same_results(const op_run *a, const op_run *b) {
    assert_true(op_run_same_bits(&a->out, &b->out));
    for (int i = 0; i < a->inputs; i++)
        if (a->io.din[i]) assert_true(op_run_same_bits(&a->din[i], &b->din[i]));
    for (int i = 0; i < a->params; i++) {
        assert_true(op_run_same_bits(&a->param[i], &b->param[i]));
        if (a->io.dparam[i]) assert_true(op_run_same_bits(&a->dparam[i], &b->dparam[i]));
    }
}

/* ---- the axes every op is tested along ------------------------------------------------------- */

static inline const op_formats *op_all_formats(int *count) {
    static const op_formats all[] = {{&ab_format_fp32, &ab_format_fp32, NULL},
                                     {&ab_format_fp16, &ab_format_fp16, NULL},
                                     {&ab_format_bf16, &ab_format_bf16, NULL}};
    *count = (int)AB_COUNT_OF(all);
    return all;
}

/* Calls `body` with one thread and with two. */
static inline void op_each_lane_count(void (*body)(const void *), const void *argument) {
    for (int threads = op_run_device ? 1 : 2; threads >= 1; threads--) { /* lanes are the host's */
        assert_int_equal(ab_parallel_start(threads), AB_OK);
        body(argument);
    }
}

/* The same on every CPU level this machine has (the highest two run the same code here); restores the level.
 */
static inline void op_each_machine(void (*body)(const void *), const void *argument) {
    if (op_run_device) {
        op_each_lane_count(body, argument);
        return;
    }
    for (int isa = AB_ISA_PLAIN; isa <= AB_ISA_AVX512; isa++)
        if (ab_isa_force((ab_isa)isa) == AB_OK) op_each_lane_count(body, argument);
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

/* ---- an observer that keeps what it sees ----------------------------------------------------- */

enum { OP_PROBE_IDS = 160 };

typedef struct op_probe {
    ab_observer base;
    pthread_mutex_t lock;
    bool invalid;              /* a call had an impossible id or thread */
    float *seen[OP_PROBE_IDS]; /* in the order of the calls; owned */
    int64_t count[OP_PROBE_IDS];
} op_probe;

static inline void op_probe_see(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    op_probe *probe = (op_probe *)self;
    bool valid = id >= 0 && id < OP_PROBE_IDS && thread >= 0 && thread < ab_parallel_threads();
    pthread_mutex_lock(&probe->lock);
    probe->invalid = probe->invalid || !valid;
    if (valid) {
        probe->seen[id] = realloc(probe->seen[id], (size_t)(probe->count[id] + n) * sizeof(float));
        memcpy(probe->seen[id] + probe->count[id], values, (size_t)n * sizeof(float));
        probe->count[id] += n;
    }
    pthread_mutex_unlock(&probe->lock);
}

static inline op_probe op_probe_open(void) {
    return (op_probe){.base = {.see = op_probe_see}, .lock = PTHREAD_MUTEX_INITIALIZER};
}

static inline void op_probe_close(op_probe *probe) {
    for (int i = 0; i < OP_PROBE_IDS; i++) free(probe->seen[i]);
    pthread_mutex_destroy(&probe->lock);
}

#endif
