/* lstm: one layer over [batch, steps, features] from zero states (Hochreiter and Schmidhuber 1997), as
 * torch.nn.LSTM with batch_first: gates in the order i, f, g, o, two biases; the output is the hidden states
 * of all steps. Stacked layers are several ops; one direction.
 *
 * Half tensors: a hidden state is rounded once, when stored, and the next step reads the stored value; cell
 * states and gates are fp32. Samples are independent, so threads process groups of samples. */
#include "kernels/ops/recurrent/recurrent.h"
#include "kernels/vec/vec_math.h"

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

/* ---- memory ------------------------------------------------------------------------------------ */

/* Own fp32 arrays. */
enum {
    HIDDEN = AB_R_OWN, /* [batch, hidden]: of one step; backward: its gradient */
    CELL,              /* zeros; backward: gradient of the cell state */
    DGATES             /* [batch, steps, GATES hidden] */
};

static void own_arrays(const ab_recurrence *r, int64_t *size) {
    size[HIDDEN - AB_R_OWN] = size[CELL - AB_R_OWN] = r->batch * r->hidden;
    size[DGATES - AB_R_OWN] = r->batch * r->steps * r->width;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    ab_recurrent_measure(exec, io, GATES, own_arrays, workspace_bytes);
    *state_bytes = 0;
    return AB_OK;
}

static float *gates(const ab_recurrence *r) { return r->io->saved[0]->data; }
static float *cells(const ab_recurrence *r) { return r->io->saved[1]->data; }

/* ---- forward ----------------------------------------------------------------------------------- */

/* gates = x W_ih^T + biases for all steps of a group. */
static void input_gates(const ab_recurrence *r, int64_t first, int64_t samples) {
    int64_t rows = samples * r->steps, n = r->width, at = first * r->steps;
    for (int64_t row = at; row < at + rows; row++)
        memcpy(gates(r) + row * n, r->array[AB_R_BIAS], (size_t)n * sizeof(float));
    ab_recurrent_add_product(r, r->x + at * r->features, r->features, r->w_in, r->features, rows, n,
                             gates(r) + at * n, n);
}

/* gates of one step += h W_hh^T, h as stored. */
static void hidden_gates(const ab_recurrence *r, int64_t first, int64_t samples, int64_t step) {
    const int64_t h = r->hidden, n = r->width;
    ab_recurrent_add_product(r, r->array[HIDDEN] + first * h, h, r->w_hidden, h, samples, n,
                             gates(r) + (first * r->steps + step) * n, r->steps * n);
}

static void forward_group(void *argument, int64_t group, int thread) {
    const ab_recurrence *r = argument;
    int64_t samples, first = ab_recurrent_group(r->batch, group, &samples), h = r->hidden;
    float *cell = r->array[CELL] + first * h;
    (void)thread;
    memset(cell, 0, (size_t)(samples * h) * sizeof(float));
    input_gates(r, first, samples);
    for (int64_t t = 0; t < r->steps; t++) {
        if (t > 0) hidden_gates(r, first, samples, t);
        for (int64_t i = 0; i < samples; i++) {
            int64_t at = (first + i) * r->steps + t;
            const float *before = t > 0 ? cells(r) + (at - 1) * h : cell + i * h;
            float *state = r->array[HIDDEN] + (first + i) * h;
            ab_vec_math_get()->lstm_step(gates(r) + at * r->width, before, cells(r) + at * h, state, h);
            ab_emit(r->exec, r->io->out, at * h, state, h);
            ab_read(r->io->out, at * h, h, state); /* a half state as stored; fp32 needs no conversion */
        }
    }
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_recurrence r = ab_recurrent_start(exec, io, GATES, own_arrays);
    ab_recurrent_biases(&r);
    ab_recurrent_groups(&r, forward_group);
    return AB_OK;
}

/* ---- backward ---------------------------------------------------------------------------------- */

/* dh of a step = dout + dgates of the next step W_hh. */
static void hidden_gradient(const ab_recurrence *r, int64_t first, int64_t samples, int64_t step) {
    int64_t h = r->hidden, n = r->width;
    float *dh = r->array[HIDDEN] + first * h;
    for (int64_t i = 0; i < samples; i++)
        memcpy(dh + i * h, r->dout + ((first + i) * r->steps + step) * h, (size_t)h * sizeof(float));
    if (step + 1 < r->steps)
        ab_recurrent_back_product(r, r->array[DGATES] + (first * r->steps + step + 1) * n, r->steps * n,
                                  r->w_hidden, h, samples, dh, h, 1.0f);
}

static void backward_group(void *argument, int64_t group, int thread) {
    const ab_recurrence *r = argument;
    int64_t samples, first = ab_recurrent_group(r->batch, group, &samples), h = r->hidden;
    float *dc = r->array[CELL] + first * h, *zero = r->array[AB_R_BEFORE] + first * r->steps * h;
    (void)thread;
    ab_recurrent_previous(r, first,
                          samples); /* starts with zeros: also the cell state before the first step */
    memset(dc, 0, (size_t)(samples * h) * sizeof(float));
    for (int64_t t = r->steps - 1; t >= 0; t--) {
        hidden_gradient(r, first, samples, t);
        for (int64_t i = 0; i < samples; i++) {
            int64_t at = (first + i) * r->steps + t, gate = at * r->width;
            const float *before = t > 0 ? cells(r) + (at - 1) * h : zero;
            ab_vec_math_get()->lstm_step_backward(r->array[DGATES] + gate, dc + i * h,
                                                  r->array[HIDDEN] + (first + i) * h, gates(r) + gate, before,
                                                  cells(r) + at * h, h);
        }
    }
    ab_recurrent_input_gradient(r, first, samples, r->array[DGATES]);
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    ab_recurrence r = ab_recurrent_start(exec, io, GATES, own_arrays);
    r.dout = ab_view_f32(io->dout, r.array[AB_R_DOUT]);
    ab_recurrent_groups(&r, backward_group);
    ab_recurrent_weight_gradients(&r, r.array[DGATES], NULL, NULL, io);
    return AB_OK;
}

/* ---- the op ---------------------------------------------------------------------------------- */

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)out;
    return ab_recurrent_flops(GATES, ((const lstm_attrs *)attrs)->hidden, in);
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
