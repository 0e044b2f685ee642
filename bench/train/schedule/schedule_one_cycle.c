/* one_cycle: torch's OneCycleLR with cosine annealing in two phases (Smith and Topin, "Super-convergence"):
 * lr / div_factor up to lr at pct_start * total - 1, down to the first rate / final_div_factor at total - 1;
 * momentum goes the other way. */
#include "bench/train/schedule/schedule.h"
#include "kernels/core/elementary64.h"

#include <math.h>

static double anneal(double from, double to, double share) {
    return to + (from - to) / 2.0 * (1.0 + ab_cospi(share));
}

static ab_schedule_point at(const ab_schedule_config *config, int64_t t, int64_t total) {
    const double top = config->pct_start * (double)total - 1.0, end = (double)(total - 1);
    const double first = config->lr / config->div_factor, last = first / config->final_div_factor;
    const double now = fmin((double)t, end);
    if (now <= top)
        return (ab_schedule_point){
            anneal(first, config->lr, top > 0 ? now / top : 1),
            anneal(config->max_momentum, config->base_momentum, top > 0 ? now / top : 1)};
    double share = end > top ? (now - top) / (end - top) : 1;
    return (ab_schedule_point){anneal(config->lr, last, share),
                               anneal(config->base_momentum, config->max_momentum, share)};
}

extern const ab_schedule ab_schedule_one_cycle;
const ab_schedule ab_schedule_one_cycle = {
    .name = "one_cycle",
    .text = "up to the learning rate and far down, momentum the other way (torch OneCycleLR)",
    .keys = " total pct_start div_factor final_div_factor base_momentum max_momentum ",
    .at = at};
