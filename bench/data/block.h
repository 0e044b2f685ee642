/* Memory that another process can map. Holds a data set's samples, so that workers read them without a
 * copy. */
#ifndef AB_BENCH_DATA_BLOCK_H
#define AB_BENCH_DATA_BLOCK_H

#include "bench/data/greys.h"
#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_block {
    uint8_t *bytes; /* NULL: no block */
    size_t size;
    int fd;             /* the anonymous file; stays open across exec */
    bool summed;        /* `greys` is known */
    ab_grey_sums greys; /* of all bytes */
} ab_block;

/* Allocates `size` >= 1 zero bytes; pages take memory only once written. `what` names the block in errors. */
AB_MUST_CHECK ab_status ab_block_create(ab_block *block, size_t size, const char *what);

/* Maps a block of the parent process read-only: reads fd and size, sets bytes. */
AB_MUST_CHECK ab_status ab_block_map(ab_block *block);

void ab_block_free(ab_block *block); /* a block without bytes is a no-op */

/* Sums over n bytes of the block from `from` on: what is known of all of them, less the others. */
ab_grey_sums ab_block_greys(const ab_block *block, const uint8_t *from, int64_t n);

AB_END_DECLS

#endif
