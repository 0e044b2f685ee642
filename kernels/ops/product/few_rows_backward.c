/* Backward products of few rows; see pass.h. The rows' gradients are widened, for weight gradients transposed
 * as well, once or, if they are short, by every thread for itself, which costs less than to read what another
 * one wrote; the other operand is packed as panels, [inner][AB_PANEL columns], a group of them at a
 * time. A thread computes the columns of a group, a block of result rows after the other. The inner dimension
 * is cut so that a part of a panel stays in the L1 cache for a block. */
#include "kernels/ops/product/few_rows.h"

#include "kernels/core/text.h"
#include "kernels/ops/blocks.h"

#include <stdlib.h>

/* GROUP: columns of a group of panels. BLOCK: result rows of a block of a weight gradient; an input gradient
 * is one block. OWN_LINES: most floats of lines of which every thread has its own. CLAIMS: of each of several
 * threads; where they would be fewer, a group is a single panel. INNER: values of the inner dimension per
 * part; those of a weight gradient are rows, which are one part. */
enum {
    PANELS = 2,
    GROUP = PANELS * AB_PANEL,
    BLOCK = 8 * AB_PANEL_ROWS,
    OWN_LINES = 32 * 1024,
    CLAIMS = 4,
    INNER = AB_FEW_ROWS
};

typedef struct few_backward {
    ab_pass base;
    bool weights; /* dweight = dout^T src, else din = dout weights */
    int threads;
    int64_t rows, outputs;
    int64_t lines, columns, inner; /* of the product: lines x inner times inner x columns */
    int64_t block;                 /* lines */
    int64_t group;                 /* columns per claim: GROUP, or a panel where claims would be few */
    bool own_lines;
    size_t lines_bytes, thread_bytes; /* the latter without lines */
} few_backward;

typedef struct few_job {
    const few_backward *p;
    const ab_pass_args *args;
    ab_values dout, other; /* other: src or weights */
    ab_values dst;
    const float *lines[AB_PARALLEL_MAX_THREADS]; /* of a thread: [lines][inner]; NULL: not packed yet */
} few_job;

static size_t copies(const few_backward *p) { return p->own_lines ? (size_t)p->threads : 1; }

static float *thread_buffer(const few_job *job) {
    const few_backward *p = job->p;
    return (float *)(void *)((char *)job->args->scratch + copies(p) * p->lines_bytes +
                             (size_t)ab_parallel_thread() * p->thread_bytes);
}

/* ---- packing --------------------------------------------------------------------------------- */

/* dout in fp32 as the lines of the product, in place where it is that already. */
static const float *pack_lines(const few_backward *p, const ab_values *dout, float *lines) {
    const ab_panel_part all = ab_panel_part_of(dout, 0, p->outputs, p->rows, p->outputs);
    if (p->weights) {
        ab_vec_panel_get()->turn(lines, p->rows, &all);
        return lines;
    }
    if (all.stored == AB_STORED_FP32) return all.data;
    ab_widen(lines, dout->data, dout->format, p->rows * p->outputs);
    return lines;
}

/* Those of the calling thread. */
static const float *lines_of(few_job *job) {
    const few_backward *p = job->p;
    const int thread = ab_parallel_thread(), copy = p->own_lines ? thread : 0;
    float *to = (float *)(void *)((char *)job->args->scratch + (size_t)copy * p->lines_bytes);
    if (!job->lines[copy]) job->lines[copy] = pack_lines(p, &job->dout, to);
    return job->lines[copy];
}

/* A group of columns, its buffers and what is packed of it. */
typedef struct group {
    int64_t first, count; /* columns */
    int64_t at, inner;    /* part of the inner dimension */
    float *panels;        /* [panel][inner][AB_PANEL] */
    float *sums;          /* [line of a block][GROUP] */
    const float *lines;
} group;

static group group_of(const few_job *job, int64_t g) {
    const few_backward *p = job->p;
    float *panels = thread_buffer(job);
    return (group){.first = g * p->group,
                   .count = ab_min64(p->group, p->columns - g * p->group),
                   .panels = panels,
                   .sums = panels + INNER * GROUP};
}

/* Columns of a panel that are computed: those it has, rounded up. */
static int64_t columns_in(const group *g, int64_t panel) {
    const int64_t left = ab_min64(AB_PANEL, g->count - panel * AB_PANEL);
    return ab_div_up(left, AB_PANEL_STEP) * AB_PANEL_STEP;
}

/* Packs the part of the group from `at` on. */
static void pack_panels(const few_job *job, group *g, int64_t at) {
    const few_backward *p = job->p;
    g->at = at;
    g->inner = ab_min64(INNER, p->inner - at);
    for (int64_t panel = 0; panel * AB_PANEL < g->count; panel++) {
        const int64_t first = at * p->columns + g->first + panel * AB_PANEL;
        const ab_panel_part part = ab_panel_part_of(&job->other, first, p->columns, g->inner,
                                                    ab_min64(AB_PANEL, g->count - panel * AB_PANEL));
        ab_vec_part_get()->pack(g->panels + panel * INNER * AB_PANEL, &part);
    }
}

/* ---- results --------------------------------------------------------------------------------- */

static ab_panel_part result_part(const few_job *job, const group *g, int64_t line, int64_t count) {
    const few_backward *p = job->p;
    return ab_panel_part_of(&job->dst, line * p->columns + g->first, p->columns, count, g->count);
}

/* Whether tiles write to the result: it is fp32, and they do not pass the end of its lines. */
static bool writes_result(const few_job *job, const group *g) {
    return job->dst.format == &ab_format_fp32 && g->count % AB_PANEL_STEP == 0;
}

/* Fetches the pieces of the result that a block will write. */
static void fetch_result(const few_job *job, const ab_panel_part *part) {
    const size_t bytes = ab_format_bytes(job->dst.format, part->columns),
                 step = ab_format_bytes(job->dst.format, part->step);
    for (int64_t i = 0; i < part->rows; i++)
        for (size_t at = 0; at < bytes; at += AB_ALIGN)
            __builtin_prefetch((const char *)part->data + (size_t)i * step + at, 1, 2);
}

/* Adds a packed part to the sums of lines [line, line + count), which are c; the results go to `rounded`
 * unless that is NULL. */
static void add_part(const few_job *job, const group *g, int64_t line, int64_t count, ab_panel_tile tile,
                     const ab_panel_part *rounded) {
    const few_backward *p = job->p;
    float *sums = tile.c;
    for (int64_t panel = 0; panel * AB_PANEL < g->count; panel++) {
        tile.panel = g->panels + panel * INNER * AB_PANEL;
        tile.columns = columns_in(g, panel);
        for (int64_t i = 0; i < count; i += AB_PANEL_ROWS) {
            tile.a = g->lines + (line + i) * p->inner + g->at;
            tile.c = sums + i * tile.c_step + panel * AB_PANEL;
            tile.rows = ab_min64(AB_PANEL_ROWS, count - i);
            if (rounded) tile.rounded = (uint16_t *)rounded->data + i * rounded->step + panel * AB_PANEL;
            ab_vec_panel_get()->tile(&tile);
        }
    }
}

/* Whether tiles round to the result: they do not pass the end of its lines. */
static bool rounds_result(const few_job *job, const group *g) {
    return ab_is_half(job->dst.format) && g->count % AB_PANEL_STEP == 0;
}

static void run_block(const few_job *job, group *g, int64_t line) {
    const few_backward *p = job->p;
    const int64_t count = ab_min64(p->block, p->lines - line);
    const ab_panel_part result = result_part(job, g, line, count);
    const bool direct = writes_result(job, g), rounds = rounds_result(job, g);
    ab_panel_tile tile = {.c = direct ? result.data : g->sums,
                          .c_step = direct ? p->columns : GROUP,
                          .a_step = p->inner,
                          .rounded_step = p->columns,
                          .rounded_as = result.stored};
    fetch_result(job, &result);
    for (int64_t at = 0; at < p->inner; at += INNER) {
        if (line == 0) pack_panels(job, g, at);
        tile.inner = g->inner;
        tile.continues = at > 0;
        add_part(job, g, line, count, tile, rounds && at + INNER >= p->inner ? &result : NULL);
    }
    if (!direct && !rounds)
        ab_panel_store(job->args, &job->dst, line * p->columns + g->first, &result, g->sums, GROUP);
}

static void run_group(void *argument, int64_t index, int thread) {
    few_job *job = argument;
    group g = group_of(job, index);
    g.lines = lines_of(job);
    (void)thread;
    for (int64_t line = 0; line < job->p->lines; line += job->p->block) run_block(job, &g, line);
}

static ab_status run(ab_pass *base, const ab_pass_args *args) {
    const few_backward *p = (const few_backward *)base;
    const ab_pass_stored *stored = args->stored;
    if (stored && !stored->dst) return AB_OK;
    few_job job = {.p = p, .args = args};
    const ab_tensor *dout = stored ? (p->weights ? stored->dout : stored->src) : NULL,
                    *other = stored ? (p->weights ? stored->src : stored->weights) : NULL;
    job.dout = ab_values_of(dout, p->weights ? args->dout : args->src, &ab_format_fp32);
    job.other = ab_values_of(other, p->weights ? args->src : args->weights, &ab_format_fp32);
    job.dst = ab_values_of(stored ? stored->dst : NULL, args->dst, &ab_format_fp32);
    if (!p->own_lines) lines_of(&job);
    ab_for_prepared(p->threads, ab_div_up(p->columns, p->group), run_group, &job);
    return AB_OK;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void destroy(ab_pass *pass) { free(pass); }

static void size_buffers(few_backward *p) {
    p->lines_bytes = ab_floats_bytes(p->rows * p->outputs);
    p->thread_bytes = ab_floats_bytes(INNER * GROUP + p->block * GROUP);
    p->base.scratch_bytes = copies(p) * p->lines_bytes + (size_t)p->threads * p->thread_bytes;
}

ab_status ab_few_rows_backward(const ab_pass_spec *spec, ab_pass **pass) {
    const int64_t rows = spec->conv.batch, inputs = spec->conv.window.channels,
                  outputs = spec->conv.out_channels;
    few_backward *p = calloc(1, sizeof *p);
    if (!p) return ab_fail(AB_NO_MEMORY, "cannot allocate a product of few rows");
    p->threads = ab_parallel_threads();
    p->weights = spec->kind == AB_PASS_BACKWARD_WEIGHTS;
    p->rows = rows;
    p->outputs = outputs;
    p->columns = inputs;
    p->lines = p->weights ? outputs : rows;
    p->inner = p->weights ? rows : outputs;
    p->block = p->weights ? BLOCK : rows;
    p->group = p->threads > 1 && inputs < (int64_t)p->threads * CLAIMS * GROUP ? AB_PANEL : GROUP;
    p->own_lines = rows * outputs <= OWN_LINES;
    p->base = (ab_pass){.keeps_nonfinite = true,
                        .takes_stored = spec->stored,
                        .takes_stored_weights = spec->stored,
                        .rounds_weights = spec->stored,
                        .run = run,
                        .destroy = destroy};
    size_buffers(p);
    ab_text_show(p->base.text, sizeof p->base.text, "panel:%s", ab_isa_name(ab_isa_get()));
    *pass = &p->base;
    return AB_OK;
}
