/* The table as GitHub-flavoured Markdown, for a README or a CI summary. Text of the document is escaped. */
#include "reports/render/grid.h"
#include "reports/render/report.h"

#include <string.h>

/* Puts backslashes before characters with a meaning in Markdown, and uses character references for those
 * with a meaning in HTML or on GitHub (tags, entities, @mentions, #numbers). */
static void print_escaped(const char *text, FILE *out) {
    static const struct {
        char c;
        const char *escaped;
    } references[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'@', "&#64;"}, {'#', "&#35;"}};
    for (; *text; text++) {
        const char *reference = NULL;
        for (size_t i = 0; i < AB_COUNT_OF(references); i++)
            if (references[i].c == *text) reference = references[i].escaped;
        if (reference) {
            fputs(reference, out);
        } else {
            if (strchr("\\`*_{}[]|~!$", *text)) fputc('\\', out);
            fputc(*text, out);
        }
    }
}

static void print_cell(const char *text, bool bold, FILE *out) {
    fputs(bold ? " **" : " ", out);
    print_escaped(text, out);
    fputs(bold ? "** |" : " |", out);
}

static void print_head(const ab_grid *grid, FILE *out) {
    fputc('|', out);
    for (int i = 0; i < grid->columns; i++) print_cell(grid->column[i]->title, false, out);
    fputs("\n|", out);
    for (int i = 0; i < grid->columns; i++) fputs(grid->column[i]->left ? ":---|" : "---:|", out);
    fputc('\n', out);
}

static void print_row(const ab_grid *grid, const ab_grid_row *row, FILE *out) {
    bool empty = row->message.text[0] != '\0';
    fputc('|', out);
    for (int i = 0; i < grid->columns; i++) {
        const char *text = !empty || i < grid->labels ? row->at[i].text
                           : i == grid->labels        ? row->message.text
                                                      : "";
        print_cell(text, i >= grid->labels && text[0] && row->at[i].tone == AB_TONE_BAD, out);
    }
    fputc('\n', out);
}

static void print_list(const ab_grid_lines *lines, FILE *out) {
    for (int i = 0; i < lines->count; i++) {
        fputs("- ", out);
        print_escaped(lines->line[i].text, out);
        fputc('\n', out);
    }
}

static void print_grid(const ab_grid *grid, FILE *out) {
    for (int i = 0; i < grid->intro.count; i++) {
        print_escaped(grid->intro.line[i].text, out);
        fputs(i + 1 < grid->intro.count ? "  \n" : "\n\n", out);
    }
    print_head(grid, out);
    for (int i = 0; i < grid->rows; i++) print_row(grid, &grid->row[i], out);
    fputc('\n', out);
    print_list(&grid->notes, out);
    print_list(&grid->legend, out);
}

static ab_status write_markdown(const cJSON *document, FILE *out, int color) {
    (void)color;
    ab_grid grid;
    ab_status status = ab_grid_create(document, &grid);
    if (status == AB_OK) print_grid(&grid, out);
    ab_grid_free(&grid);
    return status;
}

extern const ab_report ab_report_markdown;
const ab_report ab_report_markdown = {"markdown", "a GitHub-flavoured Markdown table", write_markdown};
