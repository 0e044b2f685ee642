/* The advice: arithmetic on histograms of exponents. */
#include "reports/advise.h"

#include "reports/exponents.h"
#include "reports/json.h"
#include "reports/stats.h"
#include "reports/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const ab_advise_goal ab_advise_usual = {1, 1e-6, 1.0 / 2000};

/* ---- which cell ------------------------------------------------------------------------------------------ */

static bool constant_scale(const cJSON *cell) { return cJSON_GetArraySize(ab_json_at(cell, "scale")) == 1; }

static bool is_twin(const cJSON *cell) { return cJSON_IsString(ab_json_at(cell, "twin")); }

static bool has_gradients(const cJSON *cell) {
    return cJSON_GetArraySize(ab_json_at(cell, "probes.tensors")) > 0;
}

/* O0 first; else the level's own if its scale never changed. */
static const cJSON *gradients_of(const cJSON *document, const char *level) {
    const cJSON *cell, *own = NULL;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        if (is_twin(cell) || !has_gradients(cell) || !constant_scale(cell)) continue;
        if (strcmp(ab_json_text(cell, "level", ""), "O0") == 0) return cell;
        if (!own && strcmp(ab_json_text(cell, "level", ""), level) == 0) own = cell;
    }
    return own;
}

static const cJSON *cell_of_level(const cJSON *document, const char *level) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        if (!is_twin(cell) && has_gradients(cell) && strcmp(ab_json_text(cell, "level", ""), level) == 0)
            return cell;
    }
    return NULL;
}

/* Whether the level casts the tensor called `name`; yes if its cell is not there to say. */
static bool is_cast(const cJSON *level_cell, const char *name) {
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(level_cell, "probes.tensors")) {
        if (strcmp(ab_json_text(tensor, "name", ""), name) == 0) return ab_json_is_true(tensor, "cast");
    }
    return level_cell == NULL;
}

/* ---- lower limit ----------------------------------------------------------------------------------------- */

static int lowest_k(const cJSON *tensor, const ab_advise *a, const ab_advise_goal *goal) {
    const ab_exponent_mass all = ab_exponents_all(tensor);
    int k = AB_ADVISE_K_MIN;
    for (; k <= AB_ADVISE_K_MAX; k++) {
        const ab_exponent_mass lost = ab_exponents_flushed(tensor, a->half, k - a->base_log2);
        if (lost.count <= goal->flushed_share * all.count && lost.energy <= goal->flushed_energy * all.energy)
            break;
    }
    return k;
}

/* ---- upper limit ----------------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* log2 at scale 1 of the largest gradient of each recorded step, over the tensors that are cast; NULL without memory. */
static double *largest_of_steps(const cJSON *cell, const cJSON *level_cell, const ab_advise *a, int *steps) {
    const cJSON *tensor, *margin;
    const double limit = log2(ab_format_overflow_limit(a->half));
    *steps = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        const int n = cJSON_GetArraySize(ab_json_at(tensor, "steps.margin_octaves"));
        if (n > *steps) *steps = n;
    }
    double *largest = malloc(((size_t)*steps + 1) * sizeof *largest);
    if (!largest) return NULL;
    for (int i = 0; i < *steps; i++) largest[i] = -(double)INFINITY;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        int i = 0;
        if (!is_cast(level_cell, ab_json_text(tensor, "name", ""))) continue;
        cJSON_ArrayForEach(margin, ab_json_at(tensor, "steps.margin_octaves")) {
            if (cJSON_IsNumber(margin))
                largest[i] = fmax(largest[i], limit - margin->valuedouble - a->base_log2);
            i++;
        }
    }
    return largest;
}

static double overflow_probability(const ab_advise *a, int k) {
    const double distance = log2(ab_format_overflow_limit(a->half)) - k - a->law.mu;
    if (a->law.beta <= 0) return distance > 0 ? 0 : 1;
    return -expm1(-exp(-distance / a->law.beta));
}

static int highest_k(const ab_advise *a, double alpha) {
    int k = AB_ADVISE_K_MAX;
    while (k >= AB_ADVISE_K_MIN && overflow_probability(a, k) > alpha) k--;
    return k;
}

/* ---- advice ---------------------------------------------------------------------------------------------- */

static void add_tensor(ab_advise *a, const cJSON *tensor, const ab_advise_goal *goal) {
    if (a->tensors == AB_ADVISE_TENSORS || ab_exponents_all(tensor).count <= 0) return;
    ab_advise_tensor *t = &a->tensor[a->tensors];
    ab_text_clean(t->name, sizeof t->name, ab_json_text(tensor, "name", ""));
    ab_text_clean(t->layer, sizeof t->layer, ab_json_text(tensor, "layer", ""));
    t->k_lo = lowest_k(tensor, a, goal);
    if (a->tensors == 0 || t->k_lo > a->k_lo) {
        a->k_lo = t->k_lo;
        a->decides = a->tensors;
    }
    a->tensors++;
}

/* What 2^k flushes of each tensor, and of all. */
static void predict(ab_advise *a, const cJSON *level_cell) {
    ab_exponent_mass lost = {0, 0}, all = {0, 0};
    const cJSON *tensor;
    int i = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(a->cell, "probes.tensors")) {
        const ab_exponent_mass total = ab_exponents_all(tensor),
                               below = ab_exponents_flushed(tensor, a->half, a->k - a->base_log2);
        if (!is_cast(level_cell, ab_json_text(tensor, "name", "")) || total.count <= 0 || i == a->tensors)
            continue;
        a->tensor[i].share = below.count / total.count;
        a->tensor[i].energy = below.energy / total.energy;
        i++;
        lost = (ab_exponent_mass){lost.count + below.count, lost.energy + below.energy};
        all = (ab_exponent_mass){all.count + total.count, all.energy + total.energy};
    }
    a->share = all.count > 0 ? lost.count / all.count : 0;
    a->energy = all.energy > 0 ? lost.energy / all.energy : 0;
    a->overflow = overflow_probability(a, a->k);
}

ab_status ab_advise_make(const cJSON *document, const char *level, const ab_advise_goal *goal,
                         ab_advise *advise) {
    const cJSON *tensor, *level_cell = cell_of_level(document, level);
    memset(advise, 0, sizeof *advise);
    advise->cell = gradients_of(document, level);
    if (!advise->cell)
        return ab_fail(
            AB_INPUT,
            "advise: the record has no gradients at a scale that stays the same; run with --levels O0,%s "
            "--probes gradients",
            level);
    AB_TRY(ab_format_find(ab_json_text(advise->cell, "half_format", ""), &advise->half));
    const cJSON *scale = cJSON_GetArrayItem(cJSON_GetArrayItem(ab_json_at(advise->cell, "scale"), 0), 0);
    /* an O0 cell's gradients are recorded as a cast at its own scale would see them */
    advise->base_log2 = cJSON_IsNumber(scale) && scale->valuedouble > 0 ? log2(scale->valuedouble) : 0;
    cJSON_ArrayForEach(tensor, ab_json_at(advise->cell, "probes.tensors")) {
        if (is_cast(level_cell, ab_json_text(tensor, "name", ""))) add_tensor(advise, tensor, goal);
    }
    double *largest = largest_of_steps(advise->cell, level_cell, advise, &advise->steps);
    if (!largest) return ab_fail(AB_NO_MEMORY, "advise: out of memory");
    if (advise->tensors == 0 || advise->steps < AB_ADVISE_STEPS) {
        free(largest);
        return advise->tensors == 0
                   ? ab_fail(AB_INPUT, "advise: the recorded gradients have no finite non-zero value")
                   : ab_fail(AB_INPUT,
                             "advise: expected gradients of %d steps or more, found %d; run with "
                             "--probe-every 5 or more "
                             "steps",
                             AB_ADVISE_STEPS, advise->steps);
    }
    qsort(largest, (size_t)advise->steps, sizeof *largest, compare_doubles);
    advise->law = ab_gumbel_fit(largest, advise->steps);
    free(largest);
    advise->k_hi = highest_k(advise, goal->alpha);
    advise->feasible = advise->k_lo <= advise->k_hi;
    advise->k = advise->feasible && advise->k_hi - 1 >= advise->k_lo ? advise->k_hi - 1 : advise->k_lo;
    predict(advise, level_cell);
    return AB_OK;
}

/* ---- receipt --------------------------------------------------------------------------------------------- */

static const cJSON *confirming_cell(const cJSON *document) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        if (!is_twin(cell) && strcmp(ab_json_text(cell, "level", ""), "O0") != 0) return cell;
    }
    return NULL;
}

/* Steps of which some cast gradient overflowed. */
static int count_overflows(const cJSON *cell, int *steps) {
    const cJSON *tensor, *count;
    int n = (int)ab_json_number(cell, "probes.steps_probed", 0), overflowed = 0;
    char *hit = calloc((size_t)n + 1, 1);
    if (!hit) return -1;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        int i = 0;
        if (!ab_json_is_true(tensor, "cast")) continue;
        cJSON_ArrayForEach(count, ab_json_at(tensor, "steps.overflowed")) {
            if (i < n && count->valuedouble > 0) hit[i] = 1;
            i++;
        }
    }
    for (int i = 0; i < n; i++) overflowed += hit[i];
    free(hit);
    *steps = n;
    return overflowed;
}

ab_status ab_receipt_make(const cJSON *document, const ab_advise *advise, ab_receipt *receipt) {
    const cJSON *tensor, *cell = confirming_cell(document);
    *receipt = (ab_receipt){.predicted_share = advise->share};
    if (!cell || !has_gradients(cell))
        return ab_fail(AB_INPUT, "advise: the confirming run recorded no gradients");
    receipt->overflowed = count_overflows(cell, &receipt->steps);
    if (receipt->overflowed < 0) return ab_fail(AB_NO_MEMORY, "advise: out of memory");
    receipt->expected = advise->overflow * receipt->steps;
    ab_clopper_pearson(receipt->overflowed, receipt->steps, 0.95, &receipt->low, &receipt->high);
    receipt->overflow_agrees = advise->overflow >= receipt->low && advise->overflow <= receipt->high;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        if (!ab_json_is_true(tensor, "cast")) continue;
        receipt->nonzero += ab_json_number(tensor, "nonzero", 0);
        receipt->flushed += ab_json_number(tensor, "flushed", 0);
    }
    receipt->share = receipt->nonzero > 0 ? receipt->flushed / receipt->nonzero : 0;
    receipt->loss_gap = ab_json_number(cell, "summary.loss_gap", (double)NAN);
    return AB_OK;
}
