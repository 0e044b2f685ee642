/* Where a command writes a document: the file that an option names, or standard output. */
#ifndef AB_REPORTS_RECORD_OUTPUT_H
#define AB_REPORTS_RECORD_OUTPUT_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdio.h>

AB_BEGIN_DECLS

/* The file `path`, emptied; standard output for "-". NULL with errno set if it cannot be opened. Ends with
 * ab_output_close. */
AB_MUST_CHECK FILE *ab_output_open(const char *path);

/* Closes `out`, but leaves standard output open. False if anything written to it so far is known to be
 * lost. */
AB_MUST_CHECK bool ab_output_close(FILE *out);

AB_END_DECLS

#endif
