// The CUDA runtime of the emulation: streams, events, graphs, copies. A stream runs its work only when
// somebody waits for it, as late as the rules allow, so that a wait that is missing shows; or at once
// (streams=soon).
#include "inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <deque>
#include <utility>
#include <vector>

typedef std::function<void()> work;

struct emulated_graph {
    std::vector<work> list;
};
struct emulated_graph_exec {
    std::vector<work> list;
};
struct emulated_stream {
    std::deque<work> queue;
    bool blocking;            // the legacy stream and it wait for each other
    emulated_graph *captured; // not nullptr: work is recorded, not run
};
struct emulated_event {
    emulated_stream *where;
    uint64_t asked, done; // numbers of records
    double ms;
};

namespace emulated {

static void read_setting(settings *s, const char *key, const char *value) {
    if (strcmp(key, "order") == 0)
        s->threads = strcmp(value, "forward") == 0   ? FORWARD
                     : strcmp(value, "reverse") == 0 ? REVERSE
                                                     : SHUFFLED;
    else if (strcmp(key, "seed") == 0)
        s->seed = static_cast<unsigned>(atoi(value));
    else if (strcmp(key, "streams") == 0)
        s->late = strcmp(value, "soon") != 0;
    else if (strcmp(key, "checks") == 0)
        s->checks = strcmp(value, "off") != 0;
    else if (strcmp(key, "devices") == 0)
        s->devices = atoi(value);
    else if (strcmp(key, "processors") == 0)
        s->processors = atoi(value);
    else if (strcmp(key, "relu") == 0)
        s->relu_drops_nan = strcmp(value, "drops_nan") == 0;
    else if (strcmp(key, "bias") == 0)
        s->bias_rounds_twice = strcmp(value, "rounds_twice") == 0;
    else
        mistake("AMPBENCH_EMULATED has no '%s', only order, seed, streams, checks, devices, processors, relu "
                "and bias",
                key);
}

static settings read_settings() {
    settings s = {SHUFFLED, 1, true, true, size_t(2) << 30, 2, 1, false, false};
    const char *text = getenv("AMPBENCH_EMULATED");
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    for (char *save, *part = strtok_r(copy, ",", &save); part; part = strtok_r(nullptr, ",", &save)) {
        char *value = strchr(part, '=');
        if (value) *value++ = '\0';
        read_setting(&s, part, value ? value : "");
    }
    return s;
}

settings &options() {
    static settings s = read_settings();
    return s;
}

// ---- streams ------------------------------------------------------------------------------------

static std::vector<emulated_stream *> streams;

static void step(emulated_stream *stream) {
    work next = std::move(stream->queue.front());
    stream->queue.pop_front();
    next();
}

static void drain(emulated_stream *stream) {
    while (!stream->queue.empty()) step(stream);
}

static void drain_all() {
    for (emulated_stream *stream : streams) drain(stream);
}

// The stream behind a name.
static cudaStream_t real(cudaStream_t stream) {
    static cudaStream_t legacy;
    if (stream != cudaStreamLegacy) return stream;
    if (!legacy) streams.push_back(legacy = new emulated_stream());
    return legacy;
}

bool is_capturing(cudaStream_t stream) { return real(stream)->captured != nullptr; }

void enqueue(cudaStream_t stream, work what) {
    stream = real(stream);
    if (stream->captured) {
        stream->captured->list.push_back(std::move(what));
        return;
    }
    stream->queue.push_back(std::move(what));
    if (!options().late) drain(stream);
}

static cudaError_t last_error = cudaSuccess;

static cudaError_t result(cudaError_t code) {
    if (code != cudaSuccess) last_error = code;
    return code;
}

void enqueue_kernel(const char *name, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                    const call &kernel) {
    bool fits = grid.x && grid.y && grid.z && block.x && block.y && block.z && grid.x <= 0x7fffffffu &&
                grid.y <= 65535 && grid.z <= 65535 && block.x * block.y * block.z <= MOST_THREADS &&
                block.z <= 64 && shared == 0;
    if (!fits)
        last_error = cudaErrorInvalidConfiguration;
    else
        enqueue(stream, [=] { run_kernel(name, grid, block, kernel); });
}

} // namespace emulated

using emulated::enqueue;
using emulated::real;
using emulated::result;

// How the thread wants to be kept from what could spoil a recording.
static thread_local cudaStreamCaptureMode interaction = cudaStreamCaptureModeGlobal;

// Whether a call that waits or allocates is refused, as a stream is being recorded.
static bool refuse_capture(const char *what) {
    for (emulated_stream *stream : emulated::streams)
        if (stream->captured && interaction != cudaStreamCaptureModeRelaxed) {
            emulated::mistake("%s while a graph is recorded", what);
            return true;
        }
    return false;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    *stream = new emulated_stream();
    (*stream)->blocking = flags != cudaStreamNonBlocking;
    emulated::streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    emulated::drain(stream);
    for (size_t i = 0; i < emulated::streams.size(); i++)
        if (emulated::streams[i] == stream)
            emulated::streams.erase(emulated::streams.begin() + static_cast<long>(i));
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (!stream) return result(cudaErrorInvalidResourceHandle);
    stream = real(stream);
    if (stream->captured) return result(cudaErrorStreamCaptureUnsupported);
    emulated::drain(stream);
    return cudaSuccess;
}

// ---- errors and facts ---------------------------------------------------------------------------

cudaError_t cudaGetLastError() {
    cudaError_t code = emulated::last_error;
    emulated::last_error = cudaSuccess;
    return code;
}

static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"}};

const char *cudaGetErrorString(cudaError_t code) {
    for (const auto &e : errors)
        if (e.code == code) return e.text;
    return "unknown error";
}

const char *cudaGetErrorName(cudaError_t code) {
    for (const auto &e : errors)
        if (e.code == code) return e.name;
    return "cudaErrorUnknown";
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = emulated::options().devices;
    return cudaSuccess;
}

// Of several devices a process uses one: they have the same memory.
cudaError_t cudaSetDevice(int index) {
    return index >= 0 && index < emulated::options().devices ? cudaSuccess : result(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int *index) {
    *index = 0;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *about, const void *at) {
    about->device = 0;
    about->type = emulated::memory_is_device(at)   ? cudaMemoryTypeDevice
                  : emulated::memory_is_pinned(at) ? cudaMemoryTypeHost
                                                   : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int) {
    *value = emulated::options().processors;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int) {
    *p = {};
    snprintf(p->name, sizeof p->name, "no GPU: emulated on the CPU");
    p->multiProcessorCount = emulated::options().processors;
    p->totalGlobalMem = emulated::options().memory;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *, int, int) { return result(cudaErrorInvalidDevice); }

cudaError_t cudaDriverGetVersion(int *version) {
    *version = 0;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

// ---- memory -------------------------------------------------------------------------------------

cudaError_t cudaMemGetInfo(size_t *left, size_t *all) {
    emulated::memory_left(left, all);
    return cudaSuccess;
}

cudaError_t emulated_malloc(void **block, size_t bytes, bool pinned) {
    if (refuse_capture("cudaMalloc")) return result(cudaErrorStreamCaptureUnsupported);
    *block = bytes ? emulated::memory_take(bytes, pinned) : nullptr;
    return *block || !bytes ? cudaSuccess : result(cudaErrorMemoryAllocation);
}

// Waits for all work, as the device's does.
cudaError_t cudaFree(void *block) {
    if (!block) return cudaSuccess;
    if (refuse_capture("cudaFree")) return result(cudaErrorStreamCaptureUnsupported);
    emulated::drain_all();
    if (emulated::memory_give_back(block)) return cudaSuccess;
    emulated::mistake("cudaFree of %p, which is no allocation", block);
    return result(cudaErrorInvalidValue);
}

cudaError_t cudaFreeHost(void *block) { return cudaFree(block); }

static void check_ends(void *to, const void *from, cudaMemcpyKind kind) {
    bool to_device = emulated::memory_is_device(to), from_device = emulated::memory_is_device(from);
    if (to_device != (kind != cudaMemcpyDeviceToHost) || from_device != (kind != cudaMemcpyHostToDevice))
        emulated::mistake("cudaMemcpyAsync: kind %d, but from %s to %s memory", kind,
                          from_device ? "device" : "host", to_device ? "device" : "host");
}

// Bytes copied to the host since the process began, for tests that say what a step copies.
static long long downloaded;
extern "C" __attribute__((visibility("default"))) long long emulated_downloaded();
long long emulated_downloaded() { return downloaded; }

// For tests that stand in for another program: device memory with these bytes; work that waits on streams.
// For tests: the stream that is being recorded.
extern "C" __attribute__((visibility("default"))) void *emulated_recorded_stream();
void *emulated_recorded_stream() {
    for (emulated_stream *stream : emulated::streams)
        if (stream->captured) return stream;
    return nullptr;
}

extern "C" __attribute__((visibility("default"))) void *emulated_block(const void *bytes, size_t size);
void *emulated_block(const void *bytes, size_t size) {
    void *block = nullptr;
    if (emulated_malloc(&block, size, false) != cudaSuccess || !block) return nullptr;
    emulated::memory_write(block, size, "emulated_block");
    memcpy(block, bytes, size);
    return block;
}

// For the emulated NCCL: what was begun on a stream ends; a kernel of another library reads or writes.
extern "C" __attribute__((visibility("default"))) void emulated_finish(cudaStream_t stream);
void emulated_finish(cudaStream_t stream) { emulated::drain(real(stream)); }
extern "C" __attribute__((visibility("default"))) void emulated_touch(void *at, size_t bytes, bool writes);
void emulated_touch(void *at, size_t bytes, bool writes) {
    if (writes)
        emulated::memory_write(at, bytes, "NCCL");
    else
        emulated::memory_read(at, bytes, "NCCL");
}

extern "C" __attribute__((visibility("default"))) long long emulated_waiting();
long long emulated_waiting() {
    size_t all = 0;
    for (emulated_stream *stream : emulated::streams) all += stream->queue.size();
    return static_cast<long long>(all);
}

static void copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    if (kind == cudaMemcpyDeviceToHost) downloaded += static_cast<long long>(bytes);
    if (kind != cudaMemcpyHostToDevice) emulated::memory_read(from, bytes, "cudaMemcpyAsync from");
    if (kind != cudaMemcpyDeviceToHost) emulated::memory_write(to, bytes, "cudaMemcpyAsync to");
    memcpy(to, from, bytes);
}

// Ordinary host memory is read before the call returns, and written before it returns; pinned memory at any
// time until a synchronisation.
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    if (bytes == 0) return cudaSuccess;
    check_ends(to, from, kind);
    stream = real(stream);
    bool late_host = emulated::memory_is_pinned(kind == cudaMemcpyHostToDevice ? from : to);
    if (kind == cudaMemcpyDeviceToDevice || late_host) {
        enqueue(stream, [=] { copy(to, from, bytes, kind); });
        return cudaSuccess;
    }
    if (stream->captured) emulated::mistake("cudaMemcpyAsync of pageable memory while a graph is recorded");
    if (kind == cudaMemcpyDeviceToHost) {
        emulated::drain(stream);
        copy(to, from, bytes, kind);
        return cudaSuccess;
    }
    std::vector<char> staged(static_cast<const char *>(from), static_cast<const char *>(from) + bytes);
    enqueue(stream, [=] { copy(to, staged.data(), bytes, kind); });
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *block, int value, size_t bytes, cudaStream_t stream) {
    if (bytes)
        enqueue(stream, [=] {
            emulated::memory_write(block, bytes, "cudaMemsetAsync");
            memset(block, value, bytes);
        });
    return cudaSuccess;
}

// ---- events -------------------------------------------------------------------------------------

static double now_ms() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

static void run_until(cudaEvent_t event, uint64_t record) {
    while (event->done < record && !event->where->queue.empty()) emulated::step(event->where);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
    *event = new emulated_event();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    emulated::drain_all();
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    stream = real(stream);
    if (stream->captured) emulated::mistake("cudaEventRecord while a graph is recorded");
    uint64_t record = ++event->asked;
    event->where = stream;
    enqueue(stream, [=] {
        event->done = record;
        event->ms = now_ms();
    });
    return cudaSuccess;
}

// In a graph: recorded at every launch where it is external, else an event of the graph that only its own
// work can wait for, which nothing here does.
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    if (!stream->captured) return cudaEventRecord(event, stream);
    if (flags != cudaEventRecordExternal)
        emulated::mistake("an event that the host waits for is recorded in a graph without "
                          "cudaEventRecordExternal");
    event->where = stream;
    enqueue(stream, [=] {
        event->done = ++event->asked;
        event->ms = now_ms();
    });
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (refuse_capture("cudaEventSynchronize")) return result(cudaErrorStreamCaptureUnsupported);
    run_until(event, event->asked);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    uint64_t record = event->asked;
    if (record) enqueue(stream, [=] { run_until(event, record); });
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    if (!from->asked || !to->asked) return result(cudaErrorInvalidResourceHandle);
    if (from->done < from->asked || to->done < to->asked)
        emulated::mistake("cudaEventElapsedTime of events that nobody has waited for");
    *ms = static_cast<float>(to->ms - from->ms);
    return cudaSuccess;
}

// ---- graphs -------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    if (stream->captured) return result(cudaErrorStreamCaptureUnsupported);
    stream->captured = new emulated_graph();
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
    std::swap(interaction, *mode);
    return cudaSuccess;
}

// The recording of a stream that the legacy stream waits for forbids the legacy stream.
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    for (emulated_stream *other : emulated::streams)
        if (stream == cudaStreamLegacy && other->blocking && other->captured)
            return result(cudaErrorStreamCaptureImplicit);
    *status = real(stream)->captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    if (!stream->captured) return result(cudaErrorInvalidValue);
    *graph = stream->captured;
    stream->captured = nullptr;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    *exec = new emulated_graph_exec();
    (*exec)->list = graph->list;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    for (const work &w : exec->list) enqueue(stream, w);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    delete exec;
    return cudaSuccess;
}
