/* One place, one writer. A command that writes a place for longer than one rename holds its lock: a run its
 * document, its plots and its checkpoints; the gate its folder; plots the folder that they go to.
 *
 * The lock is a record lock of the kernel on a file beside the place (.NAME.lock; of a folder .ampbench.lock
 * in it), so it ends with its process, however that ends. The file says who holds it; it is removed at the
 * end, and one that a killed process left is taken over. The lock is advisory: only this program looks. */
#ifndef AB_FILES_LOCK_H
#define AB_FILES_LOCK_H

#include "kernels/core/status.h"

AB_BEGIN_DECLS

typedef struct ab_lock {
    int file;   /* valid if `path` is not NULL */
    char *path; /* of the lock file; owned; NULL: nothing is locked */
} ab_lock;

/* Locks the file `path`, which need not exist; its folder must. AB_OUTPUT if another process holds it: the
 * message names `option`, the place, process, machine, since when and the command. Where the file system has
 * no locks, warns and locks nothing. Ended by ab_lock_release. Places that cannot be replaced (devices,
 * descriptors, standard output) are not locked. */
AB_MUST_CHECK ab_status ab_lock_file(const char *option, const char *path, ab_lock *lock);

/* The same for a folder, which is created if it is missing, with its parents. */
AB_MUST_CHECK ab_status ab_lock_folder(const char *option, const char *folder, ab_lock *lock);

/* AB_OUTPUT, as above, if a process holds the lock of the file `path`. Takes nothing. For commands that
 * replace one file once. */
AB_MUST_CHECK ab_status ab_lock_check(const char *option, const char *path);

/* Removes the lock file and releases the lock. Does nothing if nothing is locked. */
void ab_lock_release(ab_lock *lock);

AB_END_DECLS

#endif
