/* Chunks of rows; see row_map.h. */
#include "kernels/ops/row_map.h"

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
