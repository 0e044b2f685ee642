/* What the plots' layouts share: colours of levels, lengths of labels, rows of a key, ends of axes. */
#include "kernels/core/text.h"
#include "reports/plot/plot.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_OTHER = 5, KEY_WIDTH = 1000, KEY_LETTER = 8, KEY_SAMPLE = 60, TAIL = 22 };

/* ---- colours --------------------------------------------------------------------------------- */

/* O0 to O3 have colours of their own, so that they are the same in every document too. */
static int own_color(const char *level) {
    const bool own = level[0] == 'O' && level[1] >= '1' && level[1] <= '3' && level[2] == '\0';
    return own ? 2 + level[1] - '1' : -1;
}

static bool is_other(const cJSON *cell) {
    return strcmp(ab_cell_label(cell), "O0") != 0 && own_color(ab_cell_label(cell)) < 0;
}

static bool is_first_of_level(const cJSON *cells, const cJSON *cell) {
    for (const cJSON *before = cells->child; before != cell; before = before->next)
        if (strcmp(ab_cell_label(before), ab_cell_label(cell)) == 0) return false;
    return true;
}

int ab_plot_color(const cJSON *document, const cJSON *cell) {
    const cJSON *cells = ab_json_at(document, "cells");
    const char *level = ab_cell_label(cell);
    int color = FIRST_OTHER;
    if (strcmp(level, "O0") == 0) return ab_plot_is_perturbed_baseline(cell);
    if (own_color(level) >= 0) return own_color(level);
    for (const cJSON *other = cells ? cells->child : NULL; other; other = other->next) {
        if (strcmp(ab_cell_label(other), level) == 0) break;
        color += is_other(other) && is_first_of_level(cells, other);
    }
    return color;
}

void ab_plot_set_color(FILE *script, int index, const cJSON *document, const cJSON *cell) {
    fprintf(script, "color_of[%d] = %d\n", index, ab_plot_color(document, cell));
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* What is left out is in the middle: a label's end tells cells of one level apart. */
const char *ab_plot_title(const cJSON *document, const cJSON *cell, int columns, char *label) {
    ab_plot_label(document, cell, label);
    if (ab_text_width(label) > columns) ab_text_elide_to(label, columns - TAIL - 2, TAIL);
    return label;
}

int ab_plot_key_rows(int longest, int count) {
    const int fit = KEY_WIDTH / (KEY_LETTER * longest + KEY_SAMPLE);
    const int rows = fit > 1 ? (count + fit - 1) / fit : count;
    return rows > 1 ? rows : 1;
}

/* ---- axes ------------------------------------------------------------------------------------ */

static int compare_peaks(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

void ab_plot_share_tops(double *peak, int count) {
    double sorted[AB_PLOT_PANELS], shared = 0;
    if (count == 0) return;
    memcpy(sorted, peak, (size_t)count * sizeof *peak);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_peaks);
    const double limit = 2 * sorted[(count - 1) / 2];
    for (int i = 0; i < count; i++)
        if (peak[i] <= limit) shared = fmax(shared, peak[i]);
    for (int i = 0; i < count; i++)
        if (peak[i] <= limit) peak[i] = shared;
}

/* ---- cells ----------------------------------------------------------------------------------- */

bool ab_plot_is_trained(const cJSON *cell) {
    return !ab_plot_is_perturbed_baseline(cell) && ab_steps_of_cell(cell) > 0;
}

double ab_plot_fixed_scale(const cJSON *cell, bool *skips) {
    char *end = NULL;
    const cJSON *scale = ab_json_at(cell, "policy.loss_scale");
    const char *text = cJSON_GetStringValue(scale);
    *skips = false;
    if (cJSON_IsNumber(scale)) return scale->valuedouble > 0 ? scale->valuedouble : (double)NAN;
    if (!text) return (double)NAN;
    const double value = strtod(text, &end);
    *skips = end != text && strcmp(end, ":skip") == 0;
    return *skips && value > 0 && isfinite(value) ? value : (double)NAN;
}
