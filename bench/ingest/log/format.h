/* Inside bench/ingest/log: a line, finding words and numbers in it, and what a format is. Lines are bytes,
 * not strings: they hold no end mark and may hold anything. */
#ifndef AB_BENCH_INGEST_LOG_FORMAT_H
#define AB_BENCH_INGEST_LOG_FORMAT_H

#include "bench/ingest/log/log.h"

#include <string.h>

AB_BEGIN_DECLS

typedef struct ab_log_line {
    const char *text, *end;
    bool cut; /* it has no line end: a number that touches the end may lack digits */
} ab_log_line;

typedef struct ab_log_format {
    const char *name;
    const char *example, *origin;  /* a line; where the format is from */
    const char *mark, *other_mark; /* every line of it holds one of these texts; "": any */
    bool own;                      /* the line says what it is; else it may be any list of names and values */
    /* Takes the line: fills the point. False: it is none of this format. `log` is for the user's columns. */
    bool (*take)(const ab_log *log, const ab_log_line *line, ab_log_point *point);
} ab_log_format;

#define AB_LOG_FORMAT(name) extern const ab_log_format ab_log_format_##name;
#include "bench/ingest/log/formats.def"
#undef AB_LOG_FORMAT

/* Row i of formats.def. */
const ab_log_format *ab_log_format_at(int i);

/* ---- words and numbers ------------------------------------------------------------------------ */

/* The first `word` of `size` bytes in [from, end); NULL: none. */
const char *ab_log_find_bytes(const char *from, const char *end, const char *word, size_t size);

/* The same of a string. */
static inline const char *ab_log_find(const char *from, const char *end, const char *word) {
    return ab_log_find_bytes(from, end, word, strlen(word));
}

/* The place behind the first `word` of the line; NULL: none. */
const char *ab_log_after(const ab_log_line *line, const char *word);

/* Reads a number at `at`, behind blanks and any of "'[( and tensor(: decimal, nan, NaN, inf, Infinity, True,
 * False. *after (may be NULL): behind it. False: there is none, or it touches the end of a cut line. */
bool ab_log_number(const ab_log_line *line, const char *at, double *value, const char **after);

/* Half a unit of the last digit of a decimal number written at [from, end). */
double ab_log_digit_error(const char *from, const char *end);

/* Sets a field of the point. */
void ab_log_set(ab_log_point *point, ab_log_field field, double value);

/* Sets a field to the number at `at`, and `error` for scales. *after: behind the number, if there is one. */
bool ab_log_set_number(const ab_log_line *line, const char *at, ab_log_field field, ab_log_point *point);
bool ab_log_take_number(const ab_log_line *line, const char *at, ab_log_field field, ab_log_point *point,
                        const char **after);

/* Makes the names of columns.def known to ab_log_field_of, before the first line. */
void ab_log_index_names(ab_log *log);

/* The field that a name stands for: the user's column, then columns.def; AB_LOG_FIELDS: none. */
ab_log_field ab_log_field_of(const ab_log *log, const char *name, size_t length);

/* A flat list of names and values, {"loss": 0.1, 'lr': nan}, from its brace: fills the point and returns how
 * many fields it set; nested lists are passed over. *after (may be NULL): behind it. 0 also if it has no end
 * or sums up a whole run (train_runtime). */
int ab_log_dictionary(const ab_log *log, const ab_log_line *line, const char *brace, ab_log_point *point,
                      const char **after);

/* ---- readers ---------------------------------------------------------------------------------- */

/* Makes a zero log, or one that has the user's columns only, ready for a reader. */
AB_MUST_CHECK ab_status ab_log_prepare(ab_log *log);

/* Reads bytes as they come. `state` is the reader's own. */
typedef struct ab_log_stream {
    ab_log *log;
    const char *name; /* of the file, for messages */
    void *state;
    int64_t line; /* number of lines before what is fed next */
    int last;     /* format of the last line taken */
} ab_log_stream;

typedef struct ab_log_reader {
    const char *name, *text;
    /* Whether the first bytes of a file are of this kind. */
    bool (*recognises)(const ab_log *log, const char *head, size_t size);
    ab_status (*begin)(ab_log_stream *stream);
    ab_status (*feed)(ab_log_stream *stream, const char *bytes, size_t size);
    /* The end of the file; frees the state. `status`: of what came before. */
    ab_status (*end)(ab_log_stream *stream, ab_status status);
} ab_log_reader;

#define AB_LOG_READER(name) extern const ab_log_reader ab_log_reader_##name;
#include "bench/ingest/log/readers.def"
#undef AB_LOG_READER

/* Bytes that were fed and not used yet. Zero at first. */
typedef struct ab_log_buffer {
    char *byte;
    size_t size, capacity;
} ab_log_buffer;

/* Adds bytes; at most `most` may wait. AB_INPUT is not set: false if there would be more, or no memory. */
bool ab_log_buffer_add(ab_log_buffer *buffer, const char *bytes, size_t size, size_t most);

/* Adds a point. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_log_add(ab_log *log, const ab_log_point *point);

/* Adds one value of a step, as event files tell them: to the point of that step if it is among the last. */
AB_MUST_CHECK ab_status ab_log_add_value(ab_log *log, int64_t record, double step, ab_log_field field,
                                         double value);

/* One line through the formats. */
AB_MUST_CHECK ab_status ab_log_take_line(ab_log_stream *stream, const ab_log_line *line);

/* Remembers a line that was not recognised if it is more like what is looked for than those before. */
void ab_log_see_stranger(ab_log *log, int64_t number, const ab_log_line *line);

/* After the last file: the last point, and copies of lines from processes that do not name themselves. */
AB_MUST_CHECK ab_status ab_log_settle(ab_log *log);

AB_END_DECLS

#endif
