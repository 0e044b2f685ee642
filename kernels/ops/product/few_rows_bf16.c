/* Products of few rows with bf16 operands on a unit for pairs (bf16_unit.h); see pass.h. One operand is read
 * as rows in memory, the other packed as panels of pairs of the inner dimension, [tile of 16 columns][inner /
 * 2][16][2], of 64 columns each: all of them before a forward pass, a panel at a time by the thread that
 * needs it in backward passes. */
#include "kernels/ops/product/few_rows.h"

#include "kernels/core/text.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/product/bf16_unit.h"

#include <stdlib.h>
#include <string.h>

/* PANEL: columns of a panel. PART: most values of the inner dimension per part. */
enum { SIDE = AB_BF16_SIDE, PANEL = AB_BF16_TILES * AB_BF16_SIDE, PART = 256 };

typedef struct few_bf16 {
    ab_pass base;
    const ab_bf16_unit *unit;
    ab_pass_kind kind;
    int threads;
    int64_t lines, columns, inner; /* of the product: lines x inner times inner x columns */
    int64_t padded;                /* inner, a multiple of the unit's */
    int64_t parts, part;           /* of the padded inner dimension: number and size */
    int64_t line_values;           /* of weight gradients: dout, transposed and padded */
    int64_t panels;                /* packed before a forward pass */
    size_t shared_bytes, thread_bytes;
} few_bf16;

typedef struct bf16_job {
    const few_bf16 *p;
    const ab_pass_args *args;
    const uint16_t *lines, *other; /* the operands */
    int64_t line_step, line_count; /* values of a line, and lines that may be read */
    ab_values dst;
} bf16_job;

/* A thread's buffers. */
typedef struct buffers {
    float *sums;     /* [line][PANEL]: of all lines in several parts, else of one tile */
    uint16_t *lines; /* [SIDE][PART] */
    uint16_t *panel; /* of one part */
} buffers;

static int64_t padded_lines(const few_bf16 *p) { return ab_div_up(p->lines, SIDE) * SIDE; }

/* Lines of which a thread keeps sums. */
static int64_t kept_lines(const few_bf16 *p) {
    return p->parts > 1 && p->kind != AB_PASS_FORWARD ? padded_lines(p) : SIDE;
}

static buffers buffers_of(const bf16_job *job) {
    const few_bf16 *p = job->p;
    char *at = (char *)job->args->scratch + p->shared_bytes + (size_t)ab_parallel_thread() * p->thread_bytes;
    buffers b = {.sums = (float *)(void *)at};
    b.lines = (uint16_t *)(void *)(b.sums + kept_lines(p) * PANEL);
    b.panel = b.lines + SIDE * PART;
    return b;
}

static int64_t part_size(const few_bf16 *p, int64_t part) {
    return ab_min64(p->part, p->padded - part * p->part);
}

/* ---- one tile of lines ----------------------------------------------------------------------- */

/* Points a at the part of 16 lines: in memory, or in a padded copy where they are not whole. */
static void take_lines(const bf16_job *job, const buffers *b, int64_t line, int64_t part,
                       ab_bf16_product *m) {
    const few_bf16 *p = job->p;
    const int64_t first = part * p->part, n = ab_min64(m->inner, job->line_step - first),
                  count = ab_min64(SIDE, job->line_count - line);
    const uint16_t *from = job->lines + line * job->line_step + first;
    m->a = from;
    m->a_step = job->line_step;
    if (n == m->inner && count >= m->rows) return;
    memset(b->lines, 0, (size_t)(SIDE * PART) * sizeof *b->lines);
    for (int64_t i = 0; i < count; i++)
        memcpy(b->lines + i * PART, from + i * job->line_step, (size_t)n * sizeof *from);
    m->a = b->lines;
    m->a_step = PART;
}

/* Sums of 16 lines against one part of a panel of `columns` columns. */
static void add_part(const bf16_job *job, const buffers *b, int64_t line, int64_t part, const uint16_t *panel,
                     int64_t columns, float *sums) {
    ab_bf16_product m = {.b = panel,
                         .c = sums,
                         .c_step = PANEL,
                         .b_row = 2 * SIDE,
                         .rows = ab_div_up(ab_min64(SIDE, job->p->lines - line), job->p->unit->rows) *
                                 job->p->unit->rows,
                         .runs = 1,
                         .inner = part_size(job->p, part),
                         .tiles = (int)ab_div_up(columns, SIDE),
                         .continues = part > 0};
    m.b_step = m.inner * SIDE;
    take_lines(job, b, line, part, &m);
    job->p->unit->multiply(&m);
}

/* ---- forward: lines are outputs, columns the rows of the input --------------------------------- */

static uint16_t *shared_panel(const bf16_job *job, int64_t panel, int64_t part) {
    const few_bf16 *p = job->p;
    return (uint16_t *)job->args->scratch + panel * p->padded * PANEL + part * p->part * PANEL;
}

/* Pairs of the inner dimension are 32-bit values of a row: they are transposed as such. */
static void pack_rows(void *argument, int64_t index, int thread) {
    const bf16_job *job = argument;
    const few_bf16 *p = job->p;
    const int64_t panel = index / p->parts, part = index % p->parts, size = part_size(p, part),
                  first = part * p->part, pairs = ab_min64(size, p->inner - first) / 2;
    uint16_t *to = shared_panel(job, panel, part);
    (void)thread;
    memset(to, 0, (size_t)(size * PANEL) * sizeof *to);
    for (int64_t row = panel * PANEL; row < ab_min64((panel + 1) * PANEL, p->columns); row += SIDE) {
        const void *from = job->other + row * p->inner + first;
        ab_vec_panel_get()->transpose((float *)(void *)(to + (row - panel * PANEL) * size), SIDE, from,
                                      p->inner / 2, ab_min64(SIDE, p->columns - row), pairs);
    }
}

static void run_outputs(void *argument, int64_t tile, int thread) {
    const bf16_job *job = argument;
    const few_bf16 *p = job->p;
    const buffers b = buffers_of(job);
    const int64_t line = tile * SIDE;
    ab_turned_panel turned = {.args = job->args,
                              .dst = job->dst,
                              .outputs = p->lines,
                              .first = line,
                              .count = ab_min64(SIDE, p->lines - line),
                              .sums = b.sums,
                              .buffer = (float *)(void *)b.panel};
    (void)thread;
    p->unit->begin();
    for (int64_t panel = 0; panel < p->panels; panel++) {
        turned.row = panel * PANEL;
        turned.rows = ab_min64(PANEL, p->columns - turned.row);
        for (int64_t part = 0; part < p->parts; part++)
            add_part(job, &b, line, part, shared_panel(job, panel, part), turned.rows, b.sums);
        ab_turned_panel_store(&turned);
    }
    p->unit->end();
}

/* ---- backward: columns are inputs -------------------------------------------------------------- */

static void pack_columns(const bf16_job *job, int64_t first, int64_t columns, int64_t part, uint16_t *panel) {
    const few_bf16 *p = job->p;
    const int64_t at = part * p->part, size = part_size(p, part), rows = ab_min64(size, p->inner - at);
    for (int64_t c = 0; c < columns; c += SIDE)
        ab_bf16_pack_pairs(panel + c * size, job->other + at * p->columns + first + c, p->columns, rows,
                           ab_min64(SIDE, columns - c), size);
}

static void store_lines(const bf16_job *job, int64_t line, int64_t first, int64_t columns,
                        const float *sums) {
    const few_bf16 *p = job->p;
    const int64_t at = line * p->columns + first;
    const ab_panel_part part =
        ab_panel_part_of(&job->dst, at, p->columns, ab_min64(SIDE, p->lines - line), columns);
    ab_panel_store(job->args, &job->dst, at, &part, sums, PANEL);
}

static void run_columns(void *argument, int64_t index, int thread) {
    const bf16_job *job = argument;
    const few_bf16 *p = job->p;
    const buffers b = buffers_of(job);
    const int64_t first = index * PANEL, columns = ab_min64(PANEL, p->columns - first);
    const bool kept = kept_lines(p) > SIDE;
    (void)thread;
    p->unit->begin();
    for (int64_t part = 0; part < p->parts; part++) {
        pack_columns(job, first, columns, part, b.panel);
        for (int64_t line = 0; line < p->lines; line += SIDE) {
            float *sums = b.sums + (kept ? line * PANEL : 0);
            add_part(job, &b, line, part, b.panel, columns, sums);
            if (part == p->parts - 1) store_lines(job, line, first, columns, sums);
        }
    }
    p->unit->end();
}

/* dout as lines of the weight gradient: transposed, and padded to whole tiles. Widening is exact. */
static const uint16_t *turn_dout(const few_bf16 *p, const void *dout, void *scratch) {
    uint16_t *lines = scratch;
    float *turned = (float *)(void *)(lines + p->line_values);
    const ab_values values = {dout, &ab_format_bf16};
    const ab_panel_part all = ab_panel_part_of(&values, 0, p->lines, p->inner, p->lines);
    memset(turned, 0, (size_t)p->line_values * sizeof *turned);
    ab_vec_panel_get()->turn(turned, p->padded, &all);
    ab_narrow(lines, &ab_format_bf16, turned, p->line_values);
    return lines;
}

/* ---- the pass ---------------------------------------------------------------------------------- */

static ab_status run(ab_pass *base, const ab_pass_args *args) {
    const few_bf16 *p = (const few_bf16 *)base;
    const ab_pass_stored *stored = args->stored;
    if (stored && !stored->dst) return AB_OK;
    bf16_job job = {.p = p, .args = args, .line_step = p->inner, .line_count = p->lines};
    const void *src = stored ? stored->src->data : args->src,
               *dout = stored && stored->dout ? stored->dout->data : args->dout;
    job.dst = ab_values_of(stored ? stored->dst : NULL, args->dst, &ab_format_fp32);
    if (p->kind == AB_PASS_FORWARD) {
        job.lines = args->weights;
        job.other = src;
        ab_for_prepared(p->threads, p->panels * p->parts, pack_rows, &job);
        ab_for_prepared(p->threads, ab_div_up(p->lines, SIDE), run_outputs, &job);
        return AB_OK;
    }
    const bool weights = p->kind == AB_PASS_BACKWARD_WEIGHTS;
    job.lines = weights ? turn_dout(p, dout, args->scratch) : src;
    job.other = weights ? src : args->weights;
    if (weights) job.line_step = p->padded;
    if (weights) job.line_count = padded_lines(p);
    ab_for_prepared(p->threads, ab_div_up(p->columns, PANEL), run_columns, &job);
    return AB_OK;
}

static void destroy(ab_pass *pass) { free(pass); }

static void size_buffers(few_bf16 *p) {
    p->padded = ab_div_up(p->inner, p->unit->inner) * p->unit->inner;
    p->parts = ab_div_up(p->padded, PART);
    p->part = ab_div_up(ab_div_up(p->padded, p->parts), p->unit->inner) * p->unit->inner;
    if (p->kind == AB_PASS_FORWARD) {
        p->panels = ab_div_up(p->columns, PANEL);
        p->shared_bytes = ab_halves_bytes(p->panels * PANEL * p->padded);
    }
    if (p->kind == AB_PASS_BACKWARD_WEIGHTS) {
        p->line_values = padded_lines(p) * p->padded;
        p->shared_bytes = ab_halves_bytes(p->line_values) + ab_floats_bytes(p->line_values);
    }
    p->thread_bytes = ab_floats_bytes(kept_lines(p) * PANEL) + ab_halves_bytes(SIDE * PART + PANEL * PART);
    p->base.scratch_bytes = p->shared_bytes + (size_t)p->threads * p->thread_bytes;
}

static void set_shape(few_bf16 *p, const ab_conv *conv) {
    const int64_t inputs = conv->window.channels;
    const bool forward = p->kind == AB_PASS_FORWARD, weights = p->kind == AB_PASS_BACKWARD_WEIGHTS;
    p->lines = forward || weights ? conv->out_channels : conv->batch;
    p->columns = forward ? conv->batch : inputs;
    p->inner = forward ? inputs : weights ? conv->batch : conv->out_channels;
}

static bool applies(const ab_pass_spec *spec) {
    const ab_conv *conv = &spec->conv;
    const bool pairs = spec->kind != AB_PASS_FORWARD || conv->window.channels % 2 == 0;
    return spec->operands == &ab_format_bf16 && !spec->accumulate && conv->batch <= AB_FEW_ROWS && pairs;
}

ab_status ab_few_rows_bf16_pass(const ab_pass_spec *spec, ab_pass **pass) {
    const ab_bf16_unit *unit = ab_bf16_unit_get(spec->native);
    *pass = NULL;
    if (!unit || !applies(spec)) return AB_OK;
    few_bf16 *p = calloc(1, sizeof *p);
    if (!p) return ab_fail(AB_NO_MEMORY, "cannot allocate a product of few rows");
    p->threads = ab_parallel_threads();
    p->unit = unit;
    p->kind = spec->kind;
    set_shape(p, &spec->conv);
    p->base = (ab_pass){.keeps_nonfinite = true,
                        .takes_stored = spec->stored,
                        .rounds_weights = spec->stored,
                        .run = run,
                        .destroy = destroy};
    size_buffers(p);
    ab_text_show(p->base.text, sizeof p->base.text, "panel:%s", unit->name);
    *pass = &p->base;
    return AB_OK;
}
