/* Mutates inputs of one or several JSON values as trees, so that most of them are still well-formed: numbers
 * become extreme, values change type, members are deleted, repeated, renamed and exchanged, also between
 * inputs. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_VALUES = 8, MOST_NODES = 8192, TEXT = 512 };

typedef struct node {
    cJSON *value, *parent; /* parent NULL: one of the input's values */
} node;

typedef struct tree {
    cJSON *value[MOST_VALUES];
    int values;
    node *node; /* [MOST_NODES] */
    int nodes;
} tree;

/* ---- trees ----------------------------------------------------------------------------------- */

static void list_nodes(tree *t, cJSON *value, cJSON *parent) {
    if (t->nodes == MOST_NODES) return;
    t->node[t->nodes++] = (node){value, parent};
    for (cJSON *child = value->child; child; child = child->next) list_nodes(t, child, value);
}

static void free_tree(tree *t) {
    for (int i = 0; i < t->values; i++) cJSON_Delete(t->value[i]);
}

/* False if the input is not JSON. `nodes` is memory for t->node. */
static bool parse_tree(tree *t, const uint8_t *data, size_t size, node *nodes) {
    const char *at = (const char *)data, *end = at + size;
    *t = (tree){.node = nodes};
    for (cJSON *value; t->values < MOST_VALUES && (value = fuzz_next_json(&at, end));)
        t->value[t->values++] = value;
    for (int i = 0; i < t->values; i++) list_nodes(t, t->value[i], NULL);
    return t->nodes > 0;
}

/* Writes the values to data[most], one a line; 0: no space. */
static size_t print_tree(const tree *t, uint8_t *data, size_t most) {
    char *text = malloc(most + 16); /* cJSON wants a few bytes more than it writes */
    size_t size = 0;
    for (int i = 0; text && i < t->values; i++) {
        if (!cJSON_PrintPreallocated(t->value[i], text + size, (int)(most + 16 - size), 0)) {
            size = most + 1;
            break;
        }
        size += strlen(text + size);
        if (size < most && i + 1 < t->values) text[size++] = '\n';
        if (size > most) break;
    }
    if (text && size <= most) memcpy(data, text, size);
    free(text);
    return text && size <= most ? size : 0;
}

/* Puts `other` (owned) in the place of a node. */
static void replace(tree *t, const node *n, cJSON *other) {
    if (!other) return;
    if (n->parent) {
        if (n->value->string) {
            cJSON_free(other->string);
            const size_t length = strlen(n->value->string) + 1;
            other->string = cJSON_malloc(length);
            memcpy(other->string, n->value->string, length);
        }
        cJSON_ReplaceItemViaPointer(n->parent, n->value, other);
        return;
    }
    for (int i = 0; i < t->values; i++)
        if (t->value[i] == n->value) {
            cJSON_Delete(n->value);
            t->value[i] = other;
            return;
        }
    cJSON_Delete(other);
}

static cJSON *copy(const cJSON *value) { return cJSON_Duplicate(value, 1); }

static const node *node_of(const tree *t, const cJSON *value) {
    for (int i = 0; i < t->nodes; i++)
        if (t->node[i].value == value) return &t->node[i];
    return &t->node[0];
}

/* Any node; half of the time by a walk from the top, so that long arrays do not take nearly all changes. */
static const node *any_node(const tree *t, unsigned *state) {
    if (fuzz_random(state, 2)) return &t->node[fuzz_random(state, (unsigned)t->nodes)];
    const cJSON *value = t->value[fuzz_random(state, (unsigned)t->values)];
    for (int size = cJSON_GetArraySize(value); size > 0; size = cJSON_GetArraySize(value)) {
        value = cJSON_GetArrayItem(value, (int)fuzz_random(state, (unsigned)size));
        if (fuzz_random(state, 16) == 0) break;
    }
    return node_of(t, value);
}

/* Some other node with the key of `n`, or any. */
static const node *like(const tree *t, const node *n, unsigned *state) {
    const int start = (int)fuzz_random(state, (unsigned)t->nodes);
    for (int i = 0; n->value->string && i < t->nodes; i++) {
        const node *other = &t->node[(start + i) % t->nodes];
        if (other != n && other->value->string && strcmp(other->value->string, n->value->string) == 0)
            return other;
    }
    return &t->node[start];
}

/* ---- mutations ------------------------------------------------------------------------------- */

static void exchange_number(tree *t, const node *n, unsigned *state) {
    static const char *const extremes[] = {"0",
                                           "-0",
                                           "1",
                                           "-1",
                                           "2",
                                           "0.5",
                                           "3",
                                           "1e-3",
                                           "255",
                                           "256",
                                           "65504",
                                           "65536",
                                           "1e-8",
                                           "1e-45",
                                           "1e-320",
                                           "5e-324",
                                           "1e38",
                                           "3.5e38",
                                           "1e300",
                                           "-1e300",
                                           "1e308",
                                           "1e999",
                                           "-1e999",
                                           "2147483647",
                                           "2147483648",
                                           "-2147483648",
                                           "4294967296",
                                           "9007199254740991",
                                           "9007199254740992",
                                           "9007199254740993",
                                           "9223372036854775807",
                                           "18446744073709551616",
                                           "-9223372036854775809",
                                           "0.1",
                                           "-0.5",
                                           "100",
                                           "1000",
                                           "10000000"};
    const double x = cJSON_IsNumber(n->value) ? n->value->valuedouble : 1;
    const double near[] = {x + 1, x - 1, -x, x * 2, x / 2, x * 10, x + 0.5, 1 / (x + 1)};
    const unsigned way = fuzz_random(state, 2);
    if (way)
        replace(t, n, cJSON_CreateRaw(extremes[fuzz_random(state, sizeof extremes / sizeof *extremes)]));
    else
        replace(t, n, cJSON_CreateNumber(near[fuzz_random(state, sizeof near / sizeof *near)]));
}

static void exchange_string(tree *t, const node *n) {
    char text[TEXT] = "";
    if (cJSON_IsString(n->value)) {
        const size_t length = strlen(n->value->valuestring);
        memcpy(text, n->value->valuestring, length < TEXT - 1 ? length : TEXT - 1);
    }
    const size_t length = LLVMFuzzerMutate((uint8_t *)text, strlen(text), TEXT - 1);
    text[length] = '\0';
    replace(t, n, cJSON_CreateString(text));
}

static void exchange_type(tree *t, const node *n, unsigned *state) {
    switch (fuzz_random(state, 8)) {
    case 0:
        replace(t, n, cJSON_CreateNull());
        break;
    case 1:
        replace(t, n, cJSON_CreateTrue());
        break;
    case 2:
        replace(t, n, cJSON_CreateFalse());
        break;
    case 3:
        replace(t, n, cJSON_CreateString(""));
        break;
    case 4:
        replace(t, n, cJSON_CreateArray());
        break;
    case 5:
        replace(t, n, cJSON_CreateObject());
        break;
    case 6:
        replace(t, n, cJSON_CreateNumber(0));
        break;
    default:
        replace(t, n, copy(any_node(t, state)->value));
        break;
    }
}

/* A value of the kind that the node has. */
static void exchange_value(tree *t, const node *n, unsigned *state) {
    if (cJSON_IsNumber(n->value))
        exchange_number(t, n, state);
    else if (cJSON_IsString(n->value))
        exchange_string(t, n);
    else if (cJSON_IsBool(n->value))
        replace(t, n, cJSON_CreateBool(!cJSON_IsTrue(n->value)));
    else
        replace(t, n, copy(like(t, n, state)->value));
}

static void delete_node(tree *t, const node *n) {
    if (n->parent) {
        cJSON_Delete(cJSON_DetachItemViaPointer(n->parent, n->value));
        return;
    }
    for (int i = 0; t->values > 1 && i < t->values; i++)
        if (t->value[i] == n->value) {
            cJSON_Delete(n->value);
            t->value[i] = t->value[--t->values];
            return;
        }
}

/* Repeats the node `times` times at the end of what holds it. */
static void repeat_node(tree *t, const node *n, int times) {
    if (!n->parent && t->values < MOST_VALUES) t->value[t->values++] = copy(n->value);
    for (int i = 0; n->parent && i < times; i++) {
        cJSON *again = copy(n->value);
        if (cJSON_IsArray(n->parent) ? !cJSON_AddItemToArray(n->parent, again)
                                     : !cJSON_AddItemToObject(n->parent, n->value->string, again))
            cJSON_Delete(again);
    }
}

static void rename_node(tree *t, const node *n, unsigned *state) {
    char text[TEXT] = "";
    const node *other = any_node(t, state);
    if (!n->value->string) return;
    const char *from = other->value->string ? other->value->string : n->value->string;
    const size_t length = strlen(from);
    memcpy(text, from, length < TEXT - 1 ? length : TEXT - 1);
    if (other == n || fuzz_random(state, 4) == 0)
        text[LLVMFuzzerMutate((uint8_t *)text, strlen(text), TEXT - 1)] = '\0';
    cJSON_free(n->value->string);
    n->value->string = cJSON_malloc(strlen(text) + 1);
    strcpy(n->value->string, text);
}

/* Cuts or rotates the children of a node. */
static void cut_children(const node *n, unsigned *state) {
    const int size = cJSON_GetArraySize(n->value);
    if (size == 0) return;
    const int keep = (int)fuzz_random(state, (unsigned)size);
    if (fuzz_random(state, 2))
        for (int i = size; i > keep; i--) cJSON_DeleteItemFromArray(n->value, i - 1);
    else
        cJSON_AddItemToArray(n->value, cJSON_DetachItemFromArray(n->value, keep));
}

/* A change that a checked document mostly survives: a number of about the same size, or a value of the same
 * type that stands elsewhere under the same key. */
static void mutate_gently(tree *t, unsigned *state) {
    const node *n = any_node(t, state);
    for (int i = 0; i < 8 && (n->value->child || !n->parent); i++) n = any_node(t, state);
    const node *other = like(t, n, state);
    const double x = cJSON_IsNumber(n->value) ? n->value->valuedouble : 0;
    const double near[] = {x + 1, x * 1.001, x / 2, x * 2, x * 1e4, x - 1, 0, 1};
    if (!n->parent) return;
    if (cJSON_IsNumber(n->value) && (fuzz_random(state, 2) || !n->value->string))
        replace(t, n, cJSON_CreateNumber(near[fuzz_random(state, sizeof near / sizeof *near)]));
    else if (cJSON_IsBool(n->value))
        replace(t, n, cJSON_CreateBool(!cJSON_IsTrue(n->value)));
    else if (n->value->string && other->value->string && strcmp(n->value->string, other->value->string) == 0)
        replace(t, n, copy(other->value));
    else if (cJSON_IsString(n->value))
        exchange_string(t, n);
}

static void mutate_once(tree *t, unsigned *state) {
    const node *n = any_node(t, state);
    switch (fuzz_random(state, 16)) {
    case 0:
    case 1:
        delete_node(t, n);
        break;
    case 2:
        repeat_node(t, n, 1 + (int)fuzz_random(state, 3));
        break;
    case 3:
        rename_node(t, n, state);
        break;
    case 4:
        cut_children(n, state);
        break;
    case 5:
        exchange_type(t, n, state);
        break;
    case 6:
    case 7:
        replace(t, n, copy(like(t, n, state)->value));
        break;
    default:
        exchange_value(t, n, state);
        break;
    }
}

/* ---- entry points ---------------------------------------------------------------------------- */

size_t fuzz_mutate_json(uint8_t *data, size_t size, size_t most, unsigned seed) {
    static node nodes[MOST_NODES];
    tree t;
    unsigned state = seed;
    if (!parse_tree(&t, data, size, nodes)) return LLVMFuzzerMutate(data, size, most);
    const bool gently = fuzz_random(&state, 4) != 0;
    /* A node that was replaced must not be used again, so the nodes are listed anew. */
    for (unsigned changes = 1u << (gently ? 0 : fuzz_random(&state, 3)); changes > 0; changes--) {
        if (gently)
            mutate_gently(&t, &state);
        else
            mutate_once(&t, &state);
        t.nodes = 0;
        for (int i = 0; i < t.values; i++) list_nodes(&t, t.value[i], NULL);
    }
    size_t written = print_tree(&t, data, most);
    free_tree(&t);
    return written ? written : LLVMFuzzerMutate(data, size, most);
}

size_t fuzz_cross_json(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t *out,
                       size_t most, unsigned seed) {
    static node a_nodes[MOST_NODES], b_nodes[MOST_NODES];
    tree left, right;
    unsigned state = seed;
    size_t written = 0;
    const bool left_parsed = parse_tree(&left, a, a_size, a_nodes);
    if (parse_tree(&right, b, b_size, b_nodes) && left_parsed) {
        const node *from = any_node(&right, &state);
        replace(&left, like(&left, from, &state), copy(from->value));
        written = print_tree(&left, out, most);
    }
    free_tree(&left);
    free_tree(&right);
    return written;
}
