/* The result document: what is refused and how it is said, exact numbers, and files that are never half
 * written. */
#define _XOPEN_SOURCE 700
#include "reports/record/json.h"
#include "reports/record/result.h"
#include "support/json_file.h"
#include "support/schema_check.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define FIXTURE(name) AB_SOURCE_DIR "/tests/fixtures/result_" name ".json"

static const char *const fixtures[] = {FIXTURE("lenet5"), FIXTURE("tiny"), FIXTURE("broken"),
                                       FIXTURE("hostile")};

static char folder[] = "/tmp/ampbench_result_XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static const char *in_folder(const char *name) {
    static char path[8][256]; /* several at a time */
    static int next;
    next = (next + 1) % 8;
    snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

static cJSON *tiny(void) {
    cJSON *document = ab_test_read_json(FIXTURE("tiny"));
    assert_non_null(document);
    return document;
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* ---- the schema ------------------------------------------------------------------------------ */

static void test_the_fixtures_follow_the_schema_and_pass_the_check(void **state) {
    (void)state;
    char why[1024] = "";
    cJSON *schema = NULL;
    assert_int_equal(ab_schema_result(&schema), AB_OK);
    for (size_t i = 0; i < AB_COUNT_OF(fixtures); i++) {
        cJSON *document = NULL;
        assert_int_equal(ab_result_load(fixtures[i], &document), AB_OK);
        if (!ab_test_schema_validate(schema, document, why, sizeof why)) fail_msg("%s: %s", fixtures[i], why);
        cJSON_Delete(document);
    }
    cJSON_Delete(schema);
}

static void test_the_compiled_in_schema_is_the_file(void **state) {
    (void)state;
    cJSON *compiled_in = NULL,
          *file = ab_test_read_json(AB_SOURCE_DIR "/reports/schema/result-1.schema.json");
    assert_int_equal(ab_schema_result(&compiled_in), AB_OK);
    assert_true(cJSON_Compare(compiled_in, file, 1));
    cJSON_Delete(compiled_in);
    cJSON_Delete(file);
}

/* Calls visit() for every value below `value`, only the first two of an array. */
static void walk(cJSON *value, void (*visit)(cJSON *parent, cJSON *child, void *context), void *context) {
    int index = 0;
    for (cJSON *child = value->child, *next; child && (index < 2 || cJSON_IsObject(value));
         child = next, index++) {
        next = child->next;
        walk(child, visit, context);
        visit(value, child, context);
    }
}

typedef struct mutation {
    const cJSON *document;
    int tried;
} mutation;

static void expect_refused(mutation *m, const char *key) {
    ab_status status = ab_result_check_shape(m->document, "mutant");
    if (status == AB_OK) fail_msg("a document with a changed %s was accepted", key ? key : "array element");
    if (key && !strstr(ab_error_message(), key)) fail_msg("%s is not named in: %s", key, ab_error_message());
    m->tried++;
}

/* Turns the value, for a moment, into what no value of the schema may be: an object whose one key is unknown
 * or has the wrong type wherever an object is expected. */
static void turn_into_stranger(cJSON *parent, cJSON *child, void *context) {
    (void)parent;
    const cJSON saved = *child;
    cJSON *stranger = cJSON_CreateObject();
    cJSON_AddNumberToObject(stranger, "never", 1);
    child->type = stranger->type;
    child->child = stranger->child;
    expect_refused(context, child->string);
    *child = saved;
    cJSON_Delete(stranger);
}

static void test_every_value_has_a_type(void **state) {
    (void)state;
    cJSON *document = tiny();
    mutation m = {document, 0};
    walk(document, turn_into_stranger, &m);
    assert_true(m.tried > 400);
    cJSON_Delete(document);
}

typedef struct omission {
    mutation m; /* tried: keys that the schema requires */
    cJSON *schema;
    int optional;
} omission;

/* The schema, read by a validator of the tests' own, says whether the key may be missing. */
static void expect_as_in_schema(omission *o, const char *key) {
    char why[1024];
    if (!ab_test_schema_validate(o->schema, o->m.document, why, sizeof why)) {
        expect_refused(&o->m, key);
        return;
    }
    o->optional++;
    if (ab_result_check_shape(o->m.document, "mutant") != AB_OK)
        fail_msg("without %s, which the schema does not require: %s", key, ab_error_message());
}

/* For a moment the parent has the children of a copy that lacks the key. */
static void leave_out(cJSON *parent, cJSON *child, void *context) {
    cJSON *const whole = parent->child;
    if (!cJSON_IsObject(parent)) return;
    cJSON *copy = cJSON_Duplicate(parent, 1);
    cJSON_DeleteItemFromObjectCaseSensitive(copy, child->string);
    parent->child = copy->child;
    expect_as_in_schema(context, child->string);
    parent->child = whole;
    cJSON_Delete(copy);
}

static void test_a_key_is_needed_where_the_schema_requires_it(void **state) {
    (void)state;
    cJSON *document = tiny();
    omission o = {.m = {document, 0}};
    assert_int_equal(ab_schema_result(&o.schema), AB_OK);
    walk(document, leave_out, &o);
    assert_true(o.m.tried > 250);
    assert_true(o.optional > 0);
    cJSON_Delete(o.schema);
    cJSON_Delete(document);
}

static void add_unknown_key(cJSON *parent, cJSON *child, void *context) {
    (void)parent;
    mutation *m = context;
    char why[1024];
    cJSON *schema = NULL;
    if (!cJSON_IsObject(child) || strcmp(child->string ? child->string : "", "overrides") == 0 ||
        strcmp(child->string ? child->string : "", "variables") == 0)
        return;
    cJSON_AddStringToObject(child, "surprise", "x");
    assert_int_equal(ab_schema_result(&schema), AB_OK);
    assert_false(ab_test_schema_validate(schema, m->document, why, sizeof why));
    assert_non_null(strstr(why, "surprise"));
    assert_int_equal(ab_result_check_shape(m->document, "later minor version"), AB_OK);
    cJSON_DeleteItemFromObject(child, "surprise");
    cJSON_Delete(schema);
    m->tried++;
}

static void test_unknown_keys_are_read_over_but_never_emitted(void **state) {
    (void)state;
    cJSON *document = tiny();
    mutation m = {document, 0};
    walk(document, add_unknown_key, &m);
    assert_true(m.tried > 20);
    cJSON_Delete(document);
}

static void test_a_cell_that_is_not_ok_needs_only_its_identity(void **state) {
    (void)state;
    cJSON *document = tiny(), *cell = cJSON_GetObjectItem(document, "cells")->child;
    cJSON_DeleteItemFromObject(cell, "loss");
    assert_int_equal(ab_result_check(document, "x"), AB_INPUT);
    cJSON_ReplaceItemInObject(cell, "status", cJSON_CreateString("failed"));
    assert_int_equal(ab_result_check(document, "x"), AB_OK);
    cJSON_Delete(document);
}

/* ---- schema keywords ------------------------------------------------------------------------- */

static void test_each_keyword_of_the_validator(void **state) {
    (void)state;
    static const struct {
        const char *schema, *value;
        ab_status expected;
    } rows[] = {
        {"{\"type\": \"integer\"}", "3", AB_OK},
        {"{\"type\": \"integer\"}", "3.5", AB_INPUT},
        {"{\"type\": \"integer\"}", "9007199254740993", AB_INPUT},
        {"{\"type\": \"number\"}", "1e999", AB_INPUT},
        {"{\"type\": [\"number\", \"null\"]}", "null", AB_OK},
        {"{\"type\": [\"number\", \"null\"]}", "false", AB_INPUT},
        {"{\"type\": \"boolean\"}", "true", AB_OK},
        {"{\"type\": \"object\"}", "[]", AB_INPUT},
        {"{\"const\": \"a\"}", "\"b\"", AB_INPUT},
        {"{\"const\": \"a\"}", "\"A\"", AB_INPUT},
        {"{\"enum\": [null, \"ulp\"]}", "null", AB_OK},
        {"{\"enum\": [null, \"ulp\"]}", "\"ulps\"", AB_INPUT},
        {"{\"minimum\": 0}", "-1e-300", AB_INPUT},
        {"{\"minimum\": 0}", "\"not a number\"", AB_OK},
        {"{\"exclusiveMinimum\": 0}", "0", AB_INPUT},
        {"{\"maximum\": 1}", "1.0000000000000002", AB_INPUT},
        {"{\"required\": [\"a\"]}", "{\"A\": 1}", AB_INPUT},
        {"{\"properties\": {\"a\": {\"type\": \"null\"}}}", "{\"a\": 1}", AB_INPUT},
        {"{\"properties\": {}, \"additionalProperties\": false}", "{\"a\": 1}", AB_INPUT},
        {"{\"additionalProperties\": {\"type\": \"string\"}}", "{\"a\": 1}", AB_INPUT},
        {"{\"items\": {\"minimum\": 2}}", "[2, 3, 1]", AB_INPUT},
        {"{\"minItems\": 2, \"maxItems\": 2}", "[1]", AB_INPUT},
        {"{\"minItems\": 2, \"maxItems\": 2}", "[1, 2, 3]", AB_INPUT},
        {"{\"$ref\": \"#/$defs/n\", \"$defs\": {\"n\": {\"type\": \"null\"}}}", "0", AB_INPUT},
        {"{\"$ref\": \"#/$defs/m\"}", "0", AB_INTERNAL},
        {"{\"if\": {\"const\": 1}, \"then\": {\"const\": 2}}", "1", AB_INPUT},
        {"{\"if\": {\"const\": 1}, \"then\": {\"const\": 2}}", "3", AB_OK},
        {"{\"pattern\": \"x\"}", "3", AB_INTERNAL},
    };
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        cJSON *schema = cJSON_Parse(rows[i].schema), *value = cJSON_Parse(rows[i].value);
        assert_non_null(schema);
        assert_non_null(value);
        if (ab_schema_check(schema, value, true, "x") != rows[i].expected)
            fail_msg("%s of %s: %s", rows[i].schema, rows[i].value, ab_error_message());
        cJSON_Delete(schema);
        cJSON_Delete(value);
    }
}

/* ---- what must add up ------------------------------------------------------------------------ */

/* The tiny document with one number or array at `path` of its last cell replaced by `json`; a path goes
 * through the first element of an array. */
static ab_status check_with(const char *path, const char *json) {
    cJSON *document = tiny(), *cell = cJSON_GetArrayItem(cJSON_GetObjectItem(document, "cells"), 2);
    cJSON *parent = cell;
    const char *key = path;
    for (const char *dot; (dot = strchr(key, '.')); key = dot + 1) {
        char part[40];
        snprintf(part, sizeof part, "%.*s", (int)(dot - key), key);
        parent = cJSON_GetObjectItemCaseSensitive(parent, part);
        if (cJSON_IsArray(parent)) parent = parent->child;
    }
    assert_true(cJSON_ReplaceItemInObjectCaseSensitive(parent, key, cJSON_Parse(json)));
    ab_status status = ab_result_check(document, "file.json");
    cJSON_Delete(document);
    return status;
}

static void test_counts_that_do_not_add_up_are_refused(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"steps_applied", "5"},
        {"steps_total", "7"},
        {"nonfinite_losses", "1"},
        {"loss", "[1, 2, 3, 4, 5]"},
        {"scale", "[[1, 5]]"},
        {"skipped_steps", "[3]"},
        {"memory_bytes.total", "1"},
        {"memory_bytes.casts", "64"},
        {"probes.tensors.flushed", "12345"},
        {"probes.tensors.zero", "12345"},
        {"probes.tensors.steps",
         "{\"first\": 0, \"stride\": 3, \"count\": 1, \"nonzero\": [1], \"flushed\": [0], "
         "\"overflowed\": [0]}"},
        {"probes.tensors.exponents", "{\"first\": 0, \"counts\": [1]}"},
    };
    assert_int_equal(check_with("steps_applied", "6"), AB_OK);
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        if (check_with(rows[i][0], rows[i][1]) != AB_INPUT)
            fail_msg("%s = %s was accepted", rows[i][0], rows[i][1]);
        assert_non_null(strstr(ab_error_message(), "file.json: cells[2]"));
    }
}

static void test_cells_have_distinct_ids(void **state) {
    (void)state;
    cJSON *document = tiny(), *cells = cJSON_GetObjectItem(document, "cells");
    cJSON_ReplaceItemInObject(cells->child, "id",
                              cJSON_CreateString(ab_json_text(cells->child->next, "id", "")));
    assert_int_equal(ab_result_check(document, "x"), AB_INPUT);
    assert_non_null(strstr(ab_error_message(), "two cells have the id"));
    cJSON_Delete(document);
}

static void test_the_order_names_existing_cells(void **state) {
    (void)state;
    cJSON *document = tiny();
    cJSON_ReplaceItemInObject(cJSON_GetObjectItem(document, "design"), "order", cJSON_Parse("[[0, 1, 3]]"));
    assert_int_equal(ab_result_check(document, "x"), AB_INPUT);
    assert_non_null(strstr(ab_error_message(), "found 3"));
    cJSON_Delete(document);
}

/* ---- loading --------------------------------------------------------------------------------- */

static void expect_load(const char *text, ab_status expected, const char *message) {
    cJSON *document = NULL;
    const char *path = in_folder("load.json");
    write_text(path, text);
    assert_int_equal(ab_result_load(path, &document), expected);
    assert_null(document);
    if (!strstr(ab_error_message(), message)) fail_msg("expected '%s' in: %s", message, ab_error_message());
    assert_non_null(strstr(ab_error_message(), "load.json"));
    unlink(path);
}

static void test_bad_files_are_named_with_their_fault(void **state) {
    (void)state;
    cJSON *document = NULL;
    assert_int_equal(ab_result_load(in_folder("missing.json"), &document), AB_INPUT);
    assert_non_null(strstr(ab_error_message(), "missing.json: cannot open"));
    assert_int_equal(ab_result_load(folder, &document), AB_INPUT);
    expect_load("", AB_INPUT, "line 1");
    expect_load("{\n\"schema\": \"ampbench-result\",\n\"x\" 3}", AB_INPUT, "line 3: not JSON, or cut short");
    expect_load("{} {}", AB_INPUT, "after the end");
    expect_load("[]", AB_INPUT, "not a result document");
    expect_load("{\"schema\": \"perf\", \"schema_version\": \"1.0.0\"}", AB_NOT_COMPARABLE, "\"perf\"");
    expect_load("{\"schema\": \"ampbench-result\", \"schema_version\": \"2.0.0\"}", AB_NOT_COMPARABLE,
                "2.0.0");
    expect_load("{\"schema\": \"ampbench-result\", \"schema_version\": \"1.7.0\"}", AB_INPUT, "generator");
}

static void test_a_document_cut_anywhere_is_refused(void **state) {
    (void)state;
    char *text = ab_test_read(FIXTURE("tiny"));
    const char *path = in_folder("cut.json");
    size_t length = strlen(text);
    for (size_t cut = 0; cut + 2 < length; cut += 97) {
        cJSON *document = NULL;
        char kept = text[cut];
        text[cut] = '\0';
        write_text(path, text);
        text[cut] = kept;
        assert_int_equal(ab_result_load(path, &document), AB_INPUT);
    }
    unlink(path);
    free(text);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void print_number(double x, char *text, size_t size) {
    FILE *out = fmemopen(text, size, "w");
    ab_json_print_number(x, out);
    fclose(out);
}

static int significant_digits(const char *text) {
    int digits = 0;
    for (; *text && *text != 'e'; text++)
        if (*text >= '0' && *text <= '9' && (digits > 0 || *text != '0')) digits++;
    return digits;
}

static void expect_round_trip(double x) {
    char text[64], shorter[512];
    print_number(x, text, sizeof text);
    double back = strtod(text, NULL);
    if (back != x || signbit(back) != signbit(x)) fail_msg("%a was written as %s", x, text);
    int digits = significant_digits(text);
    if (digits <= 15 || strchr(text, 'e') == NULL) return;
    snprintf(shorter, sizeof shorter, "%.*g", digits - 1, x);
    if (strtod(shorter, NULL) == x) fail_msg("%s is shorter than %s", shorter, text);
}

static void test_numbers_survive_a_round_trip_bit_for_bit(void **state) {
    (void)state;
    static const double edges[] = {0.0,
                                   -0.0,
                                   0.1,
                                   1.0 / 3,
                                   5e-324,
                                   2.2250738585072014e-308,
                                   1e308,
                                   1.7976931348623157e308,
                                   9007199254740991.0,
                                   9007199254740992.0,
                                   4503599627370497.5,
                                   1e21,
                                   123456789012345680.0,
                                   2.3025851249694824,
                                   -1.5e-7};
    uint64_t random = 88172645463325252u;
    for (size_t i = 0; i < AB_COUNT_OF(edges); i++) expect_round_trip(edges[i]);
    for (int i = 0; i < 200000; i++) {
        double x;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        memcpy(&x, &random, sizeof x);
        if (isfinite(x)) expect_round_trip(x);
    }
}

static void test_numbers_are_written_as_people_write_them(void **state) {
    (void)state;
    static const struct {
        double x;
        const char *text;
    } rows[] = {
        {938, "938"}, {0.1, "0.1"}, {0.30000000000000004, "0.30000000000000004"}, {1e15, "1000000000000000"},
        {0.5, "0.5"}, {-2, "-2"}};
    char text[64];
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        print_number(rows[i].x, text, sizeof text);
        assert_string_equal(text, rows[i].text);
    }
    print_number((double)NAN, text, sizeof text);
    assert_string_equal(text, "null");
    print_number((double)-INFINITY, text, sizeof text);
    assert_string_equal(text, "null");
}

/* ---- writing --------------------------------------------------------------------------------- */

static void test_writing_and_reading_gives_the_same_document(void **state) {
    (void)state;
    const char *first = in_folder("a.json"), *second = in_folder("b.json");
    for (size_t i = 0; i < AB_COUNT_OF(fixtures); i++) {
        cJSON *document = NULL, *again = NULL;
        assert_int_equal(ab_result_load(fixtures[i], &document), AB_OK);
        assert_int_equal(ab_result_write(document, first), AB_OK);
        assert_int_equal(ab_result_load(first, &again), AB_OK);
        assert_int_equal(ab_result_write(again, second), AB_OK);
        char *a = ab_test_read(first), *b = ab_test_read(second);
        assert_string_equal(a, b);
        assert_true(cJSON_Compare(document, again, 1));
        free(a);
        free(b);
        cJSON_Delete(document);
        cJSON_Delete(again);
    }
    unlink(first);
    unlink(second);
}

static void test_strings_are_written_as_valid_utf8(void **state) {
    (void)state;
    const char *path = in_folder("text.json");
    cJSON *document = cJSON_CreateObject();
    cJSON_AddStringToObject(document, "a\"\n",
                            "quote \" slash \\ bell \a del \x7f \xc3\xa9 broken \xc3 \xff\xed\xa0\x80 end");
    assert_int_equal(ab_result_write(document, path), AB_OK);
    char *text = ab_test_read(path);
    assert_string_equal(text,
                        "{\n  \"a\\\"\\n\": \"quote \\\" slash \\\\ bell \\u0007 del \\u007f \xc3\xa9 broken "
                        "\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd end\"\n}\n");
    free(text);
    cJSON_Delete(document);
    unlink(path);
}

static void test_a_write_that_fails_names_the_file(void **state) {
    (void)state;
    cJSON *document = tiny();
    assert_int_equal(ab_result_write(document, in_folder("no/such/folder.json")), AB_OUTPUT);
    assert_non_null(strstr(ab_error_message(), "no/such/folder.json"));
    cJSON_Delete(document);
}

static void test_a_link_is_replaced(void **state) {
    (void)state;
    struct stat info;
    cJSON *document = tiny();
    const char *target = in_folder("target.json"), *link = in_folder("link.json");
    write_text(target, "old");
    assert_int_equal(symlink("target.json", link), 0);
    assert_int_equal(ab_result_write(document, link), AB_OK);
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISREG(info.st_mode) && info.st_size > 1000);
    char *text = ab_test_read(target);
    assert_string_equal(text, "old");
    free(text);
    unlink(link);
    unlink(target);
    cJSON_Delete(document);
}

/* A pipe stands for whatever is no file: devices too must never be replaced by one. */
static void test_what_is_not_a_file_is_written_to_and_not_replaced(void **state) {
    (void)state;
    struct stat info;
    char text[16] = "";
    cJSON *document = cJSON_CreateObject();
    const char *path = in_folder("pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    int pipe = open(path, O_RDWR | O_NONBLOCK);
    assert_true(pipe >= 0);
    assert_int_equal(ab_result_write(document, path), AB_OK);
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    assert_int_equal(read(pipe, text, sizeof text - 1), 3);
    assert_string_equal(text, "{}\n");
    assert_int_equal(ab_result_write(document, folder), AB_OUTPUT);
    close(pipe);
    unlink(path);
    cJSON_Delete(document);
}

static void test_a_full_disk_leaves_the_old_document(void **state) {
    (void)state;
    struct rlimit limit, small;
    cJSON *document = tiny();
    const char *path = in_folder("full.json");
    write_text(path, "old");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 5000; /* bytes a file may have: the document needs more */
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ab_status status = ab_result_write(document, path);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, AB_OUTPUT);
    assert_non_null(strstr(ab_error_message(), "full.json"));
    char *text = ab_test_read(path);
    assert_string_equal(text, "old");
    free(text);
    assert_int_equal(access(in_folder("full.json.tmp"), F_OK), -1);
    unlink(path);
    cJSON_Delete(document);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_fixtures_follow_the_schema_and_pass_the_check),
        cmocka_unit_test(test_the_compiled_in_schema_is_the_file),
        cmocka_unit_test(test_every_value_has_a_type),
        cmocka_unit_test(test_a_key_is_needed_where_the_schema_requires_it),
        cmocka_unit_test(test_unknown_keys_are_read_over_but_never_emitted),
        cmocka_unit_test(test_a_cell_that_is_not_ok_needs_only_its_identity),
        cmocka_unit_test(test_each_keyword_of_the_validator),
        cmocka_unit_test(test_counts_that_do_not_add_up_are_refused),
        cmocka_unit_test(test_cells_have_distinct_ids),
        cmocka_unit_test(test_the_order_names_existing_cells),
        cmocka_unit_test(test_bad_files_are_named_with_their_fault),
        cmocka_unit_test(test_a_document_cut_anywhere_is_refused),
        cmocka_unit_test(test_numbers_survive_a_round_trip_bit_for_bit),
        cmocka_unit_test(test_numbers_are_written_as_people_write_them),
        cmocka_unit_test(test_writing_and_reading_gives_the_same_document),
        cmocka_unit_test(test_strings_are_written_as_valid_utf8),
        cmocka_unit_test(test_a_write_that_fails_names_the_file),
        cmocka_unit_test(test_a_link_is_replaced),
        cmocka_unit_test(test_what_is_not_a_file_is_written_to_and_not_replaced),
        cmocka_unit_test(test_a_full_disk_leaves_the_old_document),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
