/* The counted pool behind mem.h: a list of blocks, one counter per category. */
#include "kernels/core/mem.h"

#include <stdlib.h>

typedef struct block_node {
    struct block_node *next;
    void *block;
} block_node;

struct ab_mem {
    const ab_device *device;
    int64_t limit, total;
    int64_t bytes[AB_MEM_CATEGORY_COUNT];
    block_node *blocks;
};

const char *ab_mem_category_name(ab_mem_category category) {
    static const char *const names[] = {
#define AB_MEM_CATEGORY(id, text) #id,
#include "kernels/core/mem.def"
#undef AB_MEM_CATEGORY
    };
    return names[category];
}

const char *ab_mem_category_text(ab_mem_category category) {
    static const char *const texts[] = {
#define AB_MEM_CATEGORY(id, text) text,
#include "kernels/core/mem.def"
#undef AB_MEM_CATEGORY
    };
    return texts[category];
}

ab_status ab_mem_create(ab_mem **mem, const ab_device *device, int64_t limit_bytes) {
    *mem = calloc(1, sizeof **mem);
    if (!*mem) return ab_fail(AB_NO_MEMORY, "cannot allocate a memory pool");
    (*mem)->device = device;
    (*mem)->limit = limit_bytes;
    return AB_OK;
}

void ab_mem_destroy(ab_mem *mem) {
    if (!mem) return;
    while (mem->blocks) {
        block_node *node = mem->blocks;
        mem->blocks = node->next;
        mem->device->free(node->block);
        free(node);
    }
    free(mem);
}

ab_status ab_mem_alloc(ab_mem *mem, ab_mem_category category, int64_t bytes, void **block) {
    *block = NULL;
    if (bytes == 0) return AB_OK;
    int64_t rounded = ab_mem_rounded(bytes);
    if (mem->limit && mem->total + rounded > mem->limit)
        return ab_fail(AB_NO_MEMORY, "%s needs %lld bytes more, %lld of the limit of %lld are in use",
                       ab_mem_category_name(category), (long long)rounded, (long long)mem->total,
                       (long long)mem->limit);
    block_node *node = malloc(sizeof *node);
    if (!node || mem->device->alloc((size_t)rounded, block) != AB_OK) {
        free(node);
        return ab_fail(AB_NO_MEMORY, "%s: cannot allocate %lld bytes on %s", ab_mem_category_name(category),
                       (long long)rounded, mem->device->name);
    }
    *node = (block_node){.next = mem->blocks, .block = *block};
    mem->blocks = node;
    mem->total += rounded;
    mem->bytes[category] += rounded;
    return mem->device->fill_zero(*block, (size_t)rounded);
}

int64_t ab_mem_bytes(const ab_mem *mem, ab_mem_category category) { return mem->bytes[category]; }
int64_t ab_mem_total(const ab_mem *mem) { return mem->total; }
