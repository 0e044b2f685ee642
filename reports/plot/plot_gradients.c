/* Distribution of gradient magnitudes on a log2 axis with the half format's limits: one panel per cell,
 * weight gradients and activation gradients as two curves, before the cast and with the current loss
 * scale. */
#include "kernels/core/text.h"
#include "kernels/format/format.h"
#include "reports/plot/plot.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PER_PAGE = AB_PLOT_PANELS,
    TITLE = 90,
    TITLE_LINE = 16,
    ROOM_LEFT = 560,
    ROOM_RIGHT = 370,
    FIRST = -160,
    BINS = 320,
    PANEL_HEIGHT = 152,
    MARGINS = 98
};

static const char *const kinds[] = {"weight_gradient", "activation_gradient"};
static const char *const kind_names[] = {"weight grad.", "activation grad."};
enum { KINDS = 2 };

/* All tensors of one kind of a cell. */
typedef struct spectrum {
    double count, zero, nonfinite, nonzero, flushed, overflowed;
    bool any_cast;
    double bin[BINS]; /* finite non-zero values by exponent, starting at FIRST */
} spectrum;

typedef struct range {
    int low, high; /* exponents, high exclusive */
} range;

static bool accept(const cJSON *cell) {
    const cJSON *tensors = ab_json_at(cell, "probes.tensors");
    return tensors && tensors->child && !ab_plot_is_perturbed_baseline(cell);
}

static int pages(ab_plot_input *in) { return ab_plot_page_count(in, accept, PER_PAGE); }

static void add_tensor(spectrum *sum, const cJSON *tensor) {
    int e = (int)ab_json_number(tensor, "exponents.first", 0) - FIRST;
    const cJSON *count, *counts = ab_json_at(tensor, "exponents.counts");
    sum->count += ab_json_number(tensor, "count", 0);
    sum->zero += ab_json_number(tensor, "zero", 0);
    sum->nonfinite += ab_json_number(tensor, "nan", 0) + ab_json_number(tensor, "inf", 0);
    sum->nonzero += ab_json_number(tensor, "nonzero", 0);
    sum->flushed += ab_json_number(tensor, "flushed", 0);
    sum->overflowed += ab_json_number(tensor, "overflowed", 0);
    sum->any_cast |= ab_json_is_true(tensor, "cast");
    cJSON_ArrayForEach(count, counts) {
        if (e >= 0 && e < BINS) sum->bin[e] += count->valuedouble;
        e++;
    }
}

static spectrum collect(const cJSON *cell, const char *kind) {
    spectrum sum = {0};
    const cJSON *tensor, *tensors = ab_json_at(cell, "probes.tensors");
    cJSON_ArrayForEach(tensor, tensors) {
        if (strcmp(ab_json_text(tensor, "kind", ""), kind) == 0) add_tensor(&sum, tensor);
    }
    return sum;
}

/* ---- axes ------------------------------------------------------------------------------------ */

static const ab_format *format_of(const cJSON *cell) {
    const ab_format *format = &ab_format_fp16;
    const char *name = ab_json_text(cell, "probes.format", "fp16");
    return ab_format_find(name, &format) == AB_OK ? format : &ab_format_fp16;
}

/* The exponents of a format's panels. */
typedef struct axis {
    const ab_format *format;
    range shown;
} axis;

/* Per format that cells were counted against. */
typedef struct axes {
    axis *list; /* [count]; owned */
    int count;
} axes;

static range limits_of(const ab_format *format) {
    return (range){(int)floor(log2(ab_format_flush_limit(format))) - 3, format->emax + 6};
}

/* NULL if memory is short. */
static axis *axis_of(axes *all, const ab_format *format) {
    for (int i = 0; i < all->count; i++)
        if (all->list[i].format == format) return &all->list[i];
    axis *more = realloc(all->list, ((size_t)all->count + 1) * sizeof *more);
    if (!more) return NULL;
    all->list = more;
    more[all->count] = (axis){format, limits_of(format)};
    return &more[all->count++];
}

static void widen(range *r, const cJSON *cell) {
    for (int k = 0; k < KINDS; k++) {
        spectrum s = collect(cell, kinds[k]);
        for (int i = 0; i < BINS; i++) {
            if (s.bin[i] < 1e-5 * s.nonzero || s.bin[i] == 0) continue; /* too few to be visible */
            if (FIRST + i < r->low) r->low = FIRST + i;
            if (FIRST + i + 1 > r->high) r->high = FIRST + i + 1;
        }
    }
}

/* Exponents to show for each format: its limits and every value of the document counted against it. */
static ab_status prepare(ab_plot_input *in) {
    const cJSON *cell;
    axes *all = in->prepared = calloc(1, sizeof *all);
    cJSON_ArrayForEach(cell, ab_json_at(in->document, "cells")) {
        if (!accept(cell)) continue;
        axis *a = all ? axis_of(all, format_of(cell)) : NULL;
        if (!a) return ab_fail(AB_NO_MEMORY, "out of memory while writing plots");
        widen(&a->shown, cell);
    }
    return AB_OK;
}

static void release(void *prepared) {
    axes *all = prepared;
    if (all) free(all->list);
    free(all);
}

static range find_range(const ab_plot_input *in, const ab_format *format) {
    const axes *all = in->prepared;
    for (int i = 0; i < all->count; i++)
        if (all->list[i].format == format) return all->list[i].shown;
    return limits_of(format);
}

/* The highest point of a panel, in percent. What is mostly inf or NaN has few other values, often in one bin:
 * it counts only if the panel shows nothing else. */
static double highest_percent(const spectrum s[KINDS]) {
    double highest[2] = {0, 0};
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < BINS && s[k].nonzero > 0; i++) {
            double *high = &highest[s[k].nonfinite > s[k].nonzero];
            *high = fmax(*high, 100 * s[k].bin[i] / s[k].nonzero);
        }
    return highest[0] > 0 ? highest[0] : highest[1] > 0 ? highest[1] : 1;
}

/* ---- panels ---------------------------------------------------------------------------------- */

/* The bins of a curve: its non-zero ones and one on each side, so that it starts and ends on the axis. */
static range find_extent(const spectrum *s) {
    range r = {FIRST + BINS, FIRST};
    for (int i = 0; i < BINS; i++) {
        if (s->bin[i] == 0) continue;
        if (FIRST + i <= r.low) r.low = FIRST + i - 1;
        r.high = FIRST + i + 1;
    }
    return r;
}

static double share_percent(const spectrum *s, range extent, int e) {
    if (e < extent.low || e > extent.high) return (double)NAN;
    return e >= FIRST && e < FIRST + BINS ? 100 * s->bin[e - FIRST] / s->nonzero : 0;
}

static void write_block(const spectrum s[KINDS], range r, const char *label, FILE *data) {
    range extent[KINDS] = {find_extent(&s[0]), find_extent(&s[1])};
    fprintf(data, "# %s\n# exponent  weight_gradient_percent  activation_gradient_percent\n", label);
    for (int e = r.low; e <= r.high; e++) {
        fprintf(data, "%d", e);
        for (int k = 0; k < KINDS; k++) ab_plot_number(data, share_percent(&s[k], extent[k], e));
        fputc('\n', data);
    }
    fputs("\n\n", data);
}

static void write_numbers(FILE *script, const char *name, int panel, double value) {
    fprintf(script, "%s[%d] = %.10g\n", name, panel + 1, value);
}

static void write_text(FILE *script, const char *name, int panel, const char *text) {
    fprintf(script, "%s[%d] = ", name, panel + 1);
    ab_plot_quote(script, text);
    fputc('\n', script);
}

static void write_limits(FILE *script, int panel, const ab_format *format, range r) {
    write_text(script, "format_name", panel, format->name);
    write_numbers(script, "low", panel, r.low);
    write_numbers(script, "high", panel, r.high);
    write_numbers(script, "flush_limit", panel, log2(ab_format_flush_limit(format)));
    write_numbers(script, "subnormal_limit", panel, log2(ab_format_min_subnormal(format)));
    write_numbers(script, "normal_limit", panel, log2(ab_format_min_normal(format)));
    write_numbers(script, "max_limit", panel, log2(ab_format_max(format)));
}

static double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

static void share_text(char *text, const spectrum *s, int kind) {
    char zero[AB_TEXT_NUMBER], flushed[AB_TEXT_NUMBER], more[AB_TEXT_NUMBER];
    ab_text_percent(zero, share(s->zero, s->count));
    ab_text_percent(flushed, share(s->flushed, s->nonzero));
    ab_text_show(text, AB_PLOT_LABEL, "%s: %s %% zero, %s %% %s", kind_names[kind], zero, flushed,
                 s->any_cast ? "flushed" : "would flush");
    if (s->nonfinite > 0)
        ab_text_append(text, AB_PLOT_LABEL, ", %s %% nan or inf",
                       ab_text_percent(more, share(s->nonfinite, s->count)));
    else if (s->overflowed > 0)
        ab_text_append(text, AB_PLOT_LABEL, ", %s %% overflow",
                       ab_text_percent(more, share(s->overflowed, s->nonzero)));
}

/* Whether the title of a panel and the texts on its right need a line each. */
static bool is_crowded(ab_plot_input *in, const cJSON *cell) {
    char label[AB_PLOT_LABEL], text[AB_PLOT_LABEL];
    const spectrum weight = collect(cell, kinds[0]), activation = collect(cell, kinds[1]);
    ab_plot_title(in, cell, TITLE, label);
    share_text(text, &weight, 0);
    const int used = 8 * ab_text_width(label) + 6 * ab_text_width(text);
    share_text(text, &activation, 1);
    return used > ROOM_LEFT || 6 * ab_text_width(text) > ROOM_RIGHT;
}

/* Returns the highest point of the panel. */
static double write_panel(ab_plot_input *in, const cJSON *cell, int panel, FILE *data, FILE *script) {
    char label[AB_PLOT_LABEL], text[AB_PLOT_LABEL];
    const ab_format *format = format_of(cell);
    range r = find_range(in, format);
    spectrum s[KINDS] = {collect(cell, kinds[0]), collect(cell, kinds[1])};
    write_block(s, r, ab_plot_label(in, cell, label), data);
    write_text(script, "title", panel, ab_plot_title(in, cell, TITLE, label));
    ab_plot_set_color(script, panel + 1, in, cell);
    share_text(text, &s[0], 0);
    write_text(script, "weight_text", panel, text);
    share_text(text, &s[1], 1);
    write_text(script, "activation_text", panel, text);
    write_limits(script, panel, format, r);
    return highest_percent(s);
}

static ab_status write_plot(ab_plot_input *in, int page, FILE *data, FILE *script) {
    static const char *const arrays[] = {"title",        "weight_text", "activation_text", "format_name",
                                         "low",          "high",        "flush_limit",     "subnormal_limit",
                                         "normal_limit", "max_limit",   "top_percent",     "color_of"};
    const cJSON *cell[PER_PAGE];
    char subject[AB_PLOT_LABEL];
    double top[PER_PAGE];
    int panels = ab_plot_cells(in, accept, page, PER_PAGE, cell);
    ab_plot_set_text(script, "subject", ab_plot_subject(in->document, subject));
    ab_plot_set_number(script, "panels", panels);
    ab_plot_set_number(script, "width", 1100);
    bool crowded = false;
    for (int i = 0; i < panels; i++) crowded |= is_crowded(in, cell[i]);
    ab_plot_set_number(script, "title_line", crowded ? TITLE_LINE : 0);
    ab_plot_set_number(script, "height", (PANEL_HEIGHT + (crowded ? TITLE_LINE : 0)) * panels + MARGINS);
    for (size_t i = 0; i < AB_COUNT_OF(arrays); i++) fprintf(script, "array %s[%d]\n", arrays[i], panels);
    for (int i = 0; i < panels; i++) top[i] = write_panel(in, cell[i], i, data, script);
    ab_plot_share_tops(top, panels);
    for (int i = 0; i < panels; i++) write_numbers(script, "top_percent", i, top[i]);
    return AB_OK;
}

extern const char ab_embedded_gp_gradients[];
extern const ab_plot ab_plot_gradients;
const ab_plot ab_plot_gradients = {"gradients", ab_embedded_gp_gradients, pages, write_plot, false, prepare,
                                   release};
