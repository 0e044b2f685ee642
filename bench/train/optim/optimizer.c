/* The loop that applies the optimizers' fp32 formulas to stored tensors block by block. */
#include "bench/train/optim/optimizer.h"

#include "kernels/core/elementary64.h"
#include "kernels/core/parallel.h"
#include "kernels/format/convert.h"

#include <string.h>

enum { BLOCK = AB_UPDATE_BLOCK, BLOCKS_PER_CHUNK = 32 };

static char *element(const ab_tensor *tensor, int64_t i) {
    return (char *)tensor->data + ab_format_bytes(tensor->format, i);
}

typedef struct update_args {
    const ab_optimizer *optimizer;
    const ab_optimizer_config *config;
    int64_t taken;
    ab_tensor *weight;
    const ab_tensor *grad;
    ab_tensor *const *state;
    const ab_optimizer_observers *observers; /* NULL: none */
} update_args;

/* fp32 buffers of one block. */
typedef struct values {
    float weight[BLOCK], grad[BLOCK], memory[AB_OPTIMIZER_STATES][BLOCK];
    float *state[AB_OPTIMIZER_STATES];
} values;

static bool scalar(const update_args *u, int state) { return u->optimizer->scalar_states >> state & 1u; }

static void load_state(const update_args *u, int i, int64_t first, int64_t n, float *to) {
    if (!scalar(u, i)) {
        ab_widen(to, element(u->state[i], first), u->state[i]->format, n);
        return;
    }
    for (int64_t k = 0; k < n; k++) to[k] = (float)u->config->kept;
}

static void load_block(const update_args *u, int64_t first, int64_t n, values *v) {
    ab_widen(v->weight, element(u->weight, first), u->weight->format, n);
    ab_widen(v->grad, element(u->grad, first), u->grad->format, n);
    for (int i = 0; i < u->optimizer->states; i++) {
        v->state[i] = v->memory[i];
        load_state(u, i, first, n, v->state[i]);
    }
}

static void store_block(const update_args *u, int64_t first, int64_t n, const values *v) {
    for (int i = 0; i < u->optimizer->states; i++)
        if (!scalar(u, i)) ab_narrow(element(u->state[i], first), u->state[i]->format, v->state[i], n);
    ab_narrow(element(u->weight, first), u->weight->format, v->weight, n);
}

static void update_values(const update_args *u, float *weight, const float *grad, float *const *state,
                          int64_t n) {
    if (u->config->by_op && u->weight->format != &ab_format_fp32)
        u->optimizer->update_by_op(u->config, u->taken, u->weight->format, weight, grad, state, n);
    else
        u->optimizer->update(u->config, u->taken, weight, grad, state, n);
}

static void update_block(const update_args *u, int64_t first, int64_t n) {
    values v;
    load_block(u, first, n, &v);
    update_values(u, v.weight, v.grad, v.state, n);
    store_block(u, first, n, &v);
}

/* ---- observed updates ------------------------------------------------------------------------ */

static void show(const ab_optimizer_observers *observers, int id, int thread, const float *values_seen,
                 int64_t n) {
    if (id >= 0) observers->observer->see(observers->observer, id, thread, values_seen, n);
}

/* Excludes eps, which the other terms include. */
static void add_terms(const double *const *term, double *sum, int64_t n) {
    memcpy(sum, term[AB_TERM_GRADIENT], (size_t)n * sizeof *sum);
    for (int t = AB_TERM_GRADIENT + 1; t < AB_TERM_EPS; t++)
        for (int64_t i = 0; term[t] && i < n; i++) sum[i] += term[t][i];
}

/* Values as stored: read back, except fp32, which stores values unchanged. */
static const float *read_back(const ab_tensor *tensor, int64_t first, int64_t n, const float *given,
                              float *room) {
    if (tensor->format == &ab_format_fp32) return given;
    ab_widen(room, element(tensor, first), tensor->format, n);
    return room;
}

/* Reports a stored block to the watch. */
static void report_block(const update_args *u, int64_t first, int64_t n, int thread, const values *before,
                         const values *after) {
    const ab_optimizer_observers *observers = u->observers;
    double term[AB_TERM_COUNT][BLOCK], sum[BLOCK];
    double *const room[AB_TERM_COUNT] = {term[0], term[1], term[2], term[3]};
    values stored;
    ab_update_block block = {.param = observers->param,
                             .thread = thread,
                             .first = first,
                             .n = n,
                             .taken = u->taken,
                             .lr = u->config->lr,
                             .before = before->weight,
                             .after = after->weight,
                             .stored = read_back(u->weight, first, n, after->weight, stored.weight),
                             .grad = before->grad,
                             .update = sum};
    ab_optimizer_values was = {.weight = before->weight, .grad = before->grad};
    for (int i = 0; i < u->optimizer->states; i++) {
        was.state[i] = block.state_before[i] = before->memory[i];
        block.state_after[i] = after->memory[i];
        block.state_stored[i] = scalar(u, i)
                                    ? after->memory[i]
                                    : read_back(u->state[i], first, n, after->memory[i], stored.memory[i]);
    }
    unsigned terms = u->optimizer->terms(u->config, u->taken, &was, room, n);
    for (int t = 0; t < AB_TERM_COUNT; t++) block.term[t] = terms >> t & 1u ? term[t] : NULL;
    add_terms(block.term, sum, n);
    observers->watch->update(observers->watch->context, &block);
}

static void update_block_shown(const update_args *u, int64_t first, int64_t n, int thread) {
    const ab_optimizer_observers *observers = u->observers;
    values before, after;
    load_block(u, first, n, &before);
    memcpy(after.weight, before.weight, (size_t)n * sizeof *after.weight);
    for (int i = 0; i < u->optimizer->states; i++) {
        after.state[i] = after.memory[i];
        memcpy(after.memory[i], before.memory[i], (size_t)n * sizeof *after.memory[i]);
    }
    update_values(u, after.weight, before.grad, after.state, n);
    show(observers, observers->weight_id, thread, after.weight, n);
    for (int i = 0; i < u->optimizer->states; i++)
        if (!scalar(u, i)) show(observers, observers->state_id[i], thread, after.state[i], n);
    store_block(u, first, n, &after);
    if (observers->watch->update) report_block(u, first, n, thread, &before, &after);
}

/* ---- a parameter ----------------------------------------------------------------------------- */

static void update_chunk(void *argument, int64_t chunk, int thread) {
    const update_args *u = argument;
    int64_t count = ab_tensor_count(u->weight), first = chunk * BLOCK * BLOCKS_PER_CHUNK;
    for (int b = 0; b < BLOCKS_PER_CHUNK && first < count; b++, first += BLOCK) {
        int64_t n = count - first < BLOCK ? count - first : BLOCK;
        if (u->observers)
            update_block_shown(u, first, n, thread);
        else
            update_block(u, first, n);
    }
}

static void update_all(update_args *args) {
    int64_t chunk = (int64_t)BLOCK * BLOCKS_PER_CHUNK;
    ab_parallel_for((ab_tensor_count(args->weight) + chunk - 1) / chunk, update_chunk, args);
}

/* ---- norms of a parameter -------------------------------------------------------------------- */

enum { MEASURE_PARTS = 64 };

typedef struct measure_args {
    const update_args *update;
    int64_t blocks; /* per part */
    ab_optimizer_sums part[MEASURE_PARTS];
} measure_args;

static void measure_part(void *argument, int64_t part, int thread) {
    measure_args *m = argument;
    const update_args *u = m->update;
    int64_t count = ab_tensor_count(u->weight), first = part * m->blocks * BLOCK;
    (void)thread;
    for (int64_t b = 0; b < m->blocks && first < count; b++, first += BLOCK) {
        int64_t n = count - first < BLOCK ? count - first : BLOCK;
        values v;
        load_block(u, first, n, &v);
        u->optimizer->measure(u->config, u->taken, v.weight, v.grad, v.state, n, &m->part[part]);
    }
}

/* Parts depend only on the size and are added in order. */
static double trust_of(const update_args *u) {
    int64_t blocks = (ab_tensor_count(u->weight) + BLOCK - 1) / BLOCK;
    measure_args m = {.update = u, .blocks = (blocks + MEASURE_PARTS - 1) / MEASURE_PARTS};
    ab_optimizer_sums sums = {0, 0, 0};
    ab_parallel_for(MEASURE_PARTS, measure_part, &m);
    for (int i = 0; i < MEASURE_PARTS; i++) {
        sums.weight += m.part[i].weight;
        sums.other += m.part[i].other;
        if (!(m.part[i].largest <= sums.largest)) sums.largest = m.part[i].largest;
    }
    return u->optimizer->trust(u->config, &sums);
}

double ab_optimizer_correction(double beta, int64_t taken) { return 1.0 - ab_pow(beta, (double)taken); }

void ab_optimizer_correct(ab_optimizer_config *config, int64_t taken) {
    config->correction1 = ab_optimizer_correction(config->beta1, taken);
    config->correction2 = ab_optimizer_correction(config->beta2, taken);
}

/* The tensor of the scalar state; NULL: none. */
static ab_tensor *scalar_state(const update_args *u) {
    for (int i = 0; i < u->optimizer->states; i++)
        if (scalar(u, i)) return u->state[i];
    return NULL;
}

static void step(update_args *args) {
    ab_optimizer_config config = *args->config;
    ab_tensor *kept = scalar_state(args);
    args->config = &config;
    ab_optimizer_correct(&config, args->taken);
    if (kept) config.kept = (double)*(const float *)kept->data;
    if (args->optimizer->measure) config.trust = trust_of(args);
    update_all(args);
    if (kept) *(float *)kept->data = (float)config.trust;
}

unsigned ab_optimizer_term_set(const ab_optimizer *optimizer, const ab_optimizer_config *config,
                               int64_t taken) {
    static const float no_value;
    const ab_optimizer_values none = {.state = {&no_value, &no_value, &no_value}};
    ab_optimizer_config corrected = *config;
    double *const term[AB_TERM_COUNT] = {NULL};
    ab_optimizer_correct(&corrected, taken);
    return optimizer->terms(&corrected, taken, &none, term, 0);
}

void ab_optimizer_step(const ab_optimizer *optimizer, const ab_optimizer_config *config, int64_t taken,
                       ab_tensor *weight, const ab_tensor *grad, ab_tensor *const *state) {
    update_args args = {optimizer, config, taken, weight, grad, state, NULL};
    step(&args);
}

void ab_optimizer_step_shown(const ab_optimizer *optimizer, const ab_optimizer_config *config, int64_t taken,
                             ab_tensor *weight, const ab_tensor *grad, ab_tensor *const *state,
                             const ab_optimizer_observers *observers) {
    update_args args = {optimizer, config, taken, weight, grad, state, observers};
    step(&args);
}
