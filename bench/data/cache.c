/* Entries are not synced to disk: whoever reads one verifies it, or relies on the note of one who did. */
#define _POSIX_C_SOURCE 200809L
#include "bench/data/cache.h"

#include "kernels/core/text.h"
#include "kernels/files/outfile.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, DAY = 86400 };
static const char ending[] = ".unpacked";

/* ---- the folder ------------------------------------------------------------------------------ */

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && value[0] == '/' ? value : NULL;
}

/* Its path, and that of the folder to make it in; "": as it is. */
static bool name_folder(char path[PATH_BYTES], char parent[PATH_BYTES]) {
    const char *own = getenv("AMPBENCH_CACHE_DIR"), *cache = variable("XDG_CACHE_HOME"),
               *home = variable("HOME");
    parent[0] = '\0';
    if (own) return own[0] && ab_text_fits(path, PATH_BYTES, "%s", own);
    if (cache)
        return ab_text_fits(parent, PATH_BYTES, "%s", cache) &&
               ab_text_fits(path, PATH_BYTES, "%s/ampbench", cache);
    return home && ab_text_fits(parent, PATH_BYTES, "%s/.cache", home) &&
           ab_text_fits(path, PATH_BYTES, "%s/.cache/ampbench", home);
}

static bool is_ours(const struct stat *about) {
    return about->st_uid == geteuid() && (about->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* The folder's path, if there is one to trust; `make`: creates it. */
static bool find_folder(bool make, char path[PATH_BYTES]) {
    char parent[PATH_BYTES];
    struct stat about;
    if (!name_folder(path, parent)) return false;
    if (lstat(path, &about) != 0) {
        if (!make || (parent[0] && ab_folder_make(parent) != AB_OK) || mkdir(path, 0700) != 0) return false;
        if (lstat(path, &about) != 0) return false;
    }
    return S_ISDIR(about.st_mode) && is_ours(&about);
}

static bool find_entry(const ab_cache_key *key, bool make, char path[PATH_BYTES]) {
    char folder[PATH_BYTES];
    return find_folder(make, folder) &&
           ab_text_fits(path, PATH_BYTES, "%s/%" PRIx64 "-%08" PRIx32 "-%" PRIx64 "-%08" PRIx32 "%s", folder,
                        key->packed_bytes, key->packed_crc32, key->bytes, key->crc32, ending);
}

/* ---- room for an entry ----------------------------------------------------------------------- */

/* The entry that was used longest ago, and the bytes of all. */
static uint64_t survey(const char *folder, char oldest[PATH_BYTES]) {
    char path[PATH_BYTES];
    uint64_t bytes = 0;
    time_t used = 0;
    DIR *listing = opendir(folder);
    oldest[0] = '\0';
    for (const struct dirent *entry; listing && (entry = readdir(listing));) {
        const size_t length = strlen(entry->d_name);
        struct stat about;
        if (length < sizeof ending || strcmp(entry->d_name + length + 1 - sizeof ending, ending) != 0 ||
            !ab_text_fits(path, sizeof path, "%s/%s", folder, entry->d_name) || lstat(path, &about) != 0)
            continue;
        bytes += (uint64_t)about.st_size;
        if (oldest[0] && about.st_mtime >= used) continue;
        used = about.st_mtime;
        memcpy(oldest, path, sizeof path);
    }
    if (listing) closedir(listing);
    return bytes;
}

/* Removes entries until there is room for one of `bytes`. */
static void make_room(uint64_t bytes) {
    char folder[PATH_BYTES], oldest[PATH_BYTES];
    if (!find_folder(false, folder)) return;
    while (survey(folder, oldest) + bytes > AB_CACHE_MOST)
        if (!oldest[0] || unlink(oldest) != 0) return;
}

/* ---- entries --------------------------------------------------------------------------------- */

bool ab_cache_takes(uint64_t bytes) {
    char path[PATH_BYTES], parent[PATH_BYTES];
    return bytes >= AB_CACHE_LEAST && bytes <= AB_CACHE_MOST && name_folder(path, parent);
}

/* Opens the entry at `path` for workers, too, who inherit it; -1: there is none. */
static int open_entry(const char *path, const ab_cache_key *key, struct stat *about) {
    const int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) return -1;
    if (fstat(file, about) == 0 && S_ISREG(about->st_mode) && is_ours(about) &&
        (uint64_t)about->st_size == key->bytes)
        return file;
    close(file);
    return -1;
}

static bool map_entry(const ab_cache_key *key, int file, ab_block *block) {
    *block = (ab_block){.size = (size_t)key->bytes, .fd = file};
    return ab_block_map(block) == AB_OK;
}

static void unmap_entry(ab_block *block) {
    munmap(block->bytes, block->size);
    block->bytes = NULL;
}

/* Notes when the entry was used last, to the day: a new time makes its note invalid. */
static void touch(int file, const struct stat *about) {
    if (time(NULL) - about->st_mtime > DAY) futimens(file, NULL);
}

bool ab_cache_find(const ab_cache_key *key, ab_checksum *checksum, ab_block *block) {
    char path[PATH_BYTES];
    struct stat about;
    if (!find_entry(key, false, path)) return false;
    const int file = open_entry(path, key, &about);
    if (file >= 0 && map_entry(key, file, block)) {
        if (checksum(block->bytes, block->size) == key->crc32) {
            touch(file, &about);
            return true;
        }
        unmap_entry(block);
    }
    if (file >= 0) close(file);
    unlink(path);
    return false;
}

void ab_cache_keep(const ab_cache_key *key, const ab_block *block) {
    char path[PATH_BYTES];
    ab_outfile out;
    if (!find_entry(key, true, path)) return;
    make_room(key->bytes);
    ab_outfile_remove_stale(path);
    if (ab_outfile_open(path, &out) != AB_OK) return;
    out.unsynced = true;
    const bool whole = fchmod(fileno(out.stream), 0600) == 0 &&
                       fwrite(block->bytes, 1, block->size, out.stream) == block->size;
    ab_status status = ab_outfile_close(&out, whole ? AB_OK : AB_OUTPUT);
    (void)status;
}

/* ---- notes ----------------------------------------------------------------------------------- */

/* What changes if a file is written or replaced. */
typedef struct file_state {
    uint64_t device, inode, bytes;
    int64_t modified[2], changed[2]; /* seconds, nanoseconds */
} file_state;

typedef struct note {
    file_state packed, entry;
    ab_cache_key key;
    ab_grey_sums greys;
    uint64_t crc32; /* of the bytes before */
} note;

static file_state state_of(const struct stat *about) {
    return (file_state){.device = about->st_dev,
                        .inode = about->st_ino,
                        .bytes = (uint64_t)about->st_size,
                        .modified = {about->st_mtim.tv_sec, about->st_mtim.tv_nsec},
                        .changed = {about->st_ctim.tv_sec, about->st_ctim.tv_nsec}};
}

static bool same_state(const file_state *a, const file_state *b) { return memcmp(a, b, sizeof *a) == 0; }

static bool name_note(const struct stat *packed, char path[PATH_BYTES]) {
    char folder[PATH_BYTES];
    return find_folder(false, folder) &&
           ab_text_fits(path, PATH_BYTES, "%s/%" PRIx64 "-%" PRIx64 ".verified", folder,
                        (uint64_t)packed->st_dev, (uint64_t)packed->st_ino);
}

static bool read_note(const struct stat *packed, ab_checksum *checksum, note *n) {
    char path[PATH_BYTES];
    struct stat about;
    if (!name_note(packed, path)) return false;
    const int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return false;
    const bool whole = fstat(file, &about) == 0 && S_ISREG(about.st_mode) && is_ours(&about) &&
                       about.st_size == sizeof *n && read(file, n, sizeof *n) == (ssize_t)sizeof *n;
    close(file);
    const file_state now = state_of(packed);
    return whole && n->crc32 == checksum(n, offsetof(note, crc32)) && same_state(&n->packed, &now);
}

bool ab_cache_find_noted(const struct stat *packed, const ab_cache_key *key, ab_checksum *checksum,
                         ab_block *block) {
    char path[PATH_BYTES];
    struct stat about;
    note n;
    if (!read_note(packed, checksum, &n) || n.key.bytes != key->bytes || n.key.crc32 != key->crc32 ||
        n.key.packed_bytes != key->packed_bytes || !find_entry(&n.key, false, path))
        return false;
    const int file = open_entry(path, &n.key, &about);
    const file_state now = file < 0 ? n.packed : state_of(&about);
    if (file >= 0 && same_state(&n.entry, &now) && map_entry(&n.key, file, block)) {
        touch(file, &about);
        block->summed = true;
        block->greys = n.greys;
        return true;
    }
    if (file >= 0) close(file);
    return false;
}

static bool is_old(const file_state *file, int64_t now) {
    enum { COARSEST = 2 }; /* seconds between the times that file systems tell apart */
    return file->changed[0] + COARSEST < now && file->modified[0] + COARSEST < now;
}

void ab_cache_note(const struct stat *packed, const ab_cache_key *key, ab_checksum *checksum, int64_t now,
                   ab_block *block) {
    char path[PATH_BYTES];
    struct stat about;
    ab_outfile out;
    block->greys = ab_grey_sums_of(block->bytes, (int64_t)block->size);
    block->summed = true;
    if (!name_note(packed, path) || fstat(block->fd, &about) != 0) return;
    note n = {state_of(packed), state_of(&about), *key, block->greys, 0};
    n.crc32 = checksum(&n, offsetof(note, crc32));
    if (!is_old(&n.packed, now) || !is_old(&n.entry, now)) return;
    ab_outfile_remove_stale(path);
    if (ab_outfile_open(path, &out) != AB_OK) return;
    out.unsynced = true;
    const bool whole =
        fchmod(fileno(out.stream), 0600) == 0 && fwrite(&n, 1, sizeof n, out.stream) == sizeof n;
    ab_status status = ab_outfile_close(&out, whole ? AB_OK : AB_OUTPUT);
    (void)status;
}
