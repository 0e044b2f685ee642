/* Figures of the page: the plots' own scripts, drawn as SVG into a temporary folder and embedded through
 * the SVG filter of markup.h. Without gnuplot a note is shown instead. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include "kernels/core/log.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"
#include "reports/diagnose/diagnose.h"
#include "reports/diagnose/known_issues.h"
#include "reports/diagnose/story.h"
#include "reports/plot/plot.h"
#include "reports/plot/plots.h"
#include "reports/record/json.h"
#include "reports/render/html.h"
#include "reports/render/markup.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096, LARGEST = 64 << 20 };

/* Returns the whole file with a terminating NUL; NULL if it is missing or not one of our images. The
 * caller frees it. */
static char *read_file(const char *folder, const char *name) {
    char path[PATH];
    char *text = NULL;
    if (!ab_text_fits(path, sizeof path, "%s/%s.svg", folder, name)) return NULL;
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (size > 0 && size < LARGEST) text = malloc((size_t)size + 1);
    if (text) {
        rewind(file);
        text[fread(text, 1, (size_t)size, file)] = '\0';
    }
    fclose(file);
    return text;
}

static void remove_folder(const char *folder) {
    char path[PATH];
    DIR *open_folder = opendir(folder);
    if (!open_folder) return;
    for (const struct dirent *entry; (entry = readdir(open_folder));) {
        if (entry->d_name[0] == '.') continue;
        if (ab_text_fits(path, sizeof path, "%s/%s", folder, entry->d_name)) unlink(path);
    }
    closedir(open_folder);
    rmdir(folder);
}

static ab_status write_picture(const ab_html *h, const char *name, char *svg) {
    char *copy = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&copy, &size);
    const char *refused = memory ? ab_markup_svg(memory, svg, name) : "no memory";
    bool failed = memory && fclose(memory) != 0;
    if (refused || failed)
        fprintf(h->out, "<p class=\"note\">This picture was left out: %s.</p>\n",
                refused ? refused : "no memory");
    else
        fwrite(copy, 1, size, h->out);
    free(copy);
    return AB_OK;
}

static ab_status write_page(const ab_html *h, int plot, int page, int pages, const char *folder) {
    char name[AB_PLOT_FILE];
    const ab_plot *p = ab_plots_at(plot);
    const ab_plot_words *words = ab_plots_words(plot);
    ab_plot_page_name(p, page, name);
    char *svg = read_file(folder, name);
    if (!svg) return AB_OK;
    fprintf(h->out, "<figure id=\"%s\">\n<h3 id=\"%s-title\">%s", name, name, words->heading);
    if (pages > 1) fprintf(h->out, " (%d of %d)", page + 1, pages);
    fprintf(h->out, "</h3>\n<figcaption>%s</figcaption>\n", words->text);
    fprintf(h->out, "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-labelledby=\"%s-title\">\n",
            name);
    ab_status status = write_picture(h, name, svg);
    free(svg);
    fputs("</div>\n</figure>\n", h->out);
    return status;
}

static ab_status write_all(const ab_html *h, const char *folder) {
    for (int plot = 0; plot < ab_plots_count(); plot++) {
        const int pages = ab_plot_drawn_pages(ab_plots_at(plot), h->document);
        for (int page = 0; page < pages; page++) AB_TRY(write_page(h, plot, page, pages, folder));
    }
    return AB_OK;
}

static void write_undrawn(const ab_html *h) {
    char text[AB_PLOTS_UNDRAWN];
    if (!ab_plots_undrawn_text(h->document, text)) return;
    fprintf(
        h->out,
        "<p class=\"note\">%s. A page of some cells has theirs: <code>ampbench report RESULT.json --cells "
        "PATTERN --html FILE</code>, where the pattern is one of cells' ids, such as '*/O2/128/*'.</p>\n",
        text);
}

static const char missing[] = "<p class=\"note\">There are no pictures: gnuplot was not found, or failed, "
                              "where this page was made. Their numbers are in "
                              "the <a href=\"#numbers\">tables below</a>; <code>ampbench report RESULT.json "
                              "--plots DIR</code> writes data and "
                              "scripts to draw them with.</p>\n";

ab_status ab_html_figures(const ab_html *h) {
    char folder[PATH];
    const char *base = getenv("TMPDIR"), *note = NULL;
    int rendered = 0;
    AB_TRY(ab_text_path("TMPDIR", folder, sizeof folder, "%s/ampbench-html-XXXXXX",
                        base && base[0] ? base : "/tmp"));
    if (!mkdtemp(folder))
        return ab_fail(AB_OUTPUT, "%s: cannot make a folder for the pictures: %s", folder, strerror(errno));
    ab_status status = ab_plots_write_svg(h->document, folder, &rendered, &note);
    if (status == AB_OK && rendered == 0) fputs(missing, h->out);
    if (status == AB_OK && rendered == 0 && note)
        ab_warn("the page has no pictures: gnuplot was not found or failed");
    if (status == AB_OK && rendered > 0 && note)
        ab_warn("the page lacks a picture: gnuplot failed on at least one plot");
    if (status == AB_OK) status = write_all(h, folder);
    if (status == AB_OK) write_undrawn(h);
    remove_folder(folder);
    return status;
}

/* Explains in the page why a cell does not train as O0 does: results of diagnose.h, best explanation
 * first. */

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

/* A cell with the causes and remedies of another one. */
static void write_repeated(const ab_html *h, const ab_diagnosis *diagnosis, const char *first) {
    char label[AB_PLOT_LABEL], causes[AB_VERDICT_TEXT];
    const cJSON *cell, *cells = ab_json_at(h->document, "cells");
    fputs("<p><strong>", h->out);
    ab_markup_text(h->out, ab_plot_name(&h->naming, diagnosis->found.facts.cell, label));
    fputs("</strong>: ", h->out);
    ab_markup_text(h->out, ab_story_causes(diagnosis, causes));
    fputs(", as ", h->out);
    cJSON_ArrayForEach(cell, cells) {
        if (strcmp(ab_json_text(cell, "id", ""), first) == 0) break;
    }
    ab_markup_text(h->out, cell ? ab_plot_name(&h->naming, cell, label) : first);
    fputs("</p>\n", h->out);
}

static void write_cell(const ab_html *h, const cJSON *cell, const ab_diagnosis *diagnosis) {
    char label[AB_PLOT_LABEL];
    fputs("<p><strong>", h->out);
    ab_markup_text(h->out, ab_plot_name(&h->naming, cell, label));
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
    ab_stories stories;
} page;

static ab_status write_sick(const ab_diagnosis *diagnosis, void *argument) {
    page *p = argument;
    const char *first;
    p->unlearned += diagnosis->found.undecided;
    if (!diagnosis->found.sick) return AB_OK;
    if (p->sick++ == 0) fputs("<h3 id=\"diagnosis\">Diagnosis</h3>\n", p->h->out);
    AB_TRY(ab_stories_find(&p->stories, diagnosis, &first));
    if (first)
        write_repeated(p->h, diagnosis, first);
    else
        write_cell(p->h, diagnosis->found.facts.cell, diagnosis);
    return AB_OK;
}

ab_status ab_html_diagnosis(const ab_html *h) {
    page p = {.h = h};
    const cJSON *cells = ab_json_at(h->document, "cells");
    if (cells && ab_json_at(cells->child, "of_run")) {
        fputs("<p>Several runs are laid over each other: <code>ampbench diagnose</code> of each document "
              "says why "
              "its cells do not train as O0 does.</p>\n",
              h->out);
        return AB_OK;
    }
    const ab_status status = ab_diagnose_each(h->document, write_sick, &p, NULL);
    ab_stories_free(&p.stories);
    AB_TRY(status);
    if (p.unlearned > 0 && p.sick == 0) fputs("<h3 id=\"diagnosis\">Diagnosis</h3>\n", h->out);
    if (p.unlearned > 0)
        fprintf(h->out,
                "<p>%d %s: O0 itself ended no better than it began (too few steps, or a learning rate that "
                "does not "
                "suit), so a level cannot be told from it.</p>\n",
                p.unlearned, p.unlearned == 1 ? "cell" : "cells");
    return AB_OK;
}
