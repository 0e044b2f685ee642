/* What a probe is: something that listens to the values of a step, counts them, and reports what it counted.
 *
 * A probe is one file with a const ab_probe_kind and one line in probes.def. It sees values as they are in
 * fp32 before they are cast to the half format (or as they are stored, where nothing is cast), at the loss
 * scale in force. It never changes a value: with probes off every loss bit is the same. Networks, files and
 * output formats are unknown here; a report goes to a sink that the caller provides. */
#ifndef AB_PROBES_PROBE_H
#define AB_PROBES_PROBE_H

#include "kernels/format/format.h"
#include "probes/watch.h"

AB_BEGIN_DECLS

/* A tensor that can be seen; its number is its place in the setup's array. */
typedef struct ab_probe_tensor {
    const char *name;  /* "conv1.weight.grad"; borrowed for the probe's life */
    const char *layer; /* "conv1" */
    ab_probe_role role;
    bool cast; /* these values are cast to the half format; false: they stay fp32 */
} ab_probe_tensor;

/* A trained parameter as the optimizer sees it. */
typedef struct ab_probe_param {
    const char *name, *layer; /* "conv1.weight", "conv1"; borrowed */
    int64_t count;
    int64_t rows;                           /* its first dimension; 0: it has no other */
    const ab_format *format, *state_format; /* the weight (a master, where there is one) and its states */
} ab_probe_param;

typedef struct ab_probe_optimizer {
    double lr, weight_decay, beta1, beta2, eps; /* beta2: RMSprop's alpha; beta1: 0 without a first moment */
    int second_moment; /* which state is the average of squares, Adam's v; -1: there is none */
} ab_probe_optimizer;

typedef struct ab_probe_setup {
    const ab_probe_tensor *tensor; /* borrowed for the probe's life, like `param` */
    int tensors;
    int threads;           /* see() is called with thread in [0, threads) */
    const ab_format *half; /* counts are against this format's range */
    const ab_probe_param *param;
    int params;
    ab_probe_optimizer optimizer;
    int64_t steps;               /* of the whole run, probed or not; 0: unknown */
    int64_t every;               /* probed steps are multiples of this; 0: unknown */
    uint64_t seed;               /* of what a probe samples */
    bool governed;               /* probed steps are rationed by what they cost */
    bool scale_reacts;           /* the loss scaler looks for overflows and skips such steps */
    const ab_format *accumulate; /* what sums of half ops are rounded to; NULL: fp32 */
} ab_probe_setup;

/* Where a report goes: a tree of objects and arrays. key is NULL inside arrays. */
typedef struct ab_probe_sink {
    void (*begin_object)(struct ab_probe_sink *self, const char *key);
    void (*begin_array)(struct ab_probe_sink *self, const char *key);
    void (*end)(struct ab_probe_sink *self);
    void (*text)(struct ab_probe_sink *self, const char *key, const char *value); /* NULL becomes null */
    void (*boolean)(struct ab_probe_sink *self, const char *key, bool value);
    void (*integer)(struct ab_probe_sink *self, const char *key, int64_t value);
    void (*number)(struct ab_probe_sink *self, const char *key, double value); /* not finite becomes null */
    void (*integers)(struct ab_probe_sink *self, const char *key, const int64_t *value, int64_t count);
} ab_probe_sink;

/* All functions but create, destroy and report may be NULL. */
typedef struct ab_probe_kind {
    const char *name, *text;
    bool standard;  /* one of --probes default */
    unsigned roles; /* AB_SEES_...: the tensors that see() is called with */
    ab_status (*create)(const ab_probe_setup *setup, void **state);
    void (*destroy)(void *state); /* NULL is a no-op */
    void (*begin)(void *state, int64_t step, double loss_scale);
    void (*see)(void *state, int tensor, int thread, const float *values, int64_t n);
    /* In the place of see, for all values of a tensor at once; NULL: this probe wants the values. */
    void (*count)(void *state, int tensor, const struct ab_census *census);
    void (*ran)(void *state, const ab_op_run *run);
    void (*moved)(void *state, const ab_move *move);
    bool (*wants_replay)(void *state, int64_t step, double loss_scale); /* see ab_watch */
    void (*update)(void *state, const ab_update_block *block);
    void (*step_end)(void *state, int64_t step);      /* all of this probed step has been seen */
    void (*report)(void *state, ab_probe_sink *sink); /* writes keys into the object that is open */
} ab_probe_kind;

/* The rows of probes.def, in order: i in [0, count). */
int ab_probe_count(void);
const ab_probe_kind *ab_probe_at(int i);

/* Sets of probes: bit i is ab_probe_at(i). */
enum { AB_MAX_PROBES = 64 };
uint64_t ab_probes_all(void);
uint64_t ab_probes_standard(void);

/* The probe called `name`; AB_USAGE with the nearest name otherwise. */
AB_MUST_CHECK ab_status ab_probe_find(const char *name, int *index);

AB_END_DECLS

#endif
