/* Steps that a caller has not handed over yet, in memory that is a file: PATH.latest. A process that is
 * killed leaves them there, and who reads the journal reads them after it.
 *
 * The file: a head, which says how many steps the probe had taken before the first of these, and an array of
 * ampprobe_step_facts. One whose `seconds` is above 0 is complete. Written by stores alone: no call is made
 * for a step. */
#ifndef AB_PROBES_LIB_LATEST_H
#define AB_PROBES_LIB_LATEST_H

#include "probes/lib/handle.h"

AB_BEGIN_DECLS

enum { AB_LIB_MOST_LATEST = 4096 };

/* Makes room for `count` steps, all 0. NULL where no file can be such memory: the folder is full, or its file
 * system may need room for a page that is there already, and ends a process that it has none for. */
ampprobe_step_facts *ab_lib_latest_make(ampprobe *p, int32_t count);

/* Steps have been taken. `facts`, `count`: if those are of this memory, their places are free again. */
void ab_lib_latest_taken(ampprobe *p, ampprobe_step_facts *facts, int32_t count);

/* Removes the file; the memory stays, as the caller may write to it until the process ends. */
void ab_lib_latest_end(const char *path);

/* Adds the steps of the file beside the document `path` to a probe that was filled from its journal. */
void ab_lib_latest_read(const char *path, ampprobe *p);

AB_END_DECLS

#endif
