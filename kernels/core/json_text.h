/* Writing one JSON string. Only that: documents are written by those who know their shape. */
#ifndef AB_CORE_JSON_TEXT_H
#define AB_CORE_JSON_TEXT_H

#include "kernels/core/compiler.h"

#include <stdio.h>

AB_BEGIN_DECLS

/* Writes `text` (valid UTF-8) as a JSON string with its quotes. Errors show in ferror(out). */
void ab_json_put_text(FILE *out, const char *text);

AB_END_DECLS

#endif
