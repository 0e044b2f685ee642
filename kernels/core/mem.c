/* The counted pool behind mem.h: a list of blocks, one counter per category. */
#include "kernels/core/mem.h"

#include <stdlib.h>

typedef struct block_node {
    struct block_node *next;
    void *block;
} block_node;

/* The unused rest of a reservation. */
typedef struct arena {
    char *next;
    int64_t left;
} arena;

struct ab_mem {
    const ab_device *device;
    int64_t limit, total;
    int64_t held; /* by the device when the pool was created */
    int64_t bytes[AB_MEM_CATEGORY_COUNT];
    arena arena[AB_MEM_CATEGORY_COUNT];
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
    (*mem)->held = device->held ? device->held() : 0;
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

static ab_status check_limit(const ab_mem *mem, ab_mem_category category, int64_t bytes) {
    if (!mem->limit || mem->total + bytes <= mem->limit) return AB_OK;
    return ab_fail(AB_NO_MEMORY, "%s needs %lld bytes more, %lld of the limit of %lld are in use",
                   ab_mem_category_name(category), (long long)bytes, (long long)mem->total,
                   (long long)mem->limit);
}

/* A zeroed block of the device. */
static ab_status take(ab_mem *mem, ab_mem_category category, int64_t bytes, void **block) {
    block_node *node = malloc(sizeof *node);
    if (!node || mem->device->alloc((size_t)bytes, block) != AB_OK) {
        free(node);
        return ab_fail(AB_NO_MEMORY, "%s: cannot allocate %lld bytes on %s", ab_mem_category_name(category),
                       (long long)bytes, mem->device->name);
    }
    *node = (block_node){.next = mem->blocks, .block = *block};
    mem->blocks = node;
    return mem->device->fill_zero(*block, (size_t)bytes);
}

ab_status ab_mem_reserve(ab_mem *mem, ab_mem_category category, int64_t bytes) {
    void *block;
    if (bytes == 0) return AB_OK;
    AB_TRY(check_limit(mem, category, bytes));
    AB_TRY(take(mem, category, bytes, &block));
    mem->arena[category] = (arena){block, bytes};
    return AB_OK;
}

ab_status ab_mem_alloc(ab_mem *mem, ab_mem_category category, int64_t bytes, void **block) {
    const int64_t rounded = ab_mem_rounded(bytes);
    arena *reserved = &mem->arena[category];
    *block = NULL;
    if (bytes == 0) return AB_OK;
    AB_TRY(check_limit(mem, category, rounded));
    if (rounded <= reserved->left) {
        *block = reserved->next;
        reserved->next += rounded;
        reserved->left -= rounded;
    } else {
        AB_TRY(take(mem, category, rounded, block));
    }
    mem->total += rounded;
    mem->bytes[category] += rounded;
    return AB_OK;
}

static int64_t held_beside(const ab_mem *mem) {
    return mem->device->held ? ab_mem_rounded(mem->device->held() - mem->held) : 0;
}

int64_t ab_mem_bytes(const ab_mem *mem, ab_mem_category category) {
    return mem->bytes[category] + (category == AB_MEM_workspace ? held_beside(mem) : 0);
}

int64_t ab_mem_total(const ab_mem *mem) { return mem->total + held_beside(mem); }
