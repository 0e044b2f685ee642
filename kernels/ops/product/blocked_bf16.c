/* Products of many rows of bf16 values on a unit for pairs (bf16_unit.h); see blocked.h. A part of a panel is
 * [tile of 16 columns][inner / 2][16][2]. */
#include "kernels/ops/product/blocked.h"

#include "kernels/core/text.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/product/bf16_unit.h"

#include <string.h>

/* PART: a panel of so many values takes 32 KiB. */
enum { SIDE = AB_BF16_SIDE, PART = 256, SECTION = 1024 };

static int64_t whole(int64_t n, int64_t step) { return ab_div_up(n, step) * step; }

static const uint16_t *at_value(const ab_values *values, int64_t i) {
    return (const uint16_t *)values->data + i;
}

/* Pairs of the inner dimension are 32-bit values of a stored column: they are transposed as such. */
static void pack_turned(const ab_blocked_operands *from, uint16_t *to, ab_range columns, ab_range inner) {
    const int64_t size = whole(inner.count, from->unit->inner), step = from->columns_step;
    if (size != inner.count || columns.count % SIDE != 0)
        memset(to, 0, (size_t)(size * AB_PANEL) * sizeof *to);
    for (int64_t c = 0; c < columns.count; c += SIDE) {
        const void *source = at_value(&from->columns, (columns.first + c) * step + inner.first);
        ab_vec_panel_get()->transpose((float *)(void *)(to + c * size), SIDE, source, step / 2,
                                      ab_min64(SIDE, columns.count - c), inner.count / 2);
    }
}

static void pack(const ab_blocked_operands *from, void *to, ab_range columns, ab_range inner, float *buffer) {
    const int64_t size = whole(inner.count, from->unit->inner), step = from->columns_step;
    uint16_t *panel = to;
    (void)buffer;
    if (from->columns_turned) {
        pack_turned(from, panel, columns, inner);
        return;
    }
    for (int64_t c = 0; c < columns.count; c += SIDE)
        ab_bf16_pack_pairs(panel + c * size, at_value(&from->columns, inner.first * step + columns.first + c),
                           step, inner.count, ab_min64(SIDE, columns.count - c), size);
}

/* Lines stored as [inner][line], in tiles. */
static void turn_lines(const ab_blocked_operands *from, ab_range lines, ab_range inner, uint16_t *copy,
                       int64_t step) {
    for (int64_t k = 0; k < whole(inner.count, from->unit->inner); k += SIDE)
        for (int64_t i = 0; i < lines.count; i += SIDE) {
            const int64_t rows = ab_max64(0, ab_min64(SIDE, inner.count - k));
            ab_bf16_turn(copy + i * step + k, step,
                         at_value(&from->lines, (inner.first + k) * from->lines_step + lines.first + i),
                         from->lines_step, rows, ab_min64(SIDE, lines.count - i));
        }
}

/* Lines in memory, padded to what the unit computes. */
static void copy_lines(const ab_blocked_operands *from, ab_range lines, ab_range inner, uint16_t *copy,
                       int64_t step) {
    const uint16_t *at = at_value(&from->lines, lines.first * from->lines_step + inner.first);
    const size_t bytes = (size_t)inner.count * sizeof *copy,
                 padding = (size_t)whole(inner.count, from->unit->inner) * sizeof *copy - bytes;
    for (int64_t i = 0; i < whole(lines.count, from->unit->lines); i++) {
        uint16_t *to = copy + i * step;
        if (i < lines.count)
            memcpy(to, at + i * from->lines_step, bytes);
        else
            memset(to, 0, bytes);
        memset(to + inner.count, 0, padding);
    }
}

static ab_blocked_lines take(const ab_blocked_operands *from, ab_range lines, ab_range inner, void *copy,
                             int64_t step, const ab_panel_part *turned) {
    (void)turned;
    if (from->lines_turned) {
        turn_lines(from, lines, inner, copy, step);
        return (ab_blocked_lines){copy, step};
    }
    const uint16_t *at = at_value(&from->lines, lines.first * from->lines_step + inner.first);
    if (lines.count % from->unit->lines == 0 && inner.count % from->unit->inner == 0)
        return (ab_blocked_lines){at, from->lines_step};
    copy_lines(from, lines, inner, copy, step);
    return (ab_blocked_lines){copy, step};
}

static void multiply(const ab_blocked_product *m) {
    const ab_bf16_unit *bf16 = m->unit->bf16;
    ab_bf16_product product = {.a = m->lines.data,
                               .b = m->panel,
                               .c = m->sums,
                               .a_step = m->lines.step,
                               .c_step = m->sums_step,
                               .b_step = m->inner * SIDE,
                               .b_row = 2 * SIDE,
                               .rows = whole(m->count, bf16->rows),
                               .inner = m->inner,
                               .runs = 1,
                               .tiles = (int)(m->columns / SIDE),
                               .start = m->start,
                               .continues = m->continues};
    if (m->stored) {
        product.stored = m->stored->data;
        product.stored_step = (int64_t)ab_stored_bytes(m->stored->stored, m->stored->step);
        product.stored_bytes = (int64_t)ab_stored_bytes(m->stored->stored, m->columns);
    }
    bf16->begin();
    bf16->multiply(&product);
    bf16->end();
}

ab_status ab_blocked_bf16_pass(const ab_pass_spec *spec, ab_pass **pass) {
    const bool pairs = spec->kind != AB_PASS_FORWARD || spec->conv.window.channels % 2 == 0;
    const ab_bf16_unit *bf16 = ab_bf16_unit_get(spec->native);
    char name[AB_PASS_TEXT];
    *pass = NULL;
    if (spec->operands != &ab_format_bf16 || spec->accumulate || !pairs || !bf16) return AB_OK;
    const ab_blocked_unit unit = {.format = &ab_format_bf16,
                                  .bf16 = bf16,
                                  .lines = bf16->rows,
                                  .inner = bf16->inner,
                                  .pads_lines = true,
                                  .part = PART,
                                  .section = SECTION,
                                  .pack = pack,
                                  .take = take,
                                  .multiply = multiply};
    ab_text_show(name, sizeof name, "blocked:%s", bf16->name);
    return ab_blocked_make(spec, &unit, name, pass);
}
