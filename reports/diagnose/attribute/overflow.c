/* An op that overflowed in the forward pass while O0 trains: which kind of op it is. */
#include "reports/diagnose/attribute/overflow.h"

#include "kernels/core/text.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/diagnose/remedy/remedy.h"
#include "reports/record/graph.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* ---- kinds of overflow ------------------------------------------------------------------------------ */

static ab_graph graph_of(const ab_case *c) {
    return ab_graph_of(c->facts.document, ab_json_at(c->facts.cell, "implementations"));
}

static bool is_sum(ab_traits t) { return t & AB_TRAIT_sum; }
static bool is_root(ab_traits t) { return t & AB_TRAIT_root; }
static bool is_mask(ab_traits t) { return t & AB_TRAIT_mask; }
static bool is_exponential(ab_traits t) { return t & AB_TRAIT_exponential; }
static bool is_activation_product(ab_traits t) { return t & AB_TRAIT_activation_product; }
static bool is_any_product(ab_traits t) { return t & AB_TRAIT_product; }
static bool is_softmax_op(ab_traits t) { return t & AB_TRAIT_softmax; }
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

/* An additive mask: no scores are in it, for it reads no product, and a softmax reads it. */
static bool is_additive_mask(const ab_graph *graph, const cJSON *op, ab_traits t) {
    return !graph->by_position && t & (AB_TRAIT_scaling | AB_TRAIT_arithmetic | AB_TRAIT_rearrangement) &&
           !ab_graph_reads(graph, op, 5, is_any_product) && ab_graph_is_read_by(graph, op, 3, is_softmax_op);
}

static bool is_quotient(ab_traits t) { return t & AB_TRAIT_quotient; }
static bool is_inverse_root(ab_traits t) { return is_root(t) && is_quotient(t); }

/* A norm divides by the root of its squares. A root that nothing is divided by is the end of a formula: a
 * root mean square error. */
static bool is_divided_by(const ab_graph *graph, const cJSON *op, ab_traits t) {
    if (graph->by_position) return ab_graph_is_read_by(graph, op, 5, is_root);
    return ab_graph_is_read_by(graph, op, 5, is_inverse_root) ||
           ((is_root(t) || ab_graph_is_read_by(graph, op, 5, is_root)) &&
            ab_graph_is_read_by(graph, op, 8, is_quotient));
}

static bool is_norm(const ab_graph *graph, const cJSON *op, ab_traits t) {
    if (t & AB_TRAIT_normalization) return true;
    if (is_moment(t) && is_divided_by(graph, op, t)) return true;
    if (is_root(t)) return ab_graph_reads(graph, op, 4, is_moment); /* squares that underflowed to 0 */
    return t & AB_TRAIT_quotient && ab_graph_reads(graph, op, 3, is_root) &&
           ab_graph_reads(graph, op, 6, is_moment); /* the root of such squares */
}

/* `zero`: it has no value at what it read, so zeros: a product of terms that all became 0 is one. */
static bool is_exp_log(const ab_graph *graph, const cJSON *op, ab_traits t, bool zero) {
    if (t & (AB_TRAIT_exponential | AB_TRAIT_logarithm | AB_TRAIT_softmax | AB_TRAIT_logistic)) return true;
    if (!(t & AB_TRAIT_quotient)) return false;
    /* a softmax built of single ops whose terms all became 0 */
    return ab_graph_reads(graph, op, 4, is_exponential) ||
           (zero && ab_graph_reads_through(graph, op, 4, is_exponential));
}

/* A sum; or what a constant or another term makes of a sum that was near the limit by itself. Where the sum
 * was small, the constant is what passes it. A square that a sum reads, in a network of ampbench's own, where
 * both are kept wide together; in a loop it is named for what it is: it has left the range before anything is
 * added up. */
static bool is_reduction(const ab_case *c, const ab_graph *graph, const cJSON *op, ab_traits t,
                         double read_largest) {
    const bool after = t & (AB_TRAIT_scaling | AB_TRAIT_arithmetic) &&
                       read_largest >= ab_near_overflow(&c->facts) && ab_graph_reads(graph, op, 1, is_sum);
    const bool before =
        !ab_is_loop(&c->facts) && t & AB_TRAIT_square && ab_graph_is_read_by(graph, op, 1, is_sum);
    return is_sum(t) || after || before;
}

/* It ran before the first step: it prepared data or a table, and is no layer of the net. */
static bool is_preparation(const ab_case *c, const ab_first_nonfinite *first) {
    return ab_loop_made_before(&c->facts, first);
}

/* Its inputs are finite and it has no value at them, computed in double: nothing left a range. In fp32 they
 * are other inputs. */
static bool is_formula(const ab_first_nonfinite *first) { return strcmp(first->cause, "mathematics") == 0; }

/* A softmax has read rows that are nothing but the -inf which this op made. Else a mask's infinities became
 * NaN otherwise: 0 times them, or their sum with others. */
static bool hides_rows(const ab_case *c, const ab_first_nonfinite *first) {
    const ab_stated hidden = ab_stated_of(&c->facts, "hidden_rows");
    return hidden.known && strcmp(hidden.place, first->op) == 0;
}

/* A cast before the training made inputs or targets infinite: the net reads them as they are. */
static bool is_cast_of_data(const ab_case *c, const ab_first_nonfinite *first) {
    return is_preparation(c, first) && strcmp(first->by, "cast") == 0 && ab_loop_bad_input(&c->facts).known;
}

/* A line of the loop adds gradients up in half. */
static bool sums_gradients(const ab_case *c, const ab_first_nonfinite *first) {
    return first->place[0] && ab_loop_stated_at(&c->facts, "gradient_increments_lost", first->place);
}

static ab_overflow_kind kind_of(const ab_case *c, const ab_first_nonfinite *first) {
    const ab_graph graph = graph_of(c);
    const cJSON *op = ab_graph_op(&graph, first->op);
    const ab_traits t = ab_graph_traits_of(&graph, first->op, first->type);
    if (strcmp(first->by, "weight_cast") == 0 || strcmp(first->cause, "bad_weights") == 0)
        return AB_OVERFLOW_WEIGHT;
    if (ab_first_is_beyond_fp32(first)) return is_exponential(t) ? AB_OVERFLOW_FORMULA : AB_OVERFLOW_NONE;
    if (is_cast_of_data(c, first)) return AB_OVERFLOW_DATA;
    if (sums_gradients(c, first)) return AB_OVERFLOW_GRADIENTS;
    const bool layer = !is_preparation(c, first);
    if (layer && is_attention(&graph, op, t)) return AB_OVERFLOW_ATTENTION;
    if (layer && is_additive_mask(&graph, op, t))
        return hides_rows(c, first) ? AB_OVERFLOW_MASK : AB_OVERFLOW_ATTENTION;
    if (layer && is_norm(&graph, op, t)) return AB_OVERFLOW_NORM;
    if (is_exp_log(&graph, op, t, is_formula(first))) return AB_OVERFLOW_EXP_LOG;
    if (is_formula(first)) return AB_OVERFLOW_FORMULA;
    return is_reduction(c, &graph, op, t, first->read_largest) ? AB_OVERFLOW_REDUCTION
                                                               : AB_OVERFLOW_ACTIVATION;
}

static double largest_signal(const cJSON *cell, const char *op) {
    return ab_json_number(ab_signal_of(cell, op), "largest", 0);
}

static bool is_own(const ab_case *c, const ab_first_nonfinite *first) {
    const double near = ab_near_overflow(&c->facts);
    if (first->step == 0 || ab_first_traits(&c->facts, first) & AB_TRAITS_OF_ZERO) return true;
    if (strcmp(first->by, "weight_cast") == 0 || strcmp(first->cause, "bad_weights") == 0)
        return ab_json_number(c->facts.baseline, "vitals.final_weights.largest", 0) > near;
    return largest_signal(c->facts.baseline, first->op) > near;
}

/* The scaler lowered its scale below 1 and most skipped steps still had non-finite losses. */
static bool nonfinite_at_any_scale(const ab_case *c) {
    return c->facts.skip.dynamic && c->facts.skip.least_scale < 1 &&
           c->facts.skip.skipped > c->facts.skip.late_steps / 2 &&
           c->facts.skip.skipped - c->facts.skip.loss_finite > c->facts.skip.skipped / 2;
}

static bool weights_overflow(const ab_case *c, ab_first_nonfinite *first) {
    const char *name =
        ab_json_text(c->facts.cell, "vitals.initial_weights.nonfinite_name",
                     ab_json_text(c->facts.cell, "vitals.initial_weights.beyond_half_name", ""));
    if (!name[0] || ab_json_number(c->facts.baseline, "vitals.initial_weights.nonfinite", 0) > 0)
        return false;
    *first = (ab_first_nonfinite){
        .known = true,
        .op = "",
        .type = "weight",
        .pass = "forward",
        .by = "weight_cast",
        .tensor = "",
        .cause = "",
        .place = "",
        .format = c->facts.half->name,
        .own = true,
        .read_largest = ab_json_number(c->facts.baseline, "vitals.initial_weights.largest", (double)NAN)};
    return true;
}

/* Finds an op whose output exceeded the limit in O0, but not yet in this cell. */
static bool is_to_come(const ab_case *c, ab_first_nonfinite *first) {
    const double limit = ab_format_overflow_limit(c->facts.half);
    const cJSON *op;
    int place = 0;
    cJSON_ArrayForEach(op, ab_json_at(c->facts.baseline, "probes.signals")) {
        const int here = place++;
        const char *name = ab_json_text(op, "op", "");
        const double own = largest_signal(c->facts.cell, name);
        if (ab_json_number(op, "largest", 0) < limit || own <= 0 || own >= limit) continue;
        *first = (ab_first_nonfinite){.known = true,
                                      .op = name,
                                      .type = ab_json_text(op, "type", ""),
                                      .pass = "forward",
                                      .by = "op",
                                      .tensor = "",
                                      .cause = "",
                                      .place = "",
                                      .format = c->facts.half->name,
                                      .step = AB_STEP_UNKNOWN,
                                      .own = true,
                                      .to_come = true,
                                      .read_largest = ab_json_number(op, "largest", 0)};
        ab_text_exact(first->pointer, sizeof first->pointer, "/probes/signals/%d/largest", here);
        return true;
    }
    return false;
}

/* Without an O0 the element computed again in double takes its place: fp32 would have held it. */
static ab_overflow_kind proved_in_double(const ab_case *c, ab_first_nonfinite *first) {
    *first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    const bool proved = first->known && strcmp(first->cause, "range_overflow") == 0 &&
                        strcmp(first->pass, "forward") == 0 &&
                        strcmp(first->format, c->facts.half->name) == 0;
    first->own = proved;
    return proved ? kind_of(c, first) : AB_OVERFLOW_NONE;
}

/* A loop's gradient that is beyond the half format without any loss scale, after which losses are not finite.
 */
static bool beyond_unscaled(const ab_case *c, const ab_first_nonfinite *first) {
    return ab_is_loop(&c->facts) && c->nonfinite && strcmp(first->cause, "range_overflow") == 0 &&
           strcmp(first->format, c->facts.half->name) == 0;
}

ab_overflow_kind ab_overflow_of(const ab_case *c, ab_first_nonfinite *first) {
    if (c->facts.baseline == c->facts.cell || !ab_facts_uses_half(&c->facts)) return AB_OVERFLOW_NONE;
    if (!c->facts.baseline) return proved_in_double(c, first);
    if (c->facts.baseline_loss.nonfinite > 0) return AB_OVERFLOW_NONE;
    if (c->unlearned && (c->diverged || !c->nonfinite)) return AB_OVERFLOW_NONE;
    if (c->nonfinite && weights_overflow(c, first)) return AB_OVERFLOW_WEIGHT;
    *first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    first->own = first->known && is_own(c, first);
    const bool forward = first->known && strcmp(first->pass, "forward") == 0 &&
                         (!first->format[0] || strcmp(first->format, c->facts.half->name) == 0);
    if (forward) return kind_of(c, first);
    if (first->known && strcmp(first->pass, "backward") == 0) {
        const bool beyond = beyond_unscaled(c, first);
        const bool shown = c->skipping || beyond;
        if (c->facts.skip.dynamic || beyond)
            return shown && kind_of(c, first) == AB_OVERFLOW_EXP_LOG ? AB_OVERFLOW_EXP_LOG : AB_OVERFLOW_NONE;
    }
    if (!first->known && !c->nonfinite && is_to_come(c, first)) return kind_of(c, first);
    if (first->known || !c->nonfinite) return AB_OVERFLOW_NONE;
    return c->facts.loss.first_nonfinite == 0 || nonfinite_at_any_scale(c) ? AB_OVERFLOW_ACTIVATION
                                                                           : AB_OVERFLOW_NONE;
}

/* ---- verdicts --------------------------------------------------------------------------------------- */

static void say_symptom(const ab_case *c, ab_verdict *verdict) {
    if (!c->nonfinite && !c->facts.baseline) return;
    if (!c->nonfinite) {
        if (c->skipping) return; /* what is not finite is a gradient */
        ab_verdict_add_evidence(
            verdict,
            "the losses are finite, because dividing by an infinity gives 0; loss gap to O0 "
            "%+.4g",
            c->facts.gap);
        ab_verdict_point(&c->facts, verdict, "/summary/loss_gap");
        return;
    }
    ab_verdict_add_evidence(verdict, "%d of %d losses are NaN or inf, the first at step %d%s",
                            c->facts.loss.nonfinite, c->facts.loss.steps, c->facts.loss.first_nonfinite,
                            c->facts.baseline ? "; all of O0's are finite" : "");
    ab_verdict_point(&c->facts, verdict, "/loss/%d", c->facts.loss.first_nonfinite);
    if (!nonfinite_at_any_scale(c)) return;
    char least[AB_TEXT_NUMBER];
    ab_verdict_add_evidence(verdict, "they stayed so while the scale fell to %s",
                            ab_text_scale(least, c->facts.skip.least_scale));
    ab_verdict_point(&c->facts, verdict, "/scale");
}

static void say_weight(const ab_case *c, ab_verdict *verdict) {
    const char *name =
        ab_json_text(c->facts.cell, "vitals.initial_weights.nonfinite_name",
                     ab_json_text(c->facts.cell, "vitals.initial_weights.beyond_half_name", ""));
    const char *dot = strrchr(name, '.');
    char layer[AB_VERDICT_LAYER];
    ab_text_show(layer, sizeof layer, "%.*s", dot ? (int)(dot - name) : (int)strlen(name), name);
    ab_text_clean(verdict->layer, sizeof verdict->layer, layer);
    ab_verdict_add_evidence(verdict, "%s has weights up to %.4g in fp32; the largest number of %s is %.4g",
                            ab_text_brief(name, 60),
                            ab_json_number(c->facts.baseline, "vitals.initial_weights.largest", 0),
                            c->facts.half->name, ab_format_max(c->facts.half));
    ab_verdict_point_baseline(&c->facts, verdict, "/vitals/initial_weights");
}

static void say_what_comes(const ab_case *c, const ab_first_nonfinite *first, ab_verdict *verdict) {
    verdict->proof = AB_PROOF_COMPARED;
    verdict->next = true;
    ab_text_clean(verdict->layer, sizeof verdict->layer, first->op);
    ab_verdict_add_evidence(verdict, "outputs of %s reach %.4g in O0; the largest number of %s is %.4g",
                            ab_text_brief(verdict->layer, 60), first->read_largest, c->facts.half->name,
                            ab_format_max(c->facts.half));
    ab_verdict_point_baseline(&c->facts, verdict, "%s", first->pointer);
}

/* `seen`: only an overflow of the first step that moved its loss; O0 has the same weights and batch there. */
static bool judge(const ab_case *c, ab_overflow_kind kind, bool seen, ab_verdict *verdict) {
    ab_first_nonfinite first = {.known = false, .tensor = ""};
    if (ab_overflow_of(c, &first) != kind) return false;
    if (seen && !(first.known && !first.to_come && first.step == 0 &&
                  ab_facts_first_shift(&c->facts) > c->facts.limits->first_shift))
        return false;
    verdict->proof = first.known ? AB_PROOF_SHOWN : AB_PROOF_COMPARED;
    verdict->own = first.own || (!first.known && c->facts.loss.first_nonfinite == 0);
    verdict->since = first.known ? first.step : c->facts.loss.first_nonfinite;
    if (first.to_come) {
        say_what_comes(c, &first, verdict);
        return true;
    }
    say_symptom(c, verdict);
    if (kind == AB_OVERFLOW_WEIGHT && !first.op[0])
        say_weight(c, verdict);
    else if (first.known)
        ab_say_first_nonfinite(&c->facts, &first, verdict);
    else
        ab_text_show(
            verdict->missing, sizeof verdict->missing,
            "which layer: the record does not say where the first non-finite value was produced; run with "
            "--probes all --probe-every 1");
    return true;
}

bool ab_judge_overflow(const ab_case *c, ab_overflow_kind kind, ab_verdict *verdict) {
    return ab_case_fails_alone(c) && judge(c, kind, false, verdict);
}

bool ab_show_overflow(const ab_case *c, ab_overflow_kind kind, ab_verdict *verdict) {
    return judge(c, kind, true, verdict);
}

/* ---- refutations ------------------------------------------------------------------------------------- */

static bool is_unstable(const ab_case *c, const ab_verdict *verdict) {
    return c->lr_unstable && verdict->since > 0;
}

static bool result_fits(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    const ab_first_nonfinite first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    return strcmp(first.cause, "accumulator_overflow") == 0 && ab_facts_accumulates_in_half(&c->facts);
}

static bool is_statistics(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    const ab_first_nonfinite first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    return ab_first_is_statistics(&first);
}

const ab_refutation ab_refuted_rate = {"O0's weights grow in the same way", is_unstable};
const ab_refutation ab_refuted_fits = {"the result itself fits, only its partial sums do not", result_fits};
const ab_refutation ab_refuted_statistics = {"the values are running statistics, not outputs", is_statistics};

void ab_remedy_of_overflow(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    if (!ab_remedy_keep_fp32(&c->facts, verdict->layer, remedy))
        ab_remedy_add_text(remedy, "keep the layer in fp32 (--to LAYER=fp32); no loss scale helps");
    remedy->with_others = verdict->next && remedy->options > 0 && strcmp(remedy->option[0], "--to") == 0;
}
