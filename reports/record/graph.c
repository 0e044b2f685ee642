/* The network's graph: reads documents only. */
#include "reports/record/graph.h"

#include "reports/record/json.h"

#include <string.h>

/* ---- records without a graph ----------------------------------------------------------------- */

ab_graph ab_graph_by_position(const cJSON *list) {
    return (ab_graph){.ops = cJSON_IsArray(list) ? list : NULL, .by_position = true};
}

/* Returns the op before (`back`) or after another in the list; NULL at either end. */
static const cJSON *neighbour_by_position(const ab_graph *graph, const cJSON *op, bool back) {
    if (!back) return op->next;
    return op == graph->ops->child ? NULL : op->prev; /* cJSON: prev of the first item is the last */
}

/* ---- ops ------------------------------------------------------------------------------------- */

ab_graph ab_graph_of(const cJSON *document, const cJSON *list) {
    const cJSON *ops = ab_json_at(document, "graph.ops");
    if (!ops) ops = ab_json_at(document, "probe.about.graph.ops");
    return cJSON_IsArray(ops) ? (ab_graph){.ops = ops} : ab_graph_by_position(list);
}

static const char *name_of(const cJSON *op) { return ab_json_text(op, "op", ""); }

const cJSON *ab_graph_op(const ab_graph *graph, const char *name) {
    const cJSON *op;
    cJSON_ArrayForEach(op, graph->ops) {
        if (strcmp(name_of(op), name) == 0) return op;
    }
    return NULL;
}

/* The op of this name before another: what it can read. A caller's graph is not checked for cycles. */
static const cJSON *earlier_op(const ab_graph *graph, const cJSON *than, const char *name) {
    const cJSON *op;
    cJSON_ArrayForEach(op, graph->ops) {
        if (op == than) return NULL;
        if (strcmp(name_of(op), name) == 0) return op;
    }
    return NULL;
}

/* ---- traits ---------------------------------------------------------------------------------- */

ab_traits ab_graph_traits(const ab_graph *graph, const cJSON *op) {
    const cJSON *name;
    ab_traits traits = 0;
    if (graph->by_position) return ab_op_traits(ab_json_text(op, "type", ""));
    cJSON_ArrayForEach(name, ab_json_at(op, "traits")) {
        if (cJSON_IsString(name)) traits |= ab_trait_named(name->valuestring);
    }
    return traits;
}

ab_traits ab_graph_traits_of(const ab_graph *graph, const char *name, const char *type) {
    const cJSON *op = ab_graph_op(graph, name);
    if (op && strcmp(ab_json_text(op, "type", ""), type) == 0) return ab_graph_traits(graph, op);
    return ab_op_traits(type);
}

const cJSON *ab_graph_only(const ab_graph *graph, ab_traits trait) {
    const cJSON *op, *found = NULL;
    cJSON_ArrayForEach(op, graph->ops) {
        if (!(ab_graph_traits(graph, op) & trait)) continue;
        if (found) return NULL;
        found = op;
    }
    return found;
}

/* ---- traversal ------------------------------------------------------------------------------- */

typedef struct search {
    const ab_graph *graph;
    bool back;      /* from an op to what it reads */
    ab_traits ends; /* where paths end */
    ab_trait_test test;
} search;

static bool has_input(const cJSON *op, const char *name) {
    const cJSON *input;
    cJSON_ArrayForEach(input, ab_json_at(op, "inputs")) {
        if (cJSON_IsString(input) && strcmp(input->valuestring, name) == 0) return true;
    }
    return false;
}

static bool finds(const search *s, const cJSON *op, int steps);

/* Returns whether an op one edge further passes the test or leads to one that does. */
static bool finds_through(const search *s, const cJSON *op, int steps) {
    const ab_traits traits = ab_graph_traits(s->graph, op);
    if (s->test(traits)) return true;
    if (s->graph->by_position) return finds(s, op, steps - 1);
    return !(traits & s->ends) && finds(s, op, steps - !(traits & AB_TRAIT_rearrangement));
}

static bool finds(const search *s, const cJSON *op, int steps) {
    const cJSON *input, *reader;
    if (steps <= 0) return false;
    if (s->graph->by_position) {
        const cJSON *other = neighbour_by_position(s->graph, op, s->back);
        return other && finds_through(s, other, steps);
    }
    if (s->back) {
        cJSON_ArrayForEach(input, ab_json_at(op, "inputs")) {
            const cJSON *source = cJSON_IsString(input) ? earlier_op(s->graph, op, input->valuestring) : NULL;
            if (source && finds_through(s, source, steps)) return true;
        }
        return false;
    }
    for (reader = op->next; reader; reader = reader->next)
        if (has_input(reader, name_of(op)) && finds_through(s, reader, steps)) return true;
    return false;
}

static const ab_traits ends = AB_TRAIT_product | AB_TRAIT_normalization;

bool ab_graph_reads(const ab_graph *graph, const cJSON *op, int steps, ab_trait_test test) {
    const search s = {graph, true, ends, test};
    return op && finds(&s, op, steps);
}

bool ab_graph_reads_through(const ab_graph *graph, const cJSON *op, int steps, ab_trait_test test) {
    const search s = {graph, true, AB_TRAIT_normalization, test};
    return op && finds(&s, op, steps);
}

bool ab_graph_is_read_by(const ab_graph *graph, const cJSON *op, int steps, ab_trait_test test) {
    const search s = {graph, false, ends, test};
    return op && finds(&s, op, steps);
}
