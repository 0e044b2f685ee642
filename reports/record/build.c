/* Reads the build type, the flags and the version of oneDNN; nothing else of the record. */
#include "reports/record/build.h"

#include "kernels/core/text.h"
#include "reports/record/json.h"

#include <stdbool.h>
#include <string.h>

/* The last -O counts, as for the compiler; -Og and -O0 are for a debugger. */
static bool is_optimised(const char *flags) {
    char level = '0';
    for (const char *at = flags; (at = strstr(at, "-O")); at += 2)
        if (at == flags || at[-1] == ' ') level = at[2];
    return level != '0' && level != 'g';
}

static const char *kind_of(const char *type, const char *flags) {
    if (strcmp(type, "Debug") == 0) return "a Debug build";
    return is_optimised(flags) ? "a build" : "a build without optimisation";
}

const char *ab_build_slow(const cJSON *generator, char *text) {
    const char *type = ab_json_text(generator, "build_type", ""),
               *flags = ab_json_text(generator, "flags", "");
    const char *name = ab_json_text(generator, "name", "");
    const bool sanitized = strstr(flags, "-fsanitize=") != NULL;
    const bool bare = !ab_json_text(generator, "onednn_version", NULL);
    text[0] = '\0';
    if (strcmp(name, "ampbench") != 0 || !type[0]) return text;
    if (is_optimised(flags) && strcmp(type, "Debug") != 0 && !sanitized && !bare) return text;
    ab_text_show(text, AB_BUILD_TEXT, "%s%s%s", kind_of(type, flags), sanitized ? " with sanitizers" : "",
                 !bare       ? ""
                 : sanitized ? " and without oneDNN"
                             : " without oneDNN");
    return text;
}

const char *ab_build_warning(const cJSON *generator, char *text) {
    char build[AB_BUILD_TEXT / 2];
    ab_text_show(build, sizeof build, "%s", ab_build_slow(generator, text));
    ab_text_show(text, AB_BUILD_TEXT, "speeds of %s: a release build with oneDNN is faster", build);
    return build[0] ? text : NULL;
}
