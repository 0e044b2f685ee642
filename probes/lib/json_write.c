/* A sink that prints. */
#include "probes/lib/json_write.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"

#include <inttypes.h>
#include <math.h>

static ab_lib_writer *of(ab_probe_sink *sink) { return (ab_lib_writer *)(void *)sink; }

/* What comes before a value: a comma, a line end where lists of objects are long, and the key. */
static void put_key(ab_lib_writer *w, const char *key) {
    if (w->any[w->depth]) fputs(w->depth <= 4 ? ",\n" : ", ", w->out);
    w->any[w->depth] = true;
    if (!key || w->array[w->depth]) return;
    ab_json_put_text(w->out, key);
    fputs(": ", w->out);
}

static void begin(ab_lib_writer *w, const char *key, bool array) {
    put_key(w, key);
    fputc(array ? '[' : '{', w->out);
    if (w->depth + 1 < AB_LIB_JSON_DEPTH) w->depth++;
    w->array[w->depth] = array;
    w->any[w->depth] = false;
}

static void begin_object(ab_probe_sink *self, const char *key) { begin(of(self), key, false); }

static void begin_array(ab_probe_sink *self, const char *key) { begin(of(self), key, true); }

static void end(ab_probe_sink *self) {
    ab_lib_writer *w = of(self);
    fputc(w->array[w->depth] ? ']' : '}', w->out);
    w->depth--;
}

static void text(ab_probe_sink *self, const char *key, const char *value) {
    put_key(of(self), key);
    if (value)
        ab_json_put_text(of(self)->out, value);
    else
        fputs("null", of(self)->out);
}

static void boolean(ab_probe_sink *self, const char *key, bool value) {
    put_key(of(self), key);
    fputs(value ? "true" : "false", of(self)->out);
}

static void integer(ab_probe_sink *self, const char *key, int64_t value) {
    put_key(of(self), key);
    fprintf(of(self)->out, "%" PRId64, value);
}

static void number(ab_probe_sink *self, const char *key, double value) {
    char digits[AB_TEXT_ROUND_TRIP];
    put_key(of(self), key);
    fputs(isfinite(value) ? ab_text_round_trip(digits, value) : "null", of(self)->out);
}

static void integers(ab_probe_sink *self, const char *key, const int64_t *value, int64_t count) {
    ab_lib_writer *w = of(self);
    put_key(w, key);
    fputc('[', w->out);
    for (int64_t i = 0; i < count; i++) {
        if (i > 0) fputs(", ", w->out);
        fprintf(w->out, "%" PRId64, value[i]);
    }
    fputc(']', w->out);
}

void ab_lib_writer_init(ab_lib_writer *writer, FILE *out) {
    *writer = (ab_lib_writer){
        .sink = {begin_object, begin_array, end, text, boolean, integer, number, integers}, .out = out};
    writer->array[0] = true;
}

void ab_lib_write_json(ab_lib_writer *writer, const char *key, const char *value) {
    put_key(writer, key);
    fputs(value ? value : "null", writer->out);
}

void ab_lib_write_member(ab_lib_writer *writer, const char *key, const char *value) {
    put_key(writer, NULL);
    fputc('"', writer->out);
    fputs(key, writer->out);
    fputs("\": ", writer->out);
    fputs(value, writer->out);
}
