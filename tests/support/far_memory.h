/* Memory that the host cannot touch: it has no access rights outside the calls of its table, so anything that
 * reads or writes a tensor behind the table's back ends the test. For tests of the device seam; no GPU, and
 * it stands in for none. The including file defines _GNU_SOURCE and includes cmocka.h. */
#ifndef AB_TESTS_SUPPORT_FAR_MEMORY_H
#define AB_TESTS_SUPPORT_FAR_MEMORY_H

#include "kernels/core/device.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* One region, so that opening and closing it is one call. Blocks are given back all at once: far_blocks = 0.
 */
enum { FAR_PAGE = 4096 };
static const size_t far_bytes = (size_t)1 << 30;
static char *far_region;
static size_t far_used;
static int far_blocks, far_transfers;

static inline void far_access(int rights) { assert_int_equal(mprotect(far_region, far_used, rights), 0); }

static inline ab_status far_alloc(size_t bytes, void **block) {
    if (!far_region) {
        far_region = mmap(NULL, far_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_true(far_region != MAP_FAILED);
    }
    if (far_blocks++ == 0) far_used = 0;
    *block = far_region + far_used;
    far_used += (bytes + FAR_PAGE) / FAR_PAGE * FAR_PAGE;
    assert_true(far_used <= far_bytes);
    return AB_OK;
}

static inline void far_free(void *block) { (void)block; }

static inline ab_status far_copy(void *to, const void *from, size_t bytes) {
    far_access(PROT_READ | PROT_WRITE);
    memcpy(to, from, bytes);
    far_access(PROT_NONE);
    far_transfers++;
    return AB_OK;
}

static inline ab_status far_fill_zero(void *block, size_t bytes) {
    far_access(PROT_READ | PROT_WRITE);
    memset(block, 0, bytes);
    far_access(PROT_NONE);
    return AB_OK;
}

static inline ab_status far_synchronize(void) { return AB_OK; }

#endif
