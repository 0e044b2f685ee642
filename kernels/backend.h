/* What the step loop asks of the place where a cell's tensors live: one table of functions for each kind of device.
 *
 * The CPU's table (backend_cpu.c) is made of the functions of this room; another device's comes with its ab_device
 * (kernels/core/device.h). The step loop calls nothing but the table, so it is the same on every device. An op that a device
 * lacks runs on the host instead (fallback.h). Tables are constant; they keep no state of a cell. */
#ifndef AB_KERNELS_BACKEND_H
#define AB_KERNELS_BACKEND_H

#include "kernels/op.h"

AB_BEGIN_DECLS

enum { AB_UPDATE_MAX_STATES = 3 };

/* One gradient on its way from the scaled to the unscaled form. `to` may be `from`. */
typedef struct ab_unscale_item {
    ab_tensor *to;
    const ab_tensor *from;
    int id; /* the observer's number for the unscaled values; -1: nobody looks */
} ab_unscale_item;

/* One trained parameter at an optimizer step. */
typedef struct ab_update_item {
    ab_tensor *weight;     /* what the optimizer works on: the master where there is one */
    const ab_tensor *grad; /* unscaled */
    ab_tensor *state[AB_UPDATE_MAX_STATES];
    ab_tensor *
        model; /* the model's copy of a master, rounded from it after the update; NULL: weight is the model's */
} ab_update_item;

/* Structs that both sides of a plugin must see alike. */
#define AB_BACKEND_LAYOUT                                                                                    \
    (sizeof(ab_backend) + 3 * sizeof(ab_op_io) + 5 * sizeof(ab_exec) + 7 * sizeof(ab_op) +                   \
     11 * sizeof(ab_tensor))

typedef struct ab_backend {
    const char *kind; /* "cpu", "cuda" */
    size_t layout;    /* AB_BACKEND_LAYOUT of the table's maker */
    bool host_memory; /* tensors may be read and written by the host */

    /* The descriptor whose prepare, bind, release, forward, backward and describe run `op` here; NULL: not here. */
    const ab_op *(*op)(const ab_op *op);

    /* dst = src in dst's format; dst = round(dst + src). Same shape. Both show half results to exec->observer. */
    ab_status (*cast)(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);
    ab_status (*accumulate)(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);

    /* to = from * inverse, rounded to to's format and shown to exec->observer before that; *found becomes true if a value of
     * any `from` was inf or nan, and is left alone otherwise. */
    ab_status (*unscale)(const ab_exec *exec, const ab_unscale_item *item, int items, float inverse,
                         bool *found);
} ab_backend;

extern const ab_backend ab_backend_cpu;

/* The table of a device; NULL means the CPU. */
const ab_backend *ab_backend_of(const ab_device *device);

/* AB_UNAVAILABLE if the table was made for another version of this program. */
AB_MUST_CHECK ab_status ab_backend_check(const ab_backend *backend);

/* A tensor's values as fp32, into values[ab_tensor_count()]; and the other way, rounded once. Any device. */
AB_MUST_CHECK ab_status ab_tensor_read(const ab_tensor *tensor, float *values);
AB_MUST_CHECK ab_status ab_tensor_write(ab_tensor *tensor, const float *values);

/* Bytes of a tensor from or to the host, as they are stored. */
AB_MUST_CHECK ab_status ab_tensor_download(const ab_tensor *tensor, void *host);
AB_MUST_CHECK ab_status ab_tensor_upload(ab_tensor *tensor, const void *host);

AB_END_DECLS

#endif
