// A libnccl.so.2 for the emulation: the calls that the CUDA plugin makes, between processes of this machine,
// through pipes with names in a temporary folder. Sums are in the order of the ranks; an average multiplies
// by a rounded 1/N before the sum, as NCCL's. It refuses what NCCL refuses and ends the process with a
// message where a program would have waited for ever. AMPBENCH_EMULATED_NCCL=old: version 2.8; fails: no
// group is made.
#include "kernels/cuda/nccl_abi.cuh"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define EXPORTED extern "C" __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6 };

namespace {
struct communicator {
    int rank, ranks;
    std::vector<int> to, from; // descriptors by rank
};
struct transfer {
    int file;
    char *at;
    size_t left;
    bool sends;
};
} // namespace

static bool is_set(const char *value) {
    const char *text = getenv("AMPBENCH_EMULATED_NCCL");
    return text && strcmp(text, value) == 0;
}

// ---- the emulation's memory and streams ---------------------------------------------------------

template <class F> static F hook(const char *name) {
    static void *plugin = nullptr;
    const char *folder = getenv("AMPBENCH_PLUGIN_DIR");
    if (!plugin)
        plugin = dlopen((std::string(folder ? folder : "") + "/libampbench_cuda.so").c_str(),
                        RTLD_NOW | RTLD_NOLOAD);
    void *symbol = plugin ? dlsym(plugin, name) : nullptr;
    F function;
    memcpy(&function, &symbol, sizeof symbol);
    if (symbol) return function;
    fprintf(stderr, "emulated NCCL: no emulated CUDA is loaded\n");
    abort();
}

// What was begun on the stream has ended.
static void finish(cudaStream_t stream) { hook<void (*)(cudaStream_t)>("emulated_finish")(stream); }

// The emulation checks that device memory is read and written where it may be.
static void touches(const void *at, size_t bytes, bool writes) {
    hook<void (*)(const void *, size_t, bool)>("emulated_touch")(at, bytes, writes);
}

// ---- transfers ----------------------------------------------------------------------------------

static std::vector<transfer> begun;
static int depth;

static bool move_on(transfer *t) {
    const ssize_t moved = t->sends ? write(t->file, t->at, t->left) : read(t->file, t->at, t->left);
    if (moved <= 0) return moved < 0 && (errno == EAGAIN || errno == EINTR);
    t->at += moved;
    t->left -= static_cast<size_t>(moved);
    return true;
}

// Between two ranks transfers are made in the order of the calls.
static int run_all() {
    for (size_t left = 1; left > 0;) {
        std::vector<pollfd> files;
        std::vector<transfer *> first;
        left = 0;
        for (transfer &t : begun) {
            bool later = t.left == 0;
            left += t.left > 0;
            for (transfer *f : first) later = later || f->file == t.file;
            if (later) continue;
            first.push_back(&t);
            files.push_back({t.file, static_cast<short>(t.sends ? POLLOUT : POLLIN), 0});
        }
        if (left > 0) (void)poll(files.data(), files.size(), -1);
        for (size_t i = 0; i < files.size(); i++)
            if (files[i].revents && !move_on(first[i])) return REMOTE_ERROR;
    }
    begun.clear();
    return SUCCESS;
}

static int pass(int file, void *at, size_t bytes, bool sends) {
    begun.push_back({file, static_cast<char *>(at), bytes, sends});
    return depth > 0 ? int(SUCCESS) : run_all();
}

static bool is_peer(const communicator *c, int peer) {
    return c && peer >= 0 && peer < c->ranks && peer != c->rank;
}

EXPORTED int ncclGroupStart() {
    depth++;
    return SUCCESS;
}

EXPORTED int ncclGroupEnd() {
    if (depth == 0) return INVALID_USAGE;
    return --depth > 0 ? int(SUCCESS) : run_all();
}

EXPORTED int ncclSend(const void *from, size_t count, int type, int peer, void *comm, cudaStream_t stream) {
    const communicator *c = static_cast<communicator *>(comm);
    if (!is_peer(c, peer) || type != AB_NCCL_UINT8) return INVALID_ARGUMENT;
    finish(stream);
    touches(from, count, false);
    return pass(c->to[static_cast<size_t>(peer)], const_cast<void *>(from), count, true);
}

EXPORTED int ncclRecv(void *to, size_t count, int type, int peer, void *comm, cudaStream_t stream) {
    const communicator *c = static_cast<communicator *>(comm);
    if (!is_peer(c, peer) || type != AB_NCCL_UINT8) return INVALID_ARGUMENT;
    finish(stream);
    touches(to, count, true);
    return pass(c->from[static_cast<size_t>(peer)], to, count, false);
}

// ---- sums ---------------------------------------------------------------------------------------

static void add(float *sum, const float *values, size_t count, float factor) {
    for (size_t i = 0; i < count; i++) sum[i] += values[i] * factor;
}

EXPORTED int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *comm,
                           cudaStream_t stream) {
    const communicator *c = static_cast<communicator *>(comm);
    if (!c || type != AB_NCCL_FLOAT32 || (op != AB_NCCL_SUM && op != AB_NCCL_AVG)) return INVALID_ARGUMENT;
    const size_t bytes = count * sizeof(float);
    const float factor = op == AB_NCCL_AVG ? 1.0F / static_cast<float>(c->ranks) : 1.0F;
    std::vector<std::vector<float>> all(static_cast<size_t>(c->ranks), std::vector<float>(count));
    finish(stream);
    touches(from, bytes, false);
    touches(to, bytes, true);
    (void)ncclGroupStart();
    for (int r = 0; r < c->ranks; r++) {
        const size_t peer = static_cast<size_t>(r);
        if (r == c->rank) {
            memcpy(all[peer].data(), from, bytes);
            continue;
        }
        (void)pass(c->to[peer], const_cast<void *>(from), bytes, true);
        (void)pass(c->from[peer], all[peer].data(), bytes, false);
    }
    const int code = ncclGroupEnd();
    if (code != SUCCESS) return code;
    std::vector<float> sum(count, 0.0F);
    for (const auto &values : all) add(sum.data(), values.data(), count, factor);
    memcpy(to, sum.data(), bytes);
    return SUCCESS;
}

// ---- groups -------------------------------------------------------------------------------------

EXPORTED int ncclGetVersion(int *version) {
    *version = is_set("old") ? 2804 : 22000;
    return SUCCESS;
}

EXPORTED int ncclGetUniqueId(ab_nccl_id *id) {
    const char *base = getenv("TMPDIR");
    snprintf(id->internal, sizeof id->internal, "%s/emulated-nccl-XXXXXX", base ? base : "/tmp");
    return mkdtemp(id->internal) ? SUCCESS : INVALID_ARGUMENT;
}

static std::string pipe_of(const ab_nccl_id &id, int from, int to) {
    return std::string(id.internal) + "/" + std::to_string(from) + "-" + std::to_string(to);
}

// Both ends make it, whichever comes first; opened for both directions it has no end.
static int open_pipe(const std::string &name) {
    (void)mkfifo(name.c_str(), 0600);
    return open(name.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

EXPORTED int ncclCommInitRank(void **comm, int ranks, ab_nccl_id id, int rank) {
    if (is_set("fails") || ranks < 1 || rank < 0 || rank >= ranks) return INVALID_ARGUMENT;
    communicator *c = new communicator{rank, ranks, {}, {}};
    char met = 1;
    (void)ncclGroupStart();
    for (int r = 0; r < ranks; r++) {
        c->to.push_back(r == rank ? -1 : open_pipe(pipe_of(id, rank, r)));
        c->from.push_back(r == rank ? -1 : open_pipe(pipe_of(id, r, rank)));
        if (r == rank) continue;
        (void)pass(c->to.back(), &met, 1, true);
        (void)pass(c->from.back(), &met, 1, false);
    }
    const int code = ncclGroupEnd();
    for (int r = 0; r < ranks; r++) // all have opened them
        if (r != rank) (void)unlink(pipe_of(id, r, rank).c_str());
    (void)rmdir(id.internal); // the last one
    *comm = c;
    return code;
}

EXPORTED const char *ncclGetErrorString(int code) {
    return code == SUCCESS            ? "no error"
           : code == INVALID_ARGUMENT ? "invalid argument (emulated)"
           : code == INVALID_USAGE    ? "invalid usage (emulated)"
                                      : "remote error (emulated)";
}
