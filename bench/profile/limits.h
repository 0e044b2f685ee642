/* What this machine reaches, measured in this process with the threads that train: the limits that a profile
 * compares ops with. */
#ifndef AB_BENCH_PROFILE_LIMITS_H
#define AB_BENCH_PROFILE_LIMITS_H

#include "kernels/core/status.h"
#include "kernels/format/format.h"
#include "kernels/ops/op.h"

AB_BEGIN_DECLS

enum { AB_LIMIT_FORMATS = 3, AB_LIMIT_SIZES = 5 };

typedef struct ab_machine_limits {
    const ab_format *format[AB_LIMIT_FORMATS]; /* fp32, fp16, bf16 */
    double flops[AB_LIMIT_FORMATS]; /* per second, of one product of large square matrices stored so; 0: not
                                       measured */
    double functions[AB_ELEMENTARY_COUNT]; /* values per second of exp, tanh and (as gelu) erf in cache */
    double size[AB_LIMIT_SIZES];           /* bytes of a working set, ascending */
    double bytes[AB_LIMIT_SIZES];          /* per second, read and written, while copying within it */
    double round_trip_ns;                  /* of a cache line between two threads; 0: one thread, or a busy
                                              machine */
} ab_machine_limits;

/* Measures the products of the formats in `formats` (bit i: row i), those that train on `path` and the
 * library's with packed weights, elementary functions and copying: the fastest of many attempts,
 * `attempts_ns` for each of four products a format, three functions and five working sets. `limits` is all
 * zero at first; measured again, the faster counts. On a busy machine ops can be faster than what was
 * measured here. AB_NO_MEMORY. */
enum { AB_LIMIT_ATTEMPTS_NS = 100 * 1000 * 1000 };
AB_MUST_CHECK ab_status ab_machine_limits_measure(unsigned formats, ab_cpu_path path, int64_t attempts_ns,
                                                  ab_machine_limits *limits);

/* Floating-point operations per second of products in `format`: those of fp32, to which every format can be
 * widened, or faster. */
double ab_machine_limits_product(const ab_machine_limits *limits, const ab_format *format);

/* Seconds of so many values of each elementary function. */
double ab_machine_limits_functions(const ab_machine_limits *limits, const double count[AB_ELEMENTARY_COUNT]);

/* "exp", "tanh", "erf". */
const char *ab_elementary_name(ab_elementary function);

/* Bytes per second of the smallest working set that holds `bytes`; of the largest if none does. */
double ab_machine_limits_bandwidth(const ab_machine_limits *limits, double bytes);

AB_END_DECLS

#endif
