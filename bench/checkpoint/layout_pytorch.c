/* torch.save of a dict of states, or files of weights. */
#include "bench/checkpoint/layout.h"

const ab_checkpoint_layout ab_checkpoint_layout_pytorch = {
    .name = "pytorch",
    .text = "torch.save of a dict of states, or files of weights",
    .mark = "*",
    .key = NULL,
    .weights = "*",
    .model = "model.*|state_dict.*|model_state_dict.*|module.*|net.*|weights.*|*",
    .scale = "*scaler*.scale|*scale",
    .tracker = "*_growth_tracker",
    .skipped = NULL,
    .steps = "global_step|step|iteration|*.global_step",
    .masters = false,
};
