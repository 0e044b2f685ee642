/* Writes a run's results. All reports are made from the document alone. */
#define _GNU_SOURCE
#include "bench/run/run.h"

#include "kernels/core/log.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"
#include "kernels/files/outfile.h"
#include "reports/plot/plots.h"
#include "reports/record/json.h"
#include "reports/record/result.h"
#include "reports/render/report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* Folder part of the path that an option names into folder[PATH_BYTES]: "." if there is none. */
static ab_status folder_of(const char *option, const char *path, char *folder) {
    const char *slash = strrchr(path, '/');
    const int length = slash == path ? 1 : slash ? (int)(slash - path) : 0;
    return ab_text_path(option, folder, PATH_BYTES, "%.*s", slash ? length : 1, slash ? path : ".");
}

static ab_status make_folder_of(const char *option, const char *path) {
    char folder[PATH_BYTES];
    AB_TRY(folder_of(option, path, folder));
    ab_status status = ab_folder_make(folder);
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "%s", option);
}

ab_status ab_output_check_writable(const char *option, const char *path) {
    struct stat about;
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        return ab_fail(AB_OUTPUT, "%s: %s is not a file", option, path);
    AB_TRY(make_folder_of(option, path));
    ab_status status = ab_outfile_check_writable(path);
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "%s", option);
}

ab_status ab_output_lock(const char *option, const char *path, ab_lock *lock) {
    if (lock->path) return AB_OK;
    AB_TRY(ab_lock_file(option, path, lock));
    char *journal = ab_sibling_path(path, "", ".journal");
    ab_outfile_remove_stale(path);
    if (journal) ab_outfile_remove_stale(journal);
    free(journal);
    return AB_OK;
}

/* Whether the path, or what follows "NAME:" in it, is the file `about`. */
static bool is_same_file(const char *path, const struct stat *about) {
    struct stat other;
    const char *rest = path ? strchr(path, ':') : NULL;
    if (!path) return false;
    if (stat(path, &other) == 0 && other.st_dev == about->st_dev && other.st_ino == about->st_ino)
        return true;
    return rest && is_same_file(rest + 1, about);
}

/* Refuses to overwrite a file that the run reads. */
static ab_status check_no_input(const ab_options *options, const char *option, const char *path) {
    static const ab_option_id inputs[] = {AB_OPTION_net, AB_OPTION_init, AB_OPTION_init_map, AB_OPTION_data,
                                          AB_OPTION_resume_from};
    char name[AB_OPTION_NAME];
    struct stat about;
    if (stat(path, &about) != 0) return AB_OK;
    for (size_t i = 0; i < AB_COUNT_OF(inputs); i++)
        if (is_same_file(options->text[inputs[i]], &about))
            return ab_fail(AB_USAGE, "%s %s: expected another file than %s reads", option, path,
                           ab_option_name(inputs[i], name));
    return AB_OK;
}

/* Refuses to replace a file other than an empty one or a document that ampbench wrote. */
static ab_status check_replaceable(const char *path) {
    struct stat about;
    cJSON *document = NULL;
    if (lstat(path, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size == 0) return AB_OK;
    const ab_status status = ab_json_load(path, &document);
    const bool ours = status == AB_OK && strncmp(ab_json_text(document, "schema", ""), "ampbench", 8) == 0;
    cJSON_Delete(document);
    if (ours) return AB_OK;
    return ab_fail(AB_USAGE,
                   "--out %s: expected no file or a document that ampbench wrote, found another file", path);
}

static ab_status plots_folder_of(const ab_options *options, char folder[PATH_BYTES]) {
    char parent[PATH_BYTES];
    AB_TRY(folder_of("--out", options->text[AB_OPTION_out], parent));
    return ab_text_path("--out", folder, PATH_BYTES, "%s/plots", parent);
}

ab_status ab_output_prepare(const ab_options *options, ab_run_locks *locks) {
    static const ab_option_id files[] = {AB_OPTION_out, AB_OPTION_csv, AB_OPTION_markdown, AB_OPTION_html};
    char folder[PATH_BYTES], name[AB_OPTION_NAME];
    AB_TRY(check_no_input(options, "--out", options->text[AB_OPTION_out]));
    AB_TRY(check_replaceable(options->text[AB_OPTION_out]));
    AB_TRY(make_folder_of("--out", options->text[AB_OPTION_out]));
    AB_TRY(ab_output_lock("--out", options->text[AB_OPTION_out], &locks->document));
    for (size_t i = 0; i < AB_COUNT_OF(files); i++)
        if (options->text[files[i]]) {
            AB_TRY(ab_output_check_writable(ab_option_name(files[i], name), options->text[files[i]]));
            AB_TRY(check_no_input(options, name, options->text[files[i]]));
        }
    if (options->given[AB_OPTION_no_plots]) return AB_OK;
    AB_TRY(plots_folder_of(options, folder));
    return ab_lock_folder("--out", folder, &locks->plots);
}

void ab_output_release(const ab_options *options, ab_run_locks *locks) {
    char folder[PATH_BYTES];
    const bool plots = locks->plots.path && plots_folder_of(options, folder) == AB_OK;
    ab_lock_release(&locks->weights);
    ab_lock_release(&locks->checkpoints);
    ab_lock_release(&locks->plots);
    if (plots) rmdir(folder); /* succeeds only if nothing was drawn */
    ab_lock_release(&locks->document);
}

static int wants_color(const ab_options *options) {
    const char *when = options->text[AB_OPTION_color], *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    if (strcmp(when, "always") == 0) return 1;
    if (strcmp(when, "never") == 0 || (no_color && no_color[0]) || (term && strcmp(term, "dumb") == 0))
        return 0;
    return isatty(STDOUT_FILENO);
}

static ab_status plots(const ab_options *options, const cJSON *document) {
    char folder[PATH_BYTES], undrawn[AB_PLOTS_UNDRAWN];
    const char *note = NULL;
    int rendered = 0;
    AB_TRY(plots_folder_of(options, folder));
    AB_TRY(ab_plots_write(document, folder, &rendered, &note));
    if (note) ab_warn("plots: %s", note);
    if (!options->given[AB_OPTION_quiet]) ab_print(stderr, "%d plots in %s\n", rendered, folder);
    if (!options->given[AB_OPTION_quiet] && ab_plots_undrawn_text(document, undrawn))
        ab_print(stderr,
                 "%s: `ampbench report RESULT.json --cells PATTERN --plots DIR` draws those of some cells\n",
                 undrawn);
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
    if (options->text[AB_OPTION_csv])
        AB_TRY(ab_report_to_file("csv", options->text[AB_OPTION_csv], document));
    if (options->text[AB_OPTION_markdown])
        AB_TRY(ab_report_to_file("markdown", options->text[AB_OPTION_markdown], document));
    if (options->text[AB_OPTION_html])
        AB_TRY(ab_report_to_file("html", options->text[AB_OPTION_html], document));
    if (!options->given[AB_OPTION_no_plots]) AB_TRY(plots(options, document));
    if (!options->given[AB_OPTION_quiet]) ab_print(stderr, "result in %s\n", options->text[AB_OPTION_out]);
    return AB_OK;
}
