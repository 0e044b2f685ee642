/* Examples: networks of reference.json, or one with the op between two linear layers. */
#include "bench/opdoc/opdoc.h"

#include "kernels/core/text.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

extern const char ab_embedded_op_reference[];

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "ops: out of memory"); }

static ab_status load(cJSON **all) {
    *all = cJSON_Parse(ab_embedded_op_reference);
    return *all ? AB_OK : no_memory();
}

static char *copy_of(const cJSON *entry, const char *key) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, key));
    return ab_text_new("%s", text ? text : "");
}

ab_status ab_opdoc_sentences(int row, char **text, char **shapes) {
    cJSON *all;
    AB_TRY(load(&all));
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(all, ab_op_at(row)->name);
    *text = copy_of(entry, "text");
    *shapes = copy_of(entry, "shapes");
    cJSON_Delete(all);
    if (*text && *shapes) return AB_OK;
    free(*text);
    free(*shapes);
    return no_memory();
}

/* ---- an example of its own making ------------------------------------------------------------- */

static cJSON *add_op(cJSON *ops, const char *name, const char *op) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", name);
    cJSON_AddStringToObject(object, "op", op);
    cJSON_AddItemToArray(ops, object);
    return object;
}

static void add_linear(cJSON *ops, const char *name, int features, const char *in) {
    cJSON *object = add_op(ops, name, "linear");
    cJSON_AddNumberToObject(object, "out_features", features);
    if (in) cJSON_AddStringToObject(object, "in", in);
}

/* As many inputs as the op must have, each from a linear layer. */
static cJSON *made(const ab_op *op) {
    static const char *const names[AB_MAX_INPUTS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    cJSON *entry = cJSON_CreateObject(), *input = cJSON_AddObjectToObject(entry, "input");
    cJSON *ops = cJSON_AddArrayToObject(entry, "ops"), *in = cJSON_CreateArray();
    const int inputs = op->inputs < 0 ? 2 : op->inputs == 1 ? 1 + (op->optional_inputs > 0) : op->inputs;
    cJSON_AddNumberToObject(input, "height", 8);
    cJSON_AddNumberToObject(input, "width", 8);
    cJSON_AddNumberToObject(input, "channels", 3);
    add_op(ops, "flat", "flatten");
    for (int i = 0; i < inputs; i++) {
        add_linear(ops, names[i], 12, i ? "flat" : NULL);
        cJSON_AddItemToArray(in, cJSON_CreateString(names[i]));
    }
    cJSON *own = add_op(ops, "x", op->name);
    if (inputs > 1)
        cJSON_AddItemToObject(own, "in", in);
    else
        cJSON_Delete(in);
    add_linear(ops, "fc", 10, NULL);
    add_op(ops, "loss", "cross_entropy");
    return entry;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Compact JSON with a space after every colon and comma outside of strings; the caller frees. */
static char *spaced(const cJSON *item) {
    char *compact = item ? cJSON_PrintUnformatted(item) : ab_text_new("%s", "");
    char *text = compact ? calloc(2 * strlen(compact) + 1, 1) : NULL;
    bool quoted = false;
    for (size_t i = 0, at = 0; text && compact[i]; i++) {
        quoted ^= compact[i] == '"';
        text[at++] = compact[i];
        if (!quoted && (compact[i] == ':' || compact[i] == ',')) text[at++] = ' ';
    }
    free(compact);
    return text;
}

/* Appends `line` to *text; both may be NULL. */
static void append(char **text, const char *before, char *line, const char *after) {
    char *longer = *text && line ? ab_text_new("%s%s%s%s", *text, before, line, after) : NULL;
    free(*text);
    free(line);
    *text = longer;
}

static char *network_text(const char *name, const cJSON *entry) {
    const cJSON *targets = cJSON_GetObjectItemCaseSensitive(entry, "targets"), *op = NULL;
    char *text = ab_text_new("{\"format\": \"ampbench-net-1\", \"name\": \"%s\",\n ", name);
    append(&text, "\"input\": ", spaced(cJSON_GetObjectItemCaseSensitive(entry, "input")), ",");
    if (targets) append(&text, " \"targets\": ", spaced(targets), ",");
    append(&text, "\n ", spaced(NULL), "\"ops\": [");
    cJSON_ArrayForEach(op, cJSON_GetObjectItemCaseSensitive(entry, "ops"))
        append(&text, "\n  ", spaced(op), op->next ? "," : "]}\n");
    return text;
}

ab_status ab_opdoc_example(int row, char **text) {
    const ab_op *op = ab_op_at(row);
    cJSON *all, *own = NULL;
    ab_net *net = NULL;
    AB_TRY(load(&all));
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(all, op->name);
    if (!cJSON_GetObjectItemCaseSensitive(entry, "ops")) entry = own = made(op);
    *text = network_text(op->name, entry);
    cJSON_Delete(own);
    cJSON_Delete(all);
    if (!*text) return no_memory();
    ab_status status = ab_net_parse(*text, strlen(*text), op->name, &net);
    ab_net_free(net);
    if (status != AB_OK) free(*text);
    return status;
}
