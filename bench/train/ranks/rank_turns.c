/* Contexts of ucontext.h. A rank that waits returns to the loop of ab_rank_turns_run. */
#define _GNU_SOURCE
#include "bench/train/ranks/rank_turns.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define BEFORE_SWITCH(kept, stack, size) __sanitizer_start_switch_fiber(kept, stack, size)
#define AFTER_SWITCH(kept, stack, size) __sanitizer_finish_switch_fiber(kept, stack, size)
#else
#define BEFORE_SWITCH(kept, stack, size) (void)(kept)
#define AFTER_SWITCH(kept, stack, size) (void)(kept)
#endif

enum { STACK_BYTES = 8 << 20 }; /* as a thread's; touched pages are used only */

typedef struct player {
    ucontext_t at;
    char *stack;
    void *kept; /* by a sanitizer */
    bool ended;
} player;

struct ab_rank_turns {
    int ranks, running;
    player *player; /* [ranks] */
    ucontext_t loop;
    void *loop_kept;
    const void *loop_stack;
    size_t loop_bytes;
    const ab_rank_play *play;
    ab_status status; /* of the first rank that failed */
    /* what ranks say: two buffers in turn, since one rank speaks again while others still read */
    float *said[2];
    int64_t room;
    int *times; /* [ranks]: how often each spoke */
};

ab_status ab_rank_turns_create(int ranks, ab_rank_turns **result) {
    ab_rank_turns *turns = calloc(1, sizeof *turns);
    *result = turns;
    if (!turns) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    turns->ranks = ranks;
    turns->player = calloc((size_t)ranks, sizeof *turns->player);
    turns->times = calloc((size_t)ranks, sizeof *turns->times);
    if (!turns->player || !turns->times) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    for (int r = 0; r < ranks; r++) {
        void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED) return ab_fail(AB_NO_MEMORY, "cell: out of memory for stacks of ranks");
        turns->player[r].stack = stack;
    }
    return AB_OK;
}

void ab_rank_turns_destroy(ab_rank_turns *turns) {
    if (!turns) return;
    for (int r = 0; turns->player && r < turns->ranks; r++)
        if (turns->player[r].stack) munmap(turns->player[r].stack, STACK_BYTES);
    free(turns->player);
    free(turns->times);
    free(turns->said[0]);
    free(turns->said[1]);
    free(turns);
}

/* ---- switches -------------------------------------------------------------------------------- */

static void return_to_loop(ab_rank_turns *turns, player *from) {
    BEFORE_SWITCH(from->ended ? NULL : &from->kept, turns->loop_stack, turns->loop_bytes);
    swapcontext(&from->at, &turns->loop);
    AFTER_SWITCH(from->kept, &turns->loop_stack, &turns->loop_bytes);
}

/* makecontext passes ints. */
static void begin(unsigned high, unsigned low) {
    ab_rank_turns *turns = (ab_rank_turns *)((uintptr_t)high << 32 | low);
    player *self = &turns->player[turns->running];
    AFTER_SWITCH(NULL, &turns->loop_stack, &turns->loop_bytes);
    const ab_status status = turns->play->run(turns->play->context, turns->running);
    if (turns->status == AB_OK) turns->status = status;
    self->ended = true;
    return_to_loop(turns, self);
}

static void go_on(ab_rank_turns *turns, int rank) {
    turns->running = rank;
    turns->play->enter(turns->play->context, rank);
    BEFORE_SWITCH(&turns->loop_kept, turns->player[rank].stack, STACK_BYTES);
    swapcontext(&turns->loop, &turns->player[rank].at);
    AFTER_SWITCH(turns->loop_kept, NULL, NULL);
}

static void prepare(ab_rank_turns *turns, int rank) {
    const uintptr_t self = (uintptr_t)turns;
    player *p = &turns->player[rank];
    p->ended = false;
    p->kept = NULL;
    getcontext(&p->at);
    p->at.uc_stack.ss_sp = p->stack;
    p->at.uc_stack.ss_size = STACK_BYTES;
    p->at.uc_link = NULL;
    makecontext(&p->at, (void (*)(void))begin, 2, (unsigned)(self >> 32), (unsigned)self);
}

ab_status ab_rank_turns_run(ab_rank_turns *turns, const ab_rank_play *play) {
    turns->play = play;
    turns->status = AB_OK;
    for (int r = 0; r < turns->ranks; r++) {
        turns->times[r] = 0;
        prepare(turns, r);
    }
    for (int ended = 0; ended < turns->ranks;)
        for (int r = 0; r < turns->ranks; r++) {
            if (turns->player[r].ended) continue;
            go_on(turns, r);
            ended += turns->player[r].ended;
        }
    play->enter(play->context, 0);
    return turns->status;
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* Both buffers grow together, and only when nobody reads: at the first word of a round. */
static ab_status make_room(ab_rank_turns *turns, int64_t n, float **said) {
    if (n > turns->room) {
        for (int i = 0; i < 2; i++) {
            float *grown = realloc(turns->said[i], (size_t)(n * turns->ranks) * sizeof *grown);
            if (!grown) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
            turns->said[i] = grown;
        }
        turns->room = n;
    }
    *said = turns->said[turns->times[turns->running] % 2];
    return AB_OK;
}

ab_status ab_rank_turns_gather(ab_rank_turns *turns, const float *own, int64_t n, const float **all) {
    const int rank = turns->running;
    float *said = NULL;
    if (turns->status != AB_OK) return turns->status;
    AB_TRY(make_room(turns, n, &said));
    memcpy(said + rank * n, own, (size_t)n * sizeof *own);
    const int mine = turns->times[rank]++ % 2;
    return_to_loop(turns, &turns->player[rank]);
    *all = turns->said[mine];
    return turns->status;
}
