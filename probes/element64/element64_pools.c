/* fp64 references of pooling over images [batch, height, width, channels]. */
#include "probes/element64/element64.h"

/* The part of a window that is inside the image. */
typedef struct span {
    int64_t y0, y1, x0, x1, area; /* area: divisor of a mean */
} span;

typedef struct pool {
    int64_t kernel[2], stride[2], padding[2], height, width, channels, rows, columns;
    bool counts_padding;
} pool;

static pool pool_of(const ab_op_run *run) {
    const ab_shape *in = &run->io->in[0]->shape,
                   *out = run->backward ? &run->io->dout->shape : &run->io->out->shape;
    pool p = {.kernel = {in->dim[1], in->dim[2]},
              .stride = {1, 1},
              .height = in->dim[1],
              .width = in->dim[2],
              .channels = in->dim[3],
              .rows = 1,
              .columns = 1,
              .counts_padding = true};
    if (run->op == &ab_op_global_avg_pool) return p;
    memcpy(p.kernel, ab_attr64(run, "kernel_size"), sizeof p.kernel);
    memcpy(p.stride, ab_attr64(run, "stride"), sizeof p.stride);
    memcpy(p.padding, ab_attr64(run, "padding"), sizeof p.padding);
    if (run->op == &ab_op_avg_pool2d) p.counts_padding = ab_boolean64(run, "count_include_pad");
    p.rows = out->dim[1];
    p.columns = out->dim[2];
    return p;
}

static int64_t clip(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* The window of output element k within its image. */
static span span_of(const pool *p, int64_t k) {
    const int64_t y = k / (p->channels * p->columns) % p->rows * p->stride[0] - p->padding[0],
                  x = k / p->channels % p->columns * p->stride[1] - p->padding[1];
    span s = {clip(y, 0, p->height), clip(y + p->kernel[0], 0, p->height), clip(x, 0, p->width),
              clip(x + p->kernel[1], 0, p->width), p->kernel[0] * p->kernel[1]};
    if (!p->counts_padding) s.area = (s.y1 - s.y0) * (s.x1 - s.x0);
    return s;
}

/* Element of the input at (y, x) in the image and channel of output element k. */
static int64_t input_of(const pool *p, int64_t k, int64_t y, int64_t x) {
    const int64_t image = k / (p->channels * p->columns * p->rows);
    return ((image * p->height + y) * p->width + x) * p->channels + k % p->channels;
}

/* The input selected by output element k: the first of equal values, the last of NaNs (torch's scan
 * order). */
static int64_t winner(const ab_op_run *run, const pool *p, int64_t k) {
    const span s = span_of(p, k);
    int64_t best = input_of(p, k, s.y0, s.x0);
    for (int64_t y = s.y0; y < s.y1; y++)
        for (int64_t x = s.x0; x < s.x1; x++) {
            const int64_t at = input_of(p, k, y, x);
            const double value = ab_read64(run->io->in[0], at);
            if (isnan(value) || value > ab_read64(run->io->in[0], best)) best = at;
        }
    return best;
}

/* First and last window along an axis that contain position `at`; last < first: none. */
static void windows_of(const pool *p, int axis, int64_t at, int64_t count, int64_t *first, int64_t *last) {
    const int64_t low = at + p->padding[axis] - p->kernel[axis] + 1;
    *first = low <= 0 ? 0 : (low + p->stride[axis] - 1) / p->stride[axis];
    *last = (at + p->padding[axis]) / p->stride[axis];
    if (*last >= count) *last = count - 1;
}

/* Adds the contributions of the windows that contain element i: the whole gradient for a maximum, equal
 * shares for a mean. */
static void add_windows(const ab_op_run *run, const pool *p, int64_t i, bool winners, ab_element64 *e) {
    const int64_t x = i / p->channels % p->width, y = i / (p->channels * p->width) % p->height,
                  image = i / (p->channels * p->width * p->height);
    int64_t top, bottom, left, right;
    windows_of(p, 0, y, p->rows, &top, &bottom);
    windows_of(p, 1, x, p->columns, &left, &right);
    for (int64_t row = top; row <= bottom; row++)
        for (int64_t column = left; column <= right; column++) {
            const int64_t k = ((image * p->rows + row) * p->columns + column) * p->channels + i % p->channels;
            const double gradient = ab_read64(run->io->dout, k);
            if (!winners) ab_add64(e, gradient / (double)span_of(p, k).area);
            if (winners && winner(run, p, k) == i) ab_add64(e, gradient);
        }
}

/* ---- max pooling ----------------------------------------------------------------------------- */

static bool max_pool2d_forward(const ab_op_run *run, int64_t i, ab_element64 *e) {
    const pool p = pool_of(run);
    ab_add64(e, ab_read64(run->io->in[0], winner(run, &p, i)));
    return true;
}

static bool max_pool2d_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {
    const pool p = pool_of(run);
    (void)wrote;
    add_windows(run, &p, i, true, e);
    return true;
}

const ab_element64_kind ab_element64_max_pool2d = {
    .op = &ab_op_max_pool2d, .forward = max_pool2d_forward, .backward = max_pool2d_backward};

/* ---- average pooling ------------------------------------------------------------------------- */

static bool mean_forward(const ab_op_run *run, int64_t i, ab_element64 *e) {
    const pool p = pool_of(run);
    const span s = span_of(&p, i);
    for (int64_t y = s.y0; y < s.y1; y++)
        for (int64_t x = s.x0; x < s.x1; x++) ab_add64(e, ab_read64(run->io->in[0], input_of(&p, i, y, x)));
    e->value /= (double)s.area;
    return true;
}

static bool mean_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {
    const pool p = pool_of(run);
    (void)wrote;
    add_windows(run, &p, i, false, e);
    return true;
}

const ab_element64_kind ab_element64_avg_pool2d = {
    .op = &ab_op_avg_pool2d, .forward = mean_forward, .backward = mean_backward};
const ab_element64_kind ab_element64_global_avg_pool = {
    .op = &ab_op_global_avg_pool, .forward = mean_forward, .backward = mean_backward};
