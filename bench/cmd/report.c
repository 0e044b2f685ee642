/* `ampbench report RESULT.json`: prints the table of the run, in any output format, from the document alone.
 * The summaries are recomputed, so that the table always follows from the raw record. */
#define _POSIX_C_SOURCE 200809L /* isatty */
#include "reports/render/report.h"
#include "bench/cmd/cmd.h"
#include "kernels/core/log.h"
#include "kernels/core/show.h"
#include "kernels/files/lock.h"
#include "reports/plot/plots.h"
#include "reports/record/json.h"
#include "reports/record/overlay.h"
#include "reports/record/ranks.h"
#include "reports/record/result.h"

#include <fnmatch.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The parsed command line; texts are borrowed from argv. */
typedef struct request {
    char **documents; /* runs, or ranks of one run */
    int count;
    const char *format, *csv, *markdown, *html, *junit, *plots, *color, *cells;
} request;

static void print_help(void) {
    puts("usage: ampbench report RESULT.json... [OPTION]...\n\n"
         "Prints the table of a result document; writes it in other forms; draws its plots.\n"
         "Several documents are runs, shown together under their labels, as table, Markdown, page and plots; "
         "or,\n"
         "if each is a record of ampprobe of a rank of one distributed run, ranks, whose counts are added "
         "up.\n\n"
         "  --format FORMAT   what goes to stdout (default table):");
    for (int i = 0; i < ab_report_count(); i++)
        ab_print(stdout, "                      %-10s%s\n", ab_report_at(i)->name, ab_report_at(i)->text);
    puts("  --csv FILE        write the CSV form to FILE too\n"
         "  --markdown FILE   write the Markdown form to FILE too\n"
         "  --html FILE       write one self-contained page to FILE: tables, plots, how to reproduce\n"
         "  --junit FILE      write JUnit XML to FILE: per cell, did it train, as well as O0, with the same "
         "bits\n"
         "  --plots DIR       write the plots' data and scripts to DIR, and pictures if gnuplot is there\n"
         "  --cells PATTERN   only the cells whose id matches, such as '*/O2/128/*', and O0\n"
         "  --color WHEN      auto (default), always or never; NO_COLOR is honoured\n"
         "  --help            this text");
}

/* ---- options --------------------------------------------------------------------------------- */

static ab_status parse(int argc, char **argv, request *r) {
    const ab_argument arguments[] = {
        {.name = "--format", .value = &r->format},     {.name = "--csv", .value = &r->csv},
        {.name = "--markdown", .value = &r->markdown}, {.name = "--html", .value = &r->html},
        {.name = "--junit", .value = &r->junit},       {.name = "--plots", .value = &r->plots},
        {.name = "--color", .value = &r->color},       {.name = "--cells", .value = &r->cells},
    };
    const ab_argument_list list = {"report", arguments, (int)AB_COUNT_OF(arguments), NULL, false};
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1]) {
            AB_TRY(ab_take_option(&list, argc, argv, &i));
        } else {
            r->documents[r->count++] = argv[i]; /* to the front of argv, which was read already */
        }
    }
    if (!r->count)
        return ab_fail(AB_USAGE, "report: expected a result document (see `ampbench report --help`)");
    return AB_OK;
}

/* auto: a terminal that is not dumb, unless NO_COLOR says otherwise; CLICOLOR_FORCE also without a terminal.
 */
static ab_status choose_color(const char *when, int *color) {
    const char *no_color = getenv("NO_COLOR"), *force = getenv("CLICOLOR_FORCE"), *term = getenv("TERM");
    bool dumb = term && strcmp(term, "dumb") == 0, forced = force && force[0] && strcmp(force, "0") != 0;
    bool automatic = strcmp(when, "auto") == 0;
    if (!automatic && strcmp(when, "always") != 0 && strcmp(when, "never") != 0)
        return ab_fail(AB_USAGE, "report: --color: expected auto, always or never, found '%s'", when);
    *color = strcmp(when, "always") == 0;
    if (automatic && !(no_color && no_color[0])) *color = forced || (!dumb && isatty(STDOUT_FILENO));
    return AB_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */

static ab_status draw_plots(const cJSON *document, const char *folder) {
    int rendered;
    const char *note;
    ab_lock lock;
    AB_TRY(ab_lock_folder("--plots", folder, &lock));
    ab_status status = ab_plots_write(document, folder, &rendered, &note);
    ab_lock_release(&lock);
    AB_TRY(status);
    if (note) ab_warn("%s", note);
    ab_info("%s: %d plots drawn", folder, rendered);
    char undrawn[AB_PLOTS_UNDRAWN];
    if (ab_plots_undrawn_text(document, undrawn))
        ab_info("%s: %s; --cells PATTERN draws those of some cells", folder, undrawn);
    return AB_OK;
}

/* Leaves out the cells whose id does not match; O0 cells, which the others are compared with, stay. */
static ab_status keep_cells(const char *pattern, cJSON *document) {
    cJSON *cells = cJSON_GetObjectItemCaseSensitive(document, "cells"), *next = NULL;
    int matching = 0;
    for (cJSON *cell = cells ? cells->child : NULL; cell; cell = next) {
        next = cell->next;
        const bool matches = fnmatch(pattern, ab_json_text(cell, "id", ""), 0) == 0;
        matching += matches;
        if (matches || strcmp(ab_json_text(cell, "level", ""), "O0") == 0) continue;
        cJSON_Delete(cJSON_DetachItemViaPointer(cells, cell));
    }
    return matching > 0
               ? AB_OK
               : ab_fail(AB_USAGE,
                         "report: --cells: expected a pattern of a cell's id, found '%s', which none "
                         "has; try '*/O2/*'",
                         pattern);
}

/* The other formats name one run. */
static ab_status check_several(const request *r) {
    static const char *const formats[] = {"table", "markdown", "html"};
    bool fits = false;
    for (size_t i = 0; i < AB_COUNT_OF(formats); i++) fits |= strcmp(r->format, formats[i]) == 0;
    if (!fits)
        return ab_fail(AB_USAGE,
                       "report: --format %s: expected one run; several are shown as table, markdown, html",
                       r->format);
    if (r->csv || r->junit)
        return ab_fail(AB_USAGE, "report: %s: expected one run; several are shown as table, markdown, html",
                       r->csv ? "--csv" : "--junit");
    return AB_OK;
}

/* Adds the document of another run. */
static ab_status add_document(const request *r, cJSON *document, int i) {
    cJSON *other = NULL;
    ab_status status;
    AB_TRY_GOTO(ab_result_load(r->documents[i], &other));
    AB_TRY_GOTO(ab_result_summarise(other));
    AB_TRY_GOTO(ab_result_lay_over(document, r->documents[0], i, other, r->documents[i]));
out:
    cJSON_Delete(other);
    return status;
}

/* The document, summarised, with those of the other ranks or runs in it. */
static ab_status load(const request *r, cJSON **document) {
    AB_TRY(ab_result_load(r->documents[0], document));
    if (r->count > 1 && ab_result_is_rank(*document)) {
        cJSON_Delete(*document);
        AB_TRY(ab_result_load_ranks((const char *const *)r->documents, r->count, document));
        return ab_result_summarise(*document);
    }
    if (r->count > 1) AB_TRY(check_several(r));
    AB_TRY(ab_result_summarise(*document));
    for (int i = 1; i < r->count; i++) AB_TRY(add_document(r, *document, i));
    return AB_OK;
}

static ab_status print_report(const request *r, const ab_report *format, int color) {
    cJSON *document = NULL;
    ab_status status;
    AB_TRY_GOTO(load(r, &document));
    if (r->cells) AB_TRY_GOTO(keep_cells(r->cells, document));
    AB_TRY_GOTO(format->write(document, stdout, color));
    if (r->csv) AB_TRY_GOTO(ab_report_to_file("csv", r->csv, document));
    if (r->markdown) AB_TRY_GOTO(ab_report_to_file("markdown", r->markdown, document));
    if (r->html) AB_TRY_GOTO(ab_report_to_file("html", r->html, document));
    if (r->junit) AB_TRY_GOTO(ab_report_to_file("junit", r->junit, document));
    if (r->plots) AB_TRY_GOTO(draw_plots(document, r->plots));
out:
    cJSON_Delete(document);
    return status;
}

ab_status ab_cmd_report(int argc, char **argv) {
    request r = {.documents = argv + 1, .format = "table", .color = "auto"};
    const ab_report *format;
    int color = 0;
    for (int i = 1; i < argc; i++)
        if (ab_is_help(argv[i])) {
            print_help();
            return AB_OK;
        }
    AB_TRY(parse(argc, argv, &r));
    AB_TRY(choose_color(r.color, &color));
    AB_TRY(ab_report_find(r.format, &format));
    return print_report(&r, format, color);
}
