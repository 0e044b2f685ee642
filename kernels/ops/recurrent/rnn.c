/* rnn: one Elman layer over [batch, steps, features] from zero states, as torch.nn.RNN with batch_first: h_t
 * = f(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh) with f tanh or relu; the output is the hidden states of all
 * steps. Stacked layers are several ops; one direction.
 *
 * Half tensors: a hidden state is rounded once, when stored, and the next step reads the stored value;
 * backward computes the slope from it. Samples are independent, so threads process groups of samples. */
#include "kernels/ops/blocks.h"
#include "kernels/ops/product/gemm.h"
#include "kernels/ops/recurrent/recurrent.h"
#include "kernels/vec/vec_math.h"

#include <math.h>
#include <string.h>

typedef struct rnn_attrs {
    int64_t hidden, nonlinearity;
    bool bias;
} rnn_attrs;

enum { TANH, RELU };
static const ab_attr attrs_table[] = {
    {"hidden_size", AB_ATTR_INT, offsetof(rnn_attrs, hidden), true, 0, 1, AB_RECURRENT_HIDDEN,
     "features of the hidden state"},
    {"nonlinearity", AB_ATTR_CHOICE, offsetof(rnn_attrs, nonlinearity), false, TANH, TANH, RELU, "tanh|relu"},
    {"bias", AB_ATTR_BOOL, offsetof(rnn_attrs, bias), false, 1, 0, 1, "two trained numbers added per state"},
    {0}};

/* ---- shapes ---------------------------------------------------------------------------------- */

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)inputs;
    return ab_recurrent_infer("rnn", ((const rnn_attrs *)attrs)->hidden, in, out);
}

static int params(const void *attrs, const ab_shape *in, ab_param_spec *spec) {
    const rnn_attrs *a = attrs;
    return ab_recurrent_params(1, a->hidden, a->bias, in, spec);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* fp32 arrays in the workspace; fp32 tensors are read in place. */
enum {
    WEIGHTS_IN,
    WEIGHTS_HIDDEN,
    BIAS,
    INPUT,
    STATES,
    BEFORE,
    SUMS,
    DOUT,
    DIN,
    DWEIGHTS_IN,
    DWEIGHTS_HIDDEN,
    DBIAS,
    ARRAYS
};

typedef struct recurrence {
    const ab_exec *exec;
    const ab_op_io *io;
    int64_t batch, steps, features, hidden;
    bool relu;
    const ab_format *half; /* accumulate_half */
    float *array[ARRAYS];
    const float *w_in, *w_hidden, *x, *h, *dout;
} recurrence;

static void measure(const recurrence *r, int64_t size[ARRAYS]) {
    const ab_op_io *io = r->io;
    const int64_t all = r->batch * r->steps * r->hidden;
    size[WEIGHTS_IN] = ab_recurrent_copy(io->param[AB_W_IH]);
    size[WEIGHTS_HIDDEN] = ab_recurrent_copy(io->param[AB_W_HH]);
    size[BIAS] = 2 * r->hidden;
    size[INPUT] = ab_recurrent_copy(io->in[0]);
    size[STATES] = ab_recurrent_copy(io->out);
    size[BEFORE] = all;
    size[SUMS] = all;
    size[DOUT] = ab_recurrent_copy(io->dout);
    size[DIN] = ab_recurrent_copy(io->din[0]);
    size[DWEIGHTS_IN] = r->hidden * r->features;
    size[DWEIGHTS_HIDDEN] = r->hidden * r->hidden;
    size[DBIAS] = r->hidden;
}

static recurrence start(const ab_exec *exec, const ab_op_io *io) {
    const ab_shape *in = &io->in[0]->shape;
    const rnn_attrs *a = io->attrs;
    recurrence r = {.exec = exec,
                    .io = io,
                    .batch = in->dim[0],
                    .steps = in->dim[1],
                    .features = in->dim[2],
                    .hidden = a->hidden,
                    .relu = a->nonlinearity == RELU};
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
    ab_for_chunks(r->batch * r->steps * r->hidden, ab_div_up(r->batch, AB_RECURRENT_SAMPLES), work, r);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* sums += a W^T for `rows` rows of a. */
static void add_product(const recurrence *r, const float *a, int64_t lda, const float *w, int64_t inner,
                        int64_t rows, float *sums, int64_t ldc) {
    ab_gemm g = {.transpose_b = true,
                 .rows = rows,
                 .columns = r->hidden,
                 .inner = inner,
                 .alpha = 1.0f,
                 .beta = 1.0f,
                 .a = a,
                 .lda = lda,
                 .b = w,
                 .ldb = inner,
                 .c = sums,
                 .ldc = ldc};
    ab_gemm_run(&g, r->exec->path, r->half);
}

/* States of one step: stored, then read back as stored, replacing the pre-activations. */
static void finish_step(const recurrence *r, int64_t first, int64_t samples, int64_t step) {
    const int64_t h = r->hidden;
    for (int64_t i = first; i < first + samples; i++) {
        const int64_t at = (i * r->steps + step) * h;
        float *state = r->array[SUMS] + at;
        if (r->relu)
            for (int64_t k = 0; k < h; k++) state[k] = state[k] > 0.0f || isnan(state[k]) ? state[k] : 0.0f;
        else
            ab_vec_math_get()->tanh(state, state, NULL, h);
        ab_emit(r->exec, r->io->out, at, state, h);
        if (!ab_is_f32(r->io->out)) ab_read(r->io->out, at, h, state);
    }
}

static void forward_group(void *argument, int64_t group, int thread) {
    const recurrence *r = argument;
    const int64_t h = r->hidden;
    int64_t samples, first = ab_recurrent_group(r->batch, group, &samples), at = first * r->steps,
                     rows = samples * r->steps;
    float *sums = r->array[SUMS] + at * h;
    (void)thread;
    for (int64_t row = 0; row < rows; row++)
        memcpy(sums + row * h, r->array[BIAS], (size_t)h * sizeof(float));
    add_product(r, r->x + at * r->features, r->features, r->w_in, r->features, rows, sums, h);
    for (int64_t t = 0; t < r->steps; t++) {
        if (t > 0)
            add_product(r, sums + (t - 1) * h, r->steps * h, r->w_hidden, h, samples, sums + t * h,
                        r->steps * h);
        finish_step(r, first, samples, t);
    }
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    recurrence r = start(exec, io);
    place(&r);
    ab_recurrent_biases(io, r.hidden, r.array[BIAS], r.array[BIAS] + r.hidden);
    for_groups(&r, forward_group);
    return AB_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* c (+)= d W for `rows` rows of d, the pre-activation gradients. */
static void back_product(const recurrence *r, const float *d, int64_t lda, const float *w, int64_t columns,
                         int64_t rows, float *c, int64_t ldc, float beta) {
    ab_gemm g = {.rows = rows,
                 .columns = columns,
                 .inner = r->hidden,
                 .alpha = 1.0f,
                 .beta = beta,
                 .a = d,
                 .lda = lda,
                 .b = w,
                 .ldb = columns,
                 .c = c,
                 .ldc = ldc};
    ab_gemm_run(&g, r->exec->path, r->half);
}

/* Hidden states of the previous step, as read by the next. */
static void previous_states(const recurrence *r, int64_t first, int64_t samples) {
    const int64_t h = r->hidden;
    for (int64_t i = first; i < first + samples; i++) {
        float *to = r->array[BEFORE] + i * r->steps * h;
        memset(to, 0, (size_t)h * sizeof(float));
        memcpy(to + h, r->h + i * r->steps * h, (size_t)((r->steps - 1) * h) * sizeof(float));
    }
}

static void backward_group(void *argument, int64_t group, int thread) {
    const recurrence *r = argument;
    const int64_t h = r->hidden;
    int64_t samples, first = ab_recurrent_group(r->batch, group, &samples), start_row = first * r->steps;
    float *d = r->array[SUMS] + start_row * h;
    (void)thread;
    previous_states(r, first, samples);
    memcpy(d, r->dout + start_row * h, (size_t)(samples * r->steps * h) * sizeof(float));
    for (int64_t t = r->steps - 1; t >= 0; t--) {
        if (t + 1 < r->steps)
            back_product(r, d + (t + 1) * h, r->steps * h, r->w_hidden, h, samples, d + t * h, r->steps * h,
                         1.0f);
        for (int64_t i = 0; i < samples; i++) {
            float *row = d + (i * r->steps + t) * h;
            const float *state = r->h + (start_row + i * r->steps + t) * h;
            for (int64_t k = 0; k < h; k++)
                row[k] *= r->relu ? (state[k] > 0.0f ? 1.0f : 0.0f) : 1.0f - state[k] * state[k];
        }
    }
    ab_tensor *din = r->io->din[0];
    if (!din) return;
    const int64_t at = start_row * r->features, rows = samples * r->steps;
    float *result = ab_target(din, at, r->array[DIN] + (ab_recurrent_copy(din) ? at : 0));
    back_product(r, d, h, r->w_in, r->features, rows, result, r->features, 0.0f);
    ab_emit(r->exec, din, at, result, rows * r->features);
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    recurrence r = start(exec, io);
    place(&r);
    r.h = ab_view_f32(io->out, r.array[STATES]);
    r.dout = ab_view_f32(io->dout, r.array[DOUT]);
    for_groups(&r, backward_group);
    const ab_recurrent_gradients gradients = {.exec = exec,
                                              .half = r.half,
                                              .rows = r.batch * r.steps,
                                              .width = r.hidden,
                                              .features = r.features,
                                              .hidden = r.hidden,
                                              .d = r.array[SUMS],
                                              .x = r.x,
                                              .before = r.array[BEFORE],
                                              .dw_in = r.array[DWEIGHTS_IN],
                                              .dw_hidden = r.array[DWEIGHTS_HIDDEN],
                                              .dbias = r.array[DBIAS]};
    ab_recurrent_weight_gradients(&gradients, io);
    return AB_OK;
}

/* ---- the op ---------------------------------------------------------------------------------- */

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    double hidden = (double)((const rnn_attrs *)attrs)->hidden, steps = (double)(in->dim[0] * in->dim[1]);
    (void)out;
    return steps * 2.0 * hidden * ((double)in->dim[2] + hidden + 10.0);
}

const ab_op ab_op_rnn = {.name = "rnn",
                         .inputs = 1,
                         .attrs_bytes = sizeof(rnn_attrs),
                         .attrs = attrs_table,
                         .infer = infer,
                         .params = params,
                         .backward_needs = 1u << 0 | AB_NEEDS_OUT,
                         .prepare = prepare,
                         .forward = forward,
                         .backward = backward,
                         .flops = flops,
                         .describe = ab_recurrent_describe};
