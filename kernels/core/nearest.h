/* The nearest valid name, for error messages. Knows nothing of what the names mean and prints nothing. */
#ifndef AB_CORE_NEAREST_H
#define AB_CORE_NEAREST_H

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

/* The one of names[0..count) that a person who typed `word` most likely meant, or NULL when none is close.
 * Distance is the least number of single-character insertions, deletions, replacements and swaps of two
 * neighbours (restricted Damerau-Levenshtein; Damerau, CACM 7(3), 1964), letters compared without case. Close
 * means at most one edit in each three characters of the longer word, rounded up; a name that begins with
 * `word` (3 characters at least) is close too. The first of equals wins. NULL entries of `names` are
 * skipped. */
const char *ab_nearest(const char *word, const char *const *names, int count);

AB_END_DECLS

#endif
