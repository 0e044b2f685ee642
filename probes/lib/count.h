/* Counting the values of shown tensors. Nothing is read before the tensor's description was checked. */
#ifndef AB_PROBES_LIB_COUNT_H
#define AB_PROBES_LIB_COUNT_H

#include "probes/lib/handle.h"

AB_BEGIN_DECLS

/* The format of a dtype; NULL: not counted. */
const ab_format *ab_lib_format(int32_t dtype);

/* Why the values of a tensor cannot be read; AMPPROBE_COUNTED: they can. Looks at no value. */
ampprobe_skip ab_lib_unreadable(const ampprobe_tensor *tensor);

/* Of a tensor in host memory: a census of every `every`-th block of AB_CENSUS_BLOCK values, from a block on
 * that `turn` moves along, and of one block at least. Returns the number of values. */
int64_t ab_lib_census(const ampprobe_tensor *tensor, int32_t every, int64_t turn, ab_census *census);

/* Inf and NaN among all values of a tensor in host memory. */
int64_t ab_lib_nonfinite(const ampprobe_tensor *tensor);

/* Values first, first + step, ... of a readable tensor in any memory, widened. False: the GPU failed. */
bool ab_lib_pick(const ampprobe_tensor *tensor, int64_t first, int64_t step, int64_t n, float *values);

AB_END_DECLS

#endif
