/* Prints origins: the first event that an adapting loss scale does not explain. */
#include "reports/render/report_sections.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { NAME = 96, MOST_PAST = 3, MOST_FLOW = 4 };

static const char *why_of(const char *cause) {
    static const struct {
        const char *id, *text;
    } known[] = {{"range_overflow", "finite, but beyond the format"},
                 {"accumulator_overflow", "the result fits, but a partial sum does not"},
                 {"scale_induced", "finite without the loss scale"},
                 {"mathematics", "no finite number in double either"},
                 {"poisoned_input", "the data were not finite"},
                 {"bad_weights", "the parameters were not finite before this step"},
                 {"optimizer_arithmetic", "weights and gradients were finite, their update is not"},
                 {"not_reproduced",
                  "finite and in range when computed again in double: a defect of the kernel or of memory"}};
    for (size_t i = 0; i < AB_COUNT_OF(known); i++)
        if (strcmp(cause, known[i].id) == 0) return known[i].text;
    return "this op has no second opinion in double";
}

/* 62.7k, 1.2e-05 */
static const char *size_text(double x, char text[AB_TEXT_NUMBER]) {
    if (x >= 1e3 && x < 1e6)
        ab_text_show(text, AB_TEXT_NUMBER, "%.1fk", x / 1e3);
    else
        ab_text_show(text, AB_TEXT_NUMBER, "%.3g", x);
    return text;
}

static const char *name_of(const cJSON *item, const char *key, char name[NAME]) {
    return ab_text_clean(name, NAME, ab_json_text(item, key, ""));
}

static const cJSON *first_unexpected(const cJSON *origin) {
    const cJSON *event;
    cJSON_ArrayForEach(event, ab_json_at(origin, "events")) {
        if (!ab_json_is_true(event, "expected")) return event;
    }
    return NULL;
}

static void print_numbers(const cJSON *cause, FILE *out) {
    char value[AB_TEXT_NUMBER], unscaled[AB_TEXT_NUMBER], limit[AB_TEXT_NUMBER];
    if (!cJSON_IsNumber(ab_json_at(cause, "value"))) return;
    size_text(fabs(ab_json_number(cause, "value", 0)), value);
    size_text(fabs(ab_json_number(cause, "unscaled", 0)), unscaled);
    size_text(ab_json_number(cause, "limit", 0), limit);
    ab_print(out, " (in double %s, the limit is %s", value, limit);
    if (strcmp(value, unscaled) != 0) ab_print(out, "; %s without the scale", unscaled);
    fputs(")", out);
}

/* Prints the last magnitudes of the tensor, latest first. */
static void print_history(const cJSON *event, FILE *out) {
    const cJSON *history = ab_json_at(event, "history");
    const int count = cJSON_GetArraySize(history);
    const int64_t step = (int64_t)ab_json_number(event, "step", 0);
    char size[AB_TEXT_NUMBER];
    if (count == 0) return;
    fputs("    it had been", out);
    for (int i = count - 1; i >= 0 && i >= count - MOST_PAST; i--) {
        const cJSON *past = cJSON_GetArrayItem(history, i);
        const int64_t before = step - (int64_t)ab_json_number(past, "step", 0);
        ab_print(out, "%s %s (%lld step%s earlier)", i < count - 1 ? "," : "",
                 size_text(ab_json_number(past, "largest", 0), size), (long long)before,
                 before == 1 ? "" : "s");
    }
    const double margin =
        ab_json_number(cJSON_GetArrayItem(history, count - 1), "margin_octaves", (double)NAN);
    if (isfinite(margin)) fprintf(out, ": %.1f octaves to the limit", margin);
    fputs("\n", out);
}

static void print_flow(const cJSON *event, FILE *out) {
    const cJSON *flow;
    char name[NAME];
    int shown = 0;
    const double on = ab_json_number(event, "propagated", 0);
    ab_print(out, "    passed on by %.0f op%s", on, on == 1 ? "" : "s");
    cJSON_ArrayForEach(flow, ab_json_at(event, "flow")) {
        if (strcmp(ab_json_text(flow, "change", ""), "vanish") != 0 || shown == MOST_FLOW) continue;
        ab_print(out, "%s%s (%s)", shown++ ? ", " : "; gone again in ", name_of(flow, "op", name),
                 strcmp(ab_json_text(flow, "pass", ""), "backward") == 0 ? "backward" : "forward");
    }
    fputs("\n", out);
}

static void print_event(const char *id, const cJSON *event, FILE *out) {
    char op[NAME], tensor[NAME], by[NAME], pass[NAME];
    const cJSON *cause = ab_json_at(event, "cause");
    const double infinite = ab_json_number(event, "infinite", 0), nan = ab_json_number(event, "nan", 0);
    const bool is_op = strcmp(ab_json_text(event, "by", "op"), "op") == 0;
    ab_print(out, "%s: first %s at step %.0f: %s%s%s", id, infinite > 0 ? "inf" : "nan",
             ab_json_number(event, "step", 0), name_of(event, "op", op),
             cJSON_IsString(ab_json_at(event, "tensor")) ? "." : "", name_of(event, "tensor", tensor));
    ab_print(out, ", %s%s%s pass: %.0f of %.0f values\n", is_op ? "" : name_of(event, "by", by),
             is_op ? "" : " in the ", name_of(event, "pass", pass), infinite + nan,
             ab_json_number(event, "count", 0));
    ab_print(out, "    %s", why_of(ab_json_text(cause, "id", "")));
    print_numbers(cause, out);
    fputs("\n", out);
    print_history(event, out);
    print_flow(event, out);
}

void ab_origin_print(const cJSON *document, FILE *out) {
    const cJSON *cell;
    char id[288];
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        const cJSON *origin = ab_json_at(cell, "probes.origin"), *event = first_unexpected(origin);
        if (!origin || !event || cJSON_IsString(ab_json_at(cell, "twin"))) continue;
        print_event(ab_text_clean(id, sizeof id, ab_json_text(cell, "id", "")), event, out);
    }
}

/* Prints reference gradients: the worst tensor per metric. */

enum { TENSOR_NAME = 160 };

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

static const char *tensor_name(const cJSON *tensor, char name[TENSOR_NAME]) {
    char op[TENSOR_NAME / 2], part[TENSOR_NAME / 2];
    ab_text_clean(op, sizeof op, ab_json_text(tensor, "op", ""));
    ab_text_clean(part, sizeof part, ab_json_text(tensor, "tensor", ""));
    ab_text_show(name, TENSOR_NAME, "%s.%s", op, part);
    return name;
}

/* Prints gradients whose growth or shrinkage by rounding exceeds chance. */
static void print_bias(const cJSON *shadow, FILE *out) {
    const cJSON *tensor, *worst = NULL;
    double most = 0;
    int biased = 0;
    char name[TENSOR_NAME];
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
        biased, tensor_name(worst, name), fabs(growth), growth < 0 ? "smaller" : "larger",
        ab_json_number(worst, "bias_z", 0), ab_json_number(worst, "growth_allowed", 0));
}

static void print_worst(const cJSON *shadow, FILE *out) {
    char name[TENSOR_NAME];
    const cJSON *error = worst_of(shadow, "relative_error"), *lost = worst_of(shadow, "flushed_energy_share");
    const cJSON *over = worst_of(shadow, "overflowed");
    if (error) {
        const double cosine = ab_json_number(error, "cosine", (double)NAN);
        ab_print(out, "  largest error    %s: %.2g of its norm", tensor_name(error, name),
                 ab_json_number(error, "relative_error", 0));
        if (isfinite(cosine)) fprintf(out, ", cosine %.4f", cosine);
        fputs("\n", out);
    }
    if (lost)
        ab_print(out, "  most flushed     %s: %.0f of %.0f non-zero values, %.2g of the energy\n",
                 tensor_name(lost, name), ab_json_number(lost, "flushed", 0),
                 ab_json_number(lost, "count", 0) - ab_json_number(lost, "natural_zeros", 0),
                 ab_json_number(lost, "flushed_energy_share", 0));
    else
        fputs("  nothing was flushed\n", out);
    print_bias(shadow, out);
    if (over)
        ab_print(out, "  most overflowed  %s: %.0f of %.0f values\n", tensor_name(over, name),
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
