/* The loss scale over the steps, one panel per cell whose scale can change or that skipped a step; skipped
 * steps are marked. */
#include "kernels/core/text.h"
#include "reports/plot/plot.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>

enum { PER_PAGE = AB_PLOT_PANELS, PANEL_HEIGHT = 130, MARGINS = 102, TITLE = 78 };

static bool has_scale(const cJSON *cell) {
    const cJSON *runs = ab_json_at(cell, "scale");
    return runs && runs->child && !ab_plot_is_perturbed_baseline(cell);
}

static bool is_moving(const cJSON *cell) {
    bool skips;
    const bool changes = !isfinite(ab_plot_fixed_scale(cell, &skips));
    return has_scale(cell) && (changes || ab_json_number(cell, "steps_skipped", 0) > 0);
}

/* If no scale can change, shows the constant scales. */
static ab_plot_filter choose(ab_plot_input *in) {
    return ab_plot_page_count(in, is_moving, PER_PAGE) > 0 ? is_moving : has_scale;
}

static int pages(ab_plot_input *in) { return ab_plot_page_count(in, choose(in), PER_PAGE); }

/* ---- data ------------------------------------------------------------------------------------ */

/* The scale in force at a step. */
static double scale_at(const cJSON *cell, double step) {
    double end = 0;
    const cJSON *run, *runs = ab_json_at(cell, "scale");
    cJSON_ArrayForEach(run, runs) {
        end += run->child->next->valuedouble;
        if (step < end) return run->child->valuedouble;
    }
    return (double)NAN;
}

static void write_blocks(const cJSON *cell, const char *label, FILE *data) {
    double step = 0;
    const cJSON *run, *skip, *runs = ab_json_at(cell, "scale"), *skips = ab_json_at(cell, "skipped_steps");
    fprintf(data, "# %s: scale\n# step  log2_scale\n", label);
    cJSON_ArrayForEach(run, runs) {
        double scale = log2(run->child->valuedouble);
        fprintf(data, "%.0f", step);
        ab_plot_number(data, scale);
        step += run->child->next->valuedouble;
        fprintf(data, "\n%.0f", step);
        ab_plot_number(data, scale);
        fputc('\n', data);
    }
    fprintf(data, "\n\n# %s: skipped steps\n# step  log2_scale\n", label);
    cJSON_ArrayForEach(skip, skips) {
        fprintf(data, "%.0f", skip->valuedouble);
        ab_plot_number(data, log2(scale_at(cell, skip->valuedouble)));
        fputc('\n', data);
    }
    if (!skips || !skips->child)
        fputs("-1 ?\n", data); /* an empty block would shift the numbers of the next ones */
    fputs("\n\n", data);
}

/* ---- page ------------------------------------------------------------------------------------ */

typedef struct range {
    double low, high;
} range;

/* Range of log2(scale) over the cells of the page, with a margin of one octave. */
static range find_range(const cJSON *const *cell, int count) {
    range r = {(double)INFINITY, (double)-INFINITY};
    for (int i = 0; i < count; i++) {
        const cJSON *run, *runs = ab_json_at(cell[i], "scale");
        cJSON_ArrayForEach(run, runs) {
            double scale = log2(run->child->valuedouble);
            if (!isfinite(scale)) continue;
            r.low = fmin(r.low, scale);
            r.high = fmax(r.high, scale);
        }
    }
    if (r.low > r.high) return (range){-1, 1};
    return (range){floor(r.low) - 1, ceil(r.high) + 1};
}

static double most_steps(const cJSON *const *cell, int count) {
    double most = 1;
    for (int i = 0; i < count; i++) most = fmax(most, ab_json_number(cell[i], "steps_total", 0));
    return most;
}

static void write_texts(ab_plot_input *in, const cJSON *cell, int panel, FILE *script) {
    char text[AB_PLOT_LABEL], final[AB_TEXT_NUMBER];
    fprintf(script, "title[%d] = ", panel + 1);
    ab_plot_quote(script, ab_plot_title(in, cell, TITLE, text));
    const cJSON *runs = ab_json_at(cell, "scale"),
                *last = cJSON_GetArrayItem(runs, cJSON_GetArraySize(runs) - 1);
    ab_text_show(text, sizeof text, "%.0f of %.0f steps skipped; scale at the end %s",
                 ab_json_number(cell, "steps_skipped", 0), ab_json_number(cell, "steps_total", 0),
                 ab_text_scale(final, last->child->valuedouble));
    fprintf(script, "; note[%d] = ", panel + 1);
    ab_plot_quote(script, text);
    fputs("; ", script);
    ab_plot_set_color(script, panel + 1, in, cell);
}

static ab_status write_plot(ab_plot_input *in, int page, FILE *data, FILE *script) {
    const cJSON *cell[PER_PAGE];
    char label[AB_PLOT_LABEL];
    int panels = ab_plot_cells(in, choose(in), page, PER_PAGE, cell);
    range r = find_range(cell, panels);
    ab_plot_set_text(script, "subject", ab_plot_subject(in->document, label));
    ab_plot_set_number(script, "panels", panels);
    ab_plot_set_number(script, "width", 1100);
    ab_plot_set_number(script, "height", PANEL_HEIGHT * panels + MARGINS);
    ab_plot_set_number(script, "steps", most_steps(cell, panels));
    ab_plot_set_number(script, "low", r.low);
    ab_plot_set_number(script, "high", r.high);
    fprintf(script, "array title[%d]\narray note[%d]\narray color_of[%d]\n", panels, panels, panels);
    for (int i = 0; i < panels; i++) {
        write_texts(in, cell[i], i, script);
        write_blocks(cell[i], ab_plot_label(in, cell[i], label), data);
    }
    return AB_OK;
}

extern const char ab_embedded_gp_scale[];
extern const ab_plot ab_plot_scale;
const ab_plot ab_plot_scale = {"scale", ab_embedded_gp_scale, pages, write_plot, false, NULL, NULL};
