/* Fuzz target: the journal of a probe whose process was killed, read as a document, which is checked,
 * reported and diagnosed. An input holds the records without their heads and digests, which are put before
 * them, and with zeros left out: a byte, how many bytes of the journal's end are torn off; then records:
 * kind, number of runs, and runs of skipped zeros (3 bytes), length (2 bytes), that many bytes; numbers
 * little-endian. */
#include "tests/fuzz/fuzz.h"

#include "probes/lib/record_text.h"
#include "reports/diagnose/diagnose.h"
#include "reports/record/json.h"
#include "reports/record/result.h"
#include "reports/record/schema.h"
#include "reports/render/report.h"
#include "reports/render/report_sections.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 4 << 20, HEAD = 16 };

typedef struct input {
    const uint8_t *at, *end;
} input;

static unsigned number(input *in, int bytes) {
    unsigned value = 0;
    for (int i = 0; i < bytes && in->at < in->end; i++) value |= (unsigned)*in->at++ << 8 * i;
    return value;
}

/* The digest of a record (probes/lib/journal.c). */
static uint64_t digest_of(const uint8_t *data, size_t size) {
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        digest = (digest ^ word) * UINT64_C(0x100000001b3);
        digest ^= digest >> 32;
    }
    for (; size > 0; size--, data++) digest = (digest ^ *data) * UINT64_C(0x100000001b3);
    return digest;
}

/* Appends the next record to journal[used]; returns the new length. */
static size_t add_record(input *in, uint8_t *journal, size_t used) {
    const uint32_t kind = number(in, 1);
    const size_t begin = used + HEAD;
    size_t to = begin;
    for (unsigned runs = number(in, 1); runs > 0; runs--) {
        const size_t skip = number(in, 3), length = number(in, 2), left = (size_t)(in->end - in->at),
                     size = length < left ? length : left;
        if (to + skip + size + HEAD > MOST) break;
        memcpy(journal + to + skip, in->at, size);
        in->at += size;
        to += skip + size;
    }
    const uint32_t head[2] = {kind, (uint32_t)(to - begin)};
    const uint64_t digest = digest_of(journal + begin, to - begin);
    memcpy(journal + used, head, sizeof head);
    memcpy(journal + used + sizeof head, &digest, sizeof digest);
    return to;
}

static void use(cJSON *document) {
    static cJSON *schema;
    int sick = 0;
    if (!schema) fuzz_insist(ab_schema_result(&schema) == AB_OK);
    if (ab_schema_check(schema, document, false, "run.json") != AB_OK ||
        ab_result_check_sums(document, "run.json") != AB_OK || ab_result_summarise(document) != AB_OK)
        return;
    fuzz_passed();
    for (int i = 0; i < ab_report_count(); i++)
        if (ab_report_at(i)->write(document, fuzz_sink(false), false) != AB_OK)
            fuzz_insist(ab_error_message()[0]);
    if (ab_diagnose_print(document, &ab_thresholds_default, AB_DIAGNOSE_EXPLAINED, fuzz_sink(false), &sick) !=
        AB_OK)
        fuzz_insist(ab_error_message()[0]);
}

void fuzz_journal(const uint8_t *data, size_t size) {
    static uint8_t *journal;
    input in = {data, data + size};
    size_t used = 0;
    char *text = NULL;
    if (!journal) journal = malloc(MOST);
    fuzz_insist(journal != NULL);
    memset(journal, 0, MOST);
    const size_t torn = number(&in, 1);
    while (in.at < in.end && used + 2 * HEAD < MOST) used = add_record(&in, journal, used);
    fuzz_file("run.json.steps", journal, used > torn ? used - torn : 0);
    const ab_status status = ab_lib_record_text("run.json", &text);
    fuzz_insist(status == AB_OK || ab_error_message()[0]);
    if (status == AB_OK && text) {
        cJSON *document = cJSON_Parse(text);
        fuzz_insist(document != NULL);
        use(document);
        cJSON_Delete(document);
    }
    free(text);
    fuzz_files_clear();
}
