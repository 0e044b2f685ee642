/* Shapes of a sample and its target. Filled from the network file; a data source adapts its samples to them
 * or fails. */
#ifndef AB_BENCH_DATA_SHAPE_H
#define AB_BENCH_DATA_SHAPE_H

#include "kernels/core/shape.h"

#include <stdbool.h>

AB_BEGIN_DECLS

typedef enum ab_input_kind {
    AB_INPUT_IMAGES, /* fp32 [height, width, channels] */
    AB_INPUT_VALUES, /* fp32 of any shape */
    AB_INPUT_TOKENS  /* int32 [length], below `vocabulary` */
} ab_input_kind;

typedef enum ab_target_kind {
    AB_TARGETS_CLASSES, /* int32, one class id or a tensor of them */
    AB_TARGETS_ONE_HOT, /* fp32 [classes], made from a class id */
    AB_TARGETS_TOKENS,  /* int32 [length]: the token after each token of the input */
    AB_TARGETS_VALUES   /* fp32 of any shape */
} ab_target_kind;

/* Shapes have no batch dimension. */
typedef struct ab_data_shape {
    ab_input_kind input;
    ab_shape x;
    int64_t vocabulary; /* of tokens */
    ab_target_kind targets;
    ab_shape y;
    int64_t classes; /* of the net; 0: not stated */
} ab_data_shape;

const char *ab_input_kind_text(ab_input_kind kind); /* "images", "numbers", "tokens" */

/* Whether samples (in) or targets (out) are int32 ids; else they are fp32 numbers. */
static inline bool ab_data_ids_in(const ab_data_shape *shape) { return shape->input == AB_INPUT_TOKENS; }
static inline bool ab_data_ids_out(const ab_data_shape *shape) {
    return shape->targets == AB_TARGETS_CLASSES || shape->targets == AB_TARGETS_TOKENS;
}

AB_END_DECLS

#endif
