/* gru: one layer over [batch, steps, features] from a zero state (Cho et al. 2014), as torch.nn.GRU with
 * batch_first: gates in the order r, z, n; the reset gate r acts after the product with the hidden state:
 * n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h = (1 - z) n + z h. The output is the hidden states of all
 * steps. Stacked layers are several ops; one direction.
 *
 * Half tensors: a hidden state is rounded once, when stored, and the next step reads the stored value; gates
 * are fp32. Samples are independent, so threads process groups of samples. */
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

/* ---- memory ------------------------------------------------------------------------------------ */

/* Own fp32 arrays. */
enum {
    SUMS = AB_R_OWN, /* KEPT rows: what biases add to the sums of a step */
    HIDDEN,          /* [batch, hidden]: of one step; backward: its gradient */
    D_IN,            /* [batch, steps, GATES hidden]: gradients of the sums by the input, and by the state */
    D_HIDDEN,
    DBIAS_HIDDEN
};

static void own_arrays(const ab_recurrence *r, int64_t *size) {
    size[SUMS - AB_R_OWN] = KEPT * r->hidden;
    size[HIDDEN - AB_R_OWN] = r->batch * r->hidden;
    size[D_IN - AB_R_OWN] = size[D_HIDDEN - AB_R_OWN] = r->batch * r->steps * r->width;
    size[DBIAS_HIDDEN - AB_R_OWN] = r->width;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    ab_recurrent_measure(exec, io, GATES, own_arrays, workspace_bytes);
    *state_bytes = 0;
    return AB_OK;
}

static float *kept(const ab_recurrence *r) { return r->io->saved[0]->data; }

/* ---- forward ----------------------------------------------------------------------------------- */

/* Both biases for r and z; that of the input for n, that of the state for its own product. */
static void gather_biases(const ab_recurrence *r) {
    const int64_t h = r->hidden;
    float *sum = r->array[SUMS], *in = r->array[AB_R_BIAS], *state = in + r->width;
    memset(sum, 0, (size_t)(KEPT * h) * sizeof *sum);
    if (!r->io->param[AB_B_IH]) return;
    const float *b_in = ab_view_f32(r->io->param[AB_B_IH], in),
                *b_state = ab_view_f32(r->io->param[AB_B_HH], state);
    for (int64_t k = 0; k < 2 * h; k++) sum[k] = b_in[k] + b_state[k];
    memcpy(sum + 2 * h, b_in + 2 * h, (size_t)h * sizeof *sum);
    memcpy(sum + 3 * h, b_state + 2 * h, (size_t)h * sizeof *sum);
}

/* The sums of all steps of a group: biases, and what the input adds. */
static void input_sums(const ab_recurrence *r, int64_t first, int64_t samples) {
    const int64_t h = r->hidden, rows = samples * r->steps, at = first * r->steps;
    for (int64_t row = at; row < at + rows; row++)
        memcpy(kept(r) + row * KEPT * h, r->array[SUMS], (size_t)(KEPT * h) * sizeof(float));
    ab_recurrent_add_product(r, r->x + at * r->features, r->features, r->w_in, r->features, rows, r->width,
                             kept(r) + at * KEPT * h, KEPT * h);
}

/* What the state, as stored, adds to the sums of one step: W_hn h apart from the input's. */
static void state_sums(const ab_recurrence *r, int64_t first, int64_t samples, int64_t step) {
    const int64_t h = r->hidden, next = r->steps * KEPT * h;
    const float *state = r->array[HIDDEN] + first * h;
    float *sums = kept(r) + (first * r->steps + step) * KEPT * h;
    ab_recurrent_add_product(r, state, h, r->w_hidden, h, samples, 2 * h, sums, next);
    ab_recurrent_add_product(r, state, h, r->w_hidden + 2 * h * h, h, samples, h, sums + 3 * h, next);
}

static void forward_group(void *argument, int64_t group, int thread) {
    const ab_recurrence *r = argument;
    int64_t samples, first = ab_recurrent_group(r->batch, group, &samples), h = r->hidden;
    (void)thread;
    memset(r->array[HIDDEN] + first * h, 0, (size_t)(samples * h) * sizeof(float));
    input_sums(r, first, samples);
    for (int64_t t = 0; t < r->steps; t++) {
        if (t > 0) state_sums(r, first, samples, t);
        for (int64_t i = first; i < first + samples; i++) {
            const int64_t at = i * r->steps + t;
            float *state = r->array[HIDDEN] + i * h;
            ab_vec_math_get()->gru_step(kept(r) + at * KEPT * h, state, h);
            ab_emit(r->exec, r->io->out, at * h, state, h);
            ab_read(r->io->out, at * h, h, state); /* a half state as stored; fp32 needs no conversion */
        }
    }
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_recurrence r = ab_recurrent_start(exec, io, GATES, own_arrays);
    gather_biases(&r);
    ab_recurrent_groups(&r, forward_group);
    return AB_OK;
}

/* ---- backward ---------------------------------------------------------------------------------- */

/* Adds dout of a step and what comes back through the sums of the next step to the gradient of the state,
 * which holds what came through z. */
static void state_gradient(const ab_recurrence *r, int64_t first, int64_t samples, int64_t step) {
    const int64_t h = r->hidden, n = r->width;
    float *dh = r->array[HIDDEN] + first * h;
    if (step + 1 < r->steps)
        ab_recurrent_back_product(r, r->array[D_HIDDEN] + (first * r->steps + step + 1) * n, r->steps * n,
                                  r->w_hidden, h, samples, dh, h, 1.0f);
    for (int64_t i = 0; i < samples; i++) {
        const float *dout = r->dout + ((first + i) * r->steps + step) * h;
        for (int64_t k = 0; k < h; k++) dh[i * h + k] += dout[k];
    }
}

static void backward_group(void *argument, int64_t group, int thread) {
    const ab_recurrence *r = argument;
    int64_t samples, first = ab_recurrent_group(r->batch, group, &samples), h = r->hidden, n = r->width;
    (void)thread;
    ab_recurrent_previous(r, first, samples);
    memset(r->array[HIDDEN] + first * h, 0, (size_t)(samples * h) * sizeof(float));
    for (int64_t t = r->steps - 1; t >= 0; t--) {
        state_gradient(r, first, samples, t);
        for (int64_t i = first; i < first + samples; i++) {
            const int64_t at = i * r->steps + t;
            float *const d[2] = {r->array[D_IN] + at * n, r->array[D_HIDDEN] + at * n};
            ab_vec_math_get()->gru_step_backward(d, r->array[HIDDEN] + i * h, kept(r) + at * KEPT * h,
                                                 r->array[AB_R_BEFORE] + at * h, h);
        }
    }
    ab_recurrent_input_gradient(r, first, samples, r->array[D_IN]);
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    ab_recurrence r = ab_recurrent_start(exec, io, GATES, own_arrays);
    r.dout = ab_view_f32(io->dout, r.array[AB_R_DOUT]);
    ab_recurrent_groups(&r, backward_group);
    ab_recurrent_weight_gradients(&r, r.array[D_IN], r.array[D_HIDDEN], r.array[DBIAS_HIDDEN], io);
    return AB_OK;
}

/* ---- the op ---------------------------------------------------------------------------------- */

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)out;
    return ab_recurrent_flops(GATES, ((const gru_attrs *)attrs)->hidden, in);
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
