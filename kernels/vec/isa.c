/* Detects the CPU level once and stores the level in force. Does not affect oneDNN. */
#include "kernels/vec/isa.h"
#include "kernels/core/text.h"

#include "kernels/core/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const names[] = {"plain", "avx2", "avx512", "avx512bitalg"}; /* index: ab_isa */

static pthread_once_t once = PTHREAD_ONCE_INIT; /* which ThreadSanitizer knows */
static ab_isa best, in_force;
static atomic_bool known; /* spares kernels, which ask at every call, that of pthread_once */

#if defined(__x86_64__)
/* __builtin_cpu_supports also checks that the operating system saves the registers. clang 14 does not
 * support "f16c" there, so that bit (CPUID leaf 1, ECX 29) is read by hand. */
static ab_isa read_cpu(void) {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx >> 29 & 1U);
    bool avx2 = f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                __builtin_cpu_supports("popcnt");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    bool bitalg = avx512 && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
                  __builtin_cpu_supports("gfni") && __builtin_cpu_supports("avx512bitalg") &&
                  __builtin_cpu_supports("avx512vpopcntdq");
    if (bitalg) return AB_ISA_AVX512_BITALG;
    if (avx512) return AB_ISA_AVX512;
    return avx2 ? AB_ISA_AVX2 : AB_ISA_PLAIN;
}
#else
static ab_isa read_cpu(void) { return AB_ISA_PLAIN; }
#endif

static void initialise(void) {
    const char *wanted = getenv("AMPBENCH_CPU_ISA");
    ab_isa asked = AB_ISA_PLAIN;
    best = read_cpu();
    in_force = best;
    if (wanted == NULL || wanted[0] == '\0') return;
    if (ab_isa_find(wanted, &asked) != AB_OK) {
        ab_warn("AMPBENCH_CPU_ISA: %s; using %s", ab_error_message(), names[best]);
        return;
    }
    if (asked > best)
        ab_warn("AMPBENCH_CPU_ISA=%s: newer than what this CPU has; using %s", wanted, names[best]);
    if (asked < best) in_force = asked;
}

ab_isa ab_isa_get(void) {
    if (!atomic_load_explicit(&known, memory_order_acquire)) {
        pthread_once(&once, initialise);
        atomic_store_explicit(&known, true, memory_order_release);
    }
    return in_force;
}

ab_isa ab_isa_best(void) {
    pthread_once(&once, initialise);
    return best;
}

ab_status ab_isa_force(ab_isa isa) {
    if (isa > ab_isa_best())
        return ab_fail(AB_UNAVAILABLE, "CPU level %s: this CPU offers %s at most", ab_isa_name(isa),
                       names[best]);
    in_force = isa;
    return AB_OK;
}

const char *ab_isa_name(ab_isa isa) { return (size_t)isa < AB_COUNT_OF(names) ? names[isa] : "unknown"; }

ab_status ab_isa_find(const char *name, ab_isa *isa) {
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *isa = (ab_isa)i;
        return AB_OK;
    }
    const char *near = ab_nearest(name, names, (int)AB_COUNT_OF(names));
    return ab_fail(AB_CONFIG, "unknown CPU level \"%s\"; expected plain, avx2, avx512 or avx512bitalg%s%s",
                   ab_text_brief(name, 60), near != NULL ? "; nearest: " : "", near != NULL ? near : "");
}
