/* Named facts that a caller states (ampprobe_fact): what it saw and no tensor shows. Kept by name and place,
 * so their number is bounded whatever the number of steps. */
#ifndef AB_PROBES_LIB_NAMED_FACTS_H
#define AB_PROBES_LIB_NAMED_FACTS_H

#include "probes/lib/handle.h"

AB_BEGIN_DECLS

/* AB_CONFIG if the name is none (small letters, digits and _), the place too long or the step negative. */
AB_MUST_CHECK ab_status ab_lib_fact_check(const char *name, const char *place, int64_t step);

/* Adds one statement that was checked. Beyond AB_LIB_FACTS places the statement is counted only. */
void ab_lib_fact_add(ampprobe *p, const char *name, const char *place, int64_t step, double value);

/* Writes the key "facts" into the open object. */
void ab_lib_facts_print(const ampprobe *p, ab_probe_sink *sink);

AB_END_DECLS

#endif
