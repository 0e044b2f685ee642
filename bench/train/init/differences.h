/* Missing tensors, unexpected tensors and shape mismatches of a tensor file, as one line of text: the first
 * few by name. */
#ifndef AB_BENCH_TRAIN_INIT_DIFFERENCES_H
#define AB_BENCH_TRAIN_INIT_DIFFERENCES_H

#include "bench/tensorfile/tensorfile.h"

#include <stdbool.h>

AB_BEGIN_DECLS

/* Zero-initialised: no differences. */
typedef struct ab_differences {
    int count;
    char text[640];
} ab_differences;

/* Appends "'name' how"; `name` may contain any bytes. */
void ab_differ(ab_differences *found, const char *name, const char *how);

/* The tensor `name` of the file, or NULL. */
const ab_tensor_entry *ab_entry_of(const ab_tensorfile *file, const char *name);

/* Appends a missing tensor, or one whose dims, permuted by `axis` (NULL: not permuted), differ from
 * `shape`. */
void ab_differ_from(ab_differences *found, const ab_tensorfile *file, const char *name, const ab_shape *shape,
                    const int *axis);

/* AB_OK, or AB_INPUT: "tensors differ from those of network NET: ...". */
AB_MUST_CHECK ab_status ab_differences_status(const ab_differences *found, const char *net);

AB_END_DECLS

#endif
