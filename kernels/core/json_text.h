/* Writes one JSON string. Writers of documents are elsewhere. */
#ifndef AB_CORE_JSON_TEXT_H
#define AB_CORE_JSON_TEXT_H

#include "kernels/core/compiler.h"

#include <stdio.h>

AB_BEGIN_DECLS

/* Writes `text` as a quoted JSON string. Invisible characters and those that change how others are displayed
 * and the first of a CI runner's "##[" (show.h) are written as \uXXXX, a byte that is not UTF-8 as U+FFFD.
 * Check ferror(out) for errors. */
void ab_json_put_text(FILE *out, const char *text);

AB_END_DECLS

#endif
