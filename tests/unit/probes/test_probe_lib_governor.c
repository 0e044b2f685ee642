/* What libampprobe looks at when time is short. Times are told to it, so nothing here depends on the machine:
 * they are so long that what its own calls take is nothing beside them. */
#include "tests/unit/probe_governor_testing.h"

enum { VALUES = 64 };

/* Plays `steps` steps of `seconds` each; what is shown beyond gradients takes `shown` seconds outside the
 * library, any other step `always`. Counts the steps that were to show gradients; *gap: the longest stretch
 * without, as a share of the steps before it, the next one left out. */
static int gradient_steps(const char *config, int steps, double seconds, double always, double shown,
                          double *gap) {
    ampprobe *p = pl_open(config);
    const int32_t id = pl_parameter(p, "w", AMPPROBE_FP32, VALUES);
    float values[VALUES] = {1, 2, 4};
    int looked = 0, last = -1;
    *gap = 0;
    for (int step = 0; step < steps; step++) {
        const int plan = ampprobe_plan(p, step);
        if (plan & AMPPROBE_PLAN_GRADIENTS) {
            ampprobe_tensor t = pl_gradient(id, values, VALUES);
            assert_int_equal(ampprobe_gradients(p, 0, &t, 1, 0, NULL), AMPPROBE_OK);
            assert_int_equal(t.counted, VALUES);
            looked++;
            if (last >= 15) *gap = fmax(*gap, (double)(step - last - 1) / fmax(1, last));
            last = step;
        }
        ampprobe_step_facts f = pl_facts(step);
        f.seconds = seconds;
        f.spent = plan & ~AMPPROBE_PLAN_GRADIENTS ? shown : always;
        f.flags |= plan & AMPPROBE_PLAN_LAYERS ? AMPPROBE_LAYERS_SHOWN : 0;
        assert_int_equal(ampprobe_step(p, &f), AMPPROBE_OK);
    }
    cJSON_Delete(pl_close(p));
    return looked;
}

/* Where the fixed cost of a step alone is above the budget, nothing could ever be paid for: from step 15 to
 * 64 gradients are counted at the latest when a quarter more have gone by, later when as many have. */
static void gradients_are_counted_now_and_then_whatever_it_costs(void **state) {
    (void)state;
    double gap;
    int looked = gradient_steps("{\"budget\": 0.01}", 64, 10, 10, 10, &gap);
    assert_true(gap <= 0.25);
    /* 4 first steps, 2 with layers, then log(64 / 15) / log(5 / 4) = 6 */
    assert_int_equal(looked, 12);
    looked = gradient_steps("{\"budget\": 0.01}", 4000, 10, 10, 10, &gap);
    assert_true(gap <= 1.05);
    /* and log2(4000 / 64) = 6 */
    assert_in_range(looked, 16, 20);
}

/* What the probe takes is above its budget, but below twice that: nothing is owed, and nothing waits. */
static void gradients_wait_only_while_the_run_owes(void **state) {
    (void)state;
    double gap;
    const int looked = gradient_steps("{\"budget\": 0.01}", 4000, 10, 0.15, 0.15, &gap);
    assert_true(gap <= 0.25);
    assert_in_range(looked, 28, 36);
}

static void a_budget_of_nothing_counts_no_gradients_later(void **state) {
    (void)state;
    double gap;
    assert_int_equal(gradient_steps("{\"budget\": 0}", 1000, 10, 0, 0, &gap), 4);
}

/* Hooks and copies of a step that shows layers are what layers cost, not what gradients cost. */
static void layers_do_not_spend_what_gradients_earn(void **state) {
    (void)state;
    double gap;
    assert_int_equal(gradient_steps("{\"budget\": 0.01}", 500, 10, 0, 5, &gap), 500);
}

/* ---- a loop on a clock of its own ------------------------------------------------------------ */

/* What a loop and its probe cost, in seconds. */
typedef struct loop {
    double plain;         /* a step without the probe */
    double fixed;         /* what the probe takes in every step */
    double look;          /* and more in one that shows gradients, beside the census of its values */
    double a_value;       /* of which every one takes so long */
    double layers, state; /* one that shows layers is `layers` times as long and takes `state` more */
    int64_t values;
    bool no_layers; /* they are asked for and cannot be shown, as of a compiled model */
} loop;

typedef struct account {
    double run, probe;
    int gradients, layers; /* steps that showed them */
} account;

/* Plays steps until `until` seconds of the loop's own have gone by. */
static account play(ampprobe *p, const loop *l, double until) {
    account sum = {0};
    while (sum.run < until) {
        const int plan = p->planned;
        const bool layers = plan & AMPPROBE_PLAN_LAYERS && !l->no_layers;
        double caller = l->fixed + (plan & AMPPROBE_PLAN_LAYERS ? l->state : 0);
        if (plan & AMPPROBE_PLAN_GRADIENTS) {
            const int32_t stride = ab_lib_governor_stride(p, l->values);
            const int64_t counted = stride > 0 ? l->values / stride : 0;
            ab_lib_governor_gradients(p, (double)counted * l->a_value, counted);
            sum.probe += (double)counted * l->a_value;
            caller += l->look;
        }
        ab_lib_governor_caller(p, caller, plan);
        const double longer = layers ? (l->layers - 1) * l->plain : 0;
        p->course->group[0].steps++;
        ab_lib_governor_step(p, l->plain + longer, layers, false);
        sum.run += l->plain;
        sum.probe += caller + longer;
        sum.gradients += (plan & AMPPROBE_PLAN_GRADIENTS) != 0;
        sum.layers += layers;
    }
    return sum;
}

/* The share of these seconds is the budget, within a tenth of it, and both kinds of steps have part in it. */
static void assert_governed(const account *a) {
    assert_true(a->probe <= 1.1 * pl_budget * a->run);
    assert_true(a->probe >= 0.9 * pl_budget * a->run);
    assert_true(a->gradients > 20 && a->layers > 5);
}

static loop of_length(double seconds) {
    return (loop){.plain = seconds,
                  .fixed = 5e-6,
                  .look = 4e-4,
                  .a_value = 1e-9,
                  .layers = 1.5,
                  .state = 1e-3,
                  .values = 200 * 1000 * (int64_t)fmax(1, seconds * 1000)};
}

static void the_share_converges_to_the_budget_whatever_a_step_takes(void **state) {
    (void)state;
    const double lengths[] = {1e-3, 50e-3, 2};
    for (int i = 0; i < 3; i++) {
        ampprobe *p = pl_governed();
        const loop l = of_length(lengths[i]);
        (void)play(p, &l, 20000 * l.plain);
        const account later = play(p, &l, 20000 * l.plain);
        assert_governed(&later);
        pl_free(p);
    }
}

static void the_share_converges_again_after_a_change_of_length(void **state) {
    (void)state;
    const double lengths[] = {50e-3, 1e-3, 2, 50e-3};
    ampprobe *p = pl_governed();
    for (int i = 0; i < 4; i++) {
        const loop l = of_length(lengths[i]);
        (void)play(p, &l, 20000 * l.plain);
        const account later = play(p, &l, 20000 * l.plain);
        assert_governed(&later);
    }
    pl_free(p);
}

/* Where what every step costs is more than the budget, little else is looked at. */
static void what_every_step_costs_leaves_the_rest_less(void **state) {
    (void)state;
    ampprobe *p = pl_governed();
    loop l = of_length(1e-3);
    l.fixed = 12e-6; /* 1.2 % */
    (void)play(p, &l, 10);
    const account later = play(p, &l, 100);
    assert_true(later.probe <= 0.0125 * later.run);
    assert_in_range(later.layers, 1, 3);
    assert_in_range(later.gradients, 5, 20);
    pl_free(p);
}

/* An hour in which the loop stood still pays for no hour of probing. */
static void an_idle_hour_pays_for_little(void **state) {
    (void)state;
    ampprobe *p = pl_governed();
    const loop l = of_length(50e-3);
    (void)play(p, &l, 1000);
    ab_lib_governor_step(p, 3600, false, false);
    const account later = play(p, &l, 1000);
    assert_true(later.probe <= 1.1 * pl_budget * later.run + 2);
    assert_true(later.layers > 5);
    pl_free(p);
}

static void what_cannot_be_shown_is_not_asked_for_at_every_step(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        ampprobe *p = pl_governed();
        loop l = of_length(1e-3);
        if (i == 0) l.no_layers = true;
        if (i == 1) l.values = 0;
        (void)play(p, &l, 2000 * l.plain);
        const account later = play(p, &l, 20000 * l.plain);
        assert_true(later.probe <= 1.1 * pl_budget * later.run);
        pl_free(p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_counted_now_and_then_whatever_it_costs),
        cmocka_unit_test(gradients_wait_only_while_the_run_owes),
        cmocka_unit_test(a_budget_of_nothing_counts_no_gradients_later),
        cmocka_unit_test(layers_do_not_spend_what_gradients_earn),
        cmocka_unit_test(the_share_converges_to_the_budget_whatever_a_step_takes),
        cmocka_unit_test(the_share_converges_again_after_a_change_of_length),
        cmocka_unit_test(what_every_step_costs_leaves_the_rest_less),
        cmocka_unit_test(an_idle_hour_pays_for_little),
        cmocka_unit_test(what_cannot_be_shown_is_not_asked_for_at_every_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
