/* The loops of vec_pool.h: eight channels of a pixel at a time. Halves from 0 to infinity are ordered as
 * their codes are, and the largest code of a window tells whether they were such. Other halves without NaN
 * are ordered like integers once the magnitude bits of negative ones are inverted; the same inversion maps
 * them back. The loops over windows are written once and inlined with what is done to a window of each kind
 * of values. */
#include "kernels/vec/vec_pool.h"

#include "kernels/core/compiler.h"
#include "kernels/vec/isa.h"

#include <string.h>

enum { LANES = 8 };

#if defined(__SSE2__)

#include <emmintrin.h>
typedef __m128i oct;
static inline oct oct_load(const uint16_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
static inline void oct_store(uint16_t *p, oct v) { _mm_storeu_si128((__m128i *)(void *)p, v); }
static inline oct oct_zero(void) { return _mm_setzero_si128(); }
static inline oct oct_ordered(oct v) {
    return _mm_xor_si128(v, _mm_and_si128(_mm_srai_epi16(v, 15), _mm_set1_epi16(0x7fff)));
}
static inline oct oct_max(oct a, oct b) { return _mm_max_epi16(a, b); }
static inline oct oct_equal(oct a, oct b) { return _mm_cmpeq_epi16(a, b); }
static inline oct oct_above_zero(oct a) { return _mm_cmpgt_epi16(a, _mm_setzero_si128()); }
static inline oct oct_and(oct a, oct b) { return _mm_and_si128(a, b); }
static inline oct oct_larger_code(oct a, oct b) { return _mm_add_epi16(b, _mm_subs_epu16(a, b)); }
static inline bool oct_any_above(oct a, uint16_t most) {
    const oct above = _mm_subs_epu16(a, _mm_set1_epi16((int16_t)most));
    return _mm_movemask_epi8(_mm_cmpeq_epi16(above, _mm_setzero_si128())) != 0xffff;
}
static inline oct oct_without(oct a, oct b) { return _mm_andnot_si128(b, a); } /* a and not b */

#else

typedef struct oct {
    int16_t lane[LANES];
} oct;
#define OCT_MAP(name, value)                                                                                 \
    static inline oct name(oct a, oct b) {                                                                   \
        for (int i = 0; i < LANES; i++) a.lane[i] = (int16_t)(value);                                        \
        return a;                                                                                            \
    }
static inline oct oct_load(const uint16_t *p) {
    oct v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void oct_store(uint16_t *p, oct v) { memcpy(p, &v, sizeof v); }
static inline oct oct_zero(void) { return (oct){{0}}; }
OCT_MAP(oct_max, a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i])
OCT_MAP(oct_equal, a.lane[i] == b.lane[i] ? -1 : 0)
static inline oct oct_above_zero(oct a) {
    for (int i = 0; i < LANES; i++) a.lane[i] = a.lane[i] > 0 ? -1 : 0;
    return a;
}
OCT_MAP(oct_and, a.lane[i] & b.lane[i])
OCT_MAP(oct_larger_code, (uint16_t)a.lane[i] > (uint16_t)b.lane[i] ? a.lane[i] : b.lane[i])
static inline bool oct_any_above(oct a, uint16_t most) {
    bool any = false;
    for (int i = 0; i < LANES; i++) any |= (uint16_t)a.lane[i] > most;
    return any;
}
OCT_MAP(oct_without, a.lane[i] & ~b.lane[i])
static inline oct oct_ordered(oct v) {
    for (int i = 0; i < LANES; i++) v.lane[i] = (int16_t)(v.lane[i] ^ (v.lane[i] < 0 ? 0x7fff : 0));
    return v;
}

#endif

/* ---- eight values of fp32 ---------------------------------------------------------------------- */

#if defined(__AVX2__)

#include <immintrin.h>
typedef __m256 reals;
static inline reals reals_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void reals_store(float *p, reals v) { _mm256_storeu_ps(p, v); }
static inline reals reals_zero(void) { return _mm256_setzero_ps(); }
/* a > b ? a : b */
static inline reals reals_max(reals a, reals b) { return _mm256_max_ps(a, b); }
/* All bits of a lane or none. */
static inline reals reals_equal(reals a, reals b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
static inline reals reals_above_zero(reals a) { return _mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_GT_OQ); }
static inline reals reals_and(reals a, reals b) { return _mm256_and_ps(a, b); }
static inline reals reals_without(reals a, reals b) { return _mm256_andnot_ps(b, a); } /* a and not b */
/* `seen`, and all bits of lanes where a or b is NaN. */
static inline reals reals_note(reals seen, reals a, reals b) {
    return _mm256_or_ps(seen, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
}
static inline bool reals_any(reals v) { return _mm256_movemask_ps(v) != 0; }

#else

typedef union reals {
    float lane[LANES];
    uint32_t bits[LANES];
} reals;
#define REALS_MAP(name, to, value)                                                                           \
    static inline reals name(reals a, reals b) {                                                             \
        for (int i = 0; i < LANES; i++) a.to[i] = (value);                                                   \
        return a;                                                                                            \
    }
static inline reals reals_load(const float *p) {
    reals v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void reals_store(float *p, reals v) { memcpy(p, &v, sizeof v); }
static inline reals reals_zero(void) { return (reals){{0}}; }
REALS_MAP(reals_max, lane, a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i])
REALS_MAP(reals_equal, bits, a.lane[i] == b.lane[i] ? ~0u : 0u)
static inline reals reals_above_zero(reals a) {
    for (int i = 0; i < LANES; i++) a.bits[i] = a.lane[i] > 0.0f ? ~0u : 0u;
    return a;
}
REALS_MAP(reals_and, bits, a.bits[i] & b.bits[i])
REALS_MAP(reals_without, bits, a.bits[i] & ~b.bits[i])
static inline reals reals_note(reals seen, reals a, reals b) {
    for (int i = 0; i < LANES; i++)
        seen.bits[i] |= a.lane[i] != a.lane[i] || b.lane[i] != b.lane[i] ? ~0u : 0u;
    return seen;
}
static inline bool reals_any(reals v) {
    uint32_t any = 0;
    for (int i = 0; i < LANES; i++) any |= v.bits[i];
    return any != 0;
}

#endif

/* ---- fewer than eight -------------------------------------------------------------------------- */

typedef uint16_t oct_lane;
typedef float reals_lane;

/* n of the lanes, in pieces of fixed sizes; other memory is not touched. */
#define SOME(vector)                                                                                         \
    static inline vector vector##_load_some(const vector##_lane *p, int64_t n) {                             \
        vector##_lane lanes[LANES] = {0}, *to = lanes;                                                       \
        if (n >= LANES) return vector##_load(p);                                                             \
        for (int piece = LANES / 2; piece > 0; piece /= 2) {                                                 \
            if (!(n & piece)) continue;                                                                      \
            for (int i = 0; i < piece; i++) to[i] = p[i];                                                    \
            to += piece;                                                                                     \
            p += piece;                                                                                      \
        }                                                                                                    \
        return vector##_load(lanes);                                                                         \
    }                                                                                                        \
    static AB_FORCE_INLINE void vector##_store_some(vector##_lane *p, vector v, int64_t n) {                 \
        vector##_lane lanes[LANES], *from = lanes;                                                           \
        if (n >= LANES) {                                                                                    \
            vector##_store(p, v);                                                                            \
            return;                                                                                          \
        }                                                                                                    \
        vector##_store(lanes, v);                                                                            \
        _Pragma("GCC unroll 3") for (int piece = LANES / 2; piece > 0; piece /= 2) {                         \
            if (!(n & piece)) continue;                                                                      \
            memcpy(p, from, (size_t)piece * sizeof *p);                                                      \
            from += piece;                                                                                   \
            p += piece;                                                                                      \
        }                                                                                                    \
    }
SOME(oct)
SOME(reals)

/* ---- what an image holds ----------------------------------------------------------------------- */

/* Whether the order of n halves is that of their ordered bits: no NaN, no negative zero. */
static bool is_ordered(const uint16_t *x, uint16_t infinity, int64_t n) {
    int16_t wrong = 0;
    for (int64_t i = 0; i < n; i++)
        wrong |= (int16_t)(((x[i] & 0x7fff) > infinity ? 1 : 0) | (x[i] == 0x8000 ? 1 : 0));
    return wrong == 0;
}

static bool has_nan(const uint16_t *x, uint16_t infinity, int64_t n) {
    int16_t found = 0;
    for (int64_t i = 0; i < n; i++) found |= (int16_t)((x[i] & 0x7fff) > infinity ? 1 : 0);
    return found != 0;
}

/* ---- one window -------------------------------------------------------------------------------- */

/* The images of one call; forward has no dout. */
typedef struct pool_job {
    const ab_window *window;
    bool after_relu;   /* backward: only a maximum above 0 has a gradient */
    uint16_t infinity; /* of halves */
    const void *in, *dout;
    void *out, *din;
} pool_job;

/* Eight channels of a window, the first at `at` of the images and `to` of the results. Only `lanes` of them
 * are written and `loads` are read. `channels`, `row`: from a pixel to the next to its right, and below. */
typedef struct window_part {
    int64_t at, to, lanes, loads, channels, row;
} window_part;

/* What the loops know of a kind of values, beside their vector: its order, what is noted of two values that
 * are compared and of a maximum, and whether something noted ends the loops. */

/* fp32: NaNs. */
static inline reals reals_key(reals v) { return v; }
static inline reals reals_note_maximum(reals seen, reals best) {
    (void)best;
    return seen;
}
static inline bool reals_ends(const pool_job *job, reals seen) {
    (void)job;
    return reals_any(seen);
}

/* Halves of any sign, of which none is NaN. */
static inline oct halves_key(oct v) { return oct_ordered(v); }
static inline oct halves_max(oct a, oct b) { return oct_max(a, b); }
static inline oct halves_note(oct seen, oct a, oct b) {
    (void)a, (void)b;
    return seen;
}
static inline oct halves_note_maximum(oct seen, oct best) {
    (void)best;
    return seen;
}
static inline bool halves_ends(const pool_job *job, oct seen) {
    (void)job, (void)seen;
    return false;
}

/* Halves from 0 to infinity: the code of any other is above that of infinity, and so is its maximum. */
static inline oct codes_key(oct v) { return v; }
static inline oct codes_max(oct a, oct b) { return oct_larger_code(a, b); }
static inline oct codes_note(oct seen, oct a, oct b) { return halves_note(seen, a, b); }
static inline oct codes_note_maximum(oct seen, oct best) { return oct_larger_code(seen, best); }
static inline bool codes_ends(const pool_job *job, oct seen) { return oct_any_above(seen, job->infinity); }

typedef oct oct_flags; /* what was noted of the lanes */
typedef reals reals_flags;

/* The maximum of a window, and its gradient at the first value that equals the maximum, so at the last if at
 * none before. A max keeps its second operand, the earlier value, where both are equal (zeros of either sign)
 * or one is NaN. */
#define WINDOW(kind, vector)                                                                                 \
    static AB_FORCE_INLINE vector kind##_largest(const vector##_lane *in, const window_part *part,           \
                                                 vector##_flags *seen, const int rows, const int columns) {  \
        vector best = kind##_key(vector##_load_some(in + part->at, part->loads));                            \
        *seen = kind##_note(*seen, best, best);                                                              \
        for (int y = 0; y < rows; y++)                                                                       \
            for (int x = y == 0; x < columns; x++) {                                                         \
                const vector##_lane *from = in + part->at + y * part->row + x * part->channels;              \
                const vector next = kind##_key(vector##_load_some(from, part->loads));                       \
                *seen = kind##_note(*seen, next, best);                                                      \
                best = kind##_max(next, best);                                                               \
            }                                                                                                \
        *seen = kind##_note_maximum(*seen, best);                                                            \
        return kind##_key(best);                                                                             \
    }                                                                                                        \
    static AB_FORCE_INLINE void kind##_forward(const pool_job *job, const window_part *part,                 \
                                               vector##_flags *seen, const int rows, const int columns) {    \
        vector##_store_some((vector##_lane *)job->out + part->to,                                            \
                            kind##_largest(job->in, part, seen, rows, columns), part->lanes);                \
    }                                                                                                        \
    static AB_FORCE_INLINE void kind##_backward(const pool_job *job, const window_part *part,                \
                                                vector##_flags *seen, const int rows, const int columns) {   \
        const vector##_lane *in = job->in;                                                                   \
        const vector best = kind##_largest(in, part, seen, rows, columns);                                   \
        vector left = vector##_load_some((const vector##_lane *)job->dout + part->to, part->loads);          \
        if (job->after_relu) left = vector##_and(left, vector##_above_zero(best));                           \
        for (int y = 0; y < rows; y++)                                                                       \
            for (int x = 0; x < columns; x++) {                                                              \
                const int64_t at = part->at + y * part->row + x * part->channels;                            \
                vector here = left;                                                                          \
                if (y < rows - 1 || x < columns - 1)                                                         \
                    here =                                                                                   \
                        vector##_and(left, vector##_equal(vector##_load_some(in + at, part->loads), best));  \
                vector##_store_some((vector##_lane *)job->din + at, here, part->lanes);                      \
                left = vector##_without(left, here);                                                         \
            }                                                                                                \
    }
WINDOW(reals, reals)
WINDOW(halves, oct)
WINDOW(codes, oct)

/* ---- every window ------------------------------------------------------------------------------ */

/* Windows of a row, from the first, whose lanes beyond the channels fall into later windows of the row, in
 * images and results: these write them again. */
static int64_t spilling(const ab_window *w) {
    const int64_t later = (LANES + w->channels - 1) / w->channels - 1; /* windows that results spill into */
    if (w->channels >= LANES || w->stride[1] != w->kernel[1]) return 0;
    return w->out[1] > later ? w->out[1] - later : 0;
}

/* Eight channels at a time, of windows of rows x columns. Returns whether nothing ended the loops. */
#define EACH_WINDOW(kind, vector, pass)                                                                      \
    static AB_FORCE_INLINE bool kind##_##pass##_each(const pool_job *argument, const int rows,               \
                                                     const int columns) {                                    \
        const pool_job job = *argument; /* which no store reaches */                                         \
        const ab_window w = *job.window;                                                                     \
        const int64_t row = w.in[1] * w.channels, step = w.stride[1] * w.channels, spill = spilling(&w),     \
                      whole = w.channels / LANES, rest = w.channels % LANES;                                 \
        vector seen = vector##_zero();                                                                       \
        for (int64_t oy = 0; oy < w.out[0]; oy++) {                                                          \
            const int64_t rest_loads = oy + 1 < w.out[0] ? LANES : rest; /* not beyond the image */          \
            window_part part = {.at = oy * w.stride[0] * row,                                                \
                                .to = oy * w.out[1] * w.channels,                                            \
                                .channels = w.channels,                                                      \
                                .row = row};                                                                 \
            part.lanes = part.loads = LANES;                                                                 \
            int64_t ox = 0;                                                                                  \
            for (; ox < spill; ox++, part.at += step, part.to += w.channels)                                 \
                kind##_##pass(&job, &part, &seen, rows, columns);                                            \
            for (; ox < w.out[1]; ox++, part.at += step - w.channels) {                                      \
                part.lanes = part.loads = LANES;                                                             \
                for (int64_t i = 0; i < whole; i++, part.at += LANES, part.to += LANES)                      \
                    kind##_##pass(&job, &part, &seen, rows, columns);                                        \
                if (rest == 0) continue;                                                                     \
                part.lanes = rest;                                                                           \
                part.loads = rest_loads;                                                                     \
                kind##_##pass(&job, &part, &seen, rows, columns);                                            \
                part.at += rest;                                                                             \
                part.to += rest;                                                                             \
            }                                                                                                \
            if (kind##_ends(&job, seen)) return false;                                                       \
        }                                                                                                    \
        return true;                                                                                         \
    }                                                                                                        \
    static bool kind##_##pass##_two(const pool_job *job) { return kind##_##pass##_each(job, 2, 2); }         \
    static bool kind##_##pass##_any(const pool_job *job) {                                                   \
        return kind##_##pass##_each(job, (int)job->window->kernel[0], (int)job->window->kernel[1]);          \
    }                                                                                                        \
    static bool kind##_##pass##_image(const pool_job *job) {                                                 \
        const int64_t *kernel = job->window->kernel;                                                         \
        return kernel[0] == 2 && kernel[1] == 2 ? kind##_##pass##_two(job) : kind##_##pass##_any(job);       \
    }
#define BOTH_PASSES(kind, vector) EACH_WINDOW(kind, vector, forward) EACH_WINDOW(kind, vector, backward)
BOTH_PASSES(reals, reals)
BOTH_PASSES(halves, oct)
BOTH_PASSES(codes, oct)

/* Values of an image, of its result. */
static int64_t values_in(const ab_window *w) { return w->in[0] * w->in[1] * w->channels; }
static int64_t values_out(const ab_window *w) { return w->out[0] * w->out[1] * w->channels; }

/* Whether windows leave pixels out, which no gradient reaches. */
static bool leaves_pixels(const ab_window *w) {
    return w->out[0] * w->kernel[0] != w->in[0] || w->out[1] * w->kernel[1] != w->in[1];
}

static bool max_pool(const ab_window *w, const float *in, float *out) {
    return reals_forward_image(&(pool_job){.window = w, .in = in, .out = out});
}

static bool max_pool_backward(const ab_window *w, bool after_relu, const float *in, const float *dout,
                              float *din) {
    if (leaves_pixels(w)) memset(din, 0, (size_t)values_in(w) * sizeof *din);
    return reals_backward_image(
        &(pool_job){.window = w, .after_relu = after_relu, .in = in, .dout = dout, .din = din});
}

static bool max_pool_bits(const ab_window *w, uint16_t infinity, const uint16_t *in, uint16_t *out) {
    const pool_job job = {.window = w, .infinity = infinity, .in = in, .out = out};
    if (codes_forward_image(&job)) return true;
    return is_ordered(in, infinity, values_in(w)) && halves_forward_image(&job);
}

static bool max_pool_backward_bits(const ab_window *w, bool after_relu, uint16_t infinity, const uint16_t *in,
                                   const uint16_t *dout, uint16_t *din) {
    const pool_job job = {
        .window = w, .after_relu = after_relu, .infinity = infinity, .in = in, .dout = dout, .din = din};
    if (has_nan(dout, infinity, values_out(w))) return false;
    if (leaves_pixels(w)) memset(din, 0, (size_t)values_in(w) * sizeof *din);
    if (codes_backward_image(&job)) return true;
    return is_ordered(in, infinity, values_in(w)) && halves_backward_image(&job);
}

AB_ISA_TABLE(ab_vec_pool) = {.max_pool = max_pool,
                             .max_pool_backward = max_pool_backward,
                             .max_pool_bits = max_pool_bits,
                             .max_pool_backward_bits = max_pool_backward_bits};
