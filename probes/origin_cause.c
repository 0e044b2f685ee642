/* Why a value is not finite: the elements in question computed again in double. */
#include "probes/origin.h"

#include <math.h>

static ab_origin_cause unknown(const ab_tensor *tensor) {
    return (ab_origin_cause){.value = (double)NAN,
                             .unscaled = (double)NAN,
                             .partial = (double)NAN,
                             .limit = ab_format_overflow_limit(tensor->format)};
}

void ab_origin_explain(const ab_origin *o, const ab_op_run *run, int slot, const ab_tensor *tensor,
                       ab_origin_cause *cause) {
    (void)o, (void)run, (void)slot;
    *cause = unknown(tensor);
}

void ab_origin_explain_cast(const ab_origin *o, const ab_move *move, ab_origin_cause *cause) {
    (void)o;
    *cause = unknown(move->to);
}

void ab_origin_explain_sum(const ab_origin *o, const ab_move *move, double part, double other,
                           ab_origin_cause *cause) {
    (void)o, (void)part, (void)other;
    *cause = unknown(move->to);
}
