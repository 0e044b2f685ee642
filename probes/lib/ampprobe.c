/* The public functions of libampprobe: checks of arguments, states, the lock. What they do is in the other
 * files of this folder. */
#define _GNU_SOURCE
#include "include/ampprobe.h"

#include "kernels/core/text.h"
#include "probes/lib/count.h"
#include "probes/lib/device.h"
#include "probes/lib/document.h"
#include "probes/lib/ending.h"
#include "probes/lib/governor.h"
#include "probes/lib/handle.h"
#include "probes/lib/journal.h"
#include "probes/lib/latest.h"
#include "probes/lib/named_facts.h"
#include "probes/lib/new.h"
#include "probes/lib/notes.h"
#include "probes/lib/record_text.h"
#include "probes/lib/show.h"
#include "probes/lib/steps.h"
#include "probes/lib/things.h"
#include "probes/lib/updates.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static const double write_every = 60; /* seconds; and not more often than 1000 times what it takes */
static const double write_share = 0.001;
static const int64_t journal_room = 8 << 20; /* bytes of steps before there is a new snapshot */

/* ---- statuses -------------------------------------------------------------------------------- */

int ampprobe_abi(void) { return AMPPROBE_ABI; }

const char *ampprobe_version(void) { return AMPPROBE_VERSION; }

const char *ampprobe_error(void) { return ab_error_message(); }

const char *ampprobe_status_text(int status) {
    static const char *const texts[] = {
        [AMPPROBE_OK] = "ok",
        [AMPPROBE_ARGUMENT] = "wrong argument",
        [AMPPROBE_OUTPUT] = "cannot write the record",
        [AMPPROBE_MEMORY] = "out of memory",
        [AMPPROBE_OFF] = "the probe is off",
        [AMPPROBE_FORKED] = "the probe belongs to another process",
        [AMPPROBE_INPUT] = "bad input file",
    };
    return status >= 0 && status < (int)AB_COUNT_OF(texts) ? texts[status] : "unknown status";
}

static int public_status(ab_status status) {
    switch ((int)status) {
    case AB_OK:
        return AMPPROBE_OK;
    case AB_CONFIG:
    case AB_USAGE:
        return AMPPROBE_ARGUMENT;
    case AB_NO_MEMORY:
        return AMPPROBE_MEMORY;
    case AB_INPUT:
        return AMPPROBE_INPUT;
    default:
        return AMPPROBE_OUTPUT;
    }
}

static int argument(const char *message) { return public_status(ab_fail(AB_CONFIG, "%s", message)); }

/* Whether the probe can be used: a state, with its message. */
static int enter(ampprobe *p) {
    char failure[AB_LIB_FAILURE];
    if (!p) return argument("the probe is NULL");
    if (p->owner != getpid()) {
        (void)ab_fail(AB_OUTPUT, "%s: the probe belongs to process %ld", p->path, (long)p->owner);
        return AMPPROBE_FORKED;
    }
    pthread_mutex_lock(&p->lock);
    const int state = p->state;
    if (state != AMPPROBE_OK) memcpy(failure, p->failure, sizeof failure);
    pthread_mutex_unlock(&p->lock);
    if (state != AMPPROBE_OK) (void)ab_fail(AB_OUTPUT, "the probe is off: %s", ab_text_brief(failure, 400));
    return state;
}

int ampprobe_state(ampprobe *probe) { return enter(probe); }

/* The public status of what was done under the lock. A record that cannot be written turns the probe off. */
static int leave(ampprobe *p, ab_status status) {
    const int result = public_status(status);
    if (result == AMPPROBE_OUTPUT && p->state == AMPPROBE_OK) {
        ab_text_show(p->failure, sizeof p->failure, "%s", ab_error_message());
        p->state = AMPPROBE_OFF;
        p->planned = 0;
        ab_lib_journal_end(p, false);
    }
    pthread_mutex_unlock(&p->lock);
    return result;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void make_id(char id[17]) {
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number)
        number = (uint64_t)(ab_lib_now() * 1e9) ^ (uint64_t)getpid() << 32;
    ab_text_exact(id, 17, "%016llx", (unsigned long long)number);
}

static void make_started(char text[32]) {
    struct tm tm;
    const time_t now = time(NULL);
    if (!gmtime_r(&now, &tm) || strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0) text[0] = '\0';
}

/* Reads numbers as JSON writes them, whatever the process's locale is. */
static ab_status with_plain_numbers(ab_status (*read)(ampprobe *p, const char *a, const char *b), ampprobe *p,
                                    const char *a, const char *b) {
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0),
             before = plain ? uselocale(plain) : (locale_t)0;
    const ab_status status = read(p, a, b);
    if (plain) {
        uselocale(before);
        freelocale(plain);
    }
    return status;
}

static ab_status read_config(ampprobe *p, const char *config, const char *unused) {
    (void)unused;
    if (config) AB_TRY(ab_lib_config_read(&p->config, config));
    return ab_range_find_bins(p->config.half, &p->bins);
}

static ab_status write_document(ampprobe *p) {
    const double began = ab_lib_now();
    AB_TRY(ab_lib_document_write(p));
    const double now = ab_lib_now();
    p->write_seconds = now - began;
    p->next_write = now + fmax(write_every, p->write_seconds / write_share);
    return AB_OK;
}

static ab_status begin(ampprobe *p, const char *config) {
    AB_TRY(with_plain_numbers(read_config, p, config, NULL));
    make_id(p->id);
    make_started(p->started);
    ab_lib_governor_init(p);
    AB_TRY(ab_lock_file("probe", p->path, &p->place));
    ab_lib_latest_end(p->path); /* of a run that was killed */
    AB_TRY(write_document(p));
    AB_TRY(ab_lib_journal_snapshot(p));
    p->opened = p->last_step_end = ab_lib_now();
    return AB_OK;
}

int ampprobe_open(const char *path, const char *config, ampprobe **probe) {
    if (!probe) return argument("the place for the probe is NULL");
    *probe = NULL;
    if (!path || !path[0]) return argument("the path is empty");
    ab_status status = ab_lib_new(path, probe);
    if (status == AB_OK && !ab_outfile_replaces(path))
        status = ab_fail(AB_OUTPUT, "%s: cannot write: a probe needs a file that it can replace", path);
    if (status == AB_OK) status = begin(*probe, config);
    if (status == AB_OK) return AMPPROBE_OK;
    if (*probe) {
        ab_lib_journal_end(*probe, true);
        ab_lock_release(&(*probe)->place);
    }
    ab_lib_free(*probe);
    *probe = NULL;
    return public_status(status);
}

static int close_own(ampprobe *p) {
    int result = enter(p);
    pthread_mutex_lock(&p->lock);
    if (result == AMPPROBE_OK) {
        p->complete = true;
        ab_status status = ab_lib_catch_up(p);
        if (status == AB_OK) status = ab_lib_document_write(p);
        if (status == AB_OK) ab_lib_journal_end(p, true);
        result = public_status(status);
    }
    if (ab_lib_land_all(p) != AB_OK && result == AMPPROBE_OK) result = AMPPROBE_OUTPUT;
    ab_lib_journal_end(p, false);
    ab_lock_release(&p->place);
    pthread_mutex_unlock(&p->lock);
    return result;
}

int ampprobe_close(ampprobe *probe) {
    int result = AMPPROBE_OK;
    if (!probe) return AMPPROBE_OK;
    if (probe->owner == getpid()) {
        result = close_own(probe);
    } else { /* a child: its copies of the files are closed, and nothing is written or removed */
        result = enter(probe);
        ab_lib_journal_end(probe, false);
        if (probe->place.path) close(probe->place.file);
        free(probe->place.path);
    }
    ab_lib_free(probe);
    return result;
}

int ampprobe_flush(ampprobe *probe) {
    const int state = enter(probe);
    if (state != AMPPROBE_OK) return state;
    pthread_mutex_lock(&probe->lock);
    ab_status status = ab_lib_catch_up(probe);
    if (status == AB_OK) status = write_document(probe);
    return leave(probe, status);
}

/* ---- settings and notes ---------------------------------------------------------------------- */

static ab_status set_key(ampprobe *p, const char *key, const char *value) {
    const double since = p->config.optimizer[0].since;
    AB_TRY(ab_lib_config_set(&p->config, key, value, true));
    if (p->config.optimizer[0].since > since) ab_lib_governor_stage(p);
    return ab_lib_journal_key(p, key, value);
}

int ampprobe_set(ampprobe *probe, const char *key, const char *value) {
    const int state = enter(probe);
    if (state != AMPPROBE_OK) return state;
    if (!key || !value) return argument("the key or its value is NULL");
    pthread_mutex_lock(&probe->lock);
    return leave(probe, with_plain_numbers(set_key, probe, key, value));
}

int ampprobe_note(ampprobe *probe, const char *text) {
    enum { LONGEST = 2000 };
    const int state = enter(probe);
    if (state != AMPPROBE_OK) return state;
    if (!text || strlen(text) > LONGEST) return argument("a note has at most 2000 bytes");
    pthread_mutex_lock(&probe->lock);
    return leave(probe, ab_lib_note(probe, text));
}

static ab_status add_fact(ampprobe *p, const char *name, const char *place, int64_t step, double value) {
    const double kept = isfinite(value) ? value : (double)NAN;
    ab_lib_fact_add(p, name, place, step, kept);
    return ab_lib_journal_fact(p, name, place, step, kept);
}

int ampprobe_fact(ampprobe *probe, const char *name, const char *place, int64_t step, double value) {
    const int state = enter(probe);
    if (state != AMPPROBE_OK) return state;
    const ab_status status = ab_lib_fact_check(name, place, step);
    if (status != AB_OK) return public_status(status);
    pthread_mutex_lock(&probe->lock);
    return leave(probe, add_fact(probe, name, place, step, value));
}

/* ---- things ---------------------------------------------------------------------------------- */

static ab_status describe(ampprobe *p, const ampprobe_thing *things, int32_t count, int32_t *ids) {
    for (int32_t i = 0; i < count; i++) {
        int32_t id = -1;
        AB_TRY(ab_lib_thing_take(p, &things[i], &id));
        AB_TRY(ab_lib_journal_thing(p, id));
        if (ids) ids[i] = id;
    }
    return AB_OK;
}

int ampprobe_describe(ampprobe *probe, const ampprobe_thing *things, int32_t count, int32_t *ids) {
    const int state = enter(probe);
    if (state != AMPPROBE_OK) return state;
    const ab_status status = ab_lib_things_check(things, count);
    if (status != AB_OK) return public_status(status);
    pthread_mutex_lock(&probe->lock);
    return leave(probe, describe(probe, things, count, ids));
}

/* ---- values ---------------------------------------------------------------------------------- */

static int check_list(ampprobe *p, int32_t group, const ampprobe_tensor *tensors, int32_t count) {
    const int state = enter(p);
    if (state != AMPPROBE_OK) return state;
    if (group < 0 || group >= AB_LIB_GROUPS) return argument("group: expected 0 to 15");
    if (count < 0 || (count > 0 && !tensors)) return argument("tensors: expected an array and its length");
    pthread_mutex_lock(&p->lock);
    return leave(p, ab_lib_catch_up(p)); /* what is shown now belongs to the next step */
}

static int show(ampprobe *p, const ab_lib_call *call, ampprobe_tensor *tensors, int32_t count,
                ampprobe_seen *seen) {
    ampprobe_seen found;
    const int state = check_list(p, call->group, tensors, count);
    if (state != AMPPROBE_OK) return state;
    if (seen && seen->size != sizeof *seen) return argument("seen.size is not that of this library");
    if (call->flags & ~(uint32_t)(AMPPROBE_ALL | AMPPROBE_CHECK | AMPPROBE_FINITE))
        return argument("flags: unknown bits");
    const ab_status status = ab_lib_show(p, call, tensors, count, &found);
    if (status == AB_OK && seen) *seen = found;
    return public_status(status);
}

int ampprobe_gradients(ampprobe *probe, int32_t group, ampprobe_tensor *tensors, int32_t count,
                       uint32_t flags, ampprobe_seen *seen) {
    const ab_lib_call call = {group, flags, true};
    return show(probe, &call, tensors, count, seen);
}

int ampprobe_see(ampprobe *probe, ampprobe_tensor *tensors, int32_t count, uint32_t flags,
                 ampprobe_seen *seen) {
    const ab_lib_call call = {0, flags, false};
    return show(probe, &call, tensors, count, seen);
}

/* The number of a layer's output, described now if it is new. */
static ab_status named(ampprobe *p, const char *name, const ampprobe_tensor *tensor, int32_t *id) {
    const ampprobe_thing about = {.size = sizeof about,
                                  .name = name,
                                  .dtype = tensor->dtype,
                                  .dimensions = 1,
                                  .shape = {tensor->count > 0 ? tensor->count : 0}};
    *id = ab_lib_thing_find(p, name, false);
    return *id >= 0 ? AB_OK : describe(p, &about, 1, id);
}

int ampprobe_see_named(ampprobe *probe, const char *name, ampprobe_tensor *tensor) {
    const int state = check_list(probe, 0, tensor, 1);
    if (state != AMPPROBE_OK) return state;
    const ampprobe_thing about = {.size = sizeof about, .name = name};
    ab_status status = ab_lib_things_check(&about, 1);
    if (status != AB_OK) return public_status(status);
    pthread_mutex_lock(&probe->lock);
    status = named(probe, name, tensor, &tensor->id);
    const int result = leave(probe, status);
    return result == AMPPROBE_OK ? ampprobe_see(probe, tensor, 1, 0, NULL) : result;
}

/* ---- updates --------------------------------------------------------------------------------- */

static bool is_weight(const ampprobe *p, ampprobe_tensor *t) {
    t->skipped = ab_lib_is_known(p, t) ? (int32_t)ab_lib_unreadable(t) : AMPPROBE_SKIP_ID;
    return t->skipped == AMPPROBE_COUNTED && t->role == AMPPROBE_WEIGHT;
}

static ab_status keep_samples(ampprobe *p, ampprobe_tensor *tensors, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (is_weight(p, &tensors[i])) AB_TRY(ab_lib_update_before(p, &tensors[i]));
    return AB_OK;
}

int ampprobe_before_update(ampprobe *probe, int32_t group, ampprobe_tensor *tensors, int32_t count) {
    const int state = check_list(probe, group, tensors, count);
    if (state != AMPPROBE_OK) return state;
    const double began = ab_lib_now();
    pthread_mutex_lock(&probe->lock);
    fenv_t callers;
    ab_lib_own_arithmetic(&callers);
    const ab_status status = keep_samples(probe, tensors, count);
    fesetenv(&callers);
    ab_lib_governor_other(probe, ab_lib_now() - began);
    return leave(probe, status);
}

/* Where the tensors of a thing are in the array: gradient, states 0 and 1. One pass for all things, which
 * come together in the array; `from`: where to begin. */
static void find_company(const ampprobe *p, ampprobe_tensor *tensors, int32_t count, int32_t id,
                         const ampprobe_tensor *with[3]) {
    with[0] = with[1] = with[2] = NULL;
    for (int32_t i = 0; i < count; i++) {
        ampprobe_tensor *t = &tensors[i];
        if (t->id != id || !ab_lib_is_known(p, t) || ab_lib_unreadable(t) != AMPPROBE_COUNTED) continue;
        if (t->role == AMPPROBE_UNSCALED_GRADIENT) with[0] = t;
        if (t->role == AMPPROBE_OPTIMIZER_STATE && t->slot < 2) with[1 + t->slot] = t;
    }
}

enum { COMPANY = 16 }; /* a weight's gradient and states are at most so far from it in the array */

static ab_status compare_samples(ampprobe *p, int32_t group, ampprobe_tensor *tensors, int32_t count) {
    const ampprobe_tensor *with[3];
    for (int32_t i = 0; i < count; i++) {
        if (!is_weight(p, &tensors[i])) continue;
        const int32_t first = i > COMPANY ? i - COMPANY : 0, last = count - i > COMPANY ? i + COMPANY : count;
        find_company(p, tensors + first, last - first, tensors[i].id, with);
        AB_TRY(ab_lib_update_after(p, group, &tensors[i], with));
    }
    return AB_OK;
}

int ampprobe_after_update(ampprobe *probe, int32_t group, ampprobe_tensor *tensors, int32_t count) {
    const int state = check_list(probe, group, tensors, count);
    if (state != AMPPROBE_OK) return state;
    const double began = ab_lib_now();
    pthread_mutex_lock(&probe->lock);
    fenv_t callers;
    ab_lib_own_arithmetic(&callers);
    const ab_status status = compare_samples(probe, group, tensors, count);
    fesetenv(&callers);
    ab_lib_governor_other(probe, ab_lib_now() - began);
    return leave(probe, status);
}

/* ---- steps ----------------------------------------------------------------------------------- */

int ampprobe_plan(ampprobe *probe, int64_t step) {
    (void)step; /* the probe counts its steps itself; for callers that keep the number, and for later */
    if (!probe || probe->owner != getpid()) return 0;
    pthread_mutex_lock(&probe->lock);
    const int plan = probe->planned;
    pthread_mutex_unlock(&probe->lock);
    return plan;
}

int ampprobe_spent(ampprobe *probe, double seconds) {
    const int state = enter(probe);
    if (state != AMPPROBE_OK) return state;
    if (!(seconds >= 0) || !isfinite(seconds)) return argument("seconds: expected a finite number from 0 on");
    pthread_mutex_lock(&probe->lock);
    ab_lib_governor_gradients(probe, seconds, 0);
    return leave(probe, AB_OK);
}

/* The record on disk, when it is time. */
static ab_status keep_up(ampprobe *p, double now) {
    const bool full = p->journal_bytes > journal_room + 3 * p->snapshot_bytes;
    if (full) AB_TRY(ab_lib_journal_snapshot(p));
    return full || now >= p->next_write ? write_document(p) : AB_OK;
}

/* Several steps with one write to the journal. */
static ab_status end_steps(ampprobe *p, ampprobe_step_facts *facts, int32_t count) {
    ab_status status = AB_OK;
    ab_lib_journal_hold(p);
    for (int32_t i = 0; i < count && status == AB_OK; i++) status = ab_lib_end_step(p, &facts[i]);
    const ab_status written = ab_lib_journal_release(p);
    AB_TRY(status);
    AB_TRY(written);
    ab_lib_latest_taken(p, facts, count);
    return keep_up(p, ab_lib_now());
}

int ampprobe_steps(ampprobe *probe, ampprobe_step_facts *facts, int32_t count) {
    if (count < 0 || (count > 0 && !facts)) return argument("facts: expected an array and its length");
    for (int32_t i = 0; i < count; i++)
        if (facts[i].size == sizeof *facts) facts[i].plan = 0; /* a probe that is off wants nothing */
    const int state = enter(probe);
    if (state != AMPPROBE_OK) return state;
    for (int32_t i = 0; i < count; i++) {
        const char *wrong = ab_lib_step_wrong(&facts[i]);
        if (wrong) return argument(wrong);
    }
    pthread_mutex_lock(&probe->lock);
    fenv_t callers;
    ab_lib_own_arithmetic(&callers);
    const ab_status status = end_steps(probe, facts, count);
    fesetenv(&callers);
    return leave(probe, status);
}

int ampprobe_latest(ampprobe *probe, int32_t count, ampprobe_step_facts **facts) {
    if (facts) *facts = NULL;
    const int state = enter(probe);
    if (state != AMPPROBE_OK) return state;
    if (!facts) return argument("facts is NULL");
    if (count < 1 || count > AB_LIB_MOST_LATEST) return argument("count: expected 1 to 4096");
    pthread_mutex_lock(&probe->lock);
    const bool first = !probe->latest;
    if (first) *facts = ab_lib_latest_make(probe, count);
    const int result = leave(probe, AB_OK);
    return first ? result : argument("ampprobe_latest was called before");
}

int ampprobe_step(ampprobe *probe, ampprobe_step_facts *facts) {
    return facts ? ampprobe_steps(probe, facts, 1) : argument("facts is NULL");
}

/* ---- cost ------------------------------------------------------------------------------------ */

static int64_t memory_of(const ampprobe *p) {
    size_t scaled = 0;
    const size_t tensor = sizeof(ab_lib_tensor) + sizeof(ab_lib_pending);
    const size_t ledger = sizeof(ab_lib_ledger) + sizeof(ab_lib_sample);
    const size_t things = (size_t)p->thing_room * sizeof *p->thing + (size_t)p->names * sizeof *p->by_name;
    for (int32_t i = 0; i < p->tensors; i++) scaled += p->scaled[i] ? sizeof *p->scaled[i] : 0;
    return (int64_t)(sizeof *p + sizeof *p->course + sizeof *p->facts + (size_t)p->tensors * tensor + scaled +
                     (size_t)p->ledgers * ledger + things + p->buffer_room + p->latest_bytes +
                     (size_t)p->move_room * sizeof *p->moves);
}

int ampprobe_costs(ampprobe *probe, ampprobe_cost *cost) {
    const int state = enter(probe);
    if (state != AMPPROBE_OK) return state;
    if (!cost || cost->size != sizeof *cost) return argument("cost.size is not that of this library");
    pthread_mutex_lock(&probe->lock);
    const ab_lib_course *course = probe->course;
    *cost = (ampprobe_cost){.size = sizeof *cost,
                            .stride = probe->governor.stride,
                            .probe_seconds = course->probe_seconds,
                            .run_seconds = course->run_seconds,
                            .steps = ab_lib_ended(probe),
                            .layer_steps = course->layer_steps,
                            .memory_bytes = memory_of(probe)};
    return leave(probe, AB_OK);
}

/* ---- recovery -------------------------------------------------------------------------------- */

int ampprobe_recover(const char *path) {
    if (!path || !path[0]) return argument("the path is empty");
    return public_status(ab_lib_record_recover(path));
}
