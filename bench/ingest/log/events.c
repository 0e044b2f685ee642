/* TensorBoard's event files: records of length, checksum, Event message, checksum (TFRecord), read by the
 * wire format of protocol buffers. Scalars become points; histograms counts by exponent. */
#include "bench/ingest/log/format.h"
#include "kernels/core/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* HEADER: length and its checksum; LONGEST: record that is read, others are passed over. */
enum { HEADER = 12, FOOTER = 4, LONGEST = 1 << 24 };

/* ---- bytes ------------------------------------------------------------------------------------- */

static uint64_t little(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static double as_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* CRC-32C (Castagnoli), reflected, bit by bit; masked as TFRecord does. Only for the 8 bytes of a length. */
static uint32_t masked_checksum(const uint8_t *at, size_t size) {
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < size; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82F63B78u & (0u - (crc & 1u)));
    }
    crc = ~crc;
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

/* ---- the wire format --------------------------------------------------------------------------- */

typedef struct message {
    const uint8_t *at, *end;
} message;

/* A field: its number, and its value or its bytes. */
typedef struct field {
    unsigned number, type;
    uint64_t value;
    message bytes;
} field;

static bool varint(message *m, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        const uint8_t byte = *m->at++;
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

static bool take_bytes(message *m, uint64_t size, message *bytes) {
    if (size > (uint64_t)(m->end - m->at)) return false;
    *bytes = (message){m->at, m->at + size};
    m->at += size;
    return true;
}

/* The next field; false: there is none, or the bytes are no message. */
static bool next_field(message *m, field *f) {
    uint64_t tag, size;
    if (m->at >= m->end || !varint(m, &tag)) return false;
    *f = (field){.number = (unsigned)(tag >> 3), .type = (unsigned)(tag & 7)};
    if (f->type == 0) return varint(m, &f->value);
    if (f->type == 2) return varint(m, &size) && take_bytes(m, size, &f->bytes);
    const int width = f->type == 1 ? 8 : f->type == 5 ? 4 : 0;
    if (width == 0 || !take_bytes(m, (uint64_t)width, &f->bytes)) return false;
    f->value = little(f->bytes.at, width);
    return true;
}

/* ---- histograms -------------------------------------------------------------------------------- */

/* Two packed lists of doubles. */
typedef struct bins {
    message limit, count;
} bins;

static double double_at(message m, size_t i) { return as_double(little(m.at + 8 * i, 8)); }

static void add_exponent(ab_log_histogram *h, int exponent, double count) {
    const int at = exponent - AB_LOG_EXPONENT_LOW;
    if (at < 0)
        h->below += count;
    else
        h->count[at < AB_LOG_EXPONENTS ? at : AB_LOG_EXPONENTS - 1] += count;
}

/* A bin of magnitudes [low, high): to exponents by its share of the logarithm. */
static void add_bin(ab_log_histogram *h, double low, double high, double count) {
    const int from = ilogb(low), to = ilogb(nextafter(high, 0));
    const double width = log2(high / low);
    if (to > from) h->straddling += count;
    for (int e = from; e <= to && e < from + AB_LOG_EXPONENTS; e++) {
        const double a = fmax(low, ldexp(1, e)), b = fmin(high, ldexp(1, e + 1));
        if (b > a) add_exponent(h, e, to > from ? count * log2(b / a) / width : count);
    }
}

/* Whether neighbouring limits of one sign grow by a common ratio below 2, as torch's do (1.1): then a bin
 * straddles at most one power of two. */
static bool grows(message limit, size_t n) {
    int grown = 0, pairs = 0;
    for (size_t i = 1; i < n; i++) {
        const double a = fabs(double_at(limit, i - 1)), b = fabs(double_at(limit, i)),
                     ratio = a > b ? a / b : b / a;
        if (!(a > 0 && b > 0) || double_at(limit, i - 1) * double_at(limit, i) < 0) continue;
        pairs++;
        grown += ratio > 1.05 && ratio < 1.2;
    }
    return pairs > 0 && grown >= pairs * 9 / 10;
}

static void add_bins(ab_log_histogram *h, const bins *b) {
    const size_t n = (size_t)(b->limit.end - b->limit.at) / 8;
    h->exponential = grows(b->limit, n);
    if (!h->exponential) return;
    for (size_t i = 0; i < n; i++) {
        const double count = double_at(b->count, i), high = double_at(b->limit, i),
                     low = i > 0 ? double_at(b->limit, i - 1) : (double)-INFINITY;
        if (!(count > 0)) continue;
        if (low <= 0 && high >= 0) /* reaches 0 */
            h->below += count;
        else if (low > 0 && isfinite(high))
            add_bin(h, low, high, count);
        else if (high < 0 && isfinite(low))
            add_bin(h, -high, -low, count);
        else
            h->straddling += count; /* one end is not told */
    }
}

static void fill_histogram(ab_log_histogram *h, message m) {
    bins b = {{NULL, NULL}, {NULL, NULL}};
    field f;
    while (next_field(&m, &f)) {
        if (f.number == 1 && f.type == 1) h->min = as_double(f.value);
        if (f.number == 2 && f.type == 1) h->max = as_double(f.value);
        if (f.number == 3 && f.type == 1) h->total = as_double(f.value);
        if (f.number == 6 && f.type == 2) b.limit = f.bytes;
        if (f.number == 7 && f.type == 2) b.count = f.bytes;
    }
    if (b.limit.end - b.limit.at == b.count.end - b.count.at) add_bins(h, &b);
}

static ab_status add_histogram(ab_log *log, message tag, double step, message m) {
    if (log->histograms == AB_LOG_HISTOGRAMS) { /* keep every second */
        int kept = 0;
        for (int i = 0; i < log->histograms; i += 2) log->histogram[kept++] = log->histogram[i];
        log->histograms = kept;
    }
    if (!log->histogram) log->histogram = calloc(AB_LOG_HISTOGRAMS, sizeof *log->histogram);
    if (!log->histogram) return ab_fail(AB_NO_MEMORY, "log: out of memory for histograms");
    ab_log_histogram *h = &log->histogram[log->histograms++];
    char name[AB_LOG_COLUMN_NAME];
    size_t size = (size_t)(tag.end - tag.at);
    if (size >= sizeof name) size = sizeof name - 1;
    if (size > 0) memcpy(name, tag.at, size);
    name[size] = '\0';
    *h = (ab_log_histogram){.step = step};
    ab_text_show(h->tag, sizeof h->tag, "%s", name);
    fill_histogram(h, m);
    return AB_OK;
}

/* ---- events ------------------------------------------------------------------------------------ */

/* One float of a TensorProto, as TensorFlow 2 stores scalars: dtype 1 is float, 2 double. */
static bool tensor_scalar(message m, double *value) {
    uint64_t dtype = 0;
    message content = {NULL, NULL};
    bool found = false;
    field f;
    while (next_field(&m, &f)) {
        if (f.number == 1 && f.type == 0) dtype = f.value;
        if (f.number == 4 && f.type == 2) content = f.bytes;
        if (f.number == 5 && (f.type == 5 || (f.type == 2 && f.bytes.end - f.bytes.at == 4))) {
            *value = as_float((uint32_t)little(f.bytes.at, 4));
            found = true;
        }
    }
    const size_t size = (size_t)(content.end - content.at);
    if (!found && dtype == 1 && size == 4) *value = as_float((uint32_t)little(content.at, 4));
    if (!found && dtype == 2 && size == 8) *value = as_double(little(content.at, 8));
    return found || (dtype == 1 && size == 4) || (dtype == 2 && size == 8);
}

/* Summary.Value: 1 tag, 2 simple_value, 5 histo, 8 tensor. */
static ab_status take_value(ab_log_stream *stream, message m, double step) {
    message tag = {NULL, NULL}, histogram = {NULL, NULL};
    double value = 0;
    bool scalar = false;
    field f;
    while (next_field(&m, &f)) {
        if (f.number == 1 && f.type == 2) tag = f.bytes;
        if (f.number == 2 && f.type == 5) {
            value = as_float((uint32_t)f.value);
            scalar = true;
        }
        if (f.number == 5 && f.type == 2) histogram = f.bytes;
        if (f.number == 8 && f.type == 2) scalar = tensor_scalar(f.bytes, &value);
    }
    const ab_log_field of = ab_log_field_of(stream->log, (const char *)tag.at, (size_t)(tag.end - tag.at));
    if (histogram.at) return add_histogram(stream->log, tag, step, histogram);
    if (!scalar || of == AB_LOG_FIELDS) return AB_OK;
    return ab_log_add_value(stream->log, stream->line, step, of, value);
}

/* Event: 1 wall_time, 2 step, 3 file_version, 5 summary. */
static ab_status take_event(ab_log_stream *stream, message m) {
    const message whole = m;
    double step = 0;
    field f, g;
    while (next_field(&m, &f))
        if (f.number == 2 && f.type == 0) step = (double)(int64_t)f.value;
    m = whole;
    while (next_field(&m, &f)) {
        if (f.number != 5 || f.type != 2) continue;
        while (next_field(&f.bytes, &g))
            if (g.number == 1 && g.type == 2) AB_TRY(take_value(stream, g.bytes, step));
    }
    return AB_OK;
}

/* ---- records ----------------------------------------------------------------------------------- */

typedef struct events_state {
    ab_log_buffer rest;
    uint64_t passing; /* bytes of a long record that are passed over */
} events_state;

static bool sound_header(const uint8_t *at) { return masked_checksum(at, 8) == (uint32_t)little(at + 8, 4); }

static bool recognises(const ab_log *log, const char *head, size_t size) {
    (void)log;
    return size >= HEADER && sound_header((const uint8_t *)head);
}

/* Takes the record at the beginning of what waits; *used: its bytes, 0 if it is not complete. */
static ab_status take_record(ab_log_stream *stream, const uint8_t *at, size_t size, size_t *used) {
    events_state *state = stream->state;
    *used = 0;
    if (size < HEADER) return AB_OK;
    const uint64_t length = little(at, 8);
    if (!sound_header(at))
        return ab_fail(AB_INPUT, "%s: record %lld: expected the checksum of its length, found another",
                       stream->name, (long long)stream->line + 1);
    if (length > LONGEST) {
        if (length > UINT64_MAX - FOOTER)
            return ab_fail(AB_INPUT, "%s: record %lld: expected a length below 2^63", stream->name,
                           (long long)stream->line + 1);
        state->passing = length + FOOTER;
        stream->line++;
        *used = HEADER;
        return AB_OK;
    }
    if (size < HEADER + length + FOOTER) return AB_OK;
    stream->line++;
    *used = (size_t)(HEADER + length + FOOTER);
    return take_event(stream, (message){at + HEADER, at + HEADER + length});
}

/* Passes over bytes of a long record; returns how many of `size`. */
static size_t pass(events_state *state, size_t size) {
    const size_t passed = state->passing < size ? (size_t)state->passing : size;
    state->passing -= passed;
    return passed;
}

static ab_status feed(ab_log_stream *stream, const char *bytes, size_t size) {
    events_state *state = stream->state;
    if (!ab_log_buffer_add(&state->rest, bytes, size, (size_t)LONGEST + (1u << 20)))
        return ab_fail(AB_NO_MEMORY, "%s: out of memory", stream->name);
    const uint8_t *at = (const uint8_t *)state->rest.byte, *end = at + state->rest.size;
    for (size_t used = 1; used > 0; at += used) {
        at += pass(state, (size_t)(end - at));
        AB_TRY(take_record(stream, at, (size_t)(end - at), &used));
    }
    state->rest.size = (size_t)(end - at);
    memmove(state->rest.byte, at, state->rest.size);
    return AB_OK;
}

static ab_status begin(ab_log_stream *stream) {
    stream->state = calloc(1, sizeof(events_state));
    return stream->state ? AB_OK : ab_fail(AB_NO_MEMORY, "%s: out of memory", stream->name);
}

static ab_status end(ab_log_stream *stream, ab_status status) {
    events_state *state = stream->state;
    if (state->rest.size > 0 || state->passing > 0) stream->log->cut = true;
    free(state->rest.byte);
    free(state);
    return status;
}

const ab_log_reader ab_log_reader_events = {
    .name = "events",
    .text = "TensorBoard's event files",
    .recognises = recognises,
    .begin = begin,
    .feed = feed,
    .end = end,
};
