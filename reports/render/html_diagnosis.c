/* Explains in the page why a cell does not train as O0 does: results of diagnose.h, best explanation
 * first. */
#include "reports/diagnose/diagnose.h"
#include "reports/diagnose/known_issues.h"
#include "reports/plot/plot.h"
#include "reports/record/json.h"
#include "reports/render/html.h"
#include "reports/render/markup.h"

#include <stdbool.h>

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
    write_line(h, "Remedy", v->remedy.text);
    write_line(h, "Cannot tell more", v->missing);
}

static void write_known(const ab_html *h, const ab_diagnosis *diagnosis) {
    char text[AB_VERDICT_TEXT];
    for (int i = 0; i < ab_known_issue_count(); i++) {
        const ab_known_issue *problem = ab_known_issue_at(i);
        if (!problem->here(diagnosis, text, sizeof text)) continue;
        fputs("<p>Known problem: ", h->out);
        ab_markup_text(h->out, problem->title);
        fputs(": ", h->out);
        ab_markup_text(h->out, text);
        fprintf(h->out, " <span class=\"faint\">(<code>%s</code>, %s)</span></p>\n", problem->id,
                problem->threads);
    }
}

static void write_cell(const ab_html *h, const cJSON *cell, const ab_diagnosis *diagnosis) {
    char label[AB_PLOT_LABEL];
    fputs("<p><strong>", h->out);
    ab_markup_text(h->out, ab_plot_label(h->document, cell, label));
    fputs(diagnosis->verdicts > 0 ? "</strong></p>\n"
                                  : "</strong>: sick, and none of the known causes is in the record</p>\n",
          h->out);
    for (int i = 0; i < diagnosis->verdicts; i++) write_verdict(h, &diagnosis->verdict[i]);
    write_known(h, diagnosis);
}

/* Output and state of the page. */
typedef struct page {
    const ab_html *h;
    int sick, unlearned;
} page;

static ab_status write_sick(const ab_diagnosis *diagnosis, void *argument) {
    page *p = argument;
    p->unlearned += diagnosis->found.undecided;
    if (!diagnosis->found.sick) return AB_OK;
    if (p->sick++ == 0) fputs("<h3 id=\"diagnosis\">Diagnosis</h3>\n", p->h->out);
    write_cell(p->h, diagnosis->found.facts.cell, diagnosis);
    return AB_OK;
}

ab_status ab_html_diagnosis(const ab_html *h) {
    page p = {.h = h};
    AB_TRY(ab_diagnose_each(h->document, write_sick, &p, NULL));
    if (p.unlearned > 0 && p.sick == 0) fputs("<h3 id=\"diagnosis\">Diagnosis</h3>\n", h->out);
    if (p.unlearned > 0)
        fprintf(h->out,
                "<p>%d %s: O0 itself ended no better than it began (too few steps, or a learning rate that "
                "does not "
                "suit), so a level cannot be told from it.</p>\n",
                p.unlearned, p.unlearned == 1 ? "cell" : "cells");
    return AB_OK;
}
