/* linear: from lr to `final` in a straight line: transformers' get_linear_schedule_with_warmup (final 0),
 * torch's LinearLR. */
#include "bench/train/schedule/schedule.h"

static ab_schedule_point at(const ab_schedule_config *config, int64_t t, int64_t total) {
    double left = t < total ? (double)(total - t) / (double)total : 0;
    return (ab_schedule_point){config->final + (config->lr - config->final) * left, -1};
}

extern const ab_schedule ab_schedule_linear;
const ab_schedule ab_schedule_linear = {
    .name = "linear",
    .text = "a straight line to `final` (transformers linear, torch LinearLR)",
    .keys = " total final warmup warmup_start warmup_shift ",
    .at = at};
