/* The loops of vec_part.h. */
#include "kernels/ops/product/vec_part.h"

#include "kernels/vec/isa.h"
#include "kernels/vec/vec_half.h"
#include "kernels/vec/vec_sums.h"

/* Short rows that lie far apart are not fetched into the cache ahead by the hardware. */
static AB_FORCE_INLINE void read_rows(float *dst, int64_t dst_step, const ab_panel_part *part,
                                      const ab_stored stored) {
    enum { LINE = 64, AHEAD = 8 };
    const int64_t rows = part->rows, columns = part->columns,
                  step = (int64_t)ab_stored_bytes(stored, part->step),
                  bytes = (int64_t)ab_stored_bytes(stored, columns);
    const char *from = part->data;
    for (int64_t r = 0; r < rows; r++, from += step, dst += dst_step) {
        for (int64_t at = 0; r + AHEAD < rows && at < bytes; at += LINE)
            __builtin_prefetch(from + AHEAD * step + at, 0, 3);
        widen_stored(dst, from, stored, columns);
    }
}

static void read_part(float *dst, int64_t dst_step, const ab_panel_part *from) {
    if (from->stored == AB_STORED_FP16)
        read_rows(dst, dst_step, from, AB_STORED_FP16);
    else if (from->stored == AB_STORED_BF16)
        read_rows(dst, dst_step, from, AB_STORED_BF16);
    else
        read_rows(dst, dst_step, from, AB_STORED_FP32);
}

static void pack(float *panel, const ab_panel_part *from) {
    const int64_t n = from->columns, end = (n + AB_PANEL_STEP - 1) / AB_PANEL_STEP * AB_PANEL_STEP;
    read_part(panel, AB_PANEL, from);
    for (int64_t r = 0; n < end && r < from->rows; r++)
        for (int64_t c = n; c < end; c++) panel[r * AB_PANEL + c] = 0.0f;
}

static AB_FORCE_INLINE void store_rows(const ab_panel_part *part, const float *src, int64_t src_step,
                                       const ab_stored stored) {
    const int64_t rows = part->rows, columns = part->columns,
                  step = (int64_t)ab_stored_bytes(stored, part->step);
    char *to = part->data;
    for (int64_t r = 0; r < rows; r++, to += step, src += src_step) narrow_stored(to, src, stored, columns);
}

static void store(const ab_panel_part *to, const float *src, int64_t src_step) {
    if (to->stored == AB_STORED_FP16)
        store_rows(to, src, src_step, AB_STORED_FP16);
    else if (to->stored == AB_STORED_BF16)
        store_rows(to, src, src_step, AB_STORED_BF16);
    else
        store_rows(to, src, src_step, AB_STORED_FP32);
}

/* n values, of which there are LANES or less; `stored` is a constant where it is inlined. */
static AB_FORCE_INLINE wide widened(const char *at, const ab_stored stored, int n) {
    float value[LANES] = {0};
    if (stored == AB_STORED_FP32) return wide_load_first((const float *)(const void *)at, n);
    widen_stored(value, at, stored, n);
    return wide_load(value);
}

/* The sum of n columns from `at` on. */
static AB_FORCE_INLINE wide column_sum(const char *at, int64_t step, int64_t rows, const ab_stored stored,
                                       int n) {
    wide sum[ROW_SUMS] = {wide_zero(), wide_zero(), wide_zero(), wide_zero()};
    int64_t r = 0;
    for (; r + ROW_SUMS <= rows; r += ROW_SUMS)
#pragma GCC unroll 4
        for (int i = 0; i < ROW_SUMS; i++, at += step) sum[i] = wide_add(sum[i], widened(at, stored, n));
    for (; r < rows; r++, at += step) sum[0] = wide_add(sum[0], widened(at, stored, n));
    return total_sum(sum);
}

static AB_FORCE_INLINE void sum_columns(float *sum, const ab_panel_part *of, const ab_stored stored) {
    const int64_t bytes = (int64_t)ab_stored_bytes(stored, 1), step = of->step * bytes, rows = of->rows,
                  whole = of->columns - of->columns % LANES;
    const char *at = of->data;
    const int left = (int)(of->columns - whole);
    for (int64_t c = 0; c < whole; c += LANES)
        wide_store(sum + c, column_sum(at + c * bytes, step, rows, stored, LANES));
    if (left) wide_store_first(sum + whole, column_sum(at + whole * bytes, step, rows, stored, left), left);
}

static void column_sums(float *sum, const ab_panel_part *of) {
    if (of->stored == AB_STORED_FP16)
        sum_columns(sum, of, AB_STORED_FP16);
    else if (of->stored == AB_STORED_BF16)
        sum_columns(sum, of, AB_STORED_BF16);
    else
        sum_columns(sum, of, AB_STORED_FP32);
}

AB_ISA_TABLE(ab_vec_part) = {.read = read_part, .pack = pack, .store = store, .column_sums = column_sums};
