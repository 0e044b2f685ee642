/* Parameter groups: parsing, matching, and suggestions for a pattern that matches nothing. */
#include "bench/train/optim/groups.h"

#include "kernels/core/number.h"
#include "kernels/core/text.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 192 };

/* ---- matching -------------------------------------------------------------------------------- */

static const char *full_name(const ab_net_op *op, const ab_param_spec *param, char name[NAME]) {
    ab_text_exact(name, NAME, "%s.%s", op->name, param->name);
    return name;
}

static bool matches(const char *pattern, const ab_net_op *op, const ab_param_spec *param) {
    char name[NAME];
    if (strcmp(pattern, "bias") == 0) return strstr(param->name, "bias") != NULL;
    if (strcmp(pattern, "norm") == 0) return strstr(op->op->name, "norm") != NULL;
    return fnmatch(pattern, full_name(op, param, name), 0) == 0;
}

void ab_param_groups_apply(const ab_param_groups *groups, const ab_net_op *op, const ab_param_spec *param,
                           ab_optimizer_config *config) {
    const double lr = config->lr;
    for (int i = 0; i < groups->count; i++) {
        const ab_param_group *group = &groups->group[i];
        if (!matches(group->pattern, op, param)) continue;
        config->lr = lr * group->lr_factor;
        if (group->weight_decay >= 0) config->weight_decay = group->weight_decay;
    }
}

static int count_matches(const char *pattern, const ab_net *net) {
    int count = 0;
    for (int o = 0; o < net->ops; o++)
        for (int p = 0; p < net->op[o].params; p++)
            if (net->op[o].param[p].kind == AB_PARAM_WEIGHT && !net->op[o].untrained[p])
                count += matches(pattern, &net->op[o], &net->op[o].param[p]);
    return count;
}

/* The error for a pattern that matches no parameter. */
static ab_status nothing_matches(const char *pattern, const ab_net *net) {
    enum { MOST = 256 };
    char names[MOST][NAME];
    const char *list[MOST];
    int count = 0;
    for (int o = 0; o < net->ops; o++)
        for (int p = 0; p < net->op[o].params && count < MOST; p++) {
            if (net->op[o].param[p].kind != AB_PARAM_WEIGHT || net->op[o].untrained[p]) continue;
            list[count] = full_name(&net->op[o], &net->op[o].param[p], names[count]);
            count++;
        }
    const char *near = ab_nearest(pattern, list, count);
    return ab_fail(
        AB_USAGE,
        "--no-decay or --param-groups '%s': no trained parameter of network %s has such a name%s%s%s",
        pattern, net->name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

ab_status ab_param_groups_check(const ab_param_groups *groups, const ab_net *net) {
    for (int i = 0; i < groups->count; i++) {
        const char *pattern = groups->group[i].pattern;
        bool kind = strcmp(pattern, "bias") == 0 || strcmp(pattern, "norm") == 0; /* may match nothing */
        if (!kind && count_matches(pattern, net) == 0) return nothing_matches(pattern, net);
    }
    return AB_OK;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Appends a group to the list. */
static ab_status append(ab_param_groups *groups, const char *option, const char *pattern, size_t length) {
    if (groups->count == AB_MAX_GROUPS)
        return ab_fail(AB_USAGE, "%s: at most %d parameter groups", option, AB_MAX_GROUPS);
    if (length == 0 || length >= AB_GROUP_PATTERN)
        return ab_fail(AB_USAGE, "%s: expected a pattern of parameter names, found '%.*s'", option,
                       length ? 40 : 0, pattern);
    ab_param_group *group = &groups->group[groups->count++];
    *group = (ab_param_group){.lr_factor = 1, .weight_decay = -1};
    memcpy(group->pattern, pattern, length);
    return AB_OK;
}

ab_status ab_param_groups_no_decay(const char *text, ab_param_groups *groups) {
    for (const char *rest = text;; rest++) {
        size_t length = strcspn(rest, ",");
        AB_TRY(append(groups, "--no-decay", rest, length));
        groups->group[groups->count - 1].weight_decay = 0;
        rest += length;
        if (*rest == '\0') return AB_OK;
    }
}

static ab_status set_key(ab_param_group *group, const char *text, size_t length) {
    static const char *const keys[] = {"lr_factor", "weight_decay"};
    char item[64], *end;
    if (!ab_text_fits(item, sizeof item, "%.*s", (int)length, text))
        return ab_fail(AB_USAGE, "--param-groups: expected KEY=VALUE of at most %d characters, found %zu",
                       (int)sizeof item - 1, length);
    char *equals = strchr(item, '=');
    if (!equals) return ab_fail(AB_USAGE, "--param-groups: expected KEY=VALUE, found '%s'", item);
    *equals = '\0';
    double value = ab_number_read(equals + 1, &end);
    bool number = end != equals + 1 && *end == '\0' && value >= 0 && value <= 1e9;
    if (strcmp(item, keys[0]) != 0 && strcmp(item, keys[1]) != 0)
        return ab_fail(AB_USAGE, "--param-groups: expected lr_factor or weight_decay, found '%s'", item);
    if (!number)
        return ab_fail(AB_USAGE, "--param-groups: %s: expected a number from 0, found '%s'", item,
                       equals + 1);
    if (strcmp(item, keys[0]) == 0)
        group->lr_factor = value;
    else
        group->weight_decay = value;
    return AB_OK;
}

static ab_status parse_group(const char *text, size_t length, ab_param_groups *groups) {
    size_t pattern = strcspn(text, ":");
    if (pattern >= length)
        return ab_fail(AB_USAGE, "--param-groups: expected PATTERN:KEY=VALUE,..., found '%.*s'", (int)length,
                       text);
    AB_TRY(append(groups, "--param-groups", text, pattern));
    for (size_t at = pattern + 1; at <= length;) {
        size_t item = strcspn(text + at, ",;");
        AB_TRY(set_key(&groups->group[groups->count - 1], text + at, item));
        at += item + 1;
    }
    return AB_OK;
}

ab_status ab_param_groups_parse(const char *text, ab_param_groups *groups) {
    for (const char *rest = text;; rest++) {
        size_t length = strcspn(rest, ";");
        AB_TRY(parse_group(rest, length, groups));
        rest += length;
        if (*rest == '\0') return AB_OK;
    }
}
