/* The cache of unpacked data sets: an entry gives the same bytes as unpacking, a damaged or foreign one is
 * never used, and it can be turned off. Files are written with zlib. */
#define _POSIX_C_SOURCE 200809L
#include "bench/data/cache.h"
#include "bench/data/gunzip.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <zlib.h>

enum { PATH_BYTES = 512, SIZE = AB_CACHE_LEAST + 4097 };
static char root[PATH_BYTES], cache[PATH_BYTES * 2], packed[PATH_BYTES * 2];
static unsigned char bytes[SIZE];

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/ampbench-cache-XXXXXX");
    if (!mkdtemp(root)) return -1;
    snprintf(cache, sizeof cache, "%s/xdg/ampbench", root);
    snprintf(packed, sizeof packed, "%s/file.gz", root);
    char xdg[PATH_BYTES * 2];
    snprintf(xdg, sizeof xdg, "%s/xdg", root);
    unsetenv("AMPBENCH_CACHE_DIR");
    return setenv("XDG_CACHE_HOME", xdg, 1);
}

static int remove_root(void **state) {
    (void)state;
    char command[PATH_BYTES * 2];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command); /* NOLINT(cert-env33-c): a path made here */
}

static uint32_t checksum(const void *data, size_t size) { return (uint32_t)crc32(0, data, (uInt)size); }

static void pack(unsigned seed) {
    for (size_t i = 0; i < SIZE; i++) bytes[i] = (unsigned char)((i / 7 + seed) * (i % 13));
    gzFile file = gzopen(packed, "wb1");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, SIZE), SIZE);
    assert_int_equal(gzclose(file), Z_OK);
}

/* The path of the only entry; false: there is none. */
static bool only_entry(char path[PATH_BYTES * 4]) {
    int count = 0;
    DIR *listing = opendir(cache);
    for (const struct dirent *entry; listing && (entry = readdir(listing));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, PATH_BYTES * 4, "%s/%s", cache, entry->d_name);
        count++;
    }
    if (listing) closedir(listing);
    assert_in_range(count, 0, 1);
    return count == 1;
}

static void expect_unpacked(void) {
    ab_block block = {.bytes = NULL};
    assert_true(ab_gunzip_whole(packed, SIZE, &block));
    assert_int_equal(block.size, SIZE);
    assert_memory_equal(block.bytes, bytes, SIZE);
    ab_block_free(&block);
}

/* A build without libdeflate does not use the cache. */
static bool has_cache(void) {
    ab_block block = {.bytes = NULL};
    pack(0);
    const bool unpacked = ab_gunzip_whole(packed, SIZE, &block);
    ab_block_free(&block);
    return unpacked;
}

static void change_byte(const char *path, off_t at) {
    char byte;
    const int file = open(path, O_RDWR);
    assert_true(file >= 0);
    assert_int_equal(pread(file, &byte, 1, at), 1);
    byte = (char)~byte;
    assert_int_equal(pwrite(file, &byte, 1, at), 1);
    close(file);
}

static void second_opening_maps_the_entry(void **state) {
    (void)state;
    char path[PATH_BYTES * 4];
    struct stat before, after;
    if (!has_cache()) skip();
    pack(1);
    assert_true(only_entry(path));
    unlink(path);
    expect_unpacked();
    assert_true(only_entry(path));
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(before.st_mode & 0777, 0600);
    assert_int_equal(before.st_size, SIZE);
    ab_block block = {.bytes = NULL};
    assert_true(ab_gunzip_whole(packed, SIZE, &block));
    assert_int_equal(fstat(block.fd, &after), 0);
    assert_int_equal(after.st_ino, before.st_ino);
    assert_memory_equal(block.bytes, bytes, SIZE);
    ab_block_free(&block);
    unlink(path);
}

static void damaged_entry_is_made_again(void **state) {
    (void)state;
    char path[PATH_BYTES * 4];
    if (!has_cache()) skip();
    pack(2);
    assert_true(only_entry(path));
    unlink(path);
    expect_unpacked();
    assert_true(only_entry(path));
    change_byte(path, SIZE / 2);
    expect_unpacked();
    assert_int_equal(truncate(path, SIZE - 1), 0);
    expect_unpacked();
    assert_int_equal(truncate(path, 0), 0);
    expect_unpacked();
    assert_true(only_entry(path)); /* whole again */
    ab_block block = {.bytes = NULL};
    struct stat about, mapped;
    assert_int_equal(stat(path, &about), 0);
    assert_true(ab_gunzip_whole(packed, SIZE, &block));
    assert_int_equal(fstat(block.fd, &mapped), 0);
    assert_int_equal(mapped.st_ino, about.st_ino);
    ab_block_free(&block);
    unlink(path);
}

static void damaged_packed_file_is_not_served_from_the_cache(void **state) {
    (void)state;
    char path[PATH_BYTES * 4];
    struct stat about;
    ab_block block = {.bytes = NULL};
    if (!has_cache()) skip();
    pack(3);
    assert_true(only_entry(path));
    unlink(path);
    expect_unpacked();
    assert_int_equal(stat(packed, &about), 0);
    change_byte(packed, about.st_size / 2);
    assert_false(ab_gunzip_whole(packed, SIZE, &block));
    assert_true(only_entry(path));
    unlink(path);
}

static void link_or_shared_folder_is_not_used(void **state) {
    (void)state;
    const ab_cache_key key = {1, SIZE, 2, checksum(bytes, SIZE)};
    ab_block block = {.bytes = NULL}, made = {.bytes = bytes, .size = SIZE, .fd = -1};
    char path[PATH_BYTES * 4], moved[PATH_BYTES * 4];
    ab_cache_keep(&key, &made);
    assert_true(only_entry(path));
    snprintf(moved, sizeof moved, "%s/elsewhere", root);
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(symlink(moved, path), 0);
    assert_false(ab_cache_find(&key, checksum, &block));
    unlink(path);
    assert_int_equal(rename(moved, path), 0);
    assert_int_equal(chmod(cache, 0777), 0);
    assert_false(ab_cache_find(&key, checksum, &block));
    assert_int_equal(chmod(cache, 0700), 0);
    assert_true(ab_cache_find(&key, checksum, &block));
    ab_block_free(&block);
    unlink(path);
}

static void empty_variable_turns_the_cache_off(void **state) {
    (void)state;
    char path[PATH_BYTES * 4];
    setenv("AMPBENCH_CACHE_DIR", "", 1);
    assert_false(ab_cache_takes(SIZE));
    const bool unpacks = has_cache();
    if (unpacks) expect_unpacked();
    assert_false(only_entry(path));
    unsetenv("AMPBENCH_CACHE_DIR");
    assert_true(ab_cache_takes(SIZE));
}

static void oldest_entries_give_way(void **state) {
    (void)state;
    const ab_cache_key key = {1, SIZE, 2, checksum(bytes, SIZE)};
    const ab_block made = {.bytes = bytes, .size = SIZE, .fd = -1};
    char path[3][PATH_BYTES * 4], only[PATH_BYTES * 4];
    mkdir(cache, 0700);
    for (int i = 0; i < 3; i++) { /* of half the limit each: files without blocks */
        const struct timespec times[2] = {{.tv_sec = 1000 * (3 - i)}, {.tv_sec = 1000 * (3 - i)}};
        snprintf(path[i], sizeof path[i], "%s/%d.unpacked", cache, i);
        close(open(path[i], O_CREAT | O_WRONLY, 0600));
        assert_int_equal(truncate(path[i], (off_t)(AB_CACHE_MOST / 2)), 0);
        assert_int_equal(utimensat(AT_FDCWD, path[i], times, 0), 0);
    }
    ab_cache_keep(&key, &made);
    assert_int_equal(access(path[2], F_OK), -1);
    assert_int_equal(access(path[1], F_OK), -1);
    assert_int_equal(access(path[0], F_OK), 0); /* the newest */
    unlink(path[0]);
    assert_true(only_entry(only));
    unlink(only);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_variable_turns_the_cache_off),
        cmocka_unit_test(second_opening_maps_the_entry),
        cmocka_unit_test(damaged_entry_is_made_again),
        cmocka_unit_test(damaged_packed_file_is_not_served_from_the_cache),
        cmocka_unit_test(link_or_shared_folder_is_not_used),
        cmocka_unit_test(oldest_entries_give_way),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
