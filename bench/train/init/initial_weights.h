/* Initial weights: drawn from Philox by the parameter's name, or read from a file; then rounded to the
 * model's format. Masters start as fp32 copies of the rounded weights, as in apex,
 * or with masters_from=fp32 as the unrounded ones. */
#ifndef AB_BENCH_TRAIN_INIT_INITIAL_WEIGHTS_H
#define AB_BENCH_TRAIN_INIT_INITIAL_WEIGHTS_H

#include "bench/tensorfile/tensorfile.h"
#include "bench/train/memory/memory.h"

#include <stdbool.h>

AB_BEGIN_DECLS

/* How initial weights are moved, for the noise floors: a cell that differs from O0 by nothing else. */
typedef enum ab_perturbation {
    AB_PERTURB_NONE,
    AB_PERTURB_ULP,     /* every weight to a neighbouring fp32 number, up or down at random */
    AB_PERTURB_ROUNDING /* every weight by as much as rounding to the half format moves weights of its size:
                         * uniformly within half a spacing of the half format to both sides */
} ab_perturbation;

typedef struct ab_initial_weights {
    const char *file; /* safetensors or npz, or NULL: the net's own initialisation */
    const char *map;  /* name map (init_map.h), or NULL */
    uint64_t seed;
    ab_perturbation perturbation;
    int draw;              /* which of several random moves, from 0 */
    const ab_format *half; /* for AB_PERTURB_ROUNDING */
    bool nan_weight;       /* a fault: one weight of the last op is NaN */
} ab_initial_weights;

/* Sets every parameter, buffer and master. AB_INPUT names the file and the tensors that do not match the
 * network. */
AB_MUST_CHECK ab_status ab_initial_weights_set(const ab_initial_weights *initial,
                                               const ab_cell_memory *memory);

/* Whether the file and its map have exactly the plan's tensors; reads no values. NULL: AB_OK. Errors as
 * above. */
AB_MUST_CHECK ab_status ab_initial_weights_check(const char *file, const char *map, const ab_plan *plan);

/* Missing tensors, unexpected tensors and shape mismatches of a tensor file, as one line of text: the first
 * few by name. */

/* Zero-initialised: no differences. */
typedef struct ab_differences {
    int count;
    char text[640];
} ab_differences;

/* Appends "'name' how"; `name` may contain any bytes. */
void ab_differ(ab_differences *found, const char *name, const char *how);

/* The tensor `name` of the file, or NULL. */
const ab_tensor_entry *ab_entry_of(const ab_tensorfile *file, const char *name);

/* Appends a missing tensor, or one whose dims, permuted by `axis` (NULL: not permuted), differ from
 * `shape`. */
void ab_differ_from(ab_differences *found, const ab_tensorfile *file, const char *name, const ab_shape *shape,
                    const int *axis);

/* AB_OK, or AB_INPUT: "tensors differ from those of network NET: ...". */
AB_MUST_CHECK ab_status ab_differences_status(const ab_differences *found, const char *net);

AB_END_DECLS

#endif
