/* Things by number and by name. */
#include "probes/lib/things.h"

#include "kernels/core/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_NAME = 512 };

/* ---- room ------------------------------------------------------------------------------------ */

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "out of memory for what is described"); }

/* Room for one more element of `size` bytes in *list. */
static ab_status make_room(void **list, size_t size, int32_t count, int32_t *room) {
    if (count < *room) return AB_OK;
    const int32_t wanted = *room ? 2 * *room : 16;
    void *larger = realloc(*list, (size_t)wanted * size);
    if (!larger) return no_memory();
    *list = larger;
    *room = wanted;
    return AB_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

static uint32_t hash_of(const char *name, bool parameter) {
    uint32_t hash = parameter ? 2166136261u : 2166136259u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash ^ hash >> 15;
}

static bool is_parameter(const ab_lib_thing *thing) { return (thing->flags & AMPPROBE_PARAMETER) != 0; }

/* The place in by_name of a name, or where it belongs. */
static int32_t *place_of(const ampprobe *p, const char *name, bool parameter) {
    uint32_t at = hash_of(name, parameter);
    for (;; at++) {
        int32_t *place = &p->by_name[at & (uint32_t)(p->names - 1)];
        if (*place == 0) return place;
        const ab_lib_thing *thing = &p->thing[*place - 1];
        if (is_parameter(thing) == parameter && strcmp(thing->name, name) == 0) return place;
    }
}

int32_t ab_lib_thing_find(const ampprobe *p, const char *name, bool parameter) {
    return p->names ? *place_of(p, name, parameter) - 1 : -1;
}

static ab_status grow_names(ampprobe *p) {
    if (2 * (p->things + 1) <= p->names) return AB_OK;
    const int32_t names = p->names ? 2 * p->names : 64;
    int32_t *table = calloc((size_t)names, sizeof *table);
    if (!table) return no_memory();
    free(p->by_name);
    p->by_name = table;
    p->names = names;
    for (int32_t i = 0; i < p->things; i++)
        *place_of(p, p->thing[i].name, is_parameter(&p->thing[i])) = i + 1;
    return AB_OK;
}

/* ---- descriptions ---------------------------------------------------------------------------- */

static ab_status check_shape(const ampprobe_thing *about, int32_t i) {
    int64_t product = 1;
    if (about->dimensions < 0 || about->dimensions > AMPPROBE_DIMENSIONS)
        return ab_fail(AB_CONFIG, "things[%d] (%s): dimensions: expected 0 to %d, found %d", i,
                       ab_text_brief(about->name, 80), AMPPROBE_DIMENSIONS, about->dimensions);
    for (int d = 0; d < about->dimensions; d++) {
        if (about->shape[d] < 0 || (about->shape[d] > 0 && product > INT64_MAX / about->shape[d]))
            return ab_fail(AB_CONFIG, "things[%d] (%s): shape[%d]: expected a size, found %lld", i,
                           ab_text_brief(about->name, 80), d, (long long)about->shape[d]);
        product *= about->shape[d] ? about->shape[d] : 1;
    }
    return AB_OK;
}

static ab_status check(const ampprobe_thing *about, int32_t i) {
    if (about->size != sizeof *about)
        return ab_fail(AB_CONFIG, "things[%d]: size: expected %d, found %u", i, (int)sizeof *about,
                       about->size);
    if (!about->name || !about->name[0] || strlen(about->name) > LONGEST_NAME)
        return ab_fail(AB_CONFIG, "things[%d]: name: expected 1 to %d bytes", i, LONGEST_NAME);
    if (about->layer && strlen(about->layer) > LONGEST_NAME)
        return ab_fail(AB_CONFIG, "things[%d]: layer: expected at most %d bytes", i, LONGEST_NAME);
    if (about->type && strlen(about->type) > LONGEST_NAME)
        return ab_fail(AB_CONFIG, "things[%d]: type: expected at most %d bytes", i, LONGEST_NAME);
    if (about->flags & ~(uint32_t)(AMPPROBE_PARAMETER | AMPPROBE_FROZEN))
        return ab_fail(AB_CONFIG, "things[%d]: flags: unknown bits in %#x", i, about->flags);
    if (about->group < 0 || about->group >= AB_LIB_GROUPS)
        return ab_fail(AB_CONFIG, "things[%d]: group: expected 0 to %d, found %d", i, AB_LIB_GROUPS - 1,
                       about->group);
    return check_shape(about, i);
}

ab_status ab_lib_things_check(const ampprobe_thing *things, int32_t count) {
    if (count < 0 || count > AB_LIB_MAX_THINGS || (count > 0 && !things))
        return ab_fail(AB_CONFIG, "things: expected 0 to %d of them, found %d", AB_LIB_MAX_THINGS, count);
    for (int32_t i = 0; i < count; i++) AB_TRY(check(&things[i], i));
    return AB_OK;
}

/* The layer of a parameter called "fc1.weight" is fc1. */
static char *layer_of(const ampprobe_thing *about) {
    const char *dot = strrchr(about->name, '.');
    if (about->layer) return ab_text_new("%s", about->layer);
    const bool cut = (about->flags & AMPPROBE_PARAMETER) && dot && dot != about->name;
    return ab_text_new("%.*s", cut ? (int)(dot - about->name) : (int)strlen(about->name), about->name);
}

static void free_texts(ab_lib_thing *thing) {
    free(thing->name);
    free(thing->layer);
    free(thing->type);
}

static ab_status copy(const ampprobe_thing *about, ab_lib_thing *thing) {
    *thing = (ab_lib_thing){.name = ab_text_new("%s", about->name),
                            .layer = layer_of(about),
                            .type = about->type ? ab_text_new("%s", about->type) : NULL,
                            .flags = about->flags,
                            .dtype = about->dtype,
                            .group = about->group,
                            .dimensions = about->dimensions,
                            .ledger = -1};
    memcpy(thing->shape, about->shape, sizeof thing->shape);
    for (int i = 0; i < AB_LIB_SLOTS; i++) thing->tensor[i] = -1;
    if (thing->name && thing->layer && (thing->type || !about->type)) return AB_OK;
    free_texts(thing);
    return no_memory();
}

ab_status ab_lib_thing_take(ampprobe *p, const ampprobe_thing *about, int32_t *id) {
    ab_lib_thing thing;
    void *list = p->thing;
    ampprobe_thing whole = *about;
    if (whole.flags & AMPPROBE_FROZEN)
        whole.flags |= AMPPROBE_PARAMETER; /* a frozen one is a parameter too */
    AB_TRY(copy(&whole, &thing));
    *id = ab_lib_thing_find(p, about->name, is_parameter(&thing));
    if (*id >= 0) { /* described anew */
        ab_lib_thing *old = &p->thing[*id];
        memcpy(thing.tensor, old->tensor, sizeof thing.tensor);
        thing.ledger = old->ledger;
        free_texts(old);
        *old = thing;
        return AB_OK;
    }
    ab_status status = p->things < AB_LIB_MAX_THINGS
                           ? grow_names(p)
                           : ab_fail(AB_CONFIG, "more than %d things described", AB_LIB_MAX_THINGS);
    if (status == AB_OK) status = make_room(&list, sizeof *p->thing, p->things, &p->thing_room);
    p->thing = list;
    if (status != AB_OK) {
        free_texts(&thing);
        return status;
    }
    *id = p->things;
    p->thing[p->things++] = thing;
    *place_of(p, thing.name, is_parameter(&thing)) = *id + 1;
    return AB_OK;
}

/* ---- tensors and ledgers --------------------------------------------------------------------- */

int32_t ab_lib_axis_of(int32_t slot) {
    if (slot == AMPPROBE_WEIGHT_GRADIENT) return AB_LIB_GRADIENTS;
    return slot == AMPPROBE_ACTIVATION || slot == AMPPROBE_ACTIVATION_GRADIENT ? AB_LIB_LAYERS : AB_LIB_AFTER;
}

bool ab_lib_carries_scale(int32_t slot) {
    return slot == AMPPROBE_WEIGHT_GRADIENT || slot == AMPPROBE_ACTIVATION_GRADIENT;
}

static ab_status grow_tensors(ampprobe *p) {
    void *list = p->tensor, *scaled = p->scaled, *pending = p->pending, *waiting = p->waiting;
    int32_t room = p->tensor_room;
    ab_status status = make_room(&list, sizeof *p->tensor, p->tensors, &room);
    p->tensor = list;
    AB_TRY(status);
    room = p->tensor_room;
    status = make_room(&scaled, sizeof *p->scaled, p->tensors, &room);
    p->scaled = scaled;
    AB_TRY(status);
    room = p->tensor_room;
    status = make_room(&pending, sizeof *p->pending, p->tensors, &room);
    p->pending = pending;
    AB_TRY(status);
    room = p->tensor_room;
    status = make_room(&waiting, sizeof *p->waiting, p->tensors, &room);
    p->waiting = waiting;
    if (status == AB_OK) p->tensor_room = room;
    return status;
}

ab_status ab_lib_tensor_of(ampprobe *p, int32_t thing, int32_t slot, int32_t *index) {
    *index = p->thing[thing].tensor[slot];
    if (*index >= 0) return AB_OK;
    AB_TRY(grow_tensors(p));
    ab_lib_tensor *tensor = calloc(1, sizeof *tensor);
    ab_lib_pending *pending = calloc(1, sizeof *pending);
    ab_lib_scaled *scaled = ab_lib_carries_scale(slot) ? calloc(1, sizeof *scaled) : NULL;
    if (!tensor || !pending || (ab_lib_carries_scale(slot) && !scaled)) {
        free(tensor);
        free(pending);
        free(scaled);
        return no_memory();
    }
    tensor->thing = thing;
    tensor->slot = slot;
    tensor->axis = ab_lib_axis_of(slot);
    tensor->first_overflow = -1;
    for (int i = 0; scaled && i < AB_COLUMNS; i++) scaled->largest[i] = -INFINITY;
    *index = p->tensors;
    p->tensor[p->tensors] = tensor;
    p->scaled[p->tensors] = scaled;
    p->pending[p->tensors++] = pending;
    p->thing[thing].tensor[slot] = *index;
    return AB_OK;
}

ab_lib_pending *ab_lib_wait(ampprobe *p, int32_t tensor) {
    ab_lib_pending *shown = p->pending[tensor];
    if (!shown->any) p->waiting[p->waitings++] = tensor;
    shown->any = 1;
    return shown;
}

static ab_status grow_ledgers(ampprobe *p) {
    void *list = p->ledger, *sample = p->sample;
    int32_t room = p->ledger_room;
    ab_status status = make_room(&list, sizeof *p->ledger, p->ledgers, &room);
    p->ledger = list;
    AB_TRY(status);
    room = p->ledger_room;
    status = make_room(&sample, sizeof *p->sample, p->ledgers, &room);
    p->sample = sample;
    if (status == AB_OK) p->ledger_room = room;
    return status;
}

ab_status ab_lib_ledger_of(ampprobe *p, int32_t thing, int32_t *index) {
    *index = p->thing[thing].ledger;
    if (*index >= 0) return AB_OK;
    AB_TRY(grow_ledgers(p));
    ab_lib_ledger *ledger = calloc(1, sizeof *ledger);
    if (!ledger) return no_memory();
    ledger->thing = thing;
    ledger->stopped_since = -1;
    *index = p->ledgers;
    p->ledger[p->ledgers] = ledger;
    p->sample[p->ledgers++] = NULL;
    p->thing[thing].ledger = *index;
    return AB_OK;
}

void ab_lib_things_free(ampprobe *p) {
    for (int32_t i = 0; i < p->things; i++) free_texts(&p->thing[i]);
    for (int32_t i = 0; i < p->tensors; i++) {
        free(p->tensor[i]);
        free(p->scaled[i]);
        free(p->pending[i]);
    }
    for (int32_t i = 0; i < p->ledgers; i++) {
        free(p->ledger[i]);
        free(p->sample[i]);
    }
    free(p->thing);
    free(p->by_name);
    free(p->tensor);
    free(p->scaled);
    free(p->pending);
    free(p->waiting);
    free(p->ledger);
    free(p->sample);
}
