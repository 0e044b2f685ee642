/* cross_entropy: log-softmax and negative log-likelihood of class ids, averaged with optional class weights, as torch's
 * cross_entropy(reduction="mean"): sum of w[t] * loss over sum of w[t], samples whose target is ignore_index left out.
 *
 * The logarithm of the softmax is taken after subtracting the row's maximum; exponentials are fp32, all sums double and in
 * order. No label smoothing, no class probabilities as targets. */
#include "kernels/blocks.h"

#include <math.h>

typedef struct loss_attrs {
    ab_floats weight;
    int64_t ignore_index;
} loss_attrs;

static const ab_attr attrs_table[] = {
    {"weight", AB_ATTR_FLOATS, offsetof(loss_attrs, weight), false, 0, 0, 1e30, "one weight a class"},
    {"ignore_index", AB_ATTR_INT, offsetof(loss_attrs, ignore_index), false, -100, -2147483648.0,
     2147483647.0, "targets with this id do not count"},
    {0}};

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    const loss_attrs *a = attrs;
    char logits[AB_SHAPE_TEXT], targets[AB_SHAPE_TEXT];
    (void)inputs;
    if (in[0].ndim != 2)
        return ab_fail(AB_CONFIG, "cross_entropy expects logits [batch, classes], found %s",
                       ab_shape_text(&in[0], logits));
    if (in[1].ndim != 1 || in[1].dim[0] != in[0].dim[0])
        return ab_fail(AB_CONFIG, "cross_entropy: logits %s need one target a sample, found targets %s",
                       ab_shape_text(&in[0], logits), ab_shape_text(&in[1], targets));
    if (a->weight.value && a->weight.count != in[0].dim[1])
        return ab_fail(AB_CONFIG, "cross_entropy: logits %s need one weight a class, found %lld weights",
                       ab_shape_text(&in[0], logits), (long long)a->weight.count);
    *out = (ab_shape){.ndim = 1, .dim = {1}};
    return AB_OK;
}

/* One double per sample, then per thread a row of logits and a row of gradients. */
static size_t fixed_bytes(int64_t rows) { return ab_aligned((size_t)rows * sizeof(double)); }
static size_t thread_bytes(int64_t classes) { return 2 * ab_floats_bytes(classes); }

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    const ab_shape *logits = &io->in[0]->shape;
    *workspace_bytes =
        fixed_bytes(logits->dim[0]) + (size_t)ab_parallel_lanes() * thread_bytes(logits->dim[1]);
    *state_bytes = 0;
    return AB_OK;
}

typedef struct batch {
    const ab_exec *exec;
    const loss_attrs *attrs;
    const ab_tensor *logits;
    const int32_t *target;
    int64_t rows, classes;
    double weight_sum;
} batch;

static double weight_of(const batch *b, int64_t row) {
    int32_t target = b->target[row];
    if (target == b->attrs->ignore_index) return 0.0;
    return b->attrs->weight.value ? (double)b->attrs->weight.value[target] : 1.0;
}

/* Checks every target and sums their weights. */
static ab_status start(const ab_exec *exec, const ab_op_io *io, batch *b) {
    const ab_shape *logits = &io->in[0]->shape;
    *b = (batch){.exec = exec,
                 .attrs = io->attrs,
                 .logits = io->in[0],
                 .target = io->in[1]->data,
                 .rows = logits->dim[0],
                 .classes = logits->dim[1]};
    for (int64_t row = 0; row < b->rows; row++) {
        int32_t target = b->target[row];
        if (target != b->attrs->ignore_index && (target < 0 || target >= b->classes))
            return ab_fail(AB_INPUT, "cross_entropy: target of sample %lld is class %d, expected 0 to %lld",
                           (long long)row, (int)target, (long long)b->classes - 1);
        b->weight_sum += weight_of(b, row);
    }
    return AB_OK;
}

static float *thread_row(const batch *b, int i) {
    char *rows = (char *)b->exec->workspace + fixed_bytes(b->rows);
    return (float *)(void *)(rows + (size_t)ab_parallel_lane() * thread_bytes(b->classes) +
                             (size_t)i * ab_floats_bytes(b->classes));
}

static float maximum(const float *x, int64_t n) {
    float best = x[0];
    for (int64_t i = 1; i < n; i++) best = x[i] > best ? x[i] : best;
    return best;
}

static double sum_of_exponentials(const float *x, int64_t n, float shift) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)expf(x[i] - shift);
    return sum;
}

static double row_loss(const batch *b, int64_t row) {
    if (b->target[row] == b->attrs->ignore_index) return 0.0;
    const float *x = ab_read(b->logits, row * b->classes, b->classes, thread_row(b, 0));
    float shift = maximum(x, b->classes);
    double log_sum = log(sum_of_exponentials(x, b->classes, shift));
    return weight_of(b, row) * (log_sum - (double)(x[b->target[row]] - shift));
}

/* Rows in chunks of ROWS, so that a chunk is worth a lane's while. */
enum { ROWS = 64 };

typedef struct row_job {
    const batch *b;
    double *loss;
    double scale;
    ab_tensor *dlogits;
} row_job;

static void for_rows(ab_work work, row_job *job) {
    const batch *b = job->b;
    bool fits = ab_lanes_fit(b->exec, fixed_bytes(b->rows), thread_bytes(b->classes));
    ab_for_chunks(fits ? b->rows * b->classes : 0, ab_div_up(b->rows, ROWS), work, job);
}

static void loss_row(void *argument, int64_t chunk, int lane) {
    const row_job *job = argument;
    (void)lane;
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
    float mean = (float)(sum / b.weight_sum);
    ab_emit(exec, io->out, 0, &mean, 1);
    return AB_OK;
}

/* dlogits = scale * w / sum w * (softmax - onehot), in double until the one rounding to fp32. */
static void row_gradient(const batch *b, int64_t row, double scale, ab_tensor *dlogits) {
    float *gradient = ab_target(dlogits, row * b->classes, thread_row(b, 1));
    const float *x = ab_read(b->logits, row * b->classes, b->classes, thread_row(b, 0));
    bool counts = b->target[row] != b->attrs->ignore_index;
    float shift = maximum(x, b->classes);
    double sum = sum_of_exponentials(x, b->classes, shift),
           factor = scale * weight_of(b, row) / b->weight_sum;
    for (int64_t c = 0; c < b->classes; c++) {
        double softmax = (double)expf(x[c] - shift) / sum;
        gradient[c] = counts ? (float)(factor * (softmax - (c == b->target[row] ? 1.0 : 0.0))) : 0.0f;
    }
    ab_emit(b->exec, dlogits, row * b->classes, gradient, b->classes);
}

static void gradient_row(void *argument, int64_t chunk, int lane) {
    const row_job *job = argument;
    (void)lane;
    for (int64_t row = chunk * ROWS; row < ab_min64((chunk + 1) * ROWS, job->b->rows); row++)
        row_gradient(job->b, row, job->scale, job->dlogits);
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    batch b;
    AB_TRY(start(exec, io, &b));
    if (!io->din[0]) return AB_OK;
    float buffer;
    double scale = (double)*ab_read(io->dout, 0, 1, &buffer);
    row_job job = {&b, NULL, scale, io->din[0]};
    for_rows(gradient_row, &job);
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)out;
    return 5.0 * (double)ab_shape_count(
                     &in[0]); /* maximum, difference, exponential, sum, product with the weight */
}

const ab_op ab_op_cross_entropy = {.name = "cross_entropy",
                                   .inputs = 2,
                                   .is_loss = true,
                                   .integer_inputs = 1u << 1,
                                   .attrs_bytes = sizeof(loss_attrs),
                                   .attrs = attrs_table,
                                   .infer = infer,
                                   .backward_needs = 1u << 0 | 1u << 1,
                                   .prepare = prepare,
                                   .forward = forward,
                                   .backward = backward,
                                   .flops = flops,
                                   .describe = ab_describe_own};
