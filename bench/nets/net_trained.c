/* "requires_grad": which parameters of an op are trained. The plan gives the others no gradient, master copy
 * or optimizer state. */
#include "bench/nets/net_build.h"

#include <string.h>

/* The owner of a shared parameter decides, as in torch, where both are one tensor. */
static ab_status set(const ab_net_json_place *place, const cJSON *value, ab_net *net, ab_net_op *op, int k,
                     bool trained) {
    const ab_net_share *owner = &op->shared[k];
    if (owner->op < 0) {
        op->untrained[k] = !trained;
        return AB_OK;
    }
    const ab_net_op *lender = &net->op[owner->op];
    if (lender->untrained[owner->index] == !trained) return AB_OK;
    return ab_net_json_fail(place, value, "'requires_grad': '%s' is that of '%s'; say it there",
                            op->param[k].name, lender->name);
}

static ab_status set_all(const ab_net_json_place *place, const cJSON *value, ab_net *net, ab_net_op *op) {
    int found = 0;
    for (int k = 0; k < op->params; k++) {
        if (op->param[k].kind != AB_PARAM_WEIGHT) continue;
        AB_TRY(set(place, value, net, op, k, cJSON_IsTrue(value)));
        found++;
    }
    if (found > 0) return AB_OK;
    return ab_net_json_fail(place, value, "'requires_grad': %s has no trained parameters", op->op->name);
}

static ab_status set_one(const ab_net_json_place *place, const cJSON *value, ab_net *net, ab_net_op *op) {
    const char *names[AB_MAX_PARAMS];
    int count = 0, number[AB_MAX_PARAMS];
    char hint[AB_NET_JSON_TEXT], quoted[AB_NET_JSON_TEXT];
    bool trained = true;
    for (int k = 0; k < op->params; k++) {
        if (op->param[k].kind != AB_PARAM_WEIGHT) continue;
        number[count] = k;
        names[count++] = op->param[k].name;
    }
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], value->string) != 0) continue;
        AB_TRY(ab_net_json_bool(place, value, "'requires_grad'", &trained));
        return set(place, value, net, op, number[i], trained);
    }
    return ab_net_json_fail(place, value, "'requires_grad': %s has no trained parameter %s%s", op->op->name,
                            ab_net_json_quote(value->string, quoted),
                            ab_net_json_hint(value->string, names, count, hint));
}

static ab_status read_op(const cJSON *object, ab_net *net, ab_net_op *op) {
    const ab_net_json_place place = {.path = net->path, .op = op->name};
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(object, "requires_grad");
    char found[AB_NET_JSON_TEXT];
    for (int k = 0; k < op->params; k++)
        if (op->shared[k].op >= 0)
            op->untrained[k] = net->op[op->shared[k].op].untrained[op->shared[k].index];
    if (!given) return AB_OK;
    if (cJSON_IsBool(given)) return set_all(&place, given, net, op);
    if (!cJSON_IsObject(given))
        return ab_net_json_fail(&place, given,
                                "'requires_grad': expected true, false or an object such as "
                                "{\"weight\": false}, found %s",
                                ab_net_json_found(given, found));
    for (const cJSON *value = given->child; value; value = value->next)
        AB_TRY(set_one(&place, value, net, op));
    return AB_OK;
}

bool ab_net_op_trains(const ab_net_op *op) {
    for (int k = 0; k < op->params; k++)
        if (op->param[k].kind == AB_PARAM_WEIGHT && !op->untrained[k]) return true;
    return false;
}

ab_status ab_net_read_trained(const cJSON *ops, ab_net *net) {
    const cJSON *object = ops->child;
    bool given = false, trains = false;
    for (int i = 0; i < net->ops; i++, object = object->next) {
        AB_TRY(read_op(object, net, &net->op[i]));
        given = given || cJSON_GetObjectItemCaseSensitive(object, "requires_grad");
        trains = trains || ab_net_op_trains(&net->op[i]);
    }
    if (!given || trains) return AB_OK;
    return ab_fail(AB_CONFIG, "%s: 'requires_grad': expected a trained parameter, found none", net->path);
}
