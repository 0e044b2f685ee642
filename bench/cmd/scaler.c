/* `ampbench scaler`: loss scalers run over a pattern of overflows, or over the gradients of a recorded run,
 * without training. */
#include "bench/amp/trace/scale_trace.h"
#include "bench/cmd/cmd.h"
#include "bench/cmd/scaler_replay.h"
#include "kernels/core/number.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/output.h"
#include "reports/render/scaler_trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct request {
    ab_scaler_config config[AB_TRACE_COLUMNS];
    int dialects;
    const char *overflow, *amax, *layers, *json;
    ab_replay_request replay;
    const ab_format *half;
    double elements;
    int64_t rows;
    bool help;
} request;

/* ---- help ------------------------------------------------------------------------------------ */

static const char usage[] =
    "usage: ampbench scaler DIALECT[:key=value,...]... --overflow PATTERN|@FILE [--amax PATTERN|@FILE] "
    "[--json FILE]\n"
    "       ampbench scaler adaloss[:key=value,...] --layers FILE [--json FILE]\n"
    "       ampbench scaler --replay RECORD|LOG... [DIALECT[:key=value,...]]... [--grid KEY=VALUES,...] "
    "[--json "
    "FILE]\n"
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
    "  --replay FILE        run them on the gradients of a recorded run, a result document (of ampbench or "
    "ampprobe) or a\n"
    "                       log: skips, flushes, energy lost, worst layer; every dialect if none is named; "
    "exact while\n"
    "                       steps are taken and skipped as recorded, which is printed; a log's rotated "
    "files: "
    "--replay each\n"
    "  --grid KEY=VALUES    constants to try in every dialect that has them: window=100/2000,init=2^8..2^16\n"
    "  --cell TEXT          part of the id of the cell to replay (default: the first whose scale may "
    "change)\n"
    "  --plot DIR           draw skips against flushes into DIR\n"
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
        ab_print(stdout, "  %-20s %s\n", ab_scaler_at(i)->name, ab_scaler_at(i)->text);
}

static void print_dialect_help(const ab_scaler_kind *kind) {
    char value[AB_TRACE_SCALE_TEXT], names[64];
    ab_print(stdout, "%s: %s\norigin: %s\n", kind->name, kind->text, kind->origin);
    if (kind->keys) puts("\nkeys (the framework's own name in brackets):");
    for (int i = 0; i < kind->keys; i++) {
        const ab_scaler_key *key = &kind->key[i];
        ab_text_show(names, sizeof names, "%s%s%s%s", key->name, key->own ? " (" : "",
                     key->own ? key->own : "", key->own ? ")" : "");
        bool flag = key->type == AB_SCALER_BOOL;
        ab_print(stdout, "  %-42s %s (default %s)\n", names, key->text,
                 flag ? key->fallback != 0 ? "True" : "False" : ab_trace_scale_text(key->fallback, value));
    }
    fputs("\nstate: scale", stdout);
    for (int i = 0; i < kind->states; i++) ab_print(stdout, ", %s", kind->state[i]);
    putchar('\n');
}

/* ---- arguments ------------------------------------------------------------------------------- */

static const char *const options[] = {"--overflow", "--amax", "--half",   "--elements", "--layers", "--rows",
                                      "--json",     "--help", "--replay", "--grid",     "--cell",   "--plot"};

static ab_status parse_positive(const char *name, const char *text, double most, double *value) {
    char *end;
    *value = ab_number_read(text, &end);
    if (end == text || *end || !(*value >= 0) || *value > most)
        return ab_fail(AB_USAGE, "%s: expected a number from 0 to %.9g, found '%s'", name, most,
                       ab_text_brief(text, 40));
    return AB_OK;
}

static ab_status parse_half(const char *text, const ab_format **half) {
    return ab_format_find(text, half) == AB_OK ? AB_OK : ab_fail_prefix(AB_USAGE, "--half");
}

static ab_status add_dialect(request *r, const char *text) {
    if (r->dialects == AB_TRACE_COLUMNS)
        return ab_fail(AB_USAGE, "scaler: at most %d dialects", AB_TRACE_COLUMNS);
    return ab_scaler_parse(text, &r->config[r->dialects++]);
}

static ab_status add_replay(request *r, const char *path) {
    if (!path[0]) return ab_fail(AB_USAGE, "--replay: expected a result document or a log");
    if (r->replay.paths == AB_REPLAY_PATHS)
        return ab_fail(AB_USAGE, "--replay: at most %d files", AB_REPLAY_PATHS);
    r->replay.path[r->replay.paths++] = path;
    return AB_OK;
}

/* An option of the replay; *taken: it was one. */
static ab_status parse_replay(request *r, int argc, char **argv, int *i, bool *taken) {
    const char *value = "";
    *taken = true;
    if (ab_is_option("--replay", argc, argv, i, &value)) return add_replay(r, value);
    if (ab_is_option("--grid", argc, argv, i, &value))
        r->replay.grid = value;
    else if (ab_is_option("--cell", argc, argv, i, &value))
        r->replay.cell = value;
    else if (ab_is_option("--plot", argc, argv, i, &value))
        r->replay.plot = value;
    else
        *taken = false;
    return AB_OK;
}

static ab_status parse_word(request *r, int argc, char **argv, int *i) {
    const char *value = "";
    double rows;
    bool taken;
    AB_TRY(parse_replay(r, argc, argv, i, &taken));
    if (taken) return AB_OK;
    if (ab_is_help(argv[*i]))
        r->help = true;
    else if (ab_is_option("--overflow", argc, argv, i, &value))
        r->overflow = value;
    else if (ab_is_option("--amax", argc, argv, i, &value))
        r->amax = value;
    else if (ab_is_option("--layers", argc, argv, i, &value))
        r->layers = value;
    else if (ab_is_option("--json", argc, argv, i, &value))
        r->json = value;
    else if (ab_is_option("--half", argc, argv, i, &value))
        return parse_half(value, &r->half);
    else if (ab_is_option("--elements", argc, argv, i, &value))
        return parse_positive("--elements", value, 0x1p53, &r->elements);
    else if (ab_is_option("--rows", argc, argv, i, &value)) {
        AB_TRY(parse_positive("--rows", value, 0x1p30, &rows));
        r->rows = (int64_t)rows;
    } else if (argv[*i][0] == '-')
        return ab_unknown_option("scaler", argv[*i], options, (int)AB_COUNT_OF(options));
    else
        return add_dialect(r, argv[*i]);
    return AB_OK;
}

/* Checks that the inputs of the dialect are given. */
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

static ab_status check_replay(const request *r) {
    if (r->overflow || r->amax || r->layers)
        return ab_fail(AB_USAGE,
                       "--replay: its file tells which steps overflow; expected no --overflow, --amax "
                       "or --layers beside it");
    if (r->json && !r->json[0]) return ab_fail(AB_USAGE, "--json: expected a file name or -");
    if (r->replay.plot && !r->replay.plot[0]) return ab_fail(AB_USAGE, "--plot: expected a folder");
    return AB_OK;
}

static ab_status run_replay(const request *r) {
    ab_replay_request replay = r->replay;
    replay.json = r->json;
    replay.half = r->half;
    replay.config = r->config;
    replay.dialects = r->dialects;
    return ab_replay_run(&replay);
}

static ab_status parse(int argc, char **argv, request *r) {
    *r = (request){.rows = 40, .elements = 1e6};
    for (int i = 1; i < argc; i++) AB_TRY(parse_word(r, argc, argv, &i));
    if (r->help) return AB_OK;
    if (r->replay.paths > 0) return check_replay(r);
    if (r->replay.grid || r->replay.cell || r->replay.plot)
        return ab_fail(AB_USAGE, "scaler: --grid, --cell and --plot are for --replay RECORD|LOG");
    if (!r->half) AB_TRY(ab_format_find("fp16", &r->half));
    if (r->dialects == 0)
        return ab_fail(
            AB_USAGE,
            "scaler: expected a dialect, e.g. torch or apex:window=100 (see `ampbench list scalers`)");
    if (r->json && !r->json[0]) return ab_fail(AB_USAGE, "--json: expected a file name or -");
    for (int i = 0; i < r->dialects; i++) AB_TRY(check_inputs(r, r->config[i].kind));
    return AB_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */

static ab_status report(const request *r, const ab_trace_column *column, int64_t steps) {
    ab_outfile out;
    if (r->json) {
        AB_TRY(ab_output_open("--json", r->json, &out));
        ab_trace_json(out.stream, column, r->dialects);
        AB_TRY(ab_output_close("--json", &out, AB_OK));
    }
    if (!r->json || strcmp(r->json, "-") != 0) ab_trace_print(stdout, column, r->dialects, steps, r->rows);
    return AB_OK;
}

/* ---- patterns -------------------------------------------------------------------------------- */

/* Reads both patterns; if both are given, their lengths must be equal. */
static ab_status read_patterns(const request *r, ab_pattern *overflow, ab_pattern *amax) {
    if (r->overflow) AB_TRY(ab_pattern_flags("--overflow", r->overflow, overflow));
    if (r->amax) AB_TRY(ab_pattern_numbers("--amax", r->amax, amax));
    if (r->overflow && r->amax && overflow->steps != amax->steps)
        return ab_fail(AB_USAGE, "--overflow has %" PRId64 " steps, --amax %" PRId64 "; they must agree",
                       overflow->steps, amax->steps);
    return AB_OK;
}

static ab_status run_patterns(const request *r) {
    ab_status status = AB_OK;
    ab_pattern overflow = {NULL, 0, 0}, amax = {NULL, 0, 0};
    ab_scaler_trace trace[AB_TRACE_COLUMNS] = {{.run = NULL}};
    ab_trace_column column[AB_TRACE_COLUMNS];
    char heading[AB_TRACE_COLUMNS][AB_SCALER_TEXT];
    AB_TRY_GOTO(read_patterns(r, &overflow, &amax));
    for (int i = 0; i < r->dialects; i++) {
        AB_TRY_GOTO(ab_scaler_trace_run(&r->config[i], r->overflow ? &overflow : NULL, r->amax ? &amax : NULL,
                                        r->half, r->elements, &trace[i]));
        column[i] = ab_scaler_trace_column(&trace[i], heading[i]);
    }
    status = report(r, column, r->overflow ? overflow.steps : amax.steps);
out:
    for (int i = 0; i < r->dialects; i++) ab_scaler_trace_clear(&trace[i]);
    ab_pattern_clear(&overflow);
    ab_pattern_clear(&amax);
    return status;
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* Output of layers. */
typedef struct layer_sink {
    FILE *json; /* NULL: a table on standard output */
    bool any;   /* one was written */
} layer_sink;

static void see_layer(void *context, const ab_trace_layer *layer) {
    layer_sink *sink = context;
    if (sink->json)
        ab_trace_layer_json(sink->json, layer, !sink->any);
    else
        ab_trace_layer_print(stdout, layer);
    sink->any = true;
}

/* A first pass only checks the file, so that an invalid file does not leave a partial table. */
static ab_status trace_layers(const request *r, FILE *file) {
    layer_sink sink = {NULL, false};
    ab_outfile out = {0};
    ab_trace_error error;
    AB_TRY(ab_layer_trace_run(&r->config[0], r->layers, file, NULL, NULL, &error));
    if (r->json) AB_TRY(ab_output_open("--json", r->json, &out));
    sink.json = out.stream;
    ab_trace_config config = ab_scaler_trace_config(&r->config[0]);
    if (sink.json)
        ab_trace_layers_json_begin(sink.json, &config);
    else
        ab_trace_layers_heading(stdout);
    ab_status status = ab_layer_trace_run(&r->config[0], r->layers, file, see_layer, &sink, &error);
    if (!sink.json) return status;
    if (status == AB_OK) ab_trace_layers_json_end(sink.json, &error);
    return ab_output_close("--json", &out, status);
}

static ab_status run_layers(const request *r) {
    if (r->dialects > 1) return ab_fail(AB_USAGE, "scaler adaloss: it is shown alone, layer by layer");
    FILE *file = fopen(r->layers, "r");
    if (!file) return ab_fail(AB_INPUT, "--layers: cannot open '%s'", r->layers);
    ab_status status = trace_layers(r, file);
    fclose(file);
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
    if (r.replay.paths > 0) return run_replay(&r);
    return r.layers ? run_layers(&r) : run_patterns(&r);
}
