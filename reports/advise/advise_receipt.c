/* Compares a confirming run with the prediction, only where advise.h says that they are comparable. */
#include "reports/advise/advise.h"
#include "reports/record/json.h"
#include "reports/record/text.h"
#include "reports/stats/flush_interval.h"
#include "reports/stats/stats.h"

#include <math.h>
#include <string.h>

static const double confidence = 0.95;

static const cJSON *confirming_cell(const cJSON *document) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        if (!cJSON_IsString(ab_json_at(cell, "twin")) && strcmp(ab_json_text(cell, "level", ""), "O0") != 0)
            return cell;
    }
    return NULL;
}

/* The predicted tensor of this name, if comparable: no zeros of its own, and as many values per step as in
 * the record (if a level accumulates a gradient in parts, each part is counted, and a part may have zeros
 * where the sum has none). Else NULL. */
static const ab_advise_tensor *comparable(const ab_advise *a, const cJSON *tensor, double steps) {
    char clean[AB_ADVISE_NAME];
    ab_text_clean(clean, sizeof clean, ab_json_text(tensor, "name", ""));
    for (int i = 0; i < a->tensors; i++)
        if (strcmp(a->tensor[i].name, clean) == 0)
            return a->tensor[i].whole && a->tensor[i].a_step * steps == ab_json_number(tensor, "count", 0)
                       ? &a->tensor[i]
                       : NULL;
    return NULL;
}

/* Values and flushed values per column of steps. Steps that overflowed contain NaN or inf and are not used
 * for flushes. */
typedef struct columns {
    int n;
    double steps, values[AB_SERIES_COLUMNS], lost[AB_SERIES_COLUMNS];
    bool overflowed[AB_SERIES_COLUMNS];
} columns;

static void mark_overflows(const cJSON *tensor, columns *c) {
    const cJSON *over;
    int i = 0;
    cJSON_ArrayForEach(over, ab_json_at(tensor, "steps.overflowed")) {
        if (i < AB_SERIES_COLUMNS && over->valuedouble > 0) c->overflowed[i] = true;
        i++;
    }
}

static void add_losses(const cJSON *tensor, columns *c) {
    const double stride = ab_json_number(tensor, "steps.stride", 1),
                 a_step = ab_json_number(tensor, "count", 0) / c->steps;
    const cJSON *nonzero = cJSON_GetArrayItem(ab_json_at(tensor, "steps.nonzero"), 0),
                *flushed = cJSON_GetArrayItem(ab_json_at(tensor, "steps.flushed"), 0);
    for (int i = 0; nonzero && flushed && i < AB_SERIES_COLUMNS; i++) {
        const double steps = fmin(stride, c->steps - i * stride), all = a_step * steps;
        c->values[i] += all;
        c->lost[i] += all - nonzero->valuedouble + flushed->valuedouble;
        if (i >= c->n) c->n = i + 1;
        nonzero = nonzero->next;
        flushed = flushed->next;
    }
}

static void judge_flushes(const columns *c, ab_receipt *r) {
    double values[AB_SERIES_COLUMNS], lost[AB_SERIES_COLUMNS];
    ab_flush_interval interval;
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        if (c->overflowed[i]) continue;
        values[n] = c->values[i];
        lost[n++] = c->lost[i];
        r->values += c->values[i];
        r->lost += c->lost[i];
    }
    if (r->values <= 0) return;
    ab_flush_interval_of(values, lost, n, 1, &interval);
    r->share = interval.share;
    r->share_low = interval.low;
    r->share_high = interval.high;
    r->flush_agrees = r->predicted_share >= r->share_low && r->predicted_share <= r->share_high;
}

ab_status ab_receipt_make(const cJSON *document, const ab_advise *advise, ab_receipt *receipt) {
    const cJSON *tensor, *cell = confirming_cell(document);
    columns seen = {0};
    double all = 0, lost = 0;
    *receipt = (ab_receipt){.predicted = advise->overflow, .flush_agrees = true};
    if (!cell || cJSON_GetArraySize(ab_json_at(cell, "probes.tensors")) == 0)
        return ab_fail(AB_INPUT, "advise: the confirming run recorded no gradients");
    receipt->steps = (int)ab_json_number(cell, "steps_total", 0);
    receipt->skipped = (int)ab_json_number(cell, "steps_skipped", 0);
    receipt->expected = advise->overflow * receipt->steps;
    ab_clopper_pearson(receipt->skipped, receipt->steps, confidence, &receipt->low, &receipt->high);
    receipt->overflow_agrees = advise->overflow >= receipt->low && advise->overflow <= receipt->high;
    seen.steps = fmax(ab_json_number(cell, "probes.steps_probed", 1), 1);
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        if (ab_json_is_true(tensor, "cast")) mark_overflows(tensor, &seen);
        const ab_advise_tensor *about = comparable(advise, tensor, seen.steps);
        if (!ab_json_is_true(tensor, "cast") || !about) continue;
        add_losses(tensor, &seen);
        all += about->a_step;
        lost += about->a_step * about->share;
    }
    receipt->predicted_share = all > 0 ? lost / all : 0;
    judge_flushes(&seen, receipt);
    receipt->loss_gap = ab_json_number(cell, "summary.loss_gap", (double)NAN);
    return AB_OK;
}
