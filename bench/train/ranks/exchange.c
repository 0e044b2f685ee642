/* Gradients of ranks that are processes: contributions to each share go to the rank that adds them, means
 * come back. Every rank adds with the code of the simulation. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "bench/train/ranks/rank_gradients.h"

#include "kernels/format/convert.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALIGNED = 64 };

/* Of one rank, before the losses of its micro-batches: int64_t numbers. */
enum { NOTE_STEP, NOTE_COUNT, NOTE_CORRECT, NOTE_SCORED, NOTE_NUMBERS };

static size_t aligned(size_t bytes) { return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED; }

static ab_tensor *tensor_of(const ab_rank_gradients *g, int item) { return g->gradients->item[item].from; }

/* The format that contributions are sent in: schemes that add wide ones send fp32. */
static const ab_format *sent_format(const ab_rank_gradients *g, int item) {
    const ab_reduction reduction = ab_rank_reduction_of(g, item);
    return reduction.scheme->sums_wide ? &ab_format_fp32 : reduction.wire;
}

/* ---- layout ---------------------------------------------------------------------------------- */

static size_t losses_bytes(const ab_rank_gradients *g) {
    return (size_t)g->gradients->position->micro_batches * sizeof *g->loss;
}

/* The gradient that holds an element. */
static int item_of(const ab_rank_gradients *g, int64_t element) {
    int item = 0;
    while (g->first[item] > element) item++; /* in reverse order of the parameters */
    return item;
}

static size_t byte_of(const ab_rank_gradients *g, int64_t element) {
    const int item = item_of(g, element);
    return g->layout.byte[item] +
           (size_t)(element - g->first[item]) * (size_t)sent_format(g, item)->storage_bytes;
}

/* Bytes of all gradients; the last parameter's first. */
static size_t place_gradients(ab_rank_gradients *g) {
    size_t bytes = 0;
    for (int i = g->gradients->trained->count - 1; i >= 0; i--) {
        g->layout.byte[i] = bytes;
        bytes += aligned((size_t)ab_tensor_count(tensor_of(g, i)) * (size_t)sent_format(g, i)->storage_bytes);
    }
    return bytes;
}

/* Shares of equal numbers of elements. The last element's bytes end a share. */
static void cut(ab_rank_gradients *g) {
    ab_rank_layout *l = &g->layout;
    for (int r = 0; r <= l->ranks; r++) l->share[r] = g->count * r / l->ranks;
    l->other_bytes = 0;
    for (int r = 0; r < l->ranks; r++) {
        const int64_t end = l->share[r + 1];
        if (end == l->share[r]) continue;
        l->share_at[r] = byte_of(g, l->share[r]);
        l->share_end[r] = byte_of(g, end - 1) + (size_t)sent_format(g, item_of(g, end - 1))->storage_bytes;
        const size_t bytes = l->share_end[r] - l->share_at[r];
        if (bytes > l->other_bytes) l->other_bytes = bytes;
    }
    l->other_bytes = aligned(l->other_bytes) + ALIGNED;
    g->stride = l->share[l->rank + 1] - l->share[l->rank];
}

ab_status ab_rank_exchange_init(ab_rank_gradients *g) {
    ab_rank_layout *l = &g->layout;
    const ab_rank_place place = ab_rank_place_get();
    l->rank = place.rank;
    l->ranks = place.ranks;
    l->byte = calloc((size_t)g->gradients->trained->count + 1, sizeof *l->byte);
    if (!l->byte) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    const size_t bytes = place_gradients(g);
    cut(g);
    l->note_bytes = aligned(NOTE_NUMBERS * sizeof(int64_t) + losses_bytes(g));
    l->own = l->note_bytes * (size_t)l->ranks;
    l->others = l->own + bytes;
    l->bytes = l->others + l->other_bytes * (size_t)l->ranks;
    return AB_OK;
}

/* Where rank r's contributions to this rank's share are: aligned as they were at r. */
static size_t contribution_of(const ab_rank_layout *l, int r) {
    const size_t at = l->share_at[l->rank];
    if (r == l->rank) return l->own + at;
    return l->others + (size_t)r * l->other_bytes + at % ALIGNED;
}

/* ---- time and bytes ---------------------------------------------------------------------------- */

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The time since *since was of this op. */
static void count(ab_rank_gradients *g, ab_traffic_op op, int64_t *since) {
    const int64_t now = now_ns();
    g->traffic.ns[op] += now - *since;
    *since = now;
}

static void count_bytes(ab_rank_gradients *g, ab_traffic_op op, const ab_link_part part[]) {
    for (int r = 0; r < g->layout.ranks; r++)
        if (r != g->layout.rank) g->traffic.bytes[op] += part[r].send_bytes;
}

/* ---- transfers ------------------------------------------------------------------------------- */

ab_status ab_rank_exchange_keep(ab_rank_gradients *g) {
    unsigned char *memory;
    int64_t since = now_ns();
    AB_TRY(ab_rank_link_memory(g->layout.bytes, &memory));
    for (int i = 0; i < g->gradients->trained->count; i++) {
        const ab_reduction reduction = ab_rank_reduction_of(g, i);
        const int64_t n = ab_tensor_count(tensor_of(g, i));
        AB_TRY(ab_tensor_read(tensor_of(g, i), g->sum));
        ab_reduce_send(&reduction, g->recipe->count, g->sum, g->sum, n);
        ab_narrow(memory + g->layout.own + g->layout.byte[i], sent_format(g, i), g->sum, n);
    }
    count(g, AB_TRAFFIC_PACK, &since);
    return AB_OK;
}

static ab_status exchange_notes(ab_rank_gradients *g, unsigned char *memory) {
    const ab_rank_layout *l = &g->layout;
    const int64_t micro = g->gradients->position->micro_batches;
    const int64_t own[NOTE_NUMBERS] = {g->gradients->position->steps, g->count, g->correct, g->score};
    ab_link_part part[AB_RANKS_MOST] = {{0}};
    unsigned char *note = memory + l->note_bytes * (size_t)l->rank;
    memcpy(note, own, sizeof own);
    memcpy(note + sizeof own, g->loss + l->rank * micro, losses_bytes(g));
    for (int r = 0; r < l->ranks; r++)
        part[r] = (ab_link_part){.send_at = note - memory,
                                 .send_bytes = (int64_t)l->note_bytes,
                                 .receive_at = (int64_t)(l->note_bytes * (size_t)r),
                                 .receive_bytes = (int64_t)l->note_bytes};
    AB_TRY(ab_rank_link_exchange(part, l->ranks));
    count_bytes(g, AB_TRAFFIC_NOTES, part);
    g->correct = g->score = 0;
    for (int r = 0; r < l->ranks; r++) {
        int64_t theirs[NOTE_NUMBERS];
        note = memory + l->note_bytes * (size_t)r;
        memcpy(theirs, note, sizeof theirs);
        memcpy(g->loss + r * micro, note + sizeof theirs, losses_bytes(g));
        if (theirs[NOTE_STEP] != own[NOTE_STEP] || theirs[NOTE_COUNT] != own[NOTE_COUNT])
            return ab_fail(AB_INTERNAL, "rank %d is at step %lld, rank %d at step %lld", r,
                           (long long)theirs[NOTE_STEP], l->rank, (long long)own[NOTE_STEP]);
        g->correct += theirs[NOTE_CORRECT];
        g->score += theirs[NOTE_SCORED];
    }
    return AB_OK;
}

/* This rank's gradients to the ranks that add them, theirs to here. */
static ab_status scatter(ab_rank_gradients *g) {
    const ab_rank_layout *l = &g->layout;
    ab_link_part part[AB_RANKS_MOST] = {{0}};
    for (int r = 0; r < l->ranks; r++)
        part[r] = (ab_link_part){.send_at = (int64_t)(l->own + l->share_at[r]),
                                 .send_bytes = (int64_t)(l->share_end[r] - l->share_at[r]),
                                 .receive_at = (int64_t)contribution_of(l, r),
                                 .receive_bytes = (int64_t)(l->share_end[l->rank] - l->share_at[l->rank])};
    count_bytes(g, AB_TRAFFIC_SCATTER, part);
    return ab_rank_link_exchange(part, l->ranks);
}

/* Means of this rank's share to all, theirs to here, in place of this rank's gradients. */
static ab_status gather(ab_rank_gradients *g) {
    const ab_rank_layout *l = &g->layout;
    ab_link_part part[AB_RANKS_MOST] = {{0}};
    for (int r = 0; r < l->ranks; r++)
        part[r] = (ab_link_part){.send_at = (int64_t)(l->own + l->share_at[l->rank]),
                                 .send_bytes = (int64_t)(l->share_end[l->rank] - l->share_at[l->rank]),
                                 .receive_at = (int64_t)(l->own + l->share_at[r]),
                                 .receive_bytes = (int64_t)(l->share_end[r] - l->share_at[r])};
    count_bytes(g, AB_TRAFFIC_GATHER, part);
    return ab_rank_link_exchange(part, l->ranks);
}

/* ---- reduction ------------------------------------------------------------------------------- */

/* The part of gradient `item` that is in this rank's share. */
static ab_status reduce_item(ab_rank_gradients *g, int item, unsigned char *memory) {
    const ab_rank_layout *l = &g->layout;
    const ab_format *format = sent_format(g, item);
    const int64_t first = g->first[item], begin = l->share[l->rank], end = l->share[l->rank + 1];
    const int64_t from = first > begin ? first : begin;
    int64_t until = first + ab_tensor_count(tensor_of(g, item));
    if (until > end) until = end;
    if (from >= until) return AB_OK;
    const size_t own = byte_of(g, from), skipped = own - l->share_at[l->rank];
    for (int r = 0; r < l->ranks; r++)
        ab_widen(g->value + r * g->stride + (from - begin), memory + contribution_of(l, r) + skipped, format,
                 until - from);
    AB_TRY(ab_rank_reduce_part(g, item, from, until - from, g->value + (from - begin), g->sum));
    ab_narrow(memory + l->own + own, format, g->sum, until - from);
    return AB_OK;
}

static ab_status reduce_own_share(ab_rank_gradients *g, unsigned char *memory) {
    int64_t since = now_ns();
    AB_TRY(scatter(g));
    count(g, AB_TRAFFIC_SCATTER, &since);
    for (int i = 0; i < g->gradients->trained->count; i++) AB_TRY(reduce_item(g, i, memory));
    count(g, AB_TRAFFIC_SUM, &since);
    AB_TRY(gather(g));
    count(g, AB_TRAFFIC_GATHER, &since);
    return AB_OK;
}

/* MPI's own sum. Gradients are placed with gaps: one by one. */
static ab_status reduce_by_library(ab_rank_gradients *g, unsigned char *memory) {
    int64_t since = now_ns();
    for (int i = g->gradients->trained->count - 1; i >= 0; i--) {
        const ab_reduction reduction = ab_rank_reduction_of(g, i);
        const int64_t n = ab_tensor_count(tensor_of(g, i));
        const size_t at = g->layout.own + g->layout.byte[i];
        AB_TRY(ab_rank_link_allreduce(at, (size_t)n));
        ab_reduce_finish(&reduction, g->recipe->count, (float *)(void *)(memory + at), n);
        g->traffic.bytes[AB_TRAFFIC_ALLREDUCE] += n * (int64_t)sizeof(float);
    }
    count(g, AB_TRAFFIC_ALLREDUCE, &since);
    return AB_OK;
}

ab_status ab_rank_exchange_reduce(ab_rank_gradients *g) {
    unsigned char *memory;
    int64_t since = now_ns();
    AB_TRY(ab_rank_link_memory(g->layout.bytes, &memory));
    AB_TRY(exchange_notes(g, memory));
    count(g, AB_TRAFFIC_NOTES, &since);
    AB_TRY(g->recipe->reduction.scheme->reduce ? reduce_own_share(g, memory) : reduce_by_library(g, memory));
    since = now_ns();
    for (int i = 0; i < g->gradients->trained->count; i++) {
        ab_widen(g->sum, memory + g->layout.own + g->layout.byte[i], sent_format(g, i),
                 ab_tensor_count(tensor_of(g, i)));
        AB_TRY(ab_tensor_write(tensor_of(g, i), g->sum));
    }
    count(g, AB_TRAFFIC_UNPACK, &since);
    if (g->traffic.since == 0) g->traffic = (ab_rank_traffic){.since = since, .steps = -1};
    g->traffic.elapsed = since - g->traffic.since;
    g->traffic.steps++;
    return AB_OK;
}
