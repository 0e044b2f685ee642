/* The loops of vec_part.h. */
#include "kernels/ops/product/vec_part.h"

#include "kernels/format/vec_half.h"

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

static void widen_row(float *to, const void *from, ab_panel_kind kind, int64_t n) {
    if (kind == AB_PANEL_FP16)
        widen_fp16(to, from, n);
    else if (kind == AB_PANEL_BF16)
        widen_bf16_operands(to, from, n);
    else
        memcpy(to, from, (size_t)n * sizeof *to);
}

static void narrow_row(void *to, const float *from, ab_panel_kind kind, int64_t n) {
    if (kind == AB_PANEL_FP16)
        narrow_fp16(to, from, n);
    else if (kind == AB_PANEL_BF16)
        narrow_bf16(to, from, n);
    else
        memcpy(to, from, (size_t)n * sizeof *from);
}

static char *row_of(const ab_panel_part *part, int64_t r) {
    const size_t bytes = part->kind == AB_PANEL_FP32 ? sizeof(float) : sizeof(uint16_t);
    return (char *)part->data + (size_t)(r * part->step) * bytes;
}

/* Short rows that lie far apart are not fetched into the cache ahead by the hardware. */
static void fetch_row(const ab_panel_part *part, int64_t r) {
    enum { LINE = 64, AHEAD = 8 };
    const size_t bytes = part->kind == AB_PANEL_FP32 ? sizeof(float) : sizeof(uint16_t);
    if (r + AHEAD >= part->rows) return;
    for (size_t at = 0; at < (size_t)part->columns * bytes; at += LINE)
        __builtin_prefetch(row_of(part, r + AHEAD) + at, 0, 3);
}

static void read_part(float *dst, int64_t dst_step, const ab_panel_part *from) {
    for (int64_t r = 0; r < from->rows; r++) {
        fetch_row(from, r);
        widen_row(dst + r * dst_step, row_of(from, r), from->kind, from->columns);
    }
}

static void pack(float *panel, const ab_panel_part *from) {
    const int64_t n = from->columns, end = (n + AB_PANEL_STEP - 1) / AB_PANEL_STEP * AB_PANEL_STEP;
    read_part(panel, AB_PANEL, from);
    for (int64_t r = 0; n < end && r < from->rows; r++)
        for (int64_t c = n; c < end; c++) panel[r * AB_PANEL + c] = 0.0f;
}

static void store(const ab_panel_part *to, const float *src, int64_t src_step) {
    for (int64_t r = 0; r < to->rows; r++)
        narrow_row(row_of(to, r), src + r * src_step, to->kind, to->columns);
}

extern const ab_vec_part PASTE(ab_vec_part_, AB_ISA_SUFFIX);
const ab_vec_part PASTE(ab_vec_part_, AB_ISA_SUFFIX) = {.read = read_part, .pack = pack, .store = store};
