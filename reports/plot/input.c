/* What the pages of a plot are made of, computed once: the cells that a filter accepts, what names a cell,
 * and the colours of the levels. */
#include "kernels/core/text.h"
#include "reports/plot/plot.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_OTHER = 5, TAIL = 22 };

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "out of memory while writing plots"); }

/* ---- names ----------------------------------------------------------------------------------- */

static bool varies(const cJSON *document, const char *key) {
    const cJSON *cell, *cells = ab_json_at(document, "cells"),
                       *first = cells ? ab_json_at(cells->child, key) : NULL;
    cJSON_ArrayForEach(cell, cells) {
        const cJSON *here = ab_json_at(cell, key);
        if ((first || here) && !cJSON_Compare(first, here, 1)) return true;
    }
    return false;
}

static void scale_label(const cJSON *cell, char *label, size_t size) {
    char text[AB_TEXT_NUMBER];
    bool skips;
    const double scale = ab_plot_fixed_scale(cell, &skips);
    if (isfinite(scale))
        ab_text_show(label, size, "scale %s%s", ab_text_scale(text, scale), skips ? ":skip" : "");
    else
        ab_text_show(
            label, size, "%s scale",
            ab_text_clean(text, sizeof text,
                          ab_json_text(cell, "policy.loss_scale", ab_json_text(cell, "scale_policy", "?"))));
}

static const char *const naming_keys[AB_PLOT_NAMING_KEYS] = {"half_format", "device", "model",
                                                             "of_run.label"};

ab_plot_naming ab_plot_naming_of(const cJSON *document) {
    ab_plot_naming naming = {.seed = varies(document, "seed")};
    for (size_t i = 0; i < AB_COUNT_OF(naming_keys); i++) naming.key[i] = varies(document, naming_keys[i]);
    return naming;
}

const char *ab_plot_name(const ab_plot_naming *naming, const cJSON *cell, char *label) {
    char level[AB_PLOT_LABEL - 64], scale[48], text[24], draw[24] = "";
    ab_text_clean(level, sizeof level, ab_cell_label(cell));
    scale_label(cell, scale, sizeof scale);
    if (ab_cell_further_draw(cell))
        ab_text_show(draw, sizeof draw, " (draw %.0f)", ab_json_number(cell, "draw", 1));
    ab_text_show(label, AB_PLOT_LABEL, "%s%s%s, %s", level,
                 !ab_plot_is_perturbed_baseline(cell)                      ? ""
                 : strcmp(ab_json_text(cell, "twin", ""), "rounding") == 0 ? " + rounding"
                                                                           : " + 1 ulp",
                 draw, scale);
    for (size_t i = 0; i < AB_COUNT_OF(naming_keys); i++) {
        if (!naming->key[i]) continue;
        ab_text_clean(text, sizeof text, ab_json_text(cell, naming_keys[i], "?"));
        ab_text_append(label, AB_PLOT_LABEL, ", %s", text);
    }
    double seed = ab_json_number(cell, "seed", 0);
    if (naming->seed) ab_text_append(label, AB_PLOT_LABEL, ", seed %.0f", seed);
    return label;
}

const char *ab_plot_label(const ab_plot_input *in, const cJSON *cell, char *label) {
    return ab_plot_name(&in->naming, cell, label);
}

/* What is left out is in the middle: a label's end tells cells of one level apart. */
const char *ab_plot_title(const ab_plot_input *in, const cJSON *cell, int columns, char *label) {
    ab_plot_label(in, cell, label);
    if (ab_text_width(label) > columns) ab_text_elide_to(label, columns - TAIL - 2, TAIL);
    return label;
}

/* ---- colours --------------------------------------------------------------------------------- */

/* O0 to O3 have colours of their own, so that they are the same in every document too; -1: another level. */
static int own_color(const cJSON *cell) {
    const char *level = ab_cell_label(cell);
    if (level[0] != 'O' || level[1] < '0' || level[1] > '3' || level[2] != '\0') return -1;
    return level[1] == '0' ? ab_plot_is_perturbed_baseline(cell) : 2 + level[1] - '1';
}

static int by_place(const void *x, const void *y) {
    const ab_plot_level *a = x, *b = y;
    return (a->color > b->color) - (a->color < b->color);
}

static int by_label(const void *x, const void *y) {
    const ab_plot_level *a = x, *b = y;
    const int order = strcmp(a->label, b->label);
    return order ? order : by_place(x, y);
}

/* Keeps the first of equal labels. */
static int unique(ab_plot_level *level, int count) {
    int kept = 0;
    qsort(level, (size_t)count, sizeof *level, by_label);
    for (int i = 0; i < count; i++)
        if (kept == 0 || strcmp(level[kept - 1].label, level[i].label) != 0) level[kept++] = level[i];
    return kept;
}

static ab_status color_levels(ab_plot_input *in) {
    const cJSON *cell, *cells = ab_json_at(in->document, "cells");
    int place = 0;
    in->level = calloc((size_t)cJSON_GetArraySize(cells) + 1, sizeof *in->level);
    if (!in->level) return no_memory();
    cJSON_ArrayForEach(cell, cells) {
        if (own_color(cell) < 0) in->level[in->levels++] = (ab_plot_level){ab_cell_label(cell), place};
        place++;
    }
    in->levels = unique(in->level, in->levels);
    qsort(in->level, (size_t)in->levels, sizeof *in->level, by_place);
    for (int i = 0; i < in->levels; i++) in->level[i].color = FIRST_OTHER + i;
    qsort(in->level, (size_t)in->levels, sizeof *in->level, by_label);
    return AB_OK;
}

static int compare_label(const void *key, const void *level) {
    return strcmp(key, ((const ab_plot_level *)level)->label);
}

int ab_plot_color(const ab_plot_input *in, const cJSON *cell) {
    if (own_color(cell) >= 0) return own_color(cell);
    const ab_plot_level *level =
        bsearch(ab_cell_label(cell), in->level, (size_t)in->levels, sizeof *level, compare_label);
    return level ? level->color : FIRST_OTHER;
}

void ab_plot_set_color(FILE *script, int index, const ab_plot_input *in, const cJSON *cell) {
    fprintf(script, "color_of[%d] = %d\n", index, ab_plot_color(in, cell));
}

/* ---- selections ------------------------------------------------------------------------------ */

static void select_items(const cJSON *list, ab_plot_selection *s) {
    const cJSON *item;
    s->item = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *s->item);
    cJSON_ArrayForEach(item, list) if (s->item && s->accept(item)) s->item[s->count++] = item;
}

/* The selection of a filter, made when it is first asked for; its items are NULL if memory is short. */
static const ab_plot_selection *selected(ab_plot_input *in, const char *list, ab_plot_filter accept) {
    int i = 0;
    while (i < in->selections && in->selection[i].accept != accept) i++;
    if (i == AB_PLOT_FILTERS) abort(); /* more filters than AB_PLOT_FILTERS in one plot */
    ab_plot_selection *s = &in->selection[i];
    if (i < in->selections) return s;
    *s = (ab_plot_selection){.accept = accept};
    in->selections++;
    select_items(ab_json_at(in->document, list), s);
    in->out_of_memory |= !s->item;
    return s;
}

int ab_plot_items(ab_plot_input *in, const char *list, ab_plot_filter accept, int page, int per_page,
                  const cJSON **item) {
    const ab_plot_selection *s = selected(in, list, accept);
    const int first = page * per_page, left = s->count - first, count = left < per_page ? left : per_page;
    for (int i = 0; i < count; i++) item[i] = s->item[first + i];
    return count > 0 ? count : 0;
}

int ab_plot_item_pages(ab_plot_input *in, const char *list, ab_plot_filter accept, int per_page) {
    return (selected(in, list, accept)->count + per_page - 1) / per_page;
}

int ab_plot_cells(ab_plot_input *in, ab_plot_filter accept, int page, int per_page, const cJSON **cell) {
    return ab_plot_items(in, "cells", accept, page, per_page, cell);
}

int ab_plot_page_count(ab_plot_input *in, ab_plot_filter accept, int per_page) {
    return ab_plot_item_pages(in, "cells", accept, per_page);
}

/* ---- an input -------------------------------------------------------------------------------- */

ab_status ab_plot_open(const ab_plot *plot, const cJSON *document, ab_plot_input *in) {
    *in = (ab_plot_input){.document = document, .naming = ab_plot_naming_of(document)};
    AB_TRY(color_levels(in));
    if (plot->prepare) AB_TRY(plot->prepare(in));
    in->pages = plot->pages(in);
    return in->out_of_memory ? no_memory() : AB_OK;
}

void ab_plot_close(const ab_plot *plot, ab_plot_input *in) {
    for (int i = 0; i < in->selections; i++) free((void *)in->selection[i].item);
    if (plot->release) plot->release(in->prepared);
    free(in->level);
    *in = (ab_plot_input){.document = NULL};
}

int ab_plot_pages(const ab_plot *plot, const cJSON *document) {
    ab_plot_input in;
    const int pages = ab_plot_open(plot, document, &in) == AB_OK ? in.pages : 0;
    ab_plot_close(plot, &in);
    return pages;
}
