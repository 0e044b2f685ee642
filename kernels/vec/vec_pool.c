/* The loops of vec_pool.h: eight channels of a pixel at a time. Halves without NaN are ordered like integers
 * once the magnitude bits of negative ones are inverted; the same inversion maps them back. */
#include "kernels/vec/vec_pool.h"

#include "kernels/core/compiler.h"

#include <string.h>

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

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
static inline oct oct_and(oct a, oct b) { return _mm_and_si128(a, b); }
static inline oct oct_or(oct a, oct b) { return _mm_or_si128(a, b); }
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
OCT_MAP(oct_and, a.lane[i] & b.lane[i])
OCT_MAP(oct_or, a.lane[i] | b.lane[i])
OCT_MAP(oct_without, a.lane[i] & ~b.lane[i])
static inline oct oct_ordered(oct v) {
    for (int i = 0; i < LANES; i++) v.lane[i] = (int16_t)(v.lane[i] ^ (v.lane[i] < 0 ? 0x7fff : 0));
    return v;
}

#endif

/* n of the lanes, in pieces of fixed sizes; other memory is not touched. */
static inline oct load_some(const uint16_t *p, int64_t n) {
    uint16_t lanes[LANES] = {0}, *to = lanes;
    if (n >= LANES) return oct_load(p);
    for (int piece = LANES / 2; piece > 0; piece /= 2) {
        if (!(n & piece)) continue;
        for (int i = 0; i < piece; i++) to[i] = p[i];
        to += piece;
        p += piece;
    }
    return oct_load(lanes);
}

static AB_FORCE_INLINE void store_some(uint16_t *p, oct v, int64_t n) {
    uint16_t lanes[LANES], *from = lanes;
    if (n >= LANES) {
        oct_store(p, v);
        return;
    }
    oct_store(lanes, v);
#pragma GCC unroll 3
    for (int piece = LANES / 2; piece > 0; piece /= 2) {
        if (!(n & piece)) continue;
        memcpy(p, from, (size_t)piece * sizeof *p);
        from += piece;
        p += piece;
    }
}

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

/* The images of one call. */
typedef struct pool_job {
    const ab_window *window;
    const uint16_t *in, *dout;
    uint16_t *out, *din;
} pool_job;

/* Eight channels of a window, the first at `at` of the images and `to` of the results. Only `lanes` of them
 * are written and `loads` are read. */
typedef struct window_part {
    int64_t at, to, lanes, loads;
} window_part;

static AB_FORCE_INLINE oct window_max(const pool_job *job, const window_part *part, const int rows,
                                      const int columns) {
    const int64_t channels = job->window->channels, row = job->window->in[1] * channels;
    const uint16_t *in = job->in + part->at;
    oct best = oct_ordered(load_some(in, part->loads));
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++)
            best = oct_max(best, oct_ordered(load_some(in + y * row + x * channels, part->loads)));
    return oct_ordered(best);
}

static AB_FORCE_INLINE void window_gradient(const pool_job *job, const window_part *part, const int rows,
                                            const int columns) {
    const int64_t channels = job->window->channels, row = job->window->in[1] * channels;
    const oct best = window_max(job, part, rows, columns);
    const oct gradient = load_some(job->dout + part->to, part->loads);
    oct given = oct_zero();
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++) {
            const int64_t at = part->at + y * row + x * channels;
            const oct equal = oct_equal(load_some(job->in + at, part->loads), best);
            store_some(job->din + at, oct_and(gradient, oct_without(equal, given)), part->lanes);
            given = oct_or(given, equal);
        }
}

static AB_FORCE_INLINE void part_of_window(const pool_job *job, const window_part *part, const int rows,
                                           const int columns) {
    if (job->dout)
        window_gradient(job, part, rows, columns);
    else
        store_some(job->out + part->to, window_max(job, part, rows, columns), part->lanes);
}

/* Windows of a row, from the first, whose lanes beyond the channels fall into later windows of the row, in
 * images and results: these write them again. */
static int64_t spilling(const ab_window *w) {
    const int64_t later = (LANES + w->channels - 1) / w->channels - 1; /* windows that results spill into */
    if (w->channels >= LANES || w->stride[1] != w->kernel[1]) return 0;
    return w->out[1] > later ? w->out[1] - later : 0;
}

/* Every window, eight channels at a time. */
static AB_FORCE_INLINE void each_part(const pool_job *job, const int rows, const int columns) {
    const ab_window *w = job->window;
    const int64_t channels = w->channels, row = w->in[1] * channels, spill = spilling(w);
    for (int64_t oy = 0; oy < w->out[0]; oy++)
        for (int64_t ox = 0; ox < w->out[1]; ox++) {
            window_part part = {.at = oy * w->stride[0] * row + ox * w->stride[1] * channels,
                                .to = (oy * w->out[1] + ox) * channels,
                                .lanes = LANES,
                                .loads = LANES};
            if (ox < spill) {
                part_of_window(job, &part, rows, columns);
                continue;
            }
            for (int64_t c = 0; c < channels; c += LANES, part.at += LANES, part.to += LANES) {
                part.lanes = channels - c < LANES ? channels - c : LANES;
                part.loads = oy + 1 < w->out[0] ? LANES : part.lanes; /* not beyond the image */
                part_of_window(job, &part, rows, columns);
            }
        }
}

static void two_by_two(const pool_job *job) { each_part(job, 2, 2); }
static void any_window(const pool_job *job) {
    each_part(job, (int)job->window->kernel[0], (int)job->window->kernel[1]);
}

static void all_windows(const pool_job *job) {
    (job->window->kernel[0] == 2 && job->window->kernel[1] == 2 ? two_by_two : any_window)(job);
}

static bool max_pool_bits(const ab_window *w, uint16_t infinity, const uint16_t *in, uint16_t *out) {
    if (!is_ordered(in, infinity, w->in[0] * w->in[1] * w->channels)) return false;
    all_windows(&(pool_job){.window = w, .in = in, .out = out});
    return true;
}

static bool max_pool_backward_bits(const ab_window *w, uint16_t infinity, const uint16_t *in,
                                   const uint16_t *dout, uint16_t *din) {
    const int64_t n = w->in[0] * w->in[1] * w->channels;
    if (!is_ordered(in, infinity, n) || has_nan(dout, infinity, w->out[0] * w->out[1] * w->channels))
        return false;
    memset(din, 0, (size_t)n * sizeof *din); /* pixels that no window covers */
    all_windows(&(pool_job){.window = w, .in = in, .dout = dout, .din = din});
    return true;
}

extern const ab_vec_pool PASTE(ab_vec_pool_, AB_ISA_SUFFIX);
const ab_vec_pool PASTE(ab_vec_pool_, AB_ISA_SUFFIX) = {.max_pool_bits = max_pool_bits,
                                                        .max_pool_backward_bits = max_pool_backward_bits};
