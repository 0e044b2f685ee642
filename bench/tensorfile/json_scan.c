/* Strict JSON, one pass, no tree. See json_scan.h. */
#include "bench/tensorfile/json_scan.h"

#include "kernels/core/text.h"

#include <stdlib.h>
#include <string.h>

enum { TOKEN_TEXT = 24 };

/* Length of the UTF-8 sequence at text[0..left), 0 if malformed. The second byte's range excludes overlong
 * forms, surrogates and code points above U+10FFFF (RFC 3629, section 4). */
static size_t utf8_sequence(const unsigned char *text, size_t left) {
    static const struct {
        unsigned char lead_low, lead_high, second_low, second_high, length;
    } rows[] = {
        {0x00, 0x7F, 0, 0, 1},       {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
        {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
        {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
    };
    for (size_t r = 0; r < AB_COUNT_OF(rows); r++) {
        if (text[0] < rows[r].lead_low || text[0] > rows[r].lead_high) continue;
        size_t length = rows[r].length;
        if (length > left) return 0;
        if (length > 1 && (text[1] < rows[r].second_low || text[1] > rows[r].second_high)) return 0;
        for (size_t i = 2; i < length; i++)
            if ((text[i] & 0xC0) != 0x80) return 0;
        return length;
    }
    return 0;
}

bool ab_utf8_valid(const char *text, size_t length, size_t *at) {
    size_t i = 0;
    while (i < length) {
        size_t step = utf8_sequence((const unsigned char *)text + i, length - i);
        if (step == 0) break;
        i += step;
    }
    if (at) *at = i;
    return i == length;
}

ab_status ab_json_begin(ab_json_scan *scan, const char *text, size_t length) {
    *scan = (ab_json_scan){text, length, 0};
    size_t bad = 0;
    if (ab_utf8_valid(text, length, &bad)) return AB_OK;
    return ab_fail(AB_INPUT, "JSON header, byte %zu: expected UTF-8, found byte 0x%02x", bad,
                   (unsigned char)text[bad]);
}

static void skip_space(ab_json_scan *scan) {
    while (scan->at < scan->length && strchr(" \t\n\r", scan->text[scan->at]) && scan->text[scan->at] != '\0')
        scan->at++;
}

/* Peeks at the next byte that is not white space; -1 at the end. */
static int peek(ab_json_scan *scan) {
    skip_space(scan);
    return scan->at < scan->length ? (unsigned char)scan->text[scan->at] : -1;
}

static bool is_word(int c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '+' || c == '-';
}

/* A few characters at the current position, for messages. */
static const char *found(ab_json_scan *scan, char text[TOKEN_TEXT]) {
    int c = peek(scan);
    if (c < 0) return ab_text_exact(text, TOKEN_TEXT, "the end");
    size_t n = 0;
    text[n++] = '\'';
    if (is_word(c))
        for (size_t i = scan->at; i < scan->length && n < TOKEN_TEXT - 2 && is_word(scan->text[i]); i++)
            text[n++] = scan->text[i];
    else
        text[n++] = (char)(c > ' ' && c < 0x7F ? c : '?');
    text[n++] = '\'';
    text[n] = '\0';
    return text;
}

static ab_status expected(ab_json_scan *scan, const char *what) {
    char text[TOKEN_TEXT];
    const char *token = found(scan, text);
    return ab_fail(AB_INPUT, "JSON header, byte %zu: expected %s, found %s", scan->at, what, token);
}

ab_status ab_json_open(ab_json_scan *scan, char bracket) {
    if (peek(scan) != bracket) return expected(scan, bracket == '{' ? "an object '{'" : "an array '['");
    scan->at++;
    return AB_OK;
}

ab_status ab_json_more(ab_json_scan *scan, char close, int64_t *index, bool *more) {
    int c = peek(scan);
    *more = c != close;
    if (!*more) {
        scan->at++;
        return AB_OK;
    }
    if (*index > 0) {
        if (c != ',') return expected(scan, close == '}' ? "',' or '}'" : "',' or ']'");
        scan->at++;
    }
    ++*index;
    return AB_OK;
}

/* ---- strings --------------------------------------------------------------------------------- */

/* Four hex digits at the current position, or -1. */
static long hex4(const ab_json_scan *scan, size_t at) {
    long code = 0;
    if (scan->length - at < 4) return -1;
    for (size_t i = at; i < at + 4; i++) {
        static const char digits[] = "0123456789abcdef";
        int c = (unsigned char)scan->text[i];
        const char *digit = c ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;
        if (!digit) return -1;
        code = code * 16 + (digit - digits);
    }
    return code;
}

static size_t utf8_encode(char *out, long code) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const int lead[] = {0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(lead[tail] | (int)(code >> (6 * tail)));
    for (size_t i = 1; i <= tail; i++) out[i] = (char)(0x80 | (int)((code >> (6 * (tail - i))) & 0x3F));
    return tail + 1;
}

/* Decodes the code point after "\u", including surrogate pairs. */
static ab_status unicode_escape(ab_json_scan *scan, char *out, size_t *n) {
    long code = hex4(scan, scan->at);
    if (code >= 0xD800 && code < 0xDC00 && scan->length - scan->at >= 10 &&
        scan->text[scan->at + 4] == '\\' && scan->text[scan->at + 5] == 'u') {
        long low = hex4(scan, scan->at + 6);
        if (low >= 0xDC00 && low < 0xE000) {
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            scan->at += 6;
        }
    }
    if (code <= 0 || (code >= 0xD800 && code < 0xE000))
        return ab_fail(AB_INPUT, "JSON header, byte %zu: expected \\u and a character other than NUL",
                       scan->at - 2);
    scan->at += 4;
    *n += utf8_encode(out + *n, code);
    return AB_OK;
}

static ab_status escape(ab_json_scan *scan, char *out, size_t *n) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    int c = scan->at < scan->length ? (unsigned char)scan->text[scan->at] : 0;
    const char *name = c ? strchr(names, c) : NULL;
    if (!name && c != 'u')
        return ab_fail(AB_INPUT,
                       "JSON header, byte %zu: expected one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u",
                       scan->at - 1);
    scan->at++;
    if (!name) return unicode_escape(scan, out, n);
    out[(*n)++] = values[name - names];
    return AB_OK;
}

/* Position of the closing quote of the string whose first character is at `at`, or scan->length. */
static size_t closing_quote(const ab_json_scan *scan, size_t at) {
    while (at < scan->length && scan->text[at] != '"') at += scan->text[at] == '\\' ? 2 : 1;
    return at < scan->length ? at : scan->length;
}

ab_status ab_json_string(ab_json_scan *scan, char **string) {
    if (peek(scan) != '"') return expected(scan, "a string");
    size_t start = scan->at++, close = closing_quote(scan, scan->at), n = 0;
    if (close == scan->length)
        return ab_fail(AB_INPUT, "JSON header, byte %zu: expected the string to end, found the end", start);
    char *out = malloc(close - start); /* escapes are never shorter than their UTF-8 */
    if (!out) return ab_fail(AB_NO_MEMORY, "out of memory for a name of %zu bytes", close - start);
    ab_status status = AB_OK;
    while (status == AB_OK && scan->at < close) {
        unsigned char c = (unsigned char)scan->text[scan->at++];
        if (c == '\\')
            status = escape(scan, out, &n);
        else if (c < 0x20)
            status = ab_fail(AB_INPUT,
                             "JSON header, byte %zu: expected an escape, found the control character 0x%02x",
                             scan->at - 1, c);
        else
            out[n++] = (char)c;
    }
    if (status != AB_OK) {
        free(out);
        return status;
    }
    out[n] = '\0';
    scan->at = close + 1;
    *string = out;
    return AB_OK;
}

ab_status ab_json_key(ab_json_scan *scan, char **key) {
    AB_TRY(ab_json_string(scan, key));
    if (peek(scan) == ':') {
        scan->at++;
        return AB_OK;
    }
    free(*key);
    *key = NULL;
    return expected(scan, "':'");
}

/* ---- numbers and everything else ------------------------------------------------------------- */

static bool is_digit(const ab_json_scan *scan, size_t at) {
    return at < scan->length && scan->text[at] >= '0' && scan->text[at] <= '9';
}

ab_status ab_json_natural(ab_json_scan *scan, int64_t *number) {
    (void)peek(scan);
    size_t at = scan->at;
    int64_t value = 0;
    for (; is_digit(scan, at); at++) {
        int digit = scan->text[at] - '0';
        if (value > (INT64_MAX - digit) / 10) return expected(scan, "an integer below 2^63");
        value = value * 10 + digit;
    }
    bool leading_zero = at - scan->at > 1 && scan->text[scan->at] == '0';
    if (at == scan->at || leading_zero || (at < scan->length && is_word(scan->text[at])))
        return expected(scan, "an integer of 0 or more");
    scan->at = at;
    *number = value;
    return AB_OK;
}

/* End of the JSON number at `at`, or `at` when there is none (RFC 8259, section 6). */
static size_t number_end(const ab_json_scan *scan, size_t at) {
    size_t i = at < scan->length && scan->text[at] == '-' ? at + 1 : at;
    if (!is_digit(scan, i)) return at;
    if (scan->text[i] == '0')
        i++;
    else
        while (is_digit(scan, i)) i++;
    if (i < scan->length && scan->text[i] == '.') {
        if (!is_digit(scan, ++i)) return at;
        while (is_digit(scan, i)) i++;
    }
    if (i < scan->length && (scan->text[i] == 'e' || scan->text[i] == 'E')) {
        i++;
        if (i < scan->length && (scan->text[i] == '+' || scan->text[i] == '-')) i++;
        if (!is_digit(scan, i)) return at;
        while (is_digit(scan, i)) i++;
    }
    return i;
}

static ab_status skip_scalar(ab_json_scan *scan) {
    if (peek(scan) == '"') {
        char *text = NULL;
        AB_TRY(ab_json_string(scan, &text));
        free(text);
        return AB_OK;
    }
    static const char *const words[] = {"true", "false", "null"};
    size_t end = number_end(scan, scan->at);
    for (size_t i = 0; i < AB_COUNT_OF(words); i++) {
        size_t n = strlen(words[i]);
        if (scan->length - scan->at >= n && memcmp(scan->text + scan->at, words[i], n) == 0)
            end = scan->at + n;
    }
    if (end == scan->at || (end < scan->length && is_word(scan->text[end]))) return expected(scan, "a value");
    scan->at = end;
    return AB_OK;
}

/* The open brackets of a value that is being skipped: one level each, the kind of bracket and members so far.
 */
typedef struct nesting {
    int depth;
    char close[AB_JSON_MAX_DEPTH];
    int64_t index[AB_JSON_MAX_DEPTH];
} nesting;

static ab_status skip_open(ab_json_scan *scan, nesting *open, int bracket) {
    if (open->depth == AB_JSON_MAX_DEPTH)
        return ab_fail(AB_INPUT, "JSON header, byte %zu: nested deeper than %d levels", scan->at,
                       AB_JSON_MAX_DEPTH);
    open->close[open->depth] = bracket == '{' ? '}' : ']';
    open->index[open->depth++] = 0;
    scan->at++;
    return AB_OK;
}

ab_status ab_json_skip(ab_json_scan *scan) {
    nesting open = {0};
    do {
        bool more = true;
        if (open.depth > 0) {
            int top = open.depth - 1;
            AB_TRY(ab_json_more(scan, open.close[top], &open.index[top], &more));
            if (!more) open.depth--;
            if (more && open.close[top] == '}') {
                char *key = NULL;
                AB_TRY(ab_json_key(scan, &key));
                free(key);
            }
        }
        int c = more ? peek(scan) : 0;
        if (c == '{' || c == '[')
            AB_TRY(skip_open(scan, &open, c));
        else if (more)
            AB_TRY(skip_scalar(scan));
    } while (open.depth > 0);
    return AB_OK;
}

ab_status ab_json_end(ab_json_scan *scan) { return peek(scan) < 0 ? AB_OK : expected(scan, "nothing more"); }
