/* The time lane: documents of one session are judged, others are only described. Drift: the accumulation
 * of small changes. */
#include "kernels/core/text.h"
#include "reports/gate/gate_case.h"
#include "reports/record/json.h"
#include "reports/record/subnormals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROUNDS = AB_STATS_MAX_PAIRS, SLOWDOWN_TEXT = 400 };

static const double advisory_alpha = 0.05, drift_alpha = 0.01;

bool ab_gate_same_session(const cJSON *a, const cJSON *b) {
    const char *x = ab_json_text(a, "design.session.id", NULL),
               *y = ab_json_text(b, "design.session.id", NULL);
    return x && y && strcmp(x, y) == 0;
}

double ab_gate_rounded(double x, int digits) {
    char text[40];
    if (!isfinite(x)) return x;
    ab_text_show(text, sizeof text, "%.*g", digits, x);
    return strtod(text, NULL);
}

/* ---- values of rounds ------------------------------------------------------------------------ */

/* Reduces a process to one number: the median of its steps after the warm-up; 0 if there are none. */
static ab_status process_time(const cJSON *process, double *median, int *unsteady) {
    const cJSON *item, *times = ab_json_at(process, "step_time_ns");
    int n = 0, warmup;
    bool never_steady;
    double *value = malloc(((size_t)cJSON_GetArraySize(times) + 1) * sizeof *value);
    if (!value) return ab_fail(AB_NO_MEMORY, "gate: out of memory");
    cJSON_ArrayForEach(item, times) {
        if (cJSON_IsNumber(item) && item->valuedouble > 0) value[n++] = item->valuedouble;
    }
    ab_status status = ab_stats_warmup(value, n, &warmup, &never_steady);
    *median = 0;
    if (status == AB_OK && n > warmup) *median = ab_stats_median(value + warmup, n - warmup);
    *unsteady += never_steady;
    free(value);
    return status;
}

enum { TRACK_COLUMNS = 8 };

void ab_gate_track_free(ab_gate_track *t) {
    free(t->columns);
    free(t->unsteady);
    free(t->round);
    *t = (ab_gate_track){.columns = NULL};
}

/* Returns false if out of memory; the caller frees the track in either case. */
static bool track_allocate(ab_gate_track *t, size_t rounds) {
    *t = (ab_gate_track){.columns = calloc(TRACK_COLUMNS * (rounds + 1), sizeof(double)),
                         .unsteady = calloc(rounds + 1, sizeof(int)),
                         .round = calloc(rounds + 1, sizeof(int))};
    if (!t->columns || !t->unsteady || !t->round) return false;
    for (int arm = 0; arm < 2; arm++) {
        double *column = t->columns + (size_t)arm * (TRACK_COLUMNS / 2) * (rounds + 1);
        t->value[arm] = column;
        t->clock[arm] = column + (rounds + 1);
        t->load[arm] = column + 2 * (rounds + 1);
        t->wait[arm] = column + 3 * (rounds + 1);
    }
    return true;
}

static const cJSON *process_of_round(const cJSON *cell, double round) {
    const cJSON *process;
    cJSON_ArrayForEach(process, ab_json_at(cell, "processes")) {
        if (ab_json_number(process, "round", -1) == round) return process;
    }
    return NULL;
}

/* Values of one process; negative: not recorded. */
typedef struct process_values {
    double time, clock, load, wait;
} process_values;

static ab_status read_process_values(const cJSON *process, process_values *m, int *unsteady) {
    double waited = ab_json_number(process, "run_delay_ns", -1),
           lasted = ab_json_number(process, "elapsed_ns", 0);
    *m = (process_values){.clock = ab_json_number(process, "clock_loop_ns", -1),
                          .load = ab_json_number(process, "other_load", -1),
                          .wait = lasted > 0 ? waited / lasted : -1};
    return process ? process_time(process, &m->time, unsteady) : AB_OK;
}

/* Rounds start at 1: round 0 is the probed round. */
static ab_status fill_track(ab_gate_track *t, const cJSON *base, const cJSON *other, int rounds) {
    bool clocks = true, loads = true, waits = true;
    const cJSON *cell[2] = {base, other};
    ab_gate_series *s = &t->series;
    int n = 0;
    for (int round = 1; round <= rounds; round++) {
        process_values m[2];
        int unsteady = 0;
        for (int arm = 0; arm < 2; arm++)
            AB_TRY(read_process_values(process_of_round(cell[arm], round), &m[arm], &unsteady));
        if (!(m[0].time > 0) || !(m[1].time > 0)) {
            s->missing++;
            continue;
        }
        clocks = clocks && m[0].clock > 0 && m[1].clock > 0;
        loads = loads && m[0].load >= 0 && m[1].load >= 0;
        waits = waits && m[0].wait >= 0 && m[1].wait >= 0;
        for (int arm = 0; arm < 2; arm++) {
            t->value[arm][n] = m[arm].time;
            t->clock[arm][n] = m[arm].clock;
            t->load[arm][n] = m[arm].load;
            t->wait[arm][n] = m[arm].wait;
        }
        t->unsteady[n] = unsteady;
        t->round[n++] = round;
    }
    s->rounds = n;
    s->base = t->value[0], s->other = t->value[1];
    s->unsteady = t->unsteady, s->round = t->round;
    if (clocks) s->base_clock = t->clock[0], s->other_clock = t->clock[1];
    if (loads) s->base_load = t->load[0], s->other_load = t->load[1];
    if (waits) s->base_wait = t->wait[0], s->other_wait = t->wait[1];
    return AB_OK;
}

ab_status ab_gate_track_create(const cJSON *base, const cJSON *other, int rounds, ab_gate_track *t) {
    ab_status status = AB_OK;
    if (!track_allocate(t, (size_t)rounds)) {
        status = ab_fail(AB_NO_MEMORY, "gate: out of memory");
        goto out;
    }
    status = fill_track(t, base, other, rounds);
out:
    if (status != AB_OK) ab_gate_track_free(t);
    return status;
}

/* ---- a family of metrics --------------------------------------------------------------------- */

typedef struct family {
    int count;
    const cJSON **base, **other; /* cells */
    ab_gate_track *track;
    ab_gate_series *series;
    ab_gate_decision *decision;
    ab_gate_rule rule;
} family;

static void family_free(family *f) {
    for (int i = 0; f->track && i < f->count; i++) ab_gate_track_free(&f->track[i]);
    free(f->track);
    free(f->series);
    free(f->decision);
    free(f->base);
    free(f->other);
}

static ab_gate_rule rule_of(const cJSON *document, const ab_gate_options *options) {
    ab_gate_rule rule =
        ab_gate_rule_standard((int)ab_json_number(document, "design.session.fixed_rounds", 0));
    rule.tolerance = options->time_tolerance;
    rule.guard = options->guard;
    return rule;
}

static bool is_timed(const cJSON *cell) { return !cJSON_IsString(ab_json_at(cell, "twin")); }

static ab_status family_create(family *f, const ab_cells *bases, const ab_cells *others,
                               const ab_gate_options *options) {
    const cJSON *cell, *other = others->document, *cells = ab_json_at(other, "cells");
    size_t most = (size_t)others->count + 1;
    double wanted = ab_json_number(other, "design.session.rounds", 0);
    int rounds = wanted > MAX_ROUNDS ? MAX_ROUNDS : (int)wanted;
    *f = (family){.rule = rule_of(other, options)};
    f->base = calloc(most, sizeof *f->base);
    f->other = calloc(most, sizeof *f->other);
    f->track = calloc(most, sizeof *f->track);
    f->series = calloc(most, sizeof *f->series);
    f->decision = calloc(most, sizeof *f->decision);
    if (!f->base || !f->other || !f->track || !f->series || !f->decision)
        return ab_fail(AB_NO_MEMORY, "gate: out of memory");
    cJSON_ArrayForEach(cell, cells) {
        const cJSON *before = ab_gate_partner(cell, others, bases);
        if (!before || !is_timed(cell) || !ab_gate_cells_agree(before, cell)) continue;
        AB_TRY(ab_gate_track_create(before, cell, rounds, &f->track[f->count]));
        f->base[f->count] = before;
        f->other[f->count] = cell;
        f->series[f->count] = f->track[f->count].series;
        f->count++;
    }
    return ab_gate_decide(&f->rule, f->series, f->count, f->decision);
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static void add_percent(cJSON *entry, const char *key, double ratio) {
    if (isfinite(ratio) && ratio > 0)
        cJSON_AddNumberToObject(entry, key, 100 * (ratio - 1));
    else
        cJSON_AddNullToObject(entry, key);
}

static cJSON *ratio_entry(const cJSON *base, const cJSON *other, const char *metric, const ab_ratio *ratio) {
    cJSON *entry = cJSON_CreateObject();
    cJSON_AddStringToObject(entry, "metric", metric);
    cJSON_AddStringToObject(entry, "baseline_id", ab_json_text(base, "id", ""));
    cJSON_AddStringToObject(entry, "candidate_id", ab_json_text(other, "id", ""));
    cJSON_AddStringToObject(entry, "direction", "lower_is_better");
    cJSON_AddNumberToObject(entry, "n", ratio->n);
    add_percent(entry, "estimate_percent", ratio->ratio);
    add_percent(entry, "ci_low_percent", ratio->low);
    add_percent(entry, "ci_high_percent", ratio->high);
    cJSON_AddNumberToObject(entry, "p_one_sided", ratio->p_above);
    return entry;
}

static cJSON *comparison(const family *f, int i) {
    const ab_gate_decision *d = &f->decision[i];
    cJSON *entry = ratio_entry(f->base[i], f->other[i], "step_time_ns", &d->ratio);
    cJSON_AddNumberToObject(entry, "p_holm", d->p_holm);
    cJSON_AddNumberToObject(entry, "alpha", d->alpha);
    cJSON_AddNumberToObject(entry, "tolerance_percent", 100 * f->rule.tolerance);
    cJSON_AddNumberToObject(entry, "guard_percent", 100 * d->guard);
    cJSON_AddItemToObject(entry, "mde90_percent",
                          d->detectable > 0 && isfinite(d->detectable)
                              ? cJSON_CreateNumber(ab_gate_rounded(100 * d->detectable, 3))
                              : cJSON_CreateNull());
    cJSON_AddItemToObject(entry, "clock_percent",
                          d->clock > 0 ? cJSON_CreateNumber(100 * (d->clock - 1)) : cJSON_CreateNull());
    cJSON_AddNumberToObject(entry, "load_shift", d->load);
    cJSON_AddNumberToObject(entry, "wait_shift", d->wait);
    cJSON_AddNumberToObject(entry, "outlier_rounds", d->outliers);
    cJSON_AddNumberToObject(entry, "unsteady_processes", d->unsteady);
    cJSON_AddBoolToObject(entry, "binding", 1);
    cJSON_AddStringToObject(entry, "verdict", ab_gate_outcome_name(d->outcome));
    cJSON_AddStringToObject(entry, "text", d->reason);
    return entry;
}

/* A speed-up counts only if numerics are sound and work is equal. */
static void find_win(ab_gate_case *c, const family *f, int i) {
    bool unsound = ab_gate_is_unsound(c, f->other[i]);
    bool unequal =
        ab_json_number(f->base[i], "flops_per_step", 0) != ab_json_number(f->other[i], "flops_per_step", 0) ||
        ab_json_number(f->base[i], "steps_applied", 0) != ab_json_number(f->other[i], "steps_applied", 0);
    if (unsound || unequal)
        ab_gate_find(c, "time", AB_GATE_NOTE, f->other[i], "step_time_ns", NULL, NULL,
                     "%s; void as a speed-up: %s", f->decision[i].reason,
                     unsound ? "the numerics failed" : "unequal work");
    else
        ab_gate_find(c, "time", AB_GATE_WIN, f->other[i], "step_time_ns", NULL, NULL, "%s",
                     f->decision[i].reason);
}

static ab_status judge_session(ab_gate_case *c) {
    family f;
    ab_status status = family_create(&f, &c->base_cells, &c->other_cells, c->options);
    for (int i = 0; status == AB_OK && i < f.count; i++) {
        const ab_gate_decision *d = &f.decision[i];
        cJSON_AddItemToArray(c->comparisons, comparison(&f, i));
        if (d->outcome == AB_GATE_PASS && d->win) find_win(c, &f, i);
        if (d->outcome == AB_GATE_PASS) continue;
        ab_gate_find(c, "time", d->outcome == AB_GATE_FAIL ? AB_GATE_BAD : AB_GATE_UNSURE, f.other[i],
                     "step_time_ns", NULL, NULL, "%s", d->reason);
    }
    family_free(&f);
    return status;
}

ab_status ab_gate_undecided(const cJSON *base, const cJSON *other, const ab_gate_options *options,
                            int *undecided) {
    family f = {.count = 0};
    ab_cells bases, others = {.count = 0};
    ab_status status = ab_cells_create(base, &bases);
    if (status == AB_OK) status = ab_cells_create(other, &others);
    if (status == AB_OK) status = family_create(&f, &bases, &others, options);
    *undecided = 0;
    for (int i = 0; status == AB_OK && i < f.count; i++)
        *undecided += f.decision[i].outcome == AB_GATE_INCONCLUSIVE;
    family_free(&f);
    ab_cells_free(&bases);
    ab_cells_free(&others);
    return status;
}

/* ---- stored documents ------------------------------------------------------------------------ */

/* One value per process. *count: at most `room`. */
static ab_status process_times(const cJSON *cell, double *value, int room, int *count) {
    const cJSON *process;
    int unsteady = 0;
    *count = 0;
    cJSON_ArrayForEach(process, ab_json_at(cell, "processes")) {
        double time = 0;
        if (*count == room) break;
        AB_TRY(process_time(process, &time, &unsteady));
        if (time > 0) value[(*count)++] = time;
    }
    return AB_OK;
}

static ab_status stored_ratio(const cJSON *base, const cJSON *other, double alpha, double guard,
                              ab_ratio *ratio) {
    double a[AB_STATS_MAX_UNPAIRED], b[AB_STATS_MAX_UNPAIRED];
    int m, n;
    *ratio = (ab_ratio){.n = 0};
    AB_TRY(process_times(base, a, AB_STATS_MAX_UNPAIRED, &m));
    AB_TRY(process_times(other, b, AB_STATS_MAX_UNPAIRED, &n));
    return m > 0 && n > 0 ? ab_ratio_unpaired(a, m, b, n, alpha, guard, ratio) : AB_OK;
}

static ab_status describe_stored(ab_gate_case *c) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, ab_json_at(c->other.document, "cells")) {
        const cJSON *base = ab_gate_partner(cell, &c->other_cells, &c->base_cells);
        ab_ratio r;
        if (!base || !is_timed(cell) || !ab_gate_cells_agree(base, cell)) continue;
        AB_TRY(stored_ratio(base, cell, advisory_alpha, c->options->guard, &r));
        if (r.n == 0) {
            ab_gate_find(c, "time", AB_GATE_NOTE, cell, "step_time_ns", NULL, NULL,
                         "one of the documents has no times");
            continue;
        }
        cJSON *entry = ratio_entry(base, cell, "step_time_ns", &r);
        cJSON_AddNumberToObject(entry, "n_candidate", r.n_other);
        cJSON_AddNumberToObject(entry, "alpha", advisory_alpha);
        cJSON_AddBoolToObject(entry, "binding", 0);
        cJSON_AddStringToObject(entry, "verdict", "ADVISORY");
        cJSON_AddItemToArray(c->comparisons, entry);
        if (!ab_is_significant(r.p_least, advisory_alpha))
            ab_gate_find(c, "time", AB_GATE_NOTE, cell, "step_time_ns", NULL, NULL,
                         "%d and %d processes cannot reach alpha %.3g: their smallest p is %.3g", r.n,
                         r.n_other, advisory_alpha, r.p_least);
    }
    return AB_OK;
}

/* Names the cells whose step times have a trend because of subnormal operands: one median does not describe
 * them. */
static void note_slowdowns(ab_gate_case *c, const char *whose, const cJSON *document) {
    char text[SLOWDOWN_TEXT];
    const cJSON *cell;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        if (is_timed(cell) && ab_subnormal_slowdown_text(cell, text, sizeof text))
            ab_gate_find(c, "time", AB_GATE_NOTE, cell, "summary.subnormal_slowdown", NULL, NULL,
                         "%s: step times have a trend: %s", whose, text);
    }
}

ab_status ab_gate_times(ab_gate_case *c) {
    note_slowdowns(c, "base", c->base.document);
    note_slowdowns(c, "new", c->other.document);
    return c->session ? judge_session(c) : describe_stored(c);
}

/* ---- drift ----------------------------------------------------------------------------------- */

/* Alternating rounds are pairs; stored times are two independent samples. */
static ab_status drift_ratio(const ab_gate_case *c, const cJSON *pinned, const cJSON *cell, double alpha,
                             ab_ratio *r) {
    double budget = c->options->drift_budget;
    if (!ab_gate_same_session(c->pinned.document, c->other.document))
        return stored_ratio(pinned, cell, alpha, budget, r);
    ab_gate_track t;
    int rounds = (int)ab_json_number(c->other.document, "design.session.rounds", 0);
    *r = (ab_ratio){.n = 0};
    if (rounds > MAX_ROUNDS) rounds = MAX_ROUNDS;
    AB_TRY(ab_gate_track_create(pinned, cell, rounds, &t));
    ab_status status = AB_OK;
    if (t.series.rounds > 0)
        status = ab_ratio_paired(t.series.base, t.series.other, t.series.rounds, alpha, budget, r);
    ab_gate_track_free(&t);
    return status;
}

static void drift_amount(ab_gate_case *c, const cJSON *pinned, const cJSON *cell, const char *path,
                         const char *what) {
    double before = ab_json_number(pinned, path, 0), now = ab_json_number(cell, path, 0);
    if (!(before > 0) || now <= before * (1 + c->options->drift_budget)) return;
    ab_gate_find(c, "drift", AB_GATE_BAD, cell, path, ab_json_at(pinned, path), ab_json_at(cell, path),
                 "%s grew by %.1f %% since the pinned baseline, budget %.3g %%", what,
                 100 * (now / before - 1), 100 * c->options->drift_budget);
}

static ab_status drift_time(ab_gate_case *c, const cJSON *pinned, const cJSON *cell, int metrics) {
    double alpha = drift_alpha / metrics, budget = c->options->drift_budget;
    ab_ratio r;
    AB_TRY(drift_ratio(c, pinned, cell, alpha, &r));
    if (r.n == 0) return AB_OK;
    cJSON *entry = ratio_entry(pinned, cell, "drift_step_time_ns", &r);
    bool paired = ab_gate_same_session(c->pinned.document, c->other.document), over = r.low > 1 + budget;
    cJSON_AddNumberToObject(entry, "alpha", alpha);
    cJSON_AddNumberToObject(entry, "tolerance_percent", 100 * budget);
    cJSON_AddBoolToObject(entry, "binding", 1);
    cJSON_AddStringToObject(entry, "verdict", over ? "FAIL" : "PASS");
    cJSON_AddItemToArray(c->comparisons, entry);
    if (over)
        ab_gate_find(c, "drift", AB_GATE_BAD, cell, "step_time_ns", NULL, NULL,
                     "%.1f %% slower than the pinned baseline (at least %.1f %%), budget %.3g %%%s",
                     100 * (r.ratio - 1), 100 * (r.low - 1), 100 * budget,
                     paired ? "" : "; stored times: confirm with --pinned-exe");
    else if (!ab_is_significant(r.p_least, alpha))
        ab_gate_find(c, "drift", AB_GATE_NOTE, cell, "step_time_ns", NULL, NULL,
                     "%d and %d processes cannot reach alpha %.3g: drift in time was not tested", r.n,
                     r.n_other, alpha);
    return AB_OK;
}

ab_status ab_gate_drift(ab_gate_case *c) {
    const cJSON *cell, *cells = ab_json_at(c->other.document, "cells");
    int metrics = cJSON_GetArraySize(cells);
    if (!c->pinned.document) return AB_OK;
    ab_gate_match_documents(c, c->pinned, c->other,
                            ab_gate_same_session(c->pinned.document, c->other.document));
    cJSON_ArrayForEach(cell, cells) {
        const cJSON *pinned = ab_gate_partner(cell, &c->other_cells, &c->pinned_cells);
        if (!pinned || !is_timed(cell) || !ab_gate_cells_agree(pinned, cell)) continue;
        drift_amount(c, pinned, cell, "memory_bytes.total", "memory");
        drift_amount(c, pinned, cell, "casts_per_step", "casts");
        drift_amount(c, pinned, cell, "flops_per_step", "FLOPs");
        AB_TRY(drift_time(c, pinned, cell, metrics));
    }
    return AB_OK;
}
