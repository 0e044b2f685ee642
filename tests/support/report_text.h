/* A report of a fixture as text, for the tests of the reports. They define _POSIX_C_SOURCE 200809L
 * (fmemopen). */
#ifndef AB_TESTS_SUPPORT_REPORT_TEXT_H
#define AB_TESTS_SUPPORT_REPORT_TEXT_H

#include "reports/record/result.h"
#include "reports/render/report.h"
#include "support/json_file.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

/* The fixture result_<name>.json, summarised. The caller deletes. */
static inline cJSON *ab_test_fixture(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/tests/fixtures/result_%s.json", AB_SOURCE_DIR, name);
    cJSON *document = ab_test_read_json(path);
    assert_non_null(document);
    assert_int_equal(ab_result_summarise(document), AB_OK);
    return document;
}

enum { AB_TEST_REPORT_BYTES = 1 << 20 };

/* What a report writes. The caller frees. */
static inline char *ab_test_report(const cJSON *document, const char *report_name, int color) {
    const ab_report *report = NULL;
    char *text = (char *)calloc(1, AB_TEST_REPORT_BYTES);
    assert_non_null(text);
    FILE *out = fmemopen(text, AB_TEST_REPORT_BYTES - 1, "w");
    assert_non_null(out);
    assert_int_equal(ab_report_find(report_name, &report), AB_OK);
    assert_int_equal(report->write(document, out, color), AB_OK);
    assert_int_equal(fclose(out), 0);
    return text;
}

#endif
