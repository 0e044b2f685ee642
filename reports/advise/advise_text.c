/* Advice and receipts as text and as JSON. Decides nothing. */
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/advise/advise.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

enum { SHOWN = 5 }; /* layers with the highest k_lo */

static int binades_of(const ab_format *half) { return half->emax - half->emin + half->precision; }

/* "2^12", "2^12.34" */
static const char *power(char *text, double octaves) {
    const double shown = round(100 * octaves) / 100 + 0.0; /* -0 is printed as 0 */
    ab_text_show(text, AB_TEXT_NUMBER, shown == floor(shown) ? "2^%.0f" : "2^%.2f", shown);
    return text;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_layers(const ab_advise *a, FILE *out) {
    char share[AB_TEXT_NUMBER], energy[AB_TEXT_NUMBER];
    bool shown[AB_ADVISE_LAYERS] = {false};
    fputs("layers that want the highest scales, what each could do with one of its own, and what is "
          "predicted:\n",
          out);
    for (int n = 0; n < SHOWN && n < a->layers; n++) {
        int best = -1;
        for (int i = 0; i < a->layers; i++)
            if (!shown[i] && (best < 0 || a->layer[i].k_lo > a->layer[best].k_lo)) best = i;
        shown[best] = true;
        const ab_advise_layer *l = &a->layer[best];
        ab_print(out,
                 "  %-24s 2^%d .. 2^%d%s; %s %% of the values flushed, %s %% of the energy; overflow %.2g\n",
                 l->name, l->k_lo, l->k_hi, l->feasible ? "" : " (none)", ab_text_percent(share, l->share),
                 ab_text_percent(energy, l->energy), l->skipped);
    }
}

/* Says whether rows of weights were recorded or set the lower limit. */
static void print_rows(const ab_advise *a, FILE *out) {
    if (!ab_json_at(a->cell, "probes.rows"))
        fputs("rows of weights that a flush would leave without a gradient were not recorded: --probes "
              "default,rows\n",
              out);
    else if (a->tensor[a->decides].by_rows)
        ab_print(out,
                 "the lower limit is that of %s: below it one of its rows would have no gradient at all\n",
                 a->tensor[a->decides].name);
}

static void print_laws(const ab_advise *a, FILE *out) {
    const ab_series *s = &a->series;
    char limit[AB_EXTREME_KINDS][AB_TEXT_NUMBER];
    for (int i = 0; i < AB_EXTREME_KINDS; i++) power(limit[i], a->k_hi_by[i]);
    fprintf(out, "upper limit from the largest gradients of %d columns of steps, trend taken out",
            s->columns);
    if (s->censored) fprintf(out, ", %d of them lower bounds", s->censored);
    ab_print(out, ":\n  normal %s (sigma %.2f octaves), gumbel %s (beta %.2f), ", limit[AB_EXTREME_NORMAL],
             s->law.normal.sigma, limit[AB_EXTREME_GUMBEL], s->law.gumbel.beta);
    if (s->law.has_pareto)
        ab_print(out, "peaks over threshold %s (shape xi %+.2f of %d peaks)", limit[AB_EXTREME_PARETO],
                 s->law.pareto.shape, s->law.peaks);
    else
        fputs("peaks over threshold - (too few steps)", out);
    ab_print(out, "; best: %s\n  weighted %.2f, %.2f, %.2f: 2^%d\n", ab_extreme_name(s->law.chosen),
             s->law.weight[0], s->law.weight[1], s->law.weight[2], a->k_hi);
    if (s->widened > 1)
        fprintf(out,
                "  few steps: their spread may be larger than they show, so limits are for %.2g times the "
                "spread (an upper "
                "95 %% bound; found exact enough from %d columns on: --probe-every 5 or more steps)\n",
                s->widened, AB_SERIES_ENOUGH);
    if (s->law.has_pareto && s->law.pareto.shape > 0)
        fputs(
            "  warning: xi is above 0, a tail without an end: whatever the scale, some step will overflow\n",
            out);
}

static void print_infeasible(const ab_advise *a, const ab_advise_goal *goal, FILE *out) {
    const ab_advise_tensor *t = &a->tensor[a->decides];
    const char *separator = "";
    ab_print(out,
             "no loss scale works for %s: %s needs at least 2^%d, and above 2^%d more than one step in %.0f "
             "overflows\n"
             "one scale would have to hold %.1f binades, %s has %d\n",
             a->half->name, t->name, t->k_lo, a->k_hi, 1 / goal->alpha, a->binades, a->half->name,
             binades_of(a->half));
    for (int i = 0; i < a->layers; i++) {
        const ab_advise_layer *l = &a->layer[i];
        if (!l->blocks) continue;
        ab_print(out, "  layer %s needs %.1f binades: ", l->name, l->binades);
        if (l->feasible)
            fprintf(out, "a scale of its own (2^%d), bf16 or fp32 for it\n", l->k);
        else
            fputs("not even a scale of its own holds it; bf16 or fp32 for it\n", out);
    }
    fputs("remedy: --half bf16, or --to '", out);
    for (int i = 0; i < a->layers; i++) {
        if (!a->layer[i].blocks) continue;
        ab_print(out, "%s%s=fp32", separator, a->layer[i].name);
        separator = ",";
    }
    fputs("'\n", out);
}

static void print_choice(const ab_advise *a, const ab_advise_goal *goal, FILE *out) {
    const ab_series *s = &a->series;
    fprintf(out, "drift %+.2g octaves in 1000 steps (+-%.1g); ", s->drift, 2 * s->drift_error);
    if (a->fixed && isfinite(a->lasts))
        fprintf(out, "a fixed scale lasts %.0f steps\n", a->lasts);
    else if (a->fixed)
        fputs("a fixed scale lasts as far as the record can tell\n", out);
    else
        fprintf(out, "a fixed scale lasts %.0f of %.0f steps only: take the dynamic one\n", a->lasts,
                goal->horizon > 0 ? goal->horizon : a->run_steps);
    fprintf(out,
            "as a fixed scale that skips what overflows: --scales apex:init=%.17g,min=%.17g,max=%.17g\n"
            "as a dynamic one:                           --scales apex:init=%.17g,window=%d,min=%.17g\n",
            ldexp(1, a->k), ldexp(1, a->k), ldexp(1, a->k), ldexp(1, a->k), a->window,
            ldexp(1, a->k_lo < a->k ? a->k_lo : a->k));
}

static void print_rules(const ab_advise *a, FILE *out) {
    char share[AB_TEXT_NUMBER], energy[AB_TEXT_NUMBER], scale[AB_TEXT_NUMBER];
    fputs("others' rules on the same gradients        scale  flushed %  energy %  overflow\n", out);
    for (int i = 0; i < AB_ADVISE_RULES; i++) {
        const ab_advise_rule *r = &a->rule[i];
        if (!isfinite(r->octaves)) continue;
        ab_print(out, "  %-10s %-28s %6s  %9s %9s  %8.2g\n", r->name, r->text, power(scale, r->octaves),
                 ab_text_percent(share, r->share), ab_text_percent(energy, r->energy), r->skipped);
    }
}

static void print_predicted(const ab_advise *a, FILE *out) {
    char share[AB_TEXT_NUMBER], energy[AB_TEXT_NUMBER], scale[AB_TEXT_NUMBER];
    ab_print(
        out,
        "predicted at %s: %s %% of the non-zero values flushed, %s %% of their energy; a step overflows with "
        "probability %.2g\n",
        power(scale, a->octaves), ab_text_percent(share, a->share), ab_text_percent(energy, a->energy),
        a->overflow);
    if (a->worst > 0.1 && a->overflow < 1)
        fprintf(out,
                "  where it overflows most, %.0f %% of the steps do: a run that skips them may be held "
                "there, and "
                "skip more than predicted\n",
                100 * a->worst);
}

void ab_advise_print(const ab_advise *a, const ab_advise_goal *goal, FILE *out) {
    char id[160];
    ab_text_clean(id, sizeof id, ab_json_text(a->cell, "id", "?"));
    ab_print(out, "gradients of %s, %.0f steps in %d columns, %d tensors; format %s\n", id, a->run_steps,
             a->steps, a->tensors, a->half->name);
    if (!a->own)
        fputs("(of O0: the level's own scale changed or lost too much of them; a level with half weights "
              "trains differently, "
              "so record it at a\n"
              " fixed scale such as the advised one and ask again)\n",
              out);
    if (!a->feasible) {
        print_infeasible(a, goal, out);
    } else {
        fprintf(
            out,
            "advised: --scales %.17g (2^%d), within 2^%d .. 2^%d: %d octaves of room below and %d above\n",
            ldexp(1, a->k), a->k, a->k_lo, a->k_hi, a->k - a->k_lo, a->k_hi - a->k);
    }
    if (a->feasible || goal->scale > 0) print_predicted(a, out);
    if (a->feasible) print_choice(a, goal, out);
    fprintf(out, "(asked: flushed energy at most %.1g of every tensor, ", goal->flushed_energy);
    if (goal->flushed_share < 1) fprintf(out, "flushed values at most %.3g of it, ", goal->flushed_share);
    fprintf(out, "overflow in at most one step in %.0f)\n", 1 / goal->alpha);
    print_rows(a, out);
    print_laws(a, out);
    print_layers(a, out);
    print_rules(a, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* null if not finite */
static void add_number(cJSON *object, const char *key, double x) {
    if (isfinite(x))
        cJSON_AddNumberToObject(object, key, x);
    else
        cJSON_AddNullToObject(object, key);
}

static void laws_json(const ab_advise *a, cJSON *object) {
    const ab_series *s = &a->series;
    cJSON *list = cJSON_AddObjectToObject(object, "extremes"), *law;
    cJSON_AddNumberToObject(list, "columns", s->columns);
    if (s->widened > 1) cJSON_AddNumberToObject(list, "spread_widened", s->widened);
    cJSON_AddItemToObject(list, "weights", cJSON_CreateDoubleArray(s->law.weight, AB_EXTREME_KINDS));
    cJSON_AddNumberToObject(list, "steps_a_column", s->steps_a_column);
    cJSON_AddNumberToObject(list, "censored", s->censored);
    cJSON_AddNumberToObject(list, "largest_log2", s->top);
    cJSON_AddStringToObject(list, "best", ab_extreme_name(s->law.chosen));
    law = cJSON_AddObjectToObject(list, "normal");
    cJSON_AddNumberToObject(law, "k_hi", a->k_hi_by[AB_EXTREME_NORMAL]);
    cJSON_AddNumberToObject(law, "mu", s->law.normal.mu);
    cJSON_AddNumberToObject(law, "sigma", s->law.normal.sigma);
    law = cJSON_AddObjectToObject(list, "gumbel");
    cJSON_AddNumberToObject(law, "k_hi", a->k_hi_by[AB_EXTREME_GUMBEL]);
    cJSON_AddNumberToObject(law, "mu", s->law.gumbel.mu);
    cJSON_AddNumberToObject(law, "beta", s->law.gumbel.beta);
    if (!s->law.has_pareto) {
        cJSON_AddNullToObject(list, "pareto");
        return;
    }
    law = cJSON_AddObjectToObject(list, "pareto");
    cJSON_AddNumberToObject(law, "k_hi", a->k_hi_by[AB_EXTREME_PARETO]);
    cJSON_AddNumberToObject(law, "threshold", s->law.threshold);
    cJSON_AddNumberToObject(law, "peaks", s->law.peaks);
    cJSON_AddNumberToObject(law, "scale", s->law.pareto.scale);
    cJSON_AddNumberToObject(law, "shape", s->law.pareto.shape);
}

static void layers_json(const ab_advise *a, cJSON *object) {
    cJSON *list = cJSON_AddArrayToObject(object, "layers");
    for (int i = 0; i < a->layers; i++) {
        const ab_advise_layer *l = &a->layer[i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", l->name);
        cJSON_AddNumberToObject(item, "k_lo", l->k_lo);
        cJSON_AddNumberToObject(item, "k_hi", l->k_hi);
        cJSON_AddBoolToObject(item, "feasible", l->feasible);
        cJSON_AddBoolToObject(item, "blocks", l->blocks);
        add_number(item, "own_scale", l->feasible ? ldexp(1, l->k) : (double)NAN);
        add_number(item, "binades_needed", l->binades);
        cJSON_AddNumberToObject(item, "flushed_share", l->share);
        cJSON_AddNumberToObject(item, "flushed_energy_share", l->energy);
        cJSON_AddNumberToObject(item, "overflow_probability", l->skipped);
        cJSON_AddItemToArray(list, item);
    }
    list = cJSON_AddArrayToObject(object, "tensors");
    for (int i = 0; i < a->tensors; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", a->tensor[i].name);
        cJSON_AddStringToObject(item, "layer", a->tensor[i].layer);
        cJSON_AddNumberToObject(item, "k_lo", a->tensor[i].k_lo);
        cJSON_AddBoolToObject(item, "k_lo_by_rows", a->tensor[i].by_rows);
        cJSON_AddNumberToObject(item, "flushed_share", a->tensor[i].share);
        cJSON_AddNumberToObject(item, "flushed_energy_share", a->tensor[i].energy);
        cJSON_AddItemToArray(list, item);
    }
}

static void rules_json(const ab_advise *a, cJSON *object) {
    cJSON *list = cJSON_AddArrayToObject(object, "rules");
    for (int i = 0; i < AB_ADVISE_RULES; i++) {
        const ab_advise_rule *r = &a->rule[i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", r->name);
        cJSON_AddStringToObject(item, "text", r->text);
        add_number(item, "scale_log2", r->octaves);
        add_number(item, "flushed_share", r->share);
        add_number(item, "flushed_energy_share", r->energy);
        add_number(item, "overflow_probability", r->skipped);
        cJSON_AddItemToArray(list, item);
    }
}

static void choice_json(const ab_advise *a, const ab_advise_goal *goal, cJSON *object) {
    cJSON *asked = cJSON_AddObjectToObject(object, "asked");
    cJSON_AddNumberToObject(asked, "flushed_share", goal->flushed_share);
    cJSON_AddNumberToObject(asked, "flushed_energy_share", goal->flushed_energy);
    cJSON_AddNumberToObject(asked, "overflow_probability", goal->alpha);
    cJSON_AddNumberToObject(asked, "horizon_steps", goal->horizon > 0 ? goal->horizon : a->run_steps);
    cJSON *drift = cJSON_AddObjectToObject(object, "drift");
    add_number(drift, "octaves_per_1000_steps", a->series.drift);
    add_number(drift, "standard_error", a->series.drift_error);
    add_number(drift, "fixed_scale_lasts_steps", a->lasts);
    cJSON_AddBoolToObject(drift, "fixed_scale_lasts", a->fixed);
    cJSON *dynamic = cJSON_AddObjectToObject(object, "dynamic");
    add_number(dynamic, "init", a->feasible ? ldexp(1, a->k) : (double)NAN);
    cJSON_AddNumberToObject(dynamic, "window", a->window);
    add_number(dynamic, "floor", a->feasible ? ldexp(1, a->k_lo < a->k ? a->k_lo : a->k) : (double)NAN);
}

void ab_advise_json(const ab_advise *a, const ab_advise_goal *goal, cJSON *object) {
    cJSON_AddStringToObject(object, "cell", ab_json_text(a->cell, "id", ""));
    cJSON_AddBoolToObject(object, "own_gradients", a->own);
    cJSON_AddStringToObject(object, "format", a->half->name);
    cJSON_AddNumberToObject(object, "steps", a->run_steps);
    cJSON_AddBoolToObject(object, "feasible", a->feasible);
    cJSON_AddNumberToObject(object, "k_lo", a->k_lo);
    cJSON_AddNumberToObject(object, "k_hi", a->k_hi);
    add_number(object, "k", a->feasible ? a->k : (double)NAN);
    add_number(object, "scale", a->feasible ? ldexp(1, a->k) : (double)NAN);
    cJSON_AddBoolToObject(object, "rows_recorded", ab_json_at(a->cell, "probes.rows") != NULL);
    cJSON_AddStringToObject(object, "decided_by", a->tensor[a->decides].name);
    add_number(object, "binades_needed", a->binades);
    cJSON_AddNumberToObject(object, "binades", binades_of(a->half));
    cJSON *predicted = cJSON_AddObjectToObject(object, "predicted");
    cJSON_AddNumberToObject(predicted, "scale_log2", a->octaves);
    cJSON_AddNumberToObject(predicted, "flushed_share", a->share);
    cJSON_AddNumberToObject(predicted, "flushed_energy_share", a->energy);
    cJSON_AddNumberToObject(predicted, "flushed_share_of_whole_tensors", a->whole_share);
    cJSON_AddNumberToObject(predicted, "whole_tensors", a->wholes);
    cJSON_AddNumberToObject(predicted, "overflow_probability", a->overflow);
    cJSON_AddNumberToObject(predicted, "overflow_probability_highest", a->worst);
    choice_json(a, goal, object);
    laws_json(a, object);
    rules_json(a, object);
    layers_json(a, object);
}

/* ---- receipt --------------------------------------------------------------------------------- */

void ab_receipt_print(const ab_receipt *r, FILE *out) {
    char share[AB_TEXT_NUMBER], predicted[AB_TEXT_NUMBER], low[AB_TEXT_NUMBER], high[AB_TEXT_NUMBER];
    ab_print(out,
             "confirmed by a run: %d of %d steps overflowed and were skipped, %.2g were expected (95 %% "
             "interval of "
             "the share: %.2g to %.2g): %s\n",
             r->skipped, r->steps, r->expected, r->low, r->high,
             r->overflow_agrees ? "agrees" : "does not agree");
    if (r->values > 0)
        ab_print(out,
                 "                    %s %% flushed in the tensors that have no zeros of their own (95 %% "
                 "interval "
                 "%s to %s), %s %% were predicted: %s\n",
                 ab_text_percent(share, r->share), ab_text_percent(low, r->share_low),
                 ab_text_percent(high, r->share_high), ab_text_percent(predicted, r->predicted_share),
                 r->flush_agrees ? "agrees" : "does not agree");
    if (isfinite(r->loss_gap)) fprintf(out, "                    loss gap to O0 %+.4g\n", r->loss_gap);
}

void ab_receipt_json(const ab_receipt *r, cJSON *object) {
    cJSON *receipt = cJSON_AddObjectToObject(object, "observed");
    cJSON_AddNumberToObject(receipt, "steps", r->steps);
    cJSON_AddNumberToObject(receipt, "steps_overflowed", r->skipped);
    cJSON_AddNumberToObject(receipt, "steps_overflowed_low", r->low);
    cJSON_AddNumberToObject(receipt, "steps_overflowed_high", r->high);
    cJSON_AddNumberToObject(receipt, "steps_overflowed_predicted", r->predicted);
    cJSON_AddBoolToObject(receipt, "overflow_agrees", r->overflow_agrees);
    cJSON_AddNumberToObject(receipt, "values", r->values);
    cJSON_AddNumberToObject(receipt, "flushed", r->lost);
    cJSON_AddNumberToObject(receipt, "flushed_share", r->share);
    cJSON_AddNumberToObject(receipt, "flushed_share_low", r->share_low);
    cJSON_AddNumberToObject(receipt, "flushed_share_high", r->share_high);
    cJSON_AddNumberToObject(receipt, "flushed_share_predicted", r->predicted_share);
    cJSON_AddBoolToObject(receipt, "flush_agrees", r->flush_agrees);
    add_number(receipt, "loss_gap", r->loss_gap);
}
