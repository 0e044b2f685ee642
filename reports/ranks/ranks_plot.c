/* Error against the number of ranks, a line for each reduction, beside the mini-batch's noise. */
#include "reports/plot/plot.h"
#include "reports/ranks/ranks_result.h"
#include "reports/record/json.h"

#include "kernels/core/text.h"

#include <math.h>

enum { WIDTH = 960, HEIGHT = 480, TITLE = 256 };

extern const char ab_embedded_gp_ranks[];

static int pages(ab_plot_input *in) { return cJSON_GetArraySize(ab_json_at(in->document, "reductions")) > 0; }

static void write_line(FILE *data, const cJSON *reduction, const char *key) {
    const cJSON *outcome = NULL;
    cJSON_ArrayForEach(outcome, ab_json_at(reduction, "outcomes")) {
        const cJSON *value = ab_json_at(outcome, key);
        ab_plot_number(data, ab_json_at(outcome, "ranks")->valuedouble);
        ab_plot_number(data,
                       cJSON_IsNumber(value) && value->valuedouble > 0 ? value->valuedouble : (double)NAN);
        fputc('\n', data);
    }
    fputs("\n\n", data);
}

static ab_status write_plot(ab_plot_input *in, int page, FILE *data, FILE *script) {
    const cJSON *document = in->document;
    (void)page;
    const cJSON *reductions = ab_json_at(document, "reductions"), *reduction = NULL;
    char text[TITLE], name[AB_PLOT_FILE];
    int lines = 0;
    fputs("# ranks  error (last block: noise of the mini-batch)\n", data);
    cJSON_ArrayForEach(reduction, reductions) {
        write_line(data, reduction, "error");
        ab_text_exact(name, sizeof name, "line_%d", ++lines);
        ab_plot_set_text(script, name, ab_json_at(reduction, "label")->valuestring);
    }
    write_line(data, cJSON_GetArrayItem(reductions, 0), "noise");
    ab_text_show(text, sizeof text, "%d micro-batches, %.0f elements; simulated",
                 (int)ab_json_at(document, "micro_batches")->valuedouble,
                 ab_json_at(document, "elements_simulated")->valuedouble);
    ab_plot_set_text(script, "detail", text);
    ab_plot_set_number(script, "lines", lines);
    ab_plot_set_number(script, "width", WIDTH);
    ab_plot_set_number(script, "height", HEIGHT);
    return AB_OK;
}

ab_status ab_ranks_plot(const cJSON *document, const char *folder, const char **note) {
    static const ab_plot plot = {
        .name = "ranks", .drawing = ab_embedded_gp_ranks, .pages = pages, .write = write_plot};
    int rendered = 0;
    return ab_plot_write(&plot, document, folder, &rendered, note);
}
