/* A dense tensor: a view of memory owned elsewhere (a plan's buffers, a test's array). */
#ifndef AB_KERNELS_OPS_TENSOR_H
#define AB_KERNELS_OPS_TENSOR_H

#include "kernels/core/device.h"
#include "kernels/core/shape.h"
#include "kernels/format/format.h"

AB_BEGIN_DECLS

typedef struct ab_tensor {
    void *data; /* borrowed; count * storage bytes; 64-byte aligned in plans, any alignment in tests */
    ab_shape shape;
    const ab_format *format; /* NULL: int32_t elements (class ids) */
    const ab_device *device; /* device that holds `data` */
    int id;                  /* the plan's value number, for observers; -1 if unused */
} ab_tensor;

/* Number of elements. */
static inline int64_t ab_tensor_count(const ab_tensor *tensor) { return ab_shape_count(&tensor->shape); }

AB_END_DECLS

#endif
