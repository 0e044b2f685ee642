/* Statistics of gradients and weights are taken on fp32 copies. */
#include "bench/train/pass/layer_scales.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NO_LAYER = -1 };
static const double largest_half = 65504, least_target = 0.125; /* from the original, for fp16 */

struct ab_layer_scales {
    const ab_cell_memory *memory;     /* borrowed */
    const ab_step_position *position; /* borrowed */
    const ab_scaler_kind *kind;
    int count;
    ab_scaler *scaler; /* [count] */
    ab_scaler *before; /* [count]: state before this step, for a replay */
    double *scale;     /* [count]: of the current step */
    int *node;         /* [count]: of the plan */
    int *of_node;      /* [plan->nodes]: its layer, or NO_LAYER */
    double *chain;     /* [plan->tensors]: of activation gradients */
    double *of_param;  /* [plan->params]: the chain of its gradient */
    float *values;     /* scratch for the largest gradient or weight */
};

/* ---- life ------------------------------------------------------------------------------------ */

/* A layer whose input gradient is a product with its weights; the original supports these two. */
static bool is_layer(const ab_plan *plan, const ab_plan_node *node) {
    const ab_net_op *op = ab_plan_node_op(plan, node);
    if (!op || node->out_grad == AB_NONE) return false;
    const bool product = strcmp(op->op->name, "linear") == 0 || strcmp(op->op->name, "conv2d") == 0;
    return product && plan->tensor[node->out_grad].format != &ab_format_fp32;
}

static ab_status check_shares(const ab_plan *plan) {
    for (int p = 0; p < plan->params; p++)
        if (plan->param[p].owner != AB_NONE)
            return ab_fail(
                AB_CONFIG,
                "loss scaler adaloss: op '%s' reads another op's weights, whose gradients would have two "
                "scales; the original has no such layers",
                plan->net->op[plan->param[p].net_op].name);
    return AB_OK;
}

static void count_values(const ab_plan *plan, int tensor, int64_t *most) {
    const int64_t n = tensor == AB_NONE ? 0 : ab_shape_count(&plan->tensor[tensor].shape);
    if (n > *most) *most = n;
}

static int64_t most_values(const ab_plan *plan) {
    int64_t most = 1;
    for (int n = 0; n < plan->nodes; n++) {
        const ab_plan_node *node = &plan->node[n];
        count_values(plan, node->out_grad, &most);
        if (node->params) count_values(plan, plan->param[node->first_param].used, &most);
        for (int i = 0; i < node->inputs; i++) count_values(plan, node->in_grad[i], &most);
    }
    return most;
}

static ab_status allocate(const ab_plan *plan, ab_layer_scales *l) {
    const size_t nodes = (size_t)plan->nodes + 1;
    l->scaler = calloc(nodes, sizeof *l->scaler);
    l->before = calloc(nodes, sizeof *l->before);
    l->scale = calloc(nodes, sizeof *l->scale);
    l->node = calloc(nodes, sizeof *l->node);
    l->of_node = calloc(nodes, sizeof *l->of_node);
    l->chain = calloc((size_t)plan->tensors + 1, sizeof *l->chain);
    l->of_param = calloc((size_t)plan->params + 1, sizeof *l->of_param);
    l->values = malloc(((size_t)most_values(plan) + 1) * sizeof *l->values);
    const bool all =
        l->scaler && l->before && l->scale && l->node && l->of_node && l->chain && l->of_param && l->values;
    return all ? AB_OK : ab_fail(AB_NO_MEMORY, "cell: out of memory");
}

static void list_layers(ab_layer_scales *l, const ab_scaler_config *settings) {
    const ab_plan *plan = l->memory->plan;
    for (int n = 0; n < plan->nodes; n++) {
        l->of_node[n] = NO_LAYER;
        if (!is_layer(plan, &plan->node[n])) continue;
        l->of_node[n] = l->count;
        l->node[l->count] = n;
        ab_scaler_start(&l->scaler[l->count], settings);
        l->scale[l->count] = l->scaler[l->count].scale;
        l->count++;
    }
}

ab_status ab_layer_scales_create(const ab_cell_memory *memory, const ab_step_position *position,
                                 const ab_scaler_config *settings, ab_layer_scales **layers) {
    *layers = NULL;
    if (!(settings->kind->sees & AB_SEES_LAYER)) return AB_OK;
    AB_TRY(check_shares(memory->plan));
    ab_layer_scales *l = calloc(1, sizeof *l);
    if (!l) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    l->memory = memory;
    l->position = position;
    l->kind = settings->kind;
    ab_status status = allocate(memory->plan, l);
    if (status == AB_OK)
        list_layers(l, settings);
    else
        ab_layer_scales_destroy(l);
    *layers = status == AB_OK ? l : NULL;
    return status;
}

void ab_layer_scales_destroy(ab_layer_scales *l) {
    if (!l) return;
    free(l->scaler);
    free(l->before);
    free(l->scale);
    free(l->node);
    free(l->of_node);
    free(l->chain);
    free(l->of_param);
    free(l->values);
    free(l);
}

int ab_layer_scales_count(const ab_layer_scales *l) { return l ? l->count : 0; }

const char *ab_layer_scales_name(const ab_layer_scales *l, int i) {
    const ab_plan *plan = l->memory->plan;
    return ab_plan_node_op(plan, &plan->node[l->node[i]])->name;
}

ab_scaler *ab_layer_scales_scaler(ab_layer_scales *l, int i) { return &l->scaler[i]; }
const double *ab_layer_scales_values(const ab_layer_scales *l) { return l ? l->scale : NULL; }
double ab_layer_scales_of_param(const ab_layer_scales *l, int param) { return l->of_param[param]; }

/* ---- statistics ------------------------------------------------------------------------------ */

typedef struct moments {
    double mean, std, max;
} moments;

static ab_status measure(const ab_layer_scales *l, const ab_tensor *tensor, moments *m) {
    const int64_t n = ab_tensor_count(tensor);
    double sum = 0, squares = 0, max = 0;
    AB_TRY(ab_tensor_read(tensor, l->values));
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)l->values[i];
        sum += x;
        if (!(fabs(x) <= max)) max = fabs(x); /* also NaN */
    }
    const double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += ((double)l->values[i] - mean) * ((double)l->values[i] - mean);
    *m = (moments){mean, sqrt(squares / (double)n), max};
    return AB_OK;
}

/* Number of terms per element of the input gradient, as counted by the original: ignores strides and
 * groups. */
static double fan_in(const ab_shape *weight) {
    double fan = (double)weight->dim[0];
    for (int d = 2; d < weight->ndim; d++) fan *= (double)weight->dim[d];
    return fan;
}

static ab_status fail(const ab_layer_scales *l, const char *where, const ab_scaler_fault *fault) {
    return ab_fail(AB_CONFIG, "step %lld: op '%s': loss scaler %s raises (%s): %s",
                   (long long)l->position->steps, where, l->kind->name, fault->name, fault->text);
}

/* The layer's next scale, from the incoming gradient and its weights. */
static ab_status update_layer_scale(ab_layer_scales *l, int layer, double chain) {
    const ab_cell_memory *memory = l->memory;
    const ab_plan_node *node = &memory->plan->node[l->node[layer]];
    const ab_tensor *weight = &memory->tensor[memory->plan->param[node->first_param].used];
    moments g, w;
    AB_TRY(measure(l, &memory->tensor[node->out_grad], &g));
    AB_TRY(measure(l, weight, &w));
    const ab_scaler_layer about = {.g_mean = g.mean / chain,
                                   .g_std = g.std / chain,
                                   .g_max = g.max / chain,
                                   .w_mean = w.mean,
                                   .w_std = w.std,
                                   .w_max = w.max,
                                   .fan_in = fan_in(&weight->shape),
                                   .chain = chain};
    const ab_scaler_seen seen = {.layer = &about};
    const ab_scaler_fault *fault = ab_scaler_update(&l->scaler[layer], &seen).fault;
    l->scale[layer] = l->scaler[layer].scale;
    return fault ? fail(l, ab_layer_scales_name(l, layer), fault) : AB_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

void ab_layer_scales_begin(ab_layer_scales *l, bool is_replay) {
    if (!l) return;
    if (is_replay)
        memcpy(l->scaler, l->before, (size_t)l->count * sizeof *l->scaler);
    else
        memcpy(l->before, l->scaler, (size_t)l->count * sizeof *l->scaler);
    const ab_plan *plan = l->memory->plan;
    for (int i = 0; i < plan->losses; i++) l->chain[plan->loss_grad[i]] = 1;
}

/* Multiplies in place and rounds; not shown to observers, which saw the values before. */
static ab_status multiply(const ab_walk *walk, int tensor, double factor) {
    const ab_cell_memory *memory = walk->memory;
    const ab_unscale_item item = {&memory->tensor[tensor], &memory->tensor[tensor], -1, false};
    const ab_exec unobserved = ab_walk_unobserved(walk);
    bool found;
    return factor == 1 ? AB_OK : memory->backend->unscale(&unobserved, &item, 1, (float)factor, &found);
}

static ab_status layer_backward(ab_layer_scales *l, const ab_walk *walk, int n, const ab_exec *exec,
                                double chain) {
    const ab_plan_node *node = &l->memory->plan->node[n];
    const int layer = l->of_node[n];
    ab_op_io weights = walk->io[n], input = walk->io[n];
    weights.din[0] = NULL;
    for (int i = 0; i < node->params; i++) input.dparam[i] = NULL;
    AB_TRY(walk->run[n]->backward(exec, &weights));
    AB_TRY(update_layer_scale(l, layer, chain));
    if (!input.din[0]) return AB_OK;
    AB_TRY(multiply(walk, node->out_grad, l->scale[layer]));
    return walk->run[n]->backward(exec, &input);
}

ab_status ab_layer_scales_backward(ab_layer_scales *l, const ab_walk *walk, int n, const ab_exec *exec) {
    const ab_plan_node *node = &l->memory->plan->node[n];
    const int layer = l->of_node[n];
    double chain = l->chain[node->out_grad];
    for (int i = 0; i < node->params; i++) l->of_param[node->first_param + i] = chain;
    if (layer != NO_LAYER)
        AB_TRY(layer_backward(l, walk, n, exec, chain));
    else
        AB_TRY(walk->run[n]->backward(exec, &walk->io[n]));
    if (layer != NO_LAYER) chain *= l->scale[layer];
    for (int i = 0; i < node->inputs; i++)
        if (node->in_grad[i] != AB_NONE) l->chain[node->in_grad[i]] = chain;
    return AB_OK;
}

void ab_layer_scales_cast(ab_layer_scales *l, int to, int from) {
    if (l) l->chain[to] = l->chain[from];
}

/* The common chain. The original multiplies the already scaled gradients by the candidate and checks that
 * fp16 can represent the result, so the target may be less than both chains. */
static bool find_target(double a, double b, double max, double *target) {
    const double high = fmax(a, b), low = fmin(a, b);
    *target = high;
    if (max * high < largest_half) return true;
    for (*target = low; *target >= least_target && !(max * *target < largest_half);) *target /= 2;
    return max * *target < largest_half;
}

ab_status ab_layer_scales_align(ab_layer_scales *l, const ab_walk *walk, int to, int from) {
    static const ab_scaler_fault none = {
        "no_common_scale", "gradients that are added are too large for any common scale: ValueError", true};
    const ab_cell_memory *memory = walk->memory;
    moments a, b;
    double target;
    if (!l || memory->tensor[to].format == &ab_format_fp32) return AB_OK;
    AB_TRY(measure(l, &memory->tensor[to], &a));
    AB_TRY(measure(l, &memory->tensor[from], &b));
    if (!find_target(l->chain[to], l->chain[from], fmax(a.max, b.max), &target))
        return fail(l, memory->plan->tensor[to].name, &none);
    AB_TRY(multiply(walk, to, target / l->chain[to]));
    AB_TRY(multiply(walk, from, target / l->chain[from]));
    l->chain[to] = l->chain[from] = target;
    return AB_OK;
}
