// Exchanges among GPUs of several processes through NCCL (kernels/core/device_ranks.h). libnccl.so.2 is
// opened when the first rank asks for it: the plugin loads without it. Not run on a GPU yet.
//
// A block of device memory mirrors the host's: what goes is copied to its place there, NCCL transfers from
// and to it, all on one stream; what came is copied back by `wait`, as copies to ordinary host memory block.
#include "kernels/core/cuda.cuh"
#include "kernels/core/device_ranks.h"
#include "kernels/core/text.h"
#include "kernels/cuda/nccl_abi.cuh"

#include <dlfcn.h>

#include <cstring>

extern "C" const ab_device_ranks ab_cuda_ranks;

namespace {
struct library {
    ab_nccl_plain::get_version get_version;
    ab_nccl_plain::get_id get_id;
    ab_nccl_plain::init_rank init_rank;
    ab_nccl_plain::send send;
    ab_nccl_plain::receive receive;
    ab_nccl_plain::all_reduce all_reduce;
    ab_nccl_plain::group group_start, group_end;
    ab_nccl_plain::error_text error_text;
};
struct piece {
    unsigned char *to;
    size_t from, bytes; // from: of the mirror
};
enum { PIECES = 4096 };
} // namespace

static library nccl;
static bool opened;
static struct {
    void *comm;
    int rank, ranks;
    cudaStream_t stream;
    char *mirror;
    size_t mirrored; // bytes
    piece awaited[PIECES];
    int pieces;
} group;

// ---- the library --------------------------------------------------------------------------------

template <class F> static bool find(void *handle, const char *name, F *function) {
    void *symbol = dlsym(handle, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != nullptr;
}

static ab_status missing(const char *name) {
    return ab_fail(AB_UNAVAILABLE, "--ranks nccl: libnccl.so.2 has no %s; NCCL 2.10 or later is needed",
                   name);
}

#define FIND(name, member)                                                                                   \
    if (!find(handle, name, &nccl.member)) return missing(name)

static ab_status find_all(void *handle) {
    FIND("ncclGetVersion", get_version);
    FIND("ncclGetUniqueId", get_id);
    FIND("ncclCommInitRank", init_rank);
    FIND("ncclSend", send);
    FIND("ncclRecv", receive);
    FIND("ncclAllReduce", all_reduce);
    FIND("ncclGroupStart", group_start);
    FIND("ncclGroupEnd", group_end);
    FIND("ncclGetErrorString", error_text);
    return AB_OK;
}

static ab_status check(int code, const char *what) {
    if (code == AB_NCCL_SUCCESS) return AB_OK;
    return ab_fail(AB_DEVICE, "--ranks nccl: %s: %s", what, nccl.error_text(code));
}

#define NCCL_TRY(call) AB_TRY(check((nccl.call), #call))

static ab_status open_library() {
    int version = 0;
    if (opened) return AB_OK;
    void *handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!handle) return ab_fail(AB_UNAVAILABLE, "--ranks nccl: no NCCL library (%s)", dlerror());
    AB_TRY(find_all(handle));
    NCCL_TRY(get_version(&version));
    if (version < AB_NCCL_LEAST_VERSION)
        return ab_fail(AB_UNAVAILABLE, "--ranks nccl: NCCL 2.10 or later is needed, found %d", version);
    opened = true;
    return AB_OK;
}

// ---- joining ------------------------------------------------------------------------------------

static ab_status name_group(unsigned char id[AB_DEVICE_RANKS_ID]) {
    ab_nccl_id own;
    AB_TRY(open_library());
    AB_TRY(ab_cuda_start());
    NCCL_TRY(get_id(&own));
    memcpy(id, &own, sizeof own);
    return AB_OK;
}

// 22304 is 2.23.4; before 2.9 the numbers were made in another way.
static const char *version_text() {
    static char text[48];
    int version = 0;
    if (nccl.get_version(&version) != AB_NCCL_SUCCESS) version = 0;
    return ab_text_exact(text, sizeof text, "NCCL %d.%d.%d", version / 10000, version / 100 % 100,
                         version % 100);
}

static ab_status join(const unsigned char id[AB_DEVICE_RANKS_ID], int rank, int ranks, const char **version) {
    ab_nccl_id own;
    AB_TRY(open_library());
    AB_TRY(ab_cuda_start());
    memcpy(&own, id, sizeof own);
    AB_CUDA_TRY(cudaStreamCreateWithFlags(&group.stream, cudaStreamNonBlocking));
    NCCL_TRY(init_rank(&group.comm, ranks, own, rank));
    group.rank = rank;
    group.ranks = ranks;
    *version = version_text();
    return AB_OK;
}

// ---- exchanges ----------------------------------------------------------------------------------

static ab_status wait() {
    for (int i = 0; i < group.pieces; i++) {
        const piece &p = group.awaited[i];
        AB_CUDA_TRY(
            cudaMemcpyAsync(p.to, group.mirror + p.from, p.bytes, cudaMemcpyDeviceToHost, group.stream));
    }
    group.pieces = 0;
    AB_CUDA_TRY(cudaStreamSynchronize(group.stream));
    return AB_OK;
}

// Transfers that use the mirror end before it is replaced by a larger one.
static ab_status mirror(size_t bytes) {
    void *larger = nullptr;
    if (bytes <= group.mirrored) return AB_OK;
    AB_TRY(wait());
    ab_cuda_give_back(group.mirror);
    group.mirror = nullptr;
    group.mirrored = 0;
    AB_TRY(ab_cuda_take(bytes, &larger));
    group.mirror = static_cast<char *>(larger);
    group.mirrored = bytes;
    return AB_OK;
}

static ab_status upload(const unsigned char *memory, size_t from, size_t bytes) {
    if (bytes == 0) return AB_OK;
    AB_CUDA_TRY(
        cudaMemcpyAsync(group.mirror + from, memory + from, bytes, cudaMemcpyHostToDevice, group.stream));
    return AB_OK;
}

static ab_status await(unsigned char *memory, size_t from, size_t bytes) {
    if (bytes == 0) return AB_OK;
    if (group.pieces == PIECES) AB_TRY(wait());
    group.awaited[group.pieces++] = {memory + from, from, bytes};
    return AB_OK;
}

static ab_status transfer(int peer, const ab_link_part *part) {
    const size_t sent = static_cast<size_t>(part->send_bytes),
                 received = static_cast<size_t>(part->receive_bytes);
    if (sent)
        NCCL_TRY(send(group.mirror + part->send_at, sent, AB_NCCL_UINT8, peer, group.comm, group.stream));
    if (received)
        NCCL_TRY(receive(group.mirror + part->receive_at, received, AB_NCCL_UINT8, peer, group.comm,
                         group.stream));
    return AB_OK;
}

// A failure between start and end leaves the group open: the process ends with it.
static ab_status transfer_all(const ab_link_part part[]) {
    NCCL_TRY(group_start());
    for (int r = 0; r < group.ranks; r++)
        if (r != group.rank) AB_TRY(transfer(r, &part[r]));
    NCCL_TRY(group_end());
    return AB_OK;
}

static ab_status exchange(unsigned char *memory, size_t bytes, const ab_link_part part[]) {
    AB_TRY(mirror(bytes));
    for (int r = 0; r < group.ranks; r++)
        if (r != group.rank)
            AB_TRY(upload(memory, static_cast<size_t>(part[r].send_at),
                          static_cast<size_t>(part[r].send_bytes)));
    AB_TRY(transfer_all(part));
    for (int r = 0; r < group.ranks; r++)
        if (r != group.rank)
            AB_TRY(await(memory, static_cast<size_t>(part[r].receive_at),
                         static_cast<size_t>(part[r].receive_bytes)));
    return AB_OK;
}

static ab_status sum(unsigned char *memory, size_t bytes, const ab_device_sum *what) {
    const int type = what->kind == AB_DEVICE_SUM_FP16   ? AB_NCCL_FLOAT16
                     : what->kind == AB_DEVICE_SUM_BF16 ? AB_NCCL_BFLOAT16
                                                        : AB_NCCL_FLOAT32;
    const size_t length = what->count * (what->kind == AB_DEVICE_SUM_FP32 ? 4 : 2);
    AB_TRY(mirror(bytes));
    AB_TRY(upload(memory, what->at, length));
    char *values = group.mirror + what->at;
    NCCL_TRY(all_reduce(values, values, what->count, type, what->average ? AB_NCCL_AVG : AB_NCCL_SUM,
                        group.comm, group.stream));
    return await(memory, what->at, length);
}

extern "C" const ab_device_ranks ab_cuda_ranks = {name_group, join, exchange, sum, wait};
