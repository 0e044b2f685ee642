/* What a probe of libampprobe holds. Internal: the public interface is include/ampprobe.h.
 *
 * Plain structures without pointers (marked so) are written to the journal as they are. Everything of a
 * handle but `owner` and `path` is read and changed under its lock. */
#ifndef AB_PROBES_LIB_HANDLE_H
#define AB_PROBES_LIB_HANDLE_H

#include "include/ampprobe.h"
#include "kernels/files/lock.h"
#include "kernels/files/outfile.h"
#include "probes/lib/config.h"
#include "probes/range_counts.h"

#include <pthread.h>
#include <sys/types.h>

AB_BEGIN_DECLS

/* ---- things and their tensors ---------------------------------------------------------------- */

enum {
    AB_LIB_STATES = 3,
    AB_LIB_SLOTS = AMPPROBE_OPTIMIZER_STATE + AB_LIB_STATES,
    AB_LIB_MAX_THINGS = 1 << 20
};

/* Reasons of ampprobe_skip. */
enum { AB_LIB_REASONS = AMPPROBE_SKIP_BUDGET + 1 };

/* Time axes: gradients of parameters; outputs of layers; what is shown after a step. */
enum { AB_LIB_GRADIENTS, AB_LIB_LAYERS, AB_LIB_AFTER, AB_LIB_AXES };

typedef struct ab_lib_thing {
    char *name, *layer, *type; /* owned; type may be NULL */
    uint32_t flags;
    int32_t dtype, group, dimensions;
    int64_t shape[AMPPROBE_DIMENSIONS];
    int32_t tensor[AB_LIB_SLOTS]; /* by role, optimizer states last: index of ab_lib_tensor, or -1 */
    int32_t ledger;               /* index, or -1 */
} ab_lib_thing;

/* What is kept only of gradients that carry the loss scale: their exponents over time, and the gradients
 * divided by the loss scale of their step, by the exponent of the scale. Plain. */
typedef struct ab_lib_scaled {
    ab_range_periods periods;
    int64_t exponent[AB_CENSUS_EXPONENTS]; /* finite values that are not 0 */
    int64_t rounded;                       /* values at a scale that is no power of two */
    int64_t cut[AB_COLUMNS];   /* steps with a value that was not finite: the largest is unknown */
    float largest[AB_COLUMNS]; /* 2^x; -INFINITY: none */
} ab_lib_scaled;

/* A thing in one role. Plain. */
typedef struct ab_lib_tensor {
    int32_t thing, slot; /* slot: role, or AMPPROBE_OPTIMIZER_STATE + state */
    int32_t dtype;       /* as last shown */
    int32_t axis;
    int64_t shown, values; /* times that it was counted, and how many values it had then, together */
    int64_t skipped[AB_LIB_REASONS];        /* times, by ampprobe_skip */
    int64_t overflow_steps, first_overflow; /* steps with a non-finite value; the first one, or -1 */
    ab_range_history history;
} ab_lib_tensor;

/* What was shown of a tensor since the last step. Plain. */
typedef struct ab_lib_pending {
    int32_t any, dtype; /* any: something is in it */
    int64_t shown, values, nonfinite;
    int64_t skipped[AB_LIB_REASONS];
    ab_range_counts counts;
} ab_lib_pending;

/* ---- lost updates ---------------------------------------------------------------------------- */

enum { AB_LIB_SAMPLE = 1024 };

/* Plain. */
typedef struct ab_lib_account {
    int64_t nonzero, lost;
    double energy, lost_energy; /* NAN: the update is not known */
} ab_lib_account;

/* The ledger of one parameter. Plain. */
typedef struct ab_lib_ledger {
    int32_t thing, dtype; /* dtype: as stored */
    ab_lib_account update, decay;
    int64_t nonzero[AB_COLUMNS], lost[AB_COLUMNS];
    int64_t stopped_since; /* step, or -1 */
    double lr;
} ab_lib_ledger;

/* What one step adds to a ledger. Plain. */
typedef struct ab_lib_moves {
    int32_t thing, dtype;
    ab_lib_account update, decay;
    double lr;
} ab_lib_moves;

/* Values of a parameter before the update. */
typedef struct ab_lib_sample {
    int64_t count, first, step, taken; /* of the tensor; places first + i * step, i < taken */
    int32_t dtype;
    bool waiting;
    float value[AB_LIB_SAMPLE];
} ab_lib_sample;

/* ---- steps ----------------------------------------------------------------------------------- */

enum {
    AB_LIB_RATES = 1 << 10,
    AB_LIB_LOSSES = 1 << 14,
    AB_LIB_SCALES = 1 << 12,
    AB_LIB_SKIPS = 1 << 14,
    AB_LIB_GROUPS = 16
};

/* The optimizer steps of one group. Plain. */
typedef struct ab_lib_group {
    int64_t steps, skipped, first_skipped, unknown; /* unknown: neither found_inf nor stepped was known */
    int64_t checked, called; /* steps whose found_inf was given; of the others, those whose stepped was */
    int64_t exact_overflows, silent_skips; /* silent: only the probe's own finite check says so */
    int64_t clipped_scaled, schedule_on_skip, clipped, normed, micro_batches;
    int64_t first_caller_step, last_caller_step;
    double lr, first_lr, norm_largest, norm_last, clip_norm, clip_share;
    double last_scale, first_scale, least_scale, largest_scale;
    double step_scale; /* of the step that was folded last; 1: none */
    int64_t scaled;    /* steps with a scale */
} ab_lib_group;

/* The steps of group 0 over time. Plain. */
typedef struct ab_lib_steps {
    int64_t stride; /* steps in an element of loss and time */
    int64_t losses, nonfinite_losses, known_losses;
    double loss[AB_LIB_LOSSES]; /* sums; NAN if one was not finite */
    int32_t known[AB_LIB_LOSSES];
    float seconds[AB_LIB_LOSSES]; /* sums */
    int64_t scales;
    double scale[AB_LIB_SCALES];
    int64_t scale_steps[AB_LIB_SCALES];
    int64_t rate_stride, rates;  /* steps in an element of rate, as many as fit; elements */
    double rate[AB_LIB_RATES];   /* sums of learning rates */
    int32_t rated[AB_LIB_RATES]; /* steps in them */
    int64_t skips;
    int64_t skip[AB_LIB_SKIPS];
    double first_seconds;
} ab_lib_steps;

/* Everything about steps. Plain. */
typedef struct ab_lib_course {
    ab_lib_group group[AB_LIB_GROUPS];
    int32_t groups; /* highest group that stepped, plus 1 */
    ab_columns columns[AB_LIB_AXES];
    int64_t probed[AB_LIB_AXES]; /* steps in which something was counted */
    int64_t layer_steps;
    double run_seconds, probe_seconds;
    ab_lib_steps steps;
} ab_lib_course;

/* What one call of ampprobe_step says. Plain. */
typedef struct ab_lib_step {
    ampprobe_step_facts facts;
    int32_t exact, axes;  /* exact: the finite check saw all gradients; axes: bits of those counted on */
    int64_t nonfinite;    /* that it found */
    double seconds;       /* of the step, without the probe */
    double probe_seconds; /* of the whole run so far */
} ab_lib_step;

/* ---- named facts ----------------------------------------------------------------------------- */

enum { AB_LIB_FACTS = 256, AB_LIB_FACT_NAME = 64, AB_LIB_FACT_PLACE = 160 };

/* What the caller stated under one name of one place. Plain. */
typedef struct ab_lib_fact {
    char name[AB_LIB_FACT_NAME], place[AB_LIB_FACT_PLACE];
    int64_t times, first_step, last_step;
    double first, last, least, largest; /* values; NAN: not finite */
} ab_lib_fact;

/* Plain. */
typedef struct ab_lib_facts {
    int32_t count;
    int64_t left_out; /* statements beyond the room */
    ab_lib_fact fact[AB_LIB_FACTS];
} ab_lib_facts;

/* ---- governor -------------------------------------------------------------------------------- */

/* What a group's step knows of its gradients so far. */
typedef struct ab_lib_look {
    bool looked, sampled; /* at them; at not all of their values */
    int64_t nonfinite;    /* values found in them */
} ab_lib_look;

typedef struct ab_lib_governor {
    double gradient_credit, layer_credit; /* seconds that may be spent */
    double ns_per_value;                  /* of a census; measured */
    double gradient_cost;   /* seconds of a step that shows gradients, beyond the census; running mean */
    double layer_cost;      /* of the last step that showed layers, in plain steps, beyond one */
    double plain_seconds;   /* running mean of plain steps */
    double spent;           /* by the caller and in layers' calls since the last step */
    double gradient_spent;  /* in calls that count gradients, since the last step */
    double fixed_spent;     /* in steps that show nothing, since the last step */
    double run, cost;       /* seconds of all steps so far without the probe, and of the probe in them */
    int64_t next_gradients; /* step at which gradients are counted even if that is not paid for */
    int64_t next_layers;    /* and layers */
    int64_t sick_until;     /* step before which nothing waits, as one was skipped or had values not finite */
    int64_t stage_from;     /* step at which the optimizer came that takes the steps now */
    int32_t stages;         /* such optimizers beyond the first */
    int32_t stride;
    bool skipped_last, layers_last; /* the last step was skipped; it showed layers */
} ab_lib_governor;

/* ---- the handle ------------------------------------------------------------------------------ */

enum { AB_LIB_NOTES = 64, AB_LIB_FAILURE = 512 };

struct ab_lib_flight;
struct ab_lib_latest;

struct ampprobe {
    pthread_mutex_t lock;
    pid_t owner;
    int state; /* AMPPROBE_OK or AMPPROBE_OFF */
    char failure[AB_LIB_FAILURE];
    char *path;
    char id[17], started[32];
    double opened; /* seconds of the monotonic clock */
    double last_step_end;
    bool complete;

    ab_lib_config config;
    ab_range_bins bins;
    ab_lib_thing *thing;
    int32_t things, thing_room;
    int32_t *by_name; /* [names]: index of a thing plus 1, by hash */
    int32_t names;    /* a power of two, or 0 */
    ab_lib_tensor **tensor;
    ab_lib_scaled **scaled;   /* [tensors]; NULL: the tensor does not carry the loss scale */
    ab_lib_pending **pending; /* [tensors]; NULL: nothing was ever shown */
    int32_t tensors, tensor_room;
    int32_t
        *waiting; /* [tensors]: those of which something is pending, in the order in which they were shown */
    int32_t waitings;
    ab_lib_ledger **ledger;
    ab_lib_sample **sample; /* [ledgers]; NULL: none */
    int32_t ledgers, ledger_room;
    ab_lib_moves *moves; /* of this step */
    int32_t moved, move_room;
    char *note[AB_LIB_NOTES];
    int64_t notes;
    ab_lib_course *course;
    ab_lib_facts *facts;
    ab_lib_governor governor;
    int planned; /* what ampprobe_plan says of the next step */
    ab_lib_look look[AB_LIB_GROUPS];

    struct ab_lib_flight *flight; /* what GPUs are counting for steps that have not been taken (device.h) */
    int32_t flights, flight_room;
    ab_lib_step late[AB_LIB_GROUPS]; /* steps that ended and wait for that (ending.h), in order */
    int32_t lates;
    bool device_failed; /* nothing in CUDA memory is counted any more */

    ab_lock place; /* nobody else writes there */
    ab_outfile journal;
    int64_t journal_bytes, snapshot_bytes;
    double next_write, write_seconds;
    char *buffer; /* of journal records */
    size_t buffered, buffer_room;
    bool holds;                   /* records stay in the buffer, */
    size_t held;                  /* which has so many bytes of them */
    struct ab_lib_latest *latest; /* memory for steps that are not handed over yet; NULL: none */
    size_t latest_bytes;
};

/* What a call is about. */
typedef struct ab_lib_call {
    int32_t group;
    uint32_t flags; /* AMPPROBE_ALL ... */
    bool gradients; /* of parameters, sampled as the governor says */
} ab_lib_call;

/* Whether all values are looked at, in the census or not. */
static inline bool ab_lib_wants_all(const ab_lib_call *call) {
    return (call->flags & (AMPPROBE_ALL | AMPPROBE_CHECK | AMPPROBE_FINITE)) != 0;
}

/* Seconds of the monotonic clock. */
double ab_lib_now(void);

AB_END_DECLS

#endif
