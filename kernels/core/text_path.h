/* Paths in fixed buffers: whole, or refused by name. */
#ifndef AB_CORE_TEXT_PATH_H
#define AB_CORE_TEXT_PATH_H

#include "kernels/core/status.h"

#include <stddef.h>

AB_BEGIN_DECLS

/* Formats a path that the user chose, or that lies in a folder of theirs. AB_USAGE names `what` (an option, a
 * variable), the room and what was found. */
AB_MUST_CHECK ab_status ab_text_path(const char *what, char *path, size_t size, const char *format, ...)
    AB_PRINTF(4, 5);

AB_END_DECLS

#endif
