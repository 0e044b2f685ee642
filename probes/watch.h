/* What a training step can show to those who listen, in the words both sides use: the step loop fills these
 * structs, probes read them. Nothing here computes anything.
 *
 * A step that is probed hands tensors to an ab_observer (kernels/ops/op.h) under the numbers of their roles,
 * and calls the functions of an ab_watch at the events below. Listeners never change a value; the one freedom
 * they have is the payload of a NaN that is already there. */
#ifndef AB_PROBES_WATCH_H
#define AB_PROBES_WATCH_H

#include "kernels/ops/op.h"

AB_BEGIN_DECLS

/* What a tensor is to training. */
typedef enum ab_probe_role {
    AB_ROLE_WEIGHT_GRADIENT,     /* times the loss scale, before it is cast */
    AB_ROLE_ACTIVATION_GRADIENT, /* times the loss scale, before it is cast */
    AB_ROLE_UNSCALED_GRADIENT,   /* of a weight, as the optimizer gets it, before it is stored */
    AB_ROLE_ACTIVATION,          /* an op's output, before it is cast */
    AB_ROLE_WEIGHT,              /* as the optimizer left it, before it is stored */
    AB_ROLE_OPTIMIZER_STATE,     /* as the optimizer left it, before it is stored */
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

/* "weight_gradient", "activation", ...: what the record calls it. */
const char *ab_probe_role_name(ab_probe_role role);

/* What moves a weight. The first three add up to the update; eps is what that term changed in it (the update
 * minus the update without eps). */
typedef enum ab_update_term {
    AB_TERM_GRADIENT,
    AB_TERM_WEIGHT_DECAY,
    AB_TERM_MOMENTUM,
    AB_TERM_EPS,
    AB_TERM_COUNT
} ab_update_term;

enum { AB_UPDATE_BLOCK = 1024, AB_UPDATE_STATES = 3 };

/* One block of an optimizer update: elements [first, first + n) of a parameter. Blocks start at multiples of
 * AB_UPDATE_BLOCK and are that long, but for the last one. Blocks of a parameter come in any order, on any
 * thread. */
typedef struct ab_update_block {
    int param; /* place in the setup's list of parameters */
    int thread;
    int64_t first, n;
    int64_t taken;        /* 1 for the first update of the run */
    double lr;            /* in force for this parameter; 0: the setup's */
    const float *before;  /* the stored weight */
    const float *after;   /* the fp32 result of the update */
    const float *stored;  /* `after` as it was stored, widened again */
    const float *grad;    /* unscaled */
    const double *update; /* what the formula adds to the weight, computed in double from the stored values;
                             the hyper-parameters are the fp32 numbers of the formula */
    const double
        *term[AB_TERM_COUNT]; /* its parts; NULL where the optimizer, as configured, has no such term */
    const float *state_before[AB_UPDATE_STATES], *state_after[AB_UPDATE_STATES],
        *state_stored[AB_UPDATE_STATES];
} ab_update_block;

/* An op has just run. The tensors of `io` hold what it read and wrote; forward: out, backward: din and
 * dparam. */
typedef struct ab_op_run {
    int number; /* place of the op in the network */
    const char *name;
    const ab_op *op;
    const ab_op_io *io;
    bool backward;
    const ab_exec *exec; /* as it was run with; NULL: not known, in training */
} ab_op_run;

/* What writes a tensor without being an op. */
typedef enum ab_move_kind {
    AB_MOVE_CAST,          /* of a value, or of its gradient, to the format that another op wants */
    AB_MOVE_WEIGHT_CAST,   /* of a parameter to the half copy that ops read */
    AB_MOVE_GRADIENT_CAST, /* of a parameter's gradient to the format it is kept in */
    AB_MOVE_GRADIENT_SUM,  /* shares of the gradient of a value or parameter that is used more than once */
    AB_MOVE_COUNT
} ab_move_kind;

typedef struct ab_move {
    ab_move_kind kind;
    int number; /* place in the network of the op that asked for the cast or owns the parameter; -1: none */
    const char *name; /* of that op, or of the tensor */
    bool backward;
    const ab_tensor *to, *from;
} ab_move;

/* What somebody wants of the probed steps. Functions may be NULL; all but `update` are called on one thread.
 */
typedef struct ab_watch {
    void *context;
    unsigned roles; /* AB_SEES_...: which tensors the step's observer is shown */
    void (*begin)(void *context, int64_t step, double loss_scale);
    void (*ran)(void *context, const ab_op_run *run);
    void (*moved)(void *context, const ab_move *move);
    /* A step whose loss or gradients are not finite has just been through its backward pass. True: replay it,
     * from the same bits, and show it to `ran` and `moved` only. */
    bool (*wants_replay)(void *context, int64_t step, double loss_scale);
    void (*update)(void *context, const ab_update_block *block);
} ab_watch;

AB_END_DECLS

#endif
