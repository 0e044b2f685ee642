/* Writing one JSON string. */
#include "kernels/core/json_text.h"

#include "kernels/core/show.h"

#include <string.h>

static void put_escape(FILE *out, unsigned point) {
    if (point > 0xffff) {
        fprintf(out, "\\u%04x", 0xd800 + ((point - 0x10000) >> 10));
        point = 0xdc00 + ((point - 0x10000) & 0x3ff);
    }
    fprintf(out, "\\u%04x", point);
}

void ab_json_put_text(FILE *out, const char *text) {
    static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    fputc('"', out);
    while (*text) {
        unsigned point = 0xfffd; /* stands for a byte that is not UTF-8 */
        const int length = ab_text_decode(text, &point);
        const char *at = length == 1 ? strchr(plain, *text) : NULL;
        if (at)
            fprintf(out, "\\%c", letter[at - plain]);
        else if (length == 0)
            fputs("\xef\xbf\xbd", out);
        else if (ab_text_is_hidden(point) || ab_text_is_command(text, false))
            put_escape(out, point);
        else
            fwrite(text, 1, (size_t)length, out);
        text += length > 0 ? length : 1;
    }
    fputc('"', out);
}
