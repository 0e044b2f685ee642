/* Counting loops of the census, compiled once per CPU level (AB_ISA_SUFFIX); exports one table. Every
 * level gives the same counts as ab_census_count_value.
 *
 * AVX2 and AVX-512. Most values of a tensor lie in a window of a few times 8 exponents and in four
 * mantissa classes that the top seven mantissa bits distinguish. Those are counted without a histogram in
 * memory:
 *   - the exponents and mantissas of a chunk (one vector's worth of bytes) are packed into two bytes per
 *     value, its place in the window and its top seven mantissa bits;
 *   - per group of 8 exponents a table look-up maps places to one bit per exponent; this and its subset above
 *     each class limit are four bit planes;
 *   - bit planes are added with full adders, so that only one plane in 512 or 1024 is counted bit by bit
 *     (positional population count, Harley-Seal adder).
 * The others (exponents outside the window, mantissas near 2, and the ties 1 and 1.8125) are listed and
 * counted one by one. The low halves of the values show whether ties are possible (see `halves`), so a
 * tile without ties is packed without a test.
 * bf16 values are the upper halves of fp32 values and are packed as stored; fp16 values are widened in
 * registers. Only rare work (squares in double, new extremes, a new window) reads a widened copy. Adding
 * is arithmetic on data in the L1 cache; packing and adding both prefetch from some kilobytes ahead, so that
 * memory is never idle.
 *
 * Plain C: one histogram by exponent and top four mantissa bits, in two copies to avoid store-to-load
 * dependencies between equal neighbours; values whose class those bits do not determine are counted one
 * by one. */
#include "kernels/census/vec_census.h"

#include "kernels/vec/isa.h"

#include <stdbool.h>
#include <string.h>

enum { INF = 0x7f800000 };

static uint32_t magnitude_of(float x) {
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

/* Exponent fields of the rows with the common classes only. */
enum {
    FIELD_MIN = 127 + AB_CENSUS_COMMON_MIN,
    FIELD_MAX = 127 + AB_CENSUS_COMMON_MAX,
    ROW_OF_FIELD = -127 - AB_CENSUS_EMIN /* row = exponent field + this */
};

/* ---- extremes and squares -------------------------------------------------------------------- */

static float float_of(uint32_t bits) {
    float x = 0.0f;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Two loops and signed integers, because compilers vectorise those. Magnitude 0 minus 1 maps to the
 * largest value. */
static void note_extremes(ab_census *census, const float *values, int64_t n) {
    int32_t max = 0, min = INT32_MAX;
    for (int64_t i = 0; i < n; i++) {
        int32_t m = (int32_t)magnitude_of(values[i]);
        m = m < INF ? m : 0;
        max = m > max ? m : max;
    }
    for (int64_t i = 0; i < n; i++) {
        int32_t m = (int32_t)((magnitude_of(values[i]) - 1u) & 0x7fffffffu);
        min = m < min ? m : min;
    }
    if (max == 0) return;
    float largest = float_of((uint32_t)max), smallest = float_of((uint32_t)min + 1u);
    if (largest > census->max_abs) census->max_abs = largest;
    if (census->min_abs == 0.0f || smallest < census->min_abs) census->min_abs = smallest;
}

static AB_FORCE_INLINE void fold(double *lane, int half) {
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
}

static AB_FORCE_INLINE double lane_sum(double lane[AB_CENSUS_LANES]) {
    fold(lane, 16);
    fold(lane, 8);
    fold(lane, 4);
    fold(lane, 2);
    return lane[0] + lane[1];
}

_Static_assert(AB_CENSUS_LANES == 32, "lane_sum");

static double sum_of_float_lanes(const float lane[AB_CENSUS_LANES]) {
    double wide[AB_CENSUS_LANES];
    for (int i = 0; i < AB_CENSUS_LANES; i++) wide[i] = (double)lane[i];
    return lane_sum(wide);
}

/* Whether a non-zero value must be squared in double. Signed, because baseline x86 has no unsigned vector
 * compare. */
static int32_t squares_in_double(int32_t magnitude) {
    return (magnitude < (127 + AB_CENSUS_SQUARE_MIN) << 23) |
           (magnitude >= (128 + AB_CENSUS_SQUARE_MAX) << 23);
}

static void add_squares_in_double(ab_census *census, const float *values, int64_t n) {
    double lane[AB_CENSUS_LANES] = {0};
    for (int64_t i = 0; i < n; i += AB_CENSUS_LANES) {
        int64_t width = n - i < AB_CENSUS_LANES ? n - i : AB_CENSUS_LANES;
        for (int64_t j = 0; j < width; j++) {
            double x = magnitude_of(values[i + j]) < INF ? (double)values[i + j] : 0.0;
            lane[j] += x * x;
        }
    }
    census->sum_squares += lane_sum(lane);
}

static void add_squares_in_float(ab_census *census, const float *values, int64_t n) {
    float lane[AB_CENSUS_LANES] = {0};
    int64_t i = 0;
    for (; i + AB_CENSUS_LANES <= n; i += AB_CENSUS_LANES)
        for (int j = 0; j < AB_CENSUS_LANES; j++) lane[j] += values[i + j] * values[i + j];
    for (int j = 0; i + j < n; j++) lane[j] += values[i + j] * values[i + j];
    census->sum_squares += sum_of_float_lanes(lane);
}

static void add_squares(ab_census *census, const float *values, int64_t n) {
    int32_t in_double = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t magnitude = (int32_t)magnitude_of(values[i]);
        in_double |= (magnitude > 0) & squares_in_double(magnitude);
    }
    if (in_double)
        add_squares_in_double(census, values, n);
    else
        add_squares_in_float(census, values, n);
}

/* Whether the exponent of a value is uncommon. */
static int32_t outside(int32_t magnitude) {
    return (magnitude < FIELD_MIN << 23) | (magnitude >= (FIELD_MAX + 1) << 23);
}

#if defined(__AVX2__) || defined(__AVX512BW__)

#include "kernels/census/vec_bytes.h"

enum {
    TAKES_HALVES = true,
    DISTANCE = 4096, /* bytes */
    DISTANCE_HALVES = VEC_BYTES == 64 ? DISTANCE : 8192,
    CHUNK = VEC_BYTES, /* values */
    TILE = 1024,       /* values packed at a time */
    TILES = AB_CENSUS_BLOCK / TILE,
    UNIT = 16 * CHUNK, /* values whose bit planes are added in registers */
    UNITS = TILE / UNIT,
    UNIT_LEVELS = 4,                                     /* adder levels per unit, weights 1, 2, 4, 8 */
    LEVELS = UNIT_LEVELS + (TILES * UNITS == 4 ? 2 : 3), /* a block is 2^LEVELS chunks */
    TOPS = 3,                                            /* levels above: 2^TOPS blocks */
    GROUPS = 7,                                          /* maximum number, of 8 exponents each */
    GROUP_COST = VEC_BYTES == 64 ? 90 : 180,             /* cost per block, in values counted one by one */
    STEP = 16,                                           /* list entries are counted in multiples of STEP, */
    PART = 8 * STEP,                                     /* in parts of this many values */
    FLUSH_BLOCKS = 1 << 19,                              /* limit of 32-bit counters */
    MIN_AGE = 8,   /* minimum age of a window before it is replaced, in blocks */
    MAX_AGE = 256, /* age at which it is always chosen again */
    SLACK = 64,
    PAGE = 4096 /* bytes */
};

/* Top seven mantissa bits << 1: class limits, and the values whose class they do not determine. */
enum {
    FROM_1_75 = 0xc0,
    FROM_1_8125 = 0xd0,
    FROM_1_875 = 0xe0,
    AT_1 = 0x00,
    AT_1_8125 = 0xd0,
    BELOW_2 = 0xfe
};

/* Two bit planes, one bit per value and exponent of a group: pair 0: all values, values from 1.75; pair 1:
 * values above 1.8125, values from 1.875. Not all four at once, because of register pressure. */
typedef struct planes {
    bytes more, less;
} planes;

enum { PAIRS = 2 };

/* Properties of the low halves of a tile's values, for mantissas that the top seven bits do not determine. */
typedef enum halves {
    NONE_ZERO, /* no value is 1 or 1.8125 times a power of two, or zero */
    SOME_ZERO,
    ALL_ZERO,  /* no bits below the top seven: values converted from bf16 */
    NO_HALVES, /* the same, stored as bf16 */
    STICKY     /* fp16: an eighth bit is set if lower bits are set, so that only values next to 2 and at 1 are
                * undecided
                */
} halves;

/* Results of one pass over a block other than counts. */
typedef struct summary {
    floats lane[AB_CENSUS_LANES / VEC_FLOATS]; /* sums of squares */
    bytes word_max;                            /* maximum of exponent << 8 | mantissa >> 16 << 1 */
    bytes exponent_min;                        /* minimum of exponent field - 1, so that 0 counts as 255 */
    bytes half_min;                            /* minimum of the 16-bit low halves of the last tile */
    bytes bits;                                /* bitwise or of those values; */
    bytes field_min;                           /* their smallest exponent field; both unset for NONE_ZERO */
} summary;

typedef struct state {
    bytes place[TILE / CHUNK], mantissa[TILE / CHUNK]; /* of the current tile */
    planes tree[GROUPS][PAIRS][LEVELS + TOPS];
    planes waiting[GROUPS][PAIRS][TOPS]; /* for a second one of equal weight; valid at top level i if bit i of
                                            `held` is set */
    planes sixteens[GROUPS][PAIRS][TILES * UNITS];
    ab_census *census;
    int64_t values, counted; /* in all blocks so far; counted: without zeros */
    int base, groups;        /* the window: exponent fields base .. base + 8 * groups - 1 */
    int expected, age;       /* values outside in the block that the window was chosen from; blocks since */
    unsigned held;           /* blocks in the trees */
    int64_t blocks;
    halves low; /* expected for the next tile */
    uint64_t count[GROUPS][2 * PAIRS][8];
    uint32_t listed[256 * 8];    /* by exponent field and class */
    uint64_t outside[TILE / 64]; /* one bit per value of the tile */
    uint16_t *list;              /* places in the block, as packed (bytes_origin), in list_room */
    uint16_t list_room[AB_CENSUS_BLOCK + 64 + PAGE / 2];
} state;

_Static_assert(sizeof(state) <= AB_CENSUS_STATE, "AB_CENSUS_STATE");

/* ---- packing --------------------------------------------------------------------------------- */

/* Moves values whose class the packed bits do not determine out of the window: next to 2, at 1, and at
 * 1.8125. */
static AB_FORCE_INLINE bytes place_singles(bytes place, bytes mantissa, halves low) {
    const bytes none = bytes_set8(PLACE_NONE);
    const int below_2 = low == STICKY ? BELOW_2 + 1 : BELOW_2; /* fp16: undecided only by its last bits */
    if (low != ALL_ZERO && low != NO_HALVES)
        place = bytes_set_where_equal(place, mantissa, bytes_set8(below_2), none);
    if (low != NONE_ZERO) place = bytes_set_where_equal(place, mantissa, bytes_set8(AT_1), none);
    if (low == SOME_ZERO) place = bytes_set_where_equal(place, mantissa, bytes_set8(AT_1_8125), none);
    return place;
}

/* Destination of a packed tile, and prefetch source. */
typedef struct packed {
    bytes *place, *mantissa;
    unsigned char *outside; /* one bit per value */
    const char *ahead;      /* TILE values to prefetch, or NULL */
} packed;

/* Of the cache lines to prefetch for a tile, packing takes the first and adding the others: all in packing
 * are more than can be in flight, and then memory is idle while the tile is added. With vectors of 32 bytes
 * packing takes so long that all lines of 16-bit values are there in time. */
enum { LINE = 64 };

static AB_FORCE_INLINE int packing_lines(ab_stored stored) {
    return VEC_BYTES == 32 && stored != AB_STORED_FP32 ? TILE * 2 / LINE : 16;
}

/* Cache lines to prefetch in address order, the fastest for memory, spread over the parts of some work. */
typedef struct lines_ahead {
    const char *next; /* NULL: nothing */
    int lines, parts, due;
} lines_ahead;

/* Before a part: into the L2 cache, as few lines can be in flight to L1. */
static AB_FORCE_INLINE void prefetch_due(lines_ahead *a) {
    if (a->next == NULL) return;
    for (a->due += a->lines; a->due >= a->parts; a->due -= a->parts, a->next += LINE)
        _mm_prefetch(a->next, _MM_HINT_T1);
}

static AB_FORCE_INLINE void prefetch_in_chunk(const packed *to, int i, ab_stored stored) {
    enum { CHUNKS = TILE / CHUNK };
    const int lines = packing_lines(stored), from = lines * (i / CHUNK) / CHUNKS;
    if (to->ahead == NULL) return;
    for (int line = from; line < lines * (i / CHUNK + 1) / CHUNKS; line++)
        _mm_prefetch(to->ahead + line * LINE, _MM_HINT_T1);
}

/* Chunk i of a tile, from words of exponent << 8 | mantissa >> 16 << 1; see STICKY for the last bit. With
 * ALL_ZERO halves, values at 1.8125 are decremented: the class above has only values with lower bits set. */
static AB_FORCE_INLINE void pack_words(summary *s, bytes first, bytes second, const window *w, halves low,
                                       const packed *to, int i) {
    bytes exponent, mantissa;
    s->word_max = bytes_max16(s->word_max, bytes_max16(first, second));
    bytes_split(first, second, &exponent, &mantissa);
    s->exponent_min = bytes_min8(s->exponent_min, bytes_sub8(exponent, bytes_set8(1)));
    bytes place = place_singles(window_place(w, exponent), mantissa, low);
    uint64_t outside = window_mask_outside(w, place);
    if (low != NONE_ZERO) outside &= ~bytes_mask_equal(exponent, bytes_set8(0));
    if (low != NONE_ZERO && low != STICKY) s->field_min = bytes_min8(s->field_min, exponent);
    if (low == ALL_ZERO)
        mantissa =
            bytes_set_where_equal(mantissa, mantissa, bytes_set8(AT_1_8125), bytes_set8(AT_1_8125 - 1));
    to->place[i / CHUNK] = place;
    to->mantissa[i / CHUNK] = bytes_ordered(mantissa);
    memcpy(to->outside + i / 8, &outside, CHUNK / 8); /* little-endian */
}

enum { SUMS = AB_CENSUS_LANES / VEC_FLOATS };

/* Four vectors of floats, in order. */
typedef struct quad {
    floats a, b, c, d;
} quad;

static AB_FORCE_INLINE void add_lanes(summary *s, const quad *v) {
    s->lane[0] = floats_add_square(s->lane[0], v->a);
    s->lane[1] = floats_add_square(s->lane[1], v->b);
    s->lane[2 % SUMS] = floats_add_square(s->lane[2 % SUMS], v->c);
    s->lane[3 % SUMS] = floats_add_square(s->lane[3 % SUMS], v->d);
}

/* Squares of 16-bit values have at most 22 bits, so there is only one rounding. */
static AB_FORCE_INLINE void add_lanes_of_halves(summary *s, const quad *v) {
    s->lane[0] = floats_add_exact_square(s->lane[0], v->a);
    s->lane[1] = floats_add_exact_square(s->lane[1], v->b);
    s->lane[2 % SUMS] = floats_add_exact_square(s->lane[2 % SUMS], v->c);
    s->lane[3 % SUMS] = floats_add_exact_square(s->lane[3 % SUMS], v->d);
}

static AB_FORCE_INLINE void pack_chunk(summary *s, const float *x, const window *w, halves low,
                                       const packed *to, int i) {
    const quad v = {floats_load(x), floats_load(x + VEC_FLOATS), floats_load(x + 2 * VEC_FLOATS),
                    floats_load(x + 3 * VEC_FLOATS)};
    bytes a = floats_bits(v.a), b = floats_bits(v.b), c = floats_bits(v.c), d = floats_bits(v.d);
    prefetch_in_chunk(to, i, AB_STORED_FP32);
    add_lanes(s, &v);
    s->half_min = bytes_min16(s->half_min, bytes_min16(bytes_min16(a, b), bytes_min16(c, d)));
    if (low != NONE_ZERO) s->bits = bytes_or(s->bits, bytes_or(bytes_or(a, b), bytes_or(c, d)));
    bytes first = bytes_high_words(a, b), second = bytes_high_words(c, d);
    /* drops the sign; the exponent fills the upper byte */
    pack_words(s, bytes_add16(first, first), bytes_add16(second, second), w, low, to, i);
}

/* The words of two vectors of values widened from fp16: the three mantissa bits in the low halves become
 * one. */
static AB_FORCE_INLINE bytes sticky_words(bytes a, bytes b) {
    bytes high = bytes_high_words(a, b);
    return words_add_where_set(bytes_add16(high, high), bytes_low_words(a, b));
}

static AB_FORCE_INLINE void pack_chunk_of_fp16(summary *s, const uint16_t *x, const window *w,
                                               const packed *to, int i) {
    const quad v = {floats_load_fp16(x), floats_load_fp16(x + VEC_FLOATS),
                    floats_load_fp16(x + 2 * VEC_FLOATS), floats_load_fp16(x + 3 * VEC_FLOATS)};
    prefetch_in_chunk(to, i, AB_STORED_FP16);
    add_lanes_of_halves(s, &v);
    bytes first = sticky_words(floats_bits(v.a), floats_bits(v.b));
    bytes second = sticky_words(floats_bits(v.c), floats_bits(v.d));
    pack_words(s, first, second, w, STICKY, to, i);
}

/* The lanes alternate between even and odd places (lane_of_bf16). */
static AB_FORCE_INLINE void pack_chunk_of_bf16(summary *s, const uint16_t *x, const window *w,
                                               const packed *to, int i) {
    bytes first = bytes_load(x), second = bytes_load(x + CHUNK / 2);
    const quad v = {floats_even(first), floats_odd(first), floats_even(second), floats_odd(second)};
    prefetch_in_chunk(to, i, AB_STORED_BF16);
    add_lanes_of_halves(s, &v);
    pack_words(s, bytes_add16(first, first), bytes_add16(second, second), w, NO_HALVES, to, i);
}

/* One tile whose low halves are as expected. Does not modify `before`, because a tile may be packed a second
 * time. */
static AB_FORCE_INLINE void pack_chunks(const summary *before, summary *after, const void *x,
                                        ab_stored stored, const window *w, halves low, const packed *to) {
    const window here = *w;
    const packed there = *to;
    summary s = *before;
    s.half_min = bytes_set8(0xff);
    s.bits = bytes_set8(0);
    s.field_min = bytes_set8(0xff);
    for (int i = 0; i < TILE; i += CHUNK) {
        if (stored == AB_STORED_FP32) pack_chunk(&s, (const float *)x + i, &here, low, &there, i);
        if (stored == AB_STORED_BF16) pack_chunk_of_bf16(&s, (const uint16_t *)x + i, &here, &there, i);
        if (stored == AB_STORED_FP16) pack_chunk_of_fp16(&s, (const uint16_t *)x + i, &here, &there, i);
    }
    *after = s;
}

typedef void pack_function(const summary *before, summary *after, const void *x, const window *w,
                           const packed *to);

static AB_NOINLINE void pack_none_zero(const summary *before, summary *after, const void *x, const window *w,
                                       const packed *to) {
    pack_chunks(before, after, x, AB_STORED_FP32, w, NONE_ZERO, to);
}

static AB_NOINLINE void pack_some_zero(const summary *before, summary *after, const void *x, const window *w,
                                       const packed *to) {
    pack_chunks(before, after, x, AB_STORED_FP32, w, SOME_ZERO, to);
}

static AB_NOINLINE void pack_all_zero(const summary *before, summary *after, const void *x, const window *w,
                                      const packed *to) {
    pack_chunks(before, after, x, AB_STORED_FP32, w, ALL_ZERO, to);
}

static AB_NOINLINE void pack_bf16(const summary *before, summary *after, const void *x, const window *w,
                                  const packed *to) {
    pack_chunks(before, after, x, AB_STORED_BF16, w, NO_HALVES, to);
}

static AB_NOINLINE void pack_fp16(const summary *before, summary *after, const void *x, const window *w,
                                  const packed *to) {
    pack_chunks(before, after, x, AB_STORED_FP16, w, STICKY, to);
}

/* ---- adding bit planes ----------------------------------------------------------------------- */

/* A group of exponents, and the class limits in the form for bytes_keep_above. */
typedef struct exponents {
    one_hot hot;
    bytes below_1_75, below_1_8125, below_1_875;
} exponents;

/* A 16-bit value above 1.8125 is visible in the packed bits; an fp32 value at 1.8125 was listed or
 * decremented. */
static exponents exponents_of(int group, int groups, ab_stored stored) {
    const int below_1_8125 = stored == AB_STORED_FP32 ? FROM_1_8125 - 1 : AT_1_8125;
    exponents e = {one_hot_of_group(group, groups), bytes_ordered(bytes_set8(FROM_1_75 - 1)),
                   bytes_ordered(bytes_set8(below_1_8125)), bytes_ordered(bytes_set8(FROM_1_875 - 1))};
    return e;
}

static AB_FORCE_INLINE planes planes_of(bytes place, bytes mantissa, const exponents *e, int pair, bool few) {
    bytes all = one_hot_of(&e->hot, place, few);
    planes first = {all, bytes_keep_above(all, mantissa, e->below_1_75)};
    planes second = {bytes_keep_above(all, mantissa, e->below_1_8125),
                     bytes_keep_above(all, mantissa, e->below_1_875)};
    return pair == 0 ? first : second;
}

/* *sum = a + b + *sum without carries; returns the carries. */
static AB_FORCE_INLINE planes add_planes(planes *sum, const planes *a, const planes *b) {
    planes carry = {bytes_carry(a->more, b->more, sum->more), bytes_carry(a->less, b->less, sum->less)};
    sum->more = bytes_sum(a->more, b->more, sum->more);
    sum->less = bytes_sum(a->less, b->less, sum->less);
    return carry;
}

/* A unit to be added. */
typedef struct unit {
    const bytes *place, *mantissa;
} unit;

/* The adders of a unit, with the levels in registers. add_2 takes two chunks and returns the carry to
 * weight 2, and so on. */
typedef struct adder {
    planes ones, twos, fours, eights;
    exponents of;
    unit from;
    int pair;
    bool few; /* as one_hot_of */
} adder;

static AB_FORCE_INLINE planes add_2(adder *t, int first) {
    const bytes *place = t->from.place + first, *mantissa = t->from.mantissa + first;
    planes a = planes_of(place[0], mantissa[0], &t->of, t->pair, t->few);
    planes b = planes_of(place[1], mantissa[1], &t->of, t->pair, t->few);
    return add_planes(&t->ones, &a, &b);
}

static AB_FORCE_INLINE planes add_4(adder *t, int first) {
    planes a = add_2(t, first), b = add_2(t, first + 2);
    return add_planes(&t->twos, &a, &b);
}

static AB_FORCE_INLINE planes add_8(adder *t, int first) {
    planes a = add_4(t, first), b = add_4(t, first + 4);
    return add_planes(&t->fours, &a, &b);
}

/* Adds a unit to the levels of weight 1 to 8; *carry is the carry to weight 16. */
static AB_FORCE_INLINE void add_16(planes *tree, planes *carry, const exponents *of, const unit *from,
                                   int pair, bool few) {
    adder t = {tree[0], tree[1], tree[2], tree[3], *of, *from, pair, few};
    planes a = add_8(&t, 0), b = add_8(&t, 8);
    *carry = add_planes(&t.eights, &a, &b);
    tree[0] = t.ones;
    tree[1] = t.twos;
    tree[2] = t.fours;
    tree[3] = t.eights;
}

typedef void add_function(planes *tree, planes *carry, const exponents *of, const unit *from);

static AB_NOINLINE void add_first(planes *tree, planes *carry, const exponents *of, const unit *from) {
    add_16(tree, carry, of, from, 0, true);
}

static AB_NOINLINE void add_second(planes *tree, planes *carry, const exponents *of, const unit *from) {
    add_16(tree, carry, of, from, 1, true);
}

static AB_NOINLINE void add_first_of_many(planes *tree, planes *carry, const exponents *of,
                                          const unit *from) {
    add_16(tree, carry, of, from, 0, false);
}

static AB_NOINLINE void add_second_of_many(planes *tree, planes *carry, const exponents *of,
                                           const unit *from) {
    add_16(tree, carry, of, from, 1, false);
}

static void count_planes(uint64_t count[2][8], const planes *p, unsigned weight) {
    bytes_count_bits(count[0], p->more, weight);
    bytes_count_bits(count[1], p->less, weight);
}

/* Adds a block's planes of weight 2^LEVELS to the top levels, and counts the carries out of them. */
static AB_FORCE_INLINE void add_block(state *s, int group, int pair, planes carry) {
    planes *tree = s->tree[group][pair] + LEVELS, *waiting = s->waiting[group][pair];
    for (int top = 0; top < TOPS; top++) {
        if ((s->held >> top & 1U) == 0) {
            waiting[top] = carry;
            return;
        }
        carry = add_planes(&tree[top], &waiting[top], &carry);
    }
    count_planes(&s->count[group][2 * pair], &carry, 1U << (LEVELS + TOPS));
}

/* Adds a block's units from weight 16 upwards. */
static AB_NOINLINE void add_sixteens(state *s, int group, int pair) {
    planes *tree = s->tree[group][pair];
    planes *part = s->sixteens[group][pair];
    int level = UNIT_LEVELS;
    for (int n = TILES * UNITS; n > 1; n /= 2, level++)
        for (int i = 0; i < n / 2; i++) part[i] = add_planes(&tree[level], &part[2 * i], &part[2 * i + 1]);
    add_block(s, group, pair, part[0]);
}

/* ---- the window ------------------------------------------------------------------------------ */

static void clear_trees(state *s) {
    for (int g = 0; g < s->groups; g++) {
        memset(s->tree[g], 0, sizeof s->tree[g]);
        memset(s->count[g], 0, sizeof s->count[g]);
    }
    s->held = 0;
}

/* Moves the counts of the planes to the census. */
static void flush_trees(state *s) {
    for (int g = 0; g < s->groups; g++) {
        for (int pair = 0; pair < PAIRS; pair++) {
            for (int level = 0; level < LEVELS + TOPS; level++)
                count_planes(&s->count[g][2 * pair], &s->tree[g][pair][level], 1U << level);
            for (int top = 0; top < TOPS; top++)
                if (s->held >> top & 1U)
                    count_planes(&s->count[g][2 * pair], &s->waiting[g][pair][top], 1U << (LEVELS + top));
        }
        for (int b = 0; b < 8; b++) {
            int64_t *bin = s->census->bin[s->base + 8 * g + b + ROW_OF_FIELD];
            int64_t from[4];
            for (int c = 0; c < 4; c++) from[c] = (int64_t)s->count[g][c][b];
            bin[1] += from[0] - from[1];
            bin[2] += from[1] - from[2];
            bin[3] += from[2] - from[3];
            bin[4] += from[3];
            s->counted += from[0];
        }
    }
}

static void flush_list(state *s) {
    for (int field = FIELD_MIN; field <= FIELD_MAX; field++)
        for (int c = 0; c < AB_CENSUS_COMMON_CLASSES; c++)
            s->census->bin[field + ROW_OF_FIELD][c] += s->listed[field * 8 + c];
    memset(s->listed, 0, sizeof s->listed);
}

/* Chooses the window from every fourth value of this block: a group costs as much time as GROUP_COST
 * values counted one by one. Clears the trees, which must be flushed before. */
static void choose_window(state *s, const float *x) {
    enum { EVERY = 4 };
    int before[FIELD_MAX + 2] = {0}; /* values of common exponents before a field */
    int best = INT32_MAX, low = FIELD_MAX, high = FIELD_MIN;
    for (int i = 0; i < AB_CENSUS_BLOCK; i += EVERY) {
        int field = (int)(magnitude_of(x[i]) >> 23);
        if (field < FIELD_MIN || field > FIELD_MAX) continue;
        before[field + 1]++;
        low = field < low ? field : low;
        high = field > high ? field : high;
    }
    for (int field = FIELD_MIN; field <= FIELD_MAX; field++) before[field + 1] += before[field];
    for (int groups = 1; groups <= GROUPS; groups++) {
        int last = FIELD_MAX + 1 - 8 * groups; /* largest base */
        for (int base = low < last ? low : last; base <= last; base++) {
            int outside = EVERY * (before[FIELD_MAX + 1] - (before[base + 8 * groups] - before[base]));
            if (groups * GROUP_COST + outside < best) {
                best = groups * GROUP_COST + outside;
                s->base = base;
                s->groups = groups;
                s->expected = outside;
            }
            if (base + 8 * groups > high) break;
        }
    }
    clear_trees(s);
}

/* ---- one block ------------------------------------------------------------------------------- */

/* A block as stored. Rarely needed loops over 16-bit values read a widened copy. */
typedef ab_census_values stored_block;

static floats load_stored(const uint16_t *x, ab_stored stored) {
    return stored == AB_STORED_BF16 ? floats_load_bf16(x) : floats_load_fp16(x);
}

static AB_FORCE_INLINE int origin_of(int i, ab_stored stored) {
    return (i & ~(CHUNK - 1)) + (stored == AB_STORED_BF16 ? bytes_origin_of_words(i & (CHUNK - 1))
                                                          : bytes_origin(i & (CHUNK - 1)));
}

/* Gathers the values at n places, zero-padded to a multiple of STEP. */
static AB_FORCE_INLINE void gather(float value[PART], const void *x, ab_stored stored, const uint16_t *place,
                                   int n) {
    uint16_t half[PART];
    for (int i = 0; i < n; i++) {
        int from = origin_of(place[i], stored);
        if (stored == AB_STORED_FP32)
            memcpy(&value[i], (const float *)x + from, sizeof value[i]);
        else
            memcpy(&half[i], (const uint16_t *)x + from, sizeof half[i]);
    }
    if (stored == AB_STORED_FP32) {
        for (int i = n; i % STEP != 0; i++) value[i] = 0.0f;
        return;
    }
    for (int i = n; i % STEP != 0; i++) half[i] = 0;
    for (int i = 0; i < n; i += VEC_FLOATS) floats_store(value + i, load_stored(half + i, stored));
}

/* Counts the values at n places, at most PART, one by one. The compiler vectorises the second loop, which
 * reads the scalar stores of gather(): this stalls store forwarding, so it is done for many values at
 * once. Values of uncommon exponents, and those past n, go to unused counters; the former are then
 * counted separately. */
static AB_FORCE_INLINE void count_places(state *s, const void *x, ab_stored stored, const uint16_t *place,
                                         int n) {
    float value[PART];
    int32_t cell[PART], any = 0;
    gather(value, x, stored, place, n);
    for (int first = 0; first < n; first += STEP) {
        for (int i = first; i < first + STEP; i++) {
            int32_t magnitude = (int32_t)magnitude_of(value[i]);
            any |= outside(magnitude) & (magnitude > 0);
            cell[i] = (magnitude >> 23) * 8 + ab_census_common_class((uint32_t)magnitude & 0x7fffffu);
        }
    }
    for (int i = 0; i < n; i++) s->listed[cell[i]]++;
    for (int i = 0; any != 0 && i < n; i++)
        if (outside((int32_t)magnitude_of(value[i]))) ab_census_count_value(s->census, value[i]);
}

static AB_FORCE_INLINE void count_list(state *s, const void *x, ab_stored stored, int n) {
    for (int i = 0; i < n; i += PART) count_places(s, x, stored, s->list + i, n - i < PART ? n - i : PART);
}

static AB_NOINLINE void count_listed(state *s, const stored_block *from, int n) {
    if (from->stored == AB_STORED_FP32) count_list(s, from->data, AB_STORED_FP32, n);
    if (from->stored == AB_STORED_BF16) count_list(s, from->data, AB_STORED_BF16, n);
    if (from->stored == AB_STORED_FP16) count_list(s, from->data, AB_STORED_FP16, n);
    s->counted += n;
}

static bool is_subnormal(float x) { return ((magnitude_of(x) - 1u) & 0x7fffffffu) < 0x7fffff; }

static void count_if_subnormal(state *s, float x) {
    if (!is_subnormal(x)) return;
    ab_census_count_value(s->census, x);
    s->counted++;
}

/* 2 * bits - 1 drops the sign and is largest for 0. Compilers vectorise the first loop. */
static AB_NOINLINE void count_subnormals(state *s, const float *x) {
    uint32_t least = UINT32_MAX;
    for (int i = 0; i < TILE; i++) {
        uint32_t twice = 0;
        memcpy(&twice, &x[i], sizeof twice);
        twice = 2 * twice - 1;
        least = twice < least ? twice : least;
    }
    for (int i = 0; least < 2 * 0x800000 - 1 && i < TILE; i++) count_if_subnormal(s, x[i]);
}

static AB_NOINLINE void count_bf16_subnormals(state *s, const uint16_t *x) {
    uint16_t least = UINT16_MAX;
    for (int i = 0; i < TILE; i++) {
        uint16_t twice = (uint16_t)(2 * x[i] - 1);
        least = twice < least ? twice : least;
    }
    for (int i = 0; least < 2 * 0x80 - 1 && i < TILE; i++)
        count_if_subnormal(s, float_of((uint32_t)x[i] << 16));
}

/* Packs an fp32 tile as its low halves require, which is mostly the mode of the previous tile. */
static void pack_fp32(state *s, summary *found, const float *x, const window *w, const packed *to) {
    static pack_function *const pack[] = {
        [NONE_ZERO] = pack_none_zero, [SOME_ZERO] = pack_some_zero, [ALL_ZERO] = pack_all_zero};
    summary after;
    pack[s->low](found, &after, x, w, to);
    if ((s->low == NONE_ZERO && words_any_zero(after.half_min)) ||
        (s->low == ALL_ZERO && !words_even_all_zero(after.bits))) {
        s->low = SOME_ZERO;
        pack_some_zero(found, &after, x, w, to);
    }
    if (s->low != NONE_ZERO && bytes_any_at_most(after.field_min, bytes_set8(0)))
        count_subnormals(s, x); /* skipped like zeros */
    if (s->low == NONE_ZERO || !words_any_zero(after.half_min))
        s->low = NONE_ZERO;
    else
        s->low = words_even_all_zero(after.bits) ? ALL_ZERO : SOME_ZERO;
    *found = after;
}

static size_t bytes_of(const stored_block *from, int values) {
    return (size_t)values * (from->stored == AB_STORED_FP32 ? sizeof(float) : sizeof(uint16_t));
}

/* What to prefetch while the tile at value `first` is counted; NULL: nothing. */
static const char *ahead_of(const stored_block *from, int first) {
    return from->ahead == NULL ? NULL : (const char *)from->ahead + bytes_of(from, first);
}

/* The tile that begins at value `first` of a block. */
static void pack_tile(state *s, summary *found, const stored_block *from, const window *w, int first) {
    const void *x = (const char *)from->data + bytes_of(from, first);
    const char *ahead = ahead_of(from, first);
    const packed to = {s->place, s->mantissa, (unsigned char *)s->outside, ahead};
    if (from->stored == AB_STORED_FP32) {
        pack_fp32(s, found, x, w, &to);
    } else if (from->stored == AB_STORED_FP16) {
        pack_fp16(found, found, x, w, &to);
    } else {
        pack_bf16(found, found, x, w, &to);
        if (bytes_any_at_most(found->field_min, bytes_set8(0))) count_bf16_subnormals(s, x);
    }
}

/* Places the list where no load follows its stores at the same page offset: such a load causes a false
 * store dependency (4K aliasing). Tiles begin at x and possibly half a page further; packed ones at
 * s->place and s->mantissa, a quarter page apart. */
static void place_list(state *s, const void *x) {
    enum { HALF = PAGE / 2, QUARTER = PAGE / 4, NEAR = 320 };
    uintptr_t room = (uintptr_t)s->list_room, at = ((uintptr_t)x + QUARTER - room) % PAGE;
    uintptr_t past = (room + at + NEAR - (uintptr_t)s->place) % PAGE;
    bool collides = past < HALF && past % QUARTER < 2 * NEAR;
    s->list = s->list_room + (at + (collides ? HALF : 0)) % PAGE / sizeof *s->list;
}

/* Lists the values of a tile that are outside; returns the new length of the list. */
static AB_NOINLINE int list_tile(state *s, int listed, int first) {
    for (int i = 0; i < TILE / 64; i++) listed += bytes_list(s->list + listed, s->outside[i], first + 64 * i);
    return listed;
}

/* The values of a block in fp32: in place, or widened into `wide`. */
static const float *floats_of(float wide[AB_CENSUS_BLOCK], const stored_block *from) {
    if (from->stored == AB_STORED_FP32) return from->data;
    for (int i = 0; i < AB_CENSUS_BLOCK; i += VEC_FLOATS)
        floats_store(wide + i, load_stored((const uint16_t *)from->data + i, from->stored));
    return wide;
}

static AB_NOINLINE void block_squares_in_double(state *s, const stored_block *from) {
    float wide[AB_CENSUS_BLOCK];
    add_squares_in_double(s->census, floats_of(wide, from), AB_CENSUS_BLOCK);
}

static AB_NOINLINE void block_extremes(state *s, const stored_block *from) {
    float wide[AB_CENSUS_BLOCK];
    note_extremes(s->census, floats_of(wide, from), AB_CENSUS_BLOCK);
}

static AB_NOINLINE void block_window(state *s, const stored_block *from) {
    float wide[AB_CENSUS_BLOCK];
    choose_window(s, floats_of(wide, from));
}

/* The sum lane of element i of vector v (pack_chunk_of_bf16). */
static int lane_of_bf16(int v, int i) { return v / 2 * 2 * VEC_FLOATS + 2 * i + v % 2; }

static double sum_of_lanes(const summary *found, ab_stored stored) {
    float part[VEC_FLOATS], lane[AB_CENSUS_LANES];
    for (int v = 0; v < SUMS; v++) {
        floats_store(part, found->lane[v]);
        for (int i = 0; i < VEC_FLOATS; i++)
            lane[stored == AB_STORED_BF16 ? lane_of_bf16(v, i) : v * VEC_FLOATS + i] = part[i];
    }
    return sum_of_float_lanes(lane);
}

/* Sum of squares and extremes: mostly known from packing, else from another pass over the block. */
static void finish_block(state *s, const stored_block *from, const summary *found, bool subnormals) {
    ab_census *census = s->census;
    bool large = words_any_at_least(found->word_max, bytes_set16((128 + AB_CENSUS_SQUARE_MAX) << 8));
    bool small = bytes_any_at_most(found->exponent_min, bytes_set8(127 + AB_CENSUS_SQUARE_MIN - 2));
    if (large || small || subnormals)
        block_squares_in_double(s, from);
    else
        census->sum_squares += sum_of_lanes(found, from->stored);
    uint32_t max = magnitude_of(census->max_abs), min = magnitude_of(census->min_abs);
    int more =
        (int)(max >> 16 << 1) + (max == 0 || from->stored == AB_STORED_BF16); /* words that may be larger */
    int less = min > 0 ? (int)((min - 1) >> 23) : 0; /* exponent field of the next smaller; 0: unknown */
    bool new_max = words_any_at_least(found->word_max, bytes_set16(more));
    bool new_min = less > 0 && bytes_any_at_most(found->exponent_min, bytes_set8(less - 1));
    if (new_max || new_min || subnormals) block_extremes(s, from);
}

static summary empty_summary(void) {
    summary found;
    for (int i = 0; i < AB_CENSUS_LANES / VEC_FLOATS; i++) found.lane[i] = floats_zero();
    found.word_max = found.bits = bytes_set8(0);
    found.exponent_min = found.half_min = found.field_min = bytes_set8(0xff);
    return found;
}

static void renew_window(state *s, const stored_block *from, int listed) {
    if (s->age++ < (listed > 2 * s->expected + SLACK ? MIN_AGE : MAX_AGE)) return;
    flush_trees(s);
    block_window(s, from);
    s->age = 0;
}

/* What adding a tile prefetches: the lines that packing left. */
static lines_ahead lines_for_adding(const state *s, const stored_block *from, int tile) {
    const int packing = packing_lines(from->stored), lines = (int)bytes_of(from, TILE) / LINE - packing;
    const char *ahead = ahead_of(from, tile * TILE);
    return (lines_ahead){ahead && lines > 0 ? ahead + packing * LINE : NULL, lines, UNITS * s->groups * PAIRS,
                         0};
}

/* Adds a tile's values to all groups. */
static void add_tile(state *s, const stored_block *from, int tile, const exponents of[GROUPS]) {
    const bool few = s->groups <= 2;
    add_function *const add[PAIRS] = {few ? add_first : add_first_of_many,
                                      few ? add_second : add_second_of_many};
    lines_ahead ahead = lines_for_adding(s, from, tile);
    for (int u = 0; u < UNITS; u++) {
        unit added = {s->place + u * 16, s->mantissa + u * 16};
        for (int g = 0; g < s->groups; g++)
            for (int pair = 0; pair < PAIRS; pair++) {
                prefetch_due(&ahead);
                add[pair](s->tree[g][pair], &s->sixteens[g][pair][tile * UNITS + u], &of[g], &added);
            }
    }
}

static void block(void *memory, const ab_census_values *from) {
    state *s = memory;
    int64_t subnormal = s->census->subnormal;
    summary found = empty_summary();
    int listed = 0;
    place_list(s, from->data);
    if (s->groups == 0) block_window(s, from);
    const window w = window_of(s->base, s->groups);
    exponents of[GROUPS];
    for (int g = 0; g < s->groups; g++) of[g] = exponents_of(g, s->groups, from->stored);
    for (int t = 0; t < TILES; t++) {
        pack_tile(s, &found, from, &w, t * TILE);
        listed = list_tile(s, listed, t * TILE);
        add_tile(s, from, t, of);
    }
    for (int g = 0; g < s->groups; g++)
        for (int pair = 0; pair < PAIRS; pair++) add_sixteens(s, g, pair);
    s->held++;
    count_listed(s, from, listed);
    finish_block(s, from, &found, s->census->subnormal != subnormal);
    s->values += AB_CENSUS_BLOCK;
    if (++s->blocks % FLUSH_BLOCKS == 0) flush_list(s);
    renew_window(s, from, listed);
}

static void begin(void *memory, ab_census *census) {
    state *s = memory;
    memset(s->listed, 0, sizeof s->listed);
    s->census = census;
    s->values = s->counted = s->blocks = 0;
    s->held = 0;
    s->base = s->groups = s->expected = s->age = 0;
    s->low = NONE_ZERO;
}

static void end(void *memory) {
    state *s = memory;
    flush_trees(s);
    flush_list(s);
    s->census->count += s->values;
    s->census->zero += s->values - s->counted;
}

#else /* plain C */

enum { TAKES_HALVES = false, DISTANCE = 0, DISTANCE_HALVES = 0 };
enum { KEYS = 4096 }; /* exponent field << 4 | top four mantissa bits */

typedef struct state {
    ab_census *census;
    int64_t values, counted; /* counted: all but zeros */
    uint32_t count[2][KEYS];
} state;

_Static_assert(sizeof(state) <= AB_CENSUS_STATE, "AB_CENSUS_STATE");

/* The class by the top four mantissa bits. */
static int class_of_key(int key) {
    static const uint8_t by_nibble[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4, 4};
    return by_nibble[key % 16];
}

/* Work for a value beyond the histogram. */
enum { SINGLE = 1, IN_DOUBLE = 2, NEW_EXTREME = 4 };

/* SINGLE: it is not zero, and of an uncommon exponent, or its mantissa is 1, 1.8125, or
 * AB_CENSUS_FP16_CARRY or above, which four bits do not distinguish. IN_DOUBLE, NEW_EXTREME: as in
 * add_squares and note_extremes, with the extremes so far. */
static int32_t needs_of(int32_t magnitude, int32_t least, int32_t most) {
    const int32_t top = 0x800000 - AB_CENSUS_FP16_CARRY, m = magnitude & 0x7fffff;
    int32_t single = outside(magnitude) | (((m + top) & 0x7fffff) <= top) | (m == 0x680000);
    int32_t extreme = (magnitude < least) | (magnitude > most);
    return (magnitude > 0) *
           (single * SINGLE + squares_in_double(magnitude) * IN_DOUBLE + extreme * NEW_EXTREME);
}

/* Counts the SINGLE ones; those of common exponents are in the histogram, where their first four bits put
 * them. */
static void count_singles(state *s, const float *x, int n) {
    for (int i = 0; i < n; i++) {
        int32_t magnitude = (int32_t)magnitude_of(x[i]);
        if (!(needs_of(magnitude, 0, INF) & SINGLE)) continue;
        ab_census_count_value(s->census, x[i]);
        s->counted++;
        if (outside(magnitude)) continue;
        s->census->bin[(magnitude >> 23) + ROW_OF_FIELD][class_of_key(magnitude >> 19)]--;
        s->counted--;
    }
}

static void flush(state *s) {
    for (int key = FIELD_MIN * 16; key < (FIELD_MAX + 1) * 16; key++) {
        int64_t n = (int64_t)s->count[0][key] + s->count[1][key];
        s->census->bin[key / 16 + ROW_OF_FIELD][class_of_key(key)] += n;
        s->counted += n;
    }
    memset(s->count, 0, sizeof s->count);
}

/* No software prefetch: slow enough for the hardware prefetcher. */
static void block(void *memory, const ab_census_values *values) {
    enum { PART = 32 };
    state *s = memory;
    const float *x = values->data;
    int32_t least = (int32_t)magnitude_of(s->census->min_abs),
            most = (int32_t)magnitude_of(s->census->max_abs);
    int32_t all = 0;
    for (int i = 0; i < AB_CENSUS_BLOCK; i += 2) {
        s->count[0][magnitude_of(x[i]) >> 19]++;
        s->count[1][magnitude_of(x[i + 1]) >> 19]++;
    }
    for (int i = 0; i < AB_CENSUS_BLOCK; i += PART) {
        int32_t needs = 0;
        for (int j = 0; j < PART; j++) needs |= needs_of((int32_t)magnitude_of(x[i + j]), least, most);
        if (needs & SINGLE) count_singles(s, x + i, PART);
        all |= needs;
    }
    if (all & IN_DOUBLE)
        add_squares_in_double(s->census, x, AB_CENSUS_BLOCK);
    else
        add_squares_in_float(s->census, x, AB_CENSUS_BLOCK);
    if (all & NEW_EXTREME) note_extremes(s->census, x, AB_CENSUS_BLOCK);
    s->values += AB_CENSUS_BLOCK;
    if (s->values % (INT64_C(1) << 31) == 0) flush(s); /* 32-bit counters */
}

static void begin(void *memory, ab_census *census) {
    state *s = memory;
    memset(s, 0, sizeof *s);
    s->census = census;
}

static void end(void *memory) {
    state *s = memory;
    flush(s);
    s->census->count += s->values;
    s->census->zero += s->values - s->counted;
}

#endif

AB_ISA_TABLE(ab_vec_census) = {
    TAKES_HALVES, {DISTANCE, DISTANCE_HALVES, DISTANCE_HALVES}, begin, block, end, note_extremes,
    add_squares};
