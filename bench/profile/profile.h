/* Where the time of a cell's steps goes: per op and pass, with the floating-point operations and the bytes
 * that the plan says it needs, beside what the machine reaches. */
#ifndef AB_BENCH_PROFILE_PROFILE_H
#define AB_BENCH_PROFILE_PROFILE_H

#include "bench/profile/limits.h"
#include "bench/run/config.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* What kind of work a row is, for the summary. */
typedef enum ab_profile_kind {
    AB_PROFILE_OP,
    AB_PROFILE_CAST, /* casts, of weights too; gradients cast or summed */
    AB_PROFILE_UPDATE,
    AB_PROFILE_OTHER,
    AB_PROFILE_KINDS
} ab_profile_kind;

typedef struct ab_profile_row {
    const char *op, *type,
        *pass;       /* layer ("conv1"; "" for parts of a step), op ("conv2d", "cast"), "forward" */
    const char *run; /* implementation; NULL: none of its own */
    ab_profile_kind kind;
    double ns;                /* of a step, median over steps */
    double batches;           /* of a step */
    double flops, bytes;      /* of a batch; bytes: every operand read or written once; 0: not known */
    const ab_format *product; /* of its matrix products; NULL: it has none */
    double limit_ns;          /* what the limits allow at best (ab_profile_compare); 0: not known */
    bool compute_bound;       /* by the product, not by the bandwidth */
} ab_profile_row;

typedef struct ab_profile {
    char *cell; /* the cell's name; owned */
    const char *level, *half;
    int64_t steps;
    double step_ns;  /* median over steps */
    double parts_ns; /* sum of the rows: less than step_ns where the machine is busy */
    int rows;
    ab_profile_row *row;  /* owned, longest first; texts are borrowed from the network and the cell */
    struct ab_cell *kept; /* owned: keeps those texts alive */
} ab_profile;

/* Trains up to `steps` steps of the cell after some that warm up; once ten have run, for at most `seconds`
 * (0: no limit). The statistics of the first samples are part of the first steps, so fewer than a hundred
 * steps tell too much of "batch". Free with ab_profile_clear, also after an error. */
AB_MUST_CHECK ab_status ab_profile_cell(const ab_run_config *config, const ab_cell_spec *spec, int64_t steps,
                                        double seconds, ab_profile *profile);
void ab_profile_clear(ab_profile *profile);

/* Sets what the limits allow in every row. */
void ab_profile_compare(ab_profile *profile, const ab_machine_limits *limits);

/* Nanoseconds of the rows of a kind. */
double ab_profile_time_of(const ab_profile *profile, ab_profile_kind kind);

/* The profiles as tables; `all`: rows of less than a hundredth of the step too. */
void ab_profile_print(const ab_run_config *config, const ab_machine_limits *limits, const ab_profile *profile,
                      int count, bool all);

/* The same as a document ("ampbench-profile-1"); owned by the caller. */
cJSON *ab_profile_json(const ab_run_config *config, const ab_machine_limits *limits,
                       const ab_profile *profile, int count);

AB_END_DECLS

#endif
