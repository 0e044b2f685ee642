/* Sizes of tensors, of weights and of signals, from the counts that the probes recorded. */
#include "reports/diagnose/facts/facts.h"

#include "reports/record/exponents.h"
#include "reports/record/graph.h"
#include "reports/record/json.h"
#include "reports/record/settings.h"

#include <math.h>
#include <string.h>

/* ---- tensors that are cast -------------------------------------------------------------------------- */

double ab_facts_flushed_energy(const ab_facts *facts, const cJSON *tensor) {
    const ab_exponent_mass all = ab_exponents_all(tensor);
    return all.energy > 0 ? ab_exponents_flushed(tensor, facts->half, 0).energy / all.energy : (double)NAN;
}

const cJSON *ab_baseline_tensor(const ab_facts *facts, const cJSON *tensor) {
    const char *name = ab_json_text(tensor, "name", "");
    const cJSON *other;
    if (!facts->baseline || facts->baseline == facts->cell) return NULL;
    cJSON_ArrayForEach(other, ab_json_at(facts->baseline, "probes.tensors")) {
        if (strcmp(ab_json_text(other, "name", ""), name) == 0) return other;
    }
    return NULL;
}

double ab_expected_flush(const ab_facts *facts, const cJSON *tensor) {
    const cJSON *reference = ab_baseline_tensor(facts, tensor);
    const ab_exponent_mass all = ab_exponents_all(reference);
    /* a dynamic scale that keeps falling is a consequence */
    const double scale = facts->skip.dynamic ? facts->skip.largest_scale : facts->skip.last_scale;
    const double octaves = log2(scale / ab_first_scale(facts->baseline));
    if (!(all.energy > 0) || !isfinite(octaves)) return (double)NAN;
    return ab_exponents_flushed(reference, facts->half, octaves).energy / all.energy;
}

double ab_near_overflow(const ab_facts *facts) {
    return facts->limits->near_overflow * ab_format_overflow_limit(facts->half);
}

bool ab_expected_overflow(const ab_facts *facts, const cJSON *tensor, double scale) {
    const double largest = ab_json_number(ab_baseline_tensor(facts, tensor), "max_abs", 0);
    return largest * scale / ab_first_scale(facts->baseline) >= ab_near_overflow(facts);
}

int ab_first_step_with(const cJSON *tensor, const char *key) {
    const cJSON *count;
    double step = ab_json_number(tensor, "steps.first", 0);
    cJSON_ArrayForEach(count, ab_json_at(ab_json_at(tensor, "steps"), key)) {
        if (cJSON_IsNumber(count) && count->valuedouble > 0) return (int)step;
        step += ab_json_number(tensor, "steps.stride", 1);
    }
    return AB_STEP_UNKNOWN;
}

static double number_or_zero(const cJSON *item) { return cJSON_IsNumber(item) ? item->valuedouble : 0; }

/* ---- sizes ------------------------------------------------------------------------------------------ */

/* Sum of squares at the first probed step; NAN if its column holds several steps. */
static double first_energy(const cJSON *tensor, double probed) {
    const cJSON *nonzero = cJSON_GetArrayItem(ab_json_at(tensor, "steps.nonzero"), 0),
                *energy = cJSON_GetArrayItem(ab_json_at(tensor, "steps.energy"), 0);
    const double a_step = ab_json_number(tensor, "count", 0) / probed;
    if (!cJSON_IsNumber(nonzero) || !cJSON_IsNumber(energy) || nonzero->valuedouble > 1.5 * a_step)
        return (double)NAN;
    return energy->valuedouble;
}

static double whole_energy(const cJSON *tensor) {
    const cJSON *energy;
    double sum = 0;
    if (!ab_json_at(tensor, "steps.energy")) return (double)NAN;
    cJSON_ArrayForEach(energy, ab_json_at(tensor, "steps.energy")) {
        if (cJSON_IsNumber(energy)) sum += energy->valuedouble;
    }
    return sum;
}

ab_tensor_sums ab_tensor_sums_of(const cJSON *cell, const char *list, const char *kind, bool all) {
    ab_tensor_sums sums = {0, 0};
    const double probed = fmax(1, ab_json_number(cell, "probes.steps_probed", 1));
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(ab_json_at(cell, "probes"), list)) {
        if (kind[0] && strcmp(ab_json_text(tensor, "kind", ""), kind) != 0) continue;
        sums.values += ab_json_number(tensor, "count", 0) / (all ? 1 : probed);
        sums.energy += all ? whole_energy(tensor) : first_energy(tensor, probed);
    }
    if (sums.values == 0) sums.energy = (double)NAN;
    return sums;
}

double ab_first_scale(const cJSON *cell) {
    const cJSON *run = cJSON_GetArrayItem(ab_json_at(cell, "scale"), 0), *scale = cJSON_GetArrayItem(run, 0);
    return cJSON_IsNumber(scale) ? scale->valuedouble : 1;
}

static double unscaled_energy(const cJSON *cell) {
    const double scale = ab_first_scale(cell);
    return ab_tensor_sums_of(cell, "tensors", "weight_gradient", false).energy / (scale * scale);
}

/* True if a tensor overflowed at the first probed step: infinite values have no energy. */
static bool overflowed_first(const cJSON *cell) {
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        const cJSON *first = cJSON_GetArrayItem(ab_json_at(tensor, "steps.overflowed"), 0);
        if (cJSON_IsNumber(first) && first->valuedouble > 0) return true;
    }
    return false;
}

/* How often gradients are divided by the loss scale in a step; NAN: not recorded. */
static double unscaled_times(const ab_facts *facts) {
    const double micro = ab_result_batches_per_step(facts->document);
    const ab_tensor_sums scaled = ab_tensor_sums_of(facts->cell, "tensors", "weight_gradient", true),
                         given = ab_tensor_sums_of(facts->cell, "unscaled_gradients", "", true);
    return given.values * micro / scaled.values;
}

double ab_gradient_deficit(const ab_facts *facts) {
    if (!facts->baseline || facts->baseline == facts->cell) return (double)NAN;
    if (ab_json_number(facts->cell, "first_skipped_step", -1) == 0 || overflowed_first(facts->cell))
        return (double)NAN;
    if (facts->loss.first_nonfinite == 0) return (double)NAN; /* non-finite gradients have no energy */
    if (unscaled_times(facts) > facts->limits->unscaled_times) return (double)NAN; /* part of them is lost */
    const double own = unscaled_energy(facts->cell), reference = unscaled_energy(facts->baseline);
    return reference > 0 ? 1 - own / reference : (double)NAN;
}

double ab_relative_gradient(const cJSON *cell) {
    const double count = ab_json_number(cell, "vitals.initial_weights.count", 0),
                 rms = ab_json_number(cell, "vitals.initial_weights.rms", 0);
    return count > 0 && rms > 0 ? sqrt(unscaled_energy(cell)) / (rms * sqrt(count)) : (double)NAN;
}

/* Root mean square of the weights of a probe's record that are not 0, in its first or last column of steps;
 * NAN if not recorded. */
static double probed_weights(const cJSON *cell, bool last) {
    const cJSON *weight;
    double energy = 0, count = 0;
    cJSON_ArrayForEach(weight, ab_json_at(cell, "probes.weights")) {
        const cJSON *energies = ab_json_at(weight, "steps.energy");
        const int column = last ? cJSON_GetArraySize(energies) - 1 : 0;
        energy += number_or_zero(cJSON_GetArrayItem(energies, column));
        count += number_or_zero(cJSON_GetArrayItem(ab_json_at(weight, "steps.nonzero"), column));
    }
    return count > 0 ? sqrt(energy / count) : (double)NAN;
}

/* Of a probe's record: of the elements that an update changed. */
static double probed_update(const cJSON *cell) {
    const cJSON *param;
    double energy = 0, count = 0;
    cJSON_ArrayForEach(param, ab_json_at(cell, "probes.lost_updates")) {
        const cJSON *known = ab_json_at(param, "update.energy"); /* null: of an optimizer without a formula */
        if (!cJSON_IsNumber(known)) continue;
        energy += known->valuedouble;
        count += ab_json_number(param, "update.nonzero", 0);
    }
    return count > 0 ? sqrt(energy / count) / probed_weights(cell, false) : (double)NAN;
}

static bool is_probed(const cJSON *cell) { return !ab_json_at(cell, "vitals.initial_weights"); }

double ab_relative_update(const cJSON *cell) {
    const double steps = ab_json_number(cell, "probes.steps_probed", 0),
                 count = ab_json_number(cell, "vitals.initial_weights.count", 0),
                 rms = ab_json_number(cell, "vitals.initial_weights.rms", 0);
    double energy = 0;
    const cJSON *param;
    if (is_probed(cell)) return probed_update(cell);
    if (!ab_json_at(cell, "probes.lost_updates") || steps <= 0 || count <= 0 || rms <= 0) return (double)NAN;
    cJSON_ArrayForEach(param, ab_json_at(cell, "probes.lost_updates")) energy +=
        ab_json_number(param, "update.energy", 0);
    return sqrt(energy / steps) / (rms * sqrt(count));
}

double ab_weight_growth(const cJSON *cell) {
    const double first = ab_json_number(cell, "vitals.initial_weights.rms", 0);
    if (is_probed(cell)) return probed_weights(cell, true) / probed_weights(cell, false);
    return first > 0 ? ab_json_number(cell, "vitals.final_weights.rms", (double)NAN) / first : (double)NAN;
}

/* ---- signals and classes ---------------------------------------------------------------------------- */

const cJSON *ab_silent_relu(const ab_facts *facts, double share, int *place) {
    const cJSON *op, *signals = ab_json_at(facts->baseline, "probes.signals");
    const ab_graph graph = ab_graph_of(facts->document, signals);
    *place = 0;
    cJSON_ArrayForEach(op, signals) {
        if (ab_json_number(op, "silent_last", 0) >= share &&
            ab_graph_traits_of(&graph, ab_json_text(op, "op", ""), ab_json_text(op, "type", "")) &
                AB_TRAIT_rectifier)
            return op;
        ++*place;
    }
    return NULL;
}

/* The op whose output the classification loss reads; "": the record has no edges. */
static const char *logits_op(const ab_graph *graph, const cJSON *loss) {
    const cJSON *first = cJSON_GetArrayItem(ab_json_at(loss, "inputs"), 0);
    return !graph->by_position && cJSON_IsString(first) ? first->valuestring : "";
}

const cJSON *ab_facts_logits(const ab_facts *facts) {
    const ab_graph graph = ab_graph_of(facts->document, ab_json_at(facts->baseline, "implementations"));
    const cJSON *tensor, *loss = ab_graph_only(&graph, AB_TRAIT_class_loss);
    const char *op = logits_op(&graph, loss);
    if (!facts->baseline || !loss) return NULL;
    cJSON_ArrayForEach(tensor, ab_json_at(facts->baseline, "probes.tensors")) {
        if (strcmp(ab_json_text(tensor, "kind", ""), "activation_gradient") != 0) continue;
        /* without edges: the first gradient of the backward pass */
        if (!op[0] || strcmp(ab_json_text(tensor, "layer", ""), op) == 0) return tensor;
    }
    return NULL;
}

double ab_facts_classes(const ab_facts *facts) {
    const double classes = ab_json_number(facts->document, "data.classes", 0);
    const cJSON *op, *tensor = classes < 2 ? ab_facts_logits(facts) : NULL;
    if (!tensor) return classes >= 2 ? classes : 0;
    cJSON_ArrayForEach(op, ab_json_at(facts->baseline, "probes.signals")) {
        if (strcmp(ab_json_text(op, "op", ""), ab_json_text(tensor, "layer", "-")) == 0)
            return ab_json_number(op, "units", 0);
    }
    return 0;
}

bool ab_facts_summed(const ab_facts *facts) {
    const ab_graph graph = ab_graph_of(facts->document, ab_json_at(facts->baseline, "implementations"));
    const cJSON *loss = ab_graph_only(&graph, AB_TRAIT_class_loss);
    return strcmp(ab_json_text(loss, "reduction", "mean"), "sum") == 0;
}

/* The entry of vitals.constant_loss.parts of a cell's only classification loss that is a mean; NULL: none. */
static const cJSON *class_part(const ab_facts *facts, const cJSON *cell) {
    const ab_graph graph = ab_graph_of(facts->document, ab_json_at(cell, "implementations"));
    const char *op = ab_json_text(ab_graph_only(&graph, AB_TRAIT_class_loss), "op", "");
    const cJSON *part;
    if (ab_facts_summed(facts)) return NULL;
    cJSON_ArrayForEach(part, ab_json_at(cell, "vitals.constant_loss.parts")) {
        if (strcmp(ab_json_text(part, "op", "-"), op) == 0) return part;
    }
    return NULL;
}

/* A cross entropy in the units of the run's losses; unchanged if the record does not tell. */
static double in_units(const ab_facts *facts, const cJSON *cell, double entropy) {
    const cJSON *part = class_part(facts, cell);
    if (!part) return entropy;
    return ab_json_number(cell, "vitals.constant_loss.loss", (double)NAN) +
           ab_json_number(part, "factor", 1) * (entropy - ab_json_number(part, "loss", (double)NAN));
}

double ab_facts_loss_factor(const ab_facts *facts) {
    return ab_json_number(class_part(facts, facts->baseline), "factor", 1);
}

double ab_facts_test_loss(const ab_facts *facts, const cJSON *cell) {
    return in_units(facts, cell, ab_json_number(cell, "test_loss", (double)NAN));
}

static bool knows_constant(const ab_facts *facts) {
    return ab_json_at(facts->baseline, "vitals.constant_loss") != NULL;
}

double ab_loss_of_constant(const ab_facts *facts) {
    if (!knows_constant(facts)) return ab_loss_of_uniform(facts);
    return ab_json_number(facts->baseline, "vitals.constant_loss.loss", (double)INFINITY);
}

double ab_loss_of_uniform(const ab_facts *facts) {
    const double classes = ab_facts_classes(facts),
                 uniform = classes > 1 && !ab_facts_summed(facts) ? log(classes) : (double)INFINITY;
    if (!knows_constant(facts)) return uniform;
    return class_part(facts, facts->baseline) ? in_units(facts, facts->baseline, uniform)
                                              : ab_loss_of_constant(facts);
}

double ab_facts_learned(const ab_facts *facts) {
    const ab_loss_facts *o0 = &facts->baseline_loss;
    return fmin(o0->first, ab_loss_of_uniform(facts)) - o0->final;
}
