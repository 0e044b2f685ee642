/* The record's contract: every path that reports, and the commands that read documents, look up exists in
 * a schema of reports/schema, with the type that is asked for. */
#include "kernels/core/mem.h"
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
    "bench/opdoc/",            /* the text of the op reference */
    "reports/record/ranks.c",  /* adds up what two records have */
    "bench/inspect/",          /* its own document, written and read there */
    "reports/inspect/",        /* the same */
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
    c_read(&lint.source[lint.sources++], path, read_file(path));
}

static void start(void) {
    rp_free(&lint);
    char *text = read_file("reports/schema/result-1.schema.json");
    rp_add_schema(&lint, cJSON_Parse(text));
    free(text);
    each_file("reports/schema", take_schema);
}

/* ---- the lint itself ------------------------------------------------------------------------- */

static const char planted_schema[] =
    "{\"type\": \"object\", \"required\": [\"name\"], \"properties\": {\"name\": {\"type\": \"string\"}, "
    "\"level\": {\"enum\": [\"O0\", \"O1\"], \"default\": \"O0\"}, \"steps\": {\"type\": \"integer\", "
    "\"default\": 2}, \"size\": {\"type\": [\"number\", \"null\"]}, \"list\": {\"type\": \"array\", "
    "\"items\": "
    "{\"$ref\": \"#/$defs/item\"}}}, \"$defs\": {\"item\": {\"properties\": {\"ok\": {\"type\": "
    "\"boolean\"}, "
    "\"deep\": {\"properties\": {\"count\": {\"type\": \"number\"}}}}}}}";

/* The violations of a function body; `document` is a parameter of it. */
static int violations_in(const char *before, const char *body) {
    char *text = malloc(4096);
    rp_free(&lint);
    lint.quiet = true;
    rp_add_schema(&lint, cJSON_Parse(planted_schema));
    snprintf(text, 4096, "%s\nstatic void f(const cJSON *document) {\n%s\n}\n", before, body);
    c_read(&lint.source[lint.sources++], "planted.c", text);
    rp_check_source(&lint, &lint.source[0]);
    return lint.violations;
}

static void wrong_paths_types_and_fallbacks_are_found(void **state) {
    static const struct {
        const char *before, *body, *message; /* NULL: fine */
    } planted[] = {
        {"", "use(ab_json_text(document, \"name\", \"x y\"));", NULL}, /* always there */
        {"", "use(ab_json_text(document, \"nome\", \"\"));", "nome"},
        {"", "/* ab_json_text(document, \"nome\", \"\") */", NULL},
        {"", "use(ab_json_number(document, \"name\", 0));", "no number"},
        {"", "use(cJSON_IsString(ab_json_at(document, \"size\")));", "no string"},
        {"", "use(ab_json_text(document, \"level\", \"O0\"));", NULL},
        {"", "use(ab_json_text(document, \"level\", \"O1\"));", "fallback"},
        {"", "use(ab_json_number(document, \"steps\", 1));", "fallback"},
        {"", "use(ab_json_number(document, \"steps\", 0));", "fallback"},
        {"", "use(ab_json_number(document, \"steps\", 2));", NULL},
        {"", "use(ab_json_number(document, \"size\", (double)NAN));", NULL},
        {"", "use(ab_json_number(document, \"size\", 3));", "fallback"},
        {"", "use(ab_json_is_true(document, \"list.ok\"));", "list.ok"}, /* of an element */
        {"",
         "const cJSON *i;\ncJSON_ArrayForEach(i, ab_json_at(document, \"list\")) use(ab_json_is_true(i, "
         "\"ok\"));",
         NULL},
        {"",
         "const cJSON *i;\ncJSON_ArrayForEach(i, ab_json_at(document, \"list\")) use(ab_json_at(i, "
         "\"name\"));",
         "below what it is looked up in"},
        {"",
         "const cJSON *i = cJSON_GetArrayItem(ab_json_at(document, \"list\"), 0), *d = ab_json_at(i, "
         "\"deep\");\nuse(ab_json_number(d, \"count\", 0), ab_json_number(d, \"cuont\", 0));",
         "cuont"},
        {"static double g(const cJSON *x, const char *key) { return ab_json_number(x, key, 0); }",
         "use(g(document, \"size\"));", NULL},
        {"static double g(const cJSON *x, const char *key) { return ab_json_number(x, key, 0); }",
         "use(g(document, \"sise\"));", "sise"},
        {"static const char *const keys[] = {\"size\", \"sise\"};", "use(ab_json_at(document, keys[i]));",
         "sise"},
        {"typedef struct row { int n; const char *path; } row;\nstatic const row rows[] = {{1, \"name\"}, "
         "{2, \"x\"}};",
         "use(ab_json_at(document, rows[i].path));", "\"x\""},
        {"", "use(ab_json_at(document, a ? \"name\" : \"x\"));", "\"x\""},
        {"", "char path[9];\nmake(path);\nuse(ab_json_at(document, path));", "literals"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        const int found = violations_in(planted[i].before, planted[i].body);
        if (found != (planted[i].message != NULL))
            fail_msg("%s: %d violations (%s)", planted[i].body, found, lint.message);
        if (found && !strstr(lint.message, planted[i].message))
            fail_msg("%s: expected %s, found %s", planted[i].body, planted[i].message, lint.message);
    }
}

/* ---- the tree -------------------------------------------------------------------------------- */

static void memory_has_the_categories_of_the_schema(void **state) {
    (void)state;
    start();
    const cJSON *memory = rp_key(rp_key(lint.schema[0], "$defs"), "memory_bytes");
    for (int i = 0; i < AB_MEM_CATEGORY_COUNT; i++)
        assert_non_null(rp_key(rp_key(memory, "properties"), ab_mem_category_name((ab_mem_category)i)));
    assert_int_equal(cJSON_GetArraySize(rp_key(memory, "properties")), AB_MEM_CATEGORY_COUNT + 1); /* total */
}

static void every_path_that_is_looked_up_is_in_a_schema(void **state) {
    (void)state;
    start();
    each_file("reports", take_source);
    each_file("bench", take_source);
    for (int i = 0; i < lint.sources; i++) rp_check_source(&lint, &lint.source[i]);
    printf(
        "%d look-ups, %d with keys of the document; %d paths, %d of them from a known root, %d fallbacks\n",
        lint.lookups, lint.dynamic, lint.paths, lint.rooted, lint.fallbacks);
    assert_int_equal(lint.violations, 0);
    assert_true(lint.lookups > 1000 && lint.rooted > lint.paths / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_paths_types_and_fallbacks_are_found),
        cmocka_unit_test(memory_has_the_categories_of_the_schema),
        cmocka_unit_test(every_path_that_is_looked_up_is_in_a_schema),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rp_free(&lint);
    return failed;
}
