/* Unpacking a gzip file in one go with libdeflate, where the build has it: about twice as fast as zlib's
 * streams. It is a short cut only: whoever calls it reads the file with zlib when it says no, and reports
 * what is wrong with the file then. */
#ifndef AB_BENCH_DATA_GUNZIP_H
#define AB_BENCH_DATA_GUNZIP_H

#include "bench/data/block.h"

#include <stdbool.h>

AB_BEGIN_DECLS

/* Unpacks a file of one gzip member, checksum verified, into a new block of at most `most` bytes. False, and
 * no block, if it is anything else, is damaged, or the build has no libdeflate. */
bool ab_gunzip_whole(const char *path, size_t most, ab_block *block);

AB_END_DECLS

#endif
