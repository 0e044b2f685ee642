/* `ampbench read`: what a training log says of losses, loss scales and skipped steps. */
#include "bench/cmd/cmd.h"
#include "bench/ingest/dialect/dialect.h"
#include "bench/ingest/log/facts.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char usage[] =
    "usage: ampbench read LOG... [--columns FIELD=NAME,...] [--json FILE]\n"
    "\n"
    "Reads training logs of any program: what they tell of the loss, the loss scale, gradient norms and "
    "skipped steps.\n"
    "Files may be gzipped; several files are one log, rotated ones (LOG.2, LOG.1.gz, LOG) from the oldest "
    "to the newest.\n"
    "`ampbench diagnose LOG` judges what they say.\n"
    "\n"
    "  --columns FIELD=NAME,...  names in CSV, JSON Lines and lines of names and numbers, where they are "
    "none of "
    "the usual\n"
    "  --json FILE               the log as JSON (docs/logs.md); - is standard output, in place of the text\n"
    "  --help                    this text\n"
    "\n"
    "Files: lines of text, CSV and TSV with a line of names, JSON Lines, trainer_state.json, TensorBoard's "
    "event "
    "files.\n";

typedef struct request {
    ab_log log;
    const char **path;
    int paths;
    const char *json;
    bool help;
} request;

static void print_help(void) {
    fputs(usage, stdout);
    puts("\nFields:");
    for (int i = 0; i < AB_LOG_FIELDS; i++)
        ab_print(stdout, "  %-14s %s\n", ab_log_field_name(i), ab_log_field_text(i));
    puts("\nLines, each with an example:");
    for (int i = 0; i < ab_log_format_count(); i++)
        ab_print(stdout, "  %s\n    %s\n", ab_log_format_name(i), ab_log_format_example(i));
}

/* ---- arguments ------------------------------------------------------------------------------- */

static ab_status take_columns(void *context, const char *value) { return ab_log_columns(context, value); }

static ab_status parse(int argc, char **argv, request *r) {
    const ab_argument arguments[] = {
        {.name = "--columns", .take = take_columns, .context = &r->log},
        {.name = "--json", .value = &r->json},
        {.name = "--help", .flag = &r->help},
    };
    const ab_argument_list list = {"read", arguments, (int)AB_COUNT_OF(arguments), NULL, false};
    for (int i = 1; i < argc; i++) {
        if (ab_is_help(argv[i]))
            r->help = true;
        else if (argv[i][0] == '-')
            AB_TRY(ab_take_option(&list, argc, argv, &i));
        else
            r->path[r->paths++] = argv[i];
    }
    if (r->paths == 0 && !r->help)
        return ab_fail(AB_USAGE, "read: expected a log file (see `ampbench read --help`)");
    if (r->json && !r->json[0]) return ab_fail(AB_USAGE, "--json: expected a file name or -, found ''");
    return AB_OK;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_source(const request *r) {
    const ab_log *log = &r->log;
    const char *joint = "";
    ab_print(stdout, "%s", r->path[0]);
    if (r->paths > 1) printf(" and %d more", r->paths - 1);
    ab_print(stdout, ": %lld %s, %lld bytes; ", (long long)log->lines,
             log->reader && strcmp(log->reader, "events") == 0 ? "records" : "lines", (long long)log->bytes);
    for (int i = 0; i < ab_log_format_count(); i++) {
        if (log->format_lines[i] == 0) continue;
        ab_print(stdout, "%s%s in %lld", joint, ab_log_format_name(i), (long long)log->format_lines[i]);
        joint = ", ";
    }
    if (!*joint) ab_print(stdout, "%s", log->reader);
    printf("; %d points", log->points);
    if (log->left_out) printf(", %lld that say nothing new left out", (long long)log->left_out);
    putchar('\n');
    if (log->copies > 1)
        printf("every overflow stands there %d times: lines of %d processes, counted once\n", log->copies,
               log->copies);
    if (log->rank_high > 0)
        printf("lines of %d ranks; %lld that repeat those of the first are left out\n", log->rank_high + 1,
               (long long)log->other_ranks);
    if (log->cut) puts("the last line has no end: numbers at its end are not read");
}

static void print_totals(const ab_log_totals *t) {
    char a[AB_TEXT_ROUND_TRIP], b[AB_TEXT_ROUND_TRIP];
    if (!isnan(t->first_step))
        ab_print(stdout, "  steps       %s to %s\n", ab_text_round_trip(a, t->first_step),
                 ab_text_round_trip(b, t->last_step));
    if (!isnan(t->first_scale)) {
        ab_print(stdout, "  loss scale  first %s, last %s", ab_text_round_trip(a, t->first_scale),
                 ab_text_round_trip(b, t->last_scale));
        ab_print(stdout, ", least %s, largest %s\n", ab_text_round_trip(a, t->least_scale),
                 ab_text_round_trip(b, t->largest_scale));
    }
    printf("  skipped     %.0f steps\n", t->skipped);
    if (t->losses) printf("  losses      %d, %d of them NaN or inf\n", t->losses, t->nonfinite_losses);
    if (t->norms) printf("  grad norms  %d, %d of them NaN or inf\n", t->norms, t->nonfinite_norms);
}

/* The dialects that reproduce the scales. */
static void print_dialects(const cJSON *dialects, const ab_log_facts *facts) {
    const cJSON *fit;
    if (!dialects) return;
    if (cJSON_GetArraySize(dialects) == 0) puts("  scaler      none that is known has these scales");
    cJSON_ArrayForEach(fit, dialects) {
        ab_print(stdout, "  scaler      %s", ab_json_text(fit, "config", ""));
        const double expected = ab_json_number(fit, "skips_expected", (double)NAN);
        if (expected > 0 && facts->skipped > 0)
            ab_print(stdout, ": after the first rise it skips about %.3g, here %.0f", expected,
                     facts->skips_later);
        putchar('\n');
    }
}

static ab_status write_json(const request *r, const cJSON *dialects) {
    cJSON *json = ab_log_json(&r->log, r->path, r->paths), *document = cJSON_CreateObject();
    cJSON_AddStringToObject(document, "schema", "ampbench-log");
    cJSON_AddStringToObject(document, "schema_version", "1.0");
    if (dialects) cJSON_AddItemToObject(json, "dialects", cJSON_Duplicate(dialects, true));
    cJSON_AddItemToObject(document, "log", json);
    const ab_status status = ab_json_write_file(document, r->json);
    cJSON_Delete(document);
    return status;
}

static ab_status show(const request *r, const cJSON *dialects) {
    if (r->json) AB_TRY(write_json(r, dialects));
    if (r->json && strcmp(r->json, "-") == 0) return AB_OK;
    const ab_log_totals totals = ab_log_total(&r->log);
    print_source(r);
    print_totals(&totals);
    if (r->log.histograms) printf("  histograms  %d\n", r->log.histograms);
    const ab_log_facts facts = ab_log_facts_of(&r->log);
    print_dialects(dialects, &facts);
    return AB_OK;
}

static ab_status read_log(request *r) {
    cJSON *dialects = NULL;
    ab_log_order(r->path, r->paths);
    AB_TRY(ab_log_read(&r->log, r->path, r->paths));
    AB_TRY(ab_dialects_json(&r->log, AB_DIALECT_WORK, &dialects));
    const ab_status status = show(r, dialects);
    cJSON_Delete(dialects);
    return status;
}

ab_status ab_cmd_read(int argc, char **argv) {
    request r = {.path = calloc((size_t)argc, sizeof *r.path)};
    if (!r.path) return ab_fail(AB_NO_MEMORY, "read: out of memory");
    ab_status status = parse(argc, argv, &r);
    if (status == AB_OK && r.help)
        print_help();
    else if (status == AB_OK)
        status = read_log(&r);
    ab_log_free(&r.log);
    free(r.path);
    return status;
}
