/* Trajectories made by every dialect, seen whole or only now and then, with skips or scales alone: the true
 * dialect is always among those that fit, and whatever else fits does the same there. */
#include "bench/ingest/dialect/dialect.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 300 };

typedef struct trajectory {
    bool overflow[STEPS];
    double scale[STEPS + 1]; /* before step i */
    int steps;
} trajectory;

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Overflows in a burst at first, then about one in `rare`. */
static void make(const ab_scaler_config *config, uint64_t seed, int rare, trajectory *t) {
    ab_scaler s;
    ab_scaler_start(&s, config);
    t->scale[0] = s.scale;
    for (t->steps = 0; t->steps < STEPS; t->steps++) {
        const int i = t->steps;
        t->overflow[i] = (i < 4 && seed % 2) || next_random(&seed) % (unsigned)rare == 0;
        const ab_scaler_seen seen = {.overflow = t->overflow[i],
                                     .amax = t->overflow[i] ? (double)INFINITY : 1};
        const ab_scaler_outcome outcome = ab_scaler_update(&s, &seen);
        if (outcome.fault && outcome.fault->raises) return;
        t->scale[i + 1] = s.scale;
    }
}

/* What a log shows of it: from step `from` on, every `every` steps, with the number of skips or without. */
static ab_scale_course show(const trajectory *t, int from, int every, bool skips) {
    static ab_scale_span span[STEPS];
    ab_scale_course c = {.first = t->scale[from], .fresh = from == 0, .span = span};
    for (int i = from; i + every <= t->steps; i += every) {
        int64_t skipped = 0;
        for (int k = i; k < i + every; k++) skipped += t->overflow[k];
        const ab_scale_span here = {every, skips ? skipped : -1, t->scale[i + every], 0};
        ab_scale_span *last = c.spans > 1 ? &span[c.spans - 1] : NULL;
        if (last && last->scale == here.scale && span[c.spans - 2].scale == here.scale &&
            last->skipped == here.skipped && here.skipped <= 0)
            last->steps += every;
        else
            span[c.spans++] = here;
    }
    return c;
}

static bool changes(const ab_scale_course *c) {
    for (int i = 0; i < c->spans; i++)
        if (c->span[i].scale != c->first) return true;
    return false;
}

static bool usable(const ab_scaler_kind *kind) {
    return !kind->sees && ab_scaler_key_index(kind, "window") >= 0;
}

/* Runs a fit over the overflows as they were: it must have the same scales. */
static bool does_the_same(const ab_dialect_fit *fit, const trajectory *t) {
    ab_scaler s;
    ab_scaler_start(&s, &fit->config);
    for (int i = 0; i < t->steps; i++) {
        const ab_scaler_seen seen = {.overflow = t->overflow[i],
                                     .amax = t->overflow[i] ? (double)INFINITY : 1};
        if (s.scale != t->scale[i]) return false;
        if (ab_scaler_update(&s, &seen).skip != t->overflow[i]) return false;
    }
    return true;
}

/* Of all trajectories with a change: how many have the true dialect among the fits. */
static void count(int from, int every, bool skips, int *made, int *found, int *other) {
    static const int windows[] = {20, 37}, rares[] = {30, 90};
    ab_dialect_fit fit[AB_DIALECTS];
    static trajectory t;
    for (int k = 0; k < ab_scaler_count(); k++) {
        const ab_scaler_kind *kind = ab_scaler_at(k);
        for (int w = 0; usable(kind) && w < 2; w++) {
            ab_scaler_config config = ab_scaler_defaults(kind);
            config.value[ab_scaler_key_index(kind, "window")] = windows[w];
            for (int r = 0; r < 2; r++) {
                make(&config, (uint64_t)(1000 * k + 10 * w + r), rares[r], &t);
                const ab_scale_course course = show(&t, from, every, skips);
                if (!changes(&course)) continue;
                const int fits = ab_dialects_of(&course, fit);
                bool there = false;
                for (int i = 0; i < fits; i++) {
                    there = there || fit[i].config.kind == kind;
                    *other += skips && from == 0 && every == 1 && !does_the_same(&fit[i], &t);
                }
                ++*made;
                *found += there;
                if (!there)
                    print_message("not found: %s window %d, %d of %d fit\n", kind->name, windows[w], fits,
                                  *made);
            }
        }
    }
}

static void whole_with_skips(void **state) {
    (void)state;
    int made = 0, found = 0, other = 0;
    count(0, 1, true, &made, &found, &other);
    print_message("%d trajectories, %d found, %d fits that do otherwise\n", made, found, other);
    assert_true(made >= 40);
    assert_int_equal(found, made);
    assert_int_equal(other, 0);
}

static void whole_scales_alone(void **state) {
    (void)state;
    int made = 0, found = 0, other = 0;
    count(0, 1, false, &made, &found, &other);
    print_message("%d trajectories, %d found\n", made, found);
    assert_int_equal(found, made);
}

static void from_the_middle(void **state) {
    (void)state;
    int made = 0, found = 0, other = 0;
    count(57, 1, true, &made, &found, &other);
    print_message("%d trajectories, %d found\n", made, found);
    assert_int_equal(found, made);
}

static void every_tenth_step(void **state) {
    (void)state;
    int made = 0, found = 0, other = 0;
    count(0, 10, true, &made, &found, &other);
    print_message("%d trajectories, %d found\n", made, found);
    assert_int_equal(found, made);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_with_skips),
                                       cmocka_unit_test(whole_scales_alone),
                                       cmocka_unit_test(from_the_middle), cmocka_unit_test(every_tenth_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
