/* The network's graph as the record has it: ops in order of execution, what each reads, and its traits
 * (kernels/ops/traits/op_traits.def). Reports ask it instead of naming ops or counting places in lists.
 *
 * Views of a document; nothing here owns memory. A record without the key "graph" (written before
 * 2026-11-22) is read through ab_graph_by_position alone: each op of a list is taken to read the one before
 * it, and traits come from the names of types. */
#ifndef AB_REPORTS_RECORD_GRAPH_H
#define AB_REPORTS_RECORD_GRAPH_H

#include "kernels/ops/traits/op_traits.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

AB_BEGIN_DECLS

typedef struct ab_graph {
    const cJSON *ops; /* array of {"op", "type", ...}; NULL: an empty graph */
    bool by_position; /* the record has no edges */
} ab_graph;

/* The document's graph; without one that of `list`, cells[].implementations or cells[].probes.signals of
 * the cell in question (NULL: an empty graph). */
ab_graph ab_graph_of(const cJSON *document, const cJSON *list);

/* For records that have no graph: see above. */
ab_graph ab_graph_by_position(const cJSON *list);

/* The op called `name`; NULL if there is none. */
const cJSON *ab_graph_op(const ab_graph *graph, const char *name);

/* Traits of an op of the graph (NULL: 0). */
ab_traits ab_graph_traits(const ab_graph *graph, const cJSON *op);

/* Traits of what a list of the record calls `name` of type `type`: those of the graph's op of both; else
 * those of the type. 0 where the type is not known (""). */
ab_traits ab_graph_traits_of(const ab_graph *graph, const char *name, const char *type);

/* Whether the op reads, or is read by, one whose traits pass the test, along at most `steps` edges. A path
 * ends at a product or a normalization: the values behind it are others. By position: among that many ops
 * of the list. False for NULL. */
typedef bool (*ab_trait_test)(ab_traits traits);
bool ab_graph_reads(const ab_graph *graph, const cJSON *op, int steps, ab_trait_test test);
bool ab_graph_is_read_by(const ab_graph *graph, const cJSON *op, int steps, ab_trait_test test);

/* The only op with a trait; NULL if there is none, or several. */
const cJSON *ab_graph_only(const ab_graph *graph, ab_traits trait);

AB_END_DECLS

#endif
