/* Logs of training runs: which loss, loss scale, gradient norm and skipped steps they tell, line by line.
 *
 * One pass in bounded memory. What a log is, is known by its text; nothing is executed and no framework is
 * needed. Judging what a log says is left to reports/diagnose/log. */
#ifndef AB_BENCH_INGEST_LOG_LOG_H
#define AB_BENCH_INGEST_LOG_LOG_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef enum ab_log_field {
#define AB_LOG_FIELD(id, name, text) AB_LOG_##id,
#include "bench/ingest/log/fields.def"
#undef AB_LOG_FIELD
    AB_LOG_FIELDS
} ab_log_field;

/* POINTS: at most; beyond, points that say nothing new are left out. LINES: nearest lines of a log in which
 * nothing was recognised. */
enum { AB_LOG_POINTS = 1 << 17, AB_LOG_COLUMN_NAME = 96, AB_LOG_NEAREST = 3, AB_LOG_LINE_TEXT = 160 };

/* What one line says. `error`: half a unit of the last digit printed of the scale. */
typedef struct ab_log_point {
    int64_t line; /* from 1, over all files; of event files the record's number */
    uint32_t has; /* bit f: value[f] was said */
    int format;   /* row of formats.def; -1: a reader of its own */
    int rank;     /* -1: the line does not say */
    double error;
    double value[AB_LOG_FIELDS];
} ab_log_point;

/* Whether the line gives the field. */
static inline bool ab_log_said(const ab_log_point *point, ab_log_field field) {
    return point->has >> field & 1u;
}

/* A histogram of an event file, as counts by exponent. */
enum { AB_LOG_EXPONENTS = 160, AB_LOG_EXPONENT_LOW = -60, AB_LOG_HISTOGRAMS = 256 };
typedef struct ab_log_histogram {
    char tag[AB_LOG_COLUMN_NAME];
    double step, min, max, total, below; /* below: in the bin around 0, whose exponents are not told */
    double straddling; /* in bins that reach over a power of two: no count is off by more than these */
    double count[AB_LOG_EXPONENTS]; /* of magnitudes in [2^e, 2^(e+1)), e = AB_LOG_EXPONENT_LOW + index */
    bool exponential;               /* bins grow with the value; else only min and max tell something */
} ab_log_histogram;

/* AB_LOG_NAMES: most rows of columns.def. */
enum { AB_LOG_NAME_HASHES = 1024, AB_LOG_NAMES = 128 };

typedef struct ab_log {
    ab_log_point *point;
    int points, capacity;
    ab_log_point last; /* added last; waiting: it is left out unless the next one says something new */
    bool waiting;
    int stride, since_kept;         /* of points that say nothing new one in `stride` is kept */
    int64_t lines, bytes, left_out; /* left_out: points not kept */
    int64_t *format_lines;          /* by row of formats.def */
    int *format_rank;               /* whose lines are kept; -1: none named yet */
    int64_t other_ranks;            /* lines of other ranks, which say the same */
    int rank_high;                  /* largest rank named; -1: none */
    int copies;                     /* processes that print every unnamed line; 1: one */
    bool cut;                       /* the last line has no end */
    const char *reader;             /* of the first file */
    ab_log_histogram *histogram;
    int histograms;
    int nearest;
    struct {
        int64_t line;
        int likeness;
        char text[AB_LOG_LINE_TEXT];
    } near[AB_LOG_NEAREST]; /* lines that are most like what is looked for */
    struct {
        ab_log_field field;
        char name[AB_LOG_COLUMN_NAME];
    } column[AB_LOG_FIELDS]; /* named by the user */
    int columns;
    /* Rows of columns.def by a hash of their names: the first, and the next behind each, plus 1; 0: none. */
    uint8_t first_column[AB_LOG_NAME_HASHES], next_column[AB_LOG_NAMES];
} ab_log;

/* Parses --columns "step=NAME,loss=NAME,...": the user's names for fields, of tables and of lists of names
 * and values. AB_USAGE names what is unknown. The log must be zero before the first call. */
AB_MUST_CHECK ab_status ab_log_columns(ab_log *log, const char *text);

/* Reads files in order (rotated ones from the oldest: ab_log_order). Files may be gzipped. AB_INPUT, with
 * what was looked for and the nearest lines, if nothing is recognised. Free with ab_log_free, also after a
 * failure.
 */
AB_MUST_CHECK ab_status ab_log_read(ab_log *log, const char *const *path, int paths);

/* The same of bytes in memory; `name` is for messages. */
AB_MUST_CHECK ab_status ab_log_read_bytes(ab_log *log, const char *name, const void *bytes, size_t size);

/* Frees what the log owns. */
void ab_log_free(ab_log *log);

/* Sorts names of one log's rotated files from the oldest to the newest: NAME.2, NAME.1.gz, NAME; dates in
 * names sort by themselves. Other names stay where they are. */
void ab_log_order(const char **path, int paths);

/* Whether the beginning of a file looks like a log of these; for choosing among kinds of input. */
bool ab_log_recognises(const char *path);

/* The log as a document (docs/logs.md), owned by the caller. NULL: out of memory. */
cJSON *ab_log_json(const ab_log *log, const char *const *path, int paths);

/* Name of a field in documents; its text. */
const char *ab_log_field_name(int field);
const char *ab_log_field_text(int field);

/* Formats of lines and readers of files, for help: i in [0, count). */
int ab_log_format_count(void);
const char *ab_log_format_name(int i);
const char *ab_log_format_example(int i);

/* What the log says as a whole. */
typedef struct ab_log_totals {
    double first_step, last_step; /* NAN: no steps */
    double first_scale, last_scale, least_scale, largest_scale;
    int64_t overflows; /* lines that announce one */
    double skipped;    /* counted by the log itself, or `overflows` */
    int losses, nonfinite_losses, norms, nonfinite_norms;
} ab_log_totals;
ab_log_totals ab_log_total(const ab_log *log);

AB_END_DECLS

#endif
