/* The network's graph as stored in the record: ops in execution order, their inputs and their traits
 * (kernels/ops/traits/op_traits.def). Reports use it instead of op names or list positions.
 *
 * Views of a document; nothing here owns memory. A record without the key "graph" (written before
 * 2026-11-22) is read with ab_graph_by_position only: each op is assumed to read the previous op of the
 * list, and traits are derived from type names. */
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

/* Returns the document's graph, or, of a probe's record, the ops round an origin (probe.about.graph). Without
 * one, the graph of `list`: cells[].implementations or cells[].probes.signals of the cell (NULL: an empty
 * graph). */
ab_graph ab_graph_of(const cJSON *document, const cJSON *list);

/* Returns the graph by list position, for records without a graph (see above). */
ab_graph ab_graph_by_position(const cJSON *list);

/* Returns the op named `name`; NULL if there is none. */
const cJSON *ab_graph_op(const ab_graph *graph, const char *name);

/* Returns the traits of an op of the graph (NULL: 0). */
ab_traits ab_graph_traits(const ab_graph *graph, const cJSON *op);

/* Returns the traits of the list entry `name` of type `type`: those of the graph's op with the same name
 * and type, else those of the type. 0 for an unknown type (""). */
ab_traits ab_graph_traits_of(const ab_graph *graph, const char *name, const char *type);

/* Returns whether the op reads (is_read_by: is read by) an op whose traits pass the test, along at most
 * `steps` edges; rearrangements do not count. A path ends at a product or a normalization, since the values
 * beyond it are different values. Without edges: among that many neighbouring ops of the list. False for
 * NULL. */
typedef bool (*ab_trait_test)(ab_traits traits);
bool ab_graph_reads(const ab_graph *graph, const cJSON *op, int steps, ab_trait_test test);
/* The same as ab_graph_reads, with paths that go on behind products: a sum of products of numbers that are
 * all 0 is 0. */
bool ab_graph_reads_through(const ab_graph *graph, const cJSON *op, int steps, ab_trait_test test);
bool ab_graph_is_read_by(const ab_graph *graph, const cJSON *op, int steps, ab_trait_test test);

/* Returns the only op with a trait; NULL if there is none or more than one. */
const cJSON *ab_graph_only(const ab_graph *graph, ab_traits trait);

AB_END_DECLS

#endif
