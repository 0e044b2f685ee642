/* Reads lines: finds their ends, passes over those that cannot hold what is looked for, takes colours and the
 * names of ranks away, and asks the formats. Progress bars end their lines with a carriage return. */
#define _GNU_SOURCE /* memmem, memrchr */

#include "bench/ingest/log/format.h"

#include <stdlib.h>
#include <string.h>

/* LONGEST: of a longer line the rest is passed over. PART: bytes that are looked at together, at every
 * PART-th place of a line: a mark of at least 2 * PART - 1 bytes holds such a place. HASHES: of parts. */
enum { LONGEST = 1 << 20, COLOURLESS = 1 << 14, PART = 4, HASHES = 1024 };

typedef struct lines_state {
    ab_log_buffer rest;    /* a line whose end has not come yet */
    bool passing;          /* over the rest of a line that is too long */
    bool returns, escapes; /* what is read may hold carriage returns, colours */
    char plain[COLOURLESS];
    uint32_t always;        /* bit f: a mark of format f is too short to be found by its parts */
    uint32_t parts[HASHES]; /* bit f: a part of a mark of format f has this hash */
} lines_state;

static const ab_log_format *const formats[] = {
#define AB_LOG_FORMAT(name) &ab_log_format_##name,
#include "bench/ingest/log/formats.def"
#undef AB_LOG_FORMAT
};

int ab_log_format_count(void) { return (int)AB_COUNT_OF(formats); }

const ab_log_format *ab_log_format_at(int i) { return formats[i]; }

const char *ab_log_format_name(int i) { return formats[i]->name; }

const char *ab_log_format_example(int i) { return formats[i]->example; }

/* ---- whether a line is worth a look ------------------------------------------------------------ */

enum { CHUNK = 16 };

/* hit[i] is set where "oss" (loss), "cal" (scale), "rfl" (overflow) or "kip" (skip) begins, in either case. A
 * plain loop, which compilers turn into vector code. */
static void look(const char *text, int places, unsigned char hit[CHUNK]) {
    const unsigned char *t = (const unsigned char *)text;
    for (int i = 0; i < places; i++) {
        const unsigned char a = t[i] | 0x20, b = t[i + 1] | 0x20, c = t[i + 2] | 0x20;
        hit[i] |=
            (unsigned char)(((a == 'o') & (b == 's') & (c == 's')) | ((a == 'c') & (b == 'a') & (c == 'l')) |
                            ((a == 'r') & (b == 'f') & (c == 'l')) | ((a == 'k') & (b == 'i') & (c == 'p')));
    }
}

/* Whether a line holds one of these anywhere. Every line of formats.def does. */
static bool interesting(const char *text, size_t size) {
    unsigned char hit[CHUNK] = {0}, none[CHUNK] = {0};
    if (size < 3) return false;
    const size_t places = size - 2;
    if (places < CHUNK) {
        look(text, (int)places, hit);
    } else {
        for (size_t i = 0; i + CHUNK <= places; i += CHUNK) look(text + i, CHUNK, hit);
        look(text + places - CHUNK, CHUNK, hit); /* some of them again */
    }
    return memcmp(hit, none, CHUNK) != 0;
}

/* ---- colours and ranks ------------------------------------------------------------------------- */

/* Copies the line without escape sequences of terminals (ESC [ ... letter). */
static void remove_colours(lines_state *state, ab_log_line *line) {
    size_t n = 0;
    const char *at = line->text;
    while (at < line->end && n < sizeof state->plain) {
        if (*at != '\033') {
            state->plain[n++] = *at++;
            continue;
        }
        at += at + 1 < line->end && at[1] == '[' ? 2 : 1;
        while (at < line->end && !((*at >= '@' && *at <= '~'))) at++;
        at += at < line->end;
    }
    line->text = state->plain;
    line->end = state->plain + n;
}

/* "[rank3]:", "[Rank 3]", "[default3]:", "[1,3]<stdout>:", "3: " at the beginning; -1: none. */
static int rank_of(const ab_log_line *line) {
    static const char *const openings[] = {"[rank", "[Rank ", "[default", "[1,"};
    const size_t size = (size_t)(line->end - line->text);
    const char *at = NULL;
    for (size_t i = 0; i < AB_COUNT_OF(openings) && !at && size > 0 && line->text[0] == '['; i++) {
        const size_t length = strlen(openings[i]);
        if (size > length && memcmp(line->text, openings[i], length) == 0) at = line->text + length;
    }
    const bool bare = !at;
    if (bare) at = line->text;
    int rank = 0, digits = 0;
    while (at < line->end && *at >= '0' && *at <= '9' && digits < 6) {
        rank = rank * 10 + (*at++ - '0');
        digits++;
    }
    if (digits == 0 || at >= line->end) return -1;
    return bare ? (*at == ':' && at + 1 < line->end && at[1] == ' ' ? rank : -1) : *at == ']' ? rank : -1;
}

/* ---- formats ----------------------------------------------------------------------------------- */

static bool holds(const ab_log_line *line, const char *mark) {
    return mark && (mark[0] == '\0' || ab_log_find(line->text, line->end, mark));
}

static bool take_as(const ab_log *log, int format, const ab_log_line *line, ab_log_point *point) {
    if (!holds(line, formats[format]->mark) && !holds(line, formats[format]->other_mark)) return false;
    point->has = 0;
    point->error = 0;
    return formats[format]->take(log, line, point);
}

static uint32_t part_hash(const char *text) {
    uint32_t word;
    memcpy(&word, text, PART);
    return word * 2654435761u >> 22;
}

_Static_assert(HASHES == 1 << (32 - 22), "part_hash has as many bits as HASHES needs");

static void see_mark(lines_state *state, int format, const char *mark) {
    if (!mark) return;
    if (strlen(mark) < 2 * PART - 1)
        state->always |= 1u << format;
    else
        for (int i = 0; i < PART; i++) state->parts[part_hash(mark + i)] |= 1u << format;
}

static void see_marks(lines_state *state) {
    for (int i = 0; i < ab_log_format_count(); i++) {
        see_mark(state, i, formats[i]->mark);
        see_mark(state, i, formats[i]->other_mark);
    }
}

/* Bit f: the line may hold a mark of format f. One pass for all marks. */
static uint32_t candidates(const lines_state *state, const ab_log_line *line) {
    uint32_t found = state->always;
    for (const char *at = line->text; line->end - at >= PART; at += PART)
        found |= state->parts[part_hash(at)];
    return found;
}

/* The format of the last line is asked first, except those that take any names and values. */
static int format_of(const ab_log_stream *stream, const ab_log_line *line, ab_log_point *point) {
    const int count = ab_log_format_count(), last = stream->last;
    if (last >= 0 && formats[last]->own && take_as(stream->log, last, line, point)) return last;
    const uint32_t may = candidates(stream->state, line);
    for (int i = 0; i < count; i++)
        if (may >> i & 1u && take_as(stream->log, i, line, point)) return i;
    return -1;
}

/* Lines of one rank are kept for each format: others say the same. */
static bool other_rank(ab_log *log, int format, int rank) {
    if (rank < 0) return false;
    if (rank > log->rank_high) log->rank_high = rank;
    if (log->format_rank[format] < 0) log->format_rank[format] = rank;
    return log->format_rank[format] != rank;
}

ab_status ab_log_take_line(ab_log_stream *stream, const ab_log_line *line) {
    ab_log *log = stream->log;
    ab_log_point point = {.line = stream->line + 1};
    const int format = format_of(stream, line, &point);
    if (format < 0) {
        if (log->points == 0) ab_log_see_stranger(log, stream->line + 1, line);
        return AB_OK;
    }
    stream->last = format;
    log->format_lines[format]++;
    point.format = format;
    point.rank = rank_of(line);
    if (other_rank(log, format, point.rank)) {
        log->other_ranks++;
        return AB_OK;
    }
    return ab_log_add(log, &point);
}

/* ---- lines ------------------------------------------------------------------------------------- */

static ab_status take_segment(ab_log_stream *stream, const char *text, const char *end, bool cut) {
    ab_log_line line = {text, end, cut};
    if (!interesting(text, (size_t)(end - text))) {
        if (stream->log->points == 0 && stream->log->nearest < AB_LOG_NEAREST && end > text)
            ab_log_see_stranger(stream->log, stream->line + 1, &line);
        return AB_OK;
    }
    lines_state *state = stream->state;
    if (state->escapes && memchr(text, '\033', (size_t)(end - text))) remove_colours(state, &line);
    return ab_log_take_line(stream, &line);
}

/* A line without its end: parts are ended by carriage returns. */
static ab_status take_line(ab_log_stream *stream, const char *text, const char *end) {
    const lines_state *state = stream->state;
    for (;;) {
        const char *stop = state->returns && text < end ? memchr(text, '\r', (size_t)(end - text)) : NULL;
        if (!stop) return take_segment(stream, text, end, false);
        AB_TRY(take_segment(stream, text, stop, false));
        text = stop + 1;
    }
}

/* All lines that end in [text, end); returns in *left what does not end. */
static ab_status take_lines(ab_log_stream *stream, const char *text, const char *end, const char **left) {
    for (;;) {
        const char *stop = text < end ? memchr(text, '\n', (size_t)(end - text)) : NULL;
        *left = text;
        if (!stop) break;
        AB_TRY(take_line(stream, text, stop));
        stream->line++;
        text = stop + 1;
    }
    const char *stop = text < end ? memrchr(text, '\r', (size_t)(end - text)) : NULL;
    if (!stop) return AB_OK;
    *left = stop + 1;
    return take_line(stream, text, stop);
}

static bool ends_line(char c) { return c == '\n' || c == '\r'; }

/* Completes the line that waits with the bytes up to its end; *used of them. It holds no carriage return. */
static ab_status complete(ab_log_stream *stream, const char *bytes, size_t size, size_t *used) {
    lines_state *state = stream->state;
    size_t n = 0;
    while (n < size && !ends_line(bytes[n])) n++;
    *used = n;
    if (!state->passing && !ab_log_buffer_add(&state->rest, bytes, n, LONGEST)) state->passing = true;
    if (n == size) return AB_OK;
    const char *text = state->rest.byte;
    const ab_status status = take_segment(stream, text, text + state->rest.size, state->passing);
    stream->line += bytes[n] == '\n';
    state->rest.size = 0;
    state->passing = false;
    *used = n + 1;
    return status;
}

static ab_status feed(ab_log_stream *stream, const char *bytes, size_t size) {
    lines_state *state = stream->state;
    const char *end = bytes + size, *left = bytes;
    size_t used = 0;
    if (size == 0) return AB_OK;
    state->escapes = state->escapes || memchr(bytes, '\033', size);
    if (state->rest.size > 0 || state->passing) AB_TRY(complete(stream, bytes, size, &used));
    if (used == size) return AB_OK;
    state->returns = memchr(bytes, '\r', size) != NULL;
    AB_TRY(take_lines(stream, bytes + used, end, &left));
    if (!ab_log_buffer_add(&state->rest, left, (size_t)(end - left), LONGEST)) state->passing = true;
    return AB_OK;
}

static bool recognises(const ab_log *log, const char *head, size_t size) {
    (void)log;
    (void)head;
    return size > 0;
}

static ab_status begin(ab_log_stream *stream) {
    stream->state = calloc(1, sizeof(lines_state));
    if (!stream->state) return ab_fail(AB_NO_MEMORY, "%s: out of memory", stream->name);
    see_marks(stream->state);
    return AB_OK;
}

static ab_status end(ab_log_stream *stream, ab_status status) {
    lines_state *state = stream->state;
    if (status == AB_OK && state->rest.size > 0) {
        stream->log->cut = true;
        status = take_segment(stream, state->rest.byte, state->rest.byte + state->rest.size, true);
        stream->line++;
    }
    free(state->rest.byte);
    free(state);
    return status;
}

const ab_log_reader ab_log_reader_lines = {
    .name = "lines",
    .text = "lines of text",
    .recognises = recognises,
    .begin = begin,
    .feed = feed,
    .end = end,
};
