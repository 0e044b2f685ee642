/* The anonymous file holds an ab_data, whose blocks are anonymous files themselves. Parent and worker are the
 * same binary, so the layout need not be stable. */
#define _GNU_SOURCE
#include "bench/run/shared_data.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static ab_status write_all(int fd, const void *bytes, size_t size) {
    const char *next = bytes;
    while (size > 0) {
        ssize_t done = write(fd, next, size);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            return ab_fail(AB_SYSTEM, "cannot share the data set with workers: %s", strerror(errno));
        next += done;
        size -= (size_t)done;
    }
    return AB_OK;
}

ab_status ab_shared_data_create(const ab_data *data, int *fd) {
    *fd = memfd_create("ampbench-data", 0);
    if (*fd < 0) return ab_fail(AB_SYSTEM, "cannot share the data set with workers: %s", strerror(errno));
    ab_status status = write_all(*fd, data, sizeof *data);
    if (status != AB_OK) close(*fd);
    return status;
}

/* Maps the block in this process and relocates `in`, which points into it. */
static ab_status remap(ab_block *block, uint8_t **in) {
    if (!block->bytes) return AB_OK; /* no labels */
    const ptrdiff_t offset = *in - block->bytes;
    AB_TRY(ab_block_map(block));
    *in = block->bytes + offset;
    return AB_OK;
}

ab_status ab_shared_data_map(int fd, ab_data *data) {
    if (pread(fd, data, sizeof *data, 0) != (ssize_t)sizeof *data)
        return ab_fail(AB_SYSTEM, "worker: no shared data set at file descriptor %d", fd);
    data->name = "shared";
    for (int s = 0; s < 2; s++) {
        AB_TRY(remap(&data->split[s].pixels, &data->split[s].pixel));
        AB_TRY(remap(&data->split[s].labels, &data->split[s].label));
    }
    return AB_OK;
}
