/* Loss scalers: what their packages cannot be had for (apex is gone, MindSpore's fixed manager, OpenSeq2Seq,
 * Graphcore and AdaLoss have no package) is proved against the documented state machines, written here a
 * second time as functions of the whole history and not as machines, and against trajectories that apex's
 * classes gave before their removal. The others are compared with their packages in test_scaler_golden.c.
 * Then what all must obey: bounds, windows, configuration, state. */
#include "bench/amp/trace/scale_trace.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ab_scaler started(const char *text) {
    ab_scaler_config config;
    ab_scaler scaler;
    if (ab_scaler_parse(text, &config) != AB_OK) fail_msg("%s", ab_error_message());
    ab_scaler_start(&scaler, &config);
    return scaler;
}

/* AB_MUST_CHECK is for callers that train. */
static ab_scaler_outcome see(ab_scaler *scaler, const ab_scaler_seen *seen) {
    return ab_scaler_update(scaler, seen);
}

static ab_scaler_outcome step(ab_scaler *scaler, bool overflow) {
    ab_scaler_seen seen = {.overflow = overflow};
    return ab_scaler_update(scaler, &seen);
}

/* A small generator of its own: the same flags everywhere. */
static uint32_t next_random(uint32_t *seed) { return *seed = *seed * 1664525u + 1013904223u; }
static bool chance(uint32_t *seed, int percent) { return (int)((next_random(seed) >> 8) % 100) < percent; }

/* ---- recorded from apex's classes, scales as log2 -------------------------------------------- */

static void follows(const char *config, const char *pattern, const int *log2_scale) {
    ab_scaler scaler = started(config);
    for (int i = 0; pattern[i]; i++) {
        bool overflow = pattern[i] == 'x';
        assert_int_equal(step(&scaler, overflow).skip, overflow);
        if (scaler.scale != ldexp(1.0, log2_scale[i]))
            fail_msg("%s, step %d: expected 2^%d, found %.17g", config, i, log2_scale[i], scaler.scale);
    }
}

static const char three[] = "...xx.....x.........", clean[] = "..........",
                  every_other[] = ".x.x.x.x.x.x....", all[] = "xxxxxxxxxx";

static void apex_is_apexs(void **state) {
    (void)state;
    follows("apex:window=4", three,
            (int[]){16, 16, 16, 15, 14, 14, 14, 14, 15, 15, 14, 14, 14, 14, 15, 15, 15, 15, 16, 16});
    follows("apex:window=4", clean, (int[]){16, 16, 16, 17, 17, 17, 17, 18, 18, 18});
    follows("apex:window=4", every_other,
            (int[]){16, 15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 10, 10, 11});
    follows("apex:window=4,init=4", all, (int[]){1, 0, -1, -2, -3, -4, -5, -6, -7, -8});
}

static void apex_legacy_is_apexs(void **state) {
    (void)state;
    follows("apex-legacy:window=4,init=2^16", three,
            (int[]){16, 16, 16, 15, 14, 14, 14, 14, 15, 15, 14, 14, 14, 14, 15, 15, 15, 15, 16, 16});
    follows("apex-legacy:window=4,init=2^16", clean, (int[]){16, 16, 16, 17, 17, 17, 17, 18, 18, 18});
    follows("apex-legacy:window=4,init=4", all, (int[]){1, 0, 0, 0, 0, 0, 0, 0, 0, 0});
}

static void apex_hysteresis_is_apexs(void **state) {
    (void)state;
    follows("apex-hysteresis:window=4", three,
            (int[]){16, 16, 16, 16, 15, 15, 15, 15, 16, 16, 16, 16, 16, 16, 17, 17, 17, 17, 18, 18});
    follows("apex-hysteresis:window=4", every_other,
            (int[]){16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 17});
    follows("apex-hysteresis:window=4,init=4", all, (int[]){2, 1, 0, -1, -2, -3, -4, -5, -6, -7});
}

static void apex_reaches_zero_after_1091_overflows_and_then_divides_by_it(void **state) {
    (void)state;
    ab_scaler scaler = started("apex");
    for (int i = 0; i < 1090; i++) assert_null(step(&scaler, true).fault);
    assert_true(scaler.scale == 0x1p-1074);
    ab_scaler_outcome last = step(&scaler, true);
    assert_true(scaler.scale == 0);
    assert_string_equal(last.fault->name, "scale_zero");
    assert_false(last.fault->raises);
    ab_scaler_outcome next = step(&scaler, false);
    assert_string_equal(next.fault->name, "division_by_zero");
    assert_true(next.fault->raises);
}

static void apex_starts_and_grows_no_higher_than_its_cap(void **state) {
    (void)state;
    assert_true(started("apex:max=1024").scale == 1024);
    assert_true(started("apex:max=1e6").scale == 65536);
    ab_scaler scaler = started("apex:max=100000,window=1");
    (void)step(&scaler, false);
    assert_true(scaler.scale == 100000);
    (void)step(&scaler, true);
    assert_true(scaler.scale == 50000);
    follows("apex:max=2^17,window=2", ".......x..", (int[]){16, 17, 17, 17, 17, 17, 17, 16, 16, 17});
}

static void apexs_floor_above_the_scale_raises_it(void **state) {
    (void)state;
    follows("apex:init=4,min=64,window=4", ".x....x", (int[]){2, 6, 6, 6, 6, 7, 6});
    follows("apex:min=2^14,window=4", "xxxxx....", (int[]){15, 14, 14, 14, 14, 14, 14, 14, 15});
}

/* ---- functions of the history ---------------------------------------------------------------- */

enum { LONG = 400 };

/* Clean steps in a row up to and including step k, counted from step `from`. */
static int clean_before(const bool *overflow, int k, int from) {
    int n = 0;
    while (k - n >= from && !overflow[k - n]) n++;
    return n;
}

/* apex-legacy and openseq2seq-backoff: a clean step grows when its distance from the last overflow (or from
 * step -1) is a multiple of the window. */
static double since_overflow(const bool *overflow, int k, double first, double factor, int window, double low,
                             double high) {
    double scale = first;
    for (int i = 0; i <= k; i++) {
        int since = clean_before(overflow, i, 0);
        if (overflow[i])
            scale = fmax(low, scale / factor);
        else if (since % window == 0)
            scale = fmin(high, scale * factor);
    }
    return scale;
}

/* The kernel with a credit: the scale falls at an overflow that is at least the credit-th in a row. */
static double with_credit(const bool *overflow, int k, double first, int window, int credit) {
    float scale = (float)first;
    int run = 0, good = 0;
    for (int i = 0; i <= k; i++) {
        run = overflow[i] ? run + 1 : 0;
        good = overflow[i] ? 0 : good + 1;
        if (run >= credit) scale *= 0.5f;
        if (!overflow[i] && good % window == 0 && isfinite(scale * 2)) scale *= 2;
    }
    return (double)scale;
}

static void random_flags(uint32_t seed, int percent, bool flags[LONG]) {
    for (int i = 0; i < LONG; i++) flags[i] = chance(&seed, percent);
}

static void check_history(const char *config, double (*expected)(const bool *overflow, int k)) {
    static const int shares[] = {2, 10, 30, 70};
    for (uint32_t seed = 1; seed <= 8; seed++) {
        bool flags[LONG];
        ab_scaler scaler = started(config);
        random_flags(seed, shares[seed % 4], flags);
        for (int k = 0; k < LONG; k++) {
            assert_int_equal(step(&scaler, flags[k]).skip, flags[k]);
            if (scaler.scale != expected(flags, k))
                fail_msg("%s, seed %u, step %d: expected %.17g, found %.17g", config, seed, k,
                         expected(flags, k), scaler.scale);
        }
    }
}

static double legacy_7(const bool *overflow, int k) {
    return since_overflow(overflow, k, 0x1p32, 2, 7, 1, HUGE_VAL);
}
static double backoff_5(const bool *overflow, int k) {
    return since_overflow(overflow, k, 0x1p20, 2, 5, 0x1p4, 0x1p20);
}
static double credit_3(const bool *overflow, int k) { return with_credit(overflow, k, 0x1p10, 6, 3); }

static void apex_legacy_is_its_rule(void **state) {
    (void)state;
    check_history("apex-legacy:window=7", legacy_7);
}

static void openseq2seq_backoff_is_its_rule(void **state) {
    (void)state;
    check_history("openseq2seq-backoff:window=5,min=16,max=2^20", backoff_5);
}

static void apex_hysteresis_is_its_rule(void **state) {
    (void)state;
    check_history("apex-hysteresis:window=6,hysteresis=3,init=1024", credit_3);
}

/* ---- fixed scales ---------------------------------------------------------------------------- */

static void a_fixed_scale_neither_looks_nor_skips(void **state) {
    (void)state;
    ab_scaler scaler = started("fixed:init=128");
    assert_false(ab_scaler_checks(&scaler));
    for (int i = 0; i < 100; i++) assert_false(step(&scaler, i % 2 == 0).skip);
    assert_true(scaler.scale == 128);
    assert_true(started("fixed").scale == 1);
}

static void a_fixed_scale_that_skips_only_skips(void **state) {
    (void)state;
    ab_scaler scaler = started("fixed-skip:init=128");
    assert_true(ab_scaler_checks(&scaler) && ab_scaler_divisor(&scaler) == 128);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(step(&scaler, i % 3 == 0).skip, i % 3 == 0);
        assert_true(scaler.scale == 128);
    }
}

static void mindspore_fixed_skips_or_leaves_everything_to_the_optimizer(void **state) {
    (void)state;
    ab_scaler scaler = started("mindspore-fixed");
    assert_true(scaler.scale == 128 && ab_scaler_checks(&scaler) && ab_scaler_divisor(&scaler) == 128);
    assert_true(step(&scaler, true).skip);
    assert_false(step(&scaler, false).skip);
    scaler = started("mindspore-fixed:drop_overflow_update=False");
    assert_false(ab_scaler_checks(&scaler));
    assert_true(ab_scaler_divisor(&scaler) ==
                1); /* the optimizer's default: gradients stay 128 times too large */
    ab_scaler_outcome outcome = step(&scaler, true);
    assert_false(outcome.skip);
    assert_string_equal(outcome.fault->name, "left_scaled");
    scaler = started("mindspore-fixed:drop_overflow_update=False,optimizer_loss_scale=128");
    assert_true(ab_scaler_divisor(&scaler) == 128);
    assert_null(step(&scaler, true).fault);
}

/* ---- followers of gradient sizes ------------------------------------------------------------- */

static ab_scaler_outcome step_amax(ab_scaler *scaler, double amax, bool overflow) {
    ab_scaler_seen seen = {.overflow = overflow, .amax = amax};
    return ab_scaler_update(scaler, &seen);
}

/* The estimate in closed form: both running means, corrected, are means weighted by powers of beta. */
static double logmax_expected(const double *x, int n) {
    double mean = 0, slow = 0, square = 0, weight1 = 0, weight2 = 0;
    for (int i = 0; i < n; i++) {
        double w1 = pow(0.99, n - 1 - i), w2 = pow(0.999, n - 1 - i);
        mean += w1 * x[i];
        slow += w2 * x[i];
        square += w2 * x[i] * x[i];
        weight1 += w1;
        weight2 += w2;
    }
    double sigma = sqrt(fmax(0, square / weight2 - slow / weight2 * slow / weight2));
    double scale = exp2(16 - 3.09 * sigma - mean / weight1);
    return fmin(fmax(scale, 1), 0x1p24);
}

static void logmax_is_the_weighted_mean_of_its_history(void **state) {
    (void)state;
    ab_scaler scaler = started("openseq2seq-logmax");
    double x[60];
    uint32_t seed = 7;
    for (int i = 0; i < 60; i++) {
        bool overflow = i == 40;
        double amax = exp2(-6 + (double)(next_random(&seed) >> 20) / 1024);
        x[i] =
            overflow ? 65536 : log2((double)(float)amax); /* the defect: 2^16 among logarithms of about -4 */
        assert_int_equal(step_amax(&scaler, amax, overflow).skip, overflow);
        double expected = logmax_expected(x, i + 1);
        if (fabs(scaler.scale / expected - 1) > 2e-3)
            fail_msg("step %d: expected about %.9g, found %.9g", i, expected, scaler.scale);
    }
    assert_true(scaler.scale == 1); /* one overflow, twenty steps ago */
}

static void logmax_of_a_zero_gradient_is_no_number_for_good(void **state) {
    (void)state;
    ab_scaler scaler = started("openseq2seq-logmax");
    (void)step_amax(&scaler, 0.5, false);
    assert_string_equal(step_amax(&scaler, 0, false).fault->name, "scale_nan");
    assert_string_equal(step_amax(&scaler, 0.5, false).fault->name, "scale_nan");
}

static void als_halves_above_its_share_and_doubles_below(void **state) {
    (void)state;
    ab_scaler scaler = started("graphcore-als:proportion=0.01,init=1024");
    ab_scaler_seen exact = {.upper = 10, .lower = 990}, more = {.upper = 11, .lower = 989};
    assert_false(ab_scaler_update(&scaler, &exact).skip);
    assert_true(scaler.scale == 2048);
    more.overflow = true;
    assert_false(ab_scaler_update(&scaler, &more).skip); /* it never skips */
    assert_true(scaler.scale == 1024);
    scaler = started("graphcore-als:proportion=0.01,init=1024,period=3");
    for (int i = 0; i < 3; i++) {
        assert_true(scaler.scale == 1024);
        (void)see(&scaler, i == 1 ? &exact : &more);
    }
    assert_true(scaler.scale == 512); /* 32 of 3000 */
}

/* As the paper writes it, in the order of its Algorithm. */
static double adaloss_expected(const ab_scaler_layer *l) {
    double sigma = hypot(l->g_std, l->g_mean) * hypot(l->w_std, l->w_mean) * l->chain;
    double z = 0.0012533145373; /* sqrt(2) erfinv(0.001), from tables of the normal quantile */
    double wanted = fmax(6e-8 / (z * sigma), 1), room = 65504 / (l->fan_in * l->g_max * l->chain * l->w_max);
    double scale = fmin(fmin(fmin(wanted, room), 1024 / l->chain), 16);
    double power = 1;
    while (power > scale) power /= 2;
    while (2 * power <= scale) power *= 2;
    return power;
}

static void adaloss_is_the_papers_formula(void **state) {
    (void)state;
    uint32_t seed = 3;
    int bounded = 0, raised = 0;
    for (int i = 0; i < 2000; i++) {
        ab_scaler scaler = started("adaloss");
        double size = exp2(-30 + (double)(next_random(&seed) >> 27)),
               width = exp2(-4 + (double)(next_random(&seed) >> 30));
        ab_scaler_layer layer = {.g_mean = size / 10,
                                 .g_std = size,
                                 .g_max = 5 * size,
                                 .w_std = width,
                                 .w_max = 4 * width,
                                 .fan_in = 1 + (double)(next_random(&seed) >> 22),
                                 .chain = exp2((double)(next_random(&seed) >> 29))};
        ab_scaler_seen seen = {.layer = &layer};
        assert_false(ab_scaler_update(&scaler, &seen).skip);
        assert_true(scaler.scale == adaloss_expected(&layer));
        bounded += scaler.scale == 16;
        raised += scaler.scale > 1;
    }
    assert_true(bounded > 20 && raised > bounded + 20);
}

static void adaloss_looks_at_the_statistics_only_now_and_then(void **state) {
    (void)state;
    ab_scaler scaler = started("adaloss:every=3");
    ab_scaler_layer small = {
        .g_std = 1e-6, .g_max = 1e-5, .w_std = 1e-1, .w_max = 1, .fan_in = 8, .chain = 1};
    ab_scaler_layer large = small;
    large.g_std = 1;
    ab_scaler_seen first = {.layer = &small}, later = {.layer = &large};
    (void)see(&scaler, &first);
    double stored = scaler.scale;
    assert_true(stored > 1);
    for (int i = 0; i < 2; i++) {
        (void)see(&scaler, &later);
        assert_true(scaler.scale == stored);
    }
    (void)see(&scaler, &later);
    assert_true(scaler.scale == 1);
}

/* ---- what all obey --------------------------------------------------------------------------- */

static const char *const machines[] = {"apex:window=5",
                                       "apex-legacy:window=5",
                                       "apex-legacy:window=5,factor=3",
                                       "apex-hysteresis:window=5",
                                       "torch:window=5",
                                       "mindspore-host:window=5",
                                       "mindspore-cell:window=5",
                                       "mindspore-functional:window=5",
                                       "deepspeed:window=5,raises=False",
                                       "deepspeed-fused:window=5",
                                       "deepspeed-unfused:window=5",
                                       "megatron:window=5",
                                       "fairseq:window=5,threshold=0.01",
                                       "fairseq:window=5,threshold=0.01,tolerance=0.3",
                                       "keras:window=5",
                                       "openseq2seq-backoff:window=5"};

static void no_machine_grows_before_its_window_or_on_an_overflow(void **state) {
    (void)state;
    static const int shares[] = {3, 12, 25, 50};
    int grown = 0;
    for (size_t m = 0; m < AB_COUNT_OF(machines); m++) {
        for (uint32_t seed = 1; seed <= 20; seed++) {
            ab_scaler scaler = started(machines[m]);
            uint32_t random = seed * 77;
            for (int i = 0, good = 0; i < 1000; i++) {
                bool overflow = chance(&random, shares[seed % 4]);
                double before = scaler.scale;
                bool skipped = step(&scaler, overflow).skip;
                good = overflow ? 0 : good + 1;
                assert_int_equal(skipped, overflow);
                if (scaler.scale < before) assert_true(overflow);
                if (scaler.scale <= before) continue;
                if (good < 5) fail_msg("%s: grew after %d clean steps", machines[m], good);
                grown++;
            }
        }
    }
    assert_true(grown > 5000);
}

static void no_machine_leaves_its_bounds(void **state) {
    (void)state;
    static const struct {
        const char *config;
        double low, high;
    } rows[] = {{"apex:window=1,min=8,max=4096,init=64", 8, 4096},
                {"apex-legacy:window=9", 1, HUGE_VAL},
                {"mindspore-host:window=9", 1, HUGE_VAL},
                {"mindspore-cell:window=2", 1, HUGE_VAL},
                {"mindspore-functional:window=2", 1, 0x1p127},
                {"deepspeed:window=9,min=2,raises=False", 2, HUGE_VAL},
                {"deepspeed-unfused:window=9", 0.25, HUGE_VAL},
                {"megatron:window=9,min=4", 4, HUGE_VAL},
                {"fairseq:window=9,threshold=0.5", 0.5, HUGE_VAL},
                {"openseq2seq-backoff:window=1,min=2,max=1024", 2, 1024},
                {"torch:window=1", 0, 0x1p127}};
    for (size_t r = 0; r < AB_COUNT_OF(rows); r++) {
        double least = HUGE_VAL;
        for (uint32_t seed = 1; seed <= 10; seed++) {
            ab_scaler scaler = started(rows[r].config);
            uint32_t random = seed;
            for (int i = 0; i < 2000; i++) {
                (void)step(&scaler, chance(&random, 10 * (int)seed));
                assert_true(scaler.scale >= rows[r].low && scaler.scale <= rows[r].high);
                least = fmin(least, scaler.scale);
            }
        }
        assert_true(least == rows[r].low);
    }
}

static void state_by_name_continues_a_machine_exactly(void **state) {
    (void)state;
    for (size_t m = 0; m < AB_COUNT_OF(machines); m++) {
        ab_scaler one = started(machines[m]), two = started(machines[m]);
        uint32_t random = 5;
        for (int i = 0; i < 137; i++) (void)step(&one, chance(&random, 15));
        for (int i = 0; i < ab_scaler_state_count(one.kind); i++)
            assert_int_equal(
                ab_scaler_set_state(&two, ab_scaler_state_name(one.kind, i), ab_scaler_state(&one, i)),
                AB_OK);
        for (int i = 0; i < 300; i++) {
            bool overflow = chance(&random, 15);
            (void)step(&one, overflow);
            (void)step(&two, overflow);
            assert_true(one.scale == two.scale);
        }
    }
    ab_scaler scaler = started("torch");
    assert_int_equal(ab_scaler_set_state(&scaler, "growth_trakcer", 1), AB_INPUT);
}

static void a_counter_loaded_beyond_its_window_freezes_growth(void **state) {
    (void)state;
    ab_scaler scaler = started("torch:window=4");
    assert_int_equal(ab_scaler_set_state(&scaler, "growth_tracker", 4), AB_OK);
    for (int i = 0; i < 100; i++) (void)step(&scaler, false);
    assert_true(scaler.scale == 65536);
    (void)step(&scaler, true);
    for (int i = 0; i < 4; i++) (void)step(&scaler, false);
    assert_true(scaler.scale == 65536);
}

/* ---- configuration --------------------------------------------------------------------------- */

static void dialects_are_found_by_name(void **state) {
    (void)state;
    const ab_scaler_kind *kind = NULL;
    assert_true(ab_scaler_count() >= 20);
    for (int i = 0; i < ab_scaler_count(); i++) {
        assert_int_equal(ab_scaler_find(ab_scaler_at(i)->name, &kind), AB_OK);
        assert_ptr_equal(kind, ab_scaler_at(i));
        assert_true(kind->keys <= AB_SCALER_KEYS && kind->states <= AB_SCALER_STATES);
        assert_non_null(kind->origin);
        ab_scaler_config config = ab_scaler_defaults(kind);
        char value[64];
        for (int k = 0; k < kind->keys; k++) { /* defaults are in their own range */
            snprintf(value, sizeof value, "%.17g", config.value[k]);
            assert_int_equal(ab_scaler_set(&config, kind->key[k].name, value), AB_OK);
        }
    }
    assert_int_equal(ab_scaler_find("deepseed", &kind), AB_USAGE);
    assert_non_null(strstr(ab_error_message(), "nearest: deepspeed"));
}

static void a_configuration_reads_back_as_it_was_written(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"torch", "torch"},
        {"torch:init_scale=1024,growth_interval=7", "torch:init=1024,window=7"},
        {"deepspeed:init=2^16,hysteresis=1", "deepspeed:init=65536,hysteresis=1"},
        {"deepspeed:consecutive=true", "deepspeed:consecutive=True"},
        {"mindspore-host:init=65536", "mindspore-host:init=65536"},
        {"mindspore-host:init=65536.0", "mindspore-host:init=65536.0"},
        {"torch:backoff=0.3", "torch:backoff=0.3"}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        ab_scaler_config config, again;
        char text[AB_SCALER_TEXT];
        assert_int_equal(ab_scaler_parse(rows[i][0], &config), AB_OK);
        assert_string_equal(ab_scaler_text(&config, text), rows[i][1]);
        assert_int_equal(ab_scaler_parse(text, &again), AB_OK);
        assert_memory_equal(&config, &again, sizeof config);
    }
}

static void bad_configurations_say_what_is_wrong(void **state) {
    (void)state;
    static const char *const rows[][2] = {{"torch:grwth=2", "nearest: growth"},
                                          {"torch:growth_intervall=2", "nearest: growth_interval"},
                                          {"torch:growth=1", "growth: expected a number above 1, found '1'"},
                                          {"torch:init=0", "found '0'"},
                                          {"torch:init=-1", "found '-1'"},
                                          {"torch:init=nan", "found 'nan'"},
                                          {"torch:init=inf", "found 'inf'"},
                                          {"torch:init=", "found ''"},
                                          {"torch:init=1x", "found '1x'"},
                                          {"torch:window=2.5", "an integer"},
                                          {"torch:", "expected key=value, found ''"},
                                          {"torch:init", "expected key=value, found 'init'"},
                                          {"mindspore-host:init=0.5", "init"},
                                          {"deepspeed:consecutive=maybe", "True or False"},
                                          {"deepspeed:window=0", "window"},
                                          {"megatron:init=1,min=2", "asserts"},
                                          {"megatron-constant:window=2", "keys: init"},
                                          {"nothing", "unknown loss scaler 'nothing'"}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        ab_scaler_config config;
        assert_int_equal(ab_scaler_parse(rows[i][0], &config), AB_USAGE);
        if (!strstr(ab_error_message(), rows[i][1])) fail_msg("%s: %s", rows[i][0], ab_error_message());
        assert_null(strchr(ab_error_message(), '\n'));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(apex_is_apexs),
        cmocka_unit_test(apex_legacy_is_apexs),
        cmocka_unit_test(apex_hysteresis_is_apexs),
        cmocka_unit_test(apex_reaches_zero_after_1091_overflows_and_then_divides_by_it),
        cmocka_unit_test(apex_starts_and_grows_no_higher_than_its_cap),
        cmocka_unit_test(apexs_floor_above_the_scale_raises_it),
        cmocka_unit_test(apex_legacy_is_its_rule),
        cmocka_unit_test(openseq2seq_backoff_is_its_rule),
        cmocka_unit_test(apex_hysteresis_is_its_rule),
        cmocka_unit_test(a_fixed_scale_neither_looks_nor_skips),
        cmocka_unit_test(a_fixed_scale_that_skips_only_skips),
        cmocka_unit_test(mindspore_fixed_skips_or_leaves_everything_to_the_optimizer),
        cmocka_unit_test(logmax_is_the_weighted_mean_of_its_history),
        cmocka_unit_test(logmax_of_a_zero_gradient_is_no_number_for_good),
        cmocka_unit_test(als_halves_above_its_share_and_doubles_below),
        cmocka_unit_test(adaloss_is_the_papers_formula),
        cmocka_unit_test(adaloss_looks_at_the_statistics_only_now_and_then),
        cmocka_unit_test(no_machine_grows_before_its_window_or_on_an_overflow),
        cmocka_unit_test(no_machine_leaves_its_bounds),
        cmocka_unit_test(state_by_name_continues_a_machine_exactly),
        cmocka_unit_test(a_counter_loaded_beyond_its_window_freezes_growth),
        cmocka_unit_test(dialects_are_found_by_name),
        cmocka_unit_test(a_configuration_reads_back_as_it_was_written),
        cmocka_unit_test(bad_configurations_say_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
