/* Words, numbers and lists of names in lines of logs. */
#include "bench/ingest/log/format.h"
#include "kernels/core/text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* NUMBER: longest number that is read, in bytes. */
enum { NUMBER = 64, EXACT_DIGITS = 15, EXACT_POWER = 22 };

const char *ab_log_find(const char *from, const char *end, const char *word) {
    const size_t size = strlen(word);
    while (from && end - from >= (ptrdiff_t)size) { /* memmem prepares a table for each line */
        const char *at = memchr(from, word[0], (size_t)(end - from) - size + 1);
        if (!at || (at[size - 1] == word[size - 1] && memcmp(at, word, size) == 0)) return at;
        from = at + 1;
    }
    return NULL;
}

const char *ab_log_after(const ab_log_line *line, const char *word) {
    const char *at = ab_log_find(line->text, line->end, word);
    return at ? at + strlen(word) : NULL;
}

/* ---- numbers ---------------------------------------------------------------------------------- */

static bool digit(char c) { return c >= '0' && c <= '9'; }

static bool part_of_number(char c) {
    return digit(c) || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E';
}

/* A power of ten behind an e: "e-07" is -7. */
static bool read_exponent(const char *at, const char *end, int *power) {
    const bool negative = at < end && *at == '-';
    int digits = 0;
    *power = 0;
    for (at += at < end && (*at == '-' || *at == '+'); at < end && digit(*at) && digits < 4; at++, digits++)
        *power = *power * 10 + (*at - '0');
    if (negative) *power = -*power;
    return digits > 0 && at == end;
}

/* At most 15 digits and an exact power of ten: one rounding, as strtod rounds. False: it is none of these. */
static bool read_plain(const char *at, const char *end, double *value) {
    static const double power[EXACT_POWER + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const bool negative = at < end && *at == '-';
    int digits = 0, behind = 0, exponent = 0;
    bool point = false;
    int64_t whole = 0;
    for (at += negative; at < end && *at != 'e' && *at != 'E'; at++) {
        if (*at == '.' && !point) {
            point = true;
            continue;
        }
        if (!digit(*at) || digits == EXACT_DIGITS) return false;
        whole = whole * 10 + (*at - '0');
        digits++;
        behind += point;
    }
    if (digits == 0 || (at < end && !read_exponent(at + 1, end, &exponent))) return false;
    exponent -= behind;
    if (exponent < -EXACT_POWER || exponent > EXACT_POWER) return false;
    const double size = exponent < 0 ? (double)whole / power[-exponent] : (double)whole * power[exponent];
    *value = negative ? -size : size;
    return true;
}

/* The number that all of [at, end) is. */
static bool read_decimal(const char *at, const char *end, double *value) {
    char text[NUMBER + 1], *stop;
    const size_t size = (size_t)(end - at);
    if (size == 0 || size > NUMBER) return false;
    if (read_plain(at, end, value)) return true;
    memcpy(text, at, size);
    text[size] = '\0';
    *value = strtod(text, &stop);
    return stop == text + size;
}

static bool starts(const char *at, const char *end, const char *word) {
    const size_t size = strlen(word);
    return (size_t)(end - at) >= size && memcmp(at, word, size) == 0;
}

/* nan, NaN, Infinity, True, ... and how long the word is; 0: none. */
static size_t read_word(const char *at, const char *end, double *value) {
    static const struct {
        const char *word;
        double value;
    } words[] = {{"NaN", (double)NAN},
                 {"nan", (double)NAN},
                 {"NAN", (double)NAN},
                 {"Infinity", (double)INFINITY},
                 {"inf", (double)INFINITY},
                 {"Inf", (double)INFINITY},
                 {"INF", (double)INFINITY},
                 {"True", 1},
                 {"False", 0},
                 {"true", 1},
                 {"false", 0}};
    const bool negative = at < end && *at == '-';
    if (at + negative == end || !isalpha((unsigned char)at[negative])) return 0; /* most values are digits */
    for (size_t i = 0; i < AB_COUNT_OF(words); i++) {
        const size_t size = strlen(words[i].word) + negative;
        if (!starts(at + negative, end, words[i].word)) continue;
        if (at + size < end && (isalnum((unsigned char)at[size]) || at[size] == '_')) continue;
        *value = negative ? -words[i].value : words[i].value;
        return size;
    }
    return 0;
}

static const char *skip_opening(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '"' || *at == '\'' || *at == '[' || *at == '('))
        at++;
    return at < end && *at == 't' && starts(at, end, "tensor(") ? at + strlen("tensor(") : at;
}

/* "123.456" in one pass, where at most 15 digits end at a sign that is in no number; NULL: it is another. */
static const char *read_short(const char *at, const char *end, double *value) {
    static const double part[EXACT_DIGITS + 1] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                  1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const char *from = at, *point = NULL;
    int64_t whole = 0;
    for (; at < end && digit(*at) && at - from < EXACT_DIGITS; at++) whole = whole * 10 + (*at - '0');
    if (at == from || at == end) return NULL;
    if (*at == '.')
        for (point = ++at; at < end && digit(*at) && at - from <= EXACT_DIGITS; at++)
            whole = whole * 10 + (*at - '0');
    if (at == end || part_of_number(*at) || at == point) return NULL;
    *value = point ? (double)whole / part[at - point] : (double)whole;
    return at;
}

bool ab_log_number(const ab_log_line *line, const char *at, double *value, const char **after) {
    at = skip_opening(at, line->end);
    const char *stop = read_short(at, line->end, value);
    if (stop) {
        if (after) *after = stop;
        return true;
    }
    stop = at;
    const size_t word = read_word(at, line->end, value);
    if (word) {
        stop = at + word;
    } else {
        while (stop < line->end && part_of_number(*stop)) stop++;
        while (stop > at && !digit(stop[-1]) && !(stop[-1] == '.' && stop > at + 1)) stop--; /* "0.5-" */
        if (!read_decimal(at, stop, value)) return false;
    }
    if (after) *after = stop;
    return !(line->cut && stop == line->end);
}

/* Half of 10^n. */
static double half_unit(int n) {
    static const double halves[] = {5e-1, 5e-2, 5e-3, 5e-4, 5e-5, 5e-6, 5e-7, 5e-8};
    return n <= 0 && -n < (int)AB_COUNT_OF(halves) ? halves[-n] : 0.5 * pow(10, n);
}

double ab_log_digit_error(const char *from, const char *end) {
    int behind = 0, power = 0;
    bool point = false;
    for (from = skip_opening(from, end); from < end && part_of_number(*from); from++) {
        if (*from == 'e' || *from == 'E') {
            power = (int)strtol(from + 1, NULL, 10);
            break;
        }
        behind += point && digit(*from);
        point = point || *from == '.';
    }
    return half_unit(power - behind);
}

/* ---- fields ----------------------------------------------------------------------------------- */

void ab_log_set(ab_log_point *point, ab_log_field field, double value) {
    point->value[field] = value;
    point->has |= 1u << field;
}

static bool is_scale(ab_log_field field) {
    return field == AB_LOG_scale || field == AB_LOG_scale_before || field == AB_LOG_scale_after;
}

/* *after: behind the number, if there is one. */
static bool set_number(const ab_log_line *line, const char *at, ab_log_field field, ab_log_point *point,
                       const char **after) {
    double value;
    if (!ab_log_number(line, at, &value, after)) return false;
    ab_log_set(point, field, value);
    if (is_scale(field)) point->error = ab_log_digit_error(at, *after);
    return true;
}

bool ab_log_set_number(const ab_log_line *line, const char *at, ab_log_field field, ab_log_point *point) {
    const char *after;
    return set_number(line, at, field, point, &after);
}

static const struct {
    ab_log_field field;
    size_t length;
    const char *name;
} columns[] = {
#define AB_LOG_COLUMN(name, field) {AB_LOG_##field, sizeof #name - 1, #name},
#include "bench/ingest/log/columns.def"
#undef AB_LOG_COLUMN
};

static char plain_letter(char c) {
    if (c >= 'A' && c <= 'Z') return (char)(c - 'A' + 'a');
    return c == ' ' || c == '-' || c == '/' || c == '.' ? '_' : c;
}

static unsigned hash_of(const char *plain, size_t length) {
    return ((unsigned)plain[0] * 7 + (unsigned)plain[length - 1] * 3 + (unsigned)length) % AB_LOG_NAME_HASHES;
}

_Static_assert(AB_COUNT_OF(columns) < AB_LOG_NAMES, "columns.def has more rows than ab_log has room for");

void ab_log_index_names(ab_log *log) {
    for (int i = (int)AB_COUNT_OF(columns) - 1; i >= 0; i--) {
        uint8_t *first = &log->first_column[hash_of(columns[i].name, columns[i].length)];
        log->next_column[i] = *first;
        *first = (uint8_t)(i + 1);
    }
}

static bool same_name(const char *plain, size_t length, const char *name) {
    return strlen(name) == length && memcmp(plain, name, length) == 0;
}

ab_log_field ab_log_field_of(const ab_log *log, const char *name, size_t length) {
    char plain[AB_LOG_COLUMN_NAME];
    if (length == 0 || length >= sizeof plain) return AB_LOG_FIELDS;
    for (int i = 0; i < log->columns; i++)
        if (same_name(name, length, log->column[i].name)) return log->column[i].field;
    for (size_t i = 0; i < length; i++) plain[i] = plain_letter(name[i]);
    for (int k = log->first_column[hash_of(plain, length)]; k > 0; k = log->next_column[k - 1]) {
        const int i = k - 1;
        if (columns[i].length != length || memcmp(plain, columns[i].name, length) != 0) continue;
        for (int u = 0; u < log->columns; u++)
            if (log->column[u].field == columns[i].field) return AB_LOG_FIELDS; /* the user named another */
        return columns[i].field;
    }
    return AB_LOG_FIELDS;
}

/* ---- lists of names and values ---------------------------------------------------------------- */

typedef struct cursor {
    const ab_log_line *line;
    const char *at;
} cursor;

static void skip_blanks(cursor *c) {
    while (c->at < c->line->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r'))
        c->at++;
}

/* A quoted text; *from, *to: what is inside. */
static bool take_quoted(cursor *c, const char **from, const char **to) {
    const char quote = *c->at++;
    *from = c->at;
    while (c->at < c->line->end && *c->at != quote) c->at += *c->at == '\\' ? 2 : 1;
    if (c->at >= c->line->end) return false;
    *to = c->at++;
    return true;
}

/* Moves behind a value of any kind: to the comma or the brace that ends it. */
static bool skip_value(cursor *c) {
    const char *from, *to;
    int depth = 0;
    while (c->at < c->line->end) {
        const char sign = *c->at;
        if (sign == '"' || sign == '\'') {
            if (!take_quoted(c, &from, &to)) return false;
            continue;
        }
        if (depth == 0 && (sign == ',' || sign == '}')) return true;
        depth += (sign == '{' || sign == '[' || sign == '(') - (sign == '}' || sign == ']' || sign == ')');
        c->at++;
    }
    return false;
}

/* One name and its value. */
static bool take_member(const ab_log *log, cursor *c, ab_log_point *point, int *set) {
    const char *from, *to;
    skip_blanks(c);
    if (c->at >= c->line->end || (*c->at != '"' && *c->at != '\'')) return false;
    if (!take_quoted(c, &from, &to)) return false;
    skip_blanks(c);
    if (c->at >= c->line->end || *c->at++ != ':') return false;
    const ab_log_field field = ab_log_field_of(log, from, (size_t)(to - from));
    const char *after = c->at;
    if (field < AB_LOG_FIELDS && !(point->has >> field & 1u))
        *set += set_number(c->line, c->at, field, point, &after);
    if (after < c->line->end && (*after == ',' || *after == '}')) c->at = after;
    return skip_value(c);
}

int ab_log_dictionary(const ab_log *log, const ab_log_line *line, const char *brace, ab_log_point *point,
                      const char **after) {
    cursor c = {line, brace + 1};
    int set = 0;
    for (;;) {
        if (!take_member(log, &c, point, &set)) return 0;
        if (*c.at++ == '}') break;
    }
    if (after) *after = c.at;
    return set;
}
