/* The sink of json_lines.h. Strings are escaped; numbers that JSON cannot represent become null. */
#include "bench/run/json_lines.h"

#include "kernels/core/show.h"

#include <inttypes.h>
#include <math.h>

static ab_json_line *line_of(ab_probe_sink *sink) { return (ab_json_line *)(void *)sink; }

static FILE *put_key(ab_probe_sink *sink, const char *key) {
    ab_json_line *line = line_of(sink);
    if (line->comma) fputc(',', line->out);
    line->comma = true;
    if (key) {
        ab_json_put_text(line->out, key);
        fputc(':', line->out);
    }
    return line->out;
}

static void open_with(ab_probe_sink *sink, const char *key, char opening, char closing) {
    fputc(opening, put_key(sink, key));
    ab_json_line *line = line_of(sink);
    line->closing[line->depth++] = closing;
    line->comma = false;
}

static void begin_object(ab_probe_sink *sink, const char *key) { open_with(sink, key, '{', '}'); }
static void begin_array(ab_probe_sink *sink, const char *key) { open_with(sink, key, '[', ']'); }

static void end(ab_probe_sink *sink) {
    ab_json_line *line = line_of(sink);
    fputc(line->closing[--line->depth], line->out);
    line->comma = true;
}

static void text(ab_probe_sink *sink, const char *key, const char *value) {
    FILE *out = put_key(sink, key);
    if (value)
        ab_json_put_text(out, value);
    else
        fputs("null", out);
}

static void boolean(ab_probe_sink *sink, const char *key, bool value) {
    fputs(value ? "true" : "false", put_key(sink, key));
}
static void integer(ab_probe_sink *sink, const char *key, int64_t value) {
    fprintf(put_key(sink, key), "%" PRId64, value);
}

static void number(ab_probe_sink *sink, const char *key, double value) {
    FILE *out = put_key(sink, key);
    if (isfinite(value))
        fprintf(out, "%.17g", value);
    else
        fputs("null", out);
}

static void integers(ab_probe_sink *sink, const char *key, const int64_t *value, int64_t count) {
    begin_array(sink, key);
    for (int64_t i = 0; i < count; i++) integer(sink, NULL, value[i]);
    end(sink);
}

void ab_json_line_begin(ab_json_line *line, FILE *out, const char *event) {
    *line = (ab_json_line){.sink = {begin_object, begin_array, end, text, boolean, integer, number, integers},
                           .out = out};
    fputc('{', out);
    text(&line->sink, "event", event);
}

void ab_json_line_end(ab_json_line *line) { fputs("}\n", line->out); }
