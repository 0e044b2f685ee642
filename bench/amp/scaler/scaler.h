/* Loss scalers as state machines, each the exact arithmetic of one framework's: given what a step's scaled
 * gradients looked like, is the step skipped, what is the next scale, and does the original stop here with an
 * error?
 *
 * A dialect is one file with a const ab_scaler_kind and one line in scalers.def. It keeps the scale and a few
 * named numbers; it never looks at tensors, and what a step does with the scale is the caller's matter
 * (bench/train). */
#ifndef AB_BENCH_AMP_SCALER_SCALER_H
#define AB_BENCH_AMP_SCALER_SCALER_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

/* AB_SCALER_TEXT: more than the longest text of ab_scaler_text, a name and eight keys with their values. */
enum { AB_SCALER_KEYS = 8, AB_SCALER_STATES = 8, AB_SCALER_TEXT = 512 };

/* ---- configuration --------------------------------------------------------------------------- */

typedef enum ab_scaler_type { AB_SCALER_REAL, AB_SCALER_INTEGER, AB_SCALER_BOOL } ab_scaler_type;

/* A value that DIALECT:name=value sets. It must be finite, and from `low` to `high`; `open` leaves the ends
 * out where they are not infinite. Ranges are what the original accepts, or what makes sense where it checks
 * nothing. */
typedef struct ab_scaler_key {
    const char *name, *own; /* `own`: what the framework calls it; NULL: the same */
    const char *text;
    ab_scaler_type type;
    double fallback, low, high;
    bool open;
    bool integral; /* the default is a Python int, which matters to machines that count without rounding */
} ab_scaler_key;

typedef struct ab_scaler_config {
    const struct ab_scaler_kind *kind;
    double value[AB_SCALER_KEYS]; /* in the order of kind->key */
    unsigned given;               /* bit i: key i was set */
    unsigned integral;            /* bit i: written as Python writes an int (65536, not 65536.0) */
} ab_scaler_config;

/* ---- a machine ------------------------------------------------------------------------------- */

typedef struct ab_scaler {
    const struct ab_scaler_kind *kind;
    ab_scaler_config config;
    double scale; /* in force in the step to come */
    double state[AB_SCALER_STATES];
} ab_scaler;

/* One layer's gradient and weight, for dialects that scale layers one by one. Gradients unscaled. */
typedef struct ab_scaler_layer {
    double g_mean, g_std, g_max; /* g_max: largest magnitude */
    double w_mean, w_std, w_max;
    double fan_in;
    double chain; /* product of the scales of the layers before it in the backward pass */
} ab_scaler_layer;

/* What a step tells a scaler. */
typedef struct ab_scaler_seen {
    bool overflow;       /* a scaled gradient was not finite */
    double amax;         /* largest magnitude of the unscaled gradients; inf or NaN where there was one */
    double upper, lower; /* elements above and not above the dialect's edge, scaled (AB_SEES_COUNTS) */
    const ab_scaler_layer *layer; /* AB_SEES_LAYER */
} ab_scaler_seen;

/* Something the original does that its user did not want, by a name that reports keep. */
typedef struct ab_scaler_fault {
    const char *name, *text;
    bool raises; /* the original stops with an exception; otherwise it goes on training */
} ab_scaler_fault;

extern const ab_scaler_fault ab_scaler_divides_by_zero; /* 1/scale in Python, raises */

typedef struct ab_scaler_outcome {
    bool skip;
    const ab_scaler_fault *fault; /* NULL: none */
} ab_scaler_outcome;

/* What a dialect reads beside `overflow`. */
enum { AB_SEES_AMAX = 1, AB_SEES_COUNTS = 2, AB_SEES_LAYER = 4 };

typedef struct ab_scaler_kind {
    const char *name, *origin, *text;
    const ab_scaler_key *key;
    int keys;
    const char *const *state; /* names of ab_scaler.state */
    int states;
    unsigned sees;
    unsigned python;    /* bit i: whether key i is written as a Python int changes the arithmetic */
    bool fp32;          /* the scale is an fp32 number, and so is its reciprocal */
    bool updates_first; /* gradients are divided by the scale after the update: too much on a step that grows
                         */
    /* Relations between keys; NULL: none. */
    ab_status (*check)(const ab_scaler_config *config);
    void (*start)(ab_scaler *scaler);
    ab_scaler_outcome (*update)(ab_scaler *scaler, const ab_scaler_seen *seen);
    /* How many clean steps to come do nothing but add 1 to the states whose bits are in `counters`; NULL:
     * never any. */
    int64_t (*steps_until_change)(const ab_scaler *scaler);
    unsigned counters;
    /* Looks at the gradients at all; NULL: yes. */
    bool (*checks)(const ab_scaler *scaler);
    /* What gradients are divided by; NULL: the scale. */
    double (*divisor)(const ab_scaler *scaler);
} ab_scaler_kind;

/* The rows of scalers.def, in order: i in [0, count). find: AB_USAGE with the nearest name for an unknown
 * one. */
int ab_scaler_count(void);
const ab_scaler_kind *ab_scaler_at(int i);
AB_MUST_CHECK ab_status ab_scaler_find(const char *name, const ab_scaler_kind **kind);

/* The dialect with its defaults. */
ab_scaler_config ab_scaler_defaults(const ab_scaler_kind *kind);
/* "torch", "deepspeed:init=65536,window=500". Numbers may be written 2^16 or, as in Python, 2**16. AB_USAGE
 * names the dialect, the key, what was expected and the nearest name. */
AB_MUST_CHECK ab_status ab_scaler_parse(const char *text, ab_scaler_config *config);
/* The same of the keys alone: "init=65536,window=500", or "" for none. */
AB_MUST_CHECK ab_status ab_scaler_parse_keys(const ab_scaler_kind *kind, const char *keys,
                                             ab_scaler_config *config);
/* Sets one key from text. */
AB_MUST_CHECK ab_status ab_scaler_set(ab_scaler_config *config, const char *key, const char *value);
/* Index of a key by either of its names, or -1. */
int ab_scaler_key_index(const ab_scaler_kind *kind, const char *name);
/* What ab_scaler_parse reads back: the keys that were set, in their order. Writes text[AB_SCALER_TEXT];
 * returns it. */
const char *ab_scaler_text(const ab_scaler_config *config, char *text);

/* The configuration that training uses: --min-loss-scale, --max-loss-scale and --scale-window (0: not given)
 * where the dialect has such a key and its own text does not set it. */
ab_scaler_config ab_scaler_limited(const ab_scaler_config *config, double min, double max, double window);

/* A scaler before its first step. checks: whether it looks at the gradients; divisor: what gradients are
 * divided by. */
void ab_scaler_start(ab_scaler *scaler, const ab_scaler_config *config);
bool ab_scaler_checks(const ab_scaler *scaler);
double ab_scaler_divisor(const ab_scaler *scaler);

/* One step. After a fault that raises, the machine must not be used again. Faults that every dialect can have
 * (a scale of 0, infinity or no number, a reciprocal that fp32 cannot hold) are named here. */
AB_MUST_CHECK ab_scaler_outcome ab_scaler_update(ab_scaler *scaler, const ab_scaler_seen *seen);

/* Whether two machines of one configuration will do the same from here on. */
bool ab_scaler_same(const ab_scaler *a, const ab_scaler *b);

/* Up to `most` further steps that see what the last one saw and change nothing but counters; returns how many
 * were taken. `before` is the machine before the last step. */
int64_t ab_scaler_fast_forward(ab_scaler *scaler, const ab_scaler *before, const ab_scaler_seen *seen,
                               int64_t most);

/* The numbers a checkpoint keeps: "scale", then the dialect's own. */
int ab_scaler_state_count(const ab_scaler_kind *kind);
const char *ab_scaler_state_name(const ab_scaler_kind *kind, int i);
double ab_scaler_state(const ab_scaler *scaler, int i);
/* AB_INPUT names a state the dialect does not have. */
AB_MUST_CHECK ab_status ab_scaler_set_state(ab_scaler *scaler, const char *name, double value);

/* For dialects: x rounded to fp32. */
static inline double ab_fp32(double x) { return (double)(float)x; }

AB_END_DECLS

#endif
