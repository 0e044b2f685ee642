/* What makes the speeds of a record those of its build and not of the machine: a build without optimisation,
 * with sanitizers or without oneDNN. Records that another program wrote are not judged. */
#ifndef AB_REPORTS_RECORD_BUILD_H
#define AB_REPORTS_RECORD_BUILD_H

#include "kernels/core/compiler.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

enum { AB_BUILD_TEXT = 200 };

/* "a Debug build with sanitizers and without oneDNN", from a record's `generator`; "" for a build whose
 * speeds count. text[AB_BUILD_TEXT]; returns it. */
const char *ab_build_slow(const cJSON *generator, char *text);

/* A sentence for where speeds are shown; NULL for a build whose speeds count. */
const char *ab_build_warning(const cJSON *generator, char *text);

AB_END_DECLS

#endif
