/* What plots write into their gnuplot scripts and data files. */
#include "reports/plot/plot.h"

#include "kernels/core/text.h"
#include "reports/record/build.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>

const char *ab_plot_subject(const cJSON *document, char *label) {
    char net[40], data[40];
    ab_text_clean(net, sizeof net, ab_json_text(document, "config.net", "?"));
    ab_text_clean(data, sizeof data, ab_json_text(document, "config.data", "?"));
    ab_text_show(label, AB_PLOT_LABEL, "%s on %s", net, data);
    return label;
}

void ab_plot_quote(FILE *script, const char *text) {
    char clean[256];
    fputc('\'', script);
    for (const char *c = ab_text_clean(clean, sizeof clean, text); *c; c++) {
        if (*c == '\'')
            fputs("\xe2\x80\x99", script);
        else
            fputc(*c, script);
    }
    fputc('\'', script);
}

void ab_plot_set_text(FILE *script, const char *name, const char *text) {
    fprintf(script, "%s = ", name);
    ab_plot_quote(script, text);
    fputc('\n', script);
}

void ab_plot_set_number(FILE *script, const char *name, double value) {
    if (isfinite(value))
        fprintf(script, "%s = %.10g\n", name, value);
    else
        fprintf(script, "%s = NaN\n", name);
}

void ab_plot_set_build(FILE *script, const cJSON *document) {
    char text[AB_BUILD_TEXT], note[AB_BUILD_TEXT + 2] = "";
    const char *warning = ab_build_warning(ab_json_at(document, "generator"), text);
    if (warning) ab_text_show(note, sizeof note, "; %s", warning);
    ab_plot_set_text(script, "build_note", note);
}

void ab_plot_number(FILE *data, double value) {
    if (isfinite(value))
        fprintf(data, " %.9g", value);
    else
        fputs(" ?", data);
}
