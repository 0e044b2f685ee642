/* Runs child processes with the options of a remedy appended to the recorded ones. */
#define _POSIX_C_SOURCE 200809L
#include "bench/experiments/confirm.h"

#include "bench/run/replay.h"
#include "bench/run/self.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/diagnose/diagnose.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- confirming ------------------------------------------------------------------------------ */

static ab_status add_option(ab_replay *list, const char *name, const char *value) {
    AB_TRY(ab_replay_add(list, name));
    return value ? ab_replay_add(list, value) : AB_OK;
}

static bool sets(const ab_verdict *verdict, const char *name) {
    for (int i = 0; i < verdict->remedy.options; i += 2)
        if (strcmp(verdict->remedy.option[i], name) == 0) return true;
    return false;
}

/* The last of repeated options takes effect; --to needs the recorded layers too. */
static ab_status add_remedy(ab_replay *list, const ab_verdict *verdict, const char *layers) {
    for (int i = 0; i < verdict->remedy.options; i++) {
        const char *word = verdict->remedy.option[i];
        const bool more = layers && i % 2 == 1 && strcmp(verdict->remedy.option[i - 1], "--to") == 0;
        char *both = more ? ab_text_new("%s,%s", layers, word) : NULL;
        if (more && !both) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
        ab_status status = ab_replay_add(list, both ? both : word);
        free(both);
        AB_TRY(status);
    }
    return AB_OK;
}

static ab_status confirming_words(const cJSON *document, const ab_diagnosis *diagnosis, const char *levels,
                                  ab_replay *list) {
    const ab_verdict *verdict = &diagnosis->verdict[0];
    const cJSON *cell = diagnosis->found.facts.cell;
    AB_TRY(add_option(list, "--rounds", "1"));
    AB_TRY(add_option(list, "--no-plots", NULL));
    AB_TRY(add_option(list, "--quiet", NULL));
    AB_TRY(add_option(list, "--levels", levels));
    if (!sets(verdict, "--scales"))
        AB_TRY(add_option(list, "--scales", ab_json_text(cell, "scale_policy", "default")));
    if (!sets(verdict, "--half"))
        AB_TRY(add_option(list, "--half", ab_json_text(cell, "half_format", "fp16")));
    return add_remedy(list, verdict, ab_json_text(document, "config.overrides.to", NULL));
}

/* The cell of a level in the new document; -1: none. The document has only one scale and one half format. */
static int cell_of_level(const cJSON *document, const char *level) {
    const cJSON *cell;
    int index = 0, found = -1;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        if (!cJSON_IsString(ab_json_at(cell, "twin")) &&
            strcmp(ab_json_text(cell, "level", ""), level) == 0 && found < 0)
            found = index;
        index++;
    }
    return found;
}

/* Result of a trial. The goal is health, whatever the first cause was: another one may be left. */
typedef enum outcome { NOT_TRIED, HEALTHY, UNDECIDED, SICK } outcome;
static const char *const outcome_names[] = {"not_tried", "healthy", "undecided", "sick"};

typedef struct trial {
    outcome outcome;
    char left[AB_VERDICT_TEXT]; /* of a sick run: its first verdict's id; of an undecided one: what would
                                   decide */
    char options[AB_CONFIRM_TEXT];
} trial;

static void join(const ab_verdict *verdict, char *text, size_t size) {
    ab_text_show(text, size, "with");
    for (int i = 0; i < verdict->remedy.options; i++)
        ab_text_append(text, size, " %s", verdict->remedy.option[i]);
}

static void assess(const ab_diagnosis *d, trial *t) {
    t->outcome = d->found.sick ? SICK : d->found.undecided ? UNDECIDED : HEALTHY;
    if (t->outcome == SICK)
        ab_text_show(t->left, sizeof t->left, "%s", d->verdicts > 0 ? d->verdict[0].rule->id : "unknown");
    if (t->outcome == UNDECIDED) ab_text_show(t->left, sizeof t->left, "%s", d->unnamed.missing);
}

static ab_status judge(const cJSON *document, const char *level, trial *t) {
    ab_diagnosis *diagnosis = malloc(sizeof *diagnosis);
    if (!diagnosis) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
    const int index = cell_of_level(document, level);
    ab_status status = index < 0 ? AB_OK : ab_diagnose(document, index, diagnosis);
    if (index >= 0 && status == AB_OK) assess(diagnosis, t);
    free(diagnosis);
    return status;
}

/* Trains the recorded run again with the options of the remedy: *confirming, owned by the caller. Its inputs
 * are written to `notes`, if any. */
static ab_status train(const cJSON *document, const ab_diagnosis *diagnosis, const char *levels, FILE *notes,
                       cJSON **confirming) {
    ab_replay words;
    ab_status status = AB_OK;
    AB_TRY_GOTO(ab_replay_words(document, AB_REPLAY_TRAINING, &words));
    AB_TRY_GOTO(confirming_words(document, diagnosis, levels, &words));
    AB_TRY_GOTO(ab_replay_check("diagnose", document, &words, notes));
    AB_TRY_GOTO(ab_run_self_record("diagnose", "a run", words.word, 1, confirming));
out:
    ab_replay_clear(&words);
    return status;
}

static ab_status try_remedy(const cJSON *document, const ab_diagnosis *diagnosis, FILE *notes, trial *t) {
    const char *level = ab_json_text(diagnosis->found.facts.cell, "level", "O0");
    cJSON *confirming = NULL;
    *t = (trial){.outcome = NOT_TRIED};
    if (diagnosis->verdict[0].remedy.options == 0) return AB_OK;
    join(&diagnosis->verdict[0], t->options, sizeof t->options);
    char *levels = ab_text_new("%s%s", strcmp(level, "O0") == 0 ? "" : "O0,",
                               ab_cell_label(diagnosis->found.facts.cell));
    if (!levels) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
    ab_print(stderr, "diagnose: training %s at level %s to confirm\n", t->options, level);
    ab_status status = train(document, diagnosis, levels, notes, &confirming);
    if (status == AB_OK) status = judge(confirming, level, t);
    cJSON_Delete(confirming);
    free(levels);
    return status;
}

static void print_outcome(const char *id, const char *cause, const trial *t, FILE *text) {
    switch (t->outcome) {
    case NOT_TRIED:
        ab_print(text, "%s: not tried: the remedy of %s is no option\n", id, cause);
        break;
    case HEALTHY:
        ab_print(text, "%s: confirmed: %s it is healthy\n", id, t->options);
        break;
    case UNDECIDED:
        ab_print(text, "%s: not decided: %s it is undecided: %s\n", id, t->options, t->left);
        break;
    case SICK:
        if (strcmp(t->left, cause) == 0)
            ab_print(text, "%s: not confirmed: %s it is still sick\n", id, t->options);
        else
            ab_print(text, "%s: not confirmed: %s it is still sick, of another cause: %s\n", id, t->options,
                     t->left);
        break;
    }
}

static void print_trial(const ab_diagnosis *diagnosis, const trial *t, FILE *text, cJSON *list) {
    const char *cause = diagnosis->verdict[0].rule->id;
    const bool ran = t->outcome != NOT_TRIED;
    char id[288];
    ab_text_clean(id, sizeof id, ab_json_text(diagnosis->found.facts.cell, "id", ""));
    if (text) print_outcome(id, cause, t, text);
    if (!list) return;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "cell", id);
    cJSON_AddStringToObject(object, "cause", cause);
    cJSON_AddBoolToObject(object, "tried", ran);
    if (ran) cJSON_AddStringToObject(object, "options", t->options);
    if (ran) cJSON_AddBoolToObject(object, "healthy", t->outcome == HEALTHY);
    if (ran) cJSON_AddStringToObject(object, "outcome", outcome_names[t->outcome]);
    if (t->outcome == SICK) cJSON_AddStringToObject(object, "left", t->left);
    cJSON_AddItemToArray(list, object);
}

typedef struct confirming {
    const cJSON *document;
    FILE *text, *notes; /* notes: NULL once the inputs were named */
    cJSON *list;
} confirming;

static ab_status confirm_cell(const ab_diagnosis *diagnosis, void *argument) {
    confirming *c = argument;
    trial t;
    if (!diagnosis->found.sick || diagnosis->verdicts == 0) return AB_OK;
    AB_TRY(try_remedy(c->document, diagnosis, c->notes, &t));
    if (t.outcome != NOT_TRIED) c->notes = NULL;
    print_trial(diagnosis, &t, c->text, c->list);
    return AB_OK;
}

ab_status ab_confirm(const cJSON *document, FILE *text, cJSON *list) {
    confirming c = {document, text, stderr, list};
    return ab_diagnose_each(document, confirm_cell, &c, NULL);
}
