/* Megatron: model_optim_rng.pt in a folder of every rank. */
#include "bench/checkpoint/layout.h"

const ab_checkpoint_layout ab_checkpoint_layout_megatron = {
    .name = "megatron",
    .text = "Megatron: mp_rank_*/model_optim_rng.pt",
    .mark = "model_optim_rng.pt|model_rng.pt",
    .key = NULL,
    .weights = "model_optim_rng.pt|model_rng.pt",
    .model = "model.*",
    .scale = "optimizer.grad_scaler.scale",
    .tracker = "optimizer.grad_scaler.growth_tracker",
    .skipped = NULL,
    .steps = "iteration",
    .masters = true,
};
