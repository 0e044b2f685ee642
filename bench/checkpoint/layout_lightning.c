/* Lightning: a .ckpt with state_dict and optimizer_states. */
#include "bench/checkpoint/layout.h"

const ab_checkpoint_layout ab_checkpoint_layout_lightning = {
    .name = "lightning",
    .text = "Lightning: a .ckpt with state_dict and optimizer_states",
    .mark = "*.ckpt",
    .key = "pytorch-lightning_version",
    .weights = "*.ckpt",
    .model = "state_dict.*",
    .scale = "MixedPrecision*.scale|native_amp_scaling_state.scale",
    .tracker = "MixedPrecision*._growth_tracker|native_amp_scaling_state._growth_tracker",
    .skipped = NULL,
    .steps = "global_step",
    .masters = false,
};
