/* Whether the oneDNN that was found at run time computes on the calling thread, as sliced.c needs it to and
 * as --threads promises. The name libdnnl.so.3 says nothing of that: every 3.x has it, whatever its threads
 * are.
 *
 * Usable are libraries without threads and those of the OpenMP runtime of this program, whose number of
 * threads it sets. Observed with builds of the package index: of TBB and of SYCL (whose CPU threads are
 * TBB's) all cores compute, whatever that number is; and so they do in one of Intel's OpenMP (libiomp5)
 * beside libgomp, as either has its own number. */
#define _GNU_SOURCE
#include "kernels/ops/product/dnnl_shim.h"

#include "kernels/core/log.h"
#include "kernels/core/text.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdatomic.h>

/* The object in memory that has the function, or NULL. */
static const void *home_of(const char *function) {
    Dl_info info;
    const void *address = dlsym(RTLD_DEFAULT, function);
    return address && dladdr(address, &info) ? info.dli_fbase : NULL;
}

/* Whether the functions that LLVM's and Intel's compilers call for a parallel region, if there are any, are
 * of the runtime whose number of threads this program sets. */
static bool one_openmp(void) {
    const void *theirs = home_of("__kmpc_fork_call");
    return !theirs || theirs == home_of("omp_set_num_threads");
}

/* Why not, in words, or NULL. */
static const char *refusal(void) {
    switch (dnnl_version()->cpu_runtime) {
    case DNNL_RUNTIME_SEQ:
        return NULL;
    case DNNL_RUNTIME_OMP:
        return one_openmp() ? NULL : "another OpenMP runtime";
    case DNNL_RUNTIME_TBB:
        return "TBB";
    default:
        return "SYCL or a thread pool";
    }
}

bool ab_dnnl_usable(void) {
    enum { UNKNOWN, USABLE, REFUSED };
    static _Atomic int known = UNKNOWN;
    int now = atomic_load(&known);
    if (now != UNKNOWN) return now == USABLE;
    const char *why = refusal();
    const dnnl_version_t *version = dnnl_version();
    now = why ? REFUSED : USABLE;
    if (atomic_exchange(&known, now) == UNKNOWN && why)
        ab_warn("oneDNN %d.%d.%d is not used: its threads are of %s, so it would not keep to --threads; a "
                "build of it for OpenMP (gcc) does",
                version->major, version->minor, version->patch, why);
    return !why;
}

const char *ab_dnnl_version(void) {
    static _Thread_local char text[32];
    const dnnl_version_t *version = dnnl_version();
    if (!ab_dnnl_usable()) return NULL;
    ab_text_show(text, sizeof text, "%d.%d.%d", version->major, version->minor, version->patch);
    return text;
}
