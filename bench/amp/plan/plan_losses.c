/* Separate loss scales (apex's num_losses and loss_id): the scaler of each loss, and the nodes of each
 * scaler's backward pass. Losses of one id form one weighted sum with one backward pass. One scaler means one
 * pass. */
#include "bench/amp/plan/plan.h"

#include <stdlib.h>

_Static_assert((int)AB_POLICY_LOSSES == (int)AB_NET_LOSSES, "a scaler for every loss there may be");

static ab_status no_such_scaler(const ab_plan *plan, int loss) {
    const ab_net *net = plan->net;
    const char *name = net->op[net->loss[loss].op].name;
    return ab_fail(AB_CONFIG,
                   "--set num_losses=%d: loss '%s' of %s has loss_id %d, beyond the last scaler (apex: "
                   "IndexError: list index out of range); give --set num_losses=%d",
                   plan->scalers, name, net->path, net->loss[loss].id, net->loss[loss].id + 1);
}

ab_status ab_plan_scalers(ab_plan *plan) {
    const ab_net *net = plan->net;
    unsigned used = 0;
    plan->losses = net->losses;
    plan->scalers = plan->policy.num_losses > 1 ? plan->policy.num_losses : 1;
    for (int i = 0; i < net->losses; i++) {
        plan->loss_id[i] = plan->scalers > 1 ? net->loss[i].id : 0;
        if (plan->loss_id[i] >= plan->scalers) return no_such_scaler(plan, i);
        used |= 1u << plan->loss_id[i];
    }
    for (int k = 0; k < plan->scalers; k++)
        if (!(used >> k & 1u))
            return ab_fail(AB_CONFIG,
                           "--set num_losses=%d: no loss of %s has loss_id %d (it has %d loss%s), so that "
                           "scaler would never be used; 'losses' in a network file lists several",
                           plan->scalers, net->path, k, net->losses, net->losses == 1 ? "" : "es");
    return AB_OK;
}

/* ---- nodes per pass -------------------------------------------------------------------------- */

/* A node receives gradients from the later nodes that read its output; views count as separate tensors.
 * reached[t]: passes of the nodes seen so far that give tensor t a gradient. */
static void mark_inputs(const ab_plan_node *node, unsigned *reached) {
    for (int i = 0; i < node->inputs; i++)
        if (node->in_grad[i] != AB_NONE) reached[node->in[i]] |= node->passes;
}

static unsigned passes_of_block(const ab_plan *plan, int last) {
    unsigned passes = 0;
    for (int n = plan->node[last].recompute_first; n != AB_NONE && n <= last; n++)
        passes |= plan->node[n].passes;
    return passes;
}

ab_status ab_plan_passes(ab_plan *plan) {
    unsigned *reached = calloc((size_t)plan->tensors, sizeof *reached);
    if (!reached) return ab_fail(AB_NO_MEMORY, "plan: out of memory");
    for (int n = plan->nodes - 1; n >= 0; n--) {
        ab_plan_node *node = &plan->node[n];
        node->passes = 0;
        if (node->out_grad == AB_NONE) continue;
        for (int i = 0; i < plan->losses; i++)
            if (plan->loss[i] == node->out) node->passes |= 1u << plan->loss_id[i];
        node->passes |= reached[node->out];
        mark_inputs(node, reached);
    }
    for (int n = 0; n < plan->nodes; n++) plan->node[n].recompute_passes = passes_of_block(plan, n);
    free(reached);
    return AB_OK;
}
