// Threads of a block as contexts on the host: each has its own stack and runs until it waits. A thread that
// never waits costs one call: the stack goes on with the next thread of the block.
#include "context.h"
#include "inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

namespace emulated {

place here;

uint3 thread_index() { return here.thread_at; }
uint3 block_index() { return here.block_at; }
dim3 block_size() { return here.block_size; }
dim3 grid_size() { return here.grid_size; }

// ---- state of a block ---------------------------------------------------------------------------

enum state { NOT_BEGUN, READY, AT_BARRIER, AT_WARP, ENDED }; // the first two: may run
enum warp_kind { SHUFFLE, BALLOT, SYNC };

struct site {
    const char *file;
    int line;
    bool operator==(const site &o) const {
        return line == o.line && (file == o.file || strcmp(file, o.file) == 0);
    }
};

struct alignas(64) waiting {
    site where;
    vote kind;
    int value;      // of a barrier
    warp_kind warp; // of a warp's operation
    source from;
    unsigned mask;
    uint64_t bits, result;
    int by, width;
};

struct fiber {
    context at;
    int thread;
};

// Not a multiple of a page: equal places of two stacks must not share a set of the cache.
enum { STACK = (64 << 10) + 5 * 64 };
static char *stacks;
static fiber fibers[MOST_THREADS];
static int fiber_count, running; // `running`: the fiber that runs
static int idle[MOST_THREADS], idle_count;
static context scheduler;

static state states[MOST_THREADS];
static waiting waits[MOST_THREADS];
static int fiber_of[MOST_THREADS];
static int turn[MOST_THREADS]; // threads in the order in which they run
static int position;           // in `turn`, of the thread that was last resumed
static int next_turn, threads, ended;
static uint3 places[MOST_THREADS]; // of threads in a block
static unsigned warp_syncs[WARP];
static unsigned lanes_waiting[WARP], lanes_ended[WARP]; // of each warp: at a warp's operation; ended
static const call *body;
static unsigned block_number;

// ---- contexts -----------------------------------------------------------------------------------

static void enter(int thread) {
    here.thread = static_cast<unsigned>(thread);
    here.thread_at = places[thread];
    here.warp_syncs = warp_syncs[thread / WARP];
    set_mark();
    states[thread] = READY;
}

static int next_not_begun() {
    while (next_turn < threads && states[turn[next_turn]] != NOT_BEGUN) next_turn++;
    return next_turn < threads ? turn[next_turn] : -1;
}

static void to_scheduler() {
    here.in_kernel = false;
    switch_context(&fibers[running].at, &scheduler);
}

// A stack's life: one thread after another.
static void fiber_main() {
    for (;;) {
        for (int thread = fibers[running].thread; thread >= 0; thread = next_not_begun()) {
            fibers[running].thread = thread;
            fiber_of[thread] = running;
            enter(thread);
            body->run(body->arguments.get());
            states[thread] = ENDED;
            lanes_ended[thread / WARP] |= 1u << thread % WARP;
            ended++;
        }
        idle[idle_count++] = running;
        to_scheduler();
    }
}

static void make_stacks() {
    if (stacks) return;
    void *p = mmap(nullptr, size_t(STACK) * MOST_THREADS, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("emulated: stacks");
        _exit(EXIT_STATUS);
    }
    stacks = static_cast<char *>(p);
    stacks_are(stacks, size_t(STACK) * MOST_THREADS);
}

// A stack for a thread that has not begun.
static int idle_fiber() {
    if (idle_count) return idle[--idle_count];
    int f = fiber_count++;
    begin_context(&fibers[f].at, stacks + size_t(STACK) * static_cast<size_t>(f), STACK, fiber_main);
    return f;
}

// Runs `thread` in an idle stack, or goes on with it, until it and those after it that may go on wait or end.
static void resume(int thread) {
    here.in_kernel = true;
    if (states[thread] == NOT_BEGUN) {
        running = idle_fiber();
        fibers[running].thread = thread;
    } else {
        running = fiber_of[thread];
        enter(thread);
    }
    switch_context(&scheduler, &fibers[running].at);
}

// Called by a thread: until the scheduler makes it ready. The next in turn goes on at once if it has a stack.
static void wait_as(state what) {
    fiber *mine = &fibers[running];
    states[here.thread] = what;
    int next = position + 1;
    while (next < threads && states[turn[next]] > READY) next++;
    if (next == threads || states[turn[next]] == NOT_BEGUN) {
        position = next - 1;
        return to_scheduler();
    }
    position = next;
    running = fiber_of[turn[next]];
    enter(turn[next]);
    switch_context(&mine->at, &fibers[running].at);
}

static void wait_in_warp() {
    lanes_waiting[here.thread / WARP] |= 1u << here.thread % WARP;
    wait_as(AT_WARP);
}

// ---- waiting ------------------------------------------------------------------------------------

int barrier(vote kind, int value, const char *file, int line) {
    waiting &w = waits[here.thread];
    w.where = {file, line};
    w.kind = kind;
    w.value = value;
    wait_as(AT_BARRIER);
    return waits[here.thread].value;
}

static waiting &at_warp(warp_kind kind, const char *file, int line, unsigned mask) {
    waiting &w = waits[here.thread];
    w.where = {file, line};
    w.warp = kind;
    w.mask = mask;
    if (!(mask >> here.thread % WARP & 1u)) mistake("%s:%d: the mask %#x lacks the caller", file, line, mask);
    return w;
}

uint64_t exchange(source kind, const char *file, int line, unsigned mask, uint64_t bits, int by, int width) {
    waiting &w = at_warp(SHUFFLE, file, line, mask);
    w.from = kind;
    w.bits = bits;
    w.by = by;
    w.width = width;
    if (width < 1 || width > WARP || (width & (width - 1)))
        mistake("%s:%d: a shuffle of width %d, expected a power of two up to 32", file, line, width);
    wait_in_warp();
    return waits[here.thread].result;
}

unsigned ballot(unsigned mask, bool value, const char *file, int line) {
    at_warp(BALLOT, file, line, mask).bits = value;
    wait_in_warp();
    return static_cast<unsigned>(waits[here.thread].result);
}

void warp_sync(const char *file, int line, unsigned mask) {
    at_warp(SYNC, file, line, mask);
    wait_in_warp();
}

// ---- what the waiting threads get ---------------------------------------------------------------

static void show(const site &a, const site &b, const char *what) {
    here.in_kernel = true;
    mistake("divergence: threads of one block wait at %s:%d and %s:%d (%s)", a.file, a.line, b.file, b.line,
            what);
    here.in_kernel = false;
}

static void open_barrier() {
    const waiting &first = waits[turn[0]];
    int sum = 0, waiters = 0;
    for (int t = 0; t < threads; t++) {
        if (states[t] != AT_BARRIER) continue;
        waiters++;
        sum += waits[t].value != 0;
        if (states[turn[0]] == AT_BARRIER && !(waits[t].where == first.where))
            show(first.where, waits[t].where, "a barrier");
    }
    if (ended) {
        here.in_kernel = true;
        mistake("divergence: %d threads of the block have ended, %d wait at a barrier", ended, waiters);
        here.in_kernel = false;
    }
    for (int t = 0; t < threads; t++) {
        if (states[t] != AT_BARRIER) continue;
        vote kind = waits[t].kind;
        waits[t].value = kind == ANY_TRUE ? sum > 0 : kind == ALL_TRUE ? sum == waiters : sum;
        states[t] = READY;
    }
    here.barriers++;
}

// The lane that a lane reads from, or itself: its own value. Groups of `width` lanes; "xor" may reach earlier
// groups, not later ones.
static int lane_for(const waiting &w, int lane) {
    int group = lane & -w.width, end = group + w.width, from = lane;
    if (w.from == FROM_LANE) from = group + (w.by & (w.width - 1));
    if (w.from == FROM_BELOW) from = lane - w.by < group ? lane : lane - w.by;
    if (w.from == FROM_ABOVE) from = lane + w.by >= end ? lane : lane + w.by;
    if (w.from == FROM_XOR) from = (lane ^ w.by) >= end ? lane : lane ^ w.by;
    return from < 0 ? lane : from;
}

// Lanes of a warp that have threads.
static unsigned lanes_of(int warp) {
    int count = threads - warp * WARP;
    return count >= WARP ? 0xffffffffu : (1u << count) - 1;
}

static void shuffle_lane(int warp, int lane) {
    waiting &w = waits[warp * WARP + lane];
    int from = lane_for(w, lane);
    if (from >= WARP || !((w.mask & lanes_of(warp) & ~lanes_ended[warp]) >> from & 1u)) {
        here.in_kernel = true;
        mistake("%s:%d: lane %d reads from lane %d, which takes no part", w.where.file, w.where.line, lane,
                from);
        here.in_kernel = false;
        w.result = 0;
        return;
    }
    w.result = waits[warp * WARP + from].bits;
}

static void answer_lanes(int warp, unsigned lanes) {
    unsigned voted = 0;
    for (unsigned left = lanes; left; left &= left - 1) {
        int k = __builtin_ctz(left);
        voted |= static_cast<unsigned>(waits[warp * WARP + k].bits & 1u) << k;
    }
    for (unsigned left = lanes; left; left &= left - 1) {
        int k = __builtin_ctz(left);
        waiting &w = waits[warp * WARP + k];
        if (w.warp == SHUFFLE)
            shuffle_lane(warp, k);
        else
            w.result = w.warp == BALLOT ? voted & w.mask : 0;
    }
}

// Whether all lanes that the mask of a waiting lane names (and that live) wait at the same operation.
static bool warp_is_complete(int warp, unsigned *lanes) {
    unsigned there = lanes_waiting[warp];
    if (!there) return false;
    const waiting &w = waits[warp * WARP + __builtin_ctz(there)];
    *lanes = there & w.mask;
    for (unsigned left = w.mask & lanes_of(warp) & ~lanes_ended[warp]; left; left &= left - 1) {
        int k = __builtin_ctz(left);
        const waiting &other = waits[warp * WARP + k];
        if (!(there >> k & 1u)) return false;
        if (other.mask != w.mask || other.warp != w.warp || !(other.where == w.where))
            show(w.where, other.where, "lanes of one mask");
    }
    return true;
}

static bool open_warps() {
    bool any = false;
    for (int warp = 0; warp * WARP < threads; warp++) {
        unsigned lanes;
        if (!warp_is_complete(warp, &lanes)) continue;
        answer_lanes(warp, lanes);
        if (lanes && waits[warp * WARP + __builtin_ctz(lanes)].warp == SYNC) warp_syncs[warp]++;
        for (unsigned left = lanes; left; left &= left - 1) states[warp * WARP + __builtin_ctz(left)] = READY;
        lanes_waiting[warp] &= ~lanes;
        any = true;
    }
    return any;
}

// ---- a block ------------------------------------------------------------------------------------

static uint32_t mix(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

// Warps in an order, and the lanes of each in an order.
static void order_threads(unsigned number) {
    int warps = (threads + WARP - 1) / WARP, at = 0;
    uint32_t seed = mix(options().seed * 977u + number);
    order how = options().threads;
    int first = how == SHUFFLED ? static_cast<int>(seed % static_cast<unsigned>(warps)) : 0;
    bool down = how == REVERSE || (how == SHUFFLED && (seed >> 16 & 1u));
    bool lanes_down = how == REVERSE || (how == SHUFFLED && (seed >> 17 & 1u));
    for (int w = 0; w < warps; w++) {
        int warp = (first + (down ? warps - 1 - w : w)) % warps;
        for (int k = 0; k < WARP; k++) {
            int thread = warp * WARP + (lanes_down ? WARP - 1 - k : k);
            if (thread < threads) turn[at++] = thread;
        }
    }
}

static bool run_ready() {
    bool any = false;
    for (position = 0; position < threads; position++)
        if (states[turn[position]] <= READY) {
            resume(turn[position]);
            any = true;
        }
    return any;
}

static void give_up() {
    int stuck = -1;
    for (int t = 0; t < threads; t++)
        if (states[t] == AT_WARP || stuck < 0) stuck = states[t] == ENDED ? stuck : t;
    const site where = stuck < 0 ? site{"?", 0} : waits[stuck].where;
    here.in_kernel = true;
    mistake("divergence: nobody goes on, a thread waits at %s:%d for others that are elsewhere", where.file,
            where.line);
    here.in_kernel = false;
    _exit(EXIT_STATUS);
}

static void run_block() {
    here.block = ++block_number;
    here.barriers = 0;
    next_turn = ended = 0;
    for (int t = 0; t < threads; t++) states[t] = NOT_BEGUN;
    memset(warp_syncs, 0, sizeof warp_syncs);
    memset(lanes_waiting, 0, sizeof lanes_waiting);
    memset(lanes_ended, 0, sizeof lanes_ended);
    while (ended < threads) {
        while (run_ready() || open_warps()) {
        }
        if (ended == threads) break;
        bool all = true;
        for (int t = 0; t < threads && all; t++) all = states[t] == AT_BARRIER || states[t] == ENDED;
        if (!all) give_up();
        open_barrier();
    }
}

static void place_threads(dim3 block) {
    threads = static_cast<int>(block.x * block.y * block.z);
    unsigned t = 0;
    for (unsigned z = 0; z < block.z; z++)
        for (unsigned y = 0; y < block.y; y++)
            for (unsigned x = 0; x < block.x; x++) places[t++] = {x, y, z};
}

static unsigned place_in_order(unsigned k, unsigned count, unsigned seed) {
    order how = options().threads;
    if (how == FORWARD) return k;
    if (how == REVERSE) return count - 1 - k;
    return static_cast<unsigned>((uint64_t(k) * 0x3fffffdd + seed) % count); // a prime step: every block once
}

void run_kernel(const char *name, dim3 grid, dim3 block, const call &work) {
    make_stacks();
    kernel_begins();
    here.kernel = name;
    here.arguments = work.arguments.get();
    here.argument_bytes = work.bytes;
    here.block_size = block;
    here.grid_size = grid;
    here.first_block = block_number + 1;
    place_threads(block);
    body = &work;
    unsigned count = grid.x * grid.y * grid.z;
    order_threads(block_number);
    for (unsigned k = 0; k < count; k++) {
        unsigned b = place_in_order(k, count, options().seed);
        here.block_at = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
        if (k % 8 == 7) order_threads(block_number);
        run_block();
    }
    kernel_ends();
}

} // namespace emulated
