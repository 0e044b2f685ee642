/* Which steps libampprobe looks at where nothing can be paid for, by the formulas of governor.h: of a run, of
 * the stages of a run whose optimizers take turns, and after a step that was skipped. The clock is the
 * test's. */
#include "tests/unit/probe_governor_testing.h"

enum { MOST = 5000 };

/* The steps that showed something, in order. */
typedef struct shown {
    int layers[32], gradients[64];
    int layered, counted;
    int64_t ended;
} shown;

/* Plays steps of a second, in each of which the probe takes `taken` seconds. `skipped`: that one is. */
static void play(ampprobe *p, shown *s, int64_t until, double taken, int64_t skipped) {
    for (; s->ended < until; s->ended++) {
        const int plan = p->planned;
        const bool layers = (plan & AMPPROBE_PLAN_LAYERS) != 0, skips = s->ended == skipped;
        if (layers) s->layers[s->layered++] = (int)s->ended;
        if (plan & AMPPROBE_PLAN_GRADIENTS) {
            s->gradients[s->counted++] = (int)s->ended;
            ab_lib_governor_gradients(p, 1e-9, 1);
        }
        ab_lib_governor_caller(p, taken, plan);
        p->course->group[0].steps++;
        if (skips) ab_lib_governor_sick(p);
        ab_lib_governor_step(p, 1, layers, skips);
    }
}

static void assert_steps(const int *steps, int count, const int *expected, int wanted) {
    for (int i = 0; i < count && i < wanted; i++) assert_int_equal(steps[i], expected[i]);
    assert_int_equal(count, wanted);
}

/* Everything costs as much as the step itself: 1 % never pays for anything. */
static const double dear = 1;

/* Layers at 2^k - 1 up to 15, then at 1024 and when there are four times as many steps. Gradients at 0 to 3,
 * 7 and 15; after step s at s + 1 + s / 4 (in whole steps); from 64 on at 8 / 5 of that, rounded up. */
static void a_run_is_looked_at_on_credit(void **state) {
    (void)state;
    static const int layers[] = {0, 1, 3, 7, 15, 1024, 4100};
    static const int gradients[] = {0,  1,  2,  3,   7,   15,  19,   24,   31,
                                    39, 49, 62, 125, 252, 506, 1013, 2028, 4058};
    ampprobe *p = pl_governed();
    shown s = {0};
    play(p, &s, MOST, dear, -1);
    assert_steps(s.layers, s.layered, layers, (int)AB_COUNT_OF(layers));
    assert_steps(s.gradients, s.counted, gradients, (int)AB_COUNT_OF(gradients));
    pl_free(p);
}

/* A step that was skipped at 300: until there are twice as many, 602, nothing waits. */
static void nothing_waits_while_a_run_may_be_sick(void **state) {
    (void)state;
    static const int from[] = {252, 316, 396, 496, 994};
    ampprobe *p = pl_governed();
    shown s = {0};
    play(p, &s, 1000, dear, 300);
    assert_true(s.counted > 13);
    assert_steps(s.gradients + 13, s.counted - 13, from, 5); /* at 8 / 5 * (497 + 124) again */
    pl_free(p);
}

/* What is not finite in every step is looked at as in a run that owes nothing. */
static void a_sick_run_is_looked_at_as_often_as_one_that_owes_nothing(void **state) {
    (void)state;
    ampprobe *p = pl_governed();
    shown s = {0};
    for (int64_t step = 0; step < 2000; step++) play(p, &s, step + 1, dear, step);
    for (int i = 5; i < s.counted; i++)
        assert_int_equal(s.gradients[i], s.gradients[i - 1] + 1 + s.gradients[i - 1] / 4);
    pl_free(p);
}

/* Another optimizer comes at step 100: its first steps are looked at like a run's, from the next plan on. */
static void a_stage_begins_like_a_run(void **state) {
    (void)state;
    static const int layers[] = {101, 103, 107, 115}, gradients[] = {101, 127, 159};
    ampprobe *p = pl_governed();
    shown s = {0};
    play(p, &s, 100, dear, -1);
    const int before = s.layered, counted = s.counted;
    ab_lib_governor_stage(p);
    play(p, &s, 164, dear, -1);
    assert_steps(s.layers + before, s.layered - before, layers, 4);
    assert_steps(s.gradients + counted, s.counted - counted, gradients, 3);
    pl_free(p);
}

/* The fifth stage, and one that begins 15 steps after another, are looked at like what came before them. */
static void stages_that_are_many_or_short_are_not_looked_at_closely(void **state) {
    (void)state;
    ampprobe *p = pl_governed();
    shown s = {0};
    play(p, &s, 100, dear, -1);
    for (int stage = 0; stage < 6; stage++) {
        const int layers = s.layered;
        ab_lib_governor_stage(p);
        play(p, &s, 100 * (stage + 2), dear, -1);
        assert_int_equal(s.layered - layers, stage < 4 ? 4 : 0);
    }
    pl_free(p);
    p = pl_governed();
    s = (shown){0};
    play(p, &s, 100, dear, -1);
    ab_lib_governor_stage(p);
    const int64_t from = p->governor.stage_from;
    play(p, &s, 115, dear, -1);
    ab_lib_governor_stage(p); /* 15 steps later: none */
    assert_int_equal(p->governor.stage_from, from);
    play(p, &s, 116, dear, -1);
    ab_lib_governor_stage(p); /* 16 */
    assert_int_equal(p->governor.stage_from, 116);
    pl_free(p);
}

/* A group's `since` that grows is a stage; one that stays or falls, or that of another group, is none. */
static void a_group_that_says_since_begins_a_stage(void **state) {
    (void)state;
    static const struct {
        const char *groups;
        int64_t from;
    } said[] = {{"[{\"since\": 0}]", 0},   {"[{\"since\": 40}]", 40},
                {"[{\"since\": 40}]", 40}, {"[{\"since\": 40}, {\"since\": 80}]", 40},
                {"[{\"since\": 30}]", 40}, {"[{\"since\": 120}]", 120}};
    ampprobe *p = pl_open("{\"budget\": 0.01}");
    int64_t step = 0;
    for (size_t i = 0; i < AB_COUNT_OF(said); i++) {
        for (; step < 40 * (int64_t)(i < 2 ? i : i - 1); step++) pl_step(p, step);
        assert_int_equal(ampprobe_set(p, "groups", said[i].groups), AMPPROBE_OK);
        if (i != AB_COUNT_OF(said) - 1) assert_int_equal(p->governor.stage_from, said[i].from);
    }
    assert_int_equal(p->governor.stage_from, step);
    assert_int_equal(p->governor.stages, 2);
    assert_int_equal(p->governor.next_gradients, step);
    cJSON_Delete(pl_close(p));
}

/* Steps of a millisecond whose probe takes 0.8 % of every step, 0.25 ms to count gradients, 1.2 ms for
 * layers, and 3 ms before the first step: what that comes to. */
static void what_the_first_steps_borrow_is_paid_back(void **state) {
    (void)state;
    static const struct {
        int steps;
        double most;
    } points[] = {{1000, 0.021}, {4000, 0.015}, {20000, 0.0115}};
    ampprobe *p = pl_governed();
    double run = 0, probe = 0;
    int step = 0;
    for (size_t i = 0; i < AB_COUNT_OF(points); i++) {
        for (; step < points[i].steps; step++) {
            const int plan = p->planned;
            const bool layers = (plan & AMPPROBE_PLAN_LAYERS) != 0;
            double taken = plan ? 2.5e-4 : 8e-6;
            if (layers) taken = 1.2e-3;
            if (step == 0) taken += 3e-3;
            if (plan & AMPPROBE_PLAN_GRADIENTS) ab_lib_governor_gradients(p, 0, 1);
            ab_lib_governor_caller(p, taken, plan);
            p->course->group[0].steps++;
            ab_lib_governor_step(p, 1e-3, layers, false);
            run += 1e-3;
            probe += taken;
        }
        assert_true(probe <= points[i].most * run);
    }
    pl_free(p);
}

/* A ledger counts what storing in one format loses: in another one it begins anew. */
static void a_ledger_begins_anew_in_another_format(void **state) {
    (void)state;
    ampprobe *p = pl_open("{\"budget\": 0.01}");
    const int32_t id = pl_parameter(p, "w", AMPPROBE_BF16, 4);
    const uint16_t one[4] = {0x3f80, 0x3f80, 0x3f80, 0x3f80};
    const float wide[4] = {1, 1, 1, 1}, moved[4] = {1.5F, 1.5F, 1.5F, 1.5F},
                tiny[4] = {1e-4F, 1e-4F, 1e-4F, 1e-4F};
    for (int step = 0; step < 2; step++) {
        const bool half = step == 0;
        ampprobe_tensor t[2] = {pl_gradient(id, half ? (const void *)one : wide, 4),
                                pl_gradient(id, tiny, 4)};
        t[0].role = AMPPROBE_WEIGHT, t[1].role = AMPPROBE_UNSCALED_GRADIENT;
        if (half) t[0].dtype = AMPPROBE_BF16, t[0].storage_bytes = sizeof one;
        assert_int_equal(ampprobe_before_update(p, 0, t, 1), AMPPROBE_OK);
        if (!half) t[0].data = moved;
        assert_int_equal(ampprobe_after_update(p, 0, t, 2), AMPPROBE_OK);
        ampprobe_step_facts f = pl_facts(step);
        f.seconds = 1, f.lr = 0.1, f.flags = AMPPROBE_HAS_LR;
        assert_int_equal(ampprobe_step(p, &f), AMPPROBE_OK);
        assert_int_equal(p->ledgers, 1);
        assert_int_equal(p->ledger[0]->update.nonzero, 4);
        assert_int_equal(p->ledger[0]->update.lost, half ? 4 : 0);
        assert_int_equal(p->ledger[0]->stopped_since, half ? 0 : -1);
        assert_int_equal(p->ledger[0]->dtype, half ? AMPPROBE_BF16 : AMPPROBE_FP32);
    }
    cJSON_Delete(pl_close(p));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_looked_at_on_credit),
        cmocka_unit_test(nothing_waits_while_a_run_may_be_sick),
        cmocka_unit_test(a_sick_run_is_looked_at_as_often_as_one_that_owes_nothing),
        cmocka_unit_test(a_stage_begins_like_a_run),
        cmocka_unit_test(stages_that_are_many_or_short_are_not_looked_at_closely),
        cmocka_unit_test(a_group_that_says_since_begins_a_stage),
        cmocka_unit_test(what_the_first_steps_borrow_is_paid_back),
        cmocka_unit_test(a_ledger_begins_anew_in_another_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
