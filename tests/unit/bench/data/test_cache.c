/* The cache of unpacked data sets: an entry gives the same bytes as unpacking, a damaged or foreign one is
 * never used, one that was verified is not read again until a file was written, and it can be turned off.
 * Files are written with zlib. */
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
#include <time.h>
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

/* ---- notes ----------------------------------------------------------------------------------- */

/* A key that the packed file's own checksum does not give: only a note leads to its entry. */
static ab_cache_key noted_key(void) {
    struct stat about;
    assert_int_equal(stat(packed, &about), 0);
    return (ab_cache_key){.packed_bytes = (uint64_t)about.st_size,
                          .bytes = SIZE,
                          .packed_crc32 = 77,
                          .crc32 = checksum(bytes, SIZE)};
}

/* Makes an entry and notes `seconds` after it was written that it is what the packed file unpacks to. */
static void note_entry(int seconds) {
    const ab_cache_key key = noted_key();
    const ab_block made = {.bytes = bytes, .size = SIZE, .fd = -1};
    ab_block found = {.bytes = NULL};
    struct stat about;
    ab_cache_keep(&key, &made);
    assert_int_equal(stat(packed, &about), 0);
    assert_true(ab_cache_find(&key, checksum, &found));
    ab_cache_note(&about, &key, checksum, time(NULL) + seconds, &found);
    ab_block_free(&found);
}

/* Whether the note leads to the entry. */
static bool is_noted(void) {
    const ab_cache_key key = noted_key();
    ab_cache_key unknown = key;
    struct stat about;
    ab_block found = {.bytes = NULL};
    unknown.packed_crc32 = 0;
    assert_int_equal(stat(packed, &about), 0);
    if (!ab_cache_find_noted(&about, &unknown, checksum, &found)) return false;
    assert_memory_equal(found.bytes, bytes, SIZE);
    assert_true(found.summed);
    for (int64_t from = 0; from < 40; from += 13) {
        const ab_grey_sums whole = ab_grey_sums_of(bytes + from, SIZE - 2 * from),
                           known = ab_block_greys(&found, found.bytes + from, SIZE - 2 * from);
        assert_true(whole.sum == known.sum && whole.squares == known.squares);
    }
    ab_block_free(&found);
    return true;
}

/* Writes until the file's times show it. */
static void write_later(const char *path) {
    struct stat before, after;
    assert_int_equal(stat(path, &before), 0);
    do {
        change_byte(path, 100);
        assert_int_equal(stat(path, &after), 0);
    } while (after.st_ctim.tv_sec == before.st_ctim.tv_sec &&
             after.st_ctim.tv_nsec == before.st_ctim.tv_nsec);
}

static void path_of(const char *name_ends, char path[PATH_BYTES * 4]) {
    DIR *listing = opendir(cache);
    path[0] = '\0';
    for (const struct dirent *entry; listing && (entry = readdir(listing));)
        if (strstr(entry->d_name, name_ends)) snprintf(path, PATH_BYTES * 4, "%s/%s", cache, entry->d_name);
    assert_non_null(listing);
    closedir(listing);
    assert_true(path[0]);
}

static int remove_entries(void **state) {
    (void)state;
    char command[PATH_BYTES * 4];
    snprintf(command, sizeof command, "rm -rf '%s'", cache);
    return system(command); /* NOLINT(cert-env33-c): a path made here */
}

static void verified_entry_is_found_by_its_note(void **state) {
    (void)state;
    pack(4);
    assert_false(is_noted());
    note_entry(10);
    assert_true(is_noted());
    if (!has_cache()) return;
    pack(4);
    note_entry(10);
    expect_unpacked(); /* by the note: no entry has the packed file's own checksum */
    char path[PATH_BYTES * 4];
    path_of("-0000004d-", path);
    ab_block block = {.bytes = NULL};
    struct stat about, mapped;
    assert_true(ab_gunzip_whole(packed, SIZE, &block));
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(fstat(block.fd, &mapped), 0);
    assert_int_equal(mapped.st_ino, about.st_ino);
    ab_block_free(&block);
}

static void file_written_since_is_read_again(void **state) {
    (void)state;
    char path[PATH_BYTES * 4];
    pack(5);
    note_entry(10);
    assert_true(is_noted());
    write_later(packed);
    assert_false(is_noted());
    note_entry(10);
    assert_true(is_noted());
    path_of(".unpacked", path);
    write_later(path);
    assert_false(is_noted());
}

static void file_that_was_just_written_is_not_noted(void **state) {
    (void)state;
    pack(6);
    note_entry(0);
    assert_false(is_noted());
}

static void damaged_note_is_not_used(void **state) {
    (void)state;
    char path[PATH_BYTES * 4];
    struct stat about;
    pack(7);
    note_entry(10);
    path_of(".verified", path);
    assert_int_equal(stat(path, &about), 0);
    for (off_t at = 0; at < about.st_size; at += 5) {
        assert_true(is_noted());
        change_byte(path, at);
        assert_false(is_noted());
        change_byte(path, at);
    }
    assert_int_equal(chmod(path, 0622), 0);
    assert_false(is_noted());
    assert_int_equal(truncate(path, about.st_size - 1), 0);
    assert_int_equal(chmod(path, 0600), 0);
    assert_false(is_noted());
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
        cmocka_unit_test_setup_teardown(verified_entry_is_found_by_its_note, remove_entries, remove_entries),
        cmocka_unit_test_setup_teardown(file_written_since_is_read_again, remove_entries, remove_entries),
        cmocka_unit_test_setup_teardown(file_that_was_just_written_is_not_noted, remove_entries,
                                        remove_entries),
        cmocka_unit_test_setup_teardown(damaged_note_is_not_used, remove_entries, remove_entries),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
