#include "kernels/core/text_path.h"

#include "kernels/core/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

ab_status ab_text_path(const char *what, char *path, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *whole = ab_text_new_args(format, args);
    va_end(args);
    if (!whole) return ab_fail(AB_NO_MEMORY, "%s: out of memory", what);
    const size_t length = strlen(whole);
    ab_status status = AB_OK;
    if (length >= size)
        status = ab_fail(AB_USAGE, "%s: expected a path of less than %zu bytes, found %zu: '%s'", what, size,
                         length, ab_text_brief(whole, 64));
    memcpy(path, length < size ? whole : "", length < size ? length + 1 : 1);
    free(whole);
    return status;
}
