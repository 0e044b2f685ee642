/* Work in fixed blocks: how the element-wise kernels split a tensor, so that results never depend on the
 * number of threads, and how they read and write stored formats through small fp32 buffers that stay in the
 * first-level cache.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_BLOCKS_H
#define AB_KERNELS_OPS_BLOCKS_H

#include "kernels/core/parallel.h"
#include "kernels/ops/op.h"

AB_BEGIN_DECLS

enum {
    AB_BLOCK = 2048,           /* elements: 8 KiB of fp32, so that three buffers fit the first-level cache */
    AB_WIDE_BLOCK = 16 * 1024, /* elements: for plain conversion, which needs no buffer */
    AB_PARALLEL_MIN = 64 * 1024, /* elements below which waking a second thread costs more than it saves */
    AB_ALIGN = 64                /* bytes; of everything that is carved out of workspace and state memory */
};

/* Integer helpers: div_up rounds a / b up (b > 0), aligned rounds bytes up to AB_ALIGN. */
static inline int64_t ab_min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ab_max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ab_div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline size_t ab_aligned(size_t bytes) { return (bytes + AB_ALIGN - 1) / AB_ALIGN * AB_ALIGN; }

/* Bytes of n fp32 values, rounded up to AB_ALIGN. */
static inline size_t ab_floats_bytes(int64_t n) { return ab_aligned((size_t)n * sizeof(float)); }

/* fp32 values [offset, offset + n) of a tensor: its own memory if it is fp32, else widened into buffer. */
const float *ab_read(const ab_tensor *tensor, int64_t offset, int64_t n, float *buffer);

/* Where to compute those values before ab_emit: the tensor's own memory if it is fp32, else buffer. */
float *ab_target(const ab_tensor *tensor, int64_t offset, float *buffer);

/* dst = f(a, b) element by element, in parallel, computed in fp32 and rounded once. b may be NULL. dst may be
 * a or b. */
typedef void (*ab_map)(float *out, const float *a, const float *b, int64_t n);
void ab_map_tensors(const ab_exec *exec, ab_tensor *dst, ab_map f, const ab_tensor *a, const ab_tensor *b);

/* The same image by image (dim[0]), for ops that work on a whole image: f gets fp32 images of dst, a and b (b
 * may be NULL). Needs ab_images_workspace() bytes of workspace. */
typedef void (*ab_map_image)(const void *self, float *out, const float *a, const float *b);
void ab_map_images(const ab_exec *exec, ab_tensor *dst, ab_map_image f, const void *self, const ab_tensor *a,
                   const ab_tensor *b);
size_t ab_images_workspace(const ab_tensor *dst, const ab_tensor *a, const ab_tensor *b);

/* ab_parallel_for over work of `elements` elements in all: small work stays on this thread. */
void ab_for_chunks(int64_t elements, int64_t chunks, ab_work work, void *argument);

/* The same for work that was given buffers for `threads` threads: on this thread alone if there are more by
 * now. */
void ab_for_prepared(int threads, int64_t chunks, ab_work work, void *argument);

/* Whether every thread has a buffer of thread_bytes in the workspace behind its first fixed_bytes. False when
 * threads were added after the op was prepared: the work then runs on this thread alone. */
bool ab_threads_fit(const ab_exec *exec, size_t fixed_bytes, size_t thread_bytes);

/* Address of element `offset`. */
char *ab_element(const ab_tensor *tensor, int64_t offset);

/* Bytes an element takes in memory: 4 for fp32 and class ids, 2 for fp16 and bf16. */
size_t ab_element_bytes(const ab_tensor *tensor);

/* True for fp32 tensors. */
bool ab_is_f32(const ab_tensor *tensor);

/* The describe() of ops that are only our own vector kernels: "own:avx2". */
const char *ab_describe_own(const ab_op_io *io, const char *pass);

AB_END_DECLS

#endif
