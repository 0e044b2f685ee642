/* Fast path: unpacks a whole gzip file with libdeflate, if the build has it, about twice as fast as zlib's
 * streams. On false the caller reads the file with zlib and reports errors from there. */
#ifndef AB_BENCH_DATA_GUNZIP_H
#define AB_BENCH_DATA_GUNZIP_H

#include "bench/data/block.h"

#include <stdbool.h>

AB_BEGIN_DECLS

/* Unpacks a file of one gzip member, checksum verified, into a new block of at most `most` bytes. Returns
 * false without a block if the file is anything else or damaged, or the build has no libdeflate. */
bool ab_gunzip_whole(const char *path, size_t most, ab_block *block);

AB_END_DECLS

#endif
