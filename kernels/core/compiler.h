/* Compiler features that C11 and C++17 spell differently, one macro each. No other header tests for a
 * compiler. */
#ifndef AB_CORE_COMPILER_H
#define AB_CORE_COMPILER_H

#if defined(__GNUC__) || defined(__clang__)
#define AB_MUST_CHECK __attribute__((warn_unused_result))
#define AB_PRINTF(fmt_index, first_arg) __attribute__((format(printf, fmt_index, first_arg)))
#define AB_UNUSED __attribute__((unused))
/* For kernels: force inlining to specialise a loop by a constant argument; prevent inlining to separate
 * register allocation. */
#define AB_NOINLINE __attribute__((noinline))
#define AB_FORCE_INLINE __attribute__((always_inline)) inline
#else
#define AB_MUST_CHECK
#define AB_PRINTF(fmt_index, first_arg)
#define AB_UNUSED
#define AB_NOINLINE
#define AB_FORCE_INLINE inline
#endif

#if defined(__cplusplus)
#define AB_RESTRICT __restrict__
#define AB_THREAD_LOCAL thread_local
#define AB_BEGIN_DECLS extern "C" {
#define AB_END_DECLS }
#else
#define AB_RESTRICT restrict
#define AB_THREAD_LOCAL _Thread_local
#define AB_BEGIN_DECLS
#define AB_END_DECLS
#endif

/* Marks a scalar function shared by the CPU and the CUDA kernel of an op. */
#if defined(__CUDACC__)
#define AB_HOST_DEVICE __host__ __device__
#else
#define AB_HOST_DEVICE
#endif

#define AB_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#endif
