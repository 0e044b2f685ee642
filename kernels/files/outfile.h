/* The one way in which the program writes a file: under a temporary name in the folder of the target, synced,
 * renamed when it is complete. A reader, a second writer or a process killed at any instant sees the old file
 * or the new one. Links are never followed: a link at the target's place is replaced, as a file would be.
 *
 * Written in place, because a rename would replace what they stand for:
 *   -                                       standard output
 *   /dev/stdout, /dev/stderr, /dev/fd/N, /proc/self/fd/N   that descriptor, at its position
 *   a FIFO or a character device            opened without creating or truncating anything
 *
 * tests/lint/writes.cmake finds code that opens a file for writing in another way. */
#ifndef AB_FILES_OUTFILE_H
#define AB_FILES_OUTFILE_H

#include "kernels/core/compiler.h"
#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

AB_BEGIN_DECLS

typedef struct ab_outfile {
    FILE *stream;           /* to write to; NULL: not open */
    char *path, *temporary; /* owned; temporary NULL: written in place, or published already */
    bool unsynced; /* set by the caller: published without waiting for the disk; a reader must verify it */
} ab_outfile;

/* Opens the file that is to stand at `path`. AB_OUTPUT names the path and the reason: a folder, a socket, a
 * file without write permission. After success ab_outfile_close must follow. */
AB_MUST_CHECK ab_status ab_outfile_open(const char *path, ab_outfile *out);

/* The same for a file to append to, in place: several programs may append to it. A link is refused. */
AB_MUST_CHECK ab_status ab_outfile_append(const char *path, ab_outfile *out);

/* Puts the file in its place: flush, fsync, rename, fsync of the folder. The stream stays open for more. */
AB_MUST_CHECK ab_status ab_outfile_publish(ab_outfile *out);

/* With `status` AB_OK: publishes what is not yet published and closes. Otherwise removes the temporary file,
 * so that the target stays as it was. Returns `status`, or the first failure. Does nothing if not open. */
AB_MUST_CHECK ab_status ab_outfile_close(ab_outfile *out, ab_status status);

/* Checks that `path` can be written, without changing what is there. */
AB_MUST_CHECK ab_status ab_outfile_check_writable(const char *path);

/* Whether ab_outfile_open would replace what is at `path`, not write to it in place ("-", descriptors, FIFOs,
 * devices). */
bool ab_outfile_replaces(const char *path);

/* Removes temporary files that processes left behind when they were killed while writing `path`, which may
 * hold "%c" for any text. Only those whose process is gone; call it where nobody else writes (lock.h), or for
 * a process that has just ended. */
void ab_outfile_remove_stale(const char *path);

/* Names of files that stand beside another: its temporary file, its lock, its journal. */

/* The longest name of a file that common file systems allow. */
enum { AB_SIBLING_NAME = 255 };

/* Length of the folder part of `path` with its slash; 0 if there is none. */
size_t ab_folder_length(const char *path);

/* The path of a file in the folder of `path`: `before`, the name of `path`, `after`. The name is shortened
 * where the whole would be longer than file systems allow (AB_SIBLING_NAME bytes). Owned by the caller
 * (free); NULL: out of memory. */
AB_MUST_CHECK char *ab_sibling_path(const char *path, const char *before, const char *after);

/* Folders that commands write to. */

/* Creates the folder and its missing parents. AB_OUTPUT names the folder if it cannot be created. */
AB_MUST_CHECK ab_status ab_folder_make(const char *folder);

AB_END_DECLS

#endif
