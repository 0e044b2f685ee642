/* Interface between the step loop and probes: the step loop fills these structs, probes read them.
 * Declarations only.
 *
 * A probed step passes tensors to an ab_observer (kernels/ops/op.h) by number and calls the functions of an
 * ab_watch at the events below. Observers must not change values, except the payload of an existing NaN. */
#ifndef AB_PROBES_WATCH_H
#define AB_PROBES_WATCH_H

#include "kernels/backend/update_counts.h"
#include "kernels/ops/op.h"

AB_BEGIN_DECLS

/* Role of a tensor in training. */
typedef enum ab_probe_role {
    AB_ROLE_WEIGHT_GRADIENT,     /* times the loss scale, before it is cast */
    AB_ROLE_ACTIVATION_GRADIENT, /* times the loss scale, before it is cast */
    AB_ROLE_UNSCALED_GRADIENT,   /* of a weight, as passed to the optimizer, before it is stored */
    AB_ROLE_ACTIVATION,          /* an op's output, before it is cast */
    AB_ROLE_WEIGHT,              /* after the optimizer step, before it is stored */
    AB_ROLE_OPTIMIZER_STATE,     /* after the optimizer step, before it is stored */
    AB_ROLE_COUNT
} ab_probe_role;

/* Sets of roles. */
enum {
    AB_SEES_GRADIENTS = 1 << AB_ROLE_WEIGHT_GRADIENT | 1 << AB_ROLE_ACTIVATION_GRADIENT,
    AB_SEES_UNSCALED_GRADIENTS = 1 << AB_ROLE_UNSCALED_GRADIENT,
    AB_SEES_ACTIVATIONS = 1 << AB_ROLE_ACTIVATION,
    AB_SEES_WEIGHTS = 1 << AB_ROLE_WEIGHT,
    AB_SEES_OPTIMIZER_STATE = 1 << AB_ROLE_OPTIMIZER_STATE
};

/* Name of the role in the record: "weight_gradient", "activation", ... */
const char *ab_probe_role_name(ab_probe_role role);

enum { AB_UPDATE_STATES = AB_UPDATE_MAX_STATES };

/* One block of an optimizer update: elements [first, first + n) of a parameter. Blocks start at multiples of
 * AB_UPDATE_BLOCK and have that length, except the last. Blocks of a parameter arrive in any order, on any
 * thread. */
typedef struct ab_update_block {
    int param; /* index in the setup's list of parameters */
    int thread;
    int64_t first, n;
    int64_t taken;        /* 1 for the first update of the run */
    double lr;            /* of this parameter; 0: the setup's */
    const float *before;  /* the stored weight */
    const float *after;   /* the fp32 result of the update */
    const float *stored;  /* `after` as stored, widened to fp32 */
    const float *grad;    /* unscaled */
    const double *update; /* added to the weight by the formula, computed in double from the stored values
                             with the formula's fp32 hyper-parameters */
    const double
        *term[AB_TERM_COUNT]; /* terms of `update`; NULL if the optimizer as configured has no such term */
    const float *state_before[AB_UPDATE_STATES], *state_after[AB_UPDATE_STATES],
        *state_stored[AB_UPDATE_STATES];
} ab_update_block;

/* An op that has just run. The tensors of `io` hold its inputs and results: out (forward), din and dparam
 * (backward). They are in host memory unless the watch's `anywhere` is set. */
typedef struct ab_op_run {
    int number; /* index of the op in the network */
    const char *name;
    const ab_op *op;
    const ab_op_io *io;
    bool backward;
    const ab_exec *exec; /* settings it ran with; NULL: unknown, training mode */
    /* Copies of the tensors in host memory; NULL if they cannot be copied. `copy` NULL: io's are there. */
    const ab_op_io *(*copy)(void *context);
    void *context;
} ab_op_run;

/* The op's tensors in host memory; NULL if they cannot be copied there. */
static inline const ab_op_io *ab_op_run_on_host(const ab_op_run *run) {
    return run->copy ? run->copy(run->context) : run->io;
}

/* Writes of tensors outside ops. */
typedef enum ab_move_kind {
    AB_MOVE_CAST,          /* of a value, or of its gradient, to the format of another op */
    AB_MOVE_WEIGHT_CAST,   /* of a parameter to its half copy for the ops */
    AB_MOVE_GRADIENT_CAST, /* of a parameter's gradient to its storage format */
    AB_MOVE_GRADIENT_SUM,  /* of contributions to the gradient of a value or parameter used more than once */
    AB_MOVE_COUNT
} ab_move_kind;

typedef struct ab_move {
    ab_move_kind kind;
    int number;       /* index of the op that needs the cast or owns the parameter; -1: none */
    const char *name; /* of that op, or of the tensor */
    bool backward;
    const ab_tensor *to, *from;
} ab_move;

/* Callbacks of probed steps. Functions may be NULL; all except `update` are called on one thread. */
typedef struct ab_watch {
    void *context;
    unsigned roles; /* AB_SEES_...: tensors that the step's observer sees */
    void (*begin)(void *context, int64_t step, double loss_scale);
    void (*ran)(void *context, const ab_op_run *run);
    void (*moved)(void *context, const ab_move *move);
    /* Called after the backward pass of a step with non-finite loss or gradients. True: the step is replayed
     * from the same bits and shown to `ran` and `moved` only. */
    bool (*wants_replay)(void *context, int64_t step, double loss_scale);
    void (*update)(void *context, const ab_update_block *block);
    /* Whether `ran` and `moved` take tensors in any memory: they read values through functions of
     * kernels/backend and ab_op_run_on_host only. */
    bool anywhere;
    /* In place of `update` where the device can count: `asks` says what to count of update number `taken`,
     * false: values are needed; `counted` gets the counts, on one thread. Both NULL: values are needed. */
    bool (*asks)(void *context, int64_t taken, ab_update_question *question);
    void (*counted)(void *context, int param, const ab_update_counts *counts);
} ab_watch;

AB_END_DECLS

#endif
