/* `ampbench formats`: the ranges of number formats, computed from their rows, and proofs of their
 * conversions. */
#include "bench/cmd/cmd.h"
#include "bench/prove/prove.h"
#include "kernels/core/nearest.h"
#include "kernels/core/text.h"
#include "kernels/format/block_format.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: ampbench formats [NAME...] [--json FILE]\n"
    "       ampbench formats --prove FORMAT,MODE[,FLAG...] [--every-level] [--json FILE]\n"
    "\n"
    "Prints the ranges of the formats called NAME (fp16, e4m3, e6m9, nvfp4, ...), or of all that have a "
    "name.\n"
    "\n"
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
    bool every_level, help;
} request;

/* ---- arguments ----------------------------------------------------------------------------------------- */

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

/* The next comma-separated word of *text, copied to `word`; *text moves behind it, or becomes NULL after the
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

static ab_status unknown_option(const char *word) {
    static const char *const options[] = {"--prove", "--every-level", "--json", "--help"};
    const char *near = ab_nearest(word, options, (int)AB_COUNT_OF(options));
    return ab_fail(AB_USAGE, "formats: unknown option %s; %s%s", ab_text_brief(word, 60),
                   near != NULL ? "nearest: " : "see --help", near != NULL ? near : "");
}

/* The error of a name that is no format: a block format may be what was meant. */
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

/* Whether argv[*i] is option `name`, as "name=VALUE" or followed by VALUE; then *value is the value, "" if it is missing. */
static bool is_option(const char *name, int argc, char **argv, int *i, const char **value) {
    const char *word = argv[*i];
    size_t length = strlen(name);
    if (strncmp(word, name, length) != 0 || (word[length] != '=' && word[length] != '\0')) return false;
    if (word[length] == '=')
        *value = word + length + 1;
    else
        *value = *i + 1 < argc ? argv[++*i] : "";
    return true;
}

static ab_status parse(int argc, char **argv, request *r) {
    for (int i = 1; i < argc; i++) {
        const char *value = "";
        if (ab_is_help(argv[i]))
            r->help = true;
        else if (strcmp(argv[i], "--every-level") == 0)
            r->every_level = true;
        else if (is_option("--prove", argc, argv, &i, &value))
            AB_TRY(add_proof(r, value));
        else if (is_option("--json", argc, argv, &i, &value))
            r->json = value;
        else if (argv[i][0] == '-')
            return unknown_option(argv[i]);
        else
            AB_TRY(add_format(r, argv[i]));
    }
    if (r->json != NULL && r->json[0] == '\0') return ab_fail(AB_USAGE, "--json: expected a file name or -");
    if (r->formats + r->blocks > 0 && r->proofs > 0)
        return ab_fail(AB_USAGE, "formats: expected names or --prove, found both");
    if (r->formats + r->blocks + r->proofs == 0) {
        for (int i = 0; i < ab_format_count(); i++) r->format[r->formats++] = ab_format_at(i);
        for (int i = 0; i < ab_block_format_count(); i++) r->block[r->blocks++] = ab_block_format_at(i);
    }
    return AB_OK;
}

/* ---- ranges -------------------------------------------------------------------------------------------- */

/* "6.10352e-05 2^-14": a power of two of any size, exact and readable. */
static const char *power_text(double x, char text[48]) {
    int exponent = 0;
    frexp(x, &exponent);
    ab_text_show(text, 48, "%-12.6g 2^%d", x, exponent - 1);
    return text;
}

static void print_ranges(const request *r) {
    char normal[48], subnormal[48], eps[48];
    printf("%-10s %4s %9s  %-12s  %-21s %-21s %-20s %s\n", "format", "bits", "precision", "max", "min normal",
           "smallest subnormal", "eps", "binades");
    for (int i = 0; i < r->formats; i++) {
        const ab_format *f = r->format[i];
        printf("%-10s %4d %9d  %-12.6g  %-21s %-21s %-20s %7d\n", f->name, f->bits, f->precision,
               ab_format_max(f), power_text(ab_format_min_normal(f), normal),
               power_text(ab_format_min_subnormal(f), subnormal), power_text(ab_format_eps(f), eps),
               ab_format_binades(f));
    }
}

/* All 17 digits: cJSON's own numbers stop at 15 when that is close. */
static void add_exact(cJSON *object, const char *key, double x) {
    char text[40];
    ab_text_show(text, sizeof text, "%.17g", x);
    cJSON_AddRawToObject(object, key, text);
}

/* The largest magnitude that may still round to max and whether it does: 464 and false for e4m3. */
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

/* What an element costs with its share of the block's scale. */
static double bits_per_element(const ab_block_format *f) { return f->element->bits + 8.0 / f->block; }

static const char *scale_name(const ab_block_format *f) { return f->scale != NULL ? f->scale->name : "e8m0"; }

static void print_blocks(const request *r) {
    printf("%s%-10s %5s  %-10s %-10s %s\n", r->formats > 0 ? "\n" : "", "format", "block", "element", "scale",
           "bits per element");
    for (int i = 0; i < r->blocks; i++) {
        const ab_block_format *f = r->block[i];
        printf("%-10s %5d  %-10s %-10s %-16.4g  %s\n", f->name, f->block, f->element->name, scale_name(f),
               bits_per_element(f), f->text);
    }
}

static cJSON *block_json(const ab_block_format *f) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", f->name);
    cJSON_AddNumberToObject(object, "block", f->block);
    cJSON_AddStringToObject(object, "element", f->element->name);
    cJSON_AddStringToObject(object, "scale", scale_name(f));
    cJSON_AddBoolToObject(object, "tensor_scale", f->scale != NULL);
    cJSON_AddNumberToObject(object, "bits_per_element", bits_per_element(f));
    return object;
}

static cJSON *range_json(const ab_format *f) {
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

/* ---- proofs -------------------------------------------------------------------------------------------- */

static void pair_text(const proof_request *proof, char text[128]) {
    ab_text_show(text, 128, "%s,%s%s%s%s", proof->format->name, ab_round_mode_name(proof->rounding.mode),
                 proof->rounding.saturate ? ",saturate" : "", proof->rounding.ftz != AB_FTZ_NONE ? "," : "",
                 proof->rounding.ftz != AB_FTZ_NONE ? ftz_names[proof->rounding.ftz] : "");
}

static void print_proof(const char *pair, const ab_proof *proof) {
    const ab_tally *t = &proof->tally;
    printf("%s: %s\n", pair, ab_proof_mismatches(proof) == 0 ? "proved" : "DIFFERS FROM THE DEFINITION");
    for (int i = 0; i < proof->verdicts; i++) {
        const ab_verdict *v = &proof->verdict[i];
        printf("  %-14s %10" PRIu64 " inputs  %" PRIu64 " mismatches", v->subject, v->inputs, v->mismatches);
        if (v->mismatches > 0)
            printf(", first at input 0x%08" PRIx32 ": expected 0x%" PRIx32 ", got 0x%" PRIx32, v->input,
                   v->expected, v->got);
        putchar('\n');
    }
    printf("  results        %" PRIu64 " zero, %" PRIu64 " subnormal, %" PRIu64 " normal, %" PRIu64
           " inf, %" PRIu64 " nan\n",
           t->zero, t->subnormal, t->normal, t->infinite, t->nan);
    printf("  checksum       %016" PRIx64 "\n  time           %.1f s\n", t->checksum, proof->seconds);
}

static cJSON *verdict_json(const ab_verdict *v) {
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

static cJSON *proof_json(const char *pair, const ab_proof *proof) {
    char checksum[24];
    const ab_tally *t = &proof->tally;
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

/* Proves the pairs in turn, printing each when it is done (or adding it to `list`). */
static ab_status prove_all(const request *r, cJSON *list) {
    uint64_t mismatches = 0;
    char pair[128];
    for (int i = 0; i < r->proofs; i++) {
        ab_proof proof;
        pair_text(&r->proof[i], pair);
        fprintf(stderr, "ampbench: proving %s on all 2^32 inputs; about a minute on one core\n", pair);
        AB_TRY(ab_prove(r->proof[i].format, &r->proof[i].rounding, r->every_level, &proof));
        mismatches += ab_proof_mismatches(&proof);
        if (list != NULL) cJSON_AddItemToArray(list, proof_json(pair, &proof));
        if (list == NULL) print_proof(pair, &proof);
        fflush(stdout);
    }
    if (mismatches > 0)
        return ab_fail(AB_NUMERICS, "%" PRIu64 " conversions differ from the definition", mismatches);
    return AB_OK;
}

/* ---- the command --------------------------------------------------------------------------------------- */

static cJSON *document(const request *r, ab_status *proved) {
    cJSON *root = cJSON_CreateObject();
    cJSON *list = cJSON_AddArrayToObject(root, r->proofs > 0 ? "proofs" : "formats");
    for (int i = 0; i < r->formats; i++) cJSON_AddItemToArray(list, range_json(r->format[i]));
    if (r->blocks > 0) list = cJSON_AddArrayToObject(root, "block_formats");
    for (int i = 0; i < r->blocks; i++) cJSON_AddItemToArray(list, block_json(r->block[i]));
    *proved = r->proofs > 0 ? prove_all(r, list) : AB_OK;
    return root;
}

/* Opens the file first: an hour of proofs must not end at a mistyped path. A failed proof is still written;
 * its failure is what is returned. */
static ab_status write_json(const request *r) {
    ab_status status = AB_OK;
    FILE *file = strcmp(r->json, "-") == 0 ? stdout : fopen(r->json, "w");
    if (file == NULL) return ab_fail(AB_OUTPUT, "--json %s: cannot open it for writing", r->json);
    cJSON *root = document(r, &status);
    char *text = cJSON_Print(root);
    bool written = text != NULL && fprintf(file, "%s\n", text) > 0 && fflush(file) == 0;
    cJSON_Delete(root);
    cJSON_free(text);
    if (file != stdout) written = fclose(file) == 0 && written;
    return written ? status : ab_fail(AB_OUTPUT, "--json %s: cannot write", r->json);
}

ab_status ab_cmd_formats(int argc, char **argv) {
    request r = {0};
    AB_TRY(parse(argc, argv, &r));
    if (r.help) {
        fputs(usage, stdout);
        return AB_OK;
    }
    if (r.json != NULL) return write_json(&r);
    if (r.proofs > 0) return prove_all(&r, NULL);
    if (r.formats > 0) print_ranges(&r);
    if (r.blocks > 0) print_blocks(&r);
    return AB_OK;
}
