/* Sums by chunks, and how sums become means. */
#include "kernels/collective/collective.h"

#include "kernels/format/convert.h"

#include <string.h>

static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};

/* ---- sums ------------------------------------------------------------------------------------ */

int64_t ab_reduce_scratch(const ab_reduction *reduction, int64_t ranks, int64_t n) {
    return reduction->scheme->arrays ? reduction->scheme->arrays(ranks) * n : 0;
}

void ab_reduce(const ab_reduction *reduction, const ab_reduce_block *block) {
    reduction->scheme->reduce(reduction, block);
}

/* ---- means ----------------------------------------------------------------------------------- */

int64_t ab_reduce_sqrt_factor(int64_t ranks) {
    int64_t factor = 1;
    while (ranks % factor == 0 && ranks / factor > factor) factor *= 2;
    return factor;
}

/* fp32 numbers are of the wire already. */
static void round_to(const ab_format *wire, float *values, int64_t n) {
    if (wire != &ab_format_fp32) ab_round_array(values, wire, &nearest, n);
}

/* A value becomes value * times / by; one of the two is 1. */
typedef struct scaling {
    float times, by;
} scaling;

static scaling send_scaling(const ab_reduction *reduction, int64_t ranks) {
    float share = (float)(1.0 / (double)ranks);
    switch (reduction->divide) {
    case AB_DIVIDE_PRE:
        return (scaling){share, 1};
    case AB_DIVIDE_SQRT:
        return (scaling){1, (float)ab_reduce_sqrt_factor(ranks)};
    case AB_DIVIDE_FACTOR:
        return (scaling){(float)(1.0 / reduction->factor), 1};
    case AB_DIVIDE_AVERAGE:
        ab_round_array(&share, reduction->wire, &nearest, 1);
        return (scaling){share, 1};
    case AB_DIVIDE_POST:
        break;
    }
    return (scaling){1, 1};
}

static scaling finish_scaling(const ab_reduction *reduction, int64_t ranks) {
    switch (reduction->divide) {
    case AB_DIVIDE_POST:
        return (scaling){(float)(1.0 / (double)ranks), 1};
    case AB_DIVIDE_SQRT:
        return (scaling){1, (float)((double)ranks / (double)ab_reduce_sqrt_factor(ranks))};
    case AB_DIVIDE_FACTOR:
        return (scaling){(float)(reduction->factor / (double)ranks), 1};
    case AB_DIVIDE_PRE:
    case AB_DIVIDE_AVERAGE:
        break;
    }
    return (scaling){1, 1};
}

static void apply(scaling scale, float *values, int64_t n) {
    if (scale.by != 1.0F)
        for (int64_t i = 0; i < n; i++) values[i] /= scale.by;
    else if (scale.times != 1.0F)
        for (int64_t i = 0; i < n; i++) values[i] *= scale.times;
}

void ab_reduce_send(const ab_reduction *reduction, int64_t ranks, const float *from, float *to, int64_t n) {
    const scaling scale = send_scaling(reduction, ranks);
    const bool rounds = !reduction->scheme->sums_wide, scales = scale.times != 1.0F || scale.by != 1.0F;
    if (to != from) memmove(to, from, (size_t)n * sizeof *to);
    if (rounds) round_to(reduction->wire, to, n);
    apply(scale, to, n);
    if (rounds && scales) round_to(reduction->wire, to, n);
}

void ab_reduce_finish(const ab_reduction *reduction, int64_t ranks, float *sum, int64_t n) {
    apply(finish_scaling(reduction, ranks), sum, n);
    round_to(reduction->wire, sum, n);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

int64_t ab_reduce_bucket(const ab_reduction *reduction, double bytes) {
    double elements = bytes / (double)reduction->wire->storage_bytes;
    return elements < 1 ? 1 : elements > 0x1p62 ? INT64_C(1) << 62 : (int64_t)elements;
}

void ab_reduce_range(const ab_reduction *reduction, const ab_reduce_block *block, int64_t position,
                     int64_t bucket, const float **shifted) {
    int64_t ranks = block->ranks, chunk = (bucket + ranks - 1) / ranks;
    for (int64_t at = 0; at < block->n;) {
        int64_t within = (position + at) % bucket, next = (within / chunk + 1) * chunk;
        int64_t end = at + (next < bucket ? next : bucket) - within;
        if (end > block->n) end = block->n;
        for (int64_t r = 0; r < ranks; r++) shifted[r] = block->row[r] + at;
        const ab_reduce_block part = {shifted,         ranks,         end - at, (within / chunk + 1) % ranks,
                                      block->sum + at, block->scratch};
        ab_reduce(reduction, &part);
        at = end;
    }
}
