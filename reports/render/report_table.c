/* The table for a terminal: aligned columns within 120 characters, a legend, optional colour. */
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/text.h"
#include "reports/render/grid.h"
#include "reports/render/report.h"

#include <string.h>

enum { WIDTH = 120, INDENT = 4, NARROW = 14, NARROWEST = 10, WIDEST_LABEL = 20, SHORT_LABEL = 12 };

typedef struct page {
    FILE *out;
    int color;
    int gap;   /* spaces between columns */
    int label; /* longer labels have a line of their own above their row */
    int width[AB_GRID_COLUMNS];
} page;

static void begin_tone(const page *p, ab_tone tone) {
    static const char *const codes[] = {[AB_TONE_PLAIN] = "",
                                        [AB_TONE_FAINT] = "\033[2m",
                                        [AB_TONE_WARN] = "\033[33m",
                                        [AB_TONE_BAD] = "\033[31m",
                                        [AB_TONE_HEAD] = "\033[1m"};
    if (p->color) fputs(codes[tone], p->out);
}

static void end_tone(const page *p, ab_tone tone) {
    if (p->color && tone != AB_TONE_PLAIN) fputs("\033[0m", p->out);
}

static void print_toned(const page *p, ab_tone tone, const char *text) {
    begin_tone(p, tone);
    fputs(text, p->out);
    end_tone(p, tone);
}

/* `last`: no trailing spaces at the end of a line. */
static void print_text(const page *p, const ab_grid *grid, int i, ab_tone tone, const char *text) {
    char shown[AB_GRID_TEXT];
    ab_text_show(shown, sizeof shown, "%s", text);
    ab_text_elide(shown, p->width[i]);
    int pad = p->width[i] - ab_text_width(shown);
    bool left = grid->column[i]->left, last = i == grid->columns - 1;
    if (i > 0) ab_print(p->out, "%*s", p->gap, "");
    if (!left) ab_print(p->out, "%*s", pad, "");
    print_toned(p, tone, shown);
    if (left && !last) ab_print(p->out, "%*s", pad, "");
}

/* ---- layout ---------------------------------------------------------------------------------- */

static void widen(page *p, int i, const char *text) {
    int width = ab_text_width(text);
    if (width > p->width[i]) p->width[i] = width;
}

static int total_width(const page *p, const ab_grid *grid) {
    int total = p->gap * (grid->columns - 1);
    for (int i = 0; i < grid->columns; i++) total += p->width[i];
    return total;
}

/* The last column, a layer's name. */
static void shrink_last(page *p, const ab_grid *grid, int least) {
    int *last = &p->width[grid->columns - 1], excess = total_width(p, grid) - WIDTH;
    if (excess > 0 && *last > least) *last = *last - excess > least ? *last - excess : least;
}

/* Shrinks the last column first, then the space between columns, then the last one to where a name is no
 * longer told from others. */
static void fit(page *p, const ab_grid *grid) {
    shrink_last(p, grid, NARROW);
    if (total_width(p, grid) > WIDTH) p->gap = 1;
    shrink_last(p, grid, NARROWEST);
}

/* A level with overrides, which has a line of its own above its row. */
static bool is_long(const page *p, const ab_grid *grid, int i, const char *text) {
    return i < grid->labels && ab_text_width(text) > p->label;
}

static void print_long_labels(const page *p, const ab_grid *grid, const ab_grid_row *row) {
    for (int i = 0; i < grid->labels; i++) {
        if (!is_long(p, grid, i, row->at[i].text)) continue;
        print_toned(p, row->at[i].tone, row->at[i].text);
        fputc('\n', p->out);
    }
}

static void measure_columns(page *p, const ab_grid *grid) {
    for (int i = 0; i < grid->columns; i++) {
        widen(p, i, ab_grid_head(grid, i, 0));
        widen(p, i, ab_grid_head(grid, i, 1));
        for (int r = 0; r < grid->rows; r++)
            if ((i < grid->labels || !grid->row[r].message.text[0]) &&
                !is_long(p, grid, i, grid->row[r].at[i].text))
                widen(p, i, grid->row[r].at[i].text);
    }
    fit(p, grid);
}

/* Where the columns do not fit, fewer labels stand in their row. */
static void measure(page *p, const ab_grid *grid) {
    const page empty = *p;
    p->label = WIDEST_LABEL;
    measure_columns(p, grid);
    if (total_width(p, grid) <= WIDTH) return;
    *p = empty;
    p->label = SHORT_LABEL;
    measure_columns(p, grid);
}

/* Wraps at spaces; lines after the first are indented. */
static void print_wrapped(const page *p, ab_tone tone, const char *text) {
    int column = 0;
    begin_tone(p, tone);
    while (*text) {
        size_t length = strcspn(text, " ");
        char word[AB_GRID_LINE];
        memcpy(word, text, length);
        word[length] = '\0';
        int width = ab_text_width(word);
        if (column > 0 && column + 1 + width > WIDTH)
            column = ab_print(p->out, "\n%*s", INDENT, "") - 1;
        else if (column > 0)
            column += fprintf(p->out, " ");
        fputs(word, p->out);
        column += width;
        text += length + (text[length] == ' ');
    }
    end_tone(p, tone);
    fputc('\n', p->out);
}

static void print_lines(const page *p, const ab_grid_lines *lines) {
    for (int i = 0; i < lines->count; i++) print_wrapped(p, lines->line[i].tone, lines->line[i].text);
}

/* ---- the table ------------------------------------------------------------------------------- */

static void print_head(const page *p, const ab_grid *grid) {
    for (int line = 0; line < 2; line++) {
        for (int i = 0; i < grid->columns; i++)
            print_text(p, grid, i, AB_TONE_HEAD, ab_grid_head(grid, i, line));
        fputc('\n', p->out);
    }
}

static void print_row(const page *p, const ab_grid *grid, const ab_grid_row *row) {
    bool empty = row->message.text[0] != '\0';
    int columns = empty ? grid->labels : grid->columns, used = 0;
    print_long_labels(p, grid, row);
    for (int i = 0; i < columns; i++) {
        print_text(p, grid, i, row->at[i].tone, is_long(p, grid, i, row->at[i].text) ? "" : row->at[i].text);
        used += p->width[i] + p->gap;
    }
    if (empty) {
        char message[AB_GRID_LINE];
        memcpy(message, row->message.text, sizeof message);
        ab_text_elide(message, WIDTH > used ? WIDTH - used : 0);
        ab_print(p->out, "%*s", p->gap, "");
        print_toned(p, row->message.tone, message);
    }
    fputc('\n', p->out);
}

static void print_grid(page *p, const ab_grid *grid) {
    measure(p, grid);
    print_lines(p, &grid->intro);
    fputc('\n', p->out);
    print_head(p, grid);
    for (int i = 0; i < grid->rows; i++) print_row(p, grid, &grid->row[i]);
    fputc('\n', p->out);
    print_lines(p, &grid->notes);
    if (grid->notes.count > 0) fputc('\n', p->out);
    print_lines(p, &grid->legend);
}

static ab_status write_table(const cJSON *document, FILE *out, int color) {
    ab_grid grid;
    page p = {.out = out, .color = color, .gap = 2};
    ab_status status = ab_grid_create(document, &grid);
    if (status == AB_OK) print_grid(&p, &grid);
    ab_grid_free(&grid);
    return status;
}

extern const ab_report ab_report_table;
const ab_report ab_report_table = {"table", "aligned columns for a terminal", write_table};
