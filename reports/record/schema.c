/* The subset of JSON Schema that we use. One function per keyword; no formats, no patterns, no remote
 * references. */
#include "reports/record/schema.h"

#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

extern const char ab_embedded_result_schema[];

enum { PATH_TEXT = 256, LIST_TEXT = 200, FOUND_TEXT = 64 };

/* Path to a value in the document: a linked list on the stack, converted to text only for an error
 * message. */
typedef struct place {
    const struct place *up;
    const char *key; /* NULL: an array element */
    int index;
} place;

typedef struct check {
    const cJSON *root; /* of the schema, for $ref */
    bool strict;
    const char *origin;
} check;

static ab_status check_value(const check *c, const cJSON *schema, const cJSON *value, const place *at);

/* ---- messages -------------------------------------------------------------------------------- */

static size_t append(char *text, size_t used, size_t size, const char *more) {
    size_t length = strlen(more);
    if (used + length >= size) return used;
    memcpy(text + used, more, length + 1);
    return used + length;
}

static size_t path_text(const place *at, char *text, size_t used) {
    char key[PATH_TEXT / 2];
    if (!at) return used;
    used = path_text(at->up, text, used);
    if (at->key) {
        ab_text_clean(key, sizeof key, at->key);
        if (used > 0) used = append(text, used, PATH_TEXT, ".");
    } else {
        ab_text_show(key, sizeof key, "[%d]", at->index);
    }
    return append(text, used, PATH_TEXT, key);
}

/* Describes the value found: the value itself if it is short. */
static const char *found_text(const cJSON *value, char *text) {
    char clean[32];
    if (cJSON_IsString(value))
        ab_text_show(text, FOUND_TEXT, "\"%s\"", ab_text_clean(clean, sizeof clean, value->valuestring));
    else if (cJSON_IsNumber(value))
        ab_text_show(text, FOUND_TEXT, "%.10g", value->valuedouble);
    else
        ab_text_show(text, FOUND_TEXT, "%s", ab_json_type_text(value));
    return text;
}

static ab_status wrong(const check *c, const place *at, const char *expected, const cJSON *value) {
    char path[PATH_TEXT] = "", found[FOUND_TEXT];
    path_text(at, path, 0);
    return ab_fail(AB_INPUT, "%s: %s: expected %s, found %s", c->origin, path[0] ? path : "the document",
                   expected, found_text(value, found));
}

/* "number or null" from an array of strings. */
static const char *list_text(const cJSON *list, char *text) {
    size_t used = 0;
    const cJSON *item;
    text[0] = '\0';
    cJSON_ArrayForEach(item, list) {
        if (used > 0) used = append(text, used, LIST_TEXT, " or ");
        used =
            append(text, used, LIST_TEXT, cJSON_IsString(item) ? item->valuestring : ab_json_type_text(item));
    }
    return text;
}

/* ---- keywords -------------------------------------------------------------------------------- */

/* Integers up to 2^53 - 1 only: a larger one was rounded when parsed and is stored as a string in our
 * documents. */
static bool is_integer(double x) { return x == trunc(x) && fabs(x) <= AB_JSON_MAX_INTEGER; }

static bool has_type(const cJSON *value, const char *type) {
    if (strcmp(type, "number") == 0) return cJSON_IsNumber(value) && isfinite(value->valuedouble);
    if (strcmp(type, "integer") == 0) return cJSON_IsNumber(value) && is_integer(value->valuedouble);
    if (strcmp(type, "string") == 0) return cJSON_IsString(value) && value->valuestring;
    if (strcmp(type, "boolean") == 0) return cJSON_IsBool(value);
    if (strcmp(type, "null") == 0) return cJSON_IsNull(value);
    if (strcmp(type, "array") == 0) return cJSON_IsArray(value);
    return strcmp(type, "object") == 0 && cJSON_IsObject(value);
}

static ab_status check_type(const check *c, const cJSON *schema, const cJSON *types, const cJSON *value,
                            const place *at) {
    (void)schema;
    char text[LIST_TEXT];
    if (cJSON_IsString(types))
        return has_type(value, types->valuestring) ? AB_OK : wrong(c, at, types->valuestring, value);
    const cJSON *type;
    cJSON_ArrayForEach(type, types) {
        if (cJSON_IsString(type) && has_type(value, type->valuestring)) return AB_OK;
    }
    return wrong(c, at, list_text(types, text), value);
}

static ab_status check_const(const check *c, const cJSON *schema, const cJSON *only, const cJSON *value,
                             const place *at) {
    (void)schema;
    char text[FOUND_TEXT];
    return cJSON_Compare(only, value, 1) ? AB_OK : wrong(c, at, found_text(only, text), value);
}

static ab_status check_enum(const check *c, const cJSON *schema, const cJSON *words, const cJSON *value,
                            const place *at) {
    (void)schema;
    char text[LIST_TEXT];
    const cJSON *word;
    cJSON_ArrayForEach(word, words) {
        if (cJSON_Compare(word, value, 1)) return AB_OK;
    }
    return wrong(c, at, list_text(words, text), value);
}

static ab_status check_limit(const check *c, const place *at, const cJSON *value, bool holds,
                             const char *relation, double limit) {
    char text[64];
    if (!cJSON_IsNumber(value) || holds) return AB_OK;
    ab_text_show(text, sizeof text, "a number %s %.10g", relation, limit);
    return wrong(c, at, text, value);
}

static ab_status check_minimum(const check *c, const cJSON *schema, const cJSON *limit, const cJSON *value,
                               const place *at) {
    (void)schema;
    bool holds = value->valuedouble >= limit->valuedouble;
    return check_limit(c, at, value, holds, ">=", limit->valuedouble);
}

static ab_status check_above(const check *c, const cJSON *schema, const cJSON *limit, const cJSON *value,
                             const place *at) {
    (void)schema;
    bool holds = value->valuedouble > limit->valuedouble;
    return check_limit(c, at, value, holds, ">", limit->valuedouble);
}

static ab_status check_maximum(const check *c, const cJSON *schema, const cJSON *limit, const cJSON *value,
                               const place *at) {
    (void)schema;
    bool holds = value->valuedouble <= limit->valuedouble;
    return check_limit(c, at, value, holds, "<=", limit->valuedouble);
}

static ab_status check_required(const check *c, const cJSON *schema, const cJSON *keys, const cJSON *value,
                                const place *at) {
    (void)schema;
    const cJSON *key;
    if (!cJSON_IsObject(value)) return AB_OK;
    cJSON_ArrayForEach(key, keys) {
        place inside = {at, key->valuestring, 0};
        if (!cJSON_GetObjectItemCaseSensitive(value, key->valuestring))
            return wrong(c, &inside, "a value", NULL);
    }
    return AB_OK;
}

/* The rule of a key; sought behind the last one found first, since documents have the order of the schema. */
static const cJSON *rule_of(const cJSON *properties, const cJSON *last, const char *key) {
    for (const cJSON *rule = last ? last->next : NULL; rule; rule = rule->next)
        if (strcmp(rule->string, key) == 0) return rule;
    return cJSON_GetObjectItemCaseSensitive(properties, key);
}

static ab_status check_properties(const check *c, const cJSON *schema, const cJSON *properties,
                                  const cJSON *value, const place *at) {
    (void)schema;
    const cJSON *member, *last = NULL;
    if (!cJSON_IsObject(value)) return AB_OK;
    cJSON_ArrayForEach(member, value) {
        place inside = {at, member->string, 0};
        const cJSON *rule = rule_of(properties, last, member->string);
        if (!rule) continue;
        AB_TRY(check_value(c, rule, member, &inside));
        last = rule;
    }
    return AB_OK;
}

static ab_status check_additional(const check *c, const cJSON *schema, const cJSON *rule, const cJSON *value,
                                  const place *at) {
    const cJSON *known = cJSON_GetObjectItemCaseSensitive(schema, "properties"), *member;
    bool forbidden = cJSON_IsFalse(rule);
    if (!cJSON_IsObject(value) || (forbidden && !c->strict)) return AB_OK;
    cJSON_ArrayForEach(member, value) {
        place inside = {at, member->string, 0};
        if (cJSON_GetObjectItemCaseSensitive(known, member->string)) continue;
        if (forbidden) return wrong(c, &inside, "no such key", member);
        AB_TRY(check_value(c, rule, member, &inside));
    }
    return AB_OK;
}

static ab_status check_items(const check *c, const cJSON *schema, const cJSON *rule, const cJSON *value,
                             const place *at) {
    (void)schema;
    const cJSON *item;
    place inside = {at, NULL, 0};
    if (!cJSON_IsArray(value)) return AB_OK;
    cJSON_ArrayForEach(item, value) {
        AB_TRY(check_value(c, rule, item, &inside));
        inside.index++;
    }
    return AB_OK;
}

static ab_status check_length(const check *c, const place *at, const cJSON *value, int low, int high) {
    char text[64];
    if (!cJSON_IsArray(value)) return AB_OK;
    int count = cJSON_GetArraySize(value);
    if (count >= low && count <= high) return AB_OK;
    ab_text_show(text, sizeof text, "%s %d elements instead of %d", count < low ? "at least" : "at most",
                 count < low ? low : high, count);
    return wrong(c, at, text, value);
}

static ab_status check_min_items(const check *c, const cJSON *schema, const cJSON *limit, const cJSON *value,
                                 const place *at) {
    (void)schema;
    return check_length(c, at, value, limit->valueint, INT_MAX);
}

static ab_status check_max_items(const check *c, const cJSON *schema, const cJSON *limit, const cJSON *value,
                                 const place *at) {
    (void)schema;
    return check_length(c, at, value, 0, limit->valueint);
}

static ab_status check_ref(const check *c, const cJSON *schema, const cJSON *ref, const cJSON *value,
                           const place *at) {
    (void)schema;
    static const char definitions[] = "#/$defs/";
    const size_t prefix = sizeof definitions - 1;
    const char *text = cJSON_IsString(ref) ? ref->valuestring : "";
    const cJSON *target = NULL;
    if (strncmp(text, definitions, prefix) == 0)
        target = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(c->root, "$defs"),
                                                  text + prefix);
    if (!target) return ab_fail(AB_INTERNAL, "schema: reference %s leads nowhere", text);
    return check_value(c, target, value, at);
}

static ab_status check_if(const check *c, const cJSON *schema, const cJSON *condition, const cJSON *value,
                          const place *at) {
    ab_status status = check_value(c, condition, value, at);
    if (status != AB_OK && status != AB_INPUT) return status;
    const cJSON *branch = cJSON_GetObjectItemCaseSensitive(schema, status == AB_OK ? "then" : "else");
    return branch ? check_value(c, branch, value, at) : AB_OK;
}

typedef struct keyword {
    const char *name;
    ab_status (*check)(const check *c, const cJSON *schema, const cJSON *argument, const cJSON *value,
                       const place *at); /* NULL: an annotation, or handled by another keyword */
} keyword;

static const keyword keywords[] = {
    {"$ref", check_ref},
    {"type", check_type},
    {"const", check_const},
    {"enum", check_enum},
    {"minimum", check_minimum},
    {"exclusiveMinimum", check_above},
    {"maximum", check_maximum},
    {"required", check_required},
    {"properties", check_properties},
    {"additionalProperties", check_additional},
    {"items", check_items},
    {"minItems", check_min_items},
    {"maxItems", check_max_items},
    {"if", check_if},
    {"then", NULL},
    {"else", NULL},
    {"$schema", NULL},
    {"$id", NULL},
    {"$defs", NULL},
    {"default", NULL}, /* meaning of a missing key */
    {"title", NULL},
    {"description", NULL},
};

static const keyword *find_keyword(const char *name) {
    for (size_t i = 0; i < AB_COUNT_OF(keywords); i++)
        if (keywords[i].name[0] == name[0] && strcmp(keywords[i].name, name) == 0) return &keywords[i];
    return NULL;
}

static ab_status check_value(const check *c, const cJSON *schema, const cJSON *value, const place *at) {
    const cJSON *argument;
    cJSON_ArrayForEach(argument, schema) {
        const keyword *word = find_keyword(argument->string);
        if (!word) return ab_fail(AB_INTERNAL, "schema: keyword %s is not supported", argument->string);
        if (word->check) AB_TRY(word->check(c, schema, argument, value, at));
    }
    return AB_OK;
}

/* ---- public ---------------------------------------------------------------------------------- */

ab_status ab_schema_check(const cJSON *schema, const cJSON *value, bool strict, const char *origin) {
    const check c = {schema, strict, origin};
    return check_value(&c, schema, value, NULL);
}

ab_status ab_schema_result(cJSON **schema) {
    *schema = cJSON_Parse(ab_embedded_result_schema);
    return *schema ? AB_OK : ab_fail(AB_NO_MEMORY, "out of memory while reading the result schema");
}
