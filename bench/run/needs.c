/* One condition a need; needs.def says which option has which. */
#include "bench/run/needs.h"

#include "bench/train/ranks/link.h"

#include <string.h>

typedef struct needs {
    const ab_options *options;
    const ab_run_config *config;
} needs;

static bool has_init(const needs *n) { return n->config->init_file != NULL; }
static bool has_schedule(const needs *n) {
    return strcmp(n->options->text[AB_OPTION_schedule], "constant") != 0;
}
static bool has_weight_decay(const needs *n) {
    return n->config->optim.weight_decay != 0 || n->options->given[AB_OPTION_param_groups];
}
static bool has_clip_norm(const needs *n) { return n->config->recipe.clip.norm > 0; }
static bool has_ema(const needs *n) { return n->config->recipe.ema_decay > 0; }
static bool has_ranks(const needs *n) {
    return n->config->recipe.ranks.count > 1 || ab_rank_place_get().ranks > 0;
}
static bool has_probing(const needs *n) {
    return n->config->probe_every > 0 || (strcmp(n->options->text[AB_OPTION_probes], "default") == 0 &&
                                          !n->options->given[AB_OPTION_trace]);
}
static bool has_shadow_every(const needs *n) { return n->options->given[AB_OPTION_shadow_every]; }
static bool has_floors(const needs *n) {
    for (int l = 0; l < n->config->levels && n->config->floor_draws > 0; l++)
        if (ab_level_is_reference(n->config->level[l])) return true;
    return false;
}

static const struct {
    ab_option_id id;
    bool (*met)(const needs *);
    const char *missing;
} rows[] = {
#define AB_NEEDS(id, need, missing) {AB_OPTION_##id, has_##need, missing},
#include "bench/run/needs.def"
#undef AB_NEEDS
};

ab_status ab_needs_check(const ab_options *options, const ab_run_config *config) {
    const needs n = {options, config};
    char name[AB_OPTION_NAME];
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++)
        if (options->given[rows[i].id] && !rows[i].met(&n))
            return ab_fail(AB_USAGE, "%s: %s", ab_option_name(rows[i].id, name), rows[i].missing);
    return AB_OK;
}
