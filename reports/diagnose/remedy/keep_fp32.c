/* Which layers to keep in fp32. */
#include "reports/diagnose/remedy/remedy.h"

#include "kernels/core/text.h"
#include "reports/record/graph.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <string.h>

/* Ops without a finite value at 0. */
enum { AB_TRAITS_OF_ZERO = AB_TRAIT_logarithm | AB_TRAIT_quotient | AB_TRAIT_root };

const cJSON *ab_signal_of(const cJSON *cell, const char *op) {
    const cJSON *entry;
    cJSON_ArrayForEach(entry, ab_json_at(cell, "probes.signals")) {
        if (strcmp(ab_json_text(entry, "op", ""), op) == 0) return entry;
    }
    return NULL;
}

/* The op casts its operands to the half format, whatever format they were written in. */
static bool casts_operands(ab_traits t) {
    return t & (AB_TRAIT_product | AB_TRAIT_table_lookup | AB_TRAIT_class_loss) ||
           (t & AB_TRAIT_loss && t & AB_TRAIT_sum);
}

static ab_traits traits_of_signal(const ab_graph *graph, const cJSON *signal) {
    return ab_graph_traits_of(graph, ab_json_text(signal, "op", ""), ab_json_text(signal, "type", ""));
}

/* The first op to keep in fp32. The input of a root, a logarithm or a quotient became 0 somewhere after the
 * last product before it, so all ops from there must stay in fp32; for any other op, the op itself. */
static const cJSON *made_zero_from(const ab_graph *graph, const cJSON *signals, const cJSON *at) {
    const ab_traits t = traits_of_signal(graph, at);
    if (!at || !(t & AB_TRAITS_OF_ZERO) || t & (AB_TRAIT_softmax | AB_TRAIT_loss)) return at;
    while (at != signals->child && !casts_operands(traits_of_signal(graph, at->prev))) at = at->prev;
    return at;
}

/* Layers to keep in fp32: the one that overflowed and those that run after it up to the next product, which
 * casts its operands to half; the same for ops whose outputs are near the limit in O0. Includes layers that
 * do not read these outputs: parallel branches, such as keys and queries, mostly have similar magnitudes.
 * False if there are too many for a list; reshapes and the like do not count. */
static bool layers_to_keep(const ab_facts *facts, const char *op, char *list, size_t size) {
    const double limit = facts->limits->keep_near * ab_format_overflow_limit(facts->half);
    const cJSON *entry, *signals = ab_json_at(facts->baseline, "probes.signals"),
                        *at = ab_signal_of(facts->baseline, op);
    const ab_graph graph = ab_graph_of(facts->document, signals);
    const cJSON *from = made_zero_from(&graph, signals, at);
    bool going = false, inside = false;
    int kept = 0;
    list[0] = '\0';
    cJSON_ArrayForEach(entry, signals) {
        inside = inside || entry == from;
        going = inside || ab_json_number(entry, "largest", 0) > limit ||
                (going && !casts_operands(traits_of_signal(&graph, entry)));
        inside = inside && entry != at;
        if (!going) continue;
        const size_t used = strlen(list);
        kept += !(traits_of_signal(&graph, entry) & AB_TRAIT_rearrangement);
        if (!ab_text_fits(list + used, size - used, "%s%s=fp32", used ? "," : "",
                          ab_json_text(entry, "op", "")) ||
            kept > facts->limits->keep_most)
            return false;
    }
    return list[0] || ab_text_fits(list, size, "%s=fp32", op);
}

/* The network has such an op, as far as the record says. */
static bool is_op(const ab_facts *facts, const char *name) {
    const ab_graph graph = ab_graph_of(facts->document, ab_json_at(facts->cell, "implementations"));
    return name[0] && (!graph.ops || ab_graph_op(&graph, name) != NULL);
}

bool ab_remedy_keep_fp32(const ab_facts *facts, const char *op, ab_remedy *remedy) {
    static const char no_scale[] = "no loss scale helps";
    char list[AB_REMEDY_TEXT - 80];
    ab_remedy wide = {.options = 0};
    const bool bf16 = ab_remedy_bf16(facts, &wide),
               listed = is_op(facts, op) && layers_to_keep(facts, op, list, sizeof list);
    if (!listed && bf16) {
        (void)ab_remedy_bf16(facts, remedy);
        ab_remedy_add_text(remedy, "or the layer in fp32; %s", no_scale);
        return true;
    }
    if (!is_op(facts, op)) return false;
    if (listed)
        ab_remedy_option(remedy, NULL, "--to", "%s", list);
    else
        ab_remedy_option(remedy, NULL, "--to", "%s=fp32", op);
    if (bf16 && wide.options == 2) ab_remedy_add_text(remedy, "or --half bf16");
    ab_remedy_add_text(remedy, "%s", no_scale);
    return true;
}
