/* Why a cell does not train as O0 does, in the page: what diagnose.h finds, best explanation first. */
#include "reports/diagnose.h"
#include "reports/html.h"
#include "reports/json.h"
#include "reports/markup.h"
#include "reports/plot.h"

#include <stdbool.h>
#include <stdlib.h>

static void write_line(const ab_html *h, const char *what, const char *text) {
    if (!text[0]) return;
    fprintf(h->out, "<p>%s: ", what);
    ab_markup_text(h->out, text);
    fputs("</p>\n", h->out);
}

static void write_evidence(const ab_html *h, const ab_verdict *v) {
    if (v->evidences > 0) fputs("<ul class=\"notes\">\n", h->out);
    for (int i = 0; i < v->evidences; i++) {
        fputs("<li>", h->out);
        ab_markup_text(h->out, v->evidence[i].text);
        if (v->evidence[i].pointer[0]) {
            fputs(" <code class=\"faint\">", h->out);
            ab_markup_text(h->out, v->evidence[i].pointer);
            fputs("</code>", h->out);
        }
        fputs("</li>\n", h->out);
    }
    if (v->evidences > 0) fputs("</ul>\n", h->out);
}

static void write_verdict(const ab_html *h, const ab_verdict *v) {
    fprintf(h->out, "<h4>%s", v->rule->text);
    if (v->layer[0]) fputs(", ", h->out);
    ab_markup_text(h->out, v->layer);
    fprintf(h->out, " <span class=\"faint\">(<code>%s</code>, %s)</span></h4>\n", v->rule->id,
            ab_verdict_family_name(v->rule->family));
    write_evidence(h, v);
    write_line(h, "Remedy", v->remedy);
    write_line(h, "Cannot tell more", v->missing);
}

static void write_cell(const ab_html *h, const cJSON *cell, const ab_diagnosis *diagnosis) {
    char label[AB_PLOT_LABEL];
    fputs("<p><strong>", h->out);
    ab_markup_text(h->out, ab_plot_label(h->document, cell, label));
    fputs(diagnosis->verdicts > 0 ? "</strong></p>\n"
                                  : "</strong>: sick, and none of the known causes is in the record</p>\n",
          h->out);
    for (int i = 0; i < diagnosis->verdicts; i++) write_verdict(h, &diagnosis->verdict[i]);
}

static ab_status write_cells(const ab_html *h, ab_diagnosis *diagnosis) {
    int index = 0, sick = 0, unlearned = 0;
    const cJSON *cell;
    cJSON_ArrayForEach(cell, ab_json_at(h->document, "cells")) {
        const int here = index++;
        if (ab_plot_is_twin(cell) || cJSON_GetArraySize(ab_json_at(cell, "loss")) == 0) continue;
        AB_TRY(ab_diagnose(h->document, here, diagnosis));
        unlearned += diagnosis->facts.undecided;
        if (!diagnosis->facts.sick) continue;
        if (sick++ == 0) fputs("<h3 id=\"diagnosis\">Diagnosis</h3>\n", h->out);
        write_cell(h, cell, diagnosis);
    }
    if (unlearned > 0 && sick == 0) fputs("<h3 id=\"diagnosis\">Diagnosis</h3>\n", h->out);
    if (unlearned > 0)
        fprintf(h->out,
                "<p>%d %s: O0 itself ended no better than it began (too few steps, or a learning rate that "
                "does not "
                "suit), so a level cannot be told from it.</p>\n",
                unlearned, unlearned == 1 ? "cell" : "cells");
    return AB_OK;
}

ab_status ab_html_diagnosis(const ab_html *h) {
    ab_diagnosis *diagnosis = malloc(sizeof *diagnosis);
    if (!diagnosis) return ab_fail(AB_NO_MEMORY, "out of memory while diagnosing");
    ab_status status = write_cells(h, diagnosis);
    free(diagnosis);
    return status;
}
