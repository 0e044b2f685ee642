/* Counting loops of the census, compiled once per CPU level (AB_ISA_SUFFIX); exports one table. Every level counts the
 * same, value by value, as ab_census_count_value.
 *
 * AVX2 and AVX-512. Most values of a tensor lie in a window of a few times 8 exponents and in four mantissa classes that
 * the top seven mantissa bits tell apart. Those are counted without a histogram in memory:
 *   - the exponents and mantissas of a chunk (one vector's worth of bytes) are packed into one index byte per value,
 *     class << 6 | (exponent - base);
 *   - per group of 8 exponents a table look-up turns the index into one bit, a position in a byte, per exponent; masked by
 *     the class this gives four bit planes;
 *   - bit planes are added with full adders, so that only one plane in 32 or 64 has to be counted bit by bit
 *     (positional population count, Harley-Seal adder).
 * The others (exponents outside the window, mantissas near 2, and the ties 1 and 1.8125) are listed and counted one by one.
 * That an array has such ties at all shows in the low half of a value being 0; a tile of values without any is packed
 * without looking for ties.
 *
 * Plain C: one histogram by exponent and top four mantissa bits, in two copies so that equal neighbours do not wait for
 * each other; values whose class those bits do not decide are counted one by one. */
#include "kernels/vec_census.h"

#include <stdbool.h>
#include <string.h>

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)

static uint32_t magnitude_of(float x) {
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

/* Exponent fields of the rows with few mantissa classes. */
enum {
    FIELD_MIN = 127 + AB_CENSUS_COMMON_MIN,
    FIELD_MAX = 127 + AB_CENSUS_COMMON_MAX,
    ROW_OF_FIELD = -127 - AB_CENSUS_EMIN /* row = exponent field + this */
};

#if defined(__AVX2__) || defined(__AVX512BW__)

#include "kernels/vec_bytes.h"

enum {
    CHUNK = VEC_BYTES, /* values */
    TILE_CHUNKS = 16,
    TILE = TILE_CHUNKS * CHUNK,
    TILES = AB_CENSUS_BLOCK / TILE,
    TILE_LEVELS = 4, /* of adders within a tile, weights 1, 2, 4, 8 */
    LEVELS = TILES == 2 ? 5 : 6,
    GROUPS = 7, /* at most, of 8 exponents */
    OUTSIDE = 61, /* index of exponents outside the window, at most: 8 * GROUPS <= OUTSIDE */
    ZERO = 62,
    SINGLE = 63, /* to be counted one by one */
    GROUP_COST = VEC_BYTES == 64 ? 24 : 48, /* of a block, in values counted one by one */
    CELLS = 2048, /* of mantissas, for listed values */
    UNDECIDED = 255,
    FLUSH_BLOCKS = 1 << 20, /* 32-bit counters hold that many */
    MIN_AGE = 8,            /* of a window before it is given up for another, in blocks, */
    MAX_AGE = 256,          /* and after which it is chosen anew in any case */
    SLACK = 64
};

/* One bit per value and exponent of a group: all values, those with bit 7, bit 6, and both bits of the index set. */
typedef struct planes {
    bytes all, upper, lower, both;
} planes;

/* What one pass over a block finds besides counts. */
typedef struct summary {
    floats lane[AB_CENSUS_LANES / VEC_FLOATS]; /* sums of squares */
    bytes word_max;     /* of exponent << 8 | mantissa >> 16 << 1 */
    bytes exponent_min; /* of exponent field - 1, so that 0 counts as 255 */
    bytes half_min;     /* of the 16-bit halves of the values of the last tile */
    bytes field_min;    /* exponent fields of tiles packed with ties looked for; else unchanged */
} summary;

typedef struct state {
    planes tree[GROUPS][LEVELS];
    planes sixteens[GROUPS][TILES];
    ab_census *census;
    int64_t values, counted; /* of blocks so far; counted: all but zeros */
    int base, groups;        /* the window: exponent fields base .. base + 8 * groups - 1 */
    int expected, age;       /* values outside in the block the window was chosen for; blocks since */
    int64_t blocks;
    bool ties;
    uint64_t count[GROUPS][4][8];
    uint32_t listed[256][8]; /* by exponent field and class */
    uint8_t class_of[CELLS], origin[VEC_BYTES];
    uint8_t index[TILE];
    uint16_t list[AB_CENSUS_BLOCK + 8];
} state;

_Static_assert(sizeof(state) <= AB_CENSUS_STATE, "AB_CENSUS_STATE");

/* ---- packing ----------------------------------------------------------------------------------------------- */

/* Class of the top seven mantissa bits << 6: below 1.75, to 1.8125, to 1.875, above. Where those bits do not decide, that
 * is next to 2 and, with `ties`, at 1 and 1.8125, all low bits are set (SINGLE). */
#if defined(__AVX512VBMI__)
static AB_FORCE_INLINE bytes class_codes(bytes mantissa, bool ties) {
    const bytes low = _mm512_zextsi128_si512(_mm_cvtsi32_si128(ties ? SINGLE : 0));
    const bytes high = _mm512_set_epi64((long long)0xffc0c0c0c0c0c0c0, (long long)0xc0c0c0c0c0c0c0c0,
                                        ties ? (long long)0x80808080808080bf : (long long)0x8080808080808080,
                                        0x4040404040404040, 0, 0, 0, 0);
    return _mm512_permutex2var_epi8(low, mantissa, high);
}
#else
static AB_FORCE_INLINE bytes class_codes(bytes mantissa, bool ties) {
    static const uint8_t by_nibble[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x80, 0xc0, 0xc0};
    const bytes single = bytes_set8(SINGLE);
#if defined(__AVX512BW__)
    const bytes table = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)by_nibble));
    bytes nibble = _mm512_and_si512(_mm512_srli_epi16(mantissa, 3), bytes_set8(15));
    bytes code = _mm512_shuffle_epi8(table, nibble);
#else
    const bytes table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)by_nibble));
    bytes nibble = _mm256_and_si256(_mm256_srli_epi16(mantissa, 3), bytes_set8(15));
    bytes code = _mm256_shuffle_epi8(table, nibble);
#endif
    code = bytes_set_where_equal(code, mantissa, bytes_set8(0x7f), single);
    if (!ties) return code;
    code = bytes_set_where_equal(code, mantissa, bytes_set8(0), single);
    return bytes_set_where_equal(code, mantissa, bytes_set8(0x68), single);
}
#endif

static AB_FORCE_INLINE void pack_chunk(summary *s, const float *x, bytes base, bool ties, uint8_t *index) {
    enum { SUMS = AB_CENSUS_LANES / VEC_FLOATS };
    floats a = floats_load(x), b = floats_load(x + VEC_FLOATS);
    floats c = floats_load(x + 2 * VEC_FLOATS), d = floats_load(x + 3 * VEC_FLOATS);
    s->lane[0] = floats_add_square(s->lane[0], a);
    s->lane[1] = floats_add_square(s->lane[1], b);
    s->lane[2 % SUMS] = floats_add_square(s->lane[2 % SUMS], c);
    s->lane[3 % SUMS] = floats_add_square(s->lane[3 % SUMS], d);
    bytes ab = bytes_min16(floats_bits(a), floats_bits(b)), cd = bytes_min16(floats_bits(c), floats_bits(d));
    s->half_min = bytes_min16(s->half_min, bytes_min16(ab, cd));
    bytes first = bytes_high_words(floats_bits(a), floats_bits(b));
    bytes second = bytes_high_words(floats_bits(c), floats_bits(d));
    bytes mantissa = bytes_pack_low(first, second);
    first = bytes_add16(first, first); /* the sign goes, the exponent fills the upper byte */
    second = bytes_add16(second, second);
    s->word_max = bytes_max16(s->word_max, bytes_max16(first, second));
    bytes exponent = bytes_pack_high(first, second);
    s->exponent_min = bytes_min8(s->exponent_min, bytes_sub8(exponent, bytes_set8(1)));
    bytes place = bytes_min8(bytes_sub8(exponent, base), bytes_set8(OUTSIDE));
    bytes code = bytes_or(place, class_codes(mantissa, ties));
    if (ties) {
        s->field_min = bytes_min8(s->field_min, exponent);
        code = bytes_set_where_equal(code, exponent, bytes_set8(0), bytes_set8(ZERO));
    }
    bytes_store(index, code);
}

/* One tile. `after` may not be `before`: a tile may have to be packed twice. */
static AB_FORCE_INLINE void pack_chunks(const summary *before, summary *after, const float *x, int base, bool ties,
                               uint8_t *index) {
    const bytes window = bytes_set8(base);
    summary s = *before;
    s.half_min = bytes_set8(0xff);
    for (int i = 0; i < TILE; i += CHUNK) pack_chunk(&s, x + i, window, ties, index + i);
    *after = s;
}

static AB_NOINLINE void pack_plain_tile(const summary *before, summary *after, const float *x, int base, uint8_t *index) {
    pack_chunks(before, after, x, base, false, index);
}

static AB_NOINLINE void pack_tile_with_ties(const summary *before, summary *after, const float *x, int base, uint8_t *index) {
    pack_chunks(before, after, x, base, true, index);
}

/* Whether any value had 16 low (or high) bits of 0. */
static bool any_half_zero(bytes half_min) {
    uint64_t zero = bytes_mask_equal(half_min, bytes_set8(0));
    return (zero & zero >> 1 & UINT64_C(0x5555555555555555)) != 0;
}

/* ---- adding bit planes ------------------------------------------------------------------------------------- */

static AB_FORCE_INLINE planes planes_of(bytes index, const one_hot *group) {
    planes p;
    p.all = one_hot_of(group, index);
    p.upper = bytes_keep(p.all, index);
    p.lower = bytes_keep(p.all, bytes_add8(index, index));
    p.both = bytes_and(p.upper, p.lower);
    return p;
}

/* *sum = a + b + *sum without carries; returns the carries. */
static AB_FORCE_INLINE planes add_planes(planes *sum, const planes *a, const planes *b) {
    planes carry = {bytes_carry(a->all, b->all, sum->all), bytes_carry(a->upper, b->upper, sum->upper),
                    bytes_carry(a->lower, b->lower, sum->lower), bytes_carry(a->both, b->both, sum->both)};
    sum->all = bytes_sum(a->all, b->all, sum->all);
    sum->upper = bytes_sum(a->upper, b->upper, sum->upper);
    sum->lower = bytes_sum(a->lower, b->lower, sum->lower);
    sum->both = bytes_sum(a->both, b->both, sum->both);
    return carry;
}

/* Places, within a block, of the values to be counted one by one. */
typedef struct listing {
    uint16_t *place;
    int length;
    int limit; /* smallest index outside the window */
} listing;

/* Three places are stored always, which is cheaper than a branch nobody can predict: few chunks have more. */
static AB_FORCE_INLINE void list_outside(listing *list, bytes index, int first) {
    const uint64_t top = UINT64_C(1) << 63; /* for counting zeros of 0 */
    bytes place = bytes_and(index, bytes_set8(0x3f));
    uint64_t mask = bytes_mask_at_least(place, bytes_set8(list->limit)) & ~bytes_mask_equal(place, bytes_set8(ZERO));
    uint16_t *to = list->place + list->length;
    int n = (int)_mm_popcnt_u64(mask);
    for (int i = 0; i < 3; i++, mask &= mask - 1) to[i] = (uint16_t)(first + __builtin_ctzll(mask | top));
    for (int i = 3; i < n; i++, mask &= mask - 1) to[i] = (uint16_t)(first + __builtin_ctzll(mask));
    list->length += n;
}

/* Adds four chunks to the two lowest levels; returns what goes to the level of weight 4. `list` may be NULL. */
static AB_FORCE_INLINE planes add_four(planes *tree, const uint8_t *index, const one_hot *group, listing *list, int first) {
    planes carry[2];
    for (int i = 0; i < 2; i++) {
        bytes even = bytes_load(index + 2 * i * CHUNK), odd = bytes_load(index + (2 * i + 1) * CHUNK);
        planes a = planes_of(even, group), b = planes_of(odd, group);
        carry[i] = add_planes(&tree[0], &a, &b);
        if (list != NULL) {
            list_outside(list, even, first + 2 * i * CHUNK);
            list_outside(list, odd, first + (2 * i + 1) * CHUNK);
        }
    }
    return add_planes(&tree[1], &carry[0], &carry[1]);
}

/* Adds a tile to the levels of weight 1 to 8; returns what goes to weight 16. */
static AB_FORCE_INLINE planes add_tile(planes tree[LEVELS], const uint8_t *index, int start, listing *list, int first) {
    const one_hot group = one_hot_from(start);
    planes low[2] = {tree[0], tree[1]};
    planes four[4], eight[2];
    for (int i = 0; i < 4; i++) four[i] = add_four(low, index + 4 * i * CHUNK, &group, list, first + 4 * i * CHUNK);
    tree[0] = low[0];
    tree[1] = low[1];
    eight[0] = add_planes(&tree[2], &four[0], &four[1]);
    eight[1] = add_planes(&tree[2], &four[2], &four[3]);
    return add_planes(&tree[3], &eight[0], &eight[1]);
}

static AB_NOINLINE planes add_tile_and_list(planes tree[LEVELS], const uint8_t *index, listing *list, int first) {
    return add_tile(tree, index, 0, list, first);
}

static AB_NOINLINE planes add_tile_only(planes tree[LEVELS], const uint8_t *index, int start) {
    return add_tile(tree, index, start, NULL, 0);
}

static void count_planes(uint64_t count[4][8], const planes *p, unsigned weight) {
    bytes_count_bits(count[0], p->all, weight);
    bytes_count_bits(count[1], p->upper, weight);
    bytes_count_bits(count[2], p->lower, weight);
    bytes_count_bits(count[3], p->both, weight);
}

/* Adds a block's tiles from weight 16 upwards and counts what leaves the top. */
static AB_NOINLINE void add_sixteens(state *s, int group) {
    planes *tree = s->tree[group];
    planes *part = s->sixteens[group];
    int level = TILE_LEVELS;
    for (int n = TILES; n > 1; n /= 2, level++)
        for (int i = 0; i < n / 2; i++) part[i] = add_planes(&tree[level], &part[2 * i], &part[2 * i + 1]);
    count_planes(s->count[group], &part[0], 1U << level);
}

/* ---- the window -------------------------------------------------------------------------------------------- */

static void clear_trees(state *s) {
    memset(s->tree, 0, sizeof s->tree);
    memset(s->count, 0, sizeof s->count);
}

/* Moves the counts of the planes to the census. */
static void flush_trees(state *s) {
    for (int g = 0; g < s->groups; g++) {
        for (int level = 0; level < LEVELS; level++) count_planes(s->count[g], &s->tree[g][level], 1U << level);
        for (int b = 0; b < 8; b++) {
            int64_t *bin = s->census->bin[s->base + 8 * g + b + ROW_OF_FIELD];
            int64_t all = (int64_t)s->count[g][0][b], upper = (int64_t)s->count[g][1][b];
            int64_t lower = (int64_t)s->count[g][2][b], both = (int64_t)s->count[g][3][b];
            bin[1] += all - upper - lower + both;
            bin[2] += lower - both;
            bin[3] += upper - both;
            bin[4] += both;
            s->counted += all;
        }
    }
    clear_trees(s);
}

static void flush_list(state *s) {
    for (int field = FIELD_MIN; field <= FIELD_MAX; field++)
        for (int c = 0; c < AB_CENSUS_COMMON_CLASSES; c++)
            s->census->bin[field + ROW_OF_FIELD][c] += s->listed[field][c];
    memset(s->listed, 0, sizeof s->listed);
}

/* Chooses the window for data like this block: a group costs as much time as GROUP_COST values counted one by one. */
static void choose_window(state *s, const float *x) {
    int before[FIELD_MAX + 2] = {0}; /* values of common exponents before a field */
    int best = INT32_MAX;
    for (int i = 0; i < AB_CENSUS_BLOCK; i++) {
        uint32_t field = magnitude_of(x[i]) >> 23;
        if (field >= FIELD_MIN && field <= FIELD_MAX) before[field + 1]++;
    }
    for (int field = FIELD_MIN; field <= FIELD_MAX; field++) before[field + 1] += before[field];
    for (int groups = 1; groups <= GROUPS; groups++) {
        for (int base = FIELD_MIN; base + 8 * groups <= FIELD_MAX + 1; base++) {
            int outside = before[FIELD_MAX + 1] - (before[base + 8 * groups] - before[base]);
            if (groups * GROUP_COST + outside >= best) continue;
            best = groups * GROUP_COST + outside;
            s->base = base;
            s->groups = groups;
            s->expected = outside;
        }
    }
}

/* ---- one block --------------------------------------------------------------------------------------------- */

/* Counts value by value. Those of common exponents go through a table by the top 11 mantissa bits. */
static AB_NOINLINE void count_listed(state *s, const float *x, int n) {
    for (int i = 0; i < n; i++) {
        int place = (s->list[i] & ~(CHUNK - 1)) | s->origin[s->list[i] & (CHUNK - 1)];
        uint32_t magnitude = magnitude_of(x[place]), field = magnitude >> 23;
        uint8_t class = s->class_of[magnitude >> 12 & (CELLS - 1)];
        if (class == UNDECIDED || field - FIELD_MIN > FIELD_MAX - FIELD_MIN)
            ab_census_count_value(s->census, x[place]);
        else
            s->listed[field][class]++;
    }
    s->counted += n;
}

static void count_subnormals(state *s, const float *x) {
    for (int i = 0; i < TILE; i++) {
        if (magnitude_of(x[i]) - 1U >= 0x7fffffU) continue;
        ab_census_count_value(s->census, x[i]);
        s->counted++;
    }
}

static unsigned max_of_words(bytes v) {
    uint16_t word[VEC_BYTES / 2];
    unsigned max = 0;
    bytes_store(word, v);
    for (int i = 0; i < VEC_BYTES / 2; i++) max = word[i] > max ? word[i] : max;
    return max;
}

static unsigned min_of_bytes(bytes v) {
    uint8_t byte[VEC_BYTES];
    unsigned min = 255;
    bytes_store(byte, v);
    for (int i = 0; i < VEC_BYTES; i++) min = byte[i] < min ? byte[i] : min;
    return min;
}

/* Packs the tile, with ties looked for if it may have some. */
static void pack_tile(state *s, summary *found, const float *x) {
    summary after;
    if (!s->ties) {
        pack_plain_tile(found, &after, x, s->base, s->index);
        s->ties = any_half_zero(after.half_min);
    }
    if (s->ties) {
        pack_tile_with_ties(found, &after, x, s->base, s->index);
        s->ties = any_half_zero(after.half_min);
    }
    *found = after;
}

/* Sum of squares and extremes: mostly known from packing, else from one more look at the block. */
static void finish_block(state *s, const float *x, const summary *found, bool subnormals) {
    ab_census *census = s->census;
    unsigned word = max_of_words(found->word_max), least = min_of_bytes(found->exponent_min) + 1, most = word >> 8;
    bool plain = !subnormals && most <= 127 + AB_CENSUS_SQUARE_MAX && least >= 127 + AB_CENSUS_SQUARE_MIN;
    if (plain) {
        float lane[AB_CENSUS_LANES];
        for (int i = 0; i < AB_CENSUS_LANES / VEC_FLOATS; i++) floats_store(lane + i * VEC_FLOATS, found->lane[i]);
        census->sum_squares += ab_census_lane_sum(lane);
    } else {
        census->sum_squares += ab_census_block_squares(x, AB_CENSUS_BLOCK);
    }
    bool new_max = word != 0 && word >= magnitude_of(census->max_abs) >> 16 << 1;
    bool new_min = least <= magnitude_of(census->min_abs) >> 23;
    if (subnormals || most == 255 || new_max || new_min) ab_census_note_extremes(census, x, AB_CENSUS_BLOCK);
}

static summary empty_summary(void) {
    summary found;
    for (int i = 0; i < AB_CENSUS_LANES / VEC_FLOATS; i++) found.lane[i] = floats_zero();
    found.word_max = bytes_set8(0);
    found.exponent_min = found.half_min = found.field_min = bytes_set8(0xff);
    return found;
}

static void renew_window(state *s, const float *x, int listed) {
    if (s->age++ < (listed > 2 * s->expected + SLACK ? MIN_AGE : MAX_AGE)) return;
    flush_trees(s);
    choose_window(s, x);
    s->age = 0;
}

static void block(void *memory, const float *x) {
    state *s = memory;
    int64_t subnormal = s->census->subnormal;
    summary found = empty_summary();
    if (s->groups == 0) choose_window(s, x);
    listing list = {s->list, 0, 8 * s->groups};
    for (int t = 0; t < TILES; t++) {
        found.field_min = bytes_set8(0xff);
        pack_tile(s, &found, x + t * TILE);
        if (min_of_bytes(found.field_min) == 0) count_subnormals(s, x + t * TILE);
        s->sixteens[0][t] = add_tile_and_list(s->tree[0], s->index, &list, t * TILE);
        for (int g = 1; g < s->groups; g++) s->sixteens[g][t] = add_tile_only(s->tree[g], s->index, 8 * g);
    }
    for (int g = 0; g < s->groups; g++) add_sixteens(s, g);
    count_listed(s, x, list.length);
    finish_block(s, x, &found, s->census->subnormal != subnormal);
    s->values += AB_CENSUS_BLOCK;
    if (++s->blocks % FLUSH_BLOCKS == 0) flush_list(s);
    renew_window(s, x, list.length);
}

/* Classes by the top 11 mantissa bits; the cells of the ties 1 and 1.8125 have two. */
static void fill_classes(uint8_t class_of[CELLS]) {
    static const uint32_t first[AB_CENSUS_COMMON_CLASSES] = {0,
                                                             AB_CENSUS_ABOVE_0,
                                                             AB_CENSUS_E5M2_CARRY,
                                                             AB_CENSUS_ABOVE_E4M3_MAX,
                                                             AB_CENSUS_E4M3_CARRY,
                                                             AB_CENSUS_FP16_CARRY,
                                                             AB_CENSUS_FP16_OVERFLOW};
    for (int c = 0; c < AB_CENSUS_COMMON_CLASSES; c++)
        memset(class_of + (first[c] >> 12), c, CELLS - (first[c] >> 12));
    for (int c = 0; c < AB_CENSUS_COMMON_CLASSES; c++)
        if (first[c] % (1U << 12) != 0) class_of[first[c] >> 12] = UNDECIDED;
}

static void begin(void *memory, ab_census *census) {
    state *s = memory;
    clear_trees(s);
    memset(s->listed, 0, sizeof s->listed);
    s->census = census;
    s->values = s->counted = s->blocks = 0;
    s->base = s->groups = s->expected = s->age = 0;
    s->ties = false;
    for (int i = 0; i < VEC_BYTES; i++) s->origin[i] = (uint8_t)bytes_origin(i);
    fill_classes(s->class_of);
}

static void end(void *memory) {
    state *s = memory;
    flush_trees(s);
    flush_list(s);
    s->census->count += s->values;
    s->census->zero += s->values - s->counted;
}

#else

enum { KEYS = 4096 }; /* exponent field << 4 | top four mantissa bits */

typedef struct state {
    ab_census *census;
    int64_t values, counted; /* counted: all but zeros */
    uint32_t count[2][KEYS];
} state;

_Static_assert(sizeof(state) <= AB_CENSUS_STATE, "AB_CENSUS_STATE");

/* The class that the top four mantissa bits suggest. */
static int class_of_key(int key) {
    static const uint8_t by_nibble[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4, 4};
    return by_nibble[key % 16];
}

static bool outside(uint32_t magnitude) { return (magnitude >> 23) - FIELD_MIN > FIELD_MAX - FIELD_MIN; }

/* Not zero, and of an uncommon exponent or of a mantissa that needs more than four bits: 1, 1.8125, or from
 * AB_CENSUS_FP16_CARRY up. */
static bool undecided(uint32_t magnitude) {
    const uint32_t top = 0x800000u - AB_CENSUS_FP16_CARRY, m = magnitude & 0x7fffffu;
    return (magnitude != 0) & (outside(magnitude) | (((m + top) & 0x7fffffu) <= top) | (m == 0x680000u));
}

static void count_undecided(state *s, const float *x, int n) {
    for (int i = 0; i < n; i++) {
        uint32_t magnitude = magnitude_of(x[i]);
        if (!undecided(magnitude)) continue;
        ab_census_count_value(s->census, x[i]);
        s->counted++;
        if (outside(magnitude)) continue;
        s->census->bin[(magnitude >> 23) + ROW_OF_FIELD][class_of_key((int)(magnitude >> 19))]--;
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

static void block(void *memory, const float *x) {
    enum { PART = 32 };
    state *s = memory;
    for (int i = 0; i < AB_CENSUS_BLOCK; i += 2) {
        s->count[0][magnitude_of(x[i]) >> 19]++;
        s->count[1][magnitude_of(x[i + 1]) >> 19]++;
    }
    for (int i = 0; i < AB_CENSUS_BLOCK; i += PART) {
        bool any = false;
        for (int j = i; j < i + PART; j++) any |= undecided(magnitude_of(x[j]));
        if (any) count_undecided(s, x + i, PART);
    }
    s->census->sum_squares += ab_census_block_squares(x, AB_CENSUS_BLOCK);
    ab_census_note_extremes(s->census, x, AB_CENSUS_BLOCK);
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

extern const ab_vec_census PASTE(ab_vec_census_, AB_ISA_SUFFIX);
const ab_vec_census PASTE(ab_vec_census_, AB_ISA_SUFFIX) = {begin, block, end};
