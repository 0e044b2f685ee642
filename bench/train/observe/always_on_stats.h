/* What a cell notices of itself at every step or at the ends of a run, because probed steps alone would miss
 * it: inputs that are no finite numbers, whether labels have anything to do with inputs, weights at the start
 * and at the end, and how much of an average of the weights can still move, and which labels were in steps
 * without an update. Bounded in size; looks, changes nothing, judges nothing. */
#ifndef AB_BENCH_TRAIN_OBSERVE_ALWAYS_ON_STATS_H
#define AB_BENCH_TRAIN_OBSERVE_ALWAYS_ON_STATS_H

#include "bench/data/shape.h"
#include "kernels/format/format.h"
#include "probes/probe.h"

AB_BEGIN_DECLS

enum {
    AB_ALWAYS_ON_BINS = 64,
    AB_ALWAYS_ON_CLASSES = 64,
    AB_ALWAYS_ON_SAMPLES = 4096,
    AB_ALWAYS_ON_NAME = 96,
    AB_ALWAYS_ON_STEPS = 32 /* that may be under way at once */
};

/* Batches with inputs that are not finite: how many there were, and what the first was like. */
typedef struct ab_always_on_inputs {
    int64_t batches;  /* of the run, with such inputs */
    int64_t step;     /* of the first */
    int64_t samples;  /* in it: with such an input, */
    int64_t features; /* places that have one in any sample, */
    int64_t common;   /* places that have one in every sample; */
    int64_t size;     /* samples in a batch */
} ab_always_on_inputs;

/* Class means of inputs, pooled to AB_ALWAYS_ON_BINS numbers a sample (channels of images apart): [0] with
 * the samples' labels, [1] with the labels of other samples of the batch, which shows what chance gives. */
typedef struct ab_always_on_labels {
    int64_t seen;
    int classes; /* 0: there are none */
    double sum[2][AB_ALWAYS_ON_CLASSES][AB_ALWAYS_ON_BINS], count[2][AB_ALWAYS_ON_CLASSES];
    double total[AB_ALWAYS_ON_BINS], squares[AB_ALWAYS_ON_BINS];
} ab_always_on_labels;

/* How often each class was in the batches of all steps that ended, and of those that were skipped. */
typedef struct ab_always_on_classes {
    int32_t pending[AB_ALWAYS_ON_STEPS][AB_ALWAYS_ON_CLASSES]; /* of steps under way, by their number */
    int64_t all[AB_ALWAYS_ON_CLASSES], skipped[AB_ALWAYS_ON_CLASSES];
    int64_t skips;
} ab_always_on_classes;

/* Weights at one moment. */
typedef struct ab_always_on_weights {
    int64_t count, nonfinite, beyond_half; /* beyond_half: finite, but not in the half format */
    double squares, largest;
    char nonfinite_name[AB_ALWAYS_ON_NAME], beyond_name[AB_ALWAYS_ON_NAME], largest_name[AB_ALWAYS_ON_NAME];
} ab_always_on_weights;

/* The average of the weights at the end: elements that differ from their weight, those of them that one more
 * update would leave as they are, and sums of squares of the differences and of the weights. */
typedef struct ab_always_on_average {
    int64_t differing, stuck;
    double distance, weights;
} ab_always_on_average;

/* A resumed cell beside its checkpoint: what it does not hold as it was saved. */
enum { AB_ALWAYS_ON_STATES = 8 };
typedef struct ab_always_on_state {
    char name[AB_ALWAYS_ON_NAME]; /* the checkpoint's key, as "scaler.scale" or "taken" */
    double saved, used;
} ab_always_on_state;
typedef struct ab_always_on_resume {
    bool resumed;
    int tensors, tensors_differing; /* of the checkpoint; those that have other bits in the cell */
    char tensor[AB_ALWAYS_ON_NAME]; /* the first of them */
    int states, states_differing;   /* numbers: position, schedule, loss scaler; the first that differ: */
    ab_always_on_state state[AB_ALWAYS_ON_STATES];
} ab_always_on_resume;

typedef struct ab_always_on_stats {
    ab_always_on_inputs inputs;
    ab_always_on_labels labels;
    ab_always_on_classes classes;
    ab_always_on_weights first, last;
    ab_always_on_average average;
    ab_always_on_resume resume;
    uint8_t *places; /* [each]: bit 0: bad in some sample, bit 1: good in some; owned */
} ab_always_on_stats;

/* Nothing seen yet. */
void ab_always_on_clear(ab_always_on_stats *stats);

/* A batch of n samples as ab_data_fill wrote it, of `each` elements and `labels` targets a sample. The labels
 * of the first AB_ALWAYS_ON_SAMPLES are looked at, inputs always. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_always_on_batch(ab_always_on_stats *stats, const ab_data_shape *shape,
                                           int64_t step, const void *samples, const void *targets, int64_t n,
                                           int64_t each);

/* A step is over. */
void ab_always_on_step_end(ab_always_on_stats *stats, int64_t step, bool skipped);

/* The values of one parameter. */
void ab_always_on_weigh(ab_always_on_weights *weights, const char *name, const float *values, int64_t n,
                        const ab_format *half);

/* One parameter and its average, stored in `format`; decay is the average's. */
void ab_always_on_average_of(ab_always_on_average *average, const float *weight, const float *mean, int64_t n,
                             const ab_format *format, double decay);

/* Between-class share of the variance of inputs over what independent labels would give on average, (classes
 * - 1) / (samples - 1): about 1 if labels say nothing of inputs (one-way analysis of variance, Fisher 1925).
 * NAN if nothing was seen. `control`: with the labels of other samples. */
double ab_always_on_label_ratio(const ab_always_on_labels *labels, bool control);

/* Writes the object "vitals". */
void ab_always_on_report(const ab_always_on_stats *stats, bool averaged, ab_probe_sink *sink);

AB_END_DECLS

#endif
