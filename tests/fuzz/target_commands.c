/* Fuzz targets: command lines. Their words, and the documents that they name, are JSON: an array of words,
 * then the files a.json, b.json and c.json. */
#include "tests/fuzz/fuzz.h"

#include "bench/cmd/cmd.h"
#include "bench/cmd/commands.h"
#include "bench/run/config/cells.h"
#include "bench/run/config/configure.h"
#include "bench/run/run.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 32 };

typedef struct words {
    cJSON *list;
    char *word[MOST_WORDS + 2]; /* ends with NULL */
    int count;
} words;

/* The words behind `first`; false if the input does not begin with an array of strings. */
static bool take_words(const char **at, const char *end, char *first, words *w) {
    const cJSON *word;
    *w = (words){.list = fuzz_next_json(at, end)};
    if (first) w->word[w->count++] = first;
    cJSON_ArrayForEach(word, w->list) {
        if (!cJSON_IsString(word) || w->count == MOST_WORDS) return false;
        w->word[w->count++] = word->valuestring;
    }
    return cJSON_IsArray(w->list) && w->count > 0;
}

/* ---- options of a run ------------------------------------------------------------------------ */

static void list_cells(const ab_run_config *config) {
    ab_cell_spec *cells = NULL;
    int count = 0;
    if (config->seeds > 8 || ab_run_cells(config, &cells, &count) != AB_OK) return;
    fuzz_passed();
    for (int i = 0; i < count; i++) {
        char path[256];
        ab_status status =
            ab_cell_file("--checkpoint", "out/checkpoint-%c.safetensors", cells[i].id, path, sizeof path);
        fuzz_insist(status != AB_OK || strlen(path) < sizeof path);
    }
    ab_run_cells_free(cells, count);
}

static void configure(const ab_options *options) {
    static char program[] = "ampbench";
    char *again[AB_OPTIONS_WORDS + 2] = {program};
    ab_run_config config;
    ab_options parsed;
    const int n = ab_options_words(options, again + 1);
    fuzz_insist(ab_options_parse(n + 1, again, &parsed) == AB_OK); /* what a worker is told */
    memset(&config, 0, sizeof config);
    if (ab_run_config_create(options, false, &config) != AB_OK) return;
    list_cells(&config);
    ab_run_config_clear(&config);
}

void fuzz_options(const uint8_t *data, size_t size) {
    static char program[] = "ampbench";
    const char *at = (const char *)data;
    words w;
    ab_options options;
    if (take_words(&at, at + size, program, &w) && ab_options_parse(w.count, w.word, &options) == AB_OK)
        configure(&options);
    cJSON_Delete(w.list);
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Commands that train, or take minutes: their options are those of fuzz_options. */
static bool is_long(const words *w) {
    static const char *const names[] = {"run", "fit", "promote", "plan"};
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        found = found || strcmp(w->word[0], names[i]) == 0;
    for (int i = 0; i < w->count; i++)
        found = found || strncmp(w->word[i], "--prove", 7) == 0 || strncmp(w->word[i], "--threads", 9) == 0;
    return found;
}

static void run_command(words *w) {
    ab_usage_set_commands(ab_commands, ab_command_count);
    for (int i = 0; i < ab_command_count && !is_long(w); i++)
        if (strcmp(w->word[0], ab_commands[i].name) == 0 && ab_commands[i].run(w->count, w->word) == AB_OK)
            fuzz_passed();
}

/* The texts of the values behind the words become files. */
static void place_documents(const char **at, const char *end) {
    static const char *const names[] = {"a.json", "b.json", "c.json"};
    for (int i = 0; i < 3 && *at < end; i++) {
        const char *start = *at;
        cJSON *value = fuzz_next_json(at, end);
        fuzz_file(names[i], start, (size_t)(*at - start));
        cJSON_Delete(value);
    }
}

void fuzz_commands(const uint8_t *data, size_t size) {
    const char *at = (const char *)data, *end = at + size;
    words w;
    if (take_words(&at, end, NULL, &w)) {
        place_documents(&at, end);
        run_command(&w);
    }
    cJSON_Delete(w.list);
}

/* ---- resuming a run -------------------------------------------------------------------------- */

/* The options that the document holds, and what it says of the configuration. */
void fuzz_resume(const uint8_t *data, size_t size) {
    static char program[] = "ampbench", resume[] = "--resume", out[] = "--out", name[] = "a.json";
    char *argv[] = {program, resume, out, name, NULL};
    ab_options options;
    cJSON *document = NULL;
    ab_replay replay;
    ab_run_config config;
    ab_cell_spec *cells = NULL;
    int count = 0;
    memset(&config, 0, sizeof config);
    memset(&replay, 0, sizeof replay);
    fuzz_file("a.json", data, size);
    fuzz_insist(ab_options_parse(4, argv, &options) == AB_OK);
    if (ab_resume_options(&options, &document, &replay) == AB_OK &&
        ab_run_config_create(&options, false, &config) == AB_OK) {
        fuzz_passed();
        ab_status status = config.seeds > 8 ? AB_USAGE : ab_run_cells(&config, &cells, &count);
        if (status == AB_OK) status = ab_resume_check(document, &config, &options, cells, count);
        fuzz_insist(status == AB_OK || ab_error_message()[0]);
        ab_run_cells_free(cells, count);
        ab_run_config_clear(&config);
    }
    ab_replay_clear(&replay);
    cJSON_Delete(document);
}
