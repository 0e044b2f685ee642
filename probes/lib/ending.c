#include "probes/lib/ending.h"

#include "probes/lib/governor.h"
#include "probes/lib/journal.h"
#include "probes/lib/show.h"
#include "probes/lib/steps.h"

#include <math.h>
#include <string.h>

/* ---- what is known of a step ----------------------------------------------------------------- */

/* The axes on which something waits for a step of this group. */
static int32_t axes_of(const ampprobe *p, int32_t group) {
    int32_t axes = p->moved > 0 ? 1 << AB_LIB_AFTER : 0;
    for (int32_t i = 0; i < p->waitings; i++) {
        const int32_t tensor = p->waiting[i];
        if (ab_lib_belongs(p, tensor, group) && p->pending[tensor]->counts.count > 0)
            axes |= 1 << p->tensor[tensor]->axis;
    }
    return axes;
}

/* What the counts say, which may come later than the rest. */
static void add_counts(const ampprobe *p, ab_lib_step *step) {
    const ab_lib_look *look = &p->look[step->facts.group];
    step->exact = look->looked && !look->sampled;
    step->nonfinite = look->nonfinite;
    step->axes = axes_of(p, step->facts.group);
    if (step->axes >> AB_LIB_LAYERS & 1) step->facts.flags |= AMPPROBE_LAYERS_SHOWN;
}

static ab_lib_step step_of(ampprobe *p, const ampprobe_step_facts *facts, double now) {
    const ab_lib_governor *g = &p->governor;
    const double wall = now - p->last_step_end - g->gradient_spent - g->spent - g->fixed_spent;
    ab_lib_step step = {.facts = *facts,
                        .seconds = facts->group != 0    ? 0
                                   : facts->seconds > 0 ? facts->seconds
                                                        : fmax(0, wall),
                        .probe_seconds = p->course->probe_seconds};
    add_counts(p, &step);
    return step;
}

/* Folds what waits for this group; the rest waits on. */
static void fold_pending(ampprobe *p, int32_t group) {
    int32_t left = 0;
    for (int32_t i = 0; i < p->waitings; i++) {
        const int32_t tensor = p->waiting[i];
        ab_lib_pending *shown = p->pending[tensor];
        if (!ab_lib_belongs(p, tensor, group)) {
            p->waiting[left++] = tensor;
            continue;
        }
        ab_lib_fold_tensor(p, tensor, group, shown);
        memset(shown->counts.exponent + shown->counts.low, 0,
               (size_t)(shown->counts.high - shown->counts.low) * sizeof *shown->counts.exponent);
        memset(shown, 0, offsetof(ab_lib_pending, counts) + offsetof(ab_range_counts, exponent));
    }
    p->waitings = left;
    for (int32_t i = 0; i < p->moved; i++)
        ab_lib_fold_moves(p, p->thing[p->moves[i].thing].ledger, group, &p->moves[i]);
    p->moved = 0;
    p->look[group] = (ab_lib_look){false, false, 0};
}

/* Whether something of a step may be wrong. */
static bool is_sick(const ab_lib_step *step) {
    const bool lost = step->facts.flags & AMPPROBE_HAS_LOSS && !isfinite(step->facts.loss);
    return lost || ab_lib_skipped(step) || step->nonfinite > 0;
}

/* ---- taking ---------------------------------------------------------------------------------- */

static ab_status take(ampprobe *p, const ab_lib_step *step) {
    AB_TRY(ab_lib_journal_step(p, step));
    ab_lib_fold_step(p, step);
    fold_pending(p, step->facts.group);
    return AB_OK;
}

static void hold(ampprobe *p, const ab_lib_step *step) { p->late[p->lates++] = *step; }

ab_status ab_lib_catch_up(ampprobe *p) {
    const int32_t lates = p->lates;
    if (lates == 0) return AB_OK;
    AB_TRY(ab_lib_land_all(p));
    p->lates = 0;
    for (int32_t i = 0; i < lates; i++) {
        ab_lib_step *step = &p->late[i];
        add_counts(p, step);
        AB_TRY(take(p, step));
        if (step->facts.group == 0) p->governor.skipped_last = ab_lib_skipped(step);
        if (is_sick(step)) ab_lib_governor_sick(p);
    }
    return AB_OK;
}

/* A step is held if a GPU counts for it, or for one before it. */
static bool must_wait(const ampprobe *p) { return p->flights > 0 || p->lates > 0; }

static bool is_held(const ampprobe *p, int32_t group) {
    for (int32_t i = 0; i < p->lates; i++)
        if (p->late[i].facts.group == group) return true;
    return false;
}

ab_status ab_lib_end_step(ampprobe *p, ampprobe_step_facts *facts) {
    if (is_held(p, facts->group)) AB_TRY(ab_lib_catch_up(p));
    const double began = ab_lib_now();
    const int shown = p->planned;
    ab_lib_governor_caller(p, facts->spent, shown);
    const ab_lib_step step = step_of(p, facts, began);
    if (must_wait(p))
        hold(p, &step);
    else
        AB_TRY(take(p, &step));
    if (is_sick(&step)) ab_lib_governor_sick(p);
    if (facts->group == 0)
        ab_lib_governor_step(p, step.seconds, (step.facts.flags & AMPPROBE_LAYERS_SHOWN) != 0,
                             ab_lib_skipped(&step));
    if (facts->group == 0) p->last_step_end = began;
    ab_lib_governor_outside(p, ab_lib_now() - began, shown); /* of the next step, which it is in */
    facts->plan = p->planned;
    return AB_OK;
}
