/* The table for people: every number in it follows from the raw record, it fits a terminal, and no string of
 * a document gets through as anything but text. */
#define _POSIX_C_SOURCE 200809L
#include "reports/record/result.h"
#include "reports/record/text.h"
#include "reports/render/report.h"
#include "support/recompute.h"
#include "support/report_text.h"

#include <string.h>

static const char *const fixtures[] = {"lenet5", "tiny", "broken", "hostile"};

enum { COLUMNS = 14, FIELD_TEXT = 64 };

/* ---- reading a table ------------------------------------------------------------------------- */

/* The line after the two heading lines, plus `row`. */
static const char *row_start(const char *table, int row) {
    const char *line = strstr(table, "level");
    assert_non_null(line);
    for (int i = 0; i <= row; i++) {
        line = strchr(line, '\n');
        assert_non_null(line);
        line++;
    }
    return line;
}

/* Fields are spaces apart; the last, a layer and its share, may have one inside. */
static int split(const char *line, char field[COLUMNS][FIELD_TEXT]) {
    int count = 0;
    while (*line && *line != '\n') {
        const size_t length = strcspn(line, count == COLUMNS - 1 ? "\n" : " \n");
        assert_true(count < COLUMNS && length < FIELD_TEXT);
        memcpy(field[count], line, length);
        field[count++][length] = '\0';
        line += length;
        line += strspn(line, " ");
    }
    return count;
}

/* "12.34x", "(0.31)", "<0.01" as numbers; the number of decimals it shows. */
static double value_of(const char *field, int *decimals) {
    const char *start = field + strspn(field, "(<"), *dot = strchr(start, '.');
    *decimals = dot ? (int)strspn(dot + 1, "0123456789") : 0;
    return strtod(start, NULL);
}

/* The field is `expected` rounded to the decimals shown. */
static void expect_field(const char *name, const char *field, double expected) {
    int decimals = 0;
    double shown = value_of(field, &decimals), unit = pow(10, -decimals);
    if (strchr(field, '<') ? expected > 0 && expected < shown : fabs(shown - expected) <= 0.5000001 * unit)
        return;
    if (strchr(field, 'e') && fabs(shown / expected - 1) < 0.06) return;
    fail_msg("%s: the table says %s, recomputed %.10g", name, field, expected);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void expect_row(const cJSON *document, const cJSON *cell, const char *line) {
    char field[COLUMNS][FIELD_TEXT] = {{0}}, skipped[32];
    bool all = nothing_cast(cell), good = expected_pass(document, cell);
    double bytes = number_of(member(cell, "memory_bytes"), "total");
    const cJSON *o0 = plain_o0(document);
    assert_int_equal(split(line, field), COLUMNS);
    assert_int_equal(strncmp(field[0], text_of(cell, "level"), 2), 0);
    expect_field("final loss", field[2], expected_loss(document, cell));
    expect_field("gap", field[3], expected_gap(document, cell));
    expect_field("accuracy", field[4], 100 * number_of(cell, "test_accuracy"));
    expect_field("samples/s", field[5], expected_rate(document, cell));
    if (good)
        expect_field("speed", field[6], expected_rate(document, cell) / expected_rate(document, o0));
    else
        assert_string_equal(field[6], "void");
    expect_field("peak", field[7], bytes / 1048576);
    expect_field("memory", field[8], bytes / number_of(member(o0, "memory_bytes"), "total"));
    snprintf(skipped, sizeof skipped, "%.0f/%.0f", number_of(cell, "steps_skipped"),
             number_of(cell, "steps_total"));
    assert_string_equal(field[9], skipped);
    expect_field("flushed", field[10],
                 100 * count_of(cell, "flushed", NULL, all) / count_of(cell, "nonzero", NULL, all));
    expect_field("overflowed", field[11], count_of(cell, "overflowed", NULL, all));
    assert_int_equal(field[10][0] == '(', all);
    if (strchr(field[10], '.') && field[10][0] != '<') /* some steps were probed */
        assert_non_null(strstr(field[10], "±"));
    if (expected_worst(cell) > 0)
        expect_field("worst layer", strrchr(field[13], ' ') + 1, 100 * expected_worst(cell));
    else
        assert_string_equal(field[13], "-");
    assert_string_equal(field[12], "-"); /* no update was probed */
}

static void test_every_number_follows_from_the_raw_record(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("lenet5");
    char *table = ab_test_report(document, "table", 0);
    const cJSON *cell;
    int row = 0;
    cJSON_ArrayForEach(cell, member(document, "cells")) expect_row(document, cell, row_start(table, row++));
    assert_int_equal(row, 7);
    free(table);
    cJSON_Delete(document);
}

static void test_the_noise_floor_stands_beside_the_gaps(void **state) {
    (void)state;
    char expected[512];
    cJSON *document = ab_test_fixture("lenet5");
    char *table = ab_test_report(document, "table", 0);
    snprintf(expected, sizeof expected, "±%.4f", expected_chance(document));
    const char *head = strstr(table, expected), *first_row = row_start(table, 0);
    assert_non_null(head);
    assert_true(head < first_row);
    snprintf(expected, sizeof expected, "floor ±%.4f: what chance alone exceeds in one run of 20, by a run",
             expected_chance(document));
    assert_non_null(strstr(first_row, expected));
    free(table);
    cJSON_DeleteItemFromObject(document, "noise_floor");
    table = ab_test_report(document, "table", 0);
    assert_non_null(strstr(table, "no noise floor was measured"));
    free(table);
    cJSON_Delete(document);
}

static void test_both_floors_stand_beside_the_gaps(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("lenet5"), *twin;
    cJSON *cells = cJSON_GetObjectItem(document, "cells");
    twin = cJSON_Duplicate(cJSON_GetArrayItem(cells, 1), 1);
    cJSON_ReplaceItemInObject(twin, "twin", cJSON_CreateString("rounding"));
    cJSON_AddItemToArray(cells, twin);
    assert_int_equal(ab_result_summarise(document), AB_OK);
    char expected[512], *table = ab_test_report(document, "table", 0);
    const double floor = expected_chance(document);
    snprintf(expected, sizeof expected, "±%.4f|%.4f", floor, floor);
    const char *head = strstr(table, expected), *rows = row_start(table, 0);
    assert_true(head && head < rows);
    snprintf(expected, sizeof expected, "gap to O0, floors ±ulp|rounding %.4f|%.4f: what", floor, floor);
    assert_non_null(strstr(rows, expected));
    assert_non_null(strstr(rows, "O0+rounding "));
    assert_non_null(strstr(rows, "O0+ulp "));
    free(table);
    cJSON_Delete(document);
}

/* ---- what is said ---------------------------------------------------------------------------- */

static void expect_text(const char *fixture, const char *expected) {
    cJSON *document = ab_test_fixture(fixture);
    char *table = ab_test_report(document, "table", 0);
    if (!strstr(table, expected)) fail_msg("'%s' is not in\n%s", expected, table);
    free(table);
    cJSON_Delete(document);
}

static void test_a_power_of_two_that_skips_is_written_as_one(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("lenet5"), *cell = cJSON_GetObjectItem(document, "cells")->child;
    while (strstr(cJSON_GetObjectItem(cell, "id")->valuestring, "/O3/") == NULL) cell = cell->next;
    cJSON_ReplaceItemInObject(cJSON_GetObjectItem(cell, "policy"), "loss_scale", cJSON_CreateNull());
    cJSON_ReplaceItemInObject(cell, "scale_policy", cJSON_CreateString("1099511627776:skip"));
    char *table = ab_test_report(document, "table", 0);
    if (!strstr(table, "\nO3     2^40:skip")) fail_msg("no 2^40:skip in\n%s", table);
    free(table);
    cJSON_Delete(document);
}

/* A further draw has no row: the lines below the table name cells, not places. */
static void test_a_further_draw_shifts_no_label(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("lenet5"), *cells = cJSON_GetObjectItem(document, "cells"), *cell;
    cJSON *draw = NULL, *last = NULL;
    cJSON_ArrayForEach(cell, cells) {
        if (!draw && cJSON_IsString(cJSON_GetObjectItem(cell, "twin"))) draw = cJSON_Duplicate(cell, 1);
        if (!cJSON_IsString(cJSON_GetObjectItem(cell, "twin"))) last = cell;
    }
    assert_non_null(draw);
    cJSON_AddNumberToObject(draw, "draw", 2);
    cJSON_InsertItemInArray(cells, 0, draw);
    cJSON_DeleteItemFromObject(last, "emulated_text");
    cJSON_AddStringToObject(last, "emulated_text", "planted");
    char expected[160];
    snprintf(expected, sizeof expected, "\n%s %s: emulated: planted\n", text_of(last, "level"),
             text_of(last, "scale_policy"));
    char *table = ab_test_report(document, "table", 0);
    assert_non_null(strstr(table, expected));
    free(table);
    cJSON_Delete(document);
}

static void test_void_failed_and_incomplete_are_said_with_their_reasons(void **state) {
    (void)state;
    expect_text("lenet5", "O3 1: speed ratio void: loss gap +0.1909 is above");
    expect_text("lenet5", "emulated: half products are computed in fp32");
    expect_text("lenet5", "( ): modelled: nothing is cast in this cell");
    expect_text("broken", "INCOMPLETE: the run has not finished; 3 of 6 cells are done");
    expect_text("broken", "failed: killed by signal 9 at step 31\n");
    expect_text("broken", "  interrupted at step 12\n");
    expect_text("broken", "  pending\n");
    expect_text("broken", "nan/inf");
    expect_text("broken", "O3 1: speed ratio void: 20 of 60 losses are not finite");
    expect_text("broken", "O1 dynamic: not deterministic: the losses differ between rounds");
    expect_text("tiny", "warning: a warning");
}

static void test_columns_that_tell_cells_apart_appear_only_then(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("lenet5"), *cells = member(document, "cells");
    char *table = ab_test_report(document, "table", 0);
    assert_null(strstr(table, " half scale"));
    free(table);
    cJSON_ReplaceItemInObject(cells->child->next->next, "half_format", cJSON_CreateString("bf16"));
    table = ab_test_report(document, "table", 0);
    assert_non_null(strstr(table, " half scale "));
    assert_non_null(strstr(table, " bf16 "));
    free(table);
    cJSON_Delete(document);
}

/* ---- looks ----------------------------------------------------------------------------------- */

static void test_the_table_fits_a_terminal_of_120_columns(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(fixtures); i++) {
        cJSON *document = ab_test_fixture(fixtures[i]);
        char *table = ab_test_report(document, "table", 0), *rest = table;
        for (char *line; (line = strtok_r(rest, "\n", &rest));) {
            if (ab_text_width(line) > 120) fail_msg("%d columns: %s", ab_text_width(line), line);
            assert_int_not_equal(line[strlen(line) - 1], ' ');
        }
        free(table);
        cJSON_Delete(document);
    }
}

static void test_color_only_when_asked_for(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(fixtures); i++) {
        cJSON *document = ab_test_fixture(fixtures[i]);
        char *plain = ab_test_report(document, "table", 0), *colored = ab_test_report(document, "table", 1);
        assert_null(strchr(plain, '\033'));
        assert_non_null(strstr(colored, "\033["));
        char *to = colored; /* without its escape sequences the coloured table is the plain one */
        for (const char *from = colored; *from;) {
            if (*from == '\033')
                from += strcspn(from, "m") + 1;
            else
                *to++ = *from++;
        }
        *to = '\0';
        assert_string_equal(colored, plain);
        free(plain);
        free(colored);
        cJSON_Delete(document);
    }
}

static void test_no_string_of_a_document_acts_on_the_terminal(void **state) {
    (void)state;
    /* right-to-left override, zero-width space, the C1 form of ESC [ */
    static const char hidden[][4] = {
        {(char)0xe2, (char)0x80, (char)0xae}, {(char)0xe2, (char)0x80, (char)0x8b}, {(char)0xc2, (char)0x9b}};
    cJSON *document = ab_test_fixture("hostile");
    char *table = ab_test_report(document, "table", 0);
    for (const unsigned char *c = (const unsigned char *)table; *c; c++)
        if ((*c < 0x20 && *c != '\n') || *c == 0x7f) fail_msg("control character 0x%02x", *c);
    for (size_t i = 0; i < AB_COUNT_OF(hidden); i++) assert_null(strstr(table, hidden[i]));
    free(table);
    cJSON_Delete(document);
}

static void test_documents_without_cells_or_keys_do_not_crash(void **state) {
    (void)state;
    static const char *const documents[] = {
        "{}", "{\"cells\": []}", "{\"cells\": [{}]}",
        "{\"cells\": [{\"status\": \"ok\", \"summary\": null}], \"config\": 3}"};
    static const char *const formats[] = {"table", "markdown", "csv"};
    for (size_t i = 0; i < AB_COUNT_OF(documents) * AB_COUNT_OF(formats); i++) {
        cJSON *document = cJSON_Parse(documents[i / 3]);
        char *text = ab_test_report(document, formats[i % 3], 0);
        assert_true(strlen(text) > 0);
        free(text);
        cJSON_Delete(document);
    }
}

static void test_an_unknown_format_names_the_nearest(void **state) {
    (void)state;
    const ab_report *report = NULL;
    assert_int_equal(ab_report_find("tabel", &report), AB_USAGE);
    assert_non_null(strstr(ab_error_message(), "did you mean table"));
    assert_null(report);
    for (int i = 0; i < ab_report_count(); i++) {
        assert_int_equal(ab_report_find(ab_report_at(i)->name, &report), AB_OK);
        assert_ptr_equal(report, ab_report_at(i));
    }
}

/* ---- strings and numbers --------------------------------------------------------------------- */

static void test_strings_are_cleaned_cut_and_measured(void **state) {
    (void)state;
    char line[16];
    assert_string_equal(ab_text_clean(line, sizeof line, "a\x1b[0m\nb"), "a?[0m?b");
    assert_string_equal(ab_text_clean(line, sizeof line, "J\u00fcrgen\xc2\x9b"), "J\u00fcrgen?");
    assert_string_equal(ab_text_clean(line, sizeof line, "\xff\xc3 \xe2\x82"), "?? ??");
    assert_string_equal(ab_text_clean(line, 5, "ab\u00fc"), "ab\u00fc");
    assert_string_equal(ab_text_clean(line, 5, "ab\u00fcd"), "a..."); /* a cut is seen */
    assert_string_equal(ab_text_clean(line, 7, "ab\u00fc\u00fc\u00fc"),
                        "ab..."); /* and at a whole character */
    assert_int_equal(ab_text_width("J\u00fcrgen"), 6);
    strcpy(line, "abcdefgh\u00fcj");
    ab_text_elide(line, 10);
    assert_string_equal(line, "abcdefgh\u00fcj");
    ab_text_elide(line, 7);
    assert_string_equal(line, "ab..h\u00fcj");
    ab_text_elide(line, 3);
    assert_string_equal(line, "ab.");
    ab_text_elide(line, 0);
    assert_string_equal(line, "");
}

static void test_numbers_have_a_fixed_look(void **state) {
    (void)state;
    static const struct {
        char *(*write)(char *text, double value);
        double value;
        const char *text;
    } rows[] = {
        {ab_text_loss, 0.43214, "0.4321"},   {ab_text_loss, 12345.678, "12345.68"},
        {ab_text_loss, 1e30, "1.0e+30"},     {ab_text_gap, 0.0213, "+0.0213"},
        {ab_text_gap, -3.14e-5, "-3.1e-05"}, {ab_text_gap, -0.0, "+0.0000"},
        {ab_text_percent, 0.0312, "3.12"},   {ab_text_percent, 1e-6, "<0.01"},
        {ab_text_percent, 0, "0"},           {ab_text_percent, 1, "100.0"},
        {ab_text_percent, 0.09996, "10.0"},  {ab_text_rate, 43.21, "43.2"},
        {ab_text_rate, 5123.4, "5123"},      {ab_text_rate, 1e12, "1.0e+12"},
        {ab_text_factor, 1.234, "1.23x"},    {ab_text_factor, 1234, "1234x"},
        {ab_text_mib, 1048576, "1.00"},      {ab_text_mib, 1e9, "953.7"},
        {ab_text_count, 938, "938"},         {ab_text_count, 12345678901.0, "1.2e+10"},
        {ab_text_scale, 65536, "65536"},     {ab_text_scale, 16777216, "2^24"},
        {ab_text_scale, 0.5, "0.5"},         {ab_text_scale, 200000, "200000"},
    };
    char text[AB_TEXT_NUMBER];
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++)
        assert_string_equal(rows[i].write(text, rows[i].value), rows[i].text);
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        assert_string_equal(rows[i].write(text, (double)NAN), "-");
        assert_string_equal(rows[i].write(text, (double)INFINITY), "-");
        assert_true(strlen(rows[i].write(text, 1.7e308)) < AB_TEXT_NUMBER);
    }
}

/* Lost over non-zero updates of all parameters, in the table and, exact, in the CSV. */
static void test_swallowed_updates_are_a_column(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("tiny"), *cell = member(document, "cells")->child;
    cJSON *probes = cJSON_GetObjectItem(cell, "probes"),
          *list = cJSON_Parse(
              "[{\"update\":{\"nonzero\":300,\"lost\":30}},{\"update\":{\"nonzero\":100,\"lost\":20}}]");
    if (!probes) probes = cJSON_AddObjectToObject(cell, "probes");
    cJSON_DeleteItemFromObject(probes, "lost_updates");
    cJSON_AddItemToObject(probes, "lost_updates", list);
    assert_int_equal(ab_result_summarise(document), AB_OK);
    char *table = ab_test_report(document, "table", 0), field[COLUMNS][FIELD_TEXT] = {{0}};
    assert_int_equal(split(row_start(table, 0), field), COLUMNS);
    expect_field("lost", field[12], 12.5);
    free(table);
    char *csv = ab_test_report(document, "csv", 0);
    assert_non_null(strstr(csv, ",lost_share,"));
    assert_non_null(strstr(csv, ",0.125,"));
    free(csv);
    cJSON_Delete(document);
}

/* Of a training loop of the user's own: of every optimizer and every group of parameters. */
static void test_learning_rates_of_a_loop_are_a_line(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("tiny");
    char *table = ab_test_report(document, "table", 0);
    assert_null(strstr(table, "learning rates"));
    free(table);
    cJSON *probe = cJSON_Parse(
        "{\"groups\":[{\"lr_first\":0.5,\"lr_last\":0.05},{\"lr_first\":null,\"lr_last\":null},"
        "{\"lr_first\":0.001,\"lr_last\":0.001}],\"facts\":["
        "{\"name\":\"base_learning_rate\",\"place\":\"param_groups[0]\",\"first\":0.5,\"last\":0.5},"
        "{\"name\":\"learning_rate\",\"place\":\"param_groups[1]\",\"first\":0.25,\"last\":0.025}]}");
    assert_non_null(probe);
    cJSON_DeleteItemFromObject(document, "probe");
    cJSON_AddItemToObject(document, "probe", probe);
    table = ab_test_report(document, "table", 0);
    assert_non_null(
        strstr(table, "learning rates: 0.5 to 0.05; optimizer 2 0.001; param_groups[1] 0.25 to 0.025\n"));
    free(table);
    cJSON_Delete(document);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number_follows_from_the_raw_record),
        cmocka_unit_test(test_the_noise_floor_stands_beside_the_gaps),
        cmocka_unit_test(test_both_floors_stand_beside_the_gaps),
        cmocka_unit_test(test_a_power_of_two_that_skips_is_written_as_one),
        cmocka_unit_test(test_a_further_draw_shifts_no_label),
        cmocka_unit_test(test_void_failed_and_incomplete_are_said_with_their_reasons),
        cmocka_unit_test(test_columns_that_tell_cells_apart_appear_only_then),
        cmocka_unit_test(test_the_table_fits_a_terminal_of_120_columns),
        cmocka_unit_test(test_color_only_when_asked_for),
        cmocka_unit_test(test_no_string_of_a_document_acts_on_the_terminal),
        cmocka_unit_test(test_documents_without_cells_or_keys_do_not_crash),
        cmocka_unit_test(test_an_unknown_format_names_the_nearest),
        cmocka_unit_test(test_strings_are_cleaned_cut_and_measured),
        cmocka_unit_test(test_numbers_have_a_fixed_look),
        cmocka_unit_test(test_swallowed_updates_are_a_column),
        cmocka_unit_test(test_learning_rates_of_a_loop_are_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
