/* Gradients of ranks that are processes: contributions to each share go to the rank that adds them, means
 * come back. Small gradients go to all ranks at once, and each adds all of them: ranks wait for each other
 * once in a step, not twice. Every rank adds with the code of the simulation. */
#define _DEFAULT_SOURCE /* clock_gettime, getrusage */
#include "bench/train/ranks/rank_gradients.h"

#include "kernels/format/convert.h"

#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Of one rank, before the losses of its micro-batches: int64_t numbers. */
enum { NOTE_STEP, NOTE_COUNT, NOTE_CORRECT, NOTE_SCORED, NOTE_NUMBERS };

enum { PIECE = 4096 }; /* values that are converted at once */

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

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static ab_rank_use use_now(void) {
    return (ab_rank_use){.ns = clock_ns(CLOCK_MONOTONIC), .processor_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID)};
}

/* The library divides too: nothing is scaled before. */
static bool is_averaged_by_library(const ab_rank_gradients *g) {
    const ab_reduction *reduction = &g->recipe->reduction;
    return reduction->scheme == &ab_collective_nccl && reduction->divide == AB_DIVIDE_AVERAGE;
}

/* What was used since *since was of this op. */
static void count(ab_rank_gradients *g, ab_traffic_op op, ab_rank_use *since) {
    const ab_rank_use now = use_now();
    g->traffic.op[op].ns += now.ns - since->ns;
    g->traffic.op[op].processor_ns += now.processor_ns - since->processor_ns;
    *since = now;
}

/* Begins an exchange and counts its bytes. */
static ab_status begin(ab_rank_gradients *g, ab_traffic_op op, const ab_link_part part[], int64_t *ticket) {
    for (int r = 0; r < g->layout.ranks; r++)
        if (r != g->layout.rank) g->traffic.bytes[op] += part[r].send_bytes;
    AB_TRY(ab_rank_link_begin(part, g->layout.ranks, ticket));
    g->layout.last = *ticket;
    return AB_OK;
}

/* ---- gradients on the host ------------------------------------------------------------------- */

/* Values of one gradient: those of its tensor, or a copy of a device's. */
typedef struct host_values {
    const ab_format *format;
    unsigned char *at;
    int64_t each; /* bytes */
} host_values;

static host_values host_of(const ab_rank_gradients *g, int item) {
    const ab_tensor *tensor = tensor_of(g, item);
    if (g->owned) return (host_values){&ab_format_fp32, (unsigned char *)g->sum, sizeof *g->sum};
    return (host_values){tensor->format, tensor->data, (int64_t)ab_format_bytes(tensor->format, 1)};
}

static ab_status from_device(const ab_rank_gradients *g, int item) {
    return g->owned ? ab_tensor_read(tensor_of(g, item), g->sum) : AB_OK;
}

static ab_status to_device(const ab_rank_gradients *g, int item) {
    return g->owned ? ab_tensor_write(tensor_of(g, item), g->sum) : AB_OK;
}

/* ---- sending --------------------------------------------------------------------------------- */

static host_values sent_values(const ab_rank_gradients *g, int item) {
    if (!ab_rank_gradients_in_wire(g)) return host_of(g, item);
    return (host_values){&ab_format_fp32, (unsigned char *)(g->kept + g->first[item]), sizeof *g->kept};
}

static ab_status pack_item(const ab_rank_gradients *g, int item, unsigned char *to) {
    float piece[PIECE];
    const host_values from = sent_values(g, item);
    const ab_format *format = ab_rank_sent_format(g, item);
    ab_reduction reduction = ab_rank_reduction_of(g, item);
    const int64_t count = ab_tensor_count(tensor_of(g, item));
    if (is_averaged_by_library(g)) reduction.divide = AB_DIVIDE_POST;
    if (!ab_rank_gradients_in_wire(g)) AB_TRY(from_device(g, item));
    for (int64_t at = 0; at < count; at += PIECE) {
        const int64_t n = count - at < PIECE ? count - at : PIECE;
        ab_widen(piece, from.at + at * from.each, from.format, n);
        ab_reduce_send(&reduction, g->recipe->count, piece, piece, n);
        ab_narrow(to + at * format->storage_bytes, format, piece, n);
    }
    return AB_OK;
}

static ab_status pack(ab_rank_gradients *g, const ab_rank_bucket *b, unsigned char *memory) {
    for (int i = b->last; i >= b->first; i--)
        AB_TRY(pack_item(g, i, memory + g->layout.own + g->layout.byte[i]));
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
    ab_rank_use since = use_now();
    ab_rank_link_settle(g->layout.ended[g->layout.turn]);
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

static size_t note_of(const ab_rank_layout *l, int rank) { return l->notes + l->note_bytes * (size_t)rank; }

static ab_status send_notes(ab_rank_gradients *g) {
    ab_rank_layout *l = &g->layout;
    const int64_t own[NOTE_NUMBERS] = {g->gradients->position->steps, g->count, g->correct, g->score};
    ab_link_part part[AB_RANKS_MOST] = {{0}};
    unsigned char *memory;
    AB_TRY(ab_rank_link_memory(l->bytes, &memory));
    unsigned char *note = memory + note_of(l, l->rank);
    memcpy(note, own, sizeof own);
    memcpy(note + sizeof own, g->loss + l->rank * g->gradients->position->micro_batches, losses_bytes(g));
    for (int r = 0; r < l->ranks; r++)
        part[r] = (ab_link_part){.send_at = note - memory,
                                 .send_bytes = (int64_t)l->note_bytes,
                                 .receive_at = (int64_t)note_of(l, r),
                                 .receive_bytes = (int64_t)l->note_bytes};
    return begin(g, AB_TRAFFIC_NOTES, part, &l->ticket);
}

static ab_status read_notes(ab_rank_gradients *g, const unsigned char *memory) {
    const ab_rank_layout *l = &g->layout;
    const int64_t micro = g->gradients->position->micro_batches, step = g->gradients->position->steps;
    g->correct = g->score = 0;
    for (int r = 0; r < l->ranks; r++) {
        const size_t at = note_of(l, r);
        const unsigned char *note = r == l->rank ? memory + at : ab_rank_link_received(l->ticket, r, at);
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

/* Where rank r's contributions to this rank's share of a bucket are, which has come. */
static const unsigned char *contribution(const ab_rank_gradients *g, const ab_rank_bucket *b, int r,
                                         const unsigned char *memory) {
    const size_t at = ab_rank_contribution_of(&g->layout, b, r);
    return r == g->layout.rank ? memory + at : ab_rank_link_received(b->ticket, r, at);
}

/* Elements of a gradient that are in a share. */
typedef struct overlap {
    int64_t from, until; /* of the flat gradient; none: from >= until */
} overlap;

static overlap overlap_of(const ab_rank_gradients *g, int item, const ab_rank_share *share) {
    const int64_t first = g->first[item], end = first + ab_tensor_count(tensor_of(g, item));
    return (overlap){first > share->from ? first : share->from, end < share->until ? end : share->until};
}

/* The part of gradient `item` that is in this rank's share of a bucket. All of it: into the gradient itself;
 * else in place of this rank's contributions, which nobody else reads. */
static ab_status reduce_item(ab_rank_gradients *g, const ab_rank_bucket *b, int item, unsigned char *memory) {
    const ab_rank_layout *l = &g->layout;
    const ab_rank_share *share = &b->share[l->rank];
    const overlap o = overlap_of(g, item, share);
    if (o.from >= o.until) return AB_OK;
    const size_t at = ab_rank_byte_of(g, o.from);
    const host_values whole = host_of(g, item);
    ab_rank_part part = {.item = item,
                         .from = o.from,
                         .count = o.until - o.from,
                         .row = g->row,
                         .sent = ab_rank_sent_format(g, item)};
    part.result = l->shares ? part.sent : whole.format;
    part.means = l->shares ? memory + l->own + at : whole.at;
    for (int r = 0; r < l->ranks; r++) g->row[r] = contribution(g, b, r, memory) + (at - share->at);
    AB_TRY(ab_rank_reduce_part(g, &part));
    return l->shares ? AB_OK : to_device(g, item);
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

/* Of small gradients all have come with the notes: a rank is blocked once. */
static ab_status reduce_own_shares(ab_rank_gradients *g, unsigned char *memory) {
    const ab_rank_layout *l = &g->layout;
    ab_rank_use since = use_now();
    for (int k = 0; k < l->buckets; k++) {
        ab_rank_bucket *b = &g->layout.bucket[k];
        AB_TRY(ab_rank_link_wait(l->shares ? b->ticket : l->ticket));
        count(g, AB_TRAFFIC_SCATTER, &since);
        for (int i = b->first; i <= b->last; i++) AB_TRY(reduce_item(g, b, i, memory));
        count(g, AB_TRAFFIC_SUM, &since);
        if (l->shares) AB_TRY(gather(g, b));
        count(g, AB_TRAFFIC_GATHER, &since);
    }
    return AB_OK;
}

/* ---- means into the gradients ------------------------------------------------------------------- */

/* The part of a gradient that is in rank r's share of a bucket. */
static void unpack_part(ab_rank_gradients *g, const ab_rank_bucket *b, int item, int r,
                        const unsigned char *memory) {
    float piece[PIECE];
    const ab_rank_share *share = &b->share[r];
    const overlap o = overlap_of(g, item, share);
    const bool here = r == g->layout.rank || is_summed_by_library(g);
    const size_t own = g->layout.own + share->at;
    const unsigned char *means = here ? memory + own : ab_rank_link_received(b->ticket, r, own);
    const host_values to = host_of(g, item);
    const ab_format *format = ab_rank_sent_format(g, item);
    const ab_reduction reduction = ab_rank_reduction_of(g, item);
    for (int64_t at = o.from; at < o.until; at += PIECE) {
        const int64_t n = o.until - at < PIECE ? o.until - at : PIECE;
        ab_widen(piece, means + (ab_rank_byte_of(g, at) - share->at), format, n);
        if (is_summed_by_library(g)) ab_reduce_finish(&reduction, g->recipe->count, piece, n);
        ab_narrow(to.at + (at - g->first[item]) * to.each, to.format, piece, n);
    }
}

static ab_status unpack(ab_rank_gradients *g, const ab_rank_bucket *b, const unsigned char *memory) {
    const ab_rank_layout *l = &g->layout;
    for (int i = b->first; i <= b->last; i++) {
        for (int r = 0; r < l->ranks; r++)
            if (l->shares || r == l->rank) unpack_part(g, b, i, r, memory);
        AB_TRY(to_device(g, i));
    }
    return AB_OK;
}

/* The last bucket's means come last. */
static ab_status finish_buckets(ab_rank_gradients *g, const unsigned char *memory) {
    const ab_rank_layout *l = &g->layout;
    const bool by_library = is_summed_by_library(g);
    ab_rank_use since = use_now();
    if (!l->shares && !by_library) return AB_OK;
    for (int k = l->buckets - 1; k >= 0; k--) {
        AB_TRY(ab_rank_link_wait(l->bucket[k].ticket));
        count(g, by_library ? AB_TRAFFIC_ALLREDUCE : AB_TRAFFIC_GATHER, &since);
        AB_TRY(unpack(g, &l->bucket[k], memory));
        count(g, AB_TRAFFIC_UNPACK, &since);
    }
    return AB_OK;
}

/* The first step is not counted: it starts threads and maps memory. */
static void end_reduction(ab_rank_gradients *g) {
    ab_rank_traffic *traffic = &g->traffic;
    ab_rank_use now = use_now();
    struct rusage used;
    if (!ab_rank_gradients_end_step(g)) return;
    if (getrusage(RUSAGE_SELF, &used) == 0) now.blocked = used.ru_nvcsw;
    if (traffic->since.ns == 0) *traffic = (ab_rank_traffic){.since = now, .steps = -1};
    traffic->whole = (ab_rank_use){.ns = now.ns - traffic->since.ns,
                                   .processor_ns = now.processor_ns - traffic->since.processor_ns,
                                   .blocked = now.blocked - traffic->since.blocked};
    traffic->steps++;
}

ab_status ab_rank_exchange_reduce(ab_rank_gradients *g) {
    ab_rank_layout *l = &g->layout;
    unsigned char *memory;
    AB_TRY(send_notes(g));
    AB_TRY(ab_rank_link_memory(l->bytes, &memory));
    if (!is_summed_by_library(g)) AB_TRY(reduce_own_shares(g, memory));
    ab_rank_use since = use_now();
    AB_TRY(ab_rank_link_wait(l->ticket));
    AB_TRY(read_notes(g, memory));
    count(g, AB_TRAFFIC_NOTES, &since);
    AB_TRY(finish_buckets(g, memory));
    ab_rank_link_release(l->last);
    ab_rank_layout_turn(l);
    end_reduction(g);
    return AB_OK;
}
