/* constant: the learning rate as it is; with warm-up transformers' get_constant_schedule_with_warmup. */
#include "bench/train/schedule/schedule.h"

static ab_schedule_point at(const ab_schedule_config *config, int64_t t, int64_t total) {
    (void)t;
    (void)total;
    return (ab_schedule_point){config->lr, -1};
}

extern const ab_schedule ab_schedule_constant;
const ab_schedule ab_schedule_constant = {.name = "constant",
                                          .text = "the learning rate as it is",
                                          .keys = " warmup warmup_start warmup_shift ",
                                          .at = at};
