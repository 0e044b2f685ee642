/* Starting runs and reading their documents. */
#define _POSIX_C_SOURCE 200809L
#include "bench/promote/trial.h"

#include "bench/run/self.h"
#include "reports/json.h"
#include "reports/result.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 512, OWN_WORDS = 32 };

/* ---- one run --------------------------------------------------------------------------------------------- */

/* Options of one run beside the user's; the last of equal options counts. */
typedef struct run_words {
    const char *levels, *to, *probes, *every;
    int seeds;
} run_words;

static char *plain(const char *word) { return (char *)(uintptr_t)word; }

static ab_status run_into(const ab_trial_setup *setup, const run_words *words, const char *path) {
    char first[24], seeds[24];
    int n = 0;
    char **argv = calloc((size_t)setup->word_count + OWN_WORDS, sizeof *argv);
    if (!argv) return ab_fail(AB_NO_MEMORY, "promote: out of memory");
    snprintf(first, sizeof first, "%" PRId64, setup->first_seed);
    snprintf(seeds, sizeof seeds, "%d", words->seeds);
    const char *const own[] = {"--levels",   words->levels, "--seed",      first,
                               "--seeds",    seeds,         "--rounds",    "1",
                               "--no-floor", "--no-plots",  "--quiet",     "--eval-limit",
                               "1",          "--probes",    words->probes, "--probe-every",
                               words->every, "--out",       path,          words->to ? "--to" : NULL,
                               words->to};
    argv[n++] = plain("ampbench");
    argv[n++] = plain("run");
    for (int i = 0; i < setup->word_count; i++) argv[n++] = setup->words[i];
    for (size_t i = 0; i < AB_COUNT_OF(own) && own[i]; i++) argv[n++] = plain(own[i]);
    ab_status status = ab_run_self("promote", "a training run", argv, 0);
    free(argv);
    return status;
}

/* The document of a run; its file is gone. */
static ab_status train(const ab_trial_setup *setup, const run_words *words, cJSON **document) {
    char folder[PATH_BYTES], path[PATH_BYTES + 16];
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/ampbench-promote.XXXXXX", base && base[0] ? base : "/tmp");
    if (!mkdtemp(folder))
        return ab_fail(AB_OUTPUT, "promote: cannot make a folder in %s: %s", folder, strerror(errno));
    snprintf(path, sizeof path, "%s/result.json", folder);
    ab_status status = run_into(setup, words, path);
    if (status == AB_OK) status = ab_result_load(path, document);
    if (status == AB_OK) status = ab_result_summarise(*document);
    unlink(path);
    rmdir(folder);
    return status;
}

/* Final losses of a level's cells by seed. */
static void read_losses(const ab_trial_setup *setup, const cJSON *document, const char *level,
                        ab_trial_losses *losses) {
    const cJSON *cell;
    for (int i = 0; i < setup->seeds; i++) losses->final[i] = (double)NAN;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        const double place = ab_json_number(cell, "seed", 0) - (double)setup->first_seed;
        if (cJSON_IsString(ab_json_at(cell, "twin")) || strcmp(ab_json_text(cell, "level", ""), level) != 0 ||
            place < 0 || place >= setup->seeds)
            continue;
        losses->final[(int)place] = ab_json_number(cell, "summary.loss_final", (double)NAN);
    }
}

/* ---- trials ---------------------------------------------------------------------------------------------- */

ab_status ab_trial_base(const ab_trial_setup *setup, ab_trial_losses *o0, ab_trial_losses *level) {
    char levels[96];
    cJSON *document = NULL;
    snprintf(levels, sizeof levels, "O0,%s", setup->level);
    const run_words words = {levels, NULL, "default", "0", setup->seeds};
    ab_status status = train(setup, &words, &document);
    if (status == AB_OK) {
        read_losses(setup, document, "O0", o0);
        read_losses(setup, document, setup->level, level);
    }
    cJSON_Delete(document);
    return status;
}

void ab_trial_words(const ab_trial_setup *setup, const int *item, int count, char words[AB_TRIAL_WORDS]) {
    int used = 0;
    words[0] = '\0';
    for (int i = 0; i < count && used < AB_TRIAL_WORDS; i++)
        used += snprintf(words + used, (size_t)(AB_TRIAL_WORDS - used), "%s%s=fp32", i ? "," : "",
                         setup->layer[item[i]].name);
}

ab_status ab_trial_run(const ab_trial_setup *setup, const int *item, int count, ab_trial_losses *losses) {
    cJSON *document = NULL;
    char *to = malloc(AB_TRIAL_WORDS);
    if (!to) return ab_fail(AB_NO_MEMORY, "promote: out of memory");
    ab_trial_words(setup, item, count, to);
    const run_words words = {setup->level, count > 0 ? to : NULL, "default", "0", setup->seeds};
    ab_status status = train(setup, &words, &document);
    if (status == AB_OK) read_losses(setup, document, setup->level, losses);
    cJSON_Delete(document);
    free(to);
    return status;
}

/* ---- ranking --------------------------------------------------------------------------------------------- */

/* Adds what casts of one kind did to the layers' values. */
static void add_casts(const cJSON *tensors, const ab_trial_setup *setup, ab_promote_layer *layer) {
    const double overflow_weighs = 1000;
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, tensors) {
        const double all = ab_json_number(tensor, "nonzero", 0);
        const char *name = ab_json_text(tensor, "layer", "");
        if (!ab_json_is_true(tensor, "cast") || all <= 0) continue;
        const double over = ab_json_number(tensor, "overflowed", 0),
                     error = ab_json_number(tensor, "flushed", 0) / all +
                             (over > 0 ? overflow_weighs * (1 + over / all) : 0);
        for (int i = 0; i < setup->layers; i++)
            if (strcmp(layer[i].name, name) == 0) layer[i].error += error;
    }
}

static void add_lost_updates(const cJSON *list, const ab_trial_setup *setup, ab_promote_layer *layer) {
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        const double all = ab_json_number(item, "update.nonzero", 0),
                     lost = ab_json_number(item, "update.lost", 0);
        for (int i = 0; i < setup->layers; i++)
            if (all > 0 && strcmp(layer[i].name, ab_json_text(item, "layer", "")) == 0)
                layer[i].error += lost / all;
    }
}

ab_status ab_trial_rank(const ab_trial_setup *setup, ab_promote_layer *layer) {
    cJSON *document = NULL;
    const run_words words = {setup->level, NULL, "gradients,activations,weights,lost_updates", "5", 1};
    for (int i = 0; i < setup->layers; i++) layer[i].error = 0;
    AB_TRY(train(setup, &words, &document));
    const cJSON *probes = ab_json_at(cJSON_GetArrayItem(ab_json_at(document, "cells"), 0), "probes");
    add_casts(ab_json_at(probes, "tensors"), setup, layer);
    add_casts(ab_json_at(probes, "activations"), setup, layer);
    add_casts(ab_json_at(probes, "weights"), setup, layer);
    add_lost_updates(ab_json_at(probes, "lost_updates"), setup, layer);
    cJSON_Delete(document);
    return AB_OK;
}

/* ---- comparison ------------------------------------------------------------------------------------------ */

double ab_trial_range(const ab_trial_losses *losses, int seeds) {
    double low = losses->final[0], high = losses->final[0];
    for (int i = 1; i < seeds; i++) {
        low = fmin(low, losses->final[i]);
        high = fmax(high, losses->final[i]);
    }
    return high - low;
}

double ab_trial_gap(const ab_trial_losses *a, const ab_trial_losses *b, int seeds) {
    double sum = 0;
    for (int i = 0; i < seeds; i++) {
        if (!isfinite(a->final[i])) return (double)INFINITY;
        sum += (a->final[i] - b->final[i]) / seeds;
    }
    return sum;
}
