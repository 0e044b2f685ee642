/* The CSV, read back by a strict reader: RFC 4180 to the letter, exact numbers under the document's own key
 * names, and no field that a spreadsheet would run. */
#define _POSIX_C_SOURCE 200809L
#include "support/recompute.h"
#include "support/report_text.h"

#include <stdbool.h>
#include <string.h>

enum { COLUMNS = 96, ROWS = 16, FIELD = 1200 };

typedef struct table {
    int rows, columns[ROWS];
    char field[ROWS][COLUMNS][FIELD];
    bool quoted[ROWS][COLUMNS];
} table;

static table csv;

/* One quoted field from after its opening quote; returns what follows the closing one. */
static const char *read_quoted(const char *c, char *field) {
    for (;; c++) {
        assert_true(*c != '\0');
        if (*c == '"' && *++c != '"') break;
        *field++ = *c;
    }
    *field = '\0';
    return c;
}

static const char *read_plain(const char *c, char *field) {
    for (; *c && *c != ',' && *c != '\r'; c++) {
        assert_true(*c != '"' && *c != '\n');
        *field++ = *c;
    }
    *field = '\0';
    return c;
}

static void read_csv(const char *text) {
    memset(&csv, 0, sizeof csv);
    for (const char *c = text; *c;) {
        assert_true(csv.rows < ROWS);
        int *column = &csv.columns[csv.rows];
        for (;;) {
            assert_true(*column < COLUMNS);
            char *field = csv.field[csv.rows][*column];
            csv.quoted[csv.rows][*column] = *c == '"';
            c = *c == '"' ? read_quoted(c + 1, field) : read_plain(c, field);
            ++*column;
            if (*c != ',') break;
            c++;
        }
        assert_int_equal(strncmp(c, "\r\n", 2), 0);
        c += 2;
        csv.rows++;
    }
}

static void read_fixture(const char *name) {
    cJSON *document = ab_test_fixture(name);
    char *text = ab_test_report(document, "csv", 0);
    read_csv(text);
    free(text);
    cJSON_Delete(document);
}

static const char *field_of(int row, const char *heading) {
    for (int i = 0; i < csv.columns[0]; i++)
        if (strcmp(csv.field[0][i], heading) == 0) return csv.field[row][i];
    fail_msg("there is no column %s", heading);
    return "";
}

static void test_every_row_has_every_column(void **state) {
    (void)state;
    static const char *const fixtures[] = {"lenet5", "tiny", "broken", "hostile"};
    for (size_t i = 0; i < AB_COUNT_OF(fixtures); i++) {
        read_fixture(fixtures[i]);
        assert_true(csv.rows > 1);
        for (int r = 0; r < csv.rows; r++) assert_int_equal(csv.columns[r], csv.columns[0]);
        for (int a = 0; a < csv.columns[0]; a++)
            for (int b = 0; b < a; b++) assert_string_not_equal(csv.field[0][a], csv.field[0][b]);
    }
}

/* Every value of the summary is there, under its own name, to the last bit. */
static void test_numbers_are_exact_and_named_as_in_the_document(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("broken");
    const cJSON *cell, *value;
    int row = 1;
    read_fixture("broken");
    cJSON_ArrayForEach(cell, member(document, "cells")) {
        assert_string_equal(field_of(row, "id"), text_of(cell, "id"));
        cJSON_ArrayForEach(value, member(cell, "summary")) {
            if (strstr(value->string, "_reason") || cJSON_IsObject(value)) continue;
            const char *found = field_of(row, value->string);
            if (cJSON_IsNumber(value))
                assert_true(strtod(found, NULL) == value->valuedouble && found[0]);
            else
                assert_string_equal(found, cJSON_IsBool(value)     ? cJSON_IsTrue(value) ? "true" : "false"
                                           : cJSON_IsString(value) ? value->valuestring
                                                                   : "");
        }
        row++;
    }
    cJSON_Delete(document);
}

static void test_raw_numbers_and_memory_are_there(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("lenet5");
    const cJSON *value, *cell = member(document, "cells")->child;
    read_fixture("lenet5");
    cJSON_ArrayForEach(value, member(cell, "memory_bytes")) {
        char heading[64];
        snprintf(heading, sizeof heading, "%s_bytes", value->string);
        if (strcmp(value->string, "total") != 0)
            assert_true(strtod(field_of(1, heading), NULL) == value->valuedouble);
    }
    assert_string_equal(field_of(1, "steps_total"), "120");
    assert_string_equal(field_of(1, "batch"), "64");
    assert_string_equal(field_of(2, "twin"), "ulp");
    assert_string_equal(field_of(3, "loss_scale"), "dynamic");
    assert_non_null(strstr(field_of(5, "ratio_samples_to_o0_reason"), "loss gap"));
    assert_true(strtod(field_of(1, "noise_floor_loss_gap"), NULL) > 0);
    cJSON_Delete(document);
}

static void test_no_field_is_a_formula(void **state) {
    (void)state;
    read_fixture("hostile");
    for (int r = 0; r < csv.rows; r++)
        for (int i = 0; i < csv.columns[r]; i++) {
            const char *field = csv.field[r][i];
            char *end;
            strtod(field, &end);
            bool is_number = field[0] && *end == '\0';
            if (field[0] && strchr("=+-@\t\r", field[0]) && !is_number) fail_msg("%s", field);
            for (const char *c = field; *c; c++) assert_true((unsigned char)*c >= 0x20);
        }
    assert_string_equal(field_of(1, "worst_layer"), "'=cmd|'/c calc'!A1");
}

/* The Markdown table: the same numbers as the terminal's, in a shape GitHub renders, and nothing of a
 * document as markup. */

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
        assert_int_equal(columns, 15);
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
    assert_non_null(strstr(text, "a run of O0 with every initial weight moved by one ulp"));
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
        cmocka_unit_test(test_every_row_has_every_column),
        cmocka_unit_test(test_numbers_are_exact_and_named_as_in_the_document),
        cmocka_unit_test(test_raw_numbers_and_memory_are_there),
        cmocka_unit_test(test_no_field_is_a_formula),
        cmocka_unit_test(test_every_row_has_the_columns_of_the_heading),
        cmocka_unit_test(test_no_string_of_a_document_becomes_markup),
        cmocka_unit_test(test_reasons_and_floor_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
