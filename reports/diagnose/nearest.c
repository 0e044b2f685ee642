/* Numbers of the causes of a loop that does not learn, by their distance from the limits of the rules. */
#include "reports/diagnose/nearest.h"

#include "reports/diagnose/facts/layers.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"

#include <math.h>

/* A number of the record that a cause asks to be above or below a limit. */
typedef struct candidate {
    const char *id;
    double number, limit;
    bool above;
    const char *what, *of; /* what the number is */
} candidate;

enum { CANDIDATES = 5, NEAREST = 2 };

/* How many times the number would have to change; infinity: not recorded. */
static double distance(const candidate *one) {
    const double ratio = one->above ? one->limit / one->number : one->number / one->limit;
    return ratio > 0 ? ratio : (double)INFINITY;
}

static void exchange(candidate *a, candidate *b) {
    const candidate other = *a;
    *a = *b;
    *b = other;
}

static double sum_of(const cJSON *cell, const char *key) {
    const cJSON *param;
    double sum = 0;
    cJSON_ArrayForEach(param, ab_json_at(cell, "probes.lost_updates")) sum += ab_json_number(param, key, 0);
    return sum;
}

/* Share of the energy of all updates that half weights lost; NAN: the weights are not in half, or none. */
static double lost_energy(const ab_case *c) {
    if (!ab_facts_half_weights(&c->facts)) return (double)NAN;
    return sum_of(c->facts.cell, "update.lost_energy") / sum_of(c->facts.cell, "update.energy");
}

static void find(const ab_case *c, candidate *list) {
    const ab_thresholds *t = c->facts.limits;
    const cJSON *cell = c->facts.baseline ? c->facts.baseline : c->facts.cell;
    const double size = ab_loop_step_size(&c->facts);
    const ab_front front = ab_layers_front(cell);
    int place;
    list[0] = (candidate){"learning_rate_too_high",        size, t->loop_step, true, "a step is",
                          "of the weights that it changes"};
    list[1] = (candidate){
        "learning_rate_too_low", size * c->facts.loss.steps, t->rate_moves, false, "all steps together are",
        "of the weights"};
    list[2] = (candidate){"vanishing_gradient",
                          front.gradient ? front.own / front.most : (double)NAN,
                          t->few_gradients,
                          false,
                          "the gradient of the layer that runs first is",
                          "of the largest"};
    list[3] =
        (candidate){"exploding_signal",      ab_layers_growth(cell, &place),           t->exploding, true,
                    "the largest output is", "times that of the layer that runs first"};
    list[4] = (candidate){"weight_update_lost", lost_energy(c),
                          t->lost_energy_alone, true,
                          "rounding loses",     "of the energy of all updates"};
}

static void say(const candidate *one, ab_verdict *verdict) {
    if (isfinite(distance(one)))
        ab_verdict_add_evidence(verdict, "%s asks for %s than %.2g: %s %.2g %s", one->id,
                                one->above ? "more" : "less", one->limit, one->what, one->number, one->of);
    else
        ab_verdict_add_evidence(verdict, "%s cannot be told: its number is not recorded", one->id);
}

void ab_say_nearest(const ab_case *c, ab_verdict *verdict) {
    candidate list[CANDIDATES];
    find(c, list);
    for (int i = 0; i < NEAREST; i++) {
        for (int k = i + 1; k < CANDIDATES; k++)
            if (distance(&list[k]) < distance(&list[i])) exchange(&list[i], &list[k]);
        say(&list[i], verdict);
    }
}
