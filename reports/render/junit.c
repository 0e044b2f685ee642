/* Writes JUnit's XML (the dialect shared by Jenkins, GitLab and GitHub Actions) and GitHub annotations.
 * Makes no decisions. */
#include "reports/render/junit.h"

#include "reports/record/text.h"
#include "reports/render/markup.h"

#include <string.h>

static int count_of(const ab_junit_case *cases, int count, ab_junit_outcome outcome) {
    int found = 0;
    for (int i = 0; i < count; i++) found += cases[i].outcome == outcome;
    return found;
}

static void write_attribute(FILE *out, const char *name, const char *text) {
    fprintf(out, " %s=\"", name);
    ab_markup_text(out, text);
    fputc('"', out);
}

static void write_counts(FILE *out, const ab_junit_case *cases, int count) {
    fprintf(out, " tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\"", count,
            count_of(cases, count, AB_JUNIT_FAILED), count_of(cases, count, AB_JUNIT_ERROR),
            count_of(cases, count, AB_JUNIT_SKIPPED));
}

static void write_case(FILE *out, const ab_junit_case *c) {
    static const char *const elements[] = {NULL, "failure", "error", "skipped"};
    fputs("    <testcase", out);
    write_attribute(out, "classname", c->class_name);
    write_attribute(out, "name", c->name);
    if (c->seconds >= 0) fprintf(out, " time=\"%.3f\"", c->seconds);
    if (c->outcome == AB_JUNIT_PASSED) {
        fputs("/>\n", out);
        return;
    }
    fprintf(out, ">\n      <%s", elements[c->outcome]);
    write_attribute(out, "message", c->message);
    fputs("/>\n    </testcase>\n", out);
}

void ab_junit_write(FILE *out, const char *suite, const ab_junit_case *cases, int count) {
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"ampbench\"", out);
    write_counts(out, cases, count);
    fputs(">\n  <testsuite", out);
    write_attribute(out, "name", suite);
    write_counts(out, cases, count);
    fputs(">\n", out);
    for (int i = 0; i < count; i++) write_case(out, &cases[i]);
    fputs("  </testsuite>\n</testsuites>\n", out);
}

/* GitHub's escapes: % CR LF everywhere, : and , in properties. Cleaned text has no CR or LF. */
static void write_escaped(FILE *out, const char *text, const char *escaped) {
    char clean[AB_MARKUP_TEXT];
    for (const char *c = ab_text_clean(clean, sizeof clean, text); *c; c++) {
        if (strchr(escaped, *c))
            fprintf(out, "%%%02X", (unsigned)*c);
        else
            fputc(*c, out);
    }
}

void ab_github_annotation(FILE *out, const char *level, const char *title, const char *message) {
    fprintf(out, "::%s title=", level);
    write_escaped(out, title, "%:,");
    fputs("::", out);
    write_escaped(out, message, "%");
    fputc('\n', out);
}
