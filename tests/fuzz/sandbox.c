/* The file system that a fuzz target sees: a few files in memory, to read. Writes are discarded and no
 * process is started, whatever a mutated option or document names. The linker puts these functions in place
 * of the C library's (--wrap, see CMakeLists.txt); outside of a target, and for libFuzzer's own files, they
 * pass on to it. */
#define _GNU_SOURCE
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { MOST_FILES = 16 };

typedef struct memory_file {
    const char *path;
    const void *bytes;
    size_t size;
} memory_file;

static memory_file files[MOST_FILES];
static int count;
static bool inside;

void fuzz_sandbox(bool on) { inside = on; }
void fuzz_files_clear(void) { count = 0; }

void fuzz_file(const char *path, const void *bytes, size_t size) {
    fuzz_insist(count < MOST_FILES);
    files[count++] = (memory_file){path, bytes, size};
}

static const memory_file *find(const char *path) {
    for (int i = 0; i < count; i++)
        if (strcmp(files[i].path, path) == 0) return &files[i];
    errno = ENOENT;
    return NULL;
}

/* The rest of a path below a folder, or NULL. */
static const char *below(const char *path, const char *folder) {
    const size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && path[length] == '/' ? path + length + 1 : NULL;
}

static bool is_folder(const char *path) {
    for (int i = 0; i < count; i++)
        if (below(files[i].path, path)) return true;
    return false;
}

/* Files that libFuzzer writes when a target has crashed. */
static bool is_artifact(const char *path) {
    static const char *const kinds[] = {"/crash-", "/leak-", "/timeout-", "/oom-", "/slow-unit-"};
    bool found = false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) found = found || strstr(path, kinds[i]);
    return found;
}

static bool passes(const char *path) { return !inside || is_artifact(path); }

static int denied(void) {
    errno = EACCES;
    return -1;
}

/* ---- streams and descriptors ----------------------------------------------------------------- */

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode) {
    if (passes(path)) return __real_fopen(path, mode);
    if (mode[0] != 'r' || strchr(mode, '+')) return __real_fopen("/dev/null", "w");
    const memory_file *file = find(path);
    if (!file) return NULL;
    return file->size ? fmemopen((void *)(uintptr_t)file->bytes, file->size, "r")
                      : __real_fopen("/dev/null", "r");
}

FILE *__real_freopen(const char *path, const char *mode, FILE *stream);
FILE *__wrap_freopen(const char *path, const char *mode, FILE *stream);
FILE *__wrap_freopen(const char *path, const char *mode, FILE *stream) {
    return __real_freopen(path && passes(path) ? path : "/dev/null", mode, stream);
}

static int open_memory(const memory_file *file) {
    int handle = memfd_create("input", MFD_CLOEXEC);
    fuzz_insist(handle >= 0 && write(handle, file->bytes, file->size) == (ssize_t)file->size);
    lseek(handle, 0, SEEK_SET);
    return handle;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (passes(path)) return __real_open(path, flags, mode);
    if ((flags & O_ACCMODE) != O_RDONLY) return __real_open("/dev/null", flags & O_ACCMODE);
    if (is_folder(path)) return __real_open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const memory_file *file = find(path);
    return file ? open_memory(file) : -1;
}

FILE *__real_tmpfile(void);
FILE *__wrap_tmpfile(void);
FILE *__wrap_tmpfile(void) {
    int handle = memfd_create("temporary", MFD_CLOEXEC);
    return handle < 0 ? NULL : fdopen(handle, "w+");
}

gzFile __real_gzopen(const char *path, const char *mode);
gzFile __wrap_gzopen(const char *path, const char *mode);
gzFile __wrap_gzopen(const char *path, const char *mode) {
    if (passes(path)) return __real_gzopen(path, mode);
    const memory_file *file = find(path);
    return file ? gzdopen(open_memory(file), mode) : NULL;
}

int __real_fsync(int handle);
int __wrap_fsync(int handle);
int __wrap_fsync(int handle) { return inside ? 0 : __real_fsync(handle); }

/* ---- names ----------------------------------------------------------------------------------- */

static int describe(const char *path, struct stat *about) {
    const memory_file *file = find(path);
    *about = (struct stat){.st_nlink = 1};
    if (!file && !is_folder(path)) return -1;
    about->st_mode = file ? S_IFREG | 0644 : S_IFDIR | 0755;
    about->st_size = file ? (off_t)file->size : 0;
    return 0;
}

int __real_stat(const char *path, struct stat *about);
int __wrap_stat(const char *path, struct stat *about);
int __wrap_stat(const char *path, struct stat *about) {
    return inside ? describe(path, about) : __real_stat(path, about);
}

int __real_lstat(const char *path, struct stat *about);
int __wrap_lstat(const char *path, struct stat *about);
int __wrap_lstat(const char *path, struct stat *about) {
    return inside ? describe(path, about) : __real_lstat(path, about);
}

int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
int __wrap_access(const char *path, int mode) {
    struct stat about;
    return inside ? describe(path, &about) : __real_access(path, mode);
}

char *__real_realpath(const char *path, char *resolved);
char *__wrap_realpath(const char *path, char *resolved);
char *__wrap_realpath(const char *path, char *resolved) {
    struct stat about;
    if (!inside) return __real_realpath(path, resolved);
    return describe(path, &about) == 0 && !resolved ? strdup(path) : NULL;
}

#define DISCARDED(function)                                                                                  \
    int __real_##function(const char *path);                                                                 \
    int __wrap_##function(const char *path);                                                                 \
    int __wrap_##function(const char *path) { return inside ? denied() : __real_##function(path); }
DISCARDED(unlink)
DISCARDED(remove)
DISCARDED(rmdir)
DISCARDED(chdir)

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode) { return inside ? 0 : __real_mkdir(path, mode); }

/* The name as it is stands for a folder that nothing else has. */
char *__real_mkdtemp(char *name);
char *__wrap_mkdtemp(char *name);
char *__wrap_mkdtemp(char *name) { return inside ? name : __real_mkdtemp(name); }

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to) { return inside ? 0 : __real_rename(from, to); }

/* ---- folders --------------------------------------------------------------------------------- */

/* Stands for a DIR while a target runs: names the entries of one folder, each once. */
typedef struct memory_folder {
    char path[256];
    int next;
    struct dirent entry;
} memory_folder;

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
DIR *__wrap_opendir(const char *path) {
    if (!inside) return __real_opendir(path);
    if (!is_folder(path) || strlen(path) >= sizeof((memory_folder *)NULL)->path) {
        errno = ENOENT;
        return NULL;
    }
    memory_folder *folder = calloc(1, sizeof *folder);
    if (folder) memcpy(folder->path, path, strlen(path));
    return (DIR *)(void *)folder;
}

/* Whether an earlier file has the same name in the folder: one of a subfolder. */
static bool is_listed(const memory_folder *folder, int number, size_t length) {
    const char *name = below(files[number].path, folder->path);
    for (int i = 0; i < number; i++) {
        const char *other = below(files[i].path, folder->path);
        if (other && strcspn(other, "/") == length && strncmp(other, name, length) == 0) return true;
    }
    return false;
}

struct dirent *__real_readdir(DIR *stream);
struct dirent *__wrap_readdir(DIR *stream);
struct dirent *__wrap_readdir(DIR *stream) {
    if (!inside) return __real_readdir(stream);
    memory_folder *folder = (memory_folder *)(void *)stream;
    while (folder->next < count) {
        const int number = folder->next++;
        const char *name = below(files[number].path, folder->path);
        const size_t length = name ? strcspn(name, "/") : 0;
        if (!length || is_listed(folder, number, length)) continue;
        memcpy(folder->entry.d_name, name, length);
        folder->entry.d_name[length] = '\0';
        return &folder->entry;
    }
    return NULL;
}

int __real_closedir(DIR *stream);
int __wrap_closedir(DIR *stream);
int __wrap_closedir(DIR *stream) {
    if (!inside) return __real_closedir(stream);
    free(stream);
    return 0;
}

/* ---- processes ------------------------------------------------------------------------------- */

pid_t __wrap_fork(void);
pid_t __wrap_fork(void) {
    errno = EAGAIN;
    return -1;
}

int __wrap_posix_spawn(pid_t *child, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const argv[], char *const environment[]);
int __wrap_posix_spawn(pid_t *child, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const argv[], char *const environment[]) {
    (void)child, (void)path, (void)actions, (void)attributes, (void)argv, (void)environment;
    return EAGAIN;
}

int __wrap_posix_spawnp(pid_t *child, const char *file, const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attributes, char *const argv[], char *const environment[]);
int __wrap_posix_spawnp(pid_t *child, const char *file, const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attributes, char *const argv[], char *const environment[]) {
    return __wrap_posix_spawn(child, file, actions, attributes, argv, environment);
}
