/* The whole result as one HTML file: works offline, has no script and loads nothing, follows the light or
 * dark setting of the browser, and can be printed. Figures are drawn by gnuplot; without gnuplot the page
 * says so and keeps its tables. The same document gives the same bytes. */
#include "reports/plot/plot.h"
#include "reports/render/html.h"
#include "reports/render/markup.h"
#include "reports/render/report.h"

#include <string.h>

extern const char ab_embedded_html_css[];

typedef struct section {
    const char *id, *heading;
    ab_status (*write)(const ab_html *h);
} section;

static const section sections[] = {
    {"summary", "Summary", ab_html_summary},
    {"verdicts", "Verdicts", ab_html_verdicts},
    {"levels", "Levels", ab_html_levels},
    {"figures", "Figures", ab_html_figures},
    {"numbers", "Numbers behind the figures", ab_html_numbers},
    {"environment", "Environment", ab_html_environment},
    {"reproduce", "How to reproduce", ab_html_reproduce},
};

static void write_head(const ab_html *h, const char *subject) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<meta name=\"referrer\" content=\"no-referrer\"/>\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
          "'unsafe-inline'\"/>\n"
          "<title>",
          h->out);
    ab_markup_text(h->out, subject);
    fprintf(h->out, " - ampbench</title>\n<style>\n%s</style>\n</head>\n<body>\n", ab_embedded_html_css);
}

static void write_header(const ab_html *h, const char *subject) {
    fputs("<a class=\"skip\" href=\"#main\">Skip to the content</a>\n<header>\n<h1>", h->out);
    ab_markup_text(h->out, subject);
    fputs("</h1>\n", h->out);
    for (int i = 0; i < h->grid->intro.count; i++) {
        const ab_tone tone = h->grid->intro.line[i].tone;
        fprintf(h->out, "<p class=\"%s\">",
                tone == AB_TONE_BAD    ? "bad"
                : tone == AB_TONE_WARN ? "warn"
                                       : "soft");
        ab_markup_text(h->out, h->grid->intro.line[i].text);
        fputs("</p>\n", h->out);
    }
    fputs("<nav aria-label=\"Sections\"><ul>\n", h->out);
    for (size_t i = 0; i < AB_COUNT_OF(sections); i++)
        fprintf(h->out, "<li><a href=\"#%s\">%s</a></li>\n", sections[i].id, sections[i].heading);
    fputs("</ul></nav>\n</header>\n", h->out);
}

static ab_status write_sections(const ab_html *h) {
    fputs("<main id=\"main\">\n", h->out);
    for (size_t i = 0; i < AB_COUNT_OF(sections); i++) {
        fprintf(h->out, "<section id=\"%s\" aria-labelledby=\"%s-heading\">\n<h2 id=\"%s-heading\">%s</h2>\n",
                sections[i].id, sections[i].id, sections[i].id, sections[i].heading);
        AB_TRY(sections[i].write(h));
        fputs("</section>\n", h->out);
    }
    fputs("</main>\n<footer><p>Made by <code>ampbench report --html</code> from the result document "
          "alone.</p></footer>\n"
          "</body>\n</html>\n",
          h->out);
    return AB_OK;
}

static ab_status write_html(const cJSON *document, FILE *out, int color) {
    (void)color;
    ab_grid grid;
    char subject[AB_PLOT_LABEL];
    ab_html h = {out, document, &grid, ab_plot_naming_of(document)};
    ab_status status = ab_grid_create(document, &grid);
    if (status == AB_OK) {
        ab_plot_subject(document, subject);
        write_head(&h, subject);
        write_header(&h, subject);
        status = write_sections(&h);
    }
    ab_grid_free(&grid);
    return status;
}

extern const ab_report ab_report_html;
const ab_report ab_report_html = {"html", "one self-contained page with tables and plots", write_html};
