/* One call with tensors. */
#include "probes/lib/show.h"

#include "probes/lib/count.h"
#include "probes/lib/governor.h"
#include "probes/lib/things.h"

#include <string.h>

static int32_t slot_of(const ampprobe_tensor *t) {
    return t->role == AMPPROBE_OPTIMIZER_STATE ? t->role + t->slot : t->role;
}

static bool is_of_layer(int32_t role) {
    return role == AMPPROBE_ACTIVATION || role == AMPPROBE_ACTIVATION_GRADIENT;
}

bool ab_lib_is_known(const ampprobe *p, const ampprobe_tensor *t) {
    if (t->id < 0 || t->id >= p->things || t->role < 0 || t->role > AMPPROBE_OPTIMIZER_STATE) return false;
    if (t->role == AMPPROBE_OPTIMIZER_STATE && (t->slot < 0 || t->slot >= AB_LIB_STATES)) return false;
    return ((p->thing[t->id].flags & AMPPROBE_PARAMETER) == 0) == is_of_layer(t->role);
}

static bool is_gradient(int32_t role) {
    return role == AMPPROBE_WEIGHT_GRADIENT || role == AMPPROBE_UNSCALED_GRADIENT;
}

/* Notes why a tensor is not counted, where that is not what always happens. */
static void note_skip(ampprobe *p, const ampprobe_tensor *t) {
    int32_t index = -1;
    if (t->skipped == AMPPROBE_SKIP_EMPTY || t->skipped == AMPPROBE_SKIP_ID) return;
    if (ab_lib_tensor_of(p, t->id, slot_of(t), &index) != AB_OK) return;
    ab_lib_pending *shown = ab_lib_wait(p, index);
    shown->dtype = t->dtype;
    shown->skipped[t->skipped]++;
}

/* Sorts out what cannot be counted; returns the number of values of the others, or a failure. */
static ab_status sort_out(ampprobe *p, const ab_lib_call *call, ampprobe_tensor *tensors, int32_t count,
                          int64_t *values) {
    int32_t index = -1;
    *values = 0;
    for (int32_t i = 0; i < count; i++) {
        ampprobe_tensor *t = &tensors[i];
        t->counted = 0;
        t->nonfinite = -1;
        t->skipped = AMPPROBE_SKIP_ID;
        if (!ab_lib_is_known(p, t) || (call->gradients && !is_gradient(t->role))) continue;
        t->skipped = (int32_t)ab_lib_unreadable(t);
        if (t->skipped != AMPPROBE_COUNTED) {
            note_skip(p, t);
            continue;
        }
        AB_TRY(ab_lib_tensor_of(p, t->id, slot_of(t), &index));
        *values += t->count;
    }
    return AB_OK;
}

static bool wants_all(const ab_lib_call *call) {
    return (call->flags & (AMPPROBE_ALL | AMPPROBE_CHECK | AMPPROBE_FINITE)) != 0;
}

static int64_t nonfinite_of(const ab_census *census) {
    return census->nan + census->pos_inf + census->neg_inf;
}

/* Counts one tensor; no lock is held. `every` 0: no census. */
static void count_one(const ab_lib_call *call, int32_t every, int64_t turn, ampprobe_tensor *t,
                      ab_census *census) {
    if (every > 0) t->counted = ab_lib_census(t, every, turn, census);
    /* the census takes fp64 as fp32, whose range is smaller */
    if (t->counted == t->count && t->dtype != AMPPROBE_FP64)
        t->nonfinite = nonfinite_of(census);
    else if (wants_all(call) || (t->counted == t->count && t->count > 0))
        t->nonfinite = ab_lib_nonfinite(t);
    if (t->counted == 0 && t->nonfinite < 0) t->skipped = AMPPROBE_SKIP_BUDGET;
}

/* Values known not to be finite: of all, or of those sampled. */
static int64_t found_in(const ampprobe_tensor *t, const ab_census *census) {
    if (t->nonfinite >= 0) return t->nonfinite;
    return t->dtype == AMPPROBE_FP64 ? 0 : nonfinite_of(census);
}

static void add_pending(ampprobe *p, const ab_lib_call *call, const ampprobe_tensor *t, int64_t found,
                        ab_census *census) {
    if (t->counted == 0 && found == 0) return;
    ab_lib_pending *shown = ab_lib_wait(p, p->thing[t->id].tensor[slot_of(t)]);
    shown->dtype = t->dtype;
    shown->nonfinite += found;
    shown->shown += t->counted > 0;
    shown->values += t->counted > 0 ? t->count : 0;
    ab_range_take(&p->bins, census, &shown->counts);
    if (is_gradient(t->role)) p->look[call->group].nonfinite += found;
}

static void add_seen(ampprobe_seen *seen, const ampprobe_tensor *t, int32_t i, int64_t found) {
    seen->tensors++;
    seen->values += t->count;
    seen->counted += t->counted;
    seen->nonfinite += found;
    seen->overflowed += found > 0;
    if (found > 0 && seen->first < 0) seen->first = i;
    if (t->nonfinite < 0) seen->exact = 0;
}

/* Whether values that belong to the finite check stay unseen. */
static bool is_unseen(const ampprobe_tensor *t) {
    return t->skipped != AMPPROBE_COUNTED && t->skipped != AMPPROBE_SKIP_EMPTY;
}

static void count_all(ampprobe *p, const ab_lib_call *call, int32_t every, int64_t turn,
                      ampprobe_tensor *tensors, int32_t count, ampprobe_seen *seen) {
    ab_census census;
    ab_census_clear(&census);
    for (int32_t i = 0; i < count; i++) {
        ampprobe_tensor *t = &tensors[i];
        if (t->skipped == AMPPROBE_COUNTED) {
            count_one(call, every, turn, t, &census);
            const int64_t found = found_in(t, &census);
            if (t->skipped == AMPPROBE_COUNTED) add_seen(seen, t, i, found);
            pthread_mutex_lock(&p->lock);
            add_pending(p, call, t, found, &census);
            pthread_mutex_unlock(&p->lock);
        }
        if (t->skipped == AMPPROBE_COUNTED) continue;
        seen->skipped++;
        if (is_unseen(t)) seen->exact = 0;
    }
}

/* What the call cost, and what the step knows of its gradients. */
static void finish(ampprobe *p, const ab_lib_call *call, const ampprobe_seen *seen, double began) {
    const double seconds = ab_lib_now() - began;
    if (!call->gradients) {
        ab_lib_governor_other(p, seconds);
        return;
    }
    ab_lib_governor_gradients(p, seconds, seen->counted);
    ab_lib_look *look = &p->look[call->group];
    if (call->flags & AMPPROBE_CHECK) look->sampled = false;
    look->looked = look->looked || seen->tensors > 0;
    look->sampled = look->sampled || !seen->exact;
}

void ab_lib_own_arithmetic(fenv_t *callers) {
    fegetenv(callers);
    fesetenv(FE_DFL_ENV);
}

ab_status ab_lib_show(ampprobe *p, const ab_lib_call *call, ampprobe_tensor *tensors, int32_t count,
                      ampprobe_seen *seen) {
    const double began = ab_lib_now();
    int64_t values = 0;
    int32_t every = 1;
    *seen = (ampprobe_seen){.size = sizeof *seen, .exact = 1, .first = -1};
    pthread_mutex_lock(&p->lock);
    const ab_status status = sort_out(p, call, tensors, count, &values);
    const int64_t turn = p->course->group[0].steps;
    if (call->gradients && !(call->flags & AMPPROBE_ALL)) every = ab_lib_governor_stride(p, values);
    if (call->flags & AMPPROBE_CHECK) every = 0;
    if (call->gradients) p->governor.stride = every;
    pthread_mutex_unlock(&p->lock);
    if (status != AB_OK) return status;
    fenv_t callers;
    ab_lib_own_arithmetic(&callers);
    count_all(p, call, every, turn, tensors, count, seen);
    fesetenv(&callers);
    pthread_mutex_lock(&p->lock);
    finish(p, call, seen, began);
    pthread_mutex_unlock(&p->lock);
    return AB_OK;
}
