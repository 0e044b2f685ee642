/* Each tensor of the guide maps to a tensor of doubles; ops are computed by element64; four optimizers by the
 * formulas of their papers. */
#include "bench/experiments/double_cell.h"

#include "kernels/core/text.h"
#include "kernels/format/convert.h"
#include "probes/element64/element64.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 160, STATES = 2 };

/* A tensor of the guide, and its fp64 copy. */
typedef struct held {
    const ab_tensor *of;
    ab_tensor tensor;
    int64_t sweep; /* step of the last write */
} held;

/* A trained parameter. */
typedef struct trained {
    const ab_tensor *of; /* as ops read it */
    double *gradient, *state[STATES];
    int64_t sweep; /* step of the last write to the gradient: gradients of shared parameters are summed */
} trained;

typedef void (*formula)(const ab_optimizer_config *c, int64_t taken, double *w, const double *g,
                        double *const *state, int64_t n);

struct ab_double {
    ab_cell *guide;
    const ab_cell_config *config;
    formula update;
    ab_observer observer;
    ab_watch watch;
    held **held; /* each at a fixed address */
    int held_count, held_room;
    trained *trained; /* [trained_count of the guide] */
    ab_element64 *results;
    int64_t *places, room;
    int64_t sweep;
    double loss;
    ab_status failed;
};

/* ---- optimizers ------------------------------------------------------------------------------ */

static void sgd(const ab_optimizer_config *c, int64_t taken, double *w, const double *g, double *const *state,
                int64_t n) {
    (void)taken, (void)state;
    for (int64_t i = 0; i < n; i++) w[i] -= c->lr * (g[i] + c->weight_decay * w[i]);
}

static double advanced(const ab_optimizer_config *c, int64_t taken, double d, double *buffer) {
    return *buffer = taken == 1 ? d : c->momentum * *buffer + (1 - c->dampening) * d;
}

static void momentum(const ab_optimizer_config *c, int64_t taken, double *w, const double *g,
                     double *const *state, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        w[i] -= c->lr * advanced(c, taken, g[i] + c->weight_decay * w[i], &state[0][i]);
}

static void nesterov(const ab_optimizer_config *c, int64_t taken, double *w, const double *g,
                     double *const *state, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const double d = g[i] + c->weight_decay * w[i];
        w[i] -= c->lr * (d + c->momentum * advanced(c, taken, d, &state[0][i]));
    }
}

static double adam_step(const ab_optimizer_config *c, int64_t taken, double g, double *m, double *v) {
    *m += (1 - c->beta1) * (g - *m);
    *v = c->beta2 * *v + (1 - c->beta2) * g * g;
    const double root = sqrt(*v / (1 - pow(c->beta2, (double)taken)));
    return c->lr / (1 - pow(c->beta1, (double)taken)) * *m / (root + c->eps);
}

static void adam(const ab_optimizer_config *c, int64_t taken, double *w, const double *g,
                 double *const *state, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        w[i] -= adam_step(c, taken, g[i] + c->weight_decay * w[i], &state[0][i], &state[1][i]);
}

static void adamw(const ab_optimizer_config *c, int64_t taken, double *w, const double *g,
                  double *const *state, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const double shrunk = w[i] * (1 - c->lr * c->weight_decay);
        w[i] = shrunk - adam_step(c, taken, g[i], &state[0][i], &state[1][i]);
    }
}

static formula formula_of(const char *name) {
    static const struct {
        const char *name;
        formula update;
    } known[] = {
        {"sgd", sgd}, {"momentum", momentum}, {"nesterov", nesterov}, {"adam", adam}, {"adamw", adamw}};
    for (size_t i = 0; i < AB_COUNT_OF(known); i++)
        if (strcmp(known[i].name, name) == 0) return known[i].update;
    return NULL;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void fail_memory(ab_double *d) {
    d->failed = ab_fail(AB_NO_MEMORY, "training in double: out of memory");
}

static held *find_held(const ab_double *d, const ab_tensor *of) {
    for (int i = 0; i < d->held_count; i++)
        if (d->held[i]->of == of) return d->held[i];
    return NULL;
}

static bool reserve_held(ab_double *d) {
    if (d->held_count < d->held_room) return true;
    const int room = 2 * d->held_room + 64;
    held **more = realloc(d->held, (size_t)room * sizeof(held *));
    if (!more) return false;
    d->held = more;
    d->held_room = room;
    return true;
}

/* Returns the fp64 copy of a tensor, created on first use; NULL and a failure if out of memory. */
static held *double_of(ab_double *d, const ab_tensor *of) {
    held *found = find_held(d, of);
    if (found) return found;
    held *made = reserve_held(d) ? calloc(1, sizeof *made) : NULL;
    double *data = made ? calloc((size_t)ab_tensor_count(of), sizeof *data) : NULL;
    if (!data) {
        free(made);
        fail_memory(d);
        return NULL;
    }
    *made = (held){.of = of, .tensor = *of, .sweep = -1};
    made->tensor.data = data;
    made->tensor.format = &ab_format_stored64;
    d->held[d->held_count++] = made;
    return made;
}

static void copy_from_guide(held *to) {
    double *data = to->tensor.data;
    for (int64_t i = 0; i < ab_tensor_count(to->of); i++) data[i] = ab_read64(to->of, i);
}

/* Returns the input of an op: its fp64 copy, filled from the guide if not written in this step (batches,
 * gradients of losses). Ids are the guide's own. */
static const ab_tensor *read_of(ab_double *d, const ab_tensor *of) {
    if (!of || !of->format) return of;
    held *h = double_of(d, of);
    if (h && h->sweep != d->sweep) {
        copy_from_guide(h);
        h->sweep = d->sweep;
    }
    return h ? &h->tensor : NULL;
}

/* Parameters are fp64 copies from the first step on. Running statistics affect frozen ops only, where they do
 * not change. */
static ab_tensor *param_of(ab_double *d, const ab_tensor *of) {
    held *h = double_of(d, of);
    if (h && h->sweep < 0) copy_from_guide(h);
    if (h) h->sweep = d->sweep;
    return h ? &h->tensor : NULL;
}

/* ---- ops ------------------------------------------------------------------------------------- */

static bool reserve(ab_double *d, int64_t n) {
    if (n <= d->room) return true;
    free(d->results);
    free(d->places);
    d->results = malloc((size_t)n * sizeof *d->results);
    d->places = malloc((size_t)n * sizeof *d->places);
    d->room = d->results && d->places ? n : 0;
    for (int64_t i = 0; i < d->room; i++) d->places[i] = i;
    if (!d->room) fail_memory(d);
    return d->room > 0;
}

/* Computes all elements of an output of an op. */
static void compute(ab_double *d, const ab_op_run *run, int wrote, held *to) {
    const int64_t n = ab_tensor_count(&to->tensor);
    double *data = to->tensor.data;
    if (d->failed != AB_OK || !reserve(d, n)) return;
    if (n > INT32_MAX || ab_elements64_of(run, wrote, d->places, (int)n, d->results) < (int)n)
        d->failed = ab_fail(AB_CONFIG, "training in double: op '%s' is too large", run->name);
    for (int64_t i = 0; i < n && d->failed == AB_OK; i++) data[i] = d->results[i].value;
    to->sweep = d->sweep;
}

static void add_loss(ab_double *d, const ab_op_run *run, const held *out) {
    const ab_net *net = d->config->net;
    for (int i = 0; i < net->losses; i++)
        if (net->loss[i].op == run->number)
            d->loss += net->loss[i].weight * ((const double *)out->tensor.data)[0];
}

/* Fills the output with NaN, since an op that keeps state in its output must not read old state. */
static void fill_nan(const held *out) {
    double *data = out->tensor.data;
    for (int64_t i = 0; i < ab_tensor_count(&out->tensor); i++) data[i] = (double)NAN;
}

static void forward(ab_double *d, const ab_op_run *run, ab_op_io *io) {
    held *out = double_of(d, run->io->out);
    ab_op_run in_double = *run;
    if (!out) return;
    in_double.io = io;
    io->out = &out->tensor;
    fill_nan(out);
    compute(d, &in_double, AB_WROTE_OUT, out);
    add_loss(d, run, out);
}

/* Returns the trained parameter of an op's gradient i. */
static trained *trained_of(ab_double *d, const ab_op_run *run, int i) {
    for (int k = 0; k < ab_cell_trained_count(d->guide); k++)
        if (d->trained[k].of == run->io->param[i]) return &d->trained[k];
    char name[NAME];
    ab_param_spec spec[AB_MAX_PARAMS];
    ab_shape in[AB_MAX_INPUTS] = {{.ndim = 0}};
    for (int k = 0; k < AB_MAX_INPUTS; k++)
        if (run->io->in[k]) in[k] = run->io->in[k]->shape;
    run->op->params(run->io->attrs, in, spec);
    ab_text_exact(name, sizeof name, "%s.%s", run->name, spec[i].name);
    for (int k = 0; k < ab_cell_trained_count(d->guide); k++)
        if (strcmp(ab_cell_trained_at(d->guide, k)->name, name) == 0) {
            d->trained[k].of = run->io->param[i];
            return &d->trained[k];
        }
    d->failed = ab_fail(AB_CONFIG, "training in double: no parameter is called '%s'", name);
    return NULL;
}

static void add_gradient(ab_double *d, const ab_op_run *run, int i, const held *from) {
    trained *t = trained_of(d, run, i);
    const double *data = from->tensor.data;
    const bool fresh = t && t->sweep != d->sweep;
    if (!t) return;
    for (int64_t k = 0; k < ab_tensor_count(&from->tensor); k++)
        t->gradient[k] = fresh ? data[k] : t->gradient[k] + data[k];
    t->sweep = d->sweep;
}

static void backward(ab_double *d, const ab_op_run *run, ab_op_io *io) {
    ab_op_run in_double = *run;
    in_double.io = io;
    io->dout = read_of(d, run->io->dout);
    io->out = run->io->out ? &double_of(d, run->io->out)->tensor : NULL;
    for (int i = 0; i < AB_MAX_INPUTS && d->failed == AB_OK; i++) {
        held *din = run->io->din[i] ? double_of(d, run->io->din[i]) : NULL;
        if (din) compute(d, &in_double, AB_WROTE_DIN + i, din);
    }
    for (int i = 0; i < AB_MAX_PARAMS && d->failed == AB_OK; i++) {
        held *dparam = run->io->dparam[i] ? double_of(d, run->io->dparam[i]) : NULL;
        if (dparam) compute(d, &in_double, AB_WROTE_DPARAM + i, dparam);
        if (dparam && d->failed == AB_OK) add_gradient(d, run, i, dparam);
    }
}

static void ran(void *context, const ab_op_run *run) {
    ab_double *d = context;
    ab_op_io io = *run->io;
    for (int i = 0; i < AB_MAX_INPUTS && d->failed == AB_OK; i++)
        io.in[i] = run->backward && io.in[i] && io.in[i]->format && find_held(d, io.in[i])
                       ? &find_held(d, io.in[i])->tensor
                       : read_of(d, io.in[i]);
    for (int i = 0; i < AB_MAX_PARAMS && d->failed == AB_OK; i++)
        if (io.param[i]) io.param[i] = param_of(d, io.param[i]);
    if (d->failed != AB_OK) return;
    if (run->backward)
        backward(d, run, &io);
    else
        forward(d, run, &io);
}

/* Gradients of values that several ops read. Gradients of parameters are summed where they are computed. */
static void on_move(void *context, const ab_move *move) {
    ab_double *d = context;
    held *to = find_held(d, move->to);
    const held *from = find_held(d, move->from);
    if (move->kind != AB_MOVE_GRADIENT_SUM || !to || !from) return;
    for (int64_t i = 0; i < ab_tensor_count(move->to); i++)
        ((double *)to->tensor.data)[i] += ((const double *)from->tensor.data)[i];
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Called on any thread. At the first step the states are copied from the guide. */
static void update(void *context, const ab_update_block *block) {
    ab_double *d = context;
    const trained *t = &d->trained[block->param];
    const held *weight = t->of ? find_held(d, t->of) : NULL;
    ab_optimizer_config config = d->config->optim;
    double *state[STATES];
    if (!weight || d->failed != AB_OK) return;
    config.lr = block->lr;
    for (int s = 0; s < STATES; s++) {
        state[s] = t->state[s] + block->first;
        for (int64_t i = 0; i < block->n && d->sweep == 0 && block->state_before[s]; i++)
            state[s][i] = (double)block->state_before[s][i];
    }
    d->update(&config, block->taken, (double *)weight->tensor.data + block->first, t->gradient + block->first,
              state, block->n);
}

static void ignore_values(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self, (void)id, (void)thread, (void)values, (void)n;
}

static ab_status start(ab_double *d) {
    const int count = ab_cell_trained_count(d->guide);
    d->trained = calloc((size_t)count + 1, sizeof *d->trained);
    if (!d->trained) return ab_fail(AB_NO_MEMORY, "training in double: out of memory");
    for (int k = 0; k < count; k++) {
        trained *t = &d->trained[k];
        const size_t n = (size_t)ab_cell_trained_at(d->guide, k)->count;
        t->sweep = -1;
        t->gradient = calloc((1 + STATES) * n, sizeof *t->gradient);
        if (!t->gradient) return ab_fail(AB_NO_MEMORY, "training in double: out of memory");
        for (size_t s = 0; s < STATES; s++) t->state[s] = t->gradient + (1 + s) * n;
    }
    d->observer = (ab_observer){.see = ignore_values};
    d->watch = (ab_watch){.context = d, .ran = ran, .moved = on_move, .update = update};
    ab_cell_watch(d->guide, &d->watch);
    return AB_OK;
}

ab_status ab_double_create(ab_cell *guide, const ab_cell_config *config, ab_double **made) {
    ab_double *d = calloc(1, sizeof *d);
    if (!d) return ab_fail(AB_NO_MEMORY, "training in double: out of memory");
    d->guide = guide;
    d->config = config;
    d->update = formula_of(config->optimizer->name);
    const ab_status status = start(d);
    if (status == AB_OK)
        *made = d;
    else
        ab_double_destroy(d);
    return status;
}

void ab_double_destroy(ab_double *d) {
    if (!d) return;
    ab_cell_watch(d->guide, NULL);
    for (int k = 0; d->trained && k < ab_cell_trained_count(d->guide); k++) free(d->trained[k].gradient);
    for (int i = 0; i < d->held_count; i++) {
        free(d->held[i]->tensor.data);
        free(d->held[i]);
    }
    free(d->trained);
    free(d->held);
    free(d->results);
    free(d->places);
    free(d);
}

ab_status ab_double_step(ab_double *d, double *loss) {
    ab_step_result result;
    d->loss = 0;
    AB_TRY(ab_cell_step(d->guide, &d->observer, &result));
    d->sweep++;
    *loss = d->loss;
    return d->failed;
}

/* ---- limits ---------------------------------------------------------------------------------- */

const char *ab_double_refusal(const ab_cell_config *config, const ab_plan *plan) {
    const ab_recipe *recipe = &config->recipe;
    if (!formula_of(config->optimizer->name)) return "the optimizer has no formula in double";
    if (recipe->micro_batches > 1) return "gradients are accumulated";
    if (recipe->ranks.count > 1) return "gradients are reduced over ranks";
    if (recipe->clip.norm > 0 || recipe->clip.value > 0) return "gradients are clipped";
    if (recipe->groups.count > 0) return "parameter groups have rates of their own";
    if (recipe->faults) return "mistakes are planted in the step";
    if (recipe->schedule && strcmp(recipe->schedule->name, "one_cycle") == 0)
        return "the schedule moves the momentum";
    return plan->flops > 3e8 ? "a step takes too long in double" : NULL; /* a second */
}
