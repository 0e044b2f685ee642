/* Which cells are the same cell: by the digest of their configuration, by their names where there is none. */
#include "reports/record/cells.h"
#include "reports/record/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static cJSON *document_of(const char *cells) {
    char text[400];
    snprintf(text, sizeof text, "{\"cells\": [%s]}", cells);
    cJSON *document = cJSON_Parse(text);
    assert_non_null(document);
    return document;
}

/* The mark of the cell in `there` that is the only cell of `here`. */
static void is_matched(const char *here, const char *there, const char *mark) {
    cJSON *a = document_of(here), *b = document_of(there);
    const cJSON *found = ab_cell_like(b, ab_json_at(a, "cells")->child);
    assert_string_equal(found ? ab_json_text(found, "mark", "?") : "none", mark);
    cJSON_Delete(a);
    cJSON_Delete(b);
}

static void two_spellings_of_one_configuration_are_one_cell(void **state) {
    (void)state;
    is_matched("{\"id\": \"torch\", \"config_digest\": \"1\"}",
               "{\"id\": \"torch\", \"config_digest\": \"2\", \"mark\": \"name\"},"
               "{\"id\": \"torch:init=65536\", \"config_digest\": \"1\", \"mark\": \"digest\"}",
               "digest");
}

static void old_documents_are_matched_by_name(void **state) {
    (void)state;
    is_matched("{\"id\": \"torch\", \"config_digest\": \"1\"}", "{\"id\": \"torch\", \"mark\": \"name\"}",
               "name");
    is_matched("{\"id\": \"torch\"}", "{\"id\": \"torch\", \"config_digest\": \"1\", \"mark\": \"name\"}",
               "name");
}

/* A cell of a run with another batch size keeps its name: reports say what differs. */
static void a_cell_of_another_configuration_is_found_by_name(void **state) {
    (void)state;
    is_matched("{\"id\": \"torch\", \"config_digest\": \"1\"}",
               "{\"id\": \"torch\", \"config_digest\": \"2\", \"mark\": \"name\"}", "name");
    is_matched("{\"id\": \"apex\", \"config_digest\": \"1\"}",
               "{\"id\": \"torch\", \"config_digest\": \"2\", \"mark\": \"name\"}", "none");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_spellings_of_one_configuration_are_one_cell),
        cmocka_unit_test(old_documents_are_matched_by_name),
        cmocka_unit_test(a_cell_of_another_configuration_is_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
