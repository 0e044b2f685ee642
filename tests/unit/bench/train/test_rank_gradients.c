/* Training with simulated ranks: one rank is no rank, exact ranks are one large batch, every hop of a half
 * ring is what brute force makes of the ranks' own gradients, and mistakes of the division show. */
#define _POSIX_C_SOURCE 200809L
#include "bench/train/recipe.h"

#include "kernels/core/parallel.h"
#include "tests/unit/probe_testing.h"

#include <math.h>

static const char plain_ops[] =
    "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3, \"padding\": 1}, "
    "{\"name\": \"relu1\", \"op\": \"relu\"}, {\"name\": \"flat\", \"op\": \"flatten\"}, "
    "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, "
    "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";

static const char normalised_ops[] =
    "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3, \"padding\": 1}, "
    "{\"name\": \"bn1\", \"op\": \"batch_norm2d\"}, {\"name\": \"flat\", \"op\": \"flatten\"}, "
    "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, "
    "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";

enum { MOST = 1024, RANKS = 4, PARAMS = 4 };
static const char *const weights[PARAMS] = {"conv1.weight", "conv1.bias", "fc.weight", "fc.bias"};

static int64_t read_values(const ab_cell *cell, const char *name, const char *suffix, float *values) {
    char full[64];
    ab_shape shape;
    snprintf(full, sizeof full, "%s%s", name, suffix);
    if (ab_cell_read(cell, full, &shape, NULL) != AB_OK) fail_msg("%s", ab_error_message());
    assert_true(ab_shape_count(&shape) <= MOST);
    assert_int_equal(ab_cell_read(cell, full, &shape, values), AB_OK);
    return ab_shape_count(&shape);
}

static ab_step_result step(ab_cell *cell) {
    ab_step_result result;
    if (ab_cell_step(cell, NULL, &result) != AB_OK) fail_msg("%s", ab_error_message());
    return result;
}

static ab_cell_config config_of(const ab_net *net, const char *level, const char *set, int64_t batch) {
    ab_cell_config config = pt_config(net, level, &ab_format_fp16, "momentum", set);
    config.batch = batch;
    return config;
}

static void use_ranks(ab_cell_config *config, int64_t ranks, const char *scheme, const char *wire,
                      const char *divide) {
    ab_rank_recipe *recipe = &config->recipe.ranks;
    recipe->count = ranks;
    recipe->bucket_bytes = 100;
    assert_int_equal(ab_reduction_parse_scheme(scheme, &recipe->reduction), AB_OK);
    assert_int_equal(ab_reduction_parse_wire(wire, &recipe->reduction), AB_OK);
    assert_int_equal(ab_reduction_parse_divide(divide, &recipe->reduction), AB_OK);
}

/* Largest difference of two cells' weights or gradients, relative to the largest. */
static double distance(const ab_cell *a, const ab_cell *b, const char *suffix) {
    double worst = 0;
    for (int p = 0; p < PARAMS; p++) {
        float x[MOST], y[MOST];
        double most = 0, difference = 0;
        int64_t n = read_values(a, weights[p], suffix, x);
        read_values(b, weights[p], suffix, y);
        for (int64_t k = 0; k < n; k++) {
            most = fmax(most, fabs((double)y[k]));
            difference = fmax(difference, fabs((double)x[k] - (double)y[k]));
        }
        worst = fmax(worst, difference / most);
    }
    return worst;
}

/* ---- equal trainings ------------------------------------------------------------------------- */

static void one_rank_has_the_bits_of_no_rank(void **state) {
    (void)state;
    ab_net *net = pt_net(plain_ops);
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++) {
        ab_cell_config none = config_of(net, pt_levels[l], "loss_scale=1024", 4), one = none;
        use_ranks(&one, 1, "ring", "bf16", "pre");
        ab_cell *a = pt_cell(&none), *b = pt_cell(&one);
        for (int k = 0; k < 3; k++) assert_true(step(a).loss == step(b).loss);
        assert_true(distance(a, b, "") == 0);
        ab_cell_destroy(a);
        ab_cell_destroy(b);
    }
    ab_net_free(net);
}

/* Three sums of up to four numbers in another order differ by a few units of fp32's last place. */
static void exact_ranks_are_accumulated_batches_and_one_large_batch(void **state) {
    (void)state;
    ab_net *net = pt_net(plain_ops);
    ab_cell_config large = config_of(net, "O0", NULL, PT_BATCH), parts = large, ranks = large;
    parts.batch = ranks.batch = PT_BATCH / RANKS;
    parts.recipe.micro_batches = RANKS;
    use_ranks(&ranks, RANKS, "exact", "as-is", "pre");
    ab_cell *a = pt_cell(&large), *b = pt_cell(&parts), *c = pt_cell(&ranks);
    for (int k = 0; k < 3; k++) {
        ab_step_result x = step(a), y = step(b), z = step(c);
        assert_true(fabsf(x.loss - z.loss) <= 1e-6F * fabsf(x.loss));
        assert_true(fabsf(y.loss - z.loss) <= 1e-6F * fabsf(y.loss));
    }
    assert_true(distance(c, b, ".grad") < 1e-6 && distance(c, a, ".grad") < 1e-6);
    assert_true(distance(c, b, "") < 1e-6 && distance(c, a, "") < 1e-6);
    ab_cell_destroy(a);
    ab_cell_destroy(b);
    ab_cell_destroy(c);
    ab_net_free(net);
}

/* ---- every hop ------------------------------------------------------------------------------- */

static float own[RANKS][PARAMS][MOST]; /* each rank's gradients */

/* The ranks' gradients of their batch `micro` of `batches` a step, from a cell of one rank that steps through
 * all batches without learning. */
static void measure_own(const ab_net *net, int64_t batch, int batches, int micro) {
    ab_cell_config config = config_of(net, "O0", NULL, batch);
    config.optim.lr = config.recipe.rates.lr = 0;
    ab_cell *cell = pt_cell(&config);
    for (int k = 0; k < RANKS * batches; k++) {
        step(cell);
        for (int p = 0; p < PARAMS && k % batches == micro; p++)
            read_values(cell, weights[p], ".grad", own[k / batches][p]);
    }
    ab_cell_destroy(cell);
}

static double to_bf16(double value) {
    static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    return ab_format_round(&ab_format_bf16, &nearest, value);
}

/* A bf16 ring over what the ranks hold of one element, at `position` of the flat gradient. */
static float ring(const float value[RANKS], int64_t position, int64_t bucket) {
    int64_t chunk = (bucket + RANKS - 1) / RANKS, start = (position % bucket / chunk + 1) % RANKS;
    double sum = 0;
    for (int64_t k = 0; k < RANKS; k++) {
        double sent = to_bf16(to_bf16((double)value[(start + k) % RANKS]) * 0.25);
        sum = k == 0 ? sent : to_bf16(sum + sent);
    }
    return (float)sum;
}

enum { BUCKET = 50 }; /* bf16 values in the 100 bytes of use_ranks */

typedef float one_value[RANKS]; /* an element's, of each rank */

/* What gradients of one micro-batch a step become. */
static float reduced(one_value first, one_value second, int64_t position) {
    (void)second;
    return ring(first, position, BUCKET);
}

/* Of two micro-batches, each of which counts one half: added before they are reduced; reduced, then added;
 * with the second one the first one's mean reduced again. */
static float reduced_once(one_value first, one_value second, int64_t position) {
    one_value sum;
    for (int r = 0; r < RANKS; r++) sum[r] = first[r] * 0.5F + second[r] * 0.5F;
    return ring(sum, position, BUCKET);
}

static float reduced_each(one_value first, one_value second, int64_t position) {
    for (int r = 0; r < RANKS; r++) {
        first[r] *= 0.5F;
        second[r] *= 0.5F;
    }
    return ring(first, position, BUCKET) + ring(second, position, BUCKET);
}

static float reduced_again(one_value first, one_value second, int64_t position) {
    one_value held;
    for (int r = 0; r < RANKS; r++) first[r] *= 0.5F;
    const float mean = ring(first, position, BUCKET);
    for (int r = 0; r < RANKS; r++) held[r] = mean + second[r] * 0.5F;
    return ring(held, position, BUCKET);
}

typedef float brute_force(one_value first, one_value second, int64_t position);

static float earlier[RANKS][PARAMS][MOST]; /* gradients of the first of two micro-batches */

/* Share of a cell's gradients that are not what brute force makes of the ranks' own. */
static double share_elsewhere(const ab_cell *cell, brute_force *expected) {
    int64_t position = 0, elsewhere = 0;
    for (int p = PARAMS - 1; p >= 0; p--) { /* buckets fill from the last parameter */
        float found[MOST];
        const int64_t n = read_values(cell, weights[p], ".grad", found);
        for (int64_t i = 0; i < n; i++, position++) {
            one_value first, second;
            for (int r = 0; r < RANKS; r++) {
                first[r] = earlier[r][p][i];
                second[r] = own[r][p][i];
            }
            elsewhere += found[i] != expected(first, second, position);
        }
    }
    return (double)elsewhere / (double)position;
}

/* That share after a step of a bf16 ring with the bytes of a bucket and micro-batches. */
static double misplaced(const ab_net *net, double bucket_bytes, int batches, ab_reduce_every every,
                        brute_force *expected) {
    ab_cell_config config = config_of(net, "O0", NULL, 2);
    config.optim.lr = config.recipe.rates.lr = 0;
    config.recipe.micro_batches = batches;
    use_ranks(&config, RANKS, "ring", "bf16", "pre");
    config.recipe.ranks.bucket_bytes = bucket_bytes;
    config.recipe.ranks.every = every;
    ab_cell *cell = pt_cell(&config);
    step(cell);
    measure_own(net, 2, batches, 0);
    memcpy(earlier, own, sizeof own);
    if (batches > 1) measure_own(net, 2, batches, 1);
    const double share = share_elsewhere(cell, expected);
    ab_cell_destroy(cell);
    return share;
}

static void a_half_ring_is_what_brute_force_makes_of_the_ranks_gradients(void **state) {
    (void)state;
    ab_net *net = pt_net(plain_ops);
    assert_true(misplaced(net, 100, 1, AB_REDUCE_STEP, reduced) == 0);
    ab_net_free(net);
}

static void micro_batches_are_reduced_once_or_each_or_with_what_accumulated(void **state) {
    (void)state;
    ab_net *net = pt_net(plain_ops);
    static brute_force *const expected[] = {reduced_once, reduced_each, reduced_again};
    for (int every = 0; every < (int)AB_COUNT_OF(expected); every++)
        for (int other = 0; other < (int)AB_COUNT_OF(expected); other++) {
            const double share = misplaced(net, 100, 2, (ab_reduce_every)every, expected[other]);
            if (every == other ? share != 0 : share < 0.05)
                fail_msg("%s as %s: %g differ", ab_reduction_every_text((ab_reduce_every)every),
                         ab_reduction_every_text((ab_reduce_every)other), share);
        }
    ab_net_free(net);
}

/* Negative controls: what the comparison with brute force must find. */
static void an_element_in_another_bucket_is_found(void **state) {
    (void)state;
    ab_net *net = pt_net(plain_ops);
    assert_true(misplaced(net, 92, 1, AB_REDUCE_STEP, reduced) > 0.05);
    ab_net_free(net);
}

/* ---- running statistics ---------------------------------------------------------------------- */

static void running_statistics_are_those_of_the_first_rank(void **state) {
    (void)state;
    ab_net *net = pt_net(normalised_ops);
    ab_cell_config single = config_of(net, "O0", NULL, 2), ranks = single;
    use_ranks(&ranks, RANKS, "ring", "as-is", "pre");
    ab_cell *a = pt_cell(&single), *b = pt_cell(&ranks);
    float x[MOST], y[MOST];
    step(a);
    step(b);
    int64_t n = read_values(a, "bn1.running_mean", "", x);
    read_values(b, "bn1.running_mean", "", y);
    assert_memory_equal(x, y, (size_t)n * sizeof *x);
    ab_cell_destroy(a);
    ab_cell_destroy(b);
    ab_net_free(net);
}

/* ---- batch norm over all ranks --------------------------------------------------------------- */

static const char deep_ops[] =
    "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3, \"padding\": 1}, "
    "{\"name\": \"bn1\", \"op\": \"batch_norm2d\"}, {\"name\": \"relu1\", \"op\": \"relu\"}, "
    "{\"name\": \"conv2\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3, \"padding\": 1}, "
    "{\"name\": \"bn2\", \"op\": \"batch_norm2d\"}, {\"name\": \"flat\", \"op\": \"flatten\"}, "
    "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, "
    "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";

static const char *const deep_values[] = {
    "conv1.weight", "bn1.weight",       "bn1.bias",        "conv2.weight",     "bn2.weight",
    "fc.weight",    "bn1.running_mean", "bn1.running_var", "bn2.running_mean", "bn2.running_var"};

/* Largest difference of any value of the cells after `steps` steps, relative to the largest of its tensor. */
static double deep_distance(const ab_cell_config *one, const ab_cell_config *other, int steps) {
    ab_cell *a = pt_cell(one), *b = pt_cell(other);
    double worst = 0;
    for (int k = 0; k < steps; k++) {
        const double x = (double)step(a).loss, y = (double)step(b).loss;
        worst = fmax(worst, fabs(x - y) / fabs(x));
    }
    for (size_t i = 0; i < AB_COUNT_OF(deep_values); i++) {
        float x[MOST], y[MOST];
        double most = 0, difference = 0;
        const int64_t n = read_values(a, deep_values[i], "", x);
        read_values(b, deep_values[i], "", y);
        for (int64_t k = 0; k < n; k++) {
            most = fmax(most, fabs((double)x[k]));
            difference = fmax(difference, fabs((double)x[k] - (double)y[k]));
        }
        worst = fmax(worst, difference / most);
    }
    ab_cell_destroy(a);
    ab_cell_destroy(b);
    return worst;
}

/* N batches of b samples with common statistics are one batch of N b samples, forward and backward. */
static void synchronised_batch_norm_is_that_of_the_global_batch(void **state) {
    (void)state;
    ab_net *net = pt_net(deep_ops);
    for (int ranks = 2; ranks <= PT_BATCH; ranks *= 2) {
        ab_cell_config large = config_of(net, "O0", NULL, PT_BATCH), parts = large, local, apex;
        large.optim.momentum = parts.optim.momentum = 0.5;
        parts.batch = PT_BATCH / ranks;
        use_ranks(&parts, ranks, "exact", "as-is", "pre");
        local = apex = parts;
        parts.recipe.ranks.sync_bn = AB_SYNC_TORCH;
        apex.recipe.ranks.sync_bn = AB_SYNC_APEX;
        const double torch_off = deep_distance(&large, &parts, 3), apex_off = deep_distance(&large, &apex, 3);
        if (!(torch_off < 2e-5 && apex_off < 2e-5)) fail_msg("%d ranks: %g, %g", ranks, torch_off, apex_off);
        assert_true(deep_distance(&large, &local, 3) > 1e-3);
        assert_true(deep_distance(&parts, &parts, 3) == 0);
    }
    ab_net_free(net);
}

/* The passes of all ranks go on beside each other: none of them may see another's activations, micro-batches
 * or dropout. With statistics that nothing normalises by, ranks beside each other are ranks one after the
 * other. */
static void ranks_beside_each_other_do_not_mix(void **state) {
    (void)state;
    static const char ops[] =
        "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3, \"padding\": 1}, "
        "{\"name\": \"relu1\", \"op\": \"relu\"}, {\"name\": \"drop\", \"op\": \"dropout\", \"p\": 0.3}, "
        "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"fc\", \"op\": \"linear\", \"out_features\": "
        "3}, "
        "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";
    ab_net *net = pt_net(ops);
    for (size_t l = 0; l < 3 * AB_COUNT_OF(pt_levels); l++) {
        ab_cell_config after = config_of(net, pt_levels[l / 3], "loss_scale=1024", 2), beside;
        after.recipe.micro_batches = 2;
        use_ranks(&after, RANKS, "ring", "bf16", "pre");
        after.recipe.ranks.every = (ab_reduce_every)(l % 3);
        beside = after;
        beside.recipe.ranks.sync_bn = AB_SYNC_TORCH;
        ab_cell *a = pt_cell(&after), *b = pt_cell(&beside);
        for (int k = 0; k < 3; k++) assert_true(step(a).loss == step(b).loss);
        assert_true(distance(a, b, "") == 0);
        ab_cell_destroy(a);
        ab_cell_destroy(b);
    }
    ab_net_free(net);
}

/* ---- overflow -------------------------------------------------------------------------------- */

/* Whether the first step is skipped with gradients of half a binade or so below fp16's limit. */
static bool skips(const ab_net *net, const char *scale, int64_t ranks, const char *divide) {
    ab_cell_config config = config_of(net, "O2", scale, 2);
    config.recipe.rates.lr = config.optim.lr = 1e-6;
    if (ranks > 1) use_ranks(&config, ranks, "ring", "as-is", divide);
    ab_cell *cell = pt_cell(&config);
    bool skipped = step(cell).skipped;
    ab_cell_destroy(cell);
    return skipped;
}

/* The largest power of two at which one rank does not overflow. */
static int largest_scale(const ab_net *net) {
    char scale[64];
    for (int k = 24; k > 0; k--) {
        snprintf(scale, sizeof scale, "loss_scale=torch:init=%.0f", ldexp(1, k));
        if (!skips(net, scale, 1, NULL)) return k;
    }
    return 0;
}

static void halves_overflow_if_they_are_divided_after_the_sum(void **state) {
    (void)state;
    ab_net *net = pt_net(plain_ops);
    int k = largest_scale(net);
    assert_true(k > 2);
    char scale[64];
    snprintf(scale, sizeof scale, "loss_scale=torch:init=%.0f", ldexp(1, k));
    assert_true(skips(net, scale, 32, "post"));
    assert_false(skips(net, scale, 32, "64"));
    ab_net_free(net);
}

/* Two ranks of 4 and 2 samples are one batch of these 6; with the same weight for both they are not. */
static void ranks_of_unequal_samples_are_one_batch_of_all(void **state) {
    (void)state;
    ab_net *net = pt_net(plain_ops);
    ab_cell_config large = config_of(net, "O0", NULL, 6), ranks = large;
    ranks.batch = 4;
    use_ranks(&ranks, 2, "exact", "as-is", "pre");
    ranks.recipe.ranks.last_samples = 2;
    ab_cell_config alike = ranks;
    alike.recipe.faults = AB_FAULT_ranks_weighted_alike;
    ab_cell *a = pt_cell(&large), *b = pt_cell(&ranks), *c = pt_cell(&alike);
    const float whole = step(a).loss, weighted = step(b).loss, same = step(c).loss;
    assert_true(fabsf(whole - weighted) <= 1e-6F * fabsf(whole));
    assert_true(distance(b, a, ".grad") < 1e-6);
    assert_true(fabsf(whole - same) > 1e-4F * fabsf(whole));
    assert_true(distance(c, a, ".grad") > 1e-3);
    assert_true(ab_cell_rank_weight(b, 0) == 8.0 / 6 && ab_cell_rank_weight(b, 1) == 4.0 / 6);
    ab_cell_destroy(a);
    ab_cell_destroy(b);
    ab_cell_destroy(c);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_has_the_bits_of_no_rank),
        cmocka_unit_test(ranks_of_unequal_samples_are_one_batch_of_all),
        cmocka_unit_test(exact_ranks_are_accumulated_batches_and_one_large_batch),
        cmocka_unit_test(a_half_ring_is_what_brute_force_makes_of_the_ranks_gradients),
        cmocka_unit_test(micro_batches_are_reduced_once_or_each_or_with_what_accumulated),
        cmocka_unit_test(an_element_in_another_bucket_is_found),
        cmocka_unit_test(running_statistics_are_those_of_the_first_rank),
        cmocka_unit_test(synchronised_batch_norm_is_that_of_the_global_batch),
        cmocka_unit_test(ranks_beside_each_other_do_not_mix),
        cmocka_unit_test(halves_overflow_if_they_are_divided_after_the_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
