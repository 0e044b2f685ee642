/* Probes of libampprobe made and freed. */
#ifndef AB_PROBES_LIB_NEW_H
#define AB_PROBES_LIB_NEW_H

#include "include/ampprobe.h"
#include "kernels/core/status.h"

AB_BEGIN_DECLS

/* An empty probe for `path`, which writes nothing yet; NULL in *probe: out of memory. Freed by ab_lib_free
 * also after a failure. */
AB_MUST_CHECK ab_status ab_lib_new(const char *path, ampprobe **probe);
void ab_lib_free(ampprobe *probe); /* NULL is a no-op; closes no file */

AB_END_DECLS

#endif
