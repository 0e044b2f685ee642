/* `ampbench compare`: tests whether levels are equivalent over seeds; finds where two traced runs diverge.
 * Descriptive only: the exit status says whether a comparison was possible; `ampbench gate` fails a build. */
#include "bench/cmd/cmd.h"
#include "kernels/core/number.h"
#include "kernels/core/show.h"
#include "reports/compare/divergence.h"
#include "reports/compare/equivalence.h"
#include "reports/record/json.h"
#include "reports/record/result.h"

#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: ampbench compare RESULT.json [OTHER.json] [OPTION]...\n\n"
    "Is a level as good as O0? With one result, every cell is compared with the O0 cell of its seed; with "
    "two, every\n"
    "cell of OTHER with the same cell of RESULT. Over several seeds (`ampbench run --seeds 5`) two one-sided "
    "tests say\n"
    "whether a difference beyond the margin is ruled out, with which power, and how many seeds would be "
    "needed.\n\n"
    "  --trace                 find the first tensor that differs by more than rounding explains; needs runs "
    "with\n"
    "                          `ampbench run --trace`\n"
    "  --margin SHARE          margin of the final loss, as a share of the base's (default 5%)\n"
    "  --accuracy-margin SHARE margin of the test accuracy (default 1%: one point)\n"
    "  --alpha X               of the tests (default 0.05)\n"
    "  --json FILE             the same as JSON to FILE; -: to stdout, and nothing else there\n"
    "  --help                  this text\n\n"
    "Exit status: 0 compared, whatever was found; 2 usage or input; 6 not comparable.\n";

typedef struct request {
    const char *base, *other, *margin, *accuracy_margin, *alpha, *json;
    bool trace, help;
    ab_equivalence_options options;
} request;

static ab_status parse_number(const char *name, const char *text, double most, double *value) {
    char *end;
    if (!text) return AB_OK;
    double parsed = ab_number_read(text, &end);
    bool percent = strcmp(end, "%") == 0;
    if (percent) parsed /= 100;
    if (end == text || (*end && !percent) || !(parsed > 0) || !(parsed <= most))
        return ab_fail(
            AB_USAGE,
            "compare: %s: expected a share such as 5%% or 0.05, above 0 and at most %.9g, found '%s'", name,
            most, text);
    *value = parsed;
    return AB_OK;
}

static ab_status parse(int argc, char **argv, request *r) {
    const ab_argument arguments[] = {
        {.name = "--margin", .value = &r->margin},
        {.name = "--accuracy-margin", .value = &r->accuracy_margin},
        {.name = "--alpha", .value = &r->alpha},
        {.name = "--json", .value = &r->json},
        {.name = "--trace"},
    };
    const ab_argument_list list = {"compare", arguments, (int)AB_COUNT_OF(arguments), NULL, false};
    for (int i = 1; i < argc; i++) {
        if (ab_is_help(argv[i]))
            r->help = true;
        else if (strcmp(argv[i], "--trace") == 0)
            r->trace = true;
        else if (argv[i][0] == '-' && argv[i][1])
            AB_TRY(ab_take_option(&list, argc, argv, &i));
        else if (!r->base)
            r->base = argv[i];
        else if (!r->other)
            r->other = argv[i];
        else
            return ab_fail(AB_USAGE, "compare: expected one or two results, found a third: '%s'", argv[i]);
    }
    if (!r->base && !r->help)
        return ab_fail(AB_USAGE, "compare: expected a result (see `ampbench compare --help`)");
    r->options = ab_equivalence_options_standard();
    AB_TRY(parse_number("--margin", r->margin, 10, &r->options.loss_margin));
    AB_TRY(parse_number("--accuracy-margin", r->accuracy_margin, 1, &r->options.accuracy_margin));
    return parse_number("--alpha", r->alpha, 0.5, &r->options.alpha);
}

static ab_status load(const char *path, cJSON **document) {
    if (!path) return AB_OK;
    AB_TRY(ab_result_load(path, document));
    return ab_result_summarise(*document);
}

static ab_status write(const request *r, const cJSON *list) {
    cJSON *document = cJSON_CreateObject();
    cJSON_AddStringToObject(document, "schema", r->trace ? "ampbench-divergence" : "ampbench-equivalence");
    cJSON_AddStringToObject(document, "schema_version", "1.0.0");
    cJSON_AddStringToObject(document, "base", r->base);
    cJSON_AddItemToObject(document, "other", r->other ? cJSON_CreateString(r->other) : cJSON_CreateNull());
    cJSON_AddItemToObject(document, "comparisons", cJSON_Duplicate(list, 1));
    ab_status status = ab_json_write_file(document, r->json);
    cJSON_Delete(document);
    return status;
}

/* The labels of the runs, where they have some. */
static void print_labels(const request *r, const cJSON *base, const cJSON *other) {
    const char *of_base = ab_json_text(base, "run.label", NULL),
               *of_other = ab_json_text(other, "run.label", NULL);
    if (of_base) ab_print(stdout, "%s: %s\n", r->base, of_base);
    if (of_other) ab_print(stdout, "%s: %s\n", r->other, of_other);
}

static ab_status compare(const request *r) {
    cJSON *base = NULL, *other = NULL, *list = NULL;
    ab_status status;
    AB_TRY_GOTO(load(r->base, &base));
    AB_TRY_GOTO(load(r->other, &other));
    AB_TRY_GOTO(r->trace ? ab_divergence(base, other, &list)
                         : ab_equivalence(base, other, &r->options, &list));
    if (!list->child) {
        status = ab_fail(AB_NOT_COMPARABLE, "compare: no cells to compare: %s",
                         other ? "the results have no cell in common" : "there is no O0 cell beside others");
        goto out;
    }
    if (r->json) AB_TRY_GOTO(write(r, list));
    if (r->json && strcmp(r->json, "-") == 0) goto out;
    print_labels(r, base, other);
    if (r->trace)
        ab_divergence_print(list, stdout);
    else
        ab_equivalence_print(list, stdout);
out:
    cJSON_Delete(list);
    cJSON_Delete(base);
    cJSON_Delete(other);
    return status;
}

ab_status ab_cmd_compare(int argc, char **argv) {
    request r = {.base = NULL};
    AB_TRY(parse(argc, argv, &r));
    if (!r.help) return compare(&r);
    fputs(usage, stdout);
    return AB_OK;
}
