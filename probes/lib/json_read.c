/* A checker of JSON text by recursive descent (RFC 8259), and look-ups in text that passed it. */
#include "probes/lib/json_read.h"

#include "kernels/core/show.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH = 64, NUMBER_TEXT = 64 };

typedef struct reader {
    const char *text, *at;
    int depth;
} reader;

static bool read_value(reader *r);

static void skip_space(reader *r) { r->at += strspn(r->at, " \t\r\n"); }

static bool take(reader *r, char c) {
    skip_space(r);
    if (*r->at != c) return false;
    r->at++;
    return true;
}

static bool read_escape(reader *r) {
    if (*r->at != 'u') return *r->at != '\0' && strchr("\"\\/bfnrt", *r->at++) != NULL;
    r->at++;
    if (strspn(r->at, "0123456789abcdefABCDEF") < 4) return false;
    r->at += 4;
    return true;
}

static bool read_string(reader *r) {
    if (!take(r, '"')) return false;
    while (*r->at != '"') {
        const unsigned char c = (unsigned char)*r->at;
        unsigned point;
        const int length = ab_text_decode(r->at, &point);
        if (c < 0x20 || length == 0) return false;
        r->at += length;
        if (c == '\\' && !read_escape(r)) return false;
    }
    r->at++;
    return true;
}

static bool read_digits(reader *r) {
    const size_t n = strspn(r->at, "0123456789");
    r->at += n;
    return n > 0;
}

static bool read_number(reader *r) {
    const char *first = r->at;
    if (*r->at == '-') r->at++;
    if (*r->at == '0')
        r->at++;
    else if (!read_digits(r))
        return false;
    if (*r->at == '.') {
        r->at++;
        if (!read_digits(r)) return false;
    }
    if (*r->at == 'e' || *r->at == 'E') {
        r->at++;
        if (*r->at == '+' || *r->at == '-') r->at++;
        if (!read_digits(r)) return false;
    }
    return r->at - first < NUMBER_TEXT;
}

static bool read_word(reader *r, const char *word) {
    const size_t length = strlen(word);
    if (strncmp(r->at, word, length) != 0) return false;
    r->at += length;
    return true;
}

static bool read_member(reader *r, bool object) {
    if (object && !(read_string(r) && take(r, ':'))) return false;
    return read_value(r);
}

static bool read_members(reader *r, bool object, char end) {
    r->at++;
    if (take(r, end)) return true;
    do
        if (!read_member(r, object)) return false;
    while (take(r, ','));
    return take(r, end);
}

static bool read_value(reader *r) {
    skip_space(r);
    if (r->depth >= DEPTH) return false;
    r->depth++;
    bool good = false;
    switch (*r->at) {
    case '{':
        good = read_members(r, true, '}');
        break;
    case '[':
        good = read_members(r, false, ']');
        break;
    case '"':
        good = read_string(r);
        break;
    case 't':
        good = read_word(r, "true");
        break;
    case 'f':
        good = read_word(r, "false");
        break;
    case 'n':
        good = read_word(r, "null");
        break;
    default:
        good = read_number(r);
        break;
    }
    r->depth--;
    return good;
}

static ab_lib_json value_at(const char *at, const char *end) {
    const char kind = *at == '-' || (*at >= '0' && *at <= '9') ? '0' : *at;
    return (ab_lib_json){at, (size_t)(end - at), kind};
}

ab_status ab_lib_json_check(const char *text, ab_lib_json *value) {
    reader r = {text, text, 0};
    skip_space(&r);
    const char *first = r.at;
    if (read_value(&r)) {
        *value = value_at(first, r.at);
        skip_space(&r);
        if (*r.at == '\0') return AB_OK;
    }
    return ab_fail(AB_CONFIG, "not JSON at character %ld: expected one value of RFC 8259, at most %d deep",
                   (long)(r.at - text) + 1, DEPTH);
}

bool ab_lib_json_next(const ab_lib_json *holder, const char **at, ab_lib_json *key, ab_lib_json *value) {
    const char *end = holder->at + holder->length - 1;
    reader r = {holder->at, *at ? *at : holder->at + 1, 0};
    skip_space(&r);
    if (r.at >= end) return false;
    *key = (ab_lib_json){r.at, 0, '"'};
    if (holder->kind == '{') {
        const char *first = r.at;
        if (!read_string(&r)) return false;
        *key = (ab_lib_json){first + 1, (size_t)(r.at - first) - 2, '"'};
        if (!take(&r, ':')) return false;
        skip_space(&r);
    }
    const char *first = r.at;
    if (!read_value(&r)) return false;
    *value = value_at(first, r.at);
    *at = take(&r, ',') ? r.at : end;
    return true;
}

double ab_lib_json_number(const ab_lib_json *value) {
    char text[NUMBER_TEXT + 1];
    const size_t n = value->length < NUMBER_TEXT ? value->length : NUMBER_TEXT;
    memcpy(text, value->at, n);
    text[n] = '\0';
    return strtod(text, NULL);
}

/* ---- strings --------------------------------------------------------------------------------- */

static char *put_utf8(char *to, unsigned long code) {
    if (code < 0x80) {
        *to++ = (char)code;
        return to;
    }
    if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
    }
    *to++ = (char)(0x80 | (code & 0x3f));
    return to;
}

static unsigned long hex4(const char *at) {
    char digits[5] = {at[0], at[1], at[2], at[3], '\0'};
    return strtoul(digits, NULL, 16);
}

/* The character of \uXXXX at `*at` (behind the u); a pair of surrogates is one, a lone one U+FFFD. */
static unsigned long unicode(const char **at) {
    unsigned long code = hex4(*at);
    *at += 4;
    if (code < 0xd800 || code > 0xdfff) return code ? code : 0xfffd;
    if (code > 0xdbff || (*at)[0] != '\\' || (*at)[1] != 'u') return 0xfffd;
    const unsigned long low = hex4(*at + 2);
    if (low < 0xdc00 || low > 0xdfff) return 0xfffd;
    *at += 6;
    return 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
}

static char *put_escape(char *to, const char **at) {
    static const char names[] = "bfnrt", values[] = "\b\f\n\r\t";
    const char c = *(*at)++;
    const char *name = strchr(names, c);
    if (c == 'u') return put_utf8(to, unicode(at));
    *to++ = name ? values[name - names] : c;
    return to;
}

char *ab_lib_json_text(const ab_lib_json *value) {
    char *text = malloc(value->length + 1), *to = text;
    const char *at = value->at + 1, *end = value->at + value->length - 1;
    if (!text) return NULL;
    while (at < end) {
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        at++;
        to = put_escape(to, &at);
    }
    *to = '\0';
    return text;
}

bool ab_lib_json_is(const ab_lib_json *key, const char *text) {
    return key->length == strlen(text) && strncmp(key->at, text, key->length) == 0;
}
