/* The cross product of a run: its cells by number, their policies, names and files. */
#define _GNU_SOURCE
#include "bench/run/config/cells.h"

#include "bench/run/config/options.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"

#include <stdlib.h>
#include <string.h>

/* ---- what a cell cannot be ------------------------------------------------------------------- */

/* --min-loss-scale and the related options must be supported by every dynamic scaler. */
static ab_status check_limits(const ab_run_config *config, const ab_loss_scale *scale) {
    const struct {
        const char *option, *key;
        bool given;
    } limits[] = {{"--min-loss-scale", "min", config->min_loss_scale != 0},
                  {"--max-loss-scale", "max", config->max_loss_scale != 0},
                  {"--scale-window", "window", config->scale_window != 0}};
    for (size_t i = 0; i < AB_COUNT_OF(limits); i++) {
        if (!scale->dynamic || !limits[i].given) continue;
        if (ab_scaler_key_index(scale->scaler.kind, limits[i].key) >= 0) continue;
        return ab_fail(AB_USAGE,
                       "%s: loss scaler %s has no %s; set it where it exists, e.g. --scales dynamic:%s=...",
                       limits[i].option, scale->scaler.kind->name, limits[i].key, limits[i].key);
    }
    return AB_OK;
}

/* Operations on all gradients at once are undefined if each loss has its own scale. */
static ab_status check_own_scales(const ab_run_config *config, const ab_policy *policy) {
    const ab_scaler_kind *kind = policy->loss_scale.scaler.kind;
    const unsigned of_one_scale = AB_FAULT_clip_before_unscale | AB_FAULT_unscale_each_micro_batch;
    if (policy->num_losses <= 1) return AB_OK;
    if (config->recipe.ranks.count > 1)
        return ab_fail(AB_USAGE,
                       "--set num_losses=%d: gradients that have scales of their own are not reduced "
                       "over ranks; give --ranks 1",
                       policy->num_losses);
    if (kind->sees || kind->updates_first)
        return ab_fail(AB_USAGE,
                       "--set num_losses=%d: loss scaler %s %s; choose dynamic or another that looks at "
                       "overflows alone",
                       policy->num_losses, kind->name,
                       kind->sees ? "follows the size of all gradients together"
                                  : "divides gradients after its update, all of them by one scale");
    if (config->recipe.faults & of_one_scale)
        return ab_fail(AB_USAGE,
                       "--set num_losses=%d: gradients are unscaled after every loss's backward pass, so "
                       "the mistakes clip_before_unscale and unscale_each_micro_batch cannot be made",
                       policy->num_losses);
    return AB_OK;
}

/* AdaLoss scales the gradient of every layer: rejects configurations it is not defined for. */
static ab_status check_layered(const ab_run_config *config, const ab_format *half, const ab_policy *policy) {
    const ab_scaler_kind *kind = policy->loss_scale.scaler.kind;
    if (!(kind->sees & AB_SEES_LAYER)) return AB_OK;
    if (half != &ab_format_fp16)
        return ab_fail(AB_USAGE,
                       "--scales %s: its range is that of fp16 (the original: ValueError for other formats); "
                       "give --half "
                       "fp16",
                       kind->name);
    if (config->recipe.micro_batches > 1 || config->recipe.ranks.count > 1)
        return ab_fail(
            AB_USAGE,
            "--scales %s: gradients of micro-batches have scales of their own and cannot be summed; give "
            "--gradient-accumulation-steps 1 and --ranks 1",
            kind->name);
    if (config->recipe.faults & AB_FAULT_clip_before_unscale)
        return ab_fail(AB_USAGE, "--scales %s: there is no one scale that clipping could come before",
                       kind->name);
    if (strcmp(config->device->name, "cpu") != 0)
        return ab_fail(AB_USAGE, "--scales %s: on the CPU only, found device %s", kind->name,
                       config->device->name);
    return AB_OK;
}

/* An fp32 reference compares gradients at one scale. */
static ab_status check_shadow(const ab_run_config *config, const ab_policy *policy) {
    const bool layers = policy->loss_scale.scaler.kind->sees & AB_SEES_LAYER;
    if (config->shadow_every == 0 || (policy->num_losses <= 1 && !layers)) return AB_OK;
    return ab_fail(AB_USAGE, "--shadow-every: not where %s",
                   layers ? "layers have scales of their own (adaloss)"
                          : "losses have scales of their own (num_losses)");
}

static ab_status name_cell(const ab_run_config *config, ab_cell_spec *cell) {
    static const char *const suffix[] = {"", "/ulp", "/rounding"};
    char scale[AB_SCALER_TEXT], draw[16] = ""; /* "/ulp", "/ulp2", ... */
    AB_TRY(ab_cell_digest(config, cell, cell->digest));
    if (cell->draw > 0) ab_text_exact(draw, sizeof draw, "%d", cell->draw + 1);
    cell->id =
        ab_text_new("%s/%s/%s/%s/%s/seed%llu%s%s", config->net->name, cell->policy.label,
                    ab_loss_scale_text(&cell->policy.loss_scale, scale), cell->half->name,
                    config->device->name, (unsigned long long)cell->seed, suffix[cell->perturbation], draw);
    return cell->id ? AB_OK : ab_fail(AB_NO_MEMORY, "cells: out of memory");
}

/* The level's properties after the overrides for the entry. Those that the reference ignores are checked all
 * the same.
 */
static ab_status resolve(const ab_run_config *config, const ab_level *level, const ab_level_options *own,
                         const ab_format *half, ab_policy *policy) {
    const ab_level_options *unnamed = &config->unnamed;
    if (ab_level_is_reference(level))
        AB_TRY(ab_policy_resolve(level, half, unnamed->override, unnamed->overrides, policy));
    AB_TRY(ab_policy_resolve_entry(level, half, own->override, own->overrides, own->own, own->owns, policy));
    policy->layers = own->layers;
    return AB_OK;
}

/* Formats of kept state: those of the options, where no override chose them. The reference has fp32 ones. */
static ab_status choose_state(const ab_run_config *config, bool reference, const ab_format *half,
                              ab_keep *keep) {
    const ab_format *const state_formats[] = {NULL, &ab_format_fp32, reference ? NULL : half};
    if (keep->ema_set && !(config->recipe.ema_decay > 0))
        return ab_fail(AB_USAGE, "--set ema_format: no averaged weights are kept; give --ema DECAY");
    keep->micro_batches = config->recipe.micro_batches > 1;
    if (!keep->state_set) keep->state_format = state_formats[config->state_format];
    if (config->optim.by_op && keep->state_format)
        return ab_fail(AB_USAGE,
                       "--optimizer-rounding op: the state has the format of the weights, as in "
                       "torch; leave out its format %s",
                       keep->state_format->name);
    if (!keep->ema_set && config->recipe.ema_decay > 0)
        keep->ema_format = config->ema_half && !reference ? half : &ab_format_fp32;
    return AB_OK;
}

/* O0 is the reference and keeps fp32 products unless named. */
static ab_status choose_math(const ab_run_config *config, bool reference, ab_policy *policy) {
    if (!policy->tf32_set) policy->tf32 = config->tf32 && !reference;
    if (!policy->tf32 || strncmp(config->device->name, "cuda", 4) == 0) return AB_OK;
    return ab_fail(AB_USAGE, "--set math=tf32: only GPUs have TF32, this run is on %s", config->device->name);
}

/* The cell of the entry `l` of --levels, without a name. */
static ab_status make_cell(const ab_run_config *config, int l, const ab_format *half,
                           const ab_scale_choice *choice, ab_perturbation perturbation, ab_cell_spec *cell) {
    const ab_level *level = config->level[l];
    const ab_level_options *own = &config->own[l];
    const bool reference = ab_level_is_reference(level);
    *cell = (ab_cell_spec){
        .level = level, .own = own, .half = half, .perturbation = perturbation, .seed = config->seed};
    AB_TRY(resolve(config, level, own, half, &cell->policy));
    if (!choice->preset && !reference && !own->own_scale) cell->policy.loss_scale = choice->scale;
    AB_TRY(choose_state(config, reference, half, &cell->policy.keep));
    AB_TRY(choose_math(config, reference, &cell->policy));
    AB_TRY(check_limits(config, &cell->policy.loss_scale));
    AB_TRY(check_own_scales(config, &cell->policy));
    AB_TRY(check_layered(config, half, &cell->policy));
    return check_shadow(config, &cell->policy);
}

/* By digest; equal ones in their order. */
static int compare_cells(const void *a, const void *b) {
    const ab_cell_spec *const *x = a, *const *y = b;
    const int order = strcmp((*x)->digest, (*y)->digest);
    return order ? order : (*x > *y) - (*x < *y);
}

/* Removes cells that are the same as an earlier one. */
static ab_status remove_repeats(ab_cell_spec *cells, int *count) {
    int kept = 0;
    ab_cell_spec **sorted = calloc((size_t)*count + 1, sizeof(ab_cell_spec *));
    if (!sorted) return ab_fail(AB_NO_MEMORY, "cells: out of memory");
    for (int i = 0; i < *count; i++) sorted[i] = &cells[i];
    qsort(sorted, (size_t)*count, sizeof(ab_cell_spec *), compare_cells);
    for (int i = *count - 1; i > 0; i--) {
        if (strcmp(sorted[i]->digest, sorted[i - 1]->digest) != 0) continue;
        free(sorted[i]->id);
        sorted[i]->id = NULL;
    }
    free(sorted);
    for (int i = 0; i < *count; i++)
        if (cells[i].id) cells[kept++] = cells[i];
    *count = kept;
    return AB_OK;
}

/* ---- places: every combination in order, so that one cell can be made without the others ------ */

enum { FLOORS = 2 };

/* Places of one half format: levels x scales, then the draws of each floor. */
static int64_t places_of_half(const ab_run_config *config) {
    return (int64_t)config->levels * config->scales + FLOORS * config->floor_draws;
}

static int64_t places_of_seed(const ab_run_config *config) { return places_of_half(config) * config->halves; }

/* The entry of --levels of the perturbed baselines: O0; of several, the least overridden. -1: none. */
static int floor_level(const ab_run_config *config) {
    int found = -1;
    for (int l = config->levels - 1; config->floor_draws > 0 && l >= 0; l--)
        if (ab_level_is_reference(config->level[l]) &&
            (found < 0 || config->own[l].owns <= config->own[found].owns))
            found = l;
    return found;
}

/* Whether the half format changes nothing of what an entry of --levels trains: O0 as it is casts nothing. Of
 * its perturbed baselines, that moved by a rounding depends on it. */
static bool ignores_half(const ab_run_config *config, int level, ab_perturbation perturbation) {
    const ab_level_options *own = &config->own[level];
    return ab_level_is_reference(config->level[level]) && own->owns == 0 && !own->named &&
           perturbation != AB_PERTURB_ROUNDING;
}

/* Makes the cell at a place, with its name. *there: the place has one; what the half format does not change
 * is at the first one only. */
static ab_status make_place(const ab_run_config *config, int64_t place, ab_cell_spec *cell, bool *there) {
    static const ab_scale_choice preset = {.preset = true};
    const int64_t in_half = place % places_of_half(config), seed = place / places_of_seed(config);
    const int scales = config->scales, k = (int)in_half, floor = k - config->levels * scales,
              floor_of = floor_level(config), draws = config->floor_draws;
    const int64_t h = place % places_of_seed(config) / places_of_half(config);
    const int level = floor < 0 ? k / scales : floor_of;
    const ab_perturbation moved =
        floor < 0 ? AB_PERTURB_NONE : (ab_perturbation)(AB_PERTURB_ULP + floor / draws);
    *there = level >= 0 && (floor < 0 || seed == 0) && (h == 0 || !ignores_half(config, level, moved));
    if (!*there) return AB_OK;
    AB_TRY(make_cell(config, level, config->half[h], floor < 0 ? &config->scale[k % scales] : &preset, moved,
                     cell));
    cell->place = place;
    cell->draw = floor < 0 ? 0 : floor % draws;
    cell->seed += (uint64_t)seed;
    return name_cell(config, cell);
}

ab_status ab_run_cell_at(const ab_run_config *config, int64_t place, const char *id, ab_cell_spec *cell) {
    bool there = false;
    if (place >= 0 && place < config->seeds * places_of_seed(config))
        AB_TRY(make_place(config, place, cell, &there));
    if (there && strcmp(cell->id, id) == 0) return AB_OK;
    if (there) free(cell->id);
    return ab_fail(AB_INTERNAL, "no cell '%s' at place %lld", id, (long long)place);
}

/* Repeats the cells for the other seeds, without the noise floors. */
static ab_status append_seeds(const ab_run_config *config, ab_cell_spec *cells, int *count) {
    int first = *count;
    for (int64_t seed = 1; seed < config->seeds; seed++) {
        for (int i = 0; i < first; i++) {
            if (cells[i].perturbation) continue;
            ab_cell_spec cell = cells[i];
            cell.seed = config->seed + (uint64_t)seed;
            cell.place += seed * places_of_seed(config);
            AB_TRY(name_cell(config, &cell));
            cells[(*count)++] = cell;
        }
    }
    return remove_repeats(cells, count);
}

void ab_run_cells_free(ab_cell_spec *cells, int count) {
    for (int i = 0; cells && i < count; i++) free(cells[i].id);
    free(cells);
}

ab_status ab_run_cells(const ab_run_config *config, ab_cell_spec **result, int *count) {
    ab_status status = AB_OK;
    ab_cell_spec *cells = calloc((size_t)(config->seeds * places_of_seed(config)), sizeof *cells);
    *count = 0;
    if (!cells) return ab_fail(AB_NO_MEMORY, "cells: out of memory");
    for (int64_t place = 0; place < places_of_seed(config); place++) {
        bool there;
        AB_TRY_GOTO(make_place(config, place, &cells[*count], &there));
        *count += there;
    }
    AB_TRY_GOTO(remove_repeats(cells, count));
    AB_TRY_GOTO(append_seeds(config, cells, count));
    *result = cells;
    cells = NULL;
out:
    ab_run_cells_free(cells, *count);
    return status;
}

void ab_run_unused_scaling(const ab_options *options, const ab_cell_spec *cells, int count, char *text,
                           size_t size) {
    static const ab_option_id dynamic[] = {AB_OPTION_min_loss_scale, AB_OPTION_max_loss_scale,
                                           AB_OPTION_scale_window};
    char name[AB_OPTION_NAME];
    bool moves = false;
    text[0] = '\0';
    for (int i = 0; i < count; i++) moves = moves || cells[i].policy.loss_scale.dynamic;
    for (size_t i = 0; i < AB_COUNT_OF(dynamic) && !moves; i++)
        if (options->given[dynamic[i]])
            ab_text_append(text, size, "%s%s", text[0] ? ", " : "", ab_option_name(dynamic[i], name));
    if (text[0]) ab_text_append(text, size, ": without effect: no cell has a dynamic loss scale");
}

ab_status ab_cell_file(const char *option, const char *pattern, const char *id, char *path, size_t size) {
    const char *mark = strstr(pattern, "%c");
    const size_t before = mark ? (size_t)(mark - pattern) : strlen(pattern), length = strlen(id);
    AB_TRY(ab_text_path(option, path, size, "%.*s%s%s", (int)before, pattern, mark ? id : "",
                        mark ? mark + 2 : ""));
    for (size_t i = 0; mark && i < length; i++)
        if (path[before + i] == '/') path[before + i] = '-';
    return AB_OK;
}

ab_status ab_cell_continue(const ab_run_config *config, const ab_cell_spec *spec, ab_cell *cell) {
    char path[4096];
    int64_t steps = 0;
    if (!config->resume_file) return AB_OK;
    AB_TRY(ab_cell_file("--resume-from", config->resume_file, spec->id, path, sizeof path));
    AB_TRY(ab_cell_resume(cell, path));
    AB_TRY(ab_checkpoint_steps(path, &steps));
    if (steps == config->first_step) return AB_OK;
    return ab_fail(AB_INPUT, "--resume-from: %s has done %lld steps, the first cell's %lld", path,
                   (long long)steps, (long long)config->first_step);
}

static ab_recipe recipe_of(const ab_run_config *config, const ab_cell_spec *spec) {
    const ab_format *const formats[] = {NULL, &ab_format_fp32, spec->half};
    ab_recipe recipe = config->recipe;
    recipe.clip.format = ab_level_is_reference(spec->level) ? NULL : formats[config->clip_format];
    return recipe;
}

ab_cell_config ab_cell_config_of(const ab_run_config *config, const ab_cell_spec *spec) {
    return (ab_cell_config){.net = config->net,
                            .policy = spec->policy,
                            .min_loss_scale = config->min_loss_scale,
                            .max_loss_scale = config->max_loss_scale,
                            .scale_window = config->scale_window,
                            .optimizer = config->optimizer,
                            .optim = config->optim,
                            .recipe = recipe_of(config, spec),
                            .batch = config->batch,
                            .seed = spec->seed,
                            .data = config->data,
                            .normalize = config->normalize,
                            .shuffled = config->shuffled,
                            .accumulate_half = config->accumulate_half,
                            .path = config->path,
                            .init_file = config->init_file,
                            .init_map = config->init_map,
                            .perturbation = spec->perturbation,
                            .draw = spec->draw,
                            .no_graph = config->no_graph,
                            .tf32 = spec->policy.tf32,
                            .device = config->device,
                            .memory_limit = config->memory_limit};
}
