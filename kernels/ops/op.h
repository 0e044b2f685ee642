/* Definition of an operator: one const descriptor per op, defined in the op's own file and listed in ops.def.
 *
 * Ops do not depend on networks, levels or policies. They get tensors with formats: widen to fp32, compute in
 * fp32, round once (RNE) to the output's format. Layout is NHWC; weights keep torch's layout. Kernels never
 * allocate: they report sizes in prepare and use memory passed in. */
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

/* ---- attributes of an op in a network file --------------------------------------------------- */

typedef enum ab_attr_kind {
    AB_ATTR_INT,    /* int64_t field */
    AB_ATTR_PAIR,   /* int64_t[2] field; in the file one number or [height, width] */
    AB_ATTR_FLOAT,  /* double field */
    AB_ATTR_BOOL,   /* bool field */
    AB_ATTR_FLOATS, /* ab_floats field; in the file an array of numbers */
    AB_ATTR_INTS,   /* ab_ints field; in the file one integer or an array of at most AB_MAX_DIMS */
    AB_ATTR_CHOICE  /* int64_t field: index into the names in `text` ("none|tanh"); in the file the name */
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
    double fallback;  /* torch's default; used for both elements of a pair */
    double low, high; /* accepted range, inclusive */
    const char *text; /* one-line help text */
} ab_attr;

/* ---- parameters and buffers of an op --------------------------------------------------------- */

typedef enum ab_param_kind {
    AB_PARAM_WEIGHT, /* trained */
    AB_PARAM_BUFFER  /* not trained: running statistics */
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

/* A probe: observes half values in fp32 before the cast. `see` is called from several threads at once, with
 * distinct `thread` in [0, ab_parallel_threads()); `id` is the tensor's id. NULL on unprobed steps. Must not
 * change values. */
struct ab_census; /* kernels/census/census.h */

typedef struct ab_observer {
    void (*see)(struct ab_observer *self, int id, int thread, const float *values, int64_t n);
    /* For tensors in device memory. counts: whether a census of the whole tensor is sufficient; count:
     * receives it (on thread 0). Both may be NULL: not sufficient. */
    bool (*counts)(const struct ab_observer *self, int id);
    void (*count)(struct ab_observer *self, int id, const struct ab_census *census);
} ab_observer;

typedef enum ab_cpu_path {
    AB_PATH_AUTO,     /* native where the library accelerates the type, else convert */
    AB_PATH_NATIVE,   /* half operands passed directly to the library's primitive */
    AB_PATH_CONVERT,  /* widen, fp32 primitive, round once */
    AB_PATH_REFERENCE /* portable C, no library */
} ab_cpu_path;

/* Batch norm over several ranks, as one of two frameworks computes it (norm/norm_sync.h). */
typedef enum ab_sync_form { AB_SYNC_NONE, AB_SYNC_TORCH, AB_SYNC_APEX } ab_sync_form;

typedef struct ab_norm_sync {
    ab_sync_form form;
    int ranks;
    bool updates; /* this rank's forward pass updates the running statistics: of several with the same, one
                     does */
    /* Every rank calls it with n floats. *all: [ranks][n], valid until the next call. */
    ab_status (*gather)(void *context, const float *own, int64_t n, const float **all);
    void *context;
} ab_norm_sync;

/* Execution context of a kernel. One per cell; the step loop changes training, observer and step. */
typedef struct ab_exec {
    void *workspace; /* fp32 scratch shared by all ops of the plan, 64-byte aligned */
    size_t workspace_bytes;
    bool training;        /* batch norm uses batch statistics; dropout is active */
    bool accumulate_half; /* round every product and partial sum of low ops to the output's half format */
    bool tf32;            /* fp32 products on a GPU may round operands to TF32 */
    bool fuse;            /* forward, or backward, does the ops of io->tail, or the relu in front, too */
    bool sizes_only;      /* `prepare` is called for its sizes alone and may estimate them; nothing runs */
    ab_cpu_path path;
    ab_observer *observer;
    uint64_t seed;
    uint32_t step;
    const int64_t *device_step; /* device address of the step number; NULL: `step` */
    const ab_norm_sync *sync;   /* of training batch norms; NULL: each rank has its own statistics */
} ab_exec;

/* A relu behind an op, the only reader of its output, or an addition and a relu behind it. An op that can
 * compute them with the bits of separate ops says so in `fuses` (prepare). Where exec->fuse is set its
 * forward writes `out` here in place of its own; its backward, if the plan has it do theirs (plan.h), reads
 * `out` and `dout` here in place of its own `dout`, and writes `daddend`. Absent tensors are NULL. */
typedef struct ab_tail {
    const ab_tensor *addend; /* NULL: no addition */
    ab_tensor *out;          /* of the relu; NULL: no tail */
    const ab_tensor *dout;
    ab_tensor *daddend; /* NULL if not wanted */
} ab_tail;

/* One instance of an op in a plan. Absent tensors are NULL. */
typedef struct ab_op_io {
    const struct ab_op
        *op; /* row of ops.def; set by the plan's executor for backends that run the op elsewhere */
    const void *attrs;
    void *state; /* from prepare; owned by the plan's executor */
    const ab_tensor *in[AB_MAX_INPUTS];
    ab_tensor *param[AB_MAX_PARAMS]; /* a training forward updates the buffers */
    ab_tensor *out;
    ab_tail tail;
    bool behind_relu; /* in[0] is the output of a relu that nothing else reads */
    bool fuses; /* from prepare: the op can do those of `tail`, too; or its backward that of the relu before
                   it: where exec->fuse is set din[0] is then the gradient of the relu's input */
    ab_tensor *saved[AB_MAX_SAVED]; /* written by a training forward, read by backward */
    const ab_tensor *dout;
    ab_tensor *din[AB_MAX_INPUTS];    /* overwritten, never accumulated; NULL if not wanted; in[i]'s shape */
    ab_tensor *dparam[AB_MAX_PARAMS]; /* overwritten; NULL if not wanted; param[i]'s shape */
    uint32_t instance;                /* index of the op in the network: part of the random number counter */
    uint64_t params_version; /* changes with every change of parameter values: prepared weights are refreshed
                                then and only then */
} ab_op_io;

/* Of a loss op: the prediction in[0] that has the least loss if it is the same for every sample. Targets are
 * in[1], on the host: int32 ids if in[1] has no format, else fp32. */
typedef struct ab_best_constant {
    /* Number of sums that describe the targets. */
    int64_t (*sums)(const ab_op_io *io);
    /* Adds the targets of one batch to the sums. */
    void (*add)(const ab_op_io *io, const void *targets, double *sums);
    /* Writes the prediction, fp32, of in[0]'s shape. */
    void (*predict)(const ab_op_io *io, const double *sums, float *prediction);
} ab_best_constant;

/* Functions that take many operations a value. */
typedef enum ab_elementary {
    AB_ELEMENTARY_EXP,
    AB_ELEMENTARY_TANH,
    AB_ELEMENTARY_ERF,
    AB_ELEMENTARY_COUNT
} ab_elementary;

typedef struct ab_op {
    const char *name;
    int inputs;             /* fixed number of inputs, or -1: 2 or more */
    int optional_inputs;    /* number of optional inputs after them */
    bool batch_norm;        /* parameters stay fp32 under keep_batchnorm_fp32 */
    bool norm;              /* weight and bias are scale and shift: rules for weights do not apply */
    bool out_as_weight;     /* the output has the format of the first parameter, not of the input */
    const char *mixed_twin; /* of a norm whose parameters must have the input's format: the op that takes
                               others; NULL: not such a norm */
    bool mixes_formats; /* computes each value in fp32 and rounds it once, whatever the formats of the inputs,
                           the result and their gradients: casts beside it may be left to it */
    bool by_code;       /* of halves nothing is computed: results are looked up */
    bool is_loss;       /* output is one fp32 scalar; the last required input, "targets", may be omitted */
    unsigned integer_inputs; /* bit i: in[i] is int32 (class or token ids) and has no gradient */
    unsigned maybe_integer;  /* bit i: in[i] may be int32 or floating */
    size_t attrs_bytes;
    const ab_attr *attrs; /* terminated by a NULL name; NULL if none */

    /* Fills in attrs that default to other attrs and checks what ranges cannot express. May be NULL. */
    ab_status (*finish_attrs)(void *attrs);

    /* Whether the output has the memory layout of in[0], so both may share memory (in place: forward and
     * backward do nothing). NULL: never. */
    bool (*is_view)(const void *attrs, const ab_shape *in);

    /* Output shape from input shapes (batch included). Error messages name both shapes. */
    ab_status (*infer)(const void *attrs, const ab_shape *in, int inputs, ab_shape *out);

    /* Fills spec[] (at most AB_MAX_PARAMS) and returns the count. NULL: no parameters. */
    int (*params)(const void *attrs, const ab_shape *in, ab_param_spec *spec);

    /* Tensors besides in/out that a training forward saves for backward: shapes and formats. Returns the
     * count. NULL: none. */
    int (*saved)(const void *attrs, const ab_shape *in, const ab_shape *out, ab_shape *shape,
                 const ab_format **format);

    /* What backward reads: bit i = in[i], AB_NEEDS_OUT = out. The plan frees the rest after the forward pass.
     */
    unsigned backward_needs;

    /* backward_needs as a function of the number of inputs and of which of them (bit i of `wanted`) need a
     * gradient: a subset of backward_needs. NULL: backward_needs. */
    unsigned (*needs)(const void *attrs, int inputs, unsigned wanted);

    /* Creates the per-instance state (library primitives, prepared weights) for the shapes and formats in
     * `io` (data pointers are not set yet). Returns the maximum workspace bytes of forward and backward, and
     * the bytes of persistent state memory (allocated by the caller, passed to bind). May be NULL. */
    ab_status (*prepare)(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes);
    void (*bind)(ab_op_io *io, void *state_memory);
    void (*release)(ab_op_io *io);

    ab_status (*forward)(const ab_exec *exec, ab_op_io *io);
    ab_status (*backward)(const ab_exec *exec, ab_op_io *io);

    /* FLOPs of a forward pass (multiply-add counts 2). */
    double (*flops)(const void *attrs, const ab_shape *in, const ab_shape *out);
    /* FLOPs of a backward pass over those of a forward pass; 0: as many times as there are gradients, of the
     * weights and of every input. */
    double backward_ratio;
    /* Of the FLOPs of a pass, those of products with a factor that is computed in fp32 and stored nowhere:
     * they are products of fp32 whatever the formats of the tensors. NULL: none. */
    double (*wide_flops)(const void *attrs, const ab_shape *in, const ab_shape *out, bool backward);

    /* Implementation in use, for the record: "convert+jit:avx512_core", "reference", ... Valid as long as
     * `io`. */
    const char *(*describe)(const ab_op_io *io, const char *pass); /* pass: "forward", "backward_data",
                                                                      "backward_weights" */

    /* NULL: not a loss, or not known. */
    const ab_best_constant *best_constant;

    /* Adds how many of each elementary function a pass over fp32 computes. NULL: none. */
    void (*elementary)(const void *attrs, const ab_shape *in, const ab_shape *out, bool backward,
                       double count[AB_ELEMENTARY_COUNT]);
} ab_op;

enum { AB_NEEDS_OUT = 1 << AB_MAX_INPUTS };

/* Descriptors by identifier: ab_op_conv2d. */
#define AB_OP(name, op_class, traits) extern const ab_op ab_op_##name;
#include "kernels/ops/ops.def"
#undef AB_OP

/* Rows of ops.def, in order; i in [0, count). */
int ab_op_count(void);
const ab_op *ab_op_at(int i);
ab_op_class ab_op_class_at(int i); /* class of row i */

/* Finds the op called `name`. Otherwise returns AB_CONFIG with the nearest names. `index` (may be NULL)
 * receives the row number. */
AB_MUST_CHECK ab_status ab_op_find(const char *name, const ab_op **op, int *index);

/* What backward of an instance reads, encoded as backward_needs. */
unsigned ab_op_needs(const ab_op *op, const void *attrs, int inputs, unsigned wanted);
unsigned ab_io_needs(const ab_op *op, const ab_op_io *io);

/* ---- helpers shared by the kernels ----------------------------------------------------------- */

/* Stores n fp32 values at element `offset` of dst with one rounding. If an observer is set and dst is not
 * fp32, it sees the values first. (fp32 stores are not cast; probes read such tensors themselves.)
 * Single-threaded; callers split the work. */
void ab_emit(const ab_exec *exec, ab_tensor *dst, int64_t offset, const float *values, int64_t n);

/* The same for a whole tensor, in parallel. */
void ab_emit_all(const ab_exec *exec, ab_tensor *dst, const float *values);

/* fp32 view of a whole tensor: its own data if it is fp32, else widened (in parallel) into scratch. */
const float *ab_view_f32(const ab_tensor *tensor, float *scratch);

/* ab_cast: dst = src in dst's format, same shape, in parallel. ab_add: dst = round(a + b) of one shape; dst
 * may be a or b. ab_accumulate: dst = round(dst + src), for gradients of a value with several uses. All call
 * the observer like ab_emit. */
void ab_cast(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);
void ab_add(const ab_exec *exec, ab_tensor *dst, const ab_tensor *a, const ab_tensor *b);
void ab_accumulate(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);

AB_END_DECLS

#endif
