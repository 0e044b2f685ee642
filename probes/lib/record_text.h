/* The record of a probe that was not closed: its document brought up to the last step of its journal. Also
 * for the program, which reads such records (bench/main.c). */
#ifndef AB_PROBES_LIB_RECORD_TEXT_H
#define AB_PROBES_LIB_RECORD_TEXT_H

#include "include/ampprobe.h"
#include "kernels/core/status.h"

AB_BEGIN_DECLS

/* *text: the document as the journal beside `path` has it, owned by the caller (free); NULL: there is no
 * journal. AB_INPUT: the journal is of another version, or damaged before its first step. Changes no file. */
AB_MUST_CHECK ab_status ab_lib_record_text(const char *path, char **text);

/* Writes that document in place of the one at `path`, and removes the journal. AB_OUTPUT if a process still
 * holds it open. */
AB_MUST_CHECK ab_status ab_lib_record_recover(const char *path);

AB_END_DECLS

#endif
