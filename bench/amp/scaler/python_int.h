/* Loss scales that are Python ints. Growth by an int factor never rounds and never reaches infinity; the next
 * division converts to float, or raises OverflowError if the int exceeds the float range. Used by two
 * dialects. */
#ifndef AB_BENCH_AMP_SCALER_PYTHON_INT_H
#define AB_BENCH_AMP_SCALER_PYTHON_INT_H

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

/* The double nearest to base * factor^power (ties to even), infinity from 2^1024 on. base and factor are
 * integers, 0 <= base <= 2^53, 1 <= factor < 2^31; of others it is the product in double. */
double ab_python_int(double base, double factor, double power);

AB_END_DECLS

#endif
