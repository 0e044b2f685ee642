/* Included before every file that clang-tidy analyses (tidy.cmake), never by a build. The analyser does not
 * look into other files; it is told here what status.c does: a failure returns the status it was given, which
 * is not AB_OK. */
#include "kernels/core/status.h"

#define ab_fail(status, ...) ((void)ab_fail(status, __VA_ARGS__), (status))
#define ab_fail_prefix(status, ...) ((void)ab_fail_prefix(status, __VA_ARGS__), (status))
