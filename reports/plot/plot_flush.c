/* Flushed gradient values: fraction by layer and step as a heat map, one panel per cell. */
#include "kernels/core/text.h"
#include "reports/plot/plot.h"
#include "reports/plot/strips.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/sampling.h"
#include "reports/record/text.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PANELS = AB_PLOT_PANELS,
    MAX_ROWS = 72,
    ROW_HEIGHT = 17,
    TITLE_HEIGHT = 42,
    MARGINS = 120,
    TITLE = 72
};

static bool is_probed(const cJSON *cell) {
    const cJSON *tensors = ab_json_at(cell, "probes.tensors");
    return tensors && tensors->child && !ab_plot_is_perturbed_baseline(cell);
}

/* Beside cells with counts, those without are said to have none. */
static bool accept(const cJSON *cell) { return is_probed(cell) || ab_plot_is_trained(cell); }

/* ---- layers ---------------------------------------------------------------------------------- */

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
        if (!ab_is_first_of_layer(tensors, tensor) || is_op(ops, layer)) continue;
        if (count++ == wanted) *name = layer;
    }
    return count;
}

static int layer_count(const cJSON *cell) { return is_probed(cell) ? find_layer(cell, -1, NULL) : 0; }

static const char *layer_name(const cJSON *cell, int i) {
    const char *name = "";
    find_layer(cell, i, &name);
    return name;
}

/* Panels per page, such that a page has at most MAX_ROWS rows; at least one. */
typedef struct fit {
    int panels;
} fit;

static int most_layers(const cJSON *document) {
    int most = 1;
    const cJSON *cell, *cells = ab_json_at(document, "cells");
    cJSON_ArrayForEach(cell, cells) {
        int count = accept(cell) ? layer_count(cell) : 0;
        if (count > most) most = count;
    }
    return most;
}

static ab_status prepare(ab_plot_input *in) {
    fit *f = in->prepared = malloc(sizeof *f);
    if (!f) return ab_fail(AB_NO_MEMORY, "out of memory while writing plots");
    const int most = most_layers(in->document);
    assert(most > 0);
    const int panels = MAX_ROWS / most;
    f->panels = panels < 1 ? 1 : panels > MAX_PANELS ? MAX_PANELS : panels;
    return AB_OK;
}

static int per_page(const ab_plot_input *in) { return ((const fit *)in->prepared)->panels; }

static int pages(ab_plot_input *in) {
    const bool any = ab_plot_page_count(in, is_probed, 1) > 0;
    return any ? ab_plot_page_count(in, accept, per_page(in)) : 0;
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Sums the tensors of a layer (only the cast ones if there are any); all were probed at the same steps. */
static ab_strip collect(const cJSON *tensors, const char *layer, bool cast_only) {
    ab_strip strip = {.stride = 1};
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, tensors) {
        if (ab_tensor_counts(tensor, cast_only, layer))
            ab_strip_add(&strip, ab_json_at(tensor, "steps"), "flushed");
    }
    return strip;
}

/* Writes the rows of a cell; what they hold. */
static ab_strips write_strips(const cJSON *cell, FILE *data) {
    ab_strips all = ab_strips_of(cell);
    const bool modelled = ab_json_is_true(cell, "summary.flushed_modelled");
    for (int i = 0; i < layer_count(cell); i++) {
        const ab_strip strip = collect(ab_json_at(cell, "probes.tensors"), layer_name(cell, i), !modelled);
        ab_strip_write(&strip, i + 1, &all, data);
    }
    return all;
}

/* The sentence in place of a cell's map; "" if it has one. */
static const char *sentence_of(const cJSON *cell) {
    const ab_strips all = write_strips(cell, NULL);
    return ab_strips_sentence(&all, ab_json_is_true(cell, "summary.flushed_modelled")
                                        ? "no gradient value would be flushed at any probed step"
                                        : "no gradient value was flushed at any probed step");
}

static int row_count(const cJSON *cell) { return sentence_of(cell)[0] ? 1 : layer_count(cell); }

/* ---- page ------------------------------------------------------------------------------------ */

static void write_text(FILE *script, const char *name, int panel, const char *text) {
    fprintf(script, "%s[%d] = ", name, panel + 1);
    ab_plot_quote(script, text);
    fputc('\n', script);
}

static void write_texts(ab_plot_input *in, const cJSON *cell, int panel, FILE *script) {
    char text[AB_PLOT_LABEL], share[AB_TEXT_NUMBER];
    const bool modelled = ab_json_is_true(cell, "summary.flushed_modelled");
    write_text(script, "title", panel, ab_plot_title(in, cell, TITLE, text));
    ab_text_percent(share, ab_json_number(cell, "summary.flushed_share", (double)NAN));
    ab_text_show(text, sizeof text,
                 modelled ? "nothing is cast; a cast would flush %s %%" : "%s %% flushed in all", share);
    write_text(script, "note", panel, is_probed(cell) ? text : "");
    write_text(script, "sentence", panel, sentence_of(cell));
}

static void write_panel(ab_plot_input *in, const cJSON *cell, int panel, FILE *data, FILE *script) {
    char text[AB_PLOT_LABEL];
    write_texts(in, cell, panel, script);
    fprintf(script, "layers[%d] = %d; first_layer[%d] = used; trained[%d] = %d; ", panel + 1, row_count(cell),
            panel + 1, panel + 1, ab_steps_of_cell(cell));
    ab_plot_set_color(script, panel + 1, in, cell);
    fprintf(data, "# %s\n# row  from_step  to_step  flushed_percent\n", ab_plot_label(in, cell, text));
    if (sentence_of(cell)[0] == '\0') write_strips(cell, data);
    for (int i = 0; i < layer_count(cell); i++) {
        ab_text_elide(ab_text_clean(text, sizeof text, layer_name(cell, i)), 20);
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

static ab_status write_plot(ab_plot_input *in, int page, FILE *data, FILE *script) {
    static const char *const arrays[] = {"title",       "note",    "sentence", "layers",
                                         "first_layer", "trained", "color_of"};
    const cJSON *cell[MAX_PANELS];
    char subject[AB_PLOT_LABEL];
    int panels = ab_plot_cells(in, accept, page, per_page(in), cell), rows = 0, layers = 1;
    for (int i = 0; i < panels; i++) rows += row_count(cell[i]);
    for (int i = 0; i < panels; i++) layers += layer_count(cell[i]);
    ab_plot_set_text(script, "subject", ab_plot_subject(in->document, subject));
    ab_plot_set_number(script, "panels", panels);
    ab_plot_set_number(script, "row_height", ROW_HEIGHT);
    ab_plot_set_number(script, "title_height", TITLE_HEIGHT);
    ab_plot_set_number(script, "width", 1100);
    ab_plot_set_number(script, "height", ROW_HEIGHT * rows + TITLE_HEIGHT * panels + MARGINS);
    ab_plot_set_number(script, "steps", most_steps(cell, panels));
    for (size_t i = 0; i < AB_COUNT_OF(arrays); i++) fprintf(script, "array %s[%d]\n", arrays[i], panels);
    fprintf(script, "array layer[%d]\nused = 0\n", layers);
    for (int i = 0; i < panels; i++) write_panel(in, cell[i], i, data, script);
    return AB_OK;
}

extern const char ab_embedded_gp_flush[];
extern const ab_plot ab_plot_flush;
const ab_plot ab_plot_flush = {"flush", ab_embedded_gp_flush, pages, write_plot, false, prepare, free};
