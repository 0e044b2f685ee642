/* Runs a scaler over patterns. */
#include "bench/amp/trace/scale_trace.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* Position in a pattern: the current run and how much of it is used. */
typedef struct cursor {
    const ab_pattern *pattern; /* NULL: none */
    int run;
    int64_t used; /* of the run */
} cursor;

static int64_t left_in_run(const cursor *c) {
    return c->pattern ? c->pattern->run[c->run].count - c->used : INT64_MAX;
}

static double value_of(const cursor *c, double otherwise) {
    return c->pattern ? c->pattern->run[c->run].value : otherwise;
}

static void advance(cursor *c, int64_t steps) {
    if (!c->pattern) return;
    c->used += steps;
    if (c->used < c->pattern->run[c->run].count) return;
    c->used = 0;
    c->run++;
}

static ab_status record(ab_scaler_trace *t, double scale, bool skipped, int64_t count) {
    assert(t->runs == 0 || t->run != NULL);
    ab_trace_run *last = t->runs ? &t->run[t->runs - 1] : NULL;
    if (last && !t->unlisted && last->skipped == skipped &&
        (last->scale == scale || (isnan(last->scale) && isnan(scale)))) {
        last->count += count;
        return AB_OK;
    }
    if (t->runs == AB_TRACE_MOST) {
        t->unlisted += count;
        return AB_OK;
    }
    if ((t->runs & (t->runs - 1)) == 0) {
        size_t room = t->runs ? 2 * (size_t)t->runs : 1;
        ab_trace_run *grown = realloc(t->run, room * sizeof *grown);
        if (!grown) return ab_fail(AB_NO_MEMORY, "scaler: out of memory");
        t->run = grown;
    }
    t->run[t->runs++] = (ab_trace_run){scale, skipped, t->steps, count};
    return AB_OK;
}

/* `count` steps at one scale with one outcome. */
static ab_status tally(ab_scaler_trace *t, double scale, bool overflow, ab_scaler_outcome outcome,
                       int64_t count) {
    AB_TRY(record(t, scale, outcome.skip, count));
    if (outcome.fault && (!t->fault || outcome.fault->raises)) {
        t->fault = outcome.fault;
        t->fault_step = t->steps;
    }
    if (outcome.skip && t->skipped == t->steps) t->warm_up += count;
    t->steps += count;
    t->skipped += outcome.skip ? count : 0;
    t->overflows += overflow ? count : 0;
    t->sum_scale += scale * (double)count;
    t->sum_log2 += log2(scale) * (double)count;
    return AB_OK;
}

typedef struct source {
    cursor overflow, amax;
    double limit;    /* the first magnitude that rounds to infinity */
    double edge;     /* 65504 */
    double elements; /* of a step's gradients */
} source;

static ab_scaler_seen look(const source *s, const ab_scaler *scaler) {
    double amax = value_of(&s->amax, 0), scaled = amax * scaler->scale;
    bool known = s->amax.pattern != NULL;
    bool overflow = value_of(&s->overflow, 0) != 0 || (known && !(scaled < s->limit));
    ab_scaler_seen seen = {.overflow = overflow, .amax = overflow && !isfinite(amax) ? HUGE_VAL : amax};
    int edge = ab_scaler_key_index(scaler->kind, "edge");
    if (!(scaler->kind->sees & AB_SEES_COUNTS) || edge < 0) return seen;
    bool above = overflow || scaled > s->edge * scaler->config.value[edge];
    seen.upper = above ? 1 : 0;
    seen.lower = s->elements - seen.upper;
    return seen;
}

/* Takes one step and the equal steps after it. */
static ab_status take(ab_scaler_trace *t, source *s) {
    int64_t most =
        left_in_run(&s->overflow) < left_in_run(&s->amax) ? left_in_run(&s->overflow) : left_in_run(&s->amax);
    ab_scaler before = t->scaler;
    ab_scaler_seen seen = look(s, &before);
    ab_scaler_outcome outcome = ab_scaler_update(&t->scaler, &seen);
    AB_TRY(tally(t, before.scale, seen.overflow, outcome, 1));
    int64_t taken = 1;
    t->computed++;
    ab_scaler_seen next = look(s, &t->scaler);
    bool alike = next.overflow == seen.overflow && next.upper == seen.upper;
    if (most > 1 && alike && !(outcome.fault && outcome.fault->raises)) {
        double scale = t->scaler.scale;
        int64_t forwarded = ab_scaler_fast_forward(&t->scaler, &before, &seen, most - 1);
        if (forwarded > 0) AB_TRY(tally(t, scale, seen.overflow, outcome, forwarded));
        taken += forwarded;
    }
    advance(&s->overflow, taken);
    advance(&s->amax, taken);
    return AB_OK;
}

/* A scaler that returns to an earlier state repeats as long as the input is constant. Brent's cycle
 * detection, used only if very many steps are left. */
enum { MANY_STEPS = 1 << 17 };

typedef struct cycle {
    ab_scaler_trace then; /* at the snapshot; `run` is not used */
    int overflow_run, amax_run;
    int64_t wait; /* steps until the next snapshot; doubled after each; 0: there is none yet */
} cycle;

static bool moved(const cycle *c, const source *s) {
    return c->wait == 0 || c->overflow_run != s->overflow.run || c->amax_run != s->amax.run;
}

static bool repeats(const cycle *c, const ab_scaler_trace *t, const source *s) {
    return !moved(c, s) && ab_scaler_alike(&c->then.scaler, &t->scaler);
}

static void jump(cycle *c, ab_scaler_trace *t, source *s) {
    const ab_scaler_trace *then = &c->then;
    int64_t left =
        left_in_run(&s->overflow) < left_in_run(&s->amax) ? left_in_run(&s->overflow) : left_in_run(&s->amax);
    if (left < MANY_STEPS) return;
    if (!repeats(c, t, s)) {
        if (moved(c, s))
            *c = (cycle){*t, s->overflow.run, s->amax.run, 1};
        else if (t->steps - then->steps >= c->wait)
            *c = (cycle){*t, s->overflow.run, s->amax.run, 2 * c->wait};
        return;
    }
    int64_t period = t->steps - then->steps, times = left / period - 1;
    double n = (double)times;
    for (int i = 0; i < AB_SCALER_STATES; i++) {
        const double now = t->scaler.state[i], before = then->scaler.state[i];
        if (now != before && isfinite(now)) t->scaler.state[i] += n * (now - before);
    }
    if (isfinite(t->sum_scale)) t->sum_scale += n * (t->sum_scale - then->sum_scale);
    if (isfinite(t->sum_log2)) t->sum_log2 += n * (t->sum_log2 - then->sum_log2);
    if (t->skipped == t->steps) t->warm_up += times * period;
    t->skipped += times * (t->skipped - then->skipped);
    t->overflows += times * (t->overflows - then->overflows);
    t->steps += times * period;
    ab_trace_run *last = t->runs ? &t->run[t->runs - 1] : NULL;
    if (last && !t->unlisted && last->count >= period)
        last->count += times * period; /* the whole period has one scale and one outcome */
    else
        t->unlisted += times * period;
    advance(&s->overflow, times * period);
    advance(&s->amax, times * period);
}

ab_status ab_scaler_trace_run(const ab_scaler_config *config, const ab_pattern *overflow,
                              const ab_pattern *amax, const ab_format *half, double elements,
                              ab_scaler_trace *trace) {
    *trace = (ab_scaler_trace){.run = NULL};
    int64_t steps = overflow ? overflow->steps : amax->steps;
    source s = {.overflow = {overflow, 0, 0},
                .amax = {amax, 0, 0},
                .limit = ab_format_overflow_limit(half),
                .edge = ab_format_max(half),
                .elements = elements};
    ab_scaler_start(&trace->scaler, config);
    ab_status status = AB_OK;
    cycle c = {.wait = 0};
    while (status == AB_OK && trace->steps < steps && !(trace->fault && trace->fault->raises)) {
        status = take(trace, &s);
        if (trace->steps < steps) jump(&c, trace, &s);
    }
    if (status != AB_OK) ab_scaler_trace_clear(trace);
    return status;
}

void ab_scaler_trace_clear(ab_scaler_trace *trace) {
    free(trace->run);
    trace->run = NULL;
}

/* Converts traces to the structs that reports print. */

_Static_assert((int)AB_TRACE_VALUES >= (int)AB_SCALER_KEYS, "room for the keys");
_Static_assert((int)AB_TRACE_VALUES >= (int)AB_SCALER_STATES + 1, "room for the scale and the state");

ab_trace_config ab_scaler_trace_config(const ab_scaler_config *config) {
    const ab_scaler_kind *kind = config->kind;
    ab_trace_config traced = {.dialect = kind->name, .keys = kind->keys};
    for (int i = 0; i < kind->keys; i++)
        traced.key[i] =
            (ab_trace_value){kind->key[i].name, config->value[i], kind->key[i].type == AB_SCALER_BOOL};
    return traced;
}

ab_trace_error ab_scaler_trace_error(const ab_scaler_fault *fault, int64_t step) {
    if (!fault) return (ab_trace_error){.name = NULL};
    return (ab_trace_error){fault->name, fault->text, fault->raises, step};
}

ab_trace_column ab_scaler_trace_column(const ab_scaler_trace *trace, char heading[AB_SCALER_TEXT]) {
    const ab_scaler *scaler = &trace->scaler;
    ab_trace_column column = {
        .config = ab_scaler_trace_config(&scaler->config),
        .heading = ab_scaler_text(&scaler->config, heading),
        .run = trace->run,
        .runs = trace->runs,
        .unlisted = trace->unlisted,
        .steps = trace->steps,
        .skipped = trace->skipped,
        .overflows = trace->overflows,
        .warm_up = trace->warm_up,
        .sum_scale = trace->sum_scale,
        .sum_log2 = trace->sum_log2,
        .states = ab_scaler_state_count(scaler->kind),
        .error = ab_scaler_trace_error(trace->fault, trace->fault_step),
    };
    for (int i = 0; i < column.states; i++)
        column.state[i] =
            (ab_trace_value){ab_scaler_state_name(scaler->kind, i), ab_scaler_state(scaler, i), false};
    return column;
}
