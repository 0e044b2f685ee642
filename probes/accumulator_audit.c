/* The accumulator audit: recomputes sampled dot products of every conv2d and linear, forward and backward, in
 * the accumulators of operands.h and compares them with the exact sum. Operands are the values the op read,
 * in its own formats, in memory order (kernel row, column, channel); padding zeros are not added.
 *
 * Errors are in units of u * sum |a b|, where u is half the accumulator's spacing at 1: the worst case grows
 * with the number of products k, random rounding with sqrt(k). The sampled products depend on the seed and
 * the step. The ops themselves are not changed. */
#include "kernels/core/rng.h"
#include "probes/operands.h"
#include "probes/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ACCUMULATORS = 8, ADDENDS_PER_STEP = 8192, MAX_SAMPLES = 8 };

static const char *const pass_names[AB_DOT_PASSES] = {"forward", "backward_data", "backward_weights"};

/* Statistics of one accumulator in one pass of one op. */
typedef struct audit {
    int64_t addends, swamped, overflowed;
    double squares, largest; /* of the error, in u * sum |a b| */
    int64_t errors;
} audit;

typedef struct entry {
    char name[64];
    int number;
    ab_dot_pass pass;
    int64_t products, samples;
    audit audit[MAX_ACCUMULATORS];
} entry;

typedef struct accumulator_audit {
    uint64_t seed;
    int64_t step;
    entry *entry;
    int entries, room;
    float *a, *b;   /* operands of one dot product */
    int64_t *place; /* and where they are, where the host cannot read them */
    int64_t operands;
} accumulator_audit;

static void destroy(void *state) {
    accumulator_audit *a = state;
    if (!a) return;
    free(a->entry);
    free(a->a);
    free(a->b);
    free(a->place);
    free(a);
}

static ab_status create(const ab_probe_setup *setup, void **state) {
    accumulator_audit *a = calloc(1, sizeof *a);
    if (!a) return ab_fail(AB_NO_MEMORY, "probe accumulator_audit: out of memory");
    a->seed = setup->seed;
    *state = a;
    return AB_OK;
}

/* ---- auditing -------------------------------------------------------------------------------- */

/* One dot product with its exact value. */
typedef struct sample {
    const float *a, *b;
    int64_t n;
    double exact, magnitude; /* sum of a b, of |a b| */
} sample;

static double sum_of_magnitudes(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += fabs((double)a[i] * (double)b[i]);
    return sum;
}

static void audit_one(audit *to, const ab_accumulator *accumulator, const sample *dot) {
    ab_dot found = ab_dot_in(accumulator, dot->a, dot->b, dot->n);
    to->addends += found.addends;
    to->swamped += found.swamped;
    if (!isfinite(found.sum)) {
        to->overflowed++;
        return;
    }
    double unit = dot->magnitude * ldexp(1, -accumulator->format.precision);
    double error = fabs(found.sum - dot->exact) / unit;
    to->squares += error * error;
    to->largest = fmax(to->largest, error);
    to->errors++;
}

static void audit_dot(entry *to, const float *a, const float *b, int64_t n) {
    sample dot = {.a = a, .b = b, .n = n, .magnitude = sum_of_magnitudes(a, b, n)};
    if (!(dot.magnitude > 0) || !isfinite(dot.magnitude)) return; /* all zero, or non-finite */
    dot.exact = ab_dot_exact(a, b, n);
    to->samples++;
    for (int i = 0; i < ab_accumulator_count(); i++) audit_one(&to->audit[i], ab_accumulator_at(i), &dot);
}

/* The entry of an op's pass, created at its first run; NULL if out of memory. */
static entry *entry_of(accumulator_audit *a, const ab_op_run *run, ab_dot_pass pass) {
    for (int i = 0; i < a->entries; i++)
        if (a->entry[i].number == run->number && a->entry[i].pass == pass) return &a->entry[i];
    if (a->entries == a->room) {
        int room = 2 * a->room + AB_DOT_PASSES;
        entry *more = realloc(a->entry, (size_t)room * sizeof *more);
        if (!more) return NULL;
        a->entry = more;
        a->room = room;
    }
    entry *made = &a->entry[a->entries++];
    *made = (entry){.number = run->number, .pass = pass};
    size_t length = strlen(run->name) < sizeof made->name - 1 ? strlen(run->name) : sizeof made->name - 1;
    memcpy(made->name, run->name, length);
    return made;
}

static bool reserve(accumulator_audit *a, int64_t operands) {
    if (operands <= a->operands) return true;
    float *more_a = realloc(a->a, (size_t)operands * sizeof *more_a);
    if (more_a) a->a = more_a;
    float *more_b = realloc(a->b, (size_t)operands * sizeof *more_b);
    if (more_b) a->b = more_b;
    int64_t *places = realloc(a->place, 2 * (size_t)operands * sizeof *places);
    if (places) a->place = places;
    if (!more_a || !more_b || !places) return false;
    a->operands = operands;
    return true;
}

/* If out of memory, nothing is audited. */
static void audit_pass(accumulator_audit *a, const ab_op_run *run, ab_dot_pass pass) {
    ab_operands operands;
    if (!ab_operands_of(run, pass, &operands) || operands.products < 1) return;
    entry *to = entry_of(a, run, pass);
    if (!to || !reserve(a, operands.products)) return;
    int64_t samples = ADDENDS_PER_STEP / operands.products;
    samples = samples < 1 ? 1 : samples > MAX_SAMPLES ? MAX_SAMPLES : samples;
    to->products = operands.products;
    for (int64_t s = 0; s < samples; s++) {
        uint64_t index = (uint64_t)((run->number * AB_DOT_PASSES + (int)pass) * MAX_SAMPLES + s);
        uint64_t result =
            ab_rng_below(a->seed, AB_RNG_SAMPLE, (uint32_t)a->step, index, (uint64_t)operands.results);
        const int64_t n = ab_operands_fetch(&operands, (int64_t)result, a->place, a->a, a->b);
        if (n >= 0) audit_dot(to, a->a, a->b, n);
    }
}

static void begin(void *state, int64_t step, double loss_scale) {
    accumulator_audit *a = state;
    (void)loss_scale;
    a->step = step;
}

static void ran(void *state, const ab_op_run *run) {
    for (int pass = 0; pass < AB_DOT_PASSES; pass++) audit_pass(state, run, (ab_dot_pass)pass);
}

/* ---- report ---------------------------------------------------------------------------------- */

static void report_audit(const audit *found, const ab_accumulator *accumulator, ab_probe_sink *sink) {
    bool any = found->errors > 0;
    sink->begin_object(sink, NULL);
    sink->text(sink, "name", accumulator->name);
    sink->integer(sink, "addends", found->addends);
    sink->integer(sink, "swamped", found->swamped);
    sink->integer(sink, "overflowed", found->overflowed);
    sink->number(sink, "error_rms", any ? sqrt(found->squares / (double)found->errors) : (double)NAN);
    sink->number(sink, "error_max", any ? found->largest : (double)NAN);
    sink->end(sink);
}

static void report_entry(const entry *e, ab_probe_sink *sink) {
    sink->begin_object(sink, NULL);
    sink->text(sink, "layer", e->name);
    sink->text(sink, "pass", pass_names[e->pass]);
    sink->integer(sink, "products", e->products);
    sink->integer(sink, "samples", e->samples);
    sink->number(sink, "bound_chance", sqrt((double)e->products));
    sink->number(sink, "bound_worst", (double)e->products);
    sink->begin_array(sink, "accumulators");
    for (int i = 0; i < ab_accumulator_count(); i++) report_audit(&e->audit[i], ab_accumulator_at(i), sink);
    sink->end(sink);
    sink->end(sink);
}

static void report(void *state, ab_probe_sink *sink) {
    const accumulator_audit *a = state;
    sink->begin_array(sink, "accumulator_audit");
    for (int i = 0; i < a->entries; i++) report_entry(&a->entry[i], sink);
    sink->end(sink);
}

extern const ab_probe_kind ab_probe_accumulator_audit;
const ab_probe_kind ab_probe_accumulator_audit = {
    .name = "accumulator_audit",
    .text = "sampled dot products in fp16, bf16, fp32, 14-bit and chunked accumulators",
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .ran = ran,
    .anywhere = true,
    .report = report,
};
