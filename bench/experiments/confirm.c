/* Runs child processes with the options of a remedy appended to the recorded ones. */
#define _POSIX_C_SOURCE 200809L
#include "bench/experiments/confirm.h"

#include "bench/run/self.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/diagnose/diagnose.h"
#include "reports/record/json.h"
#include "reports/record/result.h"
#include "reports/record/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- confirming ------------------------------------------------------------------------------ */

typedef struct words {
    char **word;
    int count, room;
} words;

static ab_status add(words *list, const char *word) {
    if (list->count + 1 >= list->room) {
        int room = 2 * list->room + 32;
        char **more = realloc(list->word, (size_t)room * sizeof *more);
        if (!more) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
        list->word = more;
        list->room = room;
    }
    list->word[list->count++] = (char *)(uintptr_t)word;
    list->word[list->count] = NULL;
    return AB_OK;
}

static ab_status add_option(words *list, const char *name, const char *value) {
    AB_TRY(add(list, name));
    return value ? add(list, value) : AB_OK;
}

static bool sets(const ab_verdict *verdict, const char *name) {
    for (int i = 0; i < verdict->remedy.options; i += 2)
        if (strcmp(verdict->remedy.option[i], name) == 0) return true;
    return false;
}

/* The recorded command line. *layers: the value of its last --to, or NULL. */
static ab_status add_recorded(words *list, const cJSON *argv, const char **layers) {
    const int count = cJSON_GetArraySize(argv);
    const char *before = NULL;
    *layers = NULL;
    AB_TRY(add(list, "ampbench"));
    for (int i = 1; i < count; i++) {
        const char *word = cJSON_GetStringValue(cJSON_GetArrayItem(argv, i));
        if (!word) continue;
        if (before && strcmp(before, "--to") == 0) *layers = word;
        before = word;
        AB_TRY(add(list, word));
    }
    return AB_OK;
}

/* The last of repeated options takes effect; --to needs the earlier layers too: *both, owned by the caller.
 */
static ab_status add_remedy(words *list, const ab_verdict *verdict, const char *layers, char **both) {
    for (int i = 0; i < verdict->remedy.options; i++) {
        const char *word = verdict->remedy.option[i];
        if (layers && i % 2 == 1 && strcmp(verdict->remedy.option[i - 1], "--to") == 0) {
            free(*both);
            *both = ab_text_new("%s,%s", layers, word);
            if (!*both) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
            word = *both;
        }
        AB_TRY(add(list, word));
    }
    return AB_OK;
}

static ab_status confirming_argv(const cJSON *document, const ab_diagnosis *diagnosis, const char *levels,
                                 const char *out, char **both, words *list) {
    const ab_verdict *verdict = &diagnosis->verdict[0];
    const cJSON *cell = diagnosis->found.facts.cell;
    const char *layers;
    AB_TRY(add_recorded(list, ab_json_at(document, "run.argv"), &layers));
    AB_TRY(add_option(list, "--rounds", "1"));
    AB_TRY(add_option(list, "--no-plots", NULL));
    AB_TRY(add_option(list, "--quiet", NULL));
    AB_TRY(add_option(list, "--out", out));
    AB_TRY(add_option(list, "--levels", levels));
    if (!sets(verdict, "--scales"))
        AB_TRY(add_option(list, "--scales", ab_json_text(cell, "scale_policy", "default")));
    if (!sets(verdict, "--half"))
        AB_TRY(add_option(list, "--half", ab_json_text(cell, "half_format", "fp16")));
    return add_remedy(list, verdict, layers, both);
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

/* Result of a trial. */
typedef struct trial {
    bool ran, healthy;
    char options[AB_CONFIRM_TEXT];
} trial;

static void join(const ab_verdict *verdict, char *text, size_t size) {
    ab_text_show(text, size, "with");
    for (int i = 0; i < verdict->remedy.options; i++)
        ab_text_append(text, size, " %s", verdict->remedy.option[i]);
}

static ab_status judge(const char *out, const char *level, trial *t) {
    cJSON *document = NULL;
    ab_status status = AB_OK;
    ab_diagnosis *diagnosis = malloc(sizeof *diagnosis);
    if (!diagnosis) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
    AB_TRY_GOTO(ab_result_load(out, &document));
    AB_TRY_GOTO(ab_result_summarise(document));
    const int index = cell_of_level(document, level);
    if (index < 0) goto out;
    AB_TRY_GOTO(ab_diagnose(document, index, diagnosis));
    t->ran = true;
    t->healthy = !diagnosis->found.sick;
out:
    free(diagnosis);
    cJSON_Delete(document);
    return status;
}

static ab_status try_remedy(const cJSON *document, const ab_diagnosis *diagnosis, const char *out, trial *t) {
    char *levels = NULL, *both = NULL;
    words list = {.word = NULL};
    const char *level = ab_json_text(diagnosis->found.facts.cell, "level", "O0");
    *t = (trial){.ran = false};
    if (diagnosis->verdict[0].remedy.options == 0) return AB_OK;
    join(&diagnosis->verdict[0], t->options, sizeof t->options);
    levels = ab_text_new("%s%s", strcmp(level, "O0") == 0 ? "" : "O0,", level);
    if (!levels) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
    ab_status status = confirming_argv(document, diagnosis, levels, out, &both, &list);
    if (status == AB_OK) {
        ab_print(stderr, "diagnose: training %s at level %s to confirm, into %s\n", t->options, level, out);
        status = ab_run_self("diagnose", "a run", list.word, 1);
    }
    free(list.word);
    free(levels);
    free(both);
    return status == AB_OK ? judge(out, level, t) : status;
}

static void print_trial(const ab_diagnosis *diagnosis, const trial *t, FILE *text, cJSON *list) {
    const char *cause = diagnosis->verdict[0].rule->id;
    char id[288];
    ab_text_clean(id, sizeof id, ab_json_text(diagnosis->found.facts.cell, "id", ""));
    if (text && !t->ran)
        ab_print(text, "%s: not tried: the remedy of %s is no option\n", id, cause);
    else if (text)
        ab_print(text, "%s: %s %s it is %s\n", id, t->healthy ? "confirmed:" : "not confirmed:", t->options,
                 t->healthy ? "healthy" : "still sick");
    if (!list) return;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "cell", id);
    cJSON_AddStringToObject(object, "cause", cause);
    cJSON_AddBoolToObject(object, "tried", t->ran);
    if (t->ran) cJSON_AddStringToObject(object, "options", t->options);
    if (t->ran) cJSON_AddBoolToObject(object, "healthy", t->healthy);
    cJSON_AddItemToArray(list, object);
}

typedef struct confirming {
    const cJSON *document;
    const char *out;
    FILE *text;
    cJSON *list;
} confirming;

static ab_status confirm_cell(const ab_diagnosis *diagnosis, void *argument) {
    const confirming *c = argument;
    trial t;
    if (!diagnosis->found.sick || diagnosis->verdicts == 0) return AB_OK;
    AB_TRY(try_remedy(c->document, diagnosis, c->out, &t));
    print_trial(diagnosis, &t, c->text, c->list);
    return AB_OK;
}

ab_status ab_confirm(const cJSON *document, const char *out, FILE *text, cJSON *list) {
    confirming c = {document, out, text, list};
    return ab_diagnose_each(document, confirm_cell, &c, NULL);
}
