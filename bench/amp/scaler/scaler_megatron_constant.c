/* Megatron-core's ConstantGradScaler (megatron/core/optimizer/grad_scaler.py): the scale is constant, but
 * overflows are still detected and their steps skipped. */
#include "bench/amp/scaler/scaler.h"

enum { INIT };

static const ab_scaler_key keys[] = {
    [INIT] = {"init", "loss_scale", "the scale (--loss-scale)", AB_SCALER_REAL, 0x1p16, 0, 0x1p128, true,
              true},
};

static void start(ab_scaler *scaler) { scaler->scale = ab_fp32(scaler->config.value[INIT]); }

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    (void)scaler;
    return (ab_scaler_outcome){.skip = seen->overflow};
}

extern const ab_scaler_kind ab_scaler_megatron_constant;
const ab_scaler_kind ab_scaler_megatron_constant = {
    .name = "megatron-constant",
    .origin = "megatron/core/optimizer/grad_scaler.py, ConstantGradScaler, 0.16",
    .text = "constant, but overflows are found and skipped",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .fp32 = true,
    .start = start,
    .update = update,
};
