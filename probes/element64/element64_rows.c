/* fp64 references of ops over rows: sums, maxima, softmax, norms, cross entropy. */
#include "probes/element64/element64.h"

#include <stdlib.h>

/* ---- sums ------------------------------------------------------------------------------------ */

/* Index of the result that input element i is added to. */
static int64_t result_of(const ab_op_run *run, const ab_shape *in, int64_t i) {
    ab_ints dim;
    int64_t index = 0, step = 1;
    memcpy(&dim, ab_attr64(run, "dim"), sizeof dim);
    for (int d = in->ndim - 1; d >= 0; d--) {
        bool gone = dim.count == 0;
        for (int k = 0; k < dim.count; k++) gone |= dim.value[k] == d || dim.value[k] + in->ndim == d;
        if (!gone) index += i % in->dim[d] * step;
        if (!gone) step *= in->dim[d];
        i /= in->dim[d];
    }
    return index;
}

static bool add_up(const ab_op_run *run, int64_t i, ab_element64 *e) {
    const ab_tensor *in = run->io->in[0];
    if (ab_tensor_count(in) > AB_ELEMENT64_WORK) return false;
    for (int64_t k = 0; k < ab_tensor_count(in); k++)
        if (result_of(run, &in->shape, k) == i) ab_add64(e, ab_read64(in, k));
    return true;
}

/* All results in one pass over the input. */
static void add_up_all(const ab_op_run *run, ab_element64 *result) {
    const ab_tensor *in = run->io->in[0];
    for (int64_t k = 0; k < ab_tensor_count(in); k++)
        ab_add64(&result[result_of(run, &in->shape, k)], ab_read64(in, k));
}

static double reduced(const ab_op_run *run, const ab_tensor *result) {
    return (double)ab_tensor_count(run->io->in[0]) / (double)ab_tensor_count(result);
}

static bool sums(const ab_op_run *run, const int64_t *place, int n, ab_element64 *result) {
    if (n >= ab_tensor_count(run->io->out)) {
        add_up_all(run, result);
        return true;
    }
    for (int i = 0; i < n; i++)
        if (!add_up(run, place[i], &result[i])) return false;
    return true;
}

static void spread(const ab_op_run *run, int64_t i, ab_element64 *e) {
    ab_add64(e, ab_read64(run->io->dout, result_of(run, &run->io->in[0]->shape, i)));
}

static bool sum_several(const ab_op_run *run, int wrote, const int64_t *place, int n, ab_element64 *result) {
    (void)wrote;
    if (!run->backward) return sums(run, place, n, result);
    for (int i = 0; i < n; i++) spread(run, place[i], &result[i]);
    return true;
}

static bool mean_several(const ab_op_run *run, int wrote, const int64_t *place, int n, ab_element64 *result) {
    if (!sum_several(run, wrote, place, n, result)) return false;
    const double share = reduced(run, run->backward ? run->io->dout : run->io->out);
    for (int i = 0; i < n; i++) result[i].value /= share;
    return true;
}

const ab_element64_kind ab_element64_sum = {.op = &ab_op_sum, .several = sum_several};
const ab_element64_kind ab_element64_mean = {.op = &ab_op_mean, .several = mean_several};

/* ---- maxima ---------------------------------------------------------------------------------- */

/* All results in one pass over the input: the maximum, and the number of elements equal to it. */
static void find_maxima(const ab_op_run *run, int64_t results, double *most, double *equal) {
    const ab_tensor *in = run->io->in[0];
    for (int64_t r = 0; r < results; r++) most[r] = -(double)INFINITY;
    for (int64_t k = 0; k < ab_tensor_count(in); k++) {
        double *to = &most[result_of(run, &in->shape, k)];
        if (!(ab_read64(in, k) <= *to)) *to = ab_read64(in, k);
    }
    for (int64_t k = 0; k < ab_tensor_count(in); k++) {
        const int64_t r = result_of(run, &in->shape, k);
        equal[r] += ab_read64(in, k) == most[r];
    }
}

/* Equal elements share the gradient. */
static void max_element(const ab_op_run *run, int64_t i, const double *most, const double *equal,
                        ab_element64 *e) {
    const ab_tensor *in = run->io->in[0];
    if (!run->backward) {
        ab_add64(e, most[i]);
        return;
    }
    const int64_t r = result_of(run, &in->shape, i);
    if (ab_read64(in, i) == most[r]) ab_add64(e, ab_read64(run->io->dout, r) / equal[r]);
}

static bool max_several(const ab_op_run *run, int wrote, const int64_t *place, int n, ab_element64 *result) {
    const int64_t results = ab_tensor_count(run->backward ? run->io->dout : run->io->out);
    double *most = calloc(2 * (size_t)results, sizeof *most);
    (void)wrote;
    if (!most) return false;
    find_maxima(run, results, most, most + results);
    for (int i = 0; i < n; i++) max_element(run, place[i], most, most + results, &result[i]);
    free(most);
    return true;
}

const ab_element64_kind ab_element64_max = {.op = &ab_op_max, .several = max_several};

/* ---- softmax --------------------------------------------------------------------------------- */

/* log-sum-exp of n values from `begin` on. */
static double log_sum(const ab_tensor *x, int64_t begin, int64_t n) {
    double most = ab_read64(x, begin), sum = 0;
    for (int64_t k = 1; k < n; k++) most = fmax(most, ab_read64(x, begin + k));
    for (int64_t k = 0; k < n; k++) sum += exp(ab_read64(x, begin + k) - most);
    return most + log(sum);
}

static bool log_softmax_forward(const ab_op_run *run, int64_t i, ab_element64 *e) {
    const ab_tensor *x = run->io->in[0];
    const int64_t n = ab_last_dim64(x);
    ab_add64(e, ab_read64(x, i) - log_sum(x, i / n * n, n));
    return true;
}

static bool softmax_forward(const ab_op_run *run, int64_t i, ab_element64 *e) {
    log_softmax_forward(run, i, e);
    e->value = exp(e->value);
    return true;
}

/* y (dy - sum of y dy); for log-softmax: dy - exp(y) sum of dy. */
static bool softmax_row_backward(const ab_op_run *run, int64_t i, ab_element64 *e, bool logarithm) {
    const ab_tensor *y = run->io->out, *dy = run->io->dout;
    const int64_t n = ab_last_dim64(y), begin = i / n * n;
    double mine = ab_read64(y, i), grad = ab_read64(dy, i);
    for (int64_t k = begin; k < begin + n; k++)
        ab_add64(e, ab_read64(dy, k) * (logarithm ? 1 : ab_read64(y, k)));
    e->value = logarithm ? grad - exp(mine) * e->value : mine * (grad - e->value);
    return true;
}

static bool softmax_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {
    return (void)wrote, softmax_row_backward(run, i, e, false);
}
static bool log_softmax_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {
    return (void)wrote, softmax_row_backward(run, i, e, true);
}

const ab_element64_kind ab_element64_softmax = {
    .op = &ab_op_softmax, .forward = softmax_forward, .backward = softmax_backward};
const ab_element64_kind ab_element64_log_softmax = {
    .op = &ab_op_log_softmax, .forward = log_softmax_forward, .backward = log_softmax_backward};

/* ---- norms ----------------------------------------------------------------------------------- */

/* Elements that are normalised together: element k is at begin + k / run * step + k % run. */
typedef struct family {
    int64_t begin, count, run, step;
} family;

typedef struct moments {
    double mean, rstd, largest;
} moments;

static int64_t member(const family *f, int64_t k) { return f->begin + k / f->run * f->step + k % f->run; }

static family row_of(const ab_op_run *run, const ab_shape *s, int64_t i) {
    const int64_t n = s->dim[s->ndim - 1];
    (void)run;
    return (family){i / n * n, n, n, n};
}

static family group_of(const ab_op_run *run, const ab_shape *s, int64_t i) {
    const int64_t groups = ab_integer64(run, "num_groups"), channels = s->dim[3],
                  pixels = s->dim[1] * s->dim[2];
    const int64_t width = channels / groups, image = i / (pixels * channels);
    return (family){image * pixels * channels + i % channels / width * width, pixels * width, width,
                    channels};
}

static family channel_of(const ab_op_run *run, const ab_shape *s, int64_t i) {
    const int64_t channels = s->dim[s->ndim - 1];
    (void)run;
    return (family){i % channels, ab_shape_count(s) / channels, 1, channels};
}

static family family_of(const ab_op_run *run, int64_t i) {
    const ab_shape *s = &run->io->in[0]->shape;
    if (run->op == &ab_op_group_norm) return group_of(run, s, i);
    return run->op->batch_norm ? channel_of(run, s, i) : row_of(run, s, i);
}

/* Running statistics of a batch norm in eval mode, for channel f->begin. */
static moments running_of(const ab_op_run *run, const family *f, double eps) {
    ab_tensor *const *running = run->io->param + (ab_boolean64(run, "affine") ? 2 : 0);
    return (moments){ab_read64(running[0], f->begin), 1 / sqrt(ab_read64(running[1], f->begin) + eps), 0};
}

static bool evaluated(const ab_op_run *run) { return run->op->batch_norm && !ab_is_training64(run); }

static bool is_centred(const ab_op_run *run) {
    return run->op != &ab_op_rms_norm && run->op != &ab_op_fused_rms_norm &&
           run->op != &ab_op_mixed_fused_rms_norm;
}

/* Whether a fused norm's backward pass has the output and not the input. Training in double keeps both. */
static bool from_output(const ab_op_run *run) {
    return run->backward && ab_boolean64(run, "memory_efficient") &&
           run->io->in[0]->format != &ab_format_stored64;
}

static moments moments_of(const ab_op_run *run, const family *f) {
    const ab_tensor *x = run->io->in[0];
    ab_element64 sum = {.value = 0}, squares = {.value = 0};
    const double eps = ab_number64(run, "eps");
    const bool centred = is_centred(run);
    if (evaluated(run)) return running_of(run, f, eps);
    if (from_output(run)) return (moments){0, ab_read64(run->io->saved[0], f->begin / f->count), 0};
    for (int64_t k = 0; centred && k < f->count; k++) ab_add64(&sum, ab_read64(x, member(f, k)));
    const double mean = sum.value / (double)f->count;
    for (int64_t k = 0; k < f->count; k++) {
        double d = ab_read64(x, member(f, k)) - mean;
        ab_add64(&squares, d * d);
    }
    return (moments){mean, 1 / sqrt(squares.value / (double)f->count + eps),
                     fmax(sum.largest, squares.largest)};
}

/* Affine weight (0) or bias (1); NULL if there is none. */
static const ab_tensor *trained(const ab_op_run *run, int which) {
    const bool statistics = run->op->batch_norm && !ab_boolean64(run, "affine");
    return statistics ? NULL : run->io->param[which];
}

/* Affine weight of element i; 1 if there is none. */
static double factor_of(const ab_op_run *run, int64_t i) {
    const ab_tensor *weight = trained(run, 0);
    return weight ? ab_read64(weight, i % ab_last_dim64(run->io->in[0])) : 1;
}

/* What a fused norm takes for the weight in the input's gradient: at least eps in magnitude. */
static double pull_of(const ab_op_run *run, int64_t i) {
    const ab_tensor *weight = trained(run, 0);
    const double factor = factor_of(run, i);
    if (!weight || !ab_attr64(run, "memory_efficient")) return factor;
    const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    const double least = ab_format_round(weight->format, &nearest, ab_number64(run, "eps"));
    return fabs(factor) < least ? copysign(least, factor < 0 ? -1 : 1) : factor;
}

/* The output minus the bias. */
static double unbiased(const ab_op_run *run, int64_t i) {
    const ab_tensor *bias = trained(run, 1);
    return ab_read64(run->io->out, i) - (bias ? ab_read64(bias, i % ab_last_dim64(run->io->in[0])) : 0);
}

static double normalised(const ab_op_run *run, const moments *m, int64_t i) {
    if (from_output(run)) return unbiased(run, i) / pull_of(run, i);
    return (ab_read64(run->io->in[0], i) - m->mean) * m->rstd;
}

/* Values shared by the elements of one family; cached in a table by their start, or recomputed. */
typedef struct shared {
    bool moments_known, sums_known;
    moments m;
    ab_element64 sum, product;
} shared;

static moments moments_shared(const ab_op_run *run, const family *f, shared *s) {
    if (!s->moments_known) s->m = moments_of(run, f);
    s->moments_known = true;
    return s->m;
}

static void forward_element(const ab_op_run *run, int64_t i, const family *f, shared *s, ab_element64 *e) {
    const ab_tensor *bias = trained(run, 1);
    const moments m = moments_shared(run, f, s);
    ab_track_max64(e, m.largest);
    ab_add64(e, (ab_read64(run->io->in[0], i) - m.mean) * m.rstd * factor_of(run, i));
    if (bias) ab_add64(e, ab_read64(bias, i % ab_last_dim64(run->io->in[0])));
}

/* Sums of g, and of g xhat. */
static void sums_shared(const ab_op_run *run, const family *f, const moments *m, shared *s) {
    const ab_tensor *dout = run->io->dout;
    if (s->sums_known) return;
    s->sum = s->product = (ab_element64){.value = 0};
    for (int64_t k = 0; k < f->count; k++) {
        const int64_t j = member(f, k);
        const double g = ab_read64(dout, j) * factor_of(run, j);
        ab_add64(&s->sum, g);
        ab_add64(&s->product,
                 from_output(run) ? ab_read64(dout, j) * unbiased(run, j) : g * normalised(run, m, j));
    }
    s->sums_known = true;
}

/* rstd (g - mean of g - xhat mean of g xhat), g: dout times the affine weight. */
static void by_input(const ab_op_run *run, int64_t i, const family *f, shared *s, ab_element64 *e) {
    const ab_tensor *dout = run->io->dout;
    const moments m = moments_shared(run, f, s);
    if (evaluated(run)) {
        ab_add64(e, m.rstd * ab_read64(dout, i) * factor_of(run, i));
        return;
    }
    sums_shared(run, f, &m, s);
    ab_track_max64(e, fmax(fmax(m.largest, s->sum.largest), s->product.largest));
    const double n = (double)f->count, xhat = normalised(run, &m, i);
    const double centre = is_centred(run) ? s->sum.value / n : 0;
    e->value = m.rstd * (ab_read64(dout, i) * pull_of(run, i) - centre - xhat * s->product.value / n);
}

static void by_parameter(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {
    const ab_tensor *x = run->io->in[0], *dout = run->io->dout;
    const int64_t channels = ab_last_dim64(x);
    family known = {.count = 0};
    moments m = {.mean = 0};
    for (int64_t j = i; j < ab_tensor_count(x); j += channels) {
        const family f = family_of(run, j);
        if (f.count != known.count || f.begin != known.begin) m = moments_of(run, &f);
        known = f;
        const double xhat = wrote == AB_WROTE_DPARAM ? normalised(run, &m, j) : 1;
        ab_add64(e, ab_read64(dout, j) * xhat);
    }
}

static void norm_element(const ab_op_run *run, int64_t i, shared *table, ab_element64 *e) {
    const family f = family_of(run, i);
    shared alone = {.moments_known = false}, *s = table ? &table[f.begin] : &alone;
    if (run->backward)
        by_input(run, i, &f, s, e);
    else
        forward_element(run, i, &f, s, e);
}

static bool norm_several(const ab_op_run *run, int wrote, const int64_t *place, int n, ab_element64 *result) {
    const bool whole = n >= ab_tensor_count(run->io->in[0]),
               of_param = run->backward && wrote >= AB_WROTE_DPARAM;
    shared *table = whole && !of_param ? calloc((size_t)n, sizeof *table) : NULL;
    for (int i = 0; i < n; i++)
        if (of_param)
            by_parameter(run, wrote, place[i], &result[i]);
        else
            norm_element(run, place[i], table, &result[i]);
    free(table);
    return true;
}

const ab_element64_kind ab_element64_layer_norm = {.op = &ab_op_layer_norm, .several = norm_several};
const ab_element64_kind ab_element64_rms_norm = {.op = &ab_op_rms_norm, .several = norm_several};
const ab_element64_kind ab_element64_fused_layer_norm = {.op = &ab_op_fused_layer_norm,
                                                         .several = norm_several};
const ab_element64_kind ab_element64_mixed_fused_layer_norm = {.op = &ab_op_mixed_fused_layer_norm,
                                                               .several = norm_several};
const ab_element64_kind ab_element64_fused_rms_norm = {.op = &ab_op_fused_rms_norm, .several = norm_several};
const ab_element64_kind ab_element64_mixed_fused_rms_norm = {.op = &ab_op_mixed_fused_rms_norm,
                                                             .several = norm_several};
const ab_element64_kind ab_element64_group_norm = {.op = &ab_op_group_norm, .several = norm_several};
const ab_element64_kind ab_element64_batch_norm2d = {.op = &ab_op_batch_norm2d, .several = norm_several};
const ab_element64_kind ab_element64_batch_norm1d = {.op = &ab_op_batch_norm1d, .several = norm_several};

/* ---- cross entropy, nll_loss --------------------------------------------------------------------------- */

typedef struct classes {
    const ab_tensor *logits, *targets;
    ab_floats weight;
    int64_t ignore, n, summed;
    double smoothing;
} classes;

static classes classes_of(const ab_op_run *run) {
    classes c = {.logits = run->io->in[0], .targets = run->io->in[1], .n = ab_last_dim64(run->io->in[0])};
    memcpy(&c.weight, ab_attr64(run, "weight"), sizeof c.weight);
    memcpy(&c.ignore, ab_attr64(run, "ignore_index"), sizeof c.ignore);
    c.smoothing = ab_number64(run, "label_smoothing");
    c.summed = ab_integer64(run, "reduction");
    return c;
}

static double class_weight(const classes *c, int64_t k) {
    return c->weight.value ? (double)c->weight.value[k] : 1;
}

/* Target probability of class k in a row, smoothed and weighted; 0 for ignored rows. */
static double share(const classes *c, int64_t row, int64_t k) {
    const double even = c->smoothing / (double)c->n;
    if (c->targets->format)
        return class_weight(c, k) * (ab_read64(c->targets, row * c->n + k) * (1 - c->smoothing) + even);
    const int64_t id = (int64_t)ab_read64(c->targets, row);
    if (id == c->ignore) return 0;
    return class_weight(c, k) * ((k == id ? 1 - c->smoothing : 0) + even);
}

/* Divisor of the sum of the rows' losses; 1 where they are summed. */
static double divisor(const classes *c) {
    const int64_t rows = ab_tensor_count(c->logits) / c->n;
    double sum = 0;
    if (c->summed) return 1;
    if (c->targets->format) return (double)rows;
    for (int64_t row = 0; row < rows; row++) {
        const int64_t id = (int64_t)ab_read64(c->targets, row);
        if (id != c->ignore) sum += class_weight(c, id);
    }
    return sum;
}

static bool cross_entropy_forward(const ab_op_run *run, int64_t i, ab_element64 *e) {
    const classes c = classes_of(run);
    (void)i;
    for (int64_t row = 0; row < ab_tensor_count(c.logits) / c.n; row++) {
        const double logarithm = log_sum(c.logits, row * c.n, c.n);
        for (int64_t k = 0; k < c.n; k++) {
            const double s = share(&c, row, k);
            if (s != 0) ab_add64(e, s * (logarithm - ab_read64(c.logits, row * c.n + k)));
        }
    }
    e->value /= divisor(&c);
    return true;
}

static bool cross_entropy_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {
    const classes c = classes_of(run);
    const int64_t row = i / c.n;
    double all = 0;
    (void)wrote;
    for (int64_t k = 0; k < c.n; k++) all += share(&c, row, k);
    const double p = exp(ab_read64(c.logits, i) - log_sum(c.logits, row * c.n, c.n));
    ab_add64(e, ab_read64(run->io->dout, 0) * (all * p - share(&c, row, i % c.n)) / divisor(&c));
    return true;
}

const ab_element64_kind ab_element64_cross_entropy = {
    .op = &ab_op_cross_entropy, .forward = cross_entropy_forward, .backward = cross_entropy_backward};

static bool nll_loss_forward(const ab_op_run *run, int64_t i, ab_element64 *e) {
    const classes c = classes_of(run);
    (void)i;
    for (int64_t k = 0; k < ab_tensor_count(c.logits); k++) {
        const double s = share(&c, k / c.n, k % c.n);
        if (s != 0) ab_add64(e, -s * ab_read64(c.logits, k));
    }
    e->value /= divisor(&c);
    return true;
}

static bool nll_loss_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {
    const classes c = classes_of(run);
    const double s = share(&c, i / c.n, i % c.n);
    (void)wrote;
    ab_add64(e, s != 0 ? -s / divisor(&c) * ab_read64(run->io->dout, 0) : 0);
    return true;
}

const ab_element64_kind ab_element64_nll_loss = {
    .op = &ab_op_nll_loss, .forward = nll_loss_forward, .backward = nll_loss_backward};
