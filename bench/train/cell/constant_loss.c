/* The loss of the best constant prediction: ops from the losses on run on a constant in place of what the
 * network predicts. Reads training targets, changes nothing that training reads. */
#include "bench/train/cell/parts.h"
#include "bench/train/pass/forward.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_BATCHES = 64, MOST_NUMBERS = 1 << 24, NO_PART = -1 };

/* A loss op whose prediction is replaced. */
typedef struct part {
    int node;
    const ab_best_constant *best;
    double *sums;
    float *prediction;
} part;

typedef struct search {
    ab_cell *cell;
    const ab_plan *plan;
    bool *known;  /* [plan->tensors]: does not depend on weights, or only through replaced predictions */
    bool *needed; /* [plan->tensors]: for a loss */
    int parts;
    part part[AB_ALWAYS_ON_PARTS];
    void *targets; /* room for the targets of any part */
} search;

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "constant prediction: out of memory"); }

/* ---- which ops run ------------------------------------------------------------------------------ */

static const ab_op *op_of(const search *s, int n) {
    const ab_net_op *op = ab_plan_node_op(s->plan, &s->plan->node[n]);
    return op ? op->op : NULL;
}

static bool is_known(const search *s, const ab_plan_node *node) {
    for (int i = 0; i < node->inputs; i++)
        if (!s->known[node->in[i]]) return false;
    return node->params == 0;
}

static bool is_replaced(const search *s, int n) {
    const ab_plan_node *node = &s->plan->node[n];
    const ab_op *op = op_of(s, n);
    return op && op->best_constant && !s->known[node->in[0]] && s->known[node->in[1]];
}

static int part_of(const search *s, int n) {
    for (int k = 0; k < s->parts; k++)
        if (s->part[k].node == n) return k;
    return NO_PART;
}

/* Marks what is known, and the loss ops whose prediction is to be replaced. False: there are too many. */
static bool mark_known(search *s) {
    s->known[s->plan->input] = s->known[s->plan->targets] = true;
    for (int n = 0; n < s->plan->nodes; n++) {
        const ab_plan_node *node = &s->plan->node[n];
        const bool replaced = is_replaced(s, n);
        s->known[node->out] = replaced || is_known(s, node);
        if (!replaced) continue;
        if (s->parts == AB_ALWAYS_ON_PARTS) return false;
        s->part[s->parts++] = (part){.node = n, .best = op_of(s, n)->best_constant};
    }
    return s->parts > 0;
}

/* False if a loss is not known. */
static bool mark_needed(search *s) {
    for (int i = 0; i < s->plan->losses; i++) {
        if (!s->known[s->plan->loss[i]]) return false;
        s->needed[s->plan->loss[i]] = true;
    }
    for (int n = s->plan->nodes - 1; n >= 0; n--) {
        const ab_plan_node *node = &s->plan->node[n];
        const int first = part_of(s, n) == NO_PART ? 0 : 1;
        if (!s->needed[node->out]) continue;
        for (int i = first; i < node->inputs; i++) s->needed[node->in[i]] = true;
    }
    return true;
}

static bool runs(const search *s, int n) { return s->needed[s->plan->node[n].out]; }

/* ---- passes --------------------------------------------------------------------------------- */

/* Most losses need no samples, which take longer to write than targets. */
static ab_status load(search *s, int64_t batch) {
    ab_batches_choose(&s->cell->batches, batch);
    ab_cell *cell = s->cell;
    if (!s->needed[s->plan->input]) return ab_batches_load_targets(&cell->batches, &cell->walk);
    return ab_batches_load(&cell->batches, &cell->walk, AB_SPLIT_TRAIN, true);
}

static ab_status add_targets(search *s, part *p) {
    const ab_op_io *io = &s->cell->walk.io[p->node];
    AB_TRY(io->in[1]->format ? ab_tensor_read(io->in[1], s->targets)
                             : ab_tensor_download(io->in[1], s->targets));
    p->best->add(io, s->targets, p->sums);
    return AB_OK;
}

/* Adds the targets of a batch to the sums of all parts. */
static ab_status count_batch(search *s, int64_t batch) {
    AB_TRY(load(s, batch));
    for (int n = 0; n < s->plan->nodes; n++) {
        const int k = part_of(s, n);
        if (!runs(s, n)) continue;
        AB_TRY(k != NO_PART ? add_targets(s, &s->part[k]) : ab_forward_node(&s->cell->walk, n));
    }
    return AB_OK;
}

/* The loss of the constants on the loaded batch, and the outputs of the parts; that of part `raised` is
 * raised by one. */
static ab_status loss_of(search *s, int raised, double *outputs, double *loss) {
    const ab_cell_memory *memory = &s->cell->memory;
    float value;
    for (int n = 0; n < s->plan->nodes; n++) {
        const ab_plan_node *node = &s->plan->node[n];
        const int k = part_of(s, n);
        if (!runs(s, n)) continue;
        if (k != NO_PART) AB_TRY(ab_tensor_write(&memory->tensor[node->in[0]], s->part[k].prediction));
        AB_TRY(ab_forward_node(&s->cell->walk, n));
        if (k == NO_PART) continue;
        AB_TRY(ab_tensor_read(&memory->tensor[node->out], &value));
        outputs[k] = (double)value;
        value += 1.0f;
        if (k == raised) AB_TRY(ab_tensor_write(&memory->tensor[node->out], &value));
    }
    AB_TRY(ab_forward_loss(&s->cell->walk, &value));
    *loss = (double)value;
    return AB_OK;
}

/* Factors of the parts, on the loaded batch. */
static ab_status find_factors(search *s, ab_always_on_constant *constant) {
    double outputs[AB_ALWAYS_ON_PARTS], raised[AB_ALWAYS_ON_PARTS], loss, other;
    for (int k = 0; k < s->parts; k++) {
        AB_TRY(loss_of(s, NO_PART, outputs, &loss));
        AB_TRY(loss_of(s, k, raised, &other));
        const float output = (float)outputs[k];
        constant->part[k].op = ab_plan_node_op(s->plan, &s->plan->node[s->part[k].node])->name;
        constant->part[k].factor = (other - loss) / (double)(output + 1.0f - output);
    }
    return AB_OK;
}

/* ---- search --------------------------------------------------------------------------------- */

static ab_status make_room(search *s) {
    int64_t most = 1;
    for (int k = 0; k < s->parts; k++) {
        const ab_op_io *io = &s->cell->walk.io[s->part[k].node];
        const int64_t targets = ab_tensor_count(io->in[1]);
        most = targets > most ? targets : most;
        s->part[k].sums = calloc((size_t)s->part[k].best->sums(io), sizeof(double));
        s->part[k].prediction = calloc((size_t)ab_tensor_count(io->in[0]), sizeof(float));
        if (!s->part[k].sums || !s->part[k].prediction) return no_memory();
    }
    s->targets = calloc((size_t)most, sizeof(float));
    return s->targets ? AB_OK : no_memory();
}

/* Batches of `numbers` each that are read in bounded time. */
static int64_t bounded(const search *s, int64_t numbers) {
    const ab_data_order *order = &s->cell->batches.order;
    const int64_t epoch = order->count / order->batch, most = MOST_NUMBERS / (numbers > 0 ? numbers : 1);
    int64_t batches = epoch < MOST_BATCHES ? epoch : MOST_BATCHES;
    batches = most < batches ? most : batches;
    return batches > 0 ? batches : 1;
}

static ab_status find(search *s, ab_always_on_constant *constant) {
    const ab_tensor *tensor = s->cell->memory.tensor;
    int64_t numbers = ab_tensor_count(&tensor[s->plan->input]) + ab_tensor_count(&tensor[s->plan->targets]);
    for (int64_t b = 0; b < bounded(s, numbers); b++) AB_TRY(count_batch(s, b));
    for (int k = 0; k < s->parts; k++) {
        const ab_op_io *io = &s->cell->walk.io[s->part[k].node];
        s->part[k].best->predict(io, s->part[k].sums, s->part[k].prediction);
        numbers += ab_tensor_count(io->in[0]);
    }
    const int64_t batches = bounded(s, numbers);
    for (int64_t b = 0; b < batches; b++) {
        double outputs[AB_ALWAYS_ON_PARTS], loss;
        AB_TRY(load(s, b));
        AB_TRY(loss_of(s, NO_PART, outputs, &loss));
        constant->loss += loss / (double)batches;
        for (int k = 0; k < s->parts; k++) constant->part[k].loss += outputs[k] / (double)batches;
    }
    constant->parts = s->parts;
    constant->batches = batches;
    return find_factors(s, constant);
}

ab_status ab_cell_constant_loss(ab_cell *cell, ab_always_on_constant *constant) {
    search s = {.cell = cell, .plan = cell->plan};
    ab_status status = AB_OK;
    *constant = (ab_always_on_constant){.batches = 0};
    if (!cell->config.data) return AB_OK;
    cell->walk.exec.training = false;
    cell->observation.observer = NULL;
    cell->walk.runs_casts = true; /* predictions are put in the place of values */
    s.known = calloc((size_t)s.plan->tensors, sizeof *s.known);
    s.needed = calloc((size_t)s.plan->tensors, sizeof *s.needed);
    if (!s.known || !s.needed)
        status = no_memory();
    else if (mark_known(&s) && mark_needed(&s)) {
        status = make_room(&s);
        if (status == AB_OK) status = find(&s, constant);
    }
    for (int k = 0; k < s.parts; k++) {
        free(s.part[k].sums);
        free(s.part[k].prediction);
    }
    free(s.targets);
    free(s.known);
    free(s.needed);
    cell->walk.runs_casts = false;
    return status;
}
