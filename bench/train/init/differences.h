/* What a file of tensors lacks, has too much or has in other shapes, as text for one line: the first few by
 * name. */
#ifndef AB_BENCH_TRAIN_INIT_DIFFERENCES_H
#define AB_BENCH_TRAIN_INIT_DIFFERENCES_H

#include "bench/tensorfile/tensorfile.h"

#include <stdbool.h>

AB_BEGIN_DECLS

/* All zero: none. */
typedef struct ab_differences {
    int count;
    char text[640];
} ab_differences;

/* "'name' how"; the name may hold anything. */
void ab_differ(ab_differences *found, const char *name, const char *how);

/* The tensor called `name` in the file, or NULL. */
const ab_tensor_entry *ab_entry_of(const ab_tensorfile *file, const char *name);

/* Notes a missing tensor, or one whose dims, taken in the order `axis` (NULL: as they are), are not `shape`.
 */
void ab_differ_from(ab_differences *found, const ab_tensorfile *file, const char *name, const ab_shape *shape,
                    const int *axis);

/* AB_OK, or AB_INPUT: "tensors differ from those of network NET: ...". */
AB_MUST_CHECK ab_status ab_differences_status(const ab_differences *found, const char *net);

AB_END_DECLS

#endif
