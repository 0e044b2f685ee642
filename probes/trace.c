/* Trace: digests of all tensors that ops read and wrote in the first probed steps, so that two runs can be
 * compared tensor by tensor (reports/compare/divergence.h). A digest has 8 projections on fixed random signs,
 * which estimate the distance of two tensors within a factor of two (Johnson and Lindenstrauss 1984), the
 * norm, the counts of non-finite values, and a checksum of the fp32 bits. Bounded: 16 steps and 8192 digests.
 * Gradients include the loss scale, which is recorded too. */
#include "kernels/core/text.h"
#include "probes/probe.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 16, DIGESTS = 8192, SIGNS = 8, NAME = 144 };

typedef struct digest {
    double projection[SIGNS], norm;
    int64_t nonfinite;
    uint64_t bits;
} digest;

typedef struct traced {
    char name[NAME], op[NAME];
    const char *type;
    bool backward;
    int64_t count;
} traced;

typedef struct trace {
    int tensors, capacity, steps, next; /* next: index in the current step */
    traced *tensor;
    digest *digest; /* [STEPS][capacity]: one row per step; the first step defines the tensors */
    int64_t step[STEPS];
    double scale[STEPS];
    float *scratch;
    int64_t scratch_count;
    bool active, failed; /* failed: out of memory; nothing is reported */
} trace;

/* ---- a tensor -------------------------------------------------------------------------------- */

/* Eight random signs for element i, identical in every run: splitmix64. */
static unsigned signs_of(uint64_t i) {
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (unsigned)((z ^ (z >> 31)) & 0xff);
}

static void take(digest *d, const float *x, int64_t n) {
    double squares = 0;
    *d = (digest){.bits = 0xcbf29ce484222325u};
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, &x[i], sizeof word);
        d->bits = (d->bits ^ word) * 0x100000001b3u;
        if (!isfinite(x[i])) {
            d->nonfinite++;
            continue;
        }
        double value = (double)x[i];
        unsigned signs = signs_of((uint64_t)i);
        squares += value * value;
        for (int k = 0; k < SIGNS; k++) d->projection[k] += signs >> k & 1u ? value : -value;
    }
    d->norm = sqrt(squares);
}

static const float *widen(trace *t, const ab_tensor *tensor, int64_t n) {
    if (tensor->format == &ab_format_fp32) return tensor->data;
    if (n > t->scratch_count) {
        float *scratch = realloc(t->scratch, (size_t)n * sizeof *scratch);
        if (!scratch) return NULL;
        t->scratch = scratch;
        t->scratch_count = n;
    }
    return ab_view_f32(tensor, t->scratch);
}

/* ---- the list of tensors --------------------------------------------------------------------- */

static bool grow(trace *t) {
    if (t->tensors < t->capacity) return true;
    if (t->steps > 1 || t->tensors >= DIGESTS) return false;
    int capacity = t->capacity ? 2 * t->capacity : 64;
    traced *tensor = realloc(t->tensor, (size_t)capacity * sizeof *tensor);
    if (tensor) t->tensor = tensor;
    digest *first = tensor ? realloc(t->digest, (size_t)capacity * sizeof *first) : NULL;
    if (!first) {
        t->failed = true;
        return false;
    }
    t->digest = first;
    t->capacity = capacity;
    return true;
}

/* The slot of the next tensor of this step; NULL if it differs from the first step's tensor at this position,
 * or the table is full. */
static digest *slot_for(trace *t, const ab_op_run *run, const char *what, int64_t count) {
    char name[NAME];
    ab_text_exact(name, sizeof name, "%s.%s", run->name, what);
    if (t->steps == 1) {
        if (!grow(t)) return NULL;
        traced *about = &t->tensor[t->tensors++];
        *about = (traced){.backward = run->backward, .count = count, .type = run->op->name};
        memcpy(about->name, name, sizeof name);
        ab_text_exact(about->op, sizeof about->op, "%s", run->name);
    } else if (t->next >= t->tensors || strcmp(t->tensor[t->next].name, name) != 0) {
        return NULL;
    }
    return &t->digest[(size_t)(t->steps - 1) * (size_t)t->capacity + (size_t)t->next++];
}

static void show(trace *t, const ab_op_run *run, const char *what, const ab_tensor *tensor) {
    if (!tensor || !tensor->format || !tensor->data || t->failed) return;
    int64_t n = ab_tensor_count(tensor);
    const float *values = widen(t, tensor, n);
    digest *slot = slot_for(t, run, what, n);
    if (values && slot)
        take(slot, values, n);
    else if (slot)
        t->failed = true;
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static ab_status create(const ab_probe_setup *setup, void **state) {
    (void)setup;
    *state = calloc(1, sizeof(trace));
    return *state ? AB_OK : ab_fail(AB_NO_MEMORY, "probe trace: out of memory");
}

static void destroy(void *state) {
    trace *t = state;
    if (!t) return;
    free(t->tensor);
    free(t->digest);
    free(t->scratch);
    free(t);
}

/* After the first step the tensors are known: allocates rows for as many further steps as the bound
 * allows. */
static bool another_step(trace *t) {
    if (t->failed || t->steps == STEPS || (t->steps > 0 && (t->steps + 1) * t->tensors > DIGESTS))
        return false;
    if (t->steps != 1) return true;
    digest *rows = realloc(t->digest, (size_t)STEPS * (size_t)t->capacity * sizeof *rows);
    if (!rows) return false;
    t->digest = rows;
    return true;
}

static void begin(void *state, int64_t step, double loss_scale) {
    trace *t = state;
    t->active = another_step(t);
    if (!t->active) return;
    t->step[t->steps] = step;
    t->scale[t->steps++] = loss_scale;
    t->next = 0;
}

static void show_params(trace *t, const ab_op_run *run, ab_tensor *const *param, const char *suffix) {
    ab_param_spec spec[AB_MAX_PARAMS];
    ab_shape in[AB_MAX_INPUTS];
    char name[NAME];
    for (int i = 0; i < AB_MAX_INPUTS; i++)
        if (run->io->in[i]) in[i] = run->io->in[i]->shape;
    int count = run->op->params ? run->op->params(run->io->attrs, in, spec) : 0;
    for (int i = 0; i < count; i++) {
        ab_text_exact(name, sizeof name, "%s%s", spec[i].name, suffix);
        show(t, run, name, param[i]);
    }
}

static void ran(void *state, const ab_op_run *run) {
    trace *t = state;
    char name[32];
    if (!t->active || t->failed) return;
    if (run->backward) {
        show_params(t, run, run->io->dparam, ".grad");
        for (int i = 0; i < AB_MAX_INPUTS; i++) {
            ab_text_exact(name, sizeof name, i ? "in%d.grad" : "in.grad", i);
            show(t, run, name, run->io->din[i]);
        }
        return;
    }
    if (run->number == 0) show(t, run, "in", run->io->in[0]);
    show_params(t, run, run->io->param, "");
    show(t, run, "out", run->io->out);
}

static void step_end(void *state, int64_t step) {
    trace *t = state;
    (void)step;
    if (t->active && t->next != t->tensors) t->steps--; /* differs from the first step: not comparable */
    t->active = false;
}

/* ---- report ---------------------------------------------------------------------------------- */

static void report_digest(const digest *d, ab_probe_sink *sink) {
    char bits[24];
    ab_text_exact(bits, sizeof bits, "%016" PRIx64, d->bits);
    sink->begin_object(sink, NULL);
    sink->text(sink, "bits", bits);
    sink->integer(sink, "nonfinite", d->nonfinite);
    sink->number(sink, "norm", d->norm);
    sink->begin_array(sink, "projections");
    for (int k = 0; k < SIGNS; k++) sink->number(sink, NULL, d->projection[k]);
    sink->end(sink);
    sink->end(sink);
}

static void report_tensor(const trace *t, int i, ab_probe_sink *sink) {
    const traced *about = &t->tensor[i];
    sink->begin_object(sink, NULL);
    sink->text(sink, "name", about->name);
    sink->text(sink, "op", about->op);
    sink->text(sink, "type", about->type);
    sink->text(sink, "pass", about->backward ? "backward" : "forward");
    sink->integer(sink, "count", about->count);
    sink->begin_array(sink, "digests");
    for (int s = 0; s < t->steps; s++)
        report_digest(&t->digest[(size_t)s * (size_t)t->capacity + (size_t)i], sink);
    sink->end(sink);
    sink->end(sink);
}

static void report(void *state, ab_probe_sink *sink) {
    const trace *t = state;
    int steps = t->failed ? 0 : t->steps;
    sink->begin_object(sink, "trace");
    sink->integers(sink, "steps", t->step, steps);
    sink->begin_array(sink, "scales");
    for (int s = 0; s < steps; s++) sink->number(sink, NULL, t->scale[s]);
    sink->end(sink);
    sink->begin_array(sink, "tensors");
    for (int i = 0; steps > 0 && i < t->tensors; i++) report_tensor(t, i, sink);
    sink->end(sink);
    sink->end(sink);
}

extern const ab_probe_kind ab_probe_trace;
const ab_probe_kind ab_probe_trace = {
    .name = "trace",
    .text = "digests of every tensor in the first probed steps, for ampbench compare --trace",
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .ran = ran,
    .step_end = step_end,
    .report = report,
};
