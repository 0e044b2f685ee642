/* Unpacked data sets in a folder of the user, so that later processes map them instead of unpacking again.
 *
 * The folder is $AMPBENCH_CACHE_DIR, else $XDG_CACHE_HOME/ampbench, else $HOME/.cache/ampbench. There is no
 * cache if the variable is set but empty, if the folder cannot be made, or if it belongs to, or can be
 * written by, anybody else. Failures are not errors: a caller does without.
 *
 * An entry is the bytes of an unpacked file and nothing else. Its name is the key; a reader verifies length
 * and checksum, and an entry that does not match is removed. Entries are replaced by renames, never changed,
 * so what is mapped stays as it is.
 *
 * A reader that has verified an entry notes so, in a file beside it: device, inode, size and times of the
 * packed file and of the entry, and the sums over its bytes. As long as neither file was written since, later
 * readers read neither of them. */
#ifndef AB_BENCH_DATA_CACHE_H
#define AB_BENCH_DATA_CACHE_H

#include "bench/data/block.h"

#include <stdbool.h>
#include <sys/stat.h>

AB_BEGIN_DECLS

enum { AB_CACHE_LEAST = 1 << 20 }; /* bytes: smaller files are unpacked faster than they are looked up */
#define AB_CACHE_MOST ((uint64_t)1 << 30) /* bytes of all entries; the oldest ones give way */

/* A packed file and what it unpacks to; checksums as in gzip files. */
typedef struct ab_cache_key {
    uint64_t packed_bytes, bytes;
    uint32_t packed_crc32, crc32;
} ab_cache_key;

typedef uint32_t ab_checksum(const void *bytes, size_t size);

/* Whether a file of this size, unpacked, is kept. */
bool ab_cache_takes(uint64_t bytes);

/* Maps the entry as a block that can only be read. False: there is none. */
bool ab_cache_find(const ab_cache_key *key, ab_checksum *checksum, ab_block *block);

/* The same by what was noted of the packed file that is `packed` now, of a key whose packed_crc32 is not
 * known: reads no byte of either file. False: nothing was noted, or a file was written since. */
bool ab_cache_find_noted(const struct stat *packed, const ab_cache_key *key, ab_checksum *checksum,
                         ab_block *block);

/* Notes that the block, found under the key, is what the file that was `packed` before it was read unpacks
 * to, and sums up its bytes. Does nothing where times are too coarse to show a later write: of files that are
 * younger than two seconds at `now`, in seconds since 1970. */
void ab_cache_note(const struct stat *packed, const ab_cache_key *key, ab_checksum *checksum, int64_t now,
                   ab_block *block);

/* Writes the block as an entry, if it can be written. */
void ab_cache_keep(const ab_cache_key *key, const ab_block *block);

AB_END_DECLS

#endif
