/* mpi-allreduce: the MPI library's own sum of fp32 values, whose order the library chooses. Only processes of
 * an MPI job can make it: it is not simulated, `reduce` is NULL. */
#include "kernels/collective/collective.h"

const ab_collective ab_collective_mpi = {
    .name = "mpi-allreduce",
    .text = "MPI_Allreduce in fp32, in the library's order; with --ranks mpi only",
    .library = "mpi"};
