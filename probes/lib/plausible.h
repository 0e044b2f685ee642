/* Whether what a journal holds may be: counts that no run can have, whose sums would overflow, are refused as
 * damage, so that the code that adds them up need not look. Says nothing of whether they are right. */
#ifndef AB_PROBES_LIB_PLAUSIBLE_H
#define AB_PROBES_LIB_PLAUSIBLE_H

#include "probes/lib/handle.h"

AB_BEGIN_DECLS

/* True if all counts are from 0 to 2^53, those of a single step to 2^40, and indices and texts are within
 * their arrays. */
bool ab_lib_course_may_be(const ab_lib_course *course);
bool ab_lib_scaled_may_be(const ab_lib_scaled *scaled);
bool ab_lib_tensor_may_be(const ab_lib_tensor *tensor);  /* of the run */
bool ab_lib_pending_may_be(const ab_lib_pending *shown); /* of a step */
bool ab_lib_ledger_may_be(const ab_lib_ledger *ledger);  /* of the run */
bool ab_lib_moves_may_be(const ab_lib_moves *moves);     /* of a step */
bool ab_lib_facts_may_be(const ab_lib_facts *facts);     /* of the run */

AB_END_DECLS

#endif
