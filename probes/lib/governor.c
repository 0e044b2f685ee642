/* Two accounts of seconds. */
#include "probes/lib/governor.h"

#include <math.h>

enum { FIRST_STEPS = 4, MOST_STRIDE = 64, LATE_LAYERS = 1024, MOST_STAGES = 4, SHORTEST_STAGE = 16 };

static const double for_gradients = 0.6; /* of the budget */
/* Of an account, in seconds, and in costs of a step with layers: an idle hour must not pay for an hour of
 * probing. */
static const double most_saved = 1, most_costs = 8;
static const double first_ns_per_value = 1.0, smoothing = 0.125;
static const double most_growth =
    4; /* of what is measured, from one time to the next: one may be an outlier */

void ab_lib_governor_init(ampprobe *p) {
    p->governor =
        (ab_lib_governor){.ns_per_value = first_ns_per_value, .next_layers = LATE_LAYERS, .stride = 1};
    p->planned = AMPPROBE_PLAN_LAYERS | AMPPROBE_PLAN_UPDATE | AMPPROBE_PLAN_STATE | AMPPROBE_PLAN_GRADIENTS;
}

void ab_lib_governor_stage(ampprobe *p) {
    ab_lib_governor *g = &p->governor;
    const int64_t step = ab_lib_ended(p);
    if (g->stages == MOST_STAGES || step < g->stage_from + SHORTEST_STAGE) return;
    g->stages++;
    g->stage_from = g->next_gradients = step;
}

void ab_lib_governor_sick(ampprobe *p) { p->governor.sick_until = 2 * ab_lib_ended(p) + 2; }

int64_t ab_lib_ended(const ampprobe *p) {
    int64_t steps = p->course->group[0].steps;
    for (int32_t i = 0; i < p->lates; i++) steps += p->late[i].facts.group == 0;
    return steps;
}

static bool is_fixed_step(const ampprobe *p) { return ab_lib_ended(p) % p->config.every == 0; }

bool ab_lib_governor_owes(double budget, double cost, double run) {
    return cost > AB_LIB_OWES * budget * run;
}

/* Whether what is not paid for may wait longer: the run owes, its first steps are over, and nothing was wrong
 * in the second half of it. */
static bool may_wait(const ampprobe *p) {
    const ab_lib_governor *g = &p->governor;
    const int64_t step = ab_lib_ended(p);
    return step >= g->stage_from + AB_LIB_DEAR_STEPS && step >= g->sick_until &&
           ab_lib_governor_owes(p->config.budget, g->cost, g->run);
}

/* In the first steps of a stage layers are shown when there are twice as many. */
static bool is_doubled(int64_t own) { return own < SHORTEST_STAGE && ((own + 1) & own) == 0; }

/* Whether gradients are soon counted together with the layers: a step that shows both costs less than two. */
static bool waits_for_layers(const ampprobe *p) {
    const int64_t step = ab_lib_ended(p), own = step - p->governor.stage_from;
    return own < SHORTEST_STAGE && !is_doubled(own) && step >= p->governor.sick_until;
}

/* Whether gradients were not counted for a quarter more steps than when they last were; for twice as many, if
 * that may wait (8 / 5 of a quarter more). */
static bool is_late(const ampprobe *p) {
    const int64_t step = ab_lib_ended(p), next = p->governor.next_gradients;
    if (p->config.budget == 0 || step < next || waits_for_layers(p)) return false;
    return 5 * step >= 8 * next || !may_wait(p);
}

static double grown(double before, double value) {
    return before > 0 ? fmin(value, most_growth * before) : value;
}

static void follow(double *mean, double value) {
    *mean += (*mean > 0 ? smoothing : 1) * (grown(*mean, value) - *mean);
}

int32_t ab_lib_governor_stride(const ampprobe *p, int64_t values) {
    const ab_lib_governor *g = &p->governor;
    if (p->config.every > 0) return is_fixed_step(p) ? 1 : 0;
    if (ab_lib_ended(p) < FIRST_STEPS || is_late(p)) return 1;
    const double whole = (double)values * g->ns_per_value * 1e-9;
    if (g->gradient_credit <= 0) return 0;
    for (int32_t stride = 1; stride <= MOST_STRIDE; stride *= 2)
        if (whole / stride <= g->gradient_credit) return stride;
    return 0;
}

void ab_lib_governor_gradients(ampprobe *p, double seconds, int64_t counted) {
    ab_lib_governor *g = &p->governor;
    g->gradient_spent += seconds;
    p->course->probe_seconds += seconds;
    if (counted > 0) g->next_gradients = ab_lib_ended(p) + 1 + ab_lib_ended(p) / 4;
    if (counted >= AB_CENSUS_BLOCK)
        g->ns_per_value += smoothing * (seconds * 1e9 / (double)counted - g->ns_per_value);
}

void ab_lib_governor_other(ampprobe *p, double seconds) {
    p->governor.spent += seconds;
    p->course->probe_seconds += seconds;
}

void ab_lib_governor_outside(ampprobe *p, double seconds, int shown) {
    if (shown & ~AMPPROBE_PLAN_GRADIENTS) {
        ab_lib_governor_other(p, seconds);
    } else if (shown) {
        ab_lib_governor_gradients(p, seconds, 0);
    } else {
        p->governor.fixed_spent += seconds;
        p->course->probe_seconds += seconds;
    }
}

void ab_lib_governor_caller(ampprobe *p, double seconds, int shown) {
    ab_lib_governor_outside(p, seconds, shown);
    if (shown == AMPPROBE_PLAN_GRADIENTS && seconds > 0) follow(&p->governor.gradient_cost, seconds);
}

/* Seconds that a step with layers would cost beyond a plain one. */
static double layer_seconds(const ab_lib_governor *g) { return g->layer_cost * g->plain_seconds; }

static double earn(const ab_lib_governor *g, double credit, double earned) {
    const double most = fmax(most_saved, most_costs * layer_seconds(g));
    return fmax(fmin(credit + earned, most), -most);
}

/* What a step with layers cost beyond the probe's own time: its hooks, and where they break a fast path. */
static double slower(const ab_lib_governor *g, double seconds) {
    return g->plain_seconds > 0 ? fmax(0, seconds - g->plain_seconds) : 0;
}

static void pay(ampprobe *p, double seconds, bool layers) {
    ab_lib_governor *g = &p->governor;
    const double plain = layers && g->plain_seconds > 0 ? fmin(seconds, g->plain_seconds) : seconds;
    const double earned = p->config.budget * plain - g->fixed_spent;
    const double layer_cost = g->spent + (layers ? slower(g, seconds) : 0);
    if (layers) {
        if (g->plain_seconds > 0) g->layer_cost = grown(g->layer_cost, layer_cost / g->plain_seconds);
        p->course->probe_seconds += slower(g, seconds);
    } else {
        follow(&g->plain_seconds, seconds);
    }
    g->run += plain;
    g->cost += g->fixed_spent + g->gradient_spent + layer_cost;
    g->gradient_credit = earn(g, g->gradient_credit, earned * for_gradients - g->gradient_spent);
    g->layer_credit = earn(g, g->layer_credit, earned * (1 - for_gradients) - layer_cost);
    g->gradient_spent = g->spent = g->fixed_spent = 0;
}

/* Gradients are counted when what their step costs apart from the census has been saved. */
static bool may_count(const ab_lib_governor *g) {
    return g->gradient_credit > 0 && g->gradient_credit >= g->gradient_cost;
}

/* Layers are shown at steps 0, 1, 3, 7, 15 (1, 2, 4, 8 ... when counted from 1) while those are few, and then
 * when they are paid for; after a skip as soon as the account is not overdrawn; from LATE_LAYERS on at the
 * latest when there are four times as many steps. Never twice in a row after that, so that it is known what a
 * plain step takes. */
static bool layers_next(const ampprobe *p) {
    const ab_lib_governor *g = &p->governor;
    const int64_t step = ab_lib_ended(p), own = step - g->stage_from;
    if (p->config.budget == 0) return false;
    if (step <= 1) return true;
    if (g->plain_seconds == 0) return false;
    if (g->skipped_last && g->layer_credit >= 0) return true;
    if (g->layers_last) return false;
    if (g->layer_credit >= layer_seconds(g) || step >= g->next_layers) return true;
    return is_doubled(own);
}

/* What is asked for because it is late is late again after as many steps more, whether or not the caller
 * could show it: a compiled model shows no layers, and there may be no gradient that can be counted. */
static void asked_late(ampprobe *p, bool layers) {
    ab_lib_governor *g = &p->governor;
    const int64_t ended = ab_lib_ended(p);
    const bool uncounted = ended > g->next_gradients; /* it was late, and this step did not change that */
    if (p->planned & AMPPROBE_PLAN_GRADIENTS && uncounted) g->next_gradients = ended + 1 + ended / 4;
    if (layers || p->planned & AMPPROBE_PLAN_LAYERS)
        g->next_layers = 4 * ended > LATE_LAYERS ? 4 * ended : LATE_LAYERS;
}

void ab_lib_governor_step(ampprobe *p, double seconds, bool layers, bool skipped) {
    int plan = 0;
    pay(p, seconds, layers);
    asked_late(p, layers);
    p->governor.skipped_last = skipped;
    p->governor.layers_last = layers;
    const bool fixed = p->config.every > 0, due = fixed ? is_fixed_step(p) : layers_next(p);
    if (due) plan = AMPPROBE_PLAN_LAYERS | AMPPROBE_PLAN_UPDATE | AMPPROBE_PLAN_STATE;
    const bool gradients =
        fixed ? due : ab_lib_ended(p) < FIRST_STEPS || may_count(&p->governor) || is_late(p);
    p->planned = plan | (gradients ? AMPPROBE_PLAN_GRADIENTS : 0);
}
