/* What libampprobe looks at when time is short. Times are told to it, so nothing here depends on the machine:
 * they are so long that what its own calls take is nothing beside them. */
#include "tests/unit/probe_lib_testing.h"

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
            if (last >= 0) *gap = fmax(*gap, (double)(step - last - 1) / fmax(1, last));
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

/* Where the fixed cost of a step alone is above the budget, nothing could ever be paid for. */
static void gradients_are_counted_now_and_then_whatever_it_costs(void **state) {
    (void)state;
    double gap;
    const int looked = gradient_steps("{\"budget\": 0.01}", 4000, 10, 10, 10, &gap);
    assert_true(gap <= 0.25);
    /* 4 first steps, then at most log(4000 / 4) / log(5 / 4) = 31 and a few while a quarter is less than a
     * step */
    assert_in_range(looked, 20, 40);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_counted_now_and_then_whatever_it_costs),
        cmocka_unit_test(a_budget_of_nothing_counts_no_gradients_later),
        cmocka_unit_test(layers_do_not_spend_what_gradients_earn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
