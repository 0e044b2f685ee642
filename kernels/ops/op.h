/* What an operator is: one const descriptor per op, defined in the op's own file, found through ops.def.
 *
 * Ops know nothing of networks, levels or policies. They get tensors with formats and do: widen to fp32,
 * compute in fp32, round once (RNE) to the output's format. Layout is NHWC; weights keep torch's layout.
 * Kernels never allocate: sizes are asked for beforehand, memory is handed in. */
#ifndef AB_KERNELS_OPS_OP_H
#define AB_KERNELS_OPS_OP_H

#include "kernels/ops/tensor.h"

AB_BEGIN_DECLS

enum { AB_MAX_INPUTS = 8, AB_MAX_PARAMS = 6, AB_MAX_SAVED = 4, AB_MAX_ATTRS = 12 };

typedef enum ab_op_class {
    AB_CLASS_low,
    AB_CLASS_fp32,
    AB_CLASS_promote,
    AB_CLASS_follow,
    AB_CLASS_banned
} ab_op_class;

/* ---- attributes: what a network file may say about an op ------------------------------------- */

typedef enum ab_attr_kind {
    AB_ATTR_INT,    /* int64_t field */
    AB_ATTR_PAIR,   /* int64_t[2] field; the file gives one number or [height, width] */
    AB_ATTR_FLOAT,  /* double field */
    AB_ATTR_BOOL,   /* bool field */
    AB_ATTR_FLOATS, /* ab_floats field; the file gives an array of numbers */
    AB_ATTR_INTS,   /* ab_ints field; the file gives one integer or an array of at most AB_MAX_DIMS */
    AB_ATTR_CHOICE  /* int64_t field: which of the names that `text` lists as "none|tanh"; the file gives the
                       name */
} ab_attr_kind;

typedef struct ab_floats {
    const float *value; /* borrowed from the network; NULL when absent */
    int64_t count;
} ab_floats;

typedef struct ab_ints {
    int64_t value[AB_MAX_DIMS];
    int count; /* 0 when absent */
} ab_ints;

typedef struct ab_attr {
    const char *name; /* torch's keyword */
    ab_attr_kind kind;
    size_t offset; /* of the field in the op's attrs struct */
    bool required;
    double fallback;  /* torch's default; pairs get it twice */
    double low, high; /* accepted range, inclusive */
    const char *text; /* one line for people */
} ab_attr;

/* ---- parameters: what an op owns between steps ----------------------------------------------- */

typedef enum ab_param_kind {
    AB_PARAM_WEIGHT, /* trained */
    AB_PARAM_BUFFER  /* kept, never trained: running statistics */
} ab_param_kind;

typedef enum ab_init_kind { AB_INIT_ZEROS, AB_INIT_ONES, AB_INIT_UNIFORM, AB_INIT_NORMAL } ab_init_kind;

typedef struct ab_param_spec {
    const char *name; /* torch's: "weight", "bias", "running_mean", "running_var" */
    ab_param_kind kind;
    ab_shape shape;
    ab_init_kind init; /* torch's default initialisation */
    double init_bound; /* UNIFORM: U(-bound, bound); NORMAL: standard deviation */
} ab_param_spec;

/* ---- running --------------------------------------------------------------------------------- */

/* Sees half values as they are in fp32 before the cast (a probe). Called from several threads at once with
 * distinct `thread` in [0, ab_parallel_threads()); `id` is the tensor's id. NULL on unprobed steps. It must
 * not change values. */
struct ab_census; /* kernels/census/census.h */

typedef struct ab_observer {
    void (*see)(struct ab_observer *self, int id, int thread, const float *values, int64_t n);
    /* For tensors whose values are far away: whether a census of all of them will do, and handing it over
     * (thread 0). Both may be NULL: it will not. */
    bool (*counts)(const struct ab_observer *self, int id);
    void (*count)(struct ab_observer *self, int id, const struct ab_census *census);
} ab_observer;

typedef enum ab_cpu_path {
    AB_PATH_AUTO,     /* native where the library accelerates the type, else convert */
    AB_PATH_NATIVE,   /* half operands straight into the library's primitive */
    AB_PATH_CONVERT,  /* widen, fp32 primitive, round once */
    AB_PATH_REFERENCE /* portable C, no library */
} ab_cpu_path;

/* What a kernel may use besides its tensors. One per cell; the step loop changes training, observer and step.
 */
typedef struct ab_exec {
    void *workspace; /* fp32 scratch shared by all ops of the plan, 64-byte aligned */
    size_t workspace_bytes;
    bool training;        /* batch norm: batch statistics; dropout: on */
    bool accumulate_half; /* products and sums of low ops rounded to the output's half format at every step */
    bool tf32;            /* fp32 products of a GPU may round their operands to TF32 */
    ab_cpu_path path;
    ab_observer *observer;
    uint64_t seed;
    uint32_t step;
    const int64_t
        *step_there; /* steps that a device decides itself: where it keeps the number; NULL: `step` */
} ab_exec;

/* One instance of an op in a plan. Absent tensors are NULL. */
typedef struct ab_op_io {
    const struct ab_op
        *op; /* the row of ops.def; set by the plan's executor, for whoever runs it elsewhere */
    const void *attrs;
    void *state; /* from prepare; owned by the plan's executor */
    const ab_tensor *in[AB_MAX_INPUTS];
    ab_tensor *param[AB_MAX_PARAMS]; /* buffers among them are updated by a training forward */
    ab_tensor *out;
    ab_tensor *saved[AB_MAX_SAVED]; /* written by a training forward, read by backward */
    const ab_tensor *dout;
    ab_tensor *din[AB_MAX_INPUTS];    /* overwritten, never accumulated; NULL if not wanted; in[i]'s shape */
    ab_tensor *dparam[AB_MAX_PARAMS]; /* overwritten; NULL if not wanted; param[i]'s shape */
    uint32_t instance;                /* tells the plan's ops apart: part of the index of random numbers */
    uint64_t params_version; /* changes whenever a parameter's values change: prepared copies of weights are
                                refreshed then and only then */
} ab_op_io;

typedef struct ab_op {
    const char *name;
    int inputs;          /* fixed number of inputs, or -1: 2 or more */
    int optional_inputs; /* how many more there may be behind them */
    bool batch_norm;     /* parameters stay fp32 under keep_batchnorm_fp32 */
    bool norm;           /* weight and bias are a scale and a shift: rules for weights do not mean them */
    bool is_loss;        /* output: one fp32 number; "targets" may be left out as its last required input */
    unsigned integer_inputs; /* bit i: in[i] is int32 (class or token ids) and has no gradient */
    unsigned maybe_integer;  /* bit i: in[i] may be int32 or floating */
    size_t attrs_bytes;
    const ab_attr *attrs; /* ends with a NULL name; NULL for none */

    /* Completes attrs that default to other attrs and checks what ranges cannot say. May be NULL. */
    ab_status (*finish_attrs)(void *attrs);

    /* Whether the output is in[0] as it lies in memory, so that both may share it (in place, forward and
     * backward do nothing). NULL: never. */
    bool (*is_view)(const void *attrs, const ab_shape *in);

    /* Output shape from input shapes (batch included). Errors name both shapes. */
    ab_status (*infer)(const void *attrs, const ab_shape *in, int inputs, ab_shape *out);

    /* Fills spec[] (at most AB_MAX_PARAMS) and returns how many. May be NULL: none. */
    int (*params)(const void *attrs, const ab_shape *in, ab_param_spec *spec);

    /* Tensors that a training forward leaves for backward besides in/out: shapes and formats. May be NULL. */
    int (*saved)(const void *attrs, const ab_shape *in, const ab_shape *out, ab_shape *shape,
                 const ab_format **format);

    /* What backward reads: bit i = in[i], AB_NEEDS_OUT = out. The plan frees the rest after the forward pass.
     */
    unsigned backward_needs;

    /* The same where it depends on how many inputs there are and which of them (bit i of `wanted`) get a
     * gradient; NULL: backward_needs. Never more than that. */
    unsigned (*needs)(const void *attrs, int inputs, unsigned wanted);

    /* Creates the per-instance state (library primitives, prepared weights) for the tensors' shapes and
     * formats in `io` (data pointers are not set yet) and says how many bytes of workspace fwd and bwd need
     * at most, and how many bytes the state keeps for itself between steps (allocated by the caller, handed
     * over by bind). May be NULL. */
    ab_status (*prepare)(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes);
    void (*bind)(ab_op_io *io, void *state_memory);
    void (*release)(ab_op_io *io);

    ab_status (*forward)(const ab_exec *exec, ab_op_io *io);
    ab_status (*backward)(const ab_exec *exec, ab_op_io *io);

    /* Floating-point operations of a forward pass (multiply and add count 2); backward is about twice that.
     */
    double (*flops)(const void *attrs, const ab_shape *in, const ab_shape *out);

    /* Which implementation runs, for the record: "convert+jit:avx512_core", "reference", ... Valid while `io`
     * is. */
    const char *(*describe)(const ab_op_io *io, const char *pass); /* pass: "forward", "backward_data",
                                                                      "backward_weights" */
} ab_op;

enum { AB_NEEDS_OUT = 1 << AB_MAX_INPUTS };

/* Descriptors by identifier: ab_op_conv2d. */
#define AB_OP(name, op_class, traits) extern const ab_op ab_op_##name;
#include "kernels/ops/ops.def"
#undef AB_OP

/* The rows of ops.def, in order: i in [0, count). */
int ab_op_count(void);
const ab_op *ab_op_at(int i);
ab_op_class ab_op_class_at(int i); /* the i-th row's class */

/* The op called `name`, or AB_CONFIG with the nearest names. `index` (may be NULL) receives the row's number.
 */
AB_MUST_CHECK ab_status ab_op_find(const char *name, const ab_op **op, int *index);

/* What the backward pass of an instance reads, as backward_needs. */
unsigned ab_op_needs(const ab_op *op, const void *attrs, int inputs, unsigned wanted);
unsigned ab_io_needs(const ab_op *op, const ab_op_io *io);

/* ---- helpers shared by the kernels ----------------------------------------------------------- */

/* Stores n fp32 values at element `offset` of dst with one rounding and, if a probe listens and dst is not
 * fp32, lets it see them first. (What is stored as fp32 is not cast: probes read such tensors themselves.)
 * Serial; callers split. */
void ab_emit(const ab_exec *exec, ab_tensor *dst, int64_t offset, const float *values, int64_t n);

/* The same for a whole tensor, in parallel. */
void ab_emit_all(const ab_exec *exec, ab_tensor *dst, const float *values);

/* fp32 view of a whole tensor: its own data if it is fp32, else widened (in parallel) into scratch. */
const float *ab_view_f32(const ab_tensor *tensor, float *scratch);

/* Casting one tensor into another of the same shape, in parallel; and dst = round(dst + src), the way
 * gradients of a value that is used twice are summed. Both observe like ab_emit. */
void ab_cast(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);
void ab_accumulate(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);

AB_END_DECLS

#endif
