/* Every op of ops.def as the small networks of every_op_testing.h have it, and a few more with other
 * attributes: for tests that run ops one by one on numbers of their own. */
#ifndef AB_TESTS_UNIT_OP_INSTANCES_TESTING_H
#define AB_TESTS_UNIT_OP_INSTANCES_TESTING_H

#include "tests/unit/every_op_testing.h"

#include "oracle/op_run.h"

enum { OI_MOST = 128, OI_VARIANTS = 2 };

/* Attributes and shapes of one; ids of integer inputs are copies of what it read. */
typedef struct oi_instance {
    char name[32];
    const ab_op *op;
    const void *attrs;
    ab_shape in[AB_MAX_INPUTS];
    int32_t *ids[AB_MAX_INPUTS]; /* NULL: floating */
    int inputs;
    ab_exec exec;
    uint32_t number;
} oi_instance;

typedef struct oi_all {
    ab_observer observer; /* first */
    ab_net *net[EO_NETS + OI_VARIANTS];
    oi_instance instance[OI_MOST];
    int count;
} oi_all;

/* Other attributes of pools, norms, masks, moves. */
static const char oi_image_ops[] =
    "{\"name\": \"conv\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3, \"stride\": 2, "
    "\"padding\": 1, "
    "\"groups\": 1}, {\"name\": \"grouped\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 2, "
    "\"groups\": 2, \"bias\": false}, {\"name\": \"bn\", \"op\": \"batch_norm2d\", \"affine\": false}, "
    "{\"name\": \"max\", \"op\": \"max_pool2d\", \"kernel_size\": 3, \"stride\": 1, \"padding\": 1}, "
    "{\"name\": \"avg\", \"op\": \"avg_pool2d\", \"kernel_size\": 2, \"stride\": 1, \"padding\": 1, "
    "\"count_include_pad\": false}, "
    "{\"name\": \"wide\", \"op\": \"avg_pool2d\", \"kernel_size\": 3, \"stride\": 2, \"padding\": 1}, "
    "{\"name\": \"up\", \"op\": \"upsample\", \"scale_factor\": [1, 3]}, "
    "{\"name\": \"most\", \"op\": \"max\", \"dim\": [1, -1], \"keepdim\": true}, "
    "{\"name\": \"total\", \"op\": \"sum\", \"in\": \"up\", \"dim\": [2]}, "
    "{\"name\": \"tall\", \"op\": \"concat\", \"in\": [\"up\", \"up\", \"up\"], \"dim\": 1}, "
    "{\"name\": \"mask\", \"op\": \"masked_fill\", \"in\": [\"tall\", \"most\"], \"value\": 3}, "
    "{\"name\": \"turn\", \"op\": \"permute\", \"dims\": [0, 3, 1, 2]}, "
    "{\"name\": \"pick\", \"op\": \"select\", \"dim\": 2, \"index\": 1}, "
    "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, "
    "{\"name\": \"mean\", \"op\": \"mean\", \"dim\": [1]}, "
    "{\"name\": \"loss\", \"op\": \"cross_entropy\", \"label_smoothing\": 0.1}, "
    "{\"name\": \"second\", \"op\": \"mean\", \"in\": \"total\"}], \"losses\": [\"loss\", \"second\"";

static const char oi_token_net[] =
    "{\"format\": \"ampbench-net-1\", \"name\": \"more\", \"input\": {\"tokens\": 6, \"vocabulary\": 11}, "
    "\"targets\": {\"kind\": \"tokens\"}, \"ops\": ["
    "{\"name\": \"word\", \"op\": \"embedding\", \"num_embeddings\": 11, \"embedding_dim\": 8}, "
    "{\"name\": \"place\", \"op\": \"positional_embedding\", \"class_token\": true}, "
    "{\"name\": \"q\", \"op\": \"linear\", \"out_features\": 8}, "
    "{\"name\": \"k\", \"op\": \"linear\", \"out_features\": 8, \"in\": \"place\"}, "
    "{\"name\": \"v\", \"op\": \"linear\", \"out_features\": 8, \"in\": \"place\"}, "
    "{\"name\": \"sdpa\", \"op\": \"scaled_dot_product_attention\", \"in\": [\"q\", \"k\", \"v\"], "
    "\"num_heads\": 2, "
    "\"dropout_p\": 0.25, \"scale\": 0.5}, "
    "{\"name\": \"lstm\", \"op\": \"lstm\", \"hidden_size\": 5, \"bias\": false}, {\"name\": \"rnn\", "
    "\"op\": \"rnn\", "
    "\"hidden_size\": 7, \"nonlinearity\": \"relu\"}, "
    "{\"name\": \"gru\", \"op\": \"gru\", \"hidden_size\": 6, \"bias\": false}, "
    "{\"name\": \"norm\", \"op\": \"layer_norm\", \"elementwise_affine\": false}, "
    "{\"name\": \"first\", \"op\": \"mean\"}, "
    "{\"name\": \"head\", \"op\": \"linear\", \"out_features\": 11, \"in\": \"word\"}, {\"name\": \"ce\", "
    "\"op\": "
    "\"cross_entropy\"}], \"losses\": [\"first\", \"ce\"]}";

static inline void oi_ignore(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self, (void)id, (void)thread, (void)values, (void)n;
}

static inline void oi_ran(void *context, const ab_op_run *run) {
    oi_all *all = context;
    if (run->backward) return;
    assert_true(all->count < OI_MOST);
    oi_instance *to = &all->instance[all->count++];
    *to = (oi_instance){
        .op = run->op, .attrs = run->io->attrs, .exec = *run->exec, .number = run->io->instance};
    snprintf(to->name, sizeof to->name, "%s", run->name);
    to->exec.observer = NULL;
    for (; to->inputs < AB_MAX_INPUTS && run->io->in[to->inputs]; to->inputs++) {
        const ab_tensor *in = run->io->in[to->inputs];
        to->in[to->inputs] = in->shape;
        if (in->format) continue;
        const size_t bytes = (size_t)ab_tensor_count(in) * sizeof(int32_t);
        to->ids[to->inputs] = malloc(bytes);
        memcpy(to->ids[to->inputs], in->data, bytes);
    }
}

static inline ab_net *oi_net(size_t n) {
    ab_net *net = NULL;
    if (n < EO_NETS) return eo_net(n);
    if (n == EO_NETS) return pt_net(oi_image_ops);
    if (ab_net_parse(oi_token_net, strlen(oi_token_net), "more.json", &net) != AB_OK)
        fail_msg("%s", ab_error_message());
    return net;
}

/* One forward pass of every network in fp32 tells what there is. */
static inline void oi_open(oi_all *all) {
    *all = (oi_all){.observer = {.see = oi_ignore}};
    for (size_t n = 0; n < AB_COUNT_OF(all->net); n++) {
        all->net[n] = oi_net(n);
        ab_cell_config config = pt_config(all->net[n], "O0", &ab_format_fp16, "sgd", NULL);
        config.data = eo_data(all->net[n]);
        config.batch = 3;
        ab_cell *cell = pt_cell(&config);
        const ab_watch watch = {.context = all, .ran = oi_ran};
        ab_step_result result;
        ab_cell_watch(cell, &watch);
        if (ab_cell_step(cell, &all->observer, &result) != AB_OK) fail_msg("%s", ab_error_message());
        ab_cell_destroy(cell);
    }
}

static inline void oi_close(oi_all *all) {
    for (int i = 0; i < all->count; i++)
        for (int k = 0; k < AB_MAX_INPUTS; k++) free(all->instance[i].ids[k]);
    for (size_t n = 0; n < AB_COUNT_OF(all->net); n++) ab_net_free(all->net[n]);
}

/* The instance alone, its tensors in other formats; floating ones hold numbers in [-1, 1). */
static inline void oi_run_open(op_run *r, const oi_instance *instance, op_formats formats, uint64_t seed) {
    unsigned floats = 0;
    for (int i = 0; i < AB_MAX_INPUTS; i++) floats |= (unsigned)!instance->ids[i] << i;
    op_run_open_floats(r, instance->op, instance->attrs, instance->in, instance->inputs, formats,
                       &instance->exec, floats);
    r->io.instance = instance->number;
    op_run_fill_all(r, seed);
    for (int i = 0; i < AB_MAX_INPUTS; i++)
        if (instance->ids[i])
            memcpy(r->in[i].data, instance->ids[i], (size_t)ab_tensor_count(&r->in[i]) * sizeof(int32_t));
    assert_int_equal(op_run_prepare(r), AB_OK);
}

static inline void oi_scale(const ab_tensor *tensor, double factor) {
    for (int64_t i = 0; tensor->data && tensor->format && i < ab_tensor_count(tensor); i++)
        oracle_put(tensor, i, oracle_get(tensor, i) * factor);
}

#endif
