/* `ampbench scaler`: loss scalers run over a pattern of overflows, without training. */
#include "bench/amp/scaler/scale_trace.h"
#include "bench/cmd/cmd.h"
#include "kernels/core/nearest.h"
#include "kernels/core/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_DIALECTS = 16, MAX_LAYERS = 4096, NAME = 48, LINE = 512 };

typedef struct request {
    ab_scaler_config config[MAX_DIALECTS];
    int dialects;
    const char *overflow, *amax, *layers, *json;
    const ab_format *half;
    double elements;
    int64_t rows;
    bool help;
} request;

/* ---- help ------------------------------------------------------------------------------------------------ */

static const char usage[] =
    "usage: ampbench scaler DIALECT[:key=value,...]... --overflow PATTERN|@FILE [--amax PATTERN|@FILE] "
    "[--json FILE]\n"
    "       ampbench scaler adaloss[:key=value,...] --layers FILE [--json FILE]\n"
    "       ampbench scaler DIALECT --help\n"
    "\n"
    "Runs loss scalers, each with its framework's own arithmetic, over a pattern of steps, without training: "
    "the scale in\n"
    "each step, skipped steps, the average scale, the steps wasted before the first one that was taken, and "
    "where the\n"
    "original would stop or go wrong. Several dialects are shown side by side.\n"
    "\n"
    "  --overflow PATTERN   which steps overflow: 0001100 or runs such as 1000x0,3x1; @FILE reads it from a "
    "file\n"
    "  --amax PATTERN       each step's largest unscaled gradient: 1000x0.5,2^-3 (or @FILE); a step then "
    "also overflows\n"
    "                       when that times the scale is beyond the half format. Needed by dialects that "
    "follow it\n"
    "  --half FORMAT        the half format of --amax (default fp16)\n"
    "  --elements N         gradient elements a step, one of them the largest, for graphcore-als (default "
    "1e6)\n"
    "  --layers FILE        for adaloss: one line a layer, in the order of the backward pass: name, mean, "
    "standard\n"
    "                       deviation and largest magnitude of the unscaled gradient, the same of the "
    "weights, fan-in;\n"
    "                       an empty line ends a step, # begins a comment\n"
    "  --rows N             most rows of the table (default 40; 0: all)\n"
    "  --json FILE          JSON to FILE (- is standard output, in place of the table): {\"dialect\", "
    "\"config\",\n"
    "                       \"steps\": [[scale, skipped, count]...], \"unlisted_steps\", \"summary\", "
    "\"final\", \"error\"}, an\n"
    "                       array of these for several dialects; a scale that is no finite number is null\n"
    "\n"
    "Numbers may be written 2^16. Dialects (`ampbench scaler DIALECT --help` explains the keys of one):\n";

static void print_help(void) {
    fputs(usage, stdout);
    for (int i = 0; i < ab_scaler_count(); i++)
        printf("  %-20s %s\n", ab_scaler_at(i)->name, ab_scaler_at(i)->text);
}

static const char *number(double x, char text[40]) {
    for (int digits = 15; digits <= 17; digits++) {
        ab_text_show(text, 40, "%.*g", digits, x);
        if (strtod(text, NULL) == x) break;
    }
    return text;
}

/* 2^16 where that is exact and shorter to read, else six digits. */
static const char *scale_text(double x, char text[40]) {
    int exponent = 0;
    bool power = isfinite(x) && x > 0 && frexp(x, &exponent) == 0.5;
    if (power && (x >= 4096 || x < 0.01))
        ab_text_show(text, 40, "2^%d", exponent - 1);
    else
        ab_text_show(text, 40, "%.6g", x);
    return text;
}

static void print_dialect_help(const ab_scaler_kind *kind) {
    char value[40], names[64];
    printf("%s: %s\norigin: %s\n", kind->name, kind->text, kind->origin);
    if (kind->keys) puts("\nkeys (the framework's own name in brackets):");
    for (int i = 0; i < kind->keys; i++) {
        const ab_scaler_key *key = &kind->key[i];
        ab_text_show(names, sizeof names, "%s%s%s%s", key->name, key->own ? " (" : "",
                     key->own ? key->own : "", key->own ? ")" : "");
        bool flag = key->type == AB_SCALER_BOOL;
        printf("  %-42s %s (default %s)\n", names, key->text,
               flag ? key->fallback != 0 ? "True" : "False" : scale_text(key->fallback, value));
    }
    fputs("\nstate: scale", stdout);
    for (int i = 0; i < kind->states; i++) printf(", %s", kind->state[i]);
    putchar('\n');
}

/* ---- arguments ------------------------------------------------------------------------------------------- */

static ab_status unknown_option(const char *word) {
    static const char *const options[] = {"--overflow", "--amax", "--half", "--elements",
                                          "--layers",   "--rows", "--json", "--help"};
    const char *near = ab_nearest(word, options, (int)AB_COUNT_OF(options));
    return ab_fail(AB_USAGE, "scaler: unknown option %s; %s%s", ab_text_brief(word, 60),
                   near ? "nearest: " : "see --help", near ? near : "");
}

/* Whether argv[*i] is option `name`, as "name=VALUE" or followed by VALUE. */
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

static ab_status parse_positive(const char *name, const char *text, double most, double *value) {
    char *end;
    *value = strtod(text, &end);
    if (end == text || *end || !(*value >= 0) || *value > most)
        return ab_fail(AB_USAGE, "%s: expected a number from 0 to %.9g, found '%s'", name, most,
                       ab_text_brief(text, 40));
    return AB_OK;
}

static ab_status parse_half(const char *text, const ab_format **half) {
    return ab_format_find(text, half) == AB_OK ? AB_OK : ab_fail_prefix(AB_USAGE, "--half");
}

static ab_status add_dialect(request *r, const char *text) {
    if (r->dialects == MAX_DIALECTS) return ab_fail(AB_USAGE, "scaler: at most %d dialects", MAX_DIALECTS);
    return ab_scaler_parse(text, &r->config[r->dialects++]);
}

static ab_status parse_word(request *r, int argc, char **argv, int *i) {
    const char *value = "";
    double rows;
    if (ab_is_help(argv[*i]))
        r->help = true;
    else if (is_option("--overflow", argc, argv, i, &value))
        r->overflow = value;
    else if (is_option("--amax", argc, argv, i, &value))
        r->amax = value;
    else if (is_option("--layers", argc, argv, i, &value))
        r->layers = value;
    else if (is_option("--json", argc, argv, i, &value))
        r->json = value;
    else if (is_option("--half", argc, argv, i, &value))
        return parse_half(value, &r->half);
    else if (is_option("--elements", argc, argv, i, &value))
        return parse_positive("--elements", value, 0x1p53, &r->elements);
    else if (is_option("--rows", argc, argv, i, &value)) {
        AB_TRY(parse_positive("--rows", value, 0x1p30, &rows));
        r->rows = (int64_t)rows;
    } else if (argv[*i][0] == '-')
        return unknown_option(argv[*i]);
    else
        return add_dialect(r, argv[*i]);
    return AB_OK;
}

/* What each dialect reads must be there. */
static ab_status check_inputs(const request *r, const ab_scaler_kind *kind) {
    bool layered = (kind->sees & AB_SEES_LAYER) != 0;
    if (layered && !r->layers)
        return ab_fail(
            AB_USAGE,
            "scaler %s: it scales layer by layer, from statistics that no pattern tells: give --layers FILE",
            kind->name);
    if (!layered && r->layers)
        return ab_fail(AB_USAGE, "scaler %s: --layers is for adaloss alone", kind->name);
    if (layered) return AB_OK;
    if ((kind->sees & (AB_SEES_AMAX | AB_SEES_COUNTS)) && !r->amax)
        return ab_fail(
            AB_USAGE,
            "scaler %s: it follows the size of the gradients, which overflows alone do not tell: give each "
            "step's largest, e.g. --amax 1000x0.01",
            kind->name);
    if (!r->overflow && !r->amax)
        return ab_fail(AB_USAGE,
                       "scaler: expected --overflow PATTERN, e.g. --overflow 1000x0,3x1, or --amax PATTERN");
    return AB_OK;
}

static ab_status parse(int argc, char **argv, request *r) {
    *r = (request){.rows = 40, .elements = 1e6};
    AB_TRY(ab_format_find("fp16", &r->half));
    for (int i = 1; i < argc; i++) AB_TRY(parse_word(r, argc, argv, &i));
    if (r->help) return AB_OK;
    if (r->dialects == 0)
        return ab_fail(
            AB_USAGE,
            "scaler: expected a dialect, e.g. torch or apex:window=100 (see `ampbench list scalers`)");
    if (r->json && !r->json[0]) return ab_fail(AB_USAGE, "--json: expected a file name or -");
    for (int i = 0; i < r->dialects; i++) AB_TRY(check_inputs(r, r->config[i].kind));
    return AB_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------------------ */

static void json_number(FILE *out, double x) {
    char text[40];
    fputs(isfinite(x) ? number(x, text) : "null", out);
}

static void json_config(FILE *out, const ab_scaler_config *config) {
    fprintf(out, "\"dialect\": \"%s\", \"config\": {", config->kind->name);
    for (int i = 0; i < config->kind->keys; i++) {
        fprintf(out, "%s\"%s\": ", i ? ", " : "", config->kind->key[i].name);
        if (config->kind->key[i].type == AB_SCALER_BOOL)
            fputs(config->value[i] != 0 ? "true" : "false", out);
        else
            json_number(out, config->value[i]);
    }
    fputs("}", out);
}

static void json_error(FILE *out, const ab_scaler_fault *fault, int64_t step) {
    if (!fault)
        fputs("\"error\": null", out);
    else
        fprintf(out,
                "\"error\": {\"name\": \"%s\", \"step\": %" PRId64 ", \"raises\": %s, \"message\": \"%s\"}",
                fault->name, step, fault->raises ? "true" : "false", fault->text);
}

static void json_trace(FILE *out, const ab_scaler_trace *t) {
    double n = (double)t->steps;
    fputs("{", out);
    json_config(out, &t->scaler.config);
    fputs(",\n \"steps\": [", out);
    for (int i = 0; i < t->runs; i++) {
        fputs(i ? ", [" : "[", out);
        json_number(out, t->run[i].scale);
        fprintf(out, ", %s, %" PRId64 "]", t->run[i].skipped ? "true" : "false", t->run[i].count);
    }
    fprintf(out,
            "],\n \"unlisted_steps\": %" PRId64 ",\n \"summary\": {\"steps\": %" PRId64
            ", \"overflows\": %" PRId64 ", \"skipped\": %" PRId64 ", \"warm_up_skipped\": %" PRId64
            ", \"mean_scale\": ",
            t->unlisted, t->steps, t->overflows, t->skipped, t->warm_up);
    json_number(out, t->sum_scale / n);
    fputs(", \"mean_log2_scale\": ", out);
    json_number(out, t->sum_log2 / n);
    fputs("},\n \"final\": {", out);
    for (int i = 0; i < ab_scaler_state_count(t->scaler.kind); i++) {
        fprintf(out, "%s\"%s\": ", i ? ", " : "", ab_scaler_state_name(t->scaler.kind, i));
        json_number(out, ab_scaler_state(&t->scaler, i));
    }
    fputs("},\n ", out);
    json_error(out, t->fault, t->fault_step);
    fputs("}", out);
}

static ab_status json_open(const char *path, FILE **out) {
    *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    return *out ? AB_OK : ab_fail(AB_OUTPUT, "--json: cannot write '%s'", path);
}

static ab_status json_close(const char *path, FILE *out) {
    bool failed = ferror(out) != 0;
    if (out != stdout) failed = fclose(out) != 0 || failed;
    return failed ? ab_fail(AB_OUTPUT, "--json: cannot write '%s'", path) : AB_OK;
}

static ab_status write_json(const request *r, const ab_scaler_trace *trace) {
    FILE *out;
    AB_TRY(json_open(r->json, &out));
    if (r->dialects > 1) fputs("[", out);
    for (int i = 0; i < r->dialects; i++) {
        if (i) fputs(",\n", out);
        json_trace(out, &trace[i]);
    }
    fputs(r->dialects > 1 ? "]\n" : "\n", out);
    return json_close(r->json, out);
}

/* ---- the table ------------------------------------------------------------------------------------------- */

/* Dialects as the user wrote them; their width. */
static int heading(const request *r, const ab_scaler_trace *trace, char text[AB_SCALER_TEXT], int i) {
    (void)r;
    ab_scaler_text(&trace[i].scaler.config, text);
    size_t length = strlen(text);
    return (int)(length < 13 ? 13 : length);
}

/* The run that holds a step, or NULL where the machine has stopped or the runs end. */
static const ab_trace_run *run_at(const ab_scaler_trace *t, int *at, int64_t step) {
    while (*at < t->runs && t->run[*at].first + t->run[*at].count <= step) ++*at;
    return *at < t->runs && t->run[*at].first <= step ? &t->run[*at] : NULL;
}

static void print_cell(const ab_scaler_trace *t, const ab_trace_run *run, int width) {
    char scale[40], text[64] = "";
    if (run)
        ab_text_show(text, sizeof text, "%s%s", scale_text(run->scale, scale), run->skipped ? " skip" : "");
    else if (t->fault && t->fault->raises)
        ab_text_show(text, sizeof text, "stopped");
    else
        ab_text_show(text, sizeof text, "...");
    printf("  %-*s", width, text);
}

/* One row for all steps in which no dialect changes. Returns the first step of the next row. */
static int64_t print_row(const request *r, const ab_scaler_trace *trace, int *at, int64_t step,
                         int64_t steps) {
    char text[AB_SCALER_TEXT], range[48];
    int64_t next = steps;
    const ab_trace_run *run[MAX_DIALECTS];
    for (int i = 0; i < r->dialects; i++) {
        run[i] = run_at(&trace[i], &at[i], step);
        if (run[i] && run[i]->first + run[i]->count < next) next = run[i]->first + run[i]->count;
    }
    ab_text_show(range, sizeof range, next - step > 1 ? "%" PRId64 "..%" PRId64 : "%" PRId64, step, next - 1);
    printf("%-22s", range);
    for (int i = 0; i < r->dialects; i++) print_cell(&trace[i], run[i], heading(r, trace, text, i));
    putchar('\n');
    return next;
}

static void print_rows(const request *r, const ab_scaler_trace *trace, int64_t steps) {
    char text[AB_SCALER_TEXT];
    int at[MAX_DIALECTS] = {0};
    printf("%-22s", "steps");
    for (int i = 0; i < r->dialects; i++) {
        int width = heading(r, trace, text, i);
        printf("  %-*s", width, text);
    }
    putchar('\n');
    int64_t step = 0;
    for (int64_t row = 0; step < steps && (r->rows == 0 || row < r->rows); row++)
        step = print_row(r, trace, at, step, steps);
    if (step < steps) printf("(%" PRId64 " more steps; --rows 0 shows all, --json - too)\n", steps - step);
}

static const char *summary_text(const ab_scaler_trace *t, int line, char text[64]) {
    char number_of[40];
    double n = (double)t->steps;
    if (line == 0) ab_text_show(text, 64, "%" PRId64, t->skipped);
    if (line == 1) ab_text_show(text, 64, "%" PRId64, t->warm_up);
    if (line == 2) ab_text_show(text, 64, "%s", scale_text(t->sum_scale / n, number_of));
    if (line == 3) ab_text_show(text, 64, isfinite(t->sum_log2) ? "2^%.4g" : "-", t->sum_log2 / n);
    if (line == 4) ab_text_show(text, 64, "%s", scale_text(t->scaler.scale, number_of));
    if (line == 5) ab_text_show(text, 64, "%s", t->fault ? t->fault->name : "-");
    return text;
}

static void print_summary(const request *r, const ab_scaler_trace *trace) {
    static const char *const lines[] = {"skipped",      "skipped at the start", "average scale",
                                        "average, log", "scale after",          "error"};
    char text[AB_SCALER_TEXT], value[64];
    putchar('\n');
    for (int line = 0; line < (int)AB_COUNT_OF(lines); line++) {
        printf("%-22s", lines[line]);
        for (int i = 0; i < r->dialects; i++)
            printf("  %-*s", heading(r, trace, text, i), summary_text(&trace[i], line, value));
        putchar('\n');
    }
    for (int i = 0; i < r->dialects; i++) {
        const ab_scaler_fault *fault = trace[i].fault;
        if (fault)
            printf("\n%s: %s at step %" PRId64 "%s: %s\n", ab_scaler_text(&trace[i].scaler.config, text),
                   fault->name, trace[i].fault_step, fault->raises ? " (raises)" : "", fault->text);
    }
}

/* ---- traces ---------------------------------------------------------------------------------------------- */

static ab_status run_patterns(const request *r) {
    ab_status status = AB_OK;
    ab_pattern overflow = {NULL, 0, 0}, amax = {NULL, 0, 0};
    ab_scaler_trace trace[MAX_DIALECTS] = {{.run = NULL}};
    if (r->overflow) AB_TRY_GOTO(ab_pattern_flags("--overflow", r->overflow, &overflow));
    if (r->amax) AB_TRY_GOTO(ab_pattern_numbers("--amax", r->amax, &amax));
    if (r->overflow && r->amax && overflow.steps != amax.steps) {
        status = ab_fail(AB_USAGE, "--overflow has %" PRId64 " steps, --amax %" PRId64 "; they must agree",
                         overflow.steps, amax.steps);
        goto out;
    }
    for (int i = 0; i < r->dialects; i++)
        AB_TRY_GOTO(ab_scaler_trace_run(&r->config[i], r->overflow ? &overflow : NULL, r->amax ? &amax : NULL,
                                        r->half, r->elements, &trace[i]));
    if (r->json) AB_TRY_GOTO(write_json(r, trace));
    if (!r->json || strcmp(r->json, "-") != 0) {
        print_rows(r, trace, r->overflow ? overflow.steps : amax.steps);
        print_summary(r, trace);
    }
out:
    for (int i = 0; i < r->dialects; i++) ab_scaler_trace_clear(&trace[i]);
    ab_pattern_clear(&overflow);
    ab_pattern_clear(&amax);
    return status;
}

/* ---- layers ---------------------------------------------------------------------------------------------- */

typedef struct layer_row {
    char name[NAME];
    ab_scaler machine;
} layer_row;

/* A line of --layers; *blank where there is none to read. */
static ab_status parse_layer(const char *path, int line, char *text, char name[NAME], ab_scaler_layer *layer,
                             bool *blank) {
    const size_t length = strlen(text);
    if (length + 1 == LINE && text[length - 1] != '\n')
        return ab_fail(AB_INPUT, "%s:%d: expected lines of at most %d characters", path, line, LINE - 2);
    text[strcspn(text, "#\r\n")] = '\0';
    const size_t named = strcspn(text + strspn(text, " \t"), " \t");
    if (named >= NAME)
        return ab_fail(AB_INPUT, "%s:%d: expected a name of at most %d characters, found %zu", path, line,
                       NAME - 1, named);
    int read = sscanf(text, " %47s %lf %lf %lf %lf %lf %lf %lf", name, &layer->g_mean, &layer->g_std,
                      &layer->g_max, &layer->w_mean, &layer->w_std, &layer->w_max, &layer->fan_in);
    *blank = read <= 0;
    if (*blank) return AB_OK;
    if (read != 8)
        return ab_fail(AB_INPUT, "%s:%d: expected a name and 7 numbers, found a name and %d", path, line,
                       read - 1);
    bool sane =
        layer->g_std >= 0 && layer->g_max >= 0 && layer->w_std >= 0 && layer->w_max >= 0 && layer->fan_in > 0;
    return sane ? AB_OK
                : ab_fail(AB_INPUT, "%s:%d: deviations and magnitudes are 0 or more, the fan-in is above 0",
                          path, line);
}

/* The layer's machine, new at its first step. */
static ab_status find_layer(const request *r, layer_row *rows, int *count, const char *name,
                            layer_row **row) {
    for (int i = 0; i < *count; i++) {
        *row = &rows[i];
        if (strcmp(rows[i].name, name) == 0) return AB_OK;
    }
    if (*count == MAX_LAYERS) return ab_fail(AB_INPUT, "--layers: at most %d layers", MAX_LAYERS);
    *row = &rows[(*count)++];
    ab_text_exact((*row)->name, NAME, "%s", name);
    ab_scaler_start(&(*row)->machine, &r->config[0]);
    return AB_OK;
}

/* Where layers go: nowhere (while a file is checked), to a table, or to JSON. */
typedef enum sink { TO_NOWHERE, TO_TABLE, TO_JSON } sink;

static void print_layer(FILE *out, sink to, int64_t step, const char *name, double scale, double chain,
                        const ab_scaler_fault *fault, bool *first) {
    char a[40], b[40];
    if (to == TO_NOWHERE) return;
    if (to == TO_TABLE) {
        printf("%6" PRId64 "  %-24s %10s %12s  %s\n", step, name, scale_text(scale, a), scale_text(chain, b),
               fault ? fault->name : "");
        return;
    }
    fprintf(out, "%s[%" PRId64 ", \"%s\", ", *first ? "" : ",\n  ", step, name);
    json_number(out, scale);
    fputs(", ", out);
    json_number(out, chain);
    fputs("]", out);
    *first = false;
}

static ab_status walk_layers(const request *r, FILE *file, FILE *out, sink to, layer_row *rows,
                             const ab_scaler_fault **fault, int64_t *step) {
    char text[LINE], name[NAME];
    bool first = true, blank = false, open = false;
    double chain = 1;
    int count = 0;
    *step = 0;
    *fault = NULL;
    rewind(file);
    for (int line = 1; !*fault && fgets(text, sizeof text, file); line++) {
        ab_scaler_layer layer;
        bool comment = text[0] == '#';
        AB_TRY(parse_layer(r->layers, line, text, name, &layer, &blank));
        if (blank && open && !comment) {
            ++*step;
            chain = 1;
            open = false;
        }
        if (blank) continue;
        layer_row *row;
        open = true;
        layer.chain = chain;
        AB_TRY(find_layer(r, rows, &count, name, &row));
        ab_scaler_seen seen = {.layer = &layer};
        *fault = ab_scaler_update(&row->machine, &seen).fault;
        chain *= row->machine.scale;
        print_layer(out, to, *step, name, row->machine.scale, chain, *fault, &first);
    }
    return count ? AB_OK : ab_fail(AB_INPUT, "%s: no layers", r->layers);
}

static ab_status run_layers(const request *r) {
    ab_status status = AB_OK;
    FILE *out = NULL, *file = NULL;
    layer_row *rows = calloc(MAX_LAYERS, sizeof *rows);
    const ab_scaler_fault *fault = NULL;
    int64_t step;
    if (r->dialects > 1) AB_TRY_GOTO(ab_fail(AB_USAGE, "scaler adaloss: it is shown alone, layer by layer"));
    if (!rows) AB_TRY_GOTO(ab_fail(AB_NO_MEMORY, "scaler: out of memory"));
    file = fopen(r->layers, "r");
    if (!file) AB_TRY_GOTO(ab_fail(AB_INPUT, "--layers: cannot open '%s'", r->layers));
    AB_TRY_GOTO(walk_layers(r, file, NULL, TO_NOWHERE, rows, &fault, &step));
    if (r->json) AB_TRY_GOTO(json_open(r->json, &out));
    if (out) {
        fputs("{", out);
        json_config(out, &r->config[0]);
        fputs(",\n \"layers\": [", out);
    } else {
        printf("%6s  %-24s %10s %12s\n", "step", "layer", "scale", "together");
    }
    AB_TRY_GOTO(walk_layers(r, file, out, out ? TO_JSON : TO_TABLE, rows, &fault, &step));
    if (out) {
        fputs("],\n ", out);
        json_error(out, fault, step);
        fputs("}\n", out);
        status = json_close(r->json, out);
    }
out:
    if (file) fclose(file);
    free(rows);
    return status;
}

ab_status ab_cmd_scaler(int argc, char **argv) {
    request r;
    AB_TRY(parse(argc, argv, &r));
    if (r.help && r.dialects == 0) {
        print_help();
        return AB_OK;
    }
    for (int i = 0; i < r.dialects && r.help; i++) print_dialect_help(r.config[i].kind);
    if (r.help) return AB_OK;
    return r.layers ? run_layers(&r) : run_patterns(&r);
}
