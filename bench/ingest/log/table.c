/* CSV and TSV: a line of names, then numbers. */
#include "bench/ingest/log/format.h"
#include "kernels/core/text.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 1024, LONGEST = 1 << 16 };

typedef struct table_state {
    ab_log_buffer rest;
    char separator;
    bool named; /* the line of names was read */
    int columns;
    ab_log_field field[COLUMNS];
} table_state;

/* The end of a cell that begins at `at`: quoted cells may hold separators. */
static const char *cell_end(const char *at, const char *end, char separator) {
    bool quoted = false;
    for (; at < end && (quoted || *at != separator); at++)
        if (*at == '"') quoted = !quoted;
    return at;
}

static void trim(const char **from, const char **to) {
    while (*from < *to && (**from == '"' || **from == ' ')) ++*from;
    while (*to > *from && ((*to)[-1] == '"' || (*to)[-1] == ' ' || (*to)[-1] == '\r')) --*to;
}

/* The fields of a line of names. Returns how many are known. */
static int read_names(const ab_log *log, const char *at, const char *end, char separator,
                      table_state *state) {
    int known = 0, columns = 0;
    unsigned seen = 0;
    if (end - at >= 3 && memcmp(at, "\xEF\xBB\xBF", 3) == 0) at += 3;
    for (; columns < COLUMNS; columns++) {
        const char *to = cell_end(at, end, separator), *from = at, *stop = to;
        trim(&from, &stop);
        ab_log_field field = ab_log_field_of(log, from, (size_t)(stop - from));
        if (field < AB_LOG_FIELDS && seen >> field & 1u) field = AB_LOG_FIELDS;
        if (field < AB_LOG_FIELDS) seen |= 1u << field;
        if (state) state->field[columns] = field;
        known += field < AB_LOG_FIELDS;
        if (to >= end) break;
        at = to + 1;
    }
    if (state) state->columns = columns + (columns < COLUMNS);
    const unsigned wanted = 1u << AB_LOG_loss | 1u << AB_LOG_scale | 1u << AB_LOG_grad_norm |
                            1u << AB_LOG_overflow | 1u << AB_LOG_grad_max;
    return seen & wanted ? known : 0;
}

static const char separators[] = {',', '\t', ';'};

/* The separator of a first line with known names; '\0': it is none. A line of progress has blanks and colons
 * between names and numbers: names of a table hold no digits behind them. */
static char separator_of(const ab_log *log, const char *head, const char *end) {
    for (size_t i = 0; i < sizeof separators; i++) {
        if (!memchr(head, separators[i], (size_t)(end - head))) continue;
        if (read_names(log, head, end, separators[i], NULL) > 0) return separators[i];
    }
    return '\0';
}

static bool recognises(const ab_log *log, const char *head, size_t size) {
    const char *end = size > 0 ? memchr(head, '\n', size) : NULL;
    return end && separator_of(log, head, end) != '\0';
}

/* The cell of column i, at the beginning of `row`. Returns its end: mostly that of its number. */
static const char *take_cell(const table_state *state, int i, const ab_log_line *row, ab_log_point *point) {
    const char *to = row->text;
    if (state->field[i] == AB_LOG_FIELDS) return cell_end(row->text, row->end, state->separator);
    if (state->separator != '\t' && ab_log_take_number(row, to, state->field[i], point, &to) &&
        (to == row->end || *to == state->separator))
        return to;
    to = cell_end(row->text, row->end, state->separator);
    const ab_log_line cell = {row->text, to, row->cut && to == row->end};
    if (!ab_log_set_number(&cell, row->text, state->field[i], point)) point->has &= ~(1u << state->field[i]);
    return to;
}

static ab_status take_row(ab_log_stream *stream, const char *at, const char *end, bool cut) {
    table_state *state = stream->state;
    ab_log_point point = {.line = stream->line + 1, .format = -1, .rank = -1};
    for (int i = 0; i < state->columns && at <= end; i++) {
        const char *to = take_cell(state, i, &(ab_log_line){at, end, cut}, &point);
        if (to >= end) break;
        at = to + 1;
    }
    const unsigned steps = 1u << AB_LOG_step | 1u << AB_LOG_epoch | 1u << AB_LOG_samples;
    return point.has & ~steps ? ab_log_add(stream->log, &point) : AB_OK;
}

static ab_status take_line(ab_log_stream *stream, const char *at, const char *end, bool cut) {
    table_state *state = stream->state;
    ab_status status = AB_OK;
    if (state->named) {
        status = take_row(stream, at, end, cut);
    } else {
        state->separator = separator_of(stream->log, at, end);
        (void)read_names(stream->log, at, end, state->separator, state);
        state->named = true;
    }
    stream->line++;
    return status;
}

static ab_status feed(ab_log_stream *stream, const char *bytes, size_t size) {
    table_state *state = stream->state;
    const char *at, *end, *stop;
    if (!ab_log_buffer_add(&state->rest, bytes, size, (size_t)1 << 24))
        return ab_fail(AB_INPUT, "%s: line %lld: expected a row of a table, found a line without end",
                       stream->name, (long long)stream->line + 1);
    at = state->rest.byte;
    end = at + state->rest.size;
    for (; at < end && (stop = memchr(at, '\n', (size_t)(end - at))) != NULL; at = stop + 1)
        AB_TRY(take_line(stream, at, stop, false));
    state->rest.size = (size_t)(end - at);
    memmove(state->rest.byte, at, state->rest.size);
    return AB_OK;
}

static ab_status begin(ab_log_stream *stream) {
    stream->state = calloc(1, sizeof(table_state));
    return stream->state ? AB_OK : ab_fail(AB_NO_MEMORY, "%s: out of memory", stream->name);
}

static ab_status end(ab_log_stream *stream, ab_status status) {
    table_state *state = stream->state;
    if (status == AB_OK && state->rest.size > 0) {
        stream->log->cut = true;
        status = take_line(stream, state->rest.byte, state->rest.byte + state->rest.size, true);
    }
    free(state->rest.byte);
    free(state);
    return status;
}

const ab_log_reader ab_log_reader_table = {
    .name = "table",
    .text = "CSV or TSV with a line of names",
    .recognises = recognises,
    .begin = begin,
    .feed = feed,
    .end = end,
};
