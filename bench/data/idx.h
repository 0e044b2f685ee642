/* Image sets in the four IDX files of MNIST and its relatives (yann.lecun.com/exdb/mnist, "file formats"):
 * big-endian header {magic, count[, rows, columns]}, then unsigned bytes. Plain or gzip. One channel; no
 * other element types. */
#ifndef AB_BENCH_DATA_IDX_H
#define AB_BENCH_DATA_IDX_H

#include "bench/data/block.h"
#include "bench/data/data.h"

#include <stdbool.h>

AB_BEGIN_DECLS

/* Loads {train,t10k or test}-{images-idx3,labels-idx1}-ubyte[.gz] of a directory into data->split, sets the
 * stored shape, channels, classes and origin. `classes`: number of classes, or 0: as many as the training
 * labels use; a larger label is an error. Memory grows with the bytes read, not with the sizes in the header.
 * AB_INPUT names file, expected, found. */
AB_MUST_CHECK ab_status ab_idx_load(ab_data *data, const char *directory, int64_t classes);

/* True if the directory has a file of training images; the file is not read. */
bool ab_idx_present(const char *directory);

AB_END_DECLS

#endif
