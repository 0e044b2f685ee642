/* The result table as text cells, without layout. report_table.c and report_markdown.c only arrange it, so
 * they always agree. All strings in it are clean (text.h). */
#ifndef AB_REPORTS_RENDER_GRID_H
#define AB_REPORTS_RENDER_GRID_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

AB_BEGIN_DECLS

enum { AB_GRID_COLUMNS = 19, AB_GRID_TEXT = 336, AB_GRID_LINE = 320 };

typedef enum ab_tone { AB_TONE_PLAIN, AB_TONE_FAINT, AB_TONE_WARN, AB_TONE_BAD, AB_TONE_HEAD } ab_tone;

typedef struct ab_grid_column {
    const char *head[2]; /* two lines for a narrow column */
    const char *title;   /* the same on one line */
    bool left;           /* left-aligned; numbers are right-aligned */
} ab_grid_column;

typedef struct ab_grid_text {
    char text[AB_GRID_TEXT];
    ab_tone tone;
} ab_grid_text;

typedef struct ab_grid_line {
    char text[AB_GRID_LINE];
    ab_tone tone;
} ab_grid_line;

typedef struct ab_grid_lines {
    int count, room;
    ab_grid_line *line;
} ab_grid_lines;

typedef struct ab_grid_row {
    const cJSON *cell; /* of the document; further draws of a floor have no row */
    ab_grid_text at[AB_GRID_COLUMNS];
    ab_grid_line message; /* not "": the cell has no numbers; this is shown instead */
} ab_grid_row;

typedef struct ab_grid {
    int columns, labels; /* the first `labels` columns identify the cell */
    const ab_grid_column *column[AB_GRID_COLUMNS];
    int rows;
    ab_grid_row *row;
    char gap_head[AB_GRID_TEXT];        /* second heading line of the loss gap: the noise floor */
    ab_grid_lines intro, notes, legend; /* above the table; below it; meaning of the columns */
} ab_grid;

/* Fills `grid` from a summarised document. The caller frees it with ab_grid_free, also on error. */
AB_MUST_CHECK ab_status ab_grid_create(const cJSON *document, ab_grid *grid);
void ab_grid_free(ab_grid *grid);

/* Heading line 0 or 1 of column i. */
const char *ab_grid_head(const ab_grid *grid, int i, int line);

AB_END_DECLS

#endif
