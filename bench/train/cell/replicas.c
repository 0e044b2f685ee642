/* Checksums of the trained weights over ranks. */
#include "bench/train/cell/replicas.h"

#include "bench/train/cell/parts.h"

#include <stdlib.h>
#include <string.h>

enum { FLIP_AFTER = 3, FLIP_BIT = 16 }; /* of an fp32 value: 2^-7 of it, which bf16 has too */

/* The tensor that the optimizer updates of trained parameter i. */
static ab_tensor *weight_of(const ab_cell *cell, int i) {
    const ab_plan *plan = cell->plan;
    int p = 0;
    while (p < plan->params && cell->trained.place[p] != i) p++;
    return &cell->memory.tensor[ab_params_weight(&plan->param[p])];
}

static ab_status take_checksums(const ab_cell *cell, uint64_t *checksum) {
    float *value = ab_params_room(cell->plan);
    ab_status status = value ? AB_OK : ab_fail(AB_NO_MEMORY, "--check-ranks: out of memory");
    for (int i = 0; i < cell->trained.count && status == AB_OK; i++) {
        const ab_tensor *weight = weight_of(cell, i);
        status = ab_tensor_read(weight, value);
        if (status == AB_OK) checksum[i] = ab_replica_checksum(value, ab_tensor_count(weight));
    }
    free(value);
    return status;
}

static void note(ab_cell *cell, const uint64_t *all) {
    ab_replica_checks *found = &cell->replicas;
    const ab_parting parting = ab_replicas_compare(all, (int)cell->position.ranks, cell->trained.count);
    found->checks++;
    if (found->step > 0) return;
    if (parting.rank < 0) {
        found->agreed = cell->position.steps;
        return;
    }
    found->step = cell->position.steps;
    found->parting = parting;
}

bool ab_cell_checks_ranks(const ab_cell *cell) {
    return cell->config.recipe.ranks.check_every > 0 && cell->position.ranks > 1 && ab_rank_link_is_open();
}

ab_status ab_cell_check_ranks(ab_cell *cell) {
    const size_t bytes = (size_t)cell->trained.count * sizeof(uint64_t);
    const unsigned char *all;
    if (!ab_cell_checks_ranks(cell) || cell->position.steps % cell->config.recipe.ranks.check_every != 0)
        return AB_OK;
    uint64_t *own = malloc(bytes + 1);
    ab_status status =
        own ? take_checksums(cell, own) : ab_fail(AB_NO_MEMORY, "--check-ranks: out of memory");
    if (status == AB_OK) status = ab_rank_link_gather(own, bytes, &all);
    if (status == AB_OK) note(cell, (const uint64_t *)(const void *)all);
    free(own);
    return status;
}

void ab_cell_report_replicas(const ab_cell *cell, ab_probe_sink *sink) {
    const ab_replica_checks *found = &cell->replicas;
    sink->integer(sink, "every", cell->config.recipe.ranks.check_every);
    sink->integer(sink, "checks", found->checks);
    sink->integer(sink, "ranks", cell->position.ranks);
    if (found->step == 0) return;
    const ab_probe_param *about = &cell->trained.about[found->parting.tensor];
    sink->begin_object(sink, "parted");
    sink->integer(sink, "agreed_steps", found->agreed);
    sink->integer(sink, "steps", found->step);
    sink->integer(sink, "rank", found->parting.rank);
    sink->integer(sink, "differing_ranks", found->parting.ranks);
    sink->text(sink, "tensor", about->name);
    sink->text(sink, "layer", about->layer);
    sink->integer(sink, "differing_tensors", found->parting.tensors);
    sink->end(sink);
}

/* ---- the fault ------------------------------------------------------------------------------- */

static void flip(float *value) {
    uint32_t word;
    memcpy(&word, value, sizeof word);
    word ^= 1u << FLIP_BIT;
    memcpy(value, &word, sizeof word);
}

/* In the last parameter, and in the half copy that the forward pass reads only after the next update. */
ab_status ab_replica_fault(ab_cell *cell) {
    const ab_rank_place place = ab_rank_place_get();
    if (!(cell->config.recipe.faults & AB_FAULT_flipped_bit_on_a_rank) || place.rank != place.ranks - 1 ||
        cell->position.steps + 1 != FLIP_AFTER)
        return AB_OK;
    ab_tensor *weight = weight_of(cell, cell->trained.count - 1);
    float *value = ab_params_room(cell->plan);
    if (!value) return ab_fail(AB_NO_MEMORY, "--fault: out of memory");
    ab_status status = ab_tensor_read(weight, value);
    flip(value);
    if (status == AB_OK) status = ab_tensor_write(weight, value);
    free(value);
    ab_walk_weights_changed(&cell->walk);
    return status;
}
