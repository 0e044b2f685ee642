/* How far back a step last touched what a pass reads or writes, which tells the cache that can still hold it.
 * Distances are exact stack distances (Mattson et al. 1970) of granules under least-recently-used
 * replacement, counted with a Fenwick tree over the times of last use (Bennett and Kruskal 1975). */
#ifndef AB_BENCH_PROFILE_REUSE_H
#define AB_BENCH_PROFILE_REUSE_H

#include "bench/profile/limits.h"

AB_BEGIN_DECLS

typedef struct ab_reuse ab_reuse;

/* Bytes of a granule for `bytes` of memory: 1 KiB, or so much that there are at most 2^20. */
int64_t ab_reuse_granule(int64_t bytes);

/* For `bytes` of memory, of which at most `touched` granules are touched, each touch counted. AB_NO_MEMORY.
 */
AB_MUST_CHECK ab_status ab_reuse_create(int64_t bytes, int64_t touched, ab_reuse **reuse);
void ab_reuse_destroy(ab_reuse *reuse); /* NULL is a no-op */

/* Granules that a touch of [first, first + bytes) counts. */
int64_t ab_reuse_granules(int64_t granule, int64_t first, int64_t bytes);

/* A pass begins: what is read and then written within it is updated in place. */
void ab_reuse_begin_pass(ab_reuse *reuse);

/* Touches [first, first + bytes), and adds the bytes by their distance: different bytes touched since, in
 * granules. What was never touched lies beyond every size. */
void ab_reuse_touch(ab_reuse *reuse, int64_t first, int64_t bytes, bool written, ab_traffic *traffic);

AB_END_DECLS

#endif
