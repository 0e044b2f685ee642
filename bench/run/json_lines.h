/* Writes JSON, one object per line, without building a tree: worker events and probe reports. */
#ifndef AB_BENCH_RUN_JSON_LINES_H
#define AB_BENCH_RUN_JSON_LINES_H

#include "probes/probe.h"

#include <stdio.h>

AB_BEGIN_DECLS

typedef struct ab_json_line {
    ab_probe_sink sink; /* first: a probe writes through it */
    FILE *out;
    bool comma;
    int depth;
    char closing[16];
} ab_json_line;

/* Starts {"event": "<event>" on `out`. Keys follow through line->sink; ab_json_line_end closes everything and
 * ends the line. */
void ab_json_line_begin(ab_json_line *line, FILE *out, const char *event);
void ab_json_line_end(ab_json_line *line);

AB_END_DECLS

#endif
