/* Changes of the loss scale. A fixed one is never advised: it is not checked, so one overflow ends the run.
 */
#include "reports/diagnose/remedy/remedy.h"

#include "reports/record/json.h"

#include <math.h>
#include <string.h>

static const char checked[] = "a scaler that checks and skips";

/* The first scale of --scales dynamic, and its highest (apex/amp/scaler.py). */
static const double first_scale = 0x1p16, highest_scale = 0x1p24;

/* --scales dynamic without keys: no option can make it check more. */
static bool is_plain_dynamic(const ab_facts *facts) {
    return strcmp(ab_json_text(facts->cell, "scale_policy", ""), "dynamic") == 0;
}

static double floor_of(const ab_facts *facts) {
    return ab_json_number(facts->document, "config.min_loss_scale", 0);
}

bool ab_remedy_checked_scale(const ab_facts *facts, ab_remedy *remedy) {
    const double floor = floor_of(facts);
    if (facts->skip.dynamic && floor > 0) {
        ab_remedy_option(remedy, "let the scale fall further", "--min-loss-scale", "%.9g",
                         floor > 1 ? 1 : fmax(floor * 0x1p-24, 1e-30));
        return true;
    }
    if (is_plain_dynamic(facts) && facts->skip.dynamic) return false;
    ab_remedy_option(remedy, checked, "--scales", "dynamic");
    return true;
}

/* Energy that O0's gradients would lose at a scale, as the largest share of a tensor. */
static double lost_at(const ab_facts *facts, double scale) {
    ab_facts at = *facts;
    const cJSON *tensor;
    double most = 0;
    at.skip.dynamic = false;
    at.skip.last_scale = scale;
    cJSON_ArrayForEach(tensor, ab_json_at(facts->cell, "probes.tensors")) {
        if (!ab_json_is_true(tensor, "cast")) continue;
        const double lost = ab_expected_flush(&at, tensor);
        if (lost > most) most = lost;
    }
    return most;
}

bool ab_remedy_higher_scale(const ab_facts *facts, double wanted, ab_remedy *remedy) {
    const double cap = ab_json_number(facts->document, "config.max_loss_scale", highest_scale);
    const double first = fmin(wanted, highest_scale);
    const bool capped = cap < first;
    const bool here = is_plain_dynamic(facts) && facts->skip.dynamic && !capped;
    const bool far =
        first > first_scale && (here || lost_at(facts, first_scale) >= facts->limits->underflow_energy);
    if (here && !far) return ab_remedy_masters(facts, remedy);
    if (far)
        ab_remedy_option(remedy, checked, "--scales", "dynamic:init=%.9g", first);
    else
        ab_remedy_option(remedy, checked, "--scales", "dynamic");
    if (capped) ab_remedy_option(remedy, NULL, "--max-loss-scale", "%.9g", highest_scale);
    (void)ab_remedy_masters(facts, remedy);
    return true;
}

bool ab_remedy_longer_window(const ab_facts *facts, int steps, ab_remedy *remedy) {
    /* some scalers have no window, and the option does not reach one that the scaler's own text sets */
    const bool own = ab_json_at(facts->cell, "scale_window") != NULL,
               given = ab_json_number(facts->document, "config.scale_window", steps) < steps;
    if (own || !given) ab_remedy_option(remedy, NULL, "--scales", "dynamic");
    ab_remedy_option(remedy, NULL, "--scale-window", "%d", steps);
    return true;
}
