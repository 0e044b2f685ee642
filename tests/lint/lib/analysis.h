/* Included before every file that clang-tidy analyses (tidy.cmake), never by a build. The analyser does not
 * look into other files; it is told here what status.c does: a failure returns the status it was given, which
 * is not AB_OK; and what cJSON does: NULL is of no type. Assertions hold, in builds without them, too; and a
 * test that fails or is skipped ends there, which cmocka does not declare. */
#undef NDEBUG
_Noreturn void _fail(const char *const file, const int line);
_Noreturn void _skip(const char *const file, const int line);

#include "kernels/core/status.h"

#include <cjson/cJSON.h>

#define ab_fail(status, ...) ((void)ab_fail(status, __VA_ARGS__), (status))
#define ab_fail_prefix(status, ...) ((void)ab_fail_prefix(status, __VA_ARGS__), (status))
#define cJSON_IsNumber(item) ((item) && cJSON_IsNumber(item))
#define cJSON_IsString(item) ((item) && cJSON_IsString(item))
#define cJSON_IsObject(item) ((item) && cJSON_IsObject(item))
#define cJSON_IsArray(item) ((item) && cJSON_IsArray(item))
