/* Escapes for terminals and logs. Does not decide what is printed. */
#include "kernels/core/show.h"

#include "kernels/core/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Length of a UTF-8 sequence starting with `lead`, and the smallest code point that needs this length; 0:
 * not a lead byte. */
static int sequence_length(unsigned char lead, unsigned *smallest) {
    static const struct {
        unsigned char mask, value;
        int length;
        unsigned smallest;
    } forms[] = {{0x80, 0x00, 1, 0}, {0xe0, 0xc0, 2, 0x80}, {0xf0, 0xe0, 3, 0x800}, {0xf8, 0xf0, 4, 0x10000}};
    for (size_t i = 0; i < AB_COUNT_OF(forms); i++)
        if ((lead & forms[i].mask) == forms[i].value) {
            *smallest = forms[i].smallest;
            return forms[i].length;
        }
    return 0;
}

int ab_text_decode(const char *text, unsigned *point) {
    const unsigned char *byte = (const unsigned char *)text;
    unsigned smallest;
    int length = sequence_length(byte[0], &smallest);
    if (length == 0 || byte[0] == 0) return 0;
    unsigned value = length == 1 ? byte[0] : byte[0] & (0x7fu >> length);
    for (int i = 1; i < length; i++) {
        if ((byte[i] & 0xc0) != 0x80) return 0;
        value = value << 6 | (byte[i] & 0x3f);
    }
    bool surrogate = value >= 0xd800 && value <= 0xdfff;
    if (value < smallest || value > 0x10ffff || surrogate) return 0;
    *point = value;
    return length;
}

bool ab_text_is_hidden(unsigned point) {
    static const unsigned ranges[][2] = {
        {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x34f, 0x34f},
        {0x61c, 0x61c},   {0x115f, 0x1160}, {0x180b, 0x180f}, {0x200b, 0x200f},
        {0x2028, 0x202e}, {0x2060, 0x206f}, {0x3164, 0x3164}, {0xe000, 0xf8ff},
        {0xfe00, 0xfe0f}, {0xfeff, 0xfeff}, {0xfff0, 0xffff}, {0xe0000, 0x10ffff}};
    if (point == 0xfffd) return false; /* stands for what could not be read */
    for (size_t i = 0; i < AB_COUNT_OF(ranges); i++)
        if (point >= ranges[i][0] && point <= ranges[i][1]) return true;
    return false;
}

static bool starts_with(const char *text, const char *word) { return strncmp(text, word, strlen(word)) == 0; }

bool ab_text_is_command(const char *text, bool first) {
    return (first && starts_with(text, "::")) || starts_with(text, "##[") || starts_with(text, "##vso[") ||
           starts_with(text, "##teamcity[");
}

/* Enough for one character: "\U0010ffff". */
enum { CHARACTER = 11 };

/* Writes the character or byte at `source` to text, escaped if it must be; returns its length in `source`.
 * `first`: only blanks are before it in its line. */
static int escape_one(char text[CHARACTER], const char *source, bool first) {
    static const char plain[] = "\n\r\t", letter[] = "nrt";
    unsigned point = 0;
    const int length = ab_text_decode(source, &point);
    const char *at = length == 1 ? strchr(plain, *source) : NULL;
    if (at)
        ab_text_exact(text, CHARACTER, "\\%c", letter[at - plain]);
    else if (length == 0 || (length == 1 && (ab_text_is_hidden(point) || ab_text_is_command(source, first))))
        ab_text_exact(text, CHARACTER, "\\x%02x", (unsigned)(unsigned char)*source);
    else if (ab_text_is_hidden(point))
        ab_text_exact(text, CHARACTER, point > 0xffff ? "\\U%08x" : "\\u%04x", point);
    else
        ab_text_exact(text, CHARACTER, "%.*s", length, source);
    return length > 0 ? length : 1;
}

char *ab_text_escape(char *line, size_t size, const char *source) {
    size_t used = 0, whole = 0; /* whole: end of the last character after which "..." has room */
    bool first = true;
    while (*source) {
        char text[CHARACTER];
        source += escape_one(text, source, first);
        first = first && strcmp(text, " ") == 0;
        const size_t length = strlen(text);
        if (used + length >= size) {
            memcpy(line + whole, "...", size - 1 - whole < 3 ? size - 1 - whole : 3);
            line[size - 1 - whole < 3 ? size - 1 : whole + 3] = '\0';
            return line;
        }
        memcpy(line + used, text, length);
        used += length;
        if (used + 3 < size) whole = used;
    }
    line[used] = '\0';
    return line;
}

/* The format with another control character for each line break. */
static char *without_breaks(const char *format) {
    char *copy = ab_text_new("%s", format);
    for (char *c = copy; c && *c; c++)
        if (*c == '\n') *c = '\1';
    return copy;
}

/* `text` escaped, allocated; a line break is the format's if `other` has \1 at its place. No character
 * becomes longer than four times its bytes. */
static char *escape_lines(const char *text, const char *other) {
    char *const lines = (char *)malloc(4 * strlen(text) + 1), *end = lines;
    bool first = true;
    while (lines && *text) {
        char shown[CHARACTER] = "\n";
        const int length = *text == '\n' && *other == '\1' ? 1 : escape_one(shown, text, first);
        first = shown[0] == '\n' || (first && strcmp(shown, " ") == 0);
        memcpy(end, shown, strlen(shown));
        end += strlen(shown);
        text += length;
        other += length;
    }
    if (lines) *end = '\0';
    return lines;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* a copy of a format that was checked */

/* The arguments are formatted twice, with and without the format's line breaks: where the two texts differ,
 * and only there, a line break is the format's own and not an argument's. */
int ab_print(FILE *out, const char *format, ...) {
    char *copy = without_breaks(format);
    va_list args;
    va_start(args, format);
    char *text = ab_text_new_args(format, args);
    va_end(args);
    va_start(args, format);
    char *other = copy ? ab_text_new_args(copy, args) : NULL;
    va_end(args);
    char *lines = text && other ? escape_lines(text, other) : NULL;
    const int written = lines ? (int)strlen(lines) : 0;
    fputs(lines ? lines : "(out of memory)\n", out); /* one write: lines of several processes never mix */
    free(copy);
    free(text);
    free(other);
    free(lines);
    return written;
}

#pragma GCC diagnostic pop

/* One character of a word inside $'...'. */
static int print_quoted(FILE *out, const char *word, bool dollar) {
    char text[CHARACTER];
    const int length = escape_one(text, word, true);
    if (*word == '\'')
        fputs(dollar ? "\\'" : "'\\''", out);
    else if (*word == '\\' && dollar)
        fputs("\\\\", out);
    else
        fputs(text, out);
    return length;
}

void ab_print_shell_word(FILE *out, const char *word) {
    char text[CHARACTER];
    bool dollar = false;
    for (const char *c = word; *c;) {
        const int length = escape_one(text, c, true);
        dollar = dollar || strncmp(text, c, (size_t)length) != 0;
        c += length;
    }
    fputs(dollar ? "$'" : "'", out);
    while (*word) word += print_quoted(out, word, dollar);
    fputc('\'', out);
}

/* ---- JSON strings ---------------------------------------------------------------------------- */

static void put_escape(FILE *out, unsigned point) {
    if (point > 0xffff) {
        fprintf(out, "\\u%04x", 0xd800 + ((point - 0x10000) >> 10));
        point = 0xdc00 + ((point - 0x10000) & 0x3ff);
    }
    fprintf(out, "\\u%04x", point);
}

void ab_json_put_text(FILE *out, const char *text) {
    static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    fputc('"', out);
    while (*text) {
        unsigned point = 0xfffd; /* stands for a byte that is not UTF-8 */
        const int length = ab_text_decode(text, &point);
        const char *at = length == 1 ? strchr(plain, *text) : NULL;
        if (at)
            fprintf(out, "\\%c", letter[at - plain]);
        else if (length == 0)
            fputs("\xef\xbf\xbd", out);
        else if (ab_text_is_hidden(point) || ab_text_is_command(text, false))
            put_escape(out, point);
        else
            fwrite(text, 1, (size_t)length, out);
        text += length > 0 ? length : 1;
    }
    fputc('"', out);
}
