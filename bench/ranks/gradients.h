/* The gradients of several micro-batches, one file each: tensors matched by name, read one tensor at a time.
 */
#ifndef AB_BENCH_RANKS_GRADIENTS_H
#define AB_BENCH_RANKS_GRADIENTS_H

#include "bench/tensorfile/tensorfile.h"

AB_BEGIN_DECLS

typedef struct ab_gradients {
    ab_tensorfile **file; /* owned; [files] */
    int files;
    const ab_tensor_entry **entry; /* owned; [tensors][files], the first file's order */
    int tensors, skipped;          /* skipped: tensors that are not floating-point */
} ab_gradients;

/* Opens the files, at least one, and matches their tensors. Errors: see ab_ranks_run. The caller closes, also
 * on failure. */
AB_MUST_CHECK ab_status ab_gradients_open(const char *const *path, int files, ab_gradients *gradients);
void ab_gradients_close(ab_gradients *gradients);

/* The format that a tensor has in the first file, if it can be sent: fp32, fp16 or bf16; else fp32. */
const ab_format *ab_gradients_format(const ab_gradients *gradients, int tensor);

/* Borrowed. */
const char *ab_gradients_name(const ab_gradients *gradients, int tensor);

/* Elements of a tensor, and of the largest one. */
int64_t ab_gradients_count(const ab_gradients *gradients, int tensor);
int64_t ab_gradients_largest(const ab_gradients *gradients);

/* Reads a tensor of all files into value[files][count]. */
AB_MUST_CHECK ab_status ab_gradients_read(const ab_gradients *gradients, int tensor, float *value);

AB_END_DECLS

#endif
