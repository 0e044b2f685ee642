/* Whole gzip files, unpacked with libdeflate, about twice as fast as zlib's streams, and kept in the cache
 * (cache.h), where the next process maps them. Reports no errors: the caller reads a file that cannot be
 * unpacked with zlib and reports them from there. */
#ifndef AB_BENCH_DATA_GUNZIP_H
#define AB_BENCH_DATA_GUNZIP_H

#include "bench/data/block.h"

#include <stdbool.h>

AB_BEGIN_DECLS

/* Unpacks a file of one gzip member, checksum verified, into a block of at most `most` bytes, which is only
 * read from then on. Returns false without a block if the file is anything else or damaged, or the build has
 * no libdeflate. */
bool ab_gunzip_whole(const char *path, size_t most, ab_block *block);

AB_END_DECLS

#endif
