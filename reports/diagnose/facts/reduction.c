/* What reductions over ranks did. */
#include "reports/diagnose/facts/facts.h"

#include "reports/record/json.h"

#include <math.h>
#include <string.h>

typedef struct totals {
    double sent, sent_flushed, sent_overflowed, means, flushed, overflowed, energy, error, along;
} totals;

static totals read_tensor(const cJSON *tensor) {
    return (totals){.sent = ab_json_number(tensor, "sent", 0),
                    .sent_flushed = ab_json_number(tensor, "sent_flushed", 0),
                    .sent_overflowed = ab_json_number(tensor, "sent_overflowed", 0),
                    .means = ab_json_number(tensor, "means", 0),
                    .flushed = ab_json_number(tensor, "flushed", 0),
                    .overflowed = ab_json_number(tensor, "overflowed", 0),
                    .energy = ab_json_number(tensor, "energy", 0),
                    .error = ab_json_number(tensor, "error", 0),
                    .along = ab_json_number(tensor, "along", 0)};
}

static void add(totals *all, const totals *one) {
    all->sent += one->sent;
    all->sent_flushed += one->sent_flushed;
    all->sent_overflowed += one->sent_overflowed;
    all->means += one->means;
    all->flushed += one->flushed;
    all->overflowed += one->overflowed;
    all->energy += one->energy;
    all->error += one->error;
    all->along += one->along;
}

static void keep_worst(double value, double *most, const char *layer, const char **worst) {
    if (!(value > *most)) return;
    *most = value;
    *worst = layer;
}

ab_reduction_facts ab_reduction_facts_of(const cJSON *cell) {
    ab_reduction_facts facts = {
        .worst_error = "", .worst_sent_flushed = "", .worst_overflowed = "", .worst_sent_overflowed = ""};
    totals all = {.sent = 0};
    double most[4] = {0};
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "reduction.tensors")) {
        const totals one = read_tensor(tensor);
        const char *layer = ab_json_text(tensor, "layer", "");
        add(&all, &one);
        keep_worst(one.energy > 0 ? one.error / one.energy : 0, &most[0], layer, &facts.worst_error);
        keep_worst(one.sent > 0 ? one.sent_flushed / one.sent : 0, &most[1], layer,
                   &facts.worst_sent_flushed);
        keep_worst(one.overflowed, &most[2], layer, &facts.worst_overflowed);
        keep_worst(one.sent_overflowed, &most[3], layer, &facts.worst_sent_overflowed);
    }
    facts.sent_flushed = all.sent > 0 ? all.sent_flushed / all.sent : (double)NAN;
    facts.sent_overflowed = all.sent > 0 ? all.sent_overflowed / all.sent : (double)NAN;
    facts.flushed = all.means > 0 ? all.flushed / all.means : (double)NAN;
    facts.overflowed = all.overflowed;
    facts.error = all.energy > 0 ? sqrt(all.error / all.energy) : (double)NAN;
    facts.bias = all.energy > 0 ? all.along / all.energy : (double)NAN;
    return facts;
}

/* "as-is": the gradients' own format, that of the model. */
const ab_format *ab_facts_half_wire(const ab_facts *facts) {
    const char *wire = ab_json_text(facts->document, "config.reduction.wire", "fp32"),
               *model = ab_json_text(facts->cell, "policy.cast_model_type", "fp32");
    const ab_format *format = NULL;
    if (strcmp(wire, "as-is") == 0) wire = model;
    if (strcmp(wire, ab_format_fp32.name) == 0 || ab_format_find(wire, &format) != AB_OK) return NULL;
    return format;
}
