/* What the operating system gives a process: standard streams, limits of files and of memory. */
#ifndef AB_CORE_PROCESS_SETUP_H
#define AB_CORE_PROCESS_SETUP_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>

AB_BEGIN_DECLS

/* First of all in main: closed standard streams (0 to 2) become /dev/null, so that no file of the program
 * gets their numbers; a write beyond the limit of file sizes (ulimit -f) fails with EFBIG instead of ending
 * the process by SIGXFSZ. Child processes inherit both. */
void ab_process_begin(void);

/* Last of all: writes what standard output still holds and closes it. AB_OUTPUT: "cannot write standard
 * output: No space left on device" if this or any earlier write to it failed. */
AB_MUST_CHECK ab_status ab_stdout_end(void);

enum { AB_LIMITS_TEXT = 160 };

/* Writes the limits of this process's memory into text[AB_LIMITS_TEXT]: "address space limited to 64.0 MiB
 * (ulimit -v)". Returns false, and writes "", if there are none or only some above the machine's memory. */
bool ab_memory_limits(char text[AB_LIMITS_TEXT]);

/* For AB_NO_MEMORY under such limits, adds them and the largest size of this process to the stored message;
 * returns `status`. */
ab_status ab_note_memory_limits(ab_status status);

AB_END_DECLS

#endif
