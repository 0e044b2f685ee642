/* Origin of non-finite values: the first op of a step that produces a non-finite value from finite inputs,
 * the magnitudes of its tensor in the steps before, and the propagation from there: ops that pass it on, and
 * ops that remove it (a maximum, relu, a mask).
 *
 * Observes the tensors written by ops and casts of a probed step. A step that was not examined and ends with
 * a non-finite loss or gradient is replayed: the first 64, then the 128th, 256th ... of them. Overflows under
 * a dynamic loss scale are expected. Infinities written by a mask on purpose are not events. Causes are
 * determined in origin_cause.c. Events, flows and histories have fixed sizes. */
#include "probes/origin/origin.h"

#include "kernels/core/text.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ------------------------------------------------------------------------------------ */

static void destroy(void *state) {
    ab_origin *o = state;
    if (!o) return;
    free(o->known);
    free(o->site);
    free(o->update);
    free(o);
}

static ab_status create(const ab_probe_setup *setup, void **state) {
    ab_origin *o = calloc(1, sizeof *o);
    if (o) o->update = calloc((size_t)setup->threads + 1, sizeof *o->update);
    if (!o || !o->update) {
        destroy(o);
        return ab_fail(AB_NO_MEMORY, "probe origin: out of memory");
    }
    o->param = setup->param;
    o->accumulate = setup->accumulate;
    o->scale_reacts = setup->scale_reacts;
    o->governed = setup->governed;
    o->threads = setup->threads;
    *state = o;
    return AB_OK;
}

/* ---- cached extremes of tensors -------------------------------------------------------------- */

static size_t hash_of(uint64_t key) {
    key ^= key >> 31;
    key *= 0x9e3779b97f4a7c15u;
    return (size_t)(key >> 20);
}

/* Returns the entry of a tensor, or a free one; NULL if the table is full. */
static ab_origin_known *known_slot(const ab_origin *o, const ab_tensor *tensor) {
    const size_t mask = (size_t)o->known_room - 1;
    size_t at = hash_of((uint64_t)(uintptr_t)tensor) & mask;
    for (int i = 0; i < o->known_room; i++, at = (at + 1) & mask)
        if (!o->known[at].tensor || o->known[at].tensor == tensor) return &o->known[at];
    return NULL;
}

static void grow_known(ab_origin *o) {
    if (4 * (o->known_used + 1) <= 3 * o->known_room) return;
    ab_origin old = *o;
    int room = old.known_room ? 2 * old.known_room : 256;
    ab_origin_known *more = calloc((size_t)room, sizeof *more);
    if (!more) return;
    o->known = more;
    o->known_room = room;
    for (int i = 0; i < old.known_room; i++)
        if (old.known[i].tensor) *known_slot(o, old.known[i].tensor) = old.known[i];
    free(old.known);
}

static const ab_origin_known *find_known(const ab_origin *o, const ab_tensor *tensor) {
    const ab_origin_known *found = o->known_room ? known_slot(o, tensor) : NULL;
    return found && found->tensor && found->sweep == o->sweep ? found : NULL;
}

/* If out of memory, a tensor is examined again whenever it is read. */
static void remember(ab_origin *o, const ab_tensor *tensor, const ab_origin_known *about) {
    grow_known(o);
    ab_origin_known *to = o->known_room ? known_slot(o, tensor) : NULL;
    if (!to) return;
    o->known_used += !to->tensor;
    *to = *about;
    to->tensor = tensor;
    to->sweep = o->sweep;
}

/* Looks at the tensors that an op, a cast or a sum read, if they are not known, and at those it wrote, all at
 * once: a device is asked once. Those it wrote are not remembered yet. */
static void look_at(ab_origin *o, const ab_tensor *const *read, int reads, ab_origin_known *in,
                    const ab_tensor *const *wrote, int writes, ab_origin_known *out) {
    enum { MOST_TENSORS = 4 * (AB_MAX_INPUTS + AB_MAX_PARAMS) + 4 };
    const ab_tensor *tensor[MOST_TENSORS] = {NULL};
    ab_origin_known *about[MOST_TENSORS];
    ab_tensor_extremes found[MOST_TENSORS];
    int n = 0;
    for (int i = 0; i < reads; i++) {
        const ab_origin_known *known = find_known(o, read[i]);
        in[i] = known ? *known : (ab_origin_known){.tensor = read[i]};
        if (!known) about[n] = &in[i], tensor[n++] = read[i];
    }
    const int fresh = n;
    for (int i = 0; i < writes; i++) {
        out[i] = (ab_origin_known){.tensor = wrote[i]};
        about[n] = &out[i], tensor[n++] = wrote[i];
    }
    ab_extremes_of_all(tensor, n, found);
    for (int i = 0; i < n; i++) about[i]->extremes = found[i];
    for (int i = 0; i < fresh; i++) remember(o, tensor[i], about[i]);
}

static bool is_bad(const ab_origin_known *about) {
    return about->extremes.nan > 0 || (about->extremes.infinite > 0 && !about->intended);
}

/* ---- histories ------------------------------------------------------------------------------- */

static bool same_place(const ab_origin_place *a, const ab_origin_place *b) {
    return a->number == b->number && a->stage == b->stage && a->slot == b->slot;
}

static ab_origin_site *site_slot(const ab_origin *o, const ab_origin_place *place) {
    const size_t mask = (size_t)o->site_room - 1;
    size_t at =
        hash_of((uint64_t)(place->number + 2) * 1024 + (uint64_t)(place->stage * 32 + place->slot)) & mask;
    for (int i = 0; i < o->site_room; i++, at = (at + 1) & mask)
        if (o->site[at].place.number == -2 || same_place(&o->site[at].place, place)) return &o->site[at];
    return NULL;
}

static void grow_sites(ab_origin *o) {
    if (4 * (o->site_used + 1) <= 3 * o->site_room) return;
    ab_origin old = *o;
    int room = old.site_room ? 2 * old.site_room : 256;
    ab_origin_site *more = calloc((size_t)room, sizeof *more);
    if (!more) return;
    for (int i = 0; i < room; i++) more[i].place.number = -2;
    o->site = more;
    o->site_room = room;
    for (int i = 0; i < old.site_room; i++)
        if (old.site[i].place.number != -2) *site_slot(o, &old.site[i].place) = old.site[i];
    free(old.site);
}

static ab_origin_site *site_of(ab_origin *o, const ab_origin_place *place) {
    grow_sites(o);
    ab_origin_site *site = o->site_room ? site_slot(o, place) : NULL;
    if (site && site->place.number == -2) {
        *site = (ab_origin_site){.place = *place};
        o->site_used++;
    }
    return site;
}

static void keep_size(ab_origin *o, const ab_origin_place *place, const ab_tensor_extremes *extremes) {
    ab_origin_site *site = site_of(o, place);
    if (!site) return;
    site->past[site->seen++ % AB_ORIGIN_HISTORY] = (ab_origin_past){o->step, extremes->largest};
}

static void copy_history(ab_origin *o, ab_origin_event *event) {
    const ab_origin_site *site = site_of(o, &event->place);
    if (!site) return;
    event->pasts = site->seen < AB_ORIGIN_HISTORY ? (int)site->seen : AB_ORIGIN_HISTORY;
    for (int i = 0; i < event->pasts; i++)
        event->past[i] = site->past[(site->seen - event->pasts + i) % AB_ORIGIN_HISTORY];
}

/* ---- events ---------------------------------------------------------------------------------- */

static void copy_name(char to[AB_ORIGIN_NAME], const char *from) {
    ab_text_exact(to, AB_ORIGIN_NAME, "%s", from ? from : "");
}

/* Finds or adds the event of a place; NULL if the table is full. */
static ab_origin_event *event_of(ab_origin *o, const ab_origin_place *place) {
    o->event_seen = true;
    for (int i = 0; i < o->events; i++) {
        if (!same_place(&o->event[i].place, place)) continue;
        o->event[i].times++;
        o->event[i].last_step = o->step;
        return &o->event[i];
    }
    if (o->events == AB_ORIGIN_EVENTS) {
        o->left_out++;
        return NULL;
    }
    ab_origin_event *made = &o->event[o->events++];
    *made = (ab_origin_event){.place = *place, .step = o->step, .last_step = o->step, .times = 1};
    made->scale = o->scale;
    made->replayed = o->is_replay;
    o->flow_open = true;
    copy_history(o, made);
    return made;
}

static void add_flow(ab_origin *o, const char *name, int stage, ab_origin_change change,
                     const ab_tensor_extremes *found) {
    ab_origin_event *event = o->current;
    if (!event || !o->flow_open) return;
    event->changes[change]++;
    if (event->flows == AB_ORIGIN_FLOW) return;
    ab_origin_flow *flow = &event->flow[event->flows++];
    *flow =
        (ab_origin_flow){.stage = stage, .change = change, .infinite = found->infinite, .nan = found->nan};
    copy_name(flow->name, name);
}

static void describe(ab_origin_event *event, const ab_tensor *tensor, const ab_tensor_extremes *found,
                     double read_largest) {
    event->found = *found;
    event->count = ab_tensor_count(tensor);
    event->format = tensor->format;
    event->read_largest = read_largest;
}

/* Notes the step, once. */
static void note(ab_origin *o, const char *name, int stage, const char *tensor, const ab_format *format,
                 const ab_origin_cause *cause) {
    const bool again = o->notes > 0 && o->noted[o->notes - 1].step == o->step;
    if (again || o->notes == AB_ORIGIN_STEPS) return;
    ab_origin_step *step = &o->noted[o->notes++];
    *step = (ab_origin_step){.step = o->step, .stage = stage, .format = format, .scale = o->scale};
    step->margin = cause->largest > 0 ? log2(cause->largest / cause->limit) : (double)NAN;
    copy_name(step->name, name);
    copy_name(step->tensor, tensor);
}

static bool is_new(const ab_origin *o, const ab_origin_event *event) {
    return event && event->times == 1 && event->step == o->step;
}

/* A dynamic loss scale causes such overflows while it adapts. */
static bool is_expected(const ab_origin *o, const ab_origin_event *event, bool backward) {
    bool possible = event->cause.id == AB_CAUSE_scale_induced || event->cause.id == AB_CAUSE_cannot_tell;
    return o->scale_reacts && backward && possible;
}

/* ---- an op's tensors ------------------------------------------------------------------------- */

enum { MOST = 2 * (AB_MAX_INPUTS + AB_MAX_PARAMS) + 2 };

typedef struct tensors {
    const ab_tensor *tensor[MOST];
    int slot[MOST];
    int count;
} tensors;

static void add(tensors *list, const ab_tensor *tensor, int slot) {
    if (!tensor || !tensor->format) return;
    list->slot[list->count] = slot;
    list->tensor[list->count++] = tensor;
}

static tensors written(const ab_op_run *run) {
    tensors list = {.count = 0};
    if (!run->backward) add(&list, run->io->out, AB_ORIGIN_OUT);
    for (int i = 0; run->backward && i < AB_MAX_INPUTS; i++) add(&list, run->io->din[i], AB_ORIGIN_DIN + i);
    for (int i = 0; run->backward && i < AB_MAX_PARAMS; i++)
        add(&list, run->io->dparam[i], AB_ORIGIN_DPARAM + i);
    return list;
}

/* Parameters (running statistics are written, not read, unless the op is frozen); in the backward pass, only
 * inputs that are still stored. */
static tensors read_by(const ab_op_run *run) {
    tensors list = {.count = 0};
    unsigned needs = run->backward ? ab_io_needs(run->op, run->io) : (1u << AB_MAX_INPUTS) - 1;
    if (run->backward) add(&list, run->io->dout, AB_ORIGIN_OUT);
    for (int i = 0; i < AB_MAX_INPUTS; i++)
        if (needs >> i & 1u) add(&list, run->io->in[i], AB_ORIGIN_IN + i);
    if (run->backward && needs & AB_NEEDS_OUT) add(&list, run->io->out, AB_ORIGIN_OUT);
    const bool all = run->exec && !run->exec->training;
    for (int i = 0; i < AB_MAX_PARAMS; i++)
        if (run->io->dparam[i] || all) add(&list, run->io->param[i], AB_ORIGIN_PARAM + i);
    return list;
}

/* "out", "in0.grad", "weight", "weight.grad". */
static void name_tensor(const ab_op_run *run, int slot, char text[AB_ORIGIN_NAME]) {
    ab_param_spec spec[AB_MAX_PARAMS];
    ab_shape in[AB_MAX_INPUTS] = {{.ndim = 0}};
    bool grad = slot >= AB_ORIGIN_DIN && slot < AB_ORIGIN_IN;
    if (slot == AB_ORIGIN_OUT) {
        copy_name(text, run->backward ? "out.grad" : "out");
    } else if ((slot >= AB_ORIGIN_DPARAM && slot < AB_ORIGIN_IN) || slot >= AB_ORIGIN_PARAM) {
        for (int i = 0; i < AB_MAX_INPUTS; i++)
            if (run->io->in[i]) in[i] = run->io->in[i]->shape;
        int i = slot - (grad ? AB_ORIGIN_DPARAM : AB_ORIGIN_PARAM),
            count = run->op->params(run->io->attrs, in, spec);
        ab_text_exact(text, AB_ORIGIN_NAME, "%s%s", i < count ? spec[i].name : "parameter",
                      grad ? ".grad" : "");
    } else {
        ab_text_exact(text, AB_ORIGIN_NAME, "in%d%s", slot - (grad ? AB_ORIGIN_DIN : AB_ORIGIN_IN),
                      grad ? ".grad" : "");
    }
}

/* Whether the op writes infinities on purpose: a mask value beyond the format's range. */
static bool masks_with_infinity(const ab_op_run *run) {
    double value = 0;
    if (run->backward || run->op != &ab_op_masked_fill) return false;
    for (const ab_attr *attr = run->op->attrs; attr->name; attr++)
        if (strcmp(attr->name, "value") == 0)
            memcpy(&value, (const char *)run->io->attrs + attr->offset, sizeof value);
    return fabs(value) >= ab_format_overflow_limit(run->io->out->format);
}

/* Whether an op passes infinities through unchanged: a mask's infinities before the softmax. */
static bool passes_infinities(const ab_op *op) {
    static const ab_op *const ops[] = {&ab_op_add,     &ab_op_sub,     &ab_op_where,      &ab_op_masked_fill,
                                       &ab_op_flatten, &ab_op_reshape, &ab_op_permute,    &ab_op_transpose,
                                       &ab_op_concat,  &ab_op_select,  &ab_op_log_softmax};
    for (size_t i = 0; i < AB_COUNT_OF(ops); i++)
        if (op == ops[i]) return true;
    return false;
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static void next_sweep(ab_origin *o) {
    o->sweep++;
    o->last_forward = -1;
}

static void next_step(ab_origin *o, int64_t step, double loss_scale) {
    next_sweep(o);
    o->step = step;
    o->scale = loss_scale;
    o->current = NULL;
    o->event_seen = o->flow_open = o->is_replay = false;
}

/* If the governor limits probed steps, every fourth one is examined for the histories: a non-finite step can
 * still be replayed. */
static void begin(void *state, int64_t step, double loss_scale) {
    ab_origin *o = state;
    enum { EVERY = 4 };
    next_step(o, step, loss_scale);
    o->is_examined = !o->governed || o->probed % EVERY == 0;
    o->probed++;
}

static bool wants_replay(void *state, int64_t step, double loss_scale) {
    ab_origin *o = state;
    if (o->is_examined && o->step == step && o->probed > 0) return false; /* already examined */
    o->nonfinite++;
    if (o->nonfinite > AB_ORIGIN_EVERY && (o->nonfinite & (o->nonfinite - 1)) != 0) return false;
    next_step(o, step, loss_scale);
    o->is_replay = o->is_examined = true;
    o->replays++;
    return true;
}

/* The worst tensor that was read; -1: all are finite. */
typedef struct reading {
    int bad;
    bool intended; /* infinities of a mask were read */
    double largest;
    ab_tensor_extremes extremes; /* of the non-finite one */
} reading;

static reading reading_of(const ab_origin_known *about, int count) {
    reading r = {.bad = -1};
    for (int i = 0; i < count; i++) {
        r.largest = fmax(r.largest, about[i].extremes.largest);
        r.intended = r.intended || about[i].intended;
        if (r.bad >= 0 || !is_bad(&about[i])) continue;
        r.bad = i;
        r.extremes = about[i].extremes;
    }
    return r;
}

static int stage_of(const ab_op_run *run) { return run->backward ? AB_ORIGIN_BACKWARD : AB_ORIGIN_FORWARD; }

/* Of a tensor that nothing wrote: weights, data, or the gradient of a loss, which is the loss scale. */
static ab_origin_cause arrival_cause(const ab_origin *o, const ab_op_run *run, int slot,
                                     const ab_tensor *tensor) {
    ab_origin_cause cause = {.value = (double)NAN, .unscaled = (double)NAN, .partial = (double)NAN};
    cause.limit = ab_format_overflow_limit(tensor->format);
    cause.id = slot >= AB_ORIGIN_PARAM ? AB_CAUSE_bad_weights : AB_CAUSE_poisoned_input;
    if (!run->backward || slot != AB_ORIGIN_OUT || !run->op->is_loss || !(o->scale >= cause.limit))
        return cause;
    cause.id = AB_CAUSE_scale_induced;
    cause.samples = 1;
    cause.value = cause.largest = o->scale;
    cause.unscaled = 1;
    return cause;
}

/* The op read a non-finite tensor that no observed op wrote: it existed before. */
static void record_arrival(ab_origin *o, const ab_op_run *run, const tensors *in, const reading *r) {
    const int slot = in->slot[r->bad];
    const ab_tensor *tensor = in->tensor[r->bad];
    const ab_origin_place place = {run->number, stage_of(run), slot};
    const ab_origin_cause cause = arrival_cause(o, run, slot, tensor);
    char name[AB_ORIGIN_NAME];
    name_tensor(run, slot, name);
    note(o, run->name, place.stage, name, tensor->format, &cause);
    o->current = event_of(o, &place);
    if (!is_new(o, o->current)) return;
    copy_name(o->current->name, run->name);
    copy_name(o->current->type, run->op->name);
    copy_name(o->current->tensor, name);
    describe(o->current, tensor, &r->extremes, r->largest);
    o->current->cause = cause;
    o->current->expected = is_expected(o, o->current, run->backward) && cause.id == AB_CAUSE_scale_induced;
}

static void appears(ab_origin *o, const ab_op_run *run, int slot, const ab_tensor *tensor,
                    const ab_tensor_extremes *found, double read_largest) {
    const ab_origin_place place = {run->number, stage_of(run), slot};
    char name[AB_ORIGIN_NAME];
    ab_origin_cause cause;
    ab_origin_explain(o, run, slot, tensor, &cause);
    name_tensor(run, slot, name);
    note(o, run->name, place.stage, name, tensor->format, &cause);
    o->current = event_of(o, &place);
    if (!is_new(o, o->current)) return;
    copy_name(o->current->name, run->name);
    copy_name(o->current->type, run->op->name);
    copy_name(o->current->tensor, name);
    describe(o->current, tensor, found, read_largest);
    o->current->cause = cause;
    o->current->expected = is_expected(o, o->current, run->backward);
}

static void follow(ab_origin *o, const ab_op_run *run, const tensors *in, const reading *r,
                   const tensors *out, const ab_tensor_extremes *found, int bad_out) {
    const ab_tensor_extremes none = {.largest = 0};
    if (!o->event_seen && r->bad >= 0) record_arrival(o, run, in, r);
    if (!o->event_seen && bad_out >= 0)
        appears(o, run, out->slot[bad_out], out->tensor[bad_out], &found[bad_out], r->largest);
    if (r->bad < 0 && bad_out < 0) return;
    add_flow(o, run->name, stage_of(run),
             r->bad < 0     ? AB_APPEARS
             : bad_out >= 0 ? AB_PROPAGATES
                            : AB_VANISHES,
             bad_out >= 0 ? &found[bad_out] : &none);
}

static void ran(void *state, const ab_op_run *run) {
    ab_origin *o = state;
    if (!o->is_examined) return;
    if (!run->backward && run->number <= o->last_forward) next_sweep(o); /* the next micro-batch */
    if (!run->backward) o->last_forward = run->number;
    const tensors in = read_by(run), out = written(run);
    ab_origin_known known[MOST], about[MOST];
    look_at(o, in.tensor, in.count, known, out.tensor, out.count, about);
    const reading r = reading_of(known, in.count);
    const bool masks =
        masks_with_infinity(run) || (r.intended && !run->backward && passes_infinities(run->op));
    ab_tensor_extremes found[MOST];
    int bad_out = -1;
    for (int i = 0; i < out.count; i++) {
        about[i].intended = masks && about[i].extremes.infinite > 0;
        remember(o, out.tensor[i], &about[i]);
        found[i] = about[i].extremes;
        const ab_origin_place place = {run->number, stage_of(run), out.slot[i]};
        if (!is_bad(&about[i]))
            keep_size(o, &place, &found[i]);
        else if (bad_out < 0)
            bad_out = i;
    }
    follow(o, run, &in, &r, &out, found, bad_out);
}

/* ---- casts and sums -------------------------------------------------------------------------- */

static void move_appears(ab_origin *o, const ab_move *move, const ab_origin_place *place,
                         const ab_tensor_extremes *found, double part, double other) {
    const char *tensor = move->kind == AB_MOVE_WEIGHT_CAST ? "weight" : "";
    ab_origin_cause cause;
    if (move->kind == AB_MOVE_GRADIENT_SUM)
        ab_origin_explain_sum(o, move, part, other, &cause);
    else
        ab_origin_explain_cast(o, move, &cause);
    const double size = fmax(part, other); /* of all elements */
    if (size >= cause.limit && isfinite(size)) cause.largest = fmax(cause.largest, size);
    note(o, move->name, place->stage, tensor, move->to->format, &cause);
    o->current = event_of(o, place);
    if (!is_new(o, o->current)) return;
    copy_name(o->current->name, move->name);
    copy_name(o->current->tensor, tensor);
    describe(o->current, move->to, found, fmax(part, other));
    o->current->cause = cause;
    o->current->expected = is_expected(o, o->current, move->backward);
}

static void moved(void *state, const ab_move *move) {
    ab_origin *o = state;
    if (!o->is_examined) return;
    const ab_origin_place place = {move->number, AB_ORIGIN_MOVE + 2 * (int)move->kind + move->backward, 0};
    const ab_origin_known *old = move->kind == AB_MOVE_GRADIENT_SUM ? find_known(o, move->to) : NULL;
    const ab_origin_known before = old ? *old : (ab_origin_known){.tensor = NULL};
    ab_origin_known from, to;
    look_at(o, &move->from, 1, &from, &move->to, 1, &to);
    to.intended = from.intended && to.extremes.infinite > 0;
    remember(o, move->to, &to);
    const bool bad_in = is_bad(&from) || is_bad(&before), bad_out = is_bad(&to);
    if (!bad_in && !bad_out) {
        keep_size(o, &place, &to.extremes);
        return;
    }
    if (!o->event_seen && !bad_in)
        move_appears(o, move, &place, &to.extremes, from.extremes.largest, before.extremes.largest);
    if (o->event_seen) /* otherwise an op that reads it records the origin */
        add_flow(o, move->name, place.stage,
                 !bad_in   ? AB_APPEARS
                 : bad_out ? AB_PROPAGATES
                           : AB_VANISHES,
                 &to.extremes);
}

/* ---- updates --------------------------------------------------------------------------------- */

/* Called on any thread: the first event per thread is kept until the step ends. */
static void update(void *state, const ab_update_block *block) {
    const ab_origin *o = state;
    ab_origin_update *found = &o->update[block->thread];
    for (int64_t i = 0; i < block->n && !found->found; i++) {
        bool ill = !isfinite(block->stored[i]) && isfinite(block->before[i]) && isfinite(block->grad[i]);
        if (ill)
            *found = (ab_origin_update){true,           block->param,    block->before[i],
                                        block->grad[i], block->after[i], block->stored[i]};
    }
}

/* The first of the step's, as on one thread. */
static void counted(void *state, int param, const ab_update_counts *counts) {
    const ab_origin *o = state;
    ab_origin_update *found = &o->update[0];
    for (int64_t i = 0; i < counts->runs && !found->found; i++) {
        const ab_update_sums *run = &counts->run[i];
        if (run->ill >= 0)
            *found = (ab_origin_update){true, param, run->before, run->grad, run->after, run->stored};
    }
}

static void report_update(ab_origin *o, const ab_origin_update *found) {
    const ab_probe_param *param = &o->param[found->param];
    const ab_origin_place place = {found->param, AB_ORIGIN_UPDATE, 0};
    ab_origin_event *event = event_of(o, &place);
    if (!is_new(o, event)) return;
    copy_name(event->name, param->layer);
    copy_name(event->tensor, param->name);
    event->format = param->format;
    event->count = param->count;
    event->read_largest = fmax(fabs((double)found->before), fabs((double)found->grad));
    event->found =
        (ab_tensor_extremes){.infinite = isinf(found->stored) != 0, .nan = isnan(found->stored) != 0};
    bool rounding = isfinite(found->after);
    event->cause = (ab_origin_cause){.id = rounding ? AB_CAUSE_range_overflow : AB_CAUSE_optimizer_arithmetic,
                                     .samples = 1,
                                     .value = (double)found->after,
                                     .unscaled = (double)found->after,
                                     .partial = (double)NAN,
                                     .limit = ab_format_overflow_limit(param->format)};
}

static void step_end(void *state, int64_t step) {
    ab_origin *o = state;
    (void)step;
    if (o->event_seen && !o->is_replay) o->nonfinite++;
    for (int i = 0; i < o->threads; i++) {
        if (o->update[i].found) report_update(o, &o->update[i]);
        o->update[i].found = false;
    }
}

static void report(void *state, ab_probe_sink *sink) { ab_origin_report(state, sink); }

extern const ab_probe_kind ab_probe_origin;
const ab_probe_kind ab_probe_origin = {
    .name = "origin",
    .text = "which op made the first inf or nan of finite inputs, why, how close it had been, where it went",
    .standard = true,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .ran = ran,
    .moved = moved,
    .anywhere = true,
    .wants_replay = wants_replay,
    .update = update,
    .counted = counted,
    .step_end = step_end,
    .report = report,
};
