/* Status texts and the per-thread error message. Error handling is up to the caller. */
#include "kernels/core/status.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"

#include <stdarg.h>
#include <stdio.h>

enum { MESSAGE_BYTES = 1024 };

static _Thread_local char message[MESSAGE_BYTES];

const char *ab_status_text(ab_status status) {
    static const char *const texts[] = {
#define AB_STATUS(id, text, exit_status) text,
#include "kernels/core/status.def"
#undef AB_STATUS
    };
    return (size_t)status < AB_COUNT_OF(texts) ? texts[status] : "unknown status";
}

int ab_status_exit(ab_status status) {
    static const int exits[] = {
#define AB_STATUS(id, text, exit_status) exit_status,
#include "kernels/core/status.def"
#undef AB_STATUS
    };
    return (size_t)status < AB_COUNT_OF(exits) ? exits[status] : 1;
}

ab_status ab_fail(ab_status status, const char *format, ...) {
    char text[MESSAGE_BYTES]; /* arguments may point into `message` */
    va_list args;
    va_start(args, format);
    ab_text_show_args(text, sizeof text, format, args);
    va_end(args);
    ab_text_escape(message, sizeof message, text);
    return status;
}

ab_status ab_fail_prefix(ab_status status, const char *format, ...) {
    char prefix[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    ab_text_show_args(prefix, sizeof prefix, format, args);
    va_end(args);
    return ab_fail(status, "%s: %s", ab_text_brief(prefix, 500), message);
}

const char *ab_error_message(void) { return message; }
