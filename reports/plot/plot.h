/* What a plot is: it writes numbers into a data file and assignments into a gnuplot script, page by page. The
 * script's drawing commands are its template, plots/<name>.gp, which is compiled in; plots.c puts the parts
 * together. */
#ifndef AB_REPORTS_PLOT_PLOT_H
#define AB_REPORTS_PLOT_PLOT_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_PLOT_LABEL = 96, AB_PLOT_FILE = 64 };

typedef struct ab_plot {
    const char *name;
    const char *drawing; /* the template's text */
    /* Pages this document needs; 0 when it has nothing to show. */
    int (*pages)(const cJSON *document);
    /* Writes data blocks (gnuplot's `index`) and the variables that the template reads, `width` and `height`
     * among them. */
    ab_status (*write)(const cJSON *document, int page, FILE *data, FILE *script);
} ab_plot;

/* The plots of plots.def, and the words that go with each: a heading, and a sentence on what is to be seen.
 */
typedef struct ab_plot_words {
    const char *heading, *text;
} ab_plot_words;
int ab_plots_count(void);
const ab_plot *ab_plots_at(int i);
const ab_plot_words *ab_plots_words(int i);

/* "loss", "loss-2": a page's files without their endings; name[AB_PLOT_FILE]. Returns `name`. */
char *ab_plot_page_name(const ab_plot *plot, int page, char *name);

/* As ab_plots_write (result.h), with SVG in place of PNG. */
AB_MUST_CHECK ab_status ab_plots_write_svg(const cJSON *document, const char *folder, int *rendered,
                                           const char **note);

/* Writes and draws one plot that is not of a result document: `document` is whatever its functions read. As
 * ab_plots_write (result.h) otherwise. */
AB_MUST_CHECK ab_status ab_plot_write(const ab_plot *plot, const cJSON *document, const char *folder,
                                      int *rendered, const char **note);

/* Cells of a page: those that `accept` (NULL: all), `per_page` at a time. Returns how many were put into
 * cell[]. */
int ab_plot_cells(const cJSON *document, bool (*accept)(const cJSON *cell), int page, int per_page,
                  const cJSON **cell);
int ab_plot_page_count(const cJSON *document, bool (*accept)(const cJSON *cell), int per_page);

/* Filters. */
bool ab_plot_is_perturbed_baseline(const cJSON *cell);

/* "O2, dynamic scale": what tells a cell from the others of its document; clean. At least AB_PLOT_LABEL
 * bytes. */
const char *ab_plot_label(const cJSON *document, const cJSON *cell, char *label);

/* "lenet5 on fashion_mnist"; clean. */
const char *ab_plot_subject(const cJSON *document, char *label);

/* A gnuplot string literal: cleaned, in single quotes, in which gnuplot interprets nothing. A quote in the
 * text becomes ’: gnuplot 5.4 misreads two doubled quotes in a row, and one at the start. */
void ab_plot_quote(FILE *script, const char *text);

/* `name = 'text'`, `name = number`. */
void ab_plot_set_text(FILE *script, const char *name, const char *text);
void ab_plot_set_number(FILE *script, const char *name, double value);

/* A number in a data file; "?" (gnuplot's missing value) when it is not finite. */
void ab_plot_number(FILE *data, double value);

AB_END_DECLS

#endif
