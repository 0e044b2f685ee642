/* Writes a run's results. All reports are made from the document alone. */
#define _GNU_SOURCE
#include "bench/run/run.h"

#include "kernels/core/log.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"
#include "reports/record/result.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* Folder part of --out's path into folder[PATH_BYTES]: "." if there is none. */
static ab_status folder_of(const char *path, char *folder) {
    const char *slash = strrchr(path, '/');
    const int length = slash == path ? 1 : slash ? (int)(slash - path) : 0;
    return ab_text_path("--out", folder, PATH_BYTES, "%.*s", slash ? length : 1, slash ? path : ".");
}

static ab_status make_folders(const char *folder) {
    char part[PATH_BYTES];
    ab_text_exact(part, sizeof part, "%s", folder);
    for (char *slash = strchr(part + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash) *slash = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return ab_fail(AB_OUTPUT, "--out: cannot make the folder %s: %s", part, strerror(errno));
        if (!slash) return AB_OK;
        *slash = '/';
    }
}

ab_status ab_output_prove(const char *option, const char *path) {
    struct stat about;
    bool existed = stat(path, &about) == 0;
    if (existed && !S_ISREG(about.st_mode) && !S_ISCHR(about.st_mode) && !S_ISFIFO(about.st_mode))
        return ab_fail(AB_OUTPUT, "%s: %s is not a file", option, path);
    FILE *file = fopen(path, "ab");
    if (!file) return ab_fail(AB_OUTPUT, "%s: cannot write %s: %s", option, path, strerror(errno));
    fclose(file);
    if (!existed) unlink(path);
    return AB_OK;
}

ab_status ab_output_prepare(const ab_options *options) {
    static const ab_option_id files[] = {AB_OPTION_out, AB_OPTION_csv, AB_OPTION_markdown, AB_OPTION_html};
    char folder[PATH_BYTES], name[AB_OPTION_NAME];
    AB_TRY(folder_of(options->text[AB_OPTION_out], folder));
    AB_TRY(make_folders(folder));
    for (size_t i = 0; i < AB_COUNT_OF(files); i++)
        if (options->text[files[i]])
            AB_TRY(ab_output_prove(ab_option_name(files[i], name), options->text[files[i]]));
    return AB_OK;
}

static ab_status report_to(const char *report_name, const char *path, const cJSON *document) {
    const ab_report *report;
    AB_TRY(ab_report_find(report_name, &report));
    FILE *out = fopen(path, "w");
    if (!out) return ab_fail(AB_OUTPUT, "cannot write %s: %s", path, strerror(errno));
    ab_status status = report->write(document, out, 0);
    if (fclose(out) != 0 && status == AB_OK)
        status = ab_fail(AB_OUTPUT, "cannot write %s: %s", path, strerror(errno));
    return status;
}

static int wants_color(const ab_options *options) {
    const char *when = options->text[AB_OPTION_color], *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    if (strcmp(when, "always") == 0) return 1;
    if (strcmp(when, "never") == 0 || (no_color && no_color[0]) || (term && strcmp(term, "dumb") == 0))
        return 0;
    return isatty(STDOUT_FILENO);
}

static ab_status plots(const ab_options *options, const cJSON *document) {
    char folder[PATH_BYTES], plots_folder[PATH_BYTES + 8];
    const char *note = NULL;
    int rendered = 0;
    AB_TRY(folder_of(options->text[AB_OPTION_out], folder));
    ab_text_exact(plots_folder, sizeof plots_folder, "%s/plots", folder);
    AB_TRY(ab_plots_write(document, plots_folder, &rendered, &note));
    if (note) ab_warn("plots: %s", note);
    if (!options->given[AB_OPTION_quiet]) ab_print(stderr, "%d plots in %s\n", rendered, plots_folder);
    return AB_OK;
}

ab_status ab_output_reports(const ab_options *options, const cJSON *document) {
    if (options->text[AB_OPTION_json]) {
        AB_TRY(ab_result_write(document, "-"));
    } else {
        const ab_report *table;
        AB_TRY(ab_report_find("table", &table));
        AB_TRY(table->write(document, stdout, wants_color(options)));
    }
    if (options->text[AB_OPTION_csv]) AB_TRY(report_to("csv", options->text[AB_OPTION_csv], document));
    if (options->text[AB_OPTION_markdown])
        AB_TRY(report_to("markdown", options->text[AB_OPTION_markdown], document));
    if (options->text[AB_OPTION_html]) AB_TRY(report_to("html", options->text[AB_OPTION_html], document));
    if (!options->given[AB_OPTION_no_plots]) AB_TRY(plots(options, document));
    if (!options->given[AB_OPTION_quiet]) ab_print(stderr, "result in %s\n", options->text[AB_OPTION_out]);
    return AB_OK;
}
