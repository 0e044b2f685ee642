/* Writes a JSON document to a stream, as it is reported: an ab_probe_sink, and functions for what a sink has
 * not. Nothing is kept but the nesting. Numbers in the "C" locale are the caller's business (uselocale). */
#ifndef AB_PROBES_LIB_JSON_WRITE_H
#define AB_PROBES_LIB_JSON_WRITE_H

#include "probes/probe.h"

#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_LIB_JSON_DEPTH = 16 };

/* `sink` is first: a pointer to it is one to the writer. */
typedef struct ab_lib_writer {
    ab_probe_sink sink;
    FILE *out; /* borrowed */
    int depth;
    bool array[AB_LIB_JSON_DEPTH], any[AB_LIB_JSON_DEPTH];
} ab_lib_writer;

/* A writer at the beginning of a document. */
void ab_lib_writer_init(ab_lib_writer *writer, FILE *out);

/* A member whose value is JSON text already (checked). NULL: null. */
void ab_lib_write_json(ab_lib_writer *writer, const char *key, const char *value);

/* A member of an object whose key, without its quotes, is JSON text already, too. */
void ab_lib_write_member(ab_lib_writer *writer, const char *key, const char *value);

AB_END_DECLS

#endif
