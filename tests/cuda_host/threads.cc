// Threads of a block as contexts on the host: each has its own stack and runs until it waits. A thread that
// never waits costs one call: the stack goes on with the next thread of the block.
#include "inside.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <vector>

namespace emulated {

place here;

uint3 thread_index() { return here.thread_at; }
uint3 block_index() { return here.block_at; }
dim3 block_size() { return here.block_size; }
dim3 grid_size() { return here.grid_size; }

// ---- state of a block ---------------------------------------------------------------------------

enum state { NOT_BEGUN, READY, AT_BARRIER, AT_WARP, ENDED };
enum warp_kind { SHUFFLE, BALLOT, SYNC };

struct site {
    const char *file;
    int line;
    bool operator==(const site &o) const {
        return line == o.line && (file == o.file || strcmp(file, o.file) == 0);
    }
};

struct waiting {
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
    sigjmp_buf at; // without signals
    ucontext_t start;
    int thread;
    bool idle;
};

// Not a multiple of a page: equal places of two stacks must not share a set of the cache.
enum { STACK = (64 << 10) + 5 * 64 };
static char *stacks;
static fiber fibers[MOST_THREADS];
static int fiber_count, running; // `running`: the fiber that runs
static sigjmp_buf scheduler;

static state states[MOST_THREADS];
static waiting waits[MOST_THREADS];
static int fiber_of[MOST_THREADS];
static int turn[MOST_THREADS]; // threads in the order in which they run
static int next_turn, threads, ended;
static unsigned warp_syncs[WARP];
static const call *body;
static unsigned block_number;

// ---- contexts -----------------------------------------------------------------------------------

static void enter(int thread) {
    unsigned x = here.block_size.x, y = here.block_size.y, t = static_cast<unsigned>(thread);
    here.thread = t;
    here.thread_at = {t % x, t / x % y, t / x / y};
    here.warp_syncs = warp_syncs[t / WARP];
    set_mark();
    states[thread] = READY;
}

static int next_not_begun() {
    while (next_turn < threads && states[turn[next_turn]] != NOT_BEGUN) next_turn++;
    return next_turn < threads ? turn[next_turn] : -1;
}

static void to_scheduler() {
    here.in_kernel = false;
    siglongjmp(scheduler, 1);
}

// A stack's life: one thread after another.
static void fiber_main() {
    for (;;) {
        fiber *f = &fibers[running];
        for (int thread = f->thread; thread >= 0; thread = next_not_begun()) {
            fibers[running].thread = thread;
            fiber_of[thread] = running;
            enter(thread);
            body->run(body->arguments.get());
            states[thread] = ENDED;
            ended++;
        }
        f = &fibers[running];
        f->idle = true;
        if (sigsetjmp(f->at, 0) == 0) to_scheduler();
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

// Runs `thread` in an idle stack, or goes on with it, until it waits or ends.
static void resume(int thread) {
    if (sigsetjmp(scheduler, 0)) return;
    here.in_kernel = true;
    if (states[thread] != NOT_BEGUN) {
        running = fiber_of[thread];
        enter(thread);
        siglongjmp(fibers[running].at, 1);
    }
    int f = 0;
    while (f < fiber_count && !fibers[f].idle) f++;
    running = f;
    fibers[f].thread = thread;
    fibers[f].idle = false;
    if (f < fiber_count) siglongjmp(fibers[f].at, 1);
    fiber_count++;
    getcontext(&fibers[f].start);
    fibers[f].start.uc_stack.ss_sp = stacks + size_t(STACK) * static_cast<size_t>(f);
    fibers[f].start.uc_stack.ss_size = STACK;
    fibers[f].start.uc_link = nullptr;
    makecontext(&fibers[f].start, fiber_main, 0);
    setcontext(&fibers[f].start);
}

// Called by a thread: until the scheduler makes it ready.
static void wait_as(state what) {
    int thread = static_cast<int>(here.thread);
    states[thread] = what;
    if (sigsetjmp(fibers[fiber_of[thread]].at, 0) == 0) to_scheduler();
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
    wait_as(AT_WARP);
    return waits[here.thread].result;
}

unsigned ballot(unsigned mask, bool value, const char *file, int line) {
    at_warp(BALLOT, file, line, mask).bits = value;
    wait_as(AT_WARP);
    return static_cast<unsigned>(waits[here.thread].result);
}

void warp_sync(const char *file, int line, unsigned mask) {
    at_warp(SYNC, file, line, mask);
    wait_as(AT_WARP);
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

// The lane that a lane reads from, or -1: its own value. Groups of `width` lanes; "xor" may reach earlier
// groups, not later ones.
static int lane_for(const waiting &w, int lane) {
    int group = lane / w.width * w.width, end = group + w.width, from = lane;
    if (w.from == FROM_LANE) from = group + (w.by & (w.width - 1));
    if (w.from == FROM_BELOW) from = lane - w.by < group ? -1 : lane - w.by;
    if (w.from == FROM_ABOVE) from = lane + w.by >= end ? -1 : lane + w.by;
    if (w.from == FROM_XOR) from = (lane ^ w.by) >= end ? -1 : lane ^ w.by;
    return from;
}

static void answer_lane(int warp, int lane) {
    waiting &w = waits[warp * WARP + lane];
    w.result = 0;
    if (w.warp == BALLOT)
        for (int k = 0; k < WARP && warp * WARP + k < threads; k++)
            if ((w.mask >> k & 1u) && states[warp * WARP + k] == AT_WARP)
                w.result |= waits[warp * WARP + k].bits << k;
    if (w.warp != SHUFFLE) return;
    int from = lane_for(w, lane);
    if (from < 0) from = lane;
    int thread = warp * WARP + from;
    if (from >= WARP || thread >= threads || states[thread] == ENDED || !(w.mask >> from & 1u)) {
        here.in_kernel = true;
        mistake("%s:%d: lane %d reads from lane %d, which takes no part", w.where.file, w.where.line, lane,
                from);
        here.in_kernel = false;
        return;
    }
    w.result = waits[thread].bits;
}

// Whether all lanes that the mask of a waiting lane names (and that live) wait at the same operation.
static bool warp_is_complete(int warp, unsigned *lanes) {
    *lanes = 0;
    int first = -1;
    for (int k = 0; k < WARP && warp * WARP + k < threads; k++)
        if (states[warp * WARP + k] == AT_WARP) {
            if (first < 0) first = warp * WARP + k;
            *lanes |= 1u << k;
        }
    if (first < 0) return false;
    const waiting &w = waits[first];
    for (int k = 0; k < WARP && warp * WARP + k < threads; k++) {
        int thread = warp * WARP + k;
        if (!(w.mask >> k & 1u)) {
            *lanes &= ~(1u << k);
            continue;
        }
        if (states[thread] == ENDED) continue;
        if (states[thread] != AT_WARP) return false;
        if (waits[thread].mask != w.mask || waits[thread].warp != w.warp || !(waits[thread].where == w.where))
            show(w.where, waits[thread].where, "lanes of one mask");
    }
    return true;
}

static bool open_warps() {
    bool any = false;
    for (int warp = 0; warp * WARP < threads; warp++) {
        unsigned lanes;
        if (!warp_is_complete(warp, &lanes)) continue;
        for (int k = 0; k < WARP; k++)
            if (lanes >> k & 1u) answer_lane(warp, k);
        if (lanes && waits[warp * WARP + __builtin_ctz(lanes)].warp == SYNC) warp_syncs[warp]++;
        for (int k = 0; k < WARP; k++)
            if (lanes >> k & 1u) states[warp * WARP + k] = READY;
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
    for (int k = 0; k < threads; k++)
        if (states[turn[k]] == READY || states[turn[k]] == NOT_BEGUN) {
            resume(turn[k]);
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
    threads = static_cast<int>(block.x * block.y * block.z);
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
