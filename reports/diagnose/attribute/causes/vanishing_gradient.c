/* Gradients of the first layers are far smaller than those of the last, in O0, and the loss is flat. The
 * first layer must be affected: attention weights that start near 0 have small gradients in the middle of a
 * net while the gradients of other layers pass. It is named, as the end of the way, unless another layer's
 * gradient was as small at an earlier step. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/layers.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

static double rms(const cJSON *tensor) {
    const cJSON *energy = ab_json_at(tensor, "steps.energy"), *item;
    const double count = ab_json_number(tensor, "count", 0);
    double sum = 0;
    cJSON_ArrayForEach(item, energy) {
        if (cJSON_IsNumber(item)) sum += item->valuedouble;
    }
    return energy && count > 0 ? sqrt(sum / count) : (double)NAN;
}

/* The weight (no biases) with the smallest gradient (root mean square). *ratio: smallest over largest;
 * *first: the first layer's over the largest. Returns the first layer if its own ratio is below `far`. */
static const cJSON *smallest(const cJSON *cell, double far, int *place, double *ratio, double *first) {
    const cJSON *tensor, *least = NULL, *front_tensor = NULL;
    double most = 0, few = (double)INFINITY, front = (double)NAN;
    int i = -1, front_place = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.unscaled_gradients")) {
        const char *name = ab_json_text(tensor, "name", "");
        const double size = rms(tensor);
        i++;
        if (!strstr(name, ".weight") || !isfinite(size)) continue;
        most = fmax(most, size);
        if (!front_tensor) {
            front_tensor = tensor;
            front_place = i;
            front = size;
        }
        if (!(size < few)) continue;
        few = size;
        least = tensor;
        *place = i;
    }
    *ratio = most > 0 ? few / most : (double)NAN;
    *first = most > 0 ? front / most : (double)NAN;
    if (!(*first < far)) return least;
    *place = front_place;
    *ratio = *first;
    return front_tensor;
}

static double at_column(const cJSON *tensor, int column) {
    const cJSON *energy = cJSON_GetArrayItem(ab_json_at(tensor, "steps.energy"), column);
    const double count = ab_json_number(tensor, "count", 0);
    return cJSON_IsNumber(energy) && count > 0 ? energy->valuedouble / count : (double)NAN;
}

/* Largest mean square of any weight gradient in a column of steps; 0: none. */
static double largest_at(const cJSON *list, int column) {
    const cJSON *tensor;
    double most = 0;
    cJSON_ArrayForEach(tensor, list) {
        if (strstr(ab_json_text(tensor, "name", ""), ".weight")) most = fmax(most, at_column(tensor, column));
    }
    return most;
}

/* The first column of steps in which the gradient is below the share `few` of the largest; -1: none. */
static int first_small(const cJSON *list, const cJSON *tensor, double few) {
    const int columns = cJSON_GetArraySize(ab_json_at(tensor, "steps.energy"));
    for (int i = 0; i < columns; i++)
        if (at_column(tensor, i) < few * few * largest_at(list, i)) return i;
    return -1;
}

/* The weight whose gradient was this small before that of `known`, as the first of all; else `known`. */
static const cJSON *first_in_time(const cJSON *list, const cJSON *known, double few, int *place,
                                  int *column) {
    const cJSON *tensor, *found = known;
    int i = -1;
    *column = first_small(list, known, few);
    cJSON_ArrayForEach(tensor, list) {
        i++;
        if (tensor == known || !strstr(ab_json_text(tensor, "name", ""), ".weight")) continue;
        const int here = first_small(list, tensor, few);
        if (here < 0 || (*column >= 0 && here >= *column)) continue;
        *column = here;
        *place = i;
        found = tensor;
    }
    return found;
}

/* ---- of a loop, whose probe counts all weight gradients -------------------------------------- */

/* The gradient of the first layer's output is not 0: it has arrived, and the layer made nothing of it (inputs
 * of 0, rows of a table that nothing reads), or it is one of rows that the layer leaves out. */
static bool arrives(const cJSON *cell, const char *layer) {
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        if (strcmp(ab_json_text(tensor, "kind", ""), "activation_gradient") == 0 &&
            strcmp(ab_json_text(tensor, "layer", ""), layer) == 0)
            return ab_json_number(tensor, "nonzero", 0) > 0;
    }
    return false;
}

/* A cast of a function's own backward() makes gradients 0 on their way: nothing vanishes by itself. An fp32
 * run beside the loop has the same function, and what the loop stated is true of it, too. */
static bool is_flushed(const ab_case *c) {
    const cJSON *fact;
    cJSON_ArrayForEach(fact, ab_json_at(c->facts.document, "probe.facts")) {
        if (strcmp(ab_json_text(fact, "name", ""), "gradients_flushed") == 0 &&
            ab_json_number(fact, "largest", 0) >= c->facts.limits->underflow_energy)
            return true;
    }
    return false;
}

/* The gradient of the layer that runs first is 0 at every probed step; or a thousandth of the largest, and
 * the loss has not fallen since the first quarter of the run. */
static bool shows(const ab_case *c, ab_verdict *verdict) {
    if (!ab_is_loop(&c->facts) || !c->facts.baseline || c->facts.baseline_loss.nonfinite > 0) return false;
    const ab_front f = ab_layers_front(c->facts.baseline);
    const bool several = f.layers > 1 && ab_json_number(f.gradient, "steps.count", 0) >= 2,
               none = ab_layers_front_is_nothing(c->facts.baseline),
               few = several && f.own < c->facts.limits->few_gradients * f.most && ab_loop_stalls(&c->facts);
    if (!none && !few) return false;
    if (none && (arrives(c->facts.baseline, f.layer) || is_flushed(c))) return false;
    verdict->proof = none ? AB_PROOF_SHOWN : AB_PROOF_COMPARED;
    verdict->since = 0;
    ab_text_clean(verdict->layer, sizeof verdict->layer, f.layer);
    if (none)
        ab_verdict_add_evidence(verdict,
                                "all %.0f values of the gradient of %s at the probed steps of O0 are 0",
                                ab_json_number(f.gradient, "count", 0), ab_text_brief(verdict->layer, 60));
    else
        ab_verdict_add_evidence(
            verdict,
            "O0's gradient of %s, the first layer, is %.2g of the largest weight gradient (root "
            "mean squares), and its loss has not fallen since step %d",
            ab_text_brief(verdict->layer, 60), f.own / f.most, c->facts.baseline_loss.steps / 4);
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/tensors/%d", f.place);
    return true;
}

/* A loop that learned nothing, and a function whose outputs were at its ends whenever they were seen. */
static bool saturates(const ab_case *c, ab_verdict *verdict) {
    const ab_stated lost = ab_stated_of(&c->facts, "saturated");
    if (!(c->unlearned || c->idle) || !ab_loop_knows_nothing(&c->facts) ||
        !(lost.least > c->facts.limits->saturated))
        return false;
    ab_verdict_own(verdict, AB_PROOF_COMPARED, 0);
    ab_text_clean(verdict->layer, sizeof verdict->layer, lost.place);
    ab_verdict_add_evidence(
        verdict,
        "outputs of %s are at the ends of its range: its derivative is %.2g of the largest "
        "one on average, at the probed step where it is best",
        ab_text_brief(verdict->layer, 60), 1 - lost.least);
    ab_verdict_point_document(verdict, "/probe/facts/%d/least", lost.index);
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (ab_is_loop(&c->facts)) return shows(c, verdict) || saturates(c, verdict);
    int place = 0;
    double ratio = 1, first = 1;
    const cJSON *least = smallest(c->facts.baseline, c->facts.limits->few_gradients, &place, &ratio, &first);
    if (!ab_baseline_is_flat(c) || !least) return false;
    if (!(ratio < c->facts.limits->few_gradients) || !(first < c->facts.limits->few_first_gradients))
        return false;
    const cJSON *list = ab_json_at(c->facts.baseline, "probes.unscaled_gradients");
    int column;
    least = first_in_time(list, least, c->facts.limits->few_gradients, &place, &column);
    if (column >= 0) ratio = sqrt(at_column(least, column) / largest_at(list, column));
    verdict->proof = AB_PROOF_COMPARED;
    verdict->since = (int)(ab_json_number(least, "steps.first", 0) +
                           fmax(0, column) * ab_json_number(least, "steps.stride", 1));
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(least, "layer", ""));
    ab_say_baseline_fails(c, verdict);
    ab_verdict_add_evidence(
        verdict,
        "O0's gradient of %s is %.2g of the largest weight gradient (root mean squares), at step %d first",
        ab_text_brief(ab_json_text(least, "name", ""), 60), ratio, verdict->since);
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/unscaled_gradients/%d/steps/energy", place);
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy,
                       "relu in the place of saturating functions, norms, residual connections or larger "
                       "initial weights");
}

/* Small gradients make no loss infinite. */
static bool cell_alone(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return ab_is_loop(&c->facts) && c->nonfinite && c->facts.baseline_loss.nonfinite == 0;
}

static const ab_refutation refuted_cell_alone = {"losses are NaN or inf that O0 has finite", cell_alone};

const ab_verdict_rule ab_verdict_rule_vanishing_gradient = {
    .id = "vanishing_gradient",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_BACKWARD,
    .text = "gradients vanish on their way to the first layers",
    .needs = {&ab_need_o0, &ab_need_unscaled},
    .predicts = AB_SYMPTOM_BASELINE,
    .refuted_by = {&ab_refuted_o0_rises, &refuted_cell_alone},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
