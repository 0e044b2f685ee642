/* One call with tensors. */
#include "probes/lib/show.h"

#include "kernels/core/text.h"
#include "probes/lib/count.h"
#include "probes/lib/device.h"
#include "probes/lib/governor.h"
#include "probes/lib/notes.h"
#include "probes/lib/things.h"

#include <stdlib.h>
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

/* Says once why tensors in CUDA memory are not counted. */
static ab_status note_device(ampprobe *p, ampprobe_tensor *t) {
    char text[600];
    if (p->device_failed && t->skipped == AMPPROBE_COUNTED) t->skipped = AMPPROBE_SKIP_DEVICE;
    if (p->device_failed || t->skipped != AMPPROBE_SKIP_DEVICE) return AB_OK;
    const char *why = ab_lib_device_missing();
    ab_text_show(text, sizeof text, "tensors in CUDA memory are skipped and counted as skipped: %s",
                 why ? why : "their address is not in a GPU's memory");
    return ab_lib_note(p, text);
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
        if (t->device == AMPPROBE_CUDA) AB_TRY(note_device(p, t));
        if (t->skipped != AMPPROBE_COUNTED) {
            note_skip(p, t);
            continue;
        }
        AB_TRY(ab_lib_tensor_of(p, t->id, slot_of(t), &index));
        *values += t->count;
    }
    return AB_OK;
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
    else if (ab_lib_wants_all(call) || (t->counted == t->count && t->count > 0))
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
    if (found > 0 && (seen->first < 0 || i < seen->first)) seen->first = i;
    if (t->nonfinite < 0) seen->exact = 0;
}

/* Whether values that belong to the finite check stay unseen. */
static bool is_unseen(const ampprobe_tensor *t) {
    return t->skipped != AMPPROBE_COUNTED && t->skipped != AMPPROBE_SKIP_EMPTY;
}

static void add_counted(ampprobe *p, const ab_lib_call *call, ampprobe_tensor *t, int32_t i,
                        ab_census *census, ampprobe_seen *seen) {
    const int64_t found = found_in(t, census);
    if (t->skipped == AMPPROBE_COUNTED) add_seen(seen, t, i, found);
    pthread_mutex_lock(&p->lock);
    add_pending(p, call, t, found, census);
    pthread_mutex_unlock(&p->lock);
}

static void count_host(ampprobe *p, const ab_lib_call *call, int32_t every, int64_t turn,
                       ampprobe_tensor *tensors, int32_t count, ampprobe_seen *seen) {
    ab_census census;
    ab_census_clear(&census);
    for (int32_t i = 0; i < count; i++) {
        ampprobe_tensor *t = &tensors[i];
        if (t->skipped != AMPPROBE_COUNTED || t->device != AMPPROBE_HOST) continue;
        count_one(call, every, turn, t, &census);
        add_counted(p, call, t, i, &census, seen);
    }
}

static void add_skipped(const ampprobe_tensor *tensors, int32_t count, ampprobe_seen *seen) {
    for (int32_t i = 0; i < count; i++) {
        if (tensors[i].skipped == AMPPROBE_COUNTED) continue;
        seen->skipped++;
        if (is_unseen(&tensors[i])) seen->exact = 0;
    }
}

/* ---- on a GPU -------------------------------------------------------------------------------- */

/* The counts of a flight are lost: nothing more is counted there. Under the lock. */
static ab_status lose(ampprobe *p, ab_lib_flight *f) {
    char text[600];
    ab_text_show(text, sizeof text, "counting in CUDA memory failed, it is skipped from here on: %s",
                 ab_error_message());
    p->device_failed = true;
    p->look[f->call.group].sampled = true;
    for (int32_t i = 0; i < f->count; i++) {
        f->tensor[i].skipped = AMPPROBE_SKIP_DEVICE;
        note_skip(p, &f->tensor[i]);
    }
    return ab_lib_note(p, text);
}

/* Adds a flight's counts; seen: of the call, with its tensors, or NULL. Under the lock. */
static void add_flight(ampprobe *p, ab_lib_flight *f, ampprobe_seen *seen) {
    ab_census census;
    for (int32_t i = 0; i < f->count; i++) {
        ampprobe_tensor *t = &f->tensor[i];
        ab_lib_device_answer(f, i, t, &census);
        const int64_t found = found_in(t, &census);
        if (seen) add_seen(seen, t, f->place[i], found);
        add_pending(p, &f->call, t, found, &census);
    }
}

/* Waits for a flight and ends it; the caller's tensors and `seen` get its results. */
static ab_status land(ampprobe *p, ab_lib_flight *f, ampprobe_tensor *tensors, ampprobe_seen *seen) {
    double seconds;
    const bool landed = ab_lib_device_wait(f, &seconds) == AB_OK;
    ab_status status = AB_OK;
    pthread_mutex_lock(&p->lock);
    if (landed)
        add_flight(p, f, seen);
    else
        status = lose(p, f);
    pthread_mutex_unlock(&p->lock);
    for (int32_t i = 0; i < f->count; i++) tensors[f->place[i]] = f->tensor[i];
    ab_lib_device_end(f, landed);
    return status;
}

ab_status ab_lib_land_all(ampprobe *p) {
    ab_status status = AB_OK;
    for (int32_t i = 0; i < p->flights; i++) {
        double seconds = 0;
        const bool landed = ab_lib_device_wait(&p->flight[i], &seconds) == AB_OK;
        if (landed)
            add_flight(p, &p->flight[i], NULL);
        else if (status == AB_OK)
            status = lose(p, &p->flight[i]);
        ab_lib_governor_gradients(p, seconds, 0);
        ab_lib_device_end(&p->flight[i], landed);
    }
    p->flights = 0;
    return status;
}

/* Keeps flights until their step is taken. Under the lock. */
static ab_status keep_flights(ampprobe *p, const ab_lib_flight *list, int32_t flights) {
    enum { MOST = 1024 };
    if (p->flights + flights > MOST) AB_TRY(ab_lib_land_all(p));
    if (p->flights + flights > p->flight_room) {
        const int32_t room = 2 * (p->flights + flights);
        ab_lib_flight *longer = realloc(p->flight, (size_t)room * sizeof *longer);
        if (!longer) return ab_fail(AB_NO_MEMORY, "out of memory for tensors on a GPU");
        p->flight = longer;
        p->flight_room = room;
    }
    memcpy(p->flight + p->flights, list, (size_t)flights * sizeof *list);
    p->flights += flights;
    return AB_OK;
}

/* Leaves the flights for later: of their values is known only how many are looked at. */
static ab_status leave_flights(ampprobe *p, const ab_lib_flight *list, int32_t flights, ampprobe_seen *seen) {
    for (int32_t k = 0; k < flights; k++)
        for (int32_t i = 0; i < list[k].count; i++) add_seen(seen, &list[k].tensor[i], list[k].place[i], 0);
    pthread_mutex_lock(&p->lock);
    const ab_status status = keep_flights(p, list, flights);
    pthread_mutex_unlock(&p->lock);
    return status;
}

/* The GPU refused to count these tensors. */
static ab_status refuse(ampprobe *p, const ab_lib_flight *f, const ampprobe_tensor *tensors) {
    char text[600];
    ab_text_show(text, sizeof text, "tensors in CUDA memory are skipped and counted as skipped: %s",
                 ab_error_message());
    pthread_mutex_lock(&p->lock);
    const ab_status status = ab_lib_note(p, text);
    for (int32_t i = 0; i < f->count; i++) note_skip(p, &tensors[f->place[i]]);
    pthread_mutex_unlock(&p->lock);
    return status;
}

/* What becomes of flights that have begun: `later`, or now. */
static ab_status receive(ampprobe *p, ab_lib_flight *list, int32_t flights, bool later,
                         ampprobe_tensor *tensors, ampprobe_seen *seen) {
    int32_t begun = 0;
    ab_status status = AB_OK;
    for (int32_t k = 0; k < flights; k++) {
        if (list[k].shown) {
            list[begun++] = list[k];
            continue;
        }
        status = refuse(p, &list[k], tensors);
        ab_lib_device_end(&list[k], false);
    }
    if (later && begun > 0) return leave_flights(p, list, begun, seen);
    for (int32_t k = 0; k < begun; k++) {
        const ab_status landed = land(p, &list[k], tensors, seen);
        if (landed != AB_OK) status = landed;
    }
    return status;
}

/* Counts the tensors of a call, those on GPUs beside those of the host. *exact: all values of all tensors
 * will have been looked at when the step is taken. */
static ab_status count_all(ampprobe *p, const ab_lib_call *call, int32_t every, int64_t turn, bool later,
                           ampprobe_tensor *tensors, int32_t count, ampprobe_seen *seen, bool *exact) {
    ab_lib_flight *list;
    int32_t flights;
    ab_status status = ab_lib_device_begin(call, every, turn, tensors, count, &list, &flights, exact);
    count_host(p, call, every, turn, tensors, count, seen);
    *exact = *exact && seen->exact;
    const ab_status received = receive(p, list, flights, later, tensors, seen);
    if (status == AB_OK) status = received;
    add_skipped(tensors, count, seen);
    for (int32_t i = 0; i < count; i++)
        *exact = *exact && (tensors[i].skipped == AMPPROBE_COUNTED || !is_unseen(&tensors[i]));
    free(list);
    return status;
}

/* What the call cost, and what the step knows of its gradients. */
static void finish(ampprobe *p, const ab_lib_call *call, const ampprobe_seen *seen, bool exact,
                   double began) {
    const double seconds = ab_lib_now() - began;
    if (!call->gradients) {
        ab_lib_governor_other(p, seconds);
        return;
    }
    ab_lib_governor_gradients(p, seconds, seen->counted);
    ab_lib_look *look = &p->look[call->group];
    if (call->flags & AMPPROBE_CHECK) look->sampled = false;
    look->looked = look->looked || seen->tensors > 0;
    look->sampled = look->sampled || !exact;
}

void ab_lib_own_arithmetic(fenv_t *callers) {
    fegetenv(callers);
    fesetenv(FE_DFL_ENV);
}

/* Gradients in CUDA memory are counted while the loop goes on, but for a step that is looked at closely. */
static bool may_wait(const ampprobe *p, const ab_lib_call *call) {
    return call->gradients && !(call->flags & AMPPROBE_CHECK) && !(p->planned & AMPPROBE_PLAN_LAYERS);
}

ab_status ab_lib_show(ampprobe *p, const ab_lib_call *call, ampprobe_tensor *tensors, int32_t count,
                      ampprobe_seen *seen) {
    const double began = ab_lib_now();
    int64_t values = 0;
    int32_t every = 1;
    bool exact;
    *seen = (ampprobe_seen){.size = sizeof *seen, .exact = 1, .first = -1};
    pthread_mutex_lock(&p->lock);
    ab_status status = sort_out(p, call, tensors, count, &values);
    const int64_t turn = p->course->group[0].steps;
    if (call->gradients && !(call->flags & AMPPROBE_ALL)) every = ab_lib_governor_stride(p, values);
    if (call->flags & AMPPROBE_CHECK) every = 0;
    if (call->gradients) p->governor.stride = every;
    const bool later = may_wait(p, call);
    pthread_mutex_unlock(&p->lock);
    if (status != AB_OK) return status;
    fenv_t callers;
    ab_lib_own_arithmetic(&callers);
    status = count_all(p, call, every, turn, later, tensors, count, seen, &exact);
    fesetenv(&callers);
    pthread_mutex_lock(&p->lock);
    finish(p, call, seen, exact, began);
    pthread_mutex_unlock(&p->lock);
    return status;
}
