/* The reference is computed first and stored, one array per gradient that an op writes; then the cell's step
 * is compared with it op by op, while its gradients exist. Only the first micro-batch of a step is compared.
 */
#include "bench/reference/fp32_reference.h"

#include "bench/amp/policy.h"
#include "kernels/core/text.h"
#include "kernels/format/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = AB_MAX_INPUTS + AB_MAX_PARAMS, NAME = 96, WIDEN = 1024 };

typedef struct entry {
    int number, slot;
    char op[NAME], tensor[NAME];
    const ab_format *format; /* of the cell's gradient; NULL: not compared yet */
    int64_t count;
    float *reference; /* unscaled */
    bool fresh;       /* of the current look, not compared yet */
    ab_gradient_error sums;
} entry;

struct ab_fp32_reference {
    ab_reference_kind kind;
    int octaves;
    ab_cell_config config; /* of the fp32 cell */
    ab_cell *cell;         /* NULL: de-censoring */
    ab_watch watch;
    bool storing;
    double scale; /* loss scale of the gradients currently observed */
    int last_forward, micro;
    entry *entry;
    int entries, room;
    int64_t looks, compared_losses;
    float reference_loss;
    double loss_error; /* sum of |difference| / |reference| */
    ab_status failed;  /* first error inside a step */
};

/* ---- entries --------------------------------------------------------------------------------- */

static entry *find_entry(ab_fp32_reference *fp32, int number, int slot) {
    for (int i = 0; i < fp32->entries; i++)
        if (fp32->entry[i].number == number && fp32->entry[i].slot == slot) return &fp32->entry[i];
    return NULL;
}

static void name_tensor(const ab_op_run *run, int slot, char name[NAME]) {
    ab_param_spec spec[AB_MAX_PARAMS];
    ab_shape in[AB_MAX_INPUTS] = {{.ndim = 0}};
    for (int i = 0; i < AB_MAX_INPUTS; i++)
        if (run->io->in[i]) in[i] = run->io->in[i]->shape;
    const int param = slot - AB_MAX_INPUTS;
    if (param >= 0 && run->op->params && param < run->op->params(run->io->attrs, in, spec))
        ab_text_exact(name, NAME, "%s.grad", spec[param].name);
    else
        ab_text_exact(name, NAME, "in%d.grad", slot);
}

static entry *new_entry(ab_fp32_reference *fp32, const ab_op_run *run, int slot, int64_t count) {
    if (fp32->entries == fp32->room) {
        const int room = 2 * fp32->room + 64;
        entry *more = realloc(fp32->entry, (size_t)room * sizeof *more);
        if (!more) return NULL;
        fp32->entry = more;
        fp32->room = room;
    }
    float *reference = malloc((size_t)count * sizeof *reference);
    if (!reference) return NULL;
    entry *made = &fp32->entry[fp32->entries++];
    *made = (entry){.number = run->number, .slot = slot, .count = count, .reference = reference};
    ab_text_exact(made->op, NAME, "%s", run->name);
    name_tensor(run, slot, made->tensor);
    return made;
}

/* ---- observing ------------------------------------------------------------------------------ */

static void store(ab_fp32_reference *fp32, const ab_op_run *run, int slot, const ab_tensor *tensor) {
    const int64_t count = ab_tensor_count(tensor);
    entry *to = find_entry(fp32, run->number, slot);
    if (!to) to = new_entry(fp32, run, slot, count);
    if (!to) {
        fp32->failed = ab_fail(AB_NO_MEMORY, "shadow gradients: out of memory");
        return;
    }
    ab_widen(to->reference, tensor->data, tensor->format, count);
    for (int64_t i = 0; i < count; i++) to->reference[i] = (float)((double)to->reference[i] / fp32->scale);
    to->fresh = true;
}

static void compare(ab_fp32_reference *fp32, const ab_op_run *run, int slot, const ab_tensor *tensor) {
    float values[WIDEN];
    entry *with = find_entry(fp32, run->number, slot);
    if (!with || !with->fresh || with->count != ab_tensor_count(tensor)) return;
    with->format = tensor->format;
    with->fresh = false;
    for (int64_t first = 0, n; first < with->count; first += n) {
        n = with->count - first < WIDEN ? with->count - first : WIDEN;
        ab_widen(values, (const char *)tensor->data + ab_format_bytes(tensor->format, first), tensor->format,
                 n);
        ab_gradient_error_add(&with->sums, with->reference + first, values, tensor->format, fp32->scale, n);
    }
    ab_gradient_error_close(&with->sums);
}

static void ran(void *context, const ab_op_run *run) {
    ab_fp32_reference *fp32 = context;
    if (!run->backward && run->number <= fp32->last_forward) fp32->micro++;
    if (!run->backward) fp32->last_forward = run->number;
    if (!run->backward || fp32->micro > 0) return;
    for (int slot = 0; slot < SLOTS; slot++) {
        const ab_tensor *tensor =
            slot < AB_MAX_INPUTS ? run->io->din[slot] : run->io->dparam[slot - AB_MAX_INPUTS];
        if (tensor && tensor->format) (fp32->storing ? store : compare)(fp32, run, slot, tensor);
    }
}

static void begin_pass(ab_fp32_reference *fp32, bool storing, double scale) {
    fp32->storing = storing;
    fp32->scale = scale;
    fp32->last_forward = -1;
    fp32->micro = 0;
}

/* ---- interface ------------------------------------------------------------------------------- */

static ab_status create_cell(ab_fp32_reference *fp32, const ab_cell_config *config) {
    const ab_level *o0;
    fp32->config = *config;
    AB_TRY(ab_level_find("O0", &o0));
    AB_TRY(ab_policy_resolve(o0, config->policy.half, NULL, 0, &fp32->config.policy));
    fp32->config.accumulate_half = fp32->config.tf32 = false;
    fp32->config.perturbation = AB_PERTURB_NONE;
    return ab_cell_create(&fp32->config, &fp32->cell);
}

ab_status ab_fp32_reference_create(const ab_cell_config *config, ab_reference_kind kind, int octaves,
                                   ab_fp32_reference **result) {
    ab_fp32_reference *fp32 = calloc(1, sizeof *fp32);
    if (!fp32) return ab_fail(AB_NO_MEMORY, "shadow gradients: out of memory");
    fp32->kind = kind;
    fp32->octaves = octaves;
    fp32->config = *config;
    fp32->watch = (ab_watch){.context = fp32, .ran = ran};
    ab_status status =
        config->policy.num_losses > 1 || config->policy.loss_scale.scaler.kind->sees & AB_SEES_LAYER
            ? ab_fail(
                  AB_CONFIG,
                  "--shadow-every: not where losses or layers have their own scales (num_losses, adaloss)")
        : kind == AB_REFERENCE_FP32 ? create_cell(fp32, config)
                                    : AB_OK;
    if (status == AB_OK)
        *result = fp32;
    else
        ab_fp32_reference_destroy(fp32);
    return status;
}

void ab_fp32_reference_destroy(ab_fp32_reference *fp32) {
    if (!fp32) return;
    for (int i = 0; i < fp32->entries; i++) free(fp32->entry[i].reference);
    free(fp32->entry);
    ab_cell_destroy(fp32->cell);
    free(fp32);
}

ab_status ab_fp32_reference_before(ab_fp32_reference *fp32, ab_cell *cell) {
    ab_cell *reference = fp32->cell ? fp32->cell : cell;
    const double factor = fp32->cell ? 1 : ldexp(1, fp32->octaves);
    for (int i = 0; i < fp32->entries; i++) fp32->entry[i].fresh = false;
    if (fp32->cell) AB_TRY(ab_cell_copy_weights(fp32->cell, cell));
    begin_pass(fp32, true, factor * ab_cell_scaler(reference)->scale);
    ab_cell_follow(reference, &fp32->watch);
    ab_status status = ab_cell_dry_run(reference, factor, &fp32->reference_loss);
    ab_cell_follow(reference, NULL);
    if (status == AB_OK) status = fp32->failed;
    if (status != AB_OK) return status;
    begin_pass(fp32, false, ab_cell_scaler(cell)->scale);
    ab_cell_follow(cell, &fp32->watch);
    return AB_OK;
}

ab_status ab_fp32_reference_after(ab_fp32_reference *fp32, ab_cell *cell, const ab_step_result *result) {
    ab_cell_follow(cell, NULL);
    fp32->looks++;
    const double reference = (double)fp32->reference_loss, error = fabs((double)result->loss - reference);
    if (isfinite(error) && reference != 0) {
        fp32->loss_error += error / fabs(reference);
        fp32->compared_losses++;
    }
    return fp32->failed;
}

/* ---- report ---------------------------------------------------------------------------------- */

static double share(double part, double whole) { return whole > 0 ? part / whole : (double)NAN; }

/* eps: of the coarsest format that the gradient was rounded to. */
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

void ab_fp32_reference_report(const ab_fp32_reference *fp32, ab_probe_sink *sink) {
    sink->text(sink, "reference", fp32->cell ? "fp32" : "decensor");
    sink->integer(sink, "octaves", fp32->cell ? 0 : fp32->octaves);
    sink->integer(sink, "looks", fp32->looks);
    sink->number(sink, "loss_error", share(fp32->loss_error, (double)fp32->compared_losses));
    const double eps = ab_format_eps(fp32->config.policy.half);
    sink->begin_array(sink, "tensors");
    for (int i = 0; i < fp32->entries; i++)
        if (fp32->entry[i].format) report_entry(&fp32->entry[i], eps, sink);
    sink->end(sink);
}

/* Sums of a comparison, in double and in a fixed order. */

enum { BLOCK = 1024 };

/* Adds the error of one cast of the reference at this scale. */
static void add_rounding(ab_gradient_error *sums, const float *reference, const ab_format *format,
                         double scale, int64_t n) {
    static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    float cast[BLOCK];
    for (int64_t i = 0; i < n; i++) cast[i] = (float)((double)reference[i] * scale);
    ab_round_array(cast, format, &nearest, n);
    for (int64_t i = 0; i < n; i++) {
        double d = (double)cast[i] / scale - (double)reference[i];
        if (isfinite(d)) sums->rounding += d * d;
    }
}

static void add_zero(ab_gradient_error *sums, double g, double smallest) {
    if (g == 0)
        sums->natural_zeros++;
    else if (fabs(g) < smallest)
        sums->flushed++;
    else
        sums->vanished++;
}

static void add_element(ab_gradient_error *sums, double g, double h, double smallest) {
    if (!isfinite(g) || !isfinite(h)) {
        sums->reference_overflowed += !isfinite(g);
        sums->overflowed += isfinite(g) && !isfinite(h);
        return;
    }
    const double d = h - g;
    if (h == 0 || g == 0) add_zero(sums, h == 0 ? g : 0, smallest);
    if (h == 0 && fabs(g) < smallest) sums->flushed_energy += g * g;
    sums->energy += g * g;
    sums->error += d * d;
    sums->found += h * h;
    sums->product += g * h;
}

void ab_gradient_error_add(ab_gradient_error *sums, const float *reference, const float *found,
                           const ab_format *format, double scale, int64_t n) {
    const double smallest = ab_format_min_subnormal(format) / scale;
    for (int64_t first = 0; first < n; first += BLOCK) {
        const int64_t end = n - first < BLOCK ? n : first + BLOCK;
        for (int64_t i = first; i < end; i++)
            add_element(sums, (double)reference[i], (double)found[i] / scale, smallest);
        add_rounding(sums, reference + first, format, scale, end - first);
    }
    sums->count += n;
}

double ab_gradient_error_relative(const ab_gradient_error *sums) {
    return sums->energy > 0 ? sqrt(sums->error / sums->energy) : (double)NAN;
}

double ab_gradient_error_cosine(const ab_gradient_error *sums) {
    const double norms = sqrt(sums->energy) * sqrt(sums->found);
    return norms > 0 ? sums->product / norms : (double)NAN;
}

void ab_gradient_error_close(ab_gradient_error *sums) {
    const double energy = sums->energy - sums->closed[0], error = sums->error - sums->closed[1];
    const double along = sums->product - sums->closed[2] - energy; /* sum of g d */
    const double growth = (along + error / 4) / energy;
    sums->closed[0] = sums->energy;
    sums->closed[1] = sums->error;
    sums->closed[2] = sums->product;
    if (!(energy > 0) || !isfinite(growth)) return;
    sums->looks++;
    sums->growth += growth;
    sums->growth_squares += growth * growth;
    sums->noise += error / energy / 4;
}

/* Wallace's normal deviate of Student's t. */
static double normal_of(double t, double freedom) {
    return (8 * freedom + 1) / (8 * freedom + 3) * sqrt(freedom * log1p(t * t / freedom));
}

ab_gradient_bias ab_gradient_error_bias(const ab_gradient_error *sums, double eps) {
    const double n = (double)sums->looks, mean = sums->growth / n;
    ab_gradient_bias bias = {.growth = mean, .allowed = sums->noise / n + eps / 4, .z = (double)NAN};
    if (sums->looks < 2) return bias;
    const double variance = fmax(sums->growth_squares - n * mean * mean, 0) / (n - 1);
    const double beyond = fmax(fabs(mean) - bias.allowed, 0);
    const double t = beyond / fmax(sqrt(variance / n), 1e-9 * fabs(mean) + 1e-300);
    bias.z = copysign(normal_of(t, n - 1), mean);
    return bias;
}
