/* DeepSpeed: mp_rank_NN_model_states.pt, and the optimizer of every rank in a file of its own. */
#include "bench/checkpoint/layout.h"

const ab_checkpoint_layout ab_checkpoint_layout_deepspeed = {
    .name = "deepspeed",
    .text = "DeepSpeed: mp_rank_*_model_states.pt and *_optim_states.pt",
    .mark = "*mp_rank_*_model_states.pt",
    .key = NULL,
    .weights = "*mp_rank_*_model_states.pt",
    .model = "module.*",
    .scale = "*loss_scaler.cur_scale|*optimizer.cur_scale|*cur_scale",
    .tracker = NULL,
    .skipped = "skipped_steps",
    .steps = "global_steps",
    .masters = true,
};
