/* The larger built-in networks have the parameters that the literature and PyTorch count, and the outputs
 * their losses want. */
#include "bench/nets/net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct expected {
    const char *name;
    int64_t parameters;
    int64_t batch;
    ab_shape before_loss; /* of the last op but the loss */
} expected;

/* A transformer block of width d has 12 d^2 + 13 d parameters: qkv 3 d^2 + 3 d, projection d^2 + d, two
 * layers of 4 d^2 with 4 d and d biases, two norms of 2 d. */
static int64_t blocks(int64_t layers, int64_t d) { return layers * (12 * d * d + 13 * d); }

/* A convolution without bias and its batch norm. */
static int64_t conv_norm(int64_t in, int64_t out, int64_t kernel) {
    return kernel * kernel * in * out + 2 * out;
}

static void check(const expected *e) {
    ab_net *net = NULL;
    if (ab_net_load(e->name, &net) != AB_OK) fail_msg("%s", ab_error_message());
    assert_int_equal(ab_net_parameters(net), e->parameters);
    ab_shape *shape = calloc((size_t)net->ops, sizeof *shape);
    assert_non_null(shape);
    assert_int_equal(ab_net_infer(net, e->batch, shape), AB_OK);
    assert_true(ab_shape_equal(&shape[net->ops - 2], &e->before_loss));
    free(shape);
    ab_net_free(net);
}

static void transformers_have_their_parameters(void **state) {
    (void)state;
    const expected nets[] = {
        /* patches 4 x 4 x 1, class token, 65 positions, norm, head of 10 */
        {"vit_tiny", 192 * 17 + 192 + 65 * 192 + blocks(12, 192) + 384 + 1930, 3, {2, {3, 10}}},
        /* tokens, positions, norm, head without bias */
        {"gpt", 256 * 128 + 64 * 128 + blocks(4, 128) + 256 + 128 * 256, 2, {3, {2, 64, 256}}},
        /* OpenAI's checkpoint, whose head reads the table of the embedding */
        {"gpt2_124m", 124439808, 1, {3, {1, 1024, 50257}}},
        /* embeddings, norm, pooler, classifier of 8 */
        {"transformer_classifier",
         1024 * 128 + 64 * 128 + 256 + blocks(2, 128) + 128 * 128 + 128 + 128 * 8 + 8,
         5,
         {2, {5, 8}}},
    };
    for (size_t i = 0; i < AB_COUNT_OF(nets); i++) check(&nets[i]);
}

static int64_t u_net(int64_t depth, int64_t width) {
    int64_t in = 1, count = 0;
    for (int64_t i = 0, out = width; i <= depth; i++, in = out, out *= 2)
        count += conv_norm(in, out, 3) + conv_norm(out, out, 3);
    for (int64_t i = depth - 1, out = width << (depth - 1); i >= 0; i--, out /= 2)
        count += conv_norm(2 * out, out, 3) + conv_norm(2 * out, out, 3) + conv_norm(out, out, 3);
    return count + width + 1;
}

static void the_other_nets_have_theirs(void **state) {
    (void)state;
    const expected nets[] = {
        {"resnet50", 25557032, 1, {2, {1, 1000}}}, /* torchvision's */
        {"lstm_lm", 1024 * 128 + 2 * (4 * 128 * 256 + 8 * 128) + 128 * 1024 + 1024, 2, {3, {2, 64, 1024}}},
        {"autoencoder",
         1025 * 512 + 513 * 128 + 129 * 32 + 33 * 128 + 129 * 512 + 513 * 1024,
         4,
         {2, {4, 1024}}},
        {"unet_small", u_net(3, 16), 2, {4, {2, 32, 32, 1}}},
    };
    for (size_t i = 0; i < AB_COUNT_OF(nets); i++) check(&nets[i]);
}

/* "init" means weights, not the scales of normalisations. */
static void a_files_init_leaves_norms_alone(void **state) {
    (void)state;
    ab_net *net = NULL;
    int norms = 0;
    assert_int_equal(ab_net_load("gpt", &net), AB_OK);
    for (int i = 0; i < net->ops; i++)
        if (strcmp(net->op[i].op->name, "layer_norm") == 0) {
            assert_int_equal(net->op[i].param[0].init, AB_INIT_ONES);
            norms++;
        } else if (strcmp(net->op[i].op->name, "linear") == 0) {
            assert_int_equal(net->op[i].param[0].init, AB_INIT_NORMAL);
        }
    assert_int_equal(norms, 9);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transformers_have_their_parameters),
        cmocka_unit_test(the_other_nets_have_theirs),
        cmocka_unit_test(a_files_init_leaves_norms_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
