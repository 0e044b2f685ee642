/* Parts of the HTML report. report_html.c writes the page and calls them in order; html_tables.c writes
 * tables and texts, html_figures.c figures and causes. All text of the document is
 * written with markup.h. */
#ifndef AB_REPORTS_RENDER_HTML_H
#define AB_REPORTS_RENDER_HTML_H

#include "reports/plot/plot.h"
#include "reports/render/grid.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

typedef struct ab_html {
    FILE *out;
    const cJSON *document;
    const ab_grid *grid;
    ab_plot_naming naming; /* of its cells */
} ab_html;

/* Opens and closes a table. Captions and headings are string literals. `id` names the table. A heading
 * that starts with '#' marks a column of numbers (the '#' is not printed); NULL ends the list. */
void ab_html_table(const ab_html *h, const char *id, const char *caption, const char *const *headings);
void ab_html_end_table(const ab_html *h);

/* Writes one cell. `text` is untrusted; class_name is a string literal, NULL: none. */
void ab_html_cell(const ab_html *h, const char *class_name, const char *text);
void ab_html_row_head(const ab_html *h, const char *text);

/* Sections, without the enclosing element. */
ab_status ab_html_summary(const ab_html *h);
ab_status ab_html_verdicts(const ab_html *h);
/* Diagnosis results; part of the verdicts. */
ab_status ab_html_diagnosis(const ab_html *h);
ab_status ab_html_levels(const ab_html *h);
ab_status ab_html_figures(const ab_html *h);
ab_status ab_html_numbers(const ab_html *h);
ab_status ab_html_environment(const ab_html *h);
ab_status ab_html_reproduce(const ab_html *h);

AB_END_DECLS

#endif
