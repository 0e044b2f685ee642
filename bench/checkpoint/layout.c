/* Which layout the files of a checkpoint have. */
#define _POSIX_C_SOURCE 200809L /* fnmatch */
#include "bench/checkpoint/layout.h"

#include "kernels/core/text.h"

#include <fnmatch.h>
#include <string.h>

enum { PATTERN = 128 };

static const ab_checkpoint_layout *const layouts[] = {
#define AB_CHECKPOINT_LAYOUT(name) &ab_checkpoint_layout_##name,
#include "bench/checkpoint/layouts.def"
#undef AB_CHECKPOINT_LAYOUT
};

/* The pattern that matches, in `pattern`. */
static bool find_pattern(const char *patterns, const char *text, char pattern[PATTERN]) {
    while (patterns) {
        const size_t length = strcspn(patterns, "|");
        if (ab_text_fits(pattern, PATTERN, "%.*s", (int)length, patterns) && fnmatch(pattern, text, 0) == 0)
            return true;
        patterns = patterns[length] ? patterns + length + 1 : NULL;
    }
    return false;
}

bool ab_checkpoint_matches(const char *patterns, const char *text) {
    char pattern[PATTERN];
    return find_pattern(patterns, text, pattern);
}

const char *ab_checkpoint_star(const char *patterns, const char *text) {
    char pattern[PATTERN];
    if (!find_pattern(patterns, text, pattern)) return NULL;
    return text + (strrchr(pattern, '*') ? strrchr(pattern, '*') - pattern : (ptrdiff_t)strlen(text));
}

static ab_status see_key(void *context, const char *name, const ab_tensor_value *value) {
    (void)value;
    const char **key = context;
    if (*key && strcmp(*key, name) == 0) *key = NULL;
    return AB_OK;
}

static bool has_key(const ab_tensorfile *file, const char *key) {
    return ab_tensorfile_values(file, see_key, (void *)&key) == AB_OK && !key;
}

static const char *base_of(const char *path) { return strrchr(path, '/') ? strrchr(path, '/') + 1 : path; }

static bool has_layout(const ab_checkpoint_layout *layout, ab_tensorfile *const *file, int files) {
    for (int i = 0; i < files; i++)
        if (ab_checkpoint_matches(layout->mark, base_of(file[i]->path)) &&
            (!layout->key || has_key(file[i], layout->key)))
            return true;
    return false;
}

const ab_checkpoint_layout *ab_checkpoint_layout_of(ab_tensorfile *const *file, int files) {
    for (size_t i = 0; i < AB_COUNT_OF(layouts); i++)
        if (has_layout(layouts[i], file, files)) return layouts[i];
    return NULL;
}
