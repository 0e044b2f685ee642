/* lstm: one layer over [batch, steps, features] from zero states (Hochreiter and Schmidhuber 1997), as
 * torch.nn.LSTM with batch_first: gates in the order i, f, g, o, two biases; the output is the hidden states
 * of all steps. Stacked layers are several ops; one direction.
 *
 * Half tensors: a hidden state is rounded once, when stored, and the next step reads the stored value; cell
 * states and gates are fp32. Samples are independent, so threads process groups of samples. */
#include "kernels/ops/blocks.h"
#include "kernels/ops/product/gemm.h"
#include "kernels/ops/recurrent/recurrent.h"
#include "kernels/vec/vec_math.h"

#include <math.h>
#include <string.h>

typedef struct lstm_attrs {
    int64_t hidden;
    bool bias;
} lstm_attrs;

enum { GATES = 4 };

static const ab_attr attrs_table[] = {
    {"hidden_size", AB_ATTR_INT, offsetof(lstm_attrs, hidden), true, 0, 1, AB_RECURRENT_HIDDEN,
     "features of the hidden state"},
    {"bias", AB_ATTR_BOOL, offsetof(lstm_attrs, bias), false, 1, 0, 1, "two trained numbers added per gate"},
    {0}};

/* ---- shapes ---------------------------------------------------------------------------------- */

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)inputs;
    return ab_recurrent_infer("lstm", ((const lstm_attrs *)attrs)->hidden, in, out);
}

static int params(const void *attrs, const ab_shape *in, ab_param_spec *spec) {
    const lstm_attrs *a = attrs;
    return ab_recurrent_params(GATES, a->hidden, a->bias, in, spec);
}

/* Gates and cell states of every step. */
static int saved(const void *attrs, const ab_shape *in, const ab_shape *out, ab_shape *shape,
                 const ab_format **format) {
    (void)attrs;
    (void)in;
    shape[0] = shape[1] = *out;
    shape[0].dim[2] *= GATES;
    format[0] = format[1] = &ab_format_fp32;
    return 2;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* fp32 arrays. Arrays of a group of samples are slices of the batch's arrays. */
enum {
    WEIGHTS_IN,
    WEIGHTS_HIDDEN,
    BIAS,
    INPUT,  /* both passes; fp32 tensors are read in place */
    HIDDEN, /* [batch, hidden]: of one step; backward: its gradient */
    CELL,   /* gradient of the cell state */
    BEFORE, /* [batch, steps, hidden]: hidden states of the previous step */
    DGATES,
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
    const ab_format *half; /* accumulate_half */
    float *array[ARRAYS];
    const float *w_in, *w_hidden, *x, *dout;
    float *gates, *cells;
} recurrence;

static void measure(const recurrence *r, int64_t size[ARRAYS]) {
    const ab_op_io *io = r->io;
    int64_t all = r->batch * r->steps;
    memset(size, 0, ARRAYS * sizeof *size);
    size[WEIGHTS_IN] = ab_recurrent_copy(io->param[AB_W_IH]);
    size[WEIGHTS_HIDDEN] = ab_recurrent_copy(io->param[AB_W_HH]);
    size[BIAS] = 2 * GATES * r->hidden;
    size[INPUT] = ab_recurrent_copy(io->in[0]);
    size[HIDDEN] = size[CELL] = r->batch * r->hidden;
    size[BEFORE] = all * r->hidden;
    size[DGATES] = all * GATES * r->hidden;
    size[DOUT] = ab_recurrent_copy(io->dout);
    size[DIN] = ab_recurrent_copy(io->din[0]);
    size[DWEIGHTS_IN] = GATES * r->hidden * r->features;
    size[DWEIGHTS_HIDDEN] = GATES * r->hidden * r->hidden;
    size[DBIAS] = GATES * r->hidden;
}

static recurrence start(const ab_exec *exec, const ab_op_io *io) {
    const ab_shape *in = &io->in[0]->shape;
    recurrence r = {.exec = exec,
                    .io = io,
                    .batch = in->dim[0],
                    .steps = in->dim[1],
                    .features = in->dim[2],
                    .hidden = ((const lstm_attrs *)io->attrs)->hidden};
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
    r->gates = r->io->saved[0]->data;
    r->cells = r->io->saved[1]->data;
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
    int64_t elements = r->batch * r->steps * GATES * r->hidden;
    ab_for_chunks(elements, ab_div_up(r->batch, AB_RECURRENT_SAMPLES), work, r);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* gates = x W_ih^T + biases for all steps of a group. */
static void input_gates(const recurrence *r, int64_t first, int64_t samples) {
    int64_t rows = samples * r->steps, n = GATES * r->hidden, at = first * r->steps;
    for (int64_t row = at; row < at + rows; row++)
        memcpy(r->gates + row * n, r->array[BIAS], (size_t)n * sizeof(float));
    ab_gemm g = {.transpose_b = true,
                 .rows = rows,
                 .columns = n,
                 .inner = r->features,
                 .alpha = 1.0f,
                 .beta = 1.0f,
                 .a = r->x + at * r->features,
                 .lda = r->features,
                 .b = r->w_in,
                 .ldb = r->features,
                 .c = r->gates + at * n,
                 .ldc = n};
    ab_gemm_run(&g, r->exec->path, r->half);
}

/* gates of one step += h W_hh^T, h as stored. */
static void hidden_gates(const recurrence *r, int64_t first, int64_t samples, int64_t step) {
    int64_t n = GATES * r->hidden;
    ab_gemm g = {.transpose_b = true,
                 .rows = samples,
                 .columns = n,
                 .inner = r->hidden,
                 .alpha = 1.0f,
                 .beta = 1.0f,
                 .a = r->array[HIDDEN] + first * r->hidden,
                 .lda = r->hidden,
                 .b = r->w_hidden,
                 .ldb = r->hidden,
                 .c = r->gates + (first * r->steps + step) * n,
                 .ldc = r->steps * n};
    ab_gemm_run(&g, r->exec->path, r->half);
}

static void forward_group(void *argument, int64_t group, int thread) {
    const recurrence *r = argument;
    int64_t samples, first = ab_recurrent_group(r->batch, group, &samples), h = r->hidden;
    float *cell = r->array[CELL] + first * h;
    (void)thread;
    memset(cell, 0, (size_t)(samples * h) * sizeof(float));
    input_gates(r, first, samples);
    for (int64_t t = 0; t < r->steps; t++) {
        if (t > 0) hidden_gates(r, first, samples, t);
        for (int64_t i = 0; i < samples; i++) {
            int64_t at = (first + i) * r->steps + t;
            const float *before = t > 0 ? r->cells + (at - 1) * h : cell + i * h;
            float *state = r->array[HIDDEN] + (first + i) * h;
            ab_vec_math_get()->lstm_step(r->gates + at * GATES * h, before, r->cells + at * h, state, h);
            ab_emit(r->exec, r->io->out, at * h, state, h);
            ab_read(r->io->out, at * h, h,
                    state); /* reads back a half state as stored; fp32 needs no conversion */
        }
    }
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    recurrence r = start(exec, io);
    place(&r);
    ab_recurrent_biases(io, GATES * r.hidden, r.array[BIAS], r.array[BIAS] + GATES * r.hidden);
    for_groups(&r, forward_group);
    return AB_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* dh of a step = dout + dgates of the next step W_hh. */
static void hidden_gradient(const recurrence *r, int64_t first, int64_t samples, int64_t step) {
    int64_t h = r->hidden, n = GATES * h;
    float *dh = r->array[HIDDEN] + first * h;
    for (int64_t i = 0; i < samples; i++)
        memcpy(dh + i * h, r->dout + ((first + i) * r->steps + step) * h, (size_t)h * sizeof(float));
    ab_gemm g = {.rows = samples,
                 .columns = h,
                 .inner = n,
                 .alpha = 1.0f,
                 .beta = 1.0f,
                 .a = r->array[DGATES] + (first * r->steps + step + 1) * n,
                 .lda = r->steps * n,
                 .b = r->w_hidden,
                 .ldb = h,
                 .c = dh,
                 .ldc = h};
    if (step + 1 < r->steps) ab_gemm_run(&g, r->exec->path, r->half);
}

static void input_gradient(const recurrence *r, int64_t first, int64_t samples) {
    ab_tensor *din = r->io->din[0];
    int64_t n = GATES * r->hidden, at = first * r->steps, count = samples * r->steps * r->features;
    float *result =
        ab_target(din, at * r->features, r->array[DIN] + (ab_recurrent_copy(din) ? at * r->features : 0));
    ab_gemm g = {.rows = samples * r->steps,
                 .columns = r->features,
                 .inner = n,
                 .alpha = 1.0f,
                 .a = r->array[DGATES] + at * n,
                 .lda = n,
                 .b = r->w_in,
                 .ldb = r->features,
                 .c = result,
                 .ldc = r->features};
    ab_gemm_run(&g, r->exec->path, r->half);
    ab_emit(r->exec, din, at * r->features, result, count);
}

static void backward_group(void *argument, int64_t group, int thread) {
    const recurrence *r = argument;
    int64_t samples, first = ab_recurrent_group(r->batch, group, &samples), h = r->hidden;
    float *dc = r->array[CELL] + first * h, *zero = r->array[BEFORE] + first * r->steps * h;
    (void)thread;
    ab_recurrent_previous(
        r->io, first, samples,
        r->array[BEFORE]); /* starts with zeros: also the cell state before the first step */
    memset(dc, 0, (size_t)(samples * h) * sizeof(float));
    for (int64_t t = r->steps - 1; t >= 0; t--) {
        hidden_gradient(r, first, samples, t);
        for (int64_t i = 0; i < samples; i++) {
            int64_t at = (first + i) * r->steps + t;
            const float *before = t > 0 ? r->cells + (at - 1) * h : zero;
            ab_vec_math_get()->lstm_step_backward(r->array[DGATES] + at * GATES * h, dc + i * h,
                                                  r->array[HIDDEN] + (first + i) * h,
                                                  r->gates + at * GATES * h, before, r->cells + at * h, h);
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
                                              .d = r.array[DGATES],
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
    double hidden = (double)((const lstm_attrs *)attrs)->hidden, steps = (double)(in->dim[0] * in->dim[1]);
    (void)out;
    return steps * 2.0 * GATES * hidden * ((double)in->dim[2] + hidden + 10.0);
}

const ab_op ab_op_lstm = {.name = "lstm",
                          .inputs = 1,
                          .attrs_bytes = sizeof(lstm_attrs),
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
