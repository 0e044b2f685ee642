/* Small networks that together have every op of ops.def, for tests that visit them all. */
#ifndef AB_TESTS_UNIT_EVERY_OP_TESTING_H
#define AB_TESTS_UNIT_EVERY_OP_TESTING_H

#include "tests/unit/probe_testing.h"

enum { EO_NETS = 4, EO_TOKENS = 3 };

static const char eo_image_ops[] =
    "{\"name\": \"conv\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3, \"padding\": 1}, "
    "{\"name\": \"bn\", \"op\": \"batch_norm2d\"}, {\"name\": \"relu\", \"op\": \"relu\"}, "
    "{\"name\": \"gn\", \"op\": \"group_norm\", \"num_groups\": 2}, {\"name\": \"silu\", \"op\": \"silu\"}, "
    "{\"name\": \"pool\", \"op\": \"max_pool2d\", \"kernel_size\": 2}, "
    "{\"name\": \"up\", \"op\": \"upsample\", \"scale_factor\": 2}, "
    "{\"name\": \"cat\", \"op\": \"concat\", \"in\": [\"up\", \"bn\"], \"dim\": -1}, "
    "{\"name\": \"avg\", \"op\": \"avg_pool2d\", \"kernel_size\": 2}, "
    "{\"name\": \"gap\", \"op\": \"global_avg_pool\"}, "
    "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, {\"name\": \"loss\", \"op\": "
    "\"cross_entropy\"}";

static const char eo_number_ops[] =
    "{\"name\": \"first\", \"op\": \"conv2d\", \"out_channels\": 2, \"kernel_size\": 1}, {\"name\": "
    "\"flat\", \"op\": \"flatten\"}, {\"name\": \"fc1\", "
    "\"op\": \"linear\", \"out_features\": "
    "12}, "
    "{\"name\": \"tanh\", \"op\": \"tanh\"}, {\"name\": \"exp\", \"op\": \"exp\"}, "
    "{\"name\": \"sqrt\", \"op\": \"sqrt\"}, {\"name\": \"rsqrt\", \"op\": \"rsqrt\"}, "
    "{\"name\": \"log\", \"op\": \"log\"}, {\"name\": \"square\", \"op\": \"square\"}, "
    "{\"name\": \"add\", \"op\": \"add\", \"in\": [\"square\", \"tanh\"]}, "
    "{\"name\": \"sub\", \"op\": \"sub\", \"in\": [\"add\", \"exp\"]}, "
    "{\"name\": \"mul\", \"op\": \"mul\", \"in\": [\"sub\", \"tanh\"]}, "
    "{\"name\": \"div\", \"op\": \"div\", \"in\": [\"mul\", \"exp\"]}, {\"name\": \"neg\", \"op\": \"neg\"}, "
    "{\"name\": \"abs\", \"op\": \"abs\"}, {\"name\": \"clamp\", \"op\": \"clamp\", \"max\": 10}, "
    "{\"name\": \"scale\", \"op\": \"scale\", \"factor\": 0.5}, {\"name\": \"gelu\", \"op\": \"gelu\"}, "
    "{\"name\": \"sigmoid\", \"op\": \"sigmoid\"}, {\"name\": \"drop\", \"op\": \"dropout\", \"p\": 0.25}, "
    "{\"name\": \"ln\", \"op\": \"layer_norm\"}, {\"name\": \"rms\", \"op\": \"rms_norm\"}, "
    "{\"name\": \"fln\", \"op\": \"fused_layer_norm\", \"memory_efficient\": true}, "
    "{\"name\": \"mfln\", \"op\": \"mixed_fused_layer_norm\"}, "
    "{\"name\": \"frms\", \"op\": \"fused_rms_norm\"}, "
    "{\"name\": \"mfrms\", \"op\": \"mixed_fused_rms_norm\", \"memory_efficient\": true}, "
    "{\"name\": \"where\", \"op\": \"where\", \"in\": [\"drop\", \"mfrms\", \"ln\"]}, "
    "{\"name\": \"shape\", \"op\": \"reshape\", \"shape\": [0, 4, 3]}, "
    "{\"name\": \"perm\", \"op\": \"permute\", \"dims\": [0, 2, 1]}, "
    "{\"name\": \"trans\", \"op\": \"transpose\", \"dim0\": 1, \"dim1\": 2}, "
    "{\"name\": \"scores\", \"op\": \"matmul\", \"in\": [\"trans\", \"perm\"]}, "
    "{\"name\": \"mask\", \"op\": \"masked_fill\", \"causal\": true}, {\"name\": \"soft\", \"op\": "
    "\"softmax\"}, "
    "{\"name\": \"max\", \"op\": \"max\", \"dim\": 1}, {\"name\": \"pick\", \"op\": \"select\", \"in\": "
    "\"soft\", "
    "\"dim\": 1, \"index\": -1}, "
    "{\"name\": \"both\", \"op\": \"add\", \"in\": [\"max\", \"pick\"]}, "
    "{\"name\": \"logp\", \"op\": \"log_softmax\"}, {\"name\": \"mean\", \"op\": \"mean\"}, "
    "{\"name\": \"sum\", \"op\": \"sum\", \"in\": \"both\"}, "
    "{\"name\": \"mse\", \"op\": \"mse\", \"in\": [\"both\", \"logp\"]}, "
    "{\"name\": \"bcel\", \"op\": \"bce_with_logits\", \"in\": [\"logp\", \"both\"]}, "
    "{\"name\": \"bn1\", \"op\": \"batch_norm1d\", \"in\": \"both\"}, "
    "{\"name\": \"fc2\", \"op\": \"linear\", \"out_features\": 3}, "
    "{\"name\": \"ce\", \"op\": \"cross_entropy\"}, "
    "{\"name\": \"nll\", \"op\": \"nll_loss\", \"in\": \"logp\"}], "
    "\"losses\": [\"mean\", \"sum\", \"mse\", \"bcel\", \"ce\", \"nll\"";

static const char eo_probability_ops[] =
    "{\"name\": \"first\", \"op\": \"conv2d\", \"out_channels\": 2, \"kernel_size\": 1}, {\"name\": "
    "\"flat\", \"op\": \"flatten\"}, {\"name\": \"fc\", "
    "\"op\": \"linear\", \"out_features\": 3}, "
    "{\"name\": \"a\", \"op\": \"sigmoid\"}, {\"name\": \"fcb\", \"op\": \"linear\", \"out_features\": 3, "
    "\"in\": \"flat\"}, "
    "{\"name\": \"b\", \"op\": \"sigmoid\"}, {\"name\": \"bce\", \"op\": \"bce\", \"in\": [\"a\", \"b\"]}, "
    "{\"name\": \"ce\", \"op\": \"cross_entropy\", \"in\": [\"fc\", \"targets\"]}], \"losses\": [\"bce\", "
    "\"ce\"";

static const char eo_token_net[] =
    "{\"format\": \"ampbench-net-1\", \"name\": \"words\", \"input\": {\"tokens\": 6, \"vocabulary\": 11}, "
    "\"targets\": {\"kind\": \"tokens\"}, \"ops\": ["
    "{\"name\": \"word\", \"op\": \"embedding\", \"num_embeddings\": 11, \"embedding_dim\": 8}, "
    "{\"name\": \"place\", \"op\": \"positional_embedding\", \"num_embeddings\": 6}, "
    "{\"name\": \"qkv\", \"op\": \"linear\", \"out_features\": 24}, "
    "{\"name\": \"sdpa\", \"op\": \"scaled_dot_product_attention\", \"num_heads\": 2, \"is_causal\": true}, "
    "{\"name\": \"lstm\", \"op\": \"lstm\", \"hidden_size\": 8}, {\"name\": \"rnn\", \"op\": \"rnn\", "
    "\"hidden_size\": 8}, {\"name\": \"gru\", \"op\": \"gru\", \"hidden_size\": 8}, "
    "{\"name\": \"head\", \"op\": \"linear\", \"out_features\": 11}, {\"name\": \"ce\", \"op\": "
    "\"cross_entropy\"}]}";

static inline ab_net *eo_net(size_t n) {
    static const char *const ops[] = {eo_image_ops, eo_number_ops, eo_probability_ops};
    ab_net *net = NULL;
    if (n < EO_TOKENS) return pt_net(ops[n]);
    if (ab_net_parse(eo_token_net, strlen(eo_token_net), "words.json", &net) != AB_OK)
        fail_msg("%s", ab_error_message());
    return net;
}

static inline const ab_data *eo_data(const ab_net *net) {
    static ab_data *words;
    if (net->data.input != AB_INPUT_TOKENS) return pt_data();
    if (!words && ab_data_open("synthetic_text", &net->data, 1, &words) != AB_OK)
        fail_msg("%s", ab_error_message());
    return words;
}

/* bce refuses half numbers at O1; at O2 and O3 losses are outside of the model. */
static inline bool eo_runs_at(size_t n, const char *level) { return n != 2 || strcmp(level, "O1") != 0; }

#endif
