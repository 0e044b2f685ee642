/* The JSON form of an inspection, written as it is computed: a document of many tensors is never held. Counts are
 * integers; a count that a scale or format leaves open is a pair [lowest, highest], and "exact" says so. */
#include "bench/inspect/inspect.h"
#include "bench/tensorfile/json_scan.h"
#include "bench/tensorfile/json_text.h"
#include "reports/text.h"

#include <inttypes.h>
#include <string.h>

/* A path need not be UTF-8. */
static void put_path(FILE *out, const char *path) {
    char clean[1024];
    bool valid = ab_utf8_valid(path, strlen(path), NULL);
    ab_json_put_text(out, valid ? path : ab_text_clean(clean, sizeof clean, path));
}

static void put_identity(FILE *out, const ab_inspect_pick *pick) {
    const ab_tensor_entry *entry = pick->entry;
    fputs("{\"name\":", out);
    ab_json_put_text(out, entry->name);
    fputs(",\"file\":", out);
    put_path(out, pick->file->path);
    fprintf(out, ",\"dtype\":\"%s\",\"stored_as\":", entry->element->name);
    ab_json_put_text(out, entry->dtype);
    fputs(",\"shape\":[", out);
    for (int i = 0; i < entry->ndim; i++) fprintf(out, "%s%" PRId64, i ? "," : "", entry->dim[i]);
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

static void put_whatif(FILE *out, const ab_inspect_result *result, const ab_census *census) {
    ab_census_totals totals;
    ab_whatif_range range;
    ab_census_total(census, &totals);
    fputs(",\"whatif\":{", out);
    for (int f = 0; f < result->request->formats; f++) {
        fprintf(out, "%s\"%s\":[", f ? "," : "", result->request->format[f]->name);
        for (int k = AB_INSPECT_LOW; k <= AB_INSPECT_HIGH; k++) {
            ab_whatif_evaluate(census, &totals, &result->limits->power[f][k - AB_INSPECT_LOW], &range);
            fprintf(out, "%s{\"scale_log2\":%d", k > AB_INSPECT_LOW ? "," : "", k);
            put_outcome(out, &range);
        }
        fputc(']', out);
    }
    fputc('}', out);
}

static void put_at_scale(FILE *out, const ab_inspect_result *result, const ab_whatif_range *at_scale) {
    fprintf(out, ",\"at_scale\":{");
    for (int f = 0; f < result->request->formats; f++) {
        fprintf(out, "%s\"%s\":{\"scale\":%.9g", f ? "," : "", result->request->format[f]->name,
                (double)result->request->scale);
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
