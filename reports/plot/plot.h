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

enum { AB_PLOT_LABEL = 448, AB_PLOT_FILE = 64, AB_PLOT_PANELS = 6, AB_PLOT_FILTERS = 4 };

/* What tells the cells of a document apart, beside level and scale. Looks at every cell. */
enum { AB_PLOT_NAMING_KEYS = 4 };
typedef struct ab_plot_naming {
    bool key[AB_PLOT_NAMING_KEYS], seed;
} ab_plot_naming;
ab_plot_naming ab_plot_naming_of(const cJSON *document);

typedef bool (*ab_plot_filter)(const cJSON *cell);

/* The items of a list that a filter accepts. */
typedef struct ab_plot_selection {
    ab_plot_filter accept;
    const cJSON **item; /* [count]; owned */
    int count;
} ab_plot_selection;

typedef struct ab_plot_level {
    const char *label; /* borrowed from the document */
    int color;
} ab_plot_level;

/* A document as one plot sees it. What looks at every cell is computed once, for all pages. */
typedef struct ab_plot_input {
    const cJSON *document;
    ab_plot_naming naming;
    ab_plot_level *level; /* [levels] but O0 to O3, by label; owned */
    int levels;
    ab_plot_selection selection[AB_PLOT_FILTERS]; /* [selections] */
    int selections, pages;
    bool out_of_memory;
    void *prepared; /* by the plot */
} ab_plot_input;

typedef struct ab_plot {
    const char *name;
    const char *drawing; /* the template's text */
    /* Number of pages for this document; 0 if there is nothing to show. */
    int (*pages)(ab_plot_input *in);
    /* Writes data blocks (gnuplot's `index`) and the variables that the template reads, including `width`
     * and `height`. */
    ab_status (*write)(ab_plot_input *in, int page, FILE *data, FILE *script);
    bool whole; /* shows the run as a whole: drawn however many cells there are */
    /* NULL, or: sets in->prepared to what all pages need of the document; frees it (NULL too). */
    ab_status (*prepare)(ab_plot_input *in);
    void (*release)(void *prepared);
} ab_plot;

/* Makes the input of a plot and counts its pages. The document must outlive it, unchanged. The caller closes
 * it, also after an error. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_plot_open(const ab_plot *plot, const cJSON *document, ab_plot_input *in);
void ab_plot_close(const ab_plot *plot, ab_plot_input *in);

/* Number of pages of a document; 0 also if memory is short. */
int ab_plot_pages(const ab_plot *plot, const cJSON *document);

/* Whether pictures of the plot are drawn: those of single cells are not beyond AB_PLOT_MANY cells. */
enum { AB_PLOT_MANY = 30 };
bool ab_plot_is_drawn(const ab_plot *plot, const cJSON *document);

/* Number of pages whose pictures are drawn. */
int ab_plot_drawn_pages(const ab_plot *plot, const cJSON *document);

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

/* Cells of a page: those accepted by `accept`, `per_page` per page. Returns the number written to cell[]. A
 * plot has at most AB_PLOT_FILTERS filters. */
int ab_plot_cells(ab_plot_input *in, ab_plot_filter accept, int page, int per_page, const cJSON **cell);
int ab_plot_page_count(ab_plot_input *in, ab_plot_filter accept, int per_page);

/* The same of another list of the document; all filters of a plot are of one list. */
int ab_plot_items(ab_plot_input *in, const char *list, ab_plot_filter accept, int page, int per_page,
                  const cJSON **item);
int ab_plot_item_pages(ab_plot_input *in, const char *list, ab_plot_filter accept, int per_page);

/* Filters. */
bool ab_plot_is_perturbed_baseline(const cJSON *cell);

/* The cell took steps and is no perturbed baseline. */
bool ab_plot_is_trained(const cJSON *cell);

/* Colour index of the cell's level, the same in every plot: O0 and its perturbed baselines have 0 and 1, O1
 * to O3 2 to 4, the other levels of the document follow in order of appearance. `level` of style.gp has the
 * colours. */
int ab_plot_color(const ab_plot_input *in, const cJSON *cell);
/* Writes `color_of[index] = ...`. */
void ab_plot_set_color(FILE *script, int index, const ab_plot_input *in, const cJSON *cell);

/* The fixed loss scale, or NAN if it changes by itself; *skips: overflowed steps are skipped at it. */
double ab_plot_fixed_scale(const cJSON *cell, bool *skips);

/* "O2, dynamic scale": distinguishes a cell from the others of its document; clean. At least AB_PLOT_LABEL
 * bytes. */
const char *ab_plot_name(const ab_plot_naming *naming, const cJSON *cell, char *label);
const char *ab_plot_label(const ab_plot_input *in, const cJSON *cell, char *label);

/* The same in at most `columns` columns, which are at least 40. */
const char *ab_plot_title(const ab_plot_input *in, const cJSON *cell, int columns, char *label);

/* Rows of a key across a picture for `count` entries of at most `longest` columns. */
int ab_plot_key_rows(int longest, int count);

/* Ends of the axes of up to AB_PLOT_PANELS panels, from the largest value of each: one for all, but for
 * panels whose own is more than twice the median, which it would flatten the others. */
void ab_plot_share_tops(double *peak, int count);

/* "lenet5 on fashion_mnist"; clean. */
const char *ab_plot_subject(const cJSON *document, char *label);

/* Writes a gnuplot string literal: cleaned, in single quotes, in which gnuplot interprets nothing. A quote
 * in the text becomes ’: gnuplot 5.4 misreads two consecutive doubled quotes, and one at the start. */
void ab_plot_quote(FILE *script, const char *text);

/* Write `name = 'text'` and `name = number`. */
void ab_plot_set_text(FILE *script, const char *name, const char *text);
void ab_plot_set_number(FILE *script, const char *name, double value);

/* Writes `build_note`: "; speeds of a Debug build: ..." for a build whose speeds do not count, else "". */
void ab_plot_set_build(FILE *script, const cJSON *document);

/* Writes a number to a data file; "?" (gnuplot's missing value) if it is non-finite. */
void ab_plot_number(FILE *data, double value);

AB_END_DECLS

#endif
