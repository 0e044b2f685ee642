/* Folding of steps. */
#include "probes/lib/steps.h"

#include <math.h>
#include <string.h>

static const double stopped_share = 0.9;

void ab_lib_course_begin(ab_lib_course *course) {
    course->steps.stride = course->steps.rate_stride = 1;
    for (int i = 0; i < AB_LIB_AXES; i++) course->columns[i].every = 1;
    for (int i = 0; i < AB_LIB_GROUPS; i++) {
        ab_lib_group *g = &course->group[i];
        g->first_skipped = g->first_caller_step = g->last_caller_step = -1;
        g->lr = g->first_lr = g->norm_largest = g->norm_last = (double)NAN;
    }
}

void ab_lib_course_init(ab_lib_course *course) {
    memset(course, 0, sizeof *course);
    ab_lib_course_begin(course);
}

const char *ab_lib_step_wrong(const ampprobe_step_facts *f) {
    const uint32_t flags = 2 * AMPPROBE_LAYERS_SHOWN - 1;
    if (f->size != sizeof *f) return "facts.size is not that of this library";
    if (f->flags & ~flags) return "facts.flags: unknown bits";
    if (f->step < 0) return "facts.step: expected a number from 0 on";
    if (f->group < 0 || f->group >= AB_LIB_GROUPS) return "facts.group: expected 0 to 15";
    if (f->found_inf < -1 || f->found_inf > 1 || f->stepped < -1 || f->stepped > 1)
        return "facts.found_inf, facts.stepped: expected 0, 1 or -1";
    if (!(f->seconds >= 0) || !isfinite(f->seconds) || !(f->spent >= 0) || !isfinite(f->spent))
        return "facts.seconds, facts.spent: expected finite numbers from 0 on";
    const bool good = isfinite(f->scale_before) && isfinite(f->scale_after) && f->scale_before >= 0;
    if (f->flags & AMPPROBE_HAS_SCALE && !good) return "facts.scale_before: expected a finite scale";
    return NULL;
}

bool ab_lib_skipped(const ab_lib_step *step) {
    const ampprobe_step_facts *f = &step->facts;
    if (f->stepped >= 0) return f->stepped == 0;
    if (f->found_inf >= 0) return f->found_inf > 0;
    return step->exact && step->nonfinite > 0;
}

/* ---- over time ------------------------------------------------------------------------------- */

static void halve(ab_lib_steps *s) {
    const size_t half = AB_LIB_LOSSES / 2;
    for (size_t i = 0; i < half; i++) {
        s->loss[i] = s->loss[2 * i] + s->loss[2 * i + 1];
        s->known[i] = s->known[2 * i] + s->known[2 * i + 1];
        s->seconds[i] = s->seconds[2 * i] + s->seconds[2 * i + 1];
    }
    memset(s->loss + half, 0, half * sizeof *s->loss);
    memset(s->known + half, 0, half * sizeof *s->known);
    memset(s->seconds + half, 0, half * sizeof *s->seconds);
    s->stride *= 2;
}

static void add_loss(ab_lib_steps *s, int64_t step, const ab_lib_step *about) {
    while (step / s->stride >= AB_LIB_LOSSES) halve(s);
    const int64_t at = step / s->stride;
    s->losses = at + 1;
    s->seconds[at] += (float)about->seconds;
    if (step == 0) s->first_seconds = about->seconds;
    if (!(about->facts.flags & AMPPROBE_HAS_LOSS)) return;
    const bool finite = isfinite(about->facts.loss);
    s->loss[at] += finite ? about->facts.loss : (double)NAN;
    s->known[at]++;
    s->known_losses++;
    s->nonfinite_losses += !finite;
}

/* Runs of equal scales; when the room is full, two neighbours become one, at the first one's scale. */
static void add_scale(ab_lib_steps *s, double scale) {
    const int64_t last = s->scales - 1;
    if (last >= 0 && s->scale[last] == scale) {
        s->scale_steps[last]++;
        return;
    }
    if (s->scales == AB_LIB_SCALES) {
        for (int i = 0; i < AB_LIB_SCALES / 2; i++) {
            s->scale[i] = s->scale[2 * i];
            s->scale_steps[i] = s->scale_steps[2 * i] + s->scale_steps[2 * i + 1];
        }
        s->scales = AB_LIB_SCALES / 2;
    }
    s->scale[s->scales] = scale;
    s->scale_steps[s->scales++] = 1;
}

static void halve_rates(ab_lib_steps *s) {
    const size_t half = AB_LIB_RATES / 2;
    for (size_t i = 0; i < half; i++) {
        s->rate[i] = s->rate[2 * i] + s->rate[2 * i + 1];
        s->rated[i] = s->rated[2 * i] + s->rated[2 * i + 1];
    }
    memset(s->rate + half, 0, half * sizeof *s->rate);
    memset(s->rated + half, 0, half * sizeof *s->rated);
    s->rate_stride *= 2;
}

static void add_rate(ab_lib_steps *s, int64_t step, const ampprobe_step_facts *f) {
    while (step / s->rate_stride >= AB_LIB_RATES) halve_rates(s);
    s->rates = step / s->rate_stride + 1;
    if (!(f->flags & AMPPROBE_HAS_LR) || !isfinite(f->lr)) return;
    s->rate[s->rates - 1] += f->lr;
    s->rated[s->rates - 1]++;
}

static void add_course(ab_lib_course *course, int64_t step, const ab_lib_step *about) {
    ab_lib_steps *s = &course->steps;
    const bool scaled = (about->facts.flags & AMPPROBE_HAS_SCALE) != 0;
    add_loss(s, step, about);
    add_rate(s, step, &about->facts);
    add_scale(s, scaled ? about->facts.scale_before : 1);
    if (ab_lib_skipped(about) && s->skips < AB_LIB_SKIPS) s->skip[s->skips++] = step;
    course->run_seconds += about->seconds;
    course->probe_seconds = about->probe_seconds;
    course->layer_steps += (about->facts.flags & AMPPROBE_LAYERS_SHOWN) != 0;
}

/* ---- gradients without the scale ------------------------------------------------------------- */

/* Adds a step's counts, whose values carry `scale`. What would leave the histogram stays at its end. */
static void add_unscaled(ab_lib_scaled *u, const ab_lib_pending *shown, double scale, int column) {
    const ab_range_counts *c = &shown->counts;
    if (!(scale > 0)) return;
    const int octaves = (int)lround(log2(scale));
    for (int row = c->low; row < c->high; row++) {
        int to = row - octaves;
        to = to < 0 ? 0 : to >= AB_CENSUS_EXPONENTS ? AB_CENSUS_EXPONENTS - 1 : to;
        u->exponent[to] += c->exponent[row];
    }
    if (exp2(octaves) != scale) u->rounded += c->nonzero;
    u->cut[column] += shown->nonfinite > 0 || c->nan + c->inf > 0;
    if (c->max_abs > 0)
        u->largest[column] = fmaxf(u->largest[column], (float)(log2((double)c->max_abs) - log2(scale)));
}

/* ---- a group --------------------------------------------------------------------------------- */

static void add_scale_facts(ab_lib_group *g, const ampprobe_step_facts *f) {
    g->step_scale = f->flags & AMPPROBE_HAS_SCALE ? f->scale_before : 1;
    if (!(f->flags & AMPPROBE_HAS_SCALE)) return;
    if (g->scaled++ == 0) g->first_scale = g->least_scale = g->largest_scale = f->scale_before;
    g->least_scale = fmin(g->least_scale, fmin(f->scale_before, f->scale_after));
    g->largest_scale = fmax(g->largest_scale, fmax(f->scale_before, f->scale_after));
    g->last_scale = f->scale_after;
}

static void add_clip_facts(ab_lib_group *g, const ampprobe_step_facts *f) {
    g->clipped_scaled += (f->flags & AMPPROBE_CLIPPED_SCALED) != 0;
    if (f->flags & AMPPROBE_HAS_NORM) {
        g->normed++;
        g->norm_last = f->norm_before_clip;
        g->norm_largest = fmax(g->norm_largest, f->norm_before_clip);
    }
    if (!(f->flags & AMPPROBE_HAS_CLIP)) return;
    g->clipped += f->norm_after_clip < f->norm_before_clip;
    g->clip_norm = f->clip_norm;
}

static void add_group(ab_lib_group *g, const ab_lib_step *about) {
    const ampprobe_step_facts *f = &about->facts;
    const bool skipped = ab_lib_skipped(about);
    if (skipped && g->skipped++ == 0) g->first_skipped = g->steps;
    g->unknown += f->stepped < 0 && f->found_inf < 0 && !about->exact;
    g->checked += f->found_inf >= 0;
    g->called += f->found_inf < 0 && f->stepped >= 0;
    g->exact_overflows += about->exact && about->nonfinite > 0;
    g->silent_skips += skipped && f->stepped < 0 && f->found_inf < 0;
    g->schedule_on_skip += skipped && (f->flags & AMPPROBE_SCHEDULE_ON_SKIP);
    if (f->micro_batches > g->micro_batches) g->micro_batches = f->micro_batches;
    if (g->steps == 0) g->first_caller_step = f->step;
    g->last_caller_step = f->step;
    if (f->flags & AMPPROBE_HAS_LR) {
        if (isnan(g->first_lr)) g->first_lr = f->lr;
        g->lr = f->lr;
    }
    add_scale_facts(g, f);
    add_clip_facts(g, f);
    g->steps++;
}

/* ---- public ---------------------------------------------------------------------------------- */

/* ab_columns_halve_max fills with 0, which is a largest value here. */
static void halve_scaled(ab_lib_scaled *u, int halvings) {
    ab_range_halve_periods(&u->periods, halvings);
    ab_columns_halve(u->cut, halvings);
    for (; halvings > 0; halvings--) {
        for (int i = 0; i < AB_COLUMNS / 2; i++)
            u->largest[i] = fmaxf(u->largest[2 * i], u->largest[2 * i + 1]);
        for (int i = AB_COLUMNS / 2; i < AB_COLUMNS; i++) u->largest[i] = -INFINITY;
    }
}

/* Makes the columns of the axes that something was counted on ready for a step. */
static void open_columns(ampprobe *p, int32_t axes, int64_t step) {
    for (int axis = 0; axis < AB_LIB_AXES; axis++) {
        ab_columns *c = &p->course->columns[axis];
        int halvings = 0;
        if (!(axes >> axis & 1)) continue;
        p->course->probed[axis]++;
        (void)ab_columns_at(c, c->started && step < c->first ? c->first : step, &halvings);
        for (int32_t i = 0; halvings > 0 && i < p->tensors; i++) {
            if (p->tensor[i]->axis != axis) continue;
            ab_range_halve(&p->tensor[i]->history, halvings);
            if (p->scaled[i]) halve_scaled(p->scaled[i], halvings);
        }
        for (int32_t i = 0; halvings > 0 && axis == AB_LIB_AFTER && i < p->ledgers; i++) {
            ab_columns_halve(p->ledger[i]->nonzero, halvings);
            ab_columns_halve(p->ledger[i]->lost, halvings);
        }
    }
}

void ab_lib_fold_step(ampprobe *p, const ab_lib_step *step) {
    const int32_t group = step->facts.group;
    ab_lib_course *course = p->course;
    open_columns(p, step->axes, course->group[group].steps);
    if (group == 0) add_course(course, course->group[0].steps, step);
    add_group(&course->group[group], step);
    if (group >= course->groups) course->groups = group + 1;
}

/* The column of the step of `group` that was folded last. */
static int column_of(ampprobe *p, int32_t axis, int32_t group) {
    ab_columns *c = &p->course->columns[axis];
    const int64_t step = p->course->group[group].steps - 1;
    if (!c->started || step < c->first) return 0;
    const int64_t column = (step - c->first) / (c->stride > 0 ? c->stride : 1);
    return (int)(column < c->count ? column : c->count - 1);
}

void ab_lib_fold_tensor(ampprobe *p, int32_t tensor, int32_t group, const ab_lib_pending *shown) {
    ab_lib_tensor *t = p->tensor[tensor];
    t->shown += shown->shown;
    t->values += shown->values;
    t->dtype = shown->dtype;
    for (int i = 0; i < AB_LIB_REASONS; i++) t->skipped[i] += shown->skipped[i];
    if (shown->nonfinite > 0) {
        if (t->overflow_steps++ == 0) t->first_overflow = p->course->group[group].steps - 1;
    }
    if (shown->counts.count == 0) return;
    const int column = column_of(p, t->axis, group);
    ab_range_step(&t->history, &shown->counts, column);
    if (!p->scaled[tensor]) return;
    ab_range_step_periods(&p->scaled[tensor]->periods, &shown->counts, column);
    add_unscaled(p->scaled[tensor], shown, p->course->group[group].step_scale, column);
}

static void add_account(ab_lib_account *into, const ab_lib_account *from) {
    into->nonzero += from->nonzero;
    into->lost += from->lost;
    into->energy += from->energy;
    into->lost_energy += from->lost_energy;
}

void ab_lib_fold_moves(ampprobe *p, int32_t ledger, int32_t group, const ab_lib_moves *moves) {
    ab_lib_ledger *l = p->ledger[ledger];
    const int column = column_of(p, AB_LIB_AFTER, group);
    const bool stopped = (double)moves->update.lost >= stopped_share * (double)moves->update.nonzero;
    if (l->dtype != moves->dtype) { /* stored in another format: what the last one lost is over */
        l->update = l->decay = (ab_lib_account){0};
        memset(l->nonzero, 0, sizeof l->nonzero);
        memset(l->lost, 0, sizeof l->lost);
        l->stopped_since = -1;
    }
    add_account(&l->update, &moves->update);
    add_account(&l->decay, &moves->decay);
    l->dtype = moves->dtype;
    l->lr = moves->lr;
    l->nonzero[column] += moves->update.nonzero;
    l->lost[column] += moves->update.lost;
    if (moves->update.nonzero == 0) return;
    if (!stopped) l->stopped_since = -1;
    if (stopped && l->stopped_since < 0) l->stopped_since = p->course->group[group].steps - 1;
}
