#define _GNU_SOURCE /* F_OFD_SETLK: belongs to the open file, so that closing another descriptor keeps it */
#include "kernels/files/lock.h"

#include "kernels/core/log.h"
#include "kernels/core/text.h"
#include "kernels/files/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HOLDER = 512, ATTEMPTS = 100 };

static struct flock whole_file(short type) { return (struct flock){.l_type = type, .l_whence = SEEK_SET}; }

/* ---- who holds it ---------------------------------------------------------------------------- */

/* This process's command line, its words separated by spaces. */
static void read_command(char *text, size_t size) {
    const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, size - 1);
    if (file >= 0) close(file);
    if (length < 0) length = 0;
    while (length > 0 && text[length - 1] == '\0') length--;
    for (ssize_t i = 0; i < length; i++)
        if (text[i] == '\0') text[i] = ' ';
    text[length] = '\0';
}

/* Another program may have written the file: only printable ASCII is kept. */
static void make_printable(char *text) {
    text[strcspn(text, "\n")] = '\0';
    for (char *c = text; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
}

static void write_holder(int file) {
    char command[HOLDER / 2], host[128] = "", when[32], text[HOLDER];
    const time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &parts);
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    read_command(command, sizeof command);
    make_printable(command);
    const size_t length = ab_text_show(text, sizeof text, "process %ld on %s since %s: %s\n", (long)getpid(),
                                       host[0] ? host : "this machine", when, command);
    if (ftruncate(file, 0) != 0 || pwrite(file, text, length, 0) < 0) return; /* for people only */
}

/* What the holder wrote about itself. It does so right after it took the lock: until then the file is empty.
 */
static void read_holder(int file, char text[HOLDER]) {
    const struct timespec moment = {0, 2 * 1000 * 1000};
    ssize_t length = 0;
    for (int i = 0; i < ATTEMPTS && length == 0; i++) {
        if (i > 0) nanosleep(&moment, NULL);
        length = pread(file, text, HOLDER - 1, 0);
    }
    text[length > 0 ? length : 0] = '\0';
    make_printable(text);
}

static ab_status refuse(const char *option, const char *place, int file) {
    char text[HOLDER];
    read_holder(file, text);
    return ab_fail(AB_OUTPUT, "%s: %s is being written by %s; wait for it, or write elsewhere", option,
                   ab_text_brief(place, 300), text[0] ? text : "another process");
}

/* Whether the process of this machine that took the lock has ended: children that it leaves behind hold the
 * lock until they have ended too. */
static bool holder_is_gone(int file) {
    char text[HOLDER], host[128] = "", expected[160];
    const ssize_t length = pread(file, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    const long process = strncmp(text, "process ", 8) == 0 ? strtol(text + 8, NULL, 10) : 0;
    if (process <= 0 || gethostname(host, sizeof host - 1) != 0) return false;
    ab_text_show(expected, sizeof expected, "process %ld on %s since ", process, host);
    return strncmp(text, expected, strlen(expected)) == 0 && kill((pid_t)process, 0) != 0 && errno == ESRCH;
}

/* ---- taking it ------------------------------------------------------------------------------- */

/* What a lock file must be: a plain file with one name. */
static ab_status check_kind(const char *option, const char *path, int file) {
    struct stat about;
    if (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_nlink <= 1) return AB_OK;
    return ab_fail(AB_OUTPUT, "%s: %s: expected a lock file, found something else", option, path);
}

/* Whether `path` still names the open file: its holder removes it before the lock ends. */
static bool is_current(const char *path, int file) {
    struct stat named, opened;
    return lstat(path, &named) == 0 && fstat(file, &opened) == 0 && named.st_ino == opened.st_ino &&
           named.st_dev == opened.st_dev;
}

/* One attempt with the lock file open. *taken: whether the lock is ours. */
static ab_status try_lock(const char *option, const char *place, const ab_lock *lock, bool *taken) {
    struct flock request = whole_file(F_WRLCK);
    *taken = false;
    AB_TRY(check_kind(option, lock->path, lock->file));
    if (fcntl(lock->file, F_OFD_SETLK, &request) == 0) {
        *taken = is_current(lock->path, lock->file);
        return AB_OK;
    }
    const int error = errno;
    if (error == EAGAIN || error == EACCES) {
        if (!holder_is_gone(lock->file)) return refuse(option, place, lock->file);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        return AB_OK;
    }
    if (error == EINTR) return AB_OK;
    ab_warn("%s: %s cannot be locked: %s; make sure that nothing else writes it", option, place,
            strerror(error));
    *taken = true;
    return AB_OK;
}

static ab_status take(const char *option, const char *place, ab_lock *lock) {
    for (int i = 0; i < ATTEMPTS; i++) {
        bool taken;
        lock->file = open(lock->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (lock->file < 0)
            return ab_fail(AB_OUTPUT, "%s: cannot lock %s: %s: %s", option, place, lock->path,
                           strerror(errno));
        ab_status status = try_lock(option, place, lock, &taken);
        if (status == AB_OK && taken) {
            write_holder(lock->file);
            return AB_OK;
        }
        close(lock->file);
        AB_TRY(status);
    }
    return ab_fail(AB_OUTPUT, "%s: cannot lock %s: other processes come and go", option, place);
}

static ab_status lock_beside(const char *option, const char *place, char *path, ab_lock *lock) {
    *lock = (ab_lock){-1, path};
    if (!path) return ab_fail(AB_NO_MEMORY, "%s: out of memory", option);
    ab_status status = take(option, place, lock);
    if (status == AB_OK) return AB_OK;
    free(path);
    *lock = (ab_lock){-1, NULL};
    return status;
}

ab_status ab_lock_file(const char *option, const char *path, ab_lock *lock) {
    *lock = (ab_lock){-1, NULL};
    if (!ab_outfile_replaces(path)) return AB_OK;
    return lock_beside(option, path, ab_sibling_path(path, ".", ".lock"), lock);
}

ab_status ab_lock_folder(const char *option, const char *folder, ab_lock *lock) {
    *lock = (ab_lock){-1, NULL};
    ab_status status = ab_folder_make(folder);
    if (status != AB_OK) return ab_fail_prefix(status, "%s", option);
    return lock_beside(option, folder, ab_text_new("%s/.ampbench.lock", folder), lock);
}

ab_status ab_lock_check(const char *option, const char *path) {
    struct flock request = whole_file(F_RDLCK);
    if (!ab_outfile_replaces(path)) return AB_OK;
    char *name = ab_sibling_path(path, ".", ".lock");
    const int file = name ? open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK) : -1;
    free(name);
    if (file < 0) return AB_OK;
    ab_status status = AB_OK;
    if (fcntl(file, F_OFD_GETLK, &request) == 0 && request.l_type != F_UNLCK)
        status = refuse(option, path, file);
    close(file);
    return status;
}

void ab_lock_release(ab_lock *lock) {
    if (!lock->path) return;
    unlink(lock->path);
    close(lock->file);
    free(lock->path);
    *lock = (ab_lock){-1, NULL};
}
