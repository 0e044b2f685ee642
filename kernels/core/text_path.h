/* Paths in fixed buffers: too long is an error, never truncated. */
#ifndef AB_CORE_TEXT_PATH_H
#define AB_CORE_TEXT_PATH_H

#include "kernels/core/status.h"

#include <stddef.h>

AB_BEGIN_DECLS

/* Formats a path given by the user, or inside a directory given by the user, into path[size]. AB_USAGE if
 * it is too long: the message names `what` (an option, a variable), the limit and the path. */
AB_MUST_CHECK ab_status ab_text_path(const char *what, char *path, size_t size, const char *format, ...)
    AB_PRINTF(4, 5);

AB_END_DECLS

#endif
