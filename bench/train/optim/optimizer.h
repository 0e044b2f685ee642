/* Optimizers with torch's formulas (torch/optim, single tensor, not capturable), or apex's if torch has none
 * (lamb, lars).
 *
 * An update is computed in fp32 from the stored weight, gradient and state; state and weight are rounded once
 * when stored, and the weight uses the unrounded state (as fused optimizers do). With fp32 storage that is
 * torch's arithmetic exactly; torch's unfused half optimizers round after every elementary operation
 * instead (ab_optimizer_config.by_op, by_op.h). */
#ifndef AB_BENCH_TRAIN_OPTIM_OPTIMIZER_H
#define AB_BENCH_TRAIN_OPTIM_OPTIMIZER_H

#include "kernels/ops/tensor.h"
#include "probes/watch.h"

AB_BEGIN_DECLS

enum {
    AB_OPTIMIZER_STATES = AB_UPDATE_STATES,
    AB_OPTIMIZER_KEYS = 6,
    AB_OPTIMIZER_TEXT = 256,
    AB_OPTIMIZER_VALUE = 40
};

typedef struct ab_optimizer_config {
    double lr, momentum, dampening, weight_decay;
    double beta1, beta2, eps;
    double alpha;             /* rmsprop's smoothing */
    double lr_decay;          /* adagrad's */
    double trust_coefficient; /* lars' */
    double trust; /* factor of the step; set by ab_optimizer_step if the optimizer measures norms */
    bool by_op;   /* half weights: rounded after every operation (update_by_op, if the optimizer has it) */
    double correction1, correction2; /* 1 - beta^taken for both betas; set by ab_optimizer_correct */
    double value[AB_OPTIMIZER_KEYS]; /* of the optimizer's own keys; a truth value is 0 or 1 */
    double total_norm; /* 2-norm of all gradients; set by the caller if the optimizer needs it */
    double kept;       /* the scalar state before the step; set by ab_optimizer_step */
} ab_optimizer_config;

/* A key of --optimizer NAME:KEY=VALUE that only this optimizer has. */
typedef struct ab_optimizer_key {
    const char *name;
    double low, high; /* range of a number; both 0: True or False */
    double step;      /* high - low: only these two; 0: any */
} ab_optimizer_key;

/* Form of weight decay: added to the gradient (L2), or directly to the update (decoupled; the moments do not
 * include it). */
typedef enum ab_decay { AB_DECAY_L2, AB_DECAY_DECOUPLED } ab_decay;

/* Hyper-parameters that a formula reads, one bit each; all read lr and weight_decay. */
typedef enum ab_knob {
    AB_KNOB_MOMENTUM = 1 << 0,
    AB_KNOB_DAMPENING = 1 << 1,
    AB_KNOB_BETA1 = 1 << 2,
    AB_KNOB_BETA2 = 1 << 3,
    AB_KNOB_EPS = 1 << 4,
    AB_KNOB_ALPHA = 1 << 5,
    AB_KNOB_LR_DECAY = 1 << 6,
    AB_KNOB_TRUST_COEFFICIENT = 1 << 7
} ab_knob;

/* Sums of squares of a whole parameter: of its weight, and of the vector whose norm the optimizer compares
 * with it; and that vector's largest absolute value. */
typedef struct ab_optimizer_sums {
    double weight, other, largest;
} ab_optimizer_sums;

/* fp32 values of a block before its update. */
typedef struct ab_optimizer_values {
    const float *weight, *grad;
    const float *state[AB_OPTIMIZER_STATES];
} ab_optimizer_values;

/* ab_optimizer.update, rounding each operation's result to `format`, that of weight and state. */
typedef void ab_update_by_op(const ab_optimizer_config *config, int64_t taken, const ab_format *format,
                             float *weight, const float *grad, float *const *state, int64_t n);

typedef struct ab_optimizer {
    const char *name, *text;
    int states;                             /* buffers per parameter, initially zero */
    const char *state[AB_OPTIMIZER_STATES]; /* torch's names */
    int second_moment;      /* index of the state that averages squares (Adam's v); -1: none */
    unsigned scalar_states; /* bit i: state i is one fp32 number per parameter, at most one state: `trust` of
                               the sums; update and terms see it in all elements before the step */
    ab_decay decay;
    int other_decay_key; /* 1 + index of the key that changes the form of weight decay; 0: none */
    int fp32_grads_key;  /* 1 + index of the key that, when False, leaves masters without fp32 gradients; 0:
                            none */
    unsigned knobs;
    int keys;
    ab_optimizer_key key[AB_OPTIMIZER_KEYS];
    bool needs_total_norm; /* of all gradients of the step, in config->total_norm */
    ab_optimizer_config defaults;
    /* Both NULL unless the step size depends on norms of the whole parameter. measure: adds the squares of n
     * elements; state[i] may be overwritten. trust: the factor of the step from the sums over all
     * elements. */
    void (*measure)(const ab_optimizer_config *config, int64_t taken, const float *weight, const float *grad,
                    float *const *state, int64_t n, ab_optimizer_sums *sums);
    double (*trust)(const ab_optimizer_config *config, const ab_optimizer_sums *sums);
    /* One update of n elements in place. taken: 1 for the first step that was not skipped. state[i]: n
     * values. */
    void (*update)(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                   float *const *state, int64_t n);
    ab_update_by_op *update_by_op; /* NULL: none */
    /* What each term of the formula (probes/watch.h) adds to the weight, in double from the values before;
     * constants are the formula's fp32 ones. term[i]: n values. Returns the terms that exist, one bit each;
     * the others are not written. */
    unsigned (*terms)(const ab_optimizer_config *config, int64_t taken, const ab_optimizer_values *before,
                      double *const *term, int64_t n);
} ab_optimizer;

/* The rows of optimizers.def, in order: i in [0, count). find: AB_USAGE with the nearest name if unknown. */
int ab_optimizer_count(void);
const ab_optimizer *ab_optimizer_at(int i);
AB_MUST_CHECK ab_status ab_optimizer_find(const char *name, const ab_optimizer **optimizer);
/* "fusedadam:adam_w_mode=False": the optimizer, and *config as its defaults with these values. AB_USAGE names
 * the valid keys and the nearest one. */
AB_MUST_CHECK ab_status ab_optimizer_parse(const char *text, const ab_optimizer **optimizer,
                                           ab_optimizer_config *config);
/* Writes a key's value, "True", "False" or a number, to text[AB_OPTIMIZER_VALUE]; returns text. */
const char *ab_optimizer_value_text(const ab_optimizer *optimizer, const ab_optimizer_config *config, int key,
                                    char *text);
/* Whether gradients of several batches are summed in the model's format although there are masters. */
bool ab_optimizer_sums_in_half(const ab_optimizer *optimizer, const ab_optimizer_config *config);
/* The form of weight decay under these values: "L2", "decoupled". */
const char *ab_optimizer_decay_name(const ab_optimizer *optimizer, const ab_optimizer_config *config);

/* 1 - beta^taken: the bias correction of a running mean that starts at 0 (Kingma and Ba, algorithm 1). */
double ab_optimizer_correction(double beta, int64_t taken);

/* Sets both corrections of *config, which measure, update and terms read; ab_optimizer_step sets them on its
 * own copy. */
void ab_optimizer_correct(ab_optimizer_config *config, int64_t taken);

/* Updates one parameter: weight, gradient and states in their stored formats, same shape. */
void ab_optimizer_step(const ab_optimizer *optimizer, const ab_optimizer_config *config, int64_t taken,
                       ab_tensor *weight, const ab_tensor *grad, ab_tensor *const *state);

/* The terms that an update number `taken` has, one bit each (ab_update_term). */
unsigned ab_optimizer_term_set(const ab_optimizer *optimizer, const ab_optimizer_config *config,
                               int64_t taken);

/* Observers of an update. Ids are the observer's; -1: not shown. */
typedef struct ab_optimizer_observers {
    ab_observer *observer;
    int weight_id, state_id[AB_OPTIMIZER_STATES];
    const ab_watch *watch; /* its `update` may be NULL */
    int param;             /* the parameter's index in the watch's list */
} ab_optimizer_observers;

/* The same update, bit for bit, reported to `observers`. */
void ab_optimizer_step_shown(const ab_optimizer *optimizer, const ab_optimizer_config *config, int64_t taken,
                             ab_tensor *weight, const ab_tensor *grad, ab_tensor *const *state,
                             const ab_optimizer_observers *observers);

AB_END_DECLS

#endif
