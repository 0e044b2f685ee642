/* Causes of non-finite values: some of the non-finite elements are recomputed in double from the inputs of
 * their op. The backward pass is linear in the loss scale, so the value without it follows by division. */
#include "kernels/backend/backend.h"
#include "probes/element64/element64.h"
#include "probes/origin/origin.h"

#include <float.h>

enum { SAMPLES = 8, PLACES = 256 };

static ab_origin_cause unknown(const ab_tensor *tensor) {
    return (ab_origin_cause){.value = (double)NAN,
                             .unscaled = (double)NAN,
                             .partial = (double)NAN,
                             .limit = ab_format_overflow_limit(tensor->format)};
}

/* Cause of one element. `accumulate`: smallest magnitude that overflows in a sum. */
static ab_origin_cause classify(const ab_element64 *e, double limit, double accumulate, double scale) {
    ab_origin_cause cause = {
        .samples = 1, .value = e->value, .unscaled = e->value / scale, .partial = e->largest};
    cause.limit = limit;
    cause.largest = fabs(fabs(e->value) >= limit ? e->value : e->largest);
    if (!isfinite(cause.largest) || cause.largest < limit) cause.largest = 0;
    cause.id = !isfinite(e->value) ? AB_CAUSE_mathematics
               : fabs(e->value) >= limit
                   ? fabs(cause.unscaled) >= limit ? AB_CAUSE_range_overflow : AB_CAUSE_scale_induced
               : e->largest >= accumulate ? e->largest / scale >= accumulate || scale == 1
                                                ? AB_CAUSE_accumulator_overflow
                                                : AB_CAUSE_scale_induced
                                          : AB_CAUSE_not_reproduced;
    return cause;
}

static double accumulator_limit(const ab_origin *o, const ab_op_run *run) {
    static const ab_op *const products[] = {
        &ab_op_linear, &ab_op_conv2d, &ab_op_matmul, &ab_op_scaled_dot_product_attention,
        &ab_op_lstm,   &ab_op_rnn,    &ab_op_gru};
    const bool own = run->exec && run->exec->accumulate_half; /* of this op */
    for (size_t i = 0; i < AB_COUNT_OF(products) && (own || o->accumulate); i++)
        if (run->op == products[i] && run->io->out->format != &ab_format_fp32)
            return ab_format_overflow_limit(o->accumulate ? o->accumulate : run->io->out->format);
    return ab_format_overflow_limit(&ab_format_fp32);
}

/* The most frequent cause of the samples. */
static ab_origin_cause most_frequent(const ab_origin_cause *found, int n) {
    int best = 0, most = 0;
    for (int i = 0; i < n; i++) {
        int same = 0;
        for (int k = 0; k < n; k++) same += found[k].id == found[i].id;
        if (same <= most) continue;
        best = i;
        most = same;
    }
    ab_origin_cause cause = found[best];
    for (int i = 0; i < n; i++)
        if (found[i].id == cause.id && found[i].largest > cause.largest) cause.largest = found[i].largest;
    cause.samples = n;
    return cause;
}

/* Infinities that the network writes on purpose (a mask) are not explained. */
static bool is_intended(const ab_op_run *run, const ab_element64 *e) {
    return run->op == &ab_op_masked_fill && !run->backward && isinf(e->value);
}

/* An in-place op without arithmetic computes nothing, and its input is overwritten. */
static bool is_in_place(const ab_op_run *run) {
    const ab_tensor *from = run->backward ? run->io->dout : run->io->in[0],
                    *to = run->backward ? run->io->din[0] : run->io->out;
    return run->op->is_view && from && to && from->data == to->data;
}

/* Examines a few elements at a time until one needs an explanation. */
void ab_origin_explain(const ab_origin *o, const ab_op_run *run, int slot, const ab_tensor *tensor,
                       ab_origin_cause *cause) {
    int64_t place[PLACES];
    ab_origin_cause found[SAMPLES];
    const double scale = run->backward && o->scale > 0 ? o->scale : 1;
    const double limit = ab_format_overflow_limit(tensor->format);
    const int n = ab_extremes_places(tensor, place, PLACES);
    const ab_op_io *io = ab_op_run_on_host(run);
    ab_op_run here = *run;
    int classified = 0;
    here.io = io;
    for (int first = 0; io && first < n && classified == 0; first += SAMPLES) {
        ab_element64 e[SAMPLES];
        const int most = n - first < SAMPLES ? n - first : SAMPLES;
        const int some = ab_elements64_of(&here, slot, place + first, most, e);
        for (int i = 0; i < some; i++)
            if (!is_intended(run, &e[i]))
                found[classified++] = classify(&e[i], limit, accumulator_limit(o, run), scale);
        if (some == 0) break;
    }
    *cause = classified ? most_frequent(found, classified) : unknown(tensor);
    if (io && is_in_place(run)) cause->id = AB_CAUSE_not_reproduced;
}

/* One element of a tensor in any memory; NAN if it cannot be read. */
static double element_of(const ab_tensor *tensor, int64_t i) {
    const ab_backend *backend = ab_backend_of(tensor->device);
    ab_tensor one = *tensor;
    float value;
    if (backend->host_memory) return ab_read64(tensor, i);
    one.data = (char *)tensor->data + ab_format_bytes(tensor->format, i);
    one.shape = (ab_shape){1, {1}};
    return ab_tensor_read(&one, &value) == AB_OK ? (double)value : (double)NAN;
}

void ab_origin_explain_cast(const ab_origin *o, const ab_move *move, ab_origin_cause *cause) {
    int64_t place;
    *cause = unknown(move->to);
    if (ab_extremes_places(move->to, &place, 1) == 0) return;
    const double value = element_of(move->from, place), scale = move->backward && o->scale > 0 ? o->scale : 1;
    const ab_element64 e = {value, fabs(value)};
    *cause = classify(&e, cause->limit, DBL_MAX, scale);
}

/* The addends are overwritten: their sum is at most the sum of their magnitudes. */
void ab_origin_explain_sum(const ab_origin *o, const ab_move *move, double part, double other,
                           ab_origin_cause *cause) {
    const ab_element64 e = {part + other, part + other};
    *cause = classify(&e, ab_format_overflow_limit(move->to->format), DBL_MAX, o->scale > 0 ? o->scale : 1);
}
