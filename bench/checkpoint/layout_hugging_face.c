/* Hugging Face Trainer: optimizer.pt beside the weights. */
#include "bench/checkpoint/layout.h"

const ab_checkpoint_layout ab_checkpoint_layout_hugging_face = {
    .name = "hugging_face",
    .text = "Hugging Face Trainer: optimizer.pt beside the weights",
    .mark = "optimizer.pt",
    .key = NULL,
    .weights = "model*.safetensors|pytorch_model*.bin|adapter_model*",
    .model = "*",
    .scale = "scale",
    .tracker = "_growth_tracker",
    .skipped = NULL,
    .steps = "global_step",
    .masters = false,
};
