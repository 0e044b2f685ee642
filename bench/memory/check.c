/* Compares a plan with a limit; finds the batch that would fit. */
#include "bench/memory/check.h"

#include "kernels/core/text.h"

#include <inttypes.h>

static const double mib = 1024.0 * 1024.0;

void ab_memory_limit_of(const char *root, const ab_device *device, ab_memory_limit *limit) {
    int64_t left, all;
    if (!device->memory) {
        ab_memory_limit_find(root, limit);
        return;
    }
    *limit = (ab_memory_limit){.left = INT64_MAX, .text = ""};
    if (device->memory(&left, &all) != AB_OK) return;
    limit->left = left;
    ab_text_show(limit->text, sizeof limit->text, "%s has %.1f MiB", device->name, (double)all / mib);
}

static int64_t sum(const int64_t bytes[AB_MEM_CATEGORY_COUNT]) {
    int64_t total = 0;
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++) total += bytes[c];
    return total;
}

int64_t ab_memory_needed(const ab_plan *plan) { return sum(plan->bytes); }

/* Whether a batch would fit, workspace included. A batch that cannot be planned does not. */
static bool fits(const ab_memory_limit *limit, const ab_cell_config *config, int64_t batch) {
    ab_cell_config settings = *config;
    ab_plan *plan = NULL;
    int64_t bytes[AB_MEM_CATEGORY_COUNT];
    settings.batch = batch;
    settings.init_file = NULL;
    if (ab_cell_planned(&settings, &plan, bytes) != AB_OK) return false;
    ab_plan_destroy(plan);
    return sum(bytes) <= limit->left;
}

/* The largest batch that fits; 0: none. config->batch does not. */
static int64_t fitting_batch(const ab_memory_limit *limit, const ab_cell_config *config) {
    int64_t low = 0, high = config->batch;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (fits(limit, config, middle))
            low = middle;
        else
            high = middle;
    }
    return low;
}

static bool could_recompute(const ab_net *net) {
    for (int i = 0; i < net->ops; i++)
        if (net->op[i].block >= 0 && !net->op[i].recompute) return true;
    return false;
}

static ab_mem_category largest_of(const ab_plan *plan) {
    int most = 0;
    for (int c = 1; c < AB_MEM_CATEGORY_COUNT; c++)
        if (plan->bytes[c] > plan->bytes[most]) most = c;
    return (ab_mem_category)most;
}

ab_status ab_memory_check(const ab_memory_limit *limit, const ab_cell_config *config, const ab_plan *plan,
                          const char *id) {
    const int64_t needed = ab_memory_needed(plan);
    char remedy[192] =
        "not even a batch of 1 fits: take a smaller network, --optimizer sgd or --optimizer-state half";
    if (needed <= limit->left) return AB_OK;
    const ab_mem_category most = largest_of(plan);
    const int64_t batch = fitting_batch(limit, config);
    if (batch > 0)
        ab_text_show(remedy, sizeof remedy, "--batch %" PRId64 " fits (now %" PRId64 ")", batch,
                     config->batch);
    if (could_recompute(config->net)) ab_text_append(remedy, sizeof remedy, ", or try --recompute all");
    return ab_fail(
        AB_NO_MEMORY,
        "%s: the tensors of its plan need %.1f MiB (most: %s, %.1f MiB), %.1f MiB are left: %s; %s; "
        "--no-memory-check starts it all the same",
        id, (double)needed / mib, ab_mem_category_name(most), (double)plan->bytes[most] / mib,
        (double)limit->left / mib, limit->text, remedy);
}
