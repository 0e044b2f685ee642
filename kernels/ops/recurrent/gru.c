/* gru: one layer over [batch, steps, features] from a zero state (Cho et al. 2014), as torch.nn.GRU with
 * batch_first: gates in the order r, z, n; the reset gate r acts after the product with the hidden state:
 * n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h = (1 - z) n + z h. The output is the hidden states of all
 * steps. Stacked layers are several ops; one direction.
 *
 * Half tensors: a hidden state is rounded once, when stored, and the next step reads the stored value; gates
 * are fp32. Samples are independent, so threads process groups of samples. */
#include "kernels/ops/blocks.h"
#include "kernels/ops/product/gemm.h"
#include "kernels/ops/recurrent/recurrent.h"
#include "kernels/vec/vec_math.h"

#include <string.h>

typedef struct gru_attrs {
    int64_t hidden;
    bool bias;
} gru_attrs;

enum { GATES = 3, KEPT = 4 }; /* KEPT: r, z, n and W_hn h + b_hn */

static const ab_attr attrs_table[] = {
    {"hidden_size", AB_ATTR_INT, offsetof(gru_attrs, hidden), true, 0, 1, AB_RECURRENT_HIDDEN,
     "features of the hidden state"},
    {"bias", AB_ATTR_BOOL, offsetof(gru_attrs, bias), false, 1, 0, 1, "two trained numbers added per gate"},
    {0}};

/* ---- shapes ---------------------------------------------------------------------------------- */

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)inputs;
    return ab_recurrent_infer("gru", ((const gru_attrs *)attrs)->hidden, in, out);
}

static int params(const void *attrs, const ab_shape *in, ab_param_spec *spec) {
    const gru_attrs *a = attrs;
    return ab_recurrent_params(GATES, a->hidden, a->bias, in, spec);
}

static int saved(const void *attrs, const ab_shape *in, const ab_shape *out, ab_shape *shape,
                 const ab_format **format) {
    (void)attrs;
    (void)in;
    shape[0] = *out;
    shape[0].dim[2] *= KEPT;
    format[0] = &ab_format_fp32;
    return 1;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* fp32 arrays. Arrays of a group of samples are slices of the batch's arrays. */
enum {
    WEIGHTS_IN,
    WEIGHTS_HIDDEN,
    BIAS, /* KEPT rows: what is added to the sums of a step */
    OTHER,
    INPUT,  /* both passes; fp32 tensors are read in place */
    HIDDEN, /* [batch, hidden]: of one step; backward: its gradient */
    BEFORE, /* [batch, steps, hidden]: hidden states of the previous step */
    D_IN,   /* [batch, steps, GATES hidden]: gradients of the sums by the input, and by the state */
    D_HIDDEN,
    DOUT,
    DIN,
    DWEIGHTS_IN,
    DWEIGHTS_HIDDEN,
    DBIAS_IN,
    DBIAS_HIDDEN,
    ARRAYS
};

typedef struct recurrence {
    const ab_exec *exec;
    const ab_op_io *io;
    int64_t batch, steps, features, hidden;
    const ab_format *half; /* accumulate_half */
    float *array[ARRAYS];
    const float *w_in, *w_hidden, *x, *dout;
    float *kept;
} recurrence;

static void measure(const recurrence *r, int64_t size[ARRAYS]) {
    const ab_op_io *io = r->io;
    const int64_t all = r->batch * r->steps, wide = GATES * r->hidden;
    memset(size, 0, ARRAYS * sizeof *size);
    size[WEIGHTS_IN] = ab_recurrent_copy(io->param[AB_W_IH]);
    size[WEIGHTS_HIDDEN] = ab_recurrent_copy(io->param[AB_W_HH]);
    size[BIAS] = KEPT * r->hidden;
    size[OTHER] = 2 * wide;
    size[INPUT] = ab_recurrent_copy(io->in[0]);
    size[HIDDEN] = r->batch * r->hidden;
    size[BEFORE] = all * r->hidden;
    size[D_IN] = size[D_HIDDEN] = all * wide;
    size[DOUT] = ab_recurrent_copy(io->dout);
    size[DIN] = ab_recurrent_copy(io->din[0]);
    size[DWEIGHTS_IN] = wide * r->features;
    size[DWEIGHTS_HIDDEN] = wide * r->hidden;
    size[DBIAS_IN] = size[DBIAS_HIDDEN] = wide;
}

static recurrence start(const ab_exec *exec, const ab_op_io *io) {
    const ab_shape *in = &io->in[0]->shape;
    recurrence r = {.exec = exec,
                    .io = io,
                    .batch = in->dim[0],
                    .steps = in->dim[1],
                    .features = in->dim[2],
                    .hidden = ((const gru_attrs *)io->attrs)->hidden};
    r.half = exec->accumulate_half && !ab_is_f32(io->out) ? io->out->format : NULL;
    return r;
}

static void place(recurrence *r) {
    int64_t size[ARRAYS];
    char *memory = r->exec->workspace;
    measure(r, size);
    for (int i = 0; i < ARRAYS; i++) {
        r->array[i] = (float *)(void *)memory;
        memory += ab_floats_bytes(size[i]);
    }
    r->w_in = ab_view_f32(r->io->param[AB_W_IH], r->array[WEIGHTS_IN]);
    r->w_hidden = ab_view_f32(r->io->param[AB_W_HH], r->array[WEIGHTS_HIDDEN]);
    r->x = ab_view_f32(r->io->in[0], r->array[INPUT]);
    r->kept = r->io->saved[0]->data;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    recurrence r = start(exec, io);
    int64_t size[ARRAYS];
    measure(&r, size);
    *workspace_bytes = *state_bytes = 0;
    for (int i = 0; i < ARRAYS; i++) *workspace_bytes += ab_floats_bytes(size[i]);
    return AB_OK;
}

static void for_groups(recurrence *r, ab_work work) {
    int64_t elements = r->batch * r->steps * KEPT * r->hidden;
    ab_for_chunks(elements, ab_div_up(r->batch, AB_RECURRENT_SAMPLES), work, r);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Both biases for r and z; that of the input for n, that of the state for its own product. */
static void gather_biases(const recurrence *r) {
    const int64_t h = r->hidden;
    float *sum = r->array[BIAS], *in = r->array[OTHER], *state = in + GATES * h;
    memset(sum, 0, (size_t)(KEPT * h) * sizeof *sum);
    if (!r->io->param[AB_B_IH]) return;
    const float *b_in = ab_view_f32(r->io->param[AB_B_IH], in),
                *b_state = ab_view_f32(r->io->param[AB_B_HH], state);
    for (int64_t k = 0; k < 2 * h; k++) sum[k] = b_in[k] + b_state[k];
    memcpy(sum + 2 * h, b_in + 2 * h, (size_t)h * sizeof *sum);
    memcpy(sum + 3 * h, b_state + 2 * h, (size_t)h * sizeof *sum);
}

/* c += a w^T, w [columns, inner] contiguous. */
static void add_product(const recurrence *r, const float *a, int64_t lda, const float *w, int64_t inner,
                        int64_t rows, int64_t columns, float *c, int64_t ldc) {
    ab_gemm g = {.transpose_b = true,
                 .rows = rows,
                 .columns = columns,
                 .inner = inner,
                 .alpha = 1.0f,
                 .beta = 1.0f,
                 .a = a,
                 .lda = lda,
                 .b = w,
                 .ldb = inner,
                 .c = c,
                 .ldc = ldc};
    ab_gemm_run(&g, r->exec->path, r->half);
}

/* The sums of all steps of a group: biases, and what the input adds. */
static void input_sums(const recurrence *r, int64_t first, int64_t samples) {
    const int64_t h = r->hidden, rows = samples * r->steps, at = first * r->steps;
    for (int64_t row = at; row < at + rows; row++)
        memcpy(r->kept + row * KEPT * h, r->array[BIAS], (size_t)(KEPT * h) * sizeof(float));
    add_product(r, r->x + at * r->features, r->features, r->w_in, r->features, rows, GATES * h,
                r->kept + at * KEPT * h, KEPT * h);
}

/* What the state, as stored, adds to the sums of one step: W_hn h apart from the input's. */
static void state_sums(const recurrence *r, int64_t first, int64_t samples, int64_t step) {
    const int64_t h = r->hidden;
    const float *state = r->array[HIDDEN] + first * h;
    float *sums = r->kept + (first * r->steps + step) * KEPT * h;
    add_product(r, state, h, r->w_hidden, h, samples, 2 * h, sums, r->steps * KEPT * h);
    add_product(r, state, h, r->w_hidden + 2 * h * h, h, samples, h, sums + 3 * h, r->steps * KEPT * h);
}

static void forward_group(void *argument, int64_t group, int thread) {
    const recurrence *r = argument;
    int64_t samples, first = ab_recurrent_group(r->batch, group, &samples), h = r->hidden;
    (void)thread;
    memset(r->array[HIDDEN] + first * h, 0, (size_t)(samples * h) * sizeof(float));
    input_sums(r, first, samples);
    for (int64_t t = 0; t < r->steps; t++) {
        if (t > 0) state_sums(r, first, samples, t);
        for (int64_t i = first; i < first + samples; i++) {
            const int64_t at = i * r->steps + t;
            float *state = r->array[HIDDEN] + i * h;
            ab_vec_math_get()->gru_step(r->kept + at * KEPT * h, state, h);
            ab_emit(r->exec, r->io->out, at * h, state, h);
            ab_read(r->io->out, at * h, h, state); /* a half state as stored; fp32 needs no conversion */
        }
    }
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    recurrence r = start(exec, io);
    place(&r);
    gather_biases(&r);
    for_groups(&r, forward_group);
    return AB_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* c (+)= d w. */
static void back_product(const recurrence *r, const float *d, int64_t ldd, const float *w, int64_t columns,
                         int64_t rows, float *c, int64_t ldc, float beta) {
    ab_gemm g = {.rows = rows,
                 .columns = columns,
                 .inner = GATES * r->hidden,
                 .alpha = 1.0f,
                 .beta = beta,
                 .a = d,
                 .lda = ldd,
                 .b = w,
                 .ldb = columns,
                 .c = c,
                 .ldc = ldc};
    ab_gemm_run(&g, r->exec->path, r->half);
}

/* Adds dout of a step and what comes back through the sums of the next step to the gradient of the state,
 * which holds what came through z. */
static void state_gradient(const recurrence *r, int64_t first, int64_t samples, int64_t step) {
    const int64_t h = r->hidden, n = GATES * h;
    float *dh = r->array[HIDDEN] + first * h;
    if (step + 1 < r->steps)
        back_product(r, r->array[D_HIDDEN] + (first * r->steps + step + 1) * n, r->steps * n, r->w_hidden, h,
                     samples, dh, h, 1.0f);
    for (int64_t i = 0; i < samples; i++) {
        const float *dout = r->dout + ((first + i) * r->steps + step) * h;
        for (int64_t k = 0; k < h; k++) dh[i * h + k] += dout[k];
    }
}

static void input_gradient(const recurrence *r, int64_t first, int64_t samples) {
    ab_tensor *din = r->io->din[0];
    const int64_t at = first * r->steps, rows = samples * r->steps, n = GATES * r->hidden;
    float *result =
        ab_target(din, at * r->features, r->array[DIN] + (ab_recurrent_copy(din) ? at * r->features : 0));
    back_product(r, r->array[D_IN] + at * n, n, r->w_in, r->features, rows, result, r->features, 0.0f);
    ab_emit(r->exec, din, at * r->features, result, rows * r->features);
}

static void backward_group(void *argument, int64_t group, int thread) {
    const recurrence *r = argument;
    int64_t samples, first = ab_recurrent_group(r->batch, group, &samples), h = r->hidden, n = GATES * h;
    (void)thread;
    ab_recurrent_previous(r->io, first, samples, r->array[BEFORE]);
    memset(r->array[HIDDEN] + first * h, 0, (size_t)(samples * h) * sizeof(float));
    for (int64_t t = r->steps - 1; t >= 0; t--) {
        state_gradient(r, first, samples, t);
        for (int64_t i = first; i < first + samples; i++) {
            const int64_t at = i * r->steps + t;
            float *const d[2] = {r->array[D_IN] + at * n, r->array[D_HIDDEN] + at * n};
            ab_vec_math_get()->gru_step_backward(d, r->array[HIDDEN] + i * h, r->kept + at * KEPT * h,
                                                 r->array[BEFORE] + at * h, h);
        }
    }
    if (r->io->din[0]) input_gradient(r, first, samples);
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    recurrence r = start(exec, io);
    place(&r);
    r.dout = ab_view_f32(io->dout, r.array[DOUT]);
    for_groups(&r, backward_group);
    const ab_recurrent_gradients gradients = {.exec = exec,
                                              .half = r.half,
                                              .rows = r.batch * r.steps,
                                              .width = GATES * r.hidden,
                                              .features = r.features,
                                              .hidden = r.hidden,
                                              .d = r.array[D_IN],
                                              .d_hidden = r.array[D_HIDDEN],
                                              .x = r.x,
                                              .before = r.array[BEFORE],
                                              .dw_in = r.array[DWEIGHTS_IN],
                                              .dw_hidden = r.array[DWEIGHTS_HIDDEN],
                                              .dbias = r.array[DBIAS_IN],
                                              .dbias_hidden = r.array[DBIAS_HIDDEN]};
    ab_recurrent_weight_gradients(&gradients, io);
    return AB_OK;
}

/* ---- the op ---------------------------------------------------------------------------------- */

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    double hidden = (double)((const gru_attrs *)attrs)->hidden, steps = (double)(in->dim[0] * in->dim[1]);
    (void)out;
    return steps * 2.0 * GATES * hidden * ((double)in->dim[2] + hidden + 10.0);
}

const ab_op ab_op_gru = {.name = "gru",
                         .inputs = 1,
                         .attrs_bytes = sizeof(gru_attrs),
                         .attrs = attrs_table,
                         .infer = infer,
                         .params = params,
                         .saved = saved,
                         .backward_needs = 1u << 0 | AB_NEEDS_OUT,
                         .prepare = prepare,
                         .forward = forward,
                         .backward = backward,
                         .flops = flops,
                         .describe = ab_recurrent_describe};
