/* Reads pickles (Python's pickle format, protocols 2 to 4) as data: a tree of nodes. Nothing is imported,
 * called or executed: a global is a pair of names, a call is a node with a function and its arguments.
 *
 * Knows no class; what a call means is for others (pt_walk.h). Texts and bytes are borrowed from the file.
 * Every opcode makes at most one node, shared parts stay shared, and nothing is recursive, so that memory and
 * time are proportional to the size of the file. The tree can have shared nodes and cycles. Errors are
 * AB_INPUT with the position, or AB_NO_MEMORY. */
#ifndef AB_BENCH_TENSORFILE_PICKLE_H
#define AB_BENCH_TENSORFILE_PICKLE_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_PICKLE_MOST_NODES = 1 << 24 };

typedef enum ab_pickle_kind {
    AB_PICKLE_NONE,
    AB_PICKLE_BOOL,
    AB_PICKLE_INTEGER,
    AB_PICKLE_REAL,
    AB_PICKLE_LONG,  /* an integer beyond 64 bits: its bytes, little-endian two's complement */
    AB_PICKLE_TEXT,  /* bytes in the file; UTF-8 is not checked */
    AB_PICKLE_BYTES, /* bytes in the file */
    AB_PICKLE_TUPLE,
    AB_PICKLE_LIST,
    AB_PICKLE_DICT, /* items are keys and values in turn */
    AB_PICKLE_SET,
    AB_PICKLE_GLOBAL, /* two items, texts: module and name */
    AB_PICKLE_CALL,   /* the result of a call, or an object of a class: see ab_pickle_part */
    AB_PICKLE_OUTSIDE /* something stored elsewhere: one item, its identity */
} ab_pickle_kind;

/* Of a CALL: what is called, its arguments (a tuple), and the state set afterwards. */
typedef enum ab_pickle_part { AB_PICKLE_FUNCTION, AB_PICKLE_ARGUMENTS, AB_PICKLE_STATE } ab_pickle_part;

typedef struct ab_pickle_node {
    uint8_t kind;   /* ab_pickle_kind */
    bool keyed;     /* a CALL whose items are keys and values in turn, as of a dict's subclass */
    uint32_t count; /* of items, or of bytes */
    uint32_t parts; /* CALL: position of its parts in the pool */
    union {
        int64_t integer;
        double real;
        const uint8_t *bytes;
        struct {
            uint32_t first, room; /* positions in the pool */
        } items;
    } as;
} ab_pickle_node;

/* Node ids count from 1; 0: none. */
typedef struct ab_pickle {
    ab_pickle_node *node;
    uint32_t nodes, node_room;
    uint32_t *pool; /* ids of items and parts */
    size_t pooled, pool_room;
} ab_pickle;

/* Reads one pickle from bytes[*at] on and moves *at behind it; its nodes are added to `pickle`, which starts
 * zeroed. `bytes` must live as long. *root is the node's id. */
AB_MUST_CHECK ab_status ab_pickle_read(ab_pickle *pickle, const uint8_t *bytes, int64_t size, int64_t *at,
                                       uint32_t *root);

void ab_pickle_free(ab_pickle *pickle); /* leaves it zeroed */

/* The node; one of kind NONE for id 0. */
const ab_pickle_node *ab_pickle_at(const ab_pickle *pickle, uint32_t id);

/* Item i of a node with items; 0 if it has none there. */
uint32_t ab_pickle_item(const ab_pickle *pickle, uint32_t id, uint32_t i);

/* A part of a CALL; 0 for other nodes and for a state that was not set. */
uint32_t ab_pickle_part_of(const ab_pickle *pickle, uint32_t id, ab_pickle_part part);

/* Whether the node is a TEXT or BYTES that equals `text`. */
bool ab_pickle_is_text(const ab_pickle *pickle, uint32_t id, const char *text);

/* Whether the node is the GLOBAL `name` ("torch.Size"): module, dot, name. */
bool ab_pickle_is_global(const ab_pickle *pickle, uint32_t id, const char *name);

/* The value of a key that is `text`, of a DICT or of a CALL with keys; 0: none. The last one counts. */
uint32_t ab_pickle_value(const ab_pickle *pickle, uint32_t id, const char *text);

AB_END_DECLS

#endif
