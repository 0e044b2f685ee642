/* The op cast lists, as tables by op name. */
#include "bench/amp/op_rules.h"

#include "kernels/ops/op.h"

#include <string.h>

typedef struct rule_row {
    const char *op;
    ab_op_rule rule;
} rule_row;

#define AB_OP_RULE(op, rule) {#op, AB_RULE_##rule},
static const rule_row torch_cuda[] = {
#include "bench/amp/autocast_cuda.def"
};
static const rule_row torch_cpu[] = {
#include "bench/amp/autocast_cpu.def"
};
static const rule_row mindspore[] = {
#include "bench/amp/mindspore_cells.def"
};
#undef AB_OP_RULE

static const struct {
    const rule_row *row;
    size_t rows;
} lists[] = {
    [AB_LIST_apex] = {NULL, 0},
    [AB_LIST_torch_cuda] = {torch_cuda, AB_COUNT_OF(torch_cuda)},
    [AB_LIST_torch_cpu] = {torch_cpu, AB_COUNT_OF(torch_cpu)},
    [AB_LIST_mindspore] = {mindspore, AB_COUNT_OF(mindspore)},
    [AB_LIST_none] = {NULL, 0},
};

ab_op_rule ab_op_rule_of(ab_op_list list, int op_row) {
    static const ab_op_rule of_class[] = {[AB_CLASS_low] = AB_RULE_low,
                                          [AB_CLASS_fp32] = AB_RULE_fp32,
                                          [AB_CLASS_promote] = AB_RULE_promote,
                                          [AB_CLASS_follow] = AB_RULE_follow,
                                          [AB_CLASS_banned] = AB_RULE_banned};
    if (list == AB_LIST_apex) return of_class[ab_op_class_at(op_row)];
    const char *name = ab_op_at(op_row)->name;
    for (size_t i = 0; i < lists[list].rows; i++)
        if (strcmp(lists[list].row[i].op, name) == 0) return lists[list].row[i].rule;
    return AB_RULE_follow;
}
