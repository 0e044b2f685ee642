/* "share": parameters that an op reads from an earlier op, such as a language model's head tied to its
 * embedding. The plan sums their gradients. */
#include "bench/nets/net_build.h"

#include <string.h>

static int param_named(const ab_net_op *op, const char *name, size_t length) {
    for (int k = 0; k < op->params; k++)
        if (strlen(op->param[k].name) == length && memcmp(op->param[k].name, name, length) == 0 &&
            op->param[k].kind == AB_PARAM_WEIGHT)
            return k;
    return -1;
}

/* "op.parameter" among the ops before number `before`; op names may have dots. */
static bool find_owner(const ab_net *net, int before, const char *full, ab_net_share *owner) {
    for (int i = 0; i < before; i++) {
        size_t length = strlen(net->op[i].name);
        if (strncmp(full, net->op[i].name, length) != 0 || full[length] != '.') continue;
        const char *name = full + length + 1;
        *owner = (ab_net_share){i, param_named(&net->op[i], name, strlen(name))};
        if (owner->index >= 0) return true;
    }
    return false;
}

static ab_status share(const ab_net_json_place *place, const cJSON *value, ab_net *net, int number, int k) {
    ab_net_op *op = &net->op[number];
    char found[AB_NET_JSON_TEXT], mine[AB_SHAPE_TEXT], theirs[AB_SHAPE_TEXT];
    ab_net_share owner = {0, 0};
    if (!cJSON_IsString(value) || !find_owner(net, number, value->valuestring, &owner))
        return ab_net_json_fail(
            place, value,
            "'share' of '%s': expected a weight of an earlier op such as 'embedding.weight', found %s",
            op->param[k].name, ab_net_json_found(value, found));
    ab_net_op *lender = &net->op[owner.op];
    if (lender->shared[owner.index].op >= 0)
        return ab_net_json_fail(place, value,
                                "'share' of '%s': '%s' is itself shared; name the op that owns it",
                                op->param[k].name, value->valuestring);
    if (!ab_shape_equal(&op->param[k].shape, &lender->param[owner.index].shape))
        return ab_net_json_fail(place, value, "'share' of '%s': expected a weight %s, found %s",
                                op->param[k].name, ab_shape_text(&op->param[k].shape, mine),
                                ab_shape_text(&lender->param[owner.index].shape, theirs));
    op->shared[k] = owner;
    lender->lent[owner.index] = true;
    return AB_OK;
}

static ab_status read_op(const cJSON *object, ab_net *net, int number) {
    ab_net_op *op = &net->op[number];
    const ab_net_json_place place = {.path = net->path, .op = op->name};
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(object, "share");
    char found[AB_NET_JSON_TEXT];
    for (int k = 0; k < AB_MAX_PARAMS; k++) op->shared[k] = (ab_net_share){-1, 0};
    if (!given) return AB_OK;
    if (!cJSON_IsObject(given))
        return ab_net_json_fail(
            &place, given, "'share': expected an object such as {\"weight\": \"embedding.weight\"}, found %s",
            ab_net_json_found(given, found));
    for (const cJSON *value = given->child; value; value = value->next) {
        int k = param_named(op, value->string, strlen(value->string));
        if (k < 0)
            return ab_net_json_fail(&place, value, "'share': %s has no trained parameter %s", op->op->name,
                                    ab_net_json_quote(value->string, found));
        AB_TRY(share(&place, value, net, number, k));
    }
    return AB_OK;
}

ab_status ab_net_read_share(const cJSON *ops, ab_net *net) {
    const cJSON *object = ops->child;
    for (int i = 0; i < net->ops; i++, object = object->next) AB_TRY(read_op(object, net, i));
    return AB_OK;
}
