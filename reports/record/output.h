/* Output target of a command: the file named by an option, or standard output. */
#ifndef AB_REPORTS_RECORD_OUTPUT_H
#define AB_REPORTS_RECORD_OUTPUT_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdio.h>

AB_BEGIN_DECLS

/* Opens `path` for writing, truncated; returns standard output for "-". NULL with errno set on failure.
 * Close with ab_output_close. */
AB_MUST_CHECK FILE *ab_output_open(const char *path);

/* Closes `out`, but leaves standard output open. Returns false if a write error has occurred on it. */
AB_MUST_CHECK bool ab_output_close(FILE *out);

AB_END_DECLS

#endif
