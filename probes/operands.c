/* Operands of convolutions and matrix products, element by element, from the definition. */
#include "probes/operands.h"

#include "kernels/backend/backend.h"
#include "kernels/backend/extremes.h"
#include "kernels/format/convert.h"

#include <math.h>
#include <string.h>

/* ---- geometry -------------------------------------------------------------------------------- */

/* Copies `count` integers of the attribute `name`. */
static void read_attr(const ab_op_run *run, const char *name, int count, int64_t *value) {
    for (const ab_attr *attr = run->op->attrs; attr->name; attr++)
        if (strcmp(attr->name, name) == 0)
            memcpy(value, (const char *)run->io->attrs + attr->offset, (size_t)count * sizeof *value);
}

static ab_dot_geometry conv_geometry(const ab_op_run *run) {
    const ab_shape *in = &run->io->in[0]->shape, *out = &run->io->out->shape;
    ab_dot_geometry g = {.batch = in->dim[0],
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

static ab_dot_geometry linear_geometry(const ab_op_run *run) {
    const ab_shape *in = &run->io->in[0]->shape, *out = &run->io->out->shape;
    int64_t features = in->dim[in->ndim - 1];
    return (ab_dot_geometry){.batch = ab_shape_count(in) / features,
                             .in = {1, 1},
                             .out = {1, 1},
                             .in_channels = features,
                             .out_channels = out->dim[out->ndim - 1],
                             .groups = 1,
                             .kernel = {1, 1},
                             .stride = {1, 1},
                             .dilation = {1, 1}};
}

/* ---- operands -------------------------------------------------------------------------------- */

/* The current dot product; pairs are appended. */
typedef struct gather {
    const ab_operands *from;
    float *a, *b;
    int64_t *place_a, *place_b; /* written instead of values; NULL: values */
    int64_t n;
} gather;

static float element(const ab_tensor *tensor, int64_t i) {
    float value;
    ab_widen(&value, (const char *)tensor->data + ab_format_bytes(tensor->format, i), tensor->format, 1);
    return value;
}

static void append(gather *to, const ab_tensor *a, int64_t i, const ab_tensor *b, int64_t j) {
    if (to->place_a) {
        to->place_a[to->n] = i;
        to->place_b[to->n++] = j;
        return;
    }
    to->a[to->n] = element(a, i);
    to->b[to->n++] = element(b, j);
}

/* Input position that output position `o` reads with kernel tap `k`; -1 in the padding. */
static int64_t input_at(const ab_dot_geometry *g, int axis, int64_t o, int64_t k) {
    int64_t i = o * g->stride[axis] - g->padding[axis] + k * g->dilation[axis];
    return i >= 0 && i < g->in[axis] ? i : -1;
}

/* Output position that reads input position `i` with tap `k`; -1 if there is none. */
static int64_t output_at(const ab_dot_geometry *g, int axis, int64_t i, int64_t k) {
    int64_t o = i + g->padding[axis] - k * g->dilation[axis];
    if (o < 0 || o % g->stride[axis] != 0) return -1;
    o /= g->stride[axis];
    return o < g->out[axis] ? o : -1;
}

static int64_t in_index(const ab_dot_geometry *g, int64_t image, int64_t y, int64_t x, int64_t channel) {
    return ((image * g->in[0] + y) * g->in[1] + x) * g->in_channels + channel;
}
static int64_t out_index(const ab_dot_geometry *g, int64_t image, int64_t y, int64_t x, int64_t channel) {
    return ((image * g->out[0] + y) * g->out[1] + x) * g->out_channels + channel;
}
/* `in`: channel within the group. */
static int64_t weight_index(const ab_dot_geometry *g, int64_t out, int64_t in, int64_t ky, int64_t kx) {
    return ((out * (g->in_channels / g->groups) + in) * g->kernel[0] + ky) * g->kernel[1] + kx;
}

/* out[i] = sum of x * weight. */
static void gather_forward(gather *to, int64_t i) {
    const ab_dot_geometry *g = &to->from->geometry;
    int64_t channel = i % g->out_channels, column = i / g->out_channels % g->out[1];
    int64_t row = i / (g->out_channels * g->out[1]) % g->out[0];
    int64_t image = i / (g->out_channels * g->out[1] * g->out[0]);
    int64_t group_in = g->in_channels / g->groups, first = channel / (g->out_channels / g->groups) * group_in;
    for (int64_t ky = 0; ky < g->kernel[0]; ky++)
        for (int64_t kx = 0; kx < g->kernel[1]; kx++) {
            int64_t y = input_at(g, 0, row, ky), x = input_at(g, 1, column, kx);
            for (int64_t c = 0; y >= 0 && x >= 0 && c < group_in; c++)
                append(to, to->from->x, in_index(g, image, y, x, first + c), to->from->weight,
                       weight_index(g, channel, c, ky, kx));
        }
}

/* din[i] = sum of dout * weight. */
static void gather_backward_data(gather *to, int64_t i) {
    const ab_dot_geometry *g = &to->from->geometry;
    int64_t channel = i % g->in_channels, column = i / g->in_channels % g->in[1];
    int64_t row = i / (g->in_channels * g->in[1]) % g->in[0];
    int64_t image = i / (g->in_channels * g->in[1] * g->in[0]);
    int64_t group_in = g->in_channels / g->groups, group_out = g->out_channels / g->groups;
    int64_t first = channel / group_in * group_out;
    for (int64_t ky = 0; ky < g->kernel[0]; ky++)
        for (int64_t kx = 0; kx < g->kernel[1]; kx++) {
            int64_t y = output_at(g, 0, row, ky), x = output_at(g, 1, column, kx);
            for (int64_t c = first; y >= 0 && x >= 0 && c < first + group_out; c++)
                append(to, to->from->dout, out_index(g, image, y, x, c), to->from->weight,
                       weight_index(g, c, channel % group_in, ky, kx));
        }
}

/* dweight[i] = sum of dout * x. */
static void gather_backward_weights(gather *to, int64_t i) {
    const ab_dot_geometry *g = &to->from->geometry;
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
                    append(to, to->from->dout, out_index(g, image, row, column, out), to->from->x,
                           in_index(g, image, y, x, channel));
            }
}

/* ---- interface ------------------------------------------------------------------------------- */

static void (*const gatherers[AB_DOT_PASSES])(gather *to, int64_t i) = {gather_forward, gather_backward_data,
                                                                        gather_backward_weights};

static bool has_pass(const ab_op_run *run, ab_dot_pass pass) {
    if (pass == AB_DOT_FORWARD) return !run->backward;
    return run->backward && (pass == AB_DOT_BACKWARD_DATA ? run->io->din[0] : run->io->dparam[0]) != NULL;
}

bool ab_operands_of(const ab_op_run *run, ab_dot_pass pass, ab_operands *operands) {
    bool conv = run->op == &ab_op_conv2d;
    if ((!conv && run->op != &ab_op_linear) || !has_pass(run, pass)) return false;
    const ab_dot_geometry g = conv ? conv_geometry(run) : linear_geometry(run);
    const int64_t taps = g.kernel[0] * g.kernel[1], places = g.batch * g.out[0] * g.out[1];
    const int64_t group_in = g.in_channels / g.groups, group_out = g.out_channels / g.groups;
    const int64_t results[AB_DOT_PASSES] = {places * g.out_channels,
                                            g.batch * g.in[0] * g.in[1] * g.in_channels,
                                            g.out_channels * group_in * taps};
    const int64_t products[AB_DOT_PASSES] = {taps * group_in, taps * group_out, places};
    *operands = (ab_operands){.geometry = g,
                              .pass = pass,
                              .x = run->io->in[0],
                              .weight = run->io->param[0],
                              .dout = run->io->dout,
                              .results = results[pass],
                              .products = products[pass]};
    return true;
}

int64_t ab_operands_gather(const ab_operands *operands, int64_t i, float *a, float *b) {
    gather to = {.from = operands, .a = a, .b = b};
    gatherers[operands->pass](&to, i);
    return to.n;
}

int64_t ab_operands_places(const ab_operands *operands, int64_t i, int64_t *a, int64_t *b) {
    gather to = {.from = operands, .place_a = a, .place_b = b};
    gatherers[operands->pass](&to, i);
    return to.n;
}

int64_t ab_operands_fetch(const ab_operands *operands, int64_t i, int64_t *place, float *a, float *b) {
    const bool forward = operands->pass == AB_DOT_FORWARD,
               to_weights = operands->pass == AB_DOT_BACKWARD_WEIGHTS;
    const ab_tensor *first = forward ? operands->x : operands->dout;
    const ab_tensor *second = to_weights ? operands->x : operands->weight;
    if (ab_backend_of(first->device)->host_memory) return ab_operands_gather(operands, i, a, b);
    int64_t *place_b = place + operands->products;
    const int64_t n = ab_operands_places(operands, i, place, place_b);
    const bool known =
        ab_elements_of(first, place, n, a) == AB_OK && ab_elements_of(second, place_b, n, b) == AB_OK;
    return known ? n : -1;
}

/* Rounded and exact accumulators. Rounding uses the scalar definition of a format: slow, but identical on
 * every CPU. */

static const ab_accumulator accumulators[] = {
    {"fp16", {"fp16", 16, 11, -14, 15, true, true, 0, ""}, 0},
    {"bf16", {"bf16", 16, 8, -126, 127, true, true, 0, ""}, 0},
    {"fp32", {"fp32", 32, 24, -126, 127, true, true, 0, ""}, 0},
    {"14-bit", {"14-bit", 22, 14, -126, 127, true, true, 0, ""}, 0},
    {"chunk128", {"14-bit", 22, 14, -126, 127, true, true, 0, ""}, 128},
};

int ab_accumulator_count(void) { return (int)AB_COUNT_OF(accumulators); }
const ab_accumulator *ab_accumulator_at(int i) { return &accumulators[i]; }

ab_dot ab_dot_in(const ab_accumulator *accumulator, const float *a, const float *b, int64_t n) {
    const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    ab_dot dot = {0};
    float promoted = 0;
    for (int64_t i = 0; i < n; i++) {
        /* fp32 products are exact in double; the sum is rounded to 53 bits before it is rounded to the
         * accumulator's */
        double product = (double)a[i] * (double)b[i];
        double next = ab_format_round(&accumulator->format, &nearest, dot.sum + product);
        dot.addends += product != 0;
        dot.swamped += product != 0 && next == dot.sum;
        dot.sum = next;
        if (accumulator->chunk == 0 || (i + 1) % accumulator->chunk != 0) continue;
        promoted += (float)dot.sum;
        dot.sum = 0;
    }
    if (accumulator->chunk != 0) dot.sum = (double)(promoted + (float)dot.sum);
    return dot;
}

/* ---- exact ----------------------------------------------------------------------------------- */

/* A fixed-point number wide enough for every product of two fp32 numbers (Kulisch's long accumulator): limb i
 * counts units of 2^(32 i + LOWEST). Limbs hold 32 bits; higher bits are carries. */
enum { LOWEST = -352, LIMBS = 21 };

typedef struct long_sum {
    int64_t limb[LIMBS];
} long_sum;

/* Adds a product: its 53-bit integer significand, shifted into place, touches at most three limbs. */
static void add_product(long_sum *sum, double x) {
    int exponent;
    int64_t significand = (int64_t)ldexp(frexp(x, &exponent), 53);
    if (significand == 0) return;
    int place = exponent - 53 - LOWEST, limb = place / 32, shift = place % 32;
    int64_t sign = significand < 0 ? -1 : 1;
    uint64_t magnitude = (uint64_t)(significand * sign), low = magnitude & 0xFFFFFFFFu,
             high = magnitude >> 32;
    low <<= shift;
    high <<= shift;
    sum->limb[limb] += sign * (int64_t)(low & 0xFFFFFFFFu);
    sum->limb[limb + 1] += sign * (int64_t)((low >> 32) + (high & 0xFFFFFFFFu));
    sum->limb[limb + 2] += sign * (int64_t)(high >> 32);
}

/* Normalises limbs to [0, 2^32), except the last, which keeps the sign. */
static void carry(long_sum *sum) {
    for (int i = 0; i + 1 < LIMBS; i++) {
        int64_t low = sum->limb[i] & 0xFFFFFFFF;
        sum->limb[i + 1] += (sum->limb[i] - low) / ((int64_t)1 << 32);
        sum->limb[i] = low;
    }
}

static double value_of(long_sum *sum) {
    carry(sum);
    double sign = 1;
    if (sum->limb[LIMBS - 1] < 0) { /* a negative sum is read by its magnitude */
        for (int i = 0; i < LIMBS; i++) sum->limb[i] = -sum->limb[i];
        carry(sum);
        sign = -1;
    }
    double value = 0;
    for (int i = LIMBS - 1; i >= 0; i--) value += ldexp((double)sum->limb[i], 32 * i + LOWEST);
    return sign * value;
}

double ab_dot_exact(const float *a, const float *b, int64_t n) {
    long_sum sum = {{0}};
    for (int64_t i = 0; i < n; i++) add_product(&sum, (double)a[i] * (double)b[i]);
    return value_of(&sum);
}
