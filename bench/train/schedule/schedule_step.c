/* step: torch's StepLR, lr gamma^floor(t / step_size). */
#include "bench/train/schedule/schedule.h"
#include "kernels/core/elementary64.h"

static ab_schedule_point at(const ab_schedule_config *config, int64_t t, int64_t total) {
    (void)total;
    return (ab_schedule_point){config->lr * ab_pow(config->gamma, (double)(t / config->step_size)), -1};
}

extern const ab_schedule ab_schedule_step;
const ab_schedule ab_schedule_step = {.name = "step",
                                      .text = "times gamma every step_size steps (torch StepLR)",
                                      .keys = " step_size gamma warmup warmup_start warmup_shift ",
                                      .at = at};
