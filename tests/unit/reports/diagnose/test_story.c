/* What holds for several sick cells is told once: neighbours of a sweep repeat neither evidence nor remedy.
 */
#define _POSIX_C_SOURCE 200809L
#include "reports/diagnose/diagnose.h"
#include "support/recompute.h"
#include "support/report_text.h"

#include <string.h>

enum { BYTES = 1 << 20 };

/* The caller frees. */
static char *diagnose(const cJSON *document, ab_diagnose_detail detail, int *sick) {
    char *text = (char *)calloc(1, BYTES);
    assert_non_null(text);
    FILE *out = fmemopen(text, BYTES - 1, "w");
    assert_non_null(out);
    assert_int_equal(ab_diagnose_print(document, &ab_thresholds_default, detail, out, sick), AB_OK);
    fclose(out);
    return text;
}

static int count_of_text(const char *text, const char *wanted) {
    int count = 0;
    for (; (text = strstr(text, wanted)); text += strlen(wanted)) count++;
    return count;
}

/* The first sick cell of the document, or NULL. */
static const char *first_sick(const char *text, char *id, size_t size) {
    const char *at = strstr(text, ": sick");
    if (!at) return NULL;
    const char *line = at;
    while (line > text && line[-1] != '\n') line--;
    snprintf(id, size, "%.*s", (int)(at - line), line);
    return id;
}

/* Adds copies of a cell under other ids. */
static void add_copies(cJSON *document, const char *id, int count) {
    cJSON *cell, *cells = cJSON_GetObjectItem(document, "cells");
    cJSON *found = NULL;
    cJSON_ArrayForEach(cell, cells) {
        if (strcmp(text_of(cell, "id"), id) == 0) found = cell;
    }
    assert_non_null(found);
    for (int i = 0; i < count; i++) {
        char name[32];
        cJSON *copy = cJSON_Duplicate(found, 1);
        snprintf(name, sizeof name, "copy%d", i);
        cJSON_ReplaceItemInObject(copy, "id", cJSON_CreateString(name));
        cJSON_AddItemToArray(cells, copy);
    }
}

static void test_a_cause_that_cells_share_is_told_once(void **state) {
    (void)state;
    char id[200], line[300];
    int sick, more;
    cJSON *document = ab_test_fixture("broken");
    char *before = diagnose(document, AB_DIAGNOSE_BRIEF, &sick);
    assert_non_null(first_sick(before, id, sizeof id));
    add_copies(document, id, 3);
    char *after = diagnose(document, AB_DIAGNOSE_BRIEF, &more);
    assert_int_equal(more, sick + 3);
    assert_int_equal(count_of_text(after, "\n"), count_of_text(before, "\n") + 3);
    snprintf(line, sizeof line, ", as %s\n", id);
    assert_int_equal(count_of_text(after, line), count_of_text(before, line) + 3);
    assert_non_null(strstr(after, "\ncopy2: sick"));
    char *whole = diagnose(document, AB_DIAGNOSE_WHOLE, &more);
    assert_int_equal(count_of_text(whole, line), 0);
    assert_true(count_of_text(whole, "\n  unknown: ") == count_of_text(before, "\n  unknown: ") + 3);
    free(before);
    free(after);
    free(whole);
    cJSON_Delete(document);
}

static void test_the_page_tells_it_once_too(void **state) {
    (void)state;
    char id[200];
    int sick;
    cJSON *document = ab_test_fixture("broken");
    char *text = diagnose(document, AB_DIAGNOSE_BRIEF, &sick);
    assert_non_null(first_sick(text, id, sizeof id));
    setenv("PATH", "/nonexistent", 1); /* no pictures */
    char *before = ab_test_report(document, "html", 0);
    add_copies(document, id, 2);
    char *after = ab_test_report(document, "html", 0);
    assert_int_equal(count_of_text(after, "<p>Remedy"), count_of_text(before, "<p>Remedy"));
    assert_int_equal(count_of_text(after, ", as "), count_of_text(before, ", as ") + 2);
    free(text);
    free(before);
    free(after);
    cJSON_Delete(document);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cause_that_cells_share_is_told_once),
        cmocka_unit_test(test_the_page_tells_it_once_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
