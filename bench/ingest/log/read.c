/* Opens files of a log, unpacks them, chooses their reader and says so if nothing was recognised. */
#include "bench/ingest/log/format.h"
#include "kernels/core/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { BLOCK = 1 << 18, HEAD = 1 << 16 };

static const ab_log_reader *const readers[] = {
#define AB_LOG_READER(name) &ab_log_reader_##name,
#include "bench/ingest/log/readers.def"
#undef AB_LOG_READER
};

static const ab_log_reader *reader_of(const ab_log *log, const char *head, size_t size) {
    for (size_t i = 0; i < AB_COUNT_OF(readers); i++)
        if (readers[i]->recognises(log, head, size)) return readers[i];
    return NULL;
}

/* ---- the user's columns ------------------------------------------------------------------------ */

static const char *const field_names[] = {
#define AB_LOG_FIELD(id, name, text) name,
#include "bench/ingest/log/fields.def"
#undef AB_LOG_FIELD
};
static const char *const field_texts[] = {
#define AB_LOG_FIELD(id, name, text) text,
#include "bench/ingest/log/fields.def"
#undef AB_LOG_FIELD
};

const char *ab_log_field_name(int field) { return field_names[field]; }

const char *ab_log_field_text(int field) { return field_texts[field]; }

static ab_status add_column(ab_log *log, const char *text, size_t size) {
    const char *equals = memchr(text, '=', size);
    char name[AB_LOG_COLUMN_NAME];
    const size_t length = equals ? (size_t)(equals - text) : size;
    if (!ab_text_fits(name, sizeof name, "%.*s", (int)length, text) || !equals || equals + 1 == text + size)
        return ab_fail(AB_USAGE, "--columns: expected FIELD=NAME,..., found '%s'", ab_text_brief(text, 60));
    int field = 0;
    while (field < AB_LOG_FIELDS && strcmp(field_names[field], name) != 0) field++;
    if (field == AB_LOG_FIELDS) {
        const char *near = ab_nearest(name, field_names, AB_LOG_FIELDS);
        return ab_fail(AB_USAGE, "--columns: unknown field '%s'; %s %s", name, near ? "nearest:" : "one is",
                       near ? near : "loss");
    }
    if (log->columns == AB_LOG_FIELDS)
        return ab_fail(AB_USAGE, "--columns: at most %d names", (int)AB_LOG_FIELDS);
    log->column[log->columns].field = (ab_log_field)field;
    if (!ab_text_fits(log->column[log->columns].name, AB_LOG_COLUMN_NAME, "%.*s", (int)(size - length - 1),
                      equals + 1))
        return ab_fail(AB_USAGE, "--columns: a name of %s is longer than %d bytes", name,
                       AB_LOG_COLUMN_NAME - 1);
    log->columns++;
    return AB_OK;
}

ab_status ab_log_columns(ab_log *log, const char *text) {
    while (*text) {
        const char *comma = strchr(text, ',');
        const size_t size = comma ? (size_t)(comma - text) : strlen(text);
        AB_TRY(add_column(log, text, size));
        text += size + (comma != NULL);
    }
    return log->columns ? AB_OK : ab_fail(AB_USAGE, "--columns: expected FIELD=NAME,..., found ''");
}

/* ---- one file ---------------------------------------------------------------------------------- */

/* Where the bytes of a file come from. */
typedef struct source {
    gzFile file;
    const char *name, *bytes; /* bytes: in memory, if there is no file */
    size_t size;
} source;

static ab_status next_block(source *from, char *block, size_t *size) {
    if (!from->file) {
        *size = from->size < BLOCK ? from->size : BLOCK;
        if (*size > 0) memcpy(block, from->bytes, *size);
        from->bytes += *size;
        from->size -= *size;
        return AB_OK;
    }
    const int got = gzread(from->file, block, BLOCK);
    int code = 0;
    const char *text = gzerror(from->file, &code);
    *size = got > 0 ? (size_t)got : 0;
    if (got < 0 && !(code == Z_BUF_ERROR || code == Z_DATA_ERROR))
        return ab_fail(AB_INPUT, "%s: %s", from->name, code == Z_ERRNO ? strerror(errno) : text);
    if (got < 0 && code == Z_DATA_ERROR)
        return ab_fail(AB_INPUT, "%s: expected a readable gzip file, found: %s", from->name, text);
    return AB_OK;
}

ab_status ab_log_prepare(ab_log *log) {
    const size_t count = (size_t)ab_log_format_count();
    if (log->format_lines) return AB_OK;
    log->format_lines = calloc(count, sizeof *log->format_lines);
    log->format_rank = malloc(count * sizeof *log->format_rank);
    if (!log->format_lines || !log->format_rank) return ab_fail(AB_NO_MEMORY, "log: out of memory");
    for (size_t i = 0; i < count; i++) log->format_rank[i] = -1;
    log->rank_high = -1;
    log->copies = log->stride = 1;
    ab_log_index_names(log);
    return AB_OK;
}

static ab_status read_blocks(ab_log *log, source *from, char *block) {
    size_t size = 0;
    AB_TRY(next_block(from, block, &size));
    const ab_log_reader *reader = reader_of(log, block, size < HEAD ? size : HEAD);
    if (!reader) return AB_OK; /* an empty file */
    if (!log->reader) log->reader = reader->name;
    ab_log_stream stream = {.log = log, .name = from->name, .line = log->lines, .last = -1};
    AB_TRY(reader->begin(&stream));
    ab_status status = AB_OK;
    while (size > 0 && status == AB_OK) {
        log->bytes += (int64_t)size;
        status = reader->feed(&stream, block, size);
        if (status == AB_OK) status = next_block(from, block, &size);
    }
    status = reader->end(&stream, status);
    log->lines = stream.line;
    return status;
}

static ab_status read_source(ab_log *log, source *from) {
    char *block = malloc(BLOCK);
    if (!block) return ab_fail(AB_NO_MEMORY, "%s: out of memory", from->name);
    ab_status status = ab_log_prepare(log);
    if (status == AB_OK) status = read_blocks(log, from, block);
    free(block);
    return status;
}

static ab_status open_source(const char *path, source *from) {
    struct stat info;
    if (stat(path, &info) != 0) return ab_fail(AB_INPUT, "%s: cannot open: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) return ab_fail(AB_INPUT, "%s: expected a log file, found a directory", path);
    *from = (source){.file = gzopen(path, "rb"), .name = path};
    if (!from->file) return ab_fail(AB_INPUT, "%s: cannot open: %s", path, strerror(errno));
    (void)gzbuffer(from->file, BLOCK / 2); /* blocks of twice this come from the file without a copy */
    return AB_OK;
}

/* ---- nothing recognised ------------------------------------------------------------------------ */

static ab_status nothing(const ab_log *log, const char *name) {
    char text[640] = "", looked[320] = "";
    for (int i = 0; i < ab_log_format_count(); i++)
        ab_text_append(looked, sizeof looked, "%s%s", i ? ", " : "", ab_log_format_name(i));
    for (int i = 0; i < log->nearest; i++)
        ab_text_append(text, sizeof text, "%s line %lld: \"%s\"",
                       i ? ";" : "; nearest lines:", (long long)log->near[i].line,
                       ab_text_brief(log->near[i].text, 100));
    return ab_fail(
        AB_INPUT,
        "%s: expected a training log, found none of the lines looked for (%s), no CSV or JSON Lines "
        "with a column for loss or scale, no trainer_state.json, no event file%s",
        name, looked, text);
}

static ab_status finish(ab_log *log, const char *name) {
    AB_TRY(ab_log_settle(log));
    return log->points == 0 && log->histograms == 0 ? nothing(log, name) : AB_OK;
}

/* ---- rotated files ----------------------------------------------------------------------------- */

/* The number behind the last dot, before .gz: log.2.gz is 2; -1: none. */
static long rotation(const char *path) {
    size_t size = strlen(path);
    if (size > 3 && strcmp(path + size - 3, ".gz") == 0) size -= 3;
    size_t from = size;
    while (from > 0 && isdigit((unsigned char)path[from - 1])) from--;
    if (from == size || size - from > 6 || from == 0 || path[from - 1] != '.') return -1;
    return strtol(path + from, NULL, 10);
}

static bool comes_later(const char *a, const char *b) {
    const long x = rotation(a), y = rotation(b);
    if (x < 0 && y < 0) return false;
    return x < y; /* larger numbers are older; a name without one is the newest */
}

void ab_log_order(const char **path, int paths) {
    for (int i = 1; i < paths; i++) {
        const char *moving = path[i];
        int at = i;
        for (; at > 0 && comes_later(path[at - 1], moving); at--) path[at] = path[at - 1];
        path[at] = moving;
    }
}

/* ---- public ------------------------------------------------------------------------------------ */

ab_status ab_log_read(ab_log *log, const char *const *path, int paths) {
    for (int i = 0; i < paths; i++) {
        source from;
        AB_TRY(open_source(path[i], &from));
        const ab_status status = read_source(log, &from);
        gzclose(from.file);
        AB_TRY(status);
    }
    return finish(log, path[0]);
}

ab_status ab_log_read_bytes(ab_log *log, const char *name, const void *bytes, size_t size) {
    source from = {.name = name, .bytes = bytes, .size = size};
    AB_TRY(read_source(log, &from));
    return finish(log, name);
}

bool ab_log_recognises(const char *path) {
    ab_log log = {.points = 0};
    source from;
    char *block = malloc(BLOCK);
    bool found = false;
    if (block && open_source(path, &from) == AB_OK) {
        size_t size = 0;
        if (next_block(&from, block, &size) == AB_OK)
            found = ab_log_read_bytes(&log, path, block, size) == AB_OK;
        gzclose(from.file);
    }
    ab_log_free(&log);
    free(block);
    return found;
}

void ab_log_free(ab_log *log) {
    free(log->point);
    free(log->format_lines);
    free(log->format_rank);
    free(log->histogram);
    *log = (ab_log){.points = 0};
}
