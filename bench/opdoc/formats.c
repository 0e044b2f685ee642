/* Formats of an op at every level, from the plans of a network that has it. */
#include "bench/opdoc/opdoc.h"

#include "bench/amp/plan/plan.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 4, LEVELS = 64, CELL = 40 };

typedef struct formats_row {
    char inputs[CELL], weights[CELL], output[CELL];
    char levels[AB_OPDOC_TEXT];
} formats_row;

static const char *name_of(const ab_plan *plan, int tensor) {
    const ab_format *format = plan->tensor[tensor].format;
    return format ? format->name : "int32";
}

/* Each format once. */
static void input_formats(const ab_plan *plan, const ab_plan_node *node, char text[CELL]) {
    text[0] = '\0';
    for (int i = 0; i < node->inputs; i++) {
        const char *name = name_of(plan, node->in[i]);
        if (!strstr(text, name)) ab_text_append(text, CELL, "%s%s", i ? ", " : "", name);
    }
}

static void weight_formats(const ab_plan *plan, const ab_plan_node *node, char text[CELL]) {
    ab_text_show(text, CELL, "%s", node->params ? "" : "-");
    if (!node->params) return;
    const ab_plan_param *param = &plan->param[node->first_param];
    ab_text_append(text, CELL, "%s", name_of(plan, param->used));
    if (param->used != param->stored) ab_text_append(text, CELL, " from %s", name_of(plan, param->stored));
    if (param->master != AB_NONE) ab_text_append(text, CELL, ", master %s", name_of(plan, param->master));
}

static void describe(const ab_plan *plan, int row, formats_row *found) {
    for (int n = 0; n < plan->nodes; n++) {
        const ab_net_op *op = ab_plan_node_op(plan, &plan->node[n]);
        if (!op || op->op_row != row) continue;
        input_formats(plan, &plan->node[n], found->inputs);
        weight_formats(plan, &plan->node[n], found->weights);
        ab_text_show(found->output, CELL, "%s", name_of(plan, plan->node[n].out));
        return;
    }
}

/* One level's row; "refused" if the plan is. */
static ab_status row_at(const ab_level *level, int row, const ab_net *net, formats_row *found) {
    ab_policy policy;
    ab_plan *plan;
    *found = (formats_row){.inputs = "refused", .weights = "-", .output = "-"};
    AB_TRY(ab_policy_resolve(level, &ab_format_fp16, NULL, 0, &policy));
    ab_status status = ab_plan_create(net, &policy, BATCH, 1, &plan);
    if (status == AB_CONFIG || status == AB_USAGE) return AB_OK;
    AB_TRY(status);
    describe(plan, row, found);
    ab_plan_destroy(plan);
    return AB_OK;
}

static bool same(const formats_row *a, const formats_row *b) {
    return strcmp(a->inputs, b->inputs) == 0 && strcmp(a->weights, b->weights) == 0 &&
           strcmp(a->output, b->output) == 0;
}

ab_status ab_opdoc_formats(int row, const ab_net *net, FILE *out) {
    formats_row *rows = calloc(LEVELS, sizeof *rows), found;
    ab_status status = rows ? AB_OK : ab_fail(AB_NO_MEMORY, "ops: out of memory");
    int count = 0;
    for (int l = 0; l < ab_level_count() && status == AB_OK; l++) {
        int i = 0;
        status = row_at(ab_level_at(l), row, net, &found);
        while (i < count && !same(&rows[i], &found)) i++;
        if (i == LEVELS || status != AB_OK) continue;
        if (i == count) rows[count++] = found;
        ab_text_append(rows[i].levels, sizeof rows[i].levels, "%s%s", rows[i].levels[0] ? " " : "",
                       ab_level_at(l)->name);
    }
    if (status == AB_OK) ab_print(out, "    %-12s %-18s %-7s %s\n", "inputs", "weights", "output", "levels");
    for (int i = 0; i < count && status == AB_OK; i++) {
        char head[4 * CELL];
        ab_text_show(head, sizeof head, "    %-12s %-18s %-7s ", rows[i].inputs, rows[i].weights,
                     rows[i].output);
        ab_opdoc_wrap(out, head, 44, rows[i].levels);
    }
    free(rows);
    return status;
}
