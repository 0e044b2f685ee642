/* Fuzz targets: networks as data, through policies to plans; checkpoints and initial weights of a small cell.
 */
#include "tests/fuzz/fuzz.h"

#include "bench/amp/plan/plan.h"
#include "bench/train/cell/cell.h"
#include "reports/record/json.h"

#include <stdlib.h>
#include <string.h>

/* ---- network to plan ------------------------------------------------------------------------- */

static void check_plan(const ab_plan *plan) {
    for (int i = 0; i < plan->tensors; i++) {
        const ab_plan_tensor *t = &plan->tensor[i];
        fuzz_insist(t->bytes >= 0 && t->offset >= 0);
        if (!t->transient || t->first < 0 || t->shares != AB_NONE)
            continue; /* no place of its own in a pool */
        fuzz_insist(t->first <= t->last && t->offset + t->bytes <= plan->pool_bytes[t->category]);
    }
    for (int i = 0; i < AB_MEM_CATEGORY_COUNT; i++) fuzz_insist(plan->bytes[i] >= 0);
}

static void try_plan(const ab_net *net, const ab_level *level, const cJSON *how) {
    ab_policy policy;
    ab_plan *plan = NULL;
    const char *override = ab_json_text(how, "set", NULL);
    const double batch = ab_json_number(how, "batch", 2);
    if (ab_policy_resolve(level, &ab_format_fp16, &override, override ? 1 : 0, &policy) != AB_OK) return;
    policy.layers = ab_json_text(how, "to", NULL);
    policy.keep.micro_batches = ab_json_is_true(how, "micro_batches");
    if (ab_plan_create(net, &policy, batch >= 1 && batch < 0x1p40 ? (int64_t)batch : 1, 2, &plan) != AB_OK)
        return;
    fuzz_passed();
    check_plan(plan);
    ab_plan_destroy(plan);
}

static void try_network(ab_net *net, const cJSON *how) {
    ab_shape *shape = calloc((size_t)net->ops, sizeof *shape);
    const char *recompute = ab_json_text(how, "recompute", NULL);
    fuzz_insist(shape != NULL && ab_net_parameters(net) >= 0);
    if (ab_net_infer(net, 3, shape) == AB_OK)
        for (int i = 0; i < net->ops; i++) fuzz_insist(ab_shape_check(&shape[i]));
    free(shape);
    if (ab_json_is_true(how, "freeze")) (void)ab_net_freeze(net);
    if (recompute && ab_net_recompute(net, recompute) != AB_OK) return;
    const double level = ab_json_number(how, "level", 0);
    const int first = level > 0 && level < 1000 ? (int)level : 0;
    for (int i = 0; i < 2; i++) try_plan(net, ab_level_at((first + 3 * i) % ab_level_count()), how);
}

/* A network, and behind it an object that says how to plan it: "level" (a row), "batch", "to", "set",
 * "recompute". */
void fuzz_network(const uint8_t *data, size_t size) {
    const char *at = (const char *)data, *end = at + size;
    ab_net *net = NULL;
    cJSON *first = fuzz_next_json(&at, end), *how = first ? fuzz_next_json(&at, end) : NULL;
    if (how) /* what the network's reader is given must be all of it */
        while (at > (const char *)data && at[-1] != '{') at--;
    const size_t length = how ? (size_t)(at - 1 - (const char *)data) : size;
    if (ab_net_parse((const char *)data, length, "net.json", &net) == AB_OK) try_network(net, how);
    ab_net_free(net);
    cJSON_Delete(first);
    cJSON_Delete(how);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static const char net_text[] =
    "{\"format\":\"ampbench-net-1\",\"name\":\"small\",\"input\":{\"shape\":[3]},\"targets\":{\"kind\":"
    "\"classes\"},"
    "\"ops\":[{\"name\":\"fc1\",\"op\":\"linear\",\"out_features\":4},{\"name\":\"act\",\"op\":\"relu\"},"
    "{\"name\":\"fc2\",\"op\":\"linear\",\"out_features\":2},{\"name\":\"loss\",\"op\":\"cross_entropy\"}]}";

enum { SAMPLES = 4 };

/* Four samples of three numbers and a class each. */
static ab_data *a_data_set(void) {
    static float pixel[SAMPLES * 3] = {0.5f, -1, 2, 1, 0, -2, 3, 1, 0.25f, -1, -1, 1};
    static int32_t label[SAMPLES] = {0, 1, 1, 0};
    static ab_data data = {
        .name = "arrays", .shape = {.input = AB_INPUT_VALUES, .x = {1, {3}}}, .labels = AB_LABELS_IDS};
    data.classes = 2;
    for (int i = 0; i < 2; i++)
        data.split[i] = (ab_images){
            .count = SAMPLES, .pixel = (uint8_t *)(void *)pixel, .label = (uint8_t *)(void *)label};
    return &data;
}

static ab_cell_config a_config(void) {
    static ab_net *net;
    ab_cell_config config = {.batch = 2, .seed = 1, .data = a_data_set(), .device = &ab_device_cpu};
    if (!net) fuzz_insist(ab_net_parse(net_text, sizeof net_text - 1, "small.json", &net) == AB_OK);
    config.net = net;
    fuzz_insist(ab_optimizer_find("adam", &config.optimizer) == AB_OK);
    config.optim = config.optimizer->defaults;
    const ab_level *level;
    fuzz_insist(ab_level_find("O2", &level) == AB_OK);
    fuzz_insist(ab_policy_resolve(level, &ab_format_fp16, NULL, 0, &config.policy) == AB_OK);
    return config;
}

/* A cell resumes from the file; another takes its initial weights from it. */
void fuzz_checkpoint(const uint8_t *data, size_t size) {
    ab_cell_config config = a_config();
    ab_cell *cell = NULL;
    ab_step_result step;
    int64_t steps;
    fuzz_file("in.safetensors", data, size);
    if (ab_checkpoint_steps("in.safetensors", &steps) == AB_OK) fuzz_insist(steps >= 0);
    fuzz_insist(ab_cell_create(&config, &cell) == AB_OK);
    if (ab_cell_resume(cell, "in.safetensors") == AB_OK && ab_cell_step(cell, NULL, &step) == AB_OK)
        fuzz_passed();
    ab_cell_destroy(cell);
    cell = NULL;
    config.init_file = "in.safetensors";
    if (ab_cell_create(&config, &cell) == AB_OK) fuzz_passed();
    ab_cell_destroy(cell);
}
