/* `ampbench inspect FILE...`: census, what-if and loss-scale advice for tensors dumped from any framework;
 * what-if of the tensors that a result document recorded. */
#define _POSIX_C_SOURCE 200809L /* fnmatch, isatty, strdup */

#include "bench/inspect/inspect.h"
#include "bench/cmd/cmd.h"
#include "kernels/core/log.h"
#include "kernels/core/number.h"
#include "kernels/core/parallel.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "kernels/files/lock.h"
#include "reports/inspect/recorded.h"
#include "reports/record/output.h"
#include "reports/record/result.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Largest share of non-zero values that a recommended scale may flush. */
static const double MAX_FLUSHED = 0.001;

/* The parsed command line. */
typedef struct request {
    ab_inspect_request inspect; /* file[] and pattern[] point into `word` */
    const char **word;          /* owned; capacity: twice the number of arguments */
    const char *scale, *ftz, *json, *plot, *color, *threads;
    int workers;
    bool help;
} request;

static void print_help(void) {
    puts("usage: ampbench inspect FILE... [OPTION]...\n"
         "       ampbench inspect RESULT.json [--format NAME,...] [--scale S] [--tensor GLOB] [--json "
         "FILE]\n\n"
         "Counts the values of the tensors in FILEs by exponent, in one pass, and says which of them fp16, "
         "bf16 and fp8\n"
         "would flush to zero, keep as subnormal numbers or let overflow, at any loss scale, and which "
         "scales would do.\n"
         "Files are memory-mapped and may be larger than memory. A folder stands for the tensor files in "
         "it.\n"
         "Of a result document it says the same of the tensors that its O0 recorded, from their exponents: "
         "as\n"
         "intervals, where a limit lies within an octave, because mantissas are not recorded.\n");
    for (int i = 0; i < ab_tensor_reader_count(); i++)
        ab_print(stdout, "  %-22s%s\n", ab_tensor_reader_at(i)->suffix, ab_tensor_reader_at(i)->text);
    puts("\n"
         "  --tensor GLOB       only tensors of this name (* and ? stand for others); may be repeated\n"
         "  --format NAME,...   formats to ask about (default fp16,bf16,fp8_e4m3,fp8_e5m2); the first is "
         "drawn\n"
         "  --scale S           loss scale of the table: a number or 2^K (default 1)\n"
         "  --ftz WHEN          subnormal results become zero: none (default), before or after rounding\n"
         "  --json FILE         write the counts and the advice as JSON; - is stdout, in place of the text\n"
         "  --plot DIR          write the histogram's data and script to DIR, and a picture if gnuplot is "
         "there\n"
         "  --threads N         threads (default: as many as processors); results do not depend on it\n"
         "  --color WHEN        auto (default), always or never; NO_COLOR is honoured\n"
         "  --help              this text");
}

/* ---- arguments ------------------------------------------------------------------------------- */

static ab_status take_tensor(void *context, const char *value) {
    request *r = context;
    r->inspect.pattern[r->inspect.patterns++] = value;
    return AB_OK;
}

static ab_status take_format(void *context, const char *value) {
    ab_inspect_question *question = context;
    char *copy = strdup(value), *rest = NULL;
    if (!copy) return ab_fail(AB_NO_MEMORY, "inspect: out of memory");
    ab_status status = AB_OK;
    for (char *name = strtok_r(copy, ",", &rest); name && status == AB_OK;
         name = strtok_r(NULL, ",", &rest)) {
        if (question->formats == AB_INSPECT_FORMATS)
            status =
                ab_fail(AB_USAGE, "--format: expected at most %d formats, found more", AB_INSPECT_FORMATS);
        else if (ab_format_find(name, &question->format[question->formats]) != AB_OK)
            status = ab_fail_prefix(AB_USAGE, "--format");
        else
            question->formats++;
    }
    free(copy);
    return status;
}

static ab_status parse_words(int argc, char **argv, request *r) {
    const ab_argument arguments[] = {
        {.name = "--tensor", .take = take_tensor, .context = r},
        {.name = "--format", .take = take_format, .context = &r->inspect.question},
        {.name = "--scale", .value = &r->scale},
        {.name = "--ftz", .value = &r->ftz},
        {.name = "--json", .value = &r->json},
        {.name = "--plot", .value = &r->plot},
        {.name = "--color", .value = &r->color},
        {.name = "--threads", .value = &r->threads},
        {.name = "--help"},
    };
    const ab_argument_list list = {"inspect", arguments, (int)AB_COUNT_OF(arguments), NULL, true};
    for (int i = 1; i < argc; i++) {
        if (ab_is_help(argv[i]))
            r->help = true;
        else if (argv[i][0] == '-')
            AB_TRY(ab_take_option(&list, argc, argv, &i));
        else
            r->inspect.file[r->inspect.files++] = argv[i];
    }
    if (r->inspect.files == 0 && !r->help)
        return ab_fail(AB_USAGE, "inspect: expected a file (see `ampbench inspect --help`)");
    return AB_OK;
}

/* A number or 2^K that is a positive normal fp32 number. */
static ab_status parse_scale(const char *text, float *scale) {
    char *end = NULL;
    double value = ab_number_read(text, &end);
    bool number = end != text && *end == '\0';
    *scale = (float)value;
    if (number && *scale > 0 && isnormal(*scale)) return AB_OK;
    return ab_fail(AB_USAGE, "--scale: expected a number or 2^K in 2^-126..2^127, found '%s'",
                   ab_text_brief(text, 60));
}

static ab_status parse_ftz(const char *text, ab_ftz *ftz) {
    static const char *const names[] = {"none", "before", "after"}; /* by ab_ftz */
    for (int i = 0; i < (int)AB_COUNT_OF(names); i++)
        if (strcmp(names[i], text) == 0) {
            *ftz = (ab_ftz)i;
            return AB_OK;
        }
    return ab_fail(AB_USAGE, "--ftz: expected none, before or after, found '%s'", ab_text_brief(text, 60));
}

static ab_status parse_threads(const char *text, int *threads) {
    char *end = NULL;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < 1 || value > AB_PARALLEL_MAX_THREADS)
        return ab_fail(AB_USAGE, "--threads: expected 1..%d, found '%s'", AB_PARALLEL_MAX_THREADS,
                       ab_text_brief(text, 60));
    *threads = (int)value;
    return AB_OK;
}

/* auto: a terminal that is not dumb, unless NO_COLOR says otherwise. */
static ab_status parse_color(const char *when, bool *color) {
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    bool automatic = strcmp(when, "auto") == 0;
    if (!automatic && strcmp(when, "always") != 0 && strcmp(when, "never") != 0)
        return ab_fail(AB_USAGE, "--color: expected auto, always or never, found '%s'",
                       ab_text_brief(when, 60));
    *color = strcmp(when, "always") == 0;
    if (automatic && !(no_color && no_color[0]))
        *color = isatty(STDOUT_FILENO) && !(term && strcmp(term, "dumb") == 0);
    return AB_OK;
}

static ab_status finish_request(request *r, bool *color) {
    static const ab_format *const usual[] = {&ab_format_fp16, &ab_format_bf16, &ab_format_fp8_e4m3,
                                             &ab_format_fp8_e5m2};
    ab_inspect_question *question = &r->inspect.question;
    AB_TRY(parse_scale(r->scale, &question->scale));
    question->goal = (ab_scale_goal){MAX_FLUSHED, 1, AB_FTZ_NONE, AB_INSPECT_MIN, AB_INSPECT_MAX};
    AB_TRY(parse_ftz(r->ftz, &question->goal.ftz));
    AB_TRY(parse_color(r->color, color));
    r->workers =
        omp_get_max_threads() < AB_PARALLEL_MAX_THREADS ? omp_get_max_threads() : AB_PARALLEL_MAX_THREADS;
    if (r->threads) AB_TRY(parse_threads(r->threads, &r->workers));
    if (r->json && !r->json[0]) return ab_fail(AB_USAGE, "--json: expected a file name or -, found ''");
    if (r->plot && !r->plot[0]) return ab_fail(AB_USAGE, "--plot: expected a folder, found ''");
    for (size_t i = 0; i < AB_COUNT_OF(usual) && (i > 0 || question->formats == 0); i++)
        question->format[question->formats++] = usual[i];
    return AB_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

/* The destination gets the complete document or stays unchanged: what cannot be replaced (standard output, a
 * pipe) through an anonymous file. */
typedef struct spool {
    FILE *growing;
    ab_outfile out;
} spool;

/* Opens the destination first, so that a write error is found before the work. */
static ab_status open_spool(const request *r, spool *json) {
    if (!r->json) return AB_OK;
    AB_TRY(ab_output_open("--json", r->json, &json->out));
    json->growing = json->out.temporary ? json->out.stream : tmpfile();
    return json->growing ? AB_OK : ab_fail(AB_OUTPUT, "--json: a temporary file: %s", strerror(errno));
}

static ab_status copy_spool(const spool *json) {
    char block[1 << 14];
    bool failed = fflush(json->growing) != 0 || ferror(json->growing);
    rewind(json->growing);
    for (size_t n = 1; n > 0 && !failed;) {
        n = fread(block, 1, sizeof block, json->growing);
        failed = ferror(json->growing) || fwrite(block, 1, n, json->out.stream) != n;
    }
    return failed ? ab_fail(AB_OUTPUT, "--json: cannot write: %s", strerror(errno)) : AB_OK;
}

static ab_status finish_spool(spool *json, ab_status status) {
    const bool copied = json->growing && json->growing != json->out.stream;
    if (copied && status == AB_OK) status = copy_spool(json);
    if (copied) fclose(json->growing);
    return ab_output_close("--json", &json->out, status);
}

static ab_status draw(const request *r, const ab_inspect_result *result) {
    const char *note = NULL;
    ab_lock lock;
    AB_TRY(ab_lock_folder("--plot", r->plot, &lock));
    ab_status status = ab_inspect_plot(result, r->plot, &note);
    ab_lock_release(&lock);
    AB_TRY(status);
    if (note) ab_warn("%s: %s", r->plot, note);
    return AB_OK;
}

/* What of the files was not counted. */
static void print_notes(const ab_inspect_selection *selection) {
    for (int f = 0; f < selection->files; f++) {
        const ab_tensorfile *file = selection->file[f];
        char name[AB_TENSORFILE_TEXT];
        if (file->aliases > 0)
            ab_print(stdout, "\n%s: counted once: bytes that %d tensor%s with another (%s%s)\n", file->path,
                     file->aliases, file->aliases == 1 ? " shares" : "s share",
                     ab_tensor_printable(file->alias[0].name, name), file->aliases == 1 ? "" : ", ...");
        if (file->note) ab_print(stdout, "\n%s: %s\n", file->path, file->note);
    }
}

static ab_status inspect(const request *r, const ab_inspect_selection *selection, bool color) {
    ab_inspect_result *result = calloc(1, sizeof *result);
    if (!result) return ab_fail(AB_NO_MEMORY, "inspect: out of memory");
    spool json = {0};
    ab_status status = open_spool(r, &json);
    if (status == AB_OK) status = ab_inspect_run(&r->inspect, selection, json.growing, result);
    const bool to_stdout = json.out.stream == stdout;
    status = finish_spool(&json, status);
    if (status == AB_OK && !to_stdout) {
        ab_inspect_print(stdout, result, color);
        print_notes(selection);
    }
    if (status == AB_OK && r->plot) status = draw(r, result);
    ab_inspect_result_free(result);
    free(result);
    return status;
}

/* ---- a result document ----------------------------------------------------------------------- */

/* Not an index of shards, NAME.index.json, which is a set of tensors. */
static bool is_document(const char *file) {
    static const char index[] = ".index.json";
    const char *dot = strrchr(file, '.');
    const size_t n = strlen(file), m = strlen(index);
    return dot && strcmp(dot, ".json") == 0 && !(n > m && strcmp(file + n - m, index) == 0);
}

static bool is_picked(const void *context, const char *name) {
    const request *r = context;
    for (int i = 0; i < r->inspect.patterns; i++)
        if (fnmatch(r->inspect.pattern[i], name, FNM_NOESCAPE) == 0) return true;
    return r->inspect.patterns == 0;
}

static ab_status write_recorded(const request *r, const cJSON *document) {
    cJSON *json = NULL;
    ab_outfile out;
    AB_TRY(ab_output_open("--json", r->json, &out));
    ab_status status = ab_recorded_json(document, &r->inspect.question, is_picked, r, &json);
    char *text = status == AB_OK ? cJSON_Print(json) : NULL;
    if (status == AB_OK && !text) status = ab_fail(AB_NO_MEMORY, "inspect: out of memory");
    if (text) fputs(text, out.stream);
    if (text) fputc('\n', out.stream);
    cJSON_free(text);
    cJSON_Delete(json);
    return ab_output_close("--json", &out, status);
}

static ab_status inspect_document(const request *r) {
    cJSON *document = NULL;
    if (r->inspect.files > 1)
        return ab_fail(AB_USAGE, "inspect: expected one result document, or files of tensors, found %d files",
                       r->inspect.files);
    if (r->inspect.question.goal.ftz != AB_FTZ_NONE)
        return ab_fail(AB_USAGE, "inspect: --ftz is for files of tensors, found a result document");
    if (r->plot)
        return ab_fail(AB_USAGE, "inspect: --plot is for files of tensors; see `ampbench report --plots`");
    AB_TRY(ab_result_load(r->inspect.file[0], &document));
    ab_status status = r->json ? write_recorded(r, document)
                               : ab_recorded_print(document, &r->inspect.question, is_picked, r, stdout);
    cJSON_Delete(document);
    return status;
}

ab_status ab_cmd_inspect(int argc, char **argv) {
    request r = {
        .scale = "1", .ftz = "none", .color = "auto", .word = calloc(2 * (size_t)argc, sizeof *r.word)};
    if (!r.word) return ab_fail(AB_NO_MEMORY, "inspect: out of memory");
    r.inspect.file = r.word;
    r.inspect.pattern = r.word + argc;
    ab_inspect_selection selection = {0};
    bool color = false;
    ab_status status = AB_OK;
    AB_TRY_GOTO(parse_words(argc, argv, &r));
    if (r.help) {
        print_help();
        goto out;
    }
    AB_TRY_GOTO(finish_request(&r, &color));
    if (is_document(r.inspect.file[0])) {
        status = inspect_document(&r);
        goto out;
    }
    AB_TRY_GOTO(ab_inspect_select(&r.inspect, &selection));
    AB_TRY_GOTO(ab_parallel_start(r.workers));
    status = inspect(&r, &selection, color);
out:
    ab_parallel_stop();
    ab_inspect_selection_free(&selection);
    free(r.word);
    return status;
}
