/* A part of a run that another process records. */
#include "bench/run/state.h"

#include "bench/run/config/configure.h"
#include "bench/run/environment.h"
#include "bench/run/record.h"
#include "bench/run/shared_data.h"
#include "bench/timer/timer.h"
#include "build_info.h"
#include "kernels/core/log.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"

#include <stdlib.h>
#include <string.h>

/* Cells as text, "0-9,14", in increasing order. */
static ab_status parse_part(ab_run_state *r, const char *text) {
    int last = -1, n = 0;
    r->part = calloc((size_t)r->count + 1, sizeof *r->part);
    if (!r->part) return ab_fail(AB_NO_MEMORY, "part: out of memory");
    for (const char *at = text; *at;) {
        int from, to, length = 0;
        if (sscanf(at, "%d-%d%n", &from, &to, &length) < 2) {
            length = 0;
            if (sscanf(at, "%d%n", &from, &length) == 1) to = from;
        }
        if (length == 0 || from <= last || to < from || to >= r->count)
            return ab_fail(AB_USAGE, "part: expected cells such as 0-9,14 below %d, found '%s'", r->count,
                           text);
        while (from <= to) r->part[n++] = last = from++;
        at += length;
        at += *at == ',';
    }
    for (int i = 0, kept = 0; i < r->count; i++) {
        if (kept < n && r->part[kept] == i)
            r->cells[kept++] = r->cells[i];
        else
            free(r->cells[i].id);
    }
    r->count = n;
    return AB_OK;
}

static ab_status check_identity(const ab_run_state *r, const char *wanted) {
    char own[34];
    ab_run_identify(r, own);
    if (strcmp(own, wanted) == 0) return AB_OK;
    if (strncmp(own, wanted, 17) != 0)
        return ab_fail(AB_NOT_COMPARABLE, "another build of ampbench (%s, %s)", AB_VERSION, AB_GIT_SHA);
    return ab_fail(AB_NOT_COMPARABLE, "the same options give other cells there: another network, data set or "
                                      "device");
}

static ab_status print_machine(const ab_run_state *r, const char *id) {
    char class[17];
    cJSON *line = cJSON_CreateObject(), *document = r->document;
    cJSON *generator = cJSON_GetObjectItem(document, "generator"),
          *machine = cJSON_GetObjectItem(document, "environment");
    ab_environment_class(generator, machine, r->config.device, r->config.threads, class);
    cJSON_AddStringToObject(line, "schema", "ampbench-part");
    cJSON_AddStringToObject(line, "run", id);
    cJSON_AddStringToObject(line, "class", class);
    cJSON_AddNumberToObject(line, "threads", r->config.threads);
    if (getenv("SLURMD_NODENAME")) cJSON_AddStringToObject(line, "name", getenv("SLURMD_NODENAME"));
    cJSON_AddItemReferenceToObject(line, "generator", generator);
    cJSON_AddItemReferenceToObject(line, "environment", machine);
    cJSON_AddItemReferenceToObject(line, "comparability_key",
                                   cJSON_GetObjectItem(document, "comparability_key"));
    ab_json_print_line(line, stdout);
    cJSON_Delete(line);
    return fflush(stdout) == 0 ? AB_OK : ab_fail(AB_OUTPUT, "stdout: cannot write");
}

/* The processors are shared by `sharing` such processes. */
static void share_threads(ab_run_state *r, int sharing, char text[16]) {
    if (sharing < 2 || r->options.given[AB_OPTION_threads]) return;
    r->config.threads = r->config.threads / sharing > 1 ? r->config.threads / sharing : 1;
    r->options.text[AB_OPTION_threads] = ab_text_exact(text, 16, "%d", r->config.threads);
    r->options.given[AB_OPTION_threads] = true;
}

static ab_status run_part(ab_run_state *r, int argc, char *const *argv) {
    char threads[16];
    AB_TRY(ab_options_parse(argc - AB_PART_ARGS + 1, argv + AB_PART_ARGS - 1, &r->options));
    AB_TRY(ab_run_config_create(&r->options, true, &r->config));
    AB_TRY(ab_run_cells(&r->config, &r->cells, &r->count));
    AB_TRY(check_identity(r, argv[2]));
    AB_TRY(parse_part(r, argv[1]));
    AB_TRY(ab_run_check_plans(r));
    AB_TRY(ab_run_draw_order(r));
    share_threads(r, atoi(argv[4]), threads);
    r->config.probe_every = atoll(argv[3]);
    r->watches = strcmp(argv[6], "watch") == 0;
    ab_environment_prepare_workers();
    AB_TRY(ab_run_build_words(r));
    AB_TRY(ab_shared_data_create(r->config.data, &r->data_fd));
    AB_TRY(ab_record_create(&r->config, &r->options, argc, argv, r->cells, r->count, r->order, &r->document));
    AB_TRY(ab_run_list_cells(r));
    AB_TRY(print_machine(r, argv[5]));
    ab_run_catch_signals();
    return ab_run_rounds(r);
}

/* The process that reads the lines has the error's message from them. */
static void print_failure(ab_status status) {
    cJSON *line = cJSON_CreateObject();
    if (status == AB_OK || status == AB_INTERRUPTED || !line) return;
    cJSON_AddStringToObject(line, "error", ab_error_message());
    ab_json_print_line(line, stdout);
    cJSON_Delete(line);
    fflush(stdout);
}

ab_status ab_run_part(int argc, char *const *argv) {
    ab_run_state r = {
        .data_fd = -1, .started_ns = ab_monotonic_ns(), .link = {.fd = -1, .serve = ab_run_serve}};
    if (argc < AB_PART_ARGS) return ab_fail(AB_USAGE, "part: started by ampbench run --launch only");
    ab_log_set_level(AB_LOG_QUIET);
    r.link.context = &r;
    ab_status status = run_part(&r, argc, argv);
    print_failure(status);
    ab_run_clear(&r);
    return status;
}
