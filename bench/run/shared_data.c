/* The anonymous file: an ab_data header, then pixels and labels of both splits. Parent and worker are the same binary, so
 * the header's layout is theirs alone. */
#define _GNU_SOURCE
#include "bench/run/shared_data.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

static size_t pixel_bytes(const ab_data *data, int split) {
    return (size_t)(data->split[split].count * data->stored_height * data->stored_width * data->channels);
}

ab_status ab_shared_data_create(const ab_data *data, int *fd) {
    *fd = memfd_create("ampbench-data", 0);
    if (*fd < 0) return ab_fail(AB_SYSTEM, "cannot share the data set with workers: %s", strerror(errno));
    ab_status status = write_all(*fd, data, sizeof *data);
    for (int s = 0; s < 2 && status == AB_OK; s++) {
        status = write_all(*fd, data->split[s].pixel, pixel_bytes(data, s));
        if (status == AB_OK) status = write_all(*fd, data->split[s].label, (size_t)data->split[s].count);
    }
    if (status != AB_OK) close(*fd);
    return status;
}

ab_status ab_shared_data_map(int fd, ab_data **data) {
    struct stat about;
    if (fstat(fd, &about) != 0 || about.st_size < (off_t)sizeof **data)
        return ab_fail(AB_SYSTEM, "worker: no shared data set at file descriptor %d", fd);
    /* private, so that the pointers below can be set without touching the file */
    char *base = mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED) return ab_fail(AB_SYSTEM, "worker: cannot map the data set: %s", strerror(errno));
    *data = (ab_data *)(void *)base;
    (*data)->name = "shared";
    size_t offset = sizeof **data;
    for (int s = 0; s < 2; s++) {
        (*data)->split[s].pixel = (uint8_t *)base + offset;
        offset += pixel_bytes(*data, s);
        (*data)->split[s].label = (uint8_t *)base + offset;
        offset += (size_t)(*data)->split[s].count;
    }
    return AB_OK;
}
