/* Work in fixed blocks. Element-wise kernels split a tensor by these sizes, so results never depend on the
 * number of threads, and convert stored formats through small fp32 buffers that fit the L1 cache.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_BLOCKS_H
#define AB_KERNELS_OPS_BLOCKS_H

#include "kernels/core/parallel.h"
#include "kernels/ops/op.h"

AB_BEGIN_DECLS

enum {
    AB_BLOCK = 2048,             /* elements: 8 KiB of fp32, so three buffers fit the L1 cache */
    AB_WIDE_BLOCK = 16 * 1024,   /* elements: for conversions without a buffer */
    AB_PARALLEL_MIN = 16 * 1024, /* elements; smaller work runs on one thread, since waking a second one costs
                                    more than it saves */
    AB_ALIGN = 64                /* bytes: alignment of all workspace and state allocations */
};

/* div_up rounds a / b up (b > 0); aligned rounds bytes up to a multiple of AB_ALIGN. */
static inline int64_t ab_min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ab_max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ab_div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline size_t ab_aligned(size_t bytes) { return (bytes + AB_ALIGN - 1) / AB_ALIGN * AB_ALIGN; }

/* Bytes of n fp32 values, rounded up to AB_ALIGN. */
static inline size_t ab_floats_bytes(int64_t n) { return ab_aligned((size_t)n * sizeof(float)); }

/* The same of n 16-bit values. */
static inline size_t ab_halves_bytes(int64_t n) { return ab_aligned((size_t)n * sizeof(uint16_t)); }

/* Returns values [offset, offset + n) as fp32: the tensor's own memory if it is fp32, else converted into
 * buffer. */
const float *ab_read(const ab_tensor *tensor, int64_t offset, int64_t n, float *buffer);

/* Where to compute values [offset, ...) before ab_emit: the tensor's own memory if it is fp32, else
 * buffer. */
float *ab_target(const ab_tensor *tensor, int64_t offset, float *buffer);

/* dst = f(a, b) per element, in parallel, computed in fp32 and rounded once. b may be NULL. dst may alias a
 * or b. */
typedef void (*ab_map)(float *out, const float *a, const float *b, int64_t n);
void ab_map_tensors(const ab_exec *exec, ab_tensor *dst, ab_map f, const ab_tensor *a, const ab_tensor *b);

/* The same per image (dim[0]), for ops that need a whole image: f gets fp32 images of dst, a and b (b may be
 * NULL). Needs ab_images_workspace() bytes of workspace. */
typedef void (*ab_map_image)(const void *self, float *out, const float *a, const float *b);
void ab_map_images(const ab_exec *exec, ab_tensor *dst, ab_map_image f, const void *self, const ab_tensor *a,
                   const ab_tensor *b);

/* The same where all tensors have one half format and nothing observes: `bits` computes an image on the
 * stored codes, or returns false for one that needs f. `infinity`: the code of inf. */
typedef bool (*ab_map_image_bits)(const void *self, uint16_t infinity, uint16_t *out, const uint16_t *a,
                                  const uint16_t *b);
void ab_map_images_bits(const ab_exec *exec, ab_tensor *dst, ab_map_image f, ab_map_image_bits bits,
                        const void *self, const ab_tensor *a, const ab_tensor *b);
size_t ab_images_workspace(const ab_tensor *dst, const ab_tensor *a, const ab_tensor *b);

/* ab_parallel_for over chunks that total `elements` elements; small work runs on the calling thread. */
void ab_for_chunks(int64_t elements, int64_t chunks, ab_work work, void *argument);

/* The same for work that was given buffers for `threads` threads. Runs on the calling thread if the pool has
 * since grown beyond that. */
void ab_for_prepared(int threads, int64_t chunks, ab_work work, void *argument);

/* Whether the workspace holds fixed_bytes plus thread_bytes per thread. False if threads were added after the
 * op was prepared; the work then runs on the calling thread. */
bool ab_threads_fit(const ab_exec *exec, size_t fixed_bytes, size_t thread_bytes);

/* Address of element `offset`. */
char *ab_element(const ab_tensor *tensor, int64_t offset);

/* Storage bytes per element: 4 for fp32 and class ids, 2 for fp16 and bf16. */
size_t ab_element_bytes(const ab_tensor *tensor);

/* True for fp32 tensors. */
bool ab_is_f32(const ab_tensor *tensor);

/* describe() of ops that use only the vector kernels of this project: "own:avx2". */
const char *ab_describe_own(const ab_op_io *io, const char *pass);

AB_END_DECLS

#endif
