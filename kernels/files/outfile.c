/* Temporary names are NAME.PID-RANDOM.tmp. */
#define _GNU_SOURCE
#define _POSIX_C_SOURCE 200809L

#include "kernels/files/outfile.h"

#include "kernels/core/text.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUFFIX = 48, RANDOM_DIGITS = 8, ATTEMPTS = 100 };

static ab_status failed(const char *path) {
    return ab_fail(AB_OUTPUT, "%s: cannot write: %s", path, strerror(errno));
}

static ab_status no_memory(const char *path) {
    return ab_fail(AB_NO_MEMORY, "%s: out of memory while writing", path);
}

/* ---- in place -------------------------------------------------------------------------------- */

/* The descriptor of this process that `path` names; -1: none. */
static int named_descriptor(const char *path) {
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "/dev/stdout") == 0) return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0) return STDERR_FILENO;
    for (size_t i = 0; i < AB_COUNT_OF(folders); i++) {
        const size_t length = strlen(folders[i]);
        char *end = NULL;
        if (strncmp(path, folders[i], length) != 0 || !isdigit((unsigned char)path[length])) continue;
        const long number = strtol(path + length, &end, 10);
        if (*end == '\0' && number <= 1 << 20) return (int)number;
    }
    return -1;
}

static ab_status take_descriptor(int file, ab_outfile *out) {
    out->stream = file < 0 ? NULL : fdopen(file, "wb");
    if (out->stream) return AB_OK;
    ab_status status = failed(out->path);
    if (file >= 0) close(file);
    return status;
}

static ab_status open_in_place(int flags, ab_outfile *out) {
    const int number = named_descriptor(out->path);
    if (number == STDOUT_FILENO) fflush(stdout);
    if (number >= 0) return take_descriptor(fcntl(number, F_DUPFD_CLOEXEC, 0), out);
    return take_descriptor(open(out->path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | flags, 0666), out);
}

/* What is at the target's place. */
typedef enum kind { NOTHING, REPLACED, IN_PLACE } kind;

static ab_status look(const char *path, kind *found, mode_t *mode) {
    struct stat about;
    *found = IN_PLACE;
    *mode = 0;
    if (named_descriptor(path) >= 0) return AB_OK;
    if (!path[ab_folder_length(path)]) return ab_fail(AB_OUTPUT, "%s: cannot write: it is a folder", path);
    const bool exists = lstat(path, &about) == 0;
    if (!exists && errno != ENOENT) return failed(path);
    if (exists && (S_ISFIFO(about.st_mode) || S_ISCHR(about.st_mode)))
        return access(path, W_OK) == 0 ? AB_OK : failed(path);
    *found = exists ? REPLACED : NOTHING;
    if (!exists || S_ISLNK(about.st_mode)) return AB_OK;
    if (!S_ISREG(about.st_mode)) return ab_fail(AB_OUTPUT, "%s: cannot write: it is not a file", path);
    if (about.st_uid == geteuid()) *mode = about.st_mode & 0777;
    return access(path, W_OK) == 0 ? AB_OK : failed(path);
}

/* ---- temporary files ------------------------------------------------------------------------- */

static uint32_t random_number(void) {
    static uint32_t counter;
    uint32_t number = 0;
    struct timespec now = {0, 0};
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) == (ssize_t)sizeof number) return number;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint32_t)now.tv_nsec * 2654435761u + counter++;
}

/* Creates the temporary file; its descriptor, or -1 with errno. */
static int create_temporary(ab_outfile *out) {
    for (int i = 0; i < ATTEMPTS; i++) {
        char suffix[SUFFIX];
        ab_text_exact(suffix, sizeof suffix, ".%ld-%08x.tmp", (long)getpid(), (unsigned)random_number());
        out->temporary = ab_sibling_path(out->path, "", suffix);
        if (!out->temporary) return -1;
        const int file = open(out->temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (file >= 0) return file;
        const int error = errno;
        free(out->temporary);
        out->temporary = NULL;
        errno = error;
        if (error != EEXIST) return -1;
    }
    return -1;
}

static void discard(ab_outfile *out) {
    if (out->temporary) unlink(out->temporary);
    free(out->temporary);
    free(out->path);
    *out = (ab_outfile){0};
}

static ab_status open_temporary(mode_t mode, ab_outfile *out) {
    const int file = create_temporary(out);
    if (file >= 0 && mode != 0 && fchmod(file, mode) != 0) {
        ab_status status = failed(out->path);
        close(file);
        return status;
    }
    return take_descriptor(file, out);
}

/* Makes a rename in the folder of `path` durable. Some file systems do not support this; that is not an
 * error. */
static void sync_folder(const char *path) {
    const size_t length = ab_folder_length(path);
    char *folder = length ? ab_text_new("%.*s", (int)length, path) : ab_text_new(".");
    const int file = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(folder);
    if (file < 0) return;
    fsync(file);
    close(file);
}

/* ---- public ---------------------------------------------------------------------------------- */

ab_status ab_outfile_open(const char *path, ab_outfile *out) {
    kind found = NOTHING;
    mode_t mode = 0;
    *out = (ab_outfile){0};
    if (strcmp(path, "-") != 0) AB_TRY(look(path, &found, &mode));
    out->path = ab_text_new("%s", strcmp(path, "-") == 0 ? "standard output" : path);
    if (!out->path) return no_memory(path);
    if (strcmp(path, "-") == 0) {
        out->stream = stdout;
        return AB_OK;
    }
    ab_status status = found == IN_PLACE ? open_in_place(0, out) : open_temporary(mode, out);
    if (status != AB_OK) discard(out);
    return status;
}

ab_status ab_outfile_append(const char *path, ab_outfile *out) {
    *out = (ab_outfile){.path = ab_text_new("%s", path)};
    if (!out->path) return no_memory(path);
    ab_status status = open_in_place(O_APPEND | O_CREAT, out);
    if (status != AB_OK) discard(out);
    return status;
}

ab_status ab_outfile_publish(ab_outfile *out) {
    if (fflush(out->stream) != 0 || ferror(out->stream)) return failed(out->path);
    if (!out->temporary) return AB_OK;
    if (!out->unsynced && fsync(fileno(out->stream)) != 0) return failed(out->path);
    if (rename(out->temporary, out->path) != 0) return failed(out->path);
    if (!out->unsynced) sync_folder(out->path);
    free(out->temporary);
    out->temporary = NULL;
    return AB_OK;
}

ab_status ab_outfile_close(ab_outfile *out, ab_status status) {
    if (!out->stream) return status;
    if (status == AB_OK) status = ab_outfile_publish(out);
    if (out->stream != stdout && fclose(out->stream) != 0 && status == AB_OK) status = failed(out->path);
    discard(out);
    return status;
}

bool ab_outfile_replaces(const char *path) {
    struct stat about;
    if (strcmp(path, "-") == 0 || named_descriptor(path) >= 0) return false;
    return lstat(path, &about) != 0 || !(S_ISFIFO(about.st_mode) || S_ISCHR(about.st_mode));
}

ab_status ab_outfile_check_writable(const char *path) {
    kind found = NOTHING;
    mode_t mode = 0;
    ab_outfile probe = {0};
    AB_TRY(look(path, &found, &mode));
    if (found == IN_PLACE) return AB_OK;
    probe.path = ab_text_new("%s", path);
    if (!probe.path) return no_memory(path);
    const int file = create_temporary(&probe);
    ab_status status = file < 0 ? failed(path) : AB_OK;
    if (file >= 0) close(file);
    discard(&probe);
    return status;
}

/* ---- what killed processes left behind ------------------------------------------------------- */

/* The process of a temporary file whose name ends at `end`; *start becomes where its suffix begins. 0: the
 * name is none of a temporary file. */
static long writer_of(const char *name, const char **start) {
    const size_t length = strlen(name), tail = RANDOM_DIGITS + strlen("-.tmp");
    if (length < tail + 2 || strcmp(name + length - 4, ".tmp") != 0) return 0;
    const char *dash = name + length - tail, *at = dash;
    if (*dash != '-' || strspn(dash + 1, "0123456789abcdef") != RANDOM_DIGITS) return 0;
    while (at > name && isdigit((unsigned char)at[-1])) at--;
    if (at == dash || at == name || at[-1] != '.') return 0;
    *start = at - 1;
    return strtol(at, NULL, 10);
}

/* Whether name[0..length) is `pattern`; if `shortened`, its beginning is enough. */
static bool is_about(const char *name, size_t length, const char *pattern, bool shortened) {
    const char *mark = strstr(pattern, "%c");
    const size_t whole = strlen(pattern), before = mark ? (size_t)(mark - pattern) : whole;
    const size_t after = mark ? whole - before - 2 : 0;
    if (!mark && !shortened && length != whole) return false;
    if (strncmp(name, pattern, before < length ? before : length) != 0) return false;
    return shortened || !mark ||
           (length >= before + after && strncmp(name + length - after, pattern + whole - after, after) == 0);
}

/* Whether the process has ended and nobody has asked how (a zombie). Its name, in parentheses, may hold any
 * character, and the state follows it. */
static bool is_zombie(long process) {
    char path[64], text[512];
    ab_text_exact(path, sizeof path, "/proc/%ld/stat", process);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    text[length > 0 ? length : 0] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && (strncmp(name_end, ") Z", 3) == 0 || strncmp(name_end, ") X", 3) == 0);
}

static bool is_gone(long process) {
    return process == (long)getpid() || (kill((pid_t)process, 0) != 0 && errno == ESRCH) ||
           is_zombie(process);
}

void ab_outfile_remove_stale(const char *path) {
    const size_t length = ab_folder_length(path);
    char *folder = length ? ab_text_new("%.*s", (int)length, path) : ab_text_new(".");
    DIR *listing = folder && path[length] ? opendir(folder) : NULL;
    for (const struct dirent *entry; listing && (entry = readdir(listing));) {
        const char *suffix = NULL;
        const long process = writer_of(entry->d_name, &suffix);
        const bool shortened = strlen(entry->d_name) == AB_SIBLING_NAME;
        if (process <= 0 ||
            !is_about(entry->d_name, (size_t)(suffix - entry->d_name), path + length, shortened))
            continue;
        if (is_gone(process)) unlinkat(dirfd(listing), entry->d_name, 0);
    }
    if (listing) closedir(listing);
    free(folder);
}

size_t ab_folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash + 1 - path) : 0;
}

char *ab_sibling_path(const char *path, const char *before, const char *after) {
    const size_t folder = ab_folder_length(path), length = strlen(path + folder);
    const size_t added = strlen(before) + strlen(after);
    const size_t room = added < AB_SIBLING_NAME ? AB_SIBLING_NAME - added : 0,
                 kept = length < room ? length : room;
    return ab_text_new("%.*s%s%.*s%s", (int)folder, path, before, (int)kept, path + folder, after);
}

ab_status ab_folder_make(const char *folder) {
    char *path = ab_text_new("%s", folder);
    if (!path) return ab_fail(AB_NO_MEMORY, "%s: out of memory", folder);
    for (char *slash = path + 1; *path && (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0777);
    }
    struct stat about;
    bool made = mkdir(path, 0777) == 0;
    const int error = errno;
    made = made || (stat(path, &about) == 0 && S_ISDIR(about.st_mode));
    free(path);
    return made ? AB_OK : ab_fail(AB_OUTPUT, "%s: cannot create the folder: %s", folder, strerror(error));
}
