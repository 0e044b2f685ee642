/* What the CPU does with subnormal numbers: keeps them (IEEE 754, the default), or takes subnormal operands
 * as zeros (DAZ) and writes zeros instead of subnormal results (FTZ), as torch.set_flush_denormal(True) does.
 * Both apply to fp32 and double arithmetic of one thread; ab_parallel_for runs its chunks in the caller's
 * mode.
 *
 * Moves, comparisons of bits, and conversions between fp32 and a half format are not arithmetic here: fp16's
 * subnormals are normal in fp32, and the other formats are converted by integers
 * (tests/unit/kernels/core/test_subnormals.c). */
#ifndef AB_CORE_SUBNORMALS_H
#define AB_CORE_SUBNORMALS_H

#include "kernels/core/compiler.h"

#include <stdbool.h>

AB_BEGIN_DECLS

typedef enum ab_subnormals { AB_SUBNORMALS_KEPT, AB_SUBNORMALS_FLUSHED } ab_subnormals;

/* The calling thread's mode, read from its control register (x86: MXCSR's FTZ and DAZ; aarch64: FPCR's FZ).
 */
ab_subnormals ab_subnormals_mode(void);

/* Sets the calling thread's mode and returns the one before. No effect on a processor that cannot flush. */
ab_subnormals ab_subnormals_set(ab_subnormals mode);

/* Whether this processor can flush: x86-64 with SSE3, and aarch64. */
bool ab_subnormals_can_flush(void);

AB_END_DECLS

#endif
