/* Checked formatting. The only file of the product that calls vsnprintf. Also compiled into the CUDA plugin
 * (device_cuda.cu). */
#include "kernels/core/text.h"

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
