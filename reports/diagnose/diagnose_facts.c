/* Facts from the record that several rules use. */
#include "reports/diagnose/diagnose_facts.h"

#include "kernels/core/text.h"
#include "reports/record/exponents.h"
#include "reports/record/graph.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- first non-finite value ------------------------------------------------------------------ */

static bool from_origin(const cJSON *cell, bool expected, ab_first_nonfinite *first) {
    const cJSON *event;
    int place = 0;
    cJSON_ArrayForEach(event, ab_json_at(cell, "probes.origin.events")) {
        const int here = place++;
        if (ab_json_is_true(event, "expected") != expected) continue;
        *first = (ab_first_nonfinite){.known = true,
                                      .op = ab_json_text(event, "op", ""),
                                      .type = ab_json_text(event, "type", ""),
                                      .pass = ab_json_text(event, "pass", ""),
                                      .by = ab_json_text(event, "by", ""),
                                      .cause = ab_json_text(event, "cause.id", ""),
                                      .format = ab_json_text(event, "format", ""),
                                      .step = (int)ab_json_number(event, "step", 0),
                                      .read_largest = ab_json_number(event, "read_largest", (double)NAN)};
        ab_text_exact(first->pointer, sizeof first->pointer, "/probes/origin/events/%d", here);
        return true;
    }
    return false;
}

static const char *type_of(const cJSON *cell, const char *op) {
    const cJSON *entry;
    cJSON_ArrayForEach(entry, ab_json_at(cell, "implementations")) {
        if (strcmp(ab_json_text(entry, "op", ""), op) == 0) return ab_json_text(entry, "type", "");
    }
    return "";
}

static bool from_activations(const cJSON *cell, const char *half, ab_first_nonfinite *first) {
    const cJSON *tensor;
    int place = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.activations")) {
        const int here = place++;
        if (!ab_json_is_true(tensor, "cast") ||
            ab_json_number(tensor, "overflowed", 0) + ab_json_number(tensor, "inf", 0) <= 0)
            continue;
        const char *op = ab_json_text(tensor, "layer", "");
        *first = (ab_first_nonfinite){.known = true,
                                      .op = op,
                                      .type = type_of(cell, op),
                                      .pass = "forward",
                                      .by = "op",
                                      .cause = "",
                                      .format = half,
                                      .step = AB_SINCE_UNKNOWN,
                                      .read_largest = (double)NAN};
        ab_text_exact(first->pointer, sizeof first->pointer, "/probes/activations/%d/overflowed", here);
        return true;
    }
    return false;
}

static bool from_provenance(const cJSON *cell, ab_first_nonfinite *first) {
    const cJSON *origin = cJSON_GetArrayItem(ab_json_at(cell, "probes.nan_provenance.origins"), 0);
    if (!origin) return false;
    *first = (ab_first_nonfinite){.known = true,
                                  .op = ab_json_text(origin, "op", ""),
                                  .type = ab_json_text(origin, "type", ""),
                                  .pass = ab_json_text(origin, "pass", ""),
                                  .by = "op",
                                  .cause = "",
                                  .format = "",
                                  .step = (int)ab_json_number(origin, "first_step", 0),
                                  .read_largest = (double)NAN,
                                  .pointer = "/probes/nan_provenance/origins/0"};
    return true;
}

ab_first_nonfinite ab_first_nonfinite_of(const cJSON *cell, const char *half, bool expected) {
    ab_first_nonfinite first = {
        .op = "", .type = "", .pass = "", .by = "", .cause = "", .format = "", .read_largest = (double)NAN};
    if (from_origin(cell, false, &first) || (expected && from_origin(cell, true, &first))) return first;
    if (from_activations(cell, half, &first) || from_provenance(cell, &first)) return first;
    return first;
}

void ab_say_first_nonfinite(const ab_case *facts, const ab_first_nonfinite *first, ab_verdict *verdict) {
    char op[AB_VERDICT_LAYER], cause[AB_VERDICT_LAYER];
    ab_text_clean(op, sizeof op, first->op);
    ab_text_clean(cause, sizeof cause, first->cause);
    memcpy(verdict->layer, op, sizeof op);
    if (isfinite(first->read_largest))
        ab_verdict_say(verdict,
                       "%s%s%s%s is the first op to produce a non-finite value from finite inputs: step %d, "
                       "%s pass, inputs up to %.4g%s%s",
                       ab_text_brief(op, 60), first->type[0] ? " (" : "", ab_text_brief(first->type, 24),
                       first->type[0] ? ")" : "", first->step, ab_text_brief(first->pass, 10),
                       first->read_largest, cause[0] ? "; " : "", ab_text_brief(cause, 24));
    else
        ab_verdict_say(verdict, "%s (%s) is the first op with non-finite values: %s pass",
                       ab_text_brief(op, 60), ab_text_brief(first->type, 24), ab_text_brief(first->pass, 10));
    ab_verdict_point(facts, verdict, "%s", first->pointer);
}

/* ---- kinds of overflow ----------------------------------------------------------------------- */

static ab_graph graph_of(const ab_case *facts) {
    return ab_graph_of(facts->document, ab_json_at(facts->cell, "implementations"));
}

static bool is_sum(ab_traits t) { return t & AB_TRAIT_sum; }
static bool is_root(ab_traits t) { return t & AB_TRAIT_root; }
static bool is_mask(ab_traits t) { return t & AB_TRAIT_mask; }
static bool is_exponential(ab_traits t) { return t & AB_TRAIT_exponential; }
static bool is_activation_product(ab_traits t) { return t & AB_TRAIT_activation_product; }
static bool is_softmax(ab_traits t) { return t & (AB_TRAIT_softmax | AB_TRAIT_exponential); }

/* Ops between the scores and the softmax of an attention built of single ops. */
static bool is_score(ab_traits t) {
    return t & (AB_TRAIT_activation_product | AB_TRAIT_arithmetic | AB_TRAIT_scaling | AB_TRAIT_quotient |
                AB_TRAIT_mask);
}

/* Ops that compute the mean or the mean square of a norm built of single ops. */
static bool is_moment(ab_traits t) {
    const bool reduces = t & AB_TRAIT_sum && !(t & (AB_TRAIT_loss | AB_TRAIT_pool));
    return reduces || t & (AB_TRAIT_square | AB_TRAIT_arithmetic);
}

static bool is_attention(const ab_graph *graph, const cJSON *op, ab_traits t) {
    if (t & AB_TRAIT_attention) return true;
    if (is_score(t) && ab_graph_is_read_by(graph, op, 5, is_softmax) &&
        (is_activation_product(t) || ab_graph_reads(graph, op, 4, is_activation_product)))
        return true;
    /* rows that are all -inf from the mask: a softmax of finite values is finite */
    return t & AB_TRAIT_softmax && ab_graph_reads(graph, op, 3, is_mask);
}

static bool is_norm(const ab_graph *graph, const cJSON *op, ab_traits t) {
    if (t & AB_TRAIT_normalization) return true;
    if (is_moment(t) && ab_graph_is_read_by(graph, op, 5, is_root)) return true;
    if (is_root(t)) return ab_graph_reads(graph, op, 4, is_moment); /* squares that underflowed to 0 */
    return t & AB_TRAIT_quotient && ab_graph_reads(graph, op, 3, is_root) &&
           ab_graph_reads(graph, op, 6, is_moment); /* the root of such squares */
}

static bool is_exp_log(const ab_graph *graph, const cJSON *op, ab_traits t) {
    if (t & (AB_TRAIT_exponential | AB_TRAIT_logarithm | AB_TRAIT_softmax | AB_TRAIT_logistic)) return true;
    /* a softmax built of single ops whose terms all became 0 */
    return t & AB_TRAIT_quotient && ab_graph_reads(graph, op, 4, is_exponential);
}

static bool is_reduction(const ab_graph *graph, const cJSON *op, ab_traits t) {
    /* or a square that a sum reads */
    return is_sum(t) || (t & AB_TRAIT_square && ab_graph_is_read_by(graph, op, 1, is_sum));
}

static ab_overflow_kind kind_of(const ab_case *facts, const ab_first_nonfinite *first) {
    const ab_graph graph = graph_of(facts);
    const cJSON *op = ab_graph_op(&graph, first->op);
    const ab_traits t = ab_graph_traits_of(&graph, first->op, first->type);
    if (strcmp(first->by, "weight_cast") == 0 || strcmp(first->cause, "bad_weights") == 0)
        return AB_OVERFLOW_WEIGHT;
    if (is_attention(&graph, op, t)) return AB_OVERFLOW_ATTENTION;
    if (is_norm(&graph, op, t)) return AB_OVERFLOW_NORM;
    if (is_exp_log(&graph, op, t)) return AB_OVERFLOW_EXP_LOG;
    return is_reduction(&graph, op, t) ? AB_OVERFLOW_REDUCTION : AB_OVERFLOW_ACTIVATION;
}

ab_traits ab_first_traits(const ab_case *facts, const ab_first_nonfinite *first) {
    const ab_graph graph = graph_of(facts);
    return ab_graph_traits_of(&graph, first->op, first->type);
}

static const cJSON *signal_of(const cJSON *cell, const char *op) {
    const cJSON *entry;
    cJSON_ArrayForEach(entry, ab_json_at(cell, "probes.signals")) {
        if (strcmp(ab_json_text(entry, "op", ""), op) == 0) return entry;
    }
    return NULL;
}

static double largest_signal(const cJSON *cell, const char *op) {
    return ab_json_number(signal_of(cell, op), "largest", 0);
}

/* Samples of rows and steps miss the largest value, and O0's training differs: allow four octaves. Exploding
 * weights cross them within a few steps. */
static double near_limit(const ab_format *half) { return ab_format_overflow_limit(half) / 16; }

static bool is_own(const ab_case *facts, const ab_first_nonfinite *first) {
    const double near = near_limit(facts->half);
    if (first->step == 0 || ab_first_traits(facts, first) & AB_TRAITS_OF_ZERO) return true;
    if (strcmp(first->by, "weight_cast") == 0 || strcmp(first->cause, "bad_weights") == 0)
        return ab_json_number(facts->baseline, "vitals.final_weights.largest", 0) > near;
    return largest_signal(facts->baseline, first->op) > near;
}

/* The scaler lowered its scale below 1 and most skipped steps still had non-finite losses. */
static bool nonfinite_at_any_scale(const ab_case *facts) {
    return facts->skip.dynamic && facts->skip.least_scale < 1 &&
           facts->skip.skipped > facts->skip.late_steps / 2 &&
           facts->skip.skipped - facts->skip.loss_finite > facts->skip.skipped / 2;
}

static bool weights_overflow(const ab_case *facts, ab_first_nonfinite *first) {
    const char *name = ab_json_text(facts->cell, "vitals.initial_weights.nonfinite_name",
                                    ab_json_text(facts->cell, "vitals.initial_weights.beyond_half_name", ""));
    if (!name[0] || ab_json_number(facts->baseline, "vitals.initial_weights.nonfinite", 0) > 0) return false;
    *first = (ab_first_nonfinite){
        .known = true,
        .op = "",
        .type = "weight",
        .pass = "forward",
        .by = "weight_cast",
        .cause = "",
        .format = facts->half->name,
        .own = true,
        .read_largest = ab_json_number(facts->baseline, "vitals.initial_weights.largest", (double)NAN)};
    return true;
}

/* Finds an op whose output exceeded the limit in O0, but not yet in this cell. */
static bool is_to_come(const ab_case *facts, ab_first_nonfinite *first) {
    const double limit = ab_format_overflow_limit(facts->half);
    const cJSON *op;
    int place = 0;
    cJSON_ArrayForEach(op, ab_json_at(facts->baseline, "probes.signals")) {
        const int here = place++;
        const char *name = ab_json_text(op, "op", "");
        const double own = largest_signal(facts->cell, name);
        if (ab_json_number(op, "largest", 0) < limit || own <= 0 || own >= limit) continue;
        *first = (ab_first_nonfinite){.known = true,
                                      .op = name,
                                      .type = ab_json_text(op, "type", ""),
                                      .pass = "forward",
                                      .by = "op",
                                      .cause = "",
                                      .format = facts->half->name,
                                      .step = AB_SINCE_UNKNOWN,
                                      .own = true,
                                      .to_come = true,
                                      .read_largest = ab_json_number(op, "largest", 0)};
        ab_text_exact(first->pointer, sizeof first->pointer, "/probes/signals/%d/largest", here);
        return true;
    }
    return false;
}

ab_overflow_kind ab_overflow_of(const ab_case *facts, ab_first_nonfinite *first) {
    if (!facts->baseline || facts->baseline == facts->cell || !ab_case_uses_half(facts))
        return AB_OVERFLOW_NONE;
    if (facts->baseline_loss.nonfinite > 0) return AB_OVERFLOW_NONE;
    if (facts->unlearned && (facts->diverged || !facts->nonfinite)) return AB_OVERFLOW_NONE;
    if (facts->nonfinite && weights_overflow(facts, first)) return AB_OVERFLOW_WEIGHT;
    *first = ab_first_nonfinite_of(facts->cell, facts->half->name, false);
    if (facts->lr_unstable && first->step > 0)
        return AB_OVERFLOW_NONE; /* its weights grow in the same way in fp32 */
    first->own = first->known && is_own(facts, first);
    const bool forward = first->known && strcmp(first->pass, "forward") == 0 &&
                         (!first->format[0] || strcmp(first->format, facts->half->name) == 0);
    if (strcmp(first->cause, "accumulator_overflow") == 0 && ab_case_accumulates_in_half(facts))
        return AB_OVERFLOW_NONE; /* the result fits: that is accumulator_in_half */
    if (forward) return kind_of(facts, first);
    if (first->known && strcmp(first->pass, "backward") == 0 && facts->skip.dynamic) {
        const ab_overflow_kind kind = kind_of(facts, first);
        return kind == AB_OVERFLOW_EXP_LOG && facts->skipping ? kind : AB_OVERFLOW_NONE;
    }
    if (!first->known && !facts->nonfinite && is_to_come(facts, first)) return kind_of(facts, first);
    if (first->known || !facts->nonfinite) return AB_OVERFLOW_NONE;
    return facts->loss.first_nonfinite == 0 || nonfinite_at_any_scale(facts) ? AB_OVERFLOW_ACTIVATION
                                                                             : AB_OVERFLOW_NONE;
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
 * False if there are too many for a list. */
static bool layers_to_keep(const ab_case *facts, const char *op, char *list, size_t size) {
    enum { MOST = 12 };
    const double limit = ab_format_overflow_limit(facts->half) / 4;
    const cJSON *entry, *signals = ab_json_at(facts->baseline, "probes.signals"),
                        *at = signal_of(facts->baseline, op);
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
        if (!ab_text_fits(list + used, size - used, "%s%s=fp32", used ? "," : "",
                          ab_json_text(entry, "op", "")) ||
            ++kept > MOST)
            return false;
    }
    return kept > 0 || ab_text_fits(list, size, "%s=fp32", op);
}

static void say_remedy(const ab_case *facts, const char *op, ab_verdict *verdict) {
    char list[AB_VERDICT_TEXT - 80], clean[AB_VERDICT_TEXT - 80];
    if (op[0] && layers_to_keep(facts, op, list, sizeof list)) {
        ab_text_clean(clean, sizeof clean, list);
        ab_text_show(verdict->remedy, sizeof verdict->remedy,
                     "--to '%s', or --half bf16; no loss scale helps", clean);
        ab_verdict_option(verdict, "--to", "%s", clean);
        return;
    }
    ab_text_show(verdict->remedy, sizeof verdict->remedy,
                 "--half bf16, or the layer in fp32; no loss scale helps");
    ab_verdict_option(verdict, "--half", "bf16");
}

static void say_symptom(const ab_case *facts, ab_verdict *verdict) {
    if (!facts->nonfinite) {
        ab_verdict_say(verdict,
                       "the losses are finite, because dividing by an infinity gives 0; loss gap to O0 "
                       "%+.4g",
                       facts->gap);
        ab_verdict_point(facts, verdict, "/summary/loss_gap");
        return;
    }
    ab_verdict_say(verdict, "%d of %d losses are NaN or inf, the first at step %d; all of O0's are finite",
                   facts->loss.nonfinite, facts->loss.steps, facts->loss.first_nonfinite);
    ab_verdict_point(facts, verdict, "/loss/%d", facts->loss.first_nonfinite);
    if (!nonfinite_at_any_scale(facts)) return;
    char least[AB_TEXT_NUMBER];
    ab_verdict_say(verdict, "they stayed so while the scale fell to %s",
                   ab_text_scale(least, facts->skip.least_scale));
    ab_verdict_point(facts, verdict, "/scale");
}

static void say_weight(const ab_case *facts, ab_verdict *verdict) {
    const char *name = ab_json_text(facts->cell, "vitals.initial_weights.nonfinite_name",
                                    ab_json_text(facts->cell, "vitals.initial_weights.beyond_half_name", ""));
    const char *dot = strrchr(name, '.');
    char layer[AB_VERDICT_LAYER];
    ab_text_show(layer, sizeof layer, "%.*s", dot ? (int)(dot - name) : (int)strlen(name), name);
    ab_text_clean(verdict->layer, sizeof verdict->layer, layer);
    ab_verdict_say(verdict, "%s has weights up to %.4g in fp32; the largest number of %s is %.4g",
                   ab_text_brief(name, 60),
                   ab_json_number(facts->baseline, "vitals.initial_weights.largest", 0), facts->half->name,
                   ab_format_max(facts->half));
    ab_verdict_point_baseline(facts, verdict, "/vitals/initial_weights");
}

static void say_what_comes(const ab_case *facts, const ab_first_nonfinite *first, ab_verdict *verdict) {
    verdict->confidence = 0.3;
    verdict->next = verdict->with_others = true;
    ab_text_clean(verdict->layer, sizeof verdict->layer, first->op);
    ab_verdict_say(verdict, "outputs of %s reach %.4g in O0; the largest number of %s is %.4g",
                   ab_text_brief(verdict->layer, 60), first->read_largest, facts->half->name,
                   ab_format_max(facts->half));
    ab_verdict_point_baseline(facts, verdict, "%s", first->pointer);
    say_remedy(facts, verdict->layer, verdict);
    if (verdict->options > 0 && strcmp(verdict->option[0], "--half") == 0) verdict->with_others = false;
}

bool ab_judge_overflow(const ab_case *facts, ab_overflow_kind kind, ab_verdict *verdict) {
    ab_first_nonfinite first = {.known = false};
    if (!ab_case_fails_alone(facts)) return false;
    if (ab_overflow_of(facts, &first) != kind) return false;
    /* after the first step something else may have made the values grow */
    verdict->confidence = !first.known ? 0.7 : first.step == 0 ? 0.96 : first.own ? 0.92 : 0.8;
    verdict->own = first.own || (!first.known && facts->loss.first_nonfinite == 0);
    verdict->since = first.known ? first.step : facts->loss.first_nonfinite;
    if (first.to_come) {
        say_what_comes(facts, &first, verdict);
        return true;
    }
    say_symptom(facts, verdict);
    if (kind == AB_OVERFLOW_WEIGHT && !first.op[0])
        say_weight(facts, verdict);
    else if (first.known)
        ab_say_first_nonfinite(facts, &first, verdict);
    else
        ab_text_show(
            verdict->missing, sizeof verdict->missing,
            "which layer: the record does not say where the first non-finite value was produced; run with "
            "--probes all --probe-every 1");
    say_remedy(facts, verdict->layer, verdict);
    return true;
}

/* ---- tensors that are cast ------------------------------------------------------------------- */

const cJSON *ab_baseline_tensor(const ab_case *facts, const cJSON *tensor) {
    const char *name = ab_json_text(tensor, "name", "");
    const cJSON *other;
    if (!facts->baseline || facts->baseline == facts->cell) return NULL;
    cJSON_ArrayForEach(other, ab_json_at(facts->baseline, "probes.tensors")) {
        if (strcmp(ab_json_text(other, "name", ""), name) == 0) return other;
    }
    return NULL;
}

double ab_expected_flush(const ab_case *facts, const cJSON *tensor) {
    const cJSON *reference = ab_baseline_tensor(facts, tensor);
    const ab_exponent_mass all = ab_exponents_all(reference);
    /* a dynamic scale that keeps falling is a consequence */
    const double scale = facts->skip.dynamic ? facts->skip.largest_scale : facts->skip.last_scale;
    const double octaves = log2(scale / ab_first_scale(facts->baseline));
    if (!(all.energy > 0) || !isfinite(octaves)) return (double)NAN;
    return ab_exponents_flushed(reference, facts->half, octaves).energy / all.energy;
}

bool ab_expected_overflow(const ab_case *facts, const cJSON *tensor, double scale) {
    const double largest = ab_json_number(ab_baseline_tensor(facts, tensor), "max_abs", 0);
    return largest * scale / ab_first_scale(facts->baseline) >= near_limit(facts->half);
}

int ab_first_step_with(const cJSON *tensor, const char *key) {
    const cJSON *count;
    double step = ab_json_number(tensor, "steps.first", 0);
    cJSON_ArrayForEach(count, ab_json_at(ab_json_at(tensor, "steps"), key)) {
        if (cJSON_IsNumber(count) && count->valuedouble > 0) return (int)step;
        step += ab_json_number(tensor, "steps.stride", 1);
    }
    return AB_SINCE_UNKNOWN;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

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

double ab_gradient_deficit(const ab_case *facts) {
    if (!facts->baseline || facts->baseline == facts->cell) return (double)NAN;
    if (ab_json_number(facts->cell, "first_skipped_step", -1) == 0 || overflowed_first(facts->cell))
        return (double)NAN;
    if (facts->loss.first_nonfinite == 0) return (double)NAN; /* non-finite gradients have no energy */
    const double own = unscaled_energy(facts->cell), reference = unscaled_energy(facts->baseline);
    return reference > 0 ? 1 - own / reference : (double)NAN;
}

double ab_relative_gradient(const cJSON *cell) {
    const double count = ab_json_number(cell, "vitals.initial_weights.count", 0),
                 rms = ab_json_number(cell, "vitals.initial_weights.rms", 0);
    return count > 0 && rms > 0 ? sqrt(unscaled_energy(cell)) / (rms * sqrt(count)) : (double)NAN;
}

double ab_relative_update(const cJSON *cell) {
    const double steps = ab_json_number(cell, "probes.steps_probed", 0),
                 count = ab_json_number(cell, "vitals.initial_weights.count", 0),
                 rms = ab_json_number(cell, "vitals.initial_weights.rms", 0);
    double energy = 0;
    const cJSON *param;
    if (!ab_json_at(cell, "probes.lost_updates") || steps <= 0 || count <= 0 || rms <= 0) return (double)NAN;
    cJSON_ArrayForEach(param, ab_json_at(cell, "probes.lost_updates")) energy +=
        ab_json_number(param, "update.energy", 0);
    return sqrt(energy / steps) / (rms * sqrt(count));
}

double ab_weight_growth(const cJSON *cell) {
    const double first = ab_json_number(cell, "vitals.initial_weights.rms", 0);
    return first > 0 ? ab_json_number(cell, "vitals.final_weights.rms", (double)NAN) / first : (double)NAN;
}

/* ---- symptoms -------------------------------------------------------------------------------- */

bool ab_case_fails_alone(const ab_case *facts) {
    return facts->nonfinite || facts->behind || facts->skipping;
}

bool ab_case_far_behind(const ab_case *facts) { return facts->gap > 2 * facts->gap_limit; }

bool ab_case_short_window(const ab_case *facts) {
    enum { SHORT = 20 };
    return facts->skip.window < SHORT;
}

/* ---- training -------------------------------------------------------------------------------- */

bool ab_baseline_fails(const ab_case *facts) {
    return facts->baseline && (facts->unlearned || facts->diverged);
}

bool ab_baseline_is_flat(const ab_case *facts) {
    const bool own = facts->nonfinite || facts->skipping; /* not explained by a flat O0 */
    return facts->unlearned && facts->baseline_loss.nonfinite == 0 && !own;
}

void ab_say_baseline_fails(const ab_case *facts, ab_verdict *verdict) {
    const ab_loss_facts *o0 = &facts->baseline_loss;
    if (o0->nonfinite > 0)
        ab_verdict_say(verdict,
                       "O0 fails too: %d of its %d losses are NaN or inf, the first at step %d; no format "
                       "is to blame",
                       o0->nonfinite, o0->steps, o0->first_nonfinite);
    else
        ab_verdict_say(verdict,
                       "O0 fails too: its loss was %.4g at step 0 and is %.4g at the end; no format is to "
                       "blame",
                       o0->first, o0->final);
    ab_verdict_point_baseline(facts, verdict, "/loss");
}

const cJSON *ab_silent_relu(const ab_case *facts, double share, int *place) {
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

void ab_ask_for_more_steps(const ab_case *facts, ab_verdict *verdict) {
    enum { SHORT = 1000 };
    const int steps = facts->baseline_loss.steps;
    if (steps < SHORT) ab_verdict_option(verdict, "--steps", "%d", 2 * steps < SHORT ? 2 * steps : SHORT);
}

bool ab_case_accumulates_in_half(const ab_case *facts) {
    return strcmp(ab_json_text(facts->cell, "accumulate", "fp32"), "half") == 0 && ab_case_uses_half(facts);
}

double ab_loss_of_chance(const ab_case *facts) {
    const double classes = ab_case_classes(facts);
    return classes > 1 ? log(classes) : (double)INFINITY;
}

void ab_missing_evidence(const ab_case *facts, char *text, size_t size) {
    const cJSON *cell = facts->cell;
    const double micro = ab_json_number(facts->document, "config.gradient_accumulation_steps", 1);
    const bool clips = ab_json_number(facts->document, "config.clip_norm", 0) > 0 ||
                       ab_json_number(facts->document, "config.clip_value", 0) > 0;
    const bool energies = !isnan(ab_tensor_sums_of(cell, "unscaled_gradients", "", true).energy);
    const char *what = "more: run with --probes all --probe-every 1";
    if (!facts->baseline)
        what = "whether fp32 does better: run with an O0 cell, --levels O0,...";
    else if (facts->nonfinite && !ab_json_at(cell, "probes.origin"))
        what = "where the first non-finite value was produced: run with the probe origin (a default one)";
    else if ((clips || micro > 1) && facts->skip.largest_scale > 1 && !energies)
        what = "whether gradients are clipped, or unscaled again, while they carry the scale: run with the "
               "probe gradients (a "
               "default one)";
    else if (facts->unlearned && !ab_json_at(facts->baseline, "probes.signals"))
        what = "whether signals die or grow on their way: run with the probe signals (a default one)";
    else if (!ab_json_at(cell, "vitals"))
        what = "whether data, labels and weights are sound: this record is of an earlier version; run again";
    ab_text_show(text, size, "%s", what);
}
