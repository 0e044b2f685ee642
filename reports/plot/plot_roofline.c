/* Roofline (Williams, Waterman, Patterson 2009): rates of the layers' passes beside the machine's limits,
 * from runs with --profile. Products have operations per byte; everything else moves bytes. */
#include "kernels/core/text.h"
#include "reports/plot/plot.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

enum { PER_PAGE = 7, LABELLED = 9, NAME = 40 };
static const double least_share = 0.004, labelled_share = 0.05; /* of a step */

static bool accept(const cJSON *cell) {
    return cJSON_GetArraySize(ab_json_at(ab_json_at(cell, "profile"), "rows")) > 0;
}

static int pages(ab_plot_input *in) {
    const cJSON *limits = ab_json_at(in->document, "machine_limits");
    if (cJSON_GetArraySize(ab_json_at(limits, "copy")) == 0 ||
        !(ab_json_number(limits, "product_flops_per_s.fp32", (double)NAN) > 0))
        return 0;
    return ab_plot_page_count(in, accept, PER_PAGE);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Blocks 0 and 1: copying within working sets; rates of products, with the working set that feeds them. */
static void write_limits(const cJSON *limits, FILE *data, FILE *script) {
    const cJSON *item;
    int count = 0;
    double copy = (double)NAN, cached = (double)NAN;
    fputs("# copying: bytes, GB/s\n", data);
    cJSON_ArrayForEach(item, ab_json_at(limits, "copy")) {
        copy = ab_json_number(item, "bytes_per_s", (double)NAN) * 1e-9;
        cached = fmax(cached, copy);
        ab_plot_number(data, ab_json_number(item, "working_set_bytes", (double)NAN));
        ab_plot_number(data, copy);
        fputc('\n', data);
    }
    fputs("\n\n# products: GFLOP/s\n", data);
    fputs("array roof_name[16]\n", script);
    cJSON_ArrayForEach(item, ab_json_at(limits, "product_flops_per_s")) {
        char name[NAME];
        if (count == 16 || !cJSON_IsNumber(item)) continue;
        ab_plot_number(data, item->valuedouble * 1e-9);
        fprintf(data, "\n");
        fprintf(script, "roof_name[%d] = ", ++count);
        ab_plot_quote(script, ab_text_clean(name, sizeof name, item->string));
        fputc('\n', script);
    }
    fputs("\n\n", data);
    ab_plot_set_number(script, "roofs", count);
    ab_plot_set_number(script, "copy_memory", copy);
    ab_plot_set_number(script, "copy_cache", cached);
}

/* ---- points ---------------------------------------------------------------------------------- */

typedef struct page_state {
    FILE *data, *script;
    int labels;
    double low[4], high[4]; /* intensity, GFLOP/s, bytes, GB/s */
} page_state;

static void widen(page_state *s, int axis, double value) {
    s->low[axis] = fmin(s->low[axis], value);
    s->high[axis] = fmax(s->high[axis], value);
}

/* A label beside a point: panel, coordinates, text. */
static void write_label(page_state *s, const cJSON *row, int panel, double x, double y) {
    char layer[NAME], name[NAME + 16];
    const char *pass = ab_json_text(row, "pass", "");
    ab_text_clean(layer, sizeof layer, ab_json_text(row, "layer", ""));
    if (!layer[0]) ab_text_clean(layer, sizeof layer, ab_json_text(row, "op", ""));
    ab_text_show(name, sizeof name, "%s%s", layer, strcmp(pass, "backward") == 0 ? " (backward)" : "");
    s->labels++;
    fprintf(s->script, "panel_of[%d] = %d; x_of[%d] = %.6g; y_of[%d] = %.6g; name_of[%d] = ", s->labels,
            panel, s->labels, x, s->labels, y, s->labels);
    ab_plot_quote(s->script, name);
    fputc('\n', s->script);
}

/* One panel's points of a cell, a block of the data: x, rate, share of the step. */
static void write_points(page_state *s, const cJSON *cell, int panel, bool labelled) {
    const cJSON *row, *profile = ab_json_at(cell, "profile");
    const double step = ab_json_number(profile, "parts_time_ns", (double)NAN);
    int written = 0, labels = 0;
    cJSON_ArrayForEach(row, ab_json_at(profile, "rows")) {
        const double ns = ab_json_number(row, "time_ns", 0), flops = ab_json_number(row, "flops", 0),
                     bytes = ab_json_number(row, "bytes", 0);
        const bool product = ab_json_at(row, "product_format") != NULL;
        if (product != (panel == 1) || !(bytes > 0) || !(ns >= least_share * step) ||
            (product && !(flops > 0)))
            continue;
        const double x = product ? flops / bytes : bytes, y = (product ? flops : bytes) / ns;
        widen(s, 2 * panel - 2, x);
        widen(s, 2 * panel - 1, y);
        ab_plot_number(s->data, x);
        ab_plot_number(s->data, y);
        ab_plot_number(s->data, ns / step);
        fputc('\n', s->data);
        written++;
        if (labelled && ns >= labelled_share * step && labels++ < LABELLED) write_label(s, row, panel, x, y);
    }
    if (!written) fputs("? ? ?\n", s->data);
    fputs("\n\n", s->data);
}

static void write_ranges(const page_state *s) {
    static const char *const names[] = {"intensity", "flops", "bytes", "rate"};
    char name[NAME];
    for (int axis = 0; axis < 4; axis++) {
        const bool any = s->low[axis] <= s->high[axis];
        ab_text_exact(name, sizeof name, "%s_low", names[axis]);
        ab_plot_set_number(s->script, name, any ? s->low[axis] : 1);
        ab_text_exact(name, sizeof name, "%s_high", names[axis]);
        ab_plot_set_number(s->script, name, any ? s->high[axis] : 10);
    }
}

static ab_status write_plot(ab_plot_input *in, int page, FILE *data, FILE *script) {
    const cJSON *cell[PER_PAGE];
    char text[AB_PLOT_LABEL];
    const int count = ab_plot_cells(in, accept, page, PER_PAGE, cell);
    page_state s = {.data = data, .script = script};
    for (int axis = 0; axis < 4; axis++) {
        s.low[axis] = (double)INFINITY;
        s.high[axis] = 0;
    }
    ab_plot_set_text(script, "subject", ab_plot_subject(in->document, text));
    ab_plot_set_number(script, "width", 1100);
    ab_plot_set_number(script, "height", 520);
    ab_plot_set_number(script, "cells", count);
    fprintf(script,
            "array label_of[%d]\narray color_of[%d]\n"
            "array panel_of[%d]\narray x_of[%d]\narray y_of[%d]\narray name_of[%d]\n",
            count, count, 2 * LABELLED, 2 * LABELLED, 2 * LABELLED, 2 * LABELLED);
    write_limits(ab_json_at(in->document, "machine_limits"), data, script);
    for (int i = 0; i < count; i++) {
        fprintf(script, "color_of[%d] = %d; label_of[%d] = ", i + 1, ab_plot_color(in, cell[i]), i + 1);
        ab_plot_quote(script, ab_plot_label(in, cell[i], text));
        fputc('\n', script);
        for (int panel = 1; panel <= 2; panel++) write_points(&s, cell[i], panel, i == 0);
    }
    ab_plot_set_number(script, "labels", s.labels);
    write_ranges(&s);
    return AB_OK;
}

extern const char ab_embedded_gp_roofline[];
extern const ab_plot ab_plot_roofline;
const ab_plot ab_plot_roofline = {"roofline", ab_embedded_gp_roofline, pages, write_plot, false, NULL, NULL};
