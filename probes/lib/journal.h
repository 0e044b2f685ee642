/* The journal of a probe: what it holds, as one snapshot, and every step since. It lies beside the document,
 * at PATH.steps, and goes when the probe is closed.
 *
 * Records: type, length, a digest of the bytes (FNV-1a 64), the bytes. A record that is torn or damaged ends
 * the journal. Structures are written as they are in memory, so a journal is read by the same build on the
 * same kind of machine only; its first record says which. A step is one record, written by one write(): a
 * process that is killed leaves all steps but the one that was being written. Steps that the caller hands
 * over together are in ab_lib_latest until then, if it has that memory. */
#ifndef AB_PROBES_LIB_JOURNAL_H
#define AB_PROBES_LIB_JOURNAL_H

#include "probes/lib/handle.h"

AB_BEGIN_DECLS

/* Writes a snapshot as a new journal in place of the old one. AB_OUTPUT names the file. */
AB_MUST_CHECK ab_status ab_lib_journal_snapshot(ampprobe *p);

/* Writes what was described, set or noted. */
AB_MUST_CHECK ab_status ab_lib_journal_thing(ampprobe *p, int32_t thing);
AB_MUST_CHECK ab_status ab_lib_journal_key(ampprobe *p, const char *key, const char *value);
AB_MUST_CHECK ab_status ab_lib_journal_note(ampprobe *p, const char *note);

/* Writes a fact that was checked. */
AB_MUST_CHECK ab_status ab_lib_journal_fact(ampprobe *p, const char *name, const char *place, int64_t step,
                                            double value);

/* Writes a step with what is pending for it. */
AB_MUST_CHECK ab_status ab_lib_journal_step(ampprobe *p, const ab_lib_step *step);

/* From here on records stay in memory; released, they are written at once. No snapshot in between. */
void ab_lib_journal_hold(ampprobe *p);
AB_MUST_CHECK ab_status ab_lib_journal_release(ampprobe *p);

/* Closes the journal; `remove`: and removes its file. */
void ab_lib_journal_end(ampprobe *p, bool remove);

/* Whether what waits of a tensor belongs to a step of this group. */
bool ab_lib_belongs(const ampprobe *p, int32_t tensor, int32_t group);

/* Fills an empty probe from the journal of the document `path`. *found: false if there is none. AB_INPUT: no
 * journal of this library, or of another build. */
AB_MUST_CHECK ab_status ab_lib_journal_read(const char *path, ampprobe *p, bool *found);

AB_END_DECLS

#endif
