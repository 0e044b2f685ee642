/* Where the time of a cell's steps goes: per op and pass, with the floating-point operations and the bytes
 * that the plan says it needs, beside what the machine reaches. */
#ifndef AB_BENCH_PROFILE_PROFILE_H
#define AB_BENCH_PROFILE_PROFILE_H

#include "bench/profile/limits.h"
#include "bench/train/cell/cell.h"
#include "bench/train/pass/step_times.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* What kind of work a row is, for the summary. */
typedef enum ab_profile_kind {
    AB_PROFILE_OP,
    AB_PROFILE_CAST, /* casts, of weights too; gradients cast or summed */
    AB_PROFILE_UPDATE,
    AB_PROFILE_STATISTICS, /* of the data, in the first hundred steps of a training */
    AB_PROFILE_OTHER,
    AB_PROFILE_KINDS
} ab_profile_kind;

typedef struct ab_profile_row {
    const char *op, *type,
        *pass;       /* layer ("conv1"; "" for parts of a step), op ("conv2d", "cast"), "forward" */
    const char *run; /* implementation; NULL: none of its own */
    ab_profile_kind kind;
    double ns;           /* of a step, median over steps */
    double batches;      /* of a step */
    double flops, bytes; /* of a batch; bytes: every operand read or written once; 0: not known */
    double again_bytes;  /* of bytes, those that have to be read twice: results need sums over all of them */
    ab_traffic traffic;  /* bytes, by how far back their memory was last touched */
    double elementary[AB_ELEMENTARY_COUNT]; /* values of elementary functions, of a batch */
    double lookups;                         /* values that are looked up instead, of a batch */
    const ab_format *product;               /* of its matrix products; NULL: it has none */
    double wide_flops; /* of its flops, those of products of fp32 whatever `product` is; of a batch */
    double twice_ns;   /* the limit of memory with again_bytes read twice; 0: none are */
    double limit_ns;   /* what the limits allow at best (ab_profile_compare); 0: not known */
    const char *limit; /* "product", "function", "look-up" or "memory": what limits it most */
} ab_profile_row;

typedef struct ab_profile {
    char *cell; /* the cell's name; owned */
    const char *level, *half;
    int64_t steps;
    int64_t nonfinite; /* of their losses: NaN or inf */
    double step_ns;    /* median over steps */
    double parts_ns;   /* sum of the rows: less than step_ns where the machine is busy */
    int rows;
    ab_profile_row *row;  /* owned, longest first; texts are borrowed from the network and the cell */
    struct ab_cell *kept; /* owned: keeps those texts alive; NULL: the caller does */
} ab_profile;

/* Times of a cell's steps, part by part, while somebody else trains it. */
typedef struct ab_profiler {
    ab_cell *cell; /* borrowed */
    ab_step_times times;
    int nodes, rows;     /* AB_TIMED_PASSES rows a node, then the parts, then the whole step */
    int64_t room, steps; /* that are kept */
    int64_t nonfinite;   /* of their losses */
    int64_t stride, seen;
    int64_t *now;               /* [rows]: of the current step */
    double *value;              /* [rows * room] */
    bool *left;                 /* [parameters]: the last step left the half gradient to the update */
    bool past[AB_TIMED_PASSES]; /* it ran no casts that ops pass by */
    int64_t batches_cast;       /* steps whose batch was not written as the result of the plan's input_cast */
} ab_profiler;

/* `expected`: how many steps will be timed; of more than AB_PROFILER_MOST every second, third, ... is kept.
 * Close with ab_profiler_close, also after an error. */
enum { AB_PROFILER_MOST = 1024 };
AB_MUST_CHECK ab_status ab_profiler_open(ab_cell *cell, int64_t expected, ab_profiler *profiler);
void ab_profiler_close(ab_profiler *profiler);

/* Around a step of the cell: reads the clock after every part. step_ns: of the step as a whole; its loss. */
void ab_profiler_begin_step(ab_profiler *profiler);
void ab_profiler_end_step(ab_profiler *profiler, int64_t step_ns, float loss);

/* Medians over the steps so far, as rows; compared: with what ab_profile_compare needs, which walks over all
 * of the plan's memory. Free with ab_profile_clear, also after an error. */
AB_MUST_CHECK ab_status ab_profiler_rows(const ab_profiler *profiler, const ab_recipe *recipe, bool compared,
                                         ab_profile *profile);

/* Trains up to `steps` steps of a cell of its own after some that warm up; once ten have run, for at most
 * `seconds` (0: no limit). Statistics of the data are counted in the first hundred steps, and shown apart.
 * Free with ab_profile_clear, also after an error. */
AB_MUST_CHECK ab_status ab_profile_cell(const ab_cell_config *settings, const char *name, int64_t steps,
                                        double seconds, ab_profile *profile);
void ab_profile_clear(ab_profile *profile);

/* Sets what the limits allow in every row, of a profile whose rows were made to be compared. */
void ab_profile_compare(ab_profile *profile, const ab_machine_limits *limits);

/* Nanoseconds of the rows of a kind. */
double ab_profile_time_of(const ab_profile *profile, ab_profile_kind kind);

/* The profiles of a network as tables; `all`: rows of less than a hundredth of the step too. */
void ab_profile_print(const ab_net *net, int64_t batch, const ab_machine_limits *limits,
                      const ab_profile *profile, int count, bool all);

/* The same as a document ("ampbench-profile-1"); owned by the caller. */
cJSON *ab_profile_json(const ab_net *net, int64_t batch, const ab_machine_limits *limits,
                       const ab_profile *profile, int count);

/* Parts of it, which a record keeps too: what the machine reaches; steps, times and rows. */
cJSON *ab_machine_limits_json(const ab_machine_limits *limits);
void ab_profile_add_json(cJSON *object, const ab_profile *profile);

AB_END_DECLS

#endif
