/* The length at the file's end is checked against deflate's largest ratio before memory is taken. */
#define _POSIX_C_SOURCE 200809L
#include "bench/data/gunzip.h"

#include "bench/data/cache.h"

#if defined(AB_HAVE_LIBDEFLATE)

#include <fcntl.h>
#include <libdeflate.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SMALLEST = 20,       /* bytes of a gzip file */
    HIGHEST_RATIO = 1032 /* of deflate (zlib.net/zlib_tech.html) */
};

typedef struct packed {
    const uint8_t *bytes;
    size_t size;
    const char *path;
    const struct stat *about; /* before its bytes were read */
} packed;

static uint32_t little_endian(const uint8_t *byte) {
    return byte[0] | (uint32_t)byte[1] << 8 | (uint32_t)byte[2] << 16 | (uint32_t)byte[3] << 24;
}

static uint32_t checksum(const void *bytes, size_t size) { return libdeflate_crc32(0, bytes, size); }

/* RFC 1952: the last eight bytes are the checksum and the length of the unpacked file. */
static ab_cache_key key_of(const packed *p) {
    const uint8_t *end = p->bytes + p->size;
    return (ab_cache_key){.bytes = little_endian(end - 4), .crc32 = little_endian(end - 8)};
}

static bool unpack(const packed *p, ab_block *block) {
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    if (!inflater) return false;
    size_t read = 0;
    enum libdeflate_result result =
        libdeflate_gzip_decompress_ex(inflater, p->bytes, p->size, block->bytes, block->size, &read, NULL);
    libdeflate_free_decompressor(inflater);
    return result == LIBDEFLATE_SUCCESS && read == p->size;
}

static bool unpack_new(const packed *p, size_t size, ab_block *block) {
    if (ab_block_create(block, size, p->path) != AB_OK) return false;
    if (unpack(p, block)) return true;
    ab_block_free(block);
    return false;
}

static bool unpack_or_find(const packed *p, size_t most, ab_block *block) {
    ab_cache_key key = key_of(p);
    if (p->bytes[0] != 0x1f || p->bytes[1] != 0x8b || key.bytes == 0 || key.bytes > most ||
        key.bytes / HIGHEST_RATIO > p->size)
        return false;
    if (!ab_cache_takes(key.bytes)) return unpack_new(p, (size_t)key.bytes, block);
    key.packed_bytes = p->size;
    if (ab_cache_find_noted(p->about, &key, checksum, block)) return true;
    key.packed_crc32 = checksum(p->bytes, p->size);
    if (ab_cache_find(&key, checksum, block)) {
        ab_cache_note(p->about, &key, checksum, time(NULL), block);
        return true;
    }
    if (!unpack_new(p, (size_t)key.bytes, block)) return false;
    ab_cache_keep(&key, block);
    return true;
}

bool ab_gunzip_whole(const char *path, size_t most, ab_block *block) {
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool done = false;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size >= SMALLEST) {
        const size_t size = (size_t)about.st_size;
        void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes != MAP_FAILED) {
            done = unpack_or_find(&(packed){bytes, size, path, &about}, most, block);
            munmap(bytes, size);
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
