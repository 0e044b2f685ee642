/* Writing and replaying of journals. */
#include "probes/lib/journal.h"

#include "kernels/core/text.h"
#include "probes/lib/latest.h"
#include "probes/lib/named_facts.h"
#include "probes/lib/plausible.h"
#include "probes/lib/steps.h"
#include "probes/lib/things.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Bytes of counts that are written before the exponents that have values. */
enum { HEAD = offsetof(ab_lib_pending, counts) + offsetof(ab_range_counts, exponent) };
enum { LONGEST_RECORD = 1 << 30 };

typedef enum kind {
    BEGIN = 1, /* who writes */
    KEY,       /* key, value */
    THING,     /* a description */
    TENSOR,    /* ab_lib_tensor, and ab_lib_scaled if it has one */
    LEDGER,    /* ab_lib_ledger */
    NOTE,
    COURSE, /* ab_lib_course */
    STEP,
    FACTS, /* ab_lib_facts */
    FACT   /* one statement */
} kind;

typedef struct head {
    uint32_t kind, length;
    uint64_t digest;
} head;

/* The first record. */
typedef struct begin {
    char magic[16];
    uint32_t order, abi; /* order: 0x01020304 in the writer's byte order */
    uint32_t sizes[8];   /* of what is written as it is in memory */
    char id[17], started[32];
} begin;

static begin begin_of(const ampprobe *p) {
    begin b = {.magic = "ampprobe journal",
               .order = 0x01020304u,
               .abi = AMPPROBE_ABI,
               .sizes = {sizeof(ab_lib_tensor), sizeof(ab_lib_pending), sizeof(ab_lib_ledger),
                         sizeof(ab_lib_moves), sizeof(ab_lib_course), sizeof(ab_lib_step),
                         sizeof(ab_lib_facts), sizeof(ab_lib_scaled)}};
    memcpy(b.id, p->id, sizeof b.id);
    memcpy(b.started, p->started, sizeof b.started);
    return b;
}

static uint64_t digest_of(const char *data, size_t size) {
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (; size >= 8; size -= 8, data += 8) { /* eight bytes at a time: detects tears, not forgery */
        uint64_t word;
        memcpy(&word, data, 8);
        digest = (digest ^ word) * UINT64_C(0x100000001b3);
        digest ^= digest >> 32;
    }
    for (; size > 0; size--, data++) digest = (digest ^ (unsigned char)*data) * UINT64_C(0x100000001b3);
    return digest;
}

/* ---- records in memory ----------------------------------------------------------------------- */

static ab_status put(ampprobe *p, const void *data, size_t size) {
    if (p->buffer_room - p->buffered < size) {
        const size_t room = 2 * (p->buffered + size) + 4096;
        char *buffer = realloc(p->buffer, room);
        if (!buffer) return ab_fail(AB_NO_MEMORY, "%s: out of memory for the journal", p->path);
        p->buffer = buffer;
        p->buffer_room = room;
    }
    if (size > 0) memcpy(p->buffer + p->buffered, data, size);
    p->buffered += size;
    return AB_OK;
}

static ab_status put_text(ampprobe *p, const char *text) {
    return put(p, text ? text : "", text ? strlen(text) + 1 : 1);
}

static ab_status open_record(ampprobe *p) {
    const head empty = {0, 0, 0};
    p->buffered = p->held;
    return put(p, &empty, sizeof empty);
}

/* Writes the records in the buffer. */
static ab_status write_buffer(ampprobe *p) {
    struct rlimit limit;
    p->held = 0;
    if (!p->journal.stream)
        return ab_fail(AB_OUTPUT, "%s: its journal was closed when memory ran out", p->path);
    /* a write beyond the limit would end the process by a signal */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        (rlim_t)p->journal_bytes + p->buffered > limit.rlim_cur)
        return ab_fail(AB_OUTPUT, "%s: cannot write its journal: %s", p->path, strerror(EFBIG));
    if (fwrite(p->buffer, 1, p->buffered, p->journal.stream) != p->buffered)
        return ab_fail(AB_OUTPUT, "%s: cannot write its journal: %s", p->path, strerror(errno));
    p->journal_bytes += (int64_t)p->buffered;
    return AB_OK;
}

/* Ends the record in the buffer, and writes it unless records are held back. */
static ab_status close_record(ampprobe *p, kind type) {
    char *record = p->buffer + p->held;
    const size_t size = p->buffered - p->held - sizeof(head);
    const head h = {(uint32_t)type, (uint32_t)size, digest_of(record + sizeof(head), size)};
    memcpy(record, &h, sizeof h);
    if (!p->holds) return write_buffer(p);
    p->held = p->buffered;
    return AB_OK;
}

void ab_lib_journal_hold(ampprobe *p) { p->holds = true; }

ab_status ab_lib_journal_release(ampprobe *p) {
    p->holds = false;
    p->buffered = p->held;
    return p->held > 0 ? write_buffer(p) : AB_OK;
}

static ab_status write_record(ampprobe *p, kind type, const void *data, size_t size) {
    AB_TRY(open_record(p));
    AB_TRY(put(p, data, size));
    return close_record(p, type);
}

ab_status ab_lib_journal_key(ampprobe *p, const char *key, const char *value) {
    AB_TRY(open_record(p));
    AB_TRY(put_text(p, key));
    AB_TRY(put_text(p, value));
    return close_record(p, KEY);
}

ab_status ab_lib_journal_note(ampprobe *p, const char *note) {
    return write_record(p, NOTE, note, strlen(note) + 1);
}

ab_status ab_lib_journal_fact(ampprobe *p, const char *name, const char *place, int64_t step, double value) {
    AB_TRY(open_record(p));
    AB_TRY(put(p, &step, sizeof step));
    AB_TRY(put(p, &value, sizeof value));
    AB_TRY(put_text(p, name));
    AB_TRY(put_text(p, place));
    return close_record(p, FACT);
}

ab_status ab_lib_journal_thing(ampprobe *p, int32_t thing) {
    const ab_lib_thing *t = &p->thing[thing];
    ampprobe_thing about = {.size = sizeof about,
                            .flags = t->flags,
                            .dtype = t->dtype,
                            .group = t->group,
                            .dimensions = t->dimensions};
    memcpy(about.shape, t->shape, sizeof about.shape);
    AB_TRY(open_record(p));
    AB_TRY(put(p, &about, sizeof about));
    AB_TRY(put_text(p, t->name));
    AB_TRY(put_text(p, t->layer));
    AB_TRY(put_text(p, t->type));
    return close_record(p, THING);
}

/* ---- a step ---------------------------------------------------------------------------------- */

bool ab_lib_belongs(const ampprobe *p, int32_t tensor, int32_t group) {
    const ab_lib_thing *thing = &p->thing[p->tensor[tensor]->thing];
    return !(thing->flags & AMPPROBE_PARAMETER) || thing->group == group;
}

/* thing, slot, and counts up to the exponents, of which only the rows with values follow. */
static ab_status put_pending(ampprobe *p, int32_t tensor) {
    const ab_lib_pending *shown = p->pending[tensor];
    const int32_t which[2] = {p->tensor[tensor]->thing, p->tensor[tensor]->slot};
    const ab_range_counts *c = &shown->counts;
    AB_TRY(put(p, which, sizeof which));
    AB_TRY(put(p, shown, HEAD));
    return put(p, c->exponent + c->low, (size_t)(c->high - c->low) * sizeof *c->exponent);
}

ab_status ab_lib_journal_step(ampprobe *p, const ab_lib_step *step) {
    int32_t counts[2] = {0, p->moved};
    for (int32_t i = 0; i < p->waitings; i++)
        counts[0] += ab_lib_belongs(p, p->waiting[i], step->facts.group);
    AB_TRY(open_record(p));
    AB_TRY(put(p, step, sizeof *step));
    AB_TRY(put(p, counts, sizeof counts));
    for (int32_t i = 0; i < p->waitings; i++)
        if (ab_lib_belongs(p, p->waiting[i], step->facts.group)) AB_TRY(put_pending(p, p->waiting[i]));
    AB_TRY(put(p, p->moves, (size_t)p->moved * sizeof *p->moves));
    return close_record(p, STEP);
}

/* ---- a snapshot ------------------------------------------------------------------------------ */

static ab_status write_keys(ampprobe *p) {
    for (int i = 0; i < AB_LIB_KEYS; i++)
        if (p->config.value[i])
            AB_TRY(ab_lib_journal_key(p, ab_lib_key_name((ab_lib_key)i), p->config.value[i]));
    for (int i = 0; i < p->config.abouts; i++) {
        char *text = ab_text_new("{\"%s\": %s}", p->config.about[i].key, p->config.about[i].value);
        if (!text) return ab_fail(AB_NO_MEMORY, "%s: out of memory for the journal", p->path);
        const ab_status status = ab_lib_journal_key(p, "about", text);
        free(text);
        AB_TRY(status);
    }
    return AB_OK;
}

static ab_status write_tensor(ampprobe *p, int32_t tensor) {
    AB_TRY(open_record(p));
    AB_TRY(put(p, p->tensor[tensor], sizeof *p->tensor[tensor]));
    if (p->scaled[tensor]) AB_TRY(put(p, p->scaled[tensor], sizeof *p->scaled[tensor]));
    return close_record(p, TENSOR);
}

static ab_status write_all(ampprobe *p) {
    const begin b = begin_of(p);
    AB_TRY(write_record(p, BEGIN, &b, sizeof b));
    AB_TRY(write_keys(p));
    for (int32_t i = 0; i < p->things; i++) AB_TRY(ab_lib_journal_thing(p, i));
    if (p->course->groups > 0) /* without a step it is as a reader begins */
        AB_TRY(write_record(p, COURSE, p->course, sizeof *p->course));
    if (p->facts->count > 0) AB_TRY(write_record(p, FACTS, p->facts, sizeof *p->facts));
    for (int32_t i = 0; i < p->tensors; i++) AB_TRY(write_tensor(p, i));
    for (int32_t i = 0; i < p->ledgers; i++)
        AB_TRY(write_record(p, LEDGER, p->ledger[i], sizeof *p->ledger[i]));
    for (int64_t i = 0; i < p->notes && i < AB_LIB_NOTES; i++) AB_TRY(ab_lib_journal_note(p, p->note[i]));
    return AB_OK;
}

static ab_status no_memory(const char *path) { return ab_fail(AB_NO_MEMORY, "%s: out of memory", path); }

/* Closes a journal whose bytes are written already. */
static void end_file(ab_outfile *file) {
    const ab_status status = ab_outfile_close(file, AB_OK);
    (void)status;
}

/* A snapshot's longest record is far longer than those of steps: its room is given back. */
static void shrink_buffer(ampprobe *p) {
    enum { ROOM_OF_STEPS = 1 << 16 };
    if (p->held > 0 || p->buffer_room <= ROOM_OF_STEPS) return;
    free(p->buffer);
    p->buffer = NULL;
    p->buffered = p->buffer_room = 0;
}

ab_status ab_lib_journal_snapshot(ampprobe *p) {
    char *path = ab_text_new("%s.steps", p->path);
    ab_outfile fresh;
    if (!path) return no_memory(p->path);
    ab_status status = ab_outfile_open(path, &fresh);
    free(path);
    if (status != AB_OK) return status;
    setvbuf(fresh.stream, NULL, _IONBF,
            0); /* a record is one write(), and nothing waits that a fork could copy */
    fresh.unsynced = p->course->groups == 0; /* a machine that stops loses no step */
    const ab_outfile old = p->journal;
    p->journal = fresh;
    p->journal_bytes = 0;
    status = write_all(p);
    if (status == AB_OK) status = ab_outfile_publish(&p->journal);
    fresh = old;
    end_file(&fresh);
    p->snapshot_bytes = p->journal_bytes;
    shrink_buffer(p);
    return status == AB_OK ? AB_OK : ab_outfile_close(&p->journal, status);
}

void ab_lib_journal_end(ampprobe *p, bool remove) {
    if (!p->journal.stream) return;
    char *path = ab_text_new("%s.steps", p->path);
    end_file(&p->journal);
    if (path && remove) unlink(path);
    if (remove) ab_lib_latest_end(p->path);
    free(path);
}

/* ---- replay ---------------------------------------------------------------------------------- */

/* The bytes of one record that are left. */
typedef struct rest {
    const char *at;
    size_t left;
} rest;

static bool take(rest *r, void *to, size_t size) {
    if (r->left < size) return false;
    memcpy(to, r->at, size);
    r->at += size;
    r->left -= size;
    return true;
}

static const char *take_text(rest *r) {
    const char *end = memchr(r->at, '\0', r->left), *text = r->at;
    if (!end) return NULL;
    r->left -= (size_t)(end + 1 - r->at);
    r->at = end + 1;
    return text;
}

static ab_status damaged(const ampprobe *p, const char *what) {
    return ab_fail(AB_INPUT, "%s.steps: damaged: %s", p->path, what);
}

static ab_status read_begin(ampprobe *p, rest *r) {
    begin b;
    if (!take(r, &b, sizeof b)) return damaged(p, "its first record");
    b.id[sizeof b.id - 1] = b.started[sizeof b.started - 1] = '\0';
    memcpy(p->id, b.id, sizeof p->id);
    memcpy(p->started, b.started, sizeof p->started);
    const begin own = begin_of(p);
    if (memcmp(b.magic, own.magic, sizeof b.magic) != 0)
        return ab_fail(AB_INPUT, "%s.steps: not the journal of a probe", p->path);
    if (b.order != own.order || b.abi != own.abi || memcmp(b.sizes, own.sizes, sizeof b.sizes) != 0)
        return ab_fail(AB_INPUT, "%s.steps: written by another version of libampprobe", p->path);
    return AB_OK;
}

static ab_status read_key(ampprobe *p, rest *r) {
    const char *key = take_text(r), *value = key ? take_text(r) : NULL;
    return value ? ab_lib_config_set(&p->config, key, value, false) : damaged(p, "a setting");
}

static ab_status read_thing(ampprobe *p, rest *r) {
    ampprobe_thing about;
    int32_t id;
    if (!take(r, &about, sizeof about)) return damaged(p, "a description");
    about.name = take_text(r);
    about.layer = about.name ? take_text(r) : NULL;
    about.type = about.layer ? take_text(r) : NULL;
    if (!about.type) return damaged(p, "a description");
    if (!about.type[0]) about.type = NULL;
    if (ab_lib_things_check(&about, 1) != AB_OK) return damaged(p, "a description");
    return ab_lib_thing_take(p, &about, &id);
}

static ab_status read_course(ampprobe *p, rest *r) {
    ab_lib_course *c = p->course;
    if (take(r, c, sizeof *c) && ab_lib_course_may_be(c)) return AB_OK;
    ab_lib_course_init(c);
    return damaged(p, "its steps");
}

static bool has_thing(const ampprobe *p, int32_t thing, int32_t slot) {
    return thing >= 0 && thing < p->things && slot >= 0 && slot < AB_LIB_SLOTS;
}

static ab_status read_tensor(ampprobe *p, rest *r) {
    ab_lib_tensor tensor;
    int32_t index;
    if (!take(r, &tensor, sizeof tensor) || !has_thing(p, tensor.thing, tensor.slot) ||
        tensor.axis != ab_lib_axis_of(tensor.slot) || !ab_lib_tensor_may_be(&tensor))
        return damaged(p, "a tensor");
    AB_TRY(ab_lib_tensor_of(p, tensor.thing, tensor.slot, &index));
    *p->tensor[index] = tensor;
    ab_lib_scaled *scaled = p->scaled[index];
    if (!scaled || (take(r, scaled, sizeof *scaled) && ab_lib_scaled_may_be(scaled))) return AB_OK;
    return damaged(p, "a tensor");
}

static ab_status read_ledger(ampprobe *p, rest *r) {
    ab_lib_ledger ledger;
    int32_t index;
    if (!take(r, &ledger, sizeof ledger) || !has_thing(p, ledger.thing, 0) || !ab_lib_ledger_may_be(&ledger))
        return damaged(p, "a ledger");
    AB_TRY(ab_lib_ledger_of(p, ledger.thing, &index));
    *p->ledger[index] = ledger;
    return AB_OK;
}

static ab_status read_note(ampprobe *p, rest *r) {
    const char *text = take_text(r);
    if (!text) return damaged(p, "a note");
    if (p->notes < AB_LIB_NOTES) {
        p->note[p->notes] = ab_text_new("%s", text);
        if (!p->note[p->notes]) return no_memory(p->path);
    }
    p->notes++;
    return AB_OK;
}

static ab_status read_pending(ampprobe *p, rest *r, int32_t group) {
    int32_t which[2], index;
    ab_lib_pending shown;
    memset(&shown, 0, sizeof shown);
    if (!take(r, which, sizeof which) || !has_thing(p, which[0], which[1]) || !take(r, &shown, HEAD) ||
        !ab_lib_pending_may_be(&shown))
        return damaged(p, "a step");
    if (!take(r, shown.counts.exponent + shown.counts.low,
              (size_t)(shown.counts.high - shown.counts.low) * sizeof *shown.counts.exponent) ||
        !ab_lib_pending_may_be(&shown))
        return damaged(p, "a step");
    AB_TRY(ab_lib_tensor_of(p, which[0], which[1], &index));
    ab_lib_fold_tensor(p, index, group, &shown);
    return AB_OK;
}

static ab_status read_step(ampprobe *p, rest *r) {
    ab_lib_step step;
    ab_lib_moves moves;
    int32_t counts[2], index;
    if (!take(r, &step, sizeof step) || !take(r, counts, sizeof counts) || step.facts.group < 0 ||
        step.facts.group >= AB_LIB_GROUPS)
        return damaged(p, "a step");
    ab_lib_fold_step(p, &step);
    for (int32_t i = 0; i < counts[0]; i++) AB_TRY(read_pending(p, r, step.facts.group));
    for (int32_t i = 0; i < counts[1]; i++) {
        if (!take(r, &moves, sizeof moves) || !has_thing(p, moves.thing, 0) || !ab_lib_moves_may_be(&moves))
            return damaged(p, "a step");
        AB_TRY(ab_lib_ledger_of(p, moves.thing, &index));
        ab_lib_fold_moves(p, index, step.facts.group, &moves);
    }
    return AB_OK;
}

static ab_status read_facts(ampprobe *p, rest *r) {
    if (take(r, p->facts, sizeof *p->facts) && ab_lib_facts_may_be(p->facts)) return AB_OK;
    memset(p->facts, 0, sizeof *p->facts);
    return damaged(p, "its facts");
}

static ab_status read_fact(ampprobe *p, rest *r) {
    int64_t step;
    double value;
    if (!take(r, &step, sizeof step) || !take(r, &value, sizeof value)) return damaged(p, "a fact");
    const char *name = take_text(r), *place = name ? take_text(r) : NULL;
    if (!place || ab_lib_fact_check(name, place, step) != AB_OK) return damaged(p, "a fact");
    ab_lib_fact_add(p, name, place, step, value);
    return AB_OK;
}

static ab_status replay(ampprobe *p, uint32_t type, rest *r) {
    switch (type) {
    case BEGIN:
        return read_begin(p, r);
    case KEY:
        return read_key(p, r);
    case THING:
        return read_thing(p, r);
    case TENSOR:
        return read_tensor(p, r);
    case LEDGER:
        return read_ledger(p, r);
    case NOTE:
        return read_note(p, r);
    case COURSE:
        return read_course(p, r);
    case STEP:
        return read_step(p, r);
    case FACTS:
        return read_facts(p, r);
    case FACT:
        return read_fact(p, r);
    default:
        return damaged(p, "a record of an unknown kind");
    }
}

/* Reads the next whole record into the buffer. False at the end, or where the journal is torn. */
static bool next_record(ampprobe *p, FILE *file, head *h) {
    if (fread(h, sizeof *h, 1, file) != 1 || h->length > LONGEST_RECORD) return false;
    p->buffered = 0;
    for (size_t left = h->length; left > 0;) { /* by parts: a length that is wrong must not take memory */
        char part[16384];
        const size_t size = left < sizeof part ? left : sizeof part;
        if (fread(part, 1, size, file) != size || put(p, part, size) != AB_OK) return false;
        left -= size;
    }
    return digest_of(p->buffer, p->buffered) == h->digest;
}

static ab_status replay_all(ampprobe *p, FILE *file) {
    head h;
    for (int64_t i = 0; next_record(p, file, &h); i++) {
        rest r = {p->buffer, p->buffered};
        if (i == 0 && h.kind != BEGIN)
            return ab_fail(AB_INPUT, "%s.steps: not the journal of a probe", p->path);
        AB_TRY(replay(p, h.kind, &r));
    }
    return p->id[0] ? AB_OK : ab_fail(AB_INPUT, "%s.steps: not the journal of a probe", p->path);
}

ab_status ab_lib_journal_read(const char *path, ampprobe *p, bool *found) {
    char *name = ab_text_new("%s.steps", path);
    if (!name) return no_memory(path);
    FILE *file = fopen(name, "rb");
    free(name);
    *found = file != NULL;
    if (!file) return AB_OK;
    const ab_status status = replay_all(p, file);
    fclose(file);
    if (status == AB_OK) ab_lib_latest_read(path, p);
    return status;
}
