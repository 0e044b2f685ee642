/* Plans: the format of every tensor at every level, the casts, and a memory layout that is proved by
 * simulating who reads and writes which bytes when. */
#include "bench/amp/plan/plan.h"

#include "bench/train/cell/cell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 4, MOST_OVERRIDES = 3 };

static const ab_format *const fp32 = &ab_format_fp32, *const fp16 = &ab_format_fp16,
                              *const bf16 = &ab_format_bf16;

static const char *const net_names[] = {"lenet5", "mlp", "resnet8"};

/* ---- cases ----------------------------------------------------------------------------------- */

typedef struct fixture {
    ab_net *net;
    ab_plan *plan;
} fixture;

static const char *layers_to; /* --to */

static ab_policy policy_of(const char *name, const ab_format *half, const char *const *overrides) {
    const ab_level *level = NULL;
    ab_policy policy;
    int count = 0;
    while (overrides && count < MOST_OVERRIDES && overrides[count]) count++;
    assert_int_equal(ab_level_find(name, &level), AB_OK);
    assert_int_equal(ab_policy_resolve(level, half, overrides, count, &policy), AB_OK);
    policy.layers = layers_to;
    return policy;
}

static fixture plan_of(const char *net, const char *level, const ab_format *half, int states,
                       const char *const *overrides) {
    fixture f;
    ab_policy policy = policy_of(level, half, overrides);
    assert_int_equal(ab_net_load(net, &f.net), AB_OK);
    assert_int_equal(ab_plan_create(f.net, &policy, BATCH, states, &f.plan), AB_OK);
    return f;
}

/* Parses {"ops": [<ops>]} with an 8x8 input. */
static ab_net *small_net(const char *ops) {
    char text[4096];
    ab_net *net;
    snprintf(text, sizeof text,
             "{\"format\": \"ampbench-net-1\", \"name\": \"small\", \"input\": {\"height\": 8, \"width\": 8, "
             "\"channels\": 2}, \"ops\": [%s]}",
             ops);
    if (ab_net_parse(text, strlen(text), "small.json", &net) != AB_OK) fail_msg("%s", ab_error_message());
    return net;
}

static fixture small_plan(const char *ops, const char *level) {
    fixture f = {.net = small_net(ops)};
    ab_policy policy = policy_of(level, fp16, NULL);
    assert_int_equal(ab_plan_create(f.net, &policy, BATCH, 1, &f.plan), AB_OK);
    return f;
}

static void drop(fixture *f) {
    ab_plan_destroy(f->plan);
    ab_net_free(f->net);
}

static const ab_plan_tensor *tensor_called(const ab_plan *plan, const char *name) {
    int found = ab_plan_find(plan, name);
    if (found == AB_NONE) fail_msg("no tensor '%s'", name);
    return &plan->tensor[found];
}

static const ab_plan_tensor *at(const ab_plan *plan, int tensor) {
    assert_in_range(tensor, 0, plan->tensors - 1);
    return &plan->tensor[tensor];
}

static bool is_low(const ab_net_op *op) {
    return strcmp(op->op->name, "conv2d") == 0 || strcmp(op->op->name, "linear") == 0;
}

/* ---- formats --------------------------------------------------------------------------------- */

/* What one level must give, in the words of apex: how activations, weights of batch norms and other weights
 * are stored. */
typedef struct expected {
    const char *level;
    const ab_format *activation, *weight, *batch_norm;
    bool masters, casts_weights;
} expected;

static void activations_have_format(const ab_plan *plan, const ab_format *format) {
    for (int n = 0; n < plan->nodes; n++) {
        const ab_net_op *op = ab_plan_node_op(plan, &plan->node[n]);
        if (!op) continue;
        bool before_first_low = format != fp32 && plan->policy.patch_torch_functions &&
                                at(plan, plan->node[n].in[0])->format == fp32 && !is_low(op);
        const ab_format *wanted = op->op->is_loss || before_first_low ? fp32 : format;
        assert_ptr_equal(at(plan, plan->node[n].out)->format, wanted);
        if (op->op->is_loss) assert_ptr_equal(at(plan, plan->node[n].in[0])->format, fp32);
        if (is_low(op)) assert_ptr_equal(at(plan, plan->node[n].in[0])->format, format);
    }
}

static void parameter_has_formats(const ab_plan *plan, const ab_plan_param *param, const expected *e) {
    const ab_net_op *op = &plan->net->op[param->net_op];
    const ab_format *stored = op->op->batch_norm ? e->batch_norm : e->weight;
    bool trained = op->param[param->index].kind == AB_PARAM_WEIGHT;
    bool master = trained && e->masters && stored != fp32;
    assert_ptr_equal(at(plan, param->stored)->format, stored);
    assert_int_equal(param->master != AB_NONE, master);
    assert_int_equal(param->master_grad != AB_NONE, master);
    assert_int_equal(param->grad != AB_NONE, trained);
    assert_int_equal(param->used != param->stored, e->casts_weights && is_low(op));
    if (param->used != param->stored) {
        assert_ptr_equal(at(plan, param->used)->format, plan->policy.half);
        assert_false(
            at(plan, param->used)->transient); /* one copy for the whole step: forward and backward */
        assert_ptr_equal(at(plan, param->used_grad)->format, plan->policy.half);
    }
    if (!trained) return;
    assert_ptr_equal(at(plan, param->grad)->format, stored);
    if (master) assert_ptr_equal(at(plan, param->master)->format, fp32);
    if (master) assert_ptr_equal(at(plan, param->master_grad)->format, fp32);
    for (int i = 0; i < 2; i++) assert_ptr_equal(at(plan, param->state[i])->format, master ? fp32 : stored);
    assert_int_equal(param->state[2], AB_NONE);
}

static void plan_has_formats(const char *net, const ab_format *half, const expected *e,
                             const char *const *overrides) {
    fixture f = plan_of(net, e->level, half, 2, overrides);
    activations_have_format(f.plan, e->activation);
    for (int p = 0; p < f.plan->params; p++) parameter_has_formats(f.plan, &f.plan->param[p], e);
    drop(&f);
}

static void levels_give_every_tensor_its_format(void **state) {
    (void)state;
    const ab_format *const halves[] = {fp16, bf16};
    for (size_t h = 0; h < AB_COUNT_OF(halves); h++) {
        const ab_format *half = halves[h];
        const expected rows[] = {{"O0", fp32, fp32, fp32, false, false},
                                 {"O1", half, fp32, fp32, false, true},
                                 {"O2", half, half, fp32, true, false},
                                 {"O3", half, half, half, false, false}};
        for (size_t r = 0; r < AB_COUNT_OF(rows); r++)
            for (size_t n = 0; n < AB_COUNT_OF(net_names); n++)
                plan_has_formats(net_names[n], half, &rows[r], NULL);
    }
}

static void overrides_change_what_they_name_and_nothing_else(void **state) {
    (void)state;
    const struct {
        const char *override[MOST_OVERRIDES];
        expected expected;
    } rows[] = {
        {{"keep_batchnorm_fp32=False"}, {"O2", fp16, fp16, fp16, true, false}},
        {{"keep_batchnorm_fp32=True"}, {"O3", fp16, fp16, fp32, false, false}},
        {{"master_weights=False"}, {"O2", fp16, fp16, fp32, false, false}},
        {{"master_weights=True"}, {"O3", fp16, fp16, fp16, true, false}},
        {{"master_weights=True", "keep_batchnorm_fp32=True"}, {"O3", fp16, fp16, fp32, true, false}},
        {{"master_weights=True"}, {"O0", fp32, fp32, fp32, false, false}}, /* nothing half: no masters */
        {{"cast_model_type=fp32"}, {"O2", fp32, fp32, fp32, false, false}},
        {{"cast_model_type=False"}, {"O3", fp32, fp32, fp32, false, false}},
        {{"cast_model_type=half"}, {"O0", fp16, fp16, fp16, false, false}},
        {{"cast_model_type=half", "keep_batchnorm_fp32=True"}, {"O0", fp16, fp16, fp32, false, false}},
        {{"patch_torch_functions=False"}, {"O1", fp32, fp32, fp32, false, false}},
        {{"cast_model_type=fp32"}, {"O1", fp16, fp32, fp32, false, true}},
    };
    for (size_t r = 0; r < AB_COUNT_OF(rows); r++)
        for (size_t n = 0; n < AB_COUNT_OF(net_names); n++)
            plan_has_formats(net_names[n], fp16, &rows[r].expected, rows[r].override);
}

/* apex exempts batch norms from the cast only if they have weights to keep. */
static void a_batch_norm_without_weights_is_converted_at_o2(void **state) {
    (void)state;
    const char *ops = "{\"name\": \"a\", \"op\": \"batch_norm2d\"}, "
                      "{\"name\": \"b\", \"op\": \"batch_norm2d\", \"affine\": false}, "
                      "{\"name\": \"f\", \"op\": \"flatten\"}, {\"name\": \"l\", \"op\": \"cross_entropy\"}";
    fixture f = small_plan(ops, "O2");
    assert_ptr_equal(tensor_called(f.plan, "a.weight")->format, fp32);
    assert_ptr_equal(tensor_called(f.plan, "a.running_var")->format, fp32);
    assert_ptr_equal(tensor_called(f.plan, "b.running_mean")->format, fp16);
    assert_ptr_equal(tensor_called(f.plan, "b.running_var")->format, fp16);
    assert_int_equal(ab_plan_find(f.plan, "b.weight"), AB_NONE);
    drop(&f);
}

static void shapes_and_bytes_are_those_of_the_tensor(void **state) {
    (void)state;
    fixture f = plan_of("lenet5", "O2", fp16, 1, NULL);
    for (int i = 0; i < f.plan->tensors; i++) {
        const ab_plan_tensor *t = &f.plan->tensor[i];
        int64_t item = !t->format || t->format == fp32 ? 4 : 2;
        assert_int_equal(t->bytes, (ab_shape_count(&t->shape) * item + 63) / 64 * 64);
    }
    const ab_shape pool1 = {4, {BATCH, 14, 14, 6}};
    assert_true(ab_shape_equal(&tensor_called(f.plan, "pool1.out")->shape, &pool1));
    assert_true(ab_shape_equal(&tensor_called(f.plan, "pool1.out.grad")->shape, &pool1));
    drop(&f);
}

/* ---- casts ----------------------------------------------------------------------------------- */

typedef struct casts {
    const char *net, *level;
    int activations, weights;
} casts;

/* lenet5 has five layers with weight and bias, mlp three, resnet8 nine bare convolutions and one linear. At
 * O1 the first layer's input and the logits are cast, at O2 and O3 the network's input and the logits. */
static void casts_are_inserted_where_formats_change_and_counted(void **state) {
    (void)state;
    static const casts rows[] = {{"lenet5", "O0", 0, 0},   {"lenet5", "O1", 2, 10}, {"lenet5", "O2", 2, 0},
                                 {"lenet5", "O3", 2, 0},   {"mlp", "O0", 0, 0},     {"mlp", "O1", 2, 6},
                                 {"mlp", "O2", 2, 0},      {"mlp", "O3", 2, 0},     {"resnet8", "O0", 0, 0},
                                 {"resnet8", "O1", 2, 11}, {"resnet8", "O2", 2, 0}, {"resnet8", "O3", 2, 0}};
    for (size_t r = 0; r < AB_COUNT_OF(rows); r++) {
        fixture f = plan_of(rows[r].net, rows[r].level, fp16, 1, NULL);
        int nodes = 0, weights = 0;
        for (int n = 0; n < f.plan->nodes; n++) nodes += f.plan->node[n].kind == AB_NODE_CAST;
        for (int p = 0; p < f.plan->params; p++) weights += f.plan->param[p].used != f.plan->param[p].stored;
        assert_int_equal(nodes, rows[r].activations);
        assert_int_equal(f.plan->activation_casts, rows[r].activations);
        assert_int_equal(weights, rows[r].weights);
        assert_int_equal(f.plan->weight_casts, rows[r].weights);
        drop(&f);
    }
}

/* A cast changes the format and nothing else, and sits between a producer and the op that asked for it. */
static void every_cast_changes_a_format(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(net_names); i++) {
        fixture f = plan_of(net_names[i], "O1", fp16, 1, NULL);
        for (int n = 0; n < f.plan->nodes; n++) {
            const ab_plan_node *node = &f.plan->node[n];
            if (node->kind != AB_NODE_CAST) continue;
            const ab_plan_tensor *from = at(f.plan, node->in[0]), *to = at(f.plan, node->out);
            assert_int_equal(node->inputs, 1);
            assert_ptr_not_equal(from->format, to->format);
            assert_true(ab_shape_equal(&from->shape, &to->shape));
            assert_int_equal(to->category, AB_MEM_casts);
            assert_true(n + 1 < f.plan->nodes);
        }
        drop(&f);
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* Each value that needs a gradient gets the contribution of each of its consumers exactly once, the first (in
 * the order of the backward pass) written, the others added; the last is marked final. */
static void gradients_of_shared_values_are_summed(const ab_plan *plan) {
    for (int t = 0; t < plan->tensors; t++) {
        int uses = 0, written = 0, added = 0, finals = 0, grad = AB_NONE;
        for (int n = plan->nodes - 1; n >= 0; n--) {
            const ab_plan_node *node = &plan->node[n];
            for (int i = 0; i < node->inputs; i++) {
                if (node->in[i] != t) continue;
                uses++;
                if (node->in_grad[i] == AB_NONE) continue;
                assert_int_equal(finals, 0); /* nothing comes after the final one */
                finals += node->in_final[i];
                if (node->in_sum[i] == AB_NONE) {
                    written++;
                    assert_int_equal(added, 0);
                    grad = node->in_grad[i];
                } else {
                    added++;
                    assert_int_equal(node->in_sum[i], grad);
                    assert_int_not_equal(node->in_grad[i], grad);
                }
                assert_ptr_equal(at(plan, node->in_grad[i])->format, at(plan, t)->format);
                assert_true(ab_shape_equal(&at(plan, node->in_grad[i])->shape, &at(plan, t)->shape));
            }
        }
        if (written == 0) continue;
        assert_int_equal(written, 1);
        assert_int_equal(written + added, uses);
        assert_int_equal(finals, 1);
        for (int n = 0; n < plan->nodes; n++)
            if (plan->node[n].out == t) assert_int_equal(plan->node[n].out_grad, grad);
    }
}

static const char *const shared_ops =
    "{\"name\": \"c\", \"op\": \"conv2d\", \"out_channels\": 2, \"kernel_size\": 1}, "
    "{\"name\": \"twice\", \"op\": \"add\", \"in\": [\"c\", \"c\"]}, "
    "{\"name\": \"r\", \"op\": \"relu\", \"in\": \"c\"}, "
    "{\"name\": \"both\", \"op\": \"add\", \"in\": [\"r\", \"twice\"]}, "
    "{\"name\": \"all\", \"op\": \"add\", \"in\": [\"c\", \"both\"]}, "
    "{\"name\": \"f\", \"op\": \"flatten\"}, {\"name\": \"l\", \"op\": \"cross_entropy\"}";

static void values_used_more_than_once_collect_all_their_gradients(void **state) {
    (void)state;
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        fixture f = small_plan(shared_ops, levels[l]), r = plan_of("resnet8", levels[l], fp16, 1, NULL);
        gradients_of_shared_values_are_summed(f.plan);
        gradients_of_shared_values_are_summed(r.plan);
        drop(&f);
        drop(&r);
    }
}

static void nothing_above_the_first_trained_layer_gets_a_gradient(void **state) {
    (void)state;
    fixture f = plan_of("mlp", "O1", fp16, 1, NULL);
    assert_int_equal(ab_plan_find(f.plan, "input.grad"), AB_NONE);
    assert_int_equal(ab_plan_find(f.plan, "flatten.out.grad"), AB_NONE);
    assert_int_not_equal(ab_plan_find(f.plan, "fc1.out.grad"), AB_NONE);
    drop(&f);
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { GRANULE = AB_MEM_ALIGN };

/* The pools of one plan, and for each granule the value in it. Values are numbered as they are written; a
 * tensor that is passed on in the memory of another has that one's. */
typedef struct pools {
    const ab_plan *plan;
    int *held[AB_MEM_CATEGORY_COUNT];
    int *value; /* of each tensor */
    int values;
    bool fused; /* ops with a tail compute it */
} pools;

/* The tensor whose memory it is, if that is in a pool; else NULL. */
static const ab_plan_tensor *place_of(const pools *p, int tensor) {
    while (tensor != AB_NONE && p->plan->tensor[tensor].shares != AB_NONE)
        tensor = p->plan->tensor[tensor].shares;
    const ab_plan_tensor *t = tensor == AB_NONE ? NULL : at(p->plan, tensor);
    return t && t->transient ? t : NULL;
}

static void pool_read(pools *p, int tensor) {
    const ab_plan_tensor *t = place_of(p, tensor);
    if (!t) return;
    for (int64_t b = t->offset; b < t->offset + t->bytes; b += GRANULE)
        if (p->held[t->category][b / GRANULE] != p->value[tensor])
            fail_msg("%s is read after something was written over it", p->plan->tensor[tensor].name);
}

static void pool_write(pools *p, int tensor) {
    const ab_plan_tensor *t = place_of(p, tensor);
    if (!t) return;
    assert_int_equal(t->offset % GRANULE, 0);
    assert_true(t->offset >= 0 && t->offset + t->bytes <= p->plan->pool_bytes[t->category]);
    p->value[tensor] = ++p->values;
    for (int64_t b = t->offset; b < t->offset + t->bytes; b += GRANULE)
        p->held[t->category][b / GRANULE] = p->values;
}

/* What an op writes, but where it only passes on what it reads. */
static void pool_make(pools *p, int tensor) {
    const int from = tensor == AB_NONE ? AB_NONE : p->plan->tensor[tensor].shares;
    if (from == AB_NONE) {
        pool_write(p, tensor);
        return;
    }
    pool_read(p, from);
    p->value[tensor] = p->value[from];
}

/* The op whose tail a node is in, if that computes it. */
static const ab_plan_node *head_of(const pools *p, const ab_plan_node *node, bool backward) {
    const ab_plan_node *head = node->head == AB_NONE ? NULL : &p->plan->node[node->head];
    return p->fused && head && (!backward || head->tail_backward) ? head : NULL;
}

static bool does_tail(const pools *p, const ab_plan_node *node, bool backward) {
    return p->fused && node->relu != AB_NONE && (!backward || node->tail_backward);
}

static void simulate_node(pools *p, const ab_plan_node *node) {
    if (head_of(p, node, false)) return;
    const bool tail = does_tail(p, node, false);
    const ab_plan_node *add = tail && node->add != AB_NONE ? &p->plan->node[node->add] : NULL;
    for (int i = 0; i < node->saves; i++) pool_write(p, node->saved[i]);
    pool_make(p, tail ? p->plan->node[node->relu].out : node->out);
    for (int i = 0; i < node->inputs; i++)
        pool_read(p, node->in[i]); /* after the writes: no sharing in a node */
    for (int i = 0; add && i < add->inputs; i++)
        if (add->in[i] != node->out) pool_read(p, add->in[i]);
}

static void simulate_forward(pools *p, int nodes) {
    for (int n = 0; n < nodes; n++) simulate_node(p, &p->plan->node[n]);
}

static unsigned needs_of(const ab_net_op *op, const ab_plan_node *node) {
    unsigned wanted = 0;
    for (int i = 0; i < node->inputs; i++) wanted |= node->in_grad[i] != AB_NONE ? 1u << i : 0;
    return ab_op_needs(op->op, op->attrs, node->inputs, wanted);
}

/* The gradient of input i is added to that of another use, or cast. */
static void simulate_sum(pools *p, const ab_plan_node *node, int i) {
    pool_read(p, node->in_grad[i]);
    if (node->in_sum[i] == AB_NONE) return;
    if (!node->starts_grad_sum[i]) pool_read(p, node->in_sum[i]);
    pool_write(p, node->in_sum[i]);
}

/* What a node with a tail reads and writes for it in place of its own gradient. */
static void simulate_tail(pools *p, const ab_plan_node *node) {
    const ab_plan_node *relu = &p->plan->node[node->relu];
    const ab_plan_node *add = node->add == AB_NONE ? NULL : &p->plan->node[node->add];
    for (int i = 0; add && i < add->inputs; i++)
        if (add->in[i] != node->out) pool_write(p, add->in_grad[i]);
    pool_read(p, relu->out);
    pool_read(p, relu->out_grad);
    for (int i = 0; add && i < add->inputs; i++)
        if (add->in[i] != node->out) simulate_sum(p, add, i);
}

static void simulate_node_backward(pools *p, const ab_plan_node *node) {
    const ab_net_op *op = ab_plan_node_op(p->plan, node);
    const unsigned needs = op ? needs_of(op, node) : 0;
    const bool tail = does_tail(p, node, true);
    if (node->out_grad == AB_NONE || head_of(p, node, true)) return;
    for (int i = 0; i < node->inputs; i++) {
        if (ab_plan_casts_again(p->plan, node, i)) pool_write(p, node->in[i]);
        pool_make(p, node->in_grad[i]);
    }
    for (int i = 0; i < node->params; i++) pool_write(p, p->plan->param[node->first_param + i].used_grad);
    if (!tail) pool_read(p, node->out_grad);
    for (int i = 0; i < node->inputs; i++)
        if (needs & (1u << i)) {
            pool_read(p, node->in[i]);
            pool_read(p, node->past.in[i]);
        }
    if (needs & AB_NEEDS_OUT) pool_read(p, node->out);
    for (int i = 0; i < node->saves; i++) pool_read(p, node->saved[i]);
    if (tail) simulate_tail(p, node);
    for (int i = 0; i < node->inputs; i++) simulate_sum(p, node, i); /* after all that the node writes */
    for (int i = 0; i < node->params; i++) pool_read(p, p->plan->param[node->first_param + i].used_grad);
}

static void simulate_backward(pools *p) {
    for (int n = p->plan->nodes - 1; n >= 0; n--) {
        const ab_plan_node *node = &p->plan->node[n];
        for (int m = node->recompute_first; m != AB_NONE && m <= n; m++)
            if (p->plan->node[m].recomputed) simulate_node(p, &p->plan->node[m]);
        simulate_node_backward(p, node);
    }
}

static void simulate_steps(pools *p) {
    const ab_plan *plan = p->plan;
    simulate_forward(p, plan->nodes);
    pool_read(p, plan->logits);
    for (int i = 0; i < plan->losses; i++) pool_read(p, plan->loss[i]);
    simulate_backward(p);
    simulate_forward(p, plan->nodes - 1); /* evaluation */
    pool_read(p, plan->logits);
}

/* Op by op, as on steps that somebody looks at, and with tails computed by their heads. */
static void simulate(const ab_plan *plan) {
    for (int fused = 0; fused < 2; fused++) {
        pools p = {.plan = plan, .fused = fused == 1};
        p.value = calloc((size_t)plan->tensors, sizeof *p.value);
        assert_non_null(p.value);
        for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++) {
            p.held[c] = calloc((size_t)(plan->pool_bytes[c] / GRANULE) + 1, sizeof *p.held[c]);
            assert_non_null(p.held[c]);
        }
        simulate_steps(&p);
        for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++) free(p.held[c]);
        free(p.value);
    }
}

static void no_value_is_written_over_while_somebody_still_reads_it(void **state) {
    (void)state;
    static const char *const levels[] = {"O0", "O1", "O2", "O3"}, *const nets[] = {"lenet5", "mlp", "resnet8",
                                                                                   "resnet20", "gpt"};
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        for (size_t n = 0; n < AB_COUNT_OF(nets); n++) {
            fixture f = plan_of(nets[n], levels[l], fp16, 1, NULL);
            simulate(f.plan);
            drop(&f);
        }
        fixture shared = small_plan(shared_ops, levels[l]);
        simulate(shared.plan);
        drop(&shared);
    }
}

static bool shares(const ab_plan *plan, const char *name, const char *of) {
    const int tensor = ab_plan_find(plan, name), other = ab_plan_find(plan, of);
    assert_true(tensor != AB_NONE && other != AB_NONE);
    return plan->tensor[tensor].shares == other;
}

static void additions_pass_their_gradient_on_where_it_is(void **state) {
    (void)state;
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        fixture f = plan_of("resnet8", levels[l], fp16, 1, NULL);
        assert_true(shares(f.plan, "stage1.0.bn2.out.grad", "stage1.0.add.out.grad"));
        assert_true(shares(f.plan, "stem.relu.out.grad", "stage1.0.add.out.grad"));
        assert_true(shares(f.plan, "stage2.0.bn2.out.grad", "stage2.0.add.out.grad"));
        assert_true(shares(f.plan, "stage2.0.shortcut.bn.out.grad", "stage2.0.add.out.grad"));
        drop(&f);
    }
    static const char *const by_layer[] = {"loss_scale=adaloss", NULL};
    fixture scaled = plan_of("resnet8", "O2", fp16, 1, by_layer); /* changes gradients in place */
    assert_false(shares(scaled.plan, "stage1.0.bn2.out.grad", "stage1.0.add.out.grad"));
    drop(&scaled);
}

/* The gradient of a is added to by w before y reads the sum's; that of y may not be in its memory. */
static void gradients_that_change_too_early_are_copied(void **state) {
    (void)state;
    static const char ops[] =
        "{\"name\": \"a\", \"op\": \"conv2d\", \"out_channels\": 2, \"kernel_size\": 1}, "
        "{\"name\": \"y\", \"op\": \"conv2d\", \"in\": \"a\", \"out_channels\": 2, \"kernel_size\": 1}, "
        "{\"name\": \"w\", \"op\": \"tanh\", \"in\": \"a\"}, "
        "{\"name\": \"s\", \"op\": \"add\", \"in\": [\"a\", \"y\"]}, "
        "{\"name\": \"t\", \"op\": \"add\", \"in\": [\"s\", \"w\"]}, "
        "{\"name\": \"f\", \"op\": \"flatten\"}, {\"name\": \"l\", \"op\": \"cross_entropy\"}";
    fixture f = small_plan(ops, "O0");
    assert_true(shares(f.plan, "s.out.grad", "t.out.grad"));
    assert_false(shares(f.plan, "a.out.grad", "s.out.grad") && shares(f.plan, "y.out.grad", "s.out.grad"));
    simulate(f.plan);
    drop(&f);
}

static void nor_where_roles_have_formats_of_their_own(void **state) {
    (void)state;
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    static const char *const to[] = {"*:dgrad=fp32", "*:dgrad=half,*:wgrad=half",
                                     "*:wgrad=fp32,*:forward=fp32", "*add*:dgrad=fp32,*:weights=fp32",
                                     "*conv1:dgrad=half,*conv2:dgrad=fp32"};
    int opened = 0;
    for (size_t t = 0; t < AB_COUNT_OF(to); t++)
        for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
            layers_to = to[t];
            fixture f = plan_of("resnet8", levels[l], fp16, 1, NULL);
            simulate(f.plan);
            for (int n = 0; n < f.plan->nodes; n++)
                for (int i = 0; i < f.plan->node[n].inputs; i++) opened += f.plan->node[n].starts_grad_sum[i];
            drop(&f);
        }
    layers_to = NULL;
    assert_true(opened > 0);
}

static fixture recomputed(const char *net, const char *level, const char *blocks) {
    fixture f;
    ab_policy policy = policy_of(level, fp16, NULL);
    assert_int_equal(ab_net_load(net, &f.net), AB_OK);
    if (ab_net_recompute(f.net, blocks) != AB_OK) fail_msg("%s", ab_error_message());
    assert_int_equal(ab_plan_create(f.net, &policy, BATCH, 1, &f.plan), AB_OK);
    return f;
}

/* What a block needs from outside is kept until it is recomputed; what it makes is not. */
static void blocks_that_run_again_find_what_they_read(void **state) {
    (void)state;
    static const char *const levels[] = {"O0", "O1", "O2", "O3"}, *const nets[] = {"resnet8", "gpt",
                                                                                   "vit_tiny"};
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++)
        for (size_t n = 0; n < AB_COUNT_OF(nets); n++) {
            fixture none = recomputed(nets[n], levels[l], "none"),
                    all = recomputed(nets[n], levels[l], "all");
            int recomputed = 0;
            simulate(all.plan);
            for (int i = 0; i < all.plan->nodes; i++) recomputed += all.plan->node[i].recomputed;
            assert_true(recomputed > 0 && recomputed < all.plan->nodes);
            assert_int_equal(all.plan->positions, 2 * all.plan->nodes + recomputed);
            assert_int_equal(none.plan->positions, 2 * none.plan->nodes);
            assert_true(all.plan->flops > none.plan->flops && all.plan->flops < 1.4 * none.plan->flops);
            /* three quarters at most; a third is usual where blocks are many */
            assert_true(4 * all.plan->pool_bytes[AB_MEM_activations] <
                        3 * none.plan->pool_bytes[AB_MEM_activations]);
            drop(&none);
            drop(&all);
        }
}

static void blocks_are_chosen_by_pattern(void **state) {
    (void)state;
    ab_net *net;
    assert_int_equal(ab_net_load("resnet8", &net), AB_OK);
    assert_int_equal(ab_net_recompute(net, "stage1*,stage3.0"), AB_OK);
    for (int i = 0; i < net->ops; i++) {
        const char *name = net->op[i].name;
        bool in_block = strncmp(name, "stage", 5) == 0;
        assert_int_equal(net->op[i].block >= 0, in_block);
        assert_int_equal(net->op[i].recompute, in_block && strncmp(name, "stage2", 6) != 0);
    }
    assert_int_equal(ab_net_recompute(net, "stage4.0"), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "no block of network resnet8 is called \"stage4.0\""));
    assert_non_null(strstr(ab_error_message(), "did you mean 'stage"));
    ab_net_free(net);
    assert_int_equal(ab_net_load("mlp", &net), AB_OK);
    assert_int_equal(ab_net_recompute(net, "all"), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "network mlp has no blocks"));
    ab_net_free(net);
}

static bool apart(const ab_plan_tensor *a, const ab_plan_tensor *b) {
    bool in_time = a->last < b->first || b->last < a->first;
    bool in_space = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
    return in_time || in_space || a->shares != AB_NONE || b->shares != AB_NONE;
}

static void tensors_that_live_at_the_same_time_do_not_overlap(void **state) {
    (void)state;
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        for (size_t n = 0; n < AB_COUNT_OF(net_names); n++) {
            fixture f = plan_of(net_names[n], levels[l], bf16, 2, NULL);
            for (int i = 0; i < f.plan->tensors; i++) {
                const ab_plan_tensor *a = &f.plan->tensor[i];
                if (!a->transient) continue;
                assert_true(a->first >= 0 && a->first <= a->last && a->last < 2 * f.plan->nodes);
                for (int j = 0; j < i; j++) {
                    const ab_plan_tensor *b = &f.plan->tensor[j];
                    if (b->transient && b->category == a->category && !apart(a, b))
                        fail_msg("%s at %s: %s and %s overlap", net_names[n], levels[l], a->name, b->name);
                }
            }
            drop(&f);
        }
    }
}

/* A pool holds at least what lives at its fullest moment; sharing must save something where values die early.
 */
static void pools_are_shared_but_never_too_small(void **state) {
    (void)state;
    fixture f = plan_of("resnet8", "O2", fp16, 1, NULL);
    int64_t apart_bytes = 0;
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++) {
        int64_t fullest = 0, sum = 0;
        for (int position = 0; position < 2 * f.plan->nodes; position++) {
            int64_t live = 0;
            for (int i = 0; i < f.plan->tensors; i++) {
                const ab_plan_tensor *t = &f.plan->tensor[i];
                if (t->transient && t->shares == AB_NONE && (int)t->category == c && t->first <= position &&
                    position <= t->last)
                    live += t->bytes;
            }
            fullest = live > fullest ? live : fullest;
        }
        for (int i = 0; i < f.plan->tensors; i++)
            if (f.plan->tensor[i].transient && (int)f.plan->tensor[i].category == c)
                sum += f.plan->tensor[i].bytes;
        assert_true(f.plan->pool_bytes[c] >= fullest);
        assert_true(f.plan->pool_bytes[c] <= sum);
        if (c == AB_MEM_activation_gradients) apart_bytes = sum;
    }
    assert_true(f.plan->pool_bytes[AB_MEM_activation_gradients] < apart_bytes / 2);
    drop(&f);
}

/* Rounded to 64 bytes each, by hand: conv1 150 + 6, conv2 2400 + 16, fc1 48000 + 120, fc2 10080 + 84, fc3 840
 * + 10 values. */
static void bytes_of_lenet5_are_those_of_its_layers(void **state) {
    (void)state;
    enum { FP32 = 640 + 64 + 9600 + 64 + 192000 + 512 + 40320 + 384 + 3392 + 64 };
    enum { FP16 = 320 + 64 + 4800 + 64 + 96000 + 256 + 20160 + 192 + 1728 + 64 };
    fixture o0 = plan_of("lenet5", "O0", fp16, 1, NULL), o2 = plan_of("lenet5", "O2", fp16, 2, NULL);
    assert_int_equal(o0.plan->bytes[AB_MEM_weights], FP32);
    assert_int_equal(o0.plan->bytes[AB_MEM_gradients], FP32);
    assert_int_equal(o0.plan->bytes[AB_MEM_optimizer_state], FP32);
    assert_int_equal(o0.plan->bytes[AB_MEM_master_weights], 0);
    assert_int_equal(o0.plan->bytes[AB_MEM_casts], 0);
    assert_int_equal(o0.plan->bytes[AB_MEM_input], BATCH * 32 * 32 * 4 + 64);
    assert_int_equal(o2.plan->bytes[AB_MEM_weights], FP16);
    assert_int_equal(o2.plan->bytes[AB_MEM_master_weights], FP32);
    assert_int_equal(o2.plan->bytes[AB_MEM_gradients], FP16 + FP32);
    assert_int_equal(o2.plan->bytes[AB_MEM_optimizer_state], 2 * FP32);
    drop(&o0);
    drop(&o2);
}

static void cell_holds_what_was_predicted(const char *net_name, const char *level, const char *optimizer) {
    ab_net *net;
    ab_cell *cell;
    assert_int_equal(ab_net_load(net_name, &net), AB_OK);
    ab_cell_config config = {.net = net,
                             .policy = policy_of(level, fp16, NULL),
                             .batch = BATCH,
                             .seed = 1,
                             .device = &ab_device_cpu};
    assert_int_equal(ab_optimizer_find(optimizer, &config.optimizer), AB_OK);
    config.optim = config.optimizer->defaults;
    assert_int_equal(ab_cell_create(&config, &cell), AB_OK);
    fixture f = plan_of(net_name, level, fp16, config.optimizer->states, NULL);
    int64_t total = 0;
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++) {
        int64_t held = ab_cell_bytes(cell, (ab_mem_category)c);
        if (c != AB_MEM_workspace) assert_int_equal(held, f.plan->bytes[c]);
        total += held;
    }
    assert_int_equal(f.plan->bytes[AB_MEM_workspace], 0);
    assert_int_equal(ab_cell_bytes_total(cell), total);
    ab_cell_destroy(cell);
    drop(&f);
    ab_net_free(net);
}

static void a_cell_holds_what_the_plan_predicts_to_the_byte(void **state) {
    (void)state;
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++)
        for (size_t n = 0; n < AB_COUNT_OF(net_names); n++)
            cell_holds_what_was_predicted(net_names[n], levels[l], l % 2 ? "adam" : "momentum");
}

/* ---- errors and edges ------------------------------------------------------------------------ */

/* No op of today can get a half input beside fp32 weights at a level; a linear that O1 does not know would.
 */
static void an_op_with_half_input_and_fp32_weights_is_refused(void **state) {
    (void)state;
    ab_net *net = small_net("{\"name\": \"f\", \"op\": \"flatten\"}, "
                            "{\"name\": \"a\", \"op\": \"linear\", \"out_features\": 4}, "
                            "{\"name\": \"b\", \"op\": \"linear\", \"out_features\": 3}, "
                            "{\"name\": \"l\", \"op\": \"cross_entropy\"}");
    const ab_op *relu;
    ab_policy policy = policy_of("O1", fp16, NULL);
    ab_plan *plan = NULL;
    assert_int_equal(ab_op_find("relu", &relu, &net->op[2].op_row), AB_OK); /* follows its input */
    assert_int_equal(ab_plan_create(net, &policy, BATCH, 1, &plan), AB_CONFIG);
    const char *message = ab_error_message();
    assert_non_null(strstr(message, "small.json:1: op 'b' (linear)"));
    assert_non_null(strstr(message, "fp16"));
    assert_non_null(strstr(message, "weight is fp32"));
    assert_null(plan);
    ab_net_free(net);
}

static void a_net_without_weights_is_a_plan_without_gradients(void **state) {
    (void)state;
    fixture f = small_plan(
        "{\"name\": \"f\", \"op\": \"flatten\"}, {\"name\": \"l\", \"op\": \"cross_entropy\"}", "O2");
    assert_int_equal(f.plan->params, 0);
    assert_int_equal(f.plan->bytes[AB_MEM_gradients], 0);
    for (int n = 0; n < f.plan->nodes; n++) assert_int_equal(f.plan->node[n].in_grad[0], AB_NONE);
    simulate(f.plan);
    drop(&f);
}

static void compiling_is_a_pure_function(void **state) {
    (void)state;
    fixture a = plan_of("resnet8", "O1", bf16, 2, NULL), b = plan_of("resnet8", "O1", bf16, 2, NULL);
    assert_int_equal(a.plan->tensors, b.plan->tensors);
    assert_int_equal(a.plan->nodes, b.plan->nodes);
    for (int i = 0; i < a.plan->tensors; i++) {
        const ab_plan_tensor *x = &a.plan->tensor[i], *y = &b.plan->tensor[i];
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->offset, y->offset);
        for (int j = 0; j < i; j++) assert_string_not_equal(x->name, a.plan->tensor[j].name);
    }
    assert_memory_equal(a.plan->bytes, b.plan->bytes, sizeof a.plan->bytes);
    ab_plan_destroy(NULL);
    drop(&a);
    drop(&b);
}

/* 2 multiply-adds a weight and sample forward, twice that backward, but no input gradient for the first
 * layer. */
static void flops_of_an_mlp_are_counted(void **state) {
    (void)state;
    fixture f = plan_of("mlp", "O0", fp16, 1, NULL);
    double counted = 0;
    for (int p = 0; p < f.plan->params; p++) {
        const ab_shape *shape = &at(f.plan, f.plan->param[p].stored)->shape;
        if (shape->ndim != 2) continue;
        counted += 2.0 * BATCH * (double)ab_shape_count(shape) * (counted > 0 ? 3 : 2);
    }
    assert_true(f.plan->flops >= counted && f.plan->flops <= 1.01 * counted); /* biases are a little more */
    drop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_give_every_tensor_its_format),
        cmocka_unit_test(overrides_change_what_they_name_and_nothing_else),
        cmocka_unit_test(a_batch_norm_without_weights_is_converted_at_o2),
        cmocka_unit_test(shapes_and_bytes_are_those_of_the_tensor),
        cmocka_unit_test(casts_are_inserted_where_formats_change_and_counted),
        cmocka_unit_test(every_cast_changes_a_format),
        cmocka_unit_test(values_used_more_than_once_collect_all_their_gradients),
        cmocka_unit_test(nothing_above_the_first_trained_layer_gets_a_gradient),
        cmocka_unit_test(no_value_is_written_over_while_somebody_still_reads_it),
        cmocka_unit_test(additions_pass_their_gradient_on_where_it_is),
        cmocka_unit_test(gradients_that_change_too_early_are_copied),
        cmocka_unit_test(nor_where_roles_have_formats_of_their_own),
        cmocka_unit_test(blocks_that_run_again_find_what_they_read),
        cmocka_unit_test(blocks_are_chosen_by_pattern),
        cmocka_unit_test(tensors_that_live_at_the_same_time_do_not_overlap),
        cmocka_unit_test(pools_are_shared_but_never_too_small),
        cmocka_unit_test(bytes_of_lenet5_are_those_of_its_layers),
        cmocka_unit_test(a_cell_holds_what_the_plan_predicts_to_the_byte),
        cmocka_unit_test(an_op_with_half_input_and_fp32_weights_is_refused),
        cmocka_unit_test(a_net_without_weights_is_a_plan_without_gradients),
        cmocka_unit_test(compiling_is_a_pure_function),
        cmocka_unit_test(flops_of_an_mlp_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
