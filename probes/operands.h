/* The dot products of conv2d and linear: the operands of one element of an output, an input gradient or a
 * weight gradient. Reads the op's tensors in their own formats; does not sum. */
#ifndef AB_PROBES_OPERANDS_H
#define AB_PROBES_OPERANDS_H

#include "kernels/format/format.h"
#include "probes/watch.h"

AB_BEGIN_DECLS

typedef enum ab_dot_pass {
    AB_DOT_FORWARD,
    AB_DOT_BACKWARD_DATA,
    AB_DOT_BACKWARD_WEIGHTS,
    AB_DOT_PASSES
} ab_dot_pass;

/* The op as a convolution; linear is a convolution of 1x1 images. [0] is vertical. */
typedef struct ab_dot_geometry {
    int64_t batch, in[2], out[2], in_channels, out_channels, groups;
    int64_t kernel[2], stride[2], padding[2], dilation[2];
} ab_dot_geometry;

/* All dot products of one pass. */
typedef struct ab_operands {
    ab_dot_geometry geometry;
    ab_dot_pass pass;
    const ab_tensor *x, *weight, *dout;
    int64_t results, products; /* number of dot products; maximum number of products in one */
} ab_operands;

/* The dot products of a pass that has just run. False if the op is not conv2d or linear, or has no such
 * pass. */
bool ab_operands_of(const ab_op_run *run, ab_dot_pass pass, ab_operands *operands);

/* Writes the factors of result `i` (an element of out, din or dweight, in memory order) to a and b
 * (`products` floats each), in the order kernel row, column, channel or image, row, column. Padding zeros are
 * omitted. Returns the number of products. */
int64_t ab_operands_gather(const ab_operands *operands, int64_t i, float *a, float *b);

/* The same of tensors in any memory; place: room for 2 * `products` indices. -1: a device failed. */
int64_t ab_operands_fetch(const ab_operands *operands, int64_t i, int64_t *place, float *a, float *b);

/* The same as element indices: a in x (forward) or dout, b in the weight or, for weight gradients, in x. */
int64_t ab_operands_places(const ab_operands *operands, int64_t i, int64_t *a, int64_t *b);

/* Dot products in emulated hardware accumulators, and exact ones; used by the accumulator audit. */

/* An accumulator: each product is added to a running sum, which is rounded (to nearest even) to `precision`
 * bits in the exponent range of a format. With a chunk, every `chunk` products that sum is added to an fp32
 * sum and reset. */
typedef struct ab_accumulator {
    const char *name;
    ab_format format;
    int chunk; /* 0: none */
} ab_accumulator;

/* fp16, bf16, fp32, 14-bit (fp32's exponents, as fp8 tensor cores do), and chunks of 128 products in 14 bits.
 */
int ab_accumulator_count(void);
const ab_accumulator *ab_accumulator_at(int i);

typedef struct ab_dot {
    double sum;
    int64_t addends, swamped; /* non-zero products; those that did not change the sum */
} ab_dot;

/* Sum of a[i] * b[i] in order. */
ab_dot ab_dot_in(const ab_accumulator *accumulator, const float *a, const float *b, int64_t n);

/* The exact sum, rounded faithfully to double (within 1 ulp). All values must be finite, and n < 2^30. */
double ab_dot_exact(const float *a, const float *b, int64_t n);

AB_END_DECLS

#endif
