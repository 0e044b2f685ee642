/* Loss scalers as state machines, each with the exact arithmetic of one framework: from statistics of a
 * step's scaled gradients they compute whether the step is skipped, the next scale, and whether the original
 * fails here.
 *
 * A dialect is one file with a const ab_scaler_kind and one line in scalers.def. It holds the scale and a few
 * named numbers and never reads tensors; the caller (bench/train) applies the scale. */
#ifndef AB_BENCH_AMP_SCALER_SCALER_H
#define AB_BENCH_AMP_SCALER_SCALER_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

/* AB_SCALER_TEXT: bytes, more than the longest text of ab_scaler_text (a name and eight keys with values). */
enum { AB_SCALER_KEYS = 8, AB_SCALER_STATES = 8, AB_SCALER_TEXT = 512 };

/* ---- configuration --------------------------------------------------------------------------- */

typedef enum ab_scaler_type { AB_SCALER_REAL, AB_SCALER_INTEGER, AB_SCALER_BOOL } ab_scaler_type;

/* A value set by DIALECT:name=value. It must be finite and in [low, high]; `open` excludes the finite ends.
 * Ranges are those of the original, or sensible ones where the original checks nothing. */
typedef struct ab_scaler_key {
    const char *name, *own; /* `own`: the framework's name; NULL: the same */
    const char *text;
    ab_scaler_type type;
    double fallback, low, high;
    bool open;
    bool integral; /* the default is a Python int; matters to scalers with exact integers */
} ab_scaler_key;

typedef struct ab_scaler_config {
    const struct ab_scaler_kind *kind;
    double value[AB_SCALER_KEYS]; /* in the order of kind->key */
    unsigned given;               /* bit i: key i was set */
    unsigned integral;            /* bit i: written as Python writes an int (65536, not 65536.0) */
} ab_scaler_config;

/* ---- a scaler -------------------------------------------------------------------------------- */

typedef struct ab_scaler {
    const struct ab_scaler_kind *kind;
    ab_scaler_config config;
    double scale; /* of the next step */
    double state[AB_SCALER_STATES];
} ab_scaler;

/* Statistics of one layer's unscaled gradient and weights, for dialects with per-layer scales. */
typedef struct ab_scaler_layer {
    double g_mean, g_std, g_max; /* g_max: largest magnitude */
    double w_mean, w_std, w_max;
    double fan_in;
    double chain; /* product of the scales of the earlier layers in the backward pass */
} ab_scaler_layer;

/* Input of a scaler: statistics of one step's gradients. */
typedef struct ab_scaler_seen {
    bool overflow; /* a scaled gradient is NaN or inf */
    double amax;   /* largest magnitude of the unscaled gradients; inf or NaN if there is one */
    double upper,
        lower; /* number of scaled elements above and not above the dialect's edge (AB_SEES_COUNTS) */
    const ab_scaler_layer *layer; /* AB_SEES_LAYER */
} ab_scaler_seen;

/* A defect of the original that shows up in a run; `name` is stable in reports. */
typedef struct ab_scaler_fault {
    const char *name, *text;
    bool raises; /* the original raises an exception; otherwise training continues */
} ab_scaler_fault;

typedef struct ab_scaler_outcome {
    bool skip;
    const ab_scaler_fault *fault; /* NULL: none */
} ab_scaler_outcome;

/* What a dialect reads besides `overflow`. */
enum { AB_SEES_AMAX = 1, AB_SEES_COUNTS = 2, AB_SEES_LAYER = 4 };

typedef struct ab_scaler_kind {
    const char *name, *origin, *text;
    const ab_scaler_key *key;
    int keys;
    const char *const *state; /* names of ab_scaler.state */
    int states;
    unsigned sees;
    unsigned python;    /* bit i: writing key i as a Python int changes the arithmetic */
    bool fp32;          /* the scale and its reciprocal are fp32 */
    bool updates_first; /* gradients are divided by the updated scale: by too much on a step that grows it */
    /* Checks relations between keys; NULL: none. */
    ab_status (*check)(const ab_scaler_config *config);
    void (*start)(ab_scaler *scaler);
    ab_scaler_outcome (*update)(ab_scaler *scaler, const ab_scaler_seen *seen);
    /* How many further clean steps only add 1 to the states whose bits are set in `counters`; NULL: none. The
     * step after them is the only one for which the values of the counters matter. */
    int64_t (*steps_until_change)(const ab_scaler *scaler);
    unsigned counters;
    /* Bit i: state i is a counter that matters only modulo the value of key `window`. */
    unsigned phases;
    int window;
    /* After an overflowed step: how many further ones keep the scale and all change the states by the same
     * amounts; NULL: none. */
    int64_t (*overflows_until_change)(const ab_scaler *scaler);
    /* Whether it checks gradients for overflow; NULL: yes. */
    bool (*checks)(const ab_scaler *scaler);
    /* The divisor of the gradients; NULL: the scale. */
    double (*divisor)(const ab_scaler *scaler);
} ab_scaler_kind;

/* The rows of scalers.def, in order: i in [0, count). find: AB_USAGE names the nearest row for an unknown
 * name. */
int ab_scaler_count(void);
const ab_scaler_kind *ab_scaler_at(int i);
AB_MUST_CHECK ab_status ab_scaler_find(const char *name, const ab_scaler_kind **kind);

/* The dialect with its defaults. */
ab_scaler_config ab_scaler_defaults(const ab_scaler_kind *kind);
/* Parses "torch" or "deepspeed:init=65536,window=500". Numbers may be written 2^16 or, as in Python, 2**16.
 * AB_USAGE names the dialect, the key, what was expected and the nearest name. */
AB_MUST_CHECK ab_status ab_scaler_parse(const char *text, ab_scaler_config *config);
/* Parses the keys alone: "init=65536,window=500", or "" for none. */
AB_MUST_CHECK ab_status ab_scaler_parse_keys(const ab_scaler_kind *kind, const char *keys,
                                             ab_scaler_config *config);
/* Sets one key from text. */
AB_MUST_CHECK ab_status ab_scaler_set(ab_scaler_config *config, const char *key, const char *value);
/* Index of a key by either of its names, or -1. */
int ab_scaler_key_index(const ab_scaler_kind *kind, const char *name);
/* The inverse of ab_scaler_parse: the keys that were set, in their order. Writes text[AB_SCALER_TEXT];
 * returns it. */
const char *ab_scaler_text(const ab_scaler_config *config, char *text);

/* The configuration that training uses: --min-loss-scale, --max-loss-scale and --scale-window (0: not given)
 * where the dialect has such a key and the configuration does not set it. */
ab_scaler_config ab_scaler_limited(const ab_scaler_config *config, double min, double max, double window);

/* start: initialises a scaler. checks: whether it checks gradients for overflow. divisor: the divisor of the
 * gradients. */
void ab_scaler_start(ab_scaler *scaler, const ab_scaler_config *config);
bool ab_scaler_checks(const ab_scaler *scaler);
double ab_scaler_divisor(const ab_scaler *scaler);

/* One step. After a fault that raises, the scaler must not be used any more. Faults common to all dialects (a
 * scale of 0, infinity or NaN, a reciprocal beyond fp32) are detected here. */
AB_MUST_CHECK ab_scaler_outcome ab_scaler_update(ab_scaler *scaler, const ab_scaler_seen *seen);

/* Whether two scalers of one configuration have equal states. */
bool ab_scaler_same(const ab_scaler *a, const ab_scaler *b);

/* Whether equal inputs have equal effects on both from here on: equal but for whole windows in counters. */
bool ab_scaler_alike(const ab_scaler *a, const ab_scaler *b);

/* Takes up to `most` further steps with the input of the last one, as long as they change only counters;
 * returns how many. `before` is the scaler before the last step. */
int64_t ab_scaler_fast_forward(ab_scaler *scaler, const ab_scaler *before, const ab_scaler_seen *seen,
                               int64_t most);

/* The state stored in a checkpoint: "scale", then the dialect's states. */
int ab_scaler_state_count(const ab_scaler_kind *kind);
const char *ab_scaler_state_name(const ab_scaler_kind *kind, int i);
double ab_scaler_state(const ab_scaler *scaler, int i);
/* AB_INPUT names a state the dialect does not have. */
AB_MUST_CHECK ab_status ab_scaler_set_state(ab_scaler *scaler, const char *name, double value);

/* For dialects: x rounded to fp32. */
static inline double ab_fp32(double x) { return (double)(float)x; }

AB_END_DECLS

#endif
