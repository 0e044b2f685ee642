/* `ampbench promote`: the fewest layers that must stay fp32 for a level to train as O0 does, found by
 * training and printed as a --to option; with --roles, also which of their outputs, gradients and weights. */
#include "bench/promote/promote.h"
#include "bench/cmd/cmd.h"
#include "bench/run/config/cells.h"
#include "bench/run/config/configure.h"
#include "kernels/core/number.h"
#include "kernels/core/show.h"
#include "reports/record/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 3, MOST_RUNS = 100 };

static const char usage[] =
    "usage: ampbench promote --level LEVEL [--net NAME|FILE] [--steps N] [OPTION]...\n"
    "\n"
    "Finds the fewest layers that must stay fp32 so that the level trains as O0 does, and prints them as the "
    "--to option to\n"
    "paste. It trains O0 from a few seeds and takes the range of their final losses as the band; a set of "
    "layers will do if\n"
    "the level with it, from the same seeds, ends on average at most a band above O0, and no loss is lost. "
    "Layers are ranked\n"
    "by what a probed run flushed, overflowed and lost of them per byte that fp32 would add; the shortest "
    "beginning of that\n"
    "list that will do is reduced until no layer can be taken out (delta debugging), and confirmed on fresh "
    "seeds. With\n"
    "--roles these layers are then taken apart (output, gradient of the input, gradient of the weights, "
    "weights) "
    "and reduced again.\n"
    "Takes the options of `ampbench run`, but for --levels, --to, --out and what concerns timing, and:\n"
    "\n"
    "  --level LEVEL    the level (default O3)\n"
    "  --seeds N        seeds of every training, 2 to 32 (default 3)\n"
    "  --seed N         the first of them (default 1); the fresh ones follow them\n"
    "  --roles          names single roles of layers, e.g. fc1:wgrad=fp32, where whole layers are not "
    "needed\n"
    "  --max-runs N     most trainings of all seeds together (default 100); then the smallest set so far is "
    "printed\n"
    "  --band X         the band, in units of the loss, instead of O0's range over the seeds\n"
    "  --json FILE      the outcome as JSON; - is standard output, in place of the text\n"
    "  --quiet          no progress\n"
    "  --help           this text\n"
    "\n"
    "Exit status: 0 a set was found (perhaps an empty one) and holds on the fresh seeds, 4 no set will do, "
    "or "
    "it does not hold,\n"
    "5 --max-runs ended the search, 2 usage.\n";

typedef struct promote {
    ab_trial_setup setup;
    ab_run_config config;
    ab_options options;
    const char *json;
    int64_t max_runs, runs;
    double band; /* 0: derived from the seeds */
    bool roles;
    cJSON *infinite;                      /* names of layers with infinities that remain; owned */
    ab_promote_item item[AB_DDMIN_ITEMS]; /* layers, then roles of the layers found */
    int layers;
    const char *kind;                       /* what is being searched: "layers", "parts" */
    int pool;                               /* how many of them there are */
    cJSON *record;                          /* of the probed run; NULL: no ranking was needed */
    int found[AB_DDMIN_ITEMS], found_count; /* the layers, before they are split into roles */
    ab_trial_losses o0, level;
    /* sets that were tried, as bits, and their gaps */
    unsigned char (*tried)[AB_DDMIN_ITEMS / 8];
    double *gap;
    int sets, failed_runs;
    int best[AB_DDMIN_ITEMS], best_count; /* the smallest set that passed */
    bool ended;                           /* stopped by max_runs */
} promote;

/* ---- command line ---------------------------------------------------------------------------- */

static ab_status parse_count(const char *name, const char *text, int64_t low, int64_t high, int64_t *count) {
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < low || value > high)
        return ab_fail(AB_USAGE, "%s: expected a whole number from %" PRId64 " to %" PRId64 ", found '%s'",
                       name, low, high, text);
    *count = value;
    return AB_OK;
}

static ab_status parse_band(const char *text, double *band) {
    char *end;
    errno = 0;
    *band = ab_number_read(text, &end);
    if (end == text || *end || errno || !(*band > 0) || !isfinite(*band))
        return ab_fail(AB_USAGE, "--band: expected a number above 0, found '%s'", text);
    return AB_OK;
}

/* Parses an option of this command; *taken is false if it is one of `ampbench run`. */
static ab_status parse_own_option(promote *p, const char *name, const char *value, bool *taken) {
    static const char *const own[] = {"--level", "--seeds", "--seed", "--max-runs", "--band", "--json"};
    int64_t number = 0;
    *taken = false;
    if (strcmp(name, "--roles") == 0) {
        p->roles = true;
        return AB_OK;
    }
    for (size_t i = 0; i < AB_COUNT_OF(own); i++) *taken = *taken || strcmp(name, own[i]) == 0;
    if (!*taken) return AB_OK;
    if (!value) return ab_fail(AB_USAGE, "%s expects a value", name);
    if (strcmp(name, "--level") == 0) p->setup.level = value;
    if (strcmp(name, "--json") == 0) p->json = value;
    if (strcmp(name, "--band") == 0) return parse_band(value, &p->band);
    if (strcmp(name, "--max-runs") == 0) return parse_count(name, value, 1, 1000000, &p->max_runs);
    if (strcmp(name, "--seed") == 0) return parse_count(name, value, 0, INT32_MAX, &p->setup.first_seed);
    if (strcmp(name, "--seeds") == 0) {
        AB_TRY(parse_count(name, value, 2, AB_TRIAL_SEEDS, &number));
        p->setup.seeds = (int)number;
    }
    return AB_OK;
}

static ab_status reject_run_options(const ab_options *options) {
    static const ab_option_id found[] = {
        AB_OPTION_levels,         AB_OPTION_to,          AB_OPTION_out,
        AB_OPTION_resume,         AB_OPTION_resume_from, AB_OPTION_rounds,
        AB_OPTION_save_weights,   AB_OPTION_probes,      AB_OPTION_checkpoint_every,
        AB_OPTION_save_gradients, AB_OPTION_floor_draws};
    char name[AB_OPTION_NAME];
    for (size_t i = 0; i < AB_COUNT_OF(found); i++)
        if (options->given[found[i]])
            return ab_fail(AB_USAGE, "%s: promote does not take it (see `ampbench promote --help`)",
                           ab_option_name(found[i], name));
    return AB_OK;
}

/* Separates this command's options from those of the run, and checks the latter as a run would. */
static ab_status parse(promote *p, int argc, char **argv, char **words) {
    int n = 0;
    for (int i = 1; i < argc; i++) {
        bool taken;
        AB_TRY(parse_own_option(p, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &taken));
        if (taken)
            i++;
        else if (strcmp(argv[i], "--roles") != 0)
            words[++n] = argv[i];
    }
    words[0] = argv[0];
    AB_TRY(ab_options_parse(n + 1, words, &p->options));
    AB_TRY(reject_run_options(&p->options));
    p->setup.words = words + 1;
    p->setup.word_count = n;
    p->setup.quiet = p->options.given[AB_OPTION_quiet];
    p->options.text[AB_OPTION_levels] = p->setup.level;
    p->options.given[AB_OPTION_levels] = true;
    AB_TRY(ab_run_config_create(&p->options, false, &p->config));
    if (p->config.levels != 1 || p->config.scales != 1 || p->config.halves != 1 ||
        strcmp(p->config.level[0]->name, "O0") == 0)
        return ab_fail(AB_USAGE, "promote: expected one level other than O0, one scale and one half format");
    return AB_OK;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static ab_status make_plan(promote *p, ab_plan **plan) {
    ab_cell_spec *cells = NULL;
    int count = 0;
    AB_TRY(ab_run_cells(&p->config, &cells, &count));
    ab_status status =
        ab_plan_create(p->config.net, &cells[0].policy, p->config.batch, p->config.optimizer->states, plan);
    ab_run_cells_free(cells, count);
    return status;
}

static ab_status find_layers(promote *p) {
    ab_plan *plan = NULL;
    AB_TRY(make_plan(p, &plan));
    ab_promote_layers(plan, p->item, &p->setup.items);
    ab_plan_destroy(plan);
    p->layers = p->pool = p->setup.items;
    p->setup.net = p->config.net;
    if (p->layers > 0) return AB_OK;
    return ab_fail(AB_USAGE, "promote: %s computes nothing of %s in %s", p->setup.level, p->config.net->name,
                   p->config.half[0]->name);
}

/* ---- search ---------------------------------------------------------------------------------- */

static void print_trial(const promote *p, int count, double gap, bool passes) {
    if (p->setup.quiet) return;
    ab_print(stderr, "promote: training %" PRId64 " of at most %" PRId64 ": %d of %d %s in fp32: ", p->runs,
             p->max_runs, count, p->pool, p->kind);
    if (isfinite(gap))
        fprintf(stderr, "%+.4g against O0, band %.4g: ", gap, p->band);
    else
        fputs("a loss that is not finite: ", stderr);
    fputs(passes ? "will do\n" : "will not do\n", stderr);
}

static void record_trial(promote *p, const int *item, int count, const unsigned char *bits, double gap) {
    memcpy(p->tried[p->sets], bits, sizeof p->tried[0]);
    p->gap[p->sets++] = gap;
    if (gap > p->band || (p->best_count >= 0 && count >= p->best_count)) return;
    memcpy(p->best, item, (size_t)count * sizeof *item);
    p->best_count = count;
}

static ab_status passes(void *context, const int *item, int count, bool *good) {
    promote *p = context;
    unsigned char bits[AB_DDMIN_ITEMS / 8] = {0};
    ab_trial_losses losses;
    for (int i = 0; i < count; i++) bits[item[i] / 8] |= (unsigned char)(1u << item[i] % 8);
    for (int i = 0; i < p->sets; i++)
        if (memcmp(p->tried[i], bits, sizeof bits) == 0) {
            *good = p->gap[i] <= p->band;
            return AB_OK;
        }
    *good = false;
    if (p->runs >= p->max_runs) {
        p->ended = true;
        return AB_OK;
    }
    p->runs++;
    AB_TRY(ab_trial_run(&p->setup, item, count, &losses));
    const double gap = ab_trial_gap(&losses, &p->o0, p->setup.seeds);
    *good = gap <= p->band;
    record_trial(p, item, count, bits, gap);
    print_trial(p, count, gap, *good);
    return AB_OK;
}

static int by_error_per_byte(const void *a, const void *b) {
    const ab_promote_item *x = a, *y = b;
    const double dx = x->error / ((double)x->bytes + 1), dy = y->error / ((double)y->bytes + 1);
    return (dx < dy) - (dx > dy);
}

/* Ranks the items from `first` on, and lists them. */
static void rank(promote *p, int first, int *item, int *count) {
    *count = p->setup.items - first;
    ab_trial_rank(p->record, p->config.net, p->item + first, *count);
    qsort(p->item + first, (size_t)*count, sizeof *p->item, by_error_per_byte);
    for (int i = 0; i < *count; i++) item[i] = first + i;
}

/* Finds the fewest layers; best_count stays -1 if not even all of them suffice. */
static ab_status search(promote *p) {
    const ab_ddmin_test test = {passes, p};
    int item[AB_DDMIN_ITEMS] = {0}, count = p->layers;
    bool good = false;
    AB_TRY(passes(p, item, 0, &good)); /* the unmodified level; no training if the base runs covered it */
    if (good) return AB_OK;
    for (int i = 0; i < count; i++) item[i] = i;
    AB_TRY(passes(p, item, count, &good));
    if (!good) return AB_OK;
    p->runs++;
    AB_TRY(ab_trial_record(&p->setup, NULL, 0, &p->record));
    rank(p, 0, item, &count);
    AB_TRY(ab_shortest_prefix(&test, item, &count));
    return ab_ddmin(&test, item, &count);
}

/* ---- roles ----------------------------------------------------------------------------------- */

/* `set` with layer `whole` replaced by its roles. */
static int with_roles(const promote *p, const int *set, int count, int whole, int *split) {
    int n = 0;
    for (int i = 0; i < count; i++)
        if (set[i] != whole) split[n++] = set[i];
    for (int i = p->layers; i < p->setup.items; i++)
        if (p->item[i].net_op == p->item[whole].net_op && n < AB_DDMIN_ITEMS) split[n++] = i;
    return n;
}

/* Splits one layer after the other into roles, as long as all roles of a layer have the effect of the whole
 * layer (not the case if its inputs must be fp32). */
static ab_status split_layers(promote *p, int *set, int *count) {
    int split[AB_DDMIN_ITEMS];
    for (int i = 0; i < p->found_count; i++) {
        bool good = false;
        const int n = with_roles(p, set, *count, p->found[i], split);
        AB_TRY(passes(p, split, n, &good));
        if (!good) continue;
        memcpy(set, split, (size_t)n * sizeof *set);
        *count = n;
    }
    return AB_OK;
}

/* Sorts in order of removal: first the roles with the smallest benefit per byte. Layers that are not split
 * come last. */
static int worst_first(const void *a, const void *b) {
    const int x = *(const int *)a, y = *(const int *)b;
    return (x < y) - (x > y);
}

/* Finds the fewest roles, given the fewest layers. */
static ab_status search_roles(promote *p) {
    const ab_ddmin_test test = {passes, p};
    ab_plan *plan = NULL;
    int item[AB_DDMIN_ITEMS], count = p->best_count;
    if (!p->roles || p->best_count <= 0 || p->ended) return AB_OK;
    p->found_count = count;
    memcpy(p->found, p->best, (size_t)count * sizeof *p->found);
    AB_TRY(make_plan(p, &plan));
    for (int i = 0; i < count; i++)
        ab_promote_roles(plan, p->item[p->found[i]].net_op, p->item, &p->setup.items);
    ab_plan_destroy(plan);
    rank(p, p->layers, item, &p->pool);
    memcpy(item, p->found, (size_t)count * sizeof *item);
    p->kind = "parts";
    p->best_count = -1;
    AB_TRY(split_layers(p, item, &count));
    qsort(item, (size_t)count, sizeof *item, worst_first);
    AB_TRY(ab_ddmin(&test, item, &count));
    memcpy(p->best, item, (size_t)count * sizeof *item);
    p->best_count = count;
    return AB_OK;
}

/* Trains O0 and the unmodified level in one run: gives the band and the result of the empty set. */
static ab_status base(promote *p) {
    const unsigned char none[AB_DDMIN_ITEMS / 8] = {0};
    p->runs++;
    AB_TRY(ab_trial_base(&p->setup, &p->o0, &p->level));
    const double range = ab_trial_range(&p->o0, p->setup.seeds);
    if (!isfinite(ab_trial_gap(&p->o0, &p->o0, p->setup.seeds)) || !isfinite(range))
        return ab_fail(AB_NUMERICS, "promote: O0 itself does not train: nothing that fp32 could mend");
    if (p->band <= 0) p->band = range;
    const double gap = ab_trial_gap(&p->level, &p->o0, p->setup.seeds);
    record_trial(p, p->best, 0, none, gap);
    print_trial(p, 0, gap, gap <= p->band);
    return AB_OK;
}

/* Infinities that the loss does not show: behind a clamp, a ReLU or a mask, or in numbers that are not read.
 */
static ab_status find_infinite(promote *p) {
    cJSON *record = NULL;
    AB_TRY(ab_trial_record(&p->setup, p->best, p->best_count, &record));
    ab_trial_infinite(record, p->infinite);
    cJSON_Delete(record);
    return AB_OK;
}

/* Tests the set on seeds that were not used to find it. */
static ab_status confirm(promote *p, double *gap) {
    ab_trial_setup fresh = p->setup;
    ab_trial_losses o0, level, losses;
    fresh.first_seed += fresh.seeds;
    AB_TRY(ab_trial_base(&fresh, &o0, &level));
    AB_TRY(ab_trial_run(&fresh, p->best, p->best_count, &losses));
    *gap = ab_trial_gap(&losses, &o0, fresh.seeds);
    return find_infinite(p);
}

/* ---- output ---------------------------------------------------------------------------------- */

static int layers_found(const promote *p) { return p->found_count > 0 ? p->found_count : p->best_count; }

static void print(const promote *p, const char *words, double gap) {
    ab_print(stdout,
             "%s of %s: %d of %d layers in fp32 will do (band %.4g, %" PRId64 " trainings from %d seeds)\n",
             p->setup.level, p->config.net->name, layers_found(p), p->layers, p->band, p->runs,
             p->setup.seeds);
    int whole = 0;
    for (int i = 0; i < p->best_count; i++) whole += p->item[p->best[i]].role == AB_LAYER_ROLES;
    if (p->found_count > 0)
        printf("taken apart: %d of their %d roles, and %d whole\n", p->best_count - whole,
               p->setup.items - p->layers, whole);
    if (p->best_count > 0) {
        fputs("paste: --to ", stdout);
        ab_print_shell_word(stdout, words);
        putchar('\n');
    } else {
        puts("no layer has to stay fp32");
    }
    if (p->ended)
        puts("not minimal: --max-runs ended the search");
    else if (p->best_count > 0)
        puts("minimal: without any one of them it will not do");
    const int infinite = cJSON_GetArraySize(p->infinite);
    for (int i = 0; i < infinite; i++)
        ab_print(stdout, "%s%s%s", i ? ", " : "infinities remain, and did not hurt these trainings, in: ",
                 cJSON_GetArrayItem(p->infinite, i)->valuestring, i + 1 < infinite ? "" : " (");
    if (infinite > 0)
        ab_print(stdout, "values beyond %s; keep fp32 there too if other data may reach them)\n",
                 p->config.half[0]->name);
    ab_print(stdout, "fresh seeds: %+.4g against O0: %s\n", gap, gap <= p->band ? "holds" : "does not hold");
}

static void add_number(cJSON *object, const char *key, double x) {
    if (isfinite(x))
        cJSON_AddNumberToObject(object, key, x);
    else
        cJSON_AddNullToObject(object, key);
}

static ab_status write_json(const promote *p, const char *words, double gap) {
    cJSON *object = cJSON_CreateObject(), *list;
    cJSON_AddStringToObject(object, "schema", "ampbench-promote");
    cJSON_AddNumberToObject(object, "schema_version", 1);
    cJSON_AddStringToObject(object, "net", p->config.net->name);
    cJSON_AddStringToObject(object, "level", p->setup.level);
    cJSON_AddStringToObject(object, "half", p->config.half[0]->name);
    cJSON_AddNumberToObject(object, "seeds", p->setup.seeds);
    cJSON_AddNumberToObject(object, "first_seed", (double)p->setup.first_seed);
    cJSON_AddNumberToObject(object, "band", p->band);
    cJSON_AddNumberToObject(object, "trainings", (double)p->runs);
    cJSON_AddBoolToObject(object, "found", p->best_count >= 0);
    cJSON_AddBoolToObject(object, "minimal", p->best_count >= 0 && !p->ended);
    cJSON_AddStringToObject(object, "to", words);
    list = cJSON_AddArrayToObject(object, "layers");
    for (int i = 0; i < layers_found(p); i++)
        cJSON_AddItemToArray(list,
                             cJSON_CreateString(p->item[p->found_count > 0 ? p->found[i] : p->best[i]].name));
    if (p->roles) {
        list = cJSON_AddArrayToObject(object, "roles");
        for (int i = 0; i < p->best_count; i++)
            cJSON_AddItemToArray(list, cJSON_CreateString(p->item[p->best[i]].name));
    }
    cJSON_AddItemToObject(object, "infinite_in", cJSON_Duplicate(p->infinite, true));
    add_number(object, "fresh_gap", gap);
    cJSON_AddBoolToObject(object, "fresh_seeds_hold", gap <= p->band);
    list = cJSON_AddArrayToObject(object, "ranking");
    for (int i = 0; i < p->setup.items; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", p->item[i].name);
        cJSON_AddNumberToObject(item, "error", p->item[i].error);
        cJSON_AddNumberToObject(item, "bytes", (double)p->item[i].bytes);
        cJSON_AddItemToArray(list, item);
    }
    ab_status status = ab_json_write_file(object, p->json);
    cJSON_Delete(object);
    return status;
}

static ab_status print_result(promote *p) {
    double gap = (double)NAN;
    char *words = calloc(1, AB_TRIAL_WORDS);
    if (!words) return ab_fail(AB_NO_MEMORY, "promote: out of memory");
    ab_status status = AB_OK;
    if (p->best_count >= 0) {
        ab_trial_words(&p->setup, p->best, p->best_count, words);
        status = confirm(p, &gap);
    }
    const bool text = !p->json || strcmp(p->json, "-") != 0;
    if (status == AB_OK && text && p->best_count >= 0) print(p, words, gap);
    if (status == AB_OK && p->json) status = write_json(p, words, gap);
    free(words);
    if (status != AB_OK) return status;
    if (p->best_count < 0)
        return p->ended
                   ? ab_fail(AB_INCONCLUSIVE, "promote: --max-runs ended the search before a set was found")
                   : ab_fail(AB_NUMERICS,
                             "promote: with every layer in fp32 %s still does not train as O0 does: it is "
                             "not a matter of layers (loss scale? half weights of the optimizer?)",
                             p->setup.level);
    if (!(gap <= p->band)) return ab_fail(AB_NUMERICS, "promote: the set does not hold on fresh seeds");
    return p->ended
               ? ab_fail(AB_INCONCLUSIVE, "promote: --max-runs ended the search: the set may not be minimal")
               : AB_OK;
}

static ab_status run(promote *p, int argc, char **argv, char **words) {
    AB_TRY(parse(p, argc, argv, words));
    p->tried = calloc((size_t)p->max_runs + 2, sizeof *p->tried);
    p->gap = calloc((size_t)p->max_runs + 2, sizeof *p->gap);
    if (!p->tried || !p->gap) return ab_fail(AB_NO_MEMORY, "promote: out of memory");
    AB_TRY(find_layers(p));
    AB_TRY(base(p));
    AB_TRY(search(p));
    AB_TRY(search_roles(p));
    return print_result(p);
}

ab_status ab_cmd_promote(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (ab_is_help(argv[i])) {
            fputs(usage, stdout);
            return AB_OK;
        }
    char **words = calloc((size_t)argc + 1, sizeof *words);
    promote *p = calloc(1, sizeof *p);
    ab_status status = AB_NO_MEMORY;
    if (words && p) {
        *p = (promote){.setup = {.level = "O3", .first_seed = 1, .seeds = SEEDS},
                       .max_runs = MOST_RUNS,
                       .best_count = -1};
        p->setup.item = p->item;
        p->kind = "layers";
        p->infinite = cJSON_CreateArray();
        status = run(p, argc, argv, words);
        ab_run_config_clear(&p->config);
        free(p->tried);
        free(p->gap);
        cJSON_Delete(p->record);
        cJSON_Delete(p->infinite);
    }
    free(p);
    free(words);
    return status;
}
