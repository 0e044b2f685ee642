/* fp64 reference of ops: one element of an op's result, recomputed in double from the op's inputs, to show
 * its value without range limits. Plain sums in memory order, one element at a time; slow, for the few
 * elements that need an explanation.
 *
 * Rows of element64.def: all ops of ops.def. Finite results beyond double's range (exp) are clamped to its
 * largest number, so that inf means mathematically infinite. */
#ifndef AB_PROBES_ELEMENT64_ELEMENT64_H
#define AB_PROBES_ELEMENT64_ELEMENT64_H

#include "probes/watch.h"

#include <math.h>
#include <string.h>

AB_BEGIN_DECLS

/* Tensors that an op writes: output, input gradients, parameter gradients. */
enum {
    AB_WROTE_OUT,
    AB_WROTE_DIN,
    AB_WROTE_DPARAM = AB_WROTE_DIN + AB_MAX_INPUTS,
    AB_WROTE_COUNT = AB_WROTE_DPARAM + AB_MAX_PARAMS
};

typedef struct ab_element64 {
    double value;
    double largest; /* magnitude of all terms, products and partial sums */
} ab_element64;

/* One element at a time or, if elements share most of their work, several at once (forward and backward are
 * NULL then). All may return false: too much work, or out of memory. */
typedef struct ab_element64_kind {
    const ab_op *op;
    bool (*forward)(const ab_op_run *run, int64_t i, ab_element64 *result);
    bool (*backward)(const ab_op_run *run, int wrote, int64_t i, ab_element64 *result);
    bool (*several)(const ab_op_run *run, int wrote, const int64_t *place, int n, ab_element64 *result);
} ab_element64_kind;

/* Element i of what `run` wrote; false if no reference could be computed. */
bool ab_element64_of(const ab_op_run *run, int wrote, int64_t i, ab_element64 *result);

/* The elements place[0] to place[n - 1], in ascending order; returns how many of them were computed, from the
 * first on. */
int ab_elements64_of(const ab_op_run *run, int wrote, const int64_t *place, int n, ab_element64 *result);

#define AB_REFERENCE_ELEMENT(id) extern const ab_element64_kind ab_element64_##id;
#include "probes/element64/element64.def"
#undef AB_REFERENCE_ELEMENT

/* ---- helpers of the op families -------------------------------------------------------------- */

enum { AB_ELEMENT64_WORK = 1 << 26 }; /* maximum number of terms of one element */

/* Format of tensors that hold doubles, for running ops by their fp64 reference only
 * (bench/experiments/double_cell.h). Supported by ab_read64 only. */
extern const ab_format ab_format_stored64;

/* Returns an element as double; also ids. */
double ab_read64(const ab_tensor *tensor, int64_t i);

/* An attribute of the op; NULL if it has none of that name. As a number, integer or bool: 0 if it has
 * none. */
const void *ab_attr64(const ab_op_run *run, const char *name);
double ab_number64(const ab_op_run *run, const char *name);
int64_t ab_integer64(const ab_op_run *run, const char *name);
bool ab_boolean64(const ab_op_run *run, const char *name);

/* Whether the op runs in training mode: batch statistics, dropout. */
static inline bool ab_is_training64(const ab_op_run *run) { return !run->exec || run->exec->training; }

/* Dropout factor of element i at rate p: 0 or 1 / (1 - p). If the host does not know the step (steps counted
 * by a device), elements count as kept: non-finite ones were. */
double ab_dropout_mask64(const ab_op_run *run, double p, int64_t i);

/* Element of `from` that element i of `to` reads under broadcasting: shapes are aligned at the last
 * dimension, dimensions of 1 are repeated. */
int64_t ab_broadcast64(const ab_shape *from, const ab_shape *to, int64_t i);

/* Updates the largest magnitude with an intermediate value. */
static inline void ab_track_max64(ab_element64 *e, double x) {
    if (fabs(x) > e->largest) e->largest = fabs(x);
}

/* Adds a term to the value and updates the largest magnitude with the partial sum. */
static inline void ab_add64(ab_element64 *e, double term) {
    e->value += term;
    ab_track_max64(e, term);
    ab_track_max64(e, e->value);
}

/* Size of the last dimension. */
static inline int64_t ab_last_dim64(const ab_tensor *tensor) {
    return tensor->shape.dim[tensor->shape.ndim - 1];
}

AB_END_DECLS

#endif
