/* Memory that another process can map: where a data set's samples live, so that workers see them without a
 * copy. */
#ifndef AB_BENCH_DATA_BLOCK_H
#define AB_BENCH_DATA_BLOCK_H

#include "kernels/core/status.h"

#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_block {
    uint8_t *bytes; /* NULL: no block */
    size_t size;
    int fd; /* of the anonymous file behind it; survives exec */
} ab_block;

/* `size` bytes (1 or more) that read as zero and take memory only where they are written. `what` is for the
 * error. */
AB_MUST_CHECK ab_status ab_block_create(ab_block *block, size_t size, const char *what);

/* Maps a block of the parent process: fd and size are given, bytes is set. Read only. */
AB_MUST_CHECK ab_status ab_block_map(ab_block *block);

void ab_block_free(ab_block *block); /* no block is a no-op */

AB_END_DECLS

#endif
