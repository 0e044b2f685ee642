/* Options to typed values and back. */
#define _GNU_SOURCE
#include "bench/run/replay.h"

#include "bench/run/config/configure.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- to values ------------------------------------------------------------------------------- */

static cJSON *list_of(const char *text) {
    cJSON *list = cJSON_CreateArray();
    for (;; text++) {
        char *item = ab_text_new("%.*s", (int)strcspn(text, ","), text);
        cJSON_AddItemToArray(list, item ? cJSON_CreateString(item) : NULL);
        free(item);
        text += strcspn(text, ",");
        if (*text == '\0') return list;
    }
}

/* A number if the whole text is one that JSON holds exactly, else the text. */
static cJSON *integer_of(const char *text) {
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    const bool exact = end != text && !*end && !errno && fabs((double)value) <= AB_JSON_MAX_INTEGER;
    return exact ? cJSON_CreateNumber((double)value) : cJSON_CreateString(text);
}

static cJSON *number_of(const char *text) {
    char *end;
    const double value = strtod(text, &end);
    return end != text && !*end && isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateString(text);
}

static cJSON *value_of(ab_option_id id, const char *text) {
    switch (ab_option_kind_of(id)) {
    case AB_OPTION_FLAG:
        return cJSON_CreateTrue();
    case AB_OPTION_INTEGER:
        return integer_of(text);
    case AB_OPTION_NUMBER:
        return number_of(text);
    case AB_OPTION_LIST:
        return list_of(text);
    case AB_OPTION_TEXT:
        break;
    }
    return cJSON_CreateString(text);
}

cJSON *ab_replay_record(const ab_options *options) {
    cJSON *object = cJSON_CreateObject();
    for (int i = 0; object && i < AB_OPTION_COUNT; i++) {
        const ab_option_id id = (ab_option_id)i;
        if (!options->given[i] || !ab_option_is_config(id)) continue;
        cJSON_AddItemToObject(object, ab_option_key(id),
                              id == AB_OPTION_set
                                  ? cJSON_CreateStringArray(options->override, options->overrides)
                                  : value_of(id, options->text[i]));
    }
    return object;
}

bool ab_replay_same(ab_option_id id, const char *a, const char *b) {
    cJSON *first = value_of(id, a), *second = value_of(id, b);
    const bool same = cJSON_Compare(first, second, 1);
    cJSON_Delete(first);
    cJSON_Delete(second);
    return same;
}

/* ---- to words -------------------------------------------------------------------------------- */

static ab_status own(ab_replay *replay, char *word) {
    if (word && replay->count + 1 >= replay->room) {
        const int room = 2 * replay->room + 32;
        char **more = realloc(replay->word, (size_t)room * sizeof *more);
        if (more) {
            replay->word = more;
            replay->room = room;
        }
    }
    if (!word || replay->count + 1 >= replay->room) {
        free(word);
        return ab_fail(AB_NO_MEMORY, "run.options: out of memory");
    }
    replay->word[replay->count++] = word;
    replay->word[replay->count] = NULL;
    return AB_OK;
}

ab_status ab_replay_add(ab_replay *replay, const char *word) { return own(replay, ab_text_new("%s", word)); }

static ab_status wrong(ab_option_id id, const char *expected, const cJSON *value) {
    return ab_fail(AB_INPUT, "run.options.%s: expected %s, found %s", ab_option_key(id), expected,
                   ab_json_type_text(value));
}

static ab_status add_named(ab_replay *replay, ab_option_id id, const char *value) {
    char name[AB_OPTION_NAME];
    AB_TRY(ab_replay_add(replay, ab_option_name(id, name)));
    return ab_replay_add(replay, value);
}

static ab_status add_number(ab_replay *replay, ab_option_id id, const cJSON *value) {
    const bool whole = ab_option_kind_of(id) == AB_OPTION_INTEGER;
    char text[AB_TEXT_ROUND_TRIP];
    if (whole && cJSON_IsString(value)) return add_named(replay, id, value->valuestring);
    if (!cJSON_IsNumber(value)) return wrong(id, "a number", value);
    const double x = value->valuedouble;
    if (!whole) return add_named(replay, id, ab_text_round_trip(text, x));
    if (!(fabs(x) <= AB_JSON_MAX_INTEGER) || x != floor(x))
        return ab_fail(AB_INPUT, "run.options.%s: expected an integer, found %.17g", ab_option_key(id), x);
    return add_named(replay, id, ab_text_exact(text, sizeof text, "%" PRId64, (int64_t)x));
}

/* The items as one text with commas between them. */
static ab_status add_list(ab_replay *replay, ab_option_id id, const cJSON *list) {
    const cJSON *item;
    char *text = NULL, name[AB_OPTION_NAME];
    if (!cJSON_IsArray(list) || !list->child) return wrong(id, "a list of texts", list);
    cJSON_ArrayForEach(item, list) {
        char *more = cJSON_IsString(item)
                         ? ab_text_new("%s%s%s", text ? text : "", text ? "," : "", item->valuestring)
                         : NULL;
        free(text);
        text = more;
        if (!text) return wrong(id, "a list of texts", item);
    }
    ab_status status = ab_replay_add(replay, ab_option_name(id, name));
    if (status == AB_OK) return own(replay, text);
    free(text);
    return status;
}

/* --set is given once for each item. */
static ab_status add_overrides(ab_replay *replay, const cJSON *list) {
    const cJSON *item;
    if (!cJSON_IsArray(list)) return wrong(AB_OPTION_set, "a list of texts", list);
    cJSON_ArrayForEach(item, list) {
        if (!cJSON_IsString(item)) return wrong(AB_OPTION_set, "a list of texts", item);
        AB_TRY(add_named(replay, AB_OPTION_set, item->valuestring));
    }
    return AB_OK;
}

static ab_status add_option(ab_replay *replay, ab_option_id id, const cJSON *value) {
    char name[AB_OPTION_NAME];
    if (id == AB_OPTION_set) return add_overrides(replay, value);
    switch (ab_option_kind_of(id)) {
    case AB_OPTION_FLAG:
        if (!cJSON_IsTrue(value)) return wrong(id, "true", value);
        return ab_replay_add(replay, ab_option_name(id, name));
    case AB_OPTION_INTEGER:
    case AB_OPTION_NUMBER:
        return add_number(replay, id, value);
    case AB_OPTION_LIST:
        return add_list(replay, id, value);
    case AB_OPTION_TEXT:
        break;
    }
    if (!cJSON_IsString(value)) return wrong(id, "a text", value);
    return add_named(replay, id, value->valuestring);
}

ab_status ab_replay_words(const cJSON *document, ab_replay_use use, ab_replay *replay) {
    const cJSON *options = ab_json_at(document, "run.options"), *value;
    *replay = (ab_replay){.word = NULL};
    if (!cJSON_IsObject(options))
        return ab_fail(AB_INPUT,
                       "expected run.options, the options of the recorded training, found %s; the "
                       "document is of an older ampbench: run it again",
                       ab_json_type_text(options));
    AB_TRY(ab_replay_add(replay, "ampbench"));
    cJSON_ArrayForEach(value, options) {
        ab_option_id id = AB_OPTION_COUNT;
        if (!ab_option_of_key(value->string, &id) || !ab_option_is_config(id))
            return ab_fail(AB_INPUT, "run.options.%s: no option of a training",
                           ab_text_brief(value->string, AB_OPTION_NAME));
        if (use == AB_REPLAY_RESUME || ab_option_trait_of(id) != AB_OPTION_TRAIT_checkpoints)
            AB_TRY(add_option(replay, id, value));
    }
    return AB_OK;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static ab_status check_net(const cJSON *document, const ab_run_config *config) {
    const char *digest = ab_json_text(document, "config.net_digest", NULL);
    if (!digest || strcmp(digest, config->net->digest) == 0) return AB_OK;
    return ab_fail(AB_NOT_COMPARABLE,
                   "network %s is not the recorded one: config.net_digest is %s there and "
                   "%s here",
                   config->net->name, ab_text_brief(digest, 20), config->net->digest);
}

static bool is_special(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode);
}

/* A record may name files and folders, but no devices and pipes, which a user may. */
static ab_status check_inputs(const ab_options *options) {
    for (int i = 0; i < AB_OPTION_COUNT; i++) {
        const ab_option_id id = (ab_option_id)i;
        if (!options->given[i] || ab_option_trait_of(id) != AB_OPTION_TRAIT_training_input) continue;
        const char *path = options->text[i], *colon = strchr(path, ':'); /* bytes:PATH */
        if (is_special(path) || (colon && is_special(colon + 1)))
            return ab_fail(AB_INPUT, "run.options.%s: expected a file or a folder, found a device or a pipe",
                           ab_option_key(id));
    }
    return AB_OK;
}

static void write_inputs(const char *who, const ab_options *options, FILE *notes) {
    char name[AB_OPTION_NAME], value[256];
    bool any = false;
    for (int i = 0; i < AB_OPTION_COUNT; i++) {
        const ab_option_id id = (ab_option_id)i;
        if (!options->given[i] || ab_option_trait_of(id) != AB_OPTION_TRAIT_training_input) continue;
        if (any) fputs(", ", notes);
        if (!any) ab_print(notes, "%s: inputs that the record names are read: ", who);
        any = true;
        ab_print(notes, "%s %s", ab_option_name(id, name),
                 ab_text_clean(value, sizeof value, options->text[i]));
    }
    if (any) fputs(" (paths start at this folder)\n", notes);
}

ab_status ab_replay_check(const char *who, const cJSON *document, const ab_replay *replay, FILE *notes) {
    ab_options options;
    ab_run_config config;
    ab_status status = ab_options_parse(replay->count, replay->word, &options);
    if (status == AB_OK) status = check_inputs(&options);
    if (status == AB_OK) status = ab_run_config_create(&options, false, &config);
    if (status != AB_OK) return ab_fail_prefix(status, "%s: the recorded run", who);
    status = check_net(document, &config);
    ab_run_config_clear(&config);
    if (status != AB_OK) return ab_fail_prefix(status, "%s", who);
    if (notes) write_inputs(who, &options, notes);
    return AB_OK;
}

void ab_replay_clear(ab_replay *replay) {
    for (int i = 0; i < replay->count; i++) free(replay->word[i]);
    free(replay->word);
    *replay = (ab_replay){.word = NULL};
}
