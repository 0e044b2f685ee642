/* Output target of a command: the file named by an option, or standard output. */
#ifndef AB_REPORTS_RECORD_OUTPUT_H
#define AB_REPORTS_RECORD_OUTPUT_H

#include "kernels/files/outfile.h"

AB_BEGIN_DECLS

/* Opens the file that `option` names as ab_outfile_open does; "-" is standard output. AB_OUTPUT also if a run
 * that has not ended writes this file. Close with ab_output_close. */
AB_MUST_CHECK ab_status ab_output_open(const char *option, const char *path, ab_outfile *out);

/* Puts the file in its place if `status` is AB_OK, else leaves what was there. Returns `status` or the first
 * failure. */
AB_MUST_CHECK ab_status ab_output_close(const char *option, ab_outfile *out, ab_status status);

AB_END_DECLS

#endif
