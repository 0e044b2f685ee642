/* .safetensors: 8-byte little-endian header length, a JSON header, then the tensors' bytes, row-major,
 * little-endian, without gaps (format of the Hugging Face safetensors package). Written as F32, F16 or BF16.
 */
#ifndef AB_BENCH_TENSORFILE_SAFETENSORS_H
#define AB_BENCH_TENSORFILE_SAFETENSORS_H

#include "bench/tensorfile/tensorfile.h"

AB_BEGIN_DECLS

/* The only key of the header that is not a tensor. */
#define AB_SAFETENSORS_METADATA "__metadata__"

typedef struct ab_safetensor_item {
    const char *name; /* UTF-8, unique in the file */
    ab_shape shape;
    const float *data;       /* ab_shape_count(&shape) values, row-major */
    const ab_format *format; /* fp16 and bf16: values are rounded to it; all others and NULL: fp32 */
} ab_safetensor_item;

/* Writes the items in the given order, atomically: temporary file in the same folder, fsync, rename.
 * `metadata` is key, value, key, value, ..., NULL, or NULL for none; it becomes __metadata__. AB_OUTPUT names
 * the file; AB_INTERNAL for names that are not unique or not UTF-8. */
AB_MUST_CHECK ab_status ab_safetensors_write(const char *path, const ab_safetensor_item *items, int count,
                                             const char *const *metadata);

/* Like ab_tensorfile_open, for .safetensors only. Read with ab_tensorfile_read_as, close with
 * ab_tensorfile_close. F64, F32, F16, BF16, F8_E4M3 and F8_E5M2 can be read, other dtypes are listed. */
AB_MUST_CHECK ab_status ab_safetensors_open(const char *path, ab_tensorfile **file);

/* Sets *value to the metadata text of `key` of a file opened by ab_safetensors_open, or NULL. The caller
 * frees *value. */
AB_MUST_CHECK ab_status ab_safetensors_metadata(const ab_tensorfile *file, const char *key, char **value);

AB_END_DECLS

#endif
