// Going from one stack to another, as often as a kernel's threads wait: where a few instructions can, no
// library is called.
#ifndef AB_TESTS_CUDA_HOST_CONTEXT_H
#define AB_TESTS_CUDA_HOST_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#if !defined __x86_64__
#include <setjmp.h>
#include <ucontext.h>
#endif

namespace emulated {

#if defined __x86_64__

// Where the stack ends on which the registers lie that a function keeps for its caller.
struct context {
    void *top;
};

extern "C" __attribute__((visibility("hidden"))) void emulated_switch(void **from, void *to);
// The flags of rounding and masks of exceptions stay: all threads have the same.
asm(".text\n"
    ".p2align 4\n"
    ".type emulated_switch, @function\n"
    "emulated_switch:\n"
    "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
    "    mov %rsp, (%rdi)\n"
    "    mov %rsi, %rsp\n"
    "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
    "    ret\n"
    ".size emulated_switch, . - emulated_switch\n");

// Leaves the running stack as `from`, and goes on with `to`.
static inline void switch_context(context *from, const context *to) { emulated_switch(&from->top, to->top); }

// `first` is called when the context is first gone on with, and never returns.
static inline void begin_context(context *c, char *stack, size_t bytes, void (*first)()) {
    uintptr_t end = (reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t(15);
    uintptr_t *slot = reinterpret_cast<uintptr_t *>(end) - 8; // six registers, where to return, an end
    for (int i = 0; i < 8; i++) slot[i] = 0;
    slot[6] = reinterpret_cast<uintptr_t>(first);
    c->top = slot;
}

#else

struct context {
    sigjmp_buf at; // without signals
    ucontext_t start;
    bool begun;
};

static inline void switch_context(context *from, context *to) {
    from->begun = true;
    if (sigsetjmp(from->at, 0)) return;
    if (to->begun) siglongjmp(to->at, 1);
    setcontext(&to->start);
}

static inline void begin_context(context *c, char *stack, size_t bytes, void (*first)()) {
    c->begun = false;
    getcontext(&c->start);
    c->start.uc_stack.ss_sp = stack;
    c->start.uc_stack.ss_size = bytes;
    c->start.uc_link = nullptr;
    makecontext(&c->start, first, 0);
}

#endif

} // namespace emulated

#endif
