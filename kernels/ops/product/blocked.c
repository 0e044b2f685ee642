/* The order of work of products in blocks; see blocked.h. The inner dimension is cut into sections. Of each,
 * one operand is packed as panels of AB_PANEL columns, shared by all threads. A thread then computes blocks
 * of lines: panel after panel, in each of them part after part of the section, so that a part of a panel and
 * the sums stay in the L1 cache. Every sum is one chain in the order of the inner dimension, whoever computes
 * it. */
#include "kernels/ops/product/blocked.h"

#include "kernels/core/text.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/rows.h"

#include <stdlib.h>
#include <string.h>

/* GAP: values between packed lines, so that lines do not compete for the same places of a cache. */
enum { GAP = 32 };

typedef struct blocked {
    ab_pass base;
    ab_blocked_unit unit;
    ab_pass_kind kind;
    int threads;
    int64_t lines, columns, inner; /* of the product */
    int64_t block, panels;         /* lines of a block; panels of columns */
    int64_t section, part;         /* values of the inner dimension of each but the last */
    ab_rows rows;                  /* of dout, as ab_rows_sum adds them to bias gradients */
    size_t panel_bytes, panels_bytes, lines_bytes, buffer_bytes, thread_bytes;
} blocked;

typedef struct blocked_job {
    const blocked *p;
    const ab_pass_args *args;
    ab_blocked_operands operands;
    ab_values dst;
    ab_range section;
} blocked_job;

/* A thread's buffers. */
typedef struct buffers {
    float *sums;   /* [line of a block][AB_PANEL] */
    float *start;  /* AB_PANEL */
    float *values; /* fp32 before packing */
    void *lines;
} buffers;

static buffers buffers_of(const blocked_job *job) {
    const blocked *p = job->p;
    char *at = (char *)job->args->scratch + p->panels_bytes + (size_t)ab_parallel_thread() * p->thread_bytes;
    buffers b = {.sums = (float *)(void *)at};
    b.start = b.sums + AB_BLOCKED_LINES * AB_PANEL;
    b.values = b.start + AB_PANEL;
    b.lines = (char *)(void *)b.values + p->buffer_bytes;
    return b;
}

static ab_range piece_of(int64_t all, int64_t size, int64_t index) {
    return (ab_range){index * size, ab_min64(size, all - index * size)};
}

static int64_t parts_of(const blocked_job *job) { return ab_div_up(job->section.count, job->p->part); }

static void *packed_part(const blocked_job *job, int64_t panel, int64_t part) {
    const blocked *p = job->p;
    return (char *)job->args->scratch + (size_t)panel * p->panel_bytes +
           ab_format_bytes(p->unit.format, part * p->part * AB_PANEL);
}

static void pack_part(void *argument, int64_t index, int thread) {
    const blocked_job *job = argument;
    const blocked *p = job->p;
    const int64_t parts = parts_of(job), panel = index / parts, part = index % parts;
    ab_range inner = piece_of(job->section.count, p->part, part);
    (void)thread;
    inner.first += job->section.first;
    p->unit.pack(&job->operands, packed_part(job, panel, part), piece_of(p->columns, AB_PANEL, panel), inner,
                 buffers_of(job).values);
}

/* ---- a block of lines ------------------------------------------------------------------------ */

/* Lines and columns of a result, and where its sums are. */
typedef struct piece {
    ab_range lines, columns;
    bool first, last; /* section */
} piece;

static ab_panel_part part_of(const blocked_job *job, const ab_values *values, const piece *x) {
    const int64_t step = job->p->columns;
    return ab_panel_part_of(values, x->lines.first * step + x->columns.first, step, x->lines.count,
                            x->columns.count);
}

/* Where sums are kept between sections, which is the result if that is fp32. */
static ab_values plain_result(const blocked_job *job) { return (ab_values){job->args->dst, &ab_format_fp32}; }

/* Whether sums are written to the plain result: they do not pass the end of its lines or of its rows, and it
 * is wanted. */
static bool writes_plain(const blocked_job *job, const piece *x) {
    const bool kept = job->dst.format == &ab_format_fp32 || !(x->first && x->last);
    const bool lines = !job->p->unit.pads_lines || x->lines.count % job->p->unit.lines == 0;
    return kept && lines && x->columns.count % AB_PANEL_STEP == 0;
}

/* Whether the unit rounds the results as it computes the last part: there are none past the end of lines. */
static bool rounds(const blocked_job *job, const piece *x) {
    return x->last && job->p->unit.rounds && ab_is_half(job->dst.format) &&
           x->columns.count % AB_PANEL_STEP == 0;
}

/* The bias of a panel, from which sums start. */
static const float *bias_of(const blocked_job *job, const piece *x, float *start) {
    const float *bias = job->args->bias;
    if (!bias || !x->first) return NULL;
    memset(start, 0, AB_PANEL * sizeof *start);
    memcpy(start, bias + x->columns.first, (size_t)x->columns.count * sizeof *start);
    return start;
}

static void store(const blocked_job *job, const piece *x, const float *sums, int64_t step) {
    const ab_values to = x->last ? job->dst : plain_result(job);
    const ab_panel_part part = part_of(job, &to, x);
    ab_panel_store(job->args, &to, x->lines.first * job->p->columns + x->columns.first, &part, sums, step);
}

static void run_panel(const blocked_job *job, const buffers *b, const ab_blocked_lines *lines, int64_t panel,
                      const piece *x) {
    const blocked *p = job->p;
    const ab_values plain = plain_result(job);
    const ab_panel_part result = part_of(job, &plain, x);
    const ab_panel_part rounded = part_of(job, &job->dst, x);
    const bool direct = writes_plain(job, x), rounds_last = rounds(job, x);
    ab_blocked_product m = {.unit = &p->unit,
                            .lines = *lines,
                            .sums = direct ? result.data : b->sums,
                            .sums_step = direct ? p->columns : AB_PANEL,
                            .count = x->lines.count,
                            .columns = ab_div_up(x->columns.count, AB_PANEL_STEP) * AB_PANEL_STEP,
                            .start = bias_of(job, x, b->start),
                            .continues = !x->first};
    if (!direct && !x->first) ab_vec_part_get()->read(b->sums, AB_PANEL, &result);
    for (int64_t part = 0; part < parts_of(job); part++) {
        const int64_t count = piece_of(job->section.count, p->part, part).count;
        const bool ends = part + 1 == parts_of(job);
        m.inner = ab_div_up(count, p->unit.inner) * p->unit.inner;
        m.panel = packed_part(job, panel, part);
        m.lines.data = (const char *)lines->data + ab_format_bytes(p->unit.format, part * p->part);
        m.stored = x->last && !direct && ends ? &rounded : NULL;
        m.rounded = rounds_last && ends ? &rounded : NULL;
        p->unit.multiply(&m);
        m.continues = true;
    }
    if (m.rounded) return;
    if (!direct || (x->last && job->dst.format != &ab_format_fp32)) store(job, x, m.sums, m.sums_step);
}

/* ---- bias gradients -------------------------------------------------------------------------- */

/* Sums of the lines of a block over the rows of dout that were added so far: of whole chunks, of the last. */
typedef struct bias_sums {
    double *all, *chunk;
} bias_sums;

static bias_sums bias_sums_of(const blocked_job *job, int64_t line) {
    const blocked *p = job->p;
    char *after = (char *)job->args->scratch + p->panels_bytes + (size_t)p->threads * p->thread_bytes;
    double *all = (double *)(void *)after;
    return (bias_sums){all + line, all + p->lines + line};
}

/* Of lines that are stored as [inner][line], the values `inner`. */
static ab_panel_part stored_lines(const blocked_job *job, ab_range lines, ab_range inner) {
    const ab_blocked_operands *from = &job->operands;
    return ab_panel_part_of(&from->lines, inner.first * from->lines_step + lines.first, from->lines_step,
                            inner.count, lines.count);
}

/* Adds rows `inner` of dout, whole groups of rows but for the last, to the bias gradients of some lines, as
 * ab_rows_sum adds them. */
static void add_to_bias(const blocked_job *job, ab_range lines, ab_range inner, const ab_panel_part *dout) {
    const ab_rows *rows = &job->p->rows;
    const bias_sums sums = bias_sums_of(job, lines.first);
    float group[AB_BLOCKED_LINES];
    ab_panel_part part = *dout;
    for (int64_t g = inner.first / rows->group_rows; g * rows->group_rows < inner.first + inner.count; g++) {
        const int64_t chunk = g / rows->chunk_groups;
        part.rows = ab_rows_in_group(rows, g);
        ab_vec_part_get()->column_sums(group, &part);
        part.data = (char *)part.data + ab_stored_bytes(part.stored, part.rows * part.step);
        if (g % rows->chunk_groups == 0) memset(sums.chunk, 0, (size_t)lines.count * sizeof *sums.chunk);
        for (int64_t i = 0; i < lines.count; i++) sums.chunk[i] += (double)group[i];
        if (g + 1 < ab_rows_chunk_end(rows, chunk)) continue;
        for (int64_t i = 0; i < lines.count; i++)
            sums.all[i] = chunk ? sums.all[i] + sums.chunk[i] : sums.chunk[i];
    }
    if (inner.first + inner.count < job->p->inner) return;
    for (int64_t i = 0; i < lines.count; i++) job->args->dbias[lines.first + i] = (float)sums.all[i];
}

static void sum_bias_block(void *argument, int64_t index, int thread) {
    const blocked_job *job = argument;
    const ab_range lines = piece_of(job->p->lines, job->p->block, index), inner = {0, job->p->inner};
    const ab_panel_part dout = stored_lines(job, lines, inner);
    (void)thread;
    add_to_bias(job, lines, inner, &dout);
}

/* ---- the blocks ------------------------------------------------------------------------------ */

/* The lines of a block in a section, piece by piece if they are turned. */
static ab_blocked_lines take_lines(const blocked_job *job, ab_range lines, const buffers *b) {
    const blocked *p = job->p;
    const int64_t step = p->section + GAP;
    const bool sums = job->args->dbias && p->base.sums_bias;
    if (!job->operands.lines_turned)
        return p->unit.take(&job->operands, lines, job->section, b->lines, step, NULL);
    for (int64_t k = 0; k < job->section.count; k += AB_BLOCKED_TURN) {
        const ab_range inner = {job->section.first + k, ab_min64(AB_BLOCKED_TURN, job->section.count - k)};
        const ab_panel_part stored = stored_lines(job, lines, inner);
        const ab_panel_part wide = {b->values, AB_STORED_FP32, AB_BLOCKED_LINES, inner.count, lines.count};
        if (sums) {
            ab_vec_part_get()->read(b->values, AB_BLOCKED_LINES, &stored);
            add_to_bias(job, lines, inner, &wide);
        }
        p->unit.take(&job->operands, lines, inner, (char *)b->lines + ab_format_bytes(p->unit.format, k),
                     step, sums ? &wide : &stored);
    }
    return (ab_blocked_lines){b->lines, step};
}

static void run_block(void *argument, int64_t index, int thread) {
    const blocked_job *job = argument;
    const blocked *p = job->p;
    const buffers b = buffers_of(job);
    piece x = {.lines = piece_of(p->lines, p->block, index),
               .first = job->section.first == 0,
               .last = job->section.first + job->section.count == p->inner};
    const ab_blocked_lines lines = take_lines(job, x.lines, &b);
    (void)thread;
    for (int64_t panel = 0; panel < p->panels; panel++) {
        x.columns = piece_of(p->columns, AB_PANEL, panel);
        run_panel(job, &b, &lines, panel, &x);
    }
}

/* ---- the pass -------------------------------------------------------------------------------- */

static ab_values stored_or(const ab_tensor *tensor, const void *plain, const blocked *p) {
    return ab_values_of(tensor, plain, p->unit.format);
}

/* forward            out = in W^T
 * backward data      din = dout W
 * backward weights   dW  = dout^T in */
static ab_blocked_operands operands_of(const blocked *p, const ab_pass_args *args) {
    static const ab_pass_stored none = {0};
    const ab_pass_stored *s = args->stored ? args->stored : &none;
    const bool weights = p->kind == AB_PASS_BACKWARD_WEIGHTS;
    const ab_values src = stored_or(s->src, args->src, p);
    ab_blocked_operands o = {
        .unit = &p->unit, .lines = src, .lines_step = p->inner, .columns_step = p->columns};
    if (weights) {
        o.lines = stored_or(s->dout, args->dout, p);
        o.columns = src;
        o.lines_step = p->lines;
        o.lines_turned = true;
        return o;
    }
    o.columns = stored_or(s->weights, args->weights, p);
    o.columns_turned = p->kind == AB_PASS_FORWARD;
    if (o.columns_turned) o.columns_step = p->inner;
    return o;
}

static ab_status run(ab_pass *base, const ab_pass_args *args) {
    const blocked *p = (const blocked *)base;
    const ab_pass_stored *stored = args->stored;
    const int64_t blocks = ab_div_up(p->lines, p->block);
    blocked_job job = {.p = p, .args = args, .operands = operands_of(p, args)};
    if (stored && !stored->dst) {
        if (args->dbias && base->sums_bias) ab_for_prepared(p->threads, blocks, sum_bias_block, &job);
        return AB_OK;
    }
    job.dst = ab_values_of(stored ? stored->dst : NULL, args->dst, &ab_format_fp32);
    for (int64_t i = 0; i * p->section < p->inner; i++) {
        job.section = piece_of(p->inner, p->section, i);
        ab_for_prepared(p->threads, p->panels * parts_of(&job), pack_part, &job);
        ab_for_prepared(p->threads, blocks, run_block, &job);
    }
    return AB_OK;
}

static void destroy(ab_pass *pass) { free(pass); }

/* ---- set-up ---------------------------------------------------------------------------------- */

static void set_shape(blocked *p, const ab_conv *conv) {
    const int64_t inputs = conv->window.channels, outputs = conv->out_channels, rows = conv->batch;
    const bool forward = p->kind == AB_PASS_FORWARD, weights = p->kind == AB_PASS_BACKWARD_WEIGHTS;
    p->lines = weights ? outputs : rows;
    p->columns = forward ? outputs : inputs;
    p->inner = weights ? rows : forward ? inputs : outputs;
}

/* `all` in pieces of at most `most`, all alike but the last, which are multiples of `step`. */
static int64_t even_piece(int64_t all, int64_t most, int64_t step) {
    const int64_t pieces = ab_div_up(all, most);
    return ab_div_up(ab_div_up(all, pieces), step) * step;
}

/* An even number of blocks, so that two threads have as many. */
static int64_t block_lines(const blocked *p) {
    const int64_t blocks = 2 * ab_div_up(p->lines, 2 * AB_BLOCKED_LINES);
    return ab_div_up(ab_div_up(p->lines, blocks), p->unit.lines) * p->unit.lines;
}

/* A pass of weights sums bias gradients of halves, which would have to be widened for it again, and cuts
 * sections between groups of rows, if these fit into the pieces in which lines are turned. (fp32 rows take
 * longer here than in a loop of their own.) */
static int64_t section_step(blocked *p, bool halves) {
    const ab_shape dout = {.ndim = 2, .dim = {p->inner, p->lines}};
    p->rows = ab_rows_of(&dout);
    const int64_t group = p->rows.group_rows, inner = p->unit.inner;
    p->base.sums_bias = halves && p->kind == AB_PASS_BACKWARD_WEIGHTS && AB_BLOCKED_TURN % group == 0;
    return p->base.sums_bias ? ab_max64(group, inner) : inner; /* powers of two */
}

static void size_buffers(blocked *p, bool halves) {
    const ab_blocked_unit *unit = &p->unit;
    p->block = block_lines(p);
    p->panels = ab_div_up(p->columns, AB_PANEL);
    p->section = even_piece(p->inner, unit->section, section_step(p, halves));
    p->part = even_piece(p->section, unit->part, unit->inner);
    p->panel_bytes =
        ab_aligned(ab_format_bytes(unit->format, ab_div_up(p->section, p->part) * p->part * AB_PANEL));
    p->panels_bytes = (size_t)p->panels * p->panel_bytes;
    p->lines_bytes = ab_aligned(ab_format_bytes(unit->format, AB_BLOCKED_LINES * (p->section + GAP)));
    p->buffer_bytes = ab_floats_bytes(ab_max64(AB_PANEL * unit->part, AB_BLOCKED_TURN * AB_BLOCKED_LINES));
    p->thread_bytes = ab_floats_bytes((AB_BLOCKED_LINES + 1) * AB_PANEL) + p->buffer_bytes + p->lines_bytes;
    p->base.scratch_bytes = p->panels_bytes + (size_t)p->threads * p->thread_bytes;
    if (p->base.sums_bias) p->base.scratch_bytes += (size_t)(2 * p->lines) * sizeof(double);
}

ab_status ab_blocked_make(const ab_pass_spec *spec, const ab_blocked_unit *unit, const char *name,
                          ab_pass **pass) {
    blocked *p = calloc(1, sizeof *p);
    if (!p) return ab_fail(AB_NO_MEMORY, "cannot allocate a product of many rows");
    p->unit = *unit;
    p->kind = spec->kind;
    p->threads = ab_parallel_threads();
    set_shape(p, &spec->conv);
    p->base = (ab_pass){.keeps_nonfinite = true,
                        .takes_stored = spec->stored,
                        .takes_stored_weights = spec->stored,
                        .rounds_weights = spec->stored,
                        .run = run,
                        .destroy = destroy};
    size_buffers(p, spec->stored || spec->operands != &ab_format_fp32);
    ab_text_show(p->base.text, sizeof p->base.text, "%s", name);
    *pass = &p->base;
    return AB_OK;
}
