/* cosine: half a wave from lr to `final`: torch's CosineAnnealingLR in closed form, transformers'
 * get_cosine_schedule_with_warmup. Both rise again after their end; this one stays constant. */
#include "bench/train/schedule/schedule.h"
#include "kernels/core/elementary64.h"

static ab_schedule_point at(const ab_schedule_config *config, int64_t t, int64_t total) {
    double share = t < total ? (double)t / (double)total : 1;
    return (ab_schedule_point){config->final + (config->lr - config->final) * 0.5 * (1.0 + ab_cospi(share)),
                               -1};
}

extern const ab_schedule ab_schedule_cosine;
const ab_schedule ab_schedule_cosine = {
    .name = "cosine",
    .text = "half a cosine to `final` (torch CosineAnnealingLR, transformers cosine)",
    .keys = " total final warmup warmup_start warmup_shift ",
    .at = at};
