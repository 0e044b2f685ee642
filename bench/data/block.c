/* Blocks are anonymous files (memfd_create), mapped shared. */
#define _GNU_SOURCE
#include "bench/data/block.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

ab_status ab_block_create(ab_block *block, size_t size, const char *what) {
    *block = (ab_block){.bytes = NULL, .size = size, .fd = memfd_create("ampbench-data", 0)};
    void *bytes = MAP_FAILED;
    if (block->fd >= 0 && ftruncate(block->fd, (off_t)size) == 0)
        bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, block->fd, 0);
    if (bytes != MAP_FAILED) {
        block->bytes = bytes;
        return AB_OK;
    }
    ab_status status =
        ab_fail(errno == EFBIG ? AB_OUTPUT : AB_NO_MEMORY, "%s: cannot allocate %zu bytes: %s%s", what, size,
                strerror(errno), errno == EFBIG ? " (shared memory counts as a file: ulimit -f)" : "");
    if (block->fd >= 0) close(block->fd);
    return status;
}

ab_status ab_block_map(ab_block *block) {
    void *bytes = mmap(NULL, block->size, PROT_READ, MAP_SHARED, block->fd, 0);
    if (bytes == MAP_FAILED)
        return ab_fail(errno == ENOMEM ? AB_NO_MEMORY : AB_SYSTEM,
                       "worker: cannot map %zu bytes of the data set: %s", block->size, strerror(errno));
    block->bytes = bytes;
    return AB_OK;
}

void ab_block_free(ab_block *block) {
    if (!block->bytes) return;
    munmap(block->bytes, block->size);
    close(block->fd);
    block->bytes = NULL;
}

ab_grey_sums ab_block_greys(const ab_block *block, const uint8_t *from, int64_t n) {
    if (!block->summed) return ab_grey_sums_of(from, n);
    const int64_t before = from - block->bytes;
    const ab_grey_sums head = ab_grey_sums_of(block->bytes, before),
                       tail = ab_grey_sums_of(from + n, (int64_t)block->size - before - n);
    return (ab_grey_sums){block->greys.sum - head.sum - tail.sum,
                          block->greys.squares - head.squares - tail.squares};
}
