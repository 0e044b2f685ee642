/* Policies: a level's properties after overrides have been applied and checked, with apex's rules and errors.
 *
 * Pure data; the plan compiler (plan.h) applies a policy to a network. */
#ifndef AB_BENCH_AMP_POLICY_H
#define AB_BENCH_AMP_POLICY_H

#include "bench/amp/layer_formats.h"
#include "bench/amp/scaler/scaler.h"
#include "kernels/format/format.h"

AB_BEGIN_DECLS

typedef enum ab_cast_model { AB_CAST_none, AB_CAST_fp32, AB_CAST_half } ab_cast_model;

enum { AB_POLICY_LOSSES = 8 };  /* loss scalers at most */
enum { AB_POLICY_LABEL = 320 }; /* bytes: a level's name and every property */

/* Python's None, False, True. */
typedef enum ab_tristate { AB_TRI_none, AB_TRI_false, AB_TRI_true } ab_tristate;

/* A loss scale as users write it: a number (with ":skip", overflowed steps are skipped), "dynamic" (apex's)
 * or a dialect of bench/amp/scaler/scaler.h. */
typedef struct ab_loss_scale {
    bool dynamic; /* not a plain number */
    double value; /* of a number */
    ab_scaler_config scaler;
} ab_loss_scale;

/* State that training keeps besides what the level defines; not properties of apex. */
typedef struct ab_keep {
    bool micro_batches;            /* gradients of several batches are summed before a step */
    bool half_sums;                /* ... in the model's format although there are masters */
    bool fp32_masters;             /* masters start from the weights before they were rounded to half */
    unsigned scalar_states;        /* bit i: optimizer state i is one fp32 number per parameter */
    const ab_format *state_format; /* of optimizer state; NULL: that of the corresponding weights */
    const ab_format *ema_format;   /* of averaged weights; NULL: none are kept */
    bool state_set, ema_set;       /* by an override, which beats --optimizer-state and --ema-format */
} ab_keep;

typedef struct ab_policy {
    char level[24];
    char label[AB_POLICY_LABEL]; /* the level and what overrides changed of its row, but for the loss scale:
                                    "O3:keep_batchnorm_fp32=True"; an item of --levels */
    const char *option;          /* that the overrides come from, for messages; static */
    ab_cast_model cast_model_type;
    bool patch_torch_functions;
    ab_tristate keep_batchnorm_fp32, master_weights;
    ab_loss_scale loss_scale;
    const ab_format *half;
    ab_keep keep;
    ab_op_list list;           /* op cast list; AB_LIST_none: not used */
    bool weights_read_as_half; /* stored fp32 under a half model */
    ab_cast_model cast_model_outputs;
    ab_cast_model batch_norm_statistics; /* running mean and variance; none: the format of the batch norm's
                                            parameters */
    bool tf32, tf32_set; /* fp32 products of a GPU in TF32; by an override, which beats --math */
    bool enabled;
    int verbosity;      /* 1: apex's lines on stderr */
    int num_losses;     /* loss scalers; 1: one for the sum of all losses */
    const char *layers; /* "conv1=fp32,block.*.attn=half": layer overrides; borrowed; NULL: none */
} ab_policy;

typedef struct ab_level {
    const char *name;
    ab_cast_model cast_model_type;
    ab_tristate patch_torch_functions, keep_batchnorm_fp32, master_weights;
    const char *loss_scale;
    ab_op_list list;
    bool weights_read_as_half;
    const char *origin, *text;
} ab_level;

/* The rows of levels.def, in order: i in [0, count). */
int ab_level_count(void);
const ab_level *ab_level_at(int i);

/* Finds the level called `name`, else AB_USAGE; the message says if the letter O was typed as a zero or left
 * out. */
AB_MUST_CHECK ab_status ab_level_find(const char *name, const ab_level **level);

/* O0, the fp32 reference that other levels are compared with: it changes only by options that name it. */
bool ab_level_is_reference(const ab_level *level);
/* The level that `item` begins with, as in "O2:loss_scale=128" or "torch:autocast:fc1=half"; *rest: behind
 * its colon. NULL if it names none; *rest is `item` then. */
const ab_level *ab_level_named(const char *item, const char **rest);

/* Parses "dynamic", a positive finite number representable in fp32 ("128", "128:skip"), or a dialect
 * ("torch", "deepspeed:init=65536"). AB_USAGE otherwise. `what` names the option in messages. */
AB_MUST_CHECK ab_status ab_loss_scale_parse(const char *what, const char *text, ab_loss_scale *scale);
/* A fixed scale; `value` is greater than 0 and representable in fp32. */
ab_loss_scale ab_loss_scale_fixed(double value);
/* Writes "dynamic", "1", "128:skip", "torch" or "apex:window=100" to text[AB_SCALER_TEXT]; returns text. */
const char *ab_loss_scale_text(const ab_loss_scale *scale, char *text);

/* Applies the level's preset, then `overrides` ("keep_batchnorm_fp32=True", ...) in order, each by its
 * validating setter. enabled=False means plain fp32 training. num_losses (apex) gives each loss of the
 * network its own backward pass and loss scaler. A value of None means "not given". AB_USAGE quotes apex's
 * error for the combination and gives the remedy. */
AB_MUST_CHECK ab_status ab_policy_resolve(const ab_level *level, const ab_format *half,
                                          const char *const *overrides, int count, ab_policy *policy);

/* The same; then the overrides of an entry of --levels, after and above those. */
AB_MUST_CHECK ab_status ab_policy_resolve_entry(const ab_level *level, const ab_format *half,
                                                const char *const *overrides, int count,
                                                const char *const *own, int own_count, ab_policy *policy);

/* Whether `item` begins with a property's name and "=" or is one. */
bool ab_policy_is_property(const char *item);

const char *ab_tristate_text(ab_tristate value); /* "None", "False", "True" */
/* The cast_model_type: "fp32", the half format's name, or NULL for None. */
const char *ab_policy_cast_text(const ab_policy *policy);

AB_END_DECLS

#endif
