/* The nearest valid name, for error messages. Prints nothing. */
#ifndef AB_CORE_NEAREST_H
#define AB_CORE_NEAREST_H

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

/* The entry of names[0..count) closest to `word`, or NULL if none is close.
 * Distance is the least number of single-character insertions, deletions, substitutions and transpositions
 * of adjacent characters (restricted Damerau-Levenshtein; Damerau, CACM 7(3), 1964), case-insensitive.
 * Close means at most one edit per three characters of the longer word, rounded up; a name that begins
 * with `word` (at least 3 characters) is close too. The first of equal distances wins. NULL entries of
 * `names` are skipped. */
const char *ab_nearest(const char *word, const char *const *names, int count);

AB_END_DECLS

#endif
