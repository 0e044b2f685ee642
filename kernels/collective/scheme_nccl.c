/* nccl-allreduce: NCCL's own sum or average (--divide avg), whose order the library chooses. Only processes
 * with a GPU each can make it: it is not simulated, `reduce` is NULL. */
#include "kernels/collective/collective.h"

const ab_collective ab_collective_nccl = {
    .name = "nccl-allreduce",
    .text = "ncclAllReduce in fp32, fp16 or bf16, in the library's order; with --ranks nccl only",
    .library = "nccl"};
