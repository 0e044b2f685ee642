/* Whose tensors are used when, and how statistics are gathered. */
#include "bench/train/cell/sync.h"

#include "bench/train/cell/parts.h"

#include <stdlib.h>

typedef struct ab_sync {
    ab_norm_sync norm;
    ab_rank_turns *turns; /* of simulated ranks; owned */
    void ***places;       /* [ranks][plan->tensors]: where each rank's tensors are; owned */
    void **workspace;     /* [ranks]; the blocks are the cell's memory; owned */
} ab_sync;

static ab_status gather_in_turns(void *context, const float *own, int64_t n, const float **all) {
    const ab_cell *cell = context;
    return ab_rank_turns_gather(cell->sync->turns, own, n, all);
}

/* Small exchanges have memory of their own, while gradients are on their way. */
static ab_status gather_by_link(void *context, const float *own, int64_t n, const float **all) {
    const unsigned char *bytes;
    (void)context;
    AB_TRY(ab_rank_link_gather(own, (size_t)n * sizeof *own, &bytes));
    *all = (const float *)(const void *)bytes;
    return AB_OK;
}

static bool is_wanted(const ab_rank_recipe *ranks) { return ranks->count > 1 && ranks->sync_bn; }

static ab_status make_replicas(ab_cell *cell) {
    ab_sync *sync = cell->sync;
    const int ranks = (int)cell->position.ranks;
    const ab_exec *exec = &cell->walk.exec;
    AB_TRY(ab_rank_turns_create(ranks, &sync->turns));
    sync->places = calloc((size_t)ranks, sizeof *sync->places);
    sync->workspace = calloc((size_t)ranks, sizeof *sync->workspace);
    if (!sync->places || !sync->workspace) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    AB_TRY(ab_cell_memory_places(&cell->memory, &sync->places[0]));
    sync->workspace[0] = exec->workspace;
    for (int r = 1; r < ranks; r++) {
        AB_TRY(ab_cell_memory_replica(&cell->memory, &sync->places[r]));
        AB_TRY(ab_mem_alloc(cell->memory.mem, AB_MEM_workspace, (int64_t)exec->workspace_bytes,
                            &sync->workspace[r]));
    }
    return AB_OK;
}

ab_status ab_sync_init(ab_cell *cell) {
    const bool simulated = !ab_rank_link_is_open();
    if (!is_wanted(&cell->config.recipe.ranks)) return AB_OK;
    cell->sync = calloc(1, sizeof *cell->sync);
    if (!cell->sync) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    cell->sync->norm = (ab_norm_sync){.form = cell->config.recipe.ranks.sync_bn,
                                      .ranks = (int)cell->position.ranks,
                                      .updates = true,
                                      .gather = simulated ? gather_in_turns : gather_by_link,
                                      .context = cell};
    return simulated ? make_replicas(cell) : AB_OK;
}

void ab_sync_fini(ab_cell *cell) {
    ab_sync *sync = cell->sync;
    if (!sync) return;
    for (int64_t r = 0; sync->places && r < cell->position.ranks; r++) free(sync->places[r]);
    free(sync->places);
    free(sync->workspace);
    ab_rank_turns_destroy(sync->turns);
    free(sync);
    cell->sync = NULL;
}

const ab_norm_sync *ab_sync_norm(const ab_cell *cell) { return cell->sync ? &cell->sync->norm : NULL; }

bool ab_sync_is_simulated(const ab_cell *cell) { return cell->sync && cell->sync->turns; }

int64_t ab_sync_bytes(const ab_plan *plan, const ab_rank_recipe *ranks, ab_mem_category category,
                      int64_t workspace) {
    if (!is_wanted(ranks) || ab_rank_link_is_open()) return 0;
    const int64_t one = category == AB_MEM_workspace ? ab_mem_rounded(workspace) : 0;
    return (ranks->count - 1) * (ab_cell_memory_replica_bytes(plan, category) + one);
}

/* ---- turns ----------------------------------------------------------------------------------- */

typedef struct rank_state {
    ab_step_position position;
    int64_t *index; /* samples of the batch; [batch] */
    uint32_t step;
} rank_state;

typedef struct turns {
    ab_cell *cell;
    ab_status (*run)(void *context, int rank);
    void *context;
    rank_state *state; /* [ranks] */
    int current;
} turns;

static void enter(void *context, int rank) {
    turns *t = context;
    ab_cell *cell = t->cell;
    rank_state *left = &t->state[t->current], *now = &t->state[rank];
    left->position = cell->position;
    left->step = cell->walk.exec.step;
    t->current = rank;
    cell->position = now->position;
    cell->position.rank = rank;
    cell->walk.exec.step = now->step;
    cell->walk.exec.workspace = cell->sync->workspace[rank];
    cell->batches.index = now->index;
    ab_cell_memory_use(&cell->memory, cell->sync->places[rank]);
    cell->batches.samples = cell->memory.tensor[cell->plan->input].data;
    cell->batches.targets = cell->memory.tensor[cell->plan->targets].data;
    cell->sync->norm.updates = rank == 0;
}

static ab_status run_turn(void *context, int rank) {
    const turns *t = context;
    return t->run(t->context, rank);
}

ab_status ab_sync_run(ab_cell *cell, ab_status (*run)(void *context, int rank), void *context) {
    const int ranks = (int)cell->position.ranks;
    const size_t batch = (size_t)cell->plan->batch;
    rank_state *state = calloc((size_t)ranks, sizeof *state);
    int64_t *index = calloc((size_t)ranks * batch, sizeof *index), *own = cell->batches.index;
    turns t = {.cell = cell, .run = run, .context = context, .state = state};
    if (!state || !index) {
        free(state);
        free(index);
        return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    }
    for (int r = 0; r < ranks; r++)
        state[r] = (rank_state){.position = cell->position,
                                .index = r == 0 ? own : index + (size_t)r * batch,
                                .step = cell->walk.exec.step};
    cell->walk.exec.sync = &cell->sync->norm;
    const ab_rank_play play = {run_turn, enter, &t};
    ab_status status = ab_rank_turns_run(cell->sync->turns, &play);
    cell->walk.exec.sync = NULL;
    free(state);
    free(index);
    return status;
}
