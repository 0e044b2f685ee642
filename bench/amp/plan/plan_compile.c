/* The plan compiler: decides formats, inserts casts, wires gradients. plan_memory.c places the buffers. */
#include "bench/amp/plan/plan.h"

#include "bench/amp/layer_formats.h"
#include "kernels/core/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What wiring the backward pass knows of a tensor of the forward pass. */
typedef struct backward_use {
    int seen;       /* consumers wired so far */
    bool sums_fp32; /* a consumer's gradient is fp32 by the user's override */
} backward_use;

/* State of the compiler: the plan and what is known of each value. */
typedef struct compiler {
    ab_plan *plan;
    int *value;             /* tensor that holds the output of net op i */
    ab_shape *shape;        /* of the output of net op i */
    int *uses;              /* consumers of tensor t, counted in the forward direction */
    bool *needs_grad;       /* tensor t has trained ancestors */
    int *grad;              /* gradient tensor of tensor t, or AB_NONE */
    backward_use *backward; /* of tensor t; from wire_backward on */
    int model_input;        /* the model's input, cast at O2 and O3 */
    int states;
    ab_layer_format *own; /* format overrides of net op i */
} compiler;

static const ab_format *const fp32 = &ab_format_fp32;

static void *grow(void *array, int count, size_t item) {
    /* capacity is a power of two: grow when count reaches one */
    if (count & (count - 1)) return array;
    return realloc(array, (size_t)(count ? 2 * count : 1) * item);
}

/* Keeps sums of bytes within int64_t, whatever an op derives from its inputs' shapes. */
static ab_status check_bounds(const ab_plan *plan, const ab_plan_tensor *tensor) {
    char text[AB_SHAPE_TEXT];
    if (ab_shape_in_bounds(&tensor->shape)) return AB_OK;
    return ab_fail(AB_CONFIG, "%s: tensor '%s': expected 1 to 2^40 elements, found %s", plan->net->path,
                   tensor->name, ab_shape_text(&tensor->shape, text));
}

static ab_status add_tensor(compiler *c, ab_plan_tensor tensor, int *number) {
    ab_plan *plan = c->plan;
    int n = plan->tensors;
    AB_TRY(check_bounds(plan, &tensor));
    ab_plan_tensor *tensors = grow(plan->tensor, n, sizeof *tensors);
    if (tensors) plan->tensor = tensors;
    int *uses = grow(c->uses, n, sizeof *uses);
    if (uses) c->uses = uses;
    bool *needs = grow(c->needs_grad, n, sizeof *needs);
    if (needs) c->needs_grad = needs;
    int *grads = grow(c->grad, n, sizeof *grads);
    if (grads) c->grad = grads;
    if (!tensors || !uses || !needs || !grads) return ab_fail(AB_NO_MEMORY, "plan: out of memory");
    int64_t count = ab_shape_count(&tensor.shape);
    tensor.bytes = ab_mem_rounded(tensor.format ? (int64_t)ab_format_bytes(tensor.format, count)
                                                : count * (int64_t)sizeof(int32_t));
    plan->tensor[n] = tensor;
    c->uses[n] = 0;
    c->needs_grad[n] = false;
    c->grad[n] = AB_NONE;
    plan->tensors = n + 1;
    *number = n;
    return AB_OK;
}

AB_PRINTF(7, 8)
static ab_status add_named(compiler *c, ab_shape shape, const ab_format *format, ab_mem_category category,
                           bool transient, int *number, const char *name, ...) {
    ab_plan_tensor tensor = {
        .shape = shape, .format = format, .category = category, .transient = transient, .shares = AB_NONE};
    va_list args;
    va_start(args, name);
    ab_text_show_args(tensor.name, sizeof tensor.name, name, args);
    va_end(args);
    return add_tensor(c, tensor, number);
}

static ab_status add_node(compiler *c, ab_plan_node node) {
    ab_plan *plan = c->plan;
    ab_plan_node *nodes = grow(plan->node, plan->nodes, sizeof *nodes);
    if (!nodes) return ab_fail(AB_NO_MEMORY, "plan: out of memory");
    plan->node = nodes;
    node.out_grad = node.add = node.relu = node.head = node.front = node.behind = AB_NONE;
    node.past.out = node.past.out_grad = AB_NONE;
    for (int i = 0; i < AB_MAX_INPUTS; i++)
        node.in_grad[i] = node.in_sum[i] = node.past.in[i] = node.past.in_grad[i] = AB_NONE;
    for (int i = 0; i < node.inputs; i++) c->uses[node.in[i]]++;
    plan->node[plan->nodes++] = node;
    return AB_OK;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static bool has_weights(const ab_net_op *op) {
    for (int i = 0; i < op->params; i++)
        if (op->param[i].kind == AB_PARAM_WEIGHT) return true;
    return false;
}

static const ab_format *own_format(const compiler *c, const ab_net_op *op) {
    return c->own[op - c->plan->net->op].whole;
}

static const ab_format *role_format(const compiler *c, const ab_net_op *op, ab_layer_role role) {
    return c->own[op - c->plan->net->op].role[role];
}

/* The rule of the level's list for the op, at levels that cast functions. */
static ab_op_rule rule_of(const compiler *c, const ab_net_op *op) {
    return c->plan->policy.patch_torch_functions ? ab_op_rule_of(c->plan->policy.list, op->op_row)
                                                 : AB_RULE_follow;
}

static bool is_low(ab_op_rule rule) { return rule == AB_RULE_low || rule == AB_RULE_low_in; }

/* apex keeps batch norms in fp32 only if they are affine. */
static bool keeps_fp32(const compiler *c, const ab_net_op *op) {
    const ab_policy *policy = &c->plan->policy;
    bool listed =
        policy->list == AB_LIST_mindspore && ab_op_rule_of(policy->list, op->op_row) == AB_RULE_keep;
    return (op->op->batch_norm || listed) && policy->keep_batchnorm_fp32 == AB_TRI_true && has_weights(op);
}

static const ab_format *model_format(const compiler *c, const ab_net_op *op, ab_param_kind kind) {
    const ab_policy *policy = &c->plan->policy;
    if (kind == AB_PARAM_BUFFER && policy->batch_norm_statistics != AB_CAST_none)
        return policy->batch_norm_statistics == AB_CAST_half ? policy->half : fp32;
    bool half = policy->cast_model_type == AB_CAST_half && !policy->weights_read_as_half;
    return half && own_format(c, op) != fp32 && !keeps_fp32(c, op) ? policy->half : fp32;
}

/* Weights overridden to fp32 are stored in fp32. Weights overridden to half in a model with fp32 weights are
 * cast once per step. */
static const ab_format *stored_format(const compiler *c, const ab_net_op *op, ab_param_kind kind) {
    const bool own = kind == AB_PARAM_WEIGHT && role_format(c, op, AB_LAYER_WEIGHTS) == fp32;
    return own ? fp32 : model_format(c, op, kind);
}

/* The format in which the op reads a parameter, without role overrides. Running statistics are read as stored
 * if they are updated. Batch norms mix formats, so a layer override does not change their parameters. */
static const ab_format *op_format(const compiler *c, const ab_net_op *op, ab_param_kind kind) {
    const ab_policy *policy = &c->plan->policy;
    const ab_format *stored = model_format(c, op, kind);
    bool moves = op->op->batch_norm && !ab_net_op_frozen(op);
    if (own_format(c, op) && !moves) return own_format(c, op);
    if (kind == AB_PARAM_BUFFER || own_format(c, op)) return stored;
    if (is_low(rule_of(c, op))) return policy->half;
    bool read = policy->weights_read_as_half && policy->cast_model_type == AB_CAST_half;
    return read && !keeps_fp32(c, op) ? policy->half : stored;
}

static const ab_format *used_format(const compiler *c, const ab_net_op *op, ab_param_kind kind) {
    const ab_format *own = kind == AB_PARAM_WEIGHT ? role_format(c, op, AB_LAYER_WEIGHTS) : NULL;
    return own ? own : op_format(c, op, kind);
}

/* The format in which its backward pass writes the gradient. */
static const ab_format *weight_gradient_format(const compiler *c, const ab_net_op *op) {
    const ab_format *own = role_format(c, op, AB_LAYER_WGRAD);
    return own ? own : op_format(c, op, AB_PARAM_WEIGHT);
}

static const ab_format *state_format(const compiler *c, const ab_format *weight) {
    return c->plan->policy.keep.state_format ? c->plan->policy.keep.state_format : weight;
}

/* Each scaler's gradients are unscaled separately and summed unscaled. */
static bool own_scales(const compiler *c) { return c->plan->scalers > 1; }

/* Adds the gradient, in the stored format or in fp32 if overridden, and the tensor that the backward pass
 * writes. */
static ab_status add_gradients(compiler *c, ab_plan_param *param, const char *name, bool apart) {
    const ab_net_op *op = &c->plan->net->op[param->net_op];
    const ab_plan_tensor stored = c->plan->tensor[param->stored];
    const ab_format *made = weight_gradient_format(c, op);
    const bool fp32_role = role_format(c, op, AB_LAYER_WGRAD) == fp32;
    const ab_format *kept = fp32_role ? fp32 : stored.format;
    AB_TRY(add_named(c, stored.shape, kept, AB_MEM_gradients, false, &param->grad, "%s.grad", name));
    param->used_grad = param->sum = param->grad;
    if (made != kept)
        return add_named(c, stored.shape, made, AB_MEM_casts, true, &param->used_grad, "%s.%s.grad", name,
                         made == fp32 ? "fp32" : "half");
    if (!apart) return AB_OK;
    return add_named(c, stored.shape, made, AB_MEM_gradients, true, &param->used_grad, "%s.grad.micro", name);
}

static ab_status add_states(compiler *c, ab_plan_param *param, const char *name, const ab_format *format) {
    static const ab_shape one = {.ndim = 1, .dim = {1}};
    for (int i = 0; i < c->states; i++) {
        const bool scalar = c->plan->policy.keep.scalar_states >> i & 1u;
        AB_TRY(add_named(c, scalar ? one : c->plan->tensor[param->stored].shape, scalar ? fp32 : format,
                         AB_MEM_optimizer_state, false, &param->state[i], "%s.state%d", name, i));
    }
    return AB_OK;
}

static ab_status add_training_state(compiler *c, ab_plan_param *param, const char *name, bool lent) {
    const ab_plan_tensor stored = c->plan->tensor[param->stored];
    bool half = stored.format != fp32;
    bool master = half && c->plan->policy.master_weights == AB_TRI_true;
    const ab_keep *keep = &c->plan->policy.keep;
    const bool in_place = !master || keep->half_sums; /* micro-batches are summed where they are made */
    AB_TRY(add_gradients(c, param, name, (keep->micro_batches && in_place && !own_scales(c)) || lent));
    if (master) {
        AB_TRY(add_named(c, stored.shape, fp32, AB_MEM_master_weights, false, &param->master, "%s.master",
                         name));
        AB_TRY(add_named(c, stored.shape, fp32, AB_MEM_gradients, false, &param->master_grad,
                         "%s.master.grad", name));
    }
    if (own_scales(c) && !master)
        AB_TRY(add_named(c, stored.shape, c->plan->tensor[param->grad].format, AB_MEM_gradients, false,
                         &param->total, "%s.grad.total", name));
    AB_TRY(add_states(c, param, name, state_format(c, master ? fp32 : stored.format)));
    if (c->plan->policy.keep.ema_format)
        AB_TRY(add_named(c, stored.shape, c->plan->policy.keep.ema_format, AB_MEM_optimizer_state, false,
                         &param->ema, "%s.ema", name));
    return AB_OK;
}

static int param_of(const ab_plan *plan, const ab_net_share *share) {
    int p = 0;
    while (plan->param[p].net_op != share->op || plan->param[p].index != share->index) p++;
    return p;
}

/* A parameter shared with an earlier op: its gradient is added to the owner's, before those of the ops
 * between. */
static ab_status borrow(compiler *c, ab_plan_param *param, int owner, const char *name) {
    ab_plan *plan = c->plan;
    ab_shape shape = plan->tensor[plan->param[owner].stored].shape;
    const bool trained = plan->param[owner].grad != AB_NONE;
    for (int p = 0; p < plan->params && trained; p++)
        if (p == owner || plan->param[p].owner == owner) plan->param[p].adds = true;
    param->owner = owner;
    param->stored = param->used = plan->param[owner].stored;
    param->sum = plan->param[owner].grad;
    const ab_net_op *op = &plan->net->op[param->net_op];
    const ab_format *stored = plan->tensor[param->stored].format, *used = used_format(c, op, AB_PARAM_WEIGHT);
    if (used != stored) {
        AB_TRY(add_named(c, shape, used, AB_MEM_casts, false, &param->used, "%s.half", name));
        plan->weight_casts++;
    }
    if (!trained) return AB_OK;
    return add_named(c, shape, weight_gradient_format(c, op), AB_MEM_gradients, true, &param->used_grad,
                     "%s.grad", name);
}

static ab_status add_param(compiler *c, int net_op, int index) {
    ab_plan *plan = c->plan;
    const ab_net_op *op = &plan->net->op[net_op];
    const ab_param_spec *spec = &op->param[index];
    ab_plan_param *params = grow(plan->param, plan->params, sizeof *params);
    if (!params) return ab_fail(AB_NO_MEMORY, "plan: out of memory");
    plan->param = params;
    ab_plan_param param = {.net_op = net_op,
                           .index = index,
                           .used_grad = AB_NONE,
                           .grad = AB_NONE,
                           .sum = AB_NONE,
                           .owner = AB_NONE,
                           .master = AB_NONE,
                           .master_grad = AB_NONE,
                           .total = AB_NONE,
                           .state = {AB_NONE, AB_NONE, AB_NONE},
                           .ema = AB_NONE};
    char name[AB_PLAN_NAME];
    ab_text_exact(name, sizeof name, "%s.%s", op->name, spec->name);
    if (op->shared[index].op >= 0) {
        AB_TRY(borrow(c, &param, param_of(plan, &op->shared[index]), name));
        plan->param[plan->params++] = param;
        return AB_OK;
    }
    const ab_format *stored = stored_format(c, op, spec->kind), *used = used_format(c, op, spec->kind);
    AB_TRY(add_named(c, spec->shape, stored, AB_MEM_weights, false, &param.stored, "%s", name));
    param.used = param.stored;
    if (used != stored) {
        AB_TRY(add_named(c, spec->shape, used, AB_MEM_casts, false, &param.used, "%s.%s", name,
                         used == fp32 ? "fp32" : "half"));
        plan->weight_casts++;
    }
    if (spec->kind == AB_PARAM_WEIGHT && !op->untrained[index])
        AB_TRY(add_training_state(c, &param, name, op->lent[index]));
    plan->param[plan->params++] = param;
    return AB_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

static ab_status add_cast(compiler *c, int net_op, int from, const ab_format *format, int *to) {
    ab_plan_tensor source = c->plan->tensor[from];
    AB_TRY(add_named(c, source.shape, format, AB_MEM_casts, true, to, "%.*s.%s", AB_PLAN_NAME - 24,
                     source.name, format->name));
    c->needs_grad[*to] = c->needs_grad[from];
    c->plan->activation_casts++;
    return add_node(
        c, (ab_plan_node){.kind = AB_NODE_CAST, .net_op = net_op, .inputs = 1, .in = {from}, .out = *to});
}

/* torch promotes mixed inputs to the widest format, the weights of the op included. */
static bool formats_differ(const compiler *c, const ab_net_op *op, const int *in) {
    bool weights = op->params > 0 && ab_op_class_at(op->op_row) == AB_CLASS_promote;
    const ab_format *first = weights ? op_format(c, op, AB_PARAM_WEIGHT) : NULL;
    for (int i = 0; i < op->inputs; i++) {
        const ab_format *format = c->plan->tensor[in[i]].format;
        if (first && format && format != first) return true;
        if (!first) first = format;
    }
    return false;
}

/* MindSpore's and Keras's layers cast their inputs to their own format; so does every layer if there are
 * layer overrides. For apex and torch mixed formats are an error (check_formats). */
static bool layers_cast(const ab_policy *policy) { return policy->layers || policy->weights_read_as_half; }

/* cast_model_outputs=half hands half outputs to the loss, and a function that is not patched computes in the
 * format of its inputs (O0, O2, O3). */
static bool losses_follow(const ab_policy *policy) {
    return policy->cast_model_outputs == AB_CAST_half && policy->cast_model_type != AB_CAST_none;
}

/* The format that op's floating inputs are cast to, or NULL to leave each as it is. */
static const ab_format *input_format(const compiler *c, const ab_net_op *op, const int *in) {
    const ab_policy *policy = &c->plan->policy;
    ab_op_rule rule = rule_of(c, op);
    const bool follows = op->outside && losses_follow(policy);
    if (follows) return formats_differ(c, op, in) ? fp32 : NULL;
    if (op->op->is_loss) return fp32; /* model outputs are cast to fp32, or the loss is on the fp32 list */
    if (own_format(c, op)) return own_format(c, op);
    if (op->outside && policy->cast_model_type != AB_CAST_none) return fp32; /* likewise */
    if (is_low(rule)) return policy->half;
    if (rule == AB_RULE_fp32 || rule == AB_RULE_fp32_out) return fp32;
    if ((ab_op_class_at(op->op_row) == AB_CLASS_low || op->op->mixed_twin) && op->params)
        return layers_cast(policy) ? op_format(c, op, AB_PARAM_WEIGHT) : NULL;
    const bool promotes = ab_op_class_at(op->op_row) == AB_CLASS_promote;
    if (promotes && op->params && policy->layers) return op_format(c, op, AB_PARAM_WEIGHT);
    return formats_differ(c, op, in) ? fp32 : NULL;
}

/* apex rejects cross entropy of half probabilities: a probability that rounds to 1 has loss 0. torch's CUDA
 * autocast rejects it for every format; on the CPU it runs in fp32. */
static ab_status check_banned(const compiler *c, const ab_net_op *op, const int *in) {
    const ab_plan *plan = c->plan;
    if (rule_of(c, op) != AB_RULE_banned || own_format(c, op) == fp32) return AB_OK;
    for (int i = 0; i < op->inputs; i++) {
        const ab_format *format = plan->tensor[in[i]].format;
        if (!format || (format == fp32 && plan->policy.list == AB_LIST_apex)) continue;
        return ab_fail(
            AB_CONFIG,
            "%s:%d: op '%s' (%s): refused under %s with %s probabilities, as apex and torch.autocast "
            "refuse it: they round to 0 and 1; use bce_with_logits on what the sigmoid reads",
            plan->net->path, op->line, op->name, op->op->name, plan->policy.level, format->name);
    }
    return AB_OK;
}

/* Casts the model's outputs that are read outside of the model. */
static ab_status cast_outputs(compiler *c, int net_op, int *in) {
    const ab_policy *policy = &c->plan->policy;
    const ab_net_op *ops = c->plan->net->op, *op = &ops[net_op];
    if (!op->outside || policy->cast_model_outputs == AB_CAST_none) return AB_OK;
    const ab_format *wanted = policy->cast_model_outputs == AB_CAST_half ? policy->half : fp32;
    for (int i = 0; i < op->inputs; i++) {
        bool returned = op->input[i] >= 0 && !ops[op->input[i]].outside;
        const ab_format *found = c->plan->tensor[in[i]].format;
        if (returned && found && found != wanted) AB_TRY(add_cast(c, net_op, in[i], wanted, &in[i]));
    }
    return AB_OK;
}

static ab_status cast_inputs(compiler *c, int net_op, int *in) {
    const ab_net_op *op = &c->plan->net->op[net_op];
    AB_TRY(check_banned(c, op, in));
    const ab_format *wanted = input_format(c, op, in);
    for (int i = 0; i < op->inputs; i++) {
        const ab_format *found = c->plan->tensor[in[i]].format;
        if (wanted && found && found != wanted) AB_TRY(add_cast(c, net_op, in[i], wanted, &in[i]));
    }
    return AB_OK;
}

static ab_status add_saved(compiler *c, int net_op, ab_plan_node *node) {
    const ab_net_op *op = &c->plan->net->op[net_op];
    if (!op->op->saved) return AB_OK;
    ab_shape in[AB_MAX_INPUTS], shape[AB_MAX_SAVED];
    const ab_format *format[AB_MAX_SAVED];
    for (int i = 0; i < op->inputs; i++) in[i] = c->plan->tensor[node->in[i]].shape;
    node->saves = op->op->saved(op->attrs, in, &c->shape[net_op], shape, format);
    for (int i = 0; i < node->saves; i++)
        AB_TRY(add_named(c, shape[i], format[i], AB_MEM_activations, true, &node->saved[i], "%s.saved%d",
                         op->name, i));
    return AB_OK;
}

static int tensor_of(const compiler *c, int net_value) {
    if (net_value == AB_NET_INPUT) return c->model_input;
    return net_value == AB_NET_TARGETS ? c->plan->targets : c->value[net_value];
}

/* apex's fused norms read the parameters as if they had the input's format, and so reject others
 * (NVIDIA/apex issues 760 and 1379). */
static ab_status refuse_mixed_norm(const compiler *c, const ab_net_op *op, const ab_format *input,
                                   const ab_format *used) {
    return ab_fail(AB_CONFIG,
                   "%s:%d: op '%s' (%s): refused under %s with %s input and %s parameters, as apex refuses "
                   "it; use %s, which takes both",
                   c->plan->net->path, op->line, op->name, op->op->name, c->plan->policy.level, input->name,
                   used->name, op->op->mixed_twin);
}

/* torch rejects a half input with fp32 weights; normalisations accept both, but apex's fused ones. */
static ab_status check_formats(const compiler *c, const ab_net_op *op, const ab_plan_node *node) {
    const ab_plan *plan = c->plan;
    const ab_format *input = plan->tensor[node->in[0]].format;
    if (!input || role_format(c, op, AB_LAYER_WEIGHTS)) return AB_OK; /* ids work with any table */
    for (int i = 0; i < node->params; i++) {
        const ab_format *used = plan->tensor[plan->param[node->first_param + i].used].format;
        if (used != input && op->op->mixed_twin) return refuse_mixed_norm(c, op, input, used);
        if (used != input && !op->op->norm)
            return ab_fail(AB_CONFIG,
                           "%s:%d: op '%s' (%s): its input is %s and its %s is %s; they must agree",
                           plan->net->path, op->line, op->name, op->op->name, input->name, op->param[i].name,
                           used->name);
    }
    return AB_OK;
}

/* The format of the first floating input; ops that read only ids, and those that say so, have the format of
 * their weights. */
static const ab_format *output_format(const compiler *c, const ab_net_op *op, const ab_plan_node *node) {
    const ab_plan *plan = c->plan;
    const ab_format *own = role_format(c, op, AB_LAYER_FORWARD);
    if (own || (op->op->is_loss && !losses_follow(&plan->policy))) return own ? own : fp32;
    const ab_format *given = plan->tensor[tensor_of(c, op->input[0])].format;
    if (rule_of(c, op) == AB_RULE_low_in && given && !own_format(c, op)) return given;
    for (int i = 0; i < node->inputs && !op->op->out_as_weight; i++)
        if (plan->tensor[node->in[i]].format) return plan->tensor[node->in[i]].format;
    return node->params ? plan->tensor[plan->param[node->first_param].used].format : fp32;
}

/* Flops of a forward pass. */
static double op_flops(const compiler *c, const ab_plan_node *node) {
    const ab_net_op *op = ab_plan_node_op(c->plan, node);
    ab_shape in[AB_MAX_INPUTS];
    if (!op || !op->op->flops) return 0;
    for (int i = 0; i < op->inputs; i++) in[i] = c->plan->tensor[node->in[i]].shape;
    return op->op->flops(op->attrs, in, &c->shape[node->net_op]);
}

static int bits(unsigned set) {
    int count = 0;
    for (; set; set &= set - 1) count++;
    return count;
}

/* Flops of the forward pass, and per backward pass that reaches the node those of its weight and input
 * gradients and of recomputation. */
static void add_flops(compiler *c) {
    ab_plan *plan = c->plan;
    unsigned recompute_passes = 0;
    for (int n = plan->nodes - 1; n >= 0; n--) {
        const ab_plan_node *node = &plan->node[n];
        const double forward = op_flops(c, node);
        if (node->recompute_first != AB_NONE) recompute_passes = node->recompute_passes;
        const ab_net_op *op = ab_plan_node_op(plan, node);
        int gradients = op && ab_net_op_trains(op);
        for (int i = 0; i < node->inputs; i++) gradients += node->in[i] >= 0 && c->needs_grad[node->in[i]];
        plan->flops += forward + bits(node->passes) * ab_plan_backward_flops(op, forward, gradients);
        if (node->recomputed) plan->flops += forward * bits(recompute_passes);
    }
}

static bool is_view(const ab_net_op *op, const ab_shape *in) {
    return op->op->is_view && op->op->is_view(op->attrs, in);
}

/* The output of a view shares the memory of its input. */
static void share_view(compiler *c, const ab_net_op *op, int in, int out) {
    ab_plan_tensor *tensor = c->plan->tensor;
    if (is_view(op, &tensor[in].shape) && tensor[in].format == tensor[out].format) tensor[out].shares = in;
}

static ab_status add_op(compiler *c, int net_op) {
    ab_plan *plan = c->plan;
    const ab_net_op *op = &plan->net->op[net_op];
    ab_plan_node node = {
        .kind = AB_NODE_OP, .net_op = net_op, .inputs = op->inputs, .frozen = ab_net_op_frozen(op)};
    for (int i = 0; i < op->inputs; i++) node.in[i] = tensor_of(c, op->input[i]);
    AB_TRY(cast_outputs(c, net_op, node.in));
    AB_TRY(cast_inputs(c, net_op, node.in));
    node.first_param = plan->params;
    for (int i = 0; i < op->params; i++) AB_TRY(add_param(c, net_op, i));
    node.params = op->params;
    AB_TRY(check_formats(c, op, &node));
    AB_TRY(add_named(c, c->shape[net_op], output_format(c, op, &node), AB_MEM_activations, true, &node.out,
                     "%s.out", op->name));
    share_view(c, op, node.in[0], node.out);
    bool needs = ab_net_op_trains(op);
    for (int i = 0; i < op->inputs; i++) needs = needs || c->needs_grad[node.in[i]];
    c->needs_grad[node.out] = needs;
    AB_TRY(add_saved(c, net_op, &node));
    c->value[net_op] = node.out;
    return add_node(c, node);
}

static ab_status add_model_input(compiler *c) {
    ab_plan *plan = c->plan;
    const ab_net *net = plan->net;
    AB_TRY(add_named(c, ab_net_input_shape(net, plan->batch), ab_data_ids_in(&net->data) ? NULL : fp32,
                     AB_MEM_input, false, &plan->input, "input"));
    AB_TRY(add_named(c, ab_net_targets_shape(net, plan->batch), ab_data_ids_out(&net->data) ? NULL : fp32,
                     AB_MEM_input, false, &plan->targets, "targets"));
    c->model_input = plan->input;
    if (plan->policy.cast_model_type != AB_CAST_half || ab_data_ids_in(&net->data)) return AB_OK;
    return add_cast(c, AB_NONE, plan->input, plan->policy.half, &c->model_input);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The gradient of a view's input shares the memory of its output's gradient. */
static void share_gradient(compiler *c, const ab_plan_node *node, int i) {
    const ab_net_op *op = ab_plan_node_op(c->plan, node);
    ab_plan_tensor *tensor = c->plan->tensor;
    if (!op || i != 0 || node->out_grad == AB_NONE || !is_view(op, &tensor[node->in[0]].shape)) return;
    const ab_plan_tensor *out = &tensor[node->out_grad];
    if (out->transient && out->format == tensor[node->in_grad[0]].format)
        tensor[node->in_grad[0]].shares = node->out_grad;
}

/* The user's format override for the input gradients of a node; a cast belongs to the op that needs it. */
static const ab_format *own_gradient_format(const compiler *c, const ab_plan_node *node) {
    return node->net_op == AB_NONE ? NULL : role_format(c, &c->plan->net->op[node->net_op], AB_LAYER_DGRAD);
}

/* Format in which a node writes the gradient of input i: that of the input, unless it is overridden or the op
 * passes the incoming format on. */
static const ab_format *gradient_format(const compiler *c, const ab_plan_node *node, int i) {
    const ab_plan_tensor *tensor = c->plan->tensor;
    const ab_format *own = own_gradient_format(c, node);
    const ab_net_op *op = ab_plan_node_op(c->plan, node);
    if (own || !op || node->out_grad == AB_NONE) return own ? own : tensor[node->in[i]].format;
    const ab_format *comes = tensor[node->out_grad].format;
    const bool follows = ab_op_class_at(op->op_row) == AB_CLASS_follow && comes != tensor[node->out].format;
    return follows ? comes : tensor[node->in[i]].format;
}

/* The gradients of a value with several consumers are summed in fp32 if any of them is fp32 by the user's
 * override. */
static void mark_fp32_sums(const compiler *c) {
    for (int n = 0; n < c->plan->nodes; n++) {
        const ab_plan_node *node = &c->plan->node[n];
        if (own_gradient_format(c, node) != fp32) continue;
        for (int i = 0; i < node->inputs; i++) c->backward[node->in[i]].sums_fp32 = true;
    }
}

static const ab_format *sum_format(const compiler *c, int value) {
    return c->backward[value].sums_fp32 ? fp32 : c->plan->tensor[value].format;
}

/* Assigns the tensor to which a node's backward pass writes the gradient of input i. The consumer that runs
 * first in the backward pass writes the gradient directly; a later one, or one with another format, writes a
 * temporary that is added to it. */
static ab_status wire_input_grad(compiler *c, ab_plan_node *node, int i) {
    const int t = node->in[i];
    int *seen = &c->backward[t].seen;
    if (!c->needs_grad[t]) return AB_OK;
    const ab_plan_tensor value = c->plan->tensor[t];
    const ab_format *made = gradient_format(c, node, i), *kept = c->uses[t] > 1 ? sum_format(c, t) : made;
    const bool first = c->grad[t] == AB_NONE;
    if (first) {
        int grad; /* c->grad may be reallocated while the tensor is added */
        AB_TRY(add_named(c, value.shape, kept, AB_MEM_activation_gradients, true, &grad, "%.*s.grad",
                         AB_PLAN_NAME - 8, value.name));
        node->in_grad[i] = c->grad[t] = grad;
    }
    if (!first || made != kept) {
        AB_TRY(add_named(c, value.shape, made, AB_MEM_activation_gradients, true, &node->in_grad[i],
                         "%.*s.grad.%d", AB_PLAN_NAME - 24, value.name, *seen));
        node->in_sum[i] = c->grad[t];
        node->starts_grad_sum[i] = first;
    }
    share_gradient(c, node, i);
    ++*seen;
    node->in_final[i] = *seen == c->uses[t];
    return AB_OK;
}

/* The loss gradients, to which the step loop writes the loss scale. */
static ab_status add_loss_grad(compiler *c, int i) {
    ab_plan *plan = c->plan;
    const ab_plan_tensor loss = plan->tensor[plan->loss[i]];
    AB_TRY(add_named(c, loss.shape, loss.format, AB_MEM_activation_gradients, false, &plan->loss_grad[i],
                     "%.*s.grad", AB_PLAN_NAME - 8, c->plan->net->op[plan->net->loss[i].op].name));
    c->grad[plan->loss[i]] = plan->loss_grad[i];
    return AB_OK;
}

static ab_status wire_backward(compiler *c) {
    ab_plan *plan = c->plan;
    c->backward = calloc((size_t)plan->tensors, sizeof *c->backward);
    if (!c->backward) return ab_fail(AB_NO_MEMORY, "plan: out of memory");
    mark_fp32_sums(c);
    for (int i = 0; i < plan->losses; i++) AB_TRY(add_loss_grad(c, i));
    for (int n = plan->nodes - 1; n >= 0; n--) {
        plan->node[n].out_grad = c->grad[plan->node[n].out];
        for (int i = 0; i < plan->node[n].inputs; i++) AB_TRY(wire_input_grad(c, &plan->node[n], i));
    }
    return AB_OK;
}

static int node_of(const ab_plan *plan, int net_op) {
    int n = 0;
    while (plan->node[n].kind != AB_NODE_OP || plan->node[n].net_op != net_op) n++;
    return n;
}

/* Recomputation must not update running statistics again: it writes to buffers shared by all ops. */
static ab_status add_recompute_buffers(compiler *c) {
    ab_plan *plan = c->plan;
    ab_shape largest[AB_MAX_PARAMS] = {{0}};
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        const ab_param_spec *spec = &plan->net->op[param->net_op].param[param->index];
        ab_shape *most = &largest[param->index];
        bool buffer = spec->kind == AB_PARAM_BUFFER && plan->net->op[param->net_op].recompute;
        if (buffer && (most->ndim == 0 || ab_shape_count(&spec->shape) > ab_shape_count(most)))
            *most = spec->shape;
    }
    for (int i = 0; i < AB_MAX_PARAMS; i++) {
        plan->recompute_buffer[i] = AB_NONE;
        if (largest[i].ndim)
            AB_TRY(add_named(c, largest[i], fp32, AB_MEM_workspace, false, &plan->recompute_buffer[i],
                             "recompute.buffer%d", i));
    }
    return AB_OK;
}

static ab_status check_statistics(const ab_plan *plan) {
    if (plan->policy.batch_norm_statistics == AB_CAST_none) return AB_OK;
    for (int i = 0; i < plan->net->ops; i++)
        if (plan->net->op[i].op->batch_norm) return AB_OK;
    return ab_fail(AB_CONFIG, "--set batch_norm_statistics: network %s has no batch norms", plan->net->name);
}

static int scores_of(const compiler *c) {
    const ab_net *net = c->plan->net;
    if (net->scores >= 0) return c->value[net->scores];
    return net->scored < 0 ? AB_NONE : c->plan->node[node_of(c->plan, net->scored)].in[0];
}

static ab_status compile(compiler *c) {
    ab_plan *plan = c->plan;
    AB_TRY(check_statistics(plan));
    AB_TRY(ab_net_infer(plan->net, plan->batch, c->shape));
    AB_TRY(add_model_input(c));
    for (int i = 0; i < plan->net->ops; i++) AB_TRY(add_op(c, i));
    for (int i = 0; i < plan->losses; i++) plan->loss[i] = c->value[plan->net->loss[i].op];
    plan->logits = scores_of(c);
    AB_TRY(wire_backward(c));
    AB_TRY(ab_plan_schedule(plan));
    AB_TRY(ab_plan_passes(plan));
    add_flops(c);
    AB_TRY(add_recompute_buffers(c));
    AB_TRY(ab_plan_pass_casts(plan));
    ab_plan_norm_tails(plan);
    AB_TRY(ab_plan_alias_gradients(plan));
    AB_TRY(ab_plan_place(plan));
    ab_plan_product_tails(plan);
    return AB_OK;
}

ab_status ab_plan_create(const ab_net *net, const ab_policy *policy, int64_t batch, int states,
                         ab_plan **result) {
    ab_status status = AB_OK;
    compiler c = {.states = states};
    ab_plan *plan = calloc(1, sizeof *plan);
    c.value = calloc((size_t)net->ops, sizeof *c.value);
    c.shape = calloc((size_t)net->ops, sizeof *c.shape);
    c.own = calloc((size_t)net->ops, sizeof *c.own);
    if (!plan || !c.value || !c.shape || !c.own) {
        status = ab_fail(AB_NO_MEMORY, "plan: out of memory");
        goto out;
    }
    plan->net = net;
    plan->policy = *policy;
    plan->batch = batch;
    c.plan = plan;
    AB_TRY_GOTO(ab_layer_formats(policy->layers, net, policy->half, c.own));
    AB_TRY_GOTO(ab_plan_scalers(plan));
    AB_TRY_GOTO(compile(&c));
    *result = plan;
    plan = NULL;
out:
    ab_plan_destroy(plan);
    free(c.value);
    free(c.shape);
    free(c.own);
    free(c.uses);
    free(c.needs_grad);
    free(c.grad);
    free(c.backward);
    return status;
}

void ab_plan_destroy(ab_plan *plan) {
    if (!plan) return;
    free(plan->tensor);
    free(plan->node);
    free(plan->param);
    free(plan);
}
