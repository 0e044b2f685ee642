/* Products of many rows in fp32 vectors; see blocked.h. Half operands are widened as they are packed. */
#include "kernels/ops/product/blocked.h"

#include "kernels/core/text.h"
#include "kernels/ops/blocks.h"

/* A panel of a section lies in the L2 cache, from which it is read fast enough; to go on from sums in memory
 * part by part costs more. */
enum { SECTION = 512 };

static void pack(const ab_blocked_operands *from, void *to, ab_range columns, ab_range inner, float *buffer) {
    const int64_t step = from->columns_step;
    if (!from->columns_turned) {
        const ab_panel_part part = ab_panel_part_of(&from->columns, inner.first * step + columns.first, step,
                                                    inner.count, columns.count);
        ab_vec_part_get()->pack(to, &part);
        return;
    }
    ab_panel_part part = ab_panel_part_of(&from->columns, columns.first * step + inner.first, step,
                                          columns.count, inner.count);
    float *panel = to;
    if (part.stored != AB_STORED_FP32) {
        ab_vec_part_get()->read(buffer, SECTION, &part);
        part.data = buffer;
        part.step = SECTION;
    }
    ab_vec_panel_get()->transpose(panel, AB_PANEL, part.data, part.step, columns.count, inner.count);
    const int64_t end = ab_div_up(columns.count, AB_PANEL_STEP) * AB_PANEL_STEP;
    for (int64_t k = 0; columns.count < end && k < inner.count; k++)
        for (int64_t c = columns.count; c < end; c++) panel[k * AB_PANEL + c] = 0.0f;
}

static ab_blocked_lines take(const ab_blocked_operands *from, ab_range lines, ab_range inner, void *copy,
                             int64_t step, const ab_panel_part *turned) {
    if (from->lines_turned) {
        ab_vec_panel_get()->turn(copy, step, turned);
        return (ab_blocked_lines){copy, step};
    }
    const ab_panel_part part = ab_panel_part_of(&from->lines, lines.first * from->lines_step + inner.first,
                                                from->lines_step, lines.count, inner.count);
    if (part.stored == AB_STORED_FP32) return (ab_blocked_lines){part.data, part.step};
    ab_vec_part_get()->read(copy, step, &part);
    return (ab_blocked_lines){copy, step};
}

static void multiply(const ab_blocked_product *m) {
    ab_panel_tile tile = {.panel = m->panel,
                          .a_step = m->lines.step,
                          .c_step = m->sums_step,
                          .columns = m->columns,
                          .inner = m->inner,
                          .start = m->start,
                          .continues = m->continues};
    if (m->rounded) {
        tile.rounded_step = m->rounded->step;
        tile.rounded_as = m->rounded->stored;
    }
    for (int64_t i = 0; i < m->count; i += AB_PANEL_ROWS) {
        tile.a = (const float *)m->lines.data + i * m->lines.step;
        tile.c = m->sums + i * m->sums_step;
        tile.rows = ab_min64(AB_PANEL_ROWS, m->count - i);
        if (m->rounded) tile.rounded = (uint16_t *)m->rounded->data + i * m->rounded->step;
        tile.next_rows = ab_max64(0, ab_min64(AB_PANEL_ROWS, m->count - i - AB_PANEL_ROWS));
        ab_vec_panel_get()->tile(&tile);
    }
}

ab_status ab_blocked_pass(const ab_pass_spec *spec, ab_pass **pass) {
    static const ab_blocked_unit unit = {.format = &ab_format_fp32,
                                         .lines = AB_PANEL_ROWS,
                                         .inner = 1,
                                         .rounds = true,
                                         .part = SECTION,
                                         .section = SECTION,
                                         .pack = pack,
                                         .take = take,
                                         .multiply = multiply};
    char name[AB_PASS_TEXT];
    *pass = NULL;
    if (spec->operands != &ab_format_fp32) return AB_OK;
    ab_text_show(name, sizeof name, "blocked:%s", ab_isa_name(ab_isa_get()));
    return ab_blocked_make(spec, &unit, name, pass);
}
