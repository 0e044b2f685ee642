/* The walk and the constructors that it interprets. */
#include "bench/tensorfile/pt_walk.h"

#include "bench/tensorfile/json_scan.h"
#include "kernels/core/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WRAPPERS = 8, KEY_TEXT = 64, OBJECT_TEXT = 256 };

static const ab_pt_type types[] = {
#define AB_PT_TYPE(dtype, storage, element) {#storage, #dtype, #dtype, AB_ELEMENT_##element},
#include "bench/tensorfile/pt_types.def"
#undef AB_PT_TYPE
};

/* What is inside a container: items, the arguments of a call, its state. */
typedef enum inside { ITEMS, PAIRS, ARGUMENTS, STATE, INSIDES } inside;

typedef struct frame {
    uint32_t node;   /* whose parts are walked */
    uint32_t next;   /* item */
    uint32_t length; /* of the name so far */
    uint8_t part;    /* inside */
    bool module;     /* the state of a torch module: its parts have the names of a state dict */
    bool quiet;      /* arguments: numbers and texts are no values */
    bool nameless;   /* nested too deep for a name */
} frame;

typedef struct walk {
    const ab_pickle *tree;
    const ab_pt_visitor *visitor;
    char name[AB_PT_NAME + 1];
    uint8_t *entered; /* by node: its contents were walked, or will be */
    frame *frame;
    size_t frames, room;
} walk;

/* ---- nodes ----------------------------------------------------------------------------------- */

static const ab_pickle_node *at(const walk *w, uint32_t id) { return ab_pickle_at(w->tree, id); }

static uint32_t item(const walk *w, uint32_t id, uint32_t i) { return ab_pickle_item(w->tree, id, i); }

static uint32_t function_of(const walk *w, uint32_t id) {
    return ab_pickle_part_of(w->tree, id, AB_PICKLE_FUNCTION);
}

static uint32_t arguments_of(const walk *w, uint32_t id) {
    return ab_pickle_part_of(w->tree, id, AB_PICKLE_ARGUMENTS);
}

static bool calls(const walk *w, uint32_t id, const char *name) {
    return ab_pickle_is_global(w->tree, function_of(w, id), name);
}

static int among(const walk *w, uint32_t global, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (ab_pickle_is_global(w->tree, global, names[i])) return (int)i;
    return -1;
}

static bool integer(const walk *w, uint32_t id, int64_t *value) {
    *value = at(w, id)->as.integer;
    return at(w, id)->kind == AB_PICKLE_INTEGER;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Bytes that are no UTF-8 and NUL become ?, as names are printed and compared as texts. */
static void make_valid(char *text, size_t length) {
    size_t bad;
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\0') text[i] = '?';
    for (size_t from = 0; !ab_utf8_valid(text + from, length - from, &bad); from += bad + 1)
        text[from + bad] = '?';
}

/* Adds a part to the name of `length` bytes; false if it becomes too long. */
static bool add_part(walk *w, uint32_t *length, const char *text, size_t bytes) {
    const size_t dot = *length > 0;
    if (bytes > AB_PT_NAME - dot || *length > AB_PT_NAME - dot - bytes) return false;
    if (dot) w->name[*length] = '.';
    memcpy(w->name + *length + dot, text, bytes);
    make_valid(w->name + *length + dot, bytes);
    *length += (uint32_t)(dot + bytes);
    w->name[*length] = '\0';
    return true;
}

static bool add_number(walk *w, uint32_t *length, int64_t number) {
    char text[KEY_TEXT];
    return add_part(w, length, text, ab_text_show(text, sizeof text, "%" PRId64, number));
}

/* Key `place` of a mapping, or its place for keys that are no texts and no numbers. */
static bool add_key(walk *w, uint32_t *length, uint32_t key, uint32_t place) {
    const ab_pickle_node *node = at(w, key);
    char text[KEY_TEXT];
    if (node->kind == AB_PICKLE_TEXT || node->kind == AB_PICKLE_BYTES)
        return add_part(w, length, (const char *)node->as.bytes, node->count);
    if (node->kind == AB_PICKLE_INTEGER || node->kind == AB_PICKLE_BOOL)
        return add_number(w, length, node->as.integer);
    return add_part(w, length, text, ab_text_show(text, sizeof text, "#%u", (unsigned)place));
}

/* "module.name" of a global, cut at the size of `text`, which messages show. */
static void global_text(const walk *w, uint32_t global, char text[OBJECT_TEXT]) {
    const ab_pickle_node *module = at(w, item(w, global, 0)), *name = at(w, item(w, global, 1));
    if (at(w, global)->kind != AB_PICKLE_GLOBAL) {
        ab_text_show(text, OBJECT_TEXT, "an object");
        return;
    }
    const size_t length =
        ab_text_show(text, OBJECT_TEXT, "%.*s.%.*s", (int)(module->count < 100 ? module->count : 100),
                     (const char *)module->as.bytes, (int)(name->count < 100 ? name->count : 100),
                     (const char *)name->as.bytes);
    make_valid(text, length < OBJECT_TEXT ? length : OBJECT_TEXT - 1);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static ab_status no_tensor(const walk *w, const char *expected) {
    char name[AB_TENSORFILE_TEXT];
    return ab_fail(AB_INPUT, "tensor \"%s\": expected %s", ab_tensor_printable(w->name, name), expected);
}

static const ab_pt_type *type_named(const ab_pickle_node *name, bool storage) {
    for (size_t i = 0; i < AB_COUNT_OF(types); i++) {
        const char *own = storage ? types[i].storage : types[i].dtype;
        if (strlen(own) == name->count && memcmp(own, name->as.bytes, name->count) == 0) return &types[i];
    }
    return NULL;
}

/* ('storage', class, key, location, elements[, view]) is the identity of a storage. */
bool ab_pt_storage(const ab_pickle *tree, uint32_t node, ab_pt_tensor *tensor) {
    const uint32_t id = ab_pickle_item(tree, node, 0), class = ab_pickle_item(tree, id, 1),
                   view = ab_pickle_item(tree, id, 5);
    const ab_pickle_node *key = ab_pickle_at(tree, ab_pickle_item(tree, id, 2)),
                         *stored = ab_pickle_at(tree, ab_pickle_item(tree, id, 4)),
                         *start = ab_pickle_at(tree, ab_pickle_item(tree, view, 1));
    if (ab_pickle_at(tree, node)->kind != AB_PICKLE_OUTSIDE ||
        !ab_pickle_is_text(tree, ab_pickle_item(tree, id, 0), "storage") ||
        ab_pickle_at(tree, class)->kind != AB_PICKLE_GLOBAL || key->kind != AB_PICKLE_TEXT ||
        stored->kind != AB_PICKLE_INTEGER || stored->as.integer < 0)
        return false;
    tensor->key = key->as.bytes;
    tensor->key_bytes = key->count;
    tensor->stored = stored->as.integer;
    tensor->view = start->kind == AB_PICKLE_INTEGER ? start->as.integer : 0;
    tensor->type = type_named(ab_pickle_at(tree, ab_pickle_item(tree, class, 1)), true);
    return tensor->view >= 0 &&
           (tensor->type || ab_pickle_is_text(tree, ab_pickle_item(tree, class, 1), "UntypedStorage"));
}

/* A tuple of integers, or torch.Size of one; -1: it is neither. */
static int read_sizes(const walk *w, uint32_t id, int64_t sizes[AB_TENSORFILE_MAX_DIMS]) {
    if (calls(w, id, "torch.Size")) id = item(w, arguments_of(w, id), 0);
    const ab_pickle_node *tuple = at(w, id);
    if ((tuple->kind != AB_PICKLE_TUPLE && tuple->kind != AB_PICKLE_LIST) ||
        tuple->count > AB_TENSORFILE_MAX_DIMS)
        return -1;
    for (uint32_t i = 0; i < tuple->count; i++)
        if (!integer(w, item(w, id, i), &sizes[i])) return -1;
    return (int)tuple->count;
}

/* The dtype that _rebuild_tensor_v3 names, of a storage counted in bytes. */
static ab_status read_dtype(const walk *w, uint32_t arguments, ab_pt_tensor *tensor) {
    const uint32_t dtype = item(w, arguments, 6);
    if (at(w, dtype)->kind == AB_PICKLE_GLOBAL) tensor->type = type_named(at(w, item(w, dtype, 1)), false);
    if (!tensor->type) return no_tensor(w, "a known dtype");
    const int bytes = ab_element_at(tensor->type->element)->bits / 8;
    tensor->stored /= bytes;
    return AB_OK;
}

/* (storage, offset, size, stride, ...): the arguments of _rebuild_tensor and its successors. */
static ab_status read_tensor(const walk *w, uint32_t arguments, ab_pt_tensor *tensor) {
    if (!ab_pt_storage(w->tree, item(w, arguments, 0), tensor))
        return no_tensor(w, "a storage of a known type, with key and size, as torch.save writes it");
    if (!tensor->type) AB_TRY(read_dtype(w, arguments, tensor));
    tensor->ndim = read_sizes(w, item(w, arguments, 2), tensor->dim);
    if (!integer(w, item(w, arguments, 1), &tensor->offset) || tensor->ndim < 0 ||
        read_sizes(w, item(w, arguments, 3), tensor->stride) != tensor->ndim)
        return no_tensor(w, "an offset, a size and a stride of as many dimensions");
    return AB_OK;
}

/* The call that makes a tensor, behind those that wrap one: parameters, subclasses; 0: there is none.
 * *arguments are its own. */
static uint32_t tensor_call(const walk *w, uint32_t id, uint32_t *arguments) {
    static const char *const wrappers[] = {"torch._utils._rebuild_parameter",
                                           "torch._utils._rebuild_parameter_with_state",
                                           "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer"};
    static const char *const makers[] = {"torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor",
                                         "torch._utils._rebuild_tensor_v3"};
    uint32_t function = function_of(w, id);
    *arguments = arguments_of(w, id);
    for (int i = 0; i < MOST_WRAPPERS; i++) {
        if (among(w, function, makers, AB_COUNT_OF(makers)) >= 0) return id;
        if (ab_pickle_is_global(w->tree, function, "torch._tensor._rebuild_from_type_v2")) {
            function = item(w, *arguments, 0);
            *arguments = item(w, *arguments, 2);
        } else if (among(w, function, wrappers, AB_COUNT_OF(wrappers)) >= 0) {
            id = item(w, *arguments, 0);
            function = function_of(w, id);
            *arguments = arguments_of(w, id);
        } else {
            return 0;
        }
    }
    return 0;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static ab_status push(walk *w, const frame *next) {
    if (w->frames == w->room) {
        const size_t room = w->room ? 2 * w->room : 64;
        frame *grown = realloc(w->frame, room * sizeof *grown);
        if (!grown) return ab_fail(AB_NO_MEMORY, "out of memory for the objects of a pickle");
        w->frame = grown;
        w->room = room;
    }
    w->frame[w->frames++] = *next;
    return AB_OK;
}

static bool enter(walk *w, uint32_t id) {
    const bool first = !w->entered[id];
    w->entered[id] = 1;
    return first;
}

static ab_status say(const walk *w, const frame *f, ab_value_kind kind, double number, const char *text,
                     size_t bytes) {
    const ab_tensor_value value = {.kind = kind, .number = number, .text = text, .bytes = bytes};
    if (!w->visitor->value || f->quiet || f->nameless) return AB_OK;
    return w->visitor->value(w->visitor->context, w->name, &value);
}

static ab_status say_object(const walk *w, const frame *f, uint32_t global, ab_value_kind kind) {
    char text[OBJECT_TEXT];
    frame loud = *f;
    loud.quiet = false; /* also in arguments: what would have been called */
    global_text(w, global, text);
    return say(w, kind == AB_VALUE_CALL ? &loud : f, kind, 0, text, strlen(text));
}

static ab_status see_tensor(walk *w, const frame *f, uint32_t call, uint32_t arguments) {
    ab_pt_tensor tensor;
    if (!enter(w, call)) return AB_OK;
    if (f->nameless)
        return ab_fail(AB_INPUT, "a tensor is nested too deep: its name has more than %d bytes", AB_PT_NAME);
    AB_TRY(read_tensor(w, arguments, &tensor));
    return w->visitor->tensor ? w->visitor->tensor(w->visitor->context, w->name, &tensor) : AB_OK;
}

/* Mappings and sequences of Python and PyTorch whose contents are walked as those of a dict or a list. */
static bool is_container(const walk *w, uint32_t function) {
    static const char *const names[] = {"collections.OrderedDict",
                                        "collections.defaultdict",
                                        "collections.Counter",
                                        "collections.deque",
                                        "builtins.dict",
                                        "builtins.list",
                                        "builtins.set",
                                        "__builtin__.set",
                                        "torch.Size"};
    return among(w, function, names, AB_COUNT_OF(names)) >= 0;
}

/* Calls that are plain values in a checkpoint, not worth a note. */
static bool is_plain(const walk *w, uint32_t function) {
    static const char *const names[] = {"torch.device", "_codecs.encode", "torch.serialization._get_layout"};
    return among(w, function, names, AB_COUNT_OF(names)) >= 0;
}

/* Walks into what a call has: its items, its arguments (of a container: [[key, value], ...] or a list), its
 * state. The last one pushed is walked first. */
static ab_status enter_call(walk *w, const frame *f, uint32_t id) {
    const uint32_t function = function_of(w, id), state = ab_pickle_part_of(w->tree, id, AB_PICKLE_STATE),
                   arguments = arguments_of(w, id), only = item(w, arguments, 0);
    const bool container = is_container(w, function);
    frame next = *f;
    next.next = 0;
    next.module = false;
    if (!container && !is_plain(w, function)) AB_TRY(say_object(w, f, function, AB_VALUE_CALL));
    if (state != 0 && (at(w, state)->kind == AB_PICKLE_CALL || enter(w, state))) {
        next.node = state;
        next.part = STATE;
        next.module = ab_pickle_value(w->tree, state, "_modules") != 0 &&
                      ab_pickle_value(w->tree, state, "_parameters") != 0;
        AB_TRY(push(w, &next));
        next.module = false;
    }
    if (at(w, id)->count > 0) {
        next.node = id;
        next.part = ITEMS;
        AB_TRY(push(w, &next));
    }
    if (at(w, arguments)->count == 0 || !enter(w, arguments)) return AB_OK;
    const bool pairs =
        container && (at(w, only)->kind == AB_PICKLE_LIST || at(w, only)->kind == AB_PICKLE_DICT);
    next.node = pairs ? only : arguments;
    next.part = pairs && at(w, only)->kind == AB_PICKLE_LIST ? PAIRS : pairs ? ITEMS : ARGUMENTS;
    next.quiet = f->quiet || !pairs;
    return pairs && !enter(w, only) ? AB_OK : push(w, &next);
}

static ab_status enter_items(walk *w, const frame *f, uint32_t id) {
    frame next = *f;
    next.node = id;
    next.next = 0;
    next.part = ITEMS;
    next.module = false;
    return push(w, &next);
}

/* A torch.Size, each time that it is met: others may share it. */
static ab_status say_shape(const walk *w, const frame *f, uint32_t id) {
    int64_t dim[AB_TENSORFILE_MAX_DIMS];
    const int ndim = read_sizes(w, id, dim);
    const ab_tensor_value value = {.kind = AB_VALUE_SHAPE, .dim = dim, .ndim = ndim};
    if (ndim < 0 || !w->visitor->value || f->quiet || f->nameless) return AB_OK;
    return w->visitor->value(w->visitor->context, w->name, &value);
}

/* What the name belongs to. */
static ab_status see(walk *w, const frame *f, uint32_t id) {
    const ab_pickle_node *node = at(w, id);
    uint32_t arguments, tensor;
    if (node->kind == AB_PICKLE_INTEGER || node->kind == AB_PICKLE_BOOL)
        return say(w, f, AB_VALUE_NUMBER, (double)node->as.integer, NULL, 0);
    if (node->kind == AB_PICKLE_REAL) return say(w, f, AB_VALUE_NUMBER, node->as.real, NULL, 0);
    if (node->kind == AB_PICKLE_TEXT)
        return say(w, f, AB_VALUE_TEXT, 0, (const char *)node->as.bytes, node->count);
    if (node->kind == AB_PICKLE_GLOBAL) return say_object(w, f, id, AB_VALUE_CLASS);
    if (node->kind < AB_PICKLE_TUPLE || node->kind == AB_PICKLE_OUTSIDE) return AB_OK;
    if (node->kind == AB_PICKLE_CALL && (tensor = tensor_call(w, id, &arguments)) != 0)
        return see_tensor(w, f, tensor, arguments);
    if (node->kind == AB_PICKLE_CALL && calls(w, id, "torch.Size")) AB_TRY(say_shape(w, f, id));
    if (!enter(w, id)) return AB_OK;
    return node->kind == AB_PICKLE_CALL ? enter_call(w, f, id) : enter_items(w, f, id);
}

/* Whether a key of a module's state only groups its parts. */
static bool groups_parts(const walk *w, const frame *f, uint32_t key) {
    return f->module &&
           (ab_pickle_is_text(w->tree, key, "_modules") || ab_pickle_is_text(w->tree, key, "_parameters") ||
            ab_pickle_is_text(w->tree, key, "_buffers"));
}

/* The next thing in a frame: sets its key (0: its place is its name) and value; false if there is none. */
static bool next_of(const walk *w, frame *f, uint32_t *key, uint32_t *value) {
    const ab_pickle_node *node = at(w, f->node);
    const bool keyed = node->kind == AB_PICKLE_DICT || (node->kind == AB_PICKLE_CALL && node->keyed);
    *key = 0;
    if (node->kind < AB_PICKLE_TUPLE || f->next + (keyed ? 1 : 0) >= node->count) return false;
    if (keyed) *key = item(w, f->node, f->next++);
    *value = item(w, f->node, f->next++);
    if (f->part != PAIRS || at(w, *value)->count != 2) return true;
    *key = item(w, *value, 0);
    *value = item(w, *value, 1);
    return true;
}

static ab_status step(walk *w) {
    frame *f = &w->frame[w->frames - 1];
    uint32_t key, value, length = f->length;
    const uint32_t place = f->next;
    const bool object = f->part == STATE && at(w, f->node)->kind == AB_PICKLE_CALL;
    if (object || !next_of(w, f, &key, &value)) { /* a state that is an object itself has no items here */
        frame whole = *f;
        w->frames--;
        whole.part = ITEMS;
        w->name[length] = '\0';
        return object ? see(w, &whole, whole.node) : AB_OK;
    }
    frame inner = *f;
    w->name[length] = '\0';
    if (!groups_parts(w, f, key) && !f->nameless)
        inner.nameless = !(key ? add_key(w, &length, key, place / 2) : add_number(w, &length, place));
    inner.length = length;
    return see(w, &inner, value);
}

/* The root itself: a tensor that was saved alone is called "tensor". */
static ab_status begin(walk *w, uint32_t root) {
    frame f = {.part = ITEMS};
    uint32_t arguments;
    if (at(w, root)->kind != AB_PICKLE_CALL || !tensor_call(w, root, &arguments)) return see(w, &f, root);
    (void)add_part(w, &f.length, "tensor", strlen("tensor"));
    return see(w, &f, root);
}

ab_status ab_pt_walk(const ab_pickle *tree, uint32_t root, const ab_pt_visitor *visitor) {
    walk *w = calloc(1, sizeof *w);
    uint8_t *entered = calloc((size_t)tree->nodes + 1, 1);
    ab_status status =
        w && entered ? AB_OK : ab_fail(AB_NO_MEMORY, "out of memory for the objects of a pickle");
    if (status == AB_OK) {
        w->tree = tree;
        w->visitor = visitor;
        w->entered = entered;
        status = begin(w, root);
        while (status == AB_OK && w->frames > 0) status = step(w);
        free(w->frame);
    }
    free(entered);
    free(w);
    return status;
}
