// The emulation's parts to each other: settings, mistakes, what is running, memory. Kernels see emulated.h
// alone.
#ifndef AB_TESTS_CUDA_HOST_INSIDE_H
#define AB_TESTS_CUDA_HOST_INSIDE_H

#include "cuda_runtime.h"

namespace emulated {

enum { MOST_THREADS = 1024, EXIT_STATUS = 99 };

// ---- orders -------------------------------------------------------------------------------------

enum order { FORWARD, REVERSE, SHUFFLED };

// Read from AMPBENCH_EMULATED, e.g. "order=reverse,seed=3,streams=soon"; a default for what is missing.
struct settings {
    order threads;  // of blocks, warps and lanes (shuffled)
    unsigned seed;  // of shuffled
    bool late;      // streams run only when somebody waits (the default), or at once
    bool checks;    // accesses are checked (the default)
    size_t memory;  // bytes of the device
    int processors; // multiprocessors
    int devices;
    bool relu_drops_nan;    // of cuBLASLt's epilogue
    bool bias_rounds_twice; // its bias is added to the rounded product
};
settings &options();

// ---- mistakes -----------------------------------------------------------------------------------

// NULL: print the mistake and end the process.
extern void (*on_mistake)(const char *text);
__attribute__((format(printf, 1, 2))) void mistake(const char *format, ...);

// Runs a kernel now (threads.cc).
void run_kernel(const char *name, dim3 grid, dim3 block, const call &kernel);

// ---- for the runtime and the libraries ----------------------------------------------------------

void enqueue(cudaStream_t stream, std::function<void()> work);
bool is_capturing(cudaStream_t stream);

// Ten bits after the leading one, to nearest even.
static inline float rounded_to_tf32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

// What is running, for the shadow of memory. `number` is different for each block that ever ran.
struct place {
    const char *kernel;
    const void *arguments;
    size_t argument_bytes;
    bool in_kernel;
    unsigned block, first_block; // number of this block; of the first block of the kernel
    unsigned thread, barriers, warp_syncs;
    uint64_t mark; // of this thread, see memory.cc
    uint3 thread_at, block_at;
    dim3 block_size, grid_size;
};
extern place here;

void set_mark();
void stacks_are(const void *first, size_t bytes);

// Device memory (memory.cc). `read` and `write`: of a library or a copy, checked as a whole.
bool memory_is_device(const void *at);
bool memory_is_pinned(const void *at);
void *memory_take(size_t bytes, bool pinned); // nullptr: none left
bool memory_give_back(void *block);
void memory_left(size_t *left, size_t *all);
void memory_read(const void *at, size_t bytes, const char *who);
void memory_write(const void *at, size_t bytes, const char *who);
void memory_forget(void *at, size_t bytes, const char *who); // becomes unwritten
void kernel_begins();
void kernel_ends();

} // namespace emulated

#endif
