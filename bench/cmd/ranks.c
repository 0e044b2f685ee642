/* `ampbench ranks FILE...`: what a reduction over many ranks would do to measured gradients. */
#define _POSIX_C_SOURCE 200809L /* isatty, strtok_r, strdup */

#include "bench/ranks/ranks.h"
#include "bench/cmd/cmd.h"
#include "bench/ingest/ingest.h"
#include "kernels/core/log.h"
#include "kernels/core/number.h"
#include "kernels/core/parallel.h"
#include "kernels/core/power_range.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "kernels/files/lock.h"
#include "reports/record/json.h"
#include "reports/record/result.h"

#include <fnmatch.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIST = 16, MOST_RANKS = 1 << 20, DEFAULT_ELEMENTS = 1 << 20 };

/* Lists of one option, as written. */
typedef struct list {
    char *copy; /* owned */
    const char *word[LIST];
    int count;
} list;

typedef struct request {
    ab_ranks_request run; /* file[] points into `word` */
    const char **word;    /* owned; capacity: the number of arguments */
    const char *ranks, *reduce, *wire, *divide, *preset, *scale, *bucket, *elements, *json, *plot, *threads,
        *cell;
    cJSON *document; /* owned; the record that names the files; NULL: the command line does */
    bool help;
} request;

/* ---- help ------------------------------------------------------------------------------------ */

static const char usage[] =
    "usage: ampbench ranks FILE FILE... [OPTION]...\n"
    "       ampbench ranks RESULT.json [--cell PATTERN] [OPTION]...\n\n"
    "Each FILE holds the gradients of one micro-batch, saved before any reduction (tensor files as for "
    "`ampbench\ninspect`). Says what averaging them over 8 to 65536 ranks would do, with the order of "
    "additions, "
    "the format on\nthe wire and the division of a framework: error, bias, overflow, flushed values, by "
    "tensor "
    "and number of ranks,\nbeside the noise of the mini-batch itself. The numbers are simulated, bit by "
    "bit. RESULT.json is the\nrecord of a run with --save-gradients; it names the files.\n\n"
    "  --cell PATTERN        which cell of RESULT.json, by its id: '*/O2/*' (needed if several saved "
    "gradients)\n"
    "  --ranks LIST          numbers of ranks: 8,64,1024, or 8..65536 for powers of two (default "
    "8,64,512,4096)\n"
    "  --reduce LIST         orders (below); default ring,tree,alltoall\n"
    "  --reduce-dtype LIST   format on the wire: fp32, fp16, bf16, or as-is for that of the file; default "
    "fp32,fp16,bf16\n"
    "  --divide LIST         pre: contributions over N; post: the sum over N; sqrt: both, by about sqrt(N); "
    "avg: contributions\n"
    "                        times 1/N rounded to the wire format; F: contributions over F, the sum times "
    "F/N "
    "(default pre)\n"
    "  --preset LIST         a framework's defaults (below), in place of the three options above\n"
    "  --scale S             loss scale that the gradients are multiplied by: a number or 2^K (default 1)\n"
    "  --bucket-mb X         bytes that are reduced together, cut into one chunk for each rank (default 25)\n"
    "  --elements N          most elements to simulate, in blocks spread evenly (default 2^20; 0: all)\n"
    "  --json FILE           the answer as JSON; - is standard output, in place of the table\n"
    "  --plot DIR            draw error against ranks into DIR\n"
    "  --threads N           threads (default: as many as processors); results do not depend on it\n"
    "  --help                this text\n";

static void print_help(void) {
    fputs(usage, stdout);
    puts("\nOrders:");
    for (int i = 0; i < ab_collective_count(); i++) {
        const ab_collective *scheme = ab_collective_at(i);
        if (!scheme->reduce) continue; /* not simulated */
        char name[AB_REDUCTION_TEXT];
        ab_text_exact(name, sizeof name, "%s%s", scheme->name, scheme->groups ? ":G" : "");
        ab_print(stdout, "  %-20s  %s\n", name, scheme->text);
    }
    puts("\nPresets:");
    for (int i = 0; i < ab_reduction_preset_count(); i++)
        ab_print(stdout, "  %-20s  %s\n", ab_reduction_preset_at(i)->name, ab_reduction_preset_at(i)->text);
}

/* ---- words of the command line --------------------------------------------------------------- */

static ab_status parse_words(int argc, char **argv, request *r) {
    const ab_argument arguments[] = {
        {.name = "--ranks", .value = &r->ranks},
        {.name = "--reduce", .value = &r->reduce},
        {.name = "--reduce-dtype", .value = &r->wire},
        {.name = "--divide", .value = &r->divide},
        {.name = "--preset", .value = &r->preset},
        {.name = "--scale", .value = &r->scale},
        {.name = "--bucket-mb", .value = &r->bucket},
        {.name = "--elements", .value = &r->elements},
        {.name = "--json", .value = &r->json},
        {.name = "--plot", .value = &r->plot},
        {.name = "--threads", .value = &r->threads},
        {.name = "--cell", .value = &r->cell},
        {.name = "--help"},
    };
    const ab_argument_list options = {"ranks", arguments, (int)AB_COUNT_OF(arguments), NULL, true};
    for (int i = 1; i < argc; i++) {
        if (ab_is_help(argv[i]))
            r->help = true;
        else if (argv[i][0] == '-')
            AB_TRY(ab_take_option(&options, argc, argv, &i));
        else
            r->word[r->run.files++] = argv[i];
    }
    r->run.file = r->word;
    return AB_OK;
}

static ab_status split(const char *option, const char *text, list *words) {
    *words = (list){.copy = strdup(text)};
    if (!words->copy) return ab_fail(AB_NO_MEMORY, "ranks: out of memory");
    char *rest = NULL;
    for (char *word = strtok_r(words->copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (words->count == LIST) return ab_fail(AB_USAGE, "%s: expected at most %d entries", option, LIST);
        words->word[words->count++] = word;
    }
    return words->count > 0 ? AB_OK : ab_fail(AB_USAGE, "%s: expected a list, found nothing", option);
}

/* ---- a record ---------------------------------------------------------------------------------- */

/* The saved gradients of the only cell that has some and fits --cell. */
static ab_status choose_cell(const request *r, const char *path, const cJSON **saved) {
    const cJSON *cell;
    int found = 0;
    *saved = NULL;
    cJSON_ArrayForEach(cell, ab_json_at(r->document, "cells")) {
        const cJSON *own = ab_json_at(cell, "saved_gradients.files");
        if (!own || (r->cell && fnmatch(r->cell, ab_json_text(cell, "id", ""), 0) != 0)) continue;
        *saved = own;
        found++;
    }
    if (found == 0)
        return ab_fail(AB_INPUT, "ranks: %s: no cell%s%s has gradients; run it with --save-gradients FILE",
                       path, r->cell ? " of --cell " : "", r->cell ? r->cell : "");
    return found == 1
               ? AB_OK
               : ab_fail(AB_USAGE, "ranks: %s: %d cells have gradients; choose one, as --cell '*/O2/*'", path,
                         found);
}

/* A single file that is a record stands for the files that it names. */
static ab_status take_record(request *r) {
    const cJSON *files, *file;
    if (r->run.files != 1 || ab_input_kind_of(r->word[0]) != &ab_input_kind_result)
        return r->cell ? ab_fail(AB_USAGE, "--cell: expected one RESULT.json, a record of a run") : AB_OK;
    AB_TRY(ab_result_load(r->word[0], &r->document));
    AB_TRY(choose_cell(r, r->word[0], &files));
    const char **word = malloc(((size_t)cJSON_GetArraySize(files) + 1) * sizeof *word);
    if (!word) return ab_fail(AB_NO_MEMORY, "ranks: out of memory");
    r->run.files = 0;
    cJSON_ArrayForEach(file, files) if (cJSON_IsString(file)) word[r->run.files++] = file->valuestring;
    free(r->word);
    r->run.file = r->word = word;
    return AB_OK;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static ab_status parse_number(const char *option, const char *text, double low, double high, double *value) {
    char *end;
    *value = ab_number_read(text, &end);
    bool number = end != text && *end == '\0';
    if (number && *value >= low && *value <= high) return AB_OK;
    return ab_fail(AB_USAGE, "%s: expected a number from %g to %g, found '%s'", option, low, high,
                   ab_text_brief(text, 40));
}

static ab_status add_count(ab_ranks_question *q, double value) {
    if (value != floor(value)) return ab_fail(AB_USAGE, "--ranks: expected whole numbers, found %g", value);
    if (q->counts > 0 && (int64_t)value <= q->count[q->counts - 1])
        return ab_fail(AB_USAGE, "--ranks: expected rising numbers, found %g after %lld", value,
                       (long long)q->count[q->counts - 1]);
    if (q->counts == AB_RANKS_COUNTS)
        return ab_fail(AB_USAGE, "--ranks: expected at most %d numbers", AB_RANKS_COUNTS);
    q->count[q->counts++] = (int64_t)value;
    return AB_OK;
}

/* "64", "2^6", or "8..65536": 8, 16, ..., 65536. */
static ab_status add_counts(ab_ranks_question *q, const char *word) {
    ab_power_range range = {.count = 0};
    double value;
    if (!ab_power_range_is(word)) {
        AB_TRY(parse_number("--ranks", word, 1, MOST_RANKS, &value));
        return add_count(q, value);
    }
    const char *rest = ab_power_range_parse(word, &range);
    if (!rest || rest[0])
        return ab_fail(AB_USAGE, "--ranks: expected a range of powers of 2 such as 8..65536, found '%s'",
                       ab_text_brief(word, 40));
    for (int i = 0; i < range.count; i++) {
        char item[AB_POWER_RANGE_ITEM];
        AB_TRY(parse_number("--ranks", ab_power_range_item(&range, i, item), 1, MOST_RANKS, &value));
        AB_TRY(add_count(q, value));
    }
    return AB_OK;
}

static ab_status parse_counts(request *r) {
    list words;
    ab_status status = split("--ranks", r->ranks ? r->ranks : "8,64,512,4096", &words);
    for (int i = 0; i < words.count && status == AB_OK; i++)
        status = add_counts(&r->run.question, words.copy + (words.word[i] - words.copy));
    free(words.copy);
    return status;
}

/* ---- rules ----------------------------------------------------------------------------------- */

static ab_status add_rule(ab_ranks_question *q, const char *reduce, const char *wire, const char *divide) {
    ab_reduction reduction = {.divide = AB_DIVIDE_PRE};
    if (ab_reduction_parse_scheme(reduce, &reduction) != AB_OK) return ab_fail_prefix(AB_USAGE, "--reduce");
    if (!reduction.scheme->reduce)
        return ab_fail(AB_USAGE, "--reduce %s: the library's sum is not simulated", reduction.scheme->name);
    if (ab_reduction_parse_divide(divide, &reduction) != AB_OK) return ab_fail_prefix(AB_USAGE, "--divide");
    if (ab_reduction_parse_wire(wire, &reduction) != AB_OK) return ab_fail_prefix(AB_USAGE, "--reduce-dtype");
    if (q->rules == AB_RANKS_RULES)
        return ab_fail(AB_USAGE,
                       "ranks: expected at most %d combinations of --reduce, --reduce-dtype and "
                       "--divide",
                       AB_RANKS_RULES);
    q->rule[q->rules++].reduction = reduction;
    return AB_OK;
}

/* Every order with every format with every division. */
static ab_status combine(ab_ranks_question *q, const list *reduce, const list *wire, const list *divide) {
    for (int w = 0; w < wire->count; w++)
        for (int d = 0; d < divide->count; d++)
            for (int k = 0; k < reduce->count; k++)
                AB_TRY(add_rule(q, reduce->word[k], wire->word[w], divide->word[d]));
    return AB_OK;
}

static ab_status parse_rules(request *r) {
    list reduce = {NULL, {NULL}, 0}, wire = reduce, divide = reduce;
    ab_status status;
    AB_TRY_GOTO(split("--reduce", r->reduce ? r->reduce : "ring,tree,alltoall", &reduce));
    AB_TRY_GOTO(split("--reduce-dtype", r->wire ? r->wire : "fp32,fp16,bf16", &wire));
    AB_TRY_GOTO(split("--divide", r->divide ? r->divide : "pre", &divide));
    status = combine(&r->run.question, &reduce, &wire, &divide);
out:
    free(reduce.copy);
    free(wire.copy);
    free(divide.copy);
    return status;
}

static ab_status add_preset(ab_ranks_question *q, const char *name) {
    const ab_reduction_preset *preset;
    if (ab_reduction_preset_find(name, &preset) != AB_OK) return ab_fail_prefix(AB_USAGE, "--preset");
    return add_rule(q, preset->reduce, preset->wire, preset->divide);
}

static ab_status parse_presets(request *r) {
    if (r->reduce || r->wire || r->divide)
        return ab_fail(AB_USAGE, "--preset: it states --reduce, --reduce-dtype and --divide; give it alone");
    list words;
    ab_status status = split("--preset", r->preset, &words);
    for (int i = 0; i < words.count && status == AB_OK; i++)
        status = add_preset(&r->run.question, words.word[i]);
    free(words.copy);
    return status;
}

/* ---- the rest of the command line ------------------------------------------------------------ */

static ab_status parse_values(request *r) {
    ab_ranks_question *q = &r->run.question;
    double bucket = 25, elements = DEFAULT_ELEMENTS, threads = 0;
    q->scale = 1;
    AB_TRY(parse_counts(r));
    AB_TRY(r->preset ? parse_presets(r) : parse_rules(r));
    if (r->scale) AB_TRY(parse_number("--scale", r->scale, 0x1p-126, 0x1p127, &q->scale));
    if (r->bucket) AB_TRY(parse_number("--bucket-mb", r->bucket, 0x1p-20, 0x1p20, &bucket));
    if (r->elements) AB_TRY(parse_number("--elements", r->elements, 0, 0x1p53, &elements));
    if (r->threads) AB_TRY(parse_number("--threads", r->threads, 1, AB_PARALLEL_MAX_THREADS, &threads));
    if (r->plot && !r->plot[0]) return ab_fail(AB_USAGE, "--plot: expected a folder");
    q->bucket_bytes = bucket * 0x1p20;
    q->elements = (int64_t)elements;
    int processors = omp_get_max_threads();
    return ab_parallel_start(threads > 0 ? (int)threads : processors);
}

static void show_progress(int done, int all) {
    fprintf(stderr, "\rranks: %d of %d", done, all);
    if (done == all) fputs("\r\033[K", stderr);
}

/* ---- output ---------------------------------------------------------------------------------- */

static ab_status draw(const cJSON *document, const char *folder) {
    const char *note = NULL;
    ab_lock lock;
    AB_TRY(ab_lock_folder("--plot", folder, &lock));
    ab_status status = ab_ranks_plot(document, folder, &note);
    ab_lock_release(&lock);
    AB_TRY(status);
    if (note) ab_warn("%s", note);
    return AB_OK;
}

static ab_status report(const request *r, const ab_ranks_result *result) {
    bool to_stdout = r->json && strcmp(r->json, "-") == 0;
    if (!to_stdout) ab_ranks_print(stdout, result);
    if (!r->json && !r->plot) return AB_OK;
    cJSON *document = ab_ranks_document(result);
    ab_status status = document ? AB_OK : ab_fail(AB_NO_MEMORY, "ranks: out of memory");
    if (status == AB_OK && r->json) status = ab_json_write_file(document, r->json);
    if (status == AB_OK && r->plot) status = draw(document, r->plot);
    cJSON_Delete(document);
    return status;
}

ab_status ab_cmd_ranks(int argc, char **argv) {
    request r = {.word = malloc((size_t)argc * sizeof *r.word)};
    ab_ranks_result result = {0};
    ab_status status;
    if (!r.word) return ab_fail(AB_NO_MEMORY, "ranks: out of memory");
    AB_TRY_GOTO(parse_words(argc, argv, &r));
    if (r.help) {
        print_help();
        goto out;
    }
    AB_TRY_GOTO(take_record(&r));
    AB_TRY_GOTO(parse_values(&r));
    if (isatty(STDERR_FILENO)) r.run.progress = show_progress;
    AB_TRY_GOTO(ab_ranks_run(&r.run, &result));
    status = report(&r, &result);
out:
    ab_ranks_free(&result);
    free(r.word);
    cJSON_Delete(r.document);
    return status;
}
