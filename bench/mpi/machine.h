/* Which ranks of an MPI job are on this machine, and their memory. */
#ifndef AB_BENCH_MPI_MACHINE_H
#define AB_BENCH_MPI_MACHINE_H

#include "bench/train/ranks/link.h"
#include "kernels/mpi/mpi.h"

AB_BEGIN_DECLS

/* The name of this machine, in place of what the kernel says: ranks with different names exchange by MPI. */
#define AB_MACHINE_VARIABLE "AMPBENCH_RANK_MACHINE"

/* near[place.ranks]: descriptors of the other ranks' memory, for reading, which workers inherit; -1: this
 * rank, one on another machine, or one of which either of both cannot open the other's (processes in
 * containers of their own, of other users). memory: this rank's. All ranks call it. The caller closes near[].
 * Errors: those of MPI and of the limits. */
AB_MUST_CHECK ab_status ab_machine_open(const ab_mpi *mpi, const ab_mpi_limits *limits, ab_rank_place place,
                                        int memory, int near[]);

AB_END_DECLS

#endif
