/* Gradients too small for the half format at the scale in force: the cast makes them zero. What counts is the energy (sum of
 * squares) that goes, not how many values do: many tiny values may vanish harmlessly. */
#include "reports/diagnose_facts.h"
#include "reports/json.h"
#include "reports/text.h"

#include <math.h>
#include <string.h>

static const double much_energy =
    0.1; /* of a weight gradient's; 17 of 17 healthy runs stay below 4e-6 in all of them */
static const double large_deficit = 0.3; /* of the energy of O0's weight gradients at the first step */
static const double most_values =
    0.9; /* flushed: with the rest at the edge, the energy of the bins says too little */

typedef struct worst {
    const cJSON *tensor;
    int place;
    double energy, share;
} worst;

static worst find_worst(const ab_case *facts) {
    worst w = {NULL, 0, 0, 0};
    const cJSON *tensor;
    int place = -1;
    cJSON_ArrayForEach(tensor, ab_json_at(facts->cell, "probes.tensors")) {
        place++;
        const double nonzero = ab_json_number(tensor, "nonzero", 0),
                     flushed = ab_json_number(tensor, "flushed", 0);
        if (!ab_json_is_true(tensor, "cast") || nonzero <= 0 || flushed <= 0) continue;
        const double share = flushed / nonzero, energy = ab_case_flushed_energy(facts, tensor);
        if (w.tensor && !(energy > w.energy || (energy == w.energy && share > w.share))) continue;
        w = (worst){tensor, place, energy, share};
    }
    return w;
}

/* Octaves that the scale may rise before the largest recorded gradient overflows, one kept spare. */
static double room(const ab_case *facts) {
    double least = (double)INFINITY;
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(facts->cell, "probes.tensors")) {
        const cJSON *margin = ab_json_at(tensor, "margin_octaves");
        if (ab_json_is_true(tensor, "cast") && cJSON_IsNumber(margin))
            least = fmin(least, margin->valuedouble);
    }
    return isfinite(least) ? floor(least) - 1 : 0;
}

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    const worst w = find_worst(facts);
    if (!facts->behind || facts->unlearned || !ab_case_uses_half(facts) || !w.tensor) return false;
    const double deficit = ab_gradient_deficit(facts);
    if (!(w.energy >= much_energy) && w.share < most_values && !(deficit > large_deficit)) return false;
    const double octaves = room(facts), scale = ldexp(facts->skip.last_scale, (int)octaves);
    char energy[AB_TEXT_NUMBER], share[AB_TEXT_NUMBER], text[AB_TEXT_NUMBER];
    verdict->confidence = 0.6 + 0.35 * fmin(1, fmax(w.energy, w.share));
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(w.tensor, "layer", ""));
    ab_verdict_say(
        verdict, "%s %% of the non-zero values of %.80s are flushed to zero, with about %s %% of its energy",
        ab_text_percent(share, w.share), ab_json_text(w.tensor, "name", ""),
        ab_text_percent(energy, w.energy));
    ab_verdict_point(facts, verdict, "/probes/tensors/%d/flushed", w.place);
    if (deficit > much_energy) {
        verdict->confidence = fmax(verdict->confidence, 0.6 + 0.35 * fmin(1, deficit));
        ab_verdict_say(
            verdict, "at the first step weight gradients lack %s %% of the energy of O0's of the same batch",
            ab_text_percent(share, deficit));
        ab_verdict_point(facts, verdict, "/probes/tensors");
    }
    ab_verdict_say(verdict, "the largest gradients are %.0f octaves below the limit of %s", octaves + 1,
                   facts->half->name);
    if (octaves < 1) {
        snprintf(verdict->remedy, sizeof verdict->remedy,
                 "no higher scale fits under the limit of %s: --half bf16, or this layer in fp32",
                 facts->half->name);
        ab_verdict_option(verdict, "--half", "bf16");
        return true;
    }
    snprintf(verdict->remedy, sizeof verdict->remedy, "--scales %s (now %s), or --scales dynamic",
             ab_text_scale(text, scale), ab_text_scale(share, facts->skip.last_scale));
    ab_verdict_option(verdict, "--scales", "dynamic");
    return true;
}

const ab_verdict_rule ab_verdict_rule_gradient_underflow = {
    .id = "gradient_underflow",
    .family = AB_FAMILY_PRECISION,
    .text = "gradients are flushed to zero: the loss scale is too low",
    .judge = judge,
};
