/* Checked formatting. The only file of the product that calls vsnprintf. Also compiled into the CUDA plugin
 * (device_cuda.cu). */
#include "kernels/core/text.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool continues_character(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

/* Ends a truncated text[size] in "...". */
static size_t mark_cut(char *text, size_t size) {
    size_t room = size - 1, dots = room < 3 ? room : 3, end = room - dots;
    for (int i = 0; i < 3 && end > 0 && continues_character(text[end]); i++) end--;
    memset(text + end, '.', dots);
    text[end + dots] = '\0';
    return end + dots;
}

size_t ab_text_show_args(char *text, size_t size, const char *format, va_list args) {
    const int needed = vsnprintf(text, size, format, args);
    if (needed >= 0 && (size_t)needed < size) return (size_t)needed;
    return mark_cut(text, size);
}

size_t ab_text_show(char *text, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const size_t length = ab_text_show_args(text, size, format, args);
    va_end(args);
    return length;
}

size_t ab_text_append(char *text, size_t size, const char *format, ...) {
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    const int needed = vsnprintf(text + used, size - used, format, args);
    va_end(args);
    if (needed >= 0 && (size_t)needed < size - used) return used + (size_t)needed;
    return mark_cut(text, size);
}

const char *ab_text_brief(const char *text, int most) {
    static AB_THREAD_LOCAL char slots[8][AB_TEXT_BRIEF + 1];
    static AB_THREAD_LOCAL unsigned next;
    if (!text || memchr(text, '\0', (size_t)most + 1)) return text;
    char *slot = slots[next++ % AB_COUNT_OF(slots)];
    memcpy(slot, text, (size_t)most);
    slot[most] = '\0';
    mark_cut(slot, (size_t)most + 1);
    return slot;
}

char *ab_text_exact(char *text, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int needed = vsnprintf(text, size, format, args);
    va_end(args);
    if (needed >= 0 && (size_t)needed < size) return text;
    fprintf(stderr, "ampbench: error: a text of %d bytes does not fit into %zu: \"%s\"\n", needed, size,
            format);
    abort();
}

bool ab_text_fits_args(char *text, size_t size, const char *format, va_list args) {
    const int needed = vsnprintf(text, size, format, args);
    if (needed >= 0 && (size_t)needed < size) return true;
    text[0] = '\0';
    return false;
}

bool ab_text_fits(char *text, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const bool whole = ab_text_fits_args(text, size, format, args);
    va_end(args);
    return whole;
}

char *ab_text_round_trip(char *text, double x) {
    for (int digits = 15; digits <= 17; digits++) {
        ab_text_exact(text, AB_TEXT_ROUND_TRIP, "%.*g", digits, x);
        if (strtod(text, NULL) == x) break;
    }
    return text;
}

char *ab_text_new_args(const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    const int needed = vsnprintf(NULL, 0, format, args);
    char *text = needed < 0 ? NULL : (char *)malloc((size_t)needed + 1);
    if (text) vsnprintf(text, (size_t)needed + 1, format, again);
    va_end(again);
    return text;
}

char *ab_text_new(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = ab_text_new_args(format, args);
    va_end(args);
    return text;
}

/* Edit distance between short names. Long words (over 63 characters) never match: typing errors are in
 * short names. */

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
