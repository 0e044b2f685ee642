/* The accumulator audit: some dot products of every conv2d and linear, forward and backward, are added up again in the
 * accumulators of dot.h and compared with the exact sum. Operands are the values the op read, in its own formats; the order
 * is that of memory (kernel row, column, channel), and zeros of the padding are not added.
 *
 * Errors are in units of u * sum |a b|, u being half the spacing at 1 of the accumulator: the worst case grows with the
 * number of products k, rounding that behaves like chance with its root. Which products are looked at follows from the seed and
 * the step. What the ops themselves do is not touched. */
#include "kernels/convert.h"
#include "kernels/core/rng.h"
#include "probes/dot.h"
#include "probes/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PASSES = 3, MAX_ACCUMULATORS = 8, ADDENDS_PER_STEP = 8192, MAX_SAMPLES = 8 };

static const char *const pass_names[PASSES] = {"forward", "backward_data", "backward_weights"};
enum { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHTS };

/* Of one accumulator in one pass of one op. */
typedef struct audit {
    int64_t addends, swamped, overflowed;
    double squares, largest; /* of the error, in u * sum |a b| */
    int64_t errors;
} audit;

typedef struct entry {
    char name[64];
    int number, pass;
    int64_t products, samples;
    audit audit[MAX_ACCUMULATORS];
} entry;

typedef struct accumulator_audit {
    uint64_t seed;
    int64_t step;
    entry *entry;
    int entries, room;
    float *a, *b; /* operands of one dot product */
    int64_t operands;
} accumulator_audit;

static void destroy(void *state) {
    accumulator_audit *a = state;
    if (!a) return;
    free(a->entry);
    free(a->a);
    free(a->b);
    free(a);
}

static ab_status create(const ab_probe_setup *setup, void **state) {
    accumulator_audit *a = calloc(1, sizeof *a);
    if (!a) return ab_fail(AB_NO_MEMORY, "probe accumulator_audit: out of memory");
    a->seed = setup->seed;
    *state = a;
    return AB_OK;
}

/* ---- geometry ---------------------------------------------------------------------------------------------- */

/* A product op as a convolution; linear is one of 1x1 images. */
typedef struct geometry {
    int64_t batch, in[2], out[2], in_channels, out_channels, groups;
    int64_t kernel[2], stride[2], padding[2], dilation[2];
} geometry;

/* Copies `count` numbers of an attribute by its name. */
static void read_attr(const ab_op_run *run, const char *name, int count, int64_t *value) {
    for (const ab_attr *attr = run->op->attrs; attr->name; attr++)
        if (strcmp(attr->name, name) == 0)
            memcpy(value, (const char *)run->io->attrs + attr->offset, (size_t)count * sizeof *value);
}

static geometry conv_geometry(const ab_op_run *run) {
    const ab_shape *in = &run->io->in[0]->shape, *out = &run->io->out->shape;
    geometry g = {.batch = in->dim[0],
                  .in = {in->dim[1], in->dim[2]},
                  .out = {out->dim[1], out->dim[2]},
                  .in_channels = in->dim[3],
                  .out_channels = out->dim[3]};
    read_attr(run, "kernel_size", 2, g.kernel);
    read_attr(run, "stride", 2, g.stride);
    read_attr(run, "padding", 2, g.padding);
    read_attr(run, "dilation", 2, g.dilation);
    read_attr(run, "groups", 1, &g.groups);
    if (g.groups < 1) g.groups = 1;
    return g;
}

static geometry linear_geometry(const ab_op_run *run) {
    const ab_shape *in = &run->io->in[0]->shape, *out = &run->io->out->shape;
    int64_t features = in->dim[in->ndim - 1];
    return (geometry){.batch = ab_shape_count(in) / features,
                      .in = {1, 1},
                      .out = {1, 1},
                      .in_channels = features,
                      .out_channels = out->dim[out->ndim - 1],
                      .groups = 1,
                      .kernel = {1, 1},
                      .stride = {1, 1},
                      .dilation = {1, 1}};
}

/* ---- operands ---------------------------------------------------------------------------------------------- */

/* The dot product under way: pairs are appended. */
typedef struct gather {
    const geometry *g;
    const ab_tensor *x, *weight, *dout;
    float *a, *b;
    int64_t n;
} gather;

static float element(const ab_tensor *tensor, int64_t i) {
    float value;
    ab_widen(&value, (const char *)tensor->data + ab_format_bytes(tensor->format, i), tensor->format, 1);
    return value;
}

static void append(gather *to, const ab_tensor *a, int64_t i, const ab_tensor *b, int64_t j) {
    to->a[to->n] = element(a, i);
    to->b[to->n++] = element(b, j);
}

/* Input position that output position `o` reads through kernel tap `k`; -1 in the padding. */
static int64_t input_at(const geometry *g, int axis, int64_t o, int64_t k) {
    int64_t i = o * g->stride[axis] - g->padding[axis] + k * g->dilation[axis];
    return i >= 0 && i < g->in[axis] ? i : -1;
}

/* Output position that reads input position `i` through tap `k`; -1 if there is none. */
static int64_t output_at(const geometry *g, int axis, int64_t i, int64_t k) {
    int64_t o = i + g->padding[axis] - k * g->dilation[axis];
    if (o < 0 || o % g->stride[axis] != 0) return -1;
    o /= g->stride[axis];
    return o < g->out[axis] ? o : -1;
}

static int64_t in_index(const geometry *g, int64_t image, int64_t y, int64_t x, int64_t channel) {
    return ((image * g->in[0] + y) * g->in[1] + x) * g->in_channels + channel;
}
static int64_t out_index(const geometry *g, int64_t image, int64_t y, int64_t x, int64_t channel) {
    return ((image * g->out[0] + y) * g->out[1] + x) * g->out_channels + channel;
}
/* `in` counts within the group. */
static int64_t weight_index(const geometry *g, int64_t out, int64_t in, int64_t ky, int64_t kx) {
    return ((out * (g->in_channels / g->groups) + in) * g->kernel[0] + ky) * g->kernel[1] + kx;
}

/* out[i] = sum of x * weight. */
static void gather_forward(gather *to, int64_t i) {
    const geometry *g = to->g;
    int64_t channel = i % g->out_channels, column = i / g->out_channels % g->out[1];
    int64_t row = i / (g->out_channels * g->out[1]) % g->out[0];
    int64_t image = i / (g->out_channels * g->out[1] * g->out[0]);
    int64_t group_in = g->in_channels / g->groups, first = channel / (g->out_channels / g->groups) * group_in;
    for (int64_t ky = 0; ky < g->kernel[0]; ky++)
        for (int64_t kx = 0; kx < g->kernel[1]; kx++) {
            int64_t y = input_at(g, 0, row, ky), x = input_at(g, 1, column, kx);
            for (int64_t c = 0; y >= 0 && x >= 0 && c < group_in; c++)
                append(to, to->x, in_index(g, image, y, x, first + c), to->weight,
                       weight_index(g, channel, c, ky, kx));
        }
}

/* din[i] = sum of dout * weight. */
static void gather_backward_data(gather *to, int64_t i) {
    const geometry *g = to->g;
    int64_t channel = i % g->in_channels, column = i / g->in_channels % g->in[1];
    int64_t row = i / (g->in_channels * g->in[1]) % g->in[0];
    int64_t image = i / (g->in_channels * g->in[1] * g->in[0]);
    int64_t group_in = g->in_channels / g->groups, group_out = g->out_channels / g->groups;
    int64_t first = channel / group_in * group_out;
    for (int64_t ky = 0; ky < g->kernel[0]; ky++)
        for (int64_t kx = 0; kx < g->kernel[1]; kx++) {
            int64_t y = output_at(g, 0, row, ky), x = output_at(g, 1, column, kx);
            for (int64_t c = first; y >= 0 && x >= 0 && c < first + group_out; c++)
                append(to, to->dout, out_index(g, image, y, x, c), to->weight,
                       weight_index(g, c, channel % group_in, ky, kx));
        }
}

/* dweight[i] = sum of dout * x. */
static void gather_backward_weights(gather *to, int64_t i) {
    const geometry *g = to->g;
    int64_t kx = i % g->kernel[1], ky = i / g->kernel[1] % g->kernel[0];
    int64_t group_in = g->in_channels / g->groups;
    int64_t in = i / (g->kernel[1] * g->kernel[0]) % group_in;
    int64_t out = i / (g->kernel[1] * g->kernel[0] * group_in);
    int64_t channel = out / (g->out_channels / g->groups) * group_in + in;
    for (int64_t image = 0; image < g->batch; image++)
        for (int64_t row = 0; row < g->out[0]; row++)
            for (int64_t column = 0; column < g->out[1]; column++) {
                int64_t y = input_at(g, 0, row, ky), x = input_at(g, 1, column, kx);
                if (y >= 0 && x >= 0)
                    append(to, to->dout, out_index(g, image, row, column, out), to->x,
                           in_index(g, image, y, x, channel));
            }
}

/* What differs between the passes. */
typedef struct pass {
    void (*gather)(gather *to, int64_t i);
    int64_t results, products; /* dot products there are; addends of one, at most */
} pass;

static pass pass_of(const geometry *g, int kind) {
    int64_t taps = g->kernel[0] * g->kernel[1], group_in = g->in_channels / g->groups;
    int64_t out_places = g->batch * g->out[0] * g->out[1];
    const pass passes[PASSES] = {
        {gather_forward, out_places * g->out_channels, taps * group_in},
        {gather_backward_data, g->batch * g->in[0] * g->in[1] * g->in_channels,
         taps * (g->out_channels / g->groups)},
        {gather_backward_weights, g->out_channels * group_in * taps, out_places},
    };
    return passes[kind];
}

/* ---- auditing ---------------------------------------------------------------------------------------------- */

static double sum_of_magnitudes(const gather *dot) {
    double sum = 0;
    for (int64_t i = 0; i < dot->n; i++) sum += fabs((double)dot->a[i] * (double)dot->b[i]);
    return sum;
}

static void audit_one(audit *to, const ab_accumulator *accumulator, const gather *dot, double exact,
                      double magnitude) {
    ab_dot found = ab_dot_in(accumulator, dot->a, dot->b, dot->n);
    to->addends += found.addends;
    to->swamped += found.swamped;
    if (!isfinite(found.sum)) {
        to->overflowed++;
        return;
    }
    double error = fabs(found.sum - exact) / (magnitude * ldexp(1, -accumulator->format.precision));
    to->squares += error * error;
    to->largest = fmax(to->largest, error);
    to->errors++;
}

static void audit_dot(entry *to, const gather *dot) {
    double magnitude = sum_of_magnitudes(dot);
    if (!(magnitude > 0) || !isfinite(magnitude)) return; /* nothing to add, or no exact sum */
    double exact = ab_dot_exact(dot->a, dot->b, dot->n);
    to->samples++;
    for (int i = 0; i < ab_accumulator_count(); i++)
        audit_one(&to->audit[i], ab_accumulator_at(i), dot, exact, magnitude);
}

/* The entry of an op's pass, made at its first run; NULL without memory. */
static entry *entry_of(accumulator_audit *a, const ab_op_run *run, int kind) {
    for (int i = 0; i < a->entries; i++)
        if (a->entry[i].number == run->number && a->entry[i].pass == kind) return &a->entry[i];
    if (a->entries == a->room) {
        int room = 2 * a->room + PASSES;
        entry *more = realloc(a->entry, (size_t)room * sizeof *more);
        if (!more) return NULL;
        a->entry = more;
        a->room = room;
    }
    entry *made = &a->entry[a->entries++];
    *made = (entry){.number = run->number, .pass = kind};
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
    if (!more_a || !more_b) return false;
    a->operands = operands;
    return true;
}

static void audit_pass(accumulator_audit *a, const ab_op_run *run, const geometry *g, int kind) {
    pass what = pass_of(g, kind);
    if (what.products < 1) return; /* nothing is summed */
    entry *to = entry_of(a, run, kind);
    if (!to || !reserve(a, what.products)) return; /* without memory nothing is audited */
    int64_t samples = ADDENDS_PER_STEP / what.products;
    samples = samples < 1 ? 1 : samples > MAX_SAMPLES ? MAX_SAMPLES : samples;
    to->products = what.products;
    for (int64_t s = 0; s < samples; s++) {
        uint64_t index = (uint64_t)((run->number * PASSES + kind) * MAX_SAMPLES + s);
        gather dot = {.g = g,
                      .x = run->io->in[0],
                      .weight = run->io->param[0],
                      .dout = run->io->dout,
                      .a = a->a,
                      .b = a->b};
        what.gather(&dot, (int64_t)ab_rng_below(a->seed, AB_RNG_SAMPLE, (uint32_t)a->step, index,
                                                (uint64_t)what.results));
        audit_dot(to, &dot);
    }
}

static void begin(void *state, int64_t step, double loss_scale) {
    accumulator_audit *a = state;
    (void)loss_scale;
    a->step = step;
}

static void ran(void *state, const ab_op_run *run) {
    if (run->op != &ab_op_conv2d && run->op != &ab_op_linear) return;
    geometry g = run->op == &ab_op_conv2d ? conv_geometry(run) : linear_geometry(run);
    if (!run->backward) audit_pass(state, run, &g, FORWARD);
    if (run->backward && run->io->din[0]) audit_pass(state, run, &g, BACKWARD_DATA);
    if (run->backward && run->io->dparam[0]) audit_pass(state, run, &g, BACKWARD_WEIGHTS);
}

/* ---- report ------------------------------------------------------------------------------------------------ */

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
    .report = report,
};
