// Ops of the binary functions in binary.def on CUDA: two broadcast tensors, or one tensor and a number.
// Gradients of broadcast operands are summed in a fixed order.
#include "kernels/ops/elementwise/elementwise.h"

#include "kernels/cuda/cuda_fold.cuh"

#include <cmath>

namespace {

enum { NEEDS_none = 0, NEEDS_a = 1, NEEDS_b = 2, NEEDS_ab = 3 };

// An operand broadcast to the result's shape; a number has no data.
struct operand {
    ab_span span;
    ab_strided view;
    float number;
    bool plain; // has the result's shape
    __device__ float at(int64_t i) const {
        if (!span.data) return number;
        return ab_span_at(span, plain ? i : ab_strided_offset(&view, i));
    }
};

struct operands {
    operand of[2];
};

static bool is_number(const ab_op_io *io) { return !io->in[1]; }
static int first_operand(const ab_op_io *io) { return is_number(io) && ab_cuda_bool(io, "reverse", false); }

static operands operands_of(const ab_op_io *io) {
    operands o = {};
    const int first = first_operand(io);
    for (int i = 0; i < 2 && io->in[i]; i++) {
        operand *to = &o.of[i ^ first];
        to->span = ab_cuda_span(io->in[i]);
        to->view = ab_strided_broadcast(&io->in[i]->shape, &io->out->shape);
        to->plain = ab_cuda_count(io->in[i]) == ab_cuda_count(io->out);
    }
    if (is_number(io)) {
        o.of[1 ^ first].span = ab_cuda_empty_span();
        o.of[1 ^ first].number = static_cast<float>(ab_cuda_float(io, "value", 0.0));
    }
    return o;
}

// ---- forward ------------------------------------------------------------------------------------

template <typename F> struct value_each {
    operands o;
    __device__ float operator()(int64_t i) const { return F::value(o.of[0].at(i), o.of[1].at(i)); }
};

template <typename F> struct value_pair {
    __device__ float operator()(float a, float b) const { return F::value(a, b); }
};

template <typename F> static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    value_each<F> f = {operands_of(io)};
    ab_span a = f.o.of[0].span, b = f.o.of[1].span;
    bool pair = f.o.of[0].plain && f.o.of[1].plain;
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) {
        return pair ? ab_launch_map(value_pair<F>(), out, a, b, n, "binary")
                    : ab_launch_each(f, out, n, "binary");
    });
}

// ---- backward -----------------------------------------------------------------------------------

// dout times the derivative with respect to operand BY. Tensors that the derivative does not read may have
// been freed.
template <typename F, int BY>
__device__ static float gradient_at(const operands &o, ab_span dout, int64_t i) {
    constexpr int reads = BY == 0 ? F::reads_by_a : F::reads_by_b;
    float d = ab_span_at(dout, i);
    float a = reads & NEEDS_a ? o.of[0].at(i) : d, b = reads & NEEDS_b ? o.of[1].at(i) : d;
    return (BY == 0 ? F::by_a(a, b) : F::by_b(a, b)) * d;
}

#define AB_BINARY(id, needs_by_a, needs_by_b)                                                                \
    struct id##_formulas {                                                                                   \
        static constexpr int reads_by_a = NEEDS_##needs_by_a, reads_by_b = NEEDS_##needs_by_b;               \
        static const int number;                                                                             \
        static __device__ float value(float a, float b) { return ab_##id##_value(a, b); }                    \
        static __device__ float by_a(float a, float b) { return ab_##id##_by_a(a, b); }                      \
        static __device__ float by_b(float a, float b) { return ab_##id##_by_b(a, b); }                      \
    };
#include "kernels/ops/elementwise/binary.def"
#undef AB_BINARY

enum formula {
#define AB_BINARY(id, needs_by_a, needs_by_b) FORMULA_##id,
#include "kernels/ops/elementwise/binary.def"
#undef AB_BINARY
};

#define AB_BINARY(id, needs_by_a, needs_by_b) const int id##_formulas::number = FORMULA_##id;
#include "kernels/ops/elementwise/binary.def"
#undef AB_BINARY

// One kernel for every formula: it is memory-bound, so the runtime dispatch is free.
struct gradient_each {
    operands o;
    ab_span dout;
    int formula, by;
    __device__ float operator()(int64_t i) const {
#define AB_BINARY(id, needs_by_a, needs_by_b)                                                                \
    if (formula == FORMULA_##id)                                                                             \
        return by == 0 ? gradient_at<id##_formulas, 0>(o, dout, i)                                           \
                       : gradient_at<id##_formulas, 1>(o, dout, i);
#include "kernels/ops/elementwise/binary.def"
#undef AB_BINARY
        return 0.0f;
    }
};

static ab_status gradient(const ab_exec *exec, ab_op_io *io, ab_tensor *din, int formula, int by) {
    gradient_each f = {operands_of(io), ab_cuda_span(io->dout), formula, by};
    unsigned axes = ab_broadcast_axes(&din->shape, &io->dout->shape);
    int64_t n = ab_cuda_count(din);
    if (axes) return ab_fold_emit(exec, din, ab_plus(), f, ab_fold_of(&io->dout->shape, axes), 1.0);
    return ab_cuda_emit(exec, din, [=](ab_span out) { return ab_launch_each(f, out, n, "binary_backward"); });
}

template <typename F> static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    const int first = first_operand(io);
    for (int i = 0; i < 2; i++) {
        // of a sum, a gradient in the memory of dout is there already; an observer still sees it
        const bool there = io->din[i] && io->din[i]->data == io->dout->data && !exec->observer;
        if (!io->din[i] || (F::number == FORMULA_add && there)) continue;
        AB_TRY(gradient(exec, io, io->din[i], F::number, i ^ first));
    }
    return AB_OK;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    AB_TRY(ab_cuda_prepare_plain(exec, io, workspace_bytes, state_bytes));
    for (int i = 0; i < 2; i++) {
        unsigned axes = io->din[i] ? ab_broadcast_axes(&io->din[i]->shape, &io->out->shape) : 0;
        ab_fold g = ab_fold_of(&io->out->shape, axes);
        if (axes && ab_fold_bytes(&g) > *workspace_bytes) *workspace_bytes = ab_fold_bytes(&g);
    }
    return AB_OK;
}

// ---- descriptors --------------------------------------------------------------------------------

} // namespace

#define AB_BINARY(id, needs_by_a, needs_by_b)                                                                \
    const ab_op ab_cuda_##id = ab_cuda_op(#id, prepare, forward<id##_formulas>, backward<id##_formulas>);
#include "kernels/ops/elementwise/binary.def"
#undef AB_BINARY
