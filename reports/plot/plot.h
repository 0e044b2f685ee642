/* A plot writes numbers into a data file and assignments into a gnuplot script, page by page. The script's
 * drawing commands come from the template plots/<name>.gp, which is compiled in; plots.c assembles the
 * script. */
#ifndef AB_REPORTS_PLOT_PLOT_H
#define AB_REPORTS_PLOT_PLOT_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_PLOT_LABEL = 448, AB_PLOT_FILE = 64 };

typedef struct ab_plot {
    const char *name;
    const char *drawing; /* the template's text */
    /* Number of pages for this document; 0 if there is nothing to show. */
    int (*pages)(const cJSON *document);
    /* Writes data blocks (gnuplot's `index`) and the variables that the template reads, including `width`
     * and `height`. */
    ab_status (*write)(const cJSON *document, int page, FILE *data, FILE *script);
    bool whole; /* shows the run as a whole: drawn however many cells there are */
} ab_plot;

/* Whether pictures of the plot are drawn: those of single cells are not beyond AB_PLOT_MANY cells. */
enum { AB_PLOT_MANY = 30 };
bool ab_plot_is_drawn(const ab_plot *plot, const cJSON *document);

/* The plots of plots.def with their heading and a sentence on what they show. */
typedef struct ab_plot_words {
    const char *heading, *text;
} ab_plot_words;
int ab_plots_count(void);
const ab_plot *ab_plots_at(int i);
const ab_plot_words *ab_plots_words(int i);

/* "loss", "loss-2": base name of a page's files; name[AB_PLOT_FILE]. Returns `name`. */
char *ab_plot_page_name(const ab_plot *plot, int page, char *name);

/* As ab_plots_write (result.h), with SVG instead of PNG. */
AB_MUST_CHECK ab_status ab_plots_write_svg(const cJSON *document, const char *folder, int *rendered,
                                           const char **note);

/* Writes and draws one plot of something other than a result document: `document` is passed to its
 * functions. Otherwise as ab_plots_write (result.h). */
AB_MUST_CHECK ab_status ab_plot_write(const ab_plot *plot, const cJSON *document, const char *folder,
                                      int *rendered, const char **note);

/* Cells of a page: those accepted by `accept` (NULL: all), `per_page` per page. Returns the number written
 * to cell[]. */
int ab_plot_cells(const cJSON *document, bool (*accept)(const cJSON *cell), int page, int per_page,
                  const cJSON **cell);
int ab_plot_page_count(const cJSON *document, bool (*accept)(const cJSON *cell), int per_page);

/* Filters. */
bool ab_plot_is_perturbed_baseline(const cJSON *cell);

/* Colour index of the cell's level, the same in every plot: the levels of the document other than O0, in
 * order of appearance, from 2; O0 and its perturbed baselines have 0 and 1. */
int ab_plot_color(const cJSON *document, const cJSON *cell);

/* "O2, dynamic scale": distinguishes a cell from the others of its document; clean. At least AB_PLOT_LABEL
 * bytes. */
const char *ab_plot_label(const cJSON *document, const cJSON *cell, char *label);

/* "lenet5 on fashion_mnist"; clean. */
const char *ab_plot_subject(const cJSON *document, char *label);

/* Writes a gnuplot string literal: cleaned, in single quotes, in which gnuplot interprets nothing. A quote
 * in the text becomes ’: gnuplot 5.4 misreads two consecutive doubled quotes, and one at the start. */
void ab_plot_quote(FILE *script, const char *text);

/* Write `name = 'text'` and `name = number`. */
void ab_plot_set_text(FILE *script, const char *name, const char *text);
void ab_plot_set_number(FILE *script, const char *name, double value);

/* Writes a number to a data file; "?" (gnuplot's missing value) if it is non-finite. */
void ab_plot_number(FILE *data, double value);

AB_END_DECLS

#endif
