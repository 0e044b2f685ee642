/* Edit distance between short names. Long words (over 63 characters) never match: typing errors are in
 * short names. */
#include "kernels/core/nearest.h"

#include <stddef.h>
#include <string.h>

enum { LONGEST = 63, PREFIX = 3 };

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static int least(int a, int b) { return a < b ? a : b; }

/* Rows i-2, i-1 and i of the distance table are kept in turn; row i holds the distances of a[0..i) to every
 * b[0..j). */
static int distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    int rows[3][LONGEST + 1];
    for (size_t j = 0; j <= b_length; j++) rows[0][j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3];
        const int *above2 = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            int differ = lower(a[i - 1]) != lower(b[j - 1]);
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + differ);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
                row[j] = least(row[j], above2[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

static int begins(const char *name, const char *word, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (lower(name[i]) != lower(word[i])) return 0; /* also stops at the end of `name` */
    return 1;
}

const char *ab_nearest(const char *word, const char *const *names, int count) {
    size_t length = strlen(word);
    const char *nearest = NULL;
    int best = LONGEST;
    if (length == 0 || length > LONGEST) return NULL;
    for (int i = 0; i < count; i++) {
        if (names[i] == NULL) continue;
        size_t name_length = strlen(names[i]);
        if (name_length > LONGEST) continue;
        size_t longer = length > name_length ? length : name_length;
        int edits = distance(word, length, names[i], name_length);
        int allowed = (int)((longer + 2) / 3);
        if (length >= PREFIX && begins(names[i], word, length)) edits = least(edits, allowed);
        if (edits > allowed || edits >= best || edits >= (int)longer) continue;
        best = edits;
        nearest = names[i];
    }
    return nearest;
}
