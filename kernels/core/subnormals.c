/* The bits of the control registers: Intel SDM volume 1, 10.2.3 (MXCSR: FTZ bit 15, DAZ bit 6; DAZ exists
 * where SSE3 does), Arm ARM, FPCR (FZ bit 24: operands and results). FPCR.FZ16, for fp16 arithmetic, stays:
 * halves are computed in fp32. */
#include "kernels/core/subnormals.h"

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

static const uint64_t flush_bits = 1u << 15 | 1u << 6;

bool ab_subnormals_can_flush(void) { return __builtin_cpu_supports("sse3"); }
static uint64_t read_control(void) { return _mm_getcsr(); }
static void write_control(uint64_t value) { _mm_setcsr((unsigned)value); }

#elif defined(__aarch64__)

static const uint64_t flush_bits = UINT64_C(1) << 24;

bool ab_subnormals_can_flush(void) { return true; }
static uint64_t read_control(void) {
    uint64_t value;
    __asm__ volatile("mrs %0, fpcr" : "=r"(value));
    return value;
}
static void write_control(uint64_t value) { __asm__ volatile("msr fpcr, %0" : : "r"(value) : "memory"); }

#else

static const uint64_t flush_bits = 1;

bool ab_subnormals_can_flush(void) { return false; }
static uint64_t read_control(void) { return 0; }
static void write_control(uint64_t value) { (void)value; }

#endif

ab_subnormals ab_subnormals_mode(void) {
    return (read_control() & flush_bits) == flush_bits ? AB_SUBNORMALS_FLUSHED : AB_SUBNORMALS_KEPT;
}

/* Writing the register is slower than reading it. */
ab_subnormals ab_subnormals_set(ab_subnormals mode) {
    const uint64_t control = read_control();
    const uint64_t wanted = mode == AB_SUBNORMALS_FLUSHED ? control | flush_bits : control & ~flush_bits;
    if (wanted != control && ab_subnormals_can_flush()) write_control(wanted);
    return (control & flush_bits) == flush_bits ? AB_SUBNORMALS_FLUSHED : AB_SUBNORMALS_KEPT;
}
