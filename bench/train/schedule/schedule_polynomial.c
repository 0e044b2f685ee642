/* polynomial: final + (lr - final) (1 - t / total)^power: torch's PolynomialLR (final 0), transformers'
 * get_polynomial_decay_schedule_with_warmup. */
#include "bench/train/schedule/schedule.h"
#include "kernels/core/elementary64.h"

static ab_schedule_point at(const ab_schedule_config *config, int64_t t, int64_t total) {
    double left = t < total ? 1.0 - (double)t / (double)total : 0;
    double share = t < total ? ab_pow(left, config->power) : 0;
    return (ab_schedule_point){config->final + (config->lr - config->final) * share, -1};
}

extern const ab_schedule ab_schedule_polynomial;
const ab_schedule ab_schedule_polynomial = {
    .name = "polynomial",
    .text = "a power of what is left, to `final` (torch PolynomialLR, transformers polynomial)",
    .keys = " total final power warmup warmup_start warmup_shift ",
    .at = at};
