/* Checkpoints of DeepSpeed's ZeRO: the model states of a rank, *mp_rank_MM_model_states.pt, and beside them
 * the partitions of every process, *zero_pp_rank_R_mp_rank_MM_optim_states.pt, as one set. Stages 1 and 2 cut
 * each parameter group, laid end to end, into as many pieces as there are processes; stage 3 cuts every
 * parameter. Which parameters and in which order the model states say (param_shapes).
 *
 * Tensors of the set: those of the model states ("module.NAME"; of stage 3, where these are empty, the fp32
 * weights), and of every parameter "optimizer.fp32.NAME", "optimizer.state.NAME.exp_avg", ".exp_avg_sq" and
 * ".step". Source: deepspeed/utils/zero_to_fp32.py and runtime/zero/stage_1_and_2.py, 0.19. */
#ifndef AB_BENCH_TENSORFILE_ZERO_H
#define AB_BENCH_TENSORFILE_ZERO_H

#include "bench/tensorfile/tensorfile.h"

AB_BEGIN_DECLS

/* Whether the path is of model states with partitions beside them. */
bool ab_zero_recognise(const char *path);

/* Opens them as one set. Where the model states do not say the shapes, partitions are listed as they are. */
AB_MUST_CHECK ab_status ab_zero_open(const char *path, ab_tensorfile **file);

AB_END_DECLS

#endif
