/* Remedies as options, and runs as children. */
#define _POSIX_C_SOURCE 200809L
#include "bench/shadow/confirm.h"

#include "bench/run/options.h"
#include "reports/diagnose.h"
#include "reports/json.h"
#include "reports/result.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- remedies ---------------------------------------------------------------------------------------------- */

/* Cuts the word at `*rest` off; false if there is none. A word in quotes is what is inside them; `*last`: punctuation follows. */
static bool next_word(char **rest, char **word, bool *last) {
    char *from = *rest + strspn(*rest, " "), quote = *from == '\'' ? '\'' : ' ';
    if (quote == '\'') from++;
    size_t length = quote == '\'' ? strcspn(from, "'") : strcspn(from, " ");
    if (length == 0) return false;
    char *end = from + length, after = *end ? end[1] : '\0';
    *rest = *end ? end + 1 : end;
    *end = '\0';
    *last = quote == '\'' && strchr(",;:", after) && after;
    while (quote != '\'' && end > from && strchr(",;:", end[-1])) {
        *--end = '\0';
        *last = true;
    }
    *word = from;
    return true;
}

static const char *option_called(const char *word, bool *flag) {
    static char name[AB_OPTION_NAME];
    for (int i = 0; i < AB_OPTION_COUNT; i++) {
        if (strcmp(ab_option_name((ab_option_id)i, name), word) != 0) continue;
        *flag = ab_option_is_flag((ab_option_id)i);
        return name;
    }
    return NULL;
}

void ab_remedy_parse(const char *text, ab_remedy *remedy) {
    static const char before[] = "leave out ";
    const char *first = strstr(text, "--");
    *remedy = (ab_remedy){.words = 0};
    if (!first) return;
    const size_t at = (size_t)(first - text);
    remedy->leave_out = at >= strlen(before) && strncmp(first - strlen(before), before, strlen(before)) == 0;
    snprintf(remedy->text, sizeof remedy->text, "%s", first);
    char *rest = remedy->text, *word;
    bool last = false, flag;
    while (!last && remedy->words + 2 <= AB_REMEDY_WORDS && next_word(&rest, &word, &last)) {
        if (!option_called(word, &flag)) return;
        remedy->word[remedy->words++] = word;
        if (flag) continue;
        if (last || !next_word(&rest, &word, &last)) { /* its value is missing */
            remedy->words--;
            return;
        }
        remedy->word[remedy->words++] = word;
    }
}

/* ---- children ---------------------------------------------------------------------------------------------- */

ab_status ab_run_quietly(char *const *argv) {
    pid_t child;
    int state = 0;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    int error = posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error) return ab_fail(AB_SYSTEM, "diagnose: cannot start a run: %s", strerror(error));
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) return ab_fail(AB_SYSTEM, "diagnose: waitpid: %s", strerror(errno));
    if (WIFEXITED(state) && WEXITSTATUS(state) <= 1) return AB_OK;
    return ab_fail(AB_CONFIG, "diagnose: the run failed with exit status %d (its message is above)",
                   WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state));
}

/* ---- confirming -------------------------------------------------------------------------------------------- */

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

static bool sets(const ab_remedy *remedy, const char *name) {
    for (int i = 0; i < remedy->words; i++)
        if (strcmp(remedy->word[i], name) == 0) return true;
    return false;
}

/* The recorded command line, without what the remedy takes away. */
static ab_status add_recorded(words *list, const cJSON *argv, const ab_remedy *remedy) {
    const int count = cJSON_GetArraySize(argv);
    AB_TRY(add(list, "ampbench"));
    for (int i = 1; i < count; i++) {
        const char *word = cJSON_GetStringValue(cJSON_GetArrayItem(argv, i));
        const char *next = cJSON_GetStringValue(cJSON_GetArrayItem(argv, i + 1));
        const bool away = remedy->leave_out && remedy->words == 2 && word && next &&
                          strcmp(word, remedy->word[0]) == 0 && strcmp(next, remedy->word[1]) == 0;
        if (away)
            i++;
        else if (word)
            AB_TRY(add(list, word));
    }
    return AB_OK;
}

/* Of equal options the last one counts. */
static ab_status confirming_argv(const cJSON *document, const cJSON *cell, const ab_remedy *remedy,
                                 const char *levels, const char *out, words *list) {
    AB_TRY(add_recorded(list, ab_json_at(document, "run.argv"), remedy));
    AB_TRY(add_option(list, "--rounds", "1"));
    AB_TRY(add_option(list, "--no-plots", NULL));
    AB_TRY(add_option(list, "--quiet", NULL));
    AB_TRY(add_option(list, "--out", out));
    if (!sets(remedy, "--levels")) AB_TRY(add_option(list, "--levels", levels));
    if (!sets(remedy, "--scales"))
        AB_TRY(add_option(list, "--scales", ab_json_text(cell, "scale_policy", "default")));
    if (!sets(remedy, "--half"))
        AB_TRY(add_option(list, "--half", ab_json_text(cell, "half_format", "fp16")));
    for (int i = 0; i < remedy->words && !remedy->leave_out; i++) AB_TRY(add(list, remedy->word[i]));
    return AB_OK;
}

/* The cell of a level in the new document; -1: none. Only one scale and one half format were run. */
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

/* What a trial found. */
typedef struct trial {
    bool ran, healthy;
    char options[AB_REMEDY_TEXT];
    double gap;
} trial;

static void join(const ab_remedy *remedy, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "%s", remedy->leave_out ? "without" : "with");
    for (int i = 0; i < remedy->words && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, " %s", remedy->word[i]);
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
    t->healthy = !diagnosis->facts.sick;
    t->gap = diagnosis->facts.gap;
out:
    free(diagnosis);
    cJSON_Delete(document);
    return status;
}

static ab_status try_remedy(const cJSON *document, const ab_diagnosis *sick, const char *out, trial *t) {
    ab_remedy remedy;
    char levels[80];
    words list = {.word = NULL};
    const char *level = ab_json_text(sick->facts.cell, "level", "O0");
    *t = (trial){.ran = false};
    ab_remedy_parse(sick->verdict[0].remedy, &remedy);
    if (remedy.words == 0) return AB_OK;
    join(&remedy, t->options, sizeof t->options);
    snprintf(levels, sizeof levels, "%s%.60s", strcmp(level, "O0") == 0 ? "" : "O0,", level);
    ab_status status = confirming_argv(document, sick->facts.cell, &remedy, levels, out, &list);
    if (status == AB_OK) {
        fprintf(stderr, "diagnose: training %s at level %s to confirm, into %s\n", t->options, level, out);
        status = ab_run_quietly(list.word);
    }
    free(list.word);
    return status == AB_OK ? judge(out, level, t) : status;
}

static void tell(const ab_diagnosis *sick, const trial *t, FILE *text, cJSON *list) {
    const char *id = ab_json_text(sick->facts.cell, "id", ""), *cause = sick->verdict[0].rule->id;
    if (text && !t->ran)
        fprintf(text, "%s: not tried: the remedy of %s is no option\n", id, cause);
    else if (text)
        fprintf(text, "%s: %s %s it is %s\n", id, t->healthy ? "confirmed:" : "not confirmed:", t->options,
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

ab_status ab_confirm(const cJSON *document, const char *out, FILE *text, cJSON *list) {
    const cJSON *cell;
    int index = 0;
    ab_status status = AB_OK;
    ab_diagnosis *diagnosis = malloc(sizeof *diagnosis);
    if (!diagnosis) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        const int here = index++;
        trial t;
        if (cJSON_IsString(ab_json_at(cell, "twin")) || cJSON_GetArraySize(ab_json_at(cell, "loss")) == 0)
            continue;
        AB_TRY_GOTO(ab_diagnose(document, here, diagnosis));
        if (!diagnosis->facts.sick || diagnosis->verdicts == 0) continue;
        AB_TRY_GOTO(try_remedy(document, diagnosis, out, &t));
        tell(diagnosis, &t, text, list);
    }
out:
    free(diagnosis);
    return status;
}
