/* Plans: a network compiled under a policy. Holds every op with its formats, every cast, every buffer with
 * its lifetime and offset, and bytes by category. Compilation is a pure function of its inputs; the step loop
 * (bench/train) only executes the plan.
 *
 * Schedule: forward pass of node i at position i, then backward passes from the last node to the first; a
 * recomputed block is replayed before its backward pass (plan_recompute.c). Transient tensors of a category
 * share one pool; a tensor's lifetime decides its offset (first fit). A gradient has the format of its
 * tensor, as in torch's autograd, unless the user overrides it (layer_formats.h). An op that follows its
 * input's format also passes a gradient on in the format in which it arrives. */
#ifndef AB_BENCH_AMP_PLAN_PLAN_H
#define AB_BENCH_AMP_PLAN_PLAN_H

#include "bench/amp/policy.h"
#include "bench/nets/net.h"
#include "kernels/core/mem.h"

AB_BEGIN_DECLS

enum { AB_PLAN_NAME = 96, AB_MAX_STATES = 3, AB_NONE = -1 };

/* One buffer of the plan. */
typedef struct ab_plan_tensor {
    char name[AB_PLAN_NAME]; /* "conv1.out", "conv1.weight", "conv1.weight.half", "conv1.out.grad" */
    ab_shape shape;
    const ab_format *format; /* NULL: int32 class ids */
    ab_mem_category category;
    int64_t bytes;                       /* as allocated */
    bool transient;                      /* lives from `first` to `last`; otherwise as long as the cell */
    int first, last;                     /* schedule positions, inclusive */
    int recompute_first, recompute_last; /* of a value that is recomputed or cast again; else AB_NONE */
    int64_t offset;                      /* in the pool of its category; 0 for blocks of their own */
    int shares; /* tensor whose memory, offset and lifetime this one shares, or AB_NONE */
} ab_plan_tensor;

typedef enum ab_node_kind { AB_NODE_OP, AB_NODE_CAST } ab_node_kind;

/* Tensors behind the casts beside an op, which it may read and write in place of in, out, in_grad and
 * out_grad (plan_casts.c); AB_NONE: as the node says. */
typedef struct ab_plan_past {
    int in[AB_MAX_INPUTS], in_grad[AB_MAX_INPUTS];
    int out, out_grad;
} ab_plan_past;

/* One op or cast of the forward pass, with its backward pass. in, out, saved, out_grad, in_grad and in_sum
 * are tensor numbers, or AB_NONE. */
typedef struct ab_plan_node {
    ab_node_kind kind;
    int net_op; /* the op; for a cast: the op that needs it, or AB_NONE for the network's input */
    int inputs, in[AB_MAX_INPUTS];
    int out;
    int saves, saved[AB_MAX_SAVED];
    int params, first_param; /* into plan->param */
    bool frozen;             /* runs in evaluation mode */
    int out_grad;
    int in_grad[AB_MAX_INPUTS];          /* what backward writes for input i */
    int in_sum[AB_MAX_INPUTS];           /* then added into this gradient (a value used more than once) */
    bool starts_grad_sum[AB_MAX_INPUTS]; /* in_sum is empty before this: the gradient is cast, not added */
    bool in_final[AB_MAX_INPUTS];        /* after this node the gradient of input i is complete */
    int add, relu; /* of an op with a tail (plan_tails.c): the nodes that it may compute with its own; else
                      AB_NONE */
    int head;      /* of a node of a tail: the op whose tail it is; else AB_NONE */
    int front;     /* of an op: the relu before it whose backward pass its own may do, too; else AB_NONE */
    int behind;    /* of such a relu: that op; else AB_NONE */
    bool tail_backward; /* of an op with a tail: its backward pass may compute those of the tail, too */
    ab_plan_past past;  /* of an op */
    bool passed_forward, passed_backward; /* of a cast: an op may pass it by */
    bool recomputed;                      /* its forward pass is replayed at position recompute_at */
    int recompute_first; /* of the last node of a block: first node replayed before its backward pass */
    unsigned passes, recompute_passes; /* bit k: the backward pass of scaler k's losses reaches this node; a
                                          node of the block */
    int recompute_at, backward_at;     /* schedule positions; that of the forward pass is the node's number */
} ab_plan_node;

/* A parameter or buffer of the network. */
typedef struct ab_plan_param {
    int net_op, index; /* net->op[net_op].param[index] */
    int stored;        /* in the model's format */
    int used;      /* what the op reads: `stored`, or a half copy made once per step (O1's weight cache) */
    int used_grad; /* what the op's backward writes; AB_NONE for buffers */
    int grad;      /* gradient in the stored format; holds the sum over micro-batches unless master_grad does;
                      AB_NONE for buffers and shared parameters */
    int sum;       /* the gradient that used_grad is copied or added to: `grad`, or the owner's */
    bool adds;     /* `sum` already holds another op's part (backward runs later ops first) */
    int owner;     /* number of the parameter that owns these tensors, or AB_NONE */
    int master, master_grad;
    int total; /* with several scalers: sum of their unscaled gradients, unless master_grad holds it; else
                  AB_NONE */
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
    int input, targets; /* tensors that the step loop itself accesses */
    int input_cast; /* the node that alone reads the input, through views at most, and casts it to 16 bits:
                       who writes the input may write the cast's result instead; AB_NONE: none */
    int logits;     /* class scores that are compared with the targets: input of net->scored or output of
                       net->scores; AB_NONE: none */
    int losses, loss[AB_NET_LOSSES], loss_grad[AB_NET_LOSSES];
    int scalers, loss_id[AB_NET_LOSSES]; /* loss scalers and the scaler of each loss; 1: one backward pass for
                                            all losses */
    int recompute_buffer[AB_MAX_PARAMS]; /* written instead of an op's i-th parameter during recomputation;
                                            AB_NONE: none */
    int64_t pool_bytes[AB_MEM_CATEGORY_COUNT]; /* of transient tensors */
    int64_t bytes[AB_MEM_CATEGORY_COUNT];      /* total, without the ops' workspace */
    int activation_casts, weight_casts;        /* per step, forward */
    double flops;                              /* of a forward and backward pass */
} ab_plan;

/* Compiles `net`, which must outlive the plan. `states`: optimizer buffers per trained parameter. The caller
 * destroys *plan. AB_CONFIG or AB_USAGE where the policy does not fit the net. */
AB_MUST_CHECK ab_status ab_plan_create(const ab_net *net, const ab_policy *policy, int64_t batch, int states,
                                       ab_plan **plan);
void ab_plan_destroy(ab_plan *plan); /* NULL is a no-op */

/* Called by ab_plan_create. scalers: assigns each loss its scaler (first stage). passes: marks the nodes of
 * each scaler's backward pass (after wiring). */
AB_MUST_CHECK ab_status ab_plan_scalers(ab_plan *plan);
AB_MUST_CHECK ab_status ab_plan_passes(ab_plan *plan);

/* Called by ab_plan_create: decides which nodes are recomputed and sets the schedule positions. */
AB_MUST_CHECK ab_status ab_plan_schedule(ab_plan *plan);

/* Called by ab_plan_create before ab_plan_place: finds the casts that ops, or who writes the input, may pass
 * by. */
AB_MUST_CHECK ab_status ab_plan_pass_casts(ab_plan *plan);

/* Called by ab_plan_create, before and after ab_plan_place: find the tails of batch norms, and of products.
 */
void ab_plan_norm_tails(ab_plan *plan);
void ab_plan_product_tails(ab_plan *plan);

/* The pooling that alone reads the output of relu r and may do its backward pass where the gradients of the
 * relu's input and output share memory; AB_NONE: there is none. */
int ab_plan_pool_behind(const ab_plan *plan, int r);

/* Called by ab_plan_create after ab_plan_norm_tails and before ab_plan_place: lets gradients that an addition
 * passes on share the memory of the sum's, and that which a relu masks for a pooling be masked where it is:
 * such a relu is the pooling's front. */
AB_MUST_CHECK ab_status ab_plan_alias_gradients(ab_plan *plan);

/* What the backward pass of a node reads (op.h, backward_needs); 0 for casts and nodes without a backward
 * pass. */
unsigned ab_plan_node_needs(const ab_plan *plan, const ab_plan_node *node);

/* Whether the backward pass of a node reads input i, and the plan keeps for it only what was cast to the
 * input: a step that does not pass by the cast makes it again. */
bool ab_plan_casts_again(const ab_plan *plan, const ab_plan_node *node, int i);

/* Called by ab_plan_create: computes lifetimes and offsets. */
AB_MUST_CHECK ab_status ab_plan_place(ab_plan *plan);

/* The op of a node; NULL for casts. */
const ab_net_op *ab_plan_node_op(const ab_plan *plan, const ab_plan_node *node);

/* FLOPs of a backward pass of `op` (NULL: a cast) that computes so many gradients, from those of a forward
 * pass. */
double ab_plan_backward_flops(const ab_net_op *op, double forward, int gradients);

/* Number of the tensor called `name`, or AB_NONE. */
int ab_plan_find(const ab_plan *plan, const char *name);

AB_END_DECLS

#endif
