/* The origin of inf and nan (cells[].probes.origin of a document) for people. */
#ifndef AB_REPORTS_RENDER_ORIGIN_H
#define AB_REPORTS_RENDER_ORIGIN_H

#include <cjson/cJSON.h>
#include <stdio.h>

/* For every cell whose first unexpected value that is no number was located: where, why, how large that
 * tensor had been, and where it went. Nothing for other cells. */
void ab_origin_print(const cJSON *document, FILE *out);

#endif
