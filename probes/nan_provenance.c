/* NaN provenance: finds the op that produced the first NaN from the payload of the NaN at the loss.
 *
 * If an op's output contains a NaN and its inputs do not, the op is an origin: its number and the step are
 * written into the payload of these NaNs. Arithmetic and casts propagate payloads, so a NaN at the loss
 * identifies its origin, even steps later through a weight. An unmarked NaN that the op read (from a
 * parameter or an input) is reported as such. This is the only probe that writes to tensors: payload bits of
 * existing NaNs; the set of NaN values does not change.
 *
 * Payload, from its first bit: number of the op modulo 63 plus 1 (6 bits, all that bf16 keeps), number / 63
 * (3 bits, as far as fp16 goes), step modulo 8191 plus 1 (13 bits, fp32 only). Only probed steps are
 * examined. */
#include "kernels/backend/extremes.h"
#include "kernels/format/format.h"
#include "probes/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ORIGINS = 64, NAME = 64, OPS = 63, STEPS = 8191 };
enum { OP_BITS = 6, GROUP_BITS = 3, STEP_BITS = 13, TAG_BITS = OP_BITS + GROUP_BITS + STEP_BITS };

typedef enum place { IN_OUTPUT, IN_INPUT, IN_PARAMETER } place;
static const char *const place_names[] = {"output", "input", "parameter"};

/* An op that produced NaNs, possibly in several steps. */
typedef struct origin {
    char name[NAME], type[NAME];
    int number;
    bool backward, infinite; /* infinite: the op read an inf */
    place place;
    int64_t first_step, last_step, times;
} origin;

/* The payload of a NaN at the loss, decoded. */
typedef struct reading {
    int64_t step, origin_step;
    int origin; /* -1: no readable payload */
} reading;

typedef struct nan_provenance {
    origin origin[MAX_ORIGINS];
    int origins;
    int64_t step, losses, traced; /* probed losses that were NaN; those with a readable payload */
    reading first;
} nan_provenance;

static void destroy(void *state) { free(state); }

static ab_status create(const ab_probe_setup *setup, void **state) {
    (void)setup;
    nan_provenance *p = calloc(1, sizeof *p);
    if (!p) return ab_fail(AB_NO_MEMORY, "probe nan_provenance: out of memory");
    *state = p;
    return AB_OK;
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* How a stored format lays out a NaN. Formats of other widths are ignored. */
typedef struct layout {
    int bytes, payload_bits;
    uint32_t infinity, magnitude; /* a NaN is: bits & magnitude > infinity */
} layout;

static bool layout_of(const ab_tensor *tensor, layout *l) {
    const ab_format *format = tensor ? tensor->format : NULL;
    if (!format || !format->infinity || (format->storage_bytes != 2 && format->storage_bytes != 4))
        return false;
    uint32_t sign = 1u << (8 * format->storage_bytes - 1), quiet = 1u << (format->precision - 2);
    *l = (layout){format->storage_bytes, format->precision - 2, (sign - 1) & ~(2 * quiet - 1), sign - 1};
    return true;
}

static uint32_t load(const layout *l, const void *data, int64_t i) {
    uint32_t word = 0;
    uint16_t half = 0;
    if (l->bytes == 4)
        memcpy(&word, (const char *)data + 4 * i, sizeof word);
    else
        memcpy(&half, (const char *)data + 2 * i, sizeof half);
    return l->bytes == 4 ? word : half;
}

static void store(const layout *l, void *data, int64_t i, uint32_t bits) {
    uint16_t half = (uint16_t)bits;
    if (l->bytes == 4)
        memcpy((char *)data + 4 * i, &bits, sizeof bits);
    else
        memcpy((char *)data + 2 * i, &half, sizeof half);
}

static uint32_t tag_of(int number, int64_t step) {
    uint32_t op = (uint32_t)(number % OPS) + 1, group = (uint32_t)(number / OPS) & 7u;
    return (op << GROUP_BITS | group) << STEP_BITS | (uint32_t)(step % STEPS + 1);
}

/* The tag's leading bits, as many as the layout's payload holds, below its quiet bit. */
static uint32_t with_tag(const layout *l, uint32_t bits, uint32_t tag) {
    uint32_t payload = l->payload_bits < TAG_BITS ? tag >> (TAG_BITS - l->payload_bits)
                                                  : tag << (l->payload_bits - TAG_BITS);
    return (bits & ~((1u << l->payload_bits) - 1)) | payload;
}

static uint32_t tag_in(const layout *l, uint32_t bits) {
    uint32_t payload = bits & ((1u << l->payload_bits) - 1);
    return l->payload_bits < TAG_BITS ? payload << (TAG_BITS - l->payload_bits)
                                      : payload >> (l->payload_bits - TAG_BITS);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static bool has_nan(const ab_tensor *tensor) {
    layout l;
    return layout_of(tensor, &l) && ab_extremes_of(tensor).nan > 0;
}

static bool has_infinity(const ab_tensor *tensor) {
    layout l;
    return layout_of(tensor, &l) && ab_extremes_of(tensor).infinite > 0;
}

/* The origin of a tag, or -1. Intermediate formats may have truncated the tag after the op's bits. */
static int origin_of(const nan_provenance *p, uint32_t tag) {
    int best = -1, best_bits = 0;
    for (int i = 0; i < p->origins; i++) {
        uint32_t other = tag_of(p->origin[i].number, p->origin[i].last_step), differ = tag ^ other;
        int bits = differ >> (GROUP_BITS + STEP_BITS) != 0 ? 0
                   : differ >> STEP_BITS != 0              ? 1
                   : differ != 0                           ? 2
                                                           : 3;
        if (bits > best_bits) {
            best = i;
            best_bits = bits;
        }
    }
    return best;
}

/* Tag of the first NaN with a known origin; 0 if there is none. */
static uint32_t first_tag(const nan_provenance *p, const ab_tensor *tensor) {
    layout l;
    if (!layout_of(tensor, &l)) return 0;
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++) {
        uint32_t bits = load(&l, tensor->data, i);
        if ((bits & l.magnitude) > l.infinity && origin_of(p, tag_in(&l, bits)) >= 0) return tag_in(&l, bits);
    }
    return 0;
}

/* Marks NaNs: all, or those without a known origin. */
static void mark(const nan_provenance *p, const ab_tensor *tensor, uint32_t tag, bool all) {
    layout l;
    if (!layout_of(tensor, &l)) return;
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++) {
        uint32_t bits = load(&l, tensor->data, i);
        if ((bits & l.magnitude) <= l.infinity) continue;
        if (all || origin_of(p, tag_in(&l, bits)) < 0) store(&l, tensor->data, i, with_tag(&l, bits, tag));
    }
}

/* ---- an op's tensors ------------------------------------------------------------------------- */

enum { MOST = AB_MAX_INPUTS + AB_MAX_PARAMS + 2 };

typedef struct tensors {
    const ab_tensor *tensor[MOST];
    int count;
} tensors;

static void add(tensors *list, const ab_tensor *tensor) {
    if (tensor && tensor->format) list->tensor[list->count++] = tensor;
}

static tensors written(const ab_op_run *run) {
    tensors list = {.count = 0};
    if (!run->backward) add(&list, run->io->out);
    for (int i = 0; run->backward && i < AB_MAX_INPUTS; i++) add(&list, run->io->din[i]);
    for (int i = 0; run->backward && i < AB_MAX_PARAMS; i++) add(&list, run->io->dparam[i]);
    return list;
}

/* Trained parameters; running statistics are written, not read. */
static tensors parameters(const ab_op_run *run) {
    tensors list = {.count = 0};
    for (int i = 0; i < AB_MAX_PARAMS; i++)
        if (run->io->dparam[i]) add(&list, run->io->param[i]);
    return list;
}

/* The op's other inputs. In the backward pass, inputs that it does not need may be freed. */
static tensors inputs(const ab_op_run *run) {
    tensors list = {.count = 0};
    unsigned needs = run->backward ? ab_io_needs(run->op, run->io) : (1u << AB_MAX_INPUTS) - 1;
    for (int i = 0; i < AB_MAX_INPUTS; i++)
        if (needs >> i & 1u) add(&list, run->io->in[i]);
    if (run->backward && needs & AB_NEEDS_OUT) add(&list, run->io->out);
    if (run->backward) add(&list, run->io->dout);
    return list;
}

static bool any(const tensors *list, bool (*test)(const ab_tensor *tensor)) {
    for (int i = 0; i < list->count; i++)
        if (test(list->tensor[i])) return true;
    return false;
}

static uint32_t any_tag(const nan_provenance *p, const tensors *list) {
    uint32_t tag = 0;
    for (int i = 0; i < list->count && tag == 0; i++) tag = first_tag(p, list->tensor[i]);
    return tag;
}

/* ---- origins --------------------------------------------------------------------------------- */

static void copy_name(char to[NAME], const char *from) {
    size_t length = strlen(from) < NAME - 1 ? strlen(from) : NAME - 1;
    memcpy(to, from, length);
    to[length] = '\0';
}

static void add_origin(nan_provenance *p, const ab_op_run *run, place where, bool infinite) {
    origin *found = NULL;
    for (int i = 0; i < p->origins && !found; i++) {
        origin *o = &p->origin[i];
        if (o->number == run->number && o->backward == run->backward && o->place == where) found = o;
    }
    if (!found && p->origins == MAX_ORIGINS) return;
    if (!found) {
        found = &p->origin[p->origins++];
        *found = (origin){.number = run->number, .backward = run->backward, .place = where};
        found->infinite = infinite;
        found->first_step = p->step;
        copy_name(found->name, run->name);
        copy_name(found->type, run->op->name);
    }
    found->last_step = p->step;
    found->times++;
}

/* Called if the op wrote NaNs. If it produced them, it is a new origin; if it read them, marks are
 * propagated, or an origin is added for NaNs that no examined op produced. */
static void trace(nan_provenance *p, const ab_op_run *run, const tensors *outputs) {
    tensors in = inputs(run), params = parameters(run);
    bool in_input = any(&in, has_nan), in_parameter = any(&params, has_nan);
    uint32_t tag = any_tag(p, &in);
    if (tag == 0) tag = any_tag(p, &params);
    if (tag == 0) {
        add_origin(p, run,
                   in_parameter ? IN_PARAMETER
                   : in_input   ? IN_INPUT
                                : IN_OUTPUT,
                   any(&in, has_infinity) || any(&params, has_infinity));
        tag = tag_of(run->number, p->step);
    }
    for (int i = 0; i < outputs->count; i++) mark(p, outputs->tensor[i], tag, !in_input && !in_parameter);
}

/* The latest step that matches a tag; without step bits, the last step in which its op produced a NaN. */
static int64_t step_of(const nan_provenance *p, uint32_t tag, const origin *from) {
    int64_t step = (int64_t)(tag & ((1u << STEP_BITS) - 1)) - 1;
    if (step < 0) return from->last_step;
    return p->step - (p->step - step) % STEPS;
}

static void read_loss(nan_provenance *p, const ab_tensor *loss) {
    layout l;
    if (!layout_of(loss, &l) || !has_nan(loss)) return;
    uint32_t tag = tag_in(&l, load(&l, loss->data, 0));
    reading found = {.step = p->step, .origin = origin_of(p, tag)};
    if (found.origin >= 0) found.origin_step = step_of(p, tag, &p->origin[found.origin]);
    if (p->losses++ == 0) p->first = found;
    p->traced += found.origin >= 0;
}

static void begin(void *state, int64_t step, double loss_scale) {
    nan_provenance *p = state;
    (void)loss_scale;
    p->step = step;
}

static void ran(void *state, const ab_op_run *run) {
    nan_provenance *p = state;
    tensors outputs = written(run);
    if (any(&outputs, has_nan)) trace(p, run, &outputs);
    if (run->op->is_loss && !run->backward) read_loss(p, run->io->out);
}

/* ---- report ---------------------------------------------------------------------------------- */

static void report_origin(const origin *o, ab_probe_sink *sink) {
    sink->begin_object(sink, NULL);
    sink->text(sink, "op", o->name);
    sink->text(sink, "type", o->type);
    sink->text(sink, "pass", o->backward ? "backward" : "forward");
    sink->text(sink, "where", place_names[o->place]);
    sink->boolean(sink, "read_infinity", o->infinite);
    sink->integer(sink, "first_step", o->first_step);
    sink->integer(sink, "last_step", o->last_step);
    sink->integer(sink, "times", o->times);
    sink->end(sink);
}

static void report_first(const nan_provenance *p, ab_probe_sink *sink) {
    if (p->losses == 0) {
        sink->text(sink, "first_loss", NULL);
        return;
    }
    bool known = p->first.origin >= 0;
    sink->begin_object(sink, "first_loss");
    sink->integer(sink, "step", p->first.step);
    sink->text(sink, "op", known ? p->origin[p->first.origin].name : NULL);
    sink->number(sink, "origin_step", known ? (double)p->first.origin_step : (double)NAN);
    sink->end(sink);
}

static void report(void *state, ab_probe_sink *sink) {
    const nan_provenance *p = state;
    sink->begin_object(sink, "nan_provenance");
    sink->integer(sink, "nan_losses", p->losses);
    sink->integer(sink, "traced_losses", p->traced);
    report_first(p, sink);
    sink->begin_array(sink, "origins");
    for (int i = 0; i < p->origins; i++) report_origin(&p->origin[i], sink);
    sink->end(sink);
    sink->end(sink);
}

extern const ab_probe_kind ab_probe_nan_provenance;
const ab_probe_kind ab_probe_nan_provenance = {
    .name = "nan_provenance",
    .text = "which op made the first NaN, read back at the loss from its payload",
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .ran = ran,
    .report = report,
};
