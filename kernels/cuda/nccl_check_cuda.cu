// Compares nccl_abi.cuh with nccl.h, where CMake found that (AB_HAVE_NCCL_H). No code.
#if defined(AB_HAVE_NCCL_H)

#include "kernels/cuda/nccl_abi.cuh"

#include <nccl.h>

#include <type_traits>

using own = ab_nccl_types<ncclResult_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, ncclUniqueId>;

static_assert(std::is_same<decltype(&ncclGetVersion), own::get_version>::value, "ncclGetVersion");
static_assert(std::is_same<decltype(&ncclGetUniqueId), own::get_id>::value, "ncclGetUniqueId");
static_assert(std::is_same<decltype(&ncclCommInitRank), own::init_rank>::value, "ncclCommInitRank");
static_assert(std::is_same<decltype(&ncclSend), own::send>::value, "ncclSend");
static_assert(std::is_same<decltype(&ncclRecv), own::receive>::value, "ncclRecv");
static_assert(std::is_same<decltype(&ncclAllReduce), own::all_reduce>::value, "ncclAllReduce");
static_assert(std::is_same<decltype(&ncclGroupStart), own::group>::value, "ncclGroupStart");
static_assert(std::is_same<decltype(&ncclGroupEnd), own::group>::value, "ncclGroupEnd");
static_assert(std::is_same<decltype(&ncclGetErrorString), own::error_text>::value, "ncclGetErrorString");
static_assert(sizeof(ncclUniqueId) == sizeof(ab_nccl_id) && alignof(ncclUniqueId) == alignof(ab_nccl_id),
              "ncclUniqueId");
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int) &&
                  sizeof(ncclRedOp_t) == sizeof(int) && sizeof(ncclComm_t) == sizeof(void *),
              "NCCL's types");
static_assert(static_cast<int>(ncclSuccess) == AB_NCCL_SUCCESS && static_cast<int>(ncclSum) == AB_NCCL_SUM &&
                  static_cast<int>(ncclAvg) == AB_NCCL_AVG,
              "ncclRedOp_t");
static_assert(static_cast<int>(ncclUint8) == AB_NCCL_UINT8 &&
                  static_cast<int>(ncclFloat16) == AB_NCCL_FLOAT16 &&
                  static_cast<int>(ncclFloat32) == AB_NCCL_FLOAT32 &&
                  static_cast<int>(ncclBfloat16) == AB_NCCL_BFLOAT16,
              "ncclDataType_t");

#endif
