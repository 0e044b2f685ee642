/* Interface of probes. A probe observes the values of a step, updates statistics and reports them.
 *
 * A probe is one file with a const ab_probe_kind and one line in probes.def. It sees fp32 values before they
 * are cast to the half format (or stored values, if nothing is cast), at the current loss scale. It never
 * changes a value: losses are bit-identical with probes off. Independent of networks, files and output
 * formats; reports are written to a sink owned by the caller. */
#ifndef AB_PROBES_PROBE_H
#define AB_PROBES_PROBE_H

#include "kernels/format/format.h"
#include "probes/watch.h"

AB_BEGIN_DECLS

/* An observable tensor; its number is its index in the setup's array. */
typedef struct ab_probe_tensor {
    const char *name;  /* "conv1.weight.grad"; borrowed for the probe's lifetime */
    const char *layer; /* "conv1" */
    ab_probe_role role;
    bool cast; /* these values are cast to the half format; false: they stay fp32 */
} ab_probe_tensor;

/* A trained parameter as the optimizer sees it. */
typedef struct ab_probe_param {
    const char *name, *layer; /* "conv1.weight", "conv1"; borrowed */
    int64_t count;
    int64_t rows;                           /* its first dimension; 0: fewer than two dimensions */
    const ab_format *format, *state_format; /* of the weight (the master if there is one) and of its states */
} ab_probe_param;

typedef struct ab_probe_optimizer {
    double lr, weight_decay, beta1, beta2, eps; /* beta2: RMSprop's alpha; beta1: 0 without a first moment */
    int second_moment;                   /* index of the state that averages squares (Adam's v); -1: none */
    const char *state[AB_UPDATE_STATES]; /* names, borrowed; NULL after the last */
} ab_probe_optimizer;

typedef struct ab_probe_setup {
    const ab_probe_tensor *tensor; /* borrowed for the probe's lifetime, like `param` */
    int tensors;
    int threads;           /* see() is called with thread in [0, threads) */
    const ab_format *half; /* values are classified by this format's range */
    const ab_probe_param *param;
    int params;
    ab_probe_optimizer optimizer;
    int64_t steps;               /* of the whole run, probed or not; 0: unknown */
    int64_t every;               /* probed steps are multiples of this; 0: unknown */
    uint64_t seed;               /* of random sampling in probes */
    bool governed;               /* the governor limits probed steps by their cost */
    bool scale_reacts;           /* the loss scaler checks for overflows and skips such steps */
    const ab_format *accumulate; /* format that sums of half ops are rounded to; NULL: fp32 */
} ab_probe_setup;

/* Receives a report as a tree of objects and arrays. key is NULL inside arrays. */
typedef struct ab_probe_sink {
    void (*begin_object)(struct ab_probe_sink *self, const char *key);
    void (*begin_array)(struct ab_probe_sink *self, const char *key);
    void (*end)(struct ab_probe_sink *self);
    void (*text)(struct ab_probe_sink *self, const char *key, const char *value); /* NULL: null */
    void (*boolean)(struct ab_probe_sink *self, const char *key, bool value);
    void (*integer)(struct ab_probe_sink *self, const char *key, int64_t value);
    void (*number)(struct ab_probe_sink *self, const char *key, double value); /* non-finite: null */
    void (*integers)(struct ab_probe_sink *self, const char *key, const int64_t *value, int64_t count);
} ab_probe_sink;

/* All functions but create, destroy and report may be NULL. */
typedef struct ab_probe_kind {
    const char *name, *text;
    bool standard;  /* part of --probes default */
    unsigned roles; /* AB_SEES_...: the tensors that see() is called with */
    ab_status (*create)(const ab_probe_setup *setup, void **state);
    void (*destroy)(void *state); /* NULL is a no-op */
    void (*begin)(void *state, int64_t step, double loss_scale);
    void (*see)(void *state, int tensor, int thread, const float *values, int64_t n);
    /* Called instead of see with the census of a whole tensor; NULL: this probe needs the values. */
    void (*count)(void *state, int tensor, const struct ab_census *census);
    void (*ran)(void *state, const ab_op_run *run);
    void (*moved)(void *state, const ab_move *move);
    bool anywhere; /* `ran` and `moved` take tensors in any memory, see ab_watch */
    bool (*wants_replay)(void *state, int64_t step, double loss_scale); /* see ab_watch */
    void (*update)(void *state, const ab_update_block *block);
    /* Called instead of update with the counts of a whole parameter; NULL: this probe needs the values. */
    void (*counted)(void *state, int param, const ab_update_counts *counts);
    bool rows;                                        /* `counted` wants the largest gradient of each row */
    void (*step_end)(void *state, int64_t step);      /* called after everything else of a probed step */
    void (*report)(void *state, ab_probe_sink *sink); /* writes keys into the open object */
} ab_probe_kind;

/* The rows of probes.def, in order: i in [0, count). */
int ab_probe_count(void);
const ab_probe_kind *ab_probe_at(int i);

/* Sets of probes: bit i is ab_probe_at(i). */
enum { AB_MAX_PROBES = 64 };
uint64_t ab_probes_all(void);
uint64_t ab_probes_standard(void);

/* *index: the probe `name`; AB_USAGE with the nearest name if unknown. */
AB_MUST_CHECK ab_status ab_probe_find(const char *name, int *index);

AB_END_DECLS

#endif
