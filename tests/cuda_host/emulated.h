// CUDA kernels on the host, one block after another, every thread of a block on its own stack. What the
// device leaves open is varied: the order of blocks, of warps and of lanes. Every access of a kernel to
// memory is checked (memory.cc): bounds, values that nobody wrote, and races, i.e. two threads at the same
// place, at least one of them writing, without a barrier or an atomic operation between them.
//
// Accesses are seen through the calls that a compiler inserts with -fsanitize=thread; memory.cc has these
// functions in the place of the sanitizer's library. The first mistake ends the process with status 99, or is
// passed to `emulated::on_mistake` (inside.h).
//
// Not emulated: textures, dynamic parallelism, cooperative groups, clusters, tensor cores, dynamic shared
// memory, time.
#ifndef AB_TESTS_CUDA_HOST_EMULATED_H
#define AB_TESTS_CUDA_HOST_EMULATED_H

#include <functional>
#include <memory>

namespace emulated {

enum { WARP = 32 };

// ---- inside a kernel ----------------------------------------------------------------------------

__attribute__((const)) uint3 thread_index();
__attribute__((const)) uint3 block_index();
__attribute__((const)) dim3 block_size();
__attribute__((const)) dim3 grid_size();

enum vote { ALL_ARRIVE, ANY_TRUE, ALL_TRUE, HOW_MANY };
int barrier(vote kind, int value, const char *file, int line);

enum source { FROM_LANE, FROM_BELOW, FROM_ABOVE, FROM_XOR };
uint64_t exchange(source kind, const char *file, int line, unsigned mask, uint64_t bits, int by, int width);
unsigned ballot(unsigned mask, bool value, const char *file, int line);
void warp_sync(const char *file, int line, unsigned mask = 0xffffffffu);

template <typename T>
T shuffle(source kind, const char *file, int line, unsigned mask, T value, int by, int width = WARP) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = exchange(kind, file, line, mask, bits, by, width);
    memcpy(&value, &bits, sizeof value);
    return value;
}

void apply(void *at, size_t bytes, void *old, const std::function<void(void *)> &change);

template <typename T, typename F> T atomic(T *at, F f) {
    T old;
    apply(at, sizeof(T), &old, [f](void *value) {
        T now;
        memcpy(&now, value, sizeof now);
        now = f(now);
        memcpy(value, &now, sizeof now);
    });
    return old;
}

// ---- launching ----------------------------------------------------------------------------------

// A kernel with its arguments: the device's copy of them, which threads may read.
struct call {
    std::shared_ptr<void> arguments;
    size_t bytes;
    void (*run)(const void *arguments);
};

void enqueue_kernel(const char *name, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                    const call &kernel);

template <typename K, typename... A>
void launch(const char *name, dim3 grid, dim3 block, size_t shared, cudaStream_t stream, K kernel,
            A... arguments) {
    auto bound = [=] { kernel(arguments...); };
    typedef decltype(bound) all;
    call c = {std::make_shared<all>(bound), sizeof(all),
              [](const void *kept) { (*static_cast<const all *>(kept))(); }};
    enqueue_kernel(name, grid, block, shared, stream, c);
}

} // namespace emulated

#endif
