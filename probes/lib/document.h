/* The document of a probe: reports/schema/result-1.schema.json, one cell. */
#ifndef AB_PROBES_LIB_DOCUMENT_H
#define AB_PROBES_LIB_DOCUMENT_H

#include "probes/lib/handle.h"

AB_BEGIN_DECLS

/* Writes the whole document to a stream. The caller checks ferror(out). */
void ab_lib_document_print(const ampprobe *p, FILE *out);

/* Writes it to the probe's path, which an old one or this one holds at any time. AB_OUTPUT names the file. */
AB_MUST_CHECK ab_status ab_lib_document_write(const ampprobe *p);

AB_END_DECLS

#endif
