/* Checkpoints: a resumed cell goes on with the bits of one that never stopped, at every level and in the
 * middle of the loss scale's window; leaving a part out shows; a file of something else is refused by name; a
 * killed writer leaves a whole file. */
#define _POSIX_C_SOURCE 200809L
#include "bench/tensorfile/safetensors.h"
#include "support/json_file.h"
#include "tests/unit/probe_testing.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BEFORE = 11, AFTER = 13 };

static char path[64], other_path[64];

static int make_paths(void **state) {
    (void)state;
    snprintf(path, sizeof path, "/tmp/ampbench_checkpoint_%ld.safetensors", (long)getpid());
    snprintf(other_path, sizeof other_path, "/tmp/ampbench_checkpoint_%ld_b.safetensors", (long)getpid());
    return 0;
}

static int remove_files(void **state) {
    (void)state;
    unlink(path);
    unlink(other_path);
    return 0;
}

static ab_step_result step(ab_cell *cell) {
    ab_step_result result;
    if (ab_cell_step(cell, NULL, &result) != AB_OK) fail_msg("%s", ab_error_message());
    return result;
}

static void save(const ab_cell *cell, const char *to) {
    if (ab_cell_checkpoint(cell, to) != AB_OK) fail_msg("%s", ab_error_message());
}

static void resume(ab_cell *cell, const char *from) {
    if (ab_cell_resume(cell, from) != AB_OK) fail_msg("%s", ab_error_message());
}

/* Overflows at first, a window that is not over at the checkpoint, shuffled batches over several epochs, two
 * micro-batches a step, a schedule in its warm-up. Raw pixels, so that gradients leave fp16 at 2^16. */
static ab_cell_config config_of(const ab_net *net, const char *level, const char *optimizer) {
    ab_cell_config config = pt_config(net, level, &ab_format_fp16, optimizer, "loss_scale=dynamic");
    config.normalize = AB_NORMALIZE_NONE;
    config.scale_window = 7;
    config.shuffled = true;
    config.batch = 4;
    config.recipe.micro_batches = 2;
    config.optim.lr = config.recipe.rates.lr = strcmp(optimizer, "momentum") == 0 ? 1e-4 : 1e-3;
    assert_int_equal(
        ab_schedule_parse("cosine:warmup=15,total=40", &config.recipe.schedule, &config.recipe.rates), AB_OK);
    config.recipe.rates.lr = config.optim.lr;
    return config;
}

/* Without batch norm raw pixels need a scale far below the first one. */
static const char plain_ops[] =
    "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3, \"padding\": 1}, "
    "{\"name\": \"relu1\", \"op\": \"relu\"}, {\"name\": \"flat\", \"op\": \"flatten\"}, "
    "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, "
    "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";

/* One number of each image: cannot tell the classes apart, so that training ends at a loss that is not 0. */
static const char poor_ops[] =
    "{\"name\": \"pool\", \"op\": \"avg_pool2d\", \"kernel_size\": 8}, "
    "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, "
    "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";

static bool same_bytes(const char *a, const char *b) {
    char *x = ab_test_read(a), *y = ab_test_read(b);
    FILE *file = fopen(a, "rb");
    assert_true(x && y && file);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    fclose(file);
    file = fopen(b, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    bool same = size == (size_t)ftell(file) && memcmp(x, y, size) == 0;
    fclose(file);
    free(x);
    free(y);
    return same;
}

/* Steps a cell, saves it, and steps it on; then a new cell resumed with `faults`. Losses and scales of both.
 */
typedef struct two_runs {
    float loss[2][AFTER];
    double scale[2][AFTER];
    double tested[2]; /* loss on the test set right after resuming */
    bool same_end;    /* the checkpoints at the end are the same, byte for byte */
} two_runs;

static void run_both(const ab_cell_config *config, unsigned faults, two_runs *runs) {
    ab_cell_config resumed = *config;
    ab_eval_result tested;
    ab_cell *cell = pt_cell(config);
    int skipped = 0;
    for (int i = 0; i < BEFORE; i++) skipped += step(cell).skipped;
    assert_true(skipped > 0 || strcmp(config->policy.level, "O0") == 0);
    double window = ab_scaler_state(ab_cell_scaler(cell), 1);
    assert_string_equal(ab_scaler_state_name(ab_cell_scaler(cell)->kind, 1), "unskipped");
    assert_true(window > 0 && window < 7);
    save(cell, path);
    assert_int_equal(ab_cell_evaluate(cell, AB_SPLIT_TEST, 0, &tested), AB_OK);
    runs->tested[0] = tested.loss;
    for (int i = 0; i < AFTER; i++) {
        ab_step_result result = step(cell);
        runs->loss[0][i] = result.loss;
        runs->scale[0][i] = result.scale;
    }
    save(cell, other_path);
    ab_cell_destroy(cell);
    resumed.recipe.faults = faults;
    cell = pt_cell(&resumed);
    if (!faults) step(cell); /* what it did before is forgotten, cached copies too */
    resume(cell, path);
    assert_int_equal(ab_cell_evaluate(cell, AB_SPLIT_TEST, 0, &tested), AB_OK);
    runs->tested[1] = tested.loss;
    for (int i = 0; i < AFTER; i++) {
        ab_step_result result = step(cell);
        runs->loss[1][i] = result.loss;
        runs->scale[1][i] = result.scale;
    }
    save(cell, path);
    runs->same_end = same_bytes(path, other_path);
    ab_cell_destroy(cell);
}

static void a_resumed_run_has_the_bits_of_one_that_never_stopped(void **state) {
    (void)state;
    static const char *const optimizers[] = {"momentum", "adam", "lamb", "rmsprop_centered"};
    ab_net *net = pt_net(pt_ops);
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++)
        for (size_t o = 0; o < AB_COUNT_OF(optimizers); o++) {
            if (strcmp(pt_levels[l], "O3") == 0 && o == 3) continue; /* the half root is NaN at once */
            two_runs runs;
            ab_cell_config config = config_of(net, pt_levels[l], optimizers[o]);
            run_both(&config, 0, &runs);
            assert_memory_equal(runs.loss[0], runs.loss[1], sizeof runs.loss[0]);
            assert_memory_equal(runs.scale[0], runs.scale[1], sizeof runs.scale[0]);
            assert_true(runs.tested[0] == runs.tested[1]);
            assert_true(runs.same_end);
        }
    ab_net_free(net);
}

/* Other frameworks' levels, with their own scalers; dropout's random numbers go on too. */
static void every_level_goes_on_with_the_same_bits(void **state) {
    (void)state;
    static const char ops[] =
        "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3, \"padding\": 1}, "
        "{\"name\": \"bn1\", \"op\": \"batch_norm2d\"}, {\"name\": \"relu1\", \"op\": \"relu\"}, "
        "{\"name\": \"drop\", \"op\": \"dropout\", \"p\": 0.5}, {\"name\": \"flat\", \"op\": \"flatten\"}, "
        "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, "
        "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";
    ab_net *net = pt_net(ops);
    for (int l = 0; l < ab_level_count(); l++) {
        ab_cell_config config = config_of(net, "O0", "adamw");
        assert_int_equal(ab_policy_resolve(ab_level_at(l), &ab_format_fp16, NULL, 0, &config.policy), AB_OK);
        config.scale_window = 4;
        ab_cell *cell = pt_cell(&config), *resumed = pt_cell(&config);
        for (int i = 0; i < BEFORE; i++) step(cell);
        save(cell, path);
        resume(resumed, path);
        for (int i = 0; i < AFTER; i++) {
            ab_step_result a = step(cell), b = step(resumed);
            assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
            assert_true(a.scale == b.scale && a.skipped == b.skipped);
        }
        save(cell, other_path);
        save(resumed, path);
        if (!same_bytes(path, other_path)) fail_msg("%s", ab_level_at(l)->name);
        ab_cell_destroy(cell);
        ab_cell_destroy(resumed);
    }
    ab_net_free(net);
}

/* Whatever numbers a dialect keeps. */
static void every_scaler_goes_on_where_it_was(void **state) {
    (void)state;
    ab_net *net = pt_net(plain_ops);
    for (int k = 0; k < ab_scaler_count(); k++) {
        const ab_scaler_kind *kind = ab_scaler_at(k);
        ab_cell_config config = config_of(net, "O2", "momentum");
        char set[64];
        const char *overrides[] = {set};
        const ab_level *level = NULL;
        snprintf(set, sizeof set, "loss_scale=%s", kind->name);
        assert_int_equal(ab_level_find("O2", &level), AB_OK);
        assert_int_equal(ab_policy_resolve(level, &ab_format_fp16, overrides, 1, &config.policy), AB_OK);
        config.scale_window = 3;
        ab_cell *cell = pt_cell(&config), *resumed = pt_cell(&config);
        for (int i = 0; i < BEFORE; i++) step(cell);
        save(cell, path);
        resume(resumed, path);
        for (int i = 0; i < 6; i++) {
            for (int s = 0; s < ab_scaler_state_count(kind); s++) {
                double a = ab_scaler_state(ab_cell_scaler(cell), s),
                       b = ab_scaler_state(ab_cell_scaler(resumed), s);
                if (!(a == b || (isnan(a) && isnan(b)))) fail_msg("%s: %g, resumed %g", kind->name, a, b);
            }
            ab_step_result a = step(cell), b = step(resumed);
            assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
        }
        ab_cell_destroy(cell);
        ab_cell_destroy(resumed);
    }
    ab_net_free(net);
}

static void state_in_half_survives(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = config_of(net, "O2", "adam");
    config.policy.keep.state_format = &ab_format_bf16;
    config.policy.keep.ema_format = &ab_format_fp16;
    config.recipe.ema_decay = 0.9;
    two_runs runs;
    run_both(&config, 0, &runs);
    assert_memory_equal(runs.loss[0], runs.loss[1], sizeof runs.loss[0]);
    assert_true(runs.same_end);
    ab_net_free(net);
}

/* Each part that is left out shows where it must. */
static void what_is_left_out_shows(void **state) {
    (void)state;
    static const unsigned faults[] = {AB_FAULT_resume_without_masters,  AB_FAULT_resume_without_optimizer,
                                      AB_FAULT_resume_without_scaler,   AB_FAULT_resume_without_position,
                                      AB_FAULT_resume_without_schedule, AB_FAULT_resume_without_batch_norm};
    ab_net *net = pt_net(pt_ops), *plain = pt_net(plain_ops);
    for (size_t f = 0; f < AB_COUNT_OF(faults); f++) {
        two_runs runs;
        bool scaler = faults[f] == AB_FAULT_resume_without_scaler;
        ab_cell_config config = config_of(scaler ? plain : net, "O2", "adam");
        run_both(&config, faults[f], &runs);
        if (runs.same_end) fail_msg("fault %#x changes nothing", faults[f]);
        bool tested = runs.tested[0] != runs.tested[1];
        bool losses = false;
        for (int i = 0; i < AFTER; i++) losses |= runs.loss[0][i] != runs.loss[1][i];
        bool batch_norm = faults[f] == AB_FAULT_resume_without_batch_norm;
        assert_int_equal(tested, batch_norm);
        assert_int_equal(losses, !batch_norm); /* training does not read running statistics */
        assert_true(!scaler ||
                    (runs.scale[0][0] < 4096 && runs.scale[1][0] == 65536 && runs.scale[1][1] == 32768));
    }
    ab_net_free(net);
    ab_net_free(plain);
}

/* Adam with empty moments: the first updates are lr long for every weight, however flat the loss is, and a
 * loss that had come down jumps up. */
static void adam_without_its_moments_spikes(void **state) {
    (void)state;
    ab_net *net = pt_net(poor_ops);
    ab_cell_config config = pt_config(net, "O2", &ab_format_fp16, "adam", "loss_scale=1024");
    config.batch = PT_SAMPLES;
    config.optim.lr = 0.3;
    config.optim.beta2 = 0.9999;
    ab_cell *cell = pt_cell(&config);
    for (int i = 0; i < 300; i++) step(cell);
    save(cell, path);
    float bottom = step(cell).loss, smooth = bottom, spike = bottom;
    for (int i = 0; i < 12; i++) smooth = fmaxf(smooth, step(cell).loss);
    ab_cell_destroy(cell);
    config.recipe.faults = AB_FAULT_resume_without_optimizer;
    cell = pt_cell(&config);
    resume(cell, path);
    for (int i = 0; i < 12; i++) spike = fmaxf(spike, step(cell).loss);
    if (!(smooth - bottom < 1e-4f && spike - bottom > 0.005f))
        fail_msg("%g above %g, without the moments %g", (double)(smooth - bottom), (double)bottom,
                 (double)(spike - bottom));
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* ---- files of something else ----------------------------------------------------------------- */

static void refused(const ab_cell_config *config, const char *message) {
    ab_cell *cell = pt_cell(config);
    assert_int_equal(ab_status_exit(ab_cell_resume(cell, path)), 2);
    if (!strstr(ab_error_message(), message)) fail_msg("%s", ab_error_message());
    assert_non_null(strstr(ab_error_message(), path));
    assert_null(strchr(ab_error_message(), '\n'));
    ab_cell_destroy(cell);
}

static void files_of_something_else_are_refused(void **state) {
    (void)state;
    static const char wider[] =
        "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out_channels\": 6, \"kernel_size\": 3, \"padding\": 1}, "
        "{\"name\": \"relu1\", \"op\": \"relu\"}, {\"name\": \"flat\", \"op\": \"flatten\"}, "
        "{\"name\": \"head\", \"op\": \"linear\", \"out_features\": 3}, "
        "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";
    ab_net *net = pt_net(pt_ops), *other = pt_net(wider);
    ab_cell_config config = config_of(net, "O1", "adam"), changed = config;
    ab_cell *cell = pt_cell(&config);
    save(cell, path);
    changed.net = other;
    refused(&changed, "'conv1.weight' is [4, 1, 3, 3] there and [6, 1, 3, 3] here");
    refused(&changed, "'head.weight' is missing");
    refused(&changed, ", ...");
    changed = config_of(net, "O2", "adam");
    refused(&changed, "level is O1 there and O2 here");
    changed = config_of(net, "O0", "adam");
    refused(&changed, "level is O1 there and O0 here");
    changed = config_of(net, "O1", "momentum");
    refused(&changed, "optimizer is adam there and momentum here");
    changed = config;
    changed.seed = 2;
    refused(&changed, "seed is 1 there and 2 here");
    assert_int_equal(ab_cell_save(cell, path), AB_OK);
    refused(&config, "weights alone are read by --init");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs("no checkpoint", file);
    fclose(file);
    refused(&config, "--resume-from");
    unlink(path);
    refused(&config, "--resume-from");
    ab_cell_destroy(cell);
    ab_net_free(net);
    ab_net_free(other);
}

/* ---- a killed writer ------------------------------------------------------------------------- */

/* Child: checkpoints after every step until it is killed; says when the second one is there. */
static void checkpoint_for_ever(const ab_cell_config *config, int ready) {
    ab_cell *cell = NULL;
    ab_step_result result;
    if (ab_cell_create(config, &cell) != AB_OK) _exit(1);
    for (int i = 0;; i++) {
        if (ab_cell_checkpoint(cell, path) != AB_OK || ab_cell_step(cell, NULL, &result) != AB_OK) _exit(2);
        if (i == 1 && write(ready, "", 1) != 1) _exit(3);
    }
}

static void kill_writer(const ab_cell_config *config, long wait_ns) {
    int pipes[2], how = 0;
    char byte, litter[96];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) checkpoint_for_ever(config, pipes[1]);
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    close(pipes[0]);
    nanosleep(&(const struct timespec){0, wait_ns}, NULL);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    snprintf(litter, sizeof litter, "%s.%ld.tmp", path, (long)child);
    unlink(litter);
}

static void a_killed_writer_leaves_a_whole_file(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = config_of(net, "O2", "adam");
    ab_cell *cell = pt_cell(&config);
    for (int i = 0; i < 25; i++) {
        kill_writer(&config, (long)ab_rng_below(5, AB_RNG_SAMPLE, 0, (uint64_t)i, 10000000));
        resume(cell, path);
        assert_true(ab_cell_steps(cell) > 0);
    }
    ab_cell_destroy(cell);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_writer_leaves_a_whole_file), /* first: it forks */
        cmocka_unit_test(a_resumed_run_has_the_bits_of_one_that_never_stopped),
        cmocka_unit_test(every_level_goes_on_with_the_same_bits),
        cmocka_unit_test(every_scaler_goes_on_where_it_was),
        cmocka_unit_test(state_in_half_survives),
        cmocka_unit_test(what_is_left_out_shows),
        cmocka_unit_test(adam_without_its_moments_spikes),
        cmocka_unit_test(files_of_something_else_are_refused),
    };
    return cmocka_run_group_tests(tests, make_paths, remove_files);
}
