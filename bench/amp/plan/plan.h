/* Plans: a network compiled under a policy. Every op with its formats, every cast, every buffer with its
 * lifetime and place, bytes by category. Compilation is a pure function of its inputs; the step loop
 * (bench/train) only walks the plan.
 *
 * Schedule: forward pass of node i at position i, then backward passes from the last node to the first; a
 * block that is recomputed runs a second time before its own (plan_recompute.c). Transient tensors of a
 * category share one pool; a tensor's lifetime decides its offset (first fit). Gradients have the format of
 * what they are the gradient of, as in torch's autograd, but where the user gave them one of their own
 * (layer_formats.h); what an op that follows its input's format gets in another one, it hands on in that. */
#ifndef AB_BENCH_AMP_PLAN_PLAN_H
#define AB_BENCH_AMP_PLAN_PLAN_H

#include "bench/amp/policy.h"
#include "bench/nets/net.h"
#include "kernels/core/mem.h"

AB_BEGIN_DECLS

enum { AB_PLAN_NAME = 96, AB_MAX_STATES = 3, AB_NONE = -1 };

/* One buffer. */
typedef struct ab_plan_tensor {
    char name[AB_PLAN_NAME]; /* "conv1.out", "conv1.weight", "conv1.weight.half", "conv1.out.grad" */
    ab_shape shape;
    const ab_format *format; /* NULL: int32 class ids */
    ab_mem_category category;
    int64_t bytes;                       /* as allocated */
    bool transient;                      /* lives from `first` to `last`; otherwise as long as the cell */
    int first, last;                     /* schedule positions, inclusive */
    int recompute_first, recompute_last; /* of a value that is recomputed; else AB_NONE */
    int64_t offset;                      /* in the pool of its category; 0 for blocks of their own */
    int shares; /* the tensor whose memory this one is, or AB_NONE; then offset and lifetime are those of that
                   one */
} ab_plan_tensor;

typedef enum ab_node_kind { AB_NODE_OP, AB_NODE_CAST } ab_node_kind;

/* One step of the forward pass and its mirror image in the backward pass. All ints but the first are tensor
 * numbers, or AB_NONE. */
typedef struct ab_plan_node {
    ab_node_kind kind;
    int net_op; /* of the op; for a cast: of the op that asked for it, or AB_NONE for the network's input */
    int inputs, in[AB_MAX_INPUTS];
    int out;
    int saves, saved[AB_MAX_SAVED];
    int params, first_param; /* into plan->param */
    bool frozen;             /* runs as it does when evaluating */
    int out_grad;
    int in_grad[AB_MAX_INPUTS];          /* what backward writes for input i */
    int in_sum[AB_MAX_INPUTS];           /* then added into this gradient (a value used more than once) */
    bool starts_grad_sum[AB_MAX_INPUTS]; /* ... which holds nothing before: it is cast, not added */
    bool in_final[AB_MAX_INPUTS];        /* after this node the gradient of input i is complete */
    bool recomputed;                     /* its forward pass runs a second time, at recompute_at */
    int recompute_first; /* of the last node of a block: before its backward pass, nodes from here on are
                            recomputed */
    unsigned passes, recompute_passes; /* bit k: the backward pass of scaler k's losses comes here; to a node
                                          of the block */
    int recompute_at, backward_at;     /* schedule positions; its forward pass is at its own number */
} ab_plan_node;

/* A parameter or buffer of the network. */
typedef struct ab_plan_param {
    int net_op, index; /* net->op[net_op].param[index] */
    int stored;        /* in the model's format */
    int used;          /* what the op reads: `stored`, or a half copy made once per step (O1's cast cache) */
    int used_grad;     /* what the op's backward writes; AB_NONE for buffers */
    int grad;          /* gradient in the stored format; of micro-batches the sum, unless master_grad is;
                          AB_NONE for buffers and for what another op owns */
    int sum;           /* the gradient that used_grad becomes or is added to: `grad`, or the owner's */
    bool adds;         /* another op's share is in `sum` before this one's (backward runs later ops first) */
    int owner;         /* number of the parameter whose tensors these are, or AB_NONE */
    int master, master_grad;
    int total; /* where losses have their own scales: their unscaled gradients' sum, unless
                                      master_grad is; else AB_NONE */
    int state[AB_MAX_STATES];
    int ema; /* averaged weights */
} ab_plan_param;

typedef struct ab_plan {
    const ab_net *net; /* borrowed */
    ab_policy policy;
    int64_t batch;
    int tensors, nodes, params;
    int positions; /* of the schedule */
    ab_plan_tensor *tensor;
    ab_plan_node *node;
    ab_plan_param *param;
    int input, targets; /* tensors the step loop touches itself */
    int logits;         /* what net->scored compares with the targets, or AB_NONE */
    int losses, loss[AB_NET_LOSSES], loss_grad[AB_NET_LOSSES];
    int scalers,
        loss_id[AB_NET_LOSSES]; /* loss scalers, and which each loss has; 1: one backward pass for all */
    int recompute_buffer[AB_MAX_PARAMS]; /* written instead of an op's i-th parameter when it is recomputed;
                                            AB_NONE */
    int64_t pool_bytes[AB_MEM_CATEGORY_COUNT]; /* of transient tensors */
    int64_t bytes[AB_MEM_CATEGORY_COUNT];      /* in all, without the ops' workspace */
    int activation_casts, weight_casts;        /* per step, forward */
    double flops;                              /* of a forward and backward pass */
} ab_plan;

/* Compiles. `states`: how many buffers per trained parameter the optimizer keeps. */
AB_MUST_CHECK ab_status ab_plan_create(const ab_net *net, const ab_policy *policy, int64_t batch, int states,
                                       ab_plan **plan);
void ab_plan_destroy(ab_plan *plan); /* NULL is a no-op */

/* Which loss has which scaler (before anything else is known), and which nodes each scaler's backward pass
 * walks (after everything is wired); called by ab_plan_create. */
AB_MUST_CHECK ab_status ab_plan_scalers(ab_plan *plan);
void ab_plan_passes(ab_plan *plan);

/* Which nodes are recomputed and the positions of the schedule; called by ab_plan_create. */
void ab_plan_schedule(ab_plan *plan);

/* What the backward pass of a node reads (op.h, backward_needs); 0 for casts and nodes without one. */
unsigned ab_plan_node_needs(const ab_plan *plan, const ab_plan_node *node);

/* Lifetimes and offsets; called by ab_plan_create. */
AB_MUST_CHECK ab_status ab_plan_place(ab_plan *plan);

/* The op of a node; NULL for casts. */
const ab_net_op *ab_plan_node_op(const ab_plan *plan, const ab_plan_node *node);

/* Tensor called `name`, or AB_NONE. */
int ab_plan_find(const ab_plan *plan, const char *name);

AB_END_DECLS

#endif
