/* cross_entropy: log-softmax and negative log-likelihood, averaged or summed, as
 * torch's cross_entropy with class weights, ignore_index and label_smoothing. Classes are the last
 * dimension of the logits. Targets are class ids, one per row of logits, or values of the logits' shape
 * (probabilities or one-hot rows), which get no gradient.
 *
 * With class ids the mean is over the weights of the targets, with probabilities over the rows; a sum is
 * divided by nothing. Label
 * smoothing e mixes the targets with e / classes for every class, each weighted by its class (torch 2.11,
 * aten/src/ATen/native/LossNLL.cpp). The log-softmax subtracts the row's maximum first; exponentials are
 * fp32, all sums double and in order. */
#include "kernels/core/elementary64.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/loss/class_loss.h"
#include "kernels/vec/vec_math.h"

#include <math.h>
#include <string.h>

typedef struct loss_attrs {
    ab_floats weight;
    int64_t ignore_index;
    double label_smoothing;
    int64_t reduction;
} loss_attrs;

enum { MEAN, SUM };

static const ab_attr attrs_table[] = {
    {"weight", AB_ATTR_FLOATS, offsetof(loss_attrs, weight), false, 0, 0, 1e30, "one weight a class"},
    {"ignore_index", AB_ATTR_INT, offsetof(loss_attrs, ignore_index), false, -100, -2147483648.0,
     2147483647.0, "targets with this id do not count"},
    {"label_smoothing", AB_ATTR_FLOAT, offsetof(loss_attrs, label_smoothing), false, 0, 0, 1,
     "share of the target that is spread over all classes"},
    {"reduction", AB_ATTR_CHOICE, offsetof(loss_attrs, reduction), false, MEAN, MEAN, SUM, "mean|sum"},
    {0}};

static bool one_id_a_row(const ab_shape *logits, const ab_shape *targets) {
    ab_shape rows = *logits;
    rows.ndim--;
    return ab_shape_equal(&rows, targets);
}

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    const loss_attrs *a = attrs;
    char logits[AB_SHAPE_TEXT], targets[AB_SHAPE_TEXT];
    (void)inputs;
    if (in[0].ndim < 2)
        return ab_fail(AB_CONFIG, "cross_entropy expects logits [batch, ..., classes], found %s",
                       ab_shape_text(&in[0], logits));
    if (!one_id_a_row(&in[0], &in[1]) && !ab_shape_equal(&in[0], &in[1]))
        return ab_fail(
            AB_CONFIG,
            "cross_entropy: logits %s need one target for each row of classes, or one probability for "
            "each logit, found targets %s",
            ab_shape_text(&in[0], logits), ab_shape_text(&in[1], targets));
    if (a->weight.value && a->weight.count != in[0].dim[in[0].ndim - 1])
        return ab_fail(AB_CONFIG, "cross_entropy: logits %s need one weight a class, found %lld weights",
                       ab_shape_text(&in[0], logits), (long long)a->weight.count);
    *out = (ab_shape){.ndim = 1, .dim = {1}};
    return AB_OK;
}

/* One double per row; then per thread one row each of logits, exponentials or gradients, and
 * probabilities. */
static size_t fixed_bytes(int64_t rows) { return ab_aligned((size_t)rows * sizeof(double)); }
static size_t thread_bytes(int64_t classes) { return 3 * ab_floats_bytes(classes); }

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    const ab_shape *logits = &io->in[0]->shape;
    const int64_t classes = logits->dim[logits->ndim - 1];
    *workspace_bytes =
        fixed_bytes(ab_shape_count(logits) / classes) + (size_t)ab_parallel_threads() * thread_bytes(classes);
    *state_bytes = 0;
    if (!io->in[1]->format == one_id_a_row(logits, &io->in[1]->shape)) return AB_OK;
    return ab_fail(AB_CONFIG,
                   "cross_entropy: targets of the logits' shape must be numbers, others class ids");
}

typedef struct batch {
    const ab_exec *exec;
    const loss_attrs *attrs;
    const ab_tensor *logits, *shares; /* probabilities, or NULL */
    const int32_t *target;            /* class ids, or NULL */
    int64_t rows, classes;
    double weight_sum; /* divisor of the sum of losses; 1 where they are summed */
} batch;

static double class_weight(const batch *b, int64_t c) {
    return b->attrs->weight.value ? (double)b->attrs->weight.value[c] : 1.0;
}

static bool counts(const batch *b, int64_t row) {
    return !b->target || b->target[row] != b->attrs->ignore_index;
}

/* Checks every target and sums their weights. */
static ab_status start(const ab_exec *exec, const ab_op_io *io, batch *b) {
    const ab_shape *logits = &io->in[0]->shape;
    const ab_tensor *targets = io->in[1];
    const int64_t classes = logits->dim[logits->ndim - 1];
    *b = (batch){.exec = exec,
                 .attrs = io->attrs,
                 .logits = io->in[0],
                 .shares = targets->format ? targets : NULL,
                 .target = targets->format ? NULL : targets->data,
                 .rows = ab_shape_count(logits) / classes,
                 .classes = classes};
    b->weight_sum = b->shares ? (double)b->rows : 0.0;
    for (int64_t row = 0; row < b->rows && b->target; row++) {
        int32_t target = b->target[row];
        if (!counts(b, row)) continue;
        if (target < 0 || target >= b->classes)
            return ab_fail(AB_INPUT, "cross_entropy: target of sample %lld is class %d, expected 0 to %lld",
                           (long long)row, (int)target, (long long)b->classes - 1);
        b->weight_sum += class_weight(b, target);
    }
    if (b->attrs->reduction == SUM) b->weight_sum = 1.0;
    return AB_OK;
}

static float *thread_row(const batch *b, int i) {
    char *rows = (char *)b->exec->workspace + fixed_bytes(b->rows);
    return (float *)(void *)(rows + (size_t)ab_parallel_thread() * thread_bytes(b->classes) +
                             (size_t)i * ab_floats_bytes(b->classes));
}

/* out = exp(x - shift); returns the sum. out may alias x. */
static double exponentials(float *out, const float *x, int64_t n, float shift) {
    const ab_vec_math *vec = ab_vec_math_get();
    vec->exp_shifted(out, x, shift, n);
    return vec->row_sum_wide(out, n);
}

/* ---- targets --------------------------------------------------------------------------------- */

/* A target row: an id, or a probability per class. */
typedef struct row_target {
    int32_t id;
    const float *share; /* NULL: the id */
    double smoothing;   /* smoothing mass per class: e / classes */
    double kept;        /* 1 - e */
} row_target;

static row_target target_of(const batch *b, int64_t row) {
    const double e = b->attrs->label_smoothing;
    row_target t = {.smoothing = e / (double)b->classes, .kept = 1.0 - e};
    if (b->target)
        t.id = b->target[row];
    else
        t.share = ab_read(b->shares, row * b->classes, b->classes, thread_row(b, 2));
    return t;
}

/* Weight times share of class c: the factor of its negative log-likelihood. */
static double factor_of(const batch *b, const row_target *t, int64_t c) {
    double share = t->share ? (double)t->share[c] : c == t->id ? 1.0 : 0.0;
    return class_weight(b, c) * (t->kept * share + t->smoothing);
}

static double row_loss(const batch *b, int64_t row) {
    if (!counts(b, row)) return 0.0;
    const row_target t = target_of(b, row);
    const float *x = ab_read(b->logits, row * b->classes, b->classes, thread_row(b, 0));
    float shift = ab_vec_math_get()->row_max(x, b->classes);
    double log_sum = ab_log(exponentials(thread_row(b, 1), x, b->classes, shift)), loss = 0.0;
    if (!t.share && t.smoothing == 0.0) return class_weight(b, t.id) * (log_sum - (double)(x[t.id] - shift));
    for (int64_t c = 0; c < b->classes; c++) {
        double factor = factor_of(b, &t, c);
        if (factor != 0.0) loss += factor * (log_sum - (double)(x[c] - shift));
    }
    return loss;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Rows per chunk: enough work for one claim of a thread. */
enum { ROWS = 64 };

typedef struct row_job {
    const batch *b;
    double *loss;
    double scale;
    ab_tensor *dlogits;
} row_job;

static void for_rows(ab_work work, row_job *job) {
    const batch *b = job->b;
    bool fits = ab_threads_fit(b->exec, fixed_bytes(b->rows), thread_bytes(b->classes));
    ab_for_chunks(fits ? b->rows * b->classes : 0, ab_div_up(b->rows, ROWS), work, job);
}

static void loss_row(void *argument, int64_t chunk, int thread) {
    const row_job *job = argument;
    (void)thread;
    for (int64_t row = chunk * ROWS; row < ab_min64((chunk + 1) * ROWS, job->b->rows); row++)
        job->loss[row] = row_loss(job->b, row);
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    batch b;
    AB_TRY(start(exec, io, &b));
    double *loss = exec->workspace, sum = 0.0;
    row_job job = {&b, loss, 0, NULL};
    for_rows(loss_row, &job);
    for (int64_t row = 0; row < b.rows; row++) sum += loss[row];
    float reduced = (float)(sum / b.weight_sum);
    ab_emit(exec, io->out, 0, &reduced, 1);
    return AB_OK;
}

/* Gradients of a row, in place of its exponentials; scale: of the loss by the sum of weights. plain: the
 * target is an id. */
static void plain_gradient(const batch *b, int32_t id, double scale, double sum, float *gradient) {
    const double factor = scale * class_weight(b, id), of_target = (double)gradient[id] / sum;
    ab_vec_math_get()->scale_wide(gradient, gradient, factor / sum, b->classes);
    gradient[id] = (float)(factor * (of_target - 1.0));
}

static void shared_gradient(const batch *b, const row_target *t, double scale, double sum, float *gradient) {
    double factors = 0.0;
    for (int64_t c = 0; c < b->classes; c++) factors += factor_of(b, t, c);
    for (int64_t c = 0; c < b->classes; c++) {
        const double part = (double)gradient[c] / sum * factors - factor_of(b, t, c);
        gradient[c] = (float)(scale * part);
    }
}

/* dlogits = scale / sum w * (softmax * sum of factors - factor), in double until the one rounding to fp32. */
static void row_gradient(const batch *b, int64_t row, double scale, ab_tensor *dlogits) {
    float *gradient = ab_target(dlogits, row * b->classes, thread_row(b, 1));
    const float *x = ab_read(b->logits, row * b->classes, b->classes, thread_row(b, 0));
    const bool counted = counts(b, row);
    const row_target t = target_of(b, row);
    float shift = ab_vec_math_get()->row_max(x, b->classes);
    double sum = exponentials(gradient, x, b->classes, shift);
    if (!counted)
        memset(gradient, 0, (size_t)b->classes * sizeof *gradient);
    else if (!t.share && t.smoothing == 0.0)
        plain_gradient(b, t.id, scale / b->weight_sum, sum, gradient);
    else
        shared_gradient(b, &t, scale / b->weight_sum, sum, gradient);
    ab_emit(b->exec, dlogits, row * b->classes, gradient, b->classes);
}

static void gradient_row(void *argument, int64_t chunk, int thread) {
    const row_job *job = argument;
    (void)thread;
    for (int64_t row = chunk * ROWS; row < ab_min64((chunk + 1) * ROWS, job->b->rows); row++)
        row_gradient(job->b, row, job->scale, job->dlogits);
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    batch b;
    AB_TRY(start(exec, io, &b));
    float buffer;
    double scale = (double)*ab_read(io->dout, 0, 1, &buffer);
    row_job job = {&b, NULL, scale, io->din[0]};
    if (io->din[0]) for_rows(gradient_row, &job);
    if (!io->din[1]) return AB_OK;
    return ab_fail(AB_CONFIG, "cross_entropy: its targets cannot be trained");
}

static void elementary(const void *attrs, const ab_shape *in, const ab_shape *out, bool backward,
                       double count[AB_ELEMENTARY_COUNT]) {
    (void)attrs, (void)out, (void)backward;
    count[AB_ELEMENTARY_EXP] += (double)ab_shape_count(&in[0]);
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)out;
    return 5.0 * (double)ab_shape_count(
                     &in[0]); /* maximum, difference, exponential, sum, product with the weight */
}

/* ---- best constant prediction ---------------------------------------------------------------- */

/* A sum of factors for every class. */
static int64_t constant_sums(const ab_op_io *io) {
    const ab_shape *logits = &io->in[0]->shape;
    return logits->dim[logits->ndim - 1];
}

static void constant_add(const ab_op_io *io, const void *targets, double *sums) {
    const int64_t classes = constant_sums(io);
    const batch b = {.attrs = io->attrs,
                     .target = io->in[1]->format ? NULL : targets,
                     .rows = ab_tensor_count(io->in[0]) / classes,
                     .classes = classes};
    const double e = b.attrs->label_smoothing;
    for (int64_t row = 0; row < b.rows; row++) {
        row_target t = {.smoothing = e / (double)classes, .kept = 1.0 - e};
        if (!counts(&b, row)) continue;
        if (b.target)
            t.id = b.target[row];
        else
            t.share = (const float *)targets + row * classes;
        for (int64_t c = 0; c < classes && (t.share || e > 0); c++) sums[c] += factor_of(&b, &t, c);
        if (!t.share && !(e > 0) && t.id >= 0 && t.id < classes) sums[t.id] += class_weight(&b, t.id);
    }
}

/* sum f log q is largest for q = f / sum f; logits: logarithms of f. */
void ab_log_shares(const double *factors, int64_t classes, int64_t n, float *prediction) {
    enum { LEAST = -100 }; /* of classes that are no target */
    double all = 0;
    for (int64_t c = 0; c < classes; c++) all += factors[c];
    for (int64_t c = 0; c < classes; c++)
        prediction[c] = factors[c] > 0 ? (float)fmax(LEAST, ab_log(factors[c] / all)) : LEAST;
    for (int64_t i = classes; i < n; i++) prediction[i] = prediction[i - classes];
}

static void constant_predict(const ab_op_io *io, const double *sums, float *prediction) {
    ab_log_shares(sums, constant_sums(io), ab_tensor_count(io->in[0]), prediction);
}

static const ab_best_constant best_constant = {constant_sums, constant_add, constant_predict};

const ab_op ab_op_cross_entropy = {.name = "cross_entropy",
                                   .inputs = 2,
                                   .is_loss = true,
                                   .maybe_integer = 1u << 1,
                                   .attrs_bytes = sizeof(loss_attrs),
                                   .attrs = attrs_table,
                                   .infer = infer,
                                   .backward_needs = 1u << 0 | 1u << 1,
                                   .prepare = prepare,
                                   .forward = forward,
                                   .backward = backward,
                                   .flops = flops,
                                   .elementary = elementary,
                                   .describe = ab_describe_own,
                                   .best_constant = &best_constant};
