/* Which weights of Megatron are split, and how. The last two parts of their names tell it; those before are
 * the user's. Names: core/tensor_parallel/layers.py and core/transformer of Megatron-core 0.4 to 0.16, and
 * the older megatron/model/transformer.py. */
#define _POSIX_C_SOURCE 200809L /* fnmatch */
#include "bench/tensorfile/megatron.h"

#include "kernels/core/text.h"

#include <fnmatch.h>
#include <string.h>

typedef struct rule {
    const char *pattern;
    ab_megatron_split split;
} rule;

/* The first that matches. */
static const rule rules[] = {
    {"*norm*", AB_MEGATRON_WHOLE},
    {"*position_embeddings.weight", AB_MEGATRON_WHOLE},
    {"*tokentype_embeddings.weight", AB_MEGATRON_WHOLE},
    {"*router.*", AB_MEGATRON_WHOLE},
    {"*linear_proj.bias", AB_MEGATRON_WHOLE},
    {"*linear_fc2.bias", AB_MEGATRON_WHOLE},
    {"*attention.dense.bias", AB_MEGATRON_WHOLE},
    {"*dense_4h_to_h.bias", AB_MEGATRON_WHOLE},
    {"*linear_fc1.weight", AB_MEGATRON_FC1},
    {"*linear_fc1.bias", AB_MEGATRON_FC1},
    {"*dense_h_to_4h.weight", AB_MEGATRON_FC1},
    {"*dense_h_to_4h.bias", AB_MEGATRON_FC1},
    {"*linear_proj.weight", AB_MEGATRON_COLUMNS},
    {"*linear_fc2.weight", AB_MEGATRON_COLUMNS},
    {"*attention.dense.weight", AB_MEGATRON_COLUMNS},
    {"*dense_4h_to_h.weight", AB_MEGATRON_COLUMNS},
    {"*linear_qkv.weight", AB_MEGATRON_ROWS},
    {"*linear_qkv.bias", AB_MEGATRON_ROWS},
    {"*linear_q.weight", AB_MEGATRON_ROWS},
    {"*linear_q.bias", AB_MEGATRON_ROWS},
    {"*linear_kv.weight", AB_MEGATRON_ROWS},
    {"*linear_kv.bias", AB_MEGATRON_ROWS},
    {"*linear_q_up_proj.weight", AB_MEGATRON_ROWS},
    {"*linear_kv_up_proj.weight", AB_MEGATRON_ROWS},
    {"*query_key_value.weight", AB_MEGATRON_ROWS},
    {"*query_key_value.bias", AB_MEGATRON_ROWS},
    {"*attention.query.weight", AB_MEGATRON_ROWS},
    {"*attention.query.bias", AB_MEGATRON_ROWS},
    {"*attention.key_value.weight", AB_MEGATRON_ROWS},
    {"*attention.key_value.bias", AB_MEGATRON_ROWS},
    {"*word_embeddings.weight", AB_MEGATRON_ROWS},
    {"*output_layer.weight", AB_MEGATRON_ROWS},
    {"*output_layer.bias", AB_MEGATRON_ROWS},
};

ab_megatron_split ab_megatron_split_of(const char *weight) {
    for (size_t i = 0; i < AB_COUNT_OF(rules); i++)
        if (fnmatch(rules[i].pattern, weight, 0) == 0) return rules[i].split;
    return AB_MEGATRON_UNKNOWN;
}

bool ab_megatron_fc2_of(const char *fc1, char *text, size_t bytes) {
    static const char *const pairs[][2] = {{"linear_fc1.", "linear_fc2.weight"},
                                           {"dense_h_to_4h.", "dense_4h_to_h.weight"}};
    for (size_t i = 0; i < AB_COUNT_OF(pairs); i++) {
        const char *at = strstr(fc1, pairs[i][0]);
        if (at) return ab_text_fits(text, bytes, "%.*s%s", (int)(at - fc1), fc1, pairs[i][1]);
    }
    return false;
}
