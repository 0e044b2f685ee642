/* Skips against flushes, a point for each scaler; of a log, which tells no flushes, against the mean scale.
 */
#include "reports/plot/plot.h"
#include "reports/record/json.h"
#include "reports/replay/replay_result.h"

#include "kernels/core/text.h"

#include <math.h>

enum { WIDTH = 960, HEIGHT = 540, TITLE = 256, LABELS = 24 };

extern const char ab_embedded_gp_replay[];

static int pages(ab_plot_input *in) { return cJSON_GetArraySize(ab_json_at(in->document, "scalers")) > 0; }

static bool is_log(const cJSON *document) {
    return cJSON_IsNull(ab_json_at(document, "recorded.flushed_share"));
}

static double cost(const cJSON *outcome, bool log) {
    return ab_json_number(outcome, log ? "mean_log2_scale" : "flushed_share", (double)NAN);
}

/* Shares of 0 are drawn at the edge: the smallest share of the document over ten. */
static double smallest(const cJSON *document) {
    double least = 1;
    const cJSON *row;
    cJSON_ArrayForEach(row, ab_json_at(document, "scalers")) {
        const double share = cost(ab_json_at(row, "most"), false);
        if (share > 0) least = fmin(least, share);
    }
    return fmax(least / 10, 1e-12);
}

static void write_point(FILE *data, const cJSON *row, bool log, double edge) {
    const cJSON *least = ab_json_at(row, "least"), *most = ab_json_at(row, "most");
    const double x = cost(most, log), low = ab_json_number(least, "skipped", 0),
                 high = ab_json_number(most, "skipped", 0);
    ab_plot_number(data, log ? x : fmax(x, edge));
    ab_plot_number(data, (low + high) / 2);
    ab_plot_number(data, fmin(low, high));
    ab_plot_number(data, fmax(low, high));
    fputc('\n', data);
}

static void write_points(FILE *data, const cJSON *document, bool best, double edge) {
    const cJSON *row;
    cJSON_ArrayForEach(row, ab_json_at(document, "scalers")) {
        if (ab_json_is_true(row, "best") == best) write_point(data, row, is_log(document), edge);
    }
    if (!best) write_point(data, NULL, true, edge); /* a block without a line would be no block */
    fputs("\n\n", data);
}

/* Whether a best one before it is drawn at nearly the same place; then it gets no name. */
static bool is_covered(const cJSON *rows, const cJSON *row, bool log) {
    const cJSON *other;
    const double x = cost(ab_json_at(row, "most"), log), y = ab_json_number(row, "most.skipped", 0);
    cJSON_ArrayForEach(other, rows) {
        if (other == row) return false;
        const double x2 = cost(ab_json_at(other, "most"), log), y2 = ab_json_number(other, "most.skipped", 0);
        const bool close = log ? fabs(x - x2) < 0.5 : fmax(x, x2) <= 1.5 * fmin(x, x2);
        if (ab_json_is_true(other, "best") && close && fabs(y - y2) <= 0.05 * fmax(y, y2)) return true;
    }
    return false;
}

/* Names of the best ones, in the order of their points. */
static void write_names(FILE *script, const cJSON *document) {
    const cJSON *row, *rows = ab_json_at(document, "scalers");
    char name[AB_PLOT_FILE];
    int labels = 0;
    cJSON_ArrayForEach(row, rows) {
        if (!ab_json_is_true(row, "best") || labels == LABELS) continue;
        ab_text_exact(name, sizeof name, "name_%d", ++labels);
        ab_plot_set_text(script, name,
                         is_covered(rows, row, is_log(document)) ? "" : ab_json_text(row, "scaler", ""));
    }
    ab_plot_set_number(script, "names", labels);
}

static ab_status write_plot(ab_plot_input *in, int page, FILE *data, FILE *script) {
    const cJSON *document = in->document;
    char text[TITLE];
    const bool log = is_log(document);
    const double edge = smallest(document);
    (void)page;
    fputs("# cost  skips  least  most (blocks: best, others, recorded)\n", data);
    write_points(data, document, true, edge);
    write_points(data, document, false, edge);
    const cJSON *recorded = ab_json_at(document, "recorded");
    ab_plot_number(data, log ? cost(recorded, log) : fmax(cost(recorded, log), edge));
    ab_plot_number(data, ab_json_number(recorded, "skipped", 0));
    fputs("\n\n", data);
    write_names(script, document);
    ab_text_show(text, sizeof text, "%.0f steps of %s", ab_json_number(document, "steps", 0),
                 ab_json_text(document, "cell", ab_json_text(document, "path", "")));
    ab_plot_set_text(script, "detail", text);
    ab_plot_set_number(script, "log_cost", !log);
    ab_plot_set_text(script, "cost_name",
                     log ? "mean scale, as a power of two (higher flushes less)"
                         : "share of the non-zero gradient values that are flushed to zero");
    ab_plot_set_number(script, "width", WIDTH);
    ab_plot_set_number(script, "height", HEIGHT);
    return AB_OK;
}

ab_status ab_replay_plot(const cJSON *document, const char *folder, const char **note) {
    static const ab_plot plot = {
        .name = "replay", .drawing = ab_embedded_gp_replay, .pages = pages, .write = write_plot};
    int rendered = 0;
    return ab_plot_write(&plot, document, folder, &rendered, note);
}
