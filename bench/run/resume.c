/* Finishes an incomplete run: the document holds the requested configuration and the results so far. */
#include "bench/run/environment.h"
#include "bench/run/record.h"
#include "bench/run/replay.h"
#include "bench/run/run.h"
#include "kernels/core/text.h"

#include "reports/record/json.h"
#include "reports/record/result.h"

#include <stdlib.h>
#include <string.h>

static ab_status of_another(const char *path) {
    return ab_fail(AB_NOT_COMPARABLE,
                   "--resume: %s was begun on another machine or by another build of ampbench; start anew",
                   path);
}

static ab_status contradiction(ab_option_id id, const char *now, const char *then, const char *path) {
    char name[AB_OPTION_NAME];
    return ab_fail(AB_USAGE, "--resume: %s is %s here and %s in %s", ab_option_name(id, name), now,
                   then ? then : "not given", path);
}

static bool same_overrides(const ab_options *a, const ab_options *b) {
    if (a->overrides != b->overrides) return false;
    for (int i = 0; i < a->overrides; i++)
        if (strcmp(a->override[i], b->override[i]) != 0) return false;
    return true;
}

ab_status ab_resume_options(ab_options *options, cJSON **document, ab_replay *replay) {
    ab_options stored;
    const char *path = options->text[AB_OPTION_out];
    AB_TRY(ab_result_load(path, document));
    if (!ab_json_at(*document, "run.options")) return of_another(path);
    if (ab_replay_words(*document, AB_REPLAY_RESUME, replay) != AB_OK)
        return ab_fail_prefix(AB_INPUT, "--resume: %s", path);
    AB_TRY(ab_options_parse(replay->count, replay->word, &stored));
    for (int i = 0; i < AB_OPTION_COUNT; i++) {
        ab_option_id id = (ab_option_id)i;
        if (!ab_option_is_config(id)) continue;
        const char *now = options->text[i], *then = stored.text[i];
        bool differs = options->given[i] && (!then || !ab_replay_same(id, now, then));
        if (differs || (id == AB_OPTION_set && options->given[i] && !same_overrides(options, &stored)))
            return contradiction(id, now[0] ? now : "given", then, path);
        options->text[i] = then;
        options->given[i] = stored.given[i];
    }
    memcpy(options->override, stored.override, sizeof options->override);
    options->overrides = stored.overrides;
    return AB_OK;
}

/* First key whose value differs, or NULL. */
static const char *first_difference(const cJSON *a, const cJSON *b) {
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, a) {
        const cJSON *other = cJSON_GetObjectItemCaseSensitive(b, item->string);
        if (!other || !cJSON_Compare(item, other, 1)) return item->string;
    }
    return NULL;
}

static ab_status check_cells(const cJSON *document, const ab_cell_spec *cells, int count) {
    const cJSON *list = cJSON_GetObjectItem(document, "cells"), *cell = list ? list->child : NULL;
    for (int i = 0; i < count; i++, cell = cell ? cell->next : NULL) {
        const char *id = ab_json_text(cell, "id", "missing"),
                   *digest = ab_json_text(cell, "config_digest", NULL);
        if (strcmp(id, cells[i].id) != 0)
            return ab_fail(AB_NOT_COMPARABLE, "--resume: cell %d is '%s' in the document and '%s' here", i,
                           id, cells[i].id);
        if (digest && strcmp(digest, cells[i].digest) != 0)
            return ab_fail(AB_NOT_COMPARABLE,
                           "--resume: cell %d, '%s', has config_digest %s in the document and %s here", i, id,
                           ab_text_brief(digest, 20), cells[i].digest);
    }
    return AB_OK;
}

/* Rejects times of another machine or another build: a document holds those of one. The machines of a sweep
 * compare their builds themselves. */
static ab_status check_machine(const cJSON *document, bool launched, const char *path) {
    if (launched && cJSON_GetObjectItem(document, "machines")) return AB_OK;
    if (launched || cJSON_GetObjectItem(document, "machines"))
        return ab_fail(AB_NOT_COMPARABLE, "--resume: %s was begun %s --launch; go on in the same way", path,
                       launched ? "without" : "with");
    cJSON *generator = ab_environment_generator(), *machine = ab_environment_machine();
    const char *then = cJSON_GetStringValue(cJSON_GetObjectItem(document, "comparability_key"));
    char now[17];
    ab_environment_key(generator, machine, now);
    cJSON_Delete(generator);
    cJSON_Delete(machine);
    return then && strcmp(then, now) == 0 ? AB_OK : of_another(path);
}

ab_status ab_resume_check(cJSON *document, const ab_run_config *config, const ab_options *options,
                          const ab_cell_spec *cells, int count) {
    cJSON *now = ab_record_config(config, options);
    const char *key = first_difference(now, cJSON_GetObjectItem(document, "config"));
    ab_status status = AB_OK;
    if (key)
        status = ab_fail(AB_NOT_COMPARABLE, "--resume: config.%s differs between %s and now", key,
                         options->text[AB_OPTION_out]);
    cJSON_Delete(now);
    if (status == AB_OK)
        status = check_machine(document, options->given[AB_OPTION_launch], options->text[AB_OPTION_out]);
    if (status == AB_OK) status = check_cells(document, cells, count);
    if (status == AB_OK) ab_record_reopen(document);
    return status;
}
