/* `ampbench history`: results over time. Finds the files; reports/compare/history.h evaluates them. */
#define _POSIX_C_SOURCE 200809L /* lstat */
#include "reports/compare/history.h"
#include "bench/cmd/cmd.h"
#include "kernels/core/log.h"
#include "kernels/core/number.h"
#include "kernels/core/text.h"
#include "kernels/files/lock.h"
#include "reports/record/json.h"
#include "reports/record/result.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { PATH = 4096, DEEPEST = 6 };

static const char usage[] =
    "usage: ampbench history DIR|FILE... [OPTION]...\n\n"
    "Puts results in order of time, a series for every cell and metric, and says where a series changed its "
    "level.\n"
    "Of a DIR it takes every *.json in it and below that is a result document. Runs of different machines, "
    "builds' compilers\n"
    "or settings are different series.\n\n"
    "  --guard SHARE    least change of a time that is reported (default 3%)\n"
    "  --json FILE      the series and changes as JSON to FILE; - is standard output, in place of the text\n"
    "  --plots DIR      data, script and, with gnuplot, a picture of the series to DIR\n"
    "  --help           this text\n\n"
    "Times are searched by optimal partitioning with medians; at least 3 runs on each side make a change. "
    "Losses, bytes and\n"
    "counts do not scatter: every difference is a change.\n";

typedef struct request {
    const char *json, *plots, *guard_text;
    double guard;
} request;

/* ---- arguments ------------------------------------------------------------------------------- */

/* Removes options from argv; the remaining words are paths. */
static ab_status parse(int *argc, char **argv, request *r) {
    const ab_argument arguments[] = {
        {.name = "--guard", .value = &r->guard_text},
        {.name = "--json", .value = &r->json},
        {.name = "--plots", .value = &r->plots},
        {.name = "--help"},
    };
    const ab_argument_list list = {"history", arguments, (int)AB_COUNT_OF(arguments), NULL, true};
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        if (argv[i][0] == '-')
            AB_TRY(ab_take_option(&list, *argc, argv, &i));
        else
            argv[kept++] = argv[i];
    }
    *argc = kept;
    return kept > 1 ? AB_OK
                    : ab_fail(AB_USAGE,
                              "history: expected a folder or result files (see `ampbench history --help`)");
}

/* "3%" or "0.03". */
static ab_status parse_guard(request *r) {
    char *end = NULL;
    r->guard = ab_number_read(r->guard_text, &end);
    bool percent = end != r->guard_text && strcmp(end, "%") == 0;
    if (percent) r->guard /= 100;
    bool fine = end != r->guard_text && (percent || *end == '\0') && r->guard >= 0 && r->guard < 1;
    return fine ? AB_OK
                : ab_fail(AB_USAGE, "history: --guard: expected a share such as 3%% or 0.03, found '%s'",
                          r->guard_text);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* In a folder, files that are not results are skipped with a message; a file named by the user must be a
 * result. */
static ab_status add_file(ab_history *history, const char *path, bool named) {
    cJSON *document = NULL;
    int added = 0;
    ab_status status = ab_result_load(path, &document);
    if (status == AB_OK) status = ab_result_summarise(document);
    if (status == AB_OK) status = ab_history_add(history, document, &added);
    cJSON_Delete(document);
    if (status == AB_OK && added == 0)
        ab_info("history: %s: no finished cell, or a run that is there already", path);
    bool pass_over = !named && (status == AB_INPUT || status == AB_NOT_COMPARABLE);
    if (pass_over) ab_warn("history: passed over %s", ab_error_message());
    return pass_over ? AB_OK : status;
}

static bool is_json(const char *name) {
    size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, ".json") == 0;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists the names of a folder in sorted order, so that the output order is fixed. The caller frees. */
static ab_status list_folder(const char *folder, char ***names, int *count) {
    DIR *open_folder = opendir(folder);
    int room = 0;
    *names = NULL;
    *count = 0;
    if (!open_folder) return ab_fail(AB_INPUT, "%s: cannot open: %s", folder, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(open_folder));) {
        if (entry->d_name[0] == '.') continue;
        if (*count == room) {
            char **more = realloc(*names, (size_t)(room = 2 * room + 16) * sizeof *more);
            if (!more) break;
            *names = more;
        }
        char *name = strdup(entry->d_name);
        if (!name) break;
        (*names)[(*count)++] = name;
    }
    closedir(open_folder);
    if (*count > 0) qsort(*names, (size_t)*count, sizeof **names, compare_names);
    return AB_OK;
}

static ab_status add_path(ab_history *history, const char *path, int depth);

static ab_status add_folder(ab_history *history, const char *folder, int depth) {
    char path[PATH], **names;
    int count;
    ab_status status = list_folder(folder, &names, &count);
    for (int i = 0; i < count; i++) {
        if (status == AB_OK && !ab_text_fits(path, sizeof path, "%s/%s", folder, names[i]))
            status =
                ab_fail(AB_INPUT, "history: the path of %s in %s is too long: expected less than %d bytes",
                        names[i], folder, (int)sizeof path);
        if (status == AB_OK) status = add_path(history, path, depth + 1);
        free(names[i]);
    }
    free(names);
    return status;
}

/* Symbolic links are followed only if named by the user. */
static ab_status add_path(ab_history *history, const char *path, int depth) {
    struct stat about;
    if ((depth == 0 ? stat(path, &about) : lstat(path, &about)) != 0)
        return depth == 0 ? ab_fail(AB_INPUT, "%s: cannot open: %s", path, strerror(errno)) : AB_OK;
    if (S_ISDIR(about.st_mode)) return depth < DEEPEST ? add_folder(history, path, depth) : AB_OK;
    if (depth > 0 && !(S_ISREG(about.st_mode) && is_json(path))) return AB_OK;
    return add_file(history, path, depth == 0);
}

/* ---- output ---------------------------------------------------------------------------------- */

static ab_status draw(const cJSON *json, const char *folder) {
    int rendered;
    const char *note;
    ab_lock lock;
    AB_TRY(ab_lock_folder("--plots", folder, &lock));
    ab_status status = ab_plot_write(&ab_plot_history, json, folder, &rendered, &note);
    ab_lock_release(&lock);
    AB_TRY(status);
    if (note) ab_warn("%s", note);
    ab_info("%s: %d plots drawn", folder, rendered);
    return AB_OK;
}

static ab_status print(const request *r, const ab_history *history) {
    cJSON *json = NULL;
    ab_status status;
    bool to_stdout = r->json && strcmp(r->json, "-") == 0;
    AB_TRY_GOTO(ab_history_json(history, r->guard, &json));
    if (!to_stdout) ab_history_print(json, stdout);
    if (r->json) AB_TRY_GOTO(ab_json_write_file(json, r->json));
    if (r->plots) AB_TRY_GOTO(draw(json, r->plots));
out:
    cJSON_Delete(json);
    return status;
}

ab_status ab_cmd_history(int argc, char **argv) {
    request r = {.guard_text = "3%"};
    ab_history *history = NULL;
    ab_status status;
    for (int i = 1; i < argc; i++)
        if (ab_is_help(argv[i])) {
            fputs(usage, stdout);
            return AB_OK;
        }
    AB_TRY(parse(&argc, argv, &r));
    AB_TRY(parse_guard(&r));
    AB_TRY(ab_history_create(&history));
    for (int i = 1; i < argc; i++) AB_TRY_GOTO(add_path(history, argv[i], 0));
    AB_TRY_GOTO(print(&r, history));
out:
    ab_history_destroy(history);
    return status;
}
