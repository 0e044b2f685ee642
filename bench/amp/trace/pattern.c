/* Parses patterns of steps. */
#include "bench/amp/trace/scale_trace.h"
#include "kernels/core/number.h"
#include "kernels/core/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t most_steps = (int64_t)1 << 53;

/* Source of a text, for messages. */
typedef struct reader {
    const char *option, *file; /* file: NULL for the command line */
    const char *text;
    ab_pattern *pattern;
} reader;

static ab_status bad(const reader *r, const char *at, const char *expected) {
    char shown[16] = "the end";
    if (*at)
        ab_text_show(shown, sizeof shown, isprint((unsigned char)*at) ? "'%c'" : "byte 0x%02x",
                     (unsigned char)*at);
    return ab_fail(r->file ? AB_INPUT : AB_USAGE, "%s%s%s: expected %s, found %s at position %lld", r->option,
                   r->file ? " " : "", r->file ? r->file : "", expected, shown,
                   (long long)(at - r->text) + 1);
}

static ab_status append(const reader *r, const char *at, int64_t count, double value) {
    ab_pattern *p = r->pattern;
    if (count > most_steps - p->steps) return bad(r, at, "no more than 2^53 steps in all");
    p->steps += count;
    bool same = p->runs > 0 &&
                (p->run[p->runs - 1].value == value || (isnan(p->run[p->runs - 1].value) && isnan(value)));
    if (same) {
        p->run[p->runs - 1].count += count;
        return AB_OK;
    }
    if ((p->runs & (p->runs - 1)) == 0) {
        size_t room = p->runs ? 2 * (size_t)p->runs : 1;
        ab_pattern_run *grown = realloc(p->run, room * sizeof *grown);
        if (!grown) return ab_fail(AB_NO_MEMORY, "%s: out of memory", r->option);
        p->run = grown;
    }
    p->run[p->runs++] = (ab_pattern_run){count, value};
    return AB_OK;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Reads the count of "1000x" before a value; returns the start of the value, NULL if there is no count. */
static const char *read_count(const char *at, int64_t *count) {
    char *end;
    errno = 0;
    long long n = strtoll(at, &end, 10);
    if (end == at || !isdigit((unsigned char)*at) || *end != 'x' || errno || n <= 0) return NULL;
    if (n == 0 || (end - at == 1 && *at == '0')) return NULL; /* 0x10 is a number */
    *count = n;
    return end + 1;
}

static ab_status read_flags(reader *r) {
    bool comma = false; /* a value must follow */
    for (const char *at = r->text;;) {
        int64_t count = 1;
        while (is_blank(*at)) at++;
        if (!*at && !comma && r->pattern->runs) return AB_OK;
        const char *flag = read_count(at, &count);
        if (!flag) flag = at;
        if (*flag != '0' && *flag != '1') return bad(r, flag, "0, 1 or a run such as 1000x0");
        AB_TRY(append(r, at, count, *flag - '0'));
        at = flag + 1;
        while (is_blank(*at)) at++;
        comma = *at == ',';
        at += comma;
    }
}

static const char *read_number(const char *at, double *value) {
    char *end;
    *value = ab_number_read(at, &end);
    return end == at ? NULL : end;
}

static ab_status read_numbers(reader *r) {
    for (const char *at = r->text;;) {
        int64_t count = 1;
        double value = 0;
        while (is_blank(*at)) at++;
        if (!*at && r->pattern->runs) return AB_OK;
        const char *number = read_count(at, &count);
        if (!number) number = at;
        const char *end = read_number(number, &value);
        if (!end || value < 0) return bad(r, number, "a magnitude or a run such as 1000x0.5");
        AB_TRY(append(r, at, count, value));
        bool blank = is_blank(*end);
        for (at = end; is_blank(*at);) at++;
        if (*at && *at != ',' && !blank) return bad(r, at, "a comma");
        at += *at == ',';
    }
}

/* Reads a file, NUL-terminated. */
static ab_status read_file(const char *option, const char *path, char **text) {
    FILE *file = fopen(path, "rb");
    if (!file) return ab_fail(AB_INPUT, "%s: cannot open '%s': %s", option, path, strerror(errno));
    size_t used = 0, room = 1 << 16;
    char *data = malloc(room);
    for (size_t n; data && (n = fread(data + used, 1, room - used - 1, file)) > 0;) {
        used += n;
        if (room - used > 1) continue;
        char *grown = realloc(data, room *= 2);
        if (!grown) free(data);
        data = grown;
    }
    bool failed = ferror(file) != 0;
    fclose(file);
    if (!data) return ab_fail(AB_NO_MEMORY, "%s: '%s' does not fit into memory", option, path);
    if (failed) {
        free(data);
        return ab_fail(AB_INPUT, "%s: cannot read '%s'", option, path);
    }
    data[used] = '\0';
    *text = data;
    return AB_OK;
}

static ab_status read_pattern(const char *option, const char *text, ab_status (*read)(reader *r),
                              ab_pattern *pattern) {
    *pattern = (ab_pattern){NULL, 0, 0};
    char *owned = NULL;
    reader r = {option, text[0] == '@' ? text + 1 : NULL, text, pattern};
    if (r.file) AB_TRY(read_file(option, r.file, &owned));
    if (r.file) r.text = owned;
    ab_status status = read(&r);
    free(owned);
    if (status != AB_OK) ab_pattern_clear(pattern);
    return status;
}

ab_status ab_pattern_flags(const char *option, const char *text, ab_pattern *pattern) {
    return read_pattern(option, text, read_flags, pattern);
}

ab_status ab_pattern_numbers(const char *option, const char *text, ab_pattern *pattern) {
    return read_pattern(option, text, read_numbers, pattern);
}

void ab_pattern_clear(ab_pattern *pattern) {
    free(pattern->run);
    *pattern = (ab_pattern){NULL, 0, 0};
}
