/* Samples before and after an update. */
#include "probes/lib/updates.h"

#include "probes/lib/count.h"
#include "probes/lib/things.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

ab_status ab_lib_update_before(ampprobe *p, const ampprobe_tensor *weight) {
    int32_t index = -1;
    if (weight->dtype == AMPPROBE_FP64) return AB_OK; /* samples are fp32, which loses what fp64 keeps */
    AB_TRY(ab_lib_ledger_of(p, weight->id, &index));
    ab_lib_sample *s = p->sample[index];
    if (!s) s = p->sample[index] = malloc(sizeof *s);
    if (!s) return ab_fail(AB_NO_MEMORY, "out of memory for a sample of %s", p->thing[weight->id].name);
    s->count = weight->count;
    s->taken = weight->count < AB_LIB_SAMPLE ? weight->count : AB_LIB_SAMPLE;
    s->step = weight->count / s->taken;
    s->first = 0;
    s->dtype = weight->dtype;
    s->waiting = ab_lib_pick(weight, s->first, s->step, s->taken, s->value);
    return AB_OK;
}

/* ---- what the optimizer did ------------------------------------------------------------------ */

/* One parameter's update, and the values around it. */
typedef struct update {
    const ab_lib_optimizer *optimizer;
    double lr, correction1, correction2; /* Adam's 1 - beta^t */
    const float *before, *after, *grad, *state[2];
    int64_t n;
    const ab_format *format;
} update;

static bool is_called(const update *u, const char *name) { return strcmp(u->optimizer->name, name) == 0; }

static double or_zero(double x) { return isnan(x) ? 0 : x; }

/* What is subtracted from weight i for weight decay; 0 where it is part of the gradient of an adaptive step.
 */
static double decay_of(const update *u, int64_t i) {
    if (is_called(u, "adam")) return 0;
    return u->lr * or_zero(u->optimizer->weight_decay) * (double)u->before[i];
}

static double decayed_gradient(const update *u, int64_t i) {
    return (double)u->grad[i] + or_zero(u->optimizer->weight_decay) * (double)u->before[i];
}

static double sgd_step(const update *u, int64_t i) { return u->lr * decayed_gradient(u, i); }

static double momentum_step(const update *u, int64_t i) {
    const ab_lib_optimizer *o = u->optimizer;
    const double buffer = (double)u->state[0][i];
    return u->lr * (o->nesterov ? decayed_gradient(u, i) + o->momentum * buffer : buffer);
}

/* Kingma and Ba, "Adam", algorithm 1, from the moments after the step. */
static double adam_step(const update *u, int64_t i) {
    const double m = (double)u->state[0][i] / u->correction1, v = (double)u->state[1][i] / u->correction2;
    return u->lr * m / (sqrt(v) + u->optimizer->eps) + decay_of(u, i);
}

typedef double (*step_rule)(const update *u, int64_t i);

/* NULL: the update cannot be computed from what is known. */
static step_rule rule_of(const update *u) {
    const ab_lib_optimizer *o = u->optimizer;
    if (isnan(u->lr)) return NULL;
    if (is_called(u, "sgd")) return or_zero(o->momentum) == 0 ? sgd_step : u->state[0] ? momentum_step : NULL;
    if (!is_called(u, "adam") && !is_called(u, "adamw")) return NULL;
    if (!u->state[0] || !u->state[1] || isnan(o->eps)) return NULL;
    return u->correction1 > 0 && u->correction2 > 0 ? adam_step : NULL;
}

static bool stays(const update *u, int64_t i, double part) {
    static const ab_rounding nearest = {AB_ROUND_NEAREST_EVEN, false, AB_FTZ_NONE, 0, 0};
    const double next = (double)u->before[i] - part;
    const double stored = u->format == &ab_format_fp64 ? next : ab_format_round(u->format, &nearest, next);
    return stored == (double)u->before[i];
}

static void count_decay(const update *u, int64_t i, ab_lib_account *decay) {
    const double part = decay_of(u, i);
    if (part == 0 || isnan(part)) return;
    const bool lost = stays(u, i, part);
    decay->nonzero++;
    decay->energy += part * part;
    decay->lost += lost;
    decay->lost_energy += lost ? part * part : 0;
}

static void count(const update *u, ab_lib_moves *moves) {
    const step_rule rule = rule_of(u);
    if (!rule) moves->update.energy = moves->update.lost_energy = (double)NAN;
    for (int64_t i = 0; i < u->n; i++) {
        if (!isfinite(u->grad[i]) || !isfinite(u->before[i]) || !isfinite(u->after[i])) continue;
        const double step = rule ? rule(u, i) : (double)u->grad[i];
        if (rule) count_decay(u, i, &moves->decay);
        if (step == 0 || !isfinite(step)) continue;
        const bool lost = u->after[i] == u->before[i];
        moves->update.nonzero++;
        moves->update.energy += step * step;
        moves->update.lost += lost;
        moves->update.lost_energy += lost ? step * step : 0;
    }
}

/* ---- after ----------------------------------------------------------------------------------- */

static ab_status add_moves(ampprobe *p, const ab_lib_moves *moves) {
    if (p->moved == p->move_room) {
        const int32_t room = p->move_room ? 2 * p->move_room : 16;
        ab_lib_moves *list = realloc(p->moves, (size_t)room * sizeof *list);
        if (!list) return ab_fail(AB_NO_MEMORY, "out of memory for updates");
        p->moves = list;
        p->move_room = room;
    }
    p->moves[p->moved++] = *moves;
    return AB_OK;
}

static update update_of(const ampprobe *p, int32_t group, const ab_lib_sample *s) {
    const ab_lib_group *g = &p->course->group[group];
    const ab_lib_optimizer *o = &p->config.optimizer[group];
    const double taken =
        o->since > 0 ? fmax(1, (double)g->steps - o->since + 1) : (double)(g->steps - g->skipped + 1);
    return (update){.optimizer = o,
                    .lr = isnan(g->lr) ? o->lr : g->lr,
                    .correction1 = 1 - pow(o->beta1, taken),
                    .correction2 = 1 - pow(o->beta2, taken),
                    .before = s->value,
                    .n = s->taken,
                    .format = ab_lib_format(s->dtype)};
}

ab_status ab_lib_update_after(ampprobe *p, int32_t group, const ampprobe_tensor *weight,
                              const ampprobe_tensor *const with[3]) {
    const int32_t index = p->thing[weight->id].ledger;
    ab_lib_sample *s = index >= 0 ? p->sample[index] : NULL;
    if (!s || !s->waiting || s->count != weight->count || s->dtype != weight->dtype || !with[0]) return AB_OK;
    float(*values)[AB_LIB_SAMPLE] = malloc(4 * sizeof *values);
    if (!values) return ab_fail(AB_NO_MEMORY, "out of memory for updates");
    update u = update_of(p, group, s);
    const float **const to[3] = {&u.grad, &u.state[0], &u.state[1]};
    u.after = values[3];
    const bool known = ab_lib_pick(weight, s->first, s->step, s->taken, values[3]);
    for (int i = 0; i < 3 && known; i++) {
        if (!with[i] || with[i]->count != s->count) continue;
        if (ab_lib_pick(with[i], s->first, s->step, s->taken, values[i])) *to[i] = values[i];
    }
    ab_lib_moves moves = {.thing = weight->id, .dtype = weight->dtype, .lr = u.lr};
    if (u.grad) count(&u, &moves);
    free(values);
    s->waiting = false;
    return u.grad ? add_moves(p, &moves) : AB_OK;
}
