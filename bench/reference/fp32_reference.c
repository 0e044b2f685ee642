/* The reference is made first and kept, one array for each gradient that an op writes; then the cell's step is compared with it op
 * by op, while its gradients are there. Of a step's micro-batches the first is looked at. */
#include "bench/reference/fp32_reference.h"

#include "bench/amp/policy.h"
#include "bench/reference/gradient_error.h"
#include "kernels/format/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = AB_MAX_INPUTS + AB_MAX_PARAMS, NAME = 96, WIDEN = 1024 };

typedef struct entry {
    int number, slot;
    char op[NAME], tensor[NAME];
    const ab_format *format; /* of the cell's; NULL: not compared yet */
    int64_t count;
    float *reference; /* unscaled */
    bool fresh;       /* of this look, not compared yet */
    ab_gradient_error sums;
} entry;

struct ab_twin {
    ab_twin_kind kind;
    int octaves;
    ab_cell_config config; /* of the fp32 cell */
    ab_cell *cell;         /* NULL: de-censoring */
    ab_watch watch;
    bool storing;
    double scale; /* what the gradients that are heard now are multiplied by */
    int last_forward, micro;
    entry *entry;
    int entries, room;
    int64_t looks, compared_losses;
    float reference_loss;
    double loss_error; /* sum of |difference| / |reference| */
    ab_status failed;  /* of what happened inside a step */
};

/* ---- entries ----------------------------------------------------------------------------------------------- */

static entry *find_entry(ab_twin *twin, int number, int slot) {
    for (int i = 0; i < twin->entries; i++)
        if (twin->entry[i].number == number && twin->entry[i].slot == slot) return &twin->entry[i];
    return NULL;
}

static void name_tensor(const ab_op_run *run, int slot, char name[NAME]) {
    ab_param_spec spec[AB_MAX_PARAMS];
    ab_shape in[AB_MAX_INPUTS] = {{.ndim = 0}};
    for (int i = 0; i < AB_MAX_INPUTS; i++)
        if (run->io->in[i]) in[i] = run->io->in[i]->shape;
    const int param = slot - AB_MAX_INPUTS;
    if (param >= 0 && run->op->params && param < run->op->params(run->io->attrs, in, spec))
        snprintf(name, NAME, "%.80s.grad", spec[param].name);
    else
        snprintf(name, NAME, "in%d.grad", slot);
}

static entry *new_entry(ab_twin *twin, const ab_op_run *run, int slot, int64_t count) {
    if (twin->entries == twin->room) {
        const int room = 2 * twin->room + 64;
        entry *more = realloc(twin->entry, (size_t)room * sizeof *more);
        if (!more) return NULL;
        twin->entry = more;
        twin->room = room;
    }
    float *reference = malloc((size_t)count * sizeof *reference);
    if (!reference) return NULL;
    entry *made = &twin->entry[twin->entries++];
    *made = (entry){.number = run->number, .slot = slot, .count = count, .reference = reference};
    snprintf(made->op, NAME, "%.90s", run->name);
    name_tensor(run, slot, made->tensor);
    return made;
}

/* ---- listening --------------------------------------------------------------------------------------------- */

static void store(ab_twin *twin, const ab_op_run *run, int slot, const ab_tensor *tensor) {
    const int64_t count = ab_tensor_count(tensor);
    entry *to = find_entry(twin, run->number, slot);
    if (!to) to = new_entry(twin, run, slot, count);
    if (!to) {
        twin->failed = ab_fail(AB_NO_MEMORY, "shadow gradients: out of memory");
        return;
    }
    ab_widen(to->reference, tensor->data, tensor->format, count);
    for (int64_t i = 0; i < count; i++) to->reference[i] = (float)((double)to->reference[i] / twin->scale);
    to->fresh = true;
}

static void compare(ab_twin *twin, const ab_op_run *run, int slot, const ab_tensor *tensor) {
    float values[WIDEN];
    entry *with = find_entry(twin, run->number, slot);
    if (!with || !with->fresh || with->count != ab_tensor_count(tensor)) return;
    with->format = tensor->format;
    with->fresh = false;
    for (int64_t first = 0, n; first < with->count; first += n) {
        n = with->count - first < WIDEN ? with->count - first : WIDEN;
        ab_widen(values, (const char *)tensor->data + ab_format_bytes(tensor->format, first), tensor->format,
                 n);
        ab_gradient_error_add(&with->sums, with->reference + first, values, tensor->format, twin->scale, n);
    }
    ab_gradient_error_close(&with->sums);
}

static void ran(void *context, const ab_op_run *run) {
    ab_twin *twin = context;
    if (!run->backward && run->number <= twin->last_forward) twin->micro++;
    if (!run->backward) twin->last_forward = run->number;
    if (!run->backward || twin->micro > 0) return;
    for (int slot = 0; slot < SLOTS; slot++) {
        const ab_tensor *tensor =
            slot < AB_MAX_INPUTS ? run->io->din[slot] : run->io->dparam[slot - AB_MAX_INPUTS];
        if (tensor && tensor->format) (twin->storing ? store : compare)(twin, run, slot, tensor);
    }
}

static void listen_to(ab_twin *twin, bool storing, double scale) {
    twin->storing = storing;
    twin->scale = scale;
    twin->last_forward = -1;
    twin->micro = 0;
}

/* ---- interface --------------------------------------------------------------------------------------------- */

static ab_status create_cell(ab_twin *twin, const ab_cell_config *config) {
    const ab_level *o0;
    twin->config = *config;
    AB_TRY(ab_level_find("O0", &o0));
    AB_TRY(ab_policy_resolve(o0, config->policy.half, NULL, 0, &twin->config.policy));
    twin->config.accumulate_half = twin->config.ulp_twin = false;
    return ab_cell_create(&twin->config, &twin->cell);
}

ab_status ab_twin_create(const ab_cell_config *config, ab_twin_kind kind, int octaves, ab_twin **result) {
    ab_twin *twin = calloc(1, sizeof *twin);
    if (!twin) return ab_fail(AB_NO_MEMORY, "shadow gradients: out of memory");
    twin->kind = kind;
    twin->octaves = octaves;
    twin->config = *config;
    twin->watch = (ab_watch){.context = twin, .ran = ran};
    ab_status status =
        config->policy.num_losses > 1 || config->policy.loss_scale.scaler.kind->sees & AB_SEES_LAYER
            ? ab_fail(
                  AB_CONFIG,
                  "--shadow-every: not where losses or layers have their own scales (num_losses, adaloss)")
        : kind == AB_TWIN_FP32 ? create_cell(twin, config)
                               : AB_OK;
    if (status == AB_OK)
        *result = twin;
    else
        ab_twin_destroy(twin);
    return status;
}

void ab_twin_destroy(ab_twin *twin) {
    if (!twin) return;
    for (int i = 0; i < twin->entries; i++) free(twin->entry[i].reference);
    free(twin->entry);
    ab_cell_destroy(twin->cell);
    free(twin);
}

ab_status ab_twin_before(ab_twin *twin, ab_cell *cell) {
    ab_cell *reference = twin->cell ? twin->cell : cell;
    const double factor = twin->cell ? 1 : ldexp(1, twin->octaves);
    for (int i = 0; i < twin->entries; i++) twin->entry[i].fresh = false;
    if (twin->cell) AB_TRY(ab_cell_mirror(twin->cell, cell));
    listen_to(twin, true, factor * ab_cell_scaler(reference)->scale);
    ab_cell_follow(reference, &twin->watch);
    ab_status status = ab_cell_rehearse(reference, factor, &twin->reference_loss);
    ab_cell_follow(reference, NULL);
    if (status == AB_OK) status = twin->failed;
    if (status != AB_OK) return status;
    listen_to(twin, false, ab_cell_scaler(cell)->scale);
    ab_cell_follow(cell, &twin->watch);
    return AB_OK;
}

ab_status ab_twin_after(ab_twin *twin, ab_cell *cell, const ab_step_result *result) {
    ab_cell_follow(cell, NULL);
    twin->looks++;
    const double reference = (double)twin->reference_loss, error = fabs((double)result->loss - reference);
    if (isfinite(error) && reference != 0) {
        twin->loss_error += error / fabs(reference);
        twin->compared_losses++;
    }
    return twin->failed;
}

int64_t ab_twin_looks(const ab_twin *twin) { return twin->looks; }

/* ---- report ------------------------------------------------------------------------------------------------ */

static double share(double part, double whole) { return whole > 0 ? part / whole : (double)NAN; }

/* eps: of the coarsest format that the gradient went through. */
static void report_entry(const entry *e, double eps, ab_probe_sink *sink) {
    const ab_gradient_error *s = &e->sums;
    const ab_gradient_bias bias = ab_gradient_error_bias(s, fmax(ab_format_eps(e->format), eps));
    sink->begin_object(sink, NULL);
    sink->text(sink, "op", e->op);
    sink->text(sink, "tensor", e->tensor);
    sink->text(sink, "format", e->format->name);
    sink->integer(sink, "count", s->count);
    sink->integer(sink, "natural_zeros", s->natural_zeros);
    sink->integer(sink, "flushed", s->flushed);
    sink->integer(sink, "vanished", s->vanished);
    sink->integer(sink, "overflowed", s->overflowed);
    sink->integer(sink, "reference_overflowed", s->reference_overflowed);
    sink->number(sink, "relative_error", ab_gradient_error_relative(s));
    sink->number(sink, "cosine", ab_gradient_error_cosine(s));
    sink->number(sink, "growth", bias.growth);
    sink->number(sink, "growth_allowed", bias.allowed);
    sink->number(sink, "bias_z", bias.z);
    sink->number(sink, "flushed_energy_share", share(s->flushed_energy, s->energy));
    sink->number(sink, "rounding_energy_share", share(s->rounding, s->energy));
    sink->end(sink);
}

void ab_twin_report(const ab_twin *twin, ab_probe_sink *sink) {
    sink->text(sink, "reference", twin->cell ? "fp32" : "decensor");
    sink->integer(sink, "octaves", twin->cell ? 0 : twin->octaves);
    sink->integer(sink, "looks", twin->looks);
    sink->number(sink, "loss_error", share(twin->loss_error, (double)twin->compared_losses));
    const double eps = ab_format_eps(twin->config.policy.half);
    sink->begin_array(sink, "tensors");
    for (int i = 0; i < twin->entries; i++)
        if (twin->entry[i].format) report_entry(&twin->entry[i], eps, sink);
    sink->end(sink);
}
