/* Reading of probe.facts and probe.groups. */
#include "reports/diagnose/facts/loop.h"

#include "reports/record/graph.h"
#include "reports/record/json.h"
#include "reports/record/observed.h"
#include "reports/record/summary.h"

#include <math.h>
#include <string.h>

const cJSON *ab_loop_document(const ab_facts *facts) {
    const bool other =
        ab_observed_is_given(facts->cell) || ab_json_number(facts->cell, "of_run.index", 0) > 0;
    return other ? NULL : facts->document;
}

ab_stated ab_stated_of(const ab_facts *facts, const char *name) {
    ab_stated found = {
        .place = "", .last = (double)NAN, .least = (double)NAN, .largest = (double)NAN, .index = -1};
    const cJSON *entry;
    int index = -1;
    cJSON_ArrayForEach(entry, ab_json_at(ab_loop_document(facts), "probe.facts")) {
        index++;
        if (strcmp(ab_json_text(entry, "name", ""), name) != 0) continue;
        const double largest = ab_json_number(entry, "largest", (double)NAN);
        found.entries++;
        if (found.known && !(largest > found.largest)) continue;
        found.known = true;
        found.place = ab_json_text(entry, "place", "");
        found.last = ab_json_number(entry, "last", (double)NAN);
        found.least = ab_json_number(entry, "least", (double)NAN);
        found.largest = largest;
        found.times = (int)ab_json_number(entry, "times", 0);
        found.first_step = (int)ab_json_number(entry, "first_step", 0);
        found.index = index;
    }
    return found;
}

const cJSON *ab_loop_stated_at(const ab_facts *facts, const char *name, const char *place) {
    const cJSON *entry;
    cJSON_ArrayForEach(entry, ab_json_at(ab_loop_document(facts), "probe.facts")) {
        if (strcmp(ab_json_text(entry, "name", ""), name) == 0 &&
            strcmp(ab_json_text(entry, "place", ""), place) == 0)
            return entry;
    }
    return NULL;
}

ab_bad_input ab_loop_bad_input(const ab_facts *facts) {
    static const char share[] = "nonfinite_inputs";
    const ab_stated stated = ab_stated_of(facts, share);
    const double rows =
        ab_json_number(ab_loop_stated_at(facts, "nonfinite_input_rows", stated.place), "first", (double)NAN);
    return (ab_bad_input){.known = stated.known,
                          .place = stated.place,
                          .share = stated.largest,
                          .rows = rows,
                          .of = round(rows / ab_json_number(ab_loop_stated_at(facts, share, stated.place),
                                                            "first", (double)NAN)),
                          .first_step = stated.first_step,
                          .index = stated.index};
}

static const cJSON *first_group(const ab_facts *facts) {
    return cJSON_GetArrayItem(ab_json_at(facts->document, "probe.groups"), 0);
}

double ab_loop_number(const ab_facts *facts, const char *key) {
    return ab_loop_document(facts) ? ab_json_number(first_group(facts), key, 0) : 0;
}

bool ab_is_loop(const ab_facts *facts) { return first_group(facts) != NULL; }

/* What the rules read as O0: the loop itself where there is no other. */
static const cJSON *reference(const ab_facts *facts) {
    return facts->baseline ? facts->baseline : facts->cell;
}

/* The run's last rate over that of the last step whose updates were looked at, where it is larger. */
static double rate_raised(const ab_facts *facts) {
    const cJSON *param = cJSON_GetArrayItem(ab_json_at(reference(facts), "probes.lost_updates"), 0);
    const double probed = ab_json_number(param, "freeze.lr", 0);
    return probed > 0 ? fmax(1, ab_loop_number(facts, "lr_last") / probed) : 1;
}

double ab_loop_step_size(const ab_facts *facts) {
    return ab_relative_update(reference(facts)) * rate_raised(facts);
}

bool ab_loop_left_multiplied(const ab_facts *facts) {
    const double times = ab_stated_of(facts, "loss_multiplied").last, size = ab_loop_step_size(facts),
                 most = facts->limits->loop_step;
    return times > facts->limits->hand_scale && ab_facts_uses_half(facts) && size > most &&
           size / times <= most;
}

/* The last losses are not below these by more than chance. */
static bool has_not_fallen(const ab_facts *facts, const ab_loss_facts *loss, double mean, double error) {
    const double last_error = loss->spread / sqrt(AB_SUMMARY_FINAL_LOSSES);
    return !(mean - loss->final > facts->limits->trend_errors * hypot(error, last_error));
}

/* A fall within the first losses spreads their mean: there the first of them decides. */
bool ab_loop_is_flat(const ab_facts *facts, const ab_loss_facts *loss) {
    return has_not_fallen(facts, loss, loss->begin, loss->begin_error) &&
           !(loss->first - loss->final > facts->limits->loop_scatter * loss->spread);
}

bool ab_loop_stalls(const ab_facts *facts) {
    const ab_loss_facts *o0 = &facts->baseline_loss;
    return has_not_fallen(facts, o0, o0->quarter, o0->quarter_error);
}

ab_constant_loss ab_loop_constant(const ab_facts *facts) {
    const ab_stated model = ab_stated_of(facts, "loss_of_model"),
                    constant = ab_stated_of(facts, "loss_of_constant"),
                    error = ab_stated_of(facts, "loss_of_constant_error");
    const bool known = isfinite(model.last) && isfinite(constant.last) && isfinite(error.last);
    return (ab_constant_loss){known, model.last, constant.last, error.last, constant.place, constant.index};
}

bool ab_loop_knows_nothing(const ab_facts *facts) {
    const ab_constant_loss loss = ab_loop_constant(facts);
    const double chance = facts->limits->trend_errors * loss.error,
                 traces = (1 - facts->limits->learned_share) * loss.constant;
    return loss.known && !(loss.constant - loss.model > fmax(chance, traces));
}

/* Of a module whose class is known. */
static bool is_rectifier(const cJSON *modules, const char *name) {
    const cJSON *class;
    cJSON_ArrayForEach(class, modules) {
        if (class->string && strcmp(class->string, name) == 0)
            return cJSON_IsString(class) && strncmp(class->valuestring, "ReLU", 4) == 0;
    }
    return false;
}

const cJSON *ab_loop_silent_relu(const ab_facts *facts, int *place) {
    const cJSON *modules = ab_json_at(facts->document, "probe.about.modules"), *output;
    *place = -1;
    cJSON_ArrayForEach(output, ab_json_at(facts->baseline, "probes.activations")) {
        const double count = ab_json_number(output, "count", 0);
        ++*place;
        if (count > 0 && is_rectifier(modules, ab_json_text(output, "layer", "")) &&
            ab_json_number(output, "zero", 0) == count && ab_json_number(output, "steps.count", 0) >= 2)
            return output;
    }
    return NULL;
}

bool ab_loop_rises(const ab_facts *facts) {
    const ab_loss_facts *o0 = &facts->baseline_loss;
    const double rise = o0->sustained - o0->first, fall = o0->first - o0->final;
    return rise > facts->limits->loop_rise * fall && rise > facts->limits->loop_scatter * o0->spread;
}

/* The first step from which all rates together are no more than this share of those of the run, which sum to
 * `total`; the number of steps: there is none. *then: the rate there. */
static int rates_left(const ab_facts *facts, double total, double share, double *then) {
    const double stride = ab_json_number(ab_loop_document(facts), "probe.learning_rate.stride", 1);
    const cJSON *rate;
    double done = 0;
    int i = 0;
    cJSON_ArrayForEach(rate, ab_json_at(ab_loop_document(facts), "probe.learning_rate.mean")) {
        *then = cJSON_IsNumber(rate) ? rate->valuedouble : 0;
        if (total - done <= share * total) return (int)(stride * i);
        done += *then;
        i++;
    }
    return facts->loss.steps;
}

ab_rate_end ab_loop_rate_end(const ab_facts *facts) {
    ab_rate_end end = {.since = -1};
    const cJSON *rate;
    double total = 0, ignored;
    cJSON_ArrayForEach(rate, ab_json_at(ab_loop_document(facts), "probe.learning_rate.mean")) {
        if (!cJSON_IsNumber(rate)) continue;
        total += rate->valuedouble;
        end.largest = fmax(end.largest, rate->valuedouble);
    }
    if (!(total > 0)) return end;
    end.first = ab_loop_number(facts, "lr_first");
    end.last = ab_loop_number(facts, "lr_last");
    end.half = rates_left(facts, total, 0.5, &ignored);
    end.quarter = rates_left(facts, total, 0.25, &ignored);
    end.since = rates_left(facts, total, facts->limits->rate_rest, &end.then);
    return end;
}

/* The rates never fell, and rose in each quarter of the run. */
static bool still_rises(const cJSON *rates) {
    enum { QUARTERS = 4 };
    const int n = cJSON_GetArraySize(rates);
    const cJSON *rate;
    double before = 0, last_quarter = 0;
    int i = 0;
    if (n < 2 * QUARTERS) return false;
    cJSON_ArrayForEach(rate, rates) {
        if (!cJSON_IsNumber(rate) || rate->valuedouble < before) return false;
        before = rate->valuedouble;
        if (++i % (n / QUARTERS) != 0 && i != n) continue;
        if (!(before > last_quarter)) return false;
        last_quarter = before;
    }
    return true;
}

ab_warm_up ab_loop_warm_up(const ab_facts *facts) {
    const ab_stated base = ab_stated_of(facts, "base_learning_rate");
    ab_warm_up warm = {ab_loop_number(facts, "lr_first"), ab_loop_number(facts, "lr_last"), 0, base.index};
    if (base.known && strcmp(base.place, "param_groups[0]") == 0 &&
        still_rises(ab_json_at(ab_loop_document(facts), "probe.learning_rate.mean")))
        warm.base = base.last;
    return warm;
}

/* Mean of the finite losses of steps [from, to), and its standard error. */
static double mean_loss(const ab_facts *facts, int from, int to, double *error) {
    const cJSON *loss;
    double sum = 0, squares = 0;
    int step = 0, n = 0;
    cJSON_ArrayForEach(loss, ab_json_at(facts->cell, "loss")) {
        const int here = step++;
        if (here < from || here >= to || !cJSON_IsNumber(loss)) continue;
        sum += loss->valuedouble;
        squares += loss->valuedouble * loss->valuedouble;
        n++;
    }
    const double mean = sum / n;
    *error = n > 1 ? sqrt(fmax(0, squares / n - mean * mean) / (n - 1)) : (double)NAN;
    return mean;
}

/* The losses of steps [a, b) are above those of [c, d) by more than chance. *fall: by how much. */
static bool falls_between(const ab_facts *facts, int a, int b, int c, int d, double *fall) {
    double before_error, after_error;
    const double before = mean_loss(facts, a, b, &before_error), after = mean_loss(facts, c, d, &after_error);
    *fall = before - after;
    return *fall > facts->limits->trend_errors * hypot(before_error, after_error);
}

enum { EARLY = 5 * AB_SUMMARY_FINAL_LOSSES }; /* steps: too few to tell where a loss goes */

static bool half_is_left(const ab_facts *facts) {
    return facts->loss.first > 0 && facts->loss.final > facts->limits->stopped_left * facts->loss.first;
}

bool ab_loop_unsettled(const ab_facts *facts, int step) {
    double fall;
    if (step < EARLY) return half_is_left(facts);
    return falls_between(facts, step / 2, step - step / 4, step - step / 4, step, &fall);
}

bool ab_loop_cut_short(const ab_facts *facts, const ab_rate_end *end) {
    double fall;
    if (end->since < EARLY && half_is_left(facts)) return true;
    return falls_between(facts, end->half, end->quarter, end->since, facts->loss.steps, &fall) &&
           fall > facts->limits->rate_fall * (facts->loss.first - facts->loss.final);
}

/* The step of the least rate before the last one, if the rates never fell from there on; -1: they did. */
static int last_low(const cJSON *rates, ab_rate_rise *rise) {
    const cJSON *rate;
    double before = (double)INFINITY, highest = 0;
    int low = -1, i = 0;
    cJSON_ArrayForEach(rate, rates) {
        const double here = cJSON_IsNumber(rate) ? rate->valuedouble : 0;
        if (here < before) {
            low = i;
            rise->least = here;
            rise->before = highest;
        }
        highest = fmax(highest, here);
        before = here;
        i++;
    }
    rise->last = before;
    return low;
}

/* The losses of the steps on both sides of the low have rates alike. */
bool ab_loop_rate_rises_again(const ab_facts *facts, ab_rate_rise *rise) {
    enum { AROUND = AB_SUMMARY_FINAL_LOSSES };
    const double stride = ab_json_number(ab_loop_document(facts), "probe.learning_rate.stride", 1);
    const int low = last_low(ab_json_at(ab_loop_document(facts), "probe.learning_rate.mean"), rise),
              steps = facts->loss.steps, end = steps - AROUND;
    double fall;
    rise->since = (int)(stride * low);
    if (rise->since < AROUND || rise->since + AROUND > end ||
        !(rise->last > facts->limits->rate_back * rise->before) ||
        !(rise->least < facts->limits->warm_up_rate * rise->last))
        return false;
    const bool rises = falls_between(facts, end, steps, rise->since - AROUND, rise->since + AROUND, &fall);
    rise->loss = facts->loss.final - fall;
    return rises;
}

bool ab_loop_calls_no_step(const ab_facts *facts) {
    int place = 0;
    const bool stated = ab_stated_of(facts, "passes_without_backward").known ||
                        ab_stated_of(facts, "passes_without_step").known;
    return stated && facts->loss.nonfinite == 0 && !ab_loop_overflow(facts, &place) &&
           ab_loop_number(facts, "steps_with_scale") == 0;
}

const cJSON *ab_loop_overflow(const ab_facts *facts, int *index) {
    const cJSON *entry, *first = NULL;
    int place = -1;
    cJSON_ArrayForEach(entry, ab_json_at(ab_loop_document(facts), "probe.overflowed")) {
        place++;
        if (first && !(ab_json_number(entry, "first_step", 0) < ab_json_number(first, "first_step", 0)))
            continue;
        first = entry;
        *index = place;
    }
    return first;
}

bool ab_loop_made_before(const ab_facts *facts, const ab_first_nonfinite *first) {
    return first->known && ab_loop_stated_at(facts, "made_before_training", first->op);
}

/* Squares and their sums, roots of such sums, extremes. A sum alone is none: it counts. */
static bool is_spread(ab_traits t) {
    return t & (AB_TRAIT_square | AB_TRAIT_extreme) ||
           (t & AB_TRAIT_sum && t & (AB_TRAIT_root | AB_TRAIT_square));
}

bool ab_loop_divided_by_spread(const ab_facts *facts, const ab_first_nonfinite *first) {
    const ab_graph graph = ab_graph_of(facts->document, ab_json_at(facts->cell, "implementations"));
    return ab_loop_made_before(facts, first) && ab_first_traits(facts, first) & AB_TRAIT_quotient &&
           ab_graph_reads(&graph, ab_graph_op(&graph, first->op), 4, is_spread);
}

bool ab_loop_made_data(const ab_facts *facts, const ab_first_nonfinite *first) {
    const ab_bad_input input = ab_loop_bad_input(facts);
    return ab_loop_made_before(facts, first) &&
           (ab_loop_divided_by_spread(facts, first) || (input.known && input.share < 1) ||
            !(ab_first_traits(facts, first) & AB_TRAIT_quotient));
}
