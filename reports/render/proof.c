/* Results of proofs as text and JSON objects. */
#include "reports/render/proof.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"

#include <inttypes.h>

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
