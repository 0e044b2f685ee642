/* State of the origin probe, private to origin.c (callbacks), origin_cause.c (causes) and origin_report.c
 * (record). Sizes are fixed except two tables that grow with the network. */
#ifndef AB_PROBES_ORIGIN_ORIGIN_H
#define AB_PROBES_ORIGIN_ORIGIN_H

#include "kernels/backend/extremes.h"
#include "probes/element64/element64.h"
#include "probes/probe.h"

AB_BEGIN_DECLS

enum { AB_ORIGIN_EVENTS = 12, AB_ORIGIN_FLOW = 24, AB_ORIGIN_HISTORY = 8, AB_ORIGIN_NAME = 96 };

/* What wrote a tensor. Two values per kind of move: forward, backward. */
enum {
    AB_ORIGIN_FORWARD,
    AB_ORIGIN_BACKWARD,
    AB_ORIGIN_MOVE,
    AB_ORIGIN_UPDATE = AB_ORIGIN_MOVE + 2 * AB_MOVE_COUNT
};

/* Tensors of an op: those of element64.h, then the ones it read. */
enum {
    AB_ORIGIN_OUT = AB_WROTE_OUT,
    AB_ORIGIN_DIN = AB_WROTE_DIN,
    AB_ORIGIN_DPARAM = AB_WROTE_DPARAM,
    AB_ORIGIN_IN = AB_WROTE_COUNT,
    AB_ORIGIN_PARAM = AB_ORIGIN_IN + AB_MAX_INPUTS
};

typedef struct ab_origin_place {
    int number, stage, slot;
} ab_origin_place;

typedef struct ab_origin_past {
    int64_t step;
    double largest;
} ab_origin_past;

/* The largest magnitudes that a place wrote in the last finite steps. */
typedef struct ab_origin_site {
    ab_origin_place place;
    int64_t seen;
    ab_origin_past past[AB_ORIGIN_HISTORY]; /* number `seen` % AB_ORIGIN_HISTORY is the oldest */
} ab_origin_site;

typedef enum ab_origin_change { AB_APPEARS, AB_PROPAGATES, AB_VANISHES, AB_CHANGES } ab_origin_change;

typedef struct ab_origin_flow {
    char name[AB_ORIGIN_NAME];
    int stage;
    ab_origin_change change;
    int64_t infinite, nan;
} ab_origin_flow;

/* Why a value is non-finite, found by recomputing it in double from the same inputs. */
typedef enum ab_origin_cause_id {
    AB_CAUSE_cannot_tell,          /* too expensive to recompute, or out of memory */
    AB_CAUSE_range_overflow,       /* finite, but beyond the format's range */
    AB_CAUSE_accumulator_overflow, /* in range, but a partial result overflows */
    AB_CAUSE_scale_induced,        /* finite without the loss scale */
    AB_CAUSE_mathematics,          /* non-finite in double too: log 0, 0/0 */
    AB_CAUSE_poisoned_input,       /* the input data were non-finite */
    AB_CAUSE_bad_weights,          /* the parameters were non-finite */
    AB_CAUSE_optimizer_arithmetic, /* finite weights and gradients, non-finite update */
    AB_CAUSE_not_reproduced,       /* finite and in range in double: defect of the kernel or memory */
    AB_CAUSE_COUNT
} ab_origin_cause_id;

typedef struct ab_origin_cause {
    ab_origin_cause_id id;
    int samples;                     /* recomputed elements */
    double value, unscaled, partial; /* of the first element with this cause: in double, without the loss
                                        scale, and the largest partial result; NAN if unknown */
    double limit;                    /* smallest magnitude that overflows the storage format */
    double largest; /* of the recomputed elements with this cause: the magnitude that overflowed, a value or a
                       partial result; 0 if unknown */
} ab_origin_cause;

typedef struct ab_origin_event {
    ab_origin_place place;
    char name[AB_ORIGIN_NAME], type[AB_ORIGIN_NAME], tensor[AB_ORIGIN_NAME];
    int64_t step, last_step, times, count;
    double scale, read_largest;
    bool replayed, expected;
    ab_tensor_extremes found;
    const ab_format *format;
    ab_origin_cause cause;
    int pasts, flows;
    ab_origin_past past[AB_ORIGIN_HISTORY];
    ab_origin_flow flow[AB_ORIGIN_FLOW];
    int64_t changes[AB_CHANGES]; /* number of each kind; `flow` holds the first ones */
} ab_origin_event;

/* Where a step became non-finite, of every examined one; the events hold the details of the first of each
 * place. */
enum { AB_ORIGIN_STEPS = 128, AB_ORIGIN_EVERY = 64 }; /* the first EVERY non-finite steps are all examined */
typedef struct ab_origin_step {
    int64_t step;
    int stage;
    char name[AB_ORIGIN_NAME], tensor[AB_ORIGIN_NAME];
    const ab_format *format;
    double scale, margin; /* margin: octaves above the format's limit; NAN: not known */
} ab_origin_step;

/* Cached extremes of a tensor in the current step. */
typedef struct ab_origin_known {
    const ab_tensor *tensor; /* NULL: free */
    int64_t sweep;
    ab_tensor_extremes extremes;
    bool intended; /* its infinities come from a mask */
} ab_origin_known;

/* A thread's first update of the step that is non-finite with finite inputs. */
typedef struct ab_origin_update {
    bool found;
    int param;
    float before, grad, after, stored;
} ab_origin_update;

typedef struct ab_origin {
    const ab_probe_param *param;
    const ab_format *accumulate;
    bool scale_reacts, governed;
    bool is_examined; /* tensors of this step are examined */
    int threads;
    int64_t probed; /* steps */
    int64_t step, sweep, nonfinite, replays, left_out;
    int64_t last_forward; /* index of the op that ran last in a forward pass */
    double scale;
    bool is_replay;
    ab_origin_event *current; /* of this step; NULL: none yet, or no free slot */
    bool event_seen;          /* in this step */
    bool flow_open;           /* `current` is new: the following tensors are its flow */
    ab_origin_event event[AB_ORIGIN_EVENTS];
    int events;
    ab_origin_step noted[AB_ORIGIN_STEPS];
    int notes;
    ab_origin_known *known; /* open addressing; known_room is a power of two */
    int known_room, known_used;
    ab_origin_site *site; /* open addressing; number -2: free */
    int site_room, site_used;
    ab_origin_update *update; /* [threads] */
} ab_origin;

/* Determines why elements of `tensor`, just written by `run` as `slot`, are non-finite. */
void ab_origin_explain(const ab_origin *o, const ab_op_run *run, int slot, const ab_tensor *tensor,
                       ab_origin_cause *cause);
/* The same for a cast, and for a sum whose addends have magnitudes of at most `part` and `other`. */
void ab_origin_explain_cast(const ab_origin *o, const ab_move *move, ab_origin_cause *cause);
void ab_origin_explain_sum(const ab_origin *o, const ab_move *move, double part, double other,
                           ab_origin_cause *cause);

/* Writes the keys of the probe's record. */
void ab_origin_report(const ab_origin *o, ab_probe_sink *sink);

AB_END_DECLS

#endif
