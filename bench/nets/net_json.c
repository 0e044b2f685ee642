/* The scanner, the typed reads and their messages. cJSON converts numbers and strings; its error position, a
 * global variable, is not used. */
#include "bench/nets/net_json.h"

#include "kernels/core/text.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- scanner: grammar of RFC 8259 ------------------------------------------------------------ */

typedef struct scanner {
    const char *at, *end, *line_start, *path;
    int line, depth;
    int *value_line; /* of the values in document order; room for one per byte */
    size_t values;
} scanner;

static ab_status scan_value(scanner *s);

static ab_status unexpected(const scanner *s, const char *expected) {
    char found[32] = "the end of the file";
    unsigned char byte = s->at < s->end ? (unsigned char)*s->at : 0;
    if (s->at < s->end)
        ab_text_show(found, sizeof found, byte > 0x20 && byte < 0x7F ? "'%c'" : "byte 0x%02x", byte);
    return ab_fail(AB_CONFIG, "%s:%d:%d: malformed JSON: expected %s, found %s", s->path, s->line,
                   (int)(s->at - s->line_start) + 1, expected, found);
}

static bool next_is(const scanner *s, char c) { return s->at < s->end && *s->at == c; }

static void skip_space(scanner *s) {
    for (; s->at < s->end && *s->at && strchr(" \t\r\n", *s->at); s->at++) {
        if (*s->at != '\n') continue;
        s->line++;
        s->line_start = s->at + 1;
    }
}

static ab_status scan_char(scanner *s, char c, const char *expected) {
    skip_space(s);
    if (!next_is(s, c)) return unexpected(s, expected);
    s->at++;
    return AB_OK;
}

static ab_status scan_escape(scanner *s) {
    s->at++; /* the backslash */
    if (s->at == s->end || !*s->at || !strchr("\"\\/bfnrtu", *s->at))
        return unexpected(s, "one of \" \\ / b f n r t u after a backslash");
    if (*s->at++ != 'u') return AB_OK;
    unsigned code = 0;
    for (int digit = 0; digit < 4; digit++, s->at++) {
        if (s->at == s->end || !isxdigit((unsigned char)*s->at)) return unexpected(s, "4 hexadecimal digits");
        int c = tolower((unsigned char)*s->at);
        code = code * 16 + (unsigned)(isdigit(c) ? c - '0' : c - 'a' + 10);
    }
    s->at -= 4;
    if (code == 0) return unexpected(s, "no NUL character in a string");
    if (code >= 0xD800 && code <= 0xDFFF) return unexpected(s, "the character itself for a surrogate pair");
    s->at += 4;
    return AB_OK;
}

/* Length of the well-formed UTF-8 sequence at `at`, or 0 (Unicode 15, table 3-7). */
static int utf8_length(const char *at, const char *end) {
    static const struct {
        unsigned char lead_low, lead_high, second_low, second_high;
        int length;
    } rows[] = {{0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3},
                {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
                {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
    const unsigned char *byte = (const unsigned char *)at;
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        if (byte[0] < rows[i].lead_low || byte[0] > rows[i].lead_high) continue;
        if (end - at < rows[i].length || byte[1] < rows[i].second_low || byte[1] > rows[i].second_high)
            return 0;
        for (int k = 2; k < rows[i].length; k++)
            if ((byte[k] & 0xC0) != 0x80) return 0;
        return rows[i].length;
    }
    return 0;
}

static ab_status scan_string(scanner *s) {
    AB_TRY(scan_char(s, '"', "a string"));
    while (s->at < s->end && *s->at != '"') {
        unsigned char byte = (unsigned char)*s->at;
        if (byte < 0x20) return unexpected(s, "no control character in a string");
        if (byte == '\\') {
            AB_TRY(scan_escape(s));
        } else {
            int length = byte < 0x80 ? 1 : utf8_length(s->at, s->end);
            if (!length) return unexpected(s, "UTF-8");
            s->at += length;
        }
    }
    return scan_char(s, '"', "a closing '\"'");
}

static ab_status scan_digits(scanner *s) {
    const char *start = s->at;
    while (s->at < s->end && isdigit((unsigned char)*s->at)) s->at++;
    return s->at == start ? unexpected(s, "a digit") : AB_OK;
}

static ab_status scan_number(scanner *s) {
    enum { LONGEST = 60 }; /* cJSON reads 63 bytes of a number */
    const char *start = s->at;
    if (next_is(s, '-')) s->at++;
    if (next_is(s, '0'))
        s->at++;
    else
        AB_TRY(scan_digits(s));
    if (next_is(s, '.')) {
        s->at++;
        AB_TRY(scan_digits(s));
    }
    if (next_is(s, 'e') || next_is(s, 'E')) {
        s->at++;
        if (next_is(s, '+') || next_is(s, '-')) s->at++;
        AB_TRY(scan_digits(s));
    }
    if (s->at - start <= LONGEST) return AB_OK;
    s->at = start;
    return unexpected(s, "a number of at most 60 characters");
}

static ab_status scan_word(scanner *s) {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < AB_COUNT_OF(words); i++) {
        size_t length = strlen(words[i]);
        if ((size_t)(s->end - s->at) < length || memcmp(s->at, words[i], length) != 0) continue;
        s->at += length;
        return AB_OK;
    }
    return unexpected(s, "a value");
}

static ab_status scan_key(scanner *s) {
    skip_space(s);
    if (!next_is(s, '"')) return unexpected(s, "a key in double quotes");
    AB_TRY(scan_string(s));
    return scan_char(s, ':', "':' after the key");
}

/* An array or object after its bracket `open`. */
static ab_status scan_members(scanner *s, bool object) {
    const char close = object ? '}' : ']';
    if (++s->depth > AB_NET_JSON_DEPTH) return unexpected(s, "at most 32 levels of nesting");
    s->at++;
    skip_space(s);
    bool more = !next_is(s, close);
    while (more) {
        if (object) AB_TRY(scan_key(s));
        AB_TRY(scan_value(s));
        skip_space(s);
        more = next_is(s, ',');
        if (more) s->at++;
    }
    s->depth--;
    return scan_char(s, close, object ? "',' or '}'" : "',' or ']'");
}

static ab_status scan_value(scanner *s) {
    skip_space(s);
    if (s->at == s->end) return unexpected(s, "a value");
    s->value_line[s->values++] = s->line;
    if (*s->at == '{' || *s->at == '[') return scan_members(s, *s->at == '{');
    if (*s->at == '"') return scan_string(s);
    if (*s->at == '-' || isdigit((unsigned char)*s->at)) return scan_number(s);
    return scan_word(s);
}

static ab_status scan_document(scanner *s) {
    AB_TRY(scan_value(s));
    skip_space(s);
    return s->at == s->end ? AB_OK : unexpected(s, "nothing after the document");
}

/* cJSON has no field for positions: valueint, which only numbers use and which is not read here, holds the
 * line. */
static const int *assign_lines(cJSON *value, const int *line) {
    value->valueint = *line++;
    for (cJSON *child = value->child; child; child = child->next) line = assign_lines(child, line);
    return line;
}

ab_status ab_net_json_parse(const char *text, size_t length, const char *path, cJSON **root) {
    *root = NULL;
    if (length > AB_NET_JSON_BYTES)
        return ab_fail(AB_CONFIG, "%s: expected a network file of at most %d bytes, found a larger one", path,
                       (int)AB_NET_JSON_BYTES);
    scanner s = {.at = text, .end = text + length, .line_start = text, .path = path, .line = 1};
    s.value_line = calloc(length + 1, sizeof *s.value_line);
    if (!s.value_line) return ab_fail(AB_NO_MEMORY, "%s: cannot allocate memory for the file", path);
    ab_status status = AB_OK;
    AB_TRY_GOTO(scan_document(&s));
    *root = cJSON_ParseWithLength(text, length);
    if (*root)
        assign_lines(*root, s.value_line);
    else
        status = ab_fail(AB_NO_MEMORY, "%s: cannot allocate memory for the parsed file", path);
out:
    free(s.value_line);
    return status;
}

int ab_net_json_line(const cJSON *value) { return value->valueint; }

/* ---- messages -------------------------------------------------------------------------------- */

ab_status ab_net_json_fail(const ab_net_json_place *place, const cJSON *at, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    ab_text_show_args(text, sizeof text, format, args);
    va_end(args);
    if (!place->op) return ab_fail(AB_CONFIG, "%s:%d: %s", place->path, ab_net_json_line(at), text);
    return ab_fail(AB_CONFIG, "%s:%d: op '%s': %s", place->path, ab_net_json_line(at), place->op, text);
}

const char *ab_net_json_quote(const char *string, char *text) {
    enum { SHOWN = 48 };
    size_t used = 0;
    text[used++] = '"';
    for (; *string && used < SHOWN; string++) {
        unsigned char byte = (unsigned char)*string;
        text[used++] = (char)(byte < 0x20 || byte > 0x7E ? '?' : byte);
    }
    text[used] = '\0';
    ab_text_append(text, AB_NET_JSON_TEXT, *string ? "...\"" : "\"");
    return text;
}

const char *ab_net_json_found(const cJSON *value, char *text) {
    if (cJSON_IsString(value)) return ab_net_json_quote(value->valuestring, text);
    const char *kind = cJSON_IsObject(value)   ? "an object"
                       : cJSON_IsArray(value)  ? "an array"
                       : cJSON_IsTrue(value)   ? "true"
                       : cJSON_IsFalse(value)  ? "false"
                       : cJSON_IsNumber(value) ? NULL
                                               : "null";
    if (kind)
        ab_text_show(text, AB_NET_JSON_TEXT, "%s", kind);
    else
        ab_text_show(text, AB_NET_JSON_TEXT, "%.15g", value->valuedouble);
    return text;
}

const char *ab_net_json_hint(const char *word, const char *const *names, int count, char *text) {
    const char *near = ab_nearest(word, names, count);
    text[0] = '\0';
    if (near) ab_text_show(text, AB_NET_JSON_TEXT, "; did you mean '%s'?", near);
    return text;
}

/* ---- typed reads ----------------------------------------------------------------------------- */

static bool among(const char *key, const char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(key, names[i]) == 0) return true;
    return false;
}

/* " (keys: a, b)", or "" where there are none. */
static const char *keys_text(const char *const *names, int count, char *text, size_t size) {
    text[0] = '\0';
    for (int i = 0; i < count; i++) ab_text_append(text, size, "%s%s", i ? ", " : " (keys: ", names[i]);
    if (count > 0) ab_text_append(text, size, ")");
    return text;
}

ab_status ab_net_json_check_keys(const ab_net_json_place *place, const cJSON *object, const char *what,
                                 const char *const *names, int count) {
    char found[AB_NET_JSON_TEXT], hint[AB_NET_JSON_TEXT], keys[4 * AB_NET_JSON_TEXT];
    if (!cJSON_IsObject(object))
        return ab_net_json_fail(place, object, "%s: expected an object, found %s", what,
                                ab_net_json_found(object, found));
    for (const cJSON *member = object->child; member; member = member->next) {
        if (!among(member->string, names, count))
            return ab_net_json_fail(place, member, "%s: unknown key %s%s%s", what,
                                    ab_net_json_quote(member->string, found),
                                    ab_net_json_hint(member->string, names, count, hint),
                                    keys_text(names, count, keys, sizeof keys));
        for (const cJSON *other = object->child; other != member; other = other->next)
            if (strcmp(other->string, member->string) == 0)
                return ab_net_json_fail(place, member, "%s: expected key '%s' once, found it again", what,
                                        member->string);
    }
    return AB_OK;
}

ab_status ab_net_json_member(const ab_net_json_place *place, const cJSON *object, const char *key,
                             const cJSON **value) {
    *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return *value ? AB_OK : ab_net_json_fail(place, object, "expected a key '%s', found none", key);
}

/* " from 1 to 10", " >= 1", " <= 10" or "". */
static const char *range_text(ab_net_json_range range, char *text, size_t bytes) {
    bool low = isfinite(range.low), high = isfinite(range.high);
    if (low && high)
        ab_text_show(text, bytes, " from %.15g to %.15g", range.low, range.high);
    else if (low || high)
        ab_text_show(text, bytes, low ? " >= %.15g" : " <= %.15g", low ? range.low : range.high);
    else
        text[0] = '\0';
    return text;
}

static ab_status read_number(const ab_net_json_place *place, const cJSON *value, const char *label,
                             ab_net_json_range range, bool integer, double *number) {
    char found[AB_NET_JSON_TEXT], limits[AB_NET_JSON_TEXT];
    double x = cJSON_IsNumber(value) ? value->valuedouble : (double)NAN;
    if (isfinite(x) && x >= range.low && x <= range.high && (!integer || floor(x) == x)) {
        *number = x;
        return AB_OK;
    }
    return ab_net_json_fail(place, value, "%s: expected %s%s, found %s", label,
                            integer ? "an integer" : "a number", range_text(range, limits, sizeof limits),
                            ab_net_json_found(value, found));
}

ab_status ab_net_json_number(const ab_net_json_place *place, const cJSON *value, const char *label,
                             ab_net_json_range range, double *number) {
    return read_number(place, value, label, range, false, number);
}

ab_status ab_net_json_integer(const ab_net_json_place *place, const cJSON *value, const char *label,
                              ab_net_json_range range, int64_t *number) {
    static const double exact = 9007199254740992.0; /* 2^53: beyond it a double skips integers */
    double x = 0;
    range.low = fmax(range.low, -exact);
    range.high = fmin(range.high, exact);
    AB_TRY(read_number(place, value, label, range, true, &x));
    *number = (int64_t)x;
    return AB_OK;
}

ab_status ab_net_json_bool(const ab_net_json_place *place, const cJSON *value, const char *label,
                           bool *flag) {
    char found[AB_NET_JSON_TEXT];
    if (!cJSON_IsBool(value))
        return ab_net_json_fail(place, value, "%s: expected true or false, found %s", label,
                                ab_net_json_found(value, found));
    *flag = cJSON_IsTrue(value);
    return AB_OK;
}

ab_status ab_net_json_name(const ab_net_json_place *place, const cJSON *value, const char *label,
                           const char **name) {
    enum { LONGEST = 64 };
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    char found[AB_NET_JSON_TEXT];
    const char *string = cJSON_GetStringValue(value);
    size_t length = string ? strlen(string) : 0;
    if (length == 0 || length > LONGEST || strspn(string, letters) != length)
        return ab_net_json_fail(place, value,
                                "%s: expected 1 to 64 of the characters A-Z a-z 0-9 _ . -, found %s", label,
                                ab_net_json_found(value, found));
    *name = string;
    return AB_OK;
}

/* Control characters of ASCII and of Unicode's C1 block, which terminals interpret. */
static bool is_plain(const char *string) {
    for (const unsigned char *byte = (const unsigned char *)string; *byte; byte++) {
        if (*byte < 0x20 || *byte == 0x7F) return false;
        if (*byte == 0xC2 && byte[1] < 0xA0) return false;
    }
    return true;
}

ab_status ab_net_json_text(const ab_net_json_place *place, const cJSON *value, const char *label,
                           const char **text) {
    enum { LONGEST = 200 };
    char found[AB_NET_JSON_TEXT];
    const char *string = cJSON_GetStringValue(value);
    if (!string || strlen(string) > LONGEST || !is_plain(string))
        return ab_net_json_fail(place, value,
                                "%s: expected at most 200 bytes of text without control characters, found %s",
                                label, ab_net_json_found(value, found));
    *text = string;
    return AB_OK;
}
