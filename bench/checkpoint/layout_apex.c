/* apex: torch.save of model, optimizer and amp. */
#include "bench/checkpoint/layout.h"

const ab_checkpoint_layout ab_checkpoint_layout_apex = {
    .name = "apex",
    .text = "apex: torch.save of model, optimizer and amp",
    .mark = "*",
    .key = "amp.loss_scaler0.loss_scale",
    .weights = "*",
    .model = "model.*|state_dict.*|net.*",
    .scale = "amp.loss_scaler0.loss_scale",
    .tracker = "amp.loss_scaler0.unskipped",
    .skipped = NULL,
    .steps = "step|global_step|iteration",
    .masters = false,
};
