/* One element of what an op has just written, computed again in double from what the op read: what it would have been in an
 * arithmetic of more range. Plain sums in memory order, one element at a time; slow, for the few elements that need an explanation.
 *
 * Ops are rows of element64.def; an op without a row has no second opinion. Values beyond double's range count as its largest number
 * where the result is a number (exp), so that an infinity here means mathematics. */
#ifndef AB_PROBES_ELEMENT64_H
#define AB_PROBES_ELEMENT64_H

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

/* Both may say false: not for these attributes, or too much work. */
typedef struct ab_element64_kind {
    const ab_op *op;
    bool (*forward)(const ab_op_run *run, int64_t i, ab_element64 *result);
    bool (*backward)(const ab_op_run *run, int wrote, int64_t i, ab_element64 *result);
} ab_element64_kind;

/* Element i of what `run` wrote; false if there is no second opinion. */
bool ab_element64_of(const ab_op_run *run, int wrote, int64_t i, ab_element64 *result);

#define AB_SECOND_OPINION(id) extern const ab_element64_kind ab_element64_##id;
#include "probes/element64.def"
#undef AB_SECOND_OPINION

/* ---- helpers of the families ------------------------------------------------------------------------------- */

enum { AB_ELEMENT64_WORK = 1 << 26 }; /* terms of one element, at most */

/* An element as double; ids too. */
double ab_read64(const ab_tensor *tensor, int64_t i);

/* An attribute of a run's op; NULL if it has none of that name. */
const void *ab_attr64(const ab_op_run *run, const char *name);

/* Element of `from` that element i of `to` reads: shapes are aligned at the end, ones repeated. */
int64_t ab_broadcast64(const ab_shape *from, const ab_shape *to, int64_t i);

static inline void ab_see64(ab_element64 *e, double x) {
    if (fabs(x) > e->largest) e->largest = fabs(x);
}

static inline void ab_add64(ab_element64 *e, double term) {
    e->value += term;
    ab_see64(e, term);
    ab_see64(e, e->value);
}

static inline int64_t ab_last64(const ab_tensor *tensor) { return tensor->shape.dim[tensor->shape.ndim - 1]; }

AB_END_DECLS

#endif
