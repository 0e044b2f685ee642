/* `ampbench gate`: compares two results, or measures two builds alternately and compares those.
 * reports/gate/gate.h computes the verdict; this file only parses, loads and prints. */
#define _GNU_SOURCE
#include "bench/cmd/cmd.h"
#include "bench/gate/measure.h"
#include "bench/gate/selftest.h"
#include "kernels/core/number.h"
#include "kernels/core/text.h"
#include "kernels/files/lock.h"
#include "reports/record/json.h"
#include "reports/record/output.h"
#include "reports/record/result.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: ampbench gate BASE.json NEW.json [OPTION]...\n"
    "       ampbench gate --base-exe PROGRAM | --base-ref COMMIT [OPTION]... [-- RUN OPTION...]\n"
    "       ampbench gate --selftest [OPTION]... [-- RUN OPTION...]\n\n"
    "Says whether NEW got slower, bigger or numerically different, by how much, and what to do about it.\n\n"
    "With two results the deterministic part is binding (losses, skipped steps, loss scales, flushed and "
    "non-finite\n"
    "values, bytes, casts, FLOPs); times are judged only if both were measured in turns by this command, "
    "otherwise they\n"
    "are advisory. With --base-exe or --base-ref both builds are measured now, in turns, in 12, 20 or 30 "
    "rounds.\n"
    "Options after -- are those of `ampbench run`.\n\n"
    "What to compare:\n"
    "  --base-exe PROGRAM       the base is this ampbench program\n"
    "  --base-ref COMMIT        the base is this commit of the repository here; it is built first\n"
    "  --new-exe PROGRAM        the candidate is this program (default: the one that is running)\n"
    "  --pinned FILE            fail on slow drift against this result too: small steps that add up\n"
    "  --pinned-exe PROGRAM     the same against a program, measured in turns with the others\n"
    "  --rounds N               measure N rounds and look once, at alpha 0.05 (default: look at 12, 20 and "
    "30)\n"
    "  --out DIR                where measured results go (default ampbench-gate)\n"
    "  --seed N                 seed of the order of the rounds (default 1)\n\n"
    "What to accept:\n"
    "  --tolerance LIST         largest accepted growth, e.g. time=3%,memory=0% (the default)\n"
    "  --guard SHARE            shift that noise alone can make (default 1%); at least the noise of the "
    "rounds\n"
    "  --loss-bound X           losses may differ by this relative amount (default 0: no bit may)\n"
    "  --drift-budget SHARE     growth against --pinned (default 5%)\n"
    "  --ignore LIST            fields that may differ, e.g. environment.hostname_hash,environment.kernel\n"
    "  --lenient                missing and new cells are named, but accepted\n"
    "  --calibration FILE       what `gate --selftest --json FILE` measured; verdicts cite it, and the guard "
    "is at\n"
    "                           least the noise that it found\n\n"
    "Outcome:\n"
    "  --inconclusive pass|fail exit 0 or 3 in place of 5\n"
    "  --no-baseline fail|pass  where BASE.json does not exist nothing is compared: exit 6 (the default) or "
    "0\n"
    "  --exit-zero              exit 0 whatever the verdict is (not after an error)\n"
    "  --save-baseline FILE     write NEW to FILE when nothing regressed\n"
    "  --json FILE              the verdict as JSON to FILE; -: to stdout, and nothing else there\n"
    "  --format FORMAT          what goes to stdout: text (default), markdown, junit, github (annotation "
    "lines) or json\n"
    "  --markdown FILE          the verdict as Markdown to FILE too, e.g. $GITHUB_STEP_SUMMARY\n"
    "  --junit FILE             the verdict as JUnit XML to FILE too\n"
    "  --quiet                  no progress\n\n"
    "Self-test (A/A and extra work of 1, 2, 3, 5 and 10 %; how often the gate fires):\n"
    "  --effects LIST           work to add in per cent (default 1,2,3,5,10); 0: identical builds only\n"
    "  --selftest               uses --rounds N rounds (default 120), --out, --seed, --json\n\n"
    "Exit status: 0 pass (gains included), 1 a program or cell failed, 2 usage or input, 3 slower or bigger, "
    "4 numerics\n"
    "differ or failed, 5 inconclusive, 6 not comparable; of several the first of 2, 1, 6, 4, 3, 5.\n";

typedef struct request {
    const char *base, *other, *base_exe, *base_ref, *new_exe, *pinned, *pinned_exe, *rounds, *out, *seed,
        *tolerance, *guard, *loss_bound, *drift_budget, *ignore, *calibration, *effects, *format, *markdown,
        *junit, *inconclusive, *no_baseline, *save, *json;
    bool lenient, exit_zero, quiet, selftest, help;
    char **run_options;
    ab_gate_options options;
    long long rounds_count, seed_number;
} request;

/* ---- options --------------------------------------------------------------------------------- */

static ab_status take_document(request *r, const char *word) {
    if (!r->base)
        r->base = word;
    else if (!r->other)
        r->other = word;
    else
        return ab_fail(AB_USAGE, "gate: expected BASE.json and NEW.json, found a third: '%s'", word);
    return AB_OK;
}

static ab_status parse(int argc, char **argv, request *r) {
    const ab_argument arguments[] = {
        {.name = "--base-exe", .value = &r->base_exe},
        {.name = "--base-ref", .value = &r->base_ref},
        {.name = "--new-exe", .value = &r->new_exe},
        {.name = "--pinned", .value = &r->pinned},
        {.name = "--pinned-exe", .value = &r->pinned_exe},
        {.name = "--rounds", .value = &r->rounds},
        {.name = "--out", .value = &r->out},
        {.name = "--seed", .value = &r->seed},
        {.name = "--tolerance", .value = &r->tolerance},
        {.name = "--guard", .value = &r->guard},
        {.name = "--loss-bound", .value = &r->loss_bound},
        {.name = "--drift-budget", .value = &r->drift_budget},
        {.name = "--ignore", .value = &r->ignore},
        {.name = "--calibration", .value = &r->calibration},
        {.name = "--effects", .value = &r->effects},
        {.name = "--format", .value = &r->format},
        {.name = "--markdown", .value = &r->markdown},
        {.name = "--junit", .value = &r->junit},
        {.name = "--inconclusive", .value = &r->inconclusive},
        {.name = "--no-baseline", .value = &r->no_baseline},
        {.name = "--save-baseline", .value = &r->save},
        {.name = "--json", .value = &r->json},
        {.name = "--lenient", .flag = &r->lenient},
        {.name = "--exit-zero", .flag = &r->exit_zero},
        {.name = "--quiet", .flag = &r->quiet},
        {.name = "--selftest", .flag = &r->selftest},
        {.name = "--help", .flag = &r->help},
        {.name = "-h", .flag = &r->help},
    };
    const ab_argument_list list = {"gate", arguments, (int)AB_COUNT_OF(arguments),
                                   "; options of a run go after --", false};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            r->run_options = argv + i + 1;
            break;
        }
        if (argv[i][0] == '-' && argv[i][1])
            AB_TRY(ab_take_option(&list, argc, argv, &i));
        else
            AB_TRY(take_document(r, argv[i]));
    }
    return AB_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* "3%" or "0.03", up to `most`. */
static ab_status parse_share(const char *name, const char *text, size_t length, double most, double *share) {
    char copy[32], *end;
    ab_text_show(copy, sizeof copy, "%.*s", (int)length, text);
    double value = ab_number_read(copy, &end);
    bool percent = strcmp(end, "%") == 0;
    if (percent) value /= 100;
    if (end == copy || (*end && !percent) || !(value >= 0) || !(value <= most))
        return ab_fail(AB_USAGE, "gate: %s: expected a share such as 3%% or 0.03, at most %.9g, found '%s'",
                       name, most, copy);
    *share = value;
    return AB_OK;
}

static ab_status parse_optional_share(const char *name, const char *text, double most, double *share) {
    return text ? parse_share(name, text, strlen(text), most, share) : AB_OK;
}

/* "time=3%,memory=0%" */
static ab_status parse_tolerance(request *r) {
    for (const char *item = r->tolerance; item && *item;) {
        size_t length = strcspn(item, ","), name = strcspn(item, "=,");
        double *target = strncmp(item, "time=", 5) == 0     ? &r->options.time_tolerance
                         : strncmp(item, "memory=", 7) == 0 ? &r->options.memory_tolerance
                                                            : NULL;
        if (!target || item[name] != '=')
            return ab_fail(AB_USAGE, "gate: --tolerance: expected time=SHARE or memory=SHARE, found '%.*s'",
                           (int)length, item);
        AB_TRY(parse_share("--tolerance", item + name + 1, length - name - 1, 10, target));
        item += length + (item[length] == ',');
    }
    return AB_OK;
}

static ab_status parse_whole(const char *name, const char *text, long long low, long long high,
                             long long *value) {
    char *end;
    if (!text) return AB_OK;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    if (end == text || *end || errno || parsed < low || parsed > high)
        return ab_fail(AB_USAGE, "gate: %s: expected a whole number from %lld to %lld, found '%s'", name, low,
                       high, text);
    *value = parsed;
    return AB_OK;
}

static ab_status check_sources(const request *r) {
    bool measures = r->base_exe || r->base_ref || r->selftest;
    if (r->selftest && (r->base || r->base_exe || r->base_ref || r->new_exe || r->pinned || r->pinned_exe))
        return ab_fail(AB_USAGE,
                       "gate: --selftest measures this program against itself: it takes no other side");
    if (r->effects && !r->selftest) return ab_fail(AB_USAGE, "gate: --effects belongs to --selftest");
    if (r->base_exe && r->base_ref)
        return ab_fail(AB_USAGE, "gate: --base-exe and --base-ref: give one of them");
    if (r->pinned && r->pinned_exe)
        return ab_fail(AB_USAGE, "gate: --pinned and --pinned-exe: give one of them");
    if (measures && r->base)
        return ab_fail(AB_USAGE, "gate: expected two results, or --base-exe or --base-ref; found both");
    if (!measures && (r->new_exe || r->pinned_exe || r->rounds || r->run_options))
        return ab_fail(AB_USAGE,
                       "gate: %s needs --base-exe or --base-ref: stored results are not measured again",
                       r->new_exe      ? "--new-exe"
                       : r->pinned_exe ? "--pinned-exe"
                       : r->rounds     ? "--rounds"
                                       : "--");
    if (!measures && !r->other)
        return ab_fail(AB_USAGE,
                       "gate: expected BASE.json and NEW.json, or --base-exe, --base-ref or --selftest (see "
                       "`ampbench gate --help`)");
    return AB_OK;
}

static const char *const formats[] = {"text", "markdown", "junit", "github", "json"};

static ab_status check_format(const char *format) {
    for (size_t i = 0; format && i < AB_COUNT_OF(formats); i++)
        if (strcmp(format, formats[i]) == 0) return AB_OK;
    if (!format) return AB_OK;
    const char *near = ab_nearest(format, formats, (int)AB_COUNT_OF(formats));
    return ab_fail(AB_USAGE,
                   "gate: --format: expected text, markdown, junit, github or json, found '%s'%s%s%s", format,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static ab_status check(request *r) {
    r->options = ab_gate_options_standard();
    r->options.ignore = r->ignore;
    r->options.lenient = r->lenient;
    r->seed_number = 1;
    AB_TRY(check_sources(r));
    AB_TRY(parse_tolerance(r));
    AB_TRY(parse_optional_share("--guard", r->guard, 1, &r->options.guard));
    AB_TRY(parse_optional_share("--loss-bound", r->loss_bound, 1, &r->options.loss_bound));
    AB_TRY(parse_optional_share("--drift-budget", r->drift_budget, 10, &r->options.drift_budget));
    AB_TRY(parse_whole("--rounds", r->rounds, 1, r->selftest ? AB_GATE_SELFTEST_ROUNDS : AB_STATS_MAX_PAIRS,
                       &r->rounds_count));
    AB_TRY(parse_whole("--seed", r->seed, 0, (1LL << 53) - 1, &r->seed_number));
    AB_TRY(check_format(r->format));
    if (r->inconclusive && strcmp(r->inconclusive, "pass") != 0 && strcmp(r->inconclusive, "fail") != 0)
        return ab_fail(AB_USAGE, "gate: --inconclusive: expected pass or fail, found '%s'", r->inconclusive);
    if (r->no_baseline && strcmp(r->no_baseline, "pass") != 0 && strcmp(r->no_baseline, "fail") != 0)
        return ab_fail(AB_USAGE, "gate: --no-baseline: expected pass or fail, found '%s'", r->no_baseline);
    return AB_OK;
}

/* ---- sides ----------------------------------------------------------------------------------- */

static ab_status load(const char *path, cJSON **document) {
    AB_TRY(ab_result_load(path, document));
    return ab_result_summarise(*document);
}

static const char *folder_of(const request *r) { return r->out ? r->out : "ampbench-gate"; }

static ab_status measure(const request *r, ab_gate_plan *plan, char *program, size_t size) {
    static char *const nothing[] = {NULL};
    const char *folder = folder_of(r), *self = "/proc/self/exe";
    plan->run_options = r->run_options ? r->run_options : nothing;
    plan->fixed_rounds = (int)r->rounds_count;
    plan->seed = (uint64_t)r->seed_number;
    plan->folder = folder;
    plan->quiet = r->quiet;
    plan->options = &r->options;
    AB_TRY(ab_gate_check_run_options(plan->run_options));
    if (r->base_ref) AB_TRY(ab_gate_build_ref(r->base_ref, folder, program, size));
    plan->arm[plan->arms++] = (ab_gate_arm){.name = "base", .program = r->base_ref ? program : r->base_exe};
    plan->arm[plan->arms++] = (ab_gate_arm){.name = "new", .program = r->new_exe ? r->new_exe : self};
    if (r->pinned_exe) plan->arm[plan->arms++] = (ab_gate_arm){.name = "pinned", .program = r->pinned_exe};
    AB_TRY(ab_gate_run_arms(plan));
    return ab_gate_measure(plan);
}

/* ---- outcome --------------------------------------------------------------------------------- */

/* The status for the exit code, after --inconclusive and --exit-zero. */
static ab_status outcome(const request *r, const cJSON *gate) {
    ab_status status = ab_gate_status(gate);
    if (status == AB_INCONCLUSIVE && r->inconclusive)
        status = strcmp(r->inconclusive, "fail") == 0 ? AB_REGRESSION : AB_OK;
    return r->exit_zero && status != AB_INTERNAL ? AB_OK : status;
}

static ab_status write_format(const cJSON *gate, const char *format, FILE *out) {
    if (strcmp(format, "junit") == 0) return ab_gate_junit(gate, out);
    if (strcmp(format, "markdown") == 0)
        ab_gate_markdown(gate, out);
    else if (strcmp(format, "github") == 0)
        ab_gate_github(gate, out);
    else if (strcmp(format, "json") == 0)
        ab_json_print(gate, out);
    else
        ab_gate_print(gate, out);
    return AB_OK;
}

static ab_status write_file(const cJSON *gate, const char *format, const char *path) {
    if (!path) return AB_OK;
    const bool append = strcmp(format, "markdown") == 0; /* other steps append to a job's summary too */
    char option[32];
    ab_outfile out;
    ab_text_exact(option, sizeof option, "gate: --%s", format);
    ab_status status = append ? ab_outfile_append(path, &out) : ab_output_open(option, path, &out);
    if (status != AB_OK) return append ? ab_fail_prefix(status, "%s", option) : status;
    return ab_output_close(option, &out, write_format(gate, format, out.stream));
}

static ab_status report(const request *r, const cJSON *gate, const cJSON *other) {
    bool only_json = r->json && strcmp(r->json, "-") == 0;
    if (r->json) AB_TRY(ab_json_write_file(gate, r->json));
    AB_TRY(write_file(gate, "markdown", r->markdown));
    AB_TRY(write_file(gate, "junit", r->junit));
    if (!only_json) AB_TRY(write_format(gate, r->format ? r->format : formats[0], stdout));
    const char *verdict = ab_json_text(gate, "gate.verdict", "");
    const bool first =
        strcmp(verdict, "NO_BASELINE") == 0 && ab_json_number(gate, "gate.exit_status", 6) == 0;
    if (r->save && (first || strcmp(verdict, "PASS") == 0)) {
        AB_TRY(ab_lock_check("gate: --save", r->save));
        AB_TRY(ab_result_write(other, r->save));
    }
    return outcome(r, gate);
}

static ab_status load_calibration(request *r, cJSON **calibration) {
    if (!r->calibration) return AB_OK;
    AB_TRY(ab_gate_load_calibration(r->calibration, calibration));
    r->options.calibration = *calibration;
    r->options.calibration_ref = r->calibration;
    double noise = ab_json_number(*calibration, "summary.noise_p99_percent", 0) / 100;
    if (!r->guard && noise > r->options.guard) r->options.guard = noise;
    return AB_OK;
}

static bool is_missing(const char *path) { return access(path, F_OK) != 0 && errno == ENOENT; }

static ab_status without_baseline(const request *r) {
    const ab_gate_side base = {NULL, r->base};
    cJSON *other = NULL;
    AB_TRY(load(r->other, &other));
    cJSON *gate = ab_gate_no_baseline(base, (ab_gate_side){other, r->other}, &r->options,
                                      r->no_baseline && strcmp(r->no_baseline, "pass") == 0);
    const ab_status status = report(r, gate, other);
    cJSON_Delete(gate);
    cJSON_Delete(other);
    return status;
}

/* A run beside itself differs in nothing, whatever it is. */
static ab_status check_runs(const request *r, const cJSON *base, const cJSON *other) {
    const char *id = ab_json_text(base, "run.id", "");
    if (!id[0] || strcmp(id, ab_json_text(other, "run.id", "")) != 0) return AB_OK;
    return ab_fail(AB_USAGE, "gate: %s and %s are one run (run.id %s): expected the results of two", r->base,
                   r->other, ab_text_brief(id, 60));
}

static ab_status compare(request *r) {
    char program[4096];
    ab_gate_plan plan = {.arms = 0};
    cJSON *base = NULL, *other = NULL, *pinned = NULL, *calibration = NULL, *gate = NULL;
    ab_status status;
    AB_TRY_GOTO(load_calibration(r, &calibration));
    if (r->pinned) AB_TRY_GOTO(load(r->pinned, &pinned));
    if (r->base) {
        AB_TRY_GOTO(load(r->base, &base));
        AB_TRY_GOTO(load(r->other, &other));
        AB_TRY_GOTO(check_runs(r, base, other));
    } else {
        AB_TRY_GOTO(measure(r, &plan, program, sizeof program));
    }
    ab_gate_side sides[3] = {{base ? base : plan.arm[0].document, r->base ? r->base : plan.arm[0].program},
                             {other ? other : plan.arm[1].document, r->base ? r->other : "this build"},
                             {pinned ? pinned : plan.arm[2].document, r->pinned ? r->pinned : r->pinned_exe}};
    if (r->new_exe) sides[1].name = r->new_exe;
    AB_TRY_GOTO(ab_gate_compare(sides[0], sides[1], sides[2], &r->options, &gate));
    status = report(r, gate, sides[1].document);
out:
    ab_gate_plan_clear(&plan);
    cJSON_Delete(base);
    cJSON_Delete(other);
    cJSON_Delete(pinned);
    cJSON_Delete(calibration);
    cJSON_Delete(gate);
    return status;
}

/* "1,2,5" in per cent; "0": none. */
static ab_status parse_effects(const char *text, double *effects, int *count) {
    *count = 0;
    for (const char *item = text; *item;) {
        char *end;
        double percent = ab_number_read(item, &end);
        if (end == item || (*end && *end != ',') || !(percent >= 0) || !(percent <= 100) ||
            *count == AB_GATE_EFFECTS)
            return ab_fail(AB_USAGE,
                           "gate: --effects: expected at most %d per cents from 0 to 100, found '%s'",
                           AB_GATE_EFFECTS, text);
        if (percent > 0) effects[(*count)++] = percent / 100;
        item = end + (*end == ',');
    }
    return AB_OK;
}

static ab_status selftest(request *r) {
    static char *const nothing[] = {NULL};
    double effects[AB_GATE_EFFECTS];
    int count = 0;
    ab_gate_plan plan = {.run_options = r->run_options ? r->run_options : nothing,
                         .fixed_rounds = (int)r->rounds_count,
                         .seed = (uint64_t)r->seed_number,
                         .folder = folder_of(r),
                         .quiet = r->quiet,
                         .options = &r->options};
    if (r->effects) AB_TRY(parse_effects(r->effects, effects, &count));
    return ab_gate_selftest(&plan, r->effects ? effects : NULL, count, r->json);
}

ab_status ab_cmd_gate(int argc, char **argv) {
    request r = {.base = NULL};
    AB_TRY(parse(argc, argv, &r));
    if (r.help) {
        fputs(usage, stdout);
        return AB_OK;
    }
    AB_TRY(check(&r));
    ab_lock lock = {-1, NULL};
    if (r.selftest || !r.base) AB_TRY(ab_lock_folder("gate: --out", folder_of(&r), &lock));
    ab_status status = r.selftest                     ? selftest(&r)
                       : r.base && is_missing(r.base) ? without_baseline(&r)
                                                      : compare(&r);
    ab_lock_release(&lock);
    return status;
}
