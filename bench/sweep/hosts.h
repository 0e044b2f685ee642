/* A file of hosts: one a line, "HOST [slots=N] [dir=PATH] [ampbench=PATH]", comments after #. */
#ifndef AB_BENCH_SWEEP_HOSTS_H
#define AB_BENCH_SWEEP_HOSTS_H

#include "kernels/core/status.h"

AB_BEGIN_DECLS

enum { AB_HOSTS_MOST = 4096, AB_HOST_SLOTS_MOST = 1024 };

typedef struct ab_host {
    char *name;             /* for ssh: HOST or USER@HOST, or a name of its configuration; owned */
    char *folder, *program; /* there; owned; NULL: as here */
    int slots;              /* parts that run at once */
} ab_host;

typedef struct ab_hosts {
    ab_host *host; /* [count]; owned */
    int count;
} ab_hosts;

/* Reads a file. AB_INPUT names file and line. ab_hosts_clear in any case. */
AB_MUST_CHECK ab_status ab_hosts_read(const char *path, ab_hosts *hosts);
void ab_hosts_clear(ab_hosts *hosts);

AB_END_DECLS

#endif
