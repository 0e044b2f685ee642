/* Always-on statistics, taken at every step or at the start and end of a run because probed steps alone would
 * miss them: non-finite inputs, dependence of inputs on labels, weights at the start and the end, how much of
 * the averaged weights can still change, and the labels in skipped steps. Bounded in size; values are only
 * read, and not interpreted here. */
#ifndef AB_BENCH_TRAIN_OBSERVE_ALWAYS_ON_STATS_H
#define AB_BENCH_TRAIN_OBSERVE_ALWAYS_ON_STATS_H

#include "bench/data/shape.h"
#include "bench/train/memory/memory.h"
#include "kernels/format/format.h"
#include "probes/probe.h"

AB_BEGIN_DECLS

enum {
    AB_ALWAYS_ON_BINS = 64,
    AB_ALWAYS_ON_CLASSES = 64,
    AB_ALWAYS_ON_SAMPLES = 4096,
    AB_ALWAYS_ON_NAME = 96,
    AB_ALWAYS_ON_STEPS = 32 /* that may be in progress at once */
};

/* Batches with non-finite inputs: their number, and details of the first. */
typedef struct ab_always_on_inputs {
    int64_t batches;  /* of the run, with such inputs */
    int64_t step;     /* of the first */
    int64_t samples;  /* of the first: samples with such an input */
    int64_t features; /* positions that have one in any sample */
    int64_t common;   /* positions that have one in every sample */
    int64_t size;     /* samples in a batch */
    int64_t sample;   /* of the first: number in the data set of the first such sample */
    int64_t feature;  /* its first such position */
    int64_t constant; /* first position that has one in every sample */
} ab_always_on_inputs;

/* Class means of inputs, pooled to AB_ALWAYS_ON_BINS numbers per sample (images: per channel): [0] with the
 * samples' labels, [1] with the labels of other samples of the batch, as a chance-level control. */
typedef struct ab_always_on_labels {
    int64_t seen;
    int classes; /* 0: no classes */
    double sum[2][AB_ALWAYS_ON_CLASSES][AB_ALWAYS_ON_BINS], count[2][AB_ALWAYS_ON_CLASSES];
    double total[AB_ALWAYS_ON_BINS], squares[AB_ALWAYS_ON_BINS];
} ab_always_on_labels;

/* Number of occurrences of each class in the batches of all completed steps, and of the skipped ones. */
typedef struct ab_always_on_classes {
    int32_t pending[AB_ALWAYS_ON_STEPS][AB_ALWAYS_ON_CLASSES]; /* of steps in progress, by step number */
    int64_t all[AB_ALWAYS_ON_CLASSES], skipped[AB_ALWAYS_ON_CLASSES];
    int64_t skips;
} ab_always_on_classes;

/* Weights at one point in time. */
typedef struct ab_always_on_weights {
    int64_t count, nonfinite, beyond_half; /* beyond_half: finite, but beyond the half format */
    double squares, largest;
    char nonfinite_name[AB_ALWAYS_ON_NAME], beyond_name[AB_ALWAYS_ON_NAME], largest_name[AB_ALWAYS_ON_NAME];
} ab_always_on_weights;

/* The averaged weights at the end: elements that differ from their weight, those of them that one more update
 * would not change, and sums of squares of the differences and of the weights. */
typedef struct ab_always_on_average {
    int64_t differing, stuck;
    double distance, weights;
} ab_always_on_average;

/* A resumed cell compared with its checkpoint: state that differs from what was saved. */
enum { AB_ALWAYS_ON_STATES = 8 };
typedef struct ab_always_on_state {
    char name[AB_ALWAYS_ON_NAME]; /* the checkpoint's key, such as "scaler.scale" or "taken" */
    double saved, used;
} ab_always_on_state;
typedef struct ab_always_on_resume {
    bool resumed;
    int tensors, tensors_differing; /* of the checkpoint; those whose bits differ in the cell */
    char tensor[AB_ALWAYS_ON_NAME]; /* the first of them */
    int states, states_differing;   /* numbers: position, schedule, loss scaler; the first that differ: */
    ab_always_on_state state[AB_ALWAYS_ON_STATES];
} ab_always_on_resume;

/* The loss of the best constant prediction (ab_cell_constant_loss), and of every loss op below it: the value
 * of its output there, and by how much the loss grows if that value grows by one. */
enum { AB_ALWAYS_ON_PARTS = 8 };
typedef struct ab_always_on_part {
    const char *op; /* its name; borrowed from the network */
    double loss, factor;
} ab_always_on_part;
typedef struct ab_always_on_constant {
    int64_t batches; /* that the loss is a mean of; 0: not defined */
    double loss;
    int parts;
    ab_always_on_part part[AB_ALWAYS_ON_PARTS];
} ab_always_on_constant;

typedef struct ab_always_on_stats {
    ab_always_on_inputs inputs;
    ab_always_on_labels labels;
    ab_always_on_classes classes;
    ab_always_on_weights first, last;
    ab_always_on_average average;
    ab_always_on_resume resume;
    ab_always_on_constant constant;
    uint8_t *places; /* [each]: bit 0: non-finite in some sample, bit 1: finite in some; owned */
} ab_always_on_stats;

/* Resets all statistics. */
void ab_always_on_clear(ab_always_on_stats *stats);

/* Adds a batch of n samples as written by ab_data_fill, with `each` elements per sample; index[n]: their
 * numbers in the data set. Labels are used for
 * the first AB_ALWAYS_ON_SAMPLES samples, inputs for all. samples NULL: they are finite, and
 * ab_always_on_compares_labels is false. Errors: AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_always_on_batch(ab_always_on_stats *stats, const ab_data_shape *shape,
                                           int64_t step, const int64_t *index, const void *samples,
                                           const void *targets, int64_t n, int64_t each);

/* Whether the next batch's samples are compared with their labels. */
bool ab_always_on_compares_labels(const ab_always_on_stats *stats, const ab_data_shape *shape);

/* Ends a step; `skipped`: without an update. */
void ab_always_on_step_end(ab_always_on_stats *stats, int64_t step, bool skipped);

/* Adds the n values of one parameter. */
void ab_always_on_add_weights(ab_always_on_weights *weights, const char *name, const float *values, int64_t n,
                              const ab_format *half);

/* Adds one parameter and its average, stored in `format` and updated with `decay`. */
void ab_always_on_average_of(ab_always_on_average *average, const float *weight, const float *mean, int64_t n,
                             const ab_format *format, double decay);

/* Between-class share of the variance of inputs, divided by its expectation for independent labels, (classes
 * - 1) / (samples - 1): about 1 if inputs do not depend on labels (one-way analysis of variance, Fisher
 * 1925). NAN without samples. `control`: with the labels of other samples. */
double ab_always_on_label_ratio(const ab_always_on_labels *labels, bool control);

/* Writes the object "vitals". */
void ab_always_on_report(const ab_always_on_stats *stats, bool averaged, ab_probe_sink *sink);

/* Always-on statistics of weights: the trained weights at one point in time, and the distance of the averaged
 * weights from them. */

/* Statistics of the current trained weights (masters if there are any) against the range of `half` (NULL:
 * fp16). Errors: AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_weight_stats_take(const ab_cell_memory *memory, const ab_format *half,
                                             ab_always_on_weights *weights);

/* Compares the current averaged weights with the trained ones; `decay` is that of the average. Errors:
 * AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_weight_stats_take_average(const ab_cell_memory *memory, double decay,
                                                     ab_always_on_average *average);

AB_END_DECLS

#endif
