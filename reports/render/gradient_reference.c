/* Prints reference gradients: the worst tensor per metric. */
#include "reports/render/gradient_reference.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

enum { NAME = 160 };

/* The tensor with the largest `key`; NULL if it is 0 everywhere. */
static const cJSON *worst_of(const cJSON *shadow, const char *key) {
    const cJSON *tensor, *worst = NULL;
    double most = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(shadow, "tensors")) {
        double value = ab_json_number(tensor, key, 0);
        if (!(value > most)) continue;
        most = value;
        worst = tensor;
    }
    return worst;
}

static const char *name_of(const cJSON *tensor, char name[NAME]) {
    char op[NAME / 2], part[NAME / 2];
    ab_text_clean(op, sizeof op, ab_json_text(tensor, "op", ""));
    ab_text_clean(part, sizeof part, ab_json_text(tensor, "tensor", ""));
    ab_text_show(name, NAME, "%s.%s", op, part);
    return name;
}

/* Prints gradients whose growth or shrinkage by rounding exceeds chance. */
static void print_bias(const cJSON *shadow, FILE *out) {
    const cJSON *tensor, *worst = NULL;
    double most = 0;
    int biased = 0;
    char name[NAME];
    cJSON_ArrayForEach(tensor, ab_json_at(shadow, "tensors")) {
        const double z = fabs(ab_json_number(tensor, "bias_z", 0));
        if (!(z > 4) || !ab_json_at(tensor, "growth")) continue; /* without growth z is not calibrated */
        biased++;
        if (!(z > most)) continue;
        most = z;
        worst = tensor;
    }
    if (!worst) return;
    const double growth = ab_json_number(worst, "growth", 0);
    ab_print(
        out,
        "  biased           %d gradients; most %s: rounding makes it %.2g %s (z %.1f, %.2g can be chance)\n",
        biased, name_of(worst, name), fabs(growth), growth < 0 ? "smaller" : "larger",
        ab_json_number(worst, "bias_z", 0), ab_json_number(worst, "growth_allowed", 0));
}

static void print_worst(const cJSON *shadow, FILE *out) {
    char name[NAME];
    const cJSON *error = worst_of(shadow, "relative_error"), *lost = worst_of(shadow, "flushed_energy_share");
    const cJSON *over = worst_of(shadow, "overflowed");
    if (error) {
        const double cosine = ab_json_number(error, "cosine", (double)NAN);
        ab_print(out, "  largest error    %s: %.2g of its norm", name_of(error, name),
                 ab_json_number(error, "relative_error", 0));
        if (isfinite(cosine)) fprintf(out, ", cosine %.4f", cosine);
        fputs("\n", out);
    }
    if (lost)
        ab_print(out, "  most flushed     %s: %.0f of %.0f non-zero values, %.2g of the energy\n",
                 name_of(lost, name), ab_json_number(lost, "flushed", 0),
                 ab_json_number(lost, "count", 0) - ab_json_number(lost, "natural_zeros", 0),
                 ab_json_number(lost, "flushed_energy_share", 0));
    else
        fputs("  nothing was flushed\n", out);
    print_bias(shadow, out);
    if (over)
        ab_print(out, "  most overflowed  %s: %.0f of %.0f values\n", name_of(over, name),
                 ab_json_number(over, "overflowed", 0), ab_json_number(over, "count", 0));
}

void ab_gradient_reference_print(const cJSON *document, FILE *out) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        char id[288];
        const cJSON *shadow = ab_json_at(cell, "shadow");
        if (!shadow) continue;
        ab_text_clean(id, sizeof id, ab_json_text(cell, "id", ""));
        const bool fp32_reference = strcmp(ab_json_text(shadow, "reference", ""), "fp32") == 0;
        ab_print(out, "%s: gradients of %.0f steps beside %s; loss off by %.2g of itself\n", id,
                 ab_json_number(shadow, "looks", 0),
                 fp32_reference ? "fp32's" : "those of a higher loss scale",
                 ab_json_number(shadow, "loss_error", (double)NAN));
        print_worst(shadow, out);
    }
}
