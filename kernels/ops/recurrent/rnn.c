/* rnn: one Elman layer over [batch, steps, features] from zero states, as torch.nn.RNN with batch_first: h_t
 * = f(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh) with f tanh or relu; the output is the hidden states of all
 * steps. Stacked layers are several ops; one direction.
 *
 * Half tensors: a hidden state is rounded once, when stored, and the next step reads the stored value;
 * backward computes the slope from it. Samples are independent, so threads process groups of samples. */
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

/* ---- memory ------------------------------------------------------------------------------------ */

/* Own fp32 arrays. */
enum {
    STATES = AB_R_OWN, /* a copy of half states */
    SUMS               /* [batch, steps, hidden]; backward: their gradients */
};

static void own_arrays(const ab_recurrence *r, int64_t *size) {
    size[STATES - AB_R_OWN] = ab_recurrent_copy(r->io->out);
    size[SUMS - AB_R_OWN] = r->batch * r->steps * r->hidden;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    ab_recurrent_measure(exec, io, 1, own_arrays, workspace_bytes);
    *state_bytes = 0;
    return AB_OK;
}

static bool is_relu(const ab_recurrence *r) {
    return ((const rnn_attrs *)r->io->attrs)->nonlinearity == RELU;
}

/* ---- forward ----------------------------------------------------------------------------------- */

/* States of one step: stored, then read back as stored, replacing the pre-activations. */
static void finish_step(const ab_recurrence *r, int64_t first, int64_t samples, int64_t step) {
    const int64_t h = r->hidden;
    for (int64_t i = first; i < first + samples; i++) {
        const int64_t at = (i * r->steps + step) * h;
        float *state = r->array[SUMS] + at;
        if (is_relu(r))
            for (int64_t k = 0; k < h; k++) state[k] = state[k] > 0.0f || isnan(state[k]) ? state[k] : 0.0f;
        else
            ab_vec_math_get()->tanh(state, state, NULL, h);
        ab_emit(r->exec, r->io->out, at, state, h);
        if (!ab_is_f32(r->io->out)) ab_read(r->io->out, at, h, state);
    }
}

static void forward_group(void *argument, int64_t group, int thread) {
    const ab_recurrence *r = argument;
    const int64_t h = r->hidden;
    int64_t samples, first = ab_recurrent_group(r->batch, group, &samples), at = first * r->steps,
                     rows = samples * r->steps;
    float *sums = r->array[SUMS] + at * h;
    (void)thread;
    for (int64_t row = 0; row < rows; row++)
        memcpy(sums + row * h, r->array[AB_R_BIAS], (size_t)h * sizeof(float));
    ab_recurrent_add_product(r, r->x + at * r->features, r->features, r->w_in, r->features, rows, h, sums, h);
    for (int64_t t = 0; t < r->steps; t++) {
        if (t > 0)
            ab_recurrent_add_product(r, sums + (t - 1) * h, r->steps * h, r->w_hidden, h, samples, h,
                                     sums + t * h, r->steps * h);
        finish_step(r, first, samples, t);
    }
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_recurrence r = ab_recurrent_start(exec, io, 1, own_arrays);
    ab_recurrent_biases(&r);
    ab_recurrent_groups(&r, forward_group);
    return AB_OK;
}

/* ---- backward ---------------------------------------------------------------------------------- */

/* The states of a step turn its gradients by states into gradients by sums. */
static void through_function(const ab_recurrence *r, int64_t at) {
    const float *state = ab_is_f32(r->io->out) ? r->io->out->data : r->array[STATES];
    float *d = r->array[SUMS] + at;
    for (int64_t k = 0; k < r->hidden; k++) {
        const float h = state[at + k];
        d[k] *= is_relu(r) ? (h > 0.0f ? 1.0f : 0.0f) : 1.0f - h * h;
    }
}

static void backward_group(void *argument, int64_t group, int thread) {
    const ab_recurrence *r = argument;
    const int64_t h = r->hidden, next = r->steps * h;
    int64_t samples, first = ab_recurrent_group(r->batch, group, &samples), row = first * r->steps;
    float *d = r->array[SUMS] + row * h;
    (void)thread;
    ab_recurrent_previous(r, first, samples);
    memcpy(d, r->dout + row * h, (size_t)(samples * r->steps * h) * sizeof(float));
    for (int64_t t = r->steps - 1; t >= 0; t--) {
        if (t + 1 < r->steps)
            ab_recurrent_back_product(r, d + (t + 1) * h, next, r->w_hidden, h, samples, d + t * h, next,
                                      1.0f);
        for (int64_t i = 0; i < samples; i++) through_function(r, (row + i * r->steps + t) * h);
    }
    ab_recurrent_input_gradient(r, first, samples, r->array[SUMS]);
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    ab_recurrence r = ab_recurrent_start(exec, io, 1, own_arrays);
    r.dout = ab_view_f32(io->dout, r.array[AB_R_DOUT]);
    (void)ab_view_f32(io->out, r.array[STATES]);
    ab_recurrent_groups(&r, backward_group);
    ab_recurrent_weight_gradients(&r, r.array[SUMS], NULL, NULL, io);
    return AB_OK;
}

/* ---- the op ---------------------------------------------------------------------------------- */

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)out;
    return ab_recurrent_flops(1, ((const rnn_attrs *)attrs)->hidden, in);
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
