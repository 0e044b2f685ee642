/* `ampbench diagnose`: why cells do not train as O0 does, from an existing record or from a run started for
 * it; and whether the remedy helps. */
#include "reports/diagnose/diagnose.h"
#include "bench/cmd/cmd.h"
#include "bench/experiments/confirm.h"
#include "bench/experiments/trouble.h"
#include "bench/ingest/ingest.h"
#include "bench/run/self.h"
#include "kernels/core/number.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/diagnose/jitter.h"
#include "reports/record/json.h"
#include "reports/record/observed.h"
#include "reports/record/result.h"
#include "reports/render/report_sections.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: ampbench diagnose INPUT... [OPTION]...\n"
    "       ampbench diagnose --run [OPTION]... [OPTION OF ampbench run]...\n"
    "\n"
    "Says of every cell of a result whether it trains as O0 does and, if it does not, why: the cause, the "
    "layer, the\n"
    "evidence with its place in the document, and what to change. From a result it looks at the record only; "
    "what the\n"
    "record does not hold is said to be missing, with the options that would record it. With --run it trains "
    "first, once, and\n"
    "every 25th step has an fp32 twin (--shadow-every): gradients are compared element by element.\n"
    "\n"
    "  --run         train now; every other option goes to `ampbench run`, whose result is written to\n"
    "                ampbench-out/diagnose.json if --out is not given\n"
    "  --confirm     train every sick cell and its O0 again with the remedy of the first verdict, and say "
    "whether that made\n"
    "                it healthy; options are those of the record (run.options): its data and network are "
    "read from "
    "where\n"
    "                it says, relative paths from this folder; nothing is written, results go to a folder in "
    "TMPDIR "
    "that is removed\n"
    "  --twins       say of every sick cell whether its trouble is numerical: from its last good state, 8 "
    "times 3 arms "
    "on the\n"
    "                same batches: fp32, its own formats, and these with weights rounded by chance;\n"
    "                where fp32 diverges as well, fp64 too (emulated, for small networks)\n"
    "  --baseline FP32.json\n"
    "                for a probe's record (libampprobe): the record of the same loop in fp32, in place of an "
    "O0 cell\n"
    "  --facts       the quantities of every cell, too: unit, step, place in the document, and the threshold "
    "that\n"
    "                rules compare with\n"
    "  --explain     what every cause that is named predicts and what would refute it, and which causes were "
    "ruled\n"
    "                out, by what\n"
    "  --verbose     everything of healthy and undecided cells too, which have one line each otherwise\n"
    "  --thresholds  list every number that rules compare with: value, unit, kind, where it is from\n"
    "  --threshold NAME=VALUE\n"
    "                judge by another number; repeatable\n"
    "  --jitter X    move these numbers by this share (0.25: a quarter; of the distance from 1, if between "
    "0.5 "
    "and 2),\n"
    "                one at a time, lower and higher, and say which change a verdict\n"
    "  --json FILE   the diagnosis as JSON; - is standard output, in place of the text\n"
    "  --exit-zero   end with 0 although a cell is sick\n"
    "  --help        this text\n"
    "\n"
    "Exit status: 0 all cells are healthy, 4 a cell is sick, 2 usage or a file that is no result, 6 a result "
    "of another\n"
    "schema version.\n"
    "\n";

static const char result_of_run[] = "ampbench-out/diagnose.json";

static void print_help(void) {
    fputs(usage, stdout);
    fputs("Inputs it reads (--run, --confirm, --twins and --baseline are for results):\n", stdout);
    for (int i = 0; i < ab_input_kind_count(); i++) ab_print(stdout, "  %s\n", ab_input_kind_at(i)->text);
    fputs("\nCauses it knows:\n", stdout);
    for (int i = 0; i < ab_verdict_rule_count(); i++) {
        const ab_verdict_rule *rule = ab_verdict_rule_at(i);
        ab_print(stdout, "  %-30s %-14s %s\n", rule->id, ab_verdict_family_name(rule->family), rule->text);
    }
}

static void print_thresholds(void) {
    for (int i = 0; i < ab_threshold_count(); i++) {
        const ab_threshold_row *row = ab_threshold_at(i);
        ab_print(stdout, "%-26s %-12g %-9s %s: %s\n", row->name, row->value,
                 ab_threshold_kind_name(row->kind), row->unit, row->source);
    }
}

typedef struct request {
    const char *document; /* the first input, or the run's result */
    const char **input;   /* all inputs */
    int inputs;
    const char *json, *baseline;
    bool exit_zero, run, confirm, twins, facts, explain, verbose;
    bool moved;    /* a threshold was given */
    double jitter; /* 0: none */
    ab_thresholds limits;
    char **option; /* of the run */
    int options;
} request;

/* ---- options --------------------------------------------------------------------------------- */

static bool has(int argc, char *const *argv, const char *word) {
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], word) == 0) return true;
    return false;
}

static ab_status parse_word(const char *word, request *r) {
    if (word[0] == '-' && word[1])
        return ab_fail(AB_USAGE, "diagnose: unknown option '%s' (see `ampbench diagnose --help`)%s", word,
                       "; options of a run need --run");
    r->input[r->inputs++] = word;
    r->document = r->input[0];
    return AB_OK;
}

static ab_status parse_jitter(const char *text, request *r) {
    char *end;
    r->jitter = ab_number_read(text, &end);
    return end != text && !*end && r->jitter > 0 && r->jitter < 1
               ? AB_OK
               : ab_fail(AB_USAGE, "diagnose: --jitter expects a share between 0 and 1, found '%s'", text);
}

/* An option of how to judge, at argv[*i]; moves *i to its value. *taken: it is one. */
static ab_status parse_limits(int argc, char **argv, int *i, request *r, bool *taken) {
    const bool jitter = strcmp(argv[*i], "--jitter") == 0;
    *taken = jitter || strcmp(argv[*i], "--threshold") == 0;
    if (!*taken) return AB_OK;
    if (++*i == argc)
        return ab_fail(AB_USAGE, "diagnose: %s expects %s", argv[*i - 1], jitter ? "a share" : "NAME=VALUE");
    if (jitter) return parse_jitter(argv[*i], r);
    r->moved = true;
    return ab_threshold_set(&r->limits, "diagnose: --threshold", argv[*i]);
}

static ab_status check(const request *r) {
    if (r->moved && (r->confirm || r->twins))
        return ab_fail(AB_USAGE, "diagnose: --threshold does not go with --confirm or --twins");
    return r->document || r->run
               ? AB_OK
               : ab_fail(AB_USAGE,
                         "diagnose: expected a result document, or --run (see `ampbench diagnose --help`)");
}

static ab_status parse(int argc, char **argv, request *r) {
    bool taken;
    r->run = has(argc, argv, "--run");
    for (int i = 1; i < argc; i++) {
        AB_TRY(parse_limits(argc, argv, &i, r, &taken));
        if (taken) continue;
        if (strcmp(argv[i], "--exit-zero") == 0) {
            r->exit_zero = true;
        } else if (strcmp(argv[i], "--confirm") == 0) {
            r->confirm = true;
        } else if (strcmp(argv[i], "--facts") == 0) {
            r->facts = true;
        } else if (strcmp(argv[i], "--explain") == 0) {
            r->explain = true;
        } else if (strcmp(argv[i], "--verbose") == 0) {
            r->verbose = true;
        } else if (strcmp(argv[i], "--twins") == 0) {
            r->twins = true;
        } else if (strcmp(argv[i], "--json") == 0) {
            if (++i == argc)
                return ab_fail(AB_USAGE, "diagnose: --json expects a file, or - for standard output");
            r->json = argv[i];
        } else if (strcmp(argv[i], "--baseline") == 0) {
            if (++i == argc) return ab_fail(AB_USAGE, "diagnose: --baseline expects a probe's record");
            r->baseline = argv[i];
        } else if (r->run) {
            if (strcmp(argv[i], "--run") != 0) r->option[r->options++] = argv[i];
        } else {
            AB_TRY(parse_word(argv[i], r));
        }
    }
    return check(r);
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Adds "name value" (value may be NULL) to a run's arguments unless the user gave the option. */
static int add_default(char **argv, int n, const request *r, char *name, char *value) {
    if (has(r->options, r->option, name)) return n;
    argv[n++] = name;
    if (value) argv[n++] = value;
    return n;
}

static const char *given_out(const request *r) {
    for (int i = 0; i + 1 < r->options; i++)
        if (strcmp(r->option[i], "--out") == 0) return r->option[i + 1];
    return NULL;
}

static ab_status run(request *r) {
    static char program[] = "ampbench", command[] = "run", rounds[] = "--rounds", one[] = "1",
                quiet[] = "--quiet", plots[] = "--no-plots", every[] = "--shadow-every", steps[] = "25",
                out[] = "--out", file[sizeof result_of_run];
    enum { MOST = 16 };
    char **argv = calloc((size_t)r->options + MOST, sizeof *argv);
    if (!argv) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
    int n = 0;
    ab_text_exact(file, sizeof file, "%s", result_of_run);
    argv[n++] = program;
    argv[n++] = command;
    for (int i = 0; i < r->options; i++) argv[n++] = r->option[i];
    n = add_default(argv, n, r, rounds, one);
    n = add_default(argv, n, r, plots, NULL);
    n = add_default(argv, n, r, every, steps);
    n = add_default(argv, n, r, out, file);
    (void)add_default(argv, n, r, quiet, NULL);
    ab_status status = ab_run_self("diagnose", "the run", argv, 1);
    r->document = r->input[0] = given_out(r) ? given_out(r) : result_of_run;
    r->inputs = 1;
    free(argv);
    return status;
}

/* ---- output ---------------------------------------------------------------------------------- */

/* Experiments run in addition to the diagnosis, for the JSON: NULL if not requested. */
typedef struct trials {
    cJSON *confirmations, *twins, *facts, *jitter;
} trials;

static void move_to(cJSON *json, const char *key, cJSON **list) {
    if (*list) cJSON_AddItemToObject(json, key, *list);
    *list = NULL;
}

static ab_status write_json(const cJSON *document, const request *r, trials *t, int *failing) {
    cJSON *json = NULL;
    ab_status status = ab_diagnose_json(document, &r->limits, &json, failing);
    if (status == AB_OK) {
        move_to(json, "confirmations", &t->confirmations);
        move_to(json, "twins", &t->twins);
        move_to(json, "facts", &t->facts);
        move_to(json, "jitter", &t->jitter);
        status = ab_json_write_file(json, r->json);
    }
    cJSON_Delete(json);
    return status;
}

enum { AB_BASELINE_PATH = 4096 };

/* The record of an fp32 run that a probe's record names, in its own folder; "" if it names none there. */
static const char *named_baseline(const request *r, const cJSON *document, char *path, size_t size) {
    const char *name = ab_json_text(document, "probe.about.baseline", "");
    const char *end = strrchr(r->document, '/');
    const int folder = end ? (int)(end + 1 - r->document) : 0;
    FILE *file = NULL;
    if (name[0] && !strchr(name, '/') && ab_text_fits(path, size, "%.*s%s", folder, r->document, name))
        file = fopen(path, "r");
    if (!file) return "";
    fclose(file);
    return path;
}

/* What a probe's record allows, and its baseline. */
static ab_status observed(const request *r, cJSON *document) {
    cJSON *fp32 = NULL;
    if (ab_observed_document(document) && (r->confirm || r->twins))
        return ab_fail(
            AB_USAGE,
            "diagnose: %s: --confirm and --twins train again, which needs a result of `ampbench run`",
            r->document);
    char named[AB_BASELINE_PATH];
    const char *baseline = r->baseline ? r->baseline : named_baseline(r, document, named, sizeof named);
    if (!baseline[0]) return AB_OK;
    AB_TRY(ab_result_load(baseline, &fp32));
    const ab_status status = ab_observed_set_baseline(document, fp32, r->document, baseline);
    cJSON_Delete(fp32);
    return status == AB_OK ? ab_result_summarise(document) : status;
}

/* What a checkpoint holds, sick or not. */
static void print_checkpoint(const cJSON *document) {
    const cJSON *own = ab_json_at(document, "checkpoint");
    if (!own) return;
    ab_print(stdout,
             "%s checkpoint, %.0f file%s: %.0f weights in %s, %.0f beyond fp16; %.0f second moments in %s",
             ab_json_text(own, "layout", ""), ab_json_number(own, "files", 0),
             ab_json_number(own, "files", 0) == 1 ? "" : "s", ab_json_number(own, "weights", 0),
             ab_json_text(own, "weights_format", ""), ab_json_number(own, "weights_beyond_fp16", 0),
             ab_json_number(own, "moments", 0), ab_json_text(own, "moments_format", ""));
    if (ab_json_number(own, "moments", 0) > 0)
        ab_print(stdout, ", %.0f zero with a gradient, the root of %.0f below epsilon",
                 ab_json_number(own, "moments_zero", 0), ab_json_number(own, "moments_below_eps", 0));
    if (ab_json_number(own, "updates", 0) > 0)
        ab_print(stdout, "; the next step loses %.0f of %.0f updates%s",
                 ab_json_number(own, "updates_lost", 0), ab_json_number(own, "updates", 0),
                 ab_json_number(own, "paired_by_shape", 0) > 0 ? " (weights found by shape)" : "");
    fputs("\n\n", stdout);
}

static ab_status diagnose(const request *r, const cJSON *document, trials *t, int *failing) {
    const bool text = !r->json || strcmp(r->json, "-") != 0;
    const ab_diagnose_detail detail = r->explain   ? AB_DIAGNOSE_EXPLAINED
                                      : r->verbose ? AB_DIAGNOSE_WHOLE
                                                   : AB_DIAGNOSE_BRIEF;
    if (text) {
        print_checkpoint(document);
        AB_TRY(ab_diagnose_print(document, &r->limits, detail, stdout, failing));
        ab_origin_print(document, stdout);
        if (r->run) ab_gradient_reference_print(document, stdout);
    }
    if (r->facts && text) AB_TRY(ab_diagnose_print_facts(document, stdout));
    if (r->facts) AB_TRY(ab_diagnose_facts_json(document, &t->facts));
    if (r->jitter > 0) {
        t->jitter = cJSON_CreateArray();
        AB_TRY(ab_diagnose_jitter(document, &r->limits, r->jitter, text ? stdout : NULL, t->jitter));
    }
    fflush(stdout);
    if (r->twins) {
        t->twins = cJSON_CreateArray();
        AB_TRY(ab_trouble_of(document, text ? stdout : NULL, t->twins));
        fflush(stdout);
    }
    if (r->confirm) {
        t->confirmations = cJSON_CreateArray();
        AB_TRY(ab_confirm(document, text ? stdout : NULL, t->confirmations));
    }
    return r->json ? write_json(document, r, t, failing) : AB_OK;
}

static ab_status diagnose_all(int argc, char **argv, request *r, int *failing) {
    cJSON *document = NULL;
    trials t = {.confirmations = NULL};
    ab_status status = AB_OK;
    AB_TRY_GOTO(parse(argc, argv, r));
    if (r->run) AB_TRY_GOTO(run(r));
    AB_TRY_GOTO(ab_ingest(&(ab_ingest_request){.path = r->input, .paths = r->inputs}, &document));
    AB_TRY_GOTO(ab_result_summarise(document));
    AB_TRY_GOTO(observed(r, document));
    AB_TRY_GOTO(diagnose(r, document, &t, failing));
out:
    cJSON_Delete(document);
    cJSON_Delete(t.confirmations);
    cJSON_Delete(t.twins);
    cJSON_Delete(t.facts);
    cJSON_Delete(t.jitter);
    return status;
}

ab_status ab_cmd_diagnose(int argc, char **argv) {
    request r = {.limits = ab_thresholds_default};
    int failing = 0;
    for (int i = 1; i < argc; i++)
        if (ab_is_help(argv[i])) {
            print_help();
            return AB_OK;
        }
    if (has(argc, argv, "--thresholds")) {
        print_thresholds();
        return AB_OK;
    }
    r.option = calloc((size_t)argc + 1, sizeof *r.option);
    r.input = calloc((size_t)argc + 1, sizeof *r.input);
    ab_status status = r.option && r.input ? diagnose_all(argc, argv, &r, &failing)
                                           : ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
    free(r.option);
    free(r.input);
    if (status != AB_OK || failing == 0 || r.exit_zero) return status;
    return ab_fail(AB_NUMERICS, "%d cell%s sick", failing, failing == 1 ? " is" : "s are");
}
