#define _GNU_SOURCE
#include "kernels/core/process_setup.h"

#include "kernels/core/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const double mib = 0x1p20;

void ab_process_begin(void) {
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", O_RDWR); /* takes the lowest number that is free */
    signal(SIGXFSZ, SIG_IGN);
}

/* ---- standard output ------------------------------------------------------------------------- */

/* The C library keeps no reason of a write that failed earlier: whether one would still fail, and why. 0: not
 * known. */
static int reason_of_failure(void) {
    struct stat about;
    struct statvfs disk;
    struct rlimit files;
    if (write(STDOUT_FILENO, "", 0) < 0) return errno;
    if (fstat(STDOUT_FILENO, &about) != 0 || !S_ISREG(about.st_mode)) return 0;
    if (getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur <= (rlim_t)about.st_size) return EFBIG;
    return fstatvfs(STDOUT_FILENO, &disk) == 0 && disk.f_bavail == 0 ? ENOSPC : 0;
}

ab_status ab_stdout_end(void) {
    const bool failed = ferror(stdout) != 0;
    int error = fflush(stdout) != 0 ? errno : 0;
    if (failed && error == 0) error = reason_of_failure();
    if (fclose(stdout) != 0 && error == 0) error = errno;
    if (!failed && error == 0) return AB_OK;
    return ab_fail(AB_OUTPUT, "cannot write standard output: %s",
                   error ? strerror(error) : "a part of it could not be written");
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Appends a limit below the machine's memory. */
static void add_limit(char *text, const struct rlimit *limit, const char *name, const char *option) {
    const double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (limit->rlim_cur == RLIM_INFINITY || (double)limit->rlim_cur >= machine) return;
    ab_text_append(text, AB_LIMITS_TEXT, "%s%s limited to %.1f MiB (%s)", text[0] ? ", " : "", name,
                   (double)limit->rlim_cur / mib, option);
}

bool ab_memory_limits(char text[AB_LIMITS_TEXT]) {
    struct rlimit space, data;
    text[0] = '\0';
    if (getrlimit(RLIMIT_AS, &space) == 0) add_limit(text, &space, "address space", "ulimit -v");
    if (getrlimit(RLIMIT_DATA, &data) == 0) add_limit(text, &data, "data", "ulimit -d");
    return text[0] != '\0';
}

/* Largest virtual size of this process so far in MiB; 0: not known. */
static double peak_mib(void) {
    char line[256];
    unsigned long long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && kib == 0 && fgets(line, sizeof line, status))
        if (sscanf(line, "VmPeak: %llu", &kib) != 1) kib = 0;
    if (status) fclose(status);
    return (double)kib / 1024;
}

ab_status ab_note_memory_limits(ab_status status) {
    char limits[AB_LIMITS_TEXT];
    if (status != AB_NO_MEMORY || !ab_error_message()[0] || !ab_memory_limits(limits)) return status;
    if (strstr(ab_error_message(), limits)) return status; /* a worker said it already */
    return ab_fail(status, "%s; %s, %.1f MiB in use at most", ab_text_brief(ab_error_message(), 600), limits,
                   peak_mib());
}
