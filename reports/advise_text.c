/* Advice and receipts for people and for programs. Decides nothing. */
#include "reports/advise.h"
#include "reports/json.h"
#include "reports/text.h"

#include <math.h>

enum { SHOWN = 5 }; /* tensors that want the highest scales */

/* Binades from the flush line of the tensor that decides to the largest gradient: what one scale would have to hold. */
static double binades_needed(const ab_advise *a, const ab_advise_goal *goal) {
    return ab_gumbel_quantile(&a->law, goal->alpha) - (log2(ab_format_flush_limit(a->half)) - a->k_lo);
}

static void print_tensors(const ab_advise *a, FILE *out) {
    char share[AB_TEXT_NUMBER], energy[AB_TEXT_NUMBER];
    bool shown[AB_ADVISE_TENSORS] = {false};
    fputs("tensors that want the highest scales, and what the advised one flushes of them:\n", out);
    for (int n = 0; n < SHOWN && n < a->tensors; n++) {
        int best = -1;
        for (int i = 0; i < a->tensors; i++)
            if (!shown[i] && (best < 0 || a->tensor[i].k_lo > a->tensor[best].k_lo)) best = i;
        shown[best] = true;
        const ab_advise_tensor *t = &a->tensor[best];
        fprintf(out, "  %-40s 2^%d or more; %s %% of the values, %s %% of the energy\n", t->name, t->k_lo,
                ab_text_percent(share, t->share), ab_text_percent(energy, t->energy));
    }
}

static void print_infeasible(const ab_advise *a, const ab_advise_goal *goal, FILE *out) {
    const ab_advise_tensor *t = &a->tensor[a->decides];
    fprintf(out,
            "no loss scale works for %s: %s needs at least 2^%d, and above 2^%d more than one step in %.0f "
            "overflows\n"
            "one scale would have to hold %.1f binades, %s has %d\n"
            "remedy: --half bf16, or --to '%s=fp32'\n",
            a->half->name, t->name, t->k_lo, a->k_hi, 1 / goal->alpha, binades_needed(a, goal), a->half->name,
            a->half->emax - a->half->emin + a->half->precision, t->layer);
}

void ab_advise_print(const ab_advise *a, const ab_advise_goal *goal, FILE *out) {
    char id[160], share[AB_TEXT_NUMBER], energy[AB_TEXT_NUMBER];
    ab_text_clean(id, sizeof id, ab_json_text(a->cell, "id", "?"));
    fprintf(out, "gradients of %s, %d recorded steps, %d tensors; format %s\n", id, a->steps, a->tensors,
            a->half->name);
    if (!a->feasible) {
        print_infeasible(a, goal, out);
        print_tensors(a, out);
        return;
    }
    fprintf(out,
            "advised: --scales %.17g (2^%d), within 2^%d .. 2^%d: %d octaves of room below and %d above\n"
            "predicted: %s %% of the non-zero values flushed, %s %% of their energy; a step overflows with "
            "probability %.2g\n",
            ldexp(1, a->k), a->k, a->k_lo, a->k_hi, a->k - a->k_lo, a->k_hi - a->k,
            ab_text_percent(share, a->share), ab_text_percent(energy, a->energy), a->overflow);
    fprintf(out,
            "a fixed scale skips nothing: where an overflow must not reach the weights, --scales "
            "apex:init=%.17g\n",
            ldexp(1, a->k));
    fprintf(out, "(asked: flushed energy at most %.1g of every tensor, ", goal->flushed_energy);
    if (goal->flushed_share < 1) fprintf(out, "flushed values at most %.3g of it, ", goal->flushed_share);
    fprintf(out, "overflow in at most one step in %.0f)\n", 1 / goal->alpha);
    print_tensors(a, out);
}

void ab_advise_json(const ab_advise *a, const ab_advise_goal *goal, cJSON *object) {
    cJSON_AddStringToObject(object, "cell", ab_json_text(a->cell, "id", ""));
    cJSON_AddStringToObject(object, "format", a->half->name);
    cJSON_AddNumberToObject(object, "steps", a->steps);
    cJSON_AddBoolToObject(object, "feasible", a->feasible);
    cJSON_AddNumberToObject(object, "k_lo", a->k_lo);
    cJSON_AddNumberToObject(object, "k_hi", a->k_hi);
    if (a->feasible) {
        cJSON_AddNumberToObject(object, "k", a->k);
        cJSON_AddNumberToObject(object, "scale", ldexp(1, a->k));
    } else {
        cJSON_AddNullToObject(object, "k");
        cJSON_AddNullToObject(object, "scale");
    }
    cJSON_AddStringToObject(object, "decided_by", a->tensor[a->decides].name);
    cJSON_AddNumberToObject(object, "binades_needed", binades_needed(a, goal));
    cJSON *predicted = cJSON_AddObjectToObject(object, "predicted");
    cJSON_AddNumberToObject(predicted, "flushed_share", a->share);
    cJSON_AddNumberToObject(predicted, "flushed_energy_share", a->energy);
    cJSON_AddNumberToObject(predicted, "overflow_probability", a->overflow);
    cJSON *law = cJSON_AddObjectToObject(object, "gumbel_log2");
    cJSON_AddNumberToObject(law, "mu", a->law.mu);
    cJSON_AddNumberToObject(law, "beta", a->law.beta);
    cJSON *list = cJSON_AddArrayToObject(object, "tensors");
    for (int i = 0; i < a->tensors; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", a->tensor[i].name);
        cJSON_AddStringToObject(item, "layer", a->tensor[i].layer);
        cJSON_AddNumberToObject(item, "k_lo", a->tensor[i].k_lo);
        cJSON_AddNumberToObject(item, "flushed_share", a->tensor[i].share);
        cJSON_AddNumberToObject(item, "flushed_energy_share", a->tensor[i].energy);
        cJSON_AddItemToArray(list, item);
    }
}

void ab_receipt_print(const ab_receipt *r, FILE *out) {
    char share[AB_TEXT_NUMBER], predicted[AB_TEXT_NUMBER];
    fprintf(out,
            "confirmed by a run: %d of %d steps overflowed, %.2g were expected (95 %% interval of the share: "
            "%.2g to %.2g): %s\n"
            "                    %s %% of the non-zero values flushed, %s %% were predicted\n",
            r->overflowed, r->steps, r->expected, r->low, r->high,
            r->overflow_agrees ? "agrees" : "does not agree", ab_text_percent(share, r->share),
            ab_text_percent(predicted, r->predicted_share));
    if (isfinite(r->loss_gap)) fprintf(out, "                    loss gap to O0 %+.4g\n", r->loss_gap);
}

void ab_receipt_json(const ab_receipt *r, cJSON *object) {
    cJSON *receipt = cJSON_AddObjectToObject(object, "observed");
    cJSON_AddNumberToObject(receipt, "steps", r->steps);
    cJSON_AddNumberToObject(receipt, "steps_overflowed", r->overflowed);
    cJSON_AddNumberToObject(receipt, "steps_overflowed_low", r->low);
    cJSON_AddNumberToObject(receipt, "steps_overflowed_high", r->high);
    cJSON_AddBoolToObject(receipt, "overflow_agrees", r->overflow_agrees);
    cJSON_AddNumberToObject(receipt, "nonzero", r->nonzero);
    cJSON_AddNumberToObject(receipt, "flushed", r->flushed);
    cJSON_AddNumberToObject(receipt, "flushed_share", r->share);
    if (isfinite(r->loss_gap))
        cJSON_AddNumberToObject(receipt, "loss_gap", r->loss_gap);
    else
        cJSON_AddNullToObject(receipt, "loss_gap");
}
