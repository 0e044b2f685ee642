/* The list of reports. Each report has its own file. */
#include "reports/render/report.h"
#include "kernels/core/text.h"
#include "reports/record/output.h"
#include "reports/record/text.h"

#include <stdio.h>
#include <string.h>

#define AB_REPORT(name) extern const ab_report ab_report_##name;
#include "reports/render/reports.def"
#undef AB_REPORT

static const ab_report *const reports[] = {
#define AB_REPORT(name) &ab_report_##name,
#include "reports/render/reports.def"
#undef AB_REPORT
};

int ab_report_count(void) { return (int)AB_COUNT_OF(reports); }
const ab_report *ab_report_at(int i) { return reports[i]; }

ab_status ab_report_find(const char *name, const ab_report **report) {
    const char *names[AB_COUNT_OF(reports)];
    char clean[64];
    for (size_t i = 0; i < AB_COUNT_OF(reports); i++) {
        names[i] = reports[i]->name;
        if (strcmp(name, names[i]) == 0) {
            *report = reports[i];
            return AB_OK;
        }
    }
    const char *near = ab_nearest(name, names, ab_report_count());
    return ab_fail(AB_USAGE, "unknown report format \"%s\": expected table, markdown or csv%s%s",
                   ab_text_clean(clean, sizeof clean, name), near ? "; did you mean " : "", near ? near : "");
}

ab_status ab_report_to_file(const char *name, const char *path, const cJSON *document) {
    char option[32];
    const ab_report *report;
    ab_outfile out;
    ab_text_exact(option, sizeof option, "--%s", name);
    AB_TRY(ab_report_find(name, &report));
    AB_TRY(ab_output_open(option, path, &out));
    ab_status status = report->write(document, out.stream, 0);
    if (status != AB_OK) status = ab_fail_prefix(status, "%s", option);
    return ab_output_close(option, &out, status);
}
