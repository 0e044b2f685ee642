/* The allocator of a cell. Counts blocks by category, so that "memory" in the record is exact.
 *
 * A plan is static: every block is allocated before the first step and freed with the pool; kernels never
 * allocate. Each block is rounded up to AB_MEM_ALIGN bytes and counted at that size, so that the
 * categories sum exactly to the peak. What a device's own functions hold beside the blocks (ab_device.held)
 * counts as workspace. Allocations inside libraries are not counted (the record also has the resident set
 * size). */
#ifndef AB_CORE_MEM_H
#define AB_CORE_MEM_H

#include "kernels/core/device.h"
#include "kernels/core/status.h"

#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_MEM_ALIGN = 64 };

typedef enum ab_mem_category {
#define AB_MEM_CATEGORY(id, text) AB_MEM_##id,
#include "kernels/core/mem.def"
#undef AB_MEM_CATEGORY
    AB_MEM_CATEGORY_COUNT
} ab_mem_category;

const char *ab_mem_category_name(ab_mem_category category); /* the JSON key stem, e.g. "weights" */
const char *ab_mem_category_text(ab_mem_category category); /* one-line description for users */

/* Bytes a block of `bytes` occupies. */
static inline int64_t ab_mem_rounded(int64_t bytes) {
    return (bytes + AB_MEM_ALIGN - 1) / AB_MEM_ALIGN * AB_MEM_ALIGN;
}

typedef struct ab_mem ab_mem;

/* An empty pool on `device` (borrowed; must outlive the pool). `limit_bytes` 0 means no limit. */
AB_MUST_CHECK ab_status ab_mem_create(ab_mem **mem, const ab_device *device, int64_t limit_bytes);

/* Frees every block. NULL is a no-op. */
void ab_mem_destroy(ab_mem *mem);

/* A zeroed block, AB_MEM_ALIGN aligned, owned by the pool. bytes 0 gives NULL and counts nothing.
 * AB_NO_MEMORY: the message names category and bytes. */
AB_MUST_CHECK ab_status ab_mem_alloc(ab_mem *mem, ab_mem_category category, int64_t bytes, void **block);

/* Makes one allocation from which the category's next blocks are taken, until `bytes` (the sum of rounded
 * block sizes) are used: device memory is slow to allocate. Blocks are counted when taken. AB_NO_MEMORY
 * as above. */
AB_MUST_CHECK ab_status ab_mem_reserve(ab_mem *mem, ab_mem_category category, int64_t bytes);

/* Bytes held, per category and in total. Blocks live as long as the pool, so this is also the peak. Workspace
 * includes the most that the device held beside them since the pool was created. */
int64_t ab_mem_bytes(const ab_mem *mem, ab_mem_category category);
int64_t ab_mem_total(const ab_mem *mem);

AB_END_DECLS

#endif
