/* Training losses with a running mean, and the distance of each cell's losses from O0's. O0 and its
 * perturbed baselines (moved by one ulp, and by as much as a rounding) are on every page: their distance is
 * chance. */
#include "reports/plot/plot.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PER_PAGE = 6, MAX_SERIES = PER_PAGE + 3, MAX_REACH = 100, MAX_POINTS = 5000 };

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

static int pages(const cJSON *document) {
    int count = ab_plot_page_count(document, is_candidate, PER_PAGE);
    return count > 0 ? count : ab_plot_page_count(document, is_baseline, 1) > 0;
}

/* Cells of the page: O0 and the perturbed baselines first, if present. */
static int choose(const cJSON *document, int page, const cJSON **cell) {
    int count = ab_plot_cells(document, is_baseline, 0, 1, cell);
    count += ab_plot_cells(document, is_ulp, 0, 1, cell + count);
    count += ab_plot_cells(document, is_rounding, 0, 1, cell + count);
    return count + ab_plot_cells(document, is_candidate, page, PER_PAGE, cell + count);
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

/* Mean over `reach` values to each side, truncated at the ends; NAN if one of them is NAN. */
static double running_mean(const double *value, int count, int at, int reach) {
    int from = at > reach ? at - reach : 0, to = at + reach < count ? at + reach : count - 1;
    double sum = 0;
    for (int i = from; i <= to; i++) sum += value[i];
    return sum / (to - from + 1);
}

/* Running mean of |loss - O0's loss|. */
static double running_distance(const series *s, const series *o0, int at, int reach) {
    int count = s->count < o0->count ? s->count : o0->count;
    int from = at > reach ? at - reach : 0, to = at + reach < count ? at + reach : count - 1;
    double sum = 0;
    if (at >= count) return (double)NAN;
    for (int i = from; i <= to; i++) sum += fabs(s->loss[i] - o0->loss[i]);
    return sum / (to - from + 1);
}

/* Returns whether any distance is above 0. */
static bool write_block(const series *s, const series *o0, int reach, const char *label, FILE *data) {
    bool differs = false;
    fprintf(data, "# %s\n# step  loss  running_mean  running_distance_to_O0\n", label);
    int every = 1 + (s->count - 1) / MAX_POINTS; /* in a long run, not every step has its own pixel */
    for (int i = 0; i < s->count; i += every) {
        double distance = o0 ? running_distance(s, o0, i, reach) : 0;
        differs |= distance > 0;
        fprintf(data, "%d", i);
        ab_plot_number(data, s->loss[i]);
        ab_plot_number(data, running_mean(s->loss, s->count, i, reach));
        ab_plot_number(data, distance > 0 ? distance : (double)NAN); /* 0 cannot be shown on a log axis */
        fputc('\n', data);
    }
    fputs("\n\n", data);
    return differs;
}

/* Upper end of the loss axis: slightly above all losses of O0, so that a diverging level is clipped and
 * does not compress the others. */
static double find_top(const series *s, int count) {
    double top = 0;
    for (int i = 0; i < s[0].count; i++)
        if (s[0].loss[i] > top) top = s[0].loss[i];
    if (top > 0 || count == 1) return 1.15 * top;
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

static void write_variables(const cJSON *document, const cJSON *const *cell, const series *s, int count,
                            int reach, FILE *script) {
    char label[AB_PLOT_LABEL];
    ab_plot_set_text(script, "subject", ab_plot_subject(document, label));
    ab_plot_set_number(script, "width", 1100);
    ab_plot_set_number(script, "height", 800);
    ab_plot_set_number(script, "series", count);
    ab_plot_set_number(script, "ulp_shown", count > 1 && is_ulp(cell[1]));
    ab_plot_set_number(script, "rounding_shown", count > 2 && is_rounding(cell[2]));
    ab_plot_set_number(script, "steps", longest(s, count));
    ab_plot_set_number(script, "top_loss", find_top(s, count));
    ab_plot_set_number(script, "window", 2 * reach + 1);
    fprintf(script, "array label_of[%d]\narray color_of[%d]\narray dash_of[%d]\n", count, count, count);
    for (int i = 0; i < count; i++) {
        fprintf(script, "label_of[%d] = ", i + 1);
        ab_plot_quote(script, ab_plot_label(document, cell[i], label));
        fprintf(script, "; color_of[%d] = %d; dash_of[%d] = %d\n", i + 1, ab_plot_color(document, cell[i]),
                i + 1, dash_of(cell, i));
    }
}

static ab_status write_plot(const cJSON *document, int page, FILE *data, FILE *script) {
    const cJSON *cell[MAX_SERIES];
    series s[MAX_SERIES] = {{NULL, 0}};
    char label[AB_PLOT_LABEL];
    ab_status status = AB_OK;
    int count = choose(document, page, cell), different = 0;
    for (int i = 0; i < count; i++) AB_TRY_GOTO(read_series(cell[i], &s[i]));
    int reach = longest(s, count) / 80;
    if (reach > MAX_REACH) reach = MAX_REACH;
    const series *o0 = count > 0 && is_baseline(cell[0]) ? &s[0] : NULL;
    for (int i = 0; i < count; i++)
        different += write_block(&s[i], o0, reach, ab_plot_label(document, cell[i], label), data);
    write_variables(document, cell, s, count, reach, script);
    ab_plot_set_number(script, "different", different);
out:
    for (int i = 0; i < count; i++) free(s[i].loss);
    return status;
}

extern const char ab_embedded_gp_loss[];
extern const ab_plot ab_plot_loss;
const ab_plot ab_plot_loss = {"loss", ab_embedded_gp_loss, pages, write_plot, false};
