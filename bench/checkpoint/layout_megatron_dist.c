/* Megatron-core's dist_checkpointing (torch_dist): common.pt beside .metadata and *.distcp. */
#include "bench/checkpoint/layout.h"

const ab_checkpoint_layout ab_checkpoint_layout_megatron_dist = {
    .name = "megatron_dist",
    .text = "Megatron-core's dist_checkpointing: .metadata and common.pt",
    .mark = "common.pt",
    .key = "checkpoint_version",
    .weights = ".metadata",
    .model = "model.*|*",
    .scale = "optimizer.grad_scaler.scale",
    .tracker = "optimizer.grad_scaler.growth_tracker",
    .skipped = NULL,
    .steps = "iteration",
    .masters = true,
};
