/* What this machine reaches, measured in this process with the threads that train: the limits that a profile
 * compares ops with. */
#ifndef AB_BENCH_PROFILE_LIMITS_H
#define AB_BENCH_PROFILE_LIMITS_H

#include "kernels/core/status.h"
#include "kernels/format/format.h"
#include "kernels/ops/op.h"

AB_BEGIN_DECLS

enum { AB_LIMIT_FORMATS = 3, AB_LIMIT_SIZES = 13 };

/* Bytes that are read, written, and read and then written in place, by the smallest of the sizes below. */
typedef struct ab_traffic {
    double read[AB_LIMIT_SIZES], written[AB_LIMIT_SIZES], updated[AB_LIMIT_SIZES];
} ab_traffic;

typedef struct ab_machine_limits {
    const ab_format *format[AB_LIMIT_FORMATS]; /* fp32, fp16, bf16 */
    double flops[AB_LIMIT_FORMATS]; /* per second, of one product of large square matrices stored so; 0: not
                                       measured */
    double functions[AB_ELEMENTARY_COUNT]; /* values per second of exp, tanh and (as gelu) erf in cache */
    double lookups;                        /* values per second from a table of 2^16, by normal numbers */
    /* Bytes per second in working sets of ab_machine_limits_size: read and written while copying, read, and
     * read and written in place. */
    double copied[AB_LIMIT_SIZES], read[AB_LIMIT_SIZES], updated[AB_LIMIT_SIZES];
    double round_trip_ns; /* of a cache line between two threads; 0: one thread, or a busy
                             machine */
} ab_machine_limits;

/* Measures the products of the formats in `formats` (bit i: row i), those that train on `path` and the
 * library's with packed weights, elementary functions and copying: the fastest of many attempts,
 * `attempts_ns` for each of four products a format and each function, a tenth of it for each way to move
 * bytes in each working set. `limits` is all zero at first; measured again, the faster counts. On a busy
 * machine ops can be faster than what was measured here. AB_NO_MEMORY. */
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

/* Bytes of the i-th working set: 64 KiB, and twice that of the one before. */
double ab_machine_limits_size(int i);

/* The size whose rate is no less than that of memory last touched `distance` bytes ago. */
int ab_machine_limits_holding(double distance);

/* Seconds of moving bytes. A copy takes as long as reading one half and writing the other. */
double ab_machine_limits_memory(const ab_machine_limits *limits, const ab_traffic *traffic);

AB_END_DECLS

#endif
