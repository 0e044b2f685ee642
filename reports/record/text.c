/* Sanitised strings and number formats. Independent of documents and layouts. */
#include "reports/record/text.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool starts_character(char c) { return ((unsigned char)c & 0xc0) != 0x80; }

/* Marks truncated text: line[size], filled to `used` bytes, ends in "..." as far as there is room. */
static void mark_cut(char *line, size_t used, size_t size) {
    const size_t dots = size - 1 < 3 ? size - 1 : 3;
    if (used + dots > size - 1) used = size - 1 - dots;
    while (used > 0 && !starts_character(line[used])) used--;
    memset(line + used, '.', dots);
    line[used + dots] = '\0';
}

char *ab_text_clean(char *line, size_t size, const char *source) {
    size_t used = 0;
    while (*source && used + 1 < size) {
        unsigned point = 0;
        int length = ab_text_decode(source, &point);
        bool first = used == 0 || line[used - 1] == ' '; /* wrapping may begin a line here */
        if (length == 0 || ab_text_is_hidden(point) || ab_text_is_command(source, first)) {
            line[used++] = '?';
        } else {
            if (used + (size_t)length >= size) break;
            memcpy(line + used, source, (size_t)length);
            used += (size_t)length;
        }
        source += length > 0 ? length : 1;
    }
    line[used] = '\0';
    if (*source) mark_cut(line, used, size);
    return line;
}

int ab_text_width(const char *line) {
    int width = 0;
    for (; *line; line++) width += starts_character(*line);
    return width;
}

/* Returns the start of the character in column `column`. */
static char *column_start(char *line, int column) {
    for (; *line; line++)
        if (starts_character(*line) && column-- == 0) break;
    return line;
}

void ab_text_elide(char *line, int width) {
    int have = ab_text_width(line);
    if (have <= width) return;
    if (width < 5) {
        *column_start(line, width > 0 ? width : 0) = '\0';
        return;
    }
    const int head = (width - 2) / 2;
    ab_text_elide_to(line, head, width - 2 - head);
}

void ab_text_elide_to(char *line, int head, int tail) {
    const int have = ab_text_width(line);
    if (have <= head + 2 + tail) return;
    char *gap = column_start(line, head), *rest = column_start(line, have - tail);
    memmove(gap + 2, rest, strlen(rest) + 1); /* rest is at least two columns after gap */
    gap[0] = gap[1] = '.';
}

/* `suffix` is a string literal. */
static char *fixed(char *text, double value, int decimals, const char *suffix) {
    if (isfinite(value))
        ab_text_show(text, AB_TEXT_NUMBER, "%.*f%s", decimals, value, suffix);
    else
        memcpy(text, "-", 2);
    return text;
}

static char *rounded(char *text, double value, const char *suffix) {
    if (isfinite(value))
        ab_text_show(text, AB_TEXT_NUMBER, "%.1e%s", value, suffix);
    else
        memcpy(text, "-", 2);
    return text;
}

char *ab_text_loss(char *text, double loss) {
    if (fabs(loss) >= 1e5) return rounded(text, loss, "");
    return fixed(text, loss, fabs(loss) < 100 ? 4 : 2, "");
}

char *ab_text_gap(char *text, double gap) {
    double size = fabs(gap);
    if (!isfinite(gap)) return fixed(text, gap, 0, "");
    bool is_short = gap == 0 || (size >= 9.5e-4 && size < 1e4);
    ab_text_show(text, AB_TEXT_NUMBER, is_short ? "%+.4f" : "%+.1e", gap == 0 ? 0.0 : gap);
    return text;
}

char *ab_text_percent(char *text, double share) {
    double percent = 100 * share;
    if (percent > 0 && percent < 0.01) {
        ab_text_show(text, AB_TEXT_NUMBER, "<0.01");
        return text;
    }
    return fixed(text, percent, percent == 0 ? 0 : percent < 9.995 ? 2 : 1, "");
}

char *ab_text_percent_within(char *text, double share, double side) {
    const double percent = 100 * share, around = 100 * side;
    const int decimals = around < 0.995 ? 2 : around < 9.95 ? 1 : 0;
    if (around < 0.005) return ab_text_percent(text, share);
    if (isfinite(around))
        return ab_text_exact(text, AB_TEXT_NUMBER, "%.*f±%.*f", decimals, percent, decimals, around);
    ab_text_append(ab_text_percent(text, share), AB_TEXT_NUMBER, "±?");
    return text;
}

char *ab_text_rate(char *text, double rate) {
    if (rate >= 1e9) return rounded(text, rate, "");
    return fixed(text, rate, rate < 999.5 ? 1 : 0, "");
}

char *ab_text_factor(char *text, double factor) {
    if (factor >= 1e5) return rounded(text, factor, "x");
    return fixed(text, factor, factor < 99.995 ? 2 : 0, "x");
}

char *ab_text_mib(char *text, double bytes) {
    double mib = bytes / (1024 * 1024);
    if (mib >= 1e9) return rounded(text, mib, "");
    return fixed(text, mib, mib < 99.995 ? 2 : mib < 999.95 ? 1 : 0, "");
}

char *ab_text_count(char *text, double count) {
    return count < 1e7 ? fixed(text, count, 0, "") : rounded(text, count, "");
}

char *ab_text_scale(char *text, double scale) {
    int exponent;
    if (!isfinite(scale)) return fixed(text, scale, 0, "");
    bool is_power = scale >= 131072 && frexp(scale, &exponent) == 0.5;
    if (is_power)
        ab_text_show(text, AB_TEXT_NUMBER, "2^%d", exponent - 1);
    else
        ab_text_show(text, AB_TEXT_NUMBER, "%g", scale);
    return text;
}
