/* Starting programs: how they end, their streams, what is left of them, and environments. */
#define _GNU_SOURCE
#include "kernels/spawn/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static ab_spawn_request shell(char *const *argv, bool guarded) {
    return (ab_spawn_request){.argv = argv,
                              .in = AB_SPAWN_INHERIT,
                              .out = AB_SPAWN_INHERIT,
                              .err = AB_SPAWN_INHERIT,
                              .guarded = guarded};
}

/* Runs `sh -c script`; returns how it ended. */
static int run(const char *script, bool guarded) {
    char *const argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)(uintptr_t)script, NULL};
    const ab_spawn_request request = shell(argv, guarded);
    ab_spawned child;
    int state = -1;
    assert_int_equal(ab_spawn(&request, &child), AB_OK);
    while (waitpid(child.pid, &state, 0) < 0) assert_int_equal(errno, EINTR);
    ab_spawn_done(&child);
    return state;
}

static void test_ends_as_the_program_does(void **state) {
    (void)state;
    for (int guarded = 0; guarded < 2; guarded++) {
        assert_int_equal(WEXITSTATUS(run("exit 0", guarded)), 0);
        assert_int_equal(WEXITSTATUS(run("exit 93", guarded)), 93);
        assert_int_equal(WTERMSIG(run("kill -SEGV $$", guarded)), SIGSEGV);
        assert_int_equal(WTERMSIG(run("kill -KILL $$", guarded)), SIGKILL);
    }
}

static void test_missing_program(void **state) {
    (void)state;
    for (int guarded = 0; guarded < 2; guarded++) {
        char *const argv[] = {(char[]){"ampbench-no-such-program"}, NULL}, *const no_program[] = {
                                                                               (char[]){"/"}, NULL};
        ab_spawn_request request = shell(argv, guarded);
        ab_spawned child;
        assert_int_equal(ab_spawn(&request, &child), AB_SYSTEM);
        assert_true(child.missing);
        assert_non_null(strstr(ab_error_message(), "cannot run ampbench-no-such-program: No such file"));
        request = shell(no_program, guarded);
        assert_int_equal(ab_spawn(&request, &child), AB_SYSTEM);
        assert_false(child.missing);
        request = shell((char *const[]){(char[]){"true"}, NULL}, guarded);
        request.folder = "/no/such/folder";
        assert_int_equal(ab_spawn(&request, &child), AB_SYSTEM);
        assert_false(child.missing);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left to wait for */
    }
}

/* The streams go where they should although the standard ones are closed here, so that their numbers are
 * given to the pipes and files. */
static void test_streams_where_ours_are_closed(void **state) {
    (void)state;
    for (int guarded = 0; guarded < 2; guarded++) {
        int saved[3], from_child[2];
        char line[16] = "";
        assert_int_equal(pipe2(from_child, O_CLOEXEC), 0);
        for (int i = 0; i < 3; i++) {
            saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 20);
            close(i);
        }
        char *const argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char[]){"read a; echo $a; echo end >&2"},
                              NULL};
        ab_spawn_request request = shell(argv, guarded);
        ab_spawned child;
        int in = memfd_create("in", MFD_CLOEXEC); /* descriptor 0 */
        ssize_t put = write(in, "text\n", 5);
        lseek(in, 0, SEEK_SET);
        request.in = in;
        request.out = request.err = from_child[1];
        ab_status status = ab_spawn(&request, &child);
        if (status == AB_OK) waitpid(child.pid, NULL, 0);
        close(in);
        for (int i = 0; i < 3; i++) {
            dup2(saved[i], i);
            close(saved[i]);
        }
        assert_int_equal(status, AB_OK);
        assert_int_equal(put, 5);
        ab_spawn_done(&child);
        close(from_child[1]);
        assert_int_equal(read(from_child[0], line, sizeof line - 1), 9);
        assert_string_equal(line, "text\nend\n");
        close(from_child[0]);
    }
}

/* Signals of the caller's that are blocked, handled or ignored: the program starts with none blocked. */
static void do_nothing(int number) { (void)number; }

static void test_signals(void **state) {
    (void)state;
    for (int guarded = 0; guarded < 2; guarded++) {
        sigset_t set, before;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigprocmask(SIG_BLOCK, &set, &before);
        void (*handler)(int) = signal(SIGTERM, do_nothing);
        void (*ignored)(int) = signal(SIGCHLD, SIG_IGN); /* heeded again, or nothing could be waited for */
        int how = run("kill -TERM $$; exit 3", guarded);
        signal(SIGCHLD, ignored);
        signal(SIGTERM, handler);
        sigprocmask(SIG_SETMASK, &before, NULL);
        assert_true(WIFSIGNALED(how));
        assert_int_equal(WTERMSIG(how), SIGTERM);
    }
}

/* Whether the process still runs after a while; zombies do not. */
static bool outlives(pid_t pid) {
    char path[40], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    for (int tick = 0; tick < 500; tick++) {
        FILE *file = fopen(path, "r");
        bool got = file && fgets(text, sizeof text, file);
        if (file) fclose(file);
        const char *after = got ? strrchr(text, ')') : NULL;
        if (!after || after[2] == 'Z') return false;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    kill(pid, SIGKILL);
    return true;
}

static pid_t read_pid(int from) {
    char line[32] = "";
    ssize_t length = read(from, line, sizeof line - 1);
    assert_true(length > 0);
    return (pid_t)atoi(line);
}

/* A process of the program's, in a session of its own, ends with the program. */
static void test_nothing_is_left(void **state) {
    (void)state;
    int from[2];
    char *const argv[] = {(char[]){"sh"}, (char[]){"-c"},
                          (char[]){"setsid sh -c 'echo $$; exec sleep 3000' & sleep 0.1; exit 4"}, NULL};
    ab_spawn_request request = shell(argv, true);
    ab_spawned child;
    int how = 0;
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    request.out = from[1];
    assert_int_equal(ab_spawn(&request, &child), AB_OK);
    pid_t left = read_pid(from[0]);
    assert_int_equal(waitpid(child.pid, &how, 0), child.pid);
    ab_spawn_done(&child);
    assert_int_equal(WEXITSTATUS(how), 4);
    assert_int_equal(kill(left, 0), -1); /* gone before the guard is */
    close(from[0]);
    close(from[1]);
}

/* The parent is killed at once after it has started the program, thirty times; so is the guard, once. */
static void test_ends_with_its_parent(void **state) {
    (void)state;
    for (int i = 0; i < 30; i++) {
        int from[2];
        char line[64];
        assert_int_equal(pipe2(from, O_CLOEXEC), 0);
        pid_t parent = fork();
        if (parent == 0) {
            char *const argv[] = {(char[]){"sleep"}, (char[]){"3001"}, NULL};
            const ab_spawn_request request = shell(argv, i % 2);
            ab_spawned child;
            if (ab_spawn(&request, &child) != AB_OK) _exit(1);
            int length = snprintf(line, sizeof line, "%d\n", (int)child.pid);
            if (write(from[1], line, (size_t)length) != length) _exit(1);
            raise(SIGKILL);
        }
        close(from[1]);
        pid_t child = read_pid(from[0]);
        close(from[0]);
        waitpid(parent, NULL, 0);
        assert_false(outlives(child));
    }
}

static void test_program_ends_with_its_guard(void **state) {
    (void)state;
    int from[2], how;
    char *const argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char[]){"echo $$; exec sleep 3002"}, NULL};
    ab_spawn_request request = shell(argv, true);
    ab_spawned child;
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    request.out = from[1];
    assert_int_equal(ab_spawn(&request, &child), AB_OK);
    pid_t program = read_pid(from[0]);
    assert_int_not_equal(program, child.pid);
    kill(child.pid, SIGKILL);
    waitpid(child.pid, &how, 0);
    ab_spawn_done(&child);
    assert_int_equal(WTERMSIG(how), SIGKILL);
    assert_false(outlives(program));
    close(from[0]);
    close(from[1]);
}

static void *spawn_here(void *status) {
    char *const argv[] = {(char[]){"true"}, NULL};
    const ab_spawn_request request = shell(argv, false);
    ab_spawned child;
    *(ab_status *)status = ab_spawn(&request, &child);
    return NULL;
}

static void test_other_threads_are_refused(void **state) {
    (void)state;
    pthread_t thread;
    ab_status status = AB_OK;
    assert_int_equal(pthread_create(&thread, NULL, spawn_here, &status), 0);
    pthread_join(thread, NULL);
    assert_int_equal(status, AB_INTERNAL);
}

static const char *value_of(char **variables, const char *name) {
    const char *found = NULL;
    for (size_t i = 0; variables[i]; i++)
        if (strncmp(variables[i], name, strlen(name)) == 0) {
            assert_null(found); /* once only */
            found = variables[i] + strlen(name);
        }
    return found;
}

static void test_variables(void **state) {
    (void)state;
    char one[] = "AB_ONE=new", two[] = "AB_TWO=2", *const added[] = {one, two, NULL}, *const none[] = {NULL};
    setenv("AB_ONE", "old", 1);
    setenv("AB_ONE_MORE", "kept", 1);
    setenv("GIT_DIR", "/elsewhere", 1);
    char **variables = ab_variables_new("GIT_", added);
    assert_string_equal(value_of(variables, "AB_ONE="), "new");
    assert_string_equal(value_of(variables, "AB_ONE_MORE="), "kept");
    assert_string_equal(value_of(variables, "AB_TWO="), "2");
    assert_null(value_of(variables, "GIT_DIR="));
    free(variables);
    variables = ab_variables_new(NULL, none);
    assert_string_equal(value_of(variables, "AB_ONE="), "old");
    assert_string_equal(value_of(variables, "GIT_DIR="), "/elsewhere");
    free(variables);
    unsetenv("GIT_DIR");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends_as_the_program_does),
        cmocka_unit_test(test_missing_program),
        cmocka_unit_test(test_streams_where_ours_are_closed),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_ends_with_its_parent),
        cmocka_unit_test(test_program_ends_with_its_guard),
        cmocka_unit_test(test_other_threads_are_refused),
        cmocka_unit_test(test_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
