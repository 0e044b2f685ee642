/* Runs one configuration over a course: a set of states that agree with all scales so far. Between two scales
 * steps may have overflowed that the log does not show; of the ways to place them those are tried that a
 * later scale can tell apart: at the beginning, at the end, and so that the next growth comes when it is
 * seen. */
#include "bench/ingest/dialect/dialect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* STATES: kept at most; PLACES, GROUP_PLACES: of overflows tried in a span; EXTRA: overflows that do not
 * show, in one span. */
enum { STATES = 512, PLACES = 32, GROUP_PLACES = 12, EXTRA = 4, MOST_SKIPS = 64 };

typedef struct set {
    ab_scaler *state;
    int count, capacity;
    bool no_memory;
    int64_t *work; /* updates that are left */
} set;

/* ---- running ----------------------------------------------------------------------------------- */

/* n steps that all overflow or none. False: the original would have stopped, or no work is left. */
static bool run(ab_scaler *s, bool overflow, int64_t n, int64_t *work) {
    const ab_scaler_seen seen = {.overflow = overflow, .amax = overflow ? (double)INFINITY : 1};
    while (n > 0) {
        if (--*work < 0) return false;
        const ab_scaler before = *s;
        const ab_scaler_outcome outcome = ab_scaler_update(s, &seen);
        if (outcome.fault && outcome.fault->raises) return false;
        if (--n > 0) n -= ab_scaler_fast_forward(s, &before, &seen, n);
        if (overflow && n > MOST_SKIPS && ab_scaler_same(s, &before)) return true;
    }
    return true;
}

static bool agrees(const ab_scaler *s, const ab_scale_span *span) {
    return s->scale == span->scale || fabs(s->scale - span->scale) <= span->error;
}

static bool has_room(set *to) {
    enum { FIRST = 16 };
    if (to->count < to->capacity) return true;
    const int capacity = to->capacity ? 2 * to->capacity : FIRST;
    ab_scaler *grown = realloc(to->state, (size_t)capacity * sizeof *grown);
    if (!grown) {
        to->no_memory = true;
        return false;
    }
    to->state = grown;
    to->capacity = capacity;
    return true;
}

static void keep(set *to, const ab_scaler *s) {
    for (int i = to->count - 1; i >= 0 && i >= to->count - PLACES; i--)
        if (ab_scaler_same(&to->state[i], s)) return;
    if (to->count < STATES && has_room(to)) to->state[to->count++] = *s;
}

/* `before` clean steps, `skips` that overflow, the rest clean. */
static void try_place(const ab_scaler *from, const ab_scale_span *span, int64_t before, int64_t skips,
                      set *to) {
    ab_scaler s = *from;
    const int64_t after = span->steps - before - skips;
    if (before < 0 || skips < 0 || after < 0) return;
    if (run(&s, false, before, to->work) && run(&s, true, skips, to->work) &&
        run(&s, false, after, to->work) && agrees(&s, span))
        keep(to, &s);
}

/* ---- places of overflows ------------------------------------------------------------------------ */

static double window_of(const ab_scaler_config *config) {
    const int key = ab_scaler_key_index(config->kind, "window");
    return key < 0 ? 0 : config->value[key];
}

/* So many overflows, in a row, at any place; in a long span at some places. */
static void try_places(const ab_scaler *from, const ab_scale_span *span, int64_t skips, set *to) {
    const int64_t free_steps = span->steps - skips, window = (int64_t)window_of(&from->config);
    const int64_t stride = free_steps / PLACES + 1;
    for (int64_t at = 0; at <= free_steps; at += stride) try_place(from, span, at, skips, to);
    try_place(from, span, free_steps, skips, to);
    for (int64_t shift = -2; shift <= 2 && stride > 1; shift++)
        try_place(from, span, free_steps - window + shift, skips, to);
}

/* Two groups with clean steps before, between and after. */
static void try_groups(const ab_scaler *from, const ab_scale_span *span, int64_t first, int64_t skips,
                       set *to) {
    const int64_t free_steps = span->steps - skips, stride = free_steps / GROUP_PLACES + 1;
    for (int64_t before = 0; before <= free_steps; before += stride)
        for (int64_t between = 1; before + between <= free_steps; between += stride) {
            ab_scaler s = *from;
            if (run(&s, false, before, to->work) && run(&s, true, first, to->work) &&
                run(&s, false, between, to->work) && run(&s, true, skips - first, to->work) &&
                run(&s, false, free_steps - before - between, to->work) && agrees(&s, span))
                keep(to, &s);
        }
}

static void try_two(const ab_scaler *from, const ab_scale_span *span, int64_t skips, set *to) {
    for (int64_t first = 1; first < skips && first <= EXTRA; first++)
        try_groups(from, span, first, skips, to);
}

/* Octaves from one scale to another, downwards. */
static int64_t octaves_down(double from, double to) {
    const double octaves = from > 0 && to > 0 ? log2(from / to) : 0;
    return octaves > 0.5 && octaves < MOST_SKIPS ? (int64_t)ceil(octaves - 0.25) : 0;
}

/* An overflow never raises a scale nor brings a growth nearer: beyond what clean steps reach there is none.
 */
static bool within_reach(const ab_scaler *from, const ab_scale_span *span, int64_t *work) {
    ab_scaler s = *from;
    return run(&s, false, span->steps, work) && s.scale >= span->scale - span->error;
}

static void advance(const ab_scaler *from, const ab_scale_span *span, set *to) {
    if (!within_reach(from, span, to->work)) return;
    if (span->skipped >= 0) {
        try_places(from, span, span->skipped < span->steps ? span->skipped : span->steps, to);
        try_two(from, span, span->skipped, to);
        return;
    }
    const int64_t least = octaves_down(from->scale, span->scale);
    try_place(from, span, span->steps, 0, to);
    if (ab_scaler_checks(from))
        for (int64_t skips = least > 0 ? least : 1; skips <= least + EXTRA && skips <= span->steps; skips++)
            try_places(from, span, skips, to);
}

/* ---- the beginning ------------------------------------------------------------------------------- */

static bool is_credit(const char *name) { return strstr(name, "hysteresis") != NULL; }

/* Steps from the beginning to the first change of the scale. */
static double steps_to_change(const ab_scale_course *course) {
    double steps = 0;
    for (int i = 0; i < course->spans; i++) {
        steps += (double)course->span[i].steps;
        if (course->span[i].scale != course->first) break;
    }
    return steps;
}

/* What counters may be where the log begins: as at a start, or such that the first change is a growth that
 * comes when it is seen; credits: all up to the constant. Another value of a counter shows nowhere.
 * to_growth: what a counter lacks to that growth. */
static void vary(const ab_scaler *start, int state, double to_growth, set *to) {
    const ab_scaler_kind *kind = start->kind;
    if (state == kind->states && --*to->work >= 0) keep(to, start);
    if (state == kind->states || *to->work < 0) return;
    vary(start, state + 1, to_growth, to);
    ab_scaler s = *start;
    for (int shift = -12; shift <= 2 && kind->counters >> state & 1u; shift++) {
        s.state[state] = to_growth - shift;
        if (s.state[state] > start->state[state]) vary(&s, state + 1, to_growth, to);
    }
    const int credits = is_credit(kind->state[state]) ? ab_scaler_key_index(kind, "hysteresis") : -1;
    for (double x = 1; credits >= 0 && x < start->config.value[credits]; x++) {
        s.state[state] = x;
        vary(&s, state + 1, to_growth, to);
    }
}

static void begin(const ab_scale_course *course, const ab_scaler_config *config, set *to) {
    ab_scaler s;
    ab_scaler_start(&s, config);
    to->count = 0;
    if (course->fresh) {
        if (s.scale == course->first) keep(to, &s);
        return;
    }
    s.scale = course->first;
    vary(&s, 0, window_of(config) - steps_to_change(course), to);
}

bool ab_dialect_fits(const ab_scale_course *course, const ab_scaler_config *config, int64_t *work) {
    set sets[2] = {{.work = work}, {.work = work}};
    int now = 0;
    begin(course, config, &sets[0]);
    for (int i = 0; i < course->spans && sets[now].count > 0 && *work >= 0; i++) {
        set *next = &sets[!now];
        next->count = 0;
        for (int s = 0; s < sets[now].count && next->count < STATES && *work >= 0; s++)
            advance(&sets[now].state[s], &course->span[i], next);
        now = !now;
    }
    const bool fits = sets[now].count > 0 && *work >= 0 && !sets[0].no_memory && !sets[1].no_memory;
    free(sets[0].state);
    free(sets[1].state);
    return fits;
}
