/* accelerate: optimizer.bin beside the weights. */
#include "bench/checkpoint/layout.h"

const ab_checkpoint_layout ab_checkpoint_layout_accelerate = {
    .name = "accelerate",
    .text = "accelerate: optimizer.bin beside the weights",
    .mark = "optimizer.bin",
    .key = NULL,
    .weights = "model*.safetensors|pytorch_model*.bin",
    .model = "*",
    .scale = "scale",
    .tracker = "_growth_tracker",
    .skipped = NULL,
    .steps = "step",
    .masters = false,
};
