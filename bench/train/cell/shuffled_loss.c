/* The loss with the targets of other samples: what predictions are worth that do not know their targets.
 * Independent of a loss's kind, units, weight, reduction and offset. */
#include "bench/train/cell/parts.h"
#include "bench/train/pass/forward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 8, SHUFFLES = 8 };

typedef struct shuffling {
    ab_cell *cell;
    const ab_plan *plan;
    bool *depends;         /* [plan->tensors]: on the targets */
    void **kept;           /* [plan->tensors]: values that nodes read beside those; NULL: none */
    char *targets, *moved; /* of a batch, as stored */
    size_t bytes;          /* of each */
} shuffling;

static bool node_depends(const shuffling *s, int n) { return s->depends[s->plan->node[n].out]; }

/* True if a loss depends on the targets. */
static bool mark(shuffling *s) {
    s->depends[s->plan->targets] = true;
    for (int n = 0; n < s->plan->nodes; n++) {
        const ab_plan_node *node = &s->plan->node[n];
        for (int i = 0; i < node->inputs; i++) s->depends[node->out] |= s->depends[node->in[i]];
    }
    bool any = false;
    for (int i = 0; i < s->plan->losses; i++) any |= s->depends[s->plan->loss[i]];
    return any;
}

/* A value's memory may be used again after its last use: it is kept before the first, put back before each.
 */
static ab_status keep_inputs(shuffling *s, int n, bool put_back) {
    const ab_plan_node *node = &s->plan->node[n];
    for (int i = 0; i < node->inputs; i++) {
        const int t = node->in[i];
        ab_tensor *tensor = &s->cell->memory.tensor[t];
        if (s->depends[t]) continue;
        if (!s->kept[t]) s->kept[t] = malloc(ab_cell_memory_bytes(tensor) + 1);
        if (!s->kept[t]) return ab_fail(AB_NO_MEMORY, "shuffled targets: out of memory");
        AB_TRY(put_back ? ab_tensor_upload(tensor, s->kept[t]) : ab_tensor_download(tensor, s->kept[t]));
    }
    return AB_OK;
}

static ab_status matched_pass(shuffling *s, float *loss) {
    ab_walk *walk = &s->cell->walk;
    AB_TRY(ab_tensor_download(&s->cell->memory.tensor[s->plan->targets], s->targets));
    AB_TRY(ab_forward_start(walk));
    for (int n = 0; n < s->plan->nodes; n++) {
        if (node_depends(s, n)) AB_TRY(keep_inputs(s, n, false));
        AB_TRY(ab_forward_node(walk, n));
    }
    return ab_forward_loss(walk, loss);
}

/* Sample i gets the target of sample i + distance. */
static ab_status shuffled_pass(shuffling *s, int64_t distance, float *loss) {
    ab_walk *walk = &s->cell->walk;
    const size_t first = s->bytes / (size_t)s->plan->batch * (size_t)distance;
    memcpy(s->moved, s->targets + first, s->bytes - first);
    memcpy(s->moved + s->bytes - first, s->targets, first);
    AB_TRY(ab_tensor_upload(&s->cell->memory.tensor[s->plan->targets], s->moved));
    for (int n = 0; n < s->plan->nodes; n++) {
        if (!node_depends(s, n)) continue;
        AB_TRY(keep_inputs(s, n, true));
        AB_TRY(ab_forward_node(walk, n));
    }
    return ab_forward_loss(walk, loss);
}

static double square(double x) { return x * x; }

/* If predictions know no targets, the matched loss is one more draw of the shuffled ones: the variance of its
 * difference from their mean is theirs times 1 + 1 / shuffles. */
static ab_status add_batch(shuffling *s, ab_shuffled_result *result) {
    const int shuffles = result->shuffles;
    float loss;
    AB_TRY(matched_pass(s, &loss));
    result->matched += (double)loss;
    double sum = 0, losses[SHUFFLES], squares = 0;
    for (int k = 0; k < shuffles; k++) {
        AB_TRY(shuffled_pass(s, (k + 1) * s->plan->batch / (shuffles + 1), &loss));
        losses[k] = (double)loss;
        sum += (double)loss;
    }
    for (int k = 0; k < shuffles; k++) squares += square(losses[k] - sum / shuffles);
    result->shuffled += sum / shuffles;
    result->error += squares / (shuffles - 1) * (1 + 1.0 / shuffles);
    result->batches++;
    return AB_OK;
}

static ab_status evaluate(shuffling *s, ab_split split, int64_t limit, ab_shuffled_result *result) {
    const int64_t batch = s->plan->batch, samples = s->cell->config.data->split[split].count;
    int64_t batches = samples / batch, wanted = limit > 0 ? (limit + batch - 1) / batch : batches;
    wanted = wanted < BATCHES ? wanted : BATCHES;
    batches = batches < wanted ? batches : wanted;
    result->shuffles = batch - 1 < SHUFFLES ? (int)batch - 1 : SHUFFLES;
    if (result->shuffles < 2) return AB_OK;
    for (int64_t b = 0; b < batches; b++) {
        ab_batches_choose_spread(&s->cell->batches, b, samples / batch);
        AB_TRY(ab_batches_load(&s->cell->batches, &s->cell->walk, split, true));
        AB_TRY(add_batch(s, result));
    }
    if (batches == 0) return AB_OK;
    result->matched /= (double)batches;
    result->shuffled /= (double)batches;
    result->error = sqrt(result->error) / (double)batches;
    return AB_OK;
}

ab_status ab_cell_evaluate_shuffled(ab_cell *cell, ab_split split, int64_t limit,
                                    ab_shuffled_result *result) {
    const ab_plan *plan = cell->plan;
    shuffling s = {.cell = cell, .plan = plan};
    ab_status status = AB_OK;
    *result = (ab_shuffled_result){.batches = 0};
    s.bytes = ab_cell_memory_bytes(&cell->memory.tensor[plan->targets]);
    s.depends = calloc((size_t)plan->tensors, sizeof *s.depends);
    s.kept = calloc((size_t)plan->tensors, sizeof *s.kept);
    s.targets = malloc(s.bytes + 1);
    s.moved = malloc(s.bytes + 1);
    if (!s.depends || !s.kept || !s.targets || !s.moved)
        status = ab_fail(AB_NO_MEMORY, "shuffled targets: out of memory");
    cell->walk.exec.training = false;
    cell->observation.observer = NULL;
    cell->walk.runs_casts = true; /* nodes run with inputs that were put back */
    if (status == AB_OK && mark(&s)) status = evaluate(&s, split, limit, result);
    cell->walk.runs_casts = false;
    for (int t = 0; t < plan->tensors && s.kept; t++) free(s.kept[t]);
    free(s.depends);
    free(s.kept);
    free(s.targets);
    free(s.moved);
    return status;
}
