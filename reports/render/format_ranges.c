/* Ranges of formats: text tables and JSON objects. */
#include "reports/render/format_ranges.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"

#include <inttypes.h>
#include <math.h>

/* "6.10352e-05 2^-14": any power of two, exact and readable. */
static const char *power_text(double x, char text[48]) {
    int exponent = 0;
    frexp(x, &exponent);
    ab_text_show(text, 48, "%-12.6g 2^%d", x, exponent - 1);
    return text;
}

void ab_format_ranges_print(FILE *out, const ab_format *const *format, int count) {
    char normal[48], subnormal[48], eps[48];
    ab_print(out, "%-10s %4s %9s  %-12s  %-21s %-21s %-20s %s\n", "format", "bits", "precision", "max",
             "min normal", "smallest subnormal", "eps", "binades");
    for (int i = 0; i < count; i++) {
        const ab_format *f = format[i];
        ab_print(out, "%-10s %4d %9d  %-12.6g  %-21s %-21s %-20s %7d\n", f->name, f->bits, f->precision,
                 ab_format_max(f), power_text(ab_format_min_normal(f), normal),
                 power_text(ab_format_min_subnormal(f), subnormal), power_text(ab_format_eps(f), eps),
                 ab_format_binades(f));
    }
}

/* All 17 digits: cJSON prints 15 if the result is close. */
static void add_exact(cJSON *object, const char *key, double x) {
    char text[40];
    ab_text_show(text, sizeof text, "%.17g", x);
    cJSON_AddRawToObject(object, key, text);
}

/* The largest magnitude that may still round to max, and whether it overflows: 464 and false for e4m3. */
static void add_overflow(cJSON *object, const ab_format *f) {
    bool tie_stays = (ab_format_max_code(f) & 1) == 0;
    double limit = ab_format_overflow_limit(f);
    if (isfinite(limit)) {
        add_exact(object, "overflow_limit", tie_stays ? nextafter(limit, 0) : limit);
        cJSON_AddBoolToObject(object, "overflow_at_limit", !tie_stays);
    } else {
        cJSON_AddNullToObject(object, "overflow_limit");
        cJSON_AddStringToObject(object, "overflow_limit_reason", "above the largest double");
    }
}

/* Bits per element including its share of the block's scale. */
static double bits_per_element(const ab_block_format *f) { return f->element->bits + 8.0 / f->block; }

static const char *scale_name(const ab_block_format *f) { return f->scale != NULL ? f->scale->name : "e8m0"; }

void ab_block_format_ranges_print(FILE *out, const ab_block_format *const *format, int count) {
    ab_print(out, "%-10s %5s  %-10s %-10s %s\n", "format", "block", "element", "scale", "bits per element");
    for (int i = 0; i < count; i++) {
        const ab_block_format *f = format[i];
        ab_print(out, "%-10s %5d  %-10s %-10s %-16.4g  %s\n", f->name, f->block, f->element->name,
                 scale_name(f), bits_per_element(f), f->text);
    }
}

cJSON *ab_block_format_range_json(const ab_block_format *f) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", f->name);
    cJSON_AddNumberToObject(object, "block", f->block);
    cJSON_AddStringToObject(object, "element", f->element->name);
    cJSON_AddStringToObject(object, "scale", scale_name(f));
    cJSON_AddBoolToObject(object, "tensor_scale", f->scale != NULL);
    cJSON_AddNumberToObject(object, "bits_per_element", bits_per_element(f));
    return object;
}

cJSON *ab_format_range_json(const ab_format *f) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", f->name);
    cJSON_AddNumberToObject(object, "bits", f->bits);
    cJSON_AddNumberToObject(object, "precision", f->precision);
    cJSON_AddNumberToObject(object, "emin", f->emin);
    cJSON_AddNumberToObject(object, "emax", f->emax);
    cJSON_AddBoolToObject(object, "infinity", f->infinity);
    cJSON_AddBoolToObject(object, "nan", f->nan);
    cJSON_AddNumberToObject(object, "storage_bytes", f->storage_bytes);
    add_exact(object, "max", ab_format_max(f));
    add_exact(object, "min_normal", ab_format_min_normal(f));
    add_exact(object, "min_subnormal", ab_format_min_subnormal(f));
    add_exact(object, "eps", ab_format_eps(f));
    cJSON_AddNumberToObject(object, "binades", ab_format_binades(f));
    add_exact(object, "flush_limit", ab_format_flush_limit(f));
    add_overflow(object, f);
    return object;
}

/* Results of proofs as text and JSON objects. */

uint64_t ab_proof_mismatches(const ab_proof *proof) {
    uint64_t sum = 0;
    for (int i = 0; i < proof->verdicts; i++) sum += proof->verdict[i].mismatches;
    return sum;
}

void ab_proof_print(FILE *out, const char *pair, const ab_proof *proof) {
    const ab_proof_tally *t = &proof->tally;
    ab_print(out, "%s: %s\n", pair,
             ab_proof_mismatches(proof) == 0 ? "proved" : "DIFFERS FROM THE DEFINITION");
    for (int i = 0; i < proof->verdicts; i++) {
        const ab_proof_verdict *v = &proof->verdict[i];
        ab_print(out, "  %-14s %10" PRIu64 " inputs  %" PRIu64 " mismatches", v->subject, v->inputs,
                 v->mismatches);
        if (v->mismatches > 0)
            fprintf(out, ", first at input 0x%08" PRIx32 ": expected 0x%" PRIx32 ", got 0x%" PRIx32, v->input,
                    v->expected, v->got);
        fputc('\n', out);
    }
    fprintf(out,
            "  results        %" PRIu64 " zero, %" PRIu64 " subnormal, %" PRIu64 " normal, %" PRIu64
            " inf, %" PRIu64 " nan\n",
            t->zero, t->subnormal, t->normal, t->infinite, t->nan);
    fprintf(out, "  checksum       %016" PRIx64 "\n  time           %.1f s\n", t->checksum, proof->seconds);
}

static cJSON *verdict_json(const ab_proof_verdict *v) {
    char bits[16];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "subject", v->subject);
    cJSON_AddNumberToObject(object, "inputs", (double)v->inputs);
    cJSON_AddNumberToObject(object, "mismatches", (double)v->mismatches);
    if (v->mismatches == 0) return object;
    ab_text_exact(bits, sizeof bits, "0x%08" PRIx32, v->input);
    cJSON_AddStringToObject(object, "first_input", bits);
    return object;
}

cJSON *ab_proof_json(const char *pair, const ab_proof *proof) {
    char checksum[24];
    const ab_proof_tally *t = &proof->tally;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "pair", pair);
    cJSON_AddBoolToObject(object, "proved", ab_proof_mismatches(proof) == 0);
    cJSON *subjects = cJSON_AddArrayToObject(object, "subjects");
    for (int i = 0; i < proof->verdicts; i++)
        cJSON_AddItemToArray(subjects, verdict_json(&proof->verdict[i]));
    cJSON *results = cJSON_AddObjectToObject(object, "results");
    cJSON_AddNumberToObject(results, "zero", (double)t->zero);
    cJSON_AddNumberToObject(results, "subnormal", (double)t->subnormal);
    cJSON_AddNumberToObject(results, "normal", (double)t->normal);
    cJSON_AddNumberToObject(results, "inf", (double)t->infinite);
    cJSON_AddNumberToObject(results, "nan", (double)t->nan);
    ab_text_exact(checksum, sizeof checksum, "%016" PRIx64, t->checksum);
    cJSON_AddStringToObject(object, "checksum", checksum);
    cJSON_AddNumberToObject(object, "time_s", proof->seconds);
    return object;
}
