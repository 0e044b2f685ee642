/* Every rank's copy of the weights, compared with the others', and the fault that lets one part. */
#ifndef AB_BENCH_TRAIN_CELL_REPLICAS_H
#define AB_BENCH_TRAIN_CELL_REPLICAS_H

#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

/* AB_FAULT_flipped_bit_on_a_rank, where this process and step are the ones. */
AB_MUST_CHECK ab_status ab_replica_fault(ab_cell *cell);

AB_END_DECLS

#endif
