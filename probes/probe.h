/* What a probe is: something that listens to the values of a step, counts them, and reports what it counted.
 *
 * A probe is one file with a const ab_probe_kind and one line in probes.def. It sees values as they are in fp32 before they
 * are cast to the half format (or as they are stored, where nothing is cast), at the loss scale in force. It never changes a
 * value: with probes off every loss bit is the same. Networks, files and output formats are unknown here; a report goes
 * to a sink that the caller provides. */
#ifndef AB_PROBES_PROBE_H
#define AB_PROBES_PROBE_H

#include "kernels/format.h"

AB_BEGIN_DECLS

typedef enum ab_probe_role { AB_ROLE_WEIGHT_GRADIENT, AB_ROLE_ACTIVATION_GRADIENT } ab_probe_role;

/* A tensor that can be seen; its number is its place in the setup's array. */
typedef struct ab_probe_tensor {
    const char *name;  /* "conv1.weight.grad"; borrowed for the probe's life */
    const char *layer; /* "conv1" */
    ab_probe_role role;
    bool cast; /* these values are cast to the half format; false: they stay fp32 */
} ab_probe_tensor;

typedef struct ab_probe_setup {
    const ab_probe_tensor *tensor; /* borrowed for the probe's life */
    int tensors;
    int threads;           /* see() is called with thread in [0, threads) */
    const ab_format *half; /* counts are against this format's range */
} ab_probe_setup;

/* Where a report goes: a tree of objects and arrays. key is NULL inside arrays. */
typedef struct ab_probe_sink {
    void (*begin_object)(struct ab_probe_sink *self, const char *key);
    void (*begin_array)(struct ab_probe_sink *self, const char *key);
    void (*end)(struct ab_probe_sink *self);
    void (*text)(struct ab_probe_sink *self, const char *key, const char *value);
    void (*boolean)(struct ab_probe_sink *self, const char *key, bool value);
    void (*integer)(struct ab_probe_sink *self, const char *key, int64_t value);
    void (*number)(struct ab_probe_sink *self, const char *key, double value); /* not finite becomes null */
    void (*integers)(struct ab_probe_sink *self, const char *key, const int64_t *value, int64_t count);
} ab_probe_sink;

typedef struct ab_probe_kind {
    const char *name, *text;
    ab_status (*create)(const ab_probe_setup *setup, void **state);
    void (*destroy)(void *state);
    void (*see)(void *state, int tensor, int thread, const float *values, int64_t n);
    void (*step_end)(void *state, int64_t step);      /* all values of this probed step have been seen */
    void (*report)(void *state, ab_probe_sink *sink); /* writes keys into the object that is open */
} ab_probe_kind;

int ab_probe_count(void);
const ab_probe_kind *ab_probe_at(int i);

AB_END_DECLS

#endif
