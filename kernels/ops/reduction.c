/* Reductions in a fixed order; see reduction.h. */
#include "kernels/ops/reduction.h"

#include "kernels/ops/blocks.h"

#include <math.h>

enum { PIECE = 16 * 1024, MOST_PIECES = 64, LANES = 8 };

/* ---- geometry -------------------------------------------------------------------------------- */

/* Results are split into pieces if there are too few of them to distribute over threads. */
static int64_t pieces_of(const ab_reduction *r) {
    int64_t elements = r->kept * r->reduced;
    int64_t pieces = ab_min64(elements / PIECE / ab_max64(1, r->tiles / 16), MOST_PIECES);
    return ab_max64(1, ab_min64(pieces, r->reduced));
}

/* If the last dimension is kept, adjacent results are computed together. */
static void cut_tiles(ab_reduction *r) {
    bool stays = r->groups > 0 && !r->is_reduced[r->groups - 1];
    r->row = stays ? r->dim[r->groups - 1] : 1;
    r->tile = ab_min64(r->row, AB_REDUCE_RUN);
    r->tiles = r->kept / r->row * ab_div_up(r->row, r->tile);
}

ab_reduction ab_reduction_of(const ab_shape *shape, unsigned axes) {
    ab_reduction r = {.kept = 1, .reduced = 1};
    int64_t step = ab_shape_count(shape);
    for (int i = 0; i < shape->ndim; i++) {
        bool is_reduced = axes >> i & 1u;
        step /= shape->dim[i];
        if (is_reduced)
            r.reduced *= shape->dim[i];
        else
            r.kept *= shape->dim[i];
        if (shape->dim[i] == 1) continue;
        if (r.groups > 0 && r.is_reduced[r.groups - 1] == is_reduced) {
            r.dim[r.groups - 1] *= shape->dim[i];
            r.stride[r.groups - 1] = step;
            continue;
        }
        r.is_reduced[r.groups] = is_reduced;
        r.dim[r.groups] = shape->dim[i];
        r.stride[r.groups++] = step;
    }
    cut_tiles(&r);
    r.pieces = pieces_of(&r);
    return r;
}

size_t ab_reduction_bytes(const ab_reduction *r) {
    return ab_aligned((size_t)(r->kept * r->pieces) * sizeof(double));
}

/* Input offset of element `number` of the reduced or kept groups. */
static int64_t offset_of(const ab_reduction *r, bool is_reduced, int64_t number) {
    int64_t offset = 0;
    for (int i = r->groups - 1; i >= 0; i--) {
        if (r->is_reduced[i] != is_reduced) continue;
        offset += number % r->dim[i] * r->stride[i];
        number /= r->dim[i];
    }
    return offset;
}

/* ---- combining ------------------------------------------------------------------------------- */

typedef struct fold {
    double start;
    void (*run)(double *total, const float *x, int64_t n);  /* reduces n values to one */
    void (*each)(double *total, const float *x, int64_t n); /* combines each value into its own total */
    double (*join)(double a, double b);
} fold;

static double plus(double a, double b) { return a + b; }
static double larger(double a, double b) { return isnan(a) || a >= b ? a : b; } /* NaN if either is NaN */

/* Several partial sums, so additions do not depend on each other. */
static void sum_run(double *total, const float *x, int64_t n) {
    double part[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) part[k] += (double)x[i + k];
    for (int k = 0; i < n; i++, k++) part[k] += (double)x[i];
    for (int k = 0; k < LANES; k++) *total += part[k];
}

static void sum_each(double *total, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) total[i] += (double)x[i];
}

static void max_run(double *total, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) *total = larger(*total, (double)x[i]);
}

static void max_each(double *total, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) total[i] = larger(total[i], (double)x[i]);
}

static const fold sum_fold = {0.0, sum_run, sum_each, plus};
static const fold max_fold = {-(double)INFINITY, max_run, max_each, larger};

/* ---- running --------------------------------------------------------------------------------- */

typedef struct reduce_job {
    const ab_reduction *r;
    const fold *fold;
    ab_reduce_source source;
    const void *self;
    double *total; /* [pieces][kept] */
} reduce_job;

/* Elements [first, end) of one result whose last dimension is reduced: runs along it. */
static void reduce_runs(const reduce_job *job, int64_t start, int64_t first, int64_t end, double *total) {
    const ab_reduction *r = job->r;
    const int64_t width = r->groups && r->is_reduced[r->groups - 1] ? r->dim[r->groups - 1] : 1;
    float buffer[AB_REDUCE_RUN];
    while (first < end) {
        int64_t n = ab_min64(ab_min64(width - first % width, end - first), AB_REDUCE_RUN);
        int64_t at = start + offset_of(r, true, first);
        job->fold->run(total, job->source(job->self, at, n, buffer), n);
        first += n;
    }
}

/* The same for a tile of adjacent results, one run at a time. */
static void reduce_tile(const reduce_job *job, int64_t width, int64_t start, int64_t first, int64_t end,
                        double *total) {
    const ab_reduction *r = job->r;
    float buffer[AB_REDUCE_RUN];
    for (int64_t i = first; i < end; i++) {
        int64_t at = start + offset_of(r, true, i);
        job->fold->each(total, job->source(job->self, at, width, buffer), width);
    }
}

static void reduce_piece(void *argument, int64_t chunk, int thread) {
    const reduce_job *job = argument;
    const ab_reduction *r = job->r;
    const int64_t per_row = ab_div_up(r->row, r->tile), tile = chunk / r->pieces, piece = chunk % r->pieces;
    const int64_t first = r->reduced * piece / r->pieces, end = r->reduced * (piece + 1) / r->pieces;
    const int64_t column = tile % per_row * r->tile, result = tile / per_row * r->row + column;
    const int64_t width = ab_min64(r->tile, r->row - column), start = offset_of(r, false, result);
    double *total = job->total + piece * r->kept + result;
    (void)thread;
    for (int64_t i = 0; i < width; i++) total[i] = job->fold->start;
    if (r->row == 1)
        reduce_runs(job, start, first, end, total);
    else
        reduce_tile(job, width, start, first, end, total);
}

static void reduce(const reduce_job *job, double scale, float *result) {
    const ab_reduction *r = job->r;
    reduce_job copy = *job;
    ab_for_chunks(r->kept * r->reduced, r->tiles * r->pieces, reduce_piece, &copy);
    for (int64_t i = 0; i < r->kept; i++) {
        double total = job->total[i];
        for (int64_t piece = 1; piece < r->pieces; piece++)
            total = job->fold->join(total, job->total[piece * r->kept + i]);
        result[i] = (float)(scale * total);
    }
}

void ab_reduce_sum(const ab_reduction *r, ab_reduce_source source, const void *self, double scale,
                   void *scratch, float *result) {
    const reduce_job job = {r, &sum_fold, source, self, scratch};
    reduce(&job, scale, result);
}

void ab_reduce_max(const ab_reduction *r, ab_reduce_source source, const void *self, void *scratch,
                   float *result) {
    const reduce_job job = {r, &max_fold, source, self, scratch};
    reduce(&job, 1.0, result);
}
