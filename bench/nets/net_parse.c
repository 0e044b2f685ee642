/* Reads the document: head, ops and their inputs. Checks the network as a whole: names, references, losses,
 * no unused ops. */
#include "bench/nets/net_build.h"
#include "kernels/core/rng.h"
#include "kernels/core/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char format_name[] = "ampbench-net-1";

enum { MAX_OPS = 4096, MAX_SIDE = 65536, NAME_SLOTS = 4 * MAX_OPS };

typedef struct parser {
    ab_net *net;
    ab_net_json_place place;
    const cJSON *document, *ops;
    const char **names; /* "input", then the names of the ops: names[0..i] is what op i may refer to */
    int *slot;          /* [NAME_SLOTS]: hash table of names: 1 + index of a name, or 0 */
} parser;

/* The slot of the name, or the empty one where it belongs. At most half of the slots are used. */
static int *slot_of(const parser *p, const char *name) {
    uint32_t at = ab_rng_name(name) % NAME_SLOTS;
    while (p->slot[at] && strcmp(p->names[p->slot[at] - 1], name) != 0) at = (at + 1) % NAME_SLOTS;
    return &p->slot[at];
}

static ab_status copy_text(const char *text, char **copy) {
    size_t bytes = strlen(text) + 1;
    *copy = malloc(bytes);
    if (!*copy) return ab_fail(AB_NO_MEMORY, "cannot allocate memory for a network");
    memcpy(*copy, text, bytes);
    return AB_OK;
}

static void set_digest(ab_net *net, const char *text, size_t length) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)text[i]) * 1099511628211u;
    ab_text_exact(net->digest, sizeof net->digest, "%016llx", (unsigned long long)hash);
}

/* ---- head ------------------------------------------------------------------------------------ */

static ab_status check_format(const parser *p) {
    const cJSON *value = NULL;
    char found[AB_NET_JSON_TEXT];
    AB_TRY(ab_net_json_member(&p->place, p->document, "format", &value));
    if (cJSON_IsString(value) && strcmp(value->valuestring, format_name) == 0) return AB_OK;
    return ab_net_json_fail(&p->place, value, "'format': expected \"%s\", found %s", format_name,
                            ab_net_json_found(value, found));
}

static ab_status read_names(const parser *p) {
    const cJSON *value = NULL;
    const char *name = NULL, *text = "";
    AB_TRY(ab_net_json_member(&p->place, p->document, "name", &value));
    AB_TRY(ab_net_json_name(&p->place, value, "'name'", &name));
    AB_TRY(copy_text(name, &p->net->name));
    value = cJSON_GetObjectItemCaseSensitive(p->document, "text");
    if (value) AB_TRY(ab_net_json_text(&p->place, value, "'text'", &text));
    return copy_text(text, &p->net->text);
}

static ab_status read_integer(const parser *p, const cJSON *object, const char *key, ab_net_json_range range,
                              int64_t *number) {
    const cJSON *value = NULL;
    AB_TRY(ab_net_json_member(&p->place, object, key, &value));
    return ab_net_json_integer(&p->place, value, key, range, number);
}

/* "shape": [5, 3], without the batch. */
static ab_status read_shape(const parser *p, const cJSON *object, ab_shape *shape) {
    enum { MOST = AB_MAX_DIMS - 1 };
    static const ab_net_json_range side = {1, MAX_SIDE};
    const cJSON *value = NULL;
    char found[AB_NET_JSON_TEXT];
    AB_TRY(ab_net_json_member(&p->place, object, "shape", &value));
    int count = cJSON_GetArraySize(value);
    if (!cJSON_IsArray(value) || count < 1 || count > MOST)
        return ab_net_json_fail(&p->place, value, "'shape': expected an array of 1 to %d integers, found %s",
                                (int)MOST, ab_net_json_found(value, found));
    *shape = (ab_shape){.ndim = count};
    int64_t *next = shape->dim;
    for (const cJSON *element = value->child; element; element = element->next)
        AB_TRY(ab_net_json_integer(&p->place, element, "shape", side, next++));
    return AB_OK;
}

static ab_status read_tokens(const parser *p, const cJSON *input, ab_data_shape *data) {
    static const char *const keys[] = {"tokens", "vocabulary"};
    static const ab_net_json_range length = {1, MAX_SIDE}, words = {2, 1 << 24};
    data->input = AB_INPUT_TOKENS;
    data->x.ndim = 1;
    AB_TRY(ab_net_json_check_keys(&p->place, input, "'input'", keys, (int)AB_COUNT_OF(keys)));
    AB_TRY(read_integer(p, input, "tokens", length, &data->x.dim[0]));
    return read_integer(p, input, "vocabulary", words, &data->vocabulary);
}

static ab_status read_image(const parser *p, const cJSON *input, ab_data_shape *data) {
    static const char *const keys[] = {"height", "width", "channels"}, *const all[] = {
                                                                           "height", "width",  "channels",
                                                                           "shape",  "tokens", "vocabulary"};
    static const ab_net_json_range side = {1, MAX_SIDE};
    data->input = AB_INPUT_IMAGES;
    data->x.ndim = (int)AB_COUNT_OF(keys);
    AB_TRY(ab_net_json_check_keys(&p->place, input, "'input'", all, (int)AB_COUNT_OF(all)));
    for (size_t i = 0; i < AB_COUNT_OF(keys); i++)
        AB_TRY(read_integer(p, input, keys[i], side, &data->x.dim[i]));
    return AB_OK;
}

static ab_status read_input(const parser *p) {
    static const char *const keys[] = {"shape"};
    ab_data_shape *data = &p->net->data;
    const cJSON *input = NULL;
    AB_TRY(ab_net_json_member(&p->place, p->document, "input", &input));
    if (cJSON_HasObjectItem(input, "tokens")) return read_tokens(p, input, data);
    if (!cJSON_HasObjectItem(input, "shape")) return read_image(p, input, data);
    data->input = AB_INPUT_VALUES;
    AB_TRY(ab_net_json_check_keys(&p->place, input, "'input'", keys, (int)AB_COUNT_OF(keys)));
    return read_shape(p, input, &data->x);
}

static const struct {
    const char *name, *key; /* its additional key, NULL for none */
    bool required;
} target_kinds[] = {
    [AB_TARGETS_CLASSES] = {"classes", "shape", false},
    [AB_TARGETS_ONE_HOT] = {"one_hot", "classes", true},
    [AB_TARGETS_TOKENS] = {"tokens", NULL, false},
    [AB_TARGETS_VALUES] = {"values", "shape", true},
};

static ab_status find_target_kind(const parser *p, const cJSON *object, ab_target_kind *kind) {
    const char *name = NULL, *names[AB_COUNT_OF(target_kinds)];
    char quoted[AB_NET_JSON_TEXT], hint[AB_NET_JSON_TEXT];
    const cJSON *value = NULL;
    AB_TRY(ab_net_json_member(&p->place, object, "kind", &value));
    AB_TRY(ab_net_json_name(&p->place, value, "'kind'", &name));
    for (size_t i = 0; i < AB_COUNT_OF(target_kinds); i++) {
        names[i] = target_kinds[i].name;
        *kind = (ab_target_kind)i;
        if (strcmp(name, names[i]) == 0) return AB_OK;
    }
    return ab_net_json_fail(
        &p->place, value, "'targets': unknown kind %s: expected classes, one_hot, tokens or values%s",
        ab_net_json_quote(name, quoted), ab_net_json_hint(name, names, (int)AB_COUNT_OF(names), hint));
}

static ab_status read_targets(const parser *p) {
    static const ab_net_json_range classes = {2, 1 << 24};
    ab_data_shape *data = &p->net->data;
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(p->document, "targets");
    if (!object) return AB_OK; /* class ids, one per sample */
    if (!cJSON_IsObject(object)) return ab_net_json_check_keys(&p->place, object, "'targets'", NULL, 0);
    AB_TRY(find_target_kind(p, object, &data->targets));
    const char *key = target_kinds[data->targets].key, *keys[] = {"kind", key};
    AB_TRY(ab_net_json_check_keys(&p->place, object, "'targets'", keys, key ? 2 : 1));
    if (data->targets == AB_TARGETS_TOKENS && data->input != AB_INPUT_TOKENS)
        return ab_net_json_fail(&p->place, object, "'targets': expected tokens as the input, too");
    if (data->targets == AB_TARGETS_TOKENS) data->y = data->x;
    if (data->targets == AB_TARGETS_ONE_HOT) {
        data->y.ndim = 1;
        return read_integer(p, object, key, classes, &data->y.dim[0]);
    }
    bool wanted = key && (target_kinds[data->targets].required || cJSON_HasObjectItem(object, key));
    return wanted ? read_shape(p, object, &data->y) : AB_OK;
}

static ab_status read_optimizer(const parser *p, const cJSON *value) {
    ab_net_defaults *defaults = &p->net->defaults;
    const char *name = NULL;
    AB_TRY(ab_net_json_name(&p->place, value, "'optimizer'", &name));
    if (strlen(name) >= sizeof defaults->optimizer)
        return ab_net_json_fail(&p->place, value,
                                "'optimizer': expected a name of at most %d characters, found \"%s\"",
                                (int)sizeof defaults->optimizer - 1, name);
    ab_text_exact(defaults->optimizer, sizeof defaults->optimizer, "%s", name);
    return AB_OK;
}

static ab_status read_defaults(const parser *p) {
    static const char *const keys[] = {"optimizer", "lr", "batch", "epochs"};
    static const ab_net_json_range rate = {0, 1e6}, count = {1, 1 << 20};
    ab_net_defaults *defaults = &p->net->defaults;
    *defaults = (ab_net_defaults){.optimizer = "momentum", .lr = 0.01, .batch = 64, .epochs = 1};
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(p->document, "defaults"), *value = NULL;
    if (!object) return AB_OK;
    AB_TRY(ab_net_json_check_keys(&p->place, object, "'defaults'", keys, (int)AB_COUNT_OF(keys)));
    if ((value = cJSON_GetObjectItemCaseSensitive(object, "optimizer"))) AB_TRY(read_optimizer(p, value));
    if ((value = cJSON_GetObjectItemCaseSensitive(object, "lr")))
        AB_TRY(ab_net_json_number(&p->place, value, "'lr'", rate, &defaults->lr));
    if ((value = cJSON_GetObjectItemCaseSensitive(object, "batch")))
        AB_TRY(ab_net_json_integer(&p->place, value, "'batch'", count, &defaults->batch));
    if ((value = cJSON_GetObjectItemCaseSensitive(object, "epochs")))
        AB_TRY(ab_net_json_integer(&p->place, value, "'epochs'", count, &defaults->epochs));
    return AB_OK;
}

static ab_status read_head(const parser *p) {
    static const char *const keys[] = {"format", "name", "text",   "input",  "targets",  "defaults",
                                       "init",   "ops",  "losses", "scores", "recompute"};
    AB_TRY(ab_net_json_check_keys(&p->place, p->document, "the network", keys, (int)AB_COUNT_OF(keys)));
    AB_TRY(check_format(p));
    AB_TRY(read_names(p));
    AB_TRY(read_input(p));
    AB_TRY(read_targets(p));
    return read_defaults(p);
}

/* ---- ops ------------------------------------------------------------------------------------- */

static ab_status open_ops(parser *p) {
    char found[AB_NET_JSON_TEXT];
    AB_TRY(ab_net_json_member(&p->place, p->document, "ops", &p->ops));
    int count = cJSON_GetArraySize(p->ops);
    if (!cJSON_IsArray(p->ops) || count < 1)
        return ab_net_json_fail(&p->place, p->ops, "'ops': expected an array of ops, found %s",
                                count < 1 && cJSON_IsArray(p->ops) ? "an empty one"
                                                                   : ab_net_json_found(p->ops, found));
    if (count > MAX_OPS)
        return ab_net_json_fail(&p->place, p->ops, "'ops': expected at most %d ops, found %d", (int)MAX_OPS,
                                count);
    p->net->op = calloc((size_t)count, sizeof *p->net->op);
    p->names = calloc((size_t)count + 1, sizeof *p->names);
    p->slot = calloc(NAME_SLOTS, sizeof *p->slot);
    if (!p->net->op || !p->names || !p->slot)
        return ab_fail(AB_NO_MEMORY, "%s: cannot allocate %d ops", p->place.path, count);
    p->net->ops = count;
    p->names[0] = "input";
    *slot_of(p, "input") = 1;
    return AB_OK;
}

static ab_status read_op_name(const parser *p, const cJSON *object, int i) {
    char found[AB_NET_JSON_TEXT];
    const cJSON *value = NULL;
    if (!cJSON_IsObject(object))
        return ab_net_json_fail(&p->place, object, "ops[%d]: expected an object, found %s", i,
                                ab_net_json_found(object, found));
    AB_TRY(ab_net_json_member(&p->place, object, "name", &value));
    AB_TRY(ab_net_json_name(&p->place, value, "'name'", &p->names[i + 1]));
    const char *name = p->names[i + 1];
    if (strcmp(name, "targets") == 0 || strcmp(name, "input") == 0)
        return ab_net_json_fail(&p->place, value,
                                "expected a name other than \"input\" and \"targets\", found \"%s\"", name);
    int *slot = slot_of(p, name);
    if (*slot)
        return ab_net_json_fail(&p->place, value, "expected distinct names, found \"%s\" also on line %d",
                                name, p->net->op[*slot - 2].line);
    *slot = i + 2;
    p->net->op[i].line = ab_net_json_line(object);
    return copy_text(name, &p->net->op[i].name);
}

static ab_status read_op_names(const parser *p) {
    const cJSON *object = NULL;
    int i = 0;
    cJSON_ArrayForEach(object, p->ops) AB_TRY(read_op_name(p, object, i++));
    return AB_OK;
}

static ab_status read_op_kind(const parser *p, const cJSON *object, ab_net_op *op) {
    const cJSON *value = NULL;
    const char *name = NULL;
    AB_TRY(ab_net_json_member(&p->place, object, "op", &value));
    AB_TRY(ab_net_json_name(&p->place, value, "'op'", &name));
    ab_status status = ab_op_find(name, &op->op, &op->op_row);
    if (status == AB_OK) return AB_OK;
    return ab_fail_prefix(status, "%s:%d: op '%s'", p->place.path, ab_net_json_line(value), op->name);
}

/* ---- inputs of an op ------------------------------------------------------------------------- */

static ab_status unknown_input(const parser *p, const cJSON *value, const char *name, int i) {
    char quoted[AB_NET_JSON_TEXT], hint[AB_NET_JSON_TEXT];
    ab_net_json_quote(name, quoted);
    if (strcmp(name, p->names[i + 1]) == 0)
        return ab_net_json_fail(&p->place, value, "'in': expected an earlier op, found the op itself");
    for (int later = i + 1; later < p->net->ops; later++)
        if (strcmp(name, p->names[later + 1]) == 0)
            return ab_net_json_fail(&p->place, value, "'in': expected an earlier op, found %s of line %d",
                                    quoted, p->net->op[later].line);
    return ab_net_json_fail(&p->place, value, "'in': expected \"input\" or an earlier op, found %s%s", quoted,
                            ab_net_json_hint(name, p->names, i + 1, hint));
}

static ab_status resolve(const parser *p, const cJSON *value, int i, int *input) {
    char found[AB_NET_JSON_TEXT];
    const char *name = cJSON_GetStringValue(value);
    if (!name)
        return ab_net_json_fail(&p->place, value, "'in': expected a name or an array of names, found %s",
                                ab_net_json_found(value, found));
    *input = AB_NET_TARGETS;
    if (strcmp(name, "targets") == 0) return AB_OK;
    const int k = *slot_of(p, name) - 1;
    *input = k - 1; /* names[0] is "input" */
    return k >= 0 && k <= i ? AB_OK : unknown_input(p, value, name, i);
}

/* Fills op->input and op->inputs from "in"; their number is not checked here. */
static ab_status read_references(const parser *p, const cJSON *in, int i) {
    ab_net_op *op = &p->net->op[i];
    op->inputs = 1;
    op->input[0] = i - 1; /* the op before; the first op: AB_NET_INPUT */
    if (!in) return AB_OK;
    if (!cJSON_IsArray(in)) return resolve(p, in, i, &op->input[0]);
    int count = cJSON_GetArraySize(in);
    if (count < 1 || count > AB_MAX_INPUTS)
        return ab_net_json_fail(&p->place, in, "'in': expected 1 to %d names, found %d", (int)AB_MAX_INPUTS,
                                count);
    op->inputs = 0;
    for (const cJSON *value = in->child; value; value = value->next)
        AB_TRY(resolve(p, value, i, &op->input[op->inputs++]));
    return AB_OK;
}

static int most_inputs(const ab_op *op) {
    return op->inputs < 0 ? AB_MAX_INPUTS : op->inputs + op->optional_inputs;
}

static ab_status check_input_count(const parser *p, const cJSON *at, const ab_net_op *op) {
    const int least = op->op->inputs < 0 ? 2 : op->op->inputs, most = most_inputs(op->op);
    if (op->inputs >= least && op->inputs <= most) return AB_OK;
    if (op->op->inputs < 0)
        return ab_net_json_fail(&p->place, at, "'in': expected 2 or more names for %s, found 1",
                                op->op->name);
    if (most > least)
        return ab_net_json_fail(&p->place, at, "'in': expected %d to %d names for %s, found %d", least, most,
                                op->op->name, op->inputs);
    return ab_net_json_fail(&p->place, at, "'in': expected %d name%s for %s, found %d", least,
                            least == 1 ? "" : "s", op->op->name, op->inputs);
}

/* Whether a value holds ids: only the input and the targets can. */
static bool holds_ids(const ab_net *net, int input) {
    if (input == AB_NET_INPUT) return ab_data_ids_in(&net->data);
    return input == AB_NET_TARGETS && ab_data_ids_out(&net->data);
}

static ab_status check_ids(const parser *p, const cJSON *at, const ab_net_op *op) {
    for (int k = 0; k < op->inputs; k++) {
        bool ids = holds_ids(p->net, op->input[k]);
        bool may = (op->op->integer_inputs | op->op->maybe_integer) >> k & 1u,
             must = op->op->integer_inputs >> k & 1u;
        const char *name = op->input[k] == AB_NET_TARGETS ? "targets" : p->names[op->input[k] + 1];
        if (ids && !may)
            return ab_net_json_fail(&p->place, at,
                                    "'in': %s expects numbers, \"%s\" holds class or token ids", op->op->name,
                                    name);
        if (!ids && must)
            return ab_net_json_fail(&p->place, at,
                                    "'in': %s expects class or token ids, \"%s\" holds numbers", op->op->name,
                                    name);
    }
    return AB_OK;
}

static void place_op(const ab_net *net, ab_net_op *op) {
    op->outside = op->op->is_loss;
    for (int k = 0; k < op->inputs; k++)
        op->outside = op->outside || op->input[k] == AB_NET_TARGETS ||
                      (op->input[k] >= 0 && net->op[op->input[k]].outside);
}

static ab_status read_inputs(const parser *p, const cJSON *object, int i) {
    ab_net_op *op = &p->net->op[i];
    const cJSON *in = cJSON_GetObjectItemCaseSensitive(object, "in"), *at = in ? in : object;
    AB_TRY(read_references(p, in, i));
    if (op->op->is_loss && op->inputs == op->op->inputs - 1) op->input[op->inputs++] = AB_NET_TARGETS;
    AB_TRY(check_input_count(p, at, op));
    AB_TRY(check_ids(p, at, op));
    place_op(p->net, op);
    return AB_OK;
}

static ab_status read_op(parser *p, const cJSON *object, int i) {
    ab_net_op *op = &p->net->op[i];
    p->place.op = op->name;
    AB_TRY(read_op_kind(p, object, op));
    AB_TRY(ab_net_read_attrs(&p->place, object, op));
    AB_TRY(read_inputs(p, object, i));
    p->place.op = NULL;
    return AB_OK;
}

static ab_status read_ops(parser *p) {
    AB_TRY(open_ops(p));
    AB_TRY(read_op_names(p));
    const cJSON *object = NULL;
    int i = 0;
    cJSON_ArrayForEach(object, p->ops) AB_TRY(read_op(p, object, i++));
    return AB_OK;
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* The op called `name`, which `key` names. */
static ab_status find_op(const parser *p, const cJSON *value, const char *key, const char *name, int *op) {
    char quoted[AB_NET_JSON_TEXT], hint[AB_NET_JSON_TEXT];
    const ab_net *net = p->net;
    for (int i = 0; i < net->ops; i++) {
        *op = i;
        if (strcmp(name, net->op[i].name) == 0) return AB_OK;
    }
    return ab_net_json_fail(&p->place, value, "%s: expected the name of an op, found %s%s", key,
                            ab_net_json_quote(name, quoted),
                            ab_net_json_hint(name, p->names + 1, net->ops, hint));
}

static ab_status read_loss_id(const parser *p, const cJSON *value, int *id) {
    static const ab_net_json_range range = {0, AB_NET_LOSSES - 1};
    char found[AB_NET_JSON_TEXT];
    double number = 0;
    AB_TRY(ab_net_json_number(&p->place, value, "'loss_id'", range, &number));
    *id = (int)number;
    if ((double)*id == number) return AB_OK;
    return ab_net_json_fail(&p->place, value, "'loss_id': expected an integer, found %s",
                            ab_net_json_found(value, found));
}

static ab_status read_loss(const parser *p, const cJSON *value, ab_net_loss *loss) {
    static const char *const keys[] = {"op", "weight", "loss_id"};
    static const ab_net_json_range range = {-1e30, 1e30};
    const cJSON *op = value, *weight = NULL, *id = NULL;
    const char *name = NULL;
    loss->weight = 1;
    loss->id = (int)(loss - p->net->loss);
    if (cJSON_IsObject(value)) {
        AB_TRY(ab_net_json_check_keys(&p->place, value, "'losses'", keys, (int)AB_COUNT_OF(keys)));
        AB_TRY(ab_net_json_member(&p->place, value, "op", &op));
        if ((weight = cJSON_GetObjectItemCaseSensitive(value, "weight")))
            AB_TRY(ab_net_json_number(&p->place, weight, "'weight'", range, &loss->weight));
        if ((id = cJSON_GetObjectItemCaseSensitive(value, "loss_id"))) AB_TRY(read_loss_id(p, id, &loss->id));
    }
    AB_TRY(ab_net_json_name(&p->place, op, "'losses'", &name));
    AB_TRY(find_op(p, op, "'losses'", name, &loss->op));
    for (const ab_net_loss *other = p->net->loss; other < loss; other++)
        if (other->op == loss->op)
            return ab_net_json_fail(&p->place, value, "'losses': expected distinct ops, found \"%s\" twice",
                                    name);
    return AB_OK;
}

static ab_status read_losses(const parser *p) {
    ab_net *net = p->net;
    char found[AB_NET_JSON_TEXT];
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(p->document, "losses");
    net->losses = 1;
    net->loss[0] = (ab_net_loss){.op = net->ops - 1, .weight = 1};
    if (!list) return AB_OK;
    int count = cJSON_GetArraySize(list);
    if (!cJSON_IsArray(list) || count < 1 || count > AB_NET_LOSSES)
        return ab_net_json_fail(&p->place, list, "'losses': expected an array of 1 to %d names, found %s",
                                (int)AB_NET_LOSSES, ab_net_json_found(list, found));
    net->losses = 0;
    for (const cJSON *value = list->child; value; value = value->next)
        AB_TRY(read_loss(p, value, &net->loss[net->losses++]));
    for (int i = 0; i < net->losses; i++) net->op[net->loss[i].op].outside = true;
    return AB_OK;
}

static ab_status read_scores(const parser *p) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(p->document, "scores");
    const char *name = NULL;
    p->net->scores = -1;
    if (!value) return AB_OK;
    AB_TRY(ab_net_json_name(&p->place, value, "'scores'", &name));
    return find_op(p, value, "'scores'", name, &p->net->scores);
}

/* ---- the network as a whole ------------------------------------------------------------------ */

static void mark_used(const ab_net *net, bool used[MAX_OPS]) {
    for (int l = 0; l < net->losses; l++) used[net->loss[l].op] = true;
    for (int i = 0; i < net->ops; i++)
        for (int k = 0; k < net->op[i].inputs; k++)
            if (net->op[i].input[k] >= 0) used[net->op[i].input[k]] = true;
}

static ab_status check_all_used(const ab_net *net) {
    bool used[MAX_OPS] = {false};
    mark_used(net, used);
    for (int i = 0; i < net->ops; i++)
        if (!used[i])
            return ab_fail(AB_CONFIG, "%s:%d: op '%s': expected a later op that reads its output, found none",
                           net->path, net->op[i].line, net->op[i].name);
    return AB_OK;
}

static ab_status read_recompute(const parser *p) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(p->document, "recompute");
    char found[AB_NET_JSON_TEXT];
    ab_net_find_blocks(p->net);
    if (!value) return AB_OK;
    const char *patterns = cJSON_GetStringValue(value);
    if (!patterns)
        return ab_net_json_fail(&p->place, value,
                                "'recompute': expected names of blocks, all or none, found %s",
                                ab_net_json_found(value, found));
    ab_status status = ab_net_recompute(p->net, patterns);
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "%s:%d", p->place.path, ab_net_json_line(value));
}

static ab_status build(parser *p) {
    AB_TRY(read_head(p));
    AB_TRY(read_ops(p));
    AB_TRY(read_losses(p));
    AB_TRY(read_scores(p));
    AB_TRY(read_recompute(p));
    AB_TRY(check_all_used(p->net));
    AB_TRY(ab_net_make_params(p->net));
    AB_TRY(ab_net_read_share(p->ops, p->net));
    AB_TRY(ab_net_read_trained(p->ops, p->net));
    return ab_net_read_init(p->document, p->ops, p->net);
}

ab_status ab_net_parse(const char *text, size_t length, const char *path, ab_net **net) {
    *net = NULL;
    cJSON *document = NULL;
    parser p = {.place = {.path = path, .op = NULL}};
    ab_status status = AB_OK;
    AB_TRY_GOTO(ab_net_json_parse(text, length, path, &document));
    p.document = document;
    p.net = calloc(1, sizeof *p.net);
    if (!p.net) {
        status = ab_fail(AB_NO_MEMORY, "%s: cannot allocate a network", path);
        goto out;
    }
    set_digest(p.net, text, length);
    AB_TRY_GOTO(copy_text(path, &p.net->path));
    AB_TRY_GOTO(build(&p));
    *net = p.net;
out:
    if (status != AB_OK) ab_net_free(p.net);
    free(p.names);
    free(p.slot);
    cJSON_Delete(document);
    return status;
}
