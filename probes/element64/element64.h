/* One element of what an op has just written, computed again in double from what the op read: what it would
 * have been in an arithmetic of more range. Plain sums in memory order, one element at a time; slow, for the
 * few elements that need an explanation.
 *
 * Ops are rows of element64.def: all of ops.def. Values beyond double's range count as its largest number
 * where the result is a number (exp), so that an infinity here means mathematics. */
#ifndef AB_PROBES_ELEMENT64_ELEMENT64_H
#define AB_PROBES_ELEMENT64_ELEMENT64_H

#include "probes/watch.h"

#include <math.h>
#include <string.h>

AB_BEGIN_DECLS

/* Tensors that an op writes: the output; gradients of inputs; gradients of parameters. */
enum {
    AB_WROTE_OUT,
    AB_WROTE_DIN,
    AB_WROTE_DPARAM = AB_WROTE_DIN + AB_MAX_INPUTS,
    AB_WROTE_COUNT = AB_WROTE_DPARAM + AB_MAX_PARAMS
};

typedef struct ab_element64 {
    double value;
    double largest; /* magnitude of any term, product or partial sum on the way */
} ab_element64;

/* One element at a time or, where elements share most of their work, several at once (forward and backward
 * are NULL then). All may say false: too much work, or no memory. */
typedef struct ab_element64_kind {
    const ab_op *op;
    bool (*forward)(const ab_op_run *run, int64_t i, ab_element64 *result);
    bool (*backward)(const ab_op_run *run, int wrote, int64_t i, ab_element64 *result);
    bool (*several)(const ab_op_run *run, int wrote, const int64_t *place, int n, ab_element64 *result);
} ab_element64_kind;

/* Element i of what `run` wrote; false if there is no second opinion. */
bool ab_element64_of(const ab_op_run *run, int wrote, int64_t i, ab_element64 *result);

/* The elements place[0] to place[n - 1], in rising order; returns how many of them, from the first on, there
 * are second opinions of. */
int ab_elements64_of(const ab_op_run *run, int wrote, const int64_t *place, int n, ab_element64 *result);

#define AB_SECOND_OPINION(id) extern const ab_element64_kind ab_element64_##id;
#include "probes/element64/element64.def"
#undef AB_SECOND_OPINION

/* ---- helpers of the families ----------------------------------------------------------------- */

enum { AB_ELEMENT64_WORK = 1 << 26 }; /* terms of one element, at most */

/* The format of tensors that hold doubles, for those who run ops on them by second opinions alone
 * (bench/experiments/double_cell.h). Only ab_read64 knows it. */
extern const ab_format ab_format_stored64;

/* An element as double; ids too. */
double ab_read64(const ab_tensor *tensor, int64_t i);

/* An attribute of a run's op; NULL if it has none of that name. As a number, integer or truth: 0 if it has
 * none. */
const void *ab_attr64(const ab_op_run *run, const char *name);
double ab_number64(const ab_op_run *run, const char *name);
int64_t ab_integer64(const ab_op_run *run, const char *name);
bool ab_truth64(const ab_op_run *run, const char *name);

/* Whether the op trains: batch statistics, dropout. */
static inline bool ab_trains64(const ab_op_run *run) { return !run->exec || run->exec->training; }

/* What dropout at rate p multiplies element i by: 0 or 1 / (1 - p). Where the host does not know the step
 * (steps that a device counts) elements count as kept: those that are no numbers were. */
double ab_dropout_mask64(const ab_op_run *run, double p, int64_t i);

/* Element of `from` that element i of `to` reads: shapes are aligned at the end, ones repeated. */
int64_t ab_broadcast64(const ab_shape *from, const ab_shape *to, int64_t i);

/* Notes a number on the way to the result: the largest magnitude is kept. */
static inline void ab_see64(ab_element64 *e, double x) {
    if (fabs(x) > e->largest) e->largest = fabs(x);
}

/* Adds a term to the value, and notes the partial sum. */
static inline void ab_add64(ab_element64 *e, double term) {
    e->value += term;
    ab_see64(e, term);
    ab_see64(e, e->value);
}

/* Size of the last dimension. */
static inline int64_t ab_last64(const ab_tensor *tensor) { return tensor->shape.dim[tensor->shape.ndim - 1]; }

AB_END_DECLS

#endif
