/* Functions of one number on fp16 and bf16 tensors: a half has 65,536 codes, so a function's values and
 * slopes are computed once, by its own vector loops, and then looked up. The bits are those of computing each
 * value.
 *
 * Internal to kernels/ops/elementwise. Tables are filled when they are first needed, in the default mode of
 * subnormals (subnormals.h); in the other mode, for observers and for few values nothing is looked up. */
#ifndef AB_KERNELS_OPS_ELEMENTWISE_BY_CODE_H
#define AB_KERNELS_OPS_ELEMENTWISE_BY_CODE_H

#include "kernels/format/halves.h"
#include "kernels/ops/blocks.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

/* Tables of one function, [0] of fp16 and [1] of bf16: static memory of the op, zero at first; pages that
 * nobody needs stay untouched. */
typedef struct ab_code_tables {
    bool has_values[2], has_slopes[2]; /* read and written atomically */
    uint16_t value[2][AB_CODES];       /* codes of the same format */
    float slope[2][AB_CODES];
} ab_code_tables;

/* out = value(in[0]), as ab_map_tensors(exec, io->out, value, io->in[0], NULL). */
void ab_values_by_code(const ab_exec *exec, const ab_op_io *io, ab_code_tables *tables, ab_map value);

/* din[0] = dout * slope(in[0]), as ab_map_tensors(exec, io->din[0], slope, io->in[0], io->dout); nothing if
 * din[0] is not wanted. slope(din, x, dout): the product of dout and a function of x. */
void ab_slopes_by_code(const ab_exec *exec, const ab_op_io *io, ab_code_tables *tables, ab_map slope);

AB_END_DECLS

#endif
