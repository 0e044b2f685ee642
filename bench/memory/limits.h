/* How much memory this process, or one that it starts, may still take: by the machine, by its control groups
 * and by its resource limits. Reads /proc and the mounts of control groups; swap is not counted. */
#ifndef AB_BENCH_MEMORY_LIMITS_H
#define AB_BENCH_MEMORY_LIMITS_H

#include "bench/train/cell/cell.h"
#include "kernels/core/status.h"

#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_MEMORY_LIMIT_TEXT = 512 };

/* The limit that leaves the least. */
typedef struct ab_memory_limit {
    int64_t left;                    /* bytes; INT64_MAX: no limit is known */
    char text[AB_MEMORY_LIMIT_TEXT]; /* which limit, with its numbers, for a message; "" without one */
} ab_memory_limit;

/* The least of the following. `root` is put in front of every path: "" for this machine, a folder with
 * fixtures in tests. What cannot be read does not limit.
 * - The machine: MemAvailable of /proc/meminfo; with strict overcommit also CommitLimit - Committed_AS.
 * - Control groups of both versions, the process's own and every ancestor up to the mount (version 1: while
 *   memory.use_hierarchy is 1): memory.max - memory.current, or memory.limit_in_bytes -
 *   memory.usage_in_bytes, plus the page cache, which the kernel gives back.
 * - RLIMIT_AS less the program and its libraries; RLIMIT_DATA. */
void ab_memory_limit_find(const char *root, ab_memory_limit *limit);

/* Processes killed for lack of memory so far, on this machine and in this control group; only differences
 * mean something. 0 where the kernel does not count them. */
int64_t ab_memory_kills(const char *root);

/* Refuses a training that cannot fit into memory before it starts. The policy: only what is certain is
 * refused. A cell writes every tensor of its plan, so it cannot run if the plan's tensors alone need more
 * than is left; workspace, libraries and data come on top and are not compared. */

/* The limit for tensors on a device: its free memory if it has memory of its own, else ab_memory_limit_find.
 */
void ab_memory_limit_of(const char *root, const ab_device *device, ab_memory_limit *limit);

/* Bytes of a plan's tensors. */
int64_t ab_memory_needed(const ab_cell_config *config, const ab_plan *plan);

/* AB_NO_MEMORY if the tensors of `plan`, made from `config`, need more than `limit` leaves. The message has
 * both numbers, the limit and what to change. `id`: the cell's. */
AB_MUST_CHECK ab_status ab_memory_check(const ab_memory_limit *limit, const ab_cell_config *config,
                                        const ab_plan *plan, const char *id);

AB_END_DECLS

#endif
