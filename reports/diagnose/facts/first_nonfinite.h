/* The first op of a cell that produced a non-finite value from finite inputs. */
#ifndef AB_REPORTS_DIAGNOSE_FACTS_FIRST_NONFINITE_H
#define AB_REPORTS_DIAGNOSE_FACTS_FIRST_NONFINITE_H

#include "kernels/ops/traits/op_traits.h"
#include "reports/diagnose/facts/facts.h"

AB_BEGIN_DECLS

enum { AB_FACTS_POINTER = 120 };

/* The first op that produced a non-finite value from finite inputs. */
typedef struct ab_first_nonfinite {
    bool known;
    const char *op, *type, *pass, *by; /* "": not recorded; pass: "forward", "backward" or "update" */
    const char *tensor;                /* of the op: "out", "weight", "in0.grad", ...; or "" */
    const char *cause;          /* from the origin probe: "range_overflow", "mathematics", ...; or "" */
    const char *format;         /* of the written value; or "" */
    const char *place;          /* of the op in somebody's source, file:line; or "" */
    int step;                   /* AB_STEP_UNKNOWN: not recorded */
    double read_largest, value; /* value: its largest in double; 0 or NAN: not recorded */
    bool own; /* not a consequence of something earlier: in the first step, or near the limit in O0 too, or
                 from a stored 0 */
    bool to_come;                   /* seen in O0 only; the cell stopped short of it */
    char pointer[AB_FACTS_POINTER]; /* relative to the cell, or to O0 if to_come */
} ab_first_nonfinite;

/* Read from probes.origin, else from the census of activations, else from nan_provenance. Overflows expected
 * of a dynamic loss scale are ignored, unless `expected` is true and there is nothing else. */
ab_first_nonfinite ab_first_nonfinite_of(const cJSON *cell, const char *half, bool expected);

/* The non-finite values are running statistics, which are no weights: training computes them from its
 * batches.
 */
bool ab_first_is_statistics(const ab_first_nonfinite *first);

/* Its values are finite in double and beyond fp32's range: no half format is to blame. */
bool ab_first_is_beyond_fp32(const ab_first_nonfinite *first);

/* Traits of first->op; 0 if not recorded. */
ab_traits ab_first_traits(const ab_facts *facts, const ab_first_nonfinite *first);

/* Ops without a finite value at 0. */
enum { AB_TRAITS_OF_ZERO = AB_TRAIT_logarithm | AB_TRAIT_quotient | AB_TRAIT_root };

AB_END_DECLS

#endif
