/* Delta debugging on lists of integers. */
#define _POSIX_C_SOURCE 200809L

#include "bench/promote/promote.h"

#include "bench/run/self.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ab_status ab_shortest_prefix(const ab_ddmin_test *test, const int *item, int *count) {
    int fails = 0, passes = *count;
    for (int n = 1; n < passes; n *= 2) {
        bool good = false;
        AB_TRY(test->passes(test->context, item, n, &good));
        if (good)
            passes = n;
        else
            fails = n;
    }
    while (passes - fails > 1) {
        const int middle = fails + (passes - fails) / 2;
        bool good = false;
        AB_TRY(test->passes(test->context, item, middle, &good));
        if (good)
            passes = middle;
        else
            fails = middle;
    }
    *count = passes;
    return AB_OK;
}

/* Items without those of [from, to). */
static int without(const int *item, int count, int from, int to, int *rest) {
    int n = 0;
    for (int i = 0; i < count; i++)
        if (i < from || i >= to) rest[n++] = item[i];
    return n;
}

/* Searches the `parts` parts for one that can be removed; *left is the number of remaining items, or -1. */
static ab_status drop_a_part(const ab_ddmin_test *test, const int *item, int count, int parts, int *rest,
                             int *left) {
    *left = -1;
    for (int p = 0; p < parts; p++) {
        const int from = (int)((long)count * p / parts), to = (int)((long)count * (p + 1) / parts);
        const int n = without(item, count, from, to, rest);
        bool good = false;
        AB_TRY(test->passes(test->context, rest, n, &good));
        if (good) {
            *left = n;
            return AB_OK;
        }
    }
    return AB_OK;
}

ab_status ab_ddmin(const ab_ddmin_test *test, int *item, int *count) {
    int rest[AB_DDMIN_ITEMS], parts = 2;
    if (*count > AB_DDMIN_ITEMS)
        return ab_fail(AB_CONFIG, "more than %d layers to choose from", (int)AB_DDMIN_ITEMS);
    while (*count > 0) {
        int left;
        if (parts > *count) parts = *count;
        AB_TRY(drop_a_part(test, item, *count, parts, rest, &left));
        if (left >= 0) {
            memcpy(item, rest, (size_t)left * sizeof *item);
            *count = left;
            parts = parts > 2 ? parts - 1 : 2;
        } else if (parts == *count) {
            break;
        } else {
            parts *= 2;
        }
    }
    return AB_OK;
}

/* Finds the parts of a plan that are half. */

static bool is_half(const ab_plan *plan, int tensor) {
    return tensor != AB_NONE && plan->tensor[tensor].format && plan->tensor[tensor].format != &ab_format_fp32;
}

/* Bytes of a tensor if it is half and has its own memory. */
static int64_t half_bytes(const ab_plan *plan, int tensor) {
    return is_half(plan, tensor) && plan->tensor[tensor].shares == AB_NONE ? plan->tensor[tensor].bytes : 0;
}

typedef struct role_use {
    bool half[AB_LAYER_ROLES];
    int64_t bytes[AB_LAYER_ROLES];
} role_use;

static void add_use(const ab_plan *plan, int tensor, ab_layer_role role, role_use *use) {
    use->half[role] = use->half[role] || is_half(plan, tensor);
    use->bytes[role] += half_bytes(plan, tensor);
}

/* Adds the tensors of a node of the op; a cast belongs to the op that it was inserted for, and has gradients
 * only. */
static void add_node(const ab_plan *plan, const ab_plan_node *node, role_use *use) {
    for (int i = 0; i < node->inputs; i++) add_use(plan, node->in_grad[i], AB_LAYER_DGRAD, use);
    if (node->kind != AB_NODE_OP) return;
    add_use(plan, node->out, AB_LAYER_FORWARD, use);
    for (int i = 0; i < node->params; i++) {
        const ab_plan_param *param = &plan->param[node->first_param + i];
        add_use(plan, param->used_grad, AB_LAYER_WGRAD, use);
        if (param->owner == AB_NONE && param->grad != AB_NONE)
            add_use(plan, param->used, AB_LAYER_WEIGHTS, use);
    }
}

static role_use use_of(const ab_plan *plan, int net_op) {
    role_use use = {.half = {false}};
    for (int n = 0; n < plan->nodes; n++)
        if (plan->node[n].net_op == net_op) add_node(plan, &plan->node[n], &use);
    return use;
}

static void append(ab_promote_item *item, int *count, const ab_plan *plan, int net_op, int role,
                   int64_t bytes) {
    if (*count == AB_DDMIN_ITEMS) return;
    ab_promote_item *added = &item[(*count)++];
    *added = (ab_promote_item){.net_op = net_op, .role = role, .bytes = bytes};
    const bool whole = role == AB_LAYER_ROLES;
    ab_text_exact(added->name, sizeof added->name, "%s%s%s", plan->net->op[net_op].name, whole ? "" : ":",
                  whole ? "" : ab_layer_role_name((ab_layer_role)role));
}

void ab_promote_layers(const ab_plan *plan, ab_promote_item *item, int *count) {
    for (int i = 0; i < plan->net->ops; i++) {
        const role_use use = use_of(plan, i);
        if (plan->net->op[i].outside || !(use.half[AB_LAYER_FORWARD] || use.half[AB_LAYER_WEIGHTS])) continue;
        append(item, count, plan, i, AB_LAYER_ROLES,
               use.bytes[AB_LAYER_FORWARD] + use.bytes[AB_LAYER_WEIGHTS]);
    }
}

void ab_promote_roles(const ab_plan *plan, int net_op, ab_promote_item *item, int *count) {
    const role_use use = use_of(plan, net_op);
    for (int role = 0; role < AB_LAYER_ROLES; role++)
        if (use.half[role]) append(item, count, plan, net_op, role, use.bytes[role]);
}

/* Starts runs and reads their documents. */

enum { OWN_WORDS = 32 };

/* ---- one run --------------------------------------------------------------------------------- */

/* Options of one run in addition to the user's; the last of repeated options takes effect. */
typedef struct run_words {
    const char *levels, *to, *probes, *every;
    int seeds;
} run_words;

static char *plain(const char *word) { return (char *)(uintptr_t)word; }

static ab_status train(const ab_trial_setup *setup, const run_words *words, cJSON **document) {
    char first[24], seeds[24];
    int n = 0;
    char **argv = calloc((size_t)setup->word_count + OWN_WORDS, sizeof *argv);
    if (!argv) return ab_fail(AB_NO_MEMORY, "promote: out of memory");
    ab_text_exact(first, sizeof first, "%" PRId64, setup->first_seed);
    ab_text_exact(seeds, sizeof seeds, "%d", words->seeds);
    const char *const own[] = {
        "--levels", words->levels, "--seed",      first,           "--seeds",    seeds,
        "--rounds", "1",           "--no-floor",  "--no-plots",    "--quiet",    "--eval-limit",
        "1",        "--probes",    words->probes, "--probe-every", words->every, words->to ? "--to" : NULL,
        words->to};
    argv[n++] = plain("ampbench");
    argv[n++] = plain("run");
    for (int i = 0; i < setup->word_count; i++) argv[n++] = setup->words[i];
    for (size_t i = 0; i < AB_COUNT_OF(own) && own[i]; i++) argv[n++] = plain(own[i]);
    ab_status status = ab_run_self_record("promote", "a training run", argv, 0, document);
    free(argv);
    return status;
}

/* Reads the final losses per seed: of O0 (`base`), or of the other level. */
static void read_losses(const ab_trial_setup *setup, const cJSON *document, bool base,
                        ab_trial_losses *losses) {
    const cJSON *cell;
    for (int i = 0; i < setup->seeds; i++) losses->final[i] = (double)NAN;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        const double place = ab_json_number(cell, "seed", 0) - (double)setup->first_seed;
        if (cJSON_IsString(ab_json_at(cell, "twin")) ||
            (strcmp(ab_json_text(cell, "level", ""), "O0") == 0) != base || place < 0 ||
            place >= setup->seeds)
            continue;
        losses->final[(int)place] = ab_json_number(cell, "summary.loss_final", (double)NAN);
    }
}

/* ---- trials ---------------------------------------------------------------------------------- */

ab_status ab_trial_base(const ab_trial_setup *setup, ab_trial_losses *o0, ab_trial_losses *level) {
    char levels[96];
    cJSON *document = NULL;
    ab_text_exact(levels, sizeof levels, "O0,%s", setup->level);
    const run_words words = {levels, NULL, "default", "0", setup->seeds};
    ab_status status = train(setup, &words, &document);
    if (status == AB_OK) {
        read_losses(setup, document, true, o0);
        read_losses(setup, document, false, level);
    }
    cJSON_Delete(document);
    return status;
}

void ab_trial_words(const ab_trial_setup *setup, const int *item, int count, char words[AB_TRIAL_WORDS]) {
    size_t used = 0;
    words[0] = '\0';
    for (int i = 0; i < count; i++)
        used += strlen(ab_text_exact(words + used, AB_TRIAL_WORDS - used, "%s%s=fp32", i ? "," : "",
                                     setup->item[item[i]].name));
}

ab_status ab_trial_run(const ab_trial_setup *setup, const int *item, int count, ab_trial_losses *losses) {
    cJSON *document = NULL;
    char *to = malloc(AB_TRIAL_WORDS);
    if (!to) return ab_fail(AB_NO_MEMORY, "promote: out of memory");
    ab_trial_words(setup, item, count, to);
    const run_words words = {setup->level, count > 0 ? to : NULL, "default", "0", setup->seeds};
    ab_status status = train(setup, &words, &document);
    if (status == AB_OK) read_losses(setup, document, false, losses);
    cJSON_Delete(document);
    free(to);
    return status;
}

/* ---- ranking --------------------------------------------------------------------------------- */

ab_status ab_trial_record(const ab_trial_setup *setup, const int *item, int count, cJSON **record) {
    char *to = malloc(AB_TRIAL_WORDS);
    if (!to) return ab_fail(AB_NO_MEMORY, "promote: out of memory");
    ab_trial_words(setup, item, count, to);
    const run_words words = {setup->level, count > 0 ? to : NULL,
                             "gradients,activations,weights,lost_updates", "5", 1};
    ab_status status = train(setup, &words, record);
    free(to);
    return status;
}

static bool has_text(const cJSON *list, const char *text) {
    const cJSON *item;
    cJSON_ArrayForEach(item, list) if (strcmp(item->valuestring, text) == 0) return true;
    return false;
}

/* Layers that store values beyond the half format's range, gradients apart: a loss scale that is lowered, or
 * a skipped step, answers those. */
static void add_infinite(const cJSON *tensors, cJSON *layers) {
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, tensors) {
        const char *layer = ab_json_text(tensor, "layer", "");
        const double beyond = ab_json_number(tensor, "overflowed", 0) + ab_json_number(tensor, "inf", 0);
        if (ab_json_is_true(tensor, "cast") && beyond > 0 && !has_text(layers, layer))
            cJSON_AddItemToArray(layers, cJSON_CreateString(layer));
    }
}

void ab_trial_infinite(const cJSON *record, cJSON *layers) {
    const cJSON *probes = ab_json_at(cJSON_GetArrayItem(ab_json_at(record, "cells"), 0), "probes");
    add_infinite(ab_json_at(probes, "activations"), layers);
    add_infinite(ab_json_at(probes, "weights"), layers);
}

/* Whether the record's entry for a layer's tensors of one kind belongs to the item. The gradient of an output
 * is computed by the ops that read it. */
static bool is_about(const ab_promote_item *item, const ab_net *net, const char *layer, int role) {
    const ab_net_op *op = &net->op[item->net_op];
    if (item->role == AB_LAYER_ROLES) return strcmp(op->name, layer) == 0;
    if (item->role != role) return false;
    if (role != AB_LAYER_DGRAD) return strcmp(op->name, layer) == 0;
    for (int i = 0; i < op->inputs; i++)
        if (op->input[i] >= 0 && strcmp(net->op[op->input[i]].name, layer) == 0) return true;
    return false;
}

static int role_of_kind(const char *kind) {
    static const struct {
        const char *kind;
        ab_layer_role role;
    } known[] = {{"activation", AB_LAYER_FORWARD},
                 {"activation_gradient", AB_LAYER_DGRAD},
                 {"weight_gradient", AB_LAYER_WGRAD},
                 {"weight", AB_LAYER_WEIGHTS}};
    for (size_t i = 0; i < AB_COUNT_OF(known); i++)
        if (strcmp(known[i].kind, kind) == 0) return (int)known[i].role;
    return AB_LAYER_ROLES;
}

/* The items being ranked. */
typedef struct ranking {
    const ab_net *net;
    ab_promote_item *item;
    int count;
} ranking;

static void add_error(const ranking *r, const char *layer, int role, double error) {
    for (int i = 0; i < r->count; i++)
        if (is_about(&r->item[i], r->net, layer, role)) r->item[i].error += error;
}

/* Adds the flushed and overflowed shares of casts. */
static void add_casts(const ranking *r, const cJSON *tensors) {
    const double overflow_weighs = 1000;
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, tensors) {
        const double all = ab_json_number(tensor, "nonzero", 0);
        if (!ab_json_is_true(tensor, "cast") || all <= 0) continue;
        const double over = ab_json_number(tensor, "overflowed", 0),
                     error = ab_json_number(tensor, "flushed", 0) / all +
                             (over > 0 ? overflow_weighs * (1 + over / all) : 0);
        add_error(r, ab_json_text(tensor, "layer", ""), role_of_kind(ab_json_text(tensor, "kind", "")),
                  error);
    }
}

static void add_lost_updates(const ranking *r, const cJSON *list) {
    const cJSON *update;
    cJSON_ArrayForEach(update, list) {
        const double all = ab_json_number(update, "update.nonzero", 0),
                     lost = ab_json_number(update, "update.lost", 0);
        if (all > 0) add_error(r, ab_json_text(update, "layer", ""), AB_LAYER_WEIGHTS, lost / all);
    }
}

void ab_trial_rank(const cJSON *record, const ab_net *net, ab_promote_item *item, int count) {
    const cJSON *probes = ab_json_at(cJSON_GetArrayItem(ab_json_at(record, "cells"), 0), "probes");
    const ranking r = {net, item, count};
    for (int i = 0; i < count; i++) item[i].error = 0;
    add_casts(&r, ab_json_at(probes, "tensors"));
    add_casts(&r, ab_json_at(probes, "activations"));
    add_casts(&r, ab_json_at(probes, "weights"));
    add_lost_updates(&r, ab_json_at(probes, "lost_updates"));
}

/* ---- comparison ------------------------------------------------------------------------------ */

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
