/* Steps scalers along the updates of a recorded run. */
#include "bench/replay/replay.h"

#include "kernels/core/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Steps taken at one scale in one period. */
typedef struct stay {
    int period;
    double scale;
    double steps;
} stay;

typedef struct walk {
    const ab_recorded *from;
    bool most; /* the largest gradients that are possible */
    ab_scaler scaler;
    double limit, edge;
    int64_t at;                                    /* recorded step whose weights these are */
    int64_t attempt;                               /* steps skipped there that the record took */
    stay stay;                                     /* not yet added up */
    double *lost, *lost_energy, *all, *all_energy; /* [layers] */
    double octaves, taken;
    ab_replay_outcome *outcome;
} walk;

bool ab_replay_can(const ab_scaler_kind *kind) { return (kind->sees & AB_SEES_LAYER) == 0; }

/* ---- flushed values --------------------------------------------------------------------------- */

/* A cumulative sum at an exponent that may lie between two: values are taken to be uniform in an octave. */
static double below(const double *sum, double exponent) {
    const double at = exponent - AB_RECORDED_LOW, low = floor(at), part = exp2(at - low) - 1;
    if (low < 0) return 0;
    if (low >= AB_RECORDED_EXPONENTS) return sum[AB_RECORDED_EXPONENTS];
    const int i = (int)low;
    return sum[i] + part * (sum[i + 1] - sum[i]);
}

static void add_up(walk *w) {
    const stay s = w->stay;
    w->stay.steps = 0;
    if (s.steps == 0 || !(s.scale > 0) || !isfinite(s.scale)) return;
    const double limit = log2(ab_format_flush_limit(w->from->half)) - log2(s.scale);
    for (int layer = 0; layer < w->from->layers; layer++) {
        const ab_recorded_mass *m = &w->from->mass[layer * AB_RECORDED_PERIODS + s.period];
        w->lost[layer] += s.steps * below(m->count, limit);
        w->lost_energy[layer] += s.steps * below(m->energy, limit);
        w->all[layer] += s.steps * m->count[AB_RECORDED_EXPONENTS];
        w->all_energy[layer] += s.steps * m->energy[AB_RECORDED_EXPONENTS];
    }
}

static void see_taken(walk *w, double scale) {
    const int period = w->from->step[w->at].period;
    if (w->stay.steps > 0 && (w->stay.scale != scale || w->stay.period != period)) add_up(w);
    w->stay = (stay){period, scale, w->stay.steps + 1};
    w->octaves += log2(scale);
    w->taken++;
}

static void sum_up(walk *w) {
    double lost = 0, energy = 0, all = 0, all_energy = 0;
    ab_replay_outcome *o = w->outcome;
    add_up(w);
    o->worst = -1;
    for (int layer = 0; layer < w->from->layers; layer++) {
        const double flushed = w->lost[layer] / w->all[layer],
                     share = w->lost_energy[layer] / w->all_energy[layer];
        lost += w->lost[layer];
        energy += w->lost_energy[layer];
        all += w->all[layer];
        all_energy += w->all_energy[layer];
        if (!(share > o->worst_energy)) continue;
        o->worst = layer;
        o->worst_flushed = flushed;
        o->worst_energy = share;
    }
    o->flushed = all > 0 ? lost / all : (double)NAN;
    o->energy = all_energy > 0 ? energy / all_energy : (double)NAN;
    o->mean_octaves = w->taken > 0 ? w->octaves / w->taken : (double)NAN;
    o->final_scale = w->scaler.scale;
}

/* ---- steps ------------------------------------------------------------------------------------ */

/* Values of a step that lie above the scaler's edge, all layers together. */
static double count_above(const walk *w, double edge, int period, double *all) {
    double above = 0;
    *all = 0;
    for (int layer = 0; layer < w->from->layers; layer++) {
        const double *count = w->from->mass[layer * AB_RECORDED_PERIODS + period].count;
        *all += count[AB_RECORDED_EXPONENTS];
        above += count[AB_RECORDED_EXPONENTS] - below(count, log2(edge));
    }
    return above;
}

/* The batch of this step: at weights that the record does not stay at, one of those that follow. */
static const ab_recorded_step *batch(const walk *w) {
    const int64_t at = w->at + w->attempt % AB_REPLAY_REACH;
    return &w->from->step[at < w->from->steps ? at : w->from->steps - 1];
}

static ab_scaler_seen look(const walk *w) {
    const ab_recorded_step *s = batch(w);
    const double amax = w->most ? s->high : s->low;
    const bool overflow = amax > 0 && !(amax * w->scaler.scale < w->limit);
    ab_scaler_seen seen = {.overflow = overflow, .amax = overflow ? (double)HUGE_VAL : amax};
    const int edge = ab_scaler_key_index(w->scaler.kind, "edge");
    if (!(w->scaler.kind->sees & AB_SEES_COUNTS) || edge < 0) return seen;
    double all;
    seen.upper = count_above(w, w->edge * w->scaler.config.value[edge] / w->scaler.scale, s->period, &all);
    seen.lower = all - seen.upper;
    return seen;
}

/* To the recorded step whose weights are the next ones. */
static void advance(walk *w, bool skip) {
    const ab_recorded *from = w->from;
    const bool recorded = from->step[w->at].skipped, differs = skip != recorded;
    ab_replay_outcome *o = w->outcome;
    if (differs) o->differing++;
    if (differs && skip) {
        w->attempt++;
        return;
    }
    w->attempt = 0;
    if (differs)
        while (w->at < from->steps && from->step[w->at].skipped) w->at++;
    w->at++;
    if (w->at < from->steps) return;
    w->at = from->steps - 1;
    o->beyond++;
}

static bool take(walk *w) {
    const ab_scaler_seen seen = look(w);
    const double scale = w->scaler.scale;
    const ab_scaler_outcome outcome = ab_scaler_update(&w->scaler, &seen);
    ab_replay_outcome *o = w->outcome;
    if (outcome.fault && (!o->fault || outcome.fault->raises)) {
        o->fault = outcome.fault->name;
        o->stops = outcome.fault->raises;
    }
    if (!outcome.skip) see_taken(w, scale);
    o->skipped += outcome.skip;
    o->wasted += outcome.skip && w->taken == 0;
    o->unseen += seen.overflow && !outcome.skip;
    advance(w, outcome.skip);
    return !o->stops;
}

static void run(walk *w) {
    ab_replay_outcome *o = w->outcome;
    for (int64_t t = 0; t < w->from->steps; t++) {
        const bool faulty = o->fault != NULL;
        const bool goes_on = take(w);
        if (!faulty && o->fault) o->fault_step = t;
        if (o->differing == 0) o->agreed = t + 1;
        if (!goes_on) {
            o->fault_step = t;
            break;
        }
    }
    if (o->beyond > 0) o->beyond--; /* the last step has none after it */
    sum_up(w);
}

static walk new_walk(const ab_recorded *recorded, bool most, double *sums, ab_replay_outcome *outcome) {
    const int n = recorded->layers;
    memset(sums, 0, 4 * (size_t)n * sizeof *sums);
    *outcome = (ab_replay_outcome){.skipped = 0};
    return (walk){.from = recorded,
                  .most = most,
                  .limit = ab_format_overflow_limit(recorded->half),
                  .edge = ab_format_max(recorded->half),
                  .lost = sums,
                  .lost_energy = sums + n,
                  .all = sums + 2 * (ptrdiff_t)n,
                  .all_energy = sums + 3 * (ptrdiff_t)n,
                  .outcome = outcome};
}

static void replay(const ab_recorded *recorded, const ab_scaler_config *config, bool most, double *sums,
                   ab_replay_outcome *outcome) {
    walk w = new_walk(recorded, most, sums, outcome);
    ab_scaler_start(&w.scaler, config);
    run(&w);
}

/* The recorded decisions and scales themselves. */
static void repeat(const ab_recorded *recorded, double *sums, ab_replay_outcome *outcome) {
    walk w = new_walk(recorded, false, sums, outcome);
    for (w.at = 0; w.at < recorded->steps; w.at++) {
        const ab_recorded_step *s = &recorded->step[w.at];
        if (!s->skipped) see_taken(&w, s->scale);
        outcome->skipped += s->skipped;
        outcome->wasted += s->skipped && w.taken == 0;
    }
    sum_up(&w);
    outcome->final_scale = recorded->source.final_scale;
    outcome->agreed = recorded->steps;
}

static double *new_sums(const ab_recorded *recorded) {
    return calloc(4 * (size_t)recorded->layers + 1, sizeof(double));
}

ab_status ab_replay_recorded(const ab_recorded *recorded, ab_replay_outcome *outcome) {
    double *sums = new_sums(recorded);
    if (!sums) return ab_fail(AB_NO_MEMORY, "scaler: out of memory");
    repeat(recorded, sums, outcome);
    free(sums);
    return AB_OK;
}

ab_status ab_replay_scaler(const ab_recorded *recorded, const ab_scaler_config *config, ab_replay_row *row) {
    char text[AB_SCALER_TEXT];
    double *sums = new_sums(recorded);
    if (!sums) return ab_fail(AB_NO_MEMORY, "scaler: out of memory");
    ab_text_show(row->scaler, sizeof row->scaler, "%s", ab_scaler_text(config, text));
    ab_text_show(row->dialect, sizeof row->dialect, "%s", config->kind->name);
    replay(recorded, config, false, sums, &row->least);
    replay(recorded, config, true, sums, &row->most);
    free(sums);
    return AB_OK;
}
