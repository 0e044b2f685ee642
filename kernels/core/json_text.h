/* Writes one JSON string. Writers of documents are elsewhere. */
#ifndef AB_CORE_JSON_TEXT_H
#define AB_CORE_JSON_TEXT_H

#include "kernels/core/compiler.h"

#include <stdio.h>

AB_BEGIN_DECLS

/* Writes `text` (valid UTF-8) as a quoted and escaped JSON string. Check ferror(out) for errors. */
void ab_json_put_text(FILE *out, const char *text);

AB_END_DECLS

#endif
