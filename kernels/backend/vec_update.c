/* The loops of vec_update.h. One function a formula, so that nothing is decided per element. */
#include "kernels/backend/vec_update.h"

#include "kernels/vec/isa.h"
#include "kernels/vec/vec_half.h"

/* Values that are widened, updated and rounded at a time: few enough that the processor works on several
 * pieces at once, so that the loads of one overlap the arithmetic of another. */
enum { PIECE = 64, MOST_STATES = 2 };

/* `kind`, `states` and, but for the last piece, `n` are constants of every caller. The arrays do not overlap.
 */
static AB_FORCE_INLINE void update_values(const int kind, const int states, const float *constant,
                                          const float factor, float *restrict weight,
                                          const float *restrict grad, float *restrict first,
                                          float *restrict second, const int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float state[2] = {states > 0 ? first[i] : 0.0f, states > 1 ? second[i] : 0.0f}, w = weight[i];
        ab_f_update(kind, constant, grad[i] * factor, &w, state);
        weight[i] = w;
        if (states > 0) first[i] = state[0];
        if (states > 1) second[i] = state[1];
    }
}

/* fp32 values of a piece: in place, or widened to `room`. */
static AB_FORCE_INLINE float *take(const ab_update_operand *from, int64_t at, float *room, const int64_t n) {
    const uint16_t *half = (const uint16_t *)from->data + at;
    if (from->stored == AB_STORED_FP32) return (float *)from->data + at;
    if (from->stored == AB_STORED_FP16)
        widen_fp16(room, half, n);
    else
        widen_bf16(room, half, n);
    return room;
}

/* Stores a piece that is not in place. */
static AB_FORCE_INLINE void put(const ab_update_operand *to, int64_t at, const float *values,
                                const int64_t n) {
    if (to->stored == AB_STORED_FP32) return;
    narrow_stored((char *)to->data + ab_stored_bytes(to->stored, at), values, to->stored, n);
}

static AB_FORCE_INLINE void update_piece(const int kind, const int states, const float *constant,
                                         const ab_update_span *s, int64_t at, const int64_t n) {
    float room[2 + MOST_STATES][PIECE], *state[MOST_STATES] = {NULL, NULL};
    float *weight = take(&s->weight, at, room[0], n);
    const float *grad = take(&s->grad, at, room[1], n);
    for (int i = 0; i < states; i++) state[i] = take(&s->state[i], at, room[2 + i], n);
    update_values(kind, states, constant, s->factor, weight, grad, state[0], state[1], n);
    put(&s->weight, at, weight, n);
    for (int i = 0; i < states; i++) put(&s->state[i], at, state[i], n);
    if (s->model.data) put(&s->model, at, weight, n);
}

/* ---- SGD in registers ------------------------------------------------------------------------ */

/* SGD has no function that vectors of the compiler lack. Its operands, half of which are halves where a model
 * has master weights, are widened and rounded in registers. */
#if defined(__AVX2__)
enum { LANES = HALF_LANES };
#else
enum { LANES = 4 };
#endif
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
AB_F_SGD(sgd_lanes, lanes, static AB_FORCE_INLINE)

/* STEP: values that are taken at a time: what narrow_bf16 of AVX2 rounds together. */
enum { STEP = 16, STEP_LANES = STEP / LANES };
typedef struct step_lanes {
    lanes of[STEP_LANES];
} step_lanes;

/* `stored` is a constant of every caller. */
static AB_FORCE_INLINE step_lanes take_lanes(const void *from, const ab_stored stored, int64_t at) {
    step_lanes values;
#pragma GCC unroll 4
    for (int i = 0; i < STEP_LANES; i++) {
        const char *piece = (const char *)from + ab_stored_bytes(stored, at + i * LANES);
        widen_stored((float *)&values.of[i], piece, stored, LANES);
    }
    return values;
}

static AB_FORCE_INLINE void put_lanes(void *to, const ab_stored stored, int64_t at,
                                      const step_lanes *values) {
    char *const first = (char *)to + ab_stored_bytes(stored, at);
    if (stored == AB_STORED_BF16) {
        narrow_bf16((uint16_t *)(void *)first, (const float *)values, STEP);
        return;
    }
#pragma GCC unroll 4
    for (int i = 0; i < STEP_LANES; i++)
        narrow_stored(first + ab_stored_bytes(stored, i * LANES), (const float *)&values->of[i], stored,
                      LANES);
}

/* Weights and states as `master`, gradients and the model's copy as `model`. The operands are local: stores
 * of halves could change a span. */
static AB_FORCE_INLINE int64_t sgd_whole(const int kind, const float *constant, const ab_update_span *s,
                                         const ab_stored master, const ab_stored model, const bool copied) {
    void *const weights = s->weight.data, *const states = s->state[0].data, *const copy = s->model.data;
    const void *const grads = s->grad.data;
    const float factor = s->factor;
    const int64_t end = s->n - s->n % STEP;
    for (int64_t at = 0; at < end; at += STEP) {
        step_lanes weight = take_lanes(weights, master, at), grad = take_lanes(grads, model, at),
                   state = weight;
        if (kind != AB_UPDATE_SGD) state = take_lanes(states, master, at);
#pragma GCC unroll 4
        for (int i = 0; i < STEP_LANES; i++)
            sgd_lanes(kind, constant, grad.of[i] * factor, &weight.of[i], &state.of[i]);
        put_lanes(weights, master, at, &weight);
        if (kind != AB_UPDATE_SGD) put_lanes(states, master, at, &state);
        if (copied) put_lanes(copy, model, at, &weight);
    }
    return end;
}

/* Updates the whole vectors of a span with the formats of a training in half. Returns how many elements these
 * are; 0 for other formats. */
static AB_FORCE_INLINE int64_t sgd_halves(const int kind, const float *constant, const ab_update_span *s) {
    const ab_stored master = s->weight.stored, grad = s->grad.stored;
    const bool copied = s->model.data != NULL;
    if ((kind != AB_UPDATE_SGD && s->state[0].stored != master) || (copied && s->model.stored != grad))
        return 0;
#define CASE(a_master, a_grad, is_copied)                                                                    \
    if (master == (a_master) && grad == (a_grad) && copied == (is_copied))                                   \
    return sgd_whole(kind, constant, s, a_master, a_grad, is_copied)
    CASE(AB_STORED_FP32, AB_STORED_FP16, true);
    CASE(AB_STORED_FP32, AB_STORED_FP16, false);
    CASE(AB_STORED_FP32, AB_STORED_BF16, true);
    CASE(AB_STORED_FP32, AB_STORED_BF16, false);
    CASE(AB_STORED_FP16, AB_STORED_FP16, false);
    CASE(AB_STORED_BF16, AB_STORED_BF16, false);
#undef CASE
    return 0;
}

/* ---- the formulas ---------------------------------------------------------------------------- */

static AB_FORCE_INLINE void update_all(const int kind, const int states, const float *c,
                                       const ab_update_span *span) {
    const bool sgd = kind == AB_UPDATE_SGD || kind == AB_UPDATE_MOMENTUM || kind == AB_UPDATE_NESTEROV;
    float constant[AB_UPDATE_CONSTANTS];
    memcpy(constant, c, sizeof constant);
    int64_t at = sgd ? sgd_halves(kind, constant, span) : 0;
    for (; at + PIECE <= span->n; at += PIECE) update_piece(kind, states, constant, span, at, PIECE);
    if (at < span->n) update_piece(kind, states, constant, span, at, span->n - at);
}

#define FORMULA(name, kind, states)                                                                          \
    static void name(const float *c, const ab_update_span *span) { update_all(kind, states, c, span); }
FORMULA(sgd, AB_UPDATE_SGD, 0)
FORMULA(momentum, AB_UPDATE_MOMENTUM, 1)
FORMULA(nesterov, AB_UPDATE_NESTEROV, 1)
FORMULA(adam, AB_UPDATE_ADAM, 2)
FORMULA(adamw, AB_UPDATE_ADAMW, 2)
FORMULA(rmsprop, AB_UPDATE_RMSPROP, 1)
FORMULA(rmsprop_momentum, AB_UPDATE_RMSPROP_MOMENTUM, 2)
FORMULA(rmsprop_centered, AB_UPDATE_RMSPROP_CENTERED, 2)
FORMULA(adagrad, AB_UPDATE_ADAGRAD, 1)
#undef FORMULA

AB_ISA_TABLE(ab_vec_update) = {.run = {[AB_UPDATE_SGD] = sgd,
                                       [AB_UPDATE_MOMENTUM] = momentum,
                                       [AB_UPDATE_NESTEROV] = nesterov,
                                       [AB_UPDATE_ADAM] = adam,
                                       [AB_UPDATE_ADAMW] = adamw,
                                       [AB_UPDATE_RMSPROP] = rmsprop,
                                       [AB_UPDATE_RMSPROP_MOMENTUM] = rmsprop_momentum,
                                       [AB_UPDATE_RMSPROP_CENTERED] = rmsprop_centered,
                                       [AB_UPDATE_ADAGRAD] = adagrad}};
