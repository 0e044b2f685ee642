/* Forward products of few rows; see pass.h. The rows are packed as panels, [inner][AB_PANEL rows], and the
 * weights are read as they are stored; halves are widened while the tile before is computed. The result
 * comes out transposed, in blocks of outputs. The inner dimension is cut into parts, so that those of a panel
 * stay in the L2 cache for a block. */
#include "kernels/ops/product/few_rows.h"

#include "kernels/core/text.h"
#include "kernels/ops/blocks.h"

#include <stdlib.h>

/* BLOCK: outputs per claim; SMALL: where each of several threads had fewer than CLAIMS claims. PART: most
 * values of the inner dimension per part. PITCH: from one row of widened weights to the next; rows that are a
 * power of two apart share the sets of the L1 cache. TURN: values of the inner dimension that are packed per
 * claim. */
enum {
    BLOCK = 8 * AB_PANEL_ROWS,
    SMALL = 3 * AB_PANEL_ROWS,
    CLAIMS = 4,
    PART = 512,
    PITCH = PART + 16,
    TURN = 128
};

typedef struct few_rows {
    ab_pass base;
    int threads;
    int64_t rows, inner, outputs, panels;
    int64_t block;       /* outputs per claim: BLOCK, or less where claims would be few */
    int64_t parts, part; /* of the inner dimension: number and size */
    size_t panels_bytes, thread_bytes;
    size_t ahead_bytes; /* of weights to fetch ahead for every tile */
} few_rows;

typedef struct few_job {
    const few_rows *p;
    const ab_pass_args *args;
    ab_values src, weights, dst;
} few_job;

static float *panel_of(const few_job *job, int64_t panel) {
    return (float *)job->args->scratch + panel * job->p->inner * AB_PANEL;
}

static float *thread_buffer(const few_job *job) {
    const few_rows *p = job->p;
    return (float *)(void *)((char *)job->args->scratch + p->panels_bytes +
                             (size_t)ab_parallel_thread() * p->thread_bytes);
}

static int64_t rows_in(const few_rows *p, int64_t panel) {
    return ab_min64(AB_PANEL, p->rows - panel * AB_PANEL);
}

/* Columns of a panel that are computed: its rows, rounded up. */
static int64_t columns_in(const few_rows *p, int64_t panel) {
    return ab_div_up(rows_in(p, panel), AB_PANEL_STEP) * AB_PANEL_STEP;
}

static int64_t part_size(const few_rows *p, int64_t part) {
    return ab_min64(p->part, p->inner - part * p->part);
}

/* ---- packing --------------------------------------------------------------------------------- */

static void pack_piece(void *argument, int64_t index, int thread) {
    const few_job *job = argument;
    const few_rows *p = job->p;
    const int64_t pieces = ab_div_up(p->inner, TURN), panel = index / pieces, first = index % pieces * TURN,
                  n = ab_min64(TURN, p->inner - first), rows = rows_in(p, panel);
    const ab_panel_part from =
        ab_panel_part_of(&job->src, panel * AB_PANEL * p->inner + first, p->inner, rows, n);
    float *to = panel_of(job, panel) + first * AB_PANEL;
    (void)thread;
    ab_vec_panel_get()->turn(to, AB_PANEL, &from);
    for (int64_t k = 0; k < n; k++, to += AB_PANEL)
        for (int64_t r = rows; r < columns_in(p, panel); r++) to[r] = 0.0f;
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* Outputs of a claim, and a thread's buffers. */
typedef struct block {
    int64_t first, count; /* outputs */
    float *sums;          /* [output][AB_PANEL], of a panel */
    float *weights;       /* widened, of two tiles: [output][PITCH] */
    float *result;        /* [row][output], of a panel, in formats that the loops do not know */
} block;

static block block_of(const few_job *job, int64_t k) {
    const few_rows *p = job->p;
    float *sums = thread_buffer(job), *weights = sums + BLOCK * AB_PANEL;
    return (block){.first = k * p->block,
                   .count = ab_min64(p->block, p->outputs - k * p->block),
                   .sums = sums,
                   .weights = weights,
                   .result = weights + 2 * AB_PANEL_ROWS * PITCH};
}

void ab_turned_panel_store(const ab_turned_panel *t) {
    const ab_vec_panel *vec = ab_vec_panel_get();
    const float *bias = t->args->bias ? t->args->bias + t->first : NULL;
    const int64_t at = t->row * t->outputs + t->first;
    const ab_panel_part part = ab_panel_part_of(&t->dst, at, t->outputs, t->rows, t->count),
                        wide = {t->buffer, AB_STORED_FP32, t->count, t->rows, t->count};
    if (ab_panel_stores(t->dst.format)) {
        vec->store_turned(&part, t->sums, bias);
        return;
    }
    vec->store_turned(&wide, t->sums, bias);
    ab_panel_store(t->args, &t->dst, at, &part, t->buffer, t->count);
}

/* Fetches into the cache what follows the weights of a tile of a block in those of the block that this thread
 * is likely to compute next. */
static void fetch_ahead(const few_job *job, const block *b, int64_t tile) {
    const few_rows *p = job->p;
    const int64_t next = b->first + p->block, n = ab_min64(p->block, p->outputs - next);
    if (n <= 0) return;
    const size_t from = ab_format_bytes(job->weights.format, next * p->inner),
                 bytes = ab_format_bytes(job->weights.format, n * p->inner);
    size_t at = (size_t)tile * p->ahead_bytes;
    for (const size_t end = at + p->ahead_bytes; at < end && at < bytes; at += AB_ALIGN)
        __builtin_prefetch((const char *)job->weights.data + from + at, 0, 2);
}

/* The weights of a tile as they are stored. */
static ab_panel_part weights_of(const few_job *job, const block *b, int64_t row, int64_t first,
                                int64_t inner) {
    const few_rows *p = job->p;
    return ab_panel_part_of(&job->weights, (b->first + row) * p->inner + first, p->inner,
                            ab_min64(AB_PANEL_ROWS, b->count - row), inner);
}

/* Half weights are widened to one of two places while those in the other are multiplied; the first ones
 * before. */
static float *widened(const block *b, int64_t row) {
    return b->weights + row / AB_PANEL_ROWS % 2 * AB_PANEL_ROWS * PITCH;
}

/* What a tile widens: the weights of the next one, if that is whole. */
static const ab_panel_ahead *ahead_of(const block *b, const ab_panel_part *next, int64_t row,
                                      ab_panel_ahead *ahead) {
    if (next->stored == AB_STORED_FP32 || next->rows < AB_PANEL_ROWS) return NULL;
    *ahead = (ab_panel_ahead){.from = next->data,
                              .stored = next->stored,
                              .to = widened(b, row),
                              .from_step = next->step,
                              .to_step = PITCH};
    return ahead;
}

static void add_part(const few_job *job, const block *b, int64_t panel, int64_t part) {
    const few_rows *p = job->p;
    const int64_t first = part * p->part, before = (panel * p->parts + part) * (p->block / AB_PANEL_ROWS);
    ab_panel_tile tile = {.panel = panel_of(job, panel) + first * AB_PANEL,
                          .c_step = AB_PANEL,
                          .columns = columns_in(p, panel),
                          .inner = part_size(p, part),
                          .continues = part > 0};
    ab_panel_ahead ahead;
    for (int64_t row = 0; row < b->count; row += AB_PANEL_ROWS) {
        const int64_t below = row + AB_PANEL_ROWS;
        const ab_panel_part own = weights_of(job, b, row, first, tile.inner),
                            next = weights_of(job, b, below, first, tile.inner);
        const bool in_place = own.stored == AB_STORED_FP32;
        if (!in_place && !tile.ahead) ab_vec_part_get()->read(widened(b, row), PITCH, &own);
        tile.a = in_place ? own.data : widened(b, row);
        tile.a_step = in_place ? p->inner : PITCH;
        tile.rows = own.rows;
        tile.c = b->sums + row * AB_PANEL;
        tile.ahead = ahead_of(b, &next, below, &ahead);
        fetch_ahead(job, b, before + row / AB_PANEL_ROWS);
        ab_vec_panel_get()->tile(&tile);
    }
}

static void run_block(void *argument, int64_t k, int thread) {
    const few_job *job = argument;
    const few_rows *p = job->p;
    const block b = block_of(job, k);
    (void)thread;
    for (int64_t panel = 0; panel < p->panels; panel++) {
        for (int64_t part = 0; part < p->parts; part++) add_part(job, &b, panel, part);
        ab_turned_panel_store(&(ab_turned_panel){.args = job->args,
                                                 .dst = job->dst,
                                                 .outputs = p->outputs,
                                                 .first = b.first,
                                                 .count = b.count,
                                                 .row = panel * AB_PANEL,
                                                 .rows = rows_in(p, panel),
                                                 .sums = b.sums,
                                                 .buffer = b.result});
    }
}

static ab_status run(ab_pass *base, const ab_pass_args *args) {
    const few_rows *p = (const few_rows *)base;
    const ab_pass_stored *stored = args->stored;
    few_job job = {p, args, ab_values_of(stored ? stored->src : NULL, args->src, &ab_format_fp32),
                   ab_values_of(stored ? stored->weights : NULL, args->weights, &ab_format_fp32),
                   ab_values_of(stored ? stored->dst : NULL, args->dst, &ab_format_fp32)};
    ab_for_prepared(p->threads, p->panels * ab_div_up(p->inner, TURN), pack_piece, &job);
    ab_for_prepared(p->threads, ab_div_up(p->outputs, p->block), run_block, &job);
    return AB_OK;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void destroy(ab_pass *pass) { free(pass); }

static void size_buffers(few_rows *p) {
    p->block = p->threads > 1 && p->outputs < (int64_t)p->threads * CLAIMS * BLOCK ? SMALL : BLOCK;
    const int64_t sums = BLOCK * AB_PANEL, floats = 2 * sums + 2 * AB_PANEL_ROWS * PITCH;
    p->panels = ab_div_up(p->rows, AB_PANEL);
    p->parts = ab_div_up(p->inner, PART);
    p->part = ab_div_up(ab_div_up(p->inner, p->parts), AB_PANEL_STEP) * AB_PANEL_STEP;
    const int64_t tiles = p->panels * p->parts * (p->block / AB_PANEL_ROWS);
    p->ahead_bytes = ab_aligned((size_t)ab_div_up(p->block * p->inner * (int64_t)sizeof(float), tiles));
    p->panels_bytes = ab_floats_bytes(p->panels * p->inner * AB_PANEL);
    p->thread_bytes = ab_floats_bytes(floats);
    p->base.scratch_bytes = p->panels_bytes + (size_t)p->threads * p->thread_bytes;
}

ab_status ab_few_rows_pass(const ab_pass_spec *spec, ab_pass **pass) {
    const ab_conv *conv = &spec->conv;
    *pass = NULL;
    if (spec->operands != &ab_format_fp32 || conv->batch > AB_FEW_ROWS) return AB_OK;
    if (spec->kind != AB_PASS_FORWARD) return ab_few_rows_backward(spec, pass);
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
