/* Builds the document part by part. Keys and shapes are those of reports/schema/result-1.schema.json. */
#define _GNU_SOURCE
#include "bench/run/record.h"

#include "bench/run/config/digest.h"
#include "bench/run/environment.h"
#include "bench/run/replay.h"
#include "bench/timer/timer.h"
#include "kernels/core/text.h"
#include "kernels/ops/traits/op_traits.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *utc_now(char text[32]) {
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

/* ---- head ------------------------------------------------------------------------------------ */

static cJSON *run_part(const ab_options *options, int argc, char *const *argv) {
    cJSON *run = cJSON_CreateObject(), *list;
    char text[32], id[17];
    int64_t now = ab_monotonic_ns();
    ab_digest digest = ab_digest_add(ab_digest_start(), &now, sizeof now);
    utc_now(text);
    digest = ab_digest_add(digest, text, strlen(text));
    cJSON_AddStringToObject(run, "id", ab_digest_text(digest, id));
    cJSON_AddStringToObject(run, "started_utc", text);
    if (options->text[AB_OPTION_label]) cJSON_AddStringToObject(run, "label", options->text[AB_OPTION_label]);
    cJSON_AddNullToObject(run, "finished_utc");
    list = cJSON_AddArrayToObject(run, "argv");
    for (int i = 0; i < argc; i++) cJSON_AddItemToArray(list, cJSON_CreateString(i ? argv[i] : "ampbench"));
    cJSON_AddItemToObject(run, "options", ab_replay_record(options));
    cJSON_AddFalseToObject(run, "complete");
    cJSON_AddNullToObject(run, "exit_status");
    cJSON_AddNumberToObject(run, "elapsed_s", 0);
    return run;
}

static cJSON *data_part(const ab_data *data) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", data->name);
    cJSON_AddStringToObject(object, "origin", data->origin);
    cJSON_AddStringToObject(object, "adapted", data->adapted);
    cJSON_AddNumberToObject(object, "train_count", (double)data->split[AB_SPLIT_TRAIN].count);
    cJSON_AddNumberToObject(object, "test_count", (double)data->split[AB_SPLIT_TEST].count);
    cJSON_AddStringToObject(object, "kind", ab_input_kind_text(data->shape.input));
    cJSON *shape = cJSON_AddArrayToObject(object, "shape");
    for (int i = 0; i < data->shape.x.ndim; i++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)data->shape.x.dim[i]));
    cJSON_AddNumberToObject(object, "height", (double)data->height);
    cJSON_AddNumberToObject(object, "width", (double)data->width);
    cJSON_AddNumberToObject(object, "channels", (double)data->channels);
    cJSON_AddNumberToObject(object, "classes", (double)data->classes);
    cJSON_AddNumberToObject(object, "mean", data->mean);
    cJSON_AddNumberToObject(object, "std", data->std);
    return object;
}

static cJSON *network_part(const ab_net *net) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", net->name);
    cJSON_AddStringToObject(object, "text", net->text ? net->text : "");
    cJSON_AddNumberToObject(object, "parameters_count", (double)ab_net_parameters(net));
    return object;
}

static const char *input_name(const ab_net *net, int input) {
    if (input >= 0) return net->op[input].name;
    return input == AB_NET_TARGETS ? "targets" : "input";
}

static cJSON *traits_part(const char *type) {
    cJSON *traits = cJSON_CreateArray();
    for (int bit = 0; bit < AB_TRAIT_COUNT; bit++)
        if (ab_op_traits(type) & (1u << bit))
            cJSON_AddItemToArray(traits, cJSON_CreateString(ab_trait_name(bit)));
    return traits;
}

/* Whether the op adds its losses up where others average them. */
static bool is_summed(const ab_net_op *op) {
    for (const ab_attr *attr = op->op->attrs; attr && attr->name; attr++)
        if (strcmp(attr->name, "reduction") == 0 && strcmp(attr->text, "mean|sum") == 0)
            return *(const int64_t *)(const void *)((const char *)op->attrs + attr->offset) == 1;
    return false;
}

static void add_untrained(cJSON *entry, const ab_net_op *op) {
    cJSON *names = cJSON_CreateArray();
    for (int k = 0; k < op->params; k++)
        if (op->untrained[k]) cJSON_AddItemToArray(names, cJSON_CreateString(op->param[k].name));
    if (names->child)
        cJSON_AddItemToObject(entry, "untrained", names);
    else
        cJSON_Delete(names);
}

/* Ops in execution order with their inputs, for reports/record/graph.h. */
static cJSON *graph_part(const ab_net *net) {
    cJSON *graph = cJSON_CreateObject(), *ops = cJSON_AddArrayToObject(graph, "ops");
    for (int i = 0; i < net->ops; i++) {
        const ab_net_op *op = &net->op[i];
        cJSON *entry = cJSON_CreateObject();
        cJSON_AddStringToObject(entry, "op", op->name);
        cJSON_AddStringToObject(entry, "type", op->op->name);
        cJSON *inputs = cJSON_AddArrayToObject(entry, "inputs");
        for (int k = 0; k < op->inputs; k++)
            cJSON_AddItemToArray(inputs, cJSON_CreateString(input_name(net, op->input[k])));
        cJSON_AddItemToObject(entry, "traits", traits_part(op->op->name));
        if (is_summed(op)) cJSON_AddStringToObject(entry, "reduction", "sum");
        add_untrained(entry, op);
        if (op->accumulate_half) cJSON_AddStringToObject(entry, "accumulate", "half");
        cJSON_AddItemToArray(ops, entry);
    }
    return graph;
}

static cJSON *design_part(const ab_run_config *config, int count, const int *order) {
    cJSON *design = cJSON_CreateObject();
    cJSON_AddNumberToObject(design, "rounds", (double)config->rounds);
    cJSON_AddNumberToObject(design, "order_seed", (double)config->seed);
    cJSON *rounds = cJSON_AddArrayToObject(design, "order");
    for (int64_t r = 0; r < config->rounds; r++) {
        cJSON *round = cJSON_CreateArray();
        for (int p = 0; p < count; p++)
            if (order[r * count + p] >= 0)
                cJSON_AddItemToArray(round, cJSON_CreateNumber(order[r * count + p]));
        cJSON_AddItemToArray(rounds, round);
    }
    return design;
}

/* ---- machines -------------------------------------------------------------------------------- */

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Cells of machines of equal classes are comparable, whoever came first. */
static ab_status set_key(cJSON *document, const cJSON *machines) {
    const cJSON *machine;
    int n = 0;
    char key[17];
    ab_digest digest = ab_digest_start();
    const char **class = calloc((size_t)cJSON_GetArraySize(machines) + 1, sizeof *class);
    if (!class) return ab_fail(AB_NO_MEMORY, "record: out of memory");
    cJSON_ArrayForEach(machine, machines) class[n++] = ab_json_text(machine, "class", "");
    qsort(class, (size_t)n, sizeof *class, compare_texts);
    for (int i = 0; i < n; i++)
        if (i == 0 || strcmp(class[i], class[i - 1]) != 0)
            digest = ab_digest_add(digest, class[i], strlen(class[i]) + 1);
    free(class);
    ab_json_put(document, "comparability_key", cJSON_CreateString(ab_digest_text(digest, key)));
    return AB_OK;
}

static cJSON *new_machine(const char *name, const cJSON *line) {
    static const char *const facts[] = {"cpu_model", "isa", "cores", "affinity", "hostname_hash", "kernel"};
    cJSON *machine = cJSON_CreateObject();
    const cJSON *environment = cJSON_GetObjectItem(line, "environment");
    cJSON_AddStringToObject(machine, "name", name);
    cJSON_AddStringToObject(machine, "class", ab_json_text(line, "class", ""));
    cJSON_AddNumberToObject(machine, "threads", ab_json_number(line, "threads", 0));
    for (size_t i = 0; i < AB_COUNT_OF(facts); i++)
        ab_json_put(machine, facts[i], cJSON_Duplicate(cJSON_GetObjectItem(environment, facts[i]), 1));
    return machine;
}

ab_status ab_record_machine(cJSON *document, const char *name, const cJSON *line, int *machine, bool *added) {
    cJSON *list = cJSON_GetObjectItem(document, "machines"), *known = NULL;
    const char *class = ab_json_text(line, "class", NULL),
               *host = ab_json_text(line, "environment.hostname_hash", NULL);
    if (!class || !host) return ab_fail(AB_INPUT, "%s: a part's first line is not sound", name);
    *machine = 0;
    *added = false;
    cJSON_ArrayForEach(known, list) {
        if (strcmp(ab_json_text(known, "class", ""), class) == 0 &&
            strcmp(ab_json_text(known, "hostname_hash", ""), host) == 0)
            return AB_OK;
        ++*machine;
    }
    *added = true;
    cJSON_AddItemToArray(list, new_machine(name, line));
    if (*machine > 0) return set_key(document, list);
    ab_json_put(document, "environment", cJSON_Duplicate(cJSON_GetObjectItem(line, "environment"), 1));
    ab_json_put(document, "generator", cJSON_Duplicate(cJSON_GetObjectItem(line, "generator"), 1));
    return set_key(document, list);
}

void ab_record_limits(cJSON *document, const ab_process *process) {
    const cJSON *limits = cJSON_GetObjectItem(process->profile, "machine_limits");
    if (limits) ab_json_put(document, "machine_limits", cJSON_Duplicate(limits, 1));
}

/* ---- document -------------------------------------------------------------------------------- */

static const char flush_on_gpu[] =
    "--flush-denormal changes nothing that the GPU computes: its kernels are compiled with --ftz=false and "
    "keep "
    "subnormals; only ops without a kernel of their own, which the host computes, take them as zeros";

ab_status ab_record_create(const ab_run_config *config, const ab_options *options, int argc,
                           char *const *argv, const ab_cell_spec *cells, int count, const int *order,
                           cJSON **result) {
    cJSON *document = cJSON_CreateObject();
    cJSON *generator = ab_environment_generator(), *machine = ab_environment_machine();
    char key[17];
    if (!document || !generator || !machine) return ab_fail(AB_NO_MEMORY, "record: out of memory");
    ab_json_put(machine, "denormals", cJSON_CreateString(config->flush_denormal ? "flushed" : "kept"));
    ab_environment_key(generator, machine, key);
    cJSON_AddStringToObject(document, "schema", "ampbench-result");
    cJSON_AddStringToObject(document, "schema_version", "1.0.0");
    cJSON_AddItemToObject(document, "generator", generator);
    cJSON_AddItemToObject(document, "run", run_part(options, argc, argv));
    cJSON_AddItemToObject(document, "config", ab_record_config(config, options));
    cJSON_AddItemToObject(document, "environment", machine);
    cJSON_AddStringToObject(document, "comparability_key", key);
    cJSON *determinism = cJSON_AddObjectToObject(document, "determinism");
    cJSON_AddNumberToObject(determinism, "seed", (double)config->seed);
    cJSON_AddStringToObject(determinism, "rng", "philox4x32-10");
    cJSON_AddStringToObject(determinism, "rounding", "rne");
    cJSON_AddNullToObject(determinism, "all_cells_deterministic");
    cJSON_AddItemToObject(document, "design", design_part(config, count, order));
    cJSON_AddItemToObject(document, "data", data_part(config->data));
    cJSON_AddItemToObject(document, "network", network_part(config->net));
    cJSON_AddItemToObject(document, "graph", graph_part(config->net));
    cJSON *list = cJSON_AddArrayToObject(document, "cells");
    for (int i = 0; i < count; i++) cJSON_AddItemToArray(list, ab_record_new_cell(config, &cells[i]));
    cJSON_AddNullToObject(document, "noise_floor");
    cJSON_AddNullToObject(document, "rounding_floor");
    if (options->given[AB_OPTION_launch]) cJSON_AddArrayToObject(document, "machines");
    cJSON *warnings = cJSON_AddArrayToObject(document, "warnings");
    if (config->flush_denormal && strcmp(config->device->name, "cpu") != 0)
        cJSON_AddItemToArray(warnings, cJSON_CreateString(flush_on_gpu));
    *result = document;
    return AB_OK;
}

void ab_record_probing(cJSON *document, int64_t every, double budget, const ab_probe_cost *cost, int costs) {
    cJSON *probing = cJSON_CreateObject();
    const ab_probe_cost *most = NULL;
    for (int i = 0; i < costs; i++)
        if (!most || cost[i].probe_ns * most->step_ns > most->probe_ns * cost[i].step_ns) most = &cost[i];
    cJSON_AddNumberToObject(probing, "every", (double)every);
    cJSON_AddNumberToObject(probing, "budget", budget);
    ab_json_add_known(probing, "step_ns", most ? most->step_ns : 0, most != NULL);
    ab_json_add_known(probing, "probe_ns", most ? most->probe_ns : 0, most != NULL);
    cJSON_AddNullToObject(probing, "cost_share");
    ab_json_put(cJSON_GetObjectItem(document, "design"), "probing", probing);
}

/* How often the cell trained: a round that repeated its first steps only is a part of one. */
static double trainings(const cJSON *cell) {
    const double all = ab_json_number(cell, "steps_total", 0);
    const cJSON *process;
    double sum = 0;
    cJSON_ArrayForEach(process, cJSON_GetObjectItem(cell, "processes")) sum +=
        all > 0 ? ab_json_number(process, "steps", all) / all : 1;
    return sum;
}

/* What probing added to the time of all cells' steps in all rounds, by what each cell's process measured. */
static void set_probing_share(cJSON *document) {
    cJSON *probing = cJSON_GetObjectItem(cJSON_GetObjectItem(document, "design"), "probing");
    const cJSON *cell;
    double work = 0, cost = 0;
    cJSON_ArrayForEach(cell, cJSON_GetObjectItem(document, "cells")) {
        const double spent = ab_json_number(cell, "probes.sampling.cost_ns", 0),
                     share = ab_json_number(cell, "probes.sampling.cost_share", 0);
        if (!(share > 0)) continue;
        work += spent / share * trainings(cell);
        cost += spent;
    }
    if (probing)
        ab_json_put(probing, "cost_share", work > 0 ? cJSON_CreateNumber(cost / work) : cJSON_CreateNull());
}

void ab_record_warn(cJSON *document, const char *text) {
    cJSON *warnings = cJSON_GetObjectItem(document, "warnings"), *known = NULL;
    cJSON_ArrayForEach(known, warnings) {
        if (strcmp(cJSON_GetStringValue(known), text) == 0) return;
    }
    cJSON_AddItemToArray(warnings, cJSON_CreateString(text));
}

void ab_record_finish(cJSON *document, bool complete, int exit_status, double elapsed_s) {
    cJSON *run = cJSON_GetObjectItem(document, "run");
    char text[32];
    set_probing_share(document);
    ab_json_put(run, "finished_utc", complete ? cJSON_CreateString(utc_now(text)) : cJSON_CreateNull());
    ab_json_put(run, "complete", cJSON_CreateBool(complete));
    ab_json_put(run, "exit_status", complete ? cJSON_CreateNumber(exit_status) : cJSON_CreateNull());
    ab_json_put(run, "elapsed_s", cJSON_CreateNumber(elapsed_s));
    ab_json_put(cJSON_GetObjectItem(document, "determinism"), "all_cells_deterministic",
                ab_cells_deterministic(document));
}
