/* The parts of the HTML report. report_html.c makes the page and calls them in order; html_tables.c has what
 * needs no picture, html_figures.c the pictures, html_diagnosis.c the causes. Text of the document goes
 * through markup.h, every one. */
#ifndef AB_REPORTS_RENDER_HTML_H
#define AB_REPORTS_RENDER_HTML_H

#include "reports/render/grid.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

typedef struct ab_html {
    FILE *out;
    const cJSON *document;
    const ab_grid *grid;
} ab_html;

/* A table's frame. Captions and headings are literals of ours. `id` names the table; headings[i] that start
 * with '#' are of numbers (without the '#' in the page); NULL ends the list. */
void ab_html_table(const ab_html *h, const char *id, const char *caption, const char *const *headings);
void ab_html_end_table(const ab_html *h);

/* One cell. `text` is of anybody; class_name is ours, NULL: none. */
void ab_html_cell(const ab_html *h, const char *class_name, const char *text);
void ab_html_row_head(const ab_html *h, const char *text);

/* Sections, without their frame. */
ab_status ab_html_summary(const ab_html *h);
ab_status ab_html_verdicts(const ab_html *h);
/* What a diagnosis finds; a part of the verdicts. */
ab_status ab_html_diagnosis(const ab_html *h);
ab_status ab_html_levels(const ab_html *h);
ab_status ab_html_figures(const ab_html *h);
ab_status ab_html_numbers(const ab_html *h);
ab_status ab_html_environment(const ab_html *h);
ab_status ab_html_reproduce(const ab_html *h);

AB_END_DECLS

#endif
