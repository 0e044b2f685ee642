/* What the step loop asks of the place where a cell's tensors live: one table of functions for each kind of
 * device.
 *
 * The CPU's table (backend_cpu.c) is made of the functions of this room; another device's comes with its
 * ab_device (kernels/core/device.h). The step loop calls nothing but the table, so it is the same on every
 * device. An op that a device lacks runs on the host instead (fallback.h). Tables are constant; they keep no
 * state of a cell. */
#ifndef AB_KERNELS_BACKEND_BACKEND_H
#define AB_KERNELS_BACKEND_BACKEND_H

#include "kernels/backend/step_state.h"
#include "kernels/ops/formulas.h"
#include "kernels/ops/op.h"

AB_BEGIN_DECLS

enum { AB_UPDATE_MAX_STATES = 3 };

/* One gradient on its way from the scaled to the unscaled form. `to` may be `from`. */
typedef struct ab_unscale_item {
    ab_tensor *to;
    const ab_tensor *from;
    int id;    /* the observer's number for the unscaled values; -1: nobody looks */
    bool adds; /* to what `to` holds, which is not checked; */
} ab_unscale_item;

/* One trained parameter at an optimizer step. */
typedef struct ab_update_item {
    ab_tensor *weight;     /* what the optimizer works on: the master where there is one */
    const ab_tensor *grad; /* unscaled */
    ab_tensor *state[AB_UPDATE_MAX_STATES];
    ab_tensor *model; /* the model's copy of a master, rounded from it after the update; NULL: weight is the
                         model's */
} ab_update_item;

/* ---- steps that a device decides itself ------------------------------------------------------ */

typedef struct ab_resident ab_resident; /* of one cell: state, lists, constants, records */
typedef struct ab_graph ab_graph;       /* work that was recorded once and is launched again and again */
typedef struct ab_stage ab_stage;       /* batches on their way to the device */

typedef struct ab_resident_config {
    const ab_tensor *loss;
    ab_tensor *loss_grad;
    const ab_unscale_item *unscale;
    const ab_update_item *update;
    ab_tensor *const *ema; /* of each item, or NULL; NULL: no averages */
    const int *group;      /* of each item: which row of a step is its own */
    int items, groups;
    int batches;                             /* of a step */
    bool leave_gradients;                    /* do not unscale: a fixed scale of 1 without masters */
    int update_kind;                         /* ab_update_kind */
    double clip_norm, clip_value, ema_decay; /* 0: off */
    ab_scale_rule rule;
    int window; /* most steps between two calls of collect */
} ab_resident_config;

/* All of them or none. create to destroy on one thread. */
typedef struct ab_resident_ops {
    ab_status (*create)(const ab_resident_config *config, ab_resident **resident);
    void (*destroy)(ab_resident *resident); /* NULL is a no-op */

    /* Sets the state, and the constants of the steps after state->taken: row[i * groups + g] is group g's for
     * taken + 1 + i, i < window. */
    ab_status (*set)(ab_resident *resident, const ab_step_state *state, const ab_update_row *row);

    /* Where the device keeps the number of the batch under way, for ab_exec.step_there. */
    const int64_t *(*counter)(ab_resident *resident);

    /* Of a step: loss gradient = scale's share; behind each batch's backward pass: its loss; behind the last:
     * unscale, check, clip, decide, update or not, average, record. */
    ab_status (*begin)(ab_resident *resident);
    ab_status (*batch)(ab_resident *resident);
    ab_status (*finish)(ab_resident *resident);

    /* Marks the time on the device: before the first of a window's steps (0) and behind each (1, 2, ...). */
    ab_status (*mark)(ab_resident *resident, int place);

    /* Waits for everything, then reads the records of the last `steps` steps and, from the marks, their
     * times. */
    ab_status (*collect)(ab_resident *resident, int steps, ab_step_record *record, int64_t *time_ns,
                         ab_step_state *state);

    /* Records what is asked of the device from begin to end instead of doing it. A failed record_end leaves
     * *graph NULL. */
    ab_status (*record_begin)(void);
    ab_status (*record_end)(ab_graph **graph);
    ab_status (*launch)(ab_graph *graph);
    void (*graph_destroy)(ab_graph *graph); /* NULL is a no-op */

    /* Two tensors that the host fills before every step. room[slot][i]: device memory of `bytes[i]`, two
     * slots. */
    ab_status (*stage_create)(const size_t bytes[2], void *const room[2][2], ab_stage **stage);
    void (*stage_destroy)(ab_stage *stage);
    /* Where the host writes the next batch: waits until the slot's last one is gone. */
    ab_status (*stage_buffers)(ab_stage *stage, void *buffer[2]);
    /* Sends them: by the time of the next launch they are in to[0] and to[1]. */
    ab_status (*stage_send)(ab_stage *stage, void *const to[2]);
} ab_resident_ops;

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct ab_backend {
    /* These three never move, so that a table of another version can be told. */
    int abi;                  /* AB_DEVICE_ABI of the table's maker */
    uint64_t (*layout)(void); /* ab_backend_layout (backend_layout.h) of the table's maker */
    const char *kind;         /* "cpu", "cuda" */
    bool host_memory;         /* tensors may be read and written by the host */

    /* The descriptor whose prepare, bind, release, forward, backward and describe run `op` here; NULL: not
     * here. Its prepare may still return AB_UNAVAILABLE for tensors that it does not do. */
    const ab_op *(*op)(const ab_op *op);

    /* dst = src in dst's format; dst = round(dst + src). Same shape. Both show half results to
     * exec->observer. AB_UNAVAILABLE: not for these formats. */
    ab_status (*cast)(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);
    ab_status (*accumulate)(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);

    /* to = from * inverse (+ to, where the item adds), rounded to to's format and shown to exec->observer
     * before that; *found becomes true if a value of any `from` was inf or nan, and is left alone otherwise.
     * AB_UNAVAILABLE, before anything was done: not for these formats, or not with sums. */
    ab_status (*unscale)(const ab_exec *exec, const ab_unscale_item *item, int items, float inverse,
                         bool *found);

    /* One optimizer step of a kind of formulas.h on every item, the model's copies included. NULL: the host
     * does it. */
    ab_status (*update)(const ab_update_item *item, int items, int kind, const ab_update_row *row);

    /* Census (kernels/census/census.h) of a tensor's values as they are stored, counts and extremes the
     * CPU's; the sum of squares may differ in its last digits. NULL or AB_UNAVAILABLE: download the values.
     */
    ab_status (*census)(const ab_tensor *tensor, struct ab_census *census);

    const ab_resident_ops *resident; /* NULL: the host decides every step */
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
