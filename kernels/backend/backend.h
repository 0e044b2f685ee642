/* Interface between the step loop and the device that holds a cell's tensors: one function table per kind
 * of device.
 *
 * The CPU's table (backend_cpu.c) contains the functions of this room; other devices provide theirs with
 * ab_device (kernels/core/device.h). The step loop calls only this table, so it is the same on every
 * device. An op that a device lacks runs on the host (fallback.h). Tables are constant and hold no
 * per-cell state. */
#ifndef AB_KERNELS_BACKEND_BACKEND_H
#define AB_KERNELS_BACKEND_BACKEND_H

#include "kernels/backend/reductions.h"
#include "kernels/backend/step_state.h"
#include "kernels/ops/formulas.h"
#include "kernels/ops/op.h"

AB_BEGIN_DECLS

/* One gradient to unscale. `to` may be `from`. */
typedef struct ab_unscale_item {
    ab_tensor *to;
    ab_tensor *from; /* only read by unscaling */
    int id;          /* the observer's id of the unscaled values; -1: not observed */
    bool adds;       /* accumulates into `to`, whose values are not checked */
} ab_unscale_item;

/* One trained parameter at an optimizer step. */
typedef struct ab_update_item {
    ab_tensor *weight;     /* the tensor the optimizer updates: the master if there is one */
    const ab_tensor *grad; /* unscaled */
    float factor; /* the gradient of the formula is grad times this, in fp32; devices but the host's read 1 */
    ab_tensor *state[AB_UPDATE_MAX_STATES];
    ab_tensor *model; /* the copy that the model uses, rounded from the weight after the update; NULL: weight
                       * is used by the model */
} ab_update_item;

/* ---- steps decided on the device ------------------------------------------------------------- */

typedef struct ab_resident ab_resident; /* per cell: state, lists, constants, records */
typedef struct ab_graph ab_graph;       /* work that is recorded once and launched repeatedly */
typedef struct ab_stage ab_stage;       /* batches in transfer to the device */

typedef struct ab_resident_config {
    const ab_tensor *loss;
    ab_tensor *loss_grad;
    const ab_unscale_item *unscale;
    const ab_update_item *update;
    ab_tensor *const *ema; /* per item, or NULL; NULL: no averages */
    const int *group;      /* per item: its row in the constants of a step */
    int items, groups;
    int batches;                             /* per step */
    bool leave_gradients;                    /* no unscaling: fixed scale of 1 without masters */
    int update_kind;                         /* ab_update_kind */
    double clip_norm, clip_value, ema_decay; /* 0: off */
    ab_scale_rule rule;
    int window; /* maximum number of steps between two calls of collect */
} ab_resident_config;

enum { AB_STAGE_SLOTS = 64 };

/* All of them or none. All calls from create to destroy on one thread. */
typedef struct ab_resident_ops {
    ab_status (*create)(const ab_resident_config *config, ab_resident **resident);
    void (*destroy)(ab_resident *resident); /* NULL is a no-op */

    /* Sets the state, and the constants of the steps after state->taken: row[i * groups + g] is that of
     * group g at optimizer step taken + 1 + i, i < window. */
    ab_status (*set)(ab_resident *resident, const ab_step_state *state, const ab_update_row *row);

    /* Device address of the index of the current batch, for ab_exec.device_step. */
    const int64_t *(*counter)(ab_resident *resident);

    /* begin: start of a step, sets the loss gradient to the scale's share. batch: after each batch's
     * backward pass, adds its loss. finish: after the last batch; unscale, check, clip, decide, update or
     * skip, average, record. */
    ab_status (*begin)(ab_resident *resident);
    ab_status (*batch)(ab_resident *resident);
    ab_status (*finish)(ab_resident *resident);

    /* Records a timestamp on the device: before the first step of a window (0) and after each (1, 2, ...).
     * May be part of a graph. */
    ab_status (*mark)(ab_resident *resident, int place);

    /* Synchronises, then reads the records of the last `steps` steps and, from the marks, their times. */
    ab_status (*collect)(ab_resident *resident, int steps, ab_step_record *record, int64_t *time_ns,
                         ab_step_state *state);

    /* Records the device work between begin and end instead of running it. A failed record_end sets *graph
     * to NULL. */
    ab_status (*record_begin)(void);
    ab_status (*record_end)(ab_graph **graph);
    ab_status (*launch)(ab_graph *graph);
    void (*graph_destroy)(ab_graph *graph); /* NULL is a no-op */

    /* Two tensors that the host writes for every batch. room[slot][i]: device memory of `bytes[i]`, `slots`
     * of them, at most AB_STAGE_SLOTS. */
    ab_status (*stage_create)(const size_t bytes[2], void *const (*room)[2], int slots, ab_stage **stage);
    void (*stage_destroy)(ab_stage *stage);
    /* Host buffers of a slot; waits until its previous transfer is complete. */
    ab_status (*stage_buffers)(ab_stage *stage, int slot, void *buffer[2]);
    /* Starts the transfer to the slot's room, once the device has used what was there; what is launched
     * after `send` of a slot waits for it. */
    ab_status (*stage_send)(ab_stage *stage, int slot);
    /* Copies a room to to[0] and to[1]; may be part of a graph. */
    ab_status (*stage_use)(ab_stage *stage, int slot, void *const to[2]);
    /* The room is used by what was launched so far, and may be filled again after it. */
    ab_status (*stage_done)(ab_stage *stage, int slot);
} ab_resident_ops;

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct ab_backend {
    /* These three never move, so that a table of another version is detected. */
    int abi;                  /* AB_DEVICE_ABI that the table was built with */
    uint64_t (*layout)(void); /* ab_backend_layout (backend_layout.h) in the build of the table */
    const char *kind;         /* "cpu", "cuda" */
    bool host_memory;         /* tensors may be read and written by the host */

    /* The descriptor whose prepare, bind, release, forward, backward and describe run `op` here; NULL: not
     * supported. Its prepare may still return AB_UNAVAILABLE for unsupported tensors. */
    const ab_op *(*op)(const ab_op *op);

    /* dst = src in dst's format; dst = round(dst + src). Same shape. Both pass fp16 and bf16 results to
     * exec->observer. AB_UNAVAILABLE: formats not supported. */
    ab_status (*cast)(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);
    ab_status (*accumulate)(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);

    /* to = from * inverse (+ to, where the item adds), rounded to to's format; exec->observer gets the
     * values before rounding. *found is set to true if a value of any `from` is inf or NaN, else left
     * unchanged. AB_UNAVAILABLE, with no changes made: formats or accumulation not supported. */
    ab_status (*unscale)(const ab_exec *exec, const ab_unscale_item *item, int items, float inverse,
                         bool *found);

    /* One optimizer step of a kind of formulas.h on every item, including the model's copies. NULL, or
     * AB_UNAVAILABLE with no changes made: runs on the host. */
    ab_status (*update)(const ab_update_item *item, int items, int kind, const ab_update_row *row);

    /* Census (kernels/census/census.h) of a tensor's stored values. Counts and extremes equal the CPU's;
     * the sum of squares may differ in the last digits. NULL or AB_UNAVAILABLE: download the values.
     */
    ab_status (*census)(const ab_tensor *tensor, struct ab_census *census);

    const ab_resident_ops *resident; /* NULL: the host decides every step */
    const ab_reductions *reductions; /* NULL: what probes count is counted on the host */
} ab_backend;

extern const ab_backend ab_backend_cpu;

/* The table of a device; NULL means the CPU. */
const ab_backend *ab_backend_of(const ab_device *device);

/* AB_UNAVAILABLE if the table was built for another version of this program. */
AB_MUST_CHECK ab_status ab_backend_check(const ab_backend *backend);

/* Reads a tensor's values as fp32 into values[ab_tensor_count()]; writes them, rounded once. Any device. */
AB_MUST_CHECK ab_status ab_tensor_read(const ab_tensor *tensor, float *values);
AB_MUST_CHECK ab_status ab_tensor_write(ab_tensor *tensor, const float *values);

/* Copies the stored bytes of a tensor to or from the host. */
AB_MUST_CHECK ab_status ab_tensor_download(const ab_tensor *tensor, void *host);
AB_MUST_CHECK ab_status ab_tensor_upload(ab_tensor *tensor, const void *host);

AB_END_DECLS

#endif
