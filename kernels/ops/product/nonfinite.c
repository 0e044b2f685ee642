/* Checks and corrects products with non-finite operands; see nonfinite.h. Correct results are never written,
 * so a diverged run, where every result reads NaN and is NaN, only pays for the check. */
#include "kernels/ops/product/nonfinite.h"
#include "kernels/ops/product/repairs.h"

#include "kernels/ops/blocks.h"
#include "kernels/vec/vec_ops.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* BLOCK: values per read. TILE: channels whose flags are buffered at once. CHANNELS: channels whose weights
 * are checked in advance. */
enum { BLOCK = 256, TILE = 256, CHANNELS = 4096 };

static _Atomic int64_t total_products, total_cleared, total_restored;

ab_repair_counts ab_repair_totals(void) {
    return (ab_repair_counts){.products = atomic_load(&total_products),
                              .cleared = atomic_load(&total_cleared),
                              .restored = atomic_load(&total_restored)};
}

/* Number of results corrected in one product. */
typedef struct tally {
    _Atomic int64_t cleared, restored;
} tally;

static void add_to_totals(const tally *t) {
    const int64_t cleared = atomic_load(&t->cleared), restored = atomic_load(&t->restored);
    if (cleared + restored == 0) return;
    atomic_fetch_add(&total_products, 1);
    atomic_fetch_add(&total_cleared, cleared);
    atomic_fetch_add(&total_restored, restored);
}

/* Whether *result is wrong; `reads`: it reads a non-finite value. */
static bool is_wrong(float result, bool reads) { return !isfinite(result) != reads; }

/* Stores the value of the own sum. If that overflows, the library's sum may have overflowed as well, and its
 * value stays. */
static void correct(float *result, float own, bool reads, tally *t) {
    if (is_wrong(own, reads)) return;
    *result = own;
    atomic_fetch_add(reads ? &t->restored : &t->cleared, 1);
}

/* ---- checks ---------------------------------------------------------------------------------- */

bool ab_values_finite(const void *values, const ab_format *format, int64_t n) {
    const ab_vec_ops *ops = ab_vec_ops_get();
    if (format == &ab_format_fp32) return ops->finite(values, n);
    return ops->finite_bits(values, format == &ab_format_bf16 ? 0x7f80 : 0x7c00, n);
}

static bool piece_finite(const ab_tensor *tensor, int64_t offset, int64_t n) {
    return ab_values_finite(ab_element(tensor, offset), tensor->format, n);
}

typedef struct finite_job {
    const char *values;
    const ab_format *format;
    int64_t n;
    _Atomic bool found;
} finite_job;

static void finite_block(void *argument, int64_t block, int thread) {
    finite_job *job = argument;
    const int64_t first = block * AB_WIDE_BLOCK, n = ab_min64(job->n - first, AB_WIDE_BLOCK);
    (void)thread;
    if (!ab_values_finite(job->values + ab_format_bytes(job->format, first), job->format, n))
        atomic_store(&job->found, true);
}

bool ab_array_finite(const void *values, const ab_format *format, int64_t n) {
    finite_job job = {.values = values, .format = format, .n = n};
    ab_for_chunks(n, ab_div_up(n, AB_WIDE_BLOCK), finite_block, &job);
    return !atomic_load(&job.found);
}

/* bad[i] |= value i is not finite; n <= BLOCK */
static void mark(uint8_t *bad, const ab_tensor *tensor, int64_t offset, int64_t n) {
    float buffer[BLOCK];
    const float *values = ab_read(tensor, offset, n, buffer);
    for (int64_t i = 0; i < n; i++) bad[i] = (uint8_t)(bad[i] | !isfinite(values[i]));
}

static inline float value_at(const ab_tensor *tensor, int64_t offset) {
    float value;
    if (tensor->format == &ab_format_fp32) return ((const float *)tensor->data)[offset];
    if (tensor->format != &ab_format_bf16) return *ab_read(tensor, offset, 1, &value);
    const uint32_t bits = (uint32_t)((const uint16_t *)tensor->data)[offset] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- forward and backward data --------------------------------------------------------------- */

/* Both passes gather: a result pixel reads source pixels through the kernel's taps. */
typedef struct gather {
    const ab_product_data *d;
    const ab_tensor *source;
    const int64_t *from, *to;         /* heights and widths of source and result */
    int64_t read_group, result_group; /* channels per group */
    bool bias_finite;
    bool all_read;             /* every result reads a non-finite weight, for every window position */
    uint8_t weights[CHANNELS]; /* flags of each result channel's weights; 0 beyond the checked channels */
    tally tally;
} gather;

/* For a result channel's weights: none is non-finite; one is, at every tap. */
enum { ALL_GOOD = 1, ALL_TAPS_BAD = 2 };

/* One result pixel. */
typedef struct pixel {
    int64_t image, y, x, group;
} pixel;

/* The source row or column that tap k reads for result row or column `at`; -1: padding, or between
 * strides. */
static int64_t source_of(const gather *g, int axis, int64_t at, int64_t k) {
    const ab_window *w = &g->d->conv->window;
    const int64_t reach = k * w->dilation[axis] - w->padding[axis], stride = w->stride[axis];
    int64_t source = at * stride + reach;
    if (g->d->kind == AB_PASS_BACKWARD_DATA) {
        source = at - reach;
        source = source < 0 || source % stride != 0 ? -1 : source / stride;
    }
    return source < g->from[axis] ? source : -1;
}

/* Offset of the pixel's group in the source under tap (ky, kx), or -1. */
static int64_t tap_of(const gather *g, const pixel *p, int64_t ky, int64_t kx) {
    const int64_t y = source_of(g, 0, p->y, ky), x = source_of(g, 1, p->x, kx);
    if (y < 0 || x < 0) return -1;
    const int64_t at = (p->image * g->from[0] + y) * g->from[1] + x;
    return (at * g->d->conv->groups + p->group) * g->read_group;
}

/* Calls f for every tap that reads a source pixel until f returns true; returns whether it did. */
typedef struct tap {
    const gather *g;
    int64_t group, channel, at, place; /* result channel; offset in the source; tap index */
    float sum;
} tap;

static bool any_tap(const gather *g, const pixel *p, tap *t, bool (*f)(tap *)) {
    const int64_t *kernel = g->d->conv->window.kernel;
    for (int64_t ky = 0; ky < kernel[0]; ky++)
        for (int64_t kx = 0; kx < kernel[1]; kx++) {
            t->at = tap_of(g, p, ky, kx);
            t->place = ky * kernel[1] + kx;
            if (t->at >= 0 && f(t)) return true;
        }
    return false;
}

static bool bad_source(tap *t) { return !piece_finite(t->g->source, t->at, t->g->read_group); }

/* Offset of the weight between source channel j and the result channel: first + j * step. */
typedef struct weight_run {
    int64_t first, step;
} weight_run;

static weight_run weights_of(const tap *t) {
    const gather *g = t->g;
    const ab_conv *conv = g->d->conv;
    const int64_t ins = conv->window.channels / conv->groups, outs = conv->out_channels / conv->groups;
    const int64_t taps = conv->window.kernel[0] * conv->window.kernel[1], base = t->group * outs * ins * taps;
    if (g->d->kind == AB_PASS_FORWARD) return (weight_run){base + t->channel * ins * taps + t->place, taps};
    return (weight_run){base + t->channel * taps + t->place, ins * taps};
}

static bool bad_weight(tap *t) {
    const weight_run w = weights_of(t);
    for (int64_t j = 0; j < t->g->read_group; j++)
        if (!isfinite(value_at(t->g->d->weights, w.first + j * w.step))) return true;
    return false;
}

static bool add_tap(tap *t) {
    const gather *g = t->g;
    const weight_run w = weights_of(t);
    for (int64_t j = 0; j < g->read_group; j++)
        t->sum += value_at(g->source, t->at + j) * value_at(g->d->weights, w.first + j * w.step);
    return false;
}

static bool any(tap *t) {
    (void)t;
    return true;
}

static uint8_t look_at_weights(const gather *g, int64_t group, int64_t channel) {
    const int64_t *kernel = g->d->conv->window.kernel, taps = kernel[0] * kernel[1];
    tap t = {.g = g, .group = group, .channel = channel};
    int64_t found = 0;
    for (; t.place < taps; t.place++) found += bad_weight(&t);
    return found == 0 ? ALL_GOOD : found == taps ? ALL_TAPS_BAD : 0;
}

/* Whether every row or column of the result reads at least one of the source. */
static bool all_reach(const gather *g, int axis) {
    for (int64_t at = 0; at < g->to[axis]; at++) {
        int64_t k = 0;
        while (k < g->d->conv->window.kernel[axis] && source_of(g, axis, at, k) < 0) k++;
        if (k == g->d->conv->window.kernel[axis]) return false;
    }
    return true;
}

static void look_at_all_weights(gather *g) {
    const int64_t channels = g->result_group * g->d->conv->groups;
    int64_t bad = 0;
    for (int64_t c = 0; c < channels && c < CHANNELS; c++) {
        g->weights[c] =
            g->d->weights_finite ? ALL_GOOD : look_at_weights(g, c / g->result_group, c % g->result_group);
        bad += g->weights[c] == ALL_TAPS_BAD;
    }
    g->all_read = bad == channels && all_reach(g, 0) && all_reach(g, 1);
}

/* Whether a result channel reads a non-finite weight at this pixel. */
static bool reads_weight(const gather *g, const pixel *p, tap *t) {
    const int64_t channel = p->group * g->result_group + t->channel;
    const uint8_t known = channel < CHANNELS ? g->weights[channel] : 0;
    if (g->d->weights_finite || known == ALL_GOOD) return false;
    return any_tap(g, p, t, known == ALL_TAPS_BAD ? any : bad_weight);
}

/* `source`: a row that the pixel may read has non-finite values. */
static void check_pixel(gather *g, const pixel *p, bool source, float *result) {
    const ab_product_data *d = g->d;
    tap t = {.g = g, .group = p->group};
    source = source && any_tap(g, p, &t, bad_source);
    if (!source && d->weights_finite && g->bias_finite &&
        ab_values_finite(result, &ab_format_fp32, g->result_group))
        return;
    for (t.channel = 0; t.channel < g->result_group; t.channel++) {
        const float bias = d->bias ? d->bias[p->group * g->result_group + t.channel] : 0.0f;
        const bool reads = source || !isfinite(bias) || reads_weight(g, p, &t);
        if (!is_wrong(result[t.channel], reads)) continue;
        t.sum = 0.0f;
        any_tap(g, p, &t, add_tap);
        correct(&result[t.channel], t.sum + bias, reads, &g->tally);
    }
}

/* Whether a source row that this result row may read has non-finite values. */
static bool bad_rows(const gather *g, int64_t image, int64_t row) {
    const int64_t n = g->from[1] * g->d->conv->groups * g->read_group;
    for (int64_t ky = 0; ky < g->d->conv->window.kernel[0]; ky++) {
        const int64_t y = source_of(g, 0, row, ky);
        if (y >= 0 && !piece_finite(g->source, (image * g->from[0] + y) * n, n)) return true;
    }
    return false;
}

static bool none_finite(const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (isfinite(values[i])) return false;
    return true;
}

static void check_row(void *argument, int64_t row, int thread) {
    gather *g = argument;
    const int64_t groups = g->d->conv->groups, n = groups * g->result_group;
    float *result = g->d->dst + row * g->to[1] * n;
    (void)thread;
    if (g->all_read && none_finite(result, g->to[1] * n)) return;
    pixel p = {.image = row / g->to[0], .y = row % g->to[0]};
    const bool source = bad_rows(g, p.image, p.y);
    if (!source && g->d->weights_finite && g->bias_finite &&
        ab_values_finite(result, &ab_format_fp32, g->to[1] * n))
        return;
    for (p.x = 0; p.x < g->to[1]; p.x++)
        for (p.group = 0; p.group < groups; p.group++)
            check_pixel(g, &p, source, result + p.x * n + p.group * g->result_group);
}

static void repair_gathered(const ab_product_data *d) {
    const ab_conv *conv = d->conv;
    const ab_window *w = &conv->window;
    const bool forward = d->kind == AB_PASS_FORWARD;
    const int64_t in = w->channels / conv->groups, out = conv->out_channels / conv->groups;
    gather g = {.d = d,
                .source = forward ? d->in : d->dout,
                .from = forward ? w->in : w->out,
                .to = forward ? w->out : w->in,
                .read_group = forward ? in : out,
                .result_group = forward ? out : in,
                .bias_finite = !d->bias || ab_values_finite(d->bias, &ab_format_fp32, conv->out_channels)};
    look_at_all_weights(&g);
    ab_parallel_for(conv->batch * g.to[0], check_row, &g);
    add_to_totals(&g.tally);
}

/* ---- backward weights ------------------------------------------------------------------------ */

typedef struct weights_job {
    const ab_product_data *d;
    int64_t ins, outs, tiles; /* channels per group; tiles of the output channels */
    tally tally;
} weights_job;

/* Work of one claim: a kernel tap, a group, a tile of its output channels. */
typedef struct work_item {
    const weights_job *job;
    int64_t ky, kx, group, first, count;
} work_item;

/* For every pair of pixels related by the tap, in order, calls f with the offsets of the group's channels in
 * `in` and `dout` until f returns true. `in_rows` and `out_rows`: skip rows of `in`, of `dout` that are
 * finite. */
typedef bool (*pair_visitor)(void *self, int64_t image, int64_t in, int64_t dout);

static bool row_finite(const ab_tensor *tensor, int64_t row, int64_t n) {
    return piece_finite(tensor, row * n, n);
}

static void each_pair(const work_item *s, bool in_rows, bool out_rows, pair_visitor f, void *self) {
    const ab_conv *conv = s->job->d->conv;
    const ab_window *w = &conv->window;
    const int64_t dy = s->ky * w->dilation[0] - w->padding[0], dx = s->kx * w->dilation[1] - w->padding[1];
    for (int64_t row = 0; row < conv->batch * w->out[0]; row++) {
        const int64_t image = row / w->out[0], y = row % w->out[0] * w->stride[0] + dy;
        if (y < 0 || y >= w->in[0]) continue;
        if (in_rows && row_finite(s->job->d->in, image * w->in[0] + y, w->in[1] * w->channels)) continue;
        if (out_rows && row_finite(s->job->d->dout, row, w->out[1] * conv->out_channels)) continue;
        for (int64_t ox = 0; ox < w->out[1]; ox++) {
            const int64_t x = ox * w->stride[1] + dx;
            if (x < 0 || x >= w->in[1]) continue;
            const int64_t in = (image * w->in[0] + y) * w->in[1] + x, out = row * w->out[1] + ox;
            if (f(self, image, (in * conv->groups + s->group) * s->job->ins,
                  (out * conv->groups + s->group) * s->job->outs))
                return;
        }
    }
}

/* Channels of a tile with a non-finite value under the tap. */
typedef struct flags {
    const work_item *s;
    int64_t first, count; /* input channels */
    uint8_t in[TILE], out[TILE];
} flags;

static bool all_set(const uint8_t *flag, int64_t n) { return memchr(flag, 0, (size_t)n) == NULL; }

static bool mark_in(void *self, int64_t image, int64_t in, int64_t dout) {
    flags *f = self;
    (void)image;
    (void)dout;
    mark(f->in, f->s->job->d->in, in + f->first, f->count);
    return all_set(f->in, f->count);
}

static bool mark_out(void *self, int64_t image, int64_t in, int64_t dout) {
    flags *f = self;
    (void)image;
    (void)in;
    mark(f->out, f->s->job->d->dout, dout + f->s->first, f->s->count);
    return all_set(f->out, f->s->count);
}

/* One weight gradient: sums per image, then over images. */
typedef struct weight_sum {
    const ab_product_data *d;
    int64_t i, o, image;
    float sum, total;
} weight_sum;

static bool add_pair(void *self, int64_t image, int64_t in, int64_t dout) {
    weight_sum *w = self;
    if (image != w->image) {
        w->total += w->sum;
        w->sum = 0.0f;
        w->image = image;
    }
    w->sum += value_at(w->d->in, in + w->i) * value_at(w->d->dout, dout + w->o);
    return false;
}

static float weight_gradient(const work_item *s, int64_t i, int64_t o) {
    weight_sum sum = {.d = s->job->d, .i = i, .o = o};
    each_pair(s, false, false, add_pair, &sum);
    return sum.total + sum.sum;
}

static void check_weights(const flags *f, tally *t) {
    const work_item *s = f->s;
    const ab_product_data *d = s->job->d;
    const int64_t *kernel = d->conv->window.kernel, taps = kernel[0] * kernel[1];
    for (int64_t o = s->first; o < s->first + s->count; o++)
        for (int64_t i = f->first; i < f->first + f->count; i++) {
            float *result =
                &d->dst[((s->group * s->job->outs + o) * s->job->ins + i) * taps + s->ky * kernel[1] + s->kx];
            const bool reads = f->out[o - s->first] || f->in[i - f->first];
            if (is_wrong(*result, reads)) correct(result, weight_gradient(s, i, o), reads, t);
        }
}

static void check_share(void *argument, int64_t k, int thread) {
    weights_job *job = argument;
    const int64_t *kernel = job->d->conv->window.kernel, place = k / job->tiles % (kernel[0] * kernel[1]);
    (void)thread;
    work_item s = {.job = job,
                   .ky = place / kernel[1],
                   .kx = place % kernel[1],
                   .group = k / job->tiles / (kernel[0] * kernel[1]),
                   .first = k % job->tiles * TILE};
    s.count = ab_min64(TILE, job->outs - s.first);
    flags f = {.s = &s};
    each_pair(&s, false, true, mark_out, &f);
    const bool all = all_set(f.out, s.count); /* for any input */
    for (f.first = 0; f.first < job->ins; f.first += TILE) {
        f.count = ab_min64(TILE, job->ins - f.first);
        memset(f.in, 0, sizeof f.in);
        if (!all) each_pair(&s, true, false, mark_in, &f);
        check_weights(&f, &job->tally);
    }
}

static void repair_weights(const ab_product_data *d) {
    const ab_conv *conv = d->conv;
    weights_job job = {
        .d = d, .ins = conv->window.channels / conv->groups, .outs = conv->out_channels / conv->groups};
    job.tiles = ab_div_up(job.outs, TILE);
    ab_parallel_for(conv->groups * conv->window.kernel[0] * conv->window.kernel[1] * job.tiles, check_share,
                    &job);
    add_to_totals(&job.tally);
}

void ab_repair_product(const ab_product_data *data) {
    if (data->kind == AB_PASS_BACKWARD_WEIGHTS)
        repair_weights(data);
    else
        repair_gathered(data);
}

/* ---- matrix products ------------------------------------------------------------------------- */

static float a_at(const ab_gemm *g, int64_t row, int64_t k) {
    return g->transpose_a ? g->a[k * g->lda + row] : g->a[row * g->lda + k];
}

static float b_at(const ab_gemm *g, int64_t k, int64_t column) {
    return g->transpose_b ? g->b[column * g->ldb + k] : g->b[k * g->ldb + column];
}

static float gemm_sum(const ab_gemm *g, int64_t row, int64_t column) {
    float sum = 0.0f;
    for (int64_t k = 0; k < g->inner; k++) sum += a_at(g, row, k) * b_at(g, k, column);
    return sum * g->alpha;
}

static bool bad_row(const ab_gemm *g, int64_t row) {
    if (!g->transpose_a) return !ab_values_finite(&g->a[row * g->lda], &ab_format_fp32, g->inner);
    for (int64_t k = 0; k < g->inner; k++)
        if (!isfinite(a_at(g, row, k))) return true;
    return false;
}

/* bad[j]: column first + j has a non-finite value; n <= TILE */
static void mark_columns(const ab_gemm *g, int64_t first, int64_t n, uint8_t *bad) {
    memset(bad, 0, (size_t)n);
    if (g->transpose_b) {
        for (int64_t j = 0; j < n; j++)
            bad[j] = !ab_values_finite(&g->b[(first + j) * g->ldb], &ab_format_fp32, g->inner);
        return;
    }
    for (int64_t k = 0; k < g->inner; k++)
        for (int64_t j = 0; j < n; j++) bad[j] = (uint8_t)(bad[j] | !isfinite(g->b[k * g->ldb + first + j]));
}

void ab_repair_gemm(const ab_gemm *g) {
    uint8_t bad[TILE];
    tally t = {0};
    for (int64_t first = 0; first < g->columns; first += TILE) {
        const int64_t n = ab_min64(TILE, g->columns - first);
        mark_columns(g, first, n, bad);
        for (int64_t row = 0; row < g->rows; row++) {
            const bool of_row = bad_row(g, row);
            float *c = &g->c[row * g->ldc + first];
            for (int64_t j = 0; j < n; j++) {
                const bool reads = of_row || bad[j];
                if (is_wrong(c[j], reads)) correct(&c[j], gemm_sum(g, row, first + j), reads, &t);
            }
        }
    }
    add_to_totals(&t);
}
