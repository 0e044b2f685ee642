/* Lines for the record's warnings. */
#ifndef AB_PROBES_LIB_NOTES_H
#define AB_PROBES_LIB_NOTES_H

#include "probes/lib/handle.h"

AB_BEGIN_DECLS

/* Adds a line, which is kept once, to the record and its journal. Callers hold the lock. */
AB_MUST_CHECK ab_status ab_lib_note(ampprobe *p, const char *text);

AB_END_DECLS

#endif
