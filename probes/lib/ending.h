/* The end of a step: what was shown of it becomes part of the record and of the journal. A step some of whose
 * values a GPU is still counting is held, and taken when the next step shows or ends something; by then the
 * counts are there, and the loop need not wait for them. Callers hold the lock. */
#ifndef AB_PROBES_LIB_ENDING_H
#define AB_PROBES_LIB_ENDING_H

#include "probes/lib/handle.h"

AB_BEGIN_DECLS

/* Ends a step whose facts are checked; sets facts->plan. */
AB_MUST_CHECK ab_status ab_lib_end_step(ampprobe *p, ampprobe_step_facts *facts);

/* Takes the steps that are held, waiting for their counts. */
AB_MUST_CHECK ab_status ab_lib_catch_up(ampprobe *p);

AB_END_DECLS

#endif
