/* One of the three products (forward, backward data, backward weights) for one shape and one implementation:
 * specification, arguments, properties. product.h chooses; narrow.c, sliced.c, reference.c and dnnl_shim.h
 * implement.
 *
 * Internal to kernels/. The result is always fp32, so a probe sees every value before its one rounding, and
 * probed and unprobed steps have the same bits. */
#ifndef AB_KERNELS_OPS_PRODUCT_PASS_H
#define AB_KERNELS_OPS_PRODUCT_PASS_H

#include "kernels/core/shape.h"
#include "kernels/ops/op.h"

AB_BEGIN_DECLS

typedef enum ab_pass_kind { AB_PASS_FORWARD, AB_PASS_BACKWARD_DATA, AB_PASS_BACKWARD_WEIGHTS } ab_pass_kind;

enum { AB_PASSES = 3, AB_PASS_TEXT = 80 };

/* A linear layer as a 1x1 convolution of 1x1 images. */
ab_conv ab_conv_of_linear(int64_t rows, int64_t features, int64_t out_features);

/* Specification of a pass. */
typedef struct ab_pass_spec {
    ab_pass_kind kind;
    ab_conv conv;
    bool bias;                   /* forward adds a bias */
    const ab_format *operands;   /* format of src, weights and dout: fp32 or a half format */
    const ab_format *accumulate; /* round every product and partial sum to this format; NULL: fp32 */
    bool native;                 /* half operands by any unit that the CPU has, also where it does not pay */
    bool stored;                 /* the pass may also be given tensors as they are stored (ab_pass_stored) */
    bool sizes_only;             /* packed_bytes, scratch_bytes and text are wanted; the pass cannot run */
} ab_pass_spec;

/* Operands and result as stored. The pass widens its operands and rounds its result piece by piece, while a
 * piece is in cache. It does so before anyone can check the result, so the caller takes it only if no operand
 * was non-finite. */
typedef struct ab_pass_stored {
    const ab_exec *exec;
    const ab_tensor *src, *dout;
    const ab_tensor *weights; /* for a pass that takes_stored_weights */
    ab_tensor *dst; /* of backward weights NULL if not wanted; a pass that does not rounds_weights leaves its
                       result in ab_pass_args.dst, which is scratch of one that does */
} ab_pass_stored;

typedef struct ab_pass_args {
    const void *src;     /* forward and backward weights: in; backward data: dout */
    const void *weights; /* forward and backward data: as written by pack, or plain if packed_bytes is 0 */
    const float *bias;   /* forward; NULL if none */
    const void *dout;    /* backward weights */
    float *dst;          /* out, din, or dweight in torch's layout */
    float *dbias;        /* backward weights of a pass that sums_bias; NULL if the op has no bias */
    void *scratch;       /* scratch_bytes, 64-byte aligned */
    const ab_pass_stored *stored; /* instead of src, dout and dst, for a pass that takes_stored; else NULL */
    bool *
        nonfinite; /* written by a pass that requests checking (nonfinite.h): src or dout is not all finite */
} ab_pass_args;

typedef struct ab_pass ab_pass;
struct ab_pass {
    size_t packed_bytes;       /* size of the weights in the pass's own layout; 0: reads plain weights */
    size_t scratch_bytes;      /* for run and pack */
    bool keeps_nonfinite;      /* propagates inf and NaN correctly: never checked */
    bool takes_stored;         /* made for spec.stored and able to */
    bool takes_stored_weights; /* then also weights as they are stored, instead of packed ones */
    bool rounds_weights;       /* backward weights of stored tensors writes stored->dst */
    bool sums_bias;          /* backward weights also computes the bias gradient; else the caller sums dout */
    char text[AB_PASS_TEXT]; /* implementation, for the record */
    /* Writes weights (torch's layout, the spec's operand format) to packed in the pass's layout. NULL if
     * packed_bytes is 0. */
    ab_status (*pack)(ab_pass *pass, const void *weights, void *packed, void *scratch);
    ab_status (*run)(ab_pass *pass, const ab_pass_args *args);
    void (*destroy)(ab_pass *pass);
};

/* Makes a pass, or leaves *pass NULL if the implementation does not support `spec`. */
typedef ab_status (*ab_pass_maker)(const ab_pass_spec *spec, ab_pass **pass);

/* Values in memory, in their format. */
typedef struct ab_values {
    const void *data;
    const ab_format *format;
} ab_values;

/* Those of `tensor`, or without one `plain` in `format`. */
static inline ab_values ab_values_of(const ab_tensor *tensor, const void *plain, const ab_format *format) {
    return tensor ? (ab_values){tensor->data, tensor->format} : (ab_values){plain, format};
}

/* Products of linear layers with at most AB_FEW_ROWS rows, for which a library's packing costs more than it
 * saves.
 *
 * Makes a pass for fp32 operands and 1x1 images (ab_few_rows_backward: one of the backward passes). Otherwise
 * leaves *pass NULL. Every result is summed in the order of the inner dimension, so bits depend neither on
 * the number of threads nor on the vector width.
 *
 * Internal to kernels/. */
enum { AB_FEW_ROWS = 128 };
AB_MUST_CHECK ab_status ab_few_rows_pass(const ab_pass_spec *spec, ab_pass **pass);
AB_MUST_CHECK ab_status ab_few_rows_backward(const ab_pass_spec *spec, ab_pass **pass);

/* The same for bf16 operands on CPUs with a unit for them (bf16_unit.h): all three products, forward for an
 * even number of inputs. */
AB_MUST_CHECK ab_status ab_few_rows_bf16_pass(const ab_pass_spec *spec, ab_pass **pass);

/* Products of linear layers with any number of rows, in blocks that stay in cache: fp32 operands; bf16 ones
 * as above. Otherwise leaves *pass NULL. Bits as above. */
AB_MUST_CHECK ab_status ab_blocked_pass(const ab_pass_spec *spec, ab_pass **pass);
AB_MUST_CHECK ab_status ab_blocked_bf16_pass(const ab_pass_spec *spec, ab_pass **pass);

/* Convolution for layers with at most eight result channels (LeNet's first layer, the input gradient of its
 * second), for which oneDNN's kernels are slow.
 *
 * Internal to kernels/. */

/* Makes a pass (pass.h) for fp32 operands, one group, horizontally undilated kernels and at most eight
 * channels of the result: out (forward), in (backward data) or out (backward weights). Otherwise leaves *pass
 * NULL. Bits do not depend on the number of threads. */
AB_MUST_CHECK ab_status ab_narrow_pass(const ab_pass_spec *spec, ab_pass **pass);

/* Direct convolution to a multiple of 16 channels, from at least 16 values under a row of the kernel, of
 * images whose rows have at least six results; stride 1 for backward data, no dilation, one group.
 *
 * Makes a pass for fp32 operands; leaves *pass NULL for other shapes and on CPUs without AVX2. Reads nothing
 * outside an image, so infinities and NaNs go where IEEE arithmetic puts them. Bits depend neither on the
 * number of threads nor on the vector width. */
AB_MUST_CHECK ab_status ab_direct_pass(const ab_pass_spec *spec, ab_pass **pass);

/* Convolutions of bf16 images on CPUs with a unit for them (bf16_unit.h): stride and dilation 1, one group,
 * channels at both ends at most 16 or a multiple of 16 up to 64. All three products; otherwise leaves *pass
 * NULL. Bits do not depend on the number of threads. */
AB_MUST_CHECK ab_status ab_conv_bf16_pass(const ab_pass_spec *spec, ab_pass **pass);

/* A product split into slices of the batch or of the outputs. A single-threaded library call per slice uses
 * all threads, and results do not depend on their number.
 *
 * Internal to kernels/. */

/* Makes a pass for `spec` from passes of `maker` for equal slices of the batch; the shape alone determines
 * their number. Weight gradients of the slices are added in double, in order; those of matrix products are
 * split by output features instead where there are few rows per output. Leaves *pass NULL if the maker does.
 * Reports non-finite src and dout in ab_pass_args.nonfinite: every slice checks its share while it is in
 * cache. Takes tensors as stored if spec->stored: every slice is widened and rounded while it is in cache. */
AB_MUST_CHECK ab_status ab_sliced_pass(ab_pass_maker maker, const ab_pass_spec *spec, ab_pass **pass);

/* Convolution in portable C: the fallback, the reference in tests, and the only implementation that
 * accumulates in a half format.
 *
 * Sums run in one documented order, term by term:
 *   forward            kernel row, kernel column, input channel
 *   backward data      kernel row, kernel column, output channel
 *   backward weights   image, output row, output column
 * With spec->accumulate every product and every partial sum is rounded to that format (RNE), which for
 * operands of that format equals performing each operation in it. Otherwise sums are fp32; backward weights
 * first sums each image.
 *
 * Internal to kernels/. Slow: plain loops without cache blocking. */

/* Supports every spec with fp32 operands. */
AB_MUST_CHECK ab_status ab_reference_pass(const ab_pass_spec *spec, ab_pass **pass);

/* Implementations of oneDNN that are known to be wrong for some shapes, so that they are not chosen.
 *
 * Found by comparing the AMX implementations of 2.6.3 with the definition, for thousands of random shapes,
 * the instructions emulated. Other versions were not run. Internal to kernels/. */

/* Whether the library's implementation `name` gives wrong results or crashes for the pass: what is wrong, in
 * words, or NULL. version: 10000 major + 100 minor + patch. matmul: a matrix product, not a convolution. */
const char *ab_library_defect(const ab_pass_spec *spec, bool matmul, const char *name, int version);

AB_END_DECLS

#endif
