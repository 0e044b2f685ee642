/* Networks as data: a JSON file of ops, parsed, checked and shape-inferred. Built-in nets
 * (bench/nets/<name>.json) and user files use the same code.
 *
 * File: {"format": "ampbench-net-1", "name", "text", "input": {...}, "targets": {...}, "defaults": {...},
 * "init": {...}, "ops": [{"name", "op", "in", <torch's keywords>, "init"}], "losses": [...], "scores",
 * "recompute"}; "text", "targets", "defaults", "init", "losses", "scores" and "recompute" may be absent.
 *
 * - "input": shape of a sample, without the batch: {"height", "width", "channels"} images, {"shape": [5, 3]}
 *   numbers, {"tokens": 64, "vocabulary": 256} token ids below the vocabulary, int32 [batch, 64].
 * - "targets": {"kind": "classes"} (default) class ids, int32 [batch], or [batch, ...] with a "shape";
 *   {"kind": "one_hot", "classes": 10} fp32 [batch, 10] made from class ids; {"kind": "tokens"} the token
 *   after each token of the input, int32 [batch, tokens]; {"kind": "values", "shape": [3]} fp32 numbers.
 * - "name": 1 to 64 of A-Z a-z 0-9 _ . -, different for every op and not "input" or "targets".
 * - "in": the name of an earlier op or "input", or an array of such names; absent: the op before (the first
 *   op: "input"). "targets" may be an input of ops that accept its type; a loss with one name too few gets it
 *   as its last required input. Every op but the losses must be read by a later op.
 * - "losses": names of the ops to minimise, or {"op": name, "weight": w, "loss_id": i}; each is a tensor of
 *   one element, and the loss is the weighted sum. Absent: the last op. With num_losses >= 2 (policy.h)
 *   losses of one id share a loss scale.
 * - "scores": the op whose output has a number for each class of a target, the largest for the predicted one:
 * the accuracy where no loss op compares logits with class ids, or of another op than it reads.
 * - "recompute": patterns of block names, as for ab_net_recompute.
 * - "share" of an op: {"weight": "embedding.weight"}: its weight is that of an earlier op and has the same
 *   shape.
 * - "requires_grad" of an op: false, or {"bias": false}: its parameters, or those, are not trained: no
 *   gradient, master copy or optimizer state. At least one parameter of the network is trained.
 * - "accumulate" of a product op (class low): "half" rounds every product and partial sum of its passes to
 * the half format of their results, as --accumulate half does for all; "fp32" is the default.
 * - "defaults": {"optimizer", "lr", "batch", "epochs"}, each optional, else momentum, 0.01, 64, 1.
 * - "init": {"weight": {"kind": "normal", "std": 0.02}, "bias": {"kind": "zeros"}} by parameter name; kinds
 *   zeros, ones, uniform (with "bound") and normal (with "std"). An op's "init" takes precedence over the
 *   file's, and that over torch's default. The file's "init" does not apply to normalisations, whose weight
 *   is a scale.
 *
 * Files are strict JSON in UTF-8, at most 1 MiB, 32 levels deep, 4,096 ops; no value has more than 2^40
 * elements. */
#ifndef AB_BENCH_NETS_NET_H
#define AB_BENCH_NETS_NET_H

#include "bench/data/shape.h"
#include "kernels/ops/op.h"

AB_BEGIN_DECLS

/* Source of an op's input: i >= 0 is the output of op i. */
enum { AB_NET_INPUT = -1, AB_NET_TARGETS = -2 };

enum { AB_NET_LOSSES = 8 }; /* at most */

typedef struct ab_net_loss {
    int op;
    double weight;
    int id; /* of its loss scaler, with several scalers (apex's loss_id); default: its index in the list */
} ab_net_loss;

/* A parameter owned by another op; op -1: none. */
typedef struct ab_net_share {
    int op, index;
} ab_net_share;

typedef struct ab_net_op {
    char *name; /* unique in the net */
    const ab_op *op;
    int op_row;  /* row of ops.def */
    void *attrs; /* op->attrs_bytes bytes, or NULL */
    int inputs;
    int input[AB_MAX_INPUTS];
    int params; /* shapes do not depend on the batch; init from the file, or torch's default */
    ab_param_spec param[AB_MAX_PARAMS];
    ab_net_share shared[AB_MAX_PARAMS]; /* the owner, if it is not this op */
    bool lent[AB_MAX_PARAMS];           /* a later op shares it */
    bool untrained[AB_MAX_PARAMS];      /* "requires_grad": false; that of the owner if shared */
    int block;                          /* number of its block, -1: none (net_blocks.c) */
    bool recompute;       /* the block keeps no activations: they are recomputed for the backward pass */
    bool accumulate_half; /* "accumulate": "half"; only ops of class low */
    bool outside;         /* outside of the model: a loss, or computed from the targets or from a loss */
    int line;             /* of the op in the file, 1-based */
} ab_net_op;

/* What the file recommends for training; the command line overrides it. */
typedef struct ab_net_defaults {
    char optimizer[32];
    double lr;
    int64_t batch;
    int64_t epochs;
} ab_net_defaults;

typedef struct ab_net {
    char *name, *text, *path;
    char digest[17]; /* FNV-1a 64 of the file's bytes, hex; identifies the file in results */
    ab_data_shape data;
    ab_net_defaults defaults;
    int ops;
    ab_net_op *op;
    int losses;
    ab_net_loss loss[AB_NET_LOSSES];
    int scored; /* loss that compares logits with class ids (defines the accuracy), or -1 */
    int scores; /* op whose output has the class scores, if the file names one, or -1; then no loss is scored
                 */
    int64_t classes; /* last dim of logits or scores; 0 without */
} ab_net;

/* Loads a net by built-in name ("lenet5") or path; the caller frees *net. Built-in files are compiled in (by
 * CMake from nets/nets.def), so the program needs no data directory. Errors (AB_CONFIG) name file, line, op,
 * what was expected and found, and the nearest valid name. */
AB_MUST_CHECK ab_status ab_net_load(const char *name_or_path, ab_net **net);

/* Parses a net from memory; `path` is used in messages. For tests and fuzzing. */
AB_MUST_CHECK ab_status ab_net_parse(const char *text, size_t length, const char *path, ab_net **net);

void ab_net_free(ab_net *net); /* NULL is a no-op */

/* Sets which blocks are recomputed: patterns of their names ("h*,stage1.0"), "all" or "none". AB_CONFIG if a
 * pattern matches no block. */
AB_MUST_CHECK ab_status ab_net_recompute(ab_net *net, const char *patterns);

/* Shapes of "input" and "targets" for a batch. */
ab_shape ab_net_input_shape(const ab_net *net, int64_t batch);
ab_shape ab_net_targets_shape(const ab_net *net, int64_t batch);

/* Output shape of every op for a batch: shape[net->ops]. */
AB_MUST_CHECK ab_status ab_net_infer(const ab_net *net, int64_t batch, ab_shape *shape);

/* Number of ops with "accumulate": "half"; and takes it from all. */
int ab_net_half_accumulators(const ab_net *net);
void ab_net_accumulate_fp32(ab_net *net);

/* Whether any of its parameters is trained. */
bool ab_net_op_trains(const ab_net_op *op);

/* Whether the op is a frozen batch norm ("mode": "eval"): it normalises with its running statistics and does
 * not update them. */
bool ab_net_op_frozen(const ab_net_op *op);
/* Freezes all batch norms (torch: module.eval() on each). Returns their number. */
int ab_net_freeze(ab_net *net);

/* Number of parameter elements (without buffers; shared parameters count once; with untrained ones). */
int64_t ab_net_parameters(const ab_net *net);

/* Built-in nets, for `ampbench list`. */
int ab_net_builtin_count(void);
const char *ab_net_builtin_name(int i);
const char *ab_net_builtin_text(int i); /* the JSON text, NUL-terminated */

AB_END_DECLS

#endif
