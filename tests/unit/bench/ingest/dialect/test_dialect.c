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

typedef struct tally {
    int made, found; /* trajectories with a change of the scale; those with the true dialect among the fits */
    int other;       /* fits that do otherwise on the same overflows */
    int cut;         /* searches that were given up in part */
} tally;

static void see(const trajectory *t, const ab_scaler_kind *kind, const ab_scale_course *course, bool whole,
                tally *to) {
    ab_dialect_fit fit[AB_DIALECTS];
    bool there = false, cut;
    const int fits = ab_dialects_of(course, AB_DIALECT_WORK, fit, &cut);
    for (int i = 0; i < fits; i++) {
        there = there || fit[i].config.kind == kind;
        to->other += whole && !does_the_same(&fit[i], t);
    }
    to->made++;
    to->found += there;
    to->cut += cut;
    if (!there) print_message("not found: %s, %d fits, trajectory %d\n", kind->name, fits, to->made);
}

/* `draws` trajectories of each dialect, with two windows and two shares of overflows. */
static tally count(int from, int every, bool skips, int draws) {
    static const int windows[] = {20, 37}, rares[] = {30, 90};
    static trajectory t;
    tally all = {0, 0, 0, 0};
    for (int k = 0; k < ab_scaler_count(); k++)
        for (int draw = 0; usable(ab_scaler_at(k)) && draw < draws; draw++) {
            const int w = draw / 2 % 2, r = draw % 2;
            ab_scaler_config config = ab_scaler_defaults(ab_scaler_at(k));
            config.value[ab_scaler_key_index(config.kind, "window")] = windows[w];
            make(&config, (uint64_t)(1000 * k + 10 * w + r + 100 * (draw / 4)), rares[r], &t);
            const ab_scale_course course = show(&t, from, every, skips);
            if (changes(&course)) see(&t, config.kind, &course, skips && from == 0 && every == 1, &all);
        }
    print_message("%d trajectories, %d found, %d fits that do otherwise; %d searches cut\n", all.made,
                  all.found, all.other, all.cut);
    assert_int_equal(all.found, all.made);
    assert_int_equal(all.other, 0);
    return all;
}

static void two_hundred_whole_ones_with_skips(void **state) {
    (void)state;
    assert_true(count(0, 1, true, 16).made >= 200);
}

static void whole_scales_alone(void **state) {
    (void)state;
    assert_true(count(0, 1, false, 4).made >= 40);
}

static void from_the_middle(void **state) {
    (void)state;
    assert_true(count(57, 1, true, 4).made >= 40);
}

static void every_tenth_step(void **state) {
    (void)state;
    assert_true(count(0, 10, true, 4).made >= 40);
}

/* Scales that go up and down with much room between them: a search without a bound takes hours. */
static void a_search_ends_when_its_work_is_done(void **state) {
    (void)state;
    enum { SPANS = 60, LEFT = 50000, ONE_STATE = 2000 };
    ab_scale_span span[SPANS];
    uint64_t random = 5;
    double scale = 1024;
    const ab_scale_course course = {.first = scale, .fresh = false, .span = span, .spans = SPANS};
    for (int i = 0; i < SPANS; i++) {
        const int64_t steps =
            next_random(&random) % 2 ? 1000000 : 900 + (int64_t)(next_random(&random) % 300);
        scale = next_random(&random) % 2 && scale > 4 ? scale / 4 : scale * 2;
        span[i] = (ab_scale_span){steps, -1, scale, 0};
    }
    for (int k = 0; k < ab_scaler_count(); k++) {
        const ab_scaler_config config = ab_scaler_defaults(ab_scaler_at(k));
        int64_t work = LEFT;
        if (!usable(config.kind)) continue;
        const bool fits = ab_dialect_fits(&course, &config, &work);
        assert_true(work > -ONE_STATE);
        assert_false(fits && work < 0);
    }
    ab_dialect_fit fit[AB_DIALECTS];
    bool cut;
    assert_true(ab_dialects_of(&course, AB_DIALECT_WORK, fit, &cut) <= AB_DIALECTS);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_hundred_whole_ones_with_skips),
                                       cmocka_unit_test(whole_scales_alone),
                                       cmocka_unit_test(from_the_middle), cmocka_unit_test(every_tenth_step),
                                       cmocka_unit_test(a_search_ends_when_its_work_is_done)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
