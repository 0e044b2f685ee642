/* --probes, --probe-every and --probe-budget: what they mean together, and what they refuse. */
#define _GNU_SOURCE
#include "bench/run/config.h"
#include "probes/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A configuration from words that are separated by single spaces. */
static ab_status configure(const char *text, ab_run_config *config) {
    static char line[256], program[] = "ampbench";
    char *argv[16] = {program}, *rest = line;
    int argc = 1;
    ab_options options;
    strncpy(line, text, sizeof line - 1);
    for (char *word; argc < 15 && (word = strsep(&rest, " "));)
        if (word[0]) argv[argc++] = word;
    ab_status status = ab_options_parse(argc, argv, &options);
    return status == AB_OK ? ab_run_config_create(&options, false, config) : status;
}

static uint64_t bit(const char *name) {
    int index = -1;
    assert_int_equal(ab_probe_find(name, &index), AB_OK);
    return (uint64_t)1 << index;
}

typedef struct meaning {
    uint64_t probes;
    int64_t every;
    double budget;
} meaning;

static void means(const char *text, meaning expected) {
    ab_run_config config;
    if (configure(text, &config) != AB_OK) fail_msg("%s: %s", text, ab_error_message());
    if (config.probes != expected.probes || config.probe_every != expected.every ||
        config.probe_budget != expected.budget)
        fail_msg("'%s' means %llx, every %lld, budget %g", text, (unsigned long long)config.probes,
                 (long long)config.probe_every, config.probe_budget);
    ab_run_config_clear(&config);
}

static void defaults_are_cheap_probes_within_three_percent(void **state) {
    (void)state;
    means("", (meaning){ab_probes_standard(), 10, 0.03});
    means("--probes default", (meaning){ab_probes_standard(), 10, 0.03});
}

static void names_are_collected(void **state) {
    (void)state;
    means("--probes gradients", (meaning){bit("gradients"), 10, 0.03});
    means("--probes lost_updates,nan_provenance,lost_updates",
          (meaning){bit("lost_updates") | bit("nan_provenance"), 10, 0.03});
    means("--probes default,activations", (meaning){ab_probes_standard() | bit("activations"), 10, 0.03});
    means("--probes all", (meaning){ab_probes_all(), 10, 0.03});
}

static void an_interval_that_is_given_is_kept(void **state) {
    (void)state;
    means("--probe-every 7", (meaning){ab_probes_standard(), 7, 0});
    means("--probes all --probe-every 1", (meaning){ab_probes_all(), 1, 0});
    means("--probe-every 0", (meaning){0, 0, 0});
}

static void a_budget_is_a_share(void **state) {
    (void)state;
    means("--probe-budget 5%", (meaning){ab_probes_standard(), 10, 0.05});
    means("--probe-budget 0.05", (meaning){ab_probes_standard(), 10, 0.05});
    means("--probe-budget 100%", (meaning){ab_probes_standard(), 10, 1});
    means("--probe-budget 0", (meaning){0, 0, 0});
    means("--probe-budget 0%", (meaning){0, 0, 0});
    means("--probes all --probe-budget 0", (meaning){0, 0, 0});
}

static void refused(const char *text, const char *expected) {
    ab_run_config config;
    assert_int_equal(configure(text, &config), AB_USAGE);
    if (!strstr(ab_error_message(), expected))
        fail_msg("%s: \"%s\" lacks \"%s\"", text, ab_error_message(), expected);
}

static void mistakes_are_refused_with_the_option_and_the_nearest_name(void **state) {
    (void)state;
    refused("--probes gradient", "--probes: no probe is called 'gradient'; did you mean 'gradients'?");
    refused("--probes gradients,,weights", "--probes");
    refused("--probe-budget 5", "--probe-budget: expected a share such as 3% or 0.03, at most 1, found '5'");
    refused("--probe-budget 101%", "--probe-budget");
    refused("--probe-budget -1%", "--probe-budget");
    refused("--probe-budget nan", "--probe-budget");
    refused("--probe-budget 3%%", "--probe-budget");
    refused("--probe-budget %", "--probe-budget");
    refused("--probe-every -1", "--probe-every");
    refused("--probe-every 1 --probe-budget 3%", "give one of them");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_cheap_probes_within_three_percent),
        cmocka_unit_test(names_are_collected),
        cmocka_unit_test(an_interval_that_is_given_is_kept),
        cmocka_unit_test(a_budget_is_a_share),
        cmocka_unit_test(mistakes_are_refused_with_the_option_and_the_nearest_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
