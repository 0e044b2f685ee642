/* The record's contract: every path that reports, and the commands that read documents, look up exists in a schema of
 * reports/schema, with the type that is asked for. */
#include "support/json_file.h"
#include "support/record_paths.h"

#include <dirent.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

/* Documents of these have no schema here, or are read key by key on purpose. */
static const char *const left_out[] = {
    "reports/record/json.c",   /* the look-ups themselves */
    "reports/record/schema.c", /* reads schemas */
    "bench/nets/",             /* networks: bench/nets/net.h says their keys */
    "bench/tensorfile/",       /* other programs' files */
    "bench/inspect/",          /* its own document, written and read there */
    "bench/run/process.c",     /* events of a worker: bench/run/worker.c */
};

static rp_lint lint;

static bool is_left_out(const char *path) {
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (strncmp(path, left_out[i], strlen(left_out[i])) == 0) return true;
    return false;
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Calls take(path from the root of the tree) for the files below a folder. */
static void each_file(const char *folder, void (*take)(const char *path)) {
    char path[1024], full[1280];
    struct stat info;
    snprintf(full, sizeof full, "%s/%s", AB_SOURCE_DIR, folder);
    DIR *dir = opendir(full);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        snprintf(full, sizeof full, "%s/%s", AB_SOURCE_DIR, path);
        if (stat(full, &info) == 0 && S_ISDIR(info.st_mode))
            each_file(path, take);
        else
            take(path);
    }
    closedir(dir);
}

static char *read_file(const char *path) {
    char full[1280];
    snprintf(full, sizeof full, "%s/%s", AB_SOURCE_DIR, path);
    char *text = ab_test_read(full);
    assert_non_null(text);
    return text;
}

static void take_schema(const char *path) {
    if (!ends_with(path, ".schema.json") || ends_with(path, "result-1.schema.json")) return;
    char *text = read_file(path);
    assert_in_range(lint.schemas, 0, RP_SCHEMAS - 1);
    rp_add_schema(&lint, cJSON_Parse(text));
    free(text);
}

static void take_source(const char *path) {
    if ((!ends_with(path, ".c") && !ends_with(path, ".h")) || is_left_out(path)) return;
    assert_in_range(lint.sources, 0, RP_SOURCES - 1);
    c_read(&lint.source[lint.sources++], strcpy(malloc(strlen(path) + 1), path), read_file(path));
}

static void start(void) {
    memset(&lint, 0, sizeof lint);
    char *text = read_file("reports/schema/result-1.schema.json");
    rp_add_schema(&lint, cJSON_Parse(text));
    free(text);
    each_file("reports/schema", take_schema);
}

static void every_path_that_is_looked_up_is_in_a_schema(void **state) {
    (void)state;
    start();
    each_file("reports", take_source);
    each_file("bench", take_source);
    for (int i = 0; i < lint.sources; i++) rp_check_source(&lint, &lint.source[i]);
    printf("%d look-ups, %d with keys of the document; %d paths, %d of them from a known root\n",
           lint.lookups, lint.dynamic, lint.paths, lint.rooted);
    assert_int_equal(lint.violations, 0);
    assert_true(lint.lookups > 1000 && lint.rooted > lint.paths / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_path_that_is_looked_up_is_in_a_schema),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
