/* Forward products of few rows; see pass.h. The rows are packed as panels, [inner][AB_PANEL rows], and the
 * weights are read once, as they are stored. The result comes out transposed, in blocks of outputs. */
#include "kernels/ops/product/pass.h"

#include "kernels/core/text.h"
#include "kernels/format/convert.h"
#include "kernels/ops/blocks.h"
#include "kernels/vec/isa.h"
#include "kernels/vec/vec_panel.h"

#include <stdlib.h>
#include <string.h>

AB_BY_ISA(ab_vec_panel, ab_vec_panel)

/* BLOCK: outputs per claim. PACK: values of the inner dimension per claim of the packing. */
enum { FEW_ROWS = 2 * AB_PANEL, BLOCK = 8 * AB_PANEL_ROWS, PACK = 128 };

typedef struct few_rows {
    ab_pass base;
    int threads;
    int64_t rows, inner, outputs, panels;
    size_t panels_bytes, thread_bytes;
} few_rows;

typedef struct few_job {
    const few_rows *p;
    const ab_pass_args *args;
    ab_values src, weights;
} few_job;

static float *panel_of(const few_job *job, int64_t panel) {
    return (float *)job->args->scratch + panel * job->p->inner * AB_PANEL;
}

static float *thread_buffer(const few_job *job) {
    const few_rows *p = job->p;
    return (float *)(void *)((char *)job->args->scratch + p->panels_bytes +
                             (size_t)ab_parallel_thread() * p->thread_bytes);
}

/* n values from `at` on in fp32: in place or in `buffer`. */
static const float *read_values(const ab_values *values, int64_t at, int64_t n, float *buffer) {
    const char *from = (const char *)values->data + ab_format_bytes(values->format, at);
    if (values->format == &ab_format_fp32) return (const float *)(const void *)from;
    ab_widen(buffer, from, values->format, n);
    return buffer;
}

static int64_t rows_in(const few_rows *p, int64_t panel) {
    return ab_min64(AB_PANEL, p->rows - panel * AB_PANEL);
}

/* Columns of a panel that are computed: its rows, rounded up. */
static int64_t columns_in(const few_rows *p, int64_t panel) {
    return ab_div_up(rows_in(p, panel), AB_PANEL_STEP) * AB_PANEL_STEP;
}

/* ---- packing --------------------------------------------------------------------------------- */

static void pack_part(void *argument, int64_t part, int thread) {
    const few_job *job = argument;
    const few_rows *p = job->p;
    const int64_t parts = ab_div_up(p->inner, PACK), panel = part / parts, first = part % parts * PACK;
    const int64_t n = ab_min64(PACK, p->inner - first), rows = rows_in(p, panel);
    float *buffer = thread_buffer(job), *to = panel_of(job, panel) + first * AB_PANEL;
    (void)thread;
    for (int64_t r = 0; r < rows; r++) {
        float *line = buffer + r * PACK;
        const float *from = read_values(&job->src, (panel * AB_PANEL + r) * p->inner + first, n, line);
        if (from != line) memcpy(line, from, (size_t)n * sizeof *line);
    }
    memset(buffer + rows * PACK, 0, (size_t)((columns_in(p, panel) - rows) * PACK) * sizeof *buffer);
    ab_vec_panel_get()->transpose(to, AB_PANEL, buffer, PACK, columns_in(p, panel), n);
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* A thread's buffers for a block of outputs. */
typedef struct block {
    int64_t first, count; /* outputs */
    float *weights;       /* of a tile: [output][inner] */
    float *tile;          /* [AB_PANEL_ROWS][AB_PANEL] */
    float *result;        /* [row][BLOCK] */
} block;

static block block_of(const few_job *job, int64_t k) {
    const few_rows *p = job->p;
    float *tile = thread_buffer(job), *result = tile + AB_PANEL_ROWS * AB_PANEL;
    return (block){.first = k * BLOCK,
                   .count = ab_min64(BLOCK, p->outputs - k * BLOCK),
                   .tile = tile,
                   .result = result,
                   .weights = result + FEW_ROWS * BLOCK};
}

static void store_block(const few_job *job, const block *b) {
    const few_rows *p = job->p;
    const ab_pass_stored *stored = job->args->stored;
    for (int64_t row = 0; row < p->rows; row++) {
        const int64_t at = row * p->outputs + b->first;
        float *values = b->result + row * BLOCK;
        for (int64_t i = 0; job->args->bias && i < b->count; i++) values[i] += job->args->bias[b->first + i];
        if (stored)
            ab_emit(stored->exec, stored->dst, at, values, b->count);
        else
            memcpy(job->args->dst + at, values, (size_t)b->count * sizeof *values);
    }
}

static void run_block(void *argument, int64_t k, int thread) {
    const few_job *job = argument;
    const few_rows *p = job->p;
    const ab_vec_panel *vec = ab_vec_panel_get();
    const block b = block_of(job, k);
    (void)thread;
    for (int64_t at = 0; at < b.count; at += AB_PANEL_ROWS) {
        const int64_t rows = ab_min64(AB_PANEL_ROWS, b.count - at), from = (b.first + at) * p->inner;
        ab_panel_tile tile = {.a = read_values(&job->weights, from, rows * p->inner, b.weights),
                              .c = b.tile,
                              .rows = rows,
                              .inner = p->inner};
        for (int64_t panel = 0; panel < p->panels; panel++) {
            tile.panel = panel_of(job, panel);
            tile.columns = columns_in(p, panel);
            vec->tile(&tile);
            vec->transpose(b.result + panel * AB_PANEL * BLOCK + at, BLOCK, b.tile, AB_PANEL, rows,
                           rows_in(p, panel));
        }
    }
    store_block(job, &b);
}

static ab_status run(ab_pass *base, const ab_pass_args *args) {
    const few_rows *p = (const few_rows *)base;
    const ab_pass_stored *stored = args->stored;
    few_job job = {p, args, ab_values_of(stored ? stored->src : NULL, args->src, &ab_format_fp32),
                   ab_values_of(stored ? stored->weights : NULL, args->weights, &ab_format_fp32)};
    ab_for_prepared(p->threads, p->panels * ab_div_up(p->inner, PACK), pack_part, &job);
    ab_for_prepared(p->threads, ab_div_up(p->outputs, BLOCK), run_block, &job);
    return AB_OK;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void destroy(ab_pass *pass) { free(pass); }

static void size_buffers(few_rows *p) {
    const int64_t floats = AB_PANEL_ROWS * (AB_PANEL + p->inner) + FEW_ROWS * BLOCK;
    p->panels = ab_div_up(p->rows, AB_PANEL);
    p->panels_bytes = ab_floats_bytes(p->panels * p->inner * AB_PANEL);
    p->thread_bytes = ab_floats_bytes(ab_max64(floats, AB_PANEL * PACK));
    p->base.scratch_bytes = p->panels_bytes + (size_t)p->threads * p->thread_bytes;
}

ab_status ab_few_rows_pass(const ab_pass_spec *spec, ab_pass **pass) {
    const ab_conv *conv = &spec->conv;
    *pass = NULL;
    if (spec->operands != &ab_format_fp32 || spec->kind != AB_PASS_FORWARD || conv->batch > FEW_ROWS)
        return AB_OK;
    few_rows *p = calloc(1, sizeof *p);
    if (!p) return ab_fail(AB_NO_MEMORY, "cannot allocate a product of few rows");
    p->threads = ab_parallel_threads();
    p->rows = conv->batch;
    p->inner = conv->window.channels;
    p->outputs = conv->out_channels;
    p->base = (ab_pass){.keeps_nonfinite = true,
                        .takes_stored = spec->stored,
                        .takes_stored_weights = spec->stored,
                        .run = run,
                        .destroy = destroy};
    size_buffers(p);
    ab_text_show(p->base.text, sizeof p->base.text, "panel:%s", ab_isa_name(ab_isa_get()));
    *pass = &p->base;
    return AB_OK;
}
