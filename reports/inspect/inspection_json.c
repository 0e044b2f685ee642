/* JSON output of an inspection, streamed: the document is never held in memory. Counts are integers; a
 * count that is undetermined for a scale or format is a pair [lowest, highest], and "exact" is false. */
#include "kernels/core/show.h"
#include "reports/inspect/inspection.h"

#include <inttypes.h>

static void put_identity(FILE *out, const ab_inspect_tensor *tensor) {
    fputs("{\"name\":", out);
    ab_json_put_text(out, tensor->name);
    fputs(",\"file\":", out);
    ab_json_put_text(out, tensor->path);
    fprintf(out, ",\"dtype\":\"%s\",\"stored_as\":", tensor->element);
    ab_json_put_text(out, tensor->dtype);
    fputs(",\"shape\":[", out);
    for (int i = 0; i < tensor->ndim; i++) fprintf(out, "%s%" PRId64, i ? "," : "", tensor->dim[i]);
    fputc(']', out);
}

static void put_count(FILE *out, const char *key, int64_t low, int64_t high) {
    if (low == high)
        fprintf(out, ",\"%s\":%" PRId64, key, low);
    else
        fprintf(out, ",\"%s\":[%" PRId64 ",%" PRId64 "]", key, low, high);
}

static void put_outcome(FILE *out, const ab_whatif_range *range) {
    const ab_whatif *low = &range->low, *high = &range->high;
    put_count(out, "flushed", low->flushed, high->flushed);
    put_count(out, "subnormal", low->subnormal, high->subnormal);
    put_count(out, "normal", low->normal, high->normal);
    put_count(out, "overflowed", low->overflowed, high->overflowed);
    fputs(range->exact ? "}" : ",\"exact\":false}", out);
}

static void put_whatif(FILE *out, const ab_inspect_result *result, const ab_census *census,
                       const ab_census_totals *totals) {
    ab_whatif_range range;
    fputs(",\"whatif\":{", out);
    for (int f = 0; f < result->question->formats; f++) {
        fprintf(out, "%s\"%s\":[", f ? "," : "", result->question->format[f]->name);
        for (int k = AB_INSPECT_LOW; k <= AB_INSPECT_HIGH; k++) {
            ab_whatif_evaluate(census, totals, &result->limits.power[f][k - AB_INSPECT_LOW], &range);
            fprintf(out, "%s{\"scale_log2\":%d", k > AB_INSPECT_LOW ? "," : "", k);
            put_outcome(out, &range);
        }
        fputc(']', out);
    }
    fputc('}', out);
}

static void put_at_scale(FILE *out, const ab_inspect_result *result, const ab_whatif_range *at_scale) {
    fprintf(out, ",\"at_scale\":{");
    for (int f = 0; f < result->question->formats; f++) {
        fprintf(out, "%s\"%s\":{\"scale\":%.9g", f ? "," : "", result->question->format[f]->name,
                (double)result->question->scale);
        put_outcome(out, &at_scale[f]);
    }
    fputc('}', out);
}

static void put_counts(FILE *out, const ab_inspect_count *count) {
    const ab_census *census = &count->census;
    int64_t nonzero = ab_census_nonzero(census);
    fprintf(out,
            ",\"count\":%" PRId64 ",\"zero\":%" PRId64 ",\"nan\":%" PRId64 ",\"inf\":%" PRId64
            ",\"nonzero_finite\":%" PRId64,
            census->count, census->zero, census->nan, census->pos_inf + census->neg_inf, nonzero);
    if (nonzero > 0)
        fprintf(out, ",\"min_abs\":%.9g,\"max_abs\":%.9g", (double)census->min_abs, (double)census->max_abs);
    else
        fputs(",\"min_abs\":null,\"max_abs\":null", out);
    fprintf(out, ",\"load_flushed\":%" PRId64 ",\"load_overflowed\":%" PRId64, count->load_flushed,
            count->load_overflowed);
}

/* ---- advice ---------------------------------------------------------------------------------- */

static void put_bound(FILE *out, const char *key, int k) {
    if (k < AB_INSPECT_MIN || k > AB_INSPECT_MAX)
        fprintf(out, "\"%s\":null", key);
    else
        fprintf(out, "\"%s\":%d", key, k);
}

/* Without the closing brace. */
static void put_advice(FILE *out, const ab_scale_range *advice) {
    fputc('{', out);
    put_bound(out, "k_lo", advice->k_lo);
    fputc(',', out);
    put_bound(out, "k_hi", advice->k_hi);
    fprintf(out, ",\"feasible\":%s,\"vacuous\":%s", ab_scale_feasible(advice) ? "true" : "false",
            advice->vacuous ? "true" : "false");
}

static void put_deciding(FILE *out, const ab_inspect_result *result, const char *key, int row) {
    fprintf(out, ",\"%s\":", key);
    if (row < 0)
        fputs("null", out);
    else
        ab_json_put_text(out, result->row[row].tensor.name);
}

static void put_summary(FILE *out, const ab_inspect_result *result) {
    const ab_scale_goal *goal = &result->question->goal;
    fputs("\n],\"advice\":{", out);
    for (int f = 0; f < result->question->formats; f++) {
        const ab_scale_advice *advice = &result->advice[f];
        fprintf(out, "%s\n\"%s\":", f ? "," : "", result->question->format[f]->name);
        put_advice(out, &advice->every);
        if (advice->feasible && !advice->every.vacuous)
            fprintf(out, ",\"k\":%d", advice->k);
        else
            fputs(",\"k\":null", out);
        put_deciding(out, result, "k_lo_decided_by",
                     advice->every.k_lo > goal->k_min ? advice->low_tensor : -1);
        put_deciding(out, result, "k_hi_decided_by",
                     advice->every.k_hi < goal->k_max ? advice->high_tensor : -1);
        fputs(",\"pooled\":", out);
        put_advice(out, &advice->pooled);
        fprintf(out, "},\"max_flushed_share\":%.9g,\"max_overflowed\":0}", goal->flushed_share);
    }
    fputc('}', out);
}

/* ---- the document ---------------------------------------------------------------------------- */

void ab_inspect_json_begin(FILE *out) {
    fputs("{\"kind\":\"ampbench-inspect\",\"version\":1,\"tensors\":[", out);
}

void ab_inspect_json_tensor(FILE *out, const ab_inspect_result *result, int row,
                            const ab_inspect_count *count, const ab_census_totals *totals) {
    const ab_inspect_row *r = &result->row[row];
    fputs(row ? ",\n" : "\n", out);
    put_identity(out, &r->tensor);
    put_counts(out, count);
    put_whatif(out, result, &count->census, totals);
    put_at_scale(out, result, r->at_scale);
    fputs(",\"advice\":{", out);
    for (int f = 0; f < result->question->formats; f++) {
        fprintf(out, "%s\"%s\":", f ? "," : "", result->question->format[f]->name);
        put_advice(out, &r->advice[f]);
        fputc('}', out);
    }
    fputs("}}", out);
}

void ab_inspect_json_end(FILE *out, const ab_inspect_result *result) {
    static const char *const ftz[] = {"none", "before", "after"}; /* by ab_ftz */
    put_summary(out, result);
    fputs(",\n\"skipped\":[", out);
    for (int i = 0; i < result->skips; i++) {
        if (i > 0) fputc(',', out);
        put_identity(out, &result->skipped[i]);
        fputc('}', out);
    }
    fprintf(out, "],\"flush_to_zero\":\"%s\"}\n", ftz[result->question->goal.ftz]);
}
