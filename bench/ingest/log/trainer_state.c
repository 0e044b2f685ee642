/* Hugging Face's trainer_state.json: the dictionaries in its log_history. Python writes NaN there, which is
 * no JSON, so the text is searched for them and not parsed as a whole. */
#include "bench/ingest/log/format.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1 << 20 };

typedef struct history_state {
    ab_log_buffer rest;
    bool inside; /* log_history has begun */
    bool done;
} history_state;

static const char key[] = "\"log_history\"";

static bool recognises(const ab_log *log, const char *head, size_t size) {
    (void)log;
    const char *end = head + size;
    while (head < end && (*head == ' ' || *head == '\n' || *head == '\r' || *head == '\t')) head++;
    return head < end && *head == '{' && ab_log_find(head, end, key) != NULL;
}

static void drop(history_state *state, const char *to) {
    const size_t used = (size_t)(to - state->rest.byte);
    memmove(state->rest.byte, to, state->rest.size - used);
    state->rest.size -= used;
}

/* One dictionary of the history. A mean over the whole run is none of its steps. */
static ab_status take_entry(ab_log_stream *stream, const char *brace, const char *end) {
    const ab_log_line line = {brace, end, false};
    const unsigned steps = 1u << AB_LOG_step | 1u << AB_LOG_epoch | 1u << AB_LOG_samples;
    ab_log_point point = {.line = ++stream->line, .format = -1, .rank = -1};
    if (ab_log_dictionary(stream->log, &line, brace, &point, NULL) == 0 || !(point.has & ~steps))
        return AB_OK;
    return ab_log_add(stream->log, &point);
}

static ab_status take_entries(ab_log_stream *stream) {
    history_state *state = stream->state;
    const char *at = state->rest.byte, *end = at + state->rest.size;
    while (at < end && !state->done) {
        if (*at == ']') state->done = true;
        if (*at != '{') {
            at++;
            continue;
        }
        const char *close = memchr(at, '}', (size_t)(end - at));
        if (!close) break;
        AB_TRY(take_entry(stream, at, close + 1));
        at = close + 1;
    }
    drop(state, at);
    return AB_OK;
}

static ab_status feed(ab_log_stream *stream, const char *bytes, size_t size) {
    history_state *state = stream->state;
    if (state->done) return AB_OK;
    if (!ab_log_buffer_add(&state->rest, bytes, size, LONGEST))
        return ab_fail(AB_INPUT, "%s: expected log_history to be a list of short dictionaries", stream->name);
    if (!state->inside) {
        const char *end = state->rest.byte + state->rest.size, *at = ab_log_find(state->rest.byte, end, key);
        at = at ? ab_log_find(at, end, "[") : NULL;
        if (!at) return AB_OK;
        state->inside = true;
        drop(state, at + 1);
    }
    return take_entries(stream);
}

static ab_status begin(ab_log_stream *stream) {
    stream->state = calloc(1, sizeof(history_state));
    return stream->state ? AB_OK : ab_fail(AB_NO_MEMORY, "%s: out of memory", stream->name);
}

static ab_status end(ab_log_stream *stream, ab_status status) {
    history_state *state = stream->state;
    stream->log->cut = stream->log->cut || !state->done;
    free(state->rest.byte);
    free(state);
    return status;
}

const ab_log_reader ab_log_reader_trainer_state = {
    .name = "trainer-state",
    .text = "trainer_state.json of Hugging Face's Trainer",
    .recognises = recognises,
    .begin = begin,
    .feed = feed,
    .end = end,
};
