/* Checkpoints of Megatron-LM's ranks: iter_N/mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt, one file for each
 * tensor-parallel, pipeline-parallel and expert-parallel rank, as one set.
 *
 * Rules, by the names that Megatron gives its modules (megatron_rules.c):
 * - weights that are split by output (qkv, fc1, vocabulary) are put together by rows, those split by input
 *   (attention's projection, fc2) by columns; a gated fc1 is [gate of all ranks, input of all ranks]. It is
 *   gated if it has twice the rows that fc2 has columns. The vocabulary keeps its padding. qkv is split by
 * rows also where it has fewer groups of queries than there are ranks (core/transformer/attention.py, 0.16).
 * - norms, routers, positions and biases added after a sum are whole in every rank; they must be equal.
 * - other tensors are whole if all ranks have the same bytes; else how they are split is not known, and each
 *   is listed by itself as NAME~mp_rank_TT....
 * - layers and local experts are counted through all pipeline and expert ranks, the layers of interleaved
 *   stages (model0, model1, ...) chunk by chunk.
 * - "optimizer.fp32.WEIGHT" and "optimizer.state.WEIGHT.exp_avg", ...: the optimizer's k-th tensor of a shape
 *   is of the rank's k-th weight of that shape, if there are as many.
 *
 * Source: Megatron-LM's training/checkpointing.py and tools/checkpoint/loader_base.py, and core/optimizer,
 * 0.16; tests/golden/megatron.tar.xz and megatron_layouts.tar.xz have what its own dist_checkpointing puts
 * together. */
#ifndef AB_BENCH_TENSORFILE_MEGATRON_H
#define AB_BENCH_TENSORFILE_MEGATRON_H

#include "bench/tensorfile/tensorfile.h"

AB_BEGIN_DECLS

/* Whether the path is of a rank's file with those of other ranks beside it. */
bool ab_megatron_recognise(const char *path);

/* Whether the file of another rank comes before it, and stands for the set in a folder. */
bool ab_megatron_is_part(const char *path);

/* Opens the files of all ranks as one set. */
AB_MUST_CHECK ab_status ab_megatron_open(const char *path, ab_tensorfile **file);

/* ---- rules ------------------------------------------------------------------------------------- */

typedef enum ab_megatron_split {
    AB_MEGATRON_UNKNOWN, /* whole if all ranks have the same */
    AB_MEGATRON_WHOLE,
    AB_MEGATRON_ROWS,    /* of dimension 0 */
    AB_MEGATRON_COLUMNS, /* of dimension 1 */
    AB_MEGATRON_FC1      /* rows, or the rows of gate and input */
} ab_megatron_split;

/* How tensor-parallel ranks share the weight of that name. */
ab_megatron_split ab_megatron_split_of(const char *weight);

/* The name of the fc2 that belongs to an fc1, for its number of columns, in text[bytes]; false: none. */
bool ab_megatron_fc2_of(const char *fc1, char *text, size_t bytes);

AB_END_DECLS

#endif
