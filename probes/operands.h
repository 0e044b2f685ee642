/* The dot products behind conv2d and linear: which numbers are multiplied and added for one element of an
 * output, an input gradient or a weight gradient. Reads the op's tensors in their own formats; does no sums.
 */
#ifndef AB_PROBES_OPERANDS_H
#define AB_PROBES_OPERANDS_H

#include "probes/watch.h"

AB_BEGIN_DECLS

typedef enum ab_dot_pass {
    AB_DOT_FORWARD,
    AB_DOT_BACKWARD_DATA,
    AB_DOT_BACKWARD_WEIGHTS,
    AB_DOT_PASSES
} ab_dot_pass;

/* A product op as a convolution; linear is one of 1x1 images. [0] is vertical. */
typedef struct ab_dot_geometry {
    int64_t batch, in[2], out[2], in_channels, out_channels, groups;
    int64_t kernel[2], stride[2], padding[2], dilation[2];
} ab_dot_geometry;

/* All dot products of one pass. */
typedef struct ab_operands {
    ab_dot_geometry geometry;
    ab_dot_pass pass;
    const ab_tensor *x, *weight, *dout;
    int64_t results, products; /* dot products there are; numbers multiplied in one, at most */
} ab_operands;

/* The dot products of a pass that has just run. False if it is no conv2d or linear, or had no such pass. */
bool ab_operands_of(const ab_op_run *run, ab_dot_pass pass, ab_operands *operands);

/* Writes the factors of result `i` (an element of out, din or dweight, in memory order) to a and b, which
 * have room for `products` each, in the order of kernel row, column, channel or image, row, column. Zeros of
 * the padding are left out. Returns how many there are. */
int64_t ab_operands_gather(const ab_operands *operands, int64_t i, float *a, float *b);

/* The same as places: a in x (forward) or dout, b in the weight or, of a weight's gradient, in x. */
int64_t ab_operands_places(const ab_operands *operands, int64_t i, int64_t *a, int64_t *b);

AB_END_DECLS

#endif
