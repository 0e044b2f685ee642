/* A document may come from anywhere. Every string in it that is a name or a text is replaced by one hostile
 * text after another, and what each report writes must stay what it is: a table, a page, XML, CSV,
 * annotations; no markup, no command, no formula. */
#define _POSIX_C_SOURCE 200809L
#include "support/page_check.h"
#include "support/report_text.h"

#include <string.h>

static const char *const hostile[] = {
    "\"quoted\" 'too' `and` so",
    "<script>alert(1)</script>",
    "</text></svg><script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "]]></failure><evil/>",
    "&lt;b&gt; &amp;amp; &#x41; &",
    "$(touch pwned) `touch pwned` ${HOME}",
    "'; system 'touch pwned'; set output '/tmp/pwned'; #",
    "line one\nline two\r\nline three",
    "\033[31mred\033[0m \033]0;title\007 \23331m",
    "=HYPERLINK(\"http://example.com\")",
    "@SUM(A1)",
    "+1+cmd|' /C calc'!A0",
    "\xef\xbc\x9d"
    "1+cmd|' /C calc'!A0",
    "##vso[task.setvariable]planted ##teamcity[planted]",
    /* NOLINTNEXTLINE(misc-misleading-bidirectional) */
    "\177 \xc2\x85 \xc2\x9b"
    "31m \xe2\x81\xa6isolated",
    "::error::planted",
    "x ::set-output name=a::b",
    "##[error]planted",
    "| a | b |\n|---|---|",
    "[link](http://example.com) ![x](y) **bold** @user #1",
    "{/:Bold enhanced} ^{2} _{3} @{x} \\U+0041 &{space}",
    /* NOLINTNEXTLINE(misc-misleading-bidirectional) */
    "\xe2\x80\xaereversed \xef\xbb\xbf\xe2\x80\x8b",
    "\xff\xfe\xc0\xaf broken",
    "%n%s%d%x 100 %",
    "a,b;c\td",
};

/* Names and texts; what the checks fix (statuses, formats, digests' shapes) stays. */
static bool is_free(const char *key) {
    static const char *const keys[] = {"net",          "data",
                                       "optimizer",    "reason",
                                       "model",        "id",
                                       "layer",        "name",
                                       "cpu_model",    "compiler",
                                       "flags",        "version",
                                       "git_sha",      "emulated_text",
                                       "device",       "text",
                                       "scale_policy", "loss_scale",
                                       "origin",       "os",
                                       "kernel",       "test_accuracy_reason",
                                       "op",           "started_utc"};
    for (size_t i = 0; key && i < AB_COUNT_OF(keys); i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

static void poison(cJSON *value, size_t *next) {
    const char *text = hostile[*next % AB_COUNT_OF(hostile)];
    if (cJSON_IsString(value) && is_free(value->string)) {
        cJSON_SetValuestring(value, text);
        (*next)++;
    }
    bool is_list =
        value->string && (strcmp(value->string, "warnings") == 0 || strcmp(value->string, "argv") == 0);
    for (cJSON *child = value->child; child; child = child->next) {
        if (is_list && cJSON_IsString(child)) cJSON_SetValuestring(child, text);
        poison(child, next);
    }
}

/* Text after text, from number `first` on. */
static cJSON *poisoned(size_t first) {
    const char *text = hostile[first];
    size_t next = first;
    cJSON *document = ab_test_fixture("tiny"), *cell, *cells = cJSON_GetObjectItem(document, "cells");
    char padded[512];
    int i = 0;
    poison(document, &next);
    cJSON_AddItemToArray(cJSON_GetObjectItem(document, "warnings"), cJSON_CreateString(text));
    cJSON_ArrayForEach(cell, cells) { /* ids stay unique */
        snprintf(padded, sizeof padded, "%s%d", text, i++);
        cJSON_SetValuestring(cJSON_GetObjectItem(cell, "id"), padded);
    }
    assert_int_equal(ab_result_summarise(document), AB_OK);
    return document;
}

static bool have_gnuplot;

typedef void (*judge)(const char *text, const char *name);

/* Every `stride`-th start of the list: within a document every string gets another text. */
static void judge_all(const char *report, size_t stride, judge check) {
    for (size_t i = 0; i < AB_COUNT_OF(hostile); i += stride) {
        cJSON *document = poisoned(i);
        char *text = ab_test_report(document, report, 1);
        for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
            bool layout = *c == '\n' || (*c == '\r' && strcmp(report, "csv") == 0);
            bool color = *c == 033 && strcmp(report, "table") == 0;
            const bool c1 = *c == 0xc2 && c[1] < 0xa0,
                       isolate = strncmp((const char *)c, "\xe2\x81\xa6", 3) == 0;
            if ((*c < 0x20 && !layout && !color) || *c == 0x7f || c1 || isolate)
                fail_msg("%s: control character 0x%02x for %s", report, *c, hostile[i]);
        }
        if (strstr(text, "##[") || strstr(text, "##vso["))
            fail_msg("%s: a runner's command for %s", report, hostile[i]);
        /* NOLINTNEXTLINE(misc-misleading-bidirectional) */
        assert_null(strstr(text, "\xe2\x80\xae"));
        check(text, hostile[i]);
        free(text);
        cJSON_Delete(document);
    }
}

static void is_page(const char *text, const char *name) {
    char wrong[256];
    if (ab_page_check(text, true, wrong)) fail_msg("%s: %s", name, wrong);
    if (strstr(text, "left out")) fail_msg("%s: a picture was refused", name);
    int drawn = 0;
    for (const char *at = text; (at = strstr(at, "<svg ")); at++) drawn++;
    if (drawn != (have_gnuplot ? 6 : 0)) fail_msg("%s: %d pictures", name, drawn);
}

static void is_xml(const char *text, const char *name) {
    char wrong[256];
    if (ab_page_check(text, false, wrong)) fail_msg("%s: %s", name, wrong);
    assert_null(strstr(text, "<evil"));
}

/* Every line begins with one of the three levels, and there are as many lines as things to say. */
static void is_annotations(const char *text, const char *name) {
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        bool known = strncmp(line, "::error title=ampbench", 22) == 0 ||
                     strncmp(line, "::warning title=ampbench", 24) == 0 ||
                     strncmp(line, "::notice title=", 15) == 0;
        if (!known) fail_msg("%s: %.80s", name, line);
        const char *title = line + strcspn(line, "=");
        if (strncmp(title + strcspn(title, ":,"), "::", 2) != 0)
            fail_msg("%s: a title that ends early: %.80s", name, line);
        for (const char *c = line; c < end; c++)
            if (*c == '%' && strncmp(c, "%25", 3) != 0 && strncmp(c, "%3A", 3) != 0 &&
                strncmp(c, "%2C", 3) != 0)
                fail_msg("%s: an escape of its own: %.20s", name, c);
    }
}

/* No line, trimmed as runners do, starts a command; every escape is one of our colours. */
static void is_terminal_text(const char *text, const char *name) {
    for (const char *line = text; *line; line += strcspn(line, "\n")) {
        line += strspn(line, " \n");
        if (strncmp(line, "::", 2) == 0) fail_msg("%s: %.80s", name, line);
    }
    for (const char *escape = text; (escape = strchr(escape, 033)); escape++) {
        size_t digits = strspn(escape + 2, "0123456789");
        if (escape[1] != '[' || digits > 2 || escape[2 + digits] != 'm')
            fail_msg("%s: an escape of its own", name);
    }
}

static void is_markdown(const char *text, const char *name) {
    for (const char *c = text; *c; c++) {
        bool reference = *c == '#' && c > text && c[-1] == '&';
        if (strchr("<>@#", *c) && !reference) fail_msg("%s: unescaped %.20s", name, c);
        if (strchr("`[]", *c) && (c == text || c[-1] != '\\')) fail_msg("%s: unescaped %.20s", name, c);
    }
}

/* RFC 4180, and no field starts as a formula does; text that does has an apostrophe. Numbers may start with a
 * sign. */
static void is_csv(const char *text, const char *name) {
    int columns = 0, rows = 0, fields = 0;
    for (const char *c = text; *c; c++) {
        const char *start = c;
        bool quoted = *c == '"';
        const char *inner = quoted ? ++c : c;
        bool number = !quoted && (*inner == '-' || *inner == '+') && strchr("0123456789", inner[1]);
        if (((*inner && strchr("=+-@", *inner)) || strncmp(inner, "\xef\xbc\x9d", 3) == 0) && !number)
            fail_msg("%s: a formula: %.40s", name, start);
        for (; *c; c++) {
            if (quoted && c[0] == '"' && c[1] == '"')
                c++;
            else if (quoted ? c[0] == '"' : strchr(",\r", c[0]) != NULL)
                break;
        }
        c += quoted;
        fields++;
        if (*c == ',') continue;
        if (strncmp(c, "\r\n", 2) != 0) fail_msg("%s: a field ends with %.20s", name, c);
        if (rows++ == 0) columns = fields;
        if (fields != columns) fail_msg("%s: %d fields instead of %d", name, fields, columns);
        fields = 0;
        c++;
    }
    assert_true(rows >= 2);
}

static void test_hostile_names_stay_text_in_html_and_its_pictures(void **state) {
    (void)state;
    have_gnuplot = system("gnuplot --version > /dev/null 2>&1") == 0;
    judge_all("html", 8, is_page);
    assert_int_not_equal(system("test -e pwned || test -e /tmp/pwned"), 0);
}
static void test_hostile_names_stay_text_in_junit_xml(void **state) {
    (void)state;
    judge_all("junit", 1, is_xml);
}
static void test_hostile_names_stay_text_in_github_annotations(void **state) {
    (void)state;
    judge_all("github", 1, is_annotations);
}
static void test_hostile_names_stay_text_on_a_terminal(void **state) {
    (void)state;
    judge_all("table", 1, is_terminal_text);
}
static void test_hostile_names_stay_text_in_markdown(void **state) {
    (void)state;
    judge_all("markdown", 1, is_markdown);
}
static void test_hostile_names_stay_text_in_csv(void **state) {
    (void)state;
    judge_all("csv", 1, is_csv);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_names_stay_text_on_a_terminal),
        cmocka_unit_test(test_hostile_names_stay_text_in_markdown),
        cmocka_unit_test(test_hostile_names_stay_text_in_csv),
        cmocka_unit_test(test_hostile_names_stay_text_in_junit_xml),
        cmocka_unit_test(test_hostile_names_stay_text_in_github_annotations),
        cmocka_unit_test(test_hostile_names_stay_text_in_html_and_its_pictures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
