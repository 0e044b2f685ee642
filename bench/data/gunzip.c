/* Whole-file unpacking. The length at the file's end is checked against deflate's largest ratio. */
#define _POSIX_C_SOURCE 200809L
#include "bench/data/gunzip.h"

#if defined(AB_HAVE_LIBDEFLATE)

#include <fcntl.h>
#include <libdeflate.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SMALLEST = 20,
    HIGHEST_RATIO = 1032
}; /* of a gzip file, in bytes; of deflate (zlib.net/zlib_tech.html) */

/* RFC 1952: the last four bytes are the uncompressed length. */
static size_t packed_length(const uint8_t *end) {
    return (size_t)end[-4] | (size_t)end[-3] << 8 | (size_t)end[-2] << 16 | (size_t)end[-1] << 24;
}

static bool unpack(const uint8_t *packed, size_t size, ab_block *block) {
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    if (!inflater) return false;
    size_t read = 0;
    enum libdeflate_result result =
        libdeflate_gzip_decompress_ex(inflater, packed, size, block->bytes, block->size, &read, NULL);
    libdeflate_free_decompressor(inflater);
    return result == LIBDEFLATE_SUCCESS && read == size;
}

static bool unpack_mapped(const char *path, const uint8_t *packed, size_t size, size_t most,
                          ab_block *block) {
    size_t length = packed_length(packed + size);
    if (packed[0] != 0x1f || packed[1] != 0x8b || length == 0 || length > most ||
        length / HIGHEST_RATIO > size)
        return false;
    if (ab_block_create(block, length, path) != AB_OK) return false;
    if (unpack(packed, size, block)) return true;
    ab_block_free(block);
    return false;
}

bool ab_gunzip_whole(const char *path, size_t most, ab_block *block) {
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool done = false;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size >= SMALLEST) {
        size_t size = (size_t)about.st_size;
        void *packed = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (packed != MAP_FAILED) {
            done = unpack_mapped(path, packed, size, most, block);
            munmap(packed, size);
        }
    }
    close(fd);
    return done;
}

#else

bool ab_gunzip_whole(const char *path, size_t most, ab_block *block) {
    (void)path;
    (void)most;
    (void)block;
    return false;
}

#endif
