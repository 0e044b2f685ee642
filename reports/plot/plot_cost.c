/* Cost of a cell: samples per second with the range over the timing rounds, and memory by category. */
#include "kernels/core/mem.h"
#include "kernels/core/text.h"
#include "reports/plot/plot.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

enum { PER_PAGE = 12, ROW_HEIGHT = 34, MARGINS = 176, TITLE = 44 };

static bool accept(const cJSON *cell) {
    return !ab_plot_is_perturbed_baseline(cell) && cJSON_IsNumber(ab_json_at(cell, "memory_bytes.total"));
}

static int pages(ab_plot_input *in) { return ab_plot_page_count(in, accept, PER_PAGE); }

static double figure(const cJSON *cell, const char *key) {
    return ab_json_number(ab_json_at(cell, "summary"), key, (double)NAN);
}

/* Rate in the fastest timing round. */
static double highest_rate(const cJSON *cell) {
    return figure(cell, "samples_per_s") * figure(cell, "step_time_ns") / figure(cell, "step_time_ns_low");
}

/* Row number, rate with its extremes, then the upper ends of the stacked memory categories in MiB. */
static void write_row(ab_plot_input *in, const cJSON *cell, int row, FILE *data) {
    char label[AB_PLOT_LABEL];
    double rate = figure(cell, "samples_per_s"), time = figure(cell, "step_time_ns"), bytes = 0;
    fprintf(data, "%d", row);
    ab_plot_number(data, rate);
    ab_plot_number(data, rate * time / figure(cell, "step_time_ns_high"));
    ab_plot_number(data, highest_rate(cell));
    for (int i = 0; i < AB_MEM_CATEGORY_COUNT; i++) {
        bytes +=
            ab_json_number(ab_json_at(cell, "memory_bytes"), ab_mem_category_name((ab_mem_category)i), 0);
        ab_plot_number(data, bytes / (1024 * 1024));
    }
    fprintf(data, "  # %s\n", ab_plot_label(in, cell, label));
}

static void rate_text(const cJSON *cell, char *text) {
    char rate[AB_TEXT_NUMBER], ratio[AB_TEXT_NUMBER];
    double factor = figure(cell, "ratio_samples_to_o0");
    ab_text_show(text, AB_PLOT_LABEL, "%s (%s)", ab_text_rate(rate, figure(cell, "samples_per_s")),
                 isfinite(factor) ? ab_text_factor(ratio, factor) : "void");
    if (!isfinite(figure(cell, "samples_per_s"))) ab_text_show(text, AB_PLOT_LABEL, "not timed");
}

static void memory_text(const cJSON *cell, char *text) {
    char peak[AB_TEXT_NUMBER], ratio[AB_TEXT_NUMBER];
    double factor = figure(cell, "ratio_bytes_to_o0");
    ab_text_show(text, AB_PLOT_LABEL, "%s (%s)", ab_text_mib(peak, figure(cell, "peak_bytes")),
                 isfinite(factor) ? ab_text_factor(ratio, factor) : "void");
}

static void write_label(FILE *script, const char *array, int row, const char *text) {
    fprintf(script, "%s[%d] = ", array, row);
    ab_plot_quote(script, text);
    fputc('\n', script);
}

static int longest_label(ab_plot_input *in, const cJSON *const *cell, int rows) {
    char label[AB_PLOT_LABEL];
    int longest = 0;
    for (int i = 0; i < rows; i++) {
        int width = ab_text_width(ab_plot_title(in, cell[i], TITLE, label));
        if (width > longest) longest = width;
    }
    return longest;
}

static ab_status write_plot(ab_plot_input *in, int page, FILE *data, FILE *script) {
    const cJSON *cell[PER_PAGE];
    char text[AB_PLOT_LABEL];
    int rows = ab_plot_cells(in, accept, page, PER_PAGE, cell);
    double top_rate = 0, top_memory = 0;
    fputs("# row  samples_per_s  lowest  highest  upper ends of the memory categories, MiB\n", data);
    ab_plot_set_text(script, "subject", ab_plot_subject(in->document, text));
    ab_plot_set_build(script, in->document);
    ab_plot_set_number(script, "rows", rows);
    ab_plot_set_number(script, "width", 1100);
    ab_plot_set_number(script, "left", longest_label(in, cell, rows) * 7 + 40);
    ab_plot_set_number(script, "height", ROW_HEIGHT * rows + MARGINS);
    fprintf(script, "array cell[%d]\narray rate_text[%d]\narray memory_text[%d]\narray color_of[%d]\n", rows,
            rows, rows, rows);
    for (int i = 0; i < rows; i++) {
        write_row(in, cell[i], i + 1, data);
        write_label(script, "cell", i + 1, ab_plot_title(in, cell[i], TITLE, text));
        ab_plot_set_color(script, i + 1, in, cell[i]);
        rate_text(cell[i], text);
        write_label(script, "rate_text", i + 1, text);
        memory_text(cell[i], text);
        write_label(script, "memory_text", i + 1, text);
        top_rate = fmax(top_rate, highest_rate(cell[i]));
        top_memory = fmax(top_memory, figure(cell[i], "peak_bytes") / (1024 * 1024));
    }
    ab_plot_set_number(script, "top_rate", top_rate > 0 ? top_rate : 1);
    ab_plot_set_number(script, "top_memory", top_memory > 0 ? top_memory : 1);
    fprintf(script, "categories = %d\narray category[%d]\n", AB_MEM_CATEGORY_COUNT, AB_MEM_CATEGORY_COUNT);
    for (int i = 0; i < AB_MEM_CATEGORY_COUNT; i++) {
        ab_text_show(text, sizeof text, "%s", ab_mem_category_name((ab_mem_category)i));
        for (char *c = text; (c = strchr(c, '_'));) *c = ' ';
        write_label(script, "category", i + 1, text);
    }
    return AB_OK;
}

extern const char ab_embedded_gp_cost[];
extern const ab_plot ab_plot_cost;
const ab_plot ab_plot_cost = {"cost", ab_embedded_gp_cost, pages, write_plot, false, NULL, NULL};
