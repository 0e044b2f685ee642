// The plugin's entry and the CUDA device's table: memory, copies, facts. Computation is in
// kernels/cuda/backend/backend_cuda.cu.
//
// Host code only.
#include "kernels/core/cuda.cuh"
#include "kernels/core/plugin.h"
#include "kernels/core/text.h"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" const struct ab_backend ab_backend_cuda;
extern "C" const struct ab_shown_ops ab_cuda_shown_ops;
extern "C" const struct ab_device_ranks ab_cuda_ranks;
extern "C" __attribute__((visibility("default"))) const ab_plugin *ab_backend_v1(const ab_plugin_host *host);

static const ab_plugin_host *program;
static ab_cuda context;

ab_cuda *ab_cuda_context() { return &context; }

// ---- messages: the plugin's copies of core's functions, which forward to the program ------------

#include "kernels/core/text.c"

static char last_message[1024];

ab_status ab_fail(ab_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    ab_text_show_args(last_message, sizeof last_message, format, args);
    va_end(args);
    program->fail(status, last_message);
    return status;
}

ab_status ab_cuda_check(cudaError_t code, const char *what) {
    if (code == cudaSuccess) return AB_OK;
    (void)cudaGetLastError(); // clears a non-sticky error
    if (code == cudaErrorMemoryAllocation)
        return ab_fail(AB_NO_MEMORY, "cuda:%d: out of memory (%s)", context.index, what);
    return ab_fail(AB_DEVICE, "cuda:%d: %s: %s (%s)", context.index, what, cudaGetErrorString(code),
                   cudaGetErrorName(code));
}

ab_status ab_cuda_check_blas(cublasStatus_t code, const char *what) {
    if (code == CUBLAS_STATUS_SUCCESS) return AB_OK;
    ab_status status = code == CUBLAS_STATUS_NOT_SUPPORTED  ? AB_UNAVAILABLE
                       : code == CUBLAS_STATUS_ALLOC_FAILED ? AB_NO_MEMORY
                                                            : AB_DEVICE;
    return ab_fail(status, "cuda:%d: %s: %s", context.index, what, cublasLtGetStatusString(code));
}

ab_status ab_cuda_check_dnn(cudnnStatus_t code, const char *what) {
    if (code == CUDNN_STATUS_SUCCESS) return AB_OK;
    char reason[256] = "";
    cudnnGetLastErrorString(reason, sizeof reason);
    // 2000s: bad parameter; 3000s: not supported. The caller has a fallback.
    bool refused = code >= CUDNN_STATUS_BAD_PARAM && code < CUDNN_STATUS_INTERNAL_ERROR;
    ab_status status = refused ? AB_UNAVAILABLE : AB_DEVICE;
    return ab_fail(status, "cuda:%d: %s: %s %s", context.index, what, cudnnGetErrorString(code), reason);
}

ab_status ab_cuda_launched(const char *kernel) { return ab_cuda_check(cudaGetLastError(), kernel); }

// ---- start --------------------------------------------------------------------------------------

ab_status ab_cuda_start() {
    if (context.started) {
        AB_CUDA_TRY(cudaSetDevice(context.index)); // the current device is per thread
        return AB_OK;
    }
    AB_CUDA_TRY(cudaSetDevice(context.index));
    AB_CUDA_TRY(
        cudaDeviceGetAttribute(&context.multiprocessors, cudaDevAttrMultiProcessorCount, context.index));
    AB_CUDA_TRY(cudaStreamCreateWithFlags(&context.stream, cudaStreamNonBlocking));
    AB_CUDA_TRY(cudaStreamCreateWithFlags(&context.copies, cudaStreamNonBlocking));
    AB_BLAS_TRY(cublasLtCreate(&context.blas));
    AB_DNN_TRY(cudnnCreate(&context.dnn));
    AB_DNN_TRY(cudnnSetStream(context.dnn, context.stream));
    context.started = true;
    return AB_OK;
}

unsigned ab_cuda_blocks(int64_t n, int threads) {
    int64_t wanted = (n + threads - 1) / threads,
            most = 32ll * (context.multiprocessors > 0 ? context.multiprocessors : 1);
    return static_cast<unsigned>(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

// ---- memory of the plugin -----------------------------------------------------------------------

namespace {
struct taken_block {
    void *block;
    size_t bytes;
    taken_block *next;
};
struct kept_block {
    void *block;
    size_t bytes;
};
} // namespace

static taken_block *taken;
static int64_t held_now, held_most;

ab_status ab_cuda_take(size_t bytes, void **block) {
    AB_TRY(ab_cuda_start());
    *block = nullptr;
    taken_block *node = static_cast<taken_block *>(malloc(sizeof *node));
    if (!node) return ab_fail(AB_NO_MEMORY, "cuda: out of memory");
    ab_status status = ab_cuda_check(cudaMalloc(block, bytes ? bytes : 1), "cudaMalloc");
    if (status != AB_OK) {
        free(node);
        return status;
    }
    *node = {*block, bytes, taken};
    taken = node;
    held_now += static_cast<int64_t>(bytes);
    if (held_now > held_most) held_most = held_now;
    return AB_OK;
}

void ab_cuda_give_back(void *block) {
    for (taken_block **at = &taken; block && *at; at = &(*at)->next) {
        taken_block *node = *at;
        if (node->block != block) continue;
        *at = node->next;
        held_now -= static_cast<int64_t>(node->bytes);
        (void)cudaFree(block);
        free(node);
        return;
    }
}

ab_status ab_cuda_kept(ab_cuda_use use, size_t bytes, void **block) {
    static kept_block kept[AB_CUDA_USES];
    kept_block *own = &kept[use];
    if (context.capturing) return ab_fail(AB_INTERNAL, "cuda: workspace requested during graph capture");
    if (bytes > own->bytes) {
        AB_TRY(ab_cuda_start());
        AB_CUDA_TRY(cudaStreamSynchronize(context.stream));
        ab_cuda_give_back(own->block);
        *own = {nullptr, 0};
        AB_TRY(ab_cuda_take(bytes, &own->block));
        own->bytes = bytes;
    }
    *block = own->block;
    return AB_OK;
}

ab_status ab_cuda_clear_flag(int32_t **flag) {
    void *block = nullptr;
    AB_TRY(ab_cuda_kept(AB_CUDA_FLAG, sizeof **flag, &block));
    *flag = static_cast<int32_t *>(block);
    return ab_cuda_check(cudaMemsetAsync(block, 0, sizeof **flag, context.stream), "cudaMemsetAsync");
}

ab_status ab_cuda_read_flag(const int32_t *flag, bool *set) {
    int32_t seen = 1;
    AB_CUDA_TRY(cudaMemcpyAsync(&seen, flag, sizeof seen, cudaMemcpyDeviceToHost, context.stream));
    AB_CUDA_TRY(cudaStreamSynchronize(context.stream));
    *set = seen != 0;
    return AB_OK;
}

static int64_t cuda_held() { return held_most; }

// ---- memory -------------------------------------------------------------------------------------

static ab_status cuda_alloc(size_t bytes, void **block) {
    *block = nullptr;
    AB_TRY(ab_cuda_start());
    return ab_cuda_check(cudaMalloc(block, bytes ? bytes : 1), "cudaMalloc");
}

static void cuda_free(void *block) {
    if (cudaFree(block) != cudaSuccess)
        (void)cudaGetLastError(); // free returns no status; the process ends soon
}

static ab_status cuda_synchronize() {
    AB_TRY(ab_cuda_start());
    AB_CUDA_TRY(cudaStreamSynchronize(context.stream));
    return AB_OK;
}

static ab_status cuda_fill_zero(void *block, size_t bytes) {
    AB_TRY(ab_cuda_start());
    AB_CUDA_TRY(cudaMemsetAsync(block, 0, bytes, context.stream));
    return AB_OK;
}

static ab_status move(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    if (context.capturing)
        return ab_fail(AB_INTERNAL, "cuda: the host touched memory while a graph is recorded");
    AB_TRY(ab_cuda_start());
    AB_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, kind, context.stream));
    AB_CUDA_TRY(cudaStreamSynchronize(context.stream));
    return AB_OK;
}

static ab_status cuda_upload(void *to, const void *from, size_t bytes) {
    return move(to, from, bytes, cudaMemcpyHostToDevice);
}

static ab_status cuda_download(void *to, const void *from, size_t bytes) {
    return move(to, from, bytes, cudaMemcpyDeviceToHost);
}

static ab_status cuda_memory(int64_t *free_bytes, int64_t *total_bytes) {
    size_t left = 0, all = 0;
    AB_TRY(ab_cuda_start());
    AB_CUDA_TRY(cudaMemGetInfo(&left, &all));
    *free_bytes = static_cast<int64_t>(left);
    *total_bytes = static_cast<int64_t>(all);
    return AB_OK;
}

// ---- facts --------------------------------------------------------------------------------------

namespace {
struct teller {
    ab_device_fact fact;
    void *context;
};
} // namespace

static void tell(const teller &to, const char *key, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    ab_text_show_args(text, sizeof text, format, args);
    va_end(args);
    to.fact(to.context, key, text);
}

static void tell_versions(const teller &to) {
    int driver = 0, runtime = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0)
        tell(to, "cuda_driver_version", "%d.%d", driver / 1000, driver % 1000 / 10);
    if (cudaRuntimeGetVersion(&runtime) == cudaSuccess)
        tell(to, "cuda_runtime_version", "%d.%d", runtime / 1000, runtime % 1000 / 10);
    size_t blas = cublasLtGetVersion(), dnn = cudnnGetVersion();
    tell(to, "cublas_version", "%zu.%zu.%zu", blas / 10000, blas / 100 % 100, blas % 100);
    tell(to, "cudnn_version", "%zu.%zu.%zu", dnn / 10000, dnn / 100 % 100, dnn % 100);
}

static void tell_device(const teller &to) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, context.index) != cudaSuccess) return;
    tell(to, "gpu", "%s", properties.name);
    tell(to, "compute_capability", "%d.%d", properties.major, properties.minor);
    tell(to, "multiprocessors", "%d", properties.multiProcessorCount);
    tell(to, "gpu_memory_bytes", "%zu", properties.totalGlobalMem);
    tell(to, "l2_bytes", "%d", properties.l2CacheSize);
    tell(to, "ecc", "%s", properties.ECCEnabled ? "on" : "off");
}

namespace {
// NVML, if available. Declares only what is used below: not every toolkit has the header.
struct nvml {
    void *library, *device;
    int (*init)();
    int (*handle)(const char *, void **);
    int (*handle_by_index)(unsigned, void **);
    int (*clock)(void *, unsigned, unsigned *), (*max_clock)(void *, unsigned, unsigned *);
    int (*temperature)(void *, unsigned, unsigned *);
    int (*power)(void *, unsigned *), (*power_limit)(void *, unsigned *);
    int (*throttle)(void *, unsigned long long *);
    int (*driver)(char *, unsigned);
    int (*energy)(void *, unsigned long long *);
};
} // namespace

template <typename F> static bool find(void *library, const char *name, F *function) {
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != nullptr;
}

static bool nvml_functions(nvml *n) {
    void *l = n->library;
    return find(l, "nvmlInit_v2", &n->init) && find(l, "nvmlDeviceGetHandleByPciBusId_v2", &n->handle) &&
           find(l, "nvmlDeviceGetClockInfo", &n->clock) &&
           find(l, "nvmlDeviceGetMaxClockInfo", &n->max_clock) &&
           find(l, "nvmlDeviceGetTemperature", &n->temperature) &&
           find(l, "nvmlDeviceGetPowerUsage", &n->power) &&
           find(l, "nvmlDeviceGetEnforcedPowerLimit", &n->power_limit) &&
           find(l, "nvmlDeviceGetCurrentClocksThrottleReasons", &n->throttle) &&
           find(l, "nvmlSystemGetDriverVersion", &n->driver) &&
           find(l, "nvmlDeviceGetTotalEnergyConsumption", &n->energy);
}

// The library stays open: opening it takes milliseconds.
static const nvml *open_nvml() {
    static nvml n;
    static bool tried, works;
    if (tried) return works ? &n : nullptr;
    tried = true;
    char bus[32] = "";
    n.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n.library || !nvml_functions(&n)) return nullptr;
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, context.index) != cudaSuccess) return nullptr;
    works = n.init() == 0 && n.handle(bus, &n.device) == 0;
    return works ? &n : nullptr;
}

static void tell_clock(const teller &to, const nvml *n, const char *now_key, const char *max_key,
                       unsigned kind) {
    unsigned value = 0;
    if (n->clock(n->device, kind, &value) == 0) tell(to, now_key, "%u", value);
    if (n->max_clock(n->device, kind, &value) == 0) tell(to, max_key, "%u", value);
}

static void tell_state(const teller &to) {
    const nvml *n = open_nvml();
    if (!n) {
        to.fact(to.context, "nvml", nullptr);
        return;
    }
    enum { SM = 1, MEMORY = 2, CORE_SENSOR = 0 };
    unsigned value = 0;
    unsigned long long wide = 0;
    char version[80] = "";
    if (n->driver(version, sizeof version) == 0) tell(to, "driver_version", "%s", version);
    tell_clock(to, n, "sm_clock_mhz", "max_sm_clock_mhz", SM);
    tell_clock(to, n, "memory_clock_mhz", "max_memory_clock_mhz", MEMORY);
    if (n->temperature(n->device, CORE_SENSOR, &value) == 0) tell(to, "temperature_c", "%u", value);
    if (n->power(n->device, &value) == 0) tell(to, "power_mw", "%u", value);
    if (n->power_limit(n->device, &value) == 0) tell(to, "power_limit_mw", "%u", value);
    if (n->throttle(n->device, &wide) == 0) tell(to, "throttle_reasons", "0x%llx", wide);
    if (n->energy(n->device, &wide) == 0) tell(to, "energy_mj", "%llu", wide);
}

static void cuda_facts(ab_device_fact fact, void *whose) {
    teller to = {fact, whose};
    tell_versions(to);
    tell_device(to);
    tell_state(to);
}

// ---- entry --------------------------------------------------------------------------------------

static ab_status open_device(int index, const ab_device **device) {
    static char name[24];
    static ab_device table;
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess)
        return ab_fail(AB_UNAVAILABLE, "CUDA does not start: %s (%s)", cudaGetErrorString(code),
                       cudaGetErrorName(code));
    if (index >= count) return ab_fail(AB_UNAVAILABLE, "there is no GPU %d, CUDA finds %d", index, count);
    ab_text_exact(name, sizeof name, "cuda:%d", index);
    context.index = index;
    table.abi = AB_DEVICE_ABI;
    table.name = name;
    table.alloc = cuda_alloc;
    table.free = cuda_free;
    table.fill_zero = cuda_fill_zero;
    table.upload = cuda_upload;
    table.download = cuda_download;
    table.synchronize = cuda_synchronize;
    table.backend = &ab_backend_cuda;
    table.memory = cuda_memory;
    table.facts = cuda_facts;
    table.held = cuda_held;
    table.ranks = &ab_cuda_ranks;
    *device = &table;
    return AB_OK;
}

const ab_plugin *ab_backend_v1(const ab_plugin_host *host) {
    static const ab_plugin plugin = {AB_DEVICE_ABI, ab_device_layout(), open_device, &ab_cuda_shown_ops};
    if (host->abi != AB_DEVICE_ABI || host->device_layout != ab_device_layout()) return nullptr;
    program = host;
    return &plugin;
}
