/* `ampbench advise RESULT.json`: a loss scale for a run, predicted from its record and confirmed by a run. */
#define _POSIX_C_SOURCE 200809L
#include "reports/advise/advise.h"
#include "bench/cmd/advise_log.h"
#include "bench/cmd/cmd.h"
#include "bench/run/replay.h"
#include "bench/run/run.h"
#include "bench/run/self.h"
#include "kernels/core/number.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/observed.h"
#include "reports/record/result.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: ampbench advise RESULT.json [OPTION]...\n"
    "       ampbench advise LOG [--overflow P] [--scale X] [--json FILE]\n"
    "\n"
    "Says which loss scale suits the run that RESULT.json records: high enough that hardly a gradient "
    "is flushed\n"
    "to zero in any tensor, low enough that hardly a step overflows; or that no scale can be both, and which "
    "layers are in the\n"
    "way. Fixed or dynamic, what is predicted, what other tools' rules would choose. The prediction uses "
    "the\n"
    "level's own gradients if its scale never changed and lost nothing, else those of O0, so the run must "
    "have one "
    "of these with\n"
    "the gradients probe, which is on by default. It assumes that the later run visits the sizes of "
    "gradients that the recorded "
    "one visited.\n"
    "From a training LOG: how high the scale may be, from which steps overflowed at which scale; not how "
    "low, as "
    "no log tells\n"
    "what is flushed.\n"
    "\n"
    "  --level LIST        the levels that the scale is for, e.g. O1,O2, or all: every level of the record "
    "but O0\n"
    "                      (default O2; of a probe's record: its own); each gets its own advice\n"
    "  --confirm           train again at the advised scale, skipping what overflows, every step probed, and "
    "print "
    "predicted\n"
    "                      beside observed; options are those of the record (run.options): its data and "
    "network are "
    "read\n"
    "                      from where it says, relative paths from this folder; nothing is written but "
    "--out\n"
    "  --out FILE          the confirming run's result (default: it is not kept); for one level\n"
    "  --flushed-energy S  most that may be flushed of the sum of squares of any tensor (default 1e-6)\n"
    "  --flushed SHARE     most of its values (default: not asked; 0.001 is strict)\n"
    "  --overflow P        most steps that may overflow, as a share (default 0.0005)\n"
    "  --horizon STEPS     steps that a fixed scale has to last, for the choice between fixed and dynamic "
    "(default: as many "
    "as recorded)\n"
    "  --scale X           predict, and confirm, for this scale instead of the advised one\n"
    "  --json FILE         the advice as JSON, of several levels as a list; - is standard output, in place "
    "of the "
    "text\n"
    "  --help              this text\n"
    "\n"
    "Exit status: 0 a scale is advised, at every level asked for (and, with --confirm, observed skips and "
    "flushes agree), 4 no scale "
    "works or "
    "the receipt does\n"
    "not agree, 2 usage or a record that cannot tell.\n";

typedef struct request {
    const char *document, *level, *json, *out;
    bool confirm;
    ab_advise_goal goal;
    ab_advise_unscaled unscaled; /* what was done to a record whose scale changed */
} request;

/* ---- options --------------------------------------------------------------------------------- */

static ab_status parse_share(const char *name, const char *text, double *share) {
    char *end;
    errno = 0;
    *share = ab_number_read(text, &end);
    if (end == text || *end || errno || !(*share > 0 && *share < 1))
        return ab_fail(AB_USAGE, "advise: %s: expected a share above 0 and below 1, found '%s'", name, text);
    return AB_OK;
}

static ab_status parse_positive(const char *name, const char *text, double *number) {
    char *end;
    errno = 0;
    *number = ab_number_read(text, &end);
    if (end == text || *end || errno || !(*number >= 0x1p-40 && *number <= 0x1p60))
        return ab_fail(AB_USAGE, "advise: %s: expected a number from 2^-40 to 2^60, found '%s'", name, text);
    return AB_OK;
}

/* Steps are counted in doubles. */
static ab_status parse_steps(const char *name, const char *text, double *steps) {
    char *end;
    errno = 0;
    *steps = ab_number_read(text, &end);
    if (end == text || *end || errno || !(*steps >= 1 && *steps <= 0x1p53) || floor(*steps) != *steps)
        return ab_fail(AB_USAGE, "advise: %s: expected a whole number of steps from 1 to 2^53, found '%s'",
                       name, text);
    return AB_OK;
}

/* One option with a value. */
static ab_status parse_value(const char *name, const char *value, request *r) {
    if (!value) return ab_fail(AB_USAGE, "advise: %s expects a value", name);
    if (strcmp(name, "--flushed") == 0) return parse_share(name, value, &r->goal.flushed_share);
    if (strcmp(name, "--flushed-energy") == 0) return parse_share(name, value, &r->goal.flushed_energy);
    if (strcmp(name, "--overflow") == 0) return parse_share(name, value, &r->goal.alpha);
    if (strcmp(name, "--scale") == 0) return parse_positive(name, value, &r->goal.scale);
    if (strcmp(name, "--horizon") == 0) return parse_steps(name, value, &r->goal.horizon);
    if (strcmp(name, "--level") == 0) r->level = value;
    if (strcmp(name, "--json") == 0) r->json = value;
    if (strcmp(name, "--out") == 0) r->out = value;
    return AB_OK;
}

static bool takes_value(const char *word) {
    static const char *const names[] = {"--flushed", "--flushed-energy", "--overflow", "--scale",
                                        "--horizon", "--level",          "--json",     "--out"};
    for (size_t i = 0; i < AB_COUNT_OF(names); i++)
        if (strcmp(word, names[i]) == 0) return true;
    return false;
}

static ab_status parse(int argc, char **argv, request *r) {
    for (int i = 1; i < argc; i++) {
        if (takes_value(argv[i])) {
            AB_TRY(parse_value(argv[i], i + 1 < argc ? argv[i + 1] : NULL, r));
            i++;
        } else if (strcmp(argv[i], "--confirm") == 0) {
            r->confirm = true;
        } else if (argv[i][0] == '-') {
            return ab_fail(AB_USAGE, "advise: unknown option '%s' (see `ampbench advise --help`)", argv[i]);
        } else if (r->document) {
            return ab_fail(AB_USAGE, "advise: expected one result, found '%s' and '%s'", r->document,
                           argv[i]);
        } else {
            r->document = argv[i];
        }
    }
    return r->document
               ? AB_OK
               : ab_fail(AB_USAGE, "advise: expected a result document (see `ampbench advise --help`)");
}

/* ---- the confirming run ---------------------------------------------------------------------- */

/* The recorded training with one round of every step at one scale. */
static ab_status add_words(const request *r, const char *scale, ab_replay *words) {
    const char *const own[] = {
        "--rounds",      "1", "--no-floor", "--no-plots", "--quiet",  "--probes", "gradients",
        "--probe-every", "1", "--levels",   r->level,     "--scales", scale};
    for (size_t i = 0; i < AB_COUNT_OF(own); i++) AB_TRY(ab_replay_add(words, own[i]));
    return AB_OK;
}

/* Trains at the scale: *confirmed, owned by the caller. */
static ab_status train(const cJSON *document, const request *r, double value, cJSON **confirmed) {
    char scale[120];
    ab_replay words;
    ab_status status = AB_OK;
    ab_text_exact(scale, sizeof scale, "apex:init=%.17g,min=%.17g,max=%.17g", value, value, value);
    AB_TRY_GOTO(ab_replay_words(document, AB_REPLAY_TRAINING, &words));
    AB_TRY_GOTO(add_words(r, scale, &words));
    AB_TRY_GOTO(ab_replay_check("advise", document, &words, stderr));
    ab_print(stderr, "advise: training at level %s and scale %.17g to confirm\n", r->level, value);
    AB_TRY_GOTO(ab_run_self_record("advise", "the confirming run", words.word, 0, confirmed));
out:
    ab_replay_clear(&words);
    return status;
}

static ab_status train_into(const cJSON *document, const request *r, double value, cJSON **confirmed) {
    ab_options options = {.overrides = 0};
    ab_run_locks locks = {.document = {.path = NULL}};
    if (!r->out) return train(document, r, value, confirmed);
    options.text[AB_OPTION_out] = r->out;
    options.given[AB_OPTION_no_plots] = true;
    ab_status status = ab_output_prepare(&options, &locks);
    if (status == AB_OK) status = train(document, r, value, confirmed);
    if (status == AB_OK) status = ab_result_write(*confirmed, r->out);
    ab_output_release(&options, &locks);
    return status;
}

static ab_status confirm(const cJSON *document, const request *r, const ab_advise *advise,
                         ab_receipt *receipt) {
    cJSON *confirmed = NULL;
    ab_status status =
        train_into(document, r, r->goal.scale > 0 ? r->goal.scale : ldexp(1, advise->k), &confirmed);
    if (status == AB_OK) status = ab_receipt_make(confirmed, advise, receipt);
    cJSON_Delete(confirmed);
    return status;
}

/* ---- output ---------------------------------------------------------------------------------- */

static cJSON *advice_json(const request *r, const ab_advise *advise, const ab_receipt *receipt) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "schema", "ampbench-advice");
    cJSON_AddNumberToObject(object, "schema_version", 2);
    cJSON_AddStringToObject(object, "level", r->level);
    ab_advise_json(advise, &r->goal, object);
    ab_advise_unscaled_json(&r->unscaled, object);
    if (receipt) ab_receipt_json(receipt, object);
    return object;
}

static ab_status outcome(const char *level, const ab_advise *advice, const ab_receipt *receipt) {
    if (!advice->feasible && !receipt) return ab_fail(AB_NUMERICS, "advise: %s: no loss scale works", level);
    if (receipt && !receipt->overflow_agrees)
        return ab_fail(AB_NUMERICS,
                       "advise: %s: the confirming run overflowed more or less often than predicted", level);
    if (receipt && !receipt->flush_agrees)
        return ab_fail(AB_NUMERICS, "advise: %s: the confirming run flushed more or less than predicted",
                       level);
    return AB_OK;
}

/* The advice for r->level. *object: as JSON, owned by the caller; NULL where there is none. */
static ab_status advise_level(const cJSON *document, const request *r, bool text, cJSON **object) {
    ab_receipt receipt = {0};
    *object = NULL;
    ab_advise *advice = malloc(sizeof *advice);
    if (!advice) return ab_fail(AB_NO_MEMORY, "advise: out of memory");
    ab_status status = ab_advise_make(document, r->level, &r->goal, advice);
    const bool confirmed = status == AB_OK && r->confirm && (advice->feasible || r->goal.scale > 0);
    if (status == AB_OK && text) ab_advise_print(advice, &r->goal, stdout);
    if (status == AB_OK && text) ab_advise_print_unscaled(&r->unscaled, stdout);
    if (confirmed) status = confirm(document, r, advice, &receipt);
    if (confirmed && status == AB_OK && text) ab_receipt_print(&receipt, stdout);
    if (status == AB_OK) {
        *object = advice_json(r, advice, confirmed ? &receipt : NULL);
        status = outcome(r->level, advice, confirmed ? &receipt : NULL);
    }
    free(advice);
    return status;
}

/* ---- levels ---------------------------------------------------------------------------------- */

static bool has_name(const cJSON *names, const char *name) {
    const cJSON *known;
    cJSON_ArrayForEach(known, names) {
        if (strcmp(known->valuestring, name) == 0) return true;
    }
    return false;
}

static void add_levels_of(const cJSON *document, cJSON *names) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, cJSON_GetObjectItem(document, "cells")) {
        const char *level = ab_json_text(cell, "level", "O0");
        if (strcmp(level, "O0") != 0 && !has_name(names, level))
            cJSON_AddItemToArray(names, cJSON_CreateString(level));
    }
}

/* *names: the levels to advise, owned by the caller. */
static ab_status list_levels(const cJSON *document, const request *r, cJSON **names) {
    const char *text = r->level ? r->level : ab_observed_level(document);
    if (!text) text = "O2";
    *names = cJSON_CreateArray();
    if (!*names) return ab_fail(AB_NO_MEMORY, "advise: out of memory");
    if (strcmp(text, "all") == 0) {
        add_levels_of(document, *names);
        return (*names)->child
                   ? AB_OK
                   : ab_fail(AB_INPUT, "advise: --level all: %s has no level but O0", r->document);
    }
    for (;;) {
        char name[64];
        const size_t length = strcspn(text, ",");
        if (length == 0 || length >= sizeof name)
            return ab_fail(AB_USAGE, "advise: --level: expected a list of levels such as O1,O2, found '%s'",
                           r->level);
        memcpy(name, text, length);
        name[length] = '\0';
        if (!has_name(*names, name)) cJSON_AddItemToArray(*names, cJSON_CreateString(name));
        if (!text[length]) return AB_OK;
        text += length + 1;
    }
}

/* All levels are advised, whatever comes of the first ones; the first failure is the command's. */
static ab_status advise_levels(const cJSON *document, request *r, const cJSON *names, cJSON *list) {
    const bool text = !r->json || strcmp(r->json, "-") != 0, several = cJSON_GetArraySize(names) > 1;
    const cJSON *name;
    char first[1024] = "";
    ab_status worst = AB_OK;
    cJSON_ArrayForEach(name, names) {
        cJSON *object;
        r->level = name->valuestring;
        if (several && text && name != names->child) fputc('\n', stdout);
        if (several && text) ab_print(stdout, "%s\n", r->level);
        const ab_status status = advise_level(document, r, text, &object);
        if (object) cJSON_AddItemToArray(list, object);
        if (status != AB_OK && status != AB_NUMERICS) return status;
        if (status == AB_OK || worst != AB_OK) continue;
        worst = status;
        ab_text_show(first, sizeof first, "%s", ab_error_message());
    }
    return worst == AB_OK ? AB_OK : ab_fail(worst, "%s", first);
}

static ab_status write_json(const request *r, cJSON *list) {
    if (!r->json) return AB_OK;
    const bool one = cJSON_GetArraySize(list) == 1;
    return ab_json_write_file(one ? list->child : list, r->json);
}

/* A log tells no level, trains nothing and has no gradients. */
static ab_status advise_log(const request *r) {
    const char *extra = r->confirm ? "--confirm" : r->level ? "--level" : r->out ? "--out" : NULL;
    if (r->goal.flushed_share != ab_advise_usual.flushed_share) extra = "--flushed";
    if (r->goal.flushed_energy != ab_advise_usual.flushed_energy) extra = "--flushed-energy";
    if (r->goal.horizon > 0) extra = "--horizon";
    if (extra)
        return ab_fail(AB_USAGE, "advise: %s: expected the record of a run with gradients, found a log, %s",
                       extra, r->document);
    return ab_advise_from_log(r->document, r->goal.alpha, r->goal.scale, r->json);
}

static ab_status advise(request *r, cJSON **document, cJSON **names, cJSON *list) {
    AB_TRY(ab_result_load(r->document, document));
    if (r->confirm && ab_observed_document(*document))
        return ab_fail(AB_USAGE, "advise: %s: --confirm trains again, which a probe's record cannot",
                       r->document);
    AB_TRY(ab_result_summarise(*document));
    AB_TRY(ab_advise_unscale(*document, &r->unscaled));
    AB_TRY(list_levels(*document, r, names));
    if (r->out && cJSON_GetArraySize(*names) > 1)
        return ab_fail(AB_USAGE, "advise: --out keeps the run of one level: give one with --level");
    const ab_status status = advise_levels(*document, r, *names, list);
    if (status != AB_OK && status != AB_NUMERICS) return status;
    const ab_status written = write_json(r, list);
    return written == AB_OK ? status : written;
}

ab_status ab_cmd_advise(int argc, char **argv) {
    request r = {.goal = ab_advise_usual};
    for (int i = 1; i < argc; i++)
        if (ab_is_help(argv[i])) {
            fputs(usage, stdout);
            return AB_OK;
        }
    AB_TRY(parse(argc, argv, &r));
    if (ab_advise_is_log(r.document)) return advise_log(&r);
    cJSON *document = NULL, *names = NULL, *list = cJSON_CreateArray();
    if (!list) return ab_fail(AB_NO_MEMORY, "advise: out of memory");
    ab_status status = advise(&r, &document, &names, list);
    cJSON_Delete(document);
    cJSON_Delete(names);
    cJSON_Delete(list);
    return status;
}
