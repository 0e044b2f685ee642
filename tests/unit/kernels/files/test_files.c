/* Files are replaced whole or not at all, links are never followed, and one place has one writer. */
#define _GNU_SOURCE
#include "kernels/files/lock.h"
#include "kernels/files/outfile.h"
#include "support/json_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/ampbench_files_XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

/* Fails if a test has left a file behind. */
static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static int files_here(void) {
    int count = -2; /* . and .. */
    DIR *listing = opendir(".");
    while (readdir(listing)) count++;
    closedir(listing);
    return count;
}

static void put(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void assert_holds(const char *path, const char *expected) {
    char *text = ab_test_read(path);
    assert_string_equal(text, expected);
    free(text);
}

static ab_status replace(const char *path, const char *text, ab_status outcome) {
    ab_outfile out;
    AB_TRY(ab_outfile_open(path, &out));
    fputs(text, out.stream);
    return ab_outfile_close(&out, outcome);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void a_file_appears_whole_and_a_failure_changes_nothing(void **state) {
    (void)state;
    ab_outfile out;
    assert_int_equal(replace("a", "old", AB_OK), AB_OK);
    assert_int_equal(ab_outfile_open("a", &out), AB_OK);
    fputs("new", out.stream);
    fflush(out.stream);
    assert_holds("a", "old");
    assert_int_equal(ab_outfile_close(&out, AB_OK), AB_OK);
    assert_holds("a", "new");
    assert_int_equal(replace("a", "half of", AB_NUMERICS), AB_NUMERICS);
    assert_holds("a", "new");
    assert_int_equal(replace("b", "half of", AB_NUMERICS), AB_NUMERICS);
    assert_int_equal(files_here(), 1);
    unlink("a");
}

static void two_writers_of_one_file_do_not_meet(void **state) {
    (void)state;
    ab_outfile first, second;
    assert_int_equal(ab_outfile_open("a", &first), AB_OK);
    assert_int_equal(ab_outfile_open("a", &second), AB_OK);
    fputs("first", first.stream);
    fputs("second", second.stream);
    assert_int_equal(ab_outfile_close(&first, AB_OK), AB_OK);
    assert_holds("a", "first");
    assert_int_equal(ab_outfile_close(&second, AB_OK), AB_OK);
    assert_holds("a", "second");
    unlink("a");
}

static void a_planted_link_is_replaced_and_not_followed(void **state) {
    (void)state;
    struct stat about;
    put("victim", "precious");
    assert_int_equal(symlink("victim", "a"), 0);
    assert_int_equal(replace("a", "new", AB_OK), AB_OK);
    assert_holds("victim", "precious");
    assert_holds("a", "new");
    assert_int_equal(lstat("a", &about), 0);
    assert_true(S_ISREG(about.st_mode));
    assert_int_equal(symlink("victim", "b"), 0);
    ab_outfile out;
    assert_int_equal(ab_outfile_append("b", &out), AB_OUTPUT);
    ab_lock lock;
    assert_int_equal(symlink("victim", ".c.lock"), 0);
    assert_int_equal(ab_lock_file("--out", "c", &lock), AB_OUTPUT);
    unlink(".c.lock");
    assert_int_equal(link("victim", ".c.lock"), 0);
    assert_int_equal(ab_lock_file("--out", "c", &lock), AB_OUTPUT);
    assert_holds("victim", "precious");
    unlink(".c.lock");
    unlink("a");
    unlink("b");
    unlink("victim");
}

static void a_file_keeps_its_permissions(void **state) {
    (void)state;
    struct stat about;
    put("a", "old");
    assert_int_equal(chmod("a", 0640), 0);
    assert_int_equal(replace("a", "new", AB_OK), AB_OK);
    assert_int_equal(stat("a", &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
    unlink("a");
}

/* --csv /dev/stdout > file: the file stays the one that the shell has opened. */
static void a_descriptor_is_written_to_at_its_position(void **state) {
    (void)state;
    char name[64];
    int file = open("a", O_RDWR | O_CREAT, 0666);
    assert_int_equal(write(file, "before ", 7), 7);
    snprintf(name, sizeof name, "/dev/fd/%d", file);
    assert_int_equal(replace(name, "after", AB_OK), AB_OK);
    close(file);
    assert_holds("a", "before after");
    assert_int_equal(replace(name, "x", AB_OK), AB_OUTPUT); /* it is closed now */
    unlink("a");
}

static void what_cannot_be_written_is_named(void **state) {
    (void)state;
    assert_int_equal(mkdir("d", 0777), 0);
    const char *places[] = {"d", "d/", "no/such", "/dev/fd/99999"};
    for (size_t i = 0; i < AB_COUNT_OF(places); i++) {
        assert_int_equal(replace(places[i], "x", AB_OK), AB_OUTPUT);
        assert_non_null(strstr(ab_error_message(), places[i]));
    }
    assert_int_equal(ab_outfile_check_writable("d"), AB_OUTPUT);
    assert_int_equal(ab_outfile_check_writable("no/such"), AB_OUTPUT);
    assert_int_equal(ab_outfile_check_writable("d/new"), AB_OK);
    assert_int_equal(rmdir("d"), 0);
}

static void names_of_the_longest_length_are_written(void **state) {
    (void)state;
    char name[AB_SIBLING_NAME + 1];
    ab_lock lock;
    memset(name, 'n', AB_SIBLING_NAME);
    name[AB_SIBLING_NAME] = '\0';
    assert_int_equal(ab_lock_file("--out", name, &lock), AB_OK);
    assert_int_equal(replace(name, "x", AB_OK), AB_OK);
    assert_holds(name, "x");
    ab_lock_release(&lock);
    unlink(name);
}

/* ---- what killed writers leave --------------------------------------------------------------- */

/* A child opens the file and is killed. */
static void kill_while_writing(const char *path) {
    pid_t child = fork();
    if (child == 0) {
        ab_outfile out;
        if (ab_outfile_open(path, &out) == AB_OK) raise(SIGKILL);
        _exit(1);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
}

static void what_killed_writers_left_is_removed_and_nothing_else(void **state) {
    (void)state;
    ab_outfile live;
    put("a.tmp", "mine");
    put("a.1x-00000000.tmp", "mine");
    kill_while_writing("a");
    kill_while_writing("step-one.st");
    kill_while_writing("other");
    assert_int_equal(files_here(), 5);
    ab_outfile_remove_stale("a");
    assert_int_equal(files_here(), 4);
    ab_outfile_remove_stale("./step-%c.txt");
    assert_int_equal(files_here(), 4);
    ab_outfile_remove_stale("./step-%c.st");
    assert_int_equal(files_here(), 3);
    pid_t writer = fork();
    if (writer == 0) {
        if (ab_outfile_open("other", &live) == AB_OK) pause();
        _exit(1);
    }
    while (files_here() < 4) usleep(1000);
    ab_outfile_remove_stale("other");
    assert_int_equal(files_here(), 3); /* that of the living writer stays */
    siginfo_t ended;
    kill(writer, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)writer, &ended, WEXITED | WNOWAIT), 0);
    ab_outfile_remove_stale("%c"); /* of one that ended, though its parent has not asked how */
    assert_int_equal(files_here(), 2);
    assert_int_equal(waitpid(writer, NULL, 0), writer);
    unlink("a.tmp");
    unlink("a.1x-00000000.tmp");
}

/* ---- locks ----------------------------------------------------------------------------------- */

/* A child that holds the lock of `path`; it has it when this returns. */
static pid_t holder_of(const char *path) {
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        ab_lock lock;
        const bool held = ab_lock_file("--out", path, &lock) == AB_OK;
        if (held && write(ready[1], "x", 1) == 1) pause();
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

static void a_second_writer_is_told_who_holds_the_place(void **state) {
    (void)state;
    ab_lock lock;
    char process[32];
    pid_t child = holder_of("a");
    snprintf(process, sizeof process, "process %ld on ", (long)child);
    assert_int_equal(ab_lock_file("--out", "a", &lock), AB_OUTPUT);
    assert_null(lock.path);
    assert_non_null(strstr(ab_error_message(), "--out: a is being written by "));
    assert_non_null(strstr(ab_error_message(), process));
    assert_non_null(strstr(ab_error_message(), " since 20"));
    assert_non_null(strstr(ab_error_message(), "test_files"));
    assert_int_equal(ab_lock_check("--csv", "a"), AB_OUTPUT);
    assert_int_equal(ab_lock_check("--csv", "b"), AB_OK);
    assert_int_equal(ab_lock_file("--out", "b", &lock), AB_OK); /* another place */
    ab_lock_release(&lock);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(ab_lock_check("--csv", "a"), AB_OK);
    assert_int_equal(ab_lock_file("--out", "a", &lock), AB_OK); /* the kernel has ended the dead one's */
    ab_lock_release(&lock);
    assert_int_equal(files_here(), 0);
}

static void a_lock_is_not_lost_by_looking_at_it(void **state) {
    (void)state;
    ab_lock lock, again;
    assert_int_equal(ab_lock_file("--out", "a", &lock), AB_OK);
    (void)!ab_lock_check("--csv", "a"); /* opens and closes the lock file in the same process */
    assert_int_equal(ab_lock_file("--out", "a", &again), AB_OUTPUT);
    ab_lock_release(&lock);
    assert_int_equal(ab_lock_file("--out", "a", &again), AB_OK);
    ab_lock_release(&again);
    ab_lock_release(&again);
}

static void what_another_program_wrote_is_printed_on_one_line(void **state) {
    (void)state;
    ab_lock lock;
    pid_t child = holder_of("a");
    put(".a.lock", "x\033[2J\r::error::y\nz");
    assert_int_equal(ab_lock_file("--out", "a", &lock), AB_OUTPUT);
    assert_non_null(strstr(ab_error_message(), "written by x?[2J?::error::y;"));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    unlink(".a.lock");
}

static void a_folder_is_made_and_locked(void **state) {
    (void)state;
    ab_lock lock, again;
    assert_int_equal(ab_lock_folder("--plots", "x/y", &lock), AB_OK);
    assert_int_equal(ab_lock_folder("--plots", "x/y/", &again), AB_OUTPUT);
    ab_lock_release(&lock);
    assert_int_equal(rmdir("x/y"), 0);
    assert_int_equal(rmdir("x"), 0);
    put("x", "");
    assert_int_equal(ab_lock_folder("--plots", "x/y", &lock), AB_OUTPUT);
    assert_non_null(strstr(ab_error_message(), "--plots: x/y: cannot create the folder"));
    unlink("x");
}

static void devices_and_descriptors_are_not_locked(void **state) {
    (void)state;
    const char *places[] = {"-", "/dev/null", "/dev/stdout", "pipe"};
    ab_lock lock;
    assert_int_equal(mkfifo("pipe", 0600), 0);
    for (size_t i = 0; i < AB_COUNT_OF(places); i++) {
        assert_int_equal(ab_lock_file("--out", places[i], &lock), AB_OK);
        assert_null(lock.path);
    }
    unlink("pipe");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_appears_whole_and_a_failure_changes_nothing),
        cmocka_unit_test(two_writers_of_one_file_do_not_meet),
        cmocka_unit_test(a_planted_link_is_replaced_and_not_followed),
        cmocka_unit_test(a_file_keeps_its_permissions),
        cmocka_unit_test(a_descriptor_is_written_to_at_its_position),
        cmocka_unit_test(what_cannot_be_written_is_named),
        cmocka_unit_test(names_of_the_longest_length_are_written),
        cmocka_unit_test(what_killed_writers_left_is_removed_and_nothing_else),
        cmocka_unit_test(a_second_writer_is_told_who_holds_the_place),
        cmocka_unit_test(a_lock_is_not_lost_by_looking_at_it),
        cmocka_unit_test(what_another_program_wrote_is_printed_on_one_line),
        cmocka_unit_test(a_folder_is_made_and_locked),
        cmocka_unit_test(devices_and_descriptors_are_not_locked),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
