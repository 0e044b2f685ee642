/* The Markdown table: the same numbers as the terminal's, in a shape GitHub renders, and nothing of a
 * document as markup. */
#define _POSIX_C_SOURCE 200809L
#include "support/report_text.h"

#include <stdbool.h>
#include <string.h>

static const char *const fixtures[] = {"lenet5", "tiny", "broken", "hostile"};

/* Bars that GitHub takes for a column's edge: those without a backslash before them. */
static int bars(const char *line) {
    int count = 0;
    for (size_t i = 0; line[i]; i++) count += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
    return count;
}

static void test_every_row_has_the_columns_of_the_heading(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(fixtures); i++) {
        cJSON *document = ab_test_fixture(fixtures[i]);
        char *text = ab_test_report(document, "markdown", 0), *rest = text;
        int rows = 0, columns = 0;
        for (char *line; (line = strtok_r(rest, "\n", &rest));) {
            if (line[0] != '|') {
                assert_int_equal(bars(line), 0);
                continue;
            }
            if (rows++ == 0) columns = bars(line);
            if (bars(line) != columns) fail_msg("%d bars instead of %d: %s", bars(line), columns, line);
        }
        assert_int_equal(columns, 14);
        assert_int_equal(rows, 2 + cJSON_GetArraySize(cJSON_GetObjectItem(document, "cells")));
        free(text);
        cJSON_Delete(document);
    }
}

static void test_no_string_of_a_document_becomes_markup(void **state) {
    (void)state;
    static const char markup[] = "<>@#";
    cJSON *document = ab_test_fixture("hostile");
    char *text = ab_test_report(document, "markdown", 0);
    for (const char *c = text; *c; c++) {
        bool reference = *c == '#' && c > text && c[-1] == '&'; /* &#35; */
        if (strchr(markup, *c) && !reference) fail_msg("unescaped %c before %.20s", *c, c);
        if (strchr("`[]_", *c) && c[-1] != '\\') fail_msg("unescaped %c before %.20s", *c, c);
        if ((unsigned char)*c < 0x20 && *c != '\n') fail_msg("control character 0x%02x", (unsigned char)*c);
    }
    free(text);
    cJSON_Delete(document);
}

static void test_reasons_and_floor_are_there(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("lenet5");
    char *text = ab_test_report(document, "markdown", 0);
    assert_non_null(strstr(text, "- O3 1: speed ratio void: loss gap +0.1909"));
    assert_non_null(strstr(text, "O0 again with every initial weight moved by one ulp"));
    assert_non_null(strstr(text, "| void |"));
    free(text);
    cJSON_Delete(document);
    document = ab_test_fixture("broken");
    text = ab_test_report(document, "markdown", 0);
    assert_non_null(strstr(text, "INCOMPLETE"));
    assert_non_null(strstr(text, "| failed: killed by signal 9 at step 31 |"));
    free(text);
    cJSON_Delete(document);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_has_the_columns_of_the_heading),
        cmocka_unit_test(test_no_string_of_a_document_becomes_markup),
        cmocka_unit_test(test_reasons_and_floor_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
