/* Steps that a device decides itself (bench/train/cell/cell_window.c), on a device made for this test: far
 * memory, the CPU's ops, and a table of resident functions written from the shared formulas. Recording keeps
 * the calls and does nothing; launching does them. So what is proved is the program's side: that a step can
 * be recorded whole, alone and with others, that nothing in it needs the host, that the host's scaler
 * follows, and that losses, scales, skips and weights are the ones of single steps on the CPU, bit for bit.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/run/json_lines.h"
#include "bench/train/cell/cell.h"
#include "kernels/backend/backend_layout.h"
#include "support/far_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- calls, done or kept --------------------------------------------------------------------- */

typedef ab_status (*pass)(const ab_exec *exec, ab_op_io *io);

typedef struct call {
    pass run; /* of an op, or NULL */
    ab_exec exec;
    ab_op_io *io;
    void (*two)(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);
    ab_tensor *dst;
    const ab_tensor *src;
    void (*step)(ab_resident *resident);
    ab_resident *resident;
    ab_stage *stage; /* a room is copied to `room` */
    int slot, place; /* place: of a mark */
    void *room[2];
} call;

enum { CALLS = 8192 };

struct ab_graph {
    call list[CALLS];
    int count;
};

static ab_graph *recording;
static int graphs, launches;
static double spoilt_scale; /* what a faulty device would report; 0: the truth */

static void mark_now(ab_resident *r, int place);
static void use_now(const ab_stage *stage, int slot, void *const to[2]);

static ab_status do_call(call *c) {
    ab_status status = AB_OK;
    far_access(PROT_READ | PROT_WRITE);
    if (c->run) {
        static uint64_t version =
            1000; /* a recorded step does not know which it is: weights are prepared anew */
        c->io->params_version = ++version;
        if (c->exec.device_step) c->exec.step = (uint32_t)*c->exec.device_step;
        status = c->run(&c->exec, c->io);
    }
    if (c->two) c->two(&c->exec, c->dst, c->src);
    if (c->step) c->step(c->resident);
    if (c->place) mark_now(c->resident, c->place);
    if (c->stage) use_now(c->stage, c->slot, c->room);
    far_access(PROT_NONE);
    return status;
}

static ab_status ask(call c) {
    if (!recording) return do_call(&c);
    assert_true(recording->count < CALLS);
    recording->list[recording->count++] = c;
    return AB_OK;
}

/* ---- ops and casts --------------------------------------------------------------------------- */

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace, size_t *state) {
    return io->op->prepare ? io->op->prepare(exec, io, workspace, state) : AB_OK;
}

static void bind(ab_op_io *io, void *memory) {
    if (io->op->bind) io->op->bind(io, memory);
}

static void release(ab_op_io *io) {
    if (io->op->release) io->op->release(io);
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    return ask((call){.run = io->op->forward, .exec = *exec, .io = io});
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    return ask((call){.run = io->op->backward, .exec = *exec, .io = io});
}

static const ab_op any = {.name = "any",
                          .prepare = prepare,
                          .bind = bind,
                          .release = release,
                          .forward = forward,
                          .backward = backward};

static const ab_op *every_op(const ab_op *op) { return op ? &any : NULL; }

static ab_status cast(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    return ask((call){.two = ab_cast, .exec = *exec, .dst = dst, .src = src});
}

static ab_status accumulate(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    return ask((call){.two = ab_accumulate, .exec = *exec, .dst = dst, .src = src});
}

static ab_status unscale(const ab_exec *exec, const ab_unscale_item *item, int items, float inverse,
                         bool *found) {
    far_access(PROT_READ | PROT_WRITE);
    ab_status status = ab_backend_cpu.unscale(exec, item, items, inverse, found);
    far_access(PROT_NONE);
    return status;
}

/* ---- resident steps -------------------------------------------------------------------------- */

struct ab_resident {
    ab_resident_config config;
    ab_step_state state;
    ab_update_row row[64 * 8];
    int64_t base, collected;
    ab_step_record record[64];
    int marks;
};

static int type_of(const ab_tensor *t) {
    return t->format == &ab_format_fp32   ? AB_ELEMENT_F32
           : t->format == &ab_format_fp16 ? AB_ELEMENT_F16
                                          : AB_ELEMENT_BF16;
}

static float get(const ab_tensor *t, int64_t i) { return ab_load(t->data, type_of(t), i); }
static void put(const ab_tensor *t, int64_t i, float x) { ab_store(t->data, type_of(t), i, x); }

static ab_status create(const ab_resident_config *config, ab_resident **resident) {
    assert_true(config->window <= 64 && config->groups <= 8);
    *resident = calloc(1, sizeof **resident);
    (*resident)->config = *config;
    return AB_OK;
}

static void destroy(ab_resident *resident) { free(resident); }

static ab_status set(ab_resident *r, const ab_step_state *state, const ab_update_row *row) {
    r->state = *state;
    r->base = state->taken;
    r->collected = state->step;
    memcpy(r->row, row, (size_t)(r->config.window * r->config.groups) * sizeof *row);
    return AB_OK;
}

static const int64_t *counter(ab_resident *r) { return &r->state.batches; }

static void begin_now(ab_resident *r) {
    ab_step_begin(&r->state);
    put(r->config.loss_grad, 0, ab_step_seed(&r->state, r->config.batches));
}

static void batch_now(ab_resident *r) { ab_step_batch(&r->state, get(r->config.loss, 0)); }

static void unscale_now(ab_resident *r, int item) {
    const ab_unscale_item *u = &r->config.unscale[item];
    float inverse = (float)(1.0 / r->state.scale);
    for (int64_t i = 0; i < ab_tensor_count(u->from); i++) {
        float x = get(u->from, i);
        if (!ab_f_finite(x)) r->state.found = 1;
        put(u->to, i, x * inverse);
    }
}

/* By the host's own code, on memory that is open for the while. */
static void clip_now(ab_resident *r) {
    const ab_clip_config clip = {.norm = r->config.clip_norm, .value = r->config.clip_value};
    ab_tensor here[64], *list[64];
    assert_true(r->config.items <= 64);
    for (int i = 0; i < r->config.items; i++) {
        here[i] = *r->config.unscale[i].to;
        here[i].device = &ab_device_cpu;
        list[i] = &here[i];
    }
    assert_int_equal(ab_clip(&clip, list, r->config.items, &r->state.grad_norm), AB_OK);
}

static void load(const ab_update_item *u, int64_t i, float *held) {
    for (int s = 0; s < AB_UPDATE_MAX_STATES; s++) held[s] = u->state[s] ? get(u->state[s], i) : 0;
}

/* In the host's order: parts that depend on the size alone (bench/train/optim/optimizer.c). */
static void measure_now(int kind, const ab_update_item *u, ab_update_row *row) {
    const int64_t n = ab_tensor_count(u->weight), blocks = (n + AB_UPDATE_BLOCK - 1) / AB_UPDATE_BLOCK;
    const int64_t part = (blocks + 63) / 64 * AB_UPDATE_BLOCK;
    double weights = 0, others = 0;
    for (int64_t first = 0; first < n; first += part) {
        double part_weights = 0, part_others = 0;
        for (int64_t i = first; i < n && i < first + part; i++) {
            float held[AB_UPDATE_MAX_STATES], w = get(u->weight, i);
            load(u, i, held);
            double other = (double)ab_f_norm_term(kind, row->value, get(u->grad, i), w, held);
            part_weights += (double)w * (double)w;
            part_others += other * other;
        }
        weights += part_weights;
        others += part_others;
    }
    ab_f_set_trust(kind, row, ab_f_trust(kind, row, weights, others));
}

static void update_now(ab_resident *r, int item) {
    const ab_update_item *u = &r->config.update[item];
    const ab_tensor *ema = r->config.ema ? r->config.ema[item] : NULL;
    const float fresh = r->state.taken == 1 ? 1.0f : (float)(1.0 - r->config.ema_decay);
    const int kind = r->config.update_kind;
    ab_update_row row = r->row[(r->state.taken - r->base - 1) * r->config.groups + r->config.group[item]];
    if (ab_f_needs_norms(kind)) measure_now(kind, u, &row);
    for (int64_t i = 0; i < ab_tensor_count(u->weight); i++) {
        float weight = get(u->weight, i), held[AB_UPDATE_MAX_STATES];
        load(u, i, held);
        ab_f_update(kind, row.value, get(u->grad, i), &weight, held);
        for (int s = 0; s < AB_UPDATE_MAX_STATES; s++)
            if (u->state[s]) put(u->state[s], i, held[s]);
        put(u->weight, i, weight);
        if (u->model) put(u->model, i, weight);
        if (ema) put(ema, i, ab_f_average(get(ema, i), get(u->weight, i), fresh));
    }
}

static void finish_now(ab_resident *r) {
    for (int i = 0; i < r->config.items && !r->config.leave_gradients; i++) unscale_now(r, i);
    if (r->config.clip_norm > 0 || r->config.clip_value > 0) clip_now(r);
    ab_step_record *record = &r->record[r->state.step % r->config.window];
    *record = ab_step_end(&r->config.rule, &r->state, get(r->config.loss, 0), r->config.batches);
    if (spoilt_scale != 0) record->scale = spoilt_scale;
    for (int i = 0; i < r->config.items && !r->state.skip; i++) update_now(r, i);
}

static ab_status begin(ab_resident *r) { return ask((call){.step = begin_now, .resident = r}); }
static ab_status batch(ab_resident *r) { return ask((call){.step = batch_now, .resident = r}); }
static ab_status finish(ab_resident *r) { return ask((call){.step = finish_now, .resident = r}); }

static void mark_now(ab_resident *r, int place) {
    assert_int_equal(place, r->marks + 1);
    r->marks = place;
}

static ab_status mark(ab_resident *r, int place) {
    if (place > 0) return ask((call){.resident = r, .place = place});
    assert_null(recording);
    r->marks = 0;
    return AB_OK;
}

static ab_status collect(ab_resident *r, int steps, ab_step_record *record, int64_t *time_ns,
                         ab_step_state *state) {
    assert_int_equal(r->marks, steps);
    assert_int_equal(r->state.step, r->collected + steps);
    for (int i = 0; i < steps; i++) {
        record[i] = r->record[(r->collected + i) % r->config.window];
        time_ns[i] = 1000 + i;
    }
    r->collected += steps;
    *state = r->state;
    return AB_OK;
}

static ab_status record_begin(void) {
    assert_null(recording);
    recording = calloc(1, sizeof *recording);
    return AB_OK;
}

static ab_status record_end(ab_graph **graph) {
    *graph = recording;
    recording = NULL;
    graphs++;
    return AB_OK;
}

static ab_status launch(ab_graph *graph) {
    launches++;
    for (int i = 0; i < graph->count; i++) {
        ab_status status = do_call(&graph->list[i]);
        if (status != AB_OK) return status;
    }
    return AB_OK;
}

static void graph_destroy(ab_graph *graph) { free(graph); }

/* ---- batches --------------------------------------------------------------------------------- */

/* What was sent to a room must be used there before it is filled again. */
struct ab_stage {
    size_t bytes[2];
    int slots;
    void *host[AB_STAGE_SLOTS][2], *room[AB_STAGE_SLOTS][2];
    bool full[AB_STAGE_SLOTS];
};

static int staged_slots;

static void stage_destroy(ab_stage *stage) {
    for (int s = 0; stage && s < stage->slots; s++)
        for (int i = 0; i < 2; i++) free(stage->host[s][i]);
    free(stage);
}

static ab_status stage_create(const size_t bytes[2], void *const (*room)[2], int slots, ab_stage **result) {
    ab_stage *stage = *result = calloc(1, sizeof *stage);
    stage->slots = staged_slots = slots;
    for (int s = 0; s < slots; s++)
        for (int i = 0; i < 2; i++) {
            stage->bytes[i] = bytes[i];
            stage->host[s][i] = calloc(1, bytes[i]);
            stage->room[s][i] = room[s][i];
        }
    return AB_OK;
}

static ab_status stage_buffers(ab_stage *stage, int slot, void *buffer[2]) {
    for (int i = 0; i < 2; i++) buffer[i] = stage->host[slot][i];
    return AB_OK;
}

static ab_status stage_send(ab_stage *stage, int slot) {
    assert_null(recording); /* a transfer from the host is no part of a graph */
    assert_false(stage->full[slot]);
    far_access(PROT_READ | PROT_WRITE);
    for (int i = 0; i < 2; i++) memcpy(stage->room[slot][i], stage->host[slot][i], stage->bytes[i]);
    far_access(PROT_NONE);
    stage->full[slot] = true;
    return AB_OK;
}

static void use_now(const ab_stage *stage, int slot, void *const to[2]) {
    assert_true(stage->full[slot]);
    for (int i = 0; i < 2; i++) memcpy(to[i], stage->room[slot][i], stage->bytes[i]);
}

static ab_status stage_use(ab_stage *stage, int slot, void *const to[2]) {
    return ask((call){.stage = stage, .slot = slot, .room = {to[0], to[1]}});
}

static ab_status stage_done(ab_stage *stage, int slot) {
    assert_null(recording);
    assert_true(stage->full[slot]);
    stage->full[slot] = false;
    return AB_OK;
}

static const ab_resident_ops resident_ops = {.create = create,
                                             .destroy = destroy,
                                             .set = set,
                                             .counter = counter,
                                             .begin = begin,
                                             .batch = batch,
                                             .finish = finish,
                                             .mark = mark,
                                             .collect = collect,
                                             .record_begin = record_begin,
                                             .record_end = record_end,
                                             .launch = launch,
                                             .graph_destroy = graph_destroy,
                                             .stage_create = stage_create,
                                             .stage_destroy = stage_destroy,
                                             .stage_buffers = stage_buffers,
                                             .stage_send = stage_send,
                                             .stage_use = stage_use,
                                             .stage_done = stage_done};

static const ab_backend backend = {.abi = AB_DEVICE_ABI,
                                   .layout = ab_backend_layout,
                                   .kind = "test",
                                   .op = every_op,
                                   .cast = cast,
                                   .accumulate = accumulate,
                                   .unscale = unscale,
                                   .resident = &resident_ops};

static const ab_device device = {.abi = AB_DEVICE_ABI,
                                 .name = "test",
                                 .alloc = far_alloc,
                                 .free = far_free,
                                 .fill_zero = far_fill_zero,
                                 .upload = far_copy,
                                 .download = far_copy,
                                 .synchronize = far_synchronize,
                                 .backend = &backend};

/* ---- cells ----------------------------------------------------------------------------------- */

enum { STEPS = 40, BATCH = 2, WEIGHTS = 20000 };

typedef struct trace {
    ab_step_result step[STEPS];
    int64_t time_ns[STEPS];
    float weight[WEIGHTS];
    char always_on[8192];
} trace;

typedef struct choice {
    const char *net, *level, *optimizer, *schedule;
    bool no_graph;
    double clip, clip_value, ema;
    int batches;
    unsigned faults;
    const char *no_decay;
} choice;

typedef struct made {
    ab_net *net;
    ab_data *data;
    ab_cell *cell;
} made;

/* Made once a network: procedural data takes longer than the steps. */
static ab_data *data_for(const ab_net *net) {
    static struct {
        char net[32];
        ab_data *data;
    } kept[3];
    int i = 0;
    while (i < 3 && kept[i].data && strcmp(kept[i].net, net->name) != 0) i++;
    assert_true(i < 3);
    if (kept[i].data) return kept[i].data;
    snprintf(kept[i].net, sizeof kept[i].net, "%s", net->name);
    assert_int_equal(ab_data_open("synthetic", &net->data, 5, &kept[i].data), AB_OK);
    return kept[i].data; /* until the process ends */
}

static made make(const choice *c, const ab_device *on) {
    made m;
    const ab_level *level;
    ab_cell_config config = {.batch = BATCH, .seed = 5, .device = on, .no_graph = c->no_graph};
    if (c->net[0] == '{')
        assert_int_equal(ab_net_parse(c->net, strlen(c->net), "dropped.json", &m.net), AB_OK);
    else
        assert_int_equal(ab_net_load(c->net, &m.net), AB_OK);
    config.net = m.net;
    m.data = data_for(m.net);
    config.data = m.data;
    assert_int_equal(ab_level_find(c->level, &level), AB_OK);
    assert_int_equal(ab_policy_resolve(level, &ab_format_fp16, NULL, 0, &config.policy), AB_OK);
    assert_int_equal(ab_optimizer_find(c->optimizer, &config.optimizer), AB_OK);
    config.optim = config.optimizer->defaults;
    config.recipe.clip = (ab_clip_config){.norm = c->clip, .value = c->clip_value};
    config.recipe.micro_batches = c->batches;
    if (c->ema > 0) {
        config.recipe.ema_decay = c->ema;
        config.policy.keep.ema_format = &ab_format_fp32;
    }
    config.recipe.faults = c->faults;
    if (c->no_decay) assert_int_equal(ab_param_groups_no_decay(c->no_decay, &config.recipe.groups), AB_OK);
    config.recipe.rates = (ab_schedule_config){.lr = config.optim.lr, .total = STEPS};
    for (int i = 0; c->schedule && i < ab_schedule_count(); i++)
        if (strcmp(ab_schedule_at(i)->name, c->schedule) == 0) config.recipe.schedule = ab_schedule_at(i);
    assert_true(!c->schedule || config.recipe.schedule);
    if (ab_cell_create(&config, &m.cell) != AB_OK) fail_msg("%s", ab_error_message());
    return m;
}

static void unmake(made *m) {
    ab_cell_destroy(m->cell);
    ab_net_free(m->net);
    far_blocks = 0;
}

static void read_weight(const made *m, trace *t) {
    ab_shape shape;
    const char *name = ab_cell_trained_at(m->cell, ab_cell_trained_count(m->cell) - 2)->name;
    assert_int_equal(ab_cell_read(m->cell, name, &shape, NULL), AB_OK);
    assert_true(ab_shape_count(&shape) <= WEIGHTS);
    assert_int_equal(ab_cell_read(m->cell, name, &shape, t->weight), AB_OK);
}

/* What the cell noticed of its steps: whose labels were skipped, among other things. */
static void read_vitals(const made *m, trace *t) {
    FILE *out = fmemopen(t->always_on, sizeof t->always_on, "w");
    ab_json_line line;
    assert_non_null(out);
    ab_json_line_begin(&line, out, "vitals");
    assert_int_equal(ab_cell_report_always_on_stats(m->cell, &line.sink), AB_OK);
    ab_json_line_end(&line);
    fclose(out);
}

/* Three calls: 1 step, 35, the rest; windows end inside and between them. */
static void take_all(made *m, trace *t) {
    const int parts[] = {1, 35, STEPS - 36};
    for (int i = 0, at = 0; i < 3; at += parts[i++])
        if (ab_cell_run_steps(m->cell, parts[i], t->step + at, t->time_ns + at) != AB_OK)
            fail_msg("%s", ab_error_message());
    read_weight(m, t);
    read_vitals(m, t);
}

static void same(const trace *a, const trace *b) {
    for (int i = 0; i < STEPS; i++) {
        if (memcmp(&a->step[i].loss, &b->step[i].loss, sizeof(float)) != 0)
            fail_msg("step %d: loss %a on the CPU, %a there", i, (double)a->step[i].loss,
                     (double)b->step[i].loss);
        assert_true(a->step[i].scale == b->step[i].scale && a->step[i].lr == b->step[i].lr);
        assert_memory_equal(&a->step[i].grad_norm, &b->step[i].grad_norm, sizeof(double));
        assert_int_equal(a->step[i].skipped, b->step[i].skipped);
        assert_int_equal(a->step[i].overflow, b->step[i].overflow);
    }
    assert_memory_equal(a->weight, b->weight, sizeof a->weight);
    assert_string_equal(a->always_on, b->always_on);
}

static int skips_of(const trace *t) {
    int skips = 0;
    for (int i = 0; i < STEPS; i++) skips += t->step[i].skipped;
    return skips;
}

/* Calls of 1, 35 and 4 steps: windows of 1 (the first, without a graph), 32, 3 and 4 steps. Those of 32 and 4
 * are graphs of 4 steps, recorded once for each place in a window; 3 steps are launched batch by batch. */
static void expect_graphs(int batches) {
    const int kinds = batches < 3 ? batches : 3;
    assert_int_equal(staged_slots, 8 * batches);
    assert_int_equal(graphs, kinds + 8);
    assert_int_equal(launches, 3 * batches + 8 + 1);
}

static int compare(const choice *c) {
    static trace here, there;
    memset(&here, 0, sizeof here);
    memset(&there, 0, sizeof there);
    made m = make(c, &ab_device_cpu);
    assert_int_equal(ab_cell_window(m.cell), 1);
    take_all(&m, &here);
    unmake(&m);
    graphs = launches = 0;
    m = make(c, &device);
    assert_true(ab_cell_window(m.cell) > 1);
    take_all(&m, &there);
    unmake(&m);
    same(&here, &there);
    const int batches = c->batches > 1 ? c->batches : 1;
    expect_graphs(batches);
    assert_int_equal(there.time_ns[2], 1001);
    return skips_of(&there);
}

static void replayed_steps_are_the_cpus_bit_for_bit(void **state) {
    (void)state;
    int skips = 0;
    compare(&(choice){.net = "mlp", .level = "O0", .optimizer = "momentum"});
    compare(&(choice){.net = "lenet5", .level = "O1", .optimizer = "sgd"});
    skips += compare(&(choice){.net = "lenet5", .level = "O2", .optimizer = "adam"});
    compare(&(choice){.net = "mlp", .level = "O3", .optimizer = "nesterov"});
    compare(&(choice){.net = "mlp", .level = "O2", .optimizer = "adamw", .schedule = "cosine"});
    assert_true(skips > 0); /* the device's own decision was tried */
}

/* A recorded step is the same call again and again; its coins are not. */
static void dropouts_coins_are_new_at_every_step(void **state) {
    (void)state;
    static const char net[] = "{\"format\": \"ampbench-net-1\", \"name\": \"dropped\", \"input\": "
                              "{\"height\": 28, \"width\": 28, \"channels\": 1}, "
                              "\"ops\": [{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"drop\", "
                              "\"op\": \"dropout\", \"p\": 0.5}, "
                              "{\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": 16}, {\"name\": "
                              "\"again\", \"op\": \"dropout\"}, "
                              "{\"name\": \"fc2\", \"op\": \"linear\", \"out_features\": 10}, {\"name\": "
                              "\"loss\", \"op\": \"cross_entropy\"}]}";
    compare(&(choice){.net = net, .level = "O2", .optimizer = "sgd"});
    compare(&(choice){.net = net, .level = "O0", .optimizer = "adamw", .batches = 3});
}

/* adamw, warm-up, clipping, accumulation, decay for some: what transformers are trained with; dropout's coins
 * are new each time. */
static void a_transformers_recipe_needs_no_host(void **state) {
    (void)state;
    int skips = 0;
    skips += compare(&(choice){.net = "lenet5",
                               .level = "O2",
                               .optimizer = "adamw",
                               .schedule = "cosine",
                               .clip = 1.0,
                               .batches = 2,
                               .no_decay = "bias"});
    compare(&(choice){.net = "mlp", .level = "O3", .optimizer = "lamb", .clip = 0.5, .clip_value = 0.01});
    compare(&(choice){.net = "mlp", .level = "O2", .optimizer = "lars", .ema = 0.9, .batches = 2});
    assert_true(skips > 0);
}

static void what_a_device_cannot_decide_is_left_to_the_host(void **state) {
    (void)state;
    static const choice choices[] = {{.net = "mlp", .level = "O2", .optimizer = "adam", .no_graph = true},
                                     {.net = "mlp",
                                      .level = "O2",
                                      .optimizer = "adam",
                                      .batches = 2,
                                      .faults = AB_FAULT_accumulation_not_averaged}};
    for (size_t i = 0; i < AB_COUNT_OF(choices); i++) {
        static trace here, there;
        made m = make(&choices[i], &ab_device_cpu);
        take_all(&m, &here);
        unmake(&m);
        m = make(&choices[i], &device);
        assert_int_equal(ab_cell_window(m.cell), 1);
        take_all(&m, &there);
        unmake(&m);
        same(&here, &there);
    }
}

static void single_steps_and_windows_may_alternate(void **state) {
    (void)state;
    static trace here, there;
    const choice c = {.net = "lenet5", .level = "O2", .optimizer = "momentum"};
    made m = make(&c, &ab_device_cpu);
    take_all(&m, &here);
    unmake(&m);
    m = make(&c, &device);
    for (int i = 0; i < STEPS;) {
        assert_int_equal(ab_cell_step(m.cell, NULL, &there.step[i++]), AB_OK);
        int n = STEPS - i < 9 ? STEPS - i : 9;
        if (n > 0) assert_int_equal(ab_cell_run_steps(m.cell, n, &there.step[i], &there.time_ns[i]), AB_OK);
        i += n;
    }
    read_weight(&m, &there);
    read_vitals(&m, &there);
    unmake(&m);
    same(&here, &there);
}

/* Blocks: one a category, the batches' rooms, the ops' states and scratch. Bytes: the CPU's, but for
 * rooms and scratch. */
static void a_cell_allocates_once_a_category(void **state) {
    (void)state;
    const choice c = {.net = "lenet5", .level = "O2", .optimizer = "adam"};
    int64_t bytes[AB_MEM_CATEGORY_COUNT], sum = 0;
    made m = make(&c, &ab_device_cpu);
    for (int k = 0; k < AB_MEM_CATEGORY_COUNT; k++) bytes[k] = ab_cell_bytes(m.cell, (ab_mem_category)k);
    unmake(&m);
    m = make(&c, &device);
    assert_true(far_blocks <= AB_MEM_CATEGORY_COUNT + 2 + 5 + 1);
    assert_true(ab_cell_plan(m.cell)->tensors > 4 * far_blocks);
    for (int k = 0; k < AB_MEM_CATEGORY_COUNT; k++) {
        int64_t here = ab_cell_bytes(m.cell, (ab_mem_category)k);
        sum += here;
        if (k != AB_MEM_input && k != AB_MEM_workspace) assert_int_equal(here, bytes[k]);
    }
    assert_int_equal(sum, ab_cell_bytes_total(m.cell));
    unmake(&m);
}

static void a_device_that_disagrees_about_the_scale_is_found_out(void **state) {
    (void)state;
    static trace t;
    made m = make(&(choice){.net = "mlp", .level = "O2", .optimizer = "sgd"}, &device);
    spoilt_scale = 3.0;
    assert_int_equal(ab_cell_run_steps(m.cell, 2, t.step, t.time_ns), AB_INTERNAL);
    assert_non_null(strstr(ab_error_message(), "the device's loss scale is 3"));
    spoilt_scale = 0;
    unmake(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replayed_steps_are_the_cpus_bit_for_bit),
        cmocka_unit_test(dropouts_coins_are_new_at_every_step),
        cmocka_unit_test(a_transformers_recipe_needs_no_host),
        cmocka_unit_test(what_a_device_cannot_decide_is_left_to_the_host),
        cmocka_unit_test(a_cell_allocates_once_a_category),
        cmocka_unit_test(single_steps_and_windows_may_alternate),
        cmocka_unit_test(a_device_that_disagrees_about_the_scale_is_found_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
