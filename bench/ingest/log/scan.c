/* Words and lists of names in lines of logs. */
#include "bench/ingest/log/format.h"
#include "kernels/core/text.h"

#include <string.h>

const char *ab_log_after(const ab_log_line *line, const char *word) {
    const char *at = ab_log_find(line->text, line->end, word);
    return at ? at + strlen(word) : NULL;
}

/* ---- fields ----------------------------------------------------------------------------------- */

void ab_log_set(ab_log_point *point, ab_log_field field, double value) {
    point->value[field] = value;
    point->has |= 1u << field;
}

static bool is_scale(ab_log_field field) {
    return field == AB_LOG_scale || field == AB_LOG_scale_before || field == AB_LOG_scale_after;
}

bool ab_log_take_number(const ab_log_line *line, const char *at, ab_log_field field, ab_log_point *point,
                        const char **after) {
    double value;
    if (!ab_log_number(line, at, &value, after)) return false;
    ab_log_set(point, field, value);
    if (is_scale(field)) point->error = ab_log_digit_error(at, *after);
    return true;
}

bool ab_log_set_number(const ab_log_line *line, const char *at, ab_log_field field, ab_log_point *point) {
    const char *after;
    return ab_log_take_number(line, at, field, point, &after);
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

/* Whether c is the letter of a name: it may be a capital, and _ any sign between words. */
static bool is_letter(char c, char letter) {
    if (c == letter) return true;
    if (c >= 'A' && c <= 'Z') return c - 'A' + 'a' == letter;
    return letter == '_' && (c == ' ' || c == '-' || c == '/' || c == '.');
}

/* Names of columns.def begin and end with letters, which differ from capitals by one bit. */
static unsigned hash_of(const char *name, size_t length) {
    const unsigned first = (unsigned char)name[0] | 0x20u, last = (unsigned char)name[length - 1] | 0x20u;
    return (first * 29 + last * 7 + (unsigned)length * 64) % AB_LOG_NAME_HASHES;
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

/* Whether a name reads like row i of columns.def. */
static bool reads_like(const char *name, size_t length, int i) {
    if (columns[i].length != length) return false;
    for (size_t k = 0; k < length; k++)
        if (!is_letter(name[k], columns[i].name[k])) return false;
    return true;
}

ab_log_field ab_log_field_of(const ab_log *log, const char *name, size_t length) {
    if (length == 0 || length >= AB_LOG_COLUMN_NAME) return AB_LOG_FIELDS;
    for (int i = 0; i < log->columns; i++)
        if (same_name(name, length, log->column[i].name)) return log->column[i].field;
    for (int k = log->first_column[hash_of(name, length)]; k > 0; k = log->next_column[k - 1]) {
        if (!reads_like(name, length, k - 1)) continue;
        const ab_log_field field = columns[k - 1].field;
        for (int u = 0; u < log->columns; u++)
            if (log->column[u].field == field) return AB_LOG_FIELDS; /* the user named another */
        return field;
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

/* The Trainer's last dictionary: means over the whole run are none of a step. */
static bool sums_up(const char *from, const char *to) {
    return same_name(from, (size_t)(to - from), "train_runtime");
}

/* One name and its value. */
static bool take_member(const ab_log *log, cursor *c, ab_log_point *point, int *set) {
    const char *from, *to;
    skip_blanks(c);
    if (c->at >= c->line->end || (*c->at != '"' && *c->at != '\'')) return false;
    if (!take_quoted(c, &from, &to)) return false;
    skip_blanks(c);
    if (c->at >= c->line->end || *c->at++ != ':') return false;
    if (sums_up(from, to)) return false;
    const ab_log_field field = ab_log_field_of(log, from, (size_t)(to - from));
    const char *after = c->at;
    if (field < AB_LOG_FIELDS && !ab_log_said(point, field))
        *set += ab_log_take_number(c->line, c->at, field, point, &after);
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
