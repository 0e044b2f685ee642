/* Entries are not synced to disk: whoever reads one verifies it. */
#define _POSIX_C_SOURCE 200809L
#include "bench/data/cache.h"

#include "kernels/core/text.h"
#include "kernels/files/outfile.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };
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

static bool map_entry(const ab_cache_key *key, ab_checksum *checksum, int file, ab_block *block) {
    struct stat about;
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode) || !is_ours(&about) ||
        (uint64_t)about.st_size != key->bytes)
        return false;
    *block = (ab_block){.size = (size_t)key->bytes, .fd = file};
    if (ab_block_map(block) != AB_OK) return false;
    if (checksum(block->bytes, block->size) == key->crc32) return true;
    munmap(block->bytes, block->size);
    block->bytes = NULL;
    return false;
}

bool ab_cache_find(const ab_cache_key *key, ab_checksum *checksum, ab_block *block) {
    char path[PATH_BYTES];
    if (!find_entry(key, false, path)) return false;
    const int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK); /* workers inherit it */
    if (file < 0) return false;
    if (map_entry(key, checksum, file, block)) {
        futimens(file, NULL); /* used last now */
        return true;
    }
    close(file);
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
