/* Census and what-if of the tensors in files: the computation of `ampbench inspect`. Output formats:
 * reports/inspect.
 *
 * A tensor is counted in one pass; its census is used and discarded and only one small row is kept, so memory
 * does not grow with the size of the tensors. Results do not depend on the number of threads. */
#ifndef AB_BENCH_INSPECT_INSPECT_H
#define AB_BENCH_INSPECT_INSPECT_H

#include "bench/tensorfile/tensorfile.h"
#include "reports/inspect/inspection.h"

#include <stdio.h>

AB_BEGIN_DECLS

/* ---- what to do ------------------------------------------------------------------------------ */

typedef struct ab_inspect_request {
    const char **file; /* borrowed, like all texts here */
    int files;
    const char **pattern; /* names to select, with * and ?; none: all */
    int patterns;
    ab_inspect_question question;
} ab_inspect_request;

/* ---- which tensors --------------------------------------------------------------------------- */

typedef struct ab_inspect_pick {
    const ab_tensorfile *file; /* borrowed */
    const ab_tensor_entry *entry;
} ab_inspect_pick;

/* The selected tensors: readable ones in pick[0 .. picks), followed by `skipped` ones that are not
 * floating-point. */
typedef struct ab_inspect_selection {
    ab_tensorfile **file; /* owned */
    int files;
    ab_inspect_pick *pick; /* owned */
    int picks, skipped;
} ab_inspect_selection;

/* Opens the request's files and applies its patterns. AB_INPUT for an invalid file or if no readable tensor
 * is left, AB_CONFIG with similar names for a pattern that matches nothing. The caller frees the selection,
 * also after a failure. */
AB_MUST_CHECK ab_status ab_inspect_select(const ab_inspect_request *request, ab_inspect_selection *selection);
void ab_inspect_selection_free(ab_inspect_selection *selection);

/* ---- counting -------------------------------------------------------------------------------- */

/* Counts one tensor, on the threads of ab_parallel_start. */
AB_MUST_CHECK ab_status ab_inspect_tensor_count(const ab_inspect_pick *pick, ab_inspect_count *count);

/* into += from. */
void ab_inspect_merge(ab_inspect_count *into, const ab_inspect_count *from);

/* ---- predicting ------------------------------------------------------------------------------ */

/* Computes the limits of every requested format at every scale that reports list. Errors: those of
 * ab_whatif_find_limits. */
AB_MUST_CHECK ab_status ab_inspect_find_limits(const ab_inspect_question *question,
                                               ab_inspect_limits *limits);

/* ---- results --------------------------------------------------------------------------------- */

/* Counts all picks and fills `result`, which borrows from request and selection and which the caller frees
 * with ab_inspect_result_free, also after a failure. If `json` is not NULL, also writes the JSON form to it.
 */
AB_MUST_CHECK ab_status ab_inspect_run(const ab_inspect_request *request,
                                       const ab_inspect_selection *selection, FILE *json,
                                       ab_inspect_result *result);
void ab_inspect_result_free(ab_inspect_result *result);

AB_END_DECLS

#endif
