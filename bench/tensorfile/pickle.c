/* The pickle machine: one function per opcode, a stack of node ids, marks and a memo. */
#include "bench/tensorfile/pickle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Opcodes by the bytes that Python's pickle module writes. */
enum {
    OP_MARK = '(',
    OP_STOP = '.',
    OP_POP = '0',
    OP_POP_MARK = '1',
    OP_DUP = '2',
    OP_BINBYTES = 'B',
    OP_SHORT_BINBYTES = 'C',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_NONE = 'N',
    OP_BINPERSID = 'Q',
    OP_REDUCE = 'R',
    OP_BINSTRING = 'T',
    OP_SHORT_BINSTRING = 'U',
    OP_BINUNICODE = 'X',
    OP_EMPTY_LIST = ']',
    OP_APPEND = 'a',
    OP_BUILD = 'b',
    OP_GLOBAL = 'c',
    OP_DICT = 'd',
    OP_APPENDS = 'e',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_LIST = 'l',
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_SETITEM = 's',
    OP_TUPLE = 't',
    OP_SETITEMS = 'u',
    OP_EMPTY_DICT = '}',
    OP_EMPTY_TUPLE = ')',
    OP_BINFLOAT = 'G',
    OP_PROTO = 0x80,
    OP_NEWOBJ = 0x81,
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8a,
    OP_LONG4 = 0x8b,
    OP_SHORT_BINUNICODE = 0x8c,
    OP_BINUNICODE8 = 0x8d,
    OP_BINBYTES8 = 0x8e,
    OP_EMPTY_SET = 0x8f,
    OP_ADDITEMS = 0x90,
    OP_FROZENSET = 0x91,
    OP_NEWOBJ_EX = 0x92,
    OP_STACK_GLOBAL = 0x93,
    OP_MEMOIZE = 0x94,
    OP_FRAME = 0x95,
    LAST_PROTOCOL = 5, /* its own opcodes are refused one by one */
    OPCODES = 256,
    PARTS = 3
};

/* A growing list of ids. */
typedef struct ids {
    uint32_t *id;
    size_t count, room;
} ids;

typedef struct machine {
    ab_pickle *tree;
    const uint8_t *bytes;
    int64_t size, at, begin;
    ids stack, mark, memo; /* mark: heights of the stack; memo: ids, 0 where nothing was put */
    uint8_t op;
    bool stopped;
} machine;

static const uint8_t *const nothing = (const uint8_t *)"";

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "pickle: out of memory"); }

static ab_status bad(const machine *m, const char *what) {
    return ab_fail(AB_INPUT, "pickle: byte %" PRId64 ": %s", m->at - 1, what);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static ab_status push_id(ids *list, uint32_t id) {
    if (list->count == list->room) {
        const size_t room = list->room ? 2 * list->room : 64;
        uint32_t *grown = realloc(list->id, room * sizeof *grown);
        if (!grown) return no_memory();
        list->id = grown;
        list->room = room;
    }
    list->id[list->count++] = id;
    return AB_OK;
}

/* Room for `count` more ids in the pool; *first is the position of the first. */
static ab_status reserve(ab_pickle *p, size_t count, uint32_t *first) {
    if (p->pooled + count > p->pool_room) {
        const size_t room = 2 * (p->pooled + count) + 64;
        uint32_t *grown = realloc(p->pool, room * sizeof *grown);
        if (!grown) return no_memory();
        p->pool = grown;
        p->pool_room = room;
    }
    if (p->pooled + count > UINT32_MAX) return ab_fail(AB_INPUT, "pickle: too many items");
    *first = (uint32_t)p->pooled;
    if (count > 0) memset(p->pool + p->pooled, 0, count * sizeof *p->pool);
    p->pooled += count;
    return AB_OK;
}

static ab_status grow_nodes(ab_pickle *p) {
    const uint32_t room = p->node_room ? 2 * p->node_room : 256;
    if (p->nodes == AB_PICKLE_MOST_NODES)
        return ab_fail(AB_INPUT, "pickle: expected at most %d objects, found more", AB_PICKLE_MOST_NODES);
    ab_pickle_node *grown = realloc(p->node, room * sizeof *grown);
    if (!grown) return no_memory();
    p->node = grown;
    p->node_room = room;
    return AB_OK;
}

static ab_status add_node(ab_pickle *p, const ab_pickle_node *node, uint32_t *id) {
    if (p->nodes == p->node_room || p->nodes == AB_PICKLE_MOST_NODES) AB_TRY(grow_nodes(p));
    p->node[p->nodes++] = *node;
    *id = p->nodes;
    return AB_OK;
}

static ab_pickle_node *node_at(const machine *m, uint32_t id) { return &m->tree->node[id - 1]; }

static ab_status push_node(machine *m, const ab_pickle_node *node) {
    uint32_t id = 0;
    AB_TRY(add_node(m->tree, node, &id));
    return push_id(&m->stack, id);
}

/* ---- the stack ------------------------------------------------------------------------------- */

/* Height below which the stack is another mark's. */
static size_t floor_of(const machine *m) { return m->mark.count ? m->mark.id[m->mark.count - 1] : 0; }

static ab_status need(const machine *m, size_t count) {
    return m->stack.count - floor_of(m) >= count ? AB_OK : bad(m, "an opcode takes more than there is");
}

static uint32_t pop(machine *m) { return m->stack.id[--m->stack.count]; }

static uint32_t top(const machine *m) { return m->stack.id[m->stack.count - 1]; }

/* Ends the last mark; *first is the height it was set at, above which are its *count ids. */
static ab_status pop_mark(machine *m, size_t *first, size_t *count) {
    if (m->mark.count == 0) return bad(m, "expected a mark");
    *first = m->mark.id[--m->mark.count];
    *count = m->stack.count - *first;
    return AB_OK;
}

/* ---- reading the file ------------------------------------------------------------------------ */

static ab_status take(machine *m, uint64_t count, const uint8_t **bytes) {
    *bytes = nothing;
    if (count > (uint64_t)(m->size - m->at))
        return ab_fail(AB_INPUT, "pickle: byte %" PRId64 ": expected %" PRIu64 " more bytes, found %" PRId64,
                       m->at, count, m->size - m->at);
    *bytes = m->bytes + m->at;
    m->at += (int64_t)count;
    return AB_OK;
}

/* A little-endian number of `width` bytes. */
static ab_status take_number(machine *m, int width, uint64_t *number) {
    const uint8_t *bytes = nothing;
    *number = 0;
    AB_TRY(take(m, (uint64_t)width, &bytes));
    for (int i = width - 1; i >= 0; i--) *number = *number << 8 | bytes[i];
    return AB_OK;
}

/* ---- scalars --------------------------------------------------------------------------------- */

static ab_status push_integer(machine *m, ab_pickle_kind kind, int64_t value) {
    return push_node(m, &(ab_pickle_node){.kind = (uint8_t)kind, .as.integer = value});
}

static ab_status op_none(machine *m) { return push_integer(m, AB_PICKLE_NONE, 0); }

static ab_status op_bool(machine *m) { return push_integer(m, AB_PICKLE_BOOL, m->op == OP_NEWTRUE); }

static ab_status op_int(machine *m) {
    static const uint8_t width[OPCODES] = {[OP_BININT] = 4, [OP_BININT1] = 1, [OP_BININT2] = 2};
    uint64_t number = 0;
    AB_TRY(take_number(m, width[m->op], &number));
    return push_integer(m, AB_PICKLE_INTEGER, m->op == OP_BININT ? (int32_t)number : (int64_t)number);
}

/* Two's complement, little-endian, of any length. */
static ab_status op_long(machine *m) {
    uint64_t count = 0, value = 0;
    const uint8_t *bytes = nothing;
    AB_TRY(take_number(m, m->op == OP_LONG1 ? 1 : 4, &count));
    AB_TRY(take(m, count, &bytes));
    if (count > sizeof value)
        return push_node(
            m, &(ab_pickle_node){.kind = AB_PICKLE_LONG, .count = (uint32_t)count, .as.bytes = bytes});
    if (count > 0 && bytes[count - 1] & 0x80) value = UINT64_MAX;
    for (uint64_t i = count; i > 0; i--) value = value << 8 | bytes[i - 1];
    return push_integer(m, AB_PICKLE_INTEGER, (int64_t)value);
}

/* Big-endian, unlike all else. */
static ab_status op_float(machine *m) {
    const uint8_t *bytes = nothing;
    uint64_t bits = 0;
    ab_pickle_node node = {.kind = AB_PICKLE_REAL};
    AB_TRY(take(m, sizeof bits, &bytes));
    for (size_t i = 0; i < sizeof bits; i++) bits = bits << 8 | bytes[i];
    memcpy(&node.as.real, &bits, sizeof bits);
    return push_node(m, &node);
}

static ab_status op_text(machine *m) {
    static const uint8_t width[OPCODES] = {
        [OP_BINUNICODE] = 4,      [OP_SHORT_BINUNICODE] = 1, [OP_BINUNICODE8] = 8,    [OP_BINSTRING] = 4,
        [OP_SHORT_BINSTRING] = 1, [OP_BINBYTES] = 4,         [OP_SHORT_BINBYTES] = 1, [OP_BINBYTES8] = 8};
    const bool is_bytes = m->op == OP_BINBYTES || m->op == OP_SHORT_BINBYTES || m->op == OP_BINBYTES8;
    uint64_t count = 0;
    const uint8_t *bytes = nothing;
    AB_TRY(take_number(m, width[m->op], &count));
    AB_TRY(take(m, count, &bytes));
    if (count > UINT32_MAX) return bad(m, "expected a text of less than 4 GiB");
    return push_node(m, &(ab_pickle_node){.kind = is_bytes ? AB_PICKLE_BYTES : AB_PICKLE_TEXT,
                                          .count = (uint32_t)count,
                                          .as.bytes = bytes});
}

/* ---- containers ------------------------------------------------------------------------------ */

static ab_status op_empty(machine *m) {
    static const uint8_t kind[OPCODES] = {[OP_EMPTY_TUPLE] = AB_PICKLE_TUPLE,
                                          [OP_EMPTY_LIST] = AB_PICKLE_LIST,
                                          [OP_EMPTY_DICT] = AB_PICKLE_DICT,
                                          [OP_EMPTY_SET] = AB_PICKLE_SET};
    return push_node(m, &(ab_pickle_node){.kind = kind[m->op]});
}

/* A node with the ids from `first` on, which leave the stack. */
static ab_status collect(machine *m, ab_pickle_kind kind, size_t first, size_t count) {
    ab_pickle_node node = {.kind = (uint8_t)kind, .count = (uint32_t)count};
    AB_TRY(reserve(m->tree, count, &node.as.items.first));
    node.as.items.room = node.count;
    if (count > 0)
        memcpy(m->tree->pool + node.as.items.first, m->stack.id + first, count * sizeof *m->stack.id);
    m->stack.count = first;
    return push_node(m, &node);
}

static ab_status op_marked(machine *m) {
    static const uint8_t kind[OPCODES] = {[OP_TUPLE] = AB_PICKLE_TUPLE,
                                          [OP_LIST] = AB_PICKLE_LIST,
                                          [OP_DICT] = AB_PICKLE_DICT,
                                          [OP_FROZENSET] = AB_PICKLE_SET};
    size_t first = 0, count = 0;
    AB_TRY(pop_mark(m, &first, &count));
    if (m->op == OP_DICT && count % 2 != 0) return bad(m, "expected a value for every key");
    return collect(m, (ab_pickle_kind)kind[m->op], first, count);
}

static ab_status op_tuple(machine *m) {
    const size_t count = (size_t)(m->op - OP_TUPLE1) + 1;
    AB_TRY(need(m, count));
    return collect(m, AB_PICKLE_TUPLE, m->stack.count - count, count);
}

/* Adds the ids from `first` on to the items of `target`; each time it is full its room doubles. */
static ab_status extend(machine *m, uint32_t target, size_t first, size_t count) {
    const uint64_t total = (uint64_t)node_at(m, target)->count + count;
    if (total > UINT32_MAX / 4) return bad(m, "expected fewer items");
    if (total > node_at(m, target)->as.items.room) {
        const ab_pickle_node old = *node_at(m, target);
        const uint32_t room = (uint32_t)total + (old.count > 0 ? (uint32_t)total : 0);
        uint32_t at = 0;
        AB_TRY(reserve(m->tree, room, &at));
        if (old.count > 0)
            memcpy(m->tree->pool + at, m->tree->pool + old.as.items.first, old.count * sizeof at);
        node_at(m, target)->as.items.first = at;
        node_at(m, target)->as.items.room = room;
    }
    ab_pickle_node *node = node_at(m, target);
    if (count > 0)
        memcpy(m->tree->pool + node->as.items.first + node->count, m->stack.id + first,
               count * sizeof *m->stack.id);
    node->count = (uint32_t)total;
    return AB_OK;
}

/* Puts the ids from `first` on into the container below them. */
static ab_status put_items(machine *m, size_t first, size_t count, bool keyed) {
    m->stack.count = first;
    AB_TRY(need(m, 1));
    ab_pickle_node *target = node_at(m, top(m));
    const bool own = keyed ? target->kind == AB_PICKLE_DICT
                           : target->kind == (m->op == OP_ADDITEMS ? AB_PICKLE_SET : AB_PICKLE_LIST);
    const bool object = target->kind == AB_PICKLE_CALL && (target->count == 0 || target->keyed == keyed);
    if (!own && !object) return bad(m, "items are put into something that has none");
    if (keyed && count % 2 != 0) return bad(m, "expected a value for every key");
    if (object) target->keyed = keyed;
    return extend(m, top(m), first, count);
}

static ab_status op_put(machine *m) {
    const bool keyed = m->op == OP_SETITEM;
    const size_t count = keyed ? 2 : 1;
    AB_TRY(need(m, count + 1));
    return put_items(m, m->stack.count - count, count, keyed);
}

static ab_status op_put_marked(machine *m) {
    size_t first = 0, count = 0;
    AB_TRY(pop_mark(m, &first, &count));
    return put_items(m, first, count, m->op == OP_SETITEMS);
}

/* ---- names, calls, what is stored elsewhere --------------------------------------------------- */

static ab_status take_line(machine *m, ab_pickle_node *text) {
    const uint8_t *begin = m->bytes + m->at, *end = memchr(begin, '\n', (size_t)(m->size - m->at));
    if (!end) return bad(m, "expected a name that ends");
    if (end - begin > UINT32_MAX) return bad(m, "expected a name of less than 4 GiB");
    *text = (ab_pickle_node){.kind = AB_PICKLE_TEXT, .count = (uint32_t)(end - begin), .as.bytes = begin};
    m->at += end - begin + 1;
    return AB_OK;
}

static ab_status op_global(machine *m) {
    for (int i = 0; i < 2; i++) {
        ab_pickle_node text;
        AB_TRY(take_line(m, &text));
        AB_TRY(push_node(m, &text));
    }
    return collect(m, AB_PICKLE_GLOBAL, m->stack.count - 2, 2);
}

static ab_status op_stack_global(machine *m) {
    AB_TRY(need(m, 2));
    for (size_t i = 1; i <= 2; i++)
        if (node_at(m, m->stack.id[m->stack.count - i])->kind != AB_PICKLE_TEXT)
            return bad(m, "expected the texts of a module and a name");
    return collect(m, AB_PICKLE_GLOBAL, m->stack.count - 2, 2);
}

/* REDUCE, NEWOBJ, NEWOBJ_EX: function, arguments (and named ones, which are dropped) become a call. */
static ab_status op_call(machine *m) {
    ab_pickle_node node = {.kind = AB_PICKLE_CALL};
    const bool named = m->op == OP_NEWOBJ_EX;
    AB_TRY(need(m, named ? 3 : 2));
    if (named) pop(m);
    const uint32_t arguments = pop(m), function = pop(m);
    if (node_at(m, arguments)->kind != AB_PICKLE_TUPLE) return bad(m, "expected a tuple of arguments");
    AB_TRY(reserve(m->tree, PARTS, &node.parts));
    m->tree->pool[node.parts + AB_PICKLE_FUNCTION] = function;
    m->tree->pool[node.parts + AB_PICKLE_ARGUMENTS] = arguments;
    return push_node(m, &node);
}

static ab_status op_build(machine *m) {
    AB_TRY(need(m, 2));
    const uint32_t state = pop(m);
    const ab_pickle_node *target = node_at(m, top(m));
    if (target->kind != AB_PICKLE_CALL) return bad(m, "a state is given to something that is no object");
    m->tree->pool[target->parts + AB_PICKLE_STATE] = state;
    return AB_OK;
}

static ab_status op_outside(machine *m) {
    AB_TRY(need(m, 1));
    return collect(m, AB_PICKLE_OUTSIDE, m->stack.count - 1, 1);
}

/* ---- memo, marks, the rest ------------------------------------------------------------------- */

/* Picklers number what they put in turn: a larger number than the bytes read is no honest one. */
static ab_status put_memo(machine *m, uint64_t index) {
    AB_TRY(need(m, 1));
    if (index > (uint64_t)(m->at - m->begin)) return bad(m, "a memo index is out of range");
    while (m->memo.count <= index) AB_TRY(push_id(&m->memo, 0));
    m->memo.id[index] = top(m);
    return AB_OK;
}

static ab_status op_memo_put(machine *m) {
    uint64_t index = m->memo.count;
    if (m->op != OP_MEMOIZE) AB_TRY(take_number(m, m->op == OP_BINPUT ? 1 : 4, &index));
    return put_memo(m, index);
}

static ab_status op_memo_get(machine *m) {
    uint64_t index = 0;
    AB_TRY(take_number(m, m->op == OP_BINGET ? 1 : 4, &index));
    if (index >= m->memo.count || m->memo.id[index] == 0) return bad(m, "nothing was put at a memo index");
    return push_id(&m->stack, m->memo.id[index]);
}

static ab_status op_mark(machine *m) {
    if (m->stack.count > UINT32_MAX) return bad(m, "expected fewer objects");
    return push_id(&m->mark, (uint32_t)m->stack.count);
}

static ab_status op_pop(machine *m) {
    if (m->stack.count == floor_of(m) && m->mark.count > 0) {
        m->mark.count--;
        return AB_OK;
    }
    AB_TRY(need(m, 1));
    pop(m);
    return AB_OK;
}

static ab_status op_pop_mark(machine *m) {
    size_t first = 0, count = 0;
    AB_TRY(pop_mark(m, &first, &count));
    m->stack.count = first;
    return AB_OK;
}

static ab_status op_dup(machine *m) {
    AB_TRY(need(m, 1));
    return push_id(&m->stack, top(m));
}

static ab_status op_proto(machine *m) {
    uint64_t protocol = 0;
    AB_TRY(take_number(m, 1, &protocol));
    return protocol <= LAST_PROTOCOL ? AB_OK : bad(m, "expected protocol 2, 3 or 4");
}

/* A frame is a hint for who reads a pipe. */
static ab_status op_frame(machine *m) {
    uint64_t length = 0;
    return take_number(m, 8, &length);
}

static ab_status op_stop(machine *m) {
    m->stopped = true;
    return m->stack.count == 1 && m->mark.count == 0 ? AB_OK : bad(m, "expected one object at the end");
}

/* ---- the machine ----------------------------------------------------------------------------- */

static ab_status (*const ops[OPCODES])(machine *m) = {
    [OP_MARK] = op_mark,
    [OP_STOP] = op_stop,
    [OP_POP] = op_pop,
    [OP_POP_MARK] = op_pop_mark,
    [OP_DUP] = op_dup,
    [OP_BINBYTES] = op_text,
    [OP_SHORT_BINBYTES] = op_text,
    [OP_BININT] = op_int,
    [OP_BININT1] = op_int,
    [OP_BININT2] = op_int,
    [OP_NONE] = op_none,
    [OP_BINPERSID] = op_outside,
    [OP_REDUCE] = op_call,
    [OP_BINSTRING] = op_text,
    [OP_SHORT_BINSTRING] = op_text,
    [OP_BINUNICODE] = op_text,
    [OP_EMPTY_LIST] = op_empty,
    [OP_APPEND] = op_put,
    [OP_BUILD] = op_build,
    [OP_GLOBAL] = op_global,
    [OP_DICT] = op_marked,
    [OP_APPENDS] = op_put_marked,
    [OP_BINGET] = op_memo_get,
    [OP_LONG_BINGET] = op_memo_get,
    [OP_LIST] = op_marked,
    [OP_BINPUT] = op_memo_put,
    [OP_LONG_BINPUT] = op_memo_put,
    [OP_SETITEM] = op_put,
    [OP_TUPLE] = op_marked,
    [OP_SETITEMS] = op_put_marked,
    [OP_EMPTY_DICT] = op_empty,
    [OP_EMPTY_TUPLE] = op_empty,
    [OP_BINFLOAT] = op_float,
    [OP_PROTO] = op_proto,
    [OP_NEWOBJ] = op_call,
    [OP_TUPLE1] = op_tuple,
    [OP_TUPLE2] = op_tuple,
    [OP_TUPLE3] = op_tuple,
    [OP_NEWTRUE] = op_bool,
    [OP_NEWFALSE] = op_bool,
    [OP_LONG1] = op_long,
    [OP_LONG4] = op_long,
    [OP_SHORT_BINUNICODE] = op_text,
    [OP_BINUNICODE8] = op_text,
    [OP_BINBYTES8] = op_text,
    [OP_EMPTY_SET] = op_empty,
    [OP_ADDITEMS] = op_put_marked,
    [OP_FROZENSET] = op_marked,
    [OP_NEWOBJ_EX] = op_call,
    [OP_STACK_GLOBAL] = op_stack_global,
    [OP_MEMOIZE] = op_memo_put,
    [OP_FRAME] = op_frame,
};

static ab_status run(machine *m) {
    while (!m->stopped) {
        if (m->at >= m->size)
            return ab_fail(AB_INPUT, "pickle: expected the end of an object, found that of the data");
        m->op = m->bytes[m->at++];
        if (!ops[m->op])
            return ab_fail(AB_INPUT,
                           "pickle: byte %" PRId64 ": expected an opcode of protocols 2 to 4, found 0x%02x",
                           m->at - 1, m->op);
        AB_TRY(ops[m->op](m));
    }
    return AB_OK;
}

ab_status ab_pickle_read(ab_pickle *pickle, const uint8_t *bytes, int64_t size, int64_t *at, uint32_t *root) {
    machine m = {.tree = pickle, .bytes = size > 0 ? bytes : nothing, .size = size, .at = *at, .begin = *at};
    const ab_status status = run(&m);
    if (status == AB_OK) *root = m.stack.id[0];
    *at = m.at;
    free(m.stack.id);
    free(m.mark.id);
    free(m.memo.id);
    return status;
}

void ab_pickle_free(ab_pickle *pickle) {
    free(pickle->node);
    free(pickle->pool);
    *pickle = (ab_pickle){0};
}

/* ---- the tree -------------------------------------------------------------------------------- */

const ab_pickle_node *ab_pickle_at(const ab_pickle *pickle, uint32_t id) {
    static const ab_pickle_node none = {.kind = AB_PICKLE_NONE};
    return id > 0 && id <= pickle->nodes ? &pickle->node[id - 1] : &none;
}

static bool has_items(const ab_pickle_node *node) { return node->kind >= AB_PICKLE_TUPLE; }

uint32_t ab_pickle_item(const ab_pickle *pickle, uint32_t id, uint32_t i) {
    const ab_pickle_node *node = ab_pickle_at(pickle, id);
    return has_items(node) && i < node->count ? pickle->pool[node->as.items.first + i] : 0;
}

uint32_t ab_pickle_part_of(const ab_pickle *pickle, uint32_t id, ab_pickle_part part) {
    const ab_pickle_node *node = ab_pickle_at(pickle, id);
    return node->kind == AB_PICKLE_CALL ? pickle->pool[node->parts + part] : 0;
}

bool ab_pickle_is_text(const ab_pickle *pickle, uint32_t id, const char *text) {
    const ab_pickle_node *node = ab_pickle_at(pickle, id);
    return (node->kind == AB_PICKLE_TEXT || node->kind == AB_PICKLE_BYTES) && node->count == strlen(text) &&
           memcmp(node->as.bytes, text, node->count) == 0;
}

bool ab_pickle_is_global(const ab_pickle *pickle, uint32_t id, const char *name) {
    if (ab_pickle_at(pickle, id)->kind != AB_PICKLE_GLOBAL) return false;
    const ab_pickle_node *module = ab_pickle_at(pickle, ab_pickle_item(pickle, id, 0)),
                         *own = ab_pickle_at(pickle, ab_pickle_item(pickle, id, 1));
    return strlen(name) == (size_t)module->count + 1 + own->count &&
           memcmp(name, module->as.bytes, module->count) == 0 && name[module->count] == '.' &&
           memcmp(name + module->count + 1, own->as.bytes, own->count) == 0;
}

uint32_t ab_pickle_value(const ab_pickle *pickle, uint32_t id, const char *text) {
    const ab_pickle_node *node = ab_pickle_at(pickle, id);
    const bool keyed = node->kind == AB_PICKLE_DICT || (node->kind == AB_PICKLE_CALL && node->keyed);
    for (uint32_t i = keyed ? node->count : 0; i > 1; i -= 2)
        if (ab_pickle_is_text(pickle, ab_pickle_item(pickle, id, i - 2), text))
            return ab_pickle_item(pickle, id, i - 1);
    return 0;
}
