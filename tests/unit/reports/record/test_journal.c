/* The journal of a run that has not ended: document and journal read as the document that would have been
 * written, wherever the journal was cut off. */
#define _XOPEN_SOURCE 700
#include "reports/record/journal.h"
#include "reports/record/json.h"
#include "reports/record/result.h"
#include "support/json_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char fixture[] = AB_SOURCE_DIR "/tests/fixtures/result_tiny.json";
static char folder[] = "/tmp/ampbench_journal_XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static cJSON *cell_of(const cJSON *document, int i) {
    return cJSON_GetArrayItem(cJSON_GetObjectItem(document, "cells"), i);
}

static void set_elapsed(cJSON *document, double elapsed_s) {
    cJSON_ReplaceItemInObject(cJSON_GetObjectItem(document, "run"), "elapsed_s",
                              cJSON_CreateNumber(elapsed_s));
}

/* The fixture as its run saw it before any cell had ended; `count` cells. */
static cJSON *before(int *count) {
    static const char *const identity[] = {"id",     "model", "level", "scale_policy", "half_format",
                                           "device", "seed",  "twin",  "status",       "reason"};
    cJSON *document = ab_test_read_json(fixture), *list = cJSON_GetObjectItem(document, "cells");
    *count = cJSON_GetArraySize(list);
    for (int c = 0; c < *count; c++) {
        cJSON *bare = cJSON_CreateObject(), *cell = cell_of(document, c);
        for (size_t i = 0; i < AB_COUNT_OF(identity); i++)
            if (cJSON_GetObjectItem(cell, identity[i]))
                cJSON_AddItemToObject(bare, identity[i],
                                      cJSON_Duplicate(cJSON_GetObjectItem(cell, identity[i]), 1));
        cJSON_ReplaceItemInObject(bare, "status", cJSON_CreateString("pending"));
        cJSON_AddArrayToObject(bare, "processes");
        cJSON_ReplaceItemInArray(list, c, bare);
    }
    set_elapsed(document, 0.25);
    assert_int_equal(ab_result_summarise(document), AB_OK);
    return document;
}

/* Plays a run: three processes of every cell one by one, into `live` and the journal of "r.json".
 * after[i]: the document as it is after record i. Returns the number of records. */
enum { MOST = 64 };
static int play(cJSON *live, ab_journal *journal, cJSON **after) {
    cJSON *whole = ab_test_read_json(fixture);
    const int count = cJSON_GetArraySize(cJSON_GetObjectItem(whole, "cells"));
    int records = 0;
    for (int c = 0; c < count; c++) {
        cJSON *cell = cJSON_Duplicate(cell_of(whole, c), 1), *rest = cJSON_CreateArray(), *process;
        cJSON *processes = cJSON_GetObjectItem(cell, "processes");
        for (int round = 1; round < 3; round++) { /* the fixture has one round */
            process = cJSON_Duplicate(cJSON_GetArrayItem(processes, 0), 1);
            cJSON_ReplaceItemInObject(process, "round", cJSON_CreateNumber(round));
            cJSON_AddItemToArray(rest, process);
        }
        cJSON_ReplaceItemInArray(cJSON_GetObjectItem(live, "cells"), c, cell);
        for (bool first = true; first || cJSON_GetArraySize(rest) > 0; first = false) {
            process = first ? NULL : cJSON_DetachItemFromArray(rest, 0);
            if (process) cJSON_AddItemToArray(processes, process);
            const double elapsed = 0.5 + records;
            assert_int_equal(ab_journal_add(journal, c, cell, first, process, elapsed), AB_OK);
            set_elapsed(live, elapsed);
            assert_true(records < MOST);
            after[records++] = cJSON_Duplicate(live, 1);
        }
        cJSON_Delete(rest);
    }
    cJSON_Delete(whole);
    return records;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void wherever_it_is_cut_the_whole_records_are_read(void **state) {
    (void)state;
    int count = 0, records = 0, whole = -1;
    cJSON *live = before(&count), *after[MOST], *start;
    ab_journal journal = {{0}};
    assert_int_equal(ab_result_write(live, "r.json"), AB_OK);
    assert_int_equal(ab_journal_start(&journal, "r.json", live), AB_OK);
    start = cJSON_Duplicate(live, 1);
    records = play(live, &journal, after);
    assert_int_equal(records, 3 * count);
    ab_journal_end(&journal, NULL);
    char *text = ab_test_read("r.json.journal");
    const size_t length = strlen(text);
    int checked = 0;
    for (size_t cut = 0; cut <= length; cut++) {
        const bool edge = cut == length || text[cut] == '\n' || (cut > 0 && text[cut - 1] == '\n');
        if (cut > 0 && text[cut - 1] == '\n') whole++;
        if (!edge && cut % 1009 != 0) continue;
        assert_int_equal(truncate("r.json.journal", 0), 0);
        FILE *file = fopen("r.json.journal", "wb");
        fwrite(text, 1, cut, file);
        fclose(file);
        cJSON *found = NULL, *expected = cJSON_Duplicate(whole <= 0 ? start : after[whole - 1], 1);
        assert_int_equal(ab_result_load("r.json", &found), AB_OK);
        assert_int_equal(ab_result_summarise(expected), AB_OK);
        assert_int_equal(ab_result_summarise(found), AB_OK);
        cJSON_DeleteItemFromObject(cJSON_GetObjectItem(expected, "determinism"), "all_cells_deterministic");
        cJSON_DeleteItemFromObject(cJSON_GetObjectItem(found, "determinism"), "all_cells_deterministic");
        assert_true(cJSON_Compare(found, expected, 1));
        cJSON_Delete(found);
        cJSON_Delete(expected);
        checked++;
    }
    assert_int_equal(whole, records);
    assert_true(checked > 2 * records);
    for (int i = 0; i < records; i++) cJSON_Delete(after[i]);
    free(text);
    cJSON_Delete(start);
    cJSON_Delete(live);
    unlink("r.json");
    unlink("r.json.journal");
}

static void set_text(cJSON *cell, const char *key, const char *text) {
    cJSON_DeleteItemFromObject(cell, key);
    cJSON_AddStringToObject(cell, key, text);
}

/* The status of cell 0 when its document is read with a line that `teller` wrote for it. */
static char *status_with_line_of(cJSON *document, const cJSON *teller, bool whole) {
    cJSON *found = NULL;
    ab_journal journal = {{0}};
    assert_int_equal(ab_result_write(document, "r.json"), AB_OK);
    assert_int_equal(ab_journal_start(&journal, "r.json", document), AB_OK);
    assert_int_equal(ab_journal_add(&journal, 0, teller, whole, NULL, 1), AB_OK);
    assert_int_equal(ab_result_load("r.json", &found), AB_OK);
    char *status = strdup(ab_json_text(cell_of(found, 0), "status", "none"));
    ab_journal_end(&journal, "r.json");
    unlink("r.json");
    cJSON_Delete(found);
    return status;
}

static void lines_of_another_cell_are_not_taken(void **state) {
    (void)state;
    static const struct {
        const char *key, *text;
        bool whole, taken;
    } lines[] = {{"config_digest", "0123456789abcdef", true, true},
                 {"config_digest", "0123456789abcdef", false, true},
                 {"config_digest", "fedcba9876543210", true, false},
                 {"config_digest", "fedcba9876543210", false, false},
                 {"id", "another", true, false}};
    int count = 0;
    cJSON *document = before(&count), *finished = ab_test_read_json(fixture);
    set_text(cell_of(document, 0), "config_digest", "0123456789abcdef");
    for (size_t i = 0; i < AB_COUNT_OF(lines); i++) {
        cJSON *teller = cJSON_Duplicate(cell_of(finished, 0), 1);
        set_text(teller, "config_digest", "0123456789abcdef");
        set_text(teller, "status", "interrupted");
        set_text(teller, "reason", "a test");
        set_text(teller, lines[i].key, lines[i].text);
        char *status = status_with_line_of(document, teller, lines[i].whole);
        assert_string_equal(status, lines[i].taken ? "interrupted" : "pending");
        free(status);
        cJSON_Delete(teller);
    }
    cJSON_Delete(finished);
    cJSON_Delete(document);
}

static void a_journal_of_another_version_is_not_used(void **state) {
    (void)state;
    int count = 0;
    cJSON *document = before(&count), *found = NULL;
    ab_journal journal = {{0}};
    assert_int_equal(ab_result_write(document, "r.json"), AB_OK);
    assert_int_equal(ab_journal_start(&journal, "r.json", document), AB_OK);
    cJSON *cell = cJSON_Duplicate(cell_of(document, 0), 1);
    cJSON_ReplaceItemInObject(cell, "status", cJSON_CreateString("interrupted"));
    cJSON_AddStringToObject(cell, "reason", "a test");
    assert_int_equal(ab_journal_add(&journal, 0, cell, true, NULL, 1), AB_OK);
    assert_int_equal(ab_result_load("r.json", &found), AB_OK);
    assert_string_equal(ab_json_text(cell_of(found, 0), "status", ""), "interrupted");
    cJSON_Delete(found);
    set_elapsed(document, 2); /* killed after the document was replaced, before the journal was */
    assert_int_equal(ab_result_write(document, "r.json"), AB_OK);
    assert_int_equal(ab_result_load("r.json", &found), AB_OK);
    assert_string_equal(ab_json_text(cell_of(found, 0), "status", ""), "pending");
    assert_true(ab_json_number(found, "run.elapsed_s", 0) == 2);
    cJSON_Delete(found);
    ab_journal_end(&journal, "r.json");
    assert_int_equal(access("r.json.journal", F_OK), -1);
    cJSON_Delete(cell);
    cJSON_Delete(document);
    unlink("r.json");
}

static void damage_ends_what_is_used_and_never_the_reading(void **state) {
    (void)state;
    static const char *const lines[] = {"{\"cell\":99999,\"set\":{}}\n",
                                        "{\"cell\":-1,\"value\":{}}\n",
                                        "{\"cell\":0,\"value\":3}\n",
                                        "{\"cell\":0}\n",
                                        "{\"cell\":0,\"set\":[]}\n",
                                        "[]\n",
                                        "\n",
                                        "{\"cell\":0,\"set\":{}"};
    int count = 0;
    cJSON *document = before(&count), *found = NULL;
    assert_int_equal(ab_result_write(document, "r.json"), AB_OK);
    for (size_t i = 0; i < AB_COUNT_OF(lines); i++) {
        ab_journal journal = {{0}};
        assert_int_equal(ab_journal_start(&journal, "r.json", document), AB_OK);
        fputs(lines[i], journal.out.stream);
        ab_journal_end(&journal, NULL);
        assert_int_equal(ab_result_load("r.json", &found), AB_OK);
        assert_true(cJSON_Compare(found, document, 1));
        cJSON_Delete(found);
    }
    cJSON_Delete(document);
    unlink("r.json");
    unlink("r.json.journal");
}

/* What a process costs does not depend on the cells that are there already. */
static void a_record_is_as_long_as_what_it_adds(void **state) {
    (void)state;
    int count = 0;
    struct stat about;
    cJSON *document = before(&count), *process = cJSON_CreateObject();
    ab_journal journal = {{0}};
    assert_int_equal(ab_journal_start(&journal, "r.json", document), AB_OK);
    assert_int_equal(stat("r.json.journal", &about), 0);
    const off_t header = about.st_size;
    assert_int_equal(ab_journal_add(&journal, 1, cell_of(document, 1), false, process, 1), AB_OK);
    assert_int_equal(stat("r.json.journal", &about), 0);
    assert_true(about.st_size - header < 100);
    ab_journal_end(&journal, "r.json");
    cJSON_Delete(process);
    cJSON_Delete(document);
}

static void what_cannot_be_continued_has_no_journal(void **state) {
    (void)state;
    int count = 0;
    cJSON *document = before(&count);
    const char *places[] = {"-", "/dev/null", "/dev/stdout"};
    for (size_t i = 0; i < AB_COUNT_OF(places); i++) {
        ab_journal journal = {{0}};
        assert_int_equal(ab_journal_start(&journal, places[i], document), AB_OK);
        assert_null(journal.out.stream);
        assert_int_equal(ab_journal_add(&journal, 0, cell_of(document, 0), true, NULL, 1), AB_OK);
        ab_journal_end(&journal, places[i]);
    }
    cJSON_Delete(document);
}

/* As machines of a sweep send them. */
static void a_whole_cell_without_a_summary_can_be_read(void **state) {
    (void)state;
    int count = 0;
    cJSON *document = before(&count), *ended = ab_test_read_json(fixture), *found = NULL;
    ab_journal journal = {{0}};
    cJSON_DeleteItemFromObject(cell_of(ended, 1), "summary");
    assert_int_equal(ab_result_write(document, "r.json"), AB_OK);
    assert_int_equal(ab_journal_start(&journal, "r.json", document), AB_OK);
    assert_int_equal(ab_journal_add(&journal, 1, cell_of(ended, 1), true, NULL, 1), AB_OK);
    assert_int_equal(ab_result_load("r.json", &found), AB_OK);
    assert_string_equal(ab_json_text(cell_of(found, 1), "status", ""), "ok");
    cJSON *whole = ab_test_read_json(fixture); /* the summary is that of what the cell is now */
    assert_true(ab_json_number(cell_of(found, 1), "summary.step_time_ns_high", -1) ==
                ab_json_number(cell_of(whole, 1), "summary.step_time_ns_high", -2));
    cJSON_Delete(whole);
    cJSON_Delete(found);
    ab_journal_end(&journal, "r.json");
    cJSON_Delete(ended);
    cJSON_Delete(document);
    unlink("r.json");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wherever_it_is_cut_the_whole_records_are_read),
        cmocka_unit_test(lines_of_another_cell_are_not_taken),
        cmocka_unit_test(a_journal_of_another_version_is_not_used),
        cmocka_unit_test(damage_ends_what_is_used_and_never_the_reading),
        cmocka_unit_test(a_record_is_as_long_as_what_it_adds),
        cmocka_unit_test(what_cannot_be_continued_has_no_journal),
        cmocka_unit_test(a_whole_cell_without_a_summary_can_be_read),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
