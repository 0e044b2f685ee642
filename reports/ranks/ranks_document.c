/* The answer as a JSON document, and what text and plot derive from it: labels and crossings. */
#include "kernels/core/text.h"
#include "reports/ranks/ranks_result.h"
#include "reports/record/json.h"

#include <math.h>

const char *ab_ranks_label(const ab_ranks_rule *rule, char *label) {
    char scheme[AB_REDUCTION_TEXT], divide[AB_REDUCTION_TEXT];
    const ab_reduction *r = &rule->reduction;
    ab_text_show(label, AB_RANKS_LABEL, "%s %s %s", ab_reduction_scheme_text(r, scheme),
                 r->wire ? r->wire->name : "as-is", ab_reduction_divide_text(r, divide));
    return label;
}

/* log2 of the noise over the error; NaN where one of them is no positive number. */
static double margin(const ab_ranks_outcome *outcome) { return log2(outcome->noise / outcome->error); }

double ab_ranks_crossing(const ab_ranks_result *result, int rule) {
    const int64_t *count = result->question->count;
    for (int c = 0; c < result->question->counts; c++) {
        const ab_ranks_outcome *outcome = ab_ranks_at(result, c, rule);
        bool crossed = outcome->error >= outcome->noise || outcome->overflowed > 0;
        if (!crossed) continue;
        if (c == 0) return 0;
        double before = margin(ab_ranks_at(result, c - 1, rule)), after = margin(outcome);
        double part = isfinite(before) && isfinite(after) && before > after ? before / (before - after) : 1;
        return exp2(log2((double)count[c - 1]) +
                    fmin(1, part) * log2((double)count[c] / (double)count[c - 1]));
    }
    return (double)INFINITY;
}

/* ---- the document ---------------------------------------------------------------------------- */

static void put_outcome(cJSON *object, const ab_ranks_outcome *outcome) {
    ab_json_add_number(object, "error", outcome->error);
    ab_json_add_number(object, "bias", outcome->bias);
    ab_json_add_number(object, "overflowed", outcome->overflowed);
    ab_json_add_number(object, "flushed", outcome->flushed);
    ab_json_add_number(object, "noise", outcome->noise);
}

static void put_tensors(cJSON *object, const ab_ranks_result *result, int count, int rule) {
    const ab_ranks_outcome *of =
        &result->by_tensor[(count * result->question->rules + rule) * result->tensors];
    cJSON *list = cJSON_AddArrayToObject(object, "tensors");
    for (int t = 0; t < result->tensors; t++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", result->tensor[t].name);
        put_outcome(item, &of[t]);
        cJSON_AddItemToArray(list, item);
    }
}

static cJSON *rule_document(const ab_ranks_result *result, int rule) {
    const ab_ranks_question *q = result->question;
    const ab_reduction *r = &q->rule[rule].reduction;
    char text[AB_REDUCTION_TEXT], label[AB_RANKS_LABEL];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "label", ab_ranks_label(&q->rule[rule], label));
    cJSON_AddStringToObject(object, "reduce", ab_reduction_scheme_text(r, text));
    cJSON_AddStringToObject(object, "wire", r->wire ? r->wire->name : "as-is");
    cJSON_AddStringToObject(object, "divide", ab_reduction_divide_text(r, text));
    ab_json_add_number(object, "exceeds_noise_from", ab_ranks_crossing(result, rule));
    cJSON *list = cJSON_AddArrayToObject(object, "outcomes");
    for (int c = 0; c < q->counts; c++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddNumberToObject(item, "ranks", (double)q->count[c]);
        put_outcome(item, ab_ranks_at(result, c, rule));
        put_tensors(item, result, c, rule);
        cJSON_AddItemToArray(list, item);
    }
    return object;
}

cJSON *ab_ranks_document(const ab_ranks_result *result) {
    const ab_ranks_question *q = result->question;
    cJSON *document = cJSON_CreateObject();
    cJSON_AddStringToObject(document, "schema", "ampbench-ranks");
    cJSON_AddStringToObject(document, "schema_version", "1.0");
    cJSON_AddBoolToObject(document, "simulated", true);
    cJSON_AddNumberToObject(document, "micro_batches", result->micro_batches);
    cJSON_AddNumberToObject(document, "tensors", result->tensors);
    cJSON_AddNumberToObject(document, "elements", (double)result->count);
    cJSON_AddNumberToObject(document, "elements_simulated", (double)result->simulated);
    cJSON_AddNumberToObject(document, "elements_not_finite", (double)result->not_finite);
    cJSON_AddNumberToObject(document, "scale", q->scale);
    cJSON_AddNumberToObject(document, "bucket_bytes", q->bucket_bytes);
    ab_json_add_number(document, "micro_batch_noise", result->noise);
    cJSON *rules = cJSON_AddArrayToObject(document, "reductions");
    for (int k = 0; k < q->rules; k++) cJSON_AddItemToArray(rules, rule_document(result, k));
    return document;
}
