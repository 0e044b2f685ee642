/* ampprobe.h - the numerical record of a training loop that is not ampbench's.
 *
 * A training loop opens a probe, describes its parameters once, shows their gradients at every step, says
 * what became of the step, and closes the probe. The probe writes one JSON document, which `ampbench
 * diagnose`, `advise` and `report` read as they read a run of their own.
 *
 *     ampprobe *probe;
 *     if (ampprobe_open("run.ampprobe.json", NULL, &probe) != AMPPROBE_OK) fputs(ampprobe_error(), stderr);
 *     ampprobe_describe(probe, things, count, ids);
 *     for (step = 0; step < steps; step++) {
 *         ... forward, backward of loss * scale ...
 *         ampprobe_gradients(probe, 0, gradients, count, 0, &seen);      before they are unscaled
 *         ... finite check, optimizer step or skip, scale update ...
 *         ampprobe_step(probe, &facts);
 *     }
 *     ampprobe_close(probe);
 *
 * STATUS. Every function that can fail returns an ampprobe_status, 0 for success. ampprobe_error() is the
 * message of the calling thread's last failure. No function exits, aborts, prints, installs a signal handler
 * or changes the arithmetic of the caller. A probe that cannot write any more turns itself off: later calls
 * return AMPPROBE_OFF and cost nothing, and training goes on.
 *
 * OWNERSHIP. The probe borrows every pointer only for the call in which it is given, and copies what it
 * keeps. It never writes to a tensor. Results are written to memory of the caller.
 *
 * THREADS. Every function may be called from any thread at any time, but for ampprobe_close: after it has
 * begun, the handle must not be used. Values are counted without a lock, so that several threads can show
 * tensors at once; what is shown belongs to the step that ends next.
 *
 * FORK. A probe belongs to the process that opened it. In a child made by fork() every call returns
 * AMPPROBE_FORKED and writes nothing; ampprobe_close frees the child's memory.
 *
 * CRASH. After every step the probe appends the step to PATH.steps with one write(). If the process ends
 * without ampprobe_close, by a crash or kill -9, ampbench reads PATH and PATH.steps as one record of all
 * steps that were ended; ampprobe_recover() does the same for other readers. ampprobe_close removes the
 * journal. A crash of the machine can lose steps since the document was last written.
 *
 * MEMORY. About 10 KiB for each tensor and role, 31 for gradients before they are unscaled, and less than
 * 1 MiB for the steps, however many there are: steps are merged pairwise when the room is full.
 *
 * COST. The probe measures its own time and spaces what it does so that it stays within a share of the
 * caller's time (config "budget", 0.01). ampprobe_plan() says what the next step should show.
 *
 * CUDA. Tensors in a GPU's memory are counted there if libampbench_cuda.so is found (in AMPBENCH_PLUGIN_DIR,
 * else beside this library, else in ../lib/ampbench) and the driver has a GPU; else they are skipped, counted
 * as skipped, and a warning of the record says why. Counting is added to the stream that the tensor names.
 * The gradients of a plain step (its plan has no AMPPROBE_PLAN_LAYERS) are not waited for: their `nonfinite`
 * is -1, `exact` is 0, and the step becomes part of the record, the journal and the plan of later steps when
 * the next step shows or ends something, or at ampprobe_flush and ampprobe_close. All else waits for the
 * stream. A stream that is being recorded as a CUDA graph is left alone. A tensor's memory may be freed or
 * reused after the call as the stream's order allows it. No GPU has run this yet: it is tested on the CPU.
 *
 * UNITS. Times are seconds (double), counts are elements, strides are elements, sizes with `bytes` in the
 * name are bytes. Steps are counted by the caller from 0 and do not decrease.
 *
 * VERSIONS. The symbols are versioned (AMPPROBE_1, AMPPROBE_1.1). Structures grow only at their end and say
 * their own size where they can grow; ampprobe_abi() is AMPPROBE_ABI of the library. */
#ifndef AMPPROBE_H
#define AMPPROBE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define AMPPROBE_API __attribute__((visibility("default")))
#else
#define AMPPROBE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define AMPPROBE_ABI 1

typedef struct ampprobe ampprobe;

typedef enum ampprobe_status {
    AMPPROBE_OK = 0,
    AMPPROBE_ARGUMENT = 1, /* an argument is wrong; nothing was done */
    AMPPROBE_OUTPUT = 2,   /* the record cannot be written; the probe is off from here on */
    AMPPROBE_MEMORY = 3,   /* out of memory; what was shown in this call is not in the record */
    AMPPROBE_OFF = 4,      /* the probe turned itself off before; ampprobe_error says why */
    AMPPROBE_FORKED = 5,   /* called in a child of the process that opened the probe */
    AMPPROBE_INPUT = 6     /* a file is not what was expected (ampprobe_recover) */
} ampprobe_status;

/* How values are stored. Native byte order. */
typedef enum ampprobe_dtype {
    AMPPROBE_FP32 = 0,
    AMPPROBE_FP16 = 1,
    AMPPROBE_BF16 = 2,
    AMPPROBE_FP64 = 3,
    AMPPROBE_OTHER = 99 /* anything else: tensors of it are skipped and counted as skipped */
} ampprobe_dtype;

/* What a tensor is in training. */
typedef enum ampprobe_role {
    AMPPROBE_WEIGHT_GRADIENT = 0,     /* of a parameter, times the loss scale: what the finite check sees */
    AMPPROBE_ACTIVATION_GRADIENT = 1, /* of a layer's output, times the loss scale */
    AMPPROBE_UNSCALED_GRADIENT = 2,   /* of a parameter, as the optimizer gets it */
    AMPPROBE_ACTIVATION = 3,          /* a layer's output */
    AMPPROBE_WEIGHT = 4,              /* a parameter, after the step */
    AMPPROBE_OPTIMIZER_STATE = 5      /* of a parameter; `slot` says which */
} ampprobe_role;

/* Where a tensor lies. */
typedef enum ampprobe_device {
    AMPPROBE_HOST = 0,
    AMPPROBE_CUDA = 1 /* a GPU's memory; see CUDA above */
} ampprobe_device;

/* Version of the library's ABI (AMPPROBE_ABI), and of the library as text. */
AMPPROBE_API int ampprobe_abi(void);
AMPPROBE_API const char *ampprobe_version(void);

/* Text of a status; static storage. */
AMPPROBE_API const char *ampprobe_status_text(int status);

/* Message of the calling thread's last failed call: one line, UTF-8, "" before any. Valid until the next call
 * of the same thread. */
AMPPROBE_API const char *ampprobe_error(void);

/* ---- a probe --------------------------------------------------------------------------------- */

/* Opens a probe that writes the document `path`, which is written at once (an earlier file is replaced), so
 * that a path that cannot be written is refused here. `config`: NULL or a JSON object; a key that is not
 * known is refused (AMPPROBE_ARGUMENT names it), a value may be null for "not known":
 *
 *   "budget"            share of the caller's time, 0 to 1; default 0.01. 0: no layers, gradients sampled
 * most "probe_every"       a whole number: count all gradients and ask for layers at every such step,
 * whatever it costs; default 0, the governor decides "half"              "fp16" or "bf16": the format whose
 * range is judged; default fp16 "level"             what is found: "O0".."O3", "torch:autocast"; default
 * "unknown" "scale_policy"      "none", "dynamic", or the fixed scale as text; default: found from the scales
 *   "scale_window"      clean steps before the scale grows
 *   "model", "data"     names for people
 *   "device"            "cpu", "cuda", ...
 *   "rank", "world"     of a distributed run; default 0, 1
 *   "seed", "batch"     whole numbers
 *   "steps"             planned steps; 0: not known
 *   "accumulation"      micro-batches a step
 *   "clip_norm"         the limit of the gradients' norm, if they are clipped
 *   "framework", "framework_version", "language"   texts
 *   "loss_from"         what gave the losses, for people: probe.sources of the document says it
 *   "groups"            array, one object a group: {"optimizer": "sgd"|"adam"|"adamw"|..., "lr", "momentum",
 *                       "dampening", "nesterov", "beta1", "beta2", "eps", "weight_decay", "fused",
 *                       "since": the group's step at which this optimizer came in place of another}
 *   "about"             an object with anything else, kept as it is (module tree, versions, precision found)
 *
 * `*probe` is owned by the caller: ampprobe_close. It is NULL after a failure. */
AMPPROBE_API int ampprobe_open(const char *path, const char *config, ampprobe **probe);

/* Sets one key of the config later ("about" is merged: its keys replace those of the same name). `value` is
 * JSON text. Not "budget", "probe_every" or "half": AMPPROBE_ARGUMENT. */
AMPPROBE_API int ampprobe_set(ampprobe *probe, const char *key, const char *value);

/* A line for the record's warnings, for people: what the caller noticed. The same text is kept once; at most
 * 64 texts are kept, and then counted. */
AMPPROBE_API int ampprobe_note(ampprobe *probe, const char *text);

/* States a fact that the caller saw and that no tensor shows, such as "resumed_steps". `name`: 1 to 63 small
 * letters, digits and _; `place`: the layer, parameter or module it is about, at most 159 bytes, NULL for the
 * run; `step`: as the caller counts; `value`: a number, 1 where the fact is that it happened. Statements of
 * one name and place become one entry of the record: how often, the first and last step, the first, last,
 * least and largest value (null where not finite; the last two are of the finite ones). At most 256 entries
 * are kept; further ones are counted. A call is one small write: say what changes, not the same at every
 * step. */
AMPPROBE_API int ampprobe_fact(ampprobe *probe, const char *name, const char *place, int64_t step,
                               double value);

/* Writes the document now. Costs time in proportion to the number of tensors; a caller need not do it. */
AMPPROBE_API int ampprobe_flush(ampprobe *probe);

/* Writes the document as complete, removes the journal and frees the probe, also after a failure (whose
 * status is returned once more). NULL is a no-op. */
AMPPROBE_API int ampprobe_close(ampprobe *probe);

/* Whether the probe still records: AMPPROBE_OK, AMPPROBE_OFF or AMPPROBE_FORKED. */
AMPPROBE_API int ampprobe_state(ampprobe *probe);

/* Brings the document `path` of a process that ended without ampprobe_close up to its journal's last step and
 * removes the journal. AMPPROBE_OK also if there is no journal; AMPPROBE_INPUT if the journal is of another
 * version of the library or damaged; what is torn off at its end is left out without an error. Not for a
 * probe that is still open. */
AMPPROBE_API int ampprobe_recover(const char *path);

/* ---- things ---------------------------------------------------------------------------------- */

enum { AMPPROBE_DIMENSIONS = 8 };

enum {
    AMPPROBE_PARAMETER = 1, /* a trained parameter; without it: a layer's output */
    AMPPROBE_FROZEN = 2     /* a parameter that is not trained */
};

/* A parameter, or a layer's output. */
typedef struct ampprobe_thing {
    uint32_t size;      /* sizeof(ampprobe_thing) */
    uint32_t flags;     /* AMPPROBE_PARAMETER ... */
    const char *name;   /* of a parameter: "fc1.weight"; of an output: "fc1"; unique among its kind */
    const char *layer;  /* "fc1"; NULL: the name up to its last dot, or the name */
    const char *type;   /* "Linear", for people; may be NULL */
    int32_t dtype;      /* as the optimizer stores the parameter, or as the layer returns */
    int32_t group;      /* of a parameter: index into the config's groups; else 0 */
    int32_t dimensions; /* 0..8; more: the product of the rest in the last */
    int32_t reserved;   /* 0 */
    int64_t shape[AMPPROBE_DIMENSIONS];
} ampprobe_thing;

/* Describes `count` things; ids[i] (the caller's array; may be NULL) is the number of things[i]. Numbers are
 * given in order from 0. A name that is known is described anew and keeps its number. May be called
 * again at any time. All or none are taken. */
AMPPROBE_API int ampprobe_describe(ampprobe *probe, const ampprobe_thing *things, int32_t count,
                                   int32_t *ids);

/* ---- values ---------------------------------------------------------------------------------- */

/* Why a tensor was not counted (ampprobe_tensor.skipped). */
typedef enum ampprobe_skip {
    AMPPROBE_COUNTED = 0,
    AMPPROBE_SKIP_EMPTY = 1, /* count 0 or data NULL (storage was freed, no gradient) */
    AMPPROBE_SKIP_DTYPE = 2, /* not a dtype that is counted */
    AMPPROBE_SKIP_LAYOUT =
        3, /* stride 0 with count > 1 (expanded), or the values reach beyond storage_bytes */
    AMPPROBE_SKIP_DEVICE = 4, /* not in host memory, nor in a GPU's where that can be counted */
    AMPPROBE_SKIP_ALIGN = 5,  /* data is not aligned to its dtype */
    AMPPROBE_SKIP_ID = 6,     /* no thing of this number, or a role that it cannot have */
    AMPPROBE_SKIP_BUDGET = 7  /* the governor left it out at this step */
} ampprobe_skip;

/* Values to look at: `count` values that lie `stride` elements apart from `data` on. */
typedef struct ampprobe_tensor {
    int32_t id;     /* of the thing */
    int32_t role;   /* ampprobe_role */
    int32_t dtype;  /* ampprobe_dtype */
    int32_t device; /* ampprobe_device */
    const void *data;
    int64_t count;
    int64_t stride;        /* elements; 1: contiguous. Negative: `data` is the first, not the lowest */
    int64_t storage_bytes; /* bytes readable from `data` on (before it, too, where stride < 0); 0: not known.
                              Give it where you have it: it is checked before anything is read */
    void *stream;          /* of device memory: a cudaStream_t, NULL for the default one; else NULL */
    int32_t slot;      /* of AMPPROBE_OPTIMIZER_STATE: 0 first moment or momentum, 1 second moment, 2 other */
    int32_t skipped;   /* OUT: ampprobe_skip */
    int64_t counted;   /* OUT: values in the census (a sample, or all) */
    int64_t nonfinite; /* OUT: inf and NaN among ALL values; -1: not all values were looked at */
} ampprobe_tensor;

/* Totals of one call. */
typedef struct ampprobe_seen {
    uint32_t size;  /* IN: sizeof(ampprobe_seen) */
    int32_t exact;  /* 1: all values of all tensors that were not skipped were looked at: nonfinite is true */
    int64_t values; /* of tensors that were not skipped */
    int64_t counted;    /* in the census */
    int64_t nonfinite;  /* inf and NaN found; a lower bound if exact is 0 */
    int32_t tensors;    /* not skipped */
    int32_t skipped;    /* of them, by budget or layout or ... */
    int32_t first;      /* index in the array of the first tensor with a non-finite value; -1: none */
    int32_t overflowed; /* tensors with one */
} ampprobe_seen;

enum {
    AMPPROBE_ALL = 1,   /* count every value, whatever the governor says */
    AMPPROBE_CHECK = 2, /* no census: only whether every value is finite, of all values; adds nothing to the
                           record but which tensors overflowed (for a step that is known to have overflowed,
                           and where nobody else makes the finite check) */
    AMPPROBE_FINITE = 4 /* a census, sampled as the governor says, and the finite check of all values */
};

/* The gradients of one group at one step, before they are unscaled. Call it once a step and group; a second
 * call of the same step (micro-batches, other parameters) adds. The governor decides which blocks are
 * counted; AMPPROBE_FINITE or AMPPROBE_ALL make `exact` 1, unless tensors were skipped or a GPU is still
 * counting them. `seen` may be NULL. A tensor that cannot be counted is skipped, with its reason in it, and
 * is no failure of the call. */
AMPPROBE_API int ampprobe_gradients(ampprobe *probe, int32_t group, ampprobe_tensor *tensors, int32_t count,
                                    uint32_t flags, ampprobe_seen *seen);

/* The same for any roles: activations and their gradients in a probed step, weights, optimizer state. All
 * values are counted (flags: 0 or AMPPROBE_CHECK). */
AMPPROBE_API int ampprobe_see(ampprobe *probe, ampprobe_tensor *tensors, int32_t count, uint32_t flags,
                              ampprobe_seen *seen);

/* The same by name, for a single array; describes a layer's output of this name if it is new. */
AMPPROBE_API int ampprobe_see_named(ampprobe *probe, const char *name, ampprobe_tensor *tensor);

/* Lost updates. Before the optimizer's step: copies a sample of each parameter (at most 1,024 values).
 * tensors: role AMPPROBE_WEIGHT. */
AMPPROBE_API int ampprobe_before_update(ampprobe *probe, int32_t group, ampprobe_tensor *tensors,
                                        int32_t count);

/* After the optimizer's step: compares with the sample. `tensors` as before, in any order, with, for each
 * parameter that has them, its AMPPROBE_UNSCALED_GRADIENT and its AMPPROBE_OPTIMIZER_STATE (slots 0, 1) of
 * the same count beside it in the array. Without a gradient, no update of that parameter is counted. A step
 * that was skipped is not compared: call it only if the optimizer stepped. */
AMPPROBE_API int ampprobe_after_update(ampprobe *probe, int32_t group, ampprobe_tensor *tensors,
                                       int32_t count);

/* ---- steps ----------------------------------------------------------------------------------- */

enum {
    AMPPROBE_PLAN_LAYERS = 1,   /* show layers' outputs and their gradients at this step */
    AMPPROBE_PLAN_UPDATE = 2,   /* call ampprobe_before_update and ampprobe_after_update at this step */
    AMPPROBE_PLAN_STATE = 4,    /* show weights and optimizer state after this step */
    AMPPROBE_PLAN_GRADIENTS = 8 /* gradients are counted; clear: the governor would count none of them */
};

/* What step `step` should show: a set of AMPPROBE_PLAN_...,
 * 0 for nothing (also if the probe is off or forked). Call it when the step begins. */
AMPPROBE_API int ampprobe_plan(ampprobe *probe, int64_t step);

enum {
    AMPPROBE_HAS_SCALE = 1,         /* scale_before and scale_after are given; else there is no loss scaler */
    AMPPROBE_HAS_LOSS = 2,          /* loss is given (it may be inf or NaN) */
    AMPPROBE_HAS_LR = 4,            /* lr is given */
    AMPPROBE_HAS_NORM = 8,          /* norm_before_clip is given: of the unscaled gradients */
    AMPPROBE_HAS_CLIP = 16,         /* norm_after_clip is given: gradients were clipped at this step */
    AMPPROBE_CLIPPED_SCALED = 32,   /* gradients were clipped before they were unscaled */
    AMPPROBE_SCHEDULE_ON_SKIP = 64, /* the schedule advanced although the step was skipped */
    AMPPROBE_LAYERS_SHOWN = 128     /* the step showed its layers: its time is not a plain step's */
};

/* What became of a step. */
typedef struct ampprobe_step_facts {
    uint32_t size;                    /* sizeof(ampprobe_step_facts) */
    uint32_t flags;                   /* AMPPROBE_HAS_... */
    int64_t step;                     /* from 0, not below the last one of this group */
    int32_t group;                    /* optimizer and scaler; 0 if there is one */
    int32_t found_inf;                /* what the finite check said: 0, 1, -1: not known */
    int32_t stepped;                  /* whether weights were updated: 0, 1, -1: not known */
    int32_t micro_batches;            /* backward passes added up in the gradients; 0: not known */
    double scale_before, scale_after; /* the loss scale of this step, and of the next */
    double loss;                      /* unscaled */
    double lr;
    double norm_before_clip, norm_after_clip;
    double clip_norm; /* the limit, with AMPPROBE_HAS_CLIP; 0: not known */
    double seconds; /* of the whole step, without the probe, if the caller measured it; 0: the probe takes the
                       time since the last call of ampprobe_step, less its own */
    double spent;   /* seconds that the caller spent for the probe outside the library at this step */
    int32_t plan;   /* OUT: what ampprobe_plan says of the next step */
    int32_t reserved; /* 0 */
} ampprobe_step_facts;

/* Ends a step of one group: what was shown since the last call becomes part of the record, and of the
 * journal. If found_inf and stepped are not known, the step counts as skipped only if an exact finite check
 * (ampprobe_seen.exact) found a non-finite value and stepped is not 1. */
AMPPROBE_API int ampprobe_step(ampprobe *probe, ampprobe_step_facts *facts);

/* Ends `count` steps in their order, with one write to the journal. For a caller to whom a call a step is too
 * dear, of steps that showed nothing: each with `seconds` of its own. A process that is killed loses those
 * that it had not handed over, unless they are in the memory of ampprobe_latest. facts[count - 1].plan is the
 * next step's. All are taken or none, unless the record cannot be written. */
AMPPROBE_API int ampprobe_steps(ampprobe *probe, ampprobe_step_facts *facts, int32_t count);

/* Gives an array of `count` facts (1 to 4,096), all 0, for ampprobe_steps: memory that outlives a process
 * that is killed. Write a step's facts there, `seconds` (above 0) last: from then on the step is part of the
 * record, as if it had been handed over, without a call. Begin at the first place; ampprobe_steps frees the
 * places of the steps that it takes. The memory may be written to until the process ends; it is shared with
 * children made by fork(), which must not write to it. Once a probe. *facts is NULL where files cannot be
 * such memory (file systems that copy on write): hand each step over by itself there. It is the file
 * PATH.latest, which goes when the probe is closed. */
AMPPROBE_API int ampprobe_latest(ampprobe *probe, int32_t count, ampprobe_step_facts **facts);

/* What the probe has cost so far and what the governor does. */
typedef struct ampprobe_cost {
    uint32_t size;  /* IN: sizeof(ampprobe_cost) */
    int32_t stride; /* every how many-th block of a gradient is counted; 1: all; 0: none at the next step */
    double probe_seconds; /* spent in the library */
    double run_seconds;   /* of the caller's steps, without the probe */
    int64_t steps, layer_steps;
    int64_t memory_bytes; /* held by the probe */
} ampprobe_cost;

/* Adds `seconds` that the caller spent for the probe outside the library (hooks, Python), so that the
 * governor knows them. */
AMPPROBE_API int ampprobe_spent(ampprobe *probe, double seconds);

/* Fills *cost. */
AMPPROBE_API int ampprobe_costs(ampprobe *probe, ampprobe_cost *cost);

#ifdef __cplusplus
}
#endif

#endif
