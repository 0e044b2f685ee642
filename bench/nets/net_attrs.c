/* Reads the attributes of an op from JSON into the op's struct, by its attribute table. */
#include "bench/nets/net_build.h"
#include "kernels/core/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_TEXT = 64 };

typedef ab_status attr_reader(const ab_net_json_place *place, const cJSON *value, const ab_attr *attr,
                              void *field);
typedef void attr_filler(const ab_attr *attr, void *field);

static ab_net_json_range range_of(const ab_attr *attr) { return (ab_net_json_range){attr->low, attr->high}; }

static const char *label_of(const ab_attr *attr, char *label) {
    ab_text_show(label, LABEL_TEXT, "'%s'", attr->name);
    return label;
}

static ab_status read_int(const ab_net_json_place *place, const cJSON *value, const ab_attr *attr,
                          void *field) {
    char label[LABEL_TEXT];
    return ab_net_json_integer(place, value, label_of(attr, label), range_of(attr), field);
}

static void fill_int(const ab_attr *attr, void *field) { *(int64_t *)field = (int64_t)attr->fallback; }

static ab_status read_pair(const ab_net_json_place *place, const cJSON *value, const ab_attr *attr,
                           void *field) {
    char found[AB_NET_JSON_TEXT];
    int64_t *pair = field;
    if (!cJSON_IsArray(value)) {
        AB_TRY(read_int(place, value, attr, &pair[0]));
        pair[1] = pair[0];
        return AB_OK;
    }
    int count = cJSON_GetArraySize(value);
    if (count != 2)
        return ab_net_json_fail(place, value, "'%s': expected a number or [height, width], found %s of %d",
                                attr->name, ab_net_json_found(value, found), count);
    AB_TRY(read_int(place, value->child, attr, &pair[0]));
    return read_int(place, value->child->next, attr, &pair[1]);
}

static void fill_pair(const ab_attr *attr, void *field) {
    int64_t *pair = field;
    pair[0] = pair[1] = (int64_t)attr->fallback;
}

static ab_status read_float(const ab_net_json_place *place, const cJSON *value, const ab_attr *attr,
                            void *field) {
    char label[LABEL_TEXT];
    return ab_net_json_number(place, value, label_of(attr, label), range_of(attr), field);
}

static void fill_float(const ab_attr *attr, void *field) { *(double *)field = attr->fallback; }

static ab_status read_bool(const ab_net_json_place *place, const cJSON *value, const ab_attr *attr,
                           void *field) {
    char label[LABEL_TEXT];
    return ab_net_json_bool(place, value, label_of(attr, label), field);
}

static void fill_bool(const ab_attr *attr, void *field) { *(bool *)field = attr->fallback != 0; }

static ab_status read_floats(const ab_net_json_place *place, const cJSON *value, const ab_attr *attr,
                             void *field) {
    char found[AB_NET_JSON_TEXT];
    ab_floats *floats = field;
    int count = cJSON_GetArraySize(value);
    if (!cJSON_IsArray(value) || count == 0)
        return ab_net_json_fail(place, value, "'%s': expected an array of numbers, found %s", attr->name,
                                cJSON_IsArray(value) ? "an empty one" : ab_net_json_found(value, found));
    float *numbers = malloc((size_t)count * sizeof *numbers);
    if (!numbers) return ab_fail(AB_NO_MEMORY, "%s: cannot allocate '%s'", place->path, attr->name);
    *floats = (ab_floats){.value = numbers, .count = count};
    for (const cJSON *element = value->child; element; element = element->next) {
        double number = 0;
        AB_TRY(read_float(place, element, attr, &number));
        *numbers++ = (float)number;
    }
    return AB_OK;
}

static void fill_floats(const ab_attr *attr, void *field) {
    (void)attr;
    *(ab_floats *)field = (ab_floats){.value = NULL, .count = 0};
}

static ab_status read_ints(const ab_net_json_place *place, const cJSON *value, const ab_attr *attr,
                           void *field) {
    ab_ints *ints = field;
    ints->count = 1;
    if (!cJSON_IsArray(value)) return read_int(place, value, attr, &ints->value[0]);
    ints->count = cJSON_GetArraySize(value);
    if (ints->count < 1 || ints->count > AB_MAX_DIMS)
        return ab_net_json_fail(place, value, "'%s': expected 1 to %d integers, found %d", attr->name,
                                (int)AB_MAX_DIMS, ints->count);
    int64_t *next = ints->value;
    for (const cJSON *element = value->child; element; element = element->next)
        AB_TRY(read_int(place, element, attr, next++));
    return AB_OK;
}

static void fill_ints(const ab_attr *attr, void *field) {
    (void)attr;
    *(ab_ints *)field = (ab_ints){.count = 0};
}

static ab_status read_choice(const ab_net_json_place *place, const cJSON *value, const ab_attr *attr,
                             void *field) {
    char label[LABEL_TEXT], quoted[AB_NET_JSON_TEXT];
    const char *name = NULL, *choice = attr->text;
    AB_TRY(ab_net_json_name(place, value, label_of(attr, label), &name));
    for (int64_t number = 0;; number++, choice++) {
        size_t length = strcspn(choice, "|");
        if (strlen(name) == length && memcmp(name, choice, length) == 0) {
            *(int64_t *)field = number;
            return AB_OK;
        }
        choice += length;
        if (!*choice) break;
    }
    return ab_net_json_fail(place, value, "'%s': expected one of %s, found %s", attr->name, attr->text,
                            ab_net_json_quote(name, quoted));
}

static const struct {
    attr_reader *read;
    attr_filler *fill;
} kinds[] = {
    [AB_ATTR_INT] = {read_int, fill_int},          [AB_ATTR_PAIR] = {read_pair, fill_pair},
    [AB_ATTR_FLOAT] = {read_float, fill_float},    [AB_ATTR_BOOL] = {read_bool, fill_bool},
    [AB_ATTR_FLOATS] = {read_floats, fill_floats}, [AB_ATTR_CHOICE] = {read_choice, fill_int},
    [AB_ATTR_INTS] = {read_ints, fill_ints},
};

static ab_status read_attr(const ab_net_json_place *place, const cJSON *object, const ab_attr *attr,
                           void *attrs) {
    void *field = (char *)attrs + attr->offset;
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, attr->name);
    if (value) return kinds[attr->kind].read(place, value, attr, field);
    if (attr->required)
        return ab_net_json_fail(place, object, "expected '%s' (%s), found none", attr->name, attr->text);
    kinds[attr->kind].fill(attr, field);
    return AB_OK;
}

static ab_status check_keys(const ab_net_json_place *place, const cJSON *object, const ab_op *op, bool low) {
    const char *names[7 + AB_MAX_ATTRS] = {"name", "op", "in", "init", "share", "requires_grad"};
    int count = 6;
    if (low) names[count++] = "accumulate";
    for (const ab_attr *attr = op->attrs; attr && attr->name; attr++) names[count++] = attr->name;
    return ab_net_json_check_keys(place, object, op->name, names, count);
}

static ab_status read_accumulate(const ab_net_json_place *place, const cJSON *object, ab_net_op *op) {
    static const ab_attr attr = {"accumulate", AB_ATTR_CHOICE, 0, false, 0, 0, 1, "fp32|half"};
    int64_t choice = 0;
    AB_TRY(read_attr(place, object, &attr, &choice));
    op->accumulate_half = choice == 1;
    return AB_OK;
}

int ab_net_half_accumulators(const ab_net *net) {
    int count = 0;
    for (int i = 0; i < net->ops; i++) count += net->op[i].accumulate_half;
    return count;
}

void ab_net_accumulate_fp32(ab_net *net) {
    for (int i = 0; i < net->ops; i++) net->op[i].accumulate_half = false;
}

ab_status ab_net_read_attrs(const ab_net_json_place *place, const cJSON *object, ab_net_op *op) {
    const bool low = ab_op_class_at(op->op_row) == AB_CLASS_low;
    AB_TRY(check_keys(place, object, op->op, low));
    if (low) AB_TRY(read_accumulate(place, object, op));
    if (op->op->attrs_bytes == 0) return AB_OK;
    op->attrs = calloc(1, op->op->attrs_bytes);
    if (!op->attrs) return ab_fail(AB_NO_MEMORY, "%s: cannot allocate the attributes of an op", place->path);
    for (const ab_attr *attr = op->op->attrs; attr && attr->name; attr++)
        AB_TRY(read_attr(place, object, attr, op->attrs));
    if (!op->op->finish_attrs) return AB_OK;
    ab_status status = op->op->finish_attrs(op->attrs);
    if (status == AB_OK) return AB_OK;
    return ab_fail_prefix(status, "%s:%d: op '%s'", place->path, op->line, place->op);
}

void ab_net_free_attrs(ab_net_op *op) {
    if (!op->attrs) return;
    for (const ab_attr *attr = op->op->attrs; attr && attr->name; attr++) {
        if (attr->kind != AB_ATTR_FLOATS) continue;
        const ab_floats *floats = (const void *)((char *)op->attrs + attr->offset);
        free((void *)floats->value);
    }
    free(op->attrs);
}

/* ---- frozen batch norms ---------------------------------------------------------------------- */

/* The op's field "mode"; NULL if there is none. */
static int64_t *mode_of(const ab_net_op *op) {
    for (const ab_attr *attr = op->op->attrs; op->op->batch_norm && attr && attr->name; attr++)
        if (strcmp(attr->name, "mode") == 0) return (int64_t *)(void *)((char *)op->attrs + attr->offset);
    return NULL;
}

bool ab_net_op_frozen(const ab_net_op *op) {
    const int64_t *mode = mode_of(op);
    return mode && *mode != 0;
}

int ab_net_freeze(ab_net *net) {
    int frozen = 0;
    for (int i = 0; i < net->ops; i++) {
        int64_t *mode = mode_of(&net->op[i]);
        if (mode) *mode = 1;
        frozen += mode != NULL;
    }
    return frozen;
}
