/* fp64 references of recurrent ops: a sample's whole recurrence in double, for all requested elements at
 * once. As in the kernels, a step reads the hidden state stored by the step before; if that is non-finite,
 * the recomputed one. Gates and cell states are recomputed, not read. Magnitudes are clamped to HUGE_STATE so
 * that products stay finite.
 *
 * gates = W_ih x + W_hh h + biases. rnn: h = f(gates). lstm, gates i f g o: c = s(f) c' + s(i) tanh(g), h =
 * s(o) tanh(c). gru, gates r z n: in n the state's part, W_hn h + b_hn, is multiplied by s(r); h = (1 - s(z))
 * tanh(n) + s(z) h'. */
#include "probes/element64/element64.h"

#include <stdlib.h>

#define HUGE_STATE 1e200

enum { MOST_ELEMENTS = 8 }; /* budget of one call, in elements */

/* Of gru: PARTS, the state's part of n; DSTATE, the gates' gradients as the state sees them (of the others:
 * DGATES); DCELL, the state's gradient through z. */
enum {
    W_IN,
    W_HIDDEN,
    BIAS,
    STATE_BIAS,
    X,
    GATES,
    CELLS,
    PARTS,
    MADE,
    READ,
    DGATES,
    DSTATE,
    DHIDDEN,
    DCELL,
    ARRAYS
};

typedef struct recurrence {
    const ab_op_run *run;
    int64_t batch, steps, features, hidden, width; /* width: gates of a step */
    bool lstm, gru, relu;
    double *array[ARRAYS]; /* weights; then of one sample: [steps, ...], DHIDDEN and DCELL of one step */
    double *largest;       /* [steps]: magnitude summed in a step, or in the steps it depends on */
} recurrence;

/* ---- memory ---------------------------------------------------------------------------------- */

static recurrence recurrence_of(const ab_op_run *run) {
    const ab_shape *in = &run->io->in[0]->shape;
    recurrence r = {.run = run,
                    .batch = in->dim[0],
                    .steps = in->dim[1],
                    .features = in->dim[2],
                    .lstm = run->op == &ab_op_lstm,
                    .gru = run->op == &ab_op_gru};
    r.hidden = ab_integer64(run, "hidden_size");
    r.width = (r.lstm ? 4 : r.gru ? 3 : 1) * r.hidden;
    r.relu = run->op == &ab_op_rnn && ab_integer64(run, "nonlinearity") != 0;
    return r;
}

static void read_all(const ab_tensor *tensor, int64_t from, int64_t n, double *to) {
    for (int64_t i = 0; i < n; i++) to[i] = ab_read64(tensor, from + i);
}

/* Whether the state's part of a gate is kept apart. */
static bool is_apart(const recurrence *r, int64_t u) { return r->gru && u >= 2 * r->hidden; }

static double *bias_of(const recurrence *r, int param, int64_t u) {
    return param == 3 && is_apart(r, u) ? &r->array[STATE_BIAS][u - 2 * r->hidden] : &r->array[BIAS][u];
}

static bool open_recurrence(recurrence *r) {
    const int64_t states = r->steps * r->hidden, gates = r->steps * r->width;
    const int64_t size[ARRAYS] = {r->width * r->features,
                                  r->width * r->hidden,
                                  r->width,
                                  r->hidden,
                                  r->steps * r->features,
                                  gates,
                                  states,
                                  states,
                                  states,
                                  states,
                                  gates,
                                  gates,
                                  r->hidden,
                                  r->hidden};
    int64_t all = r->steps;
    for (int i = 0; i < ARRAYS; i++) all += size[i];
    r->largest = calloc((size_t)all, sizeof *r->largest);
    if (!r->largest) return false;
    double *next = r->largest + r->steps;
    for (int i = 0; i < ARRAYS; next += size[i++]) r->array[i] = next;
    ab_tensor *const *param = r->run->io->param;
    read_all(param[0], 0, size[W_IN], r->array[W_IN]);
    read_all(param[1], 0, size[W_HIDDEN], r->array[W_HIDDEN]);
    for (int i = 2; i < 4 && param[i]; i++)
        for (int64_t u = 0; u < r->width; u++) *bias_of(r, i, u) += ab_read64(param[i], u);
    if (!r->gru) r->array[DSTATE] = r->array[DGATES];
    return true;
}

/* ---- forward --------------------------------------------------------------------------------- */

static double bounded(double x) { return x > HUGE_STATE ? HUGE_STATE : x < -HUGE_STATE ? -HUGE_STATE : x; }

/* Adds a[k] b[k]; a is contiguous, b has stride `step`. */
static void add_products(ab_element64 *sum, const double *a, const double *b, int64_t step, int64_t n) {
    for (int64_t k = 0; k < n; k++) ab_add64(sum, a[k] * b[k * step]);
}

static double logistic(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }

static void add_state(const recurrence *r, int64_t t, int64_t u, ab_element64 *sum) {
    if (t > 0)
        add_products(sum, r->array[READ] + (t - 1) * r->hidden, r->array[W_HIDDEN] + u * r->hidden, 1,
                     r->hidden);
}

/* gru: s(r) times the state's part of n. */
static void add_part(const recurrence *r, int64_t t, int64_t u, ab_element64 *sum) {
    const int64_t k = u - 2 * r->hidden;
    ab_element64 part = {.value = r->array[STATE_BIAS][k]};
    add_state(r, t, u, &part);
    r->array[PARTS][t * r->hidden + k] = part.value;
    ab_track_max64(sum, part.largest);
    ab_add64(sum, r->array[GATES][t * r->width + k] * part.value);
}

/* Applies the gate functions to the sums of a step. */
static void add_up_gates(const recurrence *r, int64_t t) {
    for (int64_t u = 0; u < r->width; u++) {
        ab_element64 sum = {.value = r->array[BIAS][u]};
        add_products(&sum, r->array[X] + t * r->features, r->array[W_IN] + u * r->features, 1, r->features);
        if (is_apart(r, u))
            add_part(r, t, u, &sum);
        else
            add_state(r, t, u, &sum);
        const bool is_tanh = r->width > r->hidden && u / r->hidden == 2;
        r->array[GATES][t * r->width + u] = r->width == r->hidden ? sum.value
                                            : is_tanh             ? tanh(sum.value)
                                                                  : logistic(sum.value);
        r->largest[t] = fmax(r->largest[t], sum.largest);
    }
}

static double state_of(const recurrence *r, int64_t t, int64_t k) {
    const double *gates = r->array[GATES] + t * r->width;
    if (r->gru) {
        const double z = gates[r->hidden + k], before = t > 0 ? r->array[READ][(t - 1) * r->hidden + k] : 0;
        return (1 - z) * gates[2 * r->hidden + k] + z * before;
    }
    if (!r->lstm) return r->relu ? (gates[k] < 0 ? 0 : gates[k]) : tanh(gates[k]);
    double *cell = r->array[CELLS] + t * r->hidden + k;
    *cell = (t > 0 ? gates[r->hidden + k] * cell[-r->hidden] : 0) + gates[k] * gates[2 * r->hidden + k];
    return gates[3 * r->hidden + k] * tanh(*cell);
}

/* Runs steps up to `last` of a sample. */
static void run_sample(const recurrence *r, int64_t sample, int64_t last) {
    const ab_op_io *io = r->run->io;
    const int64_t first = sample * r->steps;
    read_all(io->in[0], first * r->features, r->steps * r->features, r->array[X]);
    for (int64_t t = 0; t <= last; t++) {
        r->largest[t] = t > 0 ? r->largest[t - 1] : 0;
        add_up_gates(r, t);
        for (int64_t k = 0; k < r->hidden; k++) {
            const double stored = ab_read64(io->out, (first + t) * r->hidden + k),
                         made = bounded(state_of(r, t, k));
            r->array[MADE][t * r->hidden + k] = made;
            r->array[READ][t * r->hidden + k] = isfinite(stored) ? stored : made;
        }
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

static void gru_gradient(const recurrence *r, int64_t t, int64_t k) {
    const int64_t h = r->hidden, at = t * r->width + k;
    const double *g = r->array[GATES] + at, dh = r->array[DHIDDEN][k];
    const double before = t > 0 ? r->array[READ][(t - 1) * h + k] : 0, z = g[h], n = g[2 * h];
    const double by_n = dh * (1 - z) * (1 - n * n);
    double *d = r->array[DGATES] + at, *d_state = r->array[DSTATE] + at;
    d[0] = d_state[0] = by_n * r->array[PARTS][t * h + k] * g[0] * (1 - g[0]);
    d[h] = d_state[h] = dh * (before - n) * z * (1 - z);
    d[2 * h] = by_n;
    d_state[2 * h] = by_n * g[0];
    r->array[DCELL][k] = bounded(dh * z);
}

/* Gradients of the gate pre-activations of one step from DHIDDEN and DCELL; DCELL is updated to that of the
 * step before. */
static void gate_gradients(const recurrence *r, int64_t t) {
    const int64_t h = r->hidden;
    const double *g = r->array[GATES] + t * r->width, *cell = r->array[CELLS] + t * h;
    double *d = r->array[DGATES] + t * r->width, *dc = r->array[DCELL];
    for (int64_t k = 0; k < h; k++) {
        const double dh = r->array[DHIDDEN][k], state = r->array[READ][t * h + k];
        if (r->gru) {
            gru_gradient(r, t, k);
            continue;
        }
        if (!r->lstm) {
            d[k] = r->relu ? (state > 0 ? dh : 0) : dh * (1 - state * state);
            continue;
        }
        const double tanh_c = tanh(cell[k]), before = t > 0 ? cell[k - h] : 0;
        const double by_cell = bounded(dc[k] + dh * g[3 * h + k] * (1 - tanh_c * tanh_c));
        d[k] = by_cell * g[2 * h + k] * g[k] * (1 - g[k]);
        d[h + k] = by_cell * before * g[h + k] * (1 - g[h + k]);
        d[2 * h + k] = by_cell * g[k] * (1 - g[2 * h + k] * g[2 * h + k]);
        d[3 * h + k] = dh * tanh_c * g[3 * h + k] * (1 - g[3 * h + k]);
        dc[k] = by_cell * g[h + k];
    }
}

static void run_back(const recurrence *r, int64_t sample) {
    const ab_tensor *dout = r->run->io->dout;
    memset(r->array[DCELL], 0, (size_t)r->hidden * sizeof(double));
    for (int64_t t = r->steps - 1; t >= 0; t--) {
        const bool last = t == r->steps - 1;
        r->largest[t] = last ? 0 : r->largest[t + 1];
        for (int64_t k = 0; k < r->hidden; k++) {
            ab_element64 sum = {.value = ab_read64(dout, (sample * r->steps + t) * r->hidden + k)};
            if (r->gru) ab_add64(&sum, r->array[DCELL][k]);
            if (!last)
                add_products(&sum, r->array[DSTATE] + (t + 1) * r->width, r->array[W_HIDDEN] + k, r->hidden,
                             r->width);
            r->array[DHIDDEN][k] = bounded(sum.value);
            r->largest[t] = fmax(r->largest[t], sum.largest);
        }
        gate_gradients(r, t);
    }
}

/* ---- elements -------------------------------------------------------------------------------- */

static void input_gradient(const recurrence *r, int64_t i, ab_element64 *e) {
    const int64_t t = i / r->features % r->steps;
    add_products(e, r->array[DGATES] + t * r->width, r->array[W_IN] + i % r->features, r->features, r->width);
    ab_track_max64(e, r->largest[t]);
}

/* Contribution of a sample to element i of a parameter's gradient. */
static void add_share(const recurrence *r, int param, int64_t i, ab_element64 *e) {
    const int64_t columns = param == 0 ? r->features : param == 1 ? r->hidden : 1, late = param == 1;
    const double *with = r->array[param == 0 ? X : READ] + i % columns;
    const double *d = r->array[param % 2 ? DSTATE : DGATES] + i / columns;
    for (int64_t t = late; t < r->steps; t++)
        ab_add64(e, d[t * r->width] * (param < 2 ? with[(t - late) * columns] : 1));
    ab_track_max64(e, r->largest[0]);
}

static bool affordable(const recurrence *r, int64_t samples) {
    const int64_t a_sample = r->steps * r->width * (r->features + r->hidden);
    return a_sample <= (int64_t)MOST_ELEMENTS * AB_ELEMENT64_WORK / samples / (r->run->backward ? 2 : 1);
}

static void of_samples(const recurrence *r, const int64_t *place, int n, ab_element64 *result) {
    const int64_t size = r->steps * (r->run->backward ? r->features : r->hidden);
    int64_t known = -1;
    for (int i = 0; i < n; i++) {
        const int64_t sample = place[i] / size;
        if (sample != known) {
            run_sample(r, sample, r->steps - 1);
            if (r->run->backward) run_back(r, sample);
        }
        known = sample;
        if (r->run->backward) {
            input_gradient(r, place[i], &result[i]);
            continue;
        }
        const int64_t inside = place[i] % size;
        ab_add64(&result[i], r->array[MADE][inside]);
        ab_track_max64(&result[i], r->largest[inside / r->hidden]);
    }
}

static void of_parameter(const recurrence *r, int param, const int64_t *place, int n, ab_element64 *result) {
    for (int64_t sample = 0; sample < r->batch; sample++) {
        run_sample(r, sample, r->steps - 1);
        run_back(r, sample);
        for (int i = 0; i < n; i++) add_share(r, param, place[i], &result[i]);
    }
}

static bool several(const ab_op_run *run, int wrote, const int64_t *place, int n, ab_element64 *result) {
    recurrence r = recurrence_of(run);
    const bool of_param = wrote >= AB_WROTE_DPARAM;
    if (!affordable(&r, of_param || n > r.batch ? r.batch : n) || !open_recurrence(&r)) return false;
    if (of_param)
        of_parameter(&r, wrote - AB_WROTE_DPARAM, place, n, result);
    else
        of_samples(&r, place, n, result);
    free(r.largest);
    return true;
}

const ab_element64_kind ab_element64_lstm = {.op = &ab_op_lstm, .several = several};
const ab_element64_kind ab_element64_gru = {.op = &ab_op_gru, .several = several};
const ab_element64_kind ab_element64_rnn = {.op = &ab_op_rnn, .several = several};
