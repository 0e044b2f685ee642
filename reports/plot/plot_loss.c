/* Training losses with a running mean, and the distance of each cell's losses from O0's. O0 and its
 * perturbed baselines (moved by one ulp, and by as much as a rounding) are on every page: their distance is
 * chance. */
#include "kernels/core/text.h"
#include "reports/plot/plot.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_LABEL = 56, PER_PAGE = 6, MAX_SERIES = PER_PAGE + 3, MAX_REACH = 100, MAX_POINTS = 5000 };

static bool is_o0(const cJSON *cell) { return strcmp(ab_cell_label(cell), "O0") == 0; }

static bool has_losses(const cJSON *cell) {
    const cJSON *losses = ab_json_at(cell, "loss");
    return losses && losses->child;
}

/* Of the runs laid over the first, O0 is one of the cells that are compared with the first's O0. */
static int run_of(const cJSON *cell) { return (int)ab_json_number(cell, "of_run.index", 0); }

static bool is_candidate(const cJSON *cell) { return has_losses(cell) && (!is_o0(cell) || run_of(cell) > 0); }
static bool is_baseline(const cJSON *cell) {
    return has_losses(cell) && is_o0(cell) && !ab_plot_is_perturbed_baseline(cell) && run_of(cell) == 0;
}
static bool is_twin(const cJSON *cell, const char *kind) {
    return has_losses(cell) && strcmp(ab_json_text(cell, "twin", ""), kind) == 0;
}
static bool is_ulp(const cJSON *cell) { return is_twin(cell, "ulp"); }
static bool is_rounding(const cJSON *cell) { return is_twin(cell, "rounding"); }

static int pages(ab_plot_input *in) {
    int count = ab_plot_page_count(in, is_candidate, PER_PAGE);
    return count > 0 ? count : ab_plot_page_count(in, is_baseline, 1) > 0;
}

/* Cells of the page: O0 and the perturbed baselines first, if present. */
static int choose(ab_plot_input *in, int page, const cJSON **cell) {
    int count = ab_plot_cells(in, is_baseline, 0, 1, cell);
    count += ab_plot_cells(in, is_ulp, 0, 1, cell + count);
    count += ab_plot_cells(in, is_rounding, 0, 1, cell + count);
    return count + ab_plot_cells(in, is_candidate, page, PER_PAGE, cell + count);
}

/* ---- series ---------------------------------------------------------------------------------- */

typedef struct series {
    double *loss; /* NAN where not finite */
    int count;
} series;

static ab_status read_series(const cJSON *cell, series *s) {
    const cJSON *loss, *losses = ab_json_at(cell, "loss");
    int n = cJSON_GetArraySize(losses), i = 0;
    s->loss = calloc((size_t)n + 1, sizeof *s->loss);
    if (!s->loss) return ab_fail(AB_NO_MEMORY, "out of memory while plotting losses");
    cJSON_ArrayForEach(loss, losses) s->loss[i++] = cJSON_IsNumber(loss) ? loss->valuedouble : (double)NAN;
    s->count = n;
    return AB_OK;
}

/* Mean of |loss - O0's loss| (o0 NULL: of the loss) over the finite values among `reach` steps to each side;
 * NAN at a step that has none. */
static double running_mean(const series *s, const series *o0, int at, int reach) {
    const int count = o0 && o0->count < s->count ? o0->count : s->count;
    const int from = at > reach ? at - reach : 0, to = at + reach < count ? at + reach : count - 1;
    double sum = 0;
    int finite = 0;
    if (at >= count || !isfinite(s->loss[at]) || (o0 && !isfinite(o0->loss[at]))) return (double)NAN;
    for (int i = from; i <= to; i++) {
        const double value = o0 ? fabs(s->loss[i] - o0->loss[i]) : s->loss[i];
        if (!isfinite(value)) continue;
        sum += value;
        finite++;
    }
    return sum / finite;
}

/* The step from which on no loss is finite; s->count if there is none. */
static int end_of(const series *s) {
    int end = s->count;
    while (end > 0 && !isfinite(s->loss[end - 1])) end--;
    return end;
}

/* Returns whether any distance is above 0. */
static bool write_block(const series *s, const series *o0, int reach, const char *label, FILE *data) {
    bool differs = false;
    fprintf(data, "# %s\n# step  loss  running_mean  running_distance_to_O0\n", label);
    int every = 1 + (s->count - 1) / MAX_POINTS; /* in a long run, not every step has its own pixel */
    for (int i = 0; i < s->count; i += every) {
        double distance = o0 ? running_mean(s, o0, i, reach) : 0;
        differs |= distance > 0;
        fprintf(data, "%d", i);
        ab_plot_number(data, s->loss[i]);
        ab_plot_number(data, running_mean(s, NULL, i, reach));
        ab_plot_number(data, distance > 0 ? distance : (double)NAN); /* 0 cannot be shown on a log axis */
        fputc('\n', data);
    }
    fputs("\n\n", data);
    return differs;
}

static double highest_loss(const series *s) {
    double top = 0;
    for (int i = 0; i < s->count; i++) top = fmax(top, isfinite(s->loss[i]) ? s->loss[i] : 0);
    return top;
}

/* Upper end of the loss axis: slightly above all losses of O0, so that a diverging level is clipped and
 * does not compress the others. */
static double find_top(const series *s, int count) {
    for (int i = 0; i < count; i++)
        if (highest_loss(&s[i]) > 0) return 1.15 * highest_loss(&s[i]);
    return 1;
}

/* ---- page ------------------------------------------------------------------------------------ */

static int longest(const series *s, int count) {
    int most = 0;
    for (int i = 0; i < count; i++)
        if (s[i].count > most) most = s[i].count;
    return most;
}

/* Dash index: the cells of the page with the same colour, in order. */
static int dash_of(const cJSON *const *cell, int i) {
    int dash = 1;
    for (int k = 0; k < i; k++) dash += strcmp(ab_cell_label(cell[k]), ab_cell_label(cell[i])) == 0;
    return is_o0(cell[i]) ? 1 + is_rounding(cell[i]) + run_of(cell[i]) : dash;
}

/* "O3, scale 2^22, NaN from step 57" */
static const char *key_label(ab_plot_input *in, const cJSON *cell, const series *s, char *label) {
    ab_plot_title(in, cell, KEY_LABEL, label);
    if (end_of(s) < s->count) ab_text_append(label, AB_PLOT_LABEL, ", NaN from step %d", end_of(s));
    return label;
}

/* Returns the columns of the longest label. */
static int write_labels(ab_plot_input *in, const cJSON *const *cell, const series *s, int count,
                        FILE *script) {
    char label[AB_PLOT_LABEL];
    int longest = 0;
    fprintf(script, "array label_of[%d]\narray color_of[%d]\narray dash_of[%d]\narray ends[%d]\n", count,
            count, count, count);
    for (int i = 0; i < count; i++) {
        fprintf(script, "label_of[%d] = ", i + 1);
        ab_plot_quote(script, key_label(in, cell[i], &s[i], label));
        longest = ab_text_width(label) > longest ? ab_text_width(label) : longest;
        fprintf(script, "; dash_of[%d] = %d; ends[%d] = %d; ", i + 1, dash_of(cell, i), i + 1,
                end_of(&s[i]) < s[i].count);
        ab_plot_set_color(script, i + 1, in, cell[i]);
    }
    return longest;
}

/* A block for every series that ends in losses that are not finite: where its last finite one is. */
static void write_crosses(ab_plot_input *in, const cJSON *const *cell, const series *s, int count, FILE *data,
                          FILE *script) {
    const double top = 0.97 * find_top(s, count);
    int crosses = 0;
    for (int i = 0; i < count; i++) {
        const int end = end_of(&s[i]);
        if (end == s[i].count) continue;
        crosses++;
        fprintf(data, "# cross of series %d: step  loss  color\n%d %.9g %d\n\n\n", i + 1,
                end > 0 ? end - 1 : 0, end > 0 ? fmin(s[i].loss[end - 1], top) : top,
                ab_plot_color(in, cell[i]));
    }
    ab_plot_set_number(script, "crosses", crosses);
}

static void write_variables(ab_plot_input *in, const cJSON *const *cell, const series *s, int count,
                            int reach, FILE *data, FILE *script) {
    char label[AB_PLOT_LABEL];
    ab_plot_set_text(script, "subject", ab_plot_subject(in->document, label));
    ab_plot_set_number(script, "width", 1100);
    ab_plot_set_number(script, "series", count);
    ab_plot_set_number(script, "ulp_shown", count > 1 && is_ulp(cell[1]));
    ab_plot_set_number(script, "rounding_shown", count > 2 && is_rounding(cell[2]));
    ab_plot_set_number(script, "steps", longest(s, count));
    ab_plot_set_number(script, "top_loss", find_top(s, count));
    ab_plot_set_number(script, "window", 2 * reach + 1);
    const int rows = ab_plot_key_rows(write_labels(in, cell, s, count, script), count);
    ab_plot_set_number(script, "key_rows", rows);
    ab_plot_set_number(script, "height", 764 + 18 * rows);
    write_crosses(in, cell, s, count, data, script);
}

static ab_status write_plot(ab_plot_input *in, int page, FILE *data, FILE *script) {
    const cJSON *cell[MAX_SERIES];
    series s[MAX_SERIES] = {{NULL, 0}};
    char label[AB_PLOT_LABEL];
    ab_status status = AB_OK;
    int count = choose(in, page, cell), different = 0;
    for (int i = 0; i < count; i++) AB_TRY_GOTO(read_series(cell[i], &s[i]));
    int reach = longest(s, count) / 80;
    if (reach > MAX_REACH) reach = MAX_REACH;
    const series *o0 = count > 0 && is_baseline(cell[0]) ? &s[0] : NULL;
    for (int i = 0; i < count; i++)
        different += write_block(&s[i], o0, reach, ab_plot_label(in, cell[i], label), data);
    write_variables(in, cell, s, count, reach, data, script);
    ab_plot_set_number(script, "different", different);
out:
    for (int i = 0; i < count; i++) free(s[i].loss);
    return status;
}

extern const char ab_embedded_gp_loss[];
extern const ab_plot ab_plot_loss;
const ab_plot ab_plot_loss = {"loss", ab_embedded_gp_loss, pages, write_plot, false, NULL, NULL};
