/* Text output: what was read, the range of the values, suitable scales and the tensors that determine
 * them. */
#include "kernels/core/shape.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/inspect/histogram.h"
#include "reports/inspect/inspection.h"
#include "reports/record/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_WIDTH = 36, SHAPE_WIDTH = 18, MOST_ROWS = 40, NUMBER = 32 };

/* 11,173,962 */
static const char *grouped(int64_t number, char text[NUMBER]) {
    char digits[NUMBER];
    int n = (int)strlen(ab_text_exact(digits, sizeof digits, "%" PRId64, number)), used = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0) text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

const char *ab_inspect_label(const ab_inspect_result *result, int row, char *label) {
    const ab_inspect_tensor *tensor = &result->row[row].tensor;
    const char *slash = strrchr(tensor->path, '/'), *file = slash ? slash + 1 : tensor->path;
    char joined[2 * AB_INSPECT_TEXT];
    if (result->files > 1 && strncmp(file, tensor->name, strlen(tensor->name)) != 0)
        ab_text_show(joined, sizeof joined, "%.*s:%.*s", AB_INSPECT_TEXT - 8, file, AB_INSPECT_TEXT,
                     tensor->name);
    else
        ab_text_show(joined, sizeof joined, "%s", tensor->name);
    ab_text_clean(label, AB_INSPECT_TEXT, joined);
    ab_text_elide(label, NAME_WIDTH);
    return label;
}

/* ---- what was read --------------------------------------------------------------------------- */

static void print_head(FILE *out, const ab_inspect_result *result) {
    const ab_census *census = &result->pooled.census;
    char number[NUMBER], share[AB_TEXT_NUMBER];
    double all = census->count > 0 ? (double)census->count : 1.0;
    ab_print(out, "%d tensor%s in %d file%s: %s values, %s %% zero", result->rows,
             result->rows == 1 ? "" : "s", result->stored_in, result->stored_in == 1 ? "" : "s",
             grouped(census->count, number), ab_text_percent(share, (double)census->zero / all));
    ab_print(out, ", %s nan", grouped(census->nan, number));
    ab_print(out, ", %s inf\n", grouped(census->pos_inf + census->neg_inf, number));
    if (result->pooled.load_flushed + result->pooled.load_overflowed > 0) {
        ab_print(out, "fp64 values that fp32 cannot hold: %s became zero",
                 grouped(result->pooled.load_flushed, number));
        ab_print(out, ", %s infinite\n", grouped(result->pooled.load_overflowed, number));
    }
    if (result->skips > 0) {
        char name[AB_INSPECT_TEXT];
        const ab_inspect_tensor *first = &result->skipped[0];
        ab_print(out, "not read, no floating-point numbers: %d tensor%s (%s is %s%s)\n", result->skips,
                 result->skips == 1 ? "" : "s", ab_text_clean(name, sizeof name, first->name), first->dtype,
                 result->skips == 1 ? "" : ", ...");
    }
}

static void print_values(FILE *out, const ab_inspect_result *result, bool color) {
    const ab_inspect_histogram histogram = {&result->pooled.census, &result->limits.scale[0], color};
    static const char *const ftz[] = {"", ", flushing before rounding",
                                      ", flushing after rounding"}; /* by ab_ftz */
    char scale[AB_TEXT_NUMBER];
    ab_print(out,
             "\nFinite non-zero values per factor of 2, all tensors together; limits of %s at scale %s%s\n\n",
             result->question->format[0]->name, ab_text_scale(scale, (double)result->question->scale),
             ftz[result->question->goal.ftz]);
    ab_inspect_print_histogram(out, &histogram);
}

/* ---- suitable scales ------------------------------------------------------------------------- */

/* "2^3 .. 2^17", "2^17 or less" if the search ended first, "none". */
static const char *range_text(const ab_scale_range *a, char text[NUMBER]) {
    if (a->vacuous || (a->k_lo == AB_INSPECT_MIN && a->k_hi == AB_INSPECT_MAX))
        return ab_text_exact(text, NUMBER, "any");
    if (!ab_scale_feasible(a)) return ab_text_exact(text, NUMBER, "none");
    if (a->k_lo == AB_INSPECT_MIN)
        ab_text_show(text, NUMBER, "2^%d or less", a->k_hi);
    else if (a->k_hi == AB_INSPECT_MAX)
        ab_text_show(text, NUMBER, "2^%d or more", a->k_lo);
    else if (a->k_lo == a->k_hi)
        ab_text_show(text, NUMBER, "2^%d", a->k_lo);
    else
        ab_text_show(text, NUMBER, "2^%d .. 2^%d", a->k_lo, a->k_hi);
    return text;
}

/* "2^12"; "-" if there is no scale, or no reason to prefer one. */
static const char *best_text(const ab_scale_advice *advice, char text[NUMBER]) {
    bool decided = advice->feasible && !advice->every.vacuous && advice->every.k_hi < AB_INSPECT_MAX;
    if (!decided) return ab_text_exact(text, NUMBER, "-");
    ab_text_show(text, NUMBER, "2^%d", advice->k);
    return text;
}

/* Prints the tensors that set the ends of the range, or why there is no range. */
static void print_deciding(FILE *out, const ab_inspect_result *result, const ab_scale_advice *advice,
                           int pad) {
    char label[AB_INSPECT_TEXT];
    const ab_scale_range *a = &advice->every;
    bool low = advice->low_tensor >= 0 && a->k_lo > AB_INSPECT_MIN;
    bool high = advice->high_tensor >= 0 && a->k_hi < AB_INSPECT_MAX;
    if (low || high) ab_print(out, "%*s", pad + 2, "");
    if (low)
        ab_print(out, "%s needs %s2^%d", ab_inspect_label(result, advice->low_tensor, label),
                 a->k_lo > AB_INSPECT_MAX ? "more than " : "",
                 a->k_lo > AB_INSPECT_MAX ? AB_INSPECT_MAX : a->k_lo);
    if (low && high) fputs(", ", out);
    if (high && a->k_hi < AB_INSPECT_MIN)
        ab_print(out, "%s overflows at every scale", ab_inspect_label(result, advice->high_tensor, label));
    else if (high)
        ab_print(out, "%s overflows at 2^%d", ab_inspect_label(result, advice->high_tensor, label),
                 a->k_hi + 1);
}

static void print_advice(FILE *out, const ab_inspect_result *result) {
    ab_print(
        out,
        "\nLoss scales 2^k with at most %g %% of the non-zero values flushed to zero and none overflowing\n\n"
        "  %-10s %-12s %-16s  %-16s  %s\n",
        100 * result->question->goal.flushed_share, "format", "recommended", "for every tensor",
        "for all pooled", "decided by");
    for (int f = 0; f < result->question->formats; f++) {
        char best[NUMBER], every[NUMBER], pooled[NUMBER];
        ab_print(out, "  %-10s %-12s %-16s  %s", result->question->format[f]->name,
                 best_text(&result->advice[f], best), range_text(&result->advice[f].every, every),
                 range_text(&result->advice[f].pooled, pooled));
        print_deciding(out, result, &result->advice[f], 16 - (int)strlen(pooled));
        fputc('\n', out);
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void put_padded(FILE *out, const char *text, int width) {
    fputs(text, out);
    for (int i = ab_text_width(text); i < width; i++) fputc(' ', out);
}

/* "12" or, if undetermined by the format, "12-15". */
static const char *share_text(int64_t low, int64_t high, int64_t all, char text[2 * AB_TEXT_NUMBER]) {
    char other[AB_TEXT_NUMBER];
    double of = all > 0 ? (double)all : 1.0;
    ab_text_percent(text, (double)low / of);
    if (low != high)
        ab_text_append(text, 2 * AB_TEXT_NUMBER, "-%s", ab_text_percent(other, (double)high / of));
    return text;
}

/* Widths of the columns whose content varies most. */
typedef struct layout {
    int name, shape;
} layout;

static const char *shape_text(const ab_inspect_row *row, char text[AB_INSPECT_TEXT]) {
    ab_dims_text(row->tensor.dim, row->tensor.ndim, text, AB_INSPECT_TEXT);
    ab_text_elide(text, SHAPE_WIDTH);
    return text;
}

static layout find_layout(const ab_inspect_result *result, int rows) {
    layout widths = {(int)strlen("tensor"), (int)strlen("shape")};
    char text[AB_INSPECT_TEXT];
    for (int i = 0; i < rows; i++) {
        int name = ab_text_width(ab_inspect_label(result, i, text)),
            shape = ab_text_width(shape_text(&result->row[i], text));
        if (name > widths.name) widths.name = name;
        if (shape > widths.shape) widths.shape = shape;
    }
    return widths;
}

static void print_not_finite(FILE *out, const ab_inspect_row *row) {
    char text[NUMBER];
    if (row->nan > 0) ab_print(out, ", %s nan", grouped(row->nan, text));
    if (row->inf > 0) ab_print(out, ", %s inf", grouped(row->inf, text));
}

static void print_row(FILE *out, const ab_inspect_result *result, int row, const layout *widths) {
    const ab_inspect_row *r = &result->row[row];
    const ab_whatif *low = &r->at_scale[0].low, *high = &r->at_scale[0].high;
    char label[AB_INSPECT_TEXT], text[2 * AB_TEXT_NUMBER], shape[AB_INSPECT_TEXT], range[NUMBER];
    fputs("  ", out);
    put_padded(out, ab_inspect_label(result, row, label), widths->name);
    ab_print(out, " %-8s %-*s", r->tensor.element, widths->shape, shape_text(r, shape));
    ab_print(out, " %6s", share_text(r->zero, r->zero, r->tensor.count, text));
    if (r->nonzero > 0)
        fprintf(out, " %6.1f %6.1f", log2((double)r->min_abs), log2((double)r->max_abs));
    else
        ab_print(out, " %6s %6s", "-", "-");
    ab_print(out, " %8s", share_text(low->flushed, high->flushed, r->nonzero, text));
    ab_print(out, " %8s", share_text(low->subnormal, high->subnormal, r->nonzero, text));
    ab_print(out, " %8s", share_text(low->overflowed, high->overflowed, r->nonzero, text));
    ab_print(out, "  %s", range_text(&r->advice[0], range));
    print_not_finite(out, r);
    fputc('\n', out);
}

static void print_tensors(FILE *out, const ab_inspect_result *result) {
    int count = result->rows, rows = count < MOST_ROWS ? count : MOST_ROWS;
    layout widths = find_layout(result, rows);
    const char *format = result->question->format[0]->name;
    char scale[AB_TEXT_NUMBER];
    ab_print(out, "\n  %-*s %-8s %-*s %6s %13s  %% of non-zero in %s at scale %s\n", widths.name, "tensor",
             "dtype", widths.shape, "shape", "zero %", "log2 of", format,
             ab_text_scale(scale, (double)result->question->scale));
    ab_print(out, "  %-*s %-8s %-*s %6s %6s %6s %8s %8s %8s  %s\n", widths.name, "", "", widths.shape, "", "",
             "min", "max", "flushed", "subnorm.", "overfl.", "scales that suit");
    for (int i = 0; i < rows; i++) print_row(out, result, i, &widths);
    if (count > rows)
        fprintf(out, "  ... and %d more: --tensor chooses, --json has them all\n", count - rows);
}

void ab_inspect_print(FILE *out, const ab_inspect_result *result, bool color) {
    if (result->rows + result->skips == 0) {
        ab_print(out, "no tensors in %d file%s\n", result->stored_in, result->stored_in == 1 ? "" : "s");
        return;
    }
    print_head(out, result);
    print_values(out, result, color);
    print_advice(out, result);
    print_tensors(out, result);
}
