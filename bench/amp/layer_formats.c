/* Parses per-layer format overrides. */
#define _POSIX_C_SOURCE 200809L /* fnmatch */
#include "bench/amp/layer_formats.h"

#include "kernels/core/text.h"
#include "kernels/ops/op.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEM = 128 };

/* Whether the pattern matches the op's name or the name of a block that contains it. */
static bool matches(const char *pattern, const char *name) {
    char block[ITEM];
    if (fnmatch(pattern, name, FNM_NOESCAPE) == 0) return true;
    for (size_t n = 0; name[n] && n < sizeof block; n++) {
        if (name[n] != '.') continue;
        ab_text_exact(block, sizeof block, "%.*s", (int)n, name);
        if (fnmatch(pattern, block, FNM_NOESCAPE) == 0) return true;
    }
    return false;
}

/* For a pattern that matches no op: the nearest name and the first few names of the net. */
static ab_status no_match(const char *pattern, const ab_net *net) {
    enum { SHOWN = 6 };
    const char **names = calloc((size_t)net->ops + 1, sizeof *names);
    char list[256] = "", plain[ITEM];
    size_t kept = 0;
    for (const char *p = pattern; *p && kept + 1 < sizeof plain; p++)
        if (*p != '*' && *p != '?') plain[kept++] = *p;
    plain[kept] = '\0';
    for (int i = 0; names && i < net->ops; i++) {
        names[i] = net->op[i].name;
        if (i < SHOWN) ab_text_append(list, sizeof list, "%s%s", i ? ", " : "", ab_text_brief(names[i], 30));
    }
    const char *near = names ? ab_nearest(plain, names, net->ops) : NULL;
    ab_status status = ab_fail(AB_USAGE, "--to: no layer of %s matches '%s'%s%s%s (its layers: %s%s)",
                               net->name, pattern, near ? "; did you mean '" : "", near ? near : "",
                               near ? "'?" : "", list, net->ops > SHOWN ? ", ..." : "");
    free(names);
    return status;
}

static ab_status find_format(const char *pattern, const char *name, const ab_format *half,
                             const ab_format **format) {
    bool is_half = strcmp(name, "half") == 0 || strcmp(name, half->name) == 0;
    if (!is_half && strcmp(name, "fp32") != 0)
        return ab_fail(AB_USAGE, "--to %s=%s: expected fp32, half or %s (what --half says), found '%s'",
                       pattern, name, half->name, name);
    *format = is_half ? half : &ab_format_fp32;
    return AB_OK;
}

/* ---- roles ----------------------------------------------------------------------------------- */

static const char *const role_names[AB_LAYER_ROLES] = {"forward", "dgrad", "wgrad", "weights"};

const char *ab_layer_role_name(ab_layer_role role) { return role_names[role]; }

/* What a layer must have to have the role. */
static const char *const lacks[AB_LAYER_ROLES] = {"is computed in half: a loss is fp32 at every level",
                                                  "has a gradient of its input: nothing below it is trained",
                                                  "has weights", "has weights of its own"};

/* Reads the role after the last colon and removes it from the pattern; AB_LAYER_ROLES if there is none. */
static ab_status take_role(const char *item, char *pattern, int *role) {
    char *colon = strrchr(pattern, ':');
    *role = AB_LAYER_ROLES;
    if (!colon) return AB_OK;
    for (*role = 0; *role < AB_LAYER_ROLES; ++*role)
        if (strcmp(colon + 1, role_names[*role]) == 0) break;
    if (*role == AB_LAYER_ROLES) {
        const char *near = ab_nearest(colon + 1, role_names, AB_LAYER_ROLES);
        return ab_fail(AB_USAGE,
                       "--to %s: expected the role forward, dgrad, wgrad or weights after the colon, found "
                       "'%s'%s%s%s",
                       item, colon + 1, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    *colon = '\0';
    return AB_OK;
}

static bool has_weights(const ab_net_op *op, bool own) {
    for (int i = 0; i < op->params; i++)
        if (op->param[i].kind == AB_PARAM_WEIGHT && (!own || op->shared[i].op < 0)) return true;
    return false;
}

/* Whether an input of op i is computed from weights; trained[k] says so for each earlier op k. */
static bool reads_trained(const ab_net *net, int i, const bool *trained) {
    for (int k = 0; k < net->op[i].inputs; k++)
        if (net->op[i].input[k] >= 0 && trained[net->op[i].input[k]]) return true;
    return false;
}

static bool has_role(const ab_net *net, int i, int role, const bool *trained) {
    const ab_net_op *op = &net->op[i];
    switch (role) {
    case AB_LAYER_FORWARD:
        return !op->op->is_loss;
    case AB_LAYER_DGRAD:
        return reads_trained(net, i, trained);
    case AB_LAYER_WGRAD:
        return has_weights(op, false);
    case AB_LAYER_WEIGHTS:
        return has_weights(op, true);
    default:
        return true;
    }
}

/* ---- the list -------------------------------------------------------------------------------- */

typedef struct reading {
    const ab_net *net;
    const ab_format *half;
    ab_layer_format *own;
    bool *trained; /* [net->ops] */
} reading;

static void set(ab_layer_format *own, int role, const ab_format *format) {
    if (role == AB_LAYER_ROLES)
        *own = (ab_layer_format){.whole = format};
    else
        own->role[role] = format;
}

static ab_status take(const reading *r, const char *item) {
    char pattern[ITEM];
    const char *equals = strrchr(item, '=');
    const ab_format *wanted = NULL;
    int role, first = -1;
    bool found = false;
    if (!equals || equals == item)
        return ab_fail(AB_USAGE, "--to: expected LAYER=FORMAT such as conv1=fp32, found '%s'", item);
    ab_text_exact(pattern, sizeof pattern, "%.*s", (int)(equals - item), item);
    AB_TRY(find_format(pattern, equals + 1, r->half, &wanted));
    AB_TRY(take_role(item, pattern, &role));
    for (int i = 0; i < r->net->ops; i++) {
        if (!matches(pattern, r->net->op[i].name)) continue;
        if (first < 0) first = i;
        if (!has_role(r->net, i, role, r->trained)) continue;
        set(&r->own[i], role, wanted);
        found = true;
    }
    if (first < 0) return no_match(pattern, r->net);
    if (found) return AB_OK;
    return ab_fail(AB_USAGE, "--to %s: no layer that matches '%s' %s (%s is a %s)", item, pattern,
                   lacks[role], r->net->op[first].name, r->net->op[first].op->name);
}

static ab_status take_all(const reading *r, const char *text) {
    while (text) {
        char item[ITEM];
        size_t length = strcspn(text, ",");
        if (length >= sizeof item)
            return ab_fail(AB_USAGE,
                           "--to: expected LAYER=FORMAT of at most %d characters, found '%s...' of %zu, "
                           "which is too long",
                           ITEM - 1, ab_text_brief(text, 40), length);
        ab_text_exact(item, sizeof item, "%.*s", (int)length, text);
        AB_TRY(take(r, item));
        text = text[length] ? text + length + 1 : NULL;
    }
    return AB_OK;
}

ab_status ab_layer_formats(const char *text, const ab_net *net, const ab_format *half, ab_layer_format *own) {
    const reading r = {net, half, own, calloc((size_t)net->ops + 1, sizeof *r.trained)};
    if (!r.trained) return ab_fail(AB_NO_MEMORY, "--to: out of memory");
    for (int i = 0; i < net->ops; i++) {
        own[i] = (ab_layer_format){.whole = NULL};
        r.trained[i] = has_weights(&net->op[i], false) || reads_trained(net, i, r.trained);
    }
    ab_status status = take_all(&r, text);
    free(r.trained);
    return status;
}

/* The op cast lists, as tables by op name. */

typedef struct rule_row {
    const char *op;
    ab_op_rule rule;
} rule_row;

#define AB_OP_RULE(op, rule) {#op, AB_RULE_##rule},
static const rule_row torch_cuda[] = {
#include "bench/amp/autocast_cuda.def"
};
static const rule_row torch_cpu[] = {
#include "bench/amp/autocast_cpu.def"
};
static const rule_row mindspore[] = {
#include "bench/amp/mindspore_cells.def"
};
#undef AB_OP_RULE

static const struct {
    const rule_row *row;
    size_t rows;
} lists[] = {
    [AB_LIST_apex] = {NULL, 0},
    [AB_LIST_torch_cuda] = {torch_cuda, AB_COUNT_OF(torch_cuda)},
    [AB_LIST_torch_cpu] = {torch_cpu, AB_COUNT_OF(torch_cpu)},
    [AB_LIST_mindspore] = {mindspore, AB_COUNT_OF(mindspore)},
    [AB_LIST_none] = {NULL, 0},
};

ab_op_rule ab_op_rule_of(ab_op_list list, int op_row) {
    static const ab_op_rule of_class[] = {[AB_CLASS_low] = AB_RULE_low,
                                          [AB_CLASS_fp32] = AB_RULE_fp32,
                                          [AB_CLASS_promote] = AB_RULE_promote,
                                          [AB_CLASS_follow] = AB_RULE_follow,
                                          [AB_CLASS_banned] = AB_RULE_banned};
    if (list == AB_LIST_apex) return of_class[ab_op_class_at(op_row)];
    const char *name = ab_op_at(op_row)->name;
    for (size_t i = 0; i < lists[list].rows; i++)
        if (strcmp(lists[list].row[i].op, name) == 0) return lists[list].row[i].rule;
    return AB_RULE_follow;
}
