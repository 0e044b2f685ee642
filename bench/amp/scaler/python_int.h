/* A loss scale that Python keeps as an int. Growing it by an int factor never rounds and never reaches
 * infinity; only the next division turns it into a float, or raises OverflowError when no float is that
 * large. Two dialects need this. */
#ifndef AB_BENCH_AMP_SCALER_PYTHON_INT_H
#define AB_BENCH_AMP_SCALER_PYTHON_INT_H

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

/* The double nearest to base * factor^power (ties to even), infinity from 2^1024 on. base and factor are
 * integers, 0 <= base <= 2^53, 1 <= factor < 2^31. */
double ab_python_int(double base, double factor, double power);

AB_END_DECLS

#endif
