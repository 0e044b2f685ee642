/* Flushed gradient values: fraction by layer and step as a heat map, one panel per cell. */
#include "kernels/core/text.h"
#include "reports/plot/plot.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

enum { MAX_PANELS = 6, MAX_ROWS = 72, ROW_HEIGHT = 17, TITLE_HEIGHT = 42, MARGINS = 104, MAX_COLUMNS = 256 };

static bool accept(const cJSON *cell) {
    const cJSON *tensors = ab_json_at(cell, "probes.tensors");
    return tensors && tensors->child && !ab_plot_is_perturbed_baseline(cell);
}

/* ---- layers ---------------------------------------------------------------------------------- */

static bool first_of_layer(const cJSON *tensors, const cJSON *tensor) {
    for (const cJSON *before = tensors->child; before != tensor; before = before->next)
        if (strcmp(ab_json_text(before, "layer", ""), ab_json_text(tensor, "layer", "")) == 0) return false;
    return true;
}

static bool has_layer(const cJSON *tensors, const char *layer) {
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, tensors) {
        if (strcmp(ab_json_text(tensor, "layer", ""), layer) == 0) return true;
    }
    return false;
}

static bool is_op(const cJSON *ops, const char *layer) {
    const cJSON *op;
    cJSON_ArrayForEach(op, ops) {
        if (strcmp(ab_json_text(op, "op", ""), layer) == 0) return true;
    }
    return false;
}

/* Returns the number of probed layers; *name becomes the name of layer `wanted` (-1: none). Order: that of
 * the record's ops, then the remaining layers. */
static int find_layer(const cJSON *cell, int wanted, const char **name) {
    int count = 0;
    const cJSON *op, *ops = ab_json_at(cell, "implementations");
    const cJSON *tensor, *tensors = ab_json_at(cell, "probes.tensors");
    cJSON_ArrayForEach(op, ops) {
        const char *layer = ab_json_text(op, "op", "");
        if (has_layer(tensors, layer) && count++ == wanted) *name = layer;
    }
    cJSON_ArrayForEach(tensor, tensors) {
        const char *layer = ab_json_text(tensor, "layer", "");
        if (!first_of_layer(tensors, tensor) || is_op(ops, layer)) continue;
        if (count++ == wanted) *name = layer;
    }
    return count;
}

static int layer_count(const cJSON *cell) { return find_layer(cell, -1, NULL); }

static const char *layer_name(const cJSON *cell, int i) {
    const char *name = "";
    find_layer(cell, i, &name);
    return name;
}

static int most_layers(const cJSON *document) {
    int most = 1;
    const cJSON *cell, *cells = ab_json_at(document, "cells");
    cJSON_ArrayForEach(cell, cells) {
        int count = accept(cell) ? layer_count(cell) : 0;
        if (count > most) most = count;
    }
    return most;
}

/* Panels per page, such that a page has at most MAX_ROWS rows; at least one. */
static int per_page(const cJSON *document) {
    int fit = MAX_ROWS / most_layers(document);
    return fit < 1 ? 1 : fit > MAX_PANELS ? MAX_PANELS : fit;
}

static int pages(const cJSON *document) { return ab_plot_page_count(document, accept, per_page(document)); }

/* ---- data ------------------------------------------------------------------------------------ */

typedef struct strip {
    double first, stride;
    int columns;
    double nonzero[MAX_COLUMNS], flushed[MAX_COLUMNS];
} strip;

static void add_columns(const cJSON *array, double *sum) {
    int i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        if (i < MAX_COLUMNS) sum[i++] += item->valuedouble;
    }
}

/* Sums the tensors of a layer (only the cast ones if there are any); all were probed at the same steps. */
static strip collect(const cJSON *tensors, const char *layer, bool cast_only) {
    strip s = {0};
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, tensors) {
        if (strcmp(ab_json_text(tensor, "layer", ""), layer) != 0) continue;
        if (cast_only && !ab_json_is_true(tensor, "cast")) continue;
        s.first = ab_json_number(tensor, "steps.first", 0);
        s.stride = ab_json_number(tensor, "steps.stride", 1);
        s.columns = (int)fmin(ab_json_number(tensor, "steps.count", 0), MAX_COLUMNS);
        add_columns(ab_json_at(tensor, "steps.nonzero"), s.nonzero);
        add_columns(ab_json_at(tensor, "steps.flushed"), s.flushed);
    }
    return s;
}

static void write_strip(const strip *s, int row, FILE *data) {
    for (int i = 0; i < s->columns; i++) {
        double from = s->first + i * s->stride;
        if (s->nonzero[i] <= 0) continue;
        fprintf(data, "%d %.10g %.10g %.9g\n", row, from, from + s->stride,
                100 * s->flushed[i] / s->nonzero[i]);
    }
}

/* ---- page ------------------------------------------------------------------------------------ */

static void write_texts(const cJSON *document, const cJSON *cell, int panel, FILE *script) {
    char text[AB_PLOT_LABEL], share[AB_TEXT_NUMBER];
    bool modelled = ab_json_is_true(cell, "summary.flushed_modelled");
    fprintf(script, "title[%d] = ", panel + 1);
    ab_plot_quote(script, ab_plot_label(document, cell, text));
    ab_text_percent(share, ab_json_number(cell, "summary.flushed_share", (double)NAN));
    ab_text_show(text, sizeof text,
                 modelled ? "nothing is cast; a cast would flush %s %%" : "%s %% flushed in all", share);
    fprintf(script, "; note[%d] = ", panel + 1);
    ab_plot_quote(script, text);
}

static void write_panel(const cJSON *document, const cJSON *cell, int panel, FILE *data, FILE *script) {
    char text[AB_PLOT_LABEL];
    int count = layer_count(cell);
    write_texts(document, cell, panel, script);
    fprintf(script, "; layers[%d] = %d; first_layer[%d] = used\n", panel + 1, count, panel + 1);
    fprintf(data, "# %s\n# row  from_step  to_step  flushed_percent\n", ab_plot_label(document, cell, text));
    for (int i = 0; i < count; i++) {
        const char *name = layer_name(cell, i);
        strip s = collect(ab_json_at(cell, "probes.tensors"), name,
                          !ab_json_is_true(cell, "summary.flushed_modelled"));
        write_strip(&s, i + 1, data);
        ab_text_elide(ab_text_clean(text, sizeof text, name), 20);
        fputs("used = used + 1; layer[used] = ", script);
        ab_plot_quote(script, text);
        fputc('\n', script);
    }
    fputs("0 -1 -1 0\n\n\n", data); /* a block must not be empty */
}

static double most_steps(const cJSON *const *cell, int count) {
    double most = 1;
    for (int i = 0; i < count; i++) most = fmax(most, ab_json_number(cell[i], "steps_total", 0));
    return most;
}

static ab_status write_plot(const cJSON *document, int page, FILE *data, FILE *script) {
    const cJSON *cell[MAX_PANELS];
    char subject[AB_PLOT_LABEL];
    int panels = ab_plot_cells(document, accept, page, per_page(document), cell), rows = 0;
    for (int i = 0; i < panels; i++) rows += layer_count(cell[i]);
    ab_plot_set_text(script, "subject", ab_plot_subject(document, subject));
    ab_plot_set_number(script, "panels", panels);
    ab_plot_set_number(script, "row_height", ROW_HEIGHT);
    ab_plot_set_number(script, "title_height", TITLE_HEIGHT);
    ab_plot_set_number(script, "width", 1100);
    ab_plot_set_number(script, "height", ROW_HEIGHT * rows + TITLE_HEIGHT * panels + MARGINS);
    ab_plot_set_number(script, "steps", most_steps(cell, panels));
    fprintf(script,
            "array title[%d]\narray note[%d]\narray layers[%d]\narray first_layer[%d]\narray layer[%d]\nused "
            "= 0\n",
            panels, panels, panels, panels, rows);
    for (int i = 0; i < panels; i++) write_panel(document, cell[i], i, data, script);
    return AB_OK;
}

extern const char ab_embedded_gp_flush[];
extern const ab_plot ab_plot_flush;
const ab_plot ab_plot_flush = {"flush", ab_embedded_gp_flush, pages, write_plot, false};
