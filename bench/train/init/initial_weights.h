/* Initial weights: drawn from Philox by the parameter's name, or read from a file; then rounded to the
 * model's format. Masters start as fp32 copies of the rounded weights, as in apex. */
#ifndef AB_BENCH_TRAIN_INIT_INITIAL_WEIGHTS_H
#define AB_BENCH_TRAIN_INIT_INITIAL_WEIGHTS_H

#include "bench/train/memory/memory.h"

AB_BEGIN_DECLS

typedef struct ab_initial_weights {
    const char *file; /* safetensors or npz, or NULL: the net's own initialisation */
    const char *map;  /* name map (init_map.h), or NULL */
    uint64_t seed;
    bool one_ulp;    /* every weight is moved to a neighbouring fp32 number, up or down at random */
    bool nan_weight; /* a fault: one weight of the last op is NaN */
} ab_initial_weights;

/* Sets every parameter, buffer and master. AB_INPUT names the file and the tensors that do not match the
 * network. */
AB_MUST_CHECK ab_status ab_initial_weights_set(const ab_initial_weights *initial,
                                               const ab_cell_memory *memory);

/* Whether the file and its map have exactly the plan's tensors; reads no values. NULL: AB_OK. Errors as
 * above. */
AB_MUST_CHECK ab_status ab_initial_weights_check(const char *file, const char *map, const ab_plan *plan);

AB_END_DECLS

#endif
