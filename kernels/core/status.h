/* Status codes and the per-thread error message.
 *
 * A function that can fail returns ab_status; results are returned through trailing out pointers. The code
 * that detects the error writes a one-line message for the user with ab_fail(): the option or the file
 * and line, what was expected and what was found. Callers only propagate the code (AB_TRY, AB_TRY_GOTO).
 * Nothing here prints or exits; only bench/main.c turns a status into an exit status. */
#ifndef AB_CORE_STATUS_H
#define AB_CORE_STATUS_H

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

typedef enum ab_status {
#define AB_STATUS(id, text, exit_status) AB_##id,
#include "kernels/core/status.def"
#undef AB_STATUS
} ab_status;

/* Text of a code, e.g. "bad input file". Static storage. */
const char *ab_status_text(ab_status status);

/* The process exit status for a code: the third column of status.def. */
int ab_status_exit(ab_status status);

/* Stores the thread's message as one line (at most 1,023 bytes, escaped by ab_text_escape) and returns
 * `status`, for `return ab_fail(...)`. */
ab_status ab_fail(ab_status status, const char *format, ...) AB_PRINTF(2, 3);

/* Puts "prefix: " in front of the stored message; returns `status`. Adds a file name or an op's name.
 */
ab_status ab_fail_prefix(ab_status status, const char *format, ...) AB_PRINTF(2, 3);

/* The message of the last ab_fail of this thread; "" before any. Valid until the next ab_fail. */
const char *ab_error_message(void);

/* Passes a failure to the caller. */
#define AB_TRY(call)                                                                                         \
    do {                                                                                                     \
        ab_status ab_try_status = (call);                                                                    \
        if (ab_try_status != AB_OK) return ab_try_status;                                                    \
    } while (0)

/* The same in a function with a local `ab_status status` and one exit label `out:`. */
#define AB_TRY_GOTO(call)                                                                                    \
    do {                                                                                                     \
        status = (call);                                                                                     \
        if (status != AB_OK) goto out;                                                                       \
    } while (0)

AB_END_DECLS

#endif
