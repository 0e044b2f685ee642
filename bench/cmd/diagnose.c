/* `ampbench diagnose RESULT.json`: why cells do not train as O0 does, from the record alone. */
#include "reports/diagnose.h"
#include "bench/cmd/cmd.h"
#include "reports/json.h"
#include "reports/result.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: ampbench diagnose RESULT.json [--json FILE] [--exit-zero]\n"
    "\n"
    "Says of every cell of a result whether it trains as O0 does and, if it does not, why: the cause, the "
    "layer, the\n"
    "evidence with its place in the document, and what to change. Looks at the record only and runs nothing; "
    "what the\n"
    "record does not hold is said to be missing, with the options that would record it.\n"
    "\n"
    "  --json FILE   the diagnosis as JSON; - is standard output, in place of the text\n"
    "  --exit-zero   end with 0 although a cell is sick\n"
    "  --help        this text\n"
    "\n"
    "Exit status: 0 all cells are healthy, 4 a cell is sick, 2 usage or a file that is no result, 6 a result "
    "of another\n"
    "schema version.\n"
    "\n"
    "Causes it knows:\n";

static void print_help(void) {
    fputs(usage, stdout);
    for (int i = 0; i < ab_verdict_rule_count(); i++) {
        const ab_verdict_rule *rule = ab_verdict_rule_at(i);
        printf("  %-30s %-14s %s\n", rule->id, ab_verdict_family_name(rule->family), rule->text);
    }
}

typedef struct request {
    const char *document, *json;
    bool exit_zero;
} request;

static ab_status parse(int argc, char **argv, request *r) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--exit-zero") == 0) {
            r->exit_zero = true;
        } else if (strcmp(argv[i], "--json") == 0) {
            if (++i == argc)
                return ab_fail(AB_USAGE, "diagnose: --json expects a file, or - for standard output");
            r->json = argv[i];
        } else if (argv[i][0] == '-' && argv[i][1]) {
            return ab_fail(AB_USAGE, "diagnose: unknown option '%s' (see `ampbench diagnose --help`)",
                           argv[i]);
        } else if (r->document) {
            return ab_fail(AB_USAGE, "diagnose: expected one result, found '%s' and '%s'", r->document,
                           argv[i]);
        } else {
            r->document = argv[i];
        }
    }
    return r->document
               ? AB_OK
               : ab_fail(AB_USAGE, "diagnose: expected a result document (see `ampbench diagnose --help`)");
}

ab_status ab_cmd_diagnose(int argc, char **argv) {
    request r = {.document = NULL};
    cJSON *document = NULL, *json = NULL;
    int sick = 0;
    ab_status status = AB_OK;
    for (int i = 1; i < argc; i++)
        if (ab_is_help(argv[i])) {
            print_help();
            return AB_OK;
        }
    AB_TRY(parse(argc, argv, &r));
    AB_TRY_GOTO(ab_result_load(r.document, &document));
    AB_TRY_GOTO(ab_result_summarise(document));
    if (!r.json || strcmp(r.json, "-") != 0) AB_TRY_GOTO(ab_diagnose_print(document, stdout, &sick));
    if (r.json) {
        AB_TRY_GOTO(ab_diagnose_json(document, &json, &sick));
        AB_TRY_GOTO(ab_json_write_file(json, r.json));
    }
    if (sick > 0 && !r.exit_zero)
        status = ab_fail(AB_NUMERICS, "%d cell%s sick", sick, sick == 1 ? " is" : "s are");
out:
    cJSON_Delete(document);
    cJSON_Delete(json);
    return status;
}
