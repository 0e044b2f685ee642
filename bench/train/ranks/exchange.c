/* Gradients of ranks that are processes: contributions to each share go to the rank that adds them, means
 * come back. Small gradients go to all ranks at once, and each adds all of them: ranks wait for each other
 * once in a step, not twice. Every rank adds with the code of the simulation. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "bench/train/ranks/rank_gradients.h"

#include "kernels/format/convert.h"

#include <string.h>
#include <time.h>

/* Of one rank, before the losses of its micro-batches: int64_t numbers. */
enum { NOTE_STEP, NOTE_COUNT, NOTE_CORRECT, NOTE_SCORED, NOTE_NUMBERS };

static ab_tensor *tensor_of(const ab_rank_gradients *g, int item) { return g->tensor[item]; }

static size_t losses_bytes(const ab_rank_gradients *g) {
    return (size_t)g->gradients->position->micro_batches * sizeof *g->loss;
}

ab_status ab_rank_exchange_init(ab_rank_gradients *g) {
    return ab_rank_layout_init(g, NOTE_NUMBERS * sizeof(int64_t) + losses_bytes(g));
}

/* The library sums, not this rank's code. */
static bool is_summed_by_library(const ab_rank_gradients *g) { return !g->recipe->reduction.scheme->reduce; }

/* ---- time and bytes ---------------------------------------------------------------------------- */

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The library divides too: nothing is scaled before. */
static bool is_averaged_by_library(const ab_rank_gradients *g) {
    const ab_reduction *reduction = &g->recipe->reduction;
    return reduction->scheme == &ab_collective_nccl && reduction->divide == AB_DIVIDE_AVERAGE;
}

/* The time since *since was of this op. */
static void count(ab_rank_gradients *g, ab_traffic_op op, int64_t *since) {
    const int64_t now = now_ns();
    g->traffic.ns[op] += now - *since;
    *since = now;
}

/* Begins an exchange and counts its bytes. */
static ab_status begin(ab_rank_gradients *g, ab_traffic_op op, const ab_link_part part[], int64_t *ticket) {
    for (int r = 0; r < g->layout.ranks; r++)
        if (r != g->layout.rank) g->traffic.bytes[op] += part[r].send_bytes;
    return ab_rank_link_begin(part, g->layout.ranks, ticket);
}

/* ---- sending --------------------------------------------------------------------------------- */

static ab_status pack(ab_rank_gradients *g, const ab_rank_bucket *b, unsigned char *memory) {
    for (int i = b->last; i >= b->first; i--) {
        ab_reduction reduction = ab_rank_reduction_of(g, i);
        if (is_averaged_by_library(g)) reduction.divide = AB_DIVIDE_POST;
        const int64_t n = ab_tensor_count(tensor_of(g, i));
        AB_TRY(ab_tensor_read(tensor_of(g, i), g->sum));
        ab_reduce_send(&reduction, g->recipe->count, g->sum, g->sum, n);
        ab_narrow(memory + g->layout.own + g->layout.byte[i], ab_rank_sent_format(g, i), g->sum, n);
    }
    return AB_OK;
}

/* This rank's gradients to the ranks that add them, theirs to here. */
static ab_status scatter(ab_rank_gradients *g, ab_rank_bucket *b) {
    const ab_rank_layout *l = &g->layout;
    const ab_rank_share *own = &b->share[l->rank];
    ab_link_part part[AB_RANKS_MOST] = {{0}};
    for (int r = 0; r < l->ranks; r++)
        part[r] = (ab_link_part){.send_at = (int64_t)(l->own + b->share[r].at),
                                 .send_bytes = (int64_t)(b->share[r].end - b->share[r].at),
                                 .receive_at = (int64_t)ab_rank_contribution_of(l, b, r),
                                 .receive_bytes = (int64_t)(own->end - own->at)};
    return begin(g, AB_TRAFFIC_SCATTER, part, &b->ticket);
}

/* A library's own sum, over the gaps between gradients too. */
static ab_status sum_by_library(ab_rank_gradients *g, ab_rank_bucket *b) {
    const ab_format *wire = g->recipe->reduction.wire;
    const ab_device_sum what = {.at = g->layout.own + b->at,
                                .count = (b->end - b->at) / (size_t)wire->storage_bytes,
                                .kind = wire == &ab_format_fp16   ? AB_DEVICE_SUM_FP16
                                        : wire == &ab_format_bf16 ? AB_DEVICE_SUM_BF16
                                                                  : AB_DEVICE_SUM_FP32,
                                .average = is_averaged_by_library(g)};
    g->traffic.bytes[AB_TRAFFIC_ALLREDUCE] += (int64_t)(b->end - b->at);
    return ab_rank_link_begin_sum(&what, &b->ticket);
}

static ab_status send_bucket(ab_rank_gradients *g, ab_rank_bucket *b) {
    unsigned char *memory;
    int64_t since = now_ns();
    ab_rank_link_settle(g->layout.ended);
    AB_TRY(ab_rank_link_memory(g->layout.bytes, &memory));
    AB_TRY(pack(g, b, memory));
    AB_TRY(is_summed_by_library(g) ? sum_by_library(g, b) : scatter(g, b));
    count(g, AB_TRAFFIC_PACK, &since);
    return AB_OK;
}

ab_status ab_rank_gradients_passed(ab_rank_gradients *g, int node) {
    ab_rank_layout *l = &g->layout;
    while (l->sent < l->buckets && l->bucket[l->sent].node >= node) {
        ab_rank_bucket *b = &l->bucket[l->sent++];
        AB_TRY(send_bucket(g, b));
        if (l->sent < l->buckets) g->traffic.overlapped += (int64_t)(b->end - b->at);
    }
    return AB_OK;
}

/* ---- notes ----------------------------------------------------------------------------------- */

static ab_status send_notes(ab_rank_gradients *g) {
    ab_rank_layout *l = &g->layout;
    const int64_t own[NOTE_NUMBERS] = {g->gradients->position->steps, g->count, g->correct, g->score};
    ab_link_part part[AB_RANKS_MOST] = {{0}};
    unsigned char *memory;
    AB_TRY(ab_rank_link_memory(l->bytes, &memory));
    unsigned char *note = memory + l->note_bytes * (size_t)l->rank;
    memcpy(note, own, sizeof own);
    memcpy(note + sizeof own, g->loss + l->rank * g->gradients->position->micro_batches, losses_bytes(g));
    for (int r = 0; r < l->ranks; r++)
        part[r] = (ab_link_part){.send_at = note - memory,
                                 .send_bytes = (int64_t)l->note_bytes,
                                 .receive_at = (int64_t)(l->note_bytes * (size_t)r),
                                 .receive_bytes = (int64_t)l->note_bytes};
    return begin(g, AB_TRAFFIC_NOTES, part, &l->ticket);
}

static ab_status read_notes(ab_rank_gradients *g, const unsigned char *memory) {
    const ab_rank_layout *l = &g->layout;
    const int64_t micro = g->gradients->position->micro_batches, step = g->gradients->position->steps;
    g->correct = g->score = 0;
    for (int r = 0; r < l->ranks; r++) {
        const unsigned char *note = memory + l->note_bytes * (size_t)r;
        int64_t theirs[NOTE_NUMBERS];
        memcpy(theirs, note, sizeof theirs);
        memcpy(g->loss + r * micro, note + sizeof theirs, losses_bytes(g));
        if (theirs[NOTE_STEP] != step || theirs[NOTE_COUNT] != g->count)
            return ab_fail(AB_INTERNAL, "rank %d is at step %lld, rank %d at step %lld", r,
                           (long long)theirs[NOTE_STEP], l->rank, (long long)step);
        g->correct += theirs[NOTE_CORRECT];
        g->score += theirs[NOTE_SCORED];
    }
    return AB_OK;
}

ab_status ab_rank_exchange_keep(ab_rank_gradients *g) {
    ab_rank_layout *l = &g->layout;
    while (l->sent < l->buckets) AB_TRY(send_bucket(g, &l->bucket[l->sent++]));
    l->sent = 0;
    return AB_OK;
}

/* ---- reduction ------------------------------------------------------------------------------- */

/* The part of gradient `item` that is in this rank's share of a bucket. */
static ab_status reduce_item(ab_rank_gradients *g, const ab_rank_bucket *b, int item, unsigned char *memory) {
    const ab_rank_layout *l = &g->layout;
    const ab_rank_share *share = &b->share[l->rank];
    const ab_format *format = ab_rank_sent_format(g, item);
    const int64_t first = g->first[item], from = first > share->from ? first : share->from;
    int64_t until = first + ab_tensor_count(tensor_of(g, item));
    if (until > share->until) until = share->until;
    if (from >= until) return AB_OK;
    const size_t own = ab_rank_byte_of(g, from), skipped = own - share->at;
    float *value = g->value + (from - share->from);
    for (int r = 0; r < l->ranks; r++)
        ab_widen(value + r * g->stride, memory + ab_rank_contribution_of(l, b, r) + skipped, format,
                 until - from);
    AB_TRY(ab_rank_reduce_part(g, item, from, until - from, value, g->sum));
    ab_narrow(memory + ab_rank_means_of(l, b) + skipped, format, g->sum, until - from);
    return AB_OK;
}

/* Means of this rank's share to all, theirs to here, in place of this rank's gradients. */
static ab_status gather(ab_rank_gradients *g, ab_rank_bucket *b) {
    const ab_rank_layout *l = &g->layout;
    const ab_rank_share *own = &b->share[l->rank];
    ab_link_part part[AB_RANKS_MOST] = {{0}};
    for (int r = 0; r < l->ranks; r++)
        part[r] = (ab_link_part){.send_at = (int64_t)(l->own + own->at),
                                 .send_bytes = (int64_t)(own->end - own->at),
                                 .receive_at = (int64_t)(l->own + b->share[r].at),
                                 .receive_bytes = (int64_t)(b->share[r].end - b->share[r].at)};
    return begin(g, AB_TRAFFIC_GATHER, part, &b->ticket);
}

static ab_status reduce_own_shares(ab_rank_gradients *g, unsigned char *memory) {
    int64_t since = now_ns();
    for (int k = 0; k < g->layout.buckets; k++) {
        ab_rank_bucket *b = &g->layout.bucket[k];
        AB_TRY(ab_rank_link_wait(b->ticket));
        count(g, AB_TRAFFIC_SCATTER, &since);
        for (int i = b->first; i <= b->last; i++) AB_TRY(reduce_item(g, b, i, memory));
        count(g, AB_TRAFFIC_SUM, &since);
        if (g->layout.shares) AB_TRY(gather(g, b));
        count(g, AB_TRAFFIC_GATHER, &since);
    }
    return AB_OK;
}

/* means: of the first gradient of the bucket. */
static ab_status unpack(ab_rank_gradients *g, const ab_rank_bucket *b, const unsigned char *means) {
    const bool divided = !is_summed_by_library(g);
    for (int i = b->first; i <= b->last; i++) {
        const ab_reduction reduction = ab_rank_reduction_of(g, i);
        const int64_t n = ab_tensor_count(tensor_of(g, i));
        ab_widen(g->sum, means + (g->layout.byte[i] - b->at), ab_rank_sent_format(g, i), n);
        if (!divided) ab_reduce_finish(&reduction, g->recipe->count, g->sum, n);
        AB_TRY(ab_tensor_write(tensor_of(g, i), g->sum));
    }
    return AB_OK;
}

/* What was begun last of each bucket ends: means of all ranks are in this rank's gradients. */
static ab_status finish_buckets(ab_rank_gradients *g, const unsigned char *memory) {
    ab_rank_layout *l = &g->layout;
    const bool by_library = is_summed_by_library(g), whole = !l->shares && !by_library;
    int64_t since = now_ns();
    l->ended = l->ticket;
    for (int k = 0; k < l->buckets; k++) {
        const ab_rank_bucket *b = &l->bucket[k];
        AB_TRY(ab_rank_link_wait(b->ticket));
        count(g, by_library ? AB_TRAFFIC_ALLREDUCE : AB_TRAFFIC_GATHER, &since);
        AB_TRY(unpack(g, b, memory + (whole ? ab_rank_means_of(l, b) : l->own + b->at)));
        count(g, AB_TRAFFIC_UNPACK, &since);
        if (l->shares && !by_library) l->ended = b->ticket;
    }
    return AB_OK;
}

/* The first step is not counted: it starts threads and maps memory. */
static void end_reduction(ab_rank_gradients *g) {
    ab_rank_traffic *traffic = &g->traffic;
    const int64_t now = now_ns();
    if (!ab_rank_gradients_end_step(g)) return;
    if (traffic->since == 0) *traffic = (ab_rank_traffic){.since = now, .steps = -1};
    traffic->elapsed = now - traffic->since;
    traffic->steps++;
}

ab_status ab_rank_exchange_reduce(ab_rank_gradients *g) {
    unsigned char *memory;
    AB_TRY(send_notes(g));
    AB_TRY(ab_rank_link_memory(g->layout.bytes, &memory));
    if (!is_summed_by_library(g)) AB_TRY(reduce_own_shares(g, memory));
    int64_t since = now_ns();
    AB_TRY(ab_rank_link_wait(g->layout.ticket));
    AB_TRY(read_notes(g, memory));
    count(g, AB_TRAFFIC_NOTES, &since);
    AB_TRY(finish_buckets(g, memory));
    end_reduction(g);
    return AB_OK;
}
