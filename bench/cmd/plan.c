/* `ampbench plan`: what a run would do, without running it: every op with its formats, every inserted cast,
 * every buffer, bytes per category. Takes the options of a run. */
#include "bench/cmd/cmd.h"
#include "bench/cmd/run_options.h"
#include "bench/run/config/cells.h"
#include "bench/run/config/configure.h"
#include "kernels/core/log.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"

#include <stdlib.h>
#include <string.h>

static const char *format_name(const ab_format *format) { return format ? format->name : "int32"; }

static void print_policy(const ab_cell_spec *cell) {
    const ab_policy *policy = &cell->policy;
    char scale[AB_SCALER_TEXT];
    const char *cast = ab_policy_cast_text(policy);
    ab_print(stdout,
             "%s\n  cast_model_type=%s patch_torch_functions=%s keep_batchnorm_fp32=%s master_weights=%s "
             "loss_scale=%s\n",
             cell->id, cast ? cast : "None", policy->patch_torch_functions ? "True" : "False",
             ab_tristate_text(policy->keep_batchnorm_fp32), ab_tristate_text(policy->master_weights),
             ab_loss_scale_text(&policy->loss_scale, scale));
}

/* Gradients whose format differs from that of their tensor. */
static void gradients_text(const ab_plan *plan, const ab_plan_node *node, char *text, size_t size) {
    const ab_plan_tensor *tensor = plan->tensor;
    const int grad = node->in_grad[0],
              used_grad = node->params ? plan->param[node->first_param].used_grad : AB_NONE;
    text[0] = '\0';
    if (grad != AB_NONE && tensor[grad].format != tensor[node->in[0]].format)
        ab_text_append(text, size, ", input gradient %s", format_name(tensor[grad].format));
    if (used_grad != AB_NONE &&
        tensor[used_grad].format != tensor[plan->param[node->first_param].used].format)
        ab_text_append(text, size, ", weight gradient %s", format_name(tensor[used_grad].format));
}

static void print_node(const ab_plan *plan, int n) {
    const ab_plan_node *node = &plan->node[n];
    const ab_net_op *op = ab_plan_node_op(plan, node);
    const ab_plan_tensor *out = &plan->tensor[node->out];
    char shape[AB_SHAPE_TEXT], formats[64], gradients[96], weights[64] = "";
    if (node->params) {
        const ab_plan_param *param = &plan->param[node->first_param];
        ab_text_show(weights, sizeof weights, ", weights %s%s%s",
                     format_name(plan->tensor[param->used].format),
                     param->used != param->stored ? " cast once a step from " : "",
                     param->used != param->stored ? format_name(plan->tensor[param->stored].format) : "");
    }
    ab_text_show(formats, sizeof formats, "%s -> %s", format_name(plan->tensor[node->in[0]].format),
                 format_name(out->format));
    gradients_text(plan, node, gradients, sizeof gradients);
    ab_print(stdout, "  %3d  %-14s %-16s %-14s %-20s%s%s\n", n, op ? op->op->name : "cast",
             op ? op->name : plan->tensor[node->in[0]].name, formats, ab_shape_text(&out->shape, shape),
             weights, gradients);
}

static void print_buffers(const ab_plan *plan) {
    printf("\n  buffers (transient ones share a pool: steps of the schedule, offset)\n");
    for (int i = 0; i < plan->tensors; i++) {
        const ab_plan_tensor *t = &plan->tensor[i];
        char shape[AB_SHAPE_TEXT];
        ab_print(stdout, "  %-28s %-6s %-20s %-20s %10lld bytes", t->name, format_name(t->format),
                 ab_shape_text(&t->shape, shape), ab_mem_category_name(t->category), (long long)t->bytes);
        if (t->shares != AB_NONE) {
            ab_print(stdout, "  in %s\n", plan->tensor[t->shares].name);
            continue;
        }
        if (t->transient) printf("  %d..%d", t->first, t->last);
        if (t->transient && t->recompute_first != AB_NONE)
            printf(" and %d..%d", t->recompute_first, t->recompute_last);
        if (t->transient) printf(" at %lld", (long long)t->offset);
        putchar('\n');
    }
}

static void print_bytes(const int64_t bytes[AB_MEM_CATEGORY_COUNT]) {
    int64_t total = 0;
    printf("\n  bytes by category\n");
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++) {
        total += bytes[c];
        ab_print(stdout, "  %-22s %12lld  %s\n", ab_mem_category_name((ab_mem_category)c),
                 (long long)bytes[c], ab_mem_category_text((ab_mem_category)c));
    }
    ab_print(stdout, "  %-22s %12lld\n\n", "total", (long long)total);
}

/* Compiles and prints: no tensor is allocated, no weight drawn, no step run. */
static ab_status print_cell(const ab_run_config *config, const ab_cell_spec *spec, bool verbose) {
    ab_plan *plan;
    int64_t bytes[AB_MEM_CATEGORY_COUNT];
    ab_cell_config settings = ab_cell_config_of(config, spec);
    AB_TRY(ab_cell_planned(&settings, &plan, bytes));
    print_policy(spec);
    printf("\n  ops and casts, in the order of the forward pass (batch %lld)\n", (long long)plan->batch);
    for (int n = 0; n < plan->nodes; n++) print_node(plan, n);
    printf("\n  casts a step: %d of activations, %d of weights (forward); %.4g GFLOP a step\n",
           plan->activation_casts, plan->weight_casts, plan->flops * 1e-9);
    if (verbose) print_buffers(plan);
    print_bytes(bytes);
    ab_plan_destroy(plan);
    return AB_OK;
}

static ab_status print_all(const ab_run_config *config, const ab_options *options) {
    const bool verbose = options->given[AB_OPTION_verbose];
    ab_cell_spec *cells;
    int count;
    AB_TRY(ab_run_cells(config, &cells, &count));
    ab_status status = AB_OK;
    char unused[480];
    ab_run_unused_scaling(options, cells, count, unused, sizeof unused);
    if (unused[0]) ab_warn("%s", unused);
    for (int i = 0; i < count && status == AB_OK; i++)
        if (!cells[i].perturbation) status = print_cell(config, &cells[i], verbose);
    ab_run_cells_free(cells, count);
    return status;
}

ab_status ab_cmd_plan(int argc, char **argv) {
    if (ab_asks_for_help(argc, argv)) {
        puts(
            "usage: ampbench plan [--net NAME|FILE] [--level LIST] [--verbose] [OPTION]...\n\n"
            "Prints what a run with these options would do: every op with its formats, every inserted cast,\n"
            "bytes by category; with --verbose every buffer too. Takes the options of `ampbench run`; those\n"
            "that name what is written have no effect.\n\n"
            "It computes with shapes alone: no tensor is allocated, no weight drawn, and data read only "
            "where\n"
            "--pad or --normalize MEAN/STD must fit it. The bytes are exact, but for the workspace of "
            "products\n"
            "that a library computes, which is estimated.");
        return AB_OK;
    }
    ab_options options;
    ab_run_config config;
    AB_TRY(ab_options_parse(argc, argv, &options));
    AB_TRY(ab_refuse_outputs(&options, "plan", "a plan"));
    AB_TRY(ab_run_config_create(&options, false, &config));
    char unused[480];
    ab_level_options_unused(&options, config.level, config.levels, unused, sizeof unused);
    if (unused[0]) ab_warn("%s", unused);
    ab_status status = print_all(&config, &options);
    ab_run_config_clear(&config);
    return status;
}
