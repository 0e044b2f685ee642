/* Initialisation of parameters: the file's "init" over torch's defaults. Draws no random numbers. */
#include "bench/nets/net_build.h"

#include <string.h>

enum { MAX_NAMES = 32 };

static const struct {
    const char *name, *key; /* key of the one number, NULL for none */
    ab_init_kind kind;
} rules[] = {
    {"zeros", NULL, AB_INIT_ZEROS},
    {"ones", NULL, AB_INIT_ONES},
    {"uniform", "bound", AB_INIT_UNIFORM},
    {"normal", "std", AB_INIT_NORMAL},
};

static ab_status find_rule(const ab_net_json_place *place, const cJSON *object, const char *label,
                           int *found) {
    const char *name = NULL;
    char quoted[AB_NET_JSON_TEXT];
    const cJSON *value = NULL;
    AB_TRY(ab_net_json_member(place, object, "kind", &value));
    AB_TRY(ab_net_json_name(place, value, "'kind'", &name));
    for (size_t i = 0; i < AB_COUNT_OF(rules); i++) {
        *found = (int)i;
        if (strcmp(name, rules[i].name) == 0) return AB_OK;
    }
    return ab_net_json_fail(place, value,
                            "init of '%s': unknown kind %s: expected zeros, ones, uniform or normal", label,
                            ab_net_json_quote(name, quoted));
}

static ab_status read_rule(const ab_net_json_place *place, const cJSON *object, ab_param_spec *param) {
    static const ab_net_json_range size = {0, 1e6};
    const char *keys[2] = {"kind"};
    const cJSON *value = NULL;
    char found[AB_NET_JSON_TEXT];
    int rule = 0;
    if (!cJSON_IsObject(object))
        return ab_net_json_fail(place, object,
                                "init of '%s': expected an object such as {\"kind\": \"zeros\"}, found %s",
                                param->name, ab_net_json_found(object, found));
    AB_TRY(find_rule(place, object, param->name, &rule));
    keys[1] = rules[rule].key;
    AB_TRY(ab_net_json_check_keys(place, object, rules[rule].name, keys, keys[1] ? 2 : 1));
    param->init = rules[rule].kind;
    param->init_bound = 0;
    if (!keys[1]) return AB_OK;
    AB_TRY(ab_net_json_member(place, object, keys[1], &value));
    return ab_net_json_number(place, value, keys[1], size, &param->init_bound);
}

/* Appends the names of an op's trained parameters that are not in the list yet. */
static int add_names(const ab_net_op *op, const char **names, int count) {
    for (int k = 0; k < op->params; k++) {
        int at = 0;
        while (at < count && strcmp(names[at], op->param[k].name) != 0) at++;
        if (at == count && count < MAX_NAMES && op->param[k].kind == AB_PARAM_WEIGHT)
            names[count++] = op->param[k].name;
    }
    return count;
}

static ab_status apply(const ab_net_json_place *place, const cJSON *init, ab_net_op *op) {
    for (int k = 0; k < op->params; k++) {
        const cJSON *object = cJSON_GetObjectItemCaseSensitive(init, op->param[k].name);
        if (object && op->param[k].kind == AB_PARAM_WEIGHT) AB_TRY(read_rule(place, object, &op->param[k]));
    }
    return AB_OK;
}

static ab_status read_document_init(const cJSON *init, ab_net *net) {
    const ab_net_json_place place = {.path = net->path, .op = NULL};
    const char *names[MAX_NAMES];
    int count = 0;
    for (int i = 0; i < net->ops; i++)
        if (!net->op[i].op->norm) count = add_names(&net->op[i], names, count);
    AB_TRY(ab_net_json_check_keys(&place, init, "'init'", names, count));
    for (int i = 0; i < net->ops; i++)
        if (!net->op[i].op->norm) AB_TRY(apply(&place, init, &net->op[i]));
    return AB_OK;
}

static ab_status read_op_init(const cJSON *object, ab_net *net, ab_net_op *op) {
    const ab_net_json_place place = {.path = net->path, .op = op->name};
    const cJSON *init = cJSON_GetObjectItemCaseSensitive(object, "init");
    const char *names[MAX_NAMES];
    if (!init) return AB_OK;
    AB_TRY(ab_net_json_check_keys(&place, init, "'init'", names, add_names(op, names, 0)));
    return apply(&place, init, op);
}

ab_status ab_net_read_init(const cJSON *document, const cJSON *ops, ab_net *net) {
    const cJSON *init = cJSON_GetObjectItemCaseSensitive(document, "init");
    if (init) AB_TRY(read_document_init(init, net));
    const cJSON *object = ops->child;
    for (int i = 0; i < net->ops; i++, object = object->next) AB_TRY(read_op_init(object, net, &net->op[i]));
    return AB_OK;
}
