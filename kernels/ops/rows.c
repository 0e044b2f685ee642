/* Row splitting and column sums; see rows.h. */
#include "kernels/ops/rows.h"

#include "kernels/ops/blocks.h"
#include "kernels/vec/vec_ops.h"

enum { GROUP_ELEMENTS = 4096, GROUP_MIN_ROWS = 16, MAX_CHUNKS = 32 };

ab_rows ab_rows_of(const ab_shape *shape) {
    ab_rows r = {.channels = shape->dim[shape->ndim - 1]};
    r.rows = ab_shape_count(shape) / r.channels;
    r.group_rows = ab_max64(GROUP_MIN_ROWS, GROUP_ELEMENTS / r.channels);
    r.groups = ab_div_up(r.rows, r.group_rows);
    r.chunk_groups = ab_div_up(r.groups, MAX_CHUNKS);
    r.chunks = ab_div_up(r.groups, r.chunk_groups);
    return r;
}

int64_t ab_rows_in_group(const ab_rows *r, int64_t group) {
    return ab_min64(r->group_rows, r->rows - group * r->group_rows);
}

int64_t ab_rows_offset(const ab_rows *r, int64_t group) { return group * r->group_rows * r->channels; }

int64_t ab_rows_chunk_end(const ab_rows *r, int64_t chunk) {
    return ab_min64((chunk + 1) * r->chunk_groups, r->groups);
}

/* Scratch of one chunk: double sums, one group's fp32 sums, a widened group. */
typedef struct chunk_scratch {
    size_t total, group, widened, bytes;
} chunk_scratch;

static chunk_scratch carve(const ab_rows *r, const ab_tensor *tensor) {
    chunk_scratch s = {0};
    s.group = ab_aligned((size_t)r->channels * sizeof(double));
    s.widened = s.group + ab_floats_bytes(r->channels);
    s.bytes = s.widened + (ab_is_f32(tensor) ? 0 : ab_floats_bytes(r->group_rows * r->channels));
    return s;
}

size_t ab_rows_sum_bytes(const ab_tensor *tensor) {
    ab_rows r = ab_rows_of(&tensor->shape);
    return carve(&r, tensor).bytes * (size_t)r.chunks;
}

typedef struct sum_job {
    ab_rows rows;
    const ab_tensor *tensor;
    chunk_scratch scratch;
    char *memory; /* scratch.bytes per chunk */
} sum_job;

static void sum_chunk(void *argument, int64_t chunk, int thread) {
    const sum_job *job = argument;
    const ab_rows *r = &job->rows;
    const chunk_scratch *s = &job->scratch;
    const ab_tensor *tensor = job->tensor;
    char *scratch = job->memory + (size_t)chunk * s->bytes;
    (void)thread;
    double *total = (double *)(void *)scratch;
    float *group = (float *)(void *)(scratch + s->group), *widened = (float *)(void *)(scratch + s->widened);
    for (int64_t c = 0; c < r->channels; c++) total[c] = 0.0;
    for (int64_t g = chunk * r->chunk_groups; g < ab_rows_chunk_end(r, chunk); g++) {
        int64_t rows = ab_rows_in_group(r, g);
        const float *x = ab_read(tensor, ab_rows_offset(r, g), rows * r->channels, widened);
        ab_vec_ops_get()->column_sums(x, rows, r->channels, group);
        for (int64_t c = 0; c < r->channels; c++) total[c] += (double)group[c];
    }
}

void ab_rows_sum(const ab_tensor *tensor, float *sum, void *scratch) {
    ab_rows r = ab_rows_of(&tensor->shape);
    chunk_scratch s = carve(&r, tensor);
    double *total = scratch;
    sum_job job = {r, tensor, s, scratch};
    ab_for_chunks(r.rows * r.channels, r.chunks, sum_chunk, &job);
    for (int64_t chunk = 1; chunk < r.chunks; chunk++) {
        const double *part = (const double *)(void *)((char *)scratch + (size_t)chunk * s.bytes);
        for (int64_t c = 0; c < r.channels; c++) total[c] += part[c];
    }
    for (int64_t c = 0; c < r.channels; c++) sum[c] = (float)total[c];
}

/* Chunks of rows. */

enum { CHUNK_ELEMENTS = 8192, ROWS_A_LANE = 3 };

ab_row_split ab_row_split_of(const ab_shape *shape) {
    ab_row_split s = {.n = shape->ndim ? shape->dim[shape->ndim - 1] : 1};
    s.rows = ab_shape_count(shape) / s.n;
    s.chunk_rows = ab_max64(ab_div_up(CHUNK_ELEMENTS, s.n), ab_div_up(s.rows, AB_ROW_MAX_CHUNKS));
    s.chunks = ab_div_up(s.rows, s.chunk_rows);
    return s;
}

static size_t thread_bytes(int64_t n) { return ROWS_A_LANE * ab_floats_bytes(n); }

size_t ab_row_pass_bytes(const ab_shape *shape) {
    return (size_t)ab_parallel_threads() * thread_bytes(ab_row_split_of(shape).n);
}

static void run_chunk(void *argument, int64_t chunk, int thread) {
    const ab_row_pass *p = argument;
    const ab_row_split *s = &p->split;
    char *memory = (char *)p->exec->workspace + p->fixed_bytes + (size_t)thread * thread_bytes(s->n);
    float *row_a = (float *)(void *)memory, *row_b = row_a + ab_floats_bytes(s->n) / sizeof(float),
          *row_out = row_b + ab_floats_bytes(s->n) / sizeof(float);
    for (int64_t row = chunk * s->chunk_rows; row < ab_min64((chunk + 1) * s->chunk_rows, s->rows); row++) {
        const float *a = p->a ? ab_read(p->a, row * s->n, s->n, row_a) : NULL;
        const float *b = p->b ? ab_read(p->b, row * s->n, s->n, row_b) : NULL;
        float *out = p->dst ? ab_target(p->dst, row * s->n, row_out) : NULL;
        p->f(p, chunk, row, out, a, b);
        if (out) ab_emit(p->exec, p->dst, row * s->n, out, s->n);
    }
}

void ab_row_pass_run(const ab_row_pass *pass) {
    bool fits = ab_threads_fit(pass->exec, pass->fixed_bytes, thread_bytes(pass->split.n));
    ab_row_pass p = *pass;
    ab_for_chunks(fits ? p.split.rows * p.split.n : 0, p.split.chunks, run_chunk, &p);
}
