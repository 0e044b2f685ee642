/* The course of a run: adding a step, with what was shown in it, to what is kept. The same functions add
 * steps as they happen and as they are read back from a journal, so both give the same record. Callers hold
 * the lock. */
#ifndef AB_PROBES_LIB_STEPS_H
#define AB_PROBES_LIB_STEPS_H

#include "probes/lib/handle.h"

AB_BEGIN_DECLS

/* What is wrong with a step's facts, as a sentence of the caller's argument; NULL: nothing. */
const char *ab_lib_step_wrong(const ampprobe_step_facts *f);

/* An empty course; `begin`: of memory that is zero, whose pages are not touched before they are used. */
void ab_lib_course_init(ab_lib_course *course);
void ab_lib_course_begin(ab_lib_course *course);

/* Whether weights stayed as they were at this step: as the caller says, else as the finite check says. */
bool ab_lib_skipped(const ab_lib_step *step);

/* Adds a step's facts; then, with the axes' columns made ready for it, tensors and moves of the same step may
 * follow. */
void ab_lib_fold_step(ampprobe *p, const ab_lib_step *step);

/* Adds what was shown of a tensor to the step of `group` that was folded last. */
void ab_lib_fold_tensor(ampprobe *p, int32_t tensor, int32_t group, const ab_lib_pending *shown);

/* Adds to the ledger of a parameter. */
void ab_lib_fold_moves(ampprobe *p, int32_t ledger, int32_t group, const ab_lib_moves *moves);

AB_END_DECLS

#endif
