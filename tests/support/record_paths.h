/* What look-ups in JSON documents ask for, found in the source, beside what the schemas say.
 *
 * A look-up is a call of ab_json_at, ab_json_number, ab_json_text, ab_json_is_true or
 * cJSON_GetObjectItem*. Its path is a literal, or comes from literals through variables, tables and
 * parameters of functions in the same sources. Where its root comes from is followed the same way, through
 * assignments, cJSON_ArrayForEach, parameters and returned values; a root that is not known may be any
 * object of any schema. Then the path must exist there, with the type that is asked for. A fallback that
 * is a literal says nothing (0, "", "?"), or what the schema says that a missing key means ("default").
 *
 * rp_free frees what a lint holds. */
#ifndef AB_TESTS_SUPPORT_RECORD_PATHS_H
#define AB_TESTS_SUPPORT_RECORD_PATHS_H

#include "support/c_source.h"

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdarg.h>

enum {
    RP_NODES = 1024,
    RP_SCHEMAS = 16,
    RP_SOURCES = 1024,
    RP_PATHS = 256,
    RP_DEPTH = 14,
    RP_MESSAGE = 400,
    RP_DYNAMIC = -2
};

/* Places in schemas that a value may be at. `any`: not known, every object of every schema. */
typedef struct rp_set {
    bool any;
    int count;
    struct rp_node {
        const cJSON *schema;
        int document; /* of the schemas */
    } node[RP_NODES];
} rp_set;

/* A name with arguments inside a function, sorted by the name's hash. */
typedef struct rp_call {
    unsigned hash;
    int source, token;
} rp_call;

typedef struct rp_lint {
    int schemas, sources, calls;
    rp_call *call; /* NULL: not yet sought */
    cJSON *schema[RP_SCHEMAS];
    c_source source[RP_SOURCES];
    rp_set objects; /* all of them */
    int lookups, paths, rooted, fallbacks, dynamic, violations;
    char message[RP_MESSAGE]; /* the last violation */
    bool quiet;
} rp_lint;

static inline void rp_violation(rp_lint *l, const c_source *s, int at, const char *format, ...) {
    char text[RP_MESSAGE / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(l->message, sizeof l->message, "%.120s:%d: %s", s->path, s->token[at].line, text);
    if (!l->quiet) fprintf(stderr, "%s\n", l->message);
    l->violations++;
}

static inline void rp_clear(rp_set *set) { set->any = false, set->count = 0; }

static inline void rp_copy(rp_set *to, const rp_set *from) {
    to->any = from->any;
    to->count = from->count;
    memcpy(to->node, from->node, (size_t)from->count * sizeof *from->node);
}

/* ---- schemas --------------------------------------------------------------------------------- */

static inline void rp_add(rp_set *set, const cJSON *schema, int document) {
    for (int i = 0; i < set->count; i++)
        if (set->node[i].schema == schema) return;
    if (schema && set->count < RP_NODES) set->node[set->count++] = (struct rp_node){schema, document};
}

static inline void rp_unite(rp_set *set, const rp_set *other) {
    set->any |= other->any;
    for (int i = 0; i < other->count; i++) rp_add(set, other->node[i].schema, other->node[i].document);
}

static inline const cJSON *rp_key(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* Follows "$ref": "#/$defs/name". */
static inline const cJSON *rp_resolve(const rp_lint *l, const cJSON *schema, int document) {
    const cJSON *ref;
    while ((ref = rp_key(schema, "$ref")) && strncmp(ref->valuestring, "#/$defs/", 8) == 0)
        schema = rp_key(rp_key(l->schema[document], "$defs"), ref->valuestring + 8);
    return schema;
}

static inline void rp_collect(rp_lint *l, const cJSON *schema, int document) {
    const cJSON *member;
    if (cJSON_IsObject(rp_key(schema, "properties"))) rp_add(&l->objects, schema, document);
    cJSON_ArrayForEach(member, schema) rp_collect(l, member, document);
}

static inline void rp_add_schema(rp_lint *l, cJSON *schema) {
    l->schema[l->schemas] = schema;
    rp_collect(l, schema, l->schemas++);
}

/* The member of `key` in each place. */
static inline void rp_member(const rp_lint *l, const rp_set *from, const char *key, rp_set *to) {
    const rp_set *all = from->any ? &l->objects : from;
    rp_clear(to);
    for (int i = 0; i < all->count; i++) {
        const int document = all->node[i].document;
        const cJSON *object = rp_resolve(l, all->node[i].schema, document),
                    *member = rp_key(rp_key(object, "properties"), key),
                    *other = rp_key(object, "additionalProperties");
        if (member)
            rp_add(to, member, document);
        else if (!from->any && cJSON_IsObject(other))
            rp_add(to, other, document);
    }
}

/* Elements of arrays, members of objects. */
static inline void rp_elements(const rp_lint *l, const rp_set *from, rp_set *to) {
    rp_clear(to);
    to->any = from->any;
    for (int i = 0; i < from->count; i++) {
        const int document = from->node[i].document;
        const cJSON *value = rp_resolve(l, from->node[i].schema, document), *member,
                    *items = rp_key(value, "items"), *other = rp_key(value, "additionalProperties");
        rp_add(to, items, document);
        if (cJSON_IsObject(other)) rp_add(to, other, document);
        cJSON_ArrayForEach(member, rp_key(value, "properties")) rp_add(to, member, document);
    }
}

/* "string", "number", "boolean", "array", "object"; NULL: any. An integer is a number. */
static inline bool rp_has_type(const cJSON *value, const char *type) {
    const cJSON *types = rp_key(value, "type"), *word, *words = rp_key(value, "enum"),
                *only = rp_key(value, "const");
    if (only && cJSON_IsString(only)) return strcmp(type, "string") == 0;
    cJSON_ArrayForEach(word, words) {
        if (cJSON_IsString(word) && strcmp(type, "string") == 0) return true;
    }
    if (words) return false;
    if (!types) return true;
    if (cJSON_IsString(types))
        return strcmp(types->valuestring, type) == 0 ||
               (strcmp(type, "number") == 0 && strcmp(types->valuestring, "integer") == 0);
    cJSON_ArrayForEach(word, types) {
        if (strcmp(word->valuestring, type) == 0) return true;
        if (strcmp(type, "number") == 0 && strcmp(word->valuestring, "integer") == 0) return true;
    }
    return false;
}

static inline bool rp_some_has_type(const rp_lint *l, const rp_set *set, const char *type) {
    for (int i = 0; i < set->count; i++)
        if (rp_has_type(rp_resolve(l, set->node[i].schema, set->node[i].document), type)) return true;
    return false;
}

/* ---- look-ups -------------------------------------------------------------------------------- */

/* What a call of the name asks for; type NULL: anything. */
static inline bool rp_is_lookup(const c_source *s, int at, const char **type) {
    static const char *const known[][2] = {
        {"ab_json_at", NULL},          {"ab_json_number", "number"},
        {"ab_json_text", "string"},    {"ab_json_is_true", "boolean"},
        {"cJSON_GetObjectItem", NULL}, {"cJSON_GetObjectItemCaseSensitive", NULL},
        {"cJSON_HasObjectItem", NULL}};
    if (!c_is(s, at + 1, "(")) return false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!c_is(s, at, known[i][0])) continue;
        *type = known[i][1];
        return true;
    }
    return false;
}

/* What the call around a look-up needs: cJSON_IsNumber(ab_json_at(...)); NULL: anything. */
static inline const char *rp_outer_type(const c_source *s, int at) {
    static const char *const known[][2] = {{"cJSON_IsNumber", "number"}, {"cJSON_IsString", "string"},
                                           {"cJSON_IsArray", "array"},   {"cJSON_IsTrue", "boolean"},
                                           {"cJSON_IsFalse", "boolean"}, {"cJSON_IsBool", "boolean"},
                                           {"cJSON_IsObject", "object"}, {"cJSON_GetArrayItem", "array"}};
    if (!c_is(s, at - 1, "(")) return NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (c_is(s, at - 2, known[i][0])) return known[i][1];
    return NULL;
}

/* ---- where a value comes from ---------------------------------------------------------------- */

static inline void rp_eval(rp_lint *l, const c_source *s, int begin, int end, int depth, rp_set *set);

typedef void (*rp_visit)(rp_lint *l, const c_source *s, int begin, int end, int depth, void *argument);

static inline int rp_compare_calls(const void *left, const void *right) {
    const rp_call *a = left, *b = right;
    if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
    return a->source != b->source ? a->source - b->source : a->token - b->token;
}

static inline void rp_find_calls(rp_lint *l) {
    int room = 1;
    for (int k = 0; k < l->sources; k++) room += l->source[k].tokens;
    l->call = malloc((size_t)room * sizeof *l->call);
    for (int k = 0; k < l->sources; k++) {
        const c_source *s = &l->source[k];
        for (int i = 0; i + 1 < s->tokens; i++)
            if (s->token[i].kind == 'a' && c_is(s, i + 1, "(") && c_function_at(s, i))
                l->call[l->calls++] = (rp_call){s->token[i].hash, k, i};
    }
    qsort(l->call, (size_t)l->calls, sizeof *l->call, rp_compare_calls);
}

static inline int rp_first_call(const rp_lint *l, unsigned hash) {
    int low = 0, high = l->calls;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (l->call[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Expressions that are passed for parameter `index` of f, in the file or, if f is not static, anywhere. */
static inline int rp_each_argument(rp_lint *l, const c_source *of, const c_function *f, int index, int depth,
                                   rp_visit visit, void *argument) {
    const unsigned hash = of->token[f->name].hash;
    int calls = 0, begin, end;
    if (!l->call) rp_find_calls(l);
    for (int i = rp_first_call(l, hash); i < l->calls && l->call[i].hash == hash; i++) {
        const c_source *s = &l->source[l->call[i].source];
        const int at = l->call[i].token;
        if ((f->is_static && s != of) || !c_same(s, at, of, f->name)) continue;
        if (!c_argument(s, at, index, &begin, &end)) continue;
        calls++;
        visit(l, s, begin, end, depth, argument);
    }
    return calls;
}

/* Expressions that are assigned to the identifier at `name` in its function, and what it iterates over
 * (ends negated). */
static inline int rp_each_assignment(rp_lint *l, const c_source *s, int name, int depth, rp_visit assigned,
                                     rp_visit iterated, void *argument) {
    const c_function *f = c_function_at(s, name);
    int found = 0;
    for (int i = f ? f->begin : 0; f && i + 1 < f->end; i++) {
        if (s->token[i].kind != 'a' || !c_same(s, i, s, name)) continue;
        if (c_is(s, i + 1, "=") && !c_is(s, i + 2, "=") && !c_is(s, i - 1, ".") && !c_is(s, i - 1, "->")) {
            found++;
            assigned(l, s, i + 2, c_expression_end(s, i + 2, f->end), depth, argument);
        } else if (iterated && c_is(s, i - 2, "cJSON_ArrayForEach") && c_is(s, i + 1, ",")) {
            found++;
            iterated(l, s, i + 2, c_expression_end(s, i + 2, f->end), depth, argument);
        }
    }
    return found;
}

static inline void rp_visit_value(rp_lint *l, const c_source *s, int begin, int end, int depth,
                                  void *argument) {
    rp_set *value = malloc(sizeof *value);
    rp_eval(l, s, begin, end, depth, value);
    rp_unite(argument, value);
    free(value);
}

static inline void rp_visit_elements(rp_lint *l, const c_source *s, int begin, int end, int depth,
                                     void *argument) {
    rp_set *value = malloc(2 * sizeof *value);
    rp_eval(l, s, begin, end, depth, value);
    rp_elements(l, value, value + 1);
    rp_unite(argument, value + 1);
    free(value);
}

/* Members of structs, and variables that get their value otherwise than by an assignment: known by their
 * names. */
static inline void rp_by_name(const rp_lint *l, const c_source *s, int at, rp_set *set) {
    if (c_is(s, at, "cell") || c_is(s, at, "baseline"))
        rp_add(set, rp_key(rp_key(l->schema[0], "$defs"), "cell"), 0);
    else if (c_is(s, at, "document"))
        for (int i = 0; i < l->schemas; i++) rp_add(set, l->schema[i], i);
    if (set->count == 0 || !set->node[0].schema) set->any = true;
}

static inline void rp_eval_name(rp_lint *l, const c_source *s, int at, int depth, rp_set *set) {
    const c_function *f = c_function_at(s, at);
    const int param = c_param(s, f, at);
    rp_each_assignment(l, s, at, depth, rp_visit_value, rp_visit_elements, set);
    if (param >= 0) rp_each_argument(l, s, f, param, depth, rp_visit_value, set);
    if (!set->any && set->count == 0) rp_by_name(l, s, at, set);
}

/* What a function of the sources returns. */
static inline bool rp_eval_returned(rp_lint *l, const c_source *s, int name, int depth, rp_set *set) {
    for (int k = 0; k < l->sources; k++)
        for (int i = 0; i < l->source[k].functions; i++) {
            const c_source *of = &l->source[k];
            const c_function *f = &of->function[i];
            if (!c_same(s, name, of, f->name) || (f->is_static && of != s)) continue;
            for (int t = f->begin; t < f->end; t++)
                if (c_is(of, t, "return"))
                    rp_visit_value(l, of, t + 1, c_expression_end(of, t + 1, f->end), depth, set);
            return true;
        }
    return false;
}

static inline int rp_paths(rp_lint *l, const c_source *s, int begin, int end, int depth, char **path,
                           int most);

static inline void rp_eval_call(rp_lint *l, const c_source *s, int at, int depth, rp_set *set) {
    char *path[RP_PATHS];
    const char *type;
    int begin, end;
    rp_set *value = malloc(3 * sizeof *value);
    if (rp_is_lookup(s, at, &type) && c_argument(s, at, 0, &begin, &end)) {
        rp_eval(l, s, begin, end, depth, value);
        const int paths =
            c_argument(s, at, 1, &begin, &end) ? rp_paths(l, s, begin, end, depth, path, RP_PATHS) : -1;
        set->any |= paths < 0;
        for (int i = 0; i < paths; i++) {
            rp_copy(&value[1], &value[0]);
            for (char *key = strtok(path[i], "."); key; key = strtok(NULL, ".")) {
                rp_member(l, &value[1], key, &value[2]);
                rp_copy(&value[1], &value[2]);
            }
            rp_unite(set, &value[1]);
            free(path[i]);
        }
    } else if (c_is(s, at, "cJSON_GetArrayItem") && c_argument(s, at, 0, &begin, &end)) {
        rp_visit_elements(l, s, begin, end, depth, set);
    } else if (!rp_eval_returned(l, s, at, depth, set)) {
        set->any = true;
    }
    free(value);
}

/* The place of a token of the kind outside of brackets; -1: none. */
static inline int rp_outside(const c_source *s, int begin, int end, const char *text) {
    for (int i = begin; i < end; i++) {
        const char k = s->token[i].kind;
        if (c_is(s, i, text)) return i;
        if (k == '(' || k == '[' || k == '{') i = c_close(s, i);
    }
    return -1;
}

/* `x->child` and `x->next` of a list's element; any other member by its name. */
static inline void rp_eval_member(rp_lint *l, const c_source *s, int begin, int end, int depth, rp_set *set) {
    if (c_is(s, end - 1, "child"))
        rp_visit_elements(l, s, begin, end - 2, depth, set);
    else if (c_is(s, end - 1, "next") || c_is(s, end - 1, "prev"))
        rp_visit_value(l, s, begin, end - 2, depth, set);
    else
        rp_by_name(l, s, end - 1, set);
}

/* Where the value of an expression may be. NULL is nowhere. */
static inline void rp_eval(rp_lint *l, const c_source *s, int begin, int end, int depth, rp_set *set) {
    rp_clear(set);
    while (begin < end && (c_is(s, begin, "*") || c_is(s, begin, "&"))) begin++;
    if (begin < end && c_is(s, begin, "(")) {
        const int close = c_close(s, begin);
        if (close == end - 1 || c_is(s, begin + 1, "cJSON") || c_is(s, begin + 2, "cJSON")) {
            rp_eval(l, s, close == end - 1 ? begin + 1 : close + 1, close == end - 1 ? close : end, depth,
                    set);
            return;
        }
    }
    if (depth > RP_DEPTH || begin >= end || c_is(s, begin, "NULL")) return;
    const int question = rp_outside(s, begin, end, "?");
    if (question >= 0) {
        const int colon = rp_outside(s, question, end, ":");
        rp_visit_value(l, s, question + 1, colon, depth, set);
        rp_visit_value(l, s, colon + 1, end, depth, set);
    } else if (begin + 1 == end && s->token[begin].kind == 'a') {
        rp_eval_name(l, s, begin, depth + 1, set);
    } else if (s->token[begin].kind == 'a' && c_is(s, begin + 1, "(") && c_close(s, begin + 1) == end - 1) {
        rp_eval_call(l, s, begin, depth + 1, set);
    } else if (end - begin > 2 && s->token[end - 1].kind == 'a' &&
               (c_is(s, end - 2, "->") || c_is(s, end - 2, "."))) {
        rp_eval_member(l, s, begin, end, depth + 1, set);
    } else {
        set->any = true;
    }
}

/* ---- which paths ----------------------------------------------------------------------------- */

typedef struct rp_list {
    char **path;
    int count, most;
    bool unknown, dynamic;
} rp_list;

static inline void rp_add_path(rp_list *list, const c_source *s, int begin, int end) {
    char text[256] = "";
    size_t used = 0;
    if (c_is(s, begin, "NULL")) return;
    for (int i = begin; i < end; i++) {
        const size_t n = (size_t)s->token[i].length - 2;
        if (s->token[i].kind != '"' || used + n >= sizeof text) {
            list->unknown = true;
            return;
        }
        memcpy(text + used, s->token[i].text + 1, n);
        text[used += n] = '\0';
    }
    if (list->count < list->most)
        list->path[list->count++] = strcpy(malloc(strlen(text) + 1), text);
    else
        list->unknown = true;
}

static inline void rp_visit_path(rp_lint *l, const c_source *s, int begin, int end, int depth,
                                 void *argument);

static inline void rp_visit_table(rp_lint *l, const c_source *s, int begin, int end, int depth,
                                  void *argument);

/* Member number of `field` of the struct that the source calls `type`; -1: not found. */
static inline int rp_field(const c_source *s, int type, int field) {
    for (int i = 1; i + 1 < s->tokens; i++) {
        if (!c_same(s, i, s, type) || !c_is(s, i + 1, ";") || !c_is(s, i - 1, "}")) continue;
        int open = i - 1;
        while (open > 0 && c_close(s, open) != i - 1) open--;
        for (int k = open + 1, number = 0; k < i - 1; k++) {
            if (c_is(s, k, "(") || c_is(s, k, "[")) k = c_close(s, k);
            const bool ends = c_is(s, k + 1, ";") || c_is(s, k + 1, ",") || c_is(s, k + 1, "[");
            if (ends && c_same(s, k, s, field)) return number;
            number += c_is(s, k, ";") || c_is(s, k, ",");
        }
    }
    return -1;
}

/* Literals of a table; of element or member `wanted` of each row, if it is not negative. */
static inline void rp_table(const c_source *s, int open, int wanted, rp_list *list) {
    const int close = c_close(s, open);
    for (int at = open + 1; at < close;) {
        const int end = c_expression_end(s, at, close);
        if (wanted < 0) {
            rp_add_path(list, s, at, end);
        } else if (c_is(s, at, "{")) {
            int begin = at + 1, stop = c_expression_end(s, begin, end - 1);
            for (int k = 0; k < wanted && stop < end - 1; k++) {
                begin = stop + 1;
                stop = c_expression_end(s, begin, end - 1);
            }
            rp_add_path(list, s, begin, stop);
        }
        at = end + 1;
    }
}

/* The table that the file calls like the identifier at `name`: the last before it, in its function or
 * outside of all; the token of its name, and *open: its first bracket. -1: none. */
static inline int rp_find_table(const c_source *s, int name, int *open) {
    int found = -1;
    for (int i = 1; i < name; i++) {
        if (!c_same(s, i, s, name) || !c_is(s, i + 1, "[")) continue;
        const c_function *f = c_function_at(s, i);
        int at = i + 1;
        while (c_is(s, at, "[")) at = c_close(s, at) + 1;
        if (!c_is(s, at, "=") || !c_is(s, at + 1, "{") || (f && f != c_function_at(s, name))) continue;
        found = i;
        *open = at + 1;
    }
    return found;
}

/* The type of the variable or table whose name is at `name`, where it is declared: the token before. */
static inline int rp_type_of(const c_source *s, int name) {
    int type = name - 1;
    while (c_is(s, type, "*") || c_is(s, type, "const")) type--;
    return type;
}

/* name[...], name[...][2], name[...].field: a table of the file, or one that is passed for a parameter. */
static inline void rp_indexed(rp_lint *l, const c_source *s, int begin, int end, int depth, rp_list *list) {
    const c_function *f = c_function_at(s, begin);
    const int after = c_close(s, begin + 1) + 1, param = c_param(s, f, begin);
    int open = -1, wanted = -1;
    if (param >= 0 && after == end) {
        list->unknown |= rp_each_argument(l, s, f, param, depth + 1, rp_visit_table, list) == 0;
        return;
    }
    const int table = rp_find_table(s, begin, &open);
    if (table < 0) {
        list->unknown = true;
        return;
    }
    if (c_is(s, after, "[")) wanted = atoi(s->token[after + 1].text);
    if (c_is(s, after, ".")) {
        wanted = rp_field(s, rp_type_of(s, table), end - 1);
        list->unknown |= wanted < 0;
    }
    rp_table(s, open, wanted, list);
}

/* A table whose name is passed to a function. */
static inline void rp_visit_table(rp_lint *l, const c_source *s, int begin, int end, int depth,
                                  void *argument) {
    rp_list *list = argument;
    int open;
    (void)l, (void)depth;
    if (end == begin + 1 && rp_find_table(s, begin, &open) >= 0)
        rp_table(s, open, -1, list);
    else
        list->unknown = true;
}

/* Member `wanted` of the initializer that begins at `open`. */
static inline void rp_initial(rp_lint *l, const c_source *s, int open, int wanted, int depth, rp_list *list) {
    int at = open + 1, stop = c_expression_end(s, at, c_close(s, open));
    for (int k = 0; k < wanted; k++) {
        at = stop + 1;
        stop = c_expression_end(s, at, c_close(s, open));
    }
    rp_visit_path(l, s, at, stop, depth + 1, list);
}

/* p->field: what all structs of p's type are made with in the file; v.field: what v is made with. */
static inline void rp_made_with(rp_lint *l, const c_source *s, int begin, int end, int depth, rp_list *list) {
    const c_function *f = c_function_at(s, begin);
    const bool points = c_is(s, begin + 1, "->");
    const int param = points ? c_param(s, f, begin) : -1;
    int made = 0;
    for (int i = 1; i + 2 < s->tokens && (param >= 0 || !points); i++) {
        const int type = points ? rp_type_of(s, f->param[param]) : i - 1;
        const bool is_it = points ? c_same(s, i - 1, s, type) : c_same(s, i, s, begin);
        if (!is_it || !c_is(s, i + 1, "=") || !c_is(s, i + 2, "{")) continue;
        const int wanted = rp_field(s, type, end - 1);
        if (wanted < 0) continue;
        made++;
        rp_initial(l, s, i + 2, wanted, depth, list);
    }
    list->unknown |= made == 0;
}

/* Keys that a document itself has, or that an enumeration has, which a test compares with the schema. */
static inline bool rp_is_dynamic(const c_source *s, int begin, int end) {
    return (end - begin == 3 && c_is(s, end - 2, "->") && c_is(s, end - 1, "string")) ||
           c_is(s, begin, "ab_mem_category_name");
}

static inline void rp_visit_path(rp_lint *l, const c_source *s, int begin, int end, int depth,
                                 void *argument) {
    rp_list *list = argument;
    const int question = rp_outside(s, begin, end, "?");
    const c_function *f = c_function_at(s, begin);
    if (begin >= end || depth > RP_DEPTH) {
        list->unknown = true;
    } else if (c_is(s, begin, "NULL")) {
        return;
    } else if (question >= 0) {
        const int colon = rp_outside(s, question, end, ":");
        rp_visit_path(l, s, question + 1, colon, depth, list);
        rp_visit_path(l, s, colon + 1, end, depth, list);
    } else if (s->token[begin].kind == '"') {
        rp_add_path(list, s, begin, end);
    } else if (end == begin + 1 && s->token[begin].kind == 'a') {
        int found = rp_each_assignment(l, s, begin, depth + 1, rp_visit_path, NULL, list);
        const int param = c_param(s, f, begin);
        if (param >= 0) found += rp_each_argument(l, s, f, param, depth + 1, rp_visit_path, list);
        list->unknown |= found == 0;
    } else if (s->token[begin].kind == 'a' && c_is(s, begin + 1, "[")) {
        rp_indexed(l, s, begin, end, depth, list);
    } else if (rp_is_dynamic(s, begin, end)) {
        list->dynamic = true;
    } else if (end - begin == 3 && (c_is(s, begin + 1, "->") || c_is(s, begin + 1, "."))) {
        rp_made_with(l, s, begin, end, depth, list);
    } else {
        list->unknown = true;
    }
}

/* All paths that an expression may be (from malloc), or -1: not only literals; RP_DYNAMIC: keys that a
 * document itself has. */
static inline int rp_paths(rp_lint *l, const c_source *s, int begin, int end, int depth, char **path,
                           int most) {
    rp_list list = {.path = path, .most = most};
    rp_visit_path(l, s, begin, end, depth, &list);
    if (!list.unknown && !list.dynamic) return list.count;
    while (list.count > 0) free(path[--list.count]);
    return list.unknown ? -1 : RP_DYNAMIC;
}

/* ---- the lint -------------------------------------------------------------------------------- */

/* Walks a path; false if it does not exist below `from`. */
static inline bool rp_walk(const rp_lint *l, const rp_set *from, const char *path, rp_set *to) {
    char key[256];
    rp_set *next = malloc(sizeof *next);
    rp_copy(to, from);
    while (*path) {
        const size_t length = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)length, path);
        rp_member(l, to, key, next);
        rp_copy(to, next);
        path += length + (path[length] == '.');
    }
    free(next);
    return to->count > 0;
}

/* Texts that people see where there is none, and numbers that say nothing: 0, -1. */
static inline bool rp_is_neutral(const c_source *s, int begin, int end) {
    static const char *const texts[] = {
        "\"\"", "\"?\"", "\"-\"", "\"documents\"", "\"void\"", "\"the documents\"", "\"no reason recorded\""};
    char text[80];
    if (c_is(s, end - 1, "0") || (c_is(s, begin, "-") && c_is(s, begin + 1, "1"))) return true;
    snprintf(text, sizeof text, "%.*s", s->token[begin].length, s->token[begin].text);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(text, texts[i]) == 0) return true;
    return false;
}

/* Whether a literal fallback is what the schema says that a missing key means ("default"). */
static inline bool rp_is_default(const c_source *s, int begin, int end, const cJSON *meaning) {
    if (cJSON_IsNumber(meaning))
        return end == begin + 1 && atof(s->token[begin].text) == meaning->valuedouble;
    return cJSON_IsString(meaning) && (size_t)s->token[begin].length == strlen(meaning->valuestring) + 2 &&
           strncmp(s->token[begin].text + 1, meaning->valuestring, strlen(meaning->valuestring)) == 0;
}

/* A key that every document has is never missing. */
static inline bool rp_is_always_there(const cJSON *object, const char *key, const cJSON *value) {
    const cJSON *name, *type = rp_key(value, "type"), *word;
    cJSON_ArrayForEach(word, type) {
        if (strcmp(word->valuestring, "null") == 0) return false;
    }
    cJSON_ArrayForEach(name, rp_key(object, "required")) {
        if (strcmp(name->valuestring, key) == 0) return true;
    }
    return false;
}

/* A literal fallback says nothing, or what the schema says. Fallbacks that are computed, NAN and NULL are
 * the reader's. */
static inline bool rp_fallback_agrees(rp_lint *l, const c_source *s, int begin, int end,
                                      const rp_set *parents, const char *key) {
    for (int i = 0; i < parents->count; i++) {
        const int document = parents->node[i].document;
        const cJSON *object = rp_resolve(l, parents->node[i].schema, document),
                    *member = rp_key(rp_key(object, "properties"), key);
        if (!member) continue;
        const cJSON *meaning = rp_key(member, "default");
        const bool says_nothing = rp_is_neutral(s, begin, end) && (!meaning || s->token[begin].kind == '"');
        if (says_nothing || rp_is_default(s, begin, end, meaning)) return true;
        if (rp_is_always_there(object, key, rp_resolve(l, member, document))) return true;
    }
    return false;
}

static inline void rp_check_fallback(rp_lint *l, const c_source *s, int at, const rp_set *root,
                                     const char *path) {
    char parent[256];
    int begin, end;
    const char *dot = strrchr(path, '.'), *key = dot ? dot + 1 : path;
    if (!c_argument(s, at, 2, &begin, &end)) return;
    const int literal = c_is(s, begin, "-") ? begin + 1 : begin;
    if (end != literal + 1 || (s->token[literal].kind != '0' && s->token[literal].kind != '"')) return;
    rp_set *parents = malloc(sizeof *parents);
    snprintf(parent, sizeof parent, "%.*s", dot ? (int)(dot - path) : 0, path);
    if (dot)
        rp_walk(l, root, parent, parents);
    else
        rp_copy(parents, root->any ? &l->objects : root);
    l->fallbacks++;
    if (!rp_fallback_agrees(l, s, begin, end, parents, key))
        rp_violation(l, s, at, "\"%s\": the fallback is not what the schema says that a missing value means",
                     path);
    free(parents);
}

static inline void rp_check_path(rp_lint *l, const c_source *s, int at, const rp_set *root, const char *path,
                                 const char *type) {
    rp_set *found = malloc(sizeof *found);
    l->paths++;
    l->rooted += !root->any;
    if (!rp_walk(l, root, path, found))
        rp_violation(l, s, at, "\"%s\" is in no schema%s", path,
                     root->any ? "" : " below what it is looked up in");
    else if (type && !rp_some_has_type(l, found, type))
        rp_violation(l, s, at, "\"%s\" is no %s in the schema", path, type);
    else
        rp_check_fallback(l, s, at, root, path);
    free(found);
}

static inline void rp_check_lookup(rp_lint *l, const c_source *s, int at, const char *type) {
    char *path[RP_PATHS];
    int begin, end;
    rp_set *root = malloc(sizeof *root);
    l->lookups++;
    if (!c_argument(s, at, 1, &begin, &end)) {
        free(root);
        return;
    }
    const int paths = rp_paths(l, s, begin, end, 0, path, RP_PATHS);
    if (paths == RP_DYNAMIC) l->dynamic++;
    if (paths == -1)
        rp_violation(l, s, at, "a path that does not come from literals (%.*s)", s->token[end - 1].length,
                     s->token[end - 1].text);
    if (c_argument(s, at, 0, &begin, &end)) rp_eval(l, s, begin, end, 0, root);
    root->any |= root->count == 0;
    for (int i = 0; i < paths; i++) {
        rp_check_path(l, s, at, root, path[i], type ? type : rp_outer_type(s, at));
        free(path[i]);
    }
    free(root);
}

static inline void rp_check_source(rp_lint *l, const c_source *s) {
    const char *type;
    for (int i = 0; i < s->tokens; i++)
        if (c_function_at(s, i) && rp_is_lookup(s, i, &type)) rp_check_lookup(l, s, i, type);
}

/* Frees schemas, sources and calls; the lint is empty then. */
static inline void rp_free(rp_lint *l) {
    for (int i = 0; i < l->schemas; i++) cJSON_Delete(l->schema[i]);
    for (int i = 0; i < l->sources; i++) c_free(&l->source[i]);
    free(l->call);
    memset(l, 0, sizeof *l);
}

#endif
