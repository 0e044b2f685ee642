// The part of NCCL's binary interface that is used, declared here so that the plugin builds without nccl.h.
// It has not changed since NCCL 2.10, which brought ncclAvg. nccl_check_cuda.cu compares it with nccl.h where
// that was found.
#ifndef AB_CUDA_NCCL_ABI_CUH
#define AB_CUDA_NCCL_ABI_CUH

#include <cuda_runtime.h>

struct ab_nccl_id {
    char internal[128];
};

enum { AB_NCCL_SUCCESS = 0, AB_NCCL_SUM = 0, AB_NCCL_AVG = 4, AB_NCCL_LEAST_VERSION = 21000 };
enum { AB_NCCL_UINT8 = 1, AB_NCCL_FLOAT16 = 6, AB_NCCL_FLOAT32 = 7, AB_NCCL_BFLOAT16 = 9 };

// The functions' types, in terms of NCCL's own types or of those that stand for them.
template <class Result, class Type, class Op, class Comm, class Id> struct ab_nccl_types {
    using get_version = Result (*)(int *);
    using get_id = Result (*)(Id *);
    using init_rank = Result (*)(Comm *, int, Id, int);
    using send = Result (*)(const void *, size_t, Type, int, Comm, cudaStream_t);
    using receive = Result (*)(void *, size_t, Type, int, Comm, cudaStream_t);
    using all_reduce = Result (*)(const void *, void *, size_t, Type, Op, Comm, cudaStream_t);
    using group = Result (*)();
    using error_text = const char *(*)(Result);
};

using ab_nccl_plain = ab_nccl_types<int, int, int, void *, ab_nccl_id>;

#endif
