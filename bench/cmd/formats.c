/* `ampbench formats`: the ranges of number formats, computed from their rows, and proofs of their
 * conversions. */
#include "bench/cmd/cmd.h"
#include "bench/prove/prove.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/output.h"
#include "reports/render/format_ranges.h"
#include "reports/render/format_swallow.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: ampbench formats [NAME...] [--json FILE]\n"
    "       ampbench formats --swallow FORMAT\n"
    "       ampbench formats --prove FORMAT,MODE[,FLAG...] [--every-level] [--json FILE]\n"
    "\n"
    "Prints the ranges of the formats called NAME (fp16, e4m3, e6m9, nvfp4, ...), or of all that have a "
    "name.\n"
    "\n"
    "  --swallow FORMAT     when adding an update to a weight stored in FORMAT changes nothing: the rule, "
    "and\n"
    "                       numbers worked out with it\n"
    "  --prove FORMAT,MODE  convert all 2^32 fp32 values to FORMAT and compare each result with one found\n"
    "                       in another way, and with the CPU's own instruction where it has one. MODE is\n"
    "                       rne (nearest, ties to even), rna (ties away), rz (toward zero), ru (up) or\n"
    "                       rd (down); FLAG is saturate, ftz_before or ftz_after (rounding).\n"
    "                       About a minute on one core. May be given more than once.\n"
    "  --every-level        with --prove: try the kernels for older CPUs too, not only those in use here\n"
    "  --json FILE          write JSON to FILE; - is standard output, in place of the table\n";

enum { MAX_NAMES = 64 };

typedef struct proof_request {
    const ab_format *format;
    ab_rounding rounding;
} proof_request;

typedef struct request {
    const ab_format *format[MAX_NAMES];
    int formats;
    const ab_block_format *block[MAX_NAMES];
    int blocks;
    proof_request proof[MAX_NAMES];
    int proofs;
    const char *json;
    const ab_format *swallow;
    bool every_level, help;
} request;

/* ---- arguments ------------------------------------------------------------------------------- */

static const char *const ftz_names[] = {"none", "ftz_before", "ftz_after"}; /* by ab_ftz */

static ab_status set_flag(const char *word, ab_rounding *rounding) {
    if (strcmp(word, "saturate") == 0) {
        rounding->saturate = true;
        return AB_OK;
    }
    for (int i = AB_FTZ_BEFORE; i <= AB_FTZ_AFTER; i++) {
        if (strcmp(word, ftz_names[i]) != 0) continue;
        rounding->ftz = (ab_ftz)i;
        return AB_OK;
    }
    return ab_fail(AB_USAGE,
                   "--prove: expected saturate, ftz_before or ftz_after after the mode, found \"%s\"",
                   ab_text_brief(word, 60));
}

/* The next comma-separated word of *text, copied to `word`; *text moves past it, or becomes NULL after the
 * last. */
static bool next_word(const char **text, char word[64]) {
    if (*text == NULL) return false;
    size_t length = strcspn(*text, ",");
    ab_text_show(word, 64, "%.*s", (int)length, *text);
    *text = (*text)[length] == ',' ? *text + length + 1 : NULL;
    return true;
}

/* "fp16,rne[,flag...]" */
static ab_status parse_proof(const char *text, proof_request *proof) {
    char name[64], mode[64], flag[64];
    const char *rest = text;
    memset(proof, 0, sizeof *proof);
    if (!next_word(&rest, name) || !next_word(&rest, mode))
        return ab_fail(AB_USAGE, "--prove: expected FORMAT,MODE such as fp16,rne, found \"%s\"",
                       ab_text_brief(text, 60));
    if (ab_format_find(name, &proof->format) != AB_OK ||
        ab_round_mode_find(mode, &proof->rounding.mode) != AB_OK)
        return ab_fail_prefix(AB_USAGE, "--prove");
    while (next_word(&rest, flag)) AB_TRY(set_flag(flag, &proof->rounding));
    if (ab_prove_check(proof->format, &proof->rounding) != AB_OK) return ab_fail_prefix(AB_USAGE, "--prove");
    return AB_OK;
}

/* The error for an unknown format name: may suggest a block format. */
static ab_status nearest_block(const char *name, ab_status otherwise) {
    enum { MOST = 16 };
    const char *names[MOST];
    int count = ab_block_format_count();
    for (int i = 0; i < count && i < MOST; i++) names[i] = ab_block_format_at(i)->name;
    const char *near = ab_nearest(name, names, count < MOST ? count : MOST);
    return near ? ab_fail(AB_CONFIG, "unknown format \"%s\"; nearest: %s", ab_text_brief(name, 60), near)
                : otherwise;
}

static ab_status add_format(request *r, const char *name) {
    if (r->formats + r->blocks == MAX_NAMES) return ab_fail(AB_USAGE, "formats: at most %d names", MAX_NAMES);
    if (ab_block_format_find(name, &r->block[r->blocks]) == AB_OK) {
        r->blocks++;
        return AB_OK;
    }
    ab_status status = ab_format_find(name, &r->format[r->formats++]);
    return status == AB_OK ? AB_OK : nearest_block(name, status);
}

static ab_status add_proof(request *r, const char *text) {
    if (r->proofs == MAX_NAMES) return ab_fail(AB_USAGE, "formats: at most %d times --prove", MAX_NAMES);
    return parse_proof(text, &r->proof[r->proofs++]);
}

static ab_status find_swallow(request *r, const char *name) {
    if (ab_format_find(name, &r->swallow) == AB_OK) return AB_OK;
    return ab_fail_prefix(AB_USAGE, "--swallow");
}

static ab_status parse(int argc, char **argv, request *r) {
    static const char *const options[] = {"--prove", "--every-level", "--json", "--swallow", "--help"};
    for (int i = 1; i < argc; i++) {
        const char *value = "";
        if (ab_is_help(argv[i]))
            r->help = true;
        else if (strcmp(argv[i], "--every-level") == 0)
            r->every_level = true;
        else if (ab_is_option("--prove", argc, argv, &i, &value))
            AB_TRY(add_proof(r, value));
        else if (ab_is_option("--swallow", argc, argv, &i, &value))
            AB_TRY(find_swallow(r, value));
        else if (ab_is_option("--json", argc, argv, &i, &value))
            r->json = value;
        else if (argv[i][0] == '-')
            return ab_unknown_option("formats", argv[i], options, (int)AB_COUNT_OF(options));
        else
            AB_TRY(add_format(r, argv[i]));
    }
    if (r->json != NULL && r->json[0] == '\0') return ab_fail(AB_USAGE, "--json: expected a file name or -");
    if (r->swallow && (r->formats + r->blocks + r->proofs > 0 || r->json))
        return ab_fail(AB_USAGE, "formats: --swallow stands alone");
    if (r->formats + r->blocks > 0 && r->proofs > 0)
        return ab_fail(AB_USAGE, "formats: expected names or --prove, found both");
    if (r->formats + r->blocks + r->proofs == 0) {
        for (int i = 0; i < ab_format_count(); i++) r->format[r->formats++] = ab_format_at(i);
        for (int i = 0; i < ab_block_format_count(); i++) r->block[r->blocks++] = ab_block_format_at(i);
    }
    return AB_OK;
}

/* ---- proofs ---------------------------------------------------------------------------------- */

static void pair_text(const proof_request *proof, char text[128]) {
    ab_text_show(text, 128, "%s,%s%s%s%s", proof->format->name, ab_round_mode_name(proof->rounding.mode),
                 proof->rounding.saturate ? ",saturate" : "", proof->rounding.ftz != AB_FTZ_NONE ? "," : "",
                 proof->rounding.ftz != AB_FTZ_NONE ? ftz_names[proof->rounding.ftz] : "");
}

/* Proves the pairs in turn, printing each when it is done (or adding it to `list`). */
static ab_status prove_all(const request *r, cJSON *list) {
    uint64_t mismatches = 0;
    char pair[128];
    for (int i = 0; i < r->proofs; i++) {
        ab_proof proof;
        pair_text(&r->proof[i], pair);
        ab_print(stderr, "ampbench: proving %s on all 2^32 inputs; about a minute on one core\n", pair);
        AB_TRY(ab_prove(r->proof[i].format, &r->proof[i].rounding, r->every_level, &proof));
        mismatches += ab_proof_mismatches(&proof);
        if (list != NULL) cJSON_AddItemToArray(list, ab_proof_json(pair, &proof));
        if (list == NULL) ab_proof_print(stdout, pair, &proof);
        fflush(stdout);
    }
    if (mismatches > 0)
        return ab_fail(AB_NUMERICS, "%" PRIu64 " conversions differ from the definition", mismatches);
    return AB_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

static cJSON *document(const request *r, ab_status *proved) {
    cJSON *root = cJSON_CreateObject();
    cJSON *list = cJSON_AddArrayToObject(root, r->proofs > 0 ? "proofs" : "formats");
    for (int i = 0; i < r->formats; i++) cJSON_AddItemToArray(list, ab_format_range_json(r->format[i]));
    if (r->blocks > 0) list = cJSON_AddArrayToObject(root, "block_formats");
    for (int i = 0; i < r->blocks; i++) cJSON_AddItemToArray(list, ab_block_format_range_json(r->block[i]));
    *proved = r->proofs > 0 ? prove_all(r, list) : AB_OK;
    return root;
}

/* Opens the file first, so that a wrong path fails before an hour of proofs. A failed proof is still written;
 * its status is returned. */
static ab_status write_json(const request *r) {
    ab_status proved = AB_OK;
    ab_outfile out;
    AB_TRY(ab_output_open("--json", r->json, &out));
    cJSON *root = document(r, &proved);
    char *text = cJSON_Print(root);
    ab_status written = text ? AB_OK : ab_fail(AB_NO_MEMORY, "--json: out of memory");
    if (text) {
        fputs(text, out.stream);
        fputc('\n', out.stream);
    }
    cJSON_Delete(root);
    cJSON_free(text);
    written = ab_output_close("--json", &out, written);
    return written == AB_OK ? proved : written;
}

ab_status ab_cmd_formats(int argc, char **argv) {
    request r = {0};
    AB_TRY(parse(argc, argv, &r));
    if (r.help) {
        fputs(usage, stdout);
        return AB_OK;
    }
    if (r.swallow) {
        ab_format_swallow_print(stdout, r.swallow);
        return AB_OK;
    }
    if (r.json != NULL) return write_json(&r);
    if (r.proofs > 0) return prove_all(&r, NULL);
    if (r.formats > 0) ab_format_ranges_print(stdout, r.format, r.formats);
    if (r.formats > 0 && r.blocks > 0) putchar('\n');
    if (r.blocks > 0) ab_block_format_ranges_print(stdout, r.block, r.blocks);
    return AB_OK;
}
