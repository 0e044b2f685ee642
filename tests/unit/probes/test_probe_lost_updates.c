/* The lost-update ledger against a bookkeeping in double that shares no code with it: every update of every
 * weight, and what each cause contributed. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/probe_testing.h"

#include "kernels/format/convert.h"

#include <math.h>

static const char *const causes[] = {"gradient", "weight_decay", "momentum", "eps", "update"};
enum { GRADIENT, DECAY, MOMENTUM, EPS, UPDATE, CAUSES };

static const ab_probe_kind *ledger(void) { return pt_probe("lost_updates"); }

/* ---- bookkeeping in double ------------------------------------------------------------------- */

typedef struct account {
    int64_t nonzero, lost;
    double energy, lost_energy;
} account;

typedef struct books {
    account cause[CAUSES];
    bool has[CAUSES];
    double moved;
} books;

/* One weight on its way through a step. */
typedef struct element {
    double before, after, grad, m, v; /* as stored; m: momentum or first moment */
} element;

static void book(account *to, double part, bool stayed) {
    to->nonzero += part != 0;
    to->lost += part != 0 && stayed;
    to->energy += part * part;
    to->lost_energy += stayed ? part * part : 0;
}

/* Whether the weight plus `part`, added in fp32 and stored, is the weight. */
static bool stays(const ab_format *format, double before, double part) {
    const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    return ab_format_round(format, &nearest, (double)((float)before + (float)part)) == before;
}

static double f(double x) { return (double)(float)x; }

/* What the terms of the formulas add to a weight (torch.optim.SGD and Adam), with fp32 hyper-parameters. */
static void terms_of(const char *name, const ab_optimizer_config *c, int64_t taken, const element *e,
                     double term[4]) {
    double decay = f(c->weight_decay) * e->before, momentum = f(c->momentum);
    double fresh = taken == 1 ? 1 : f(1 - c->dampening);
    term[MOMENTUM] = term[EPS] = 0;
    if (strcmp(name, "adam") == 0) {
        double step = f(c->lr / (1 - pow(c->beta1, (double)taken)));
        double g = e->grad + decay, v = f(c->beta2) * e->v + f(1 - c->beta2) * g * g;
        double root = sqrt(v) / f(sqrt(1 - pow(c->beta2, (double)taken))), b = f(1 - c->beta1);
        double scale = step / (root + f(c->eps));
        term[GRADIENT] = -scale * b * e->grad;
        term[DECAY] = -scale * b * decay;
        term[MOMENTUM] = -scale * (1 - b) * e->m;
        if (root > 0) term[EPS] = (e->m + b * (g - e->m)) * (step / root - scale);
        return;
    }
    bool nesterov = strcmp(name, "nesterov") == 0, plain = strcmp(name, "sgd") == 0;
    double per = nesterov ? 1 + momentum * fresh : plain ? 1 : fresh;
    term[GRADIENT] = -f(c->lr) * per * e->grad;
    term[DECAY] = -f(c->lr) * per * decay;
    if (!plain) term[MOMENTUM] = -f(c->lr) * (nesterov ? momentum * momentum : momentum) * e->m;
}

static void book_element(books *b, const ab_format *format, const element *e, const double term[4]) {
    double update = term[GRADIENT] + term[DECAY] + term[MOMENTUM];
    book(&b->cause[UPDATE], update, e->after == e->before);
    for (int t = 0; t < 4; t++)
        if (b->has[t]) book(&b->cause[t], term[t], stays(format, e->before, term[t]));
    b->moved += (e->after - e->before) * update;
}

static void nearly(const char *what, double found, double expected) {
    if (!(fabs(found - expected) <= 1e-12 * fabs(expected)))
        fail_msg("%s: %.17g in the ledger, %.17g in the books", what, found, expected);
}

static void account_is(const cJSON *param, int cause, const account *a) {
    const cJSON *found = pt_get(param, causes[cause]);
    assert_int_equal(pt_integer(found, "nonzero"), a->nonzero);
    assert_int_equal(pt_integer(found, "lost"), a->lost);
    nearly("energy", pt_number(found, "energy"), a->energy);
    nearly("lost energy", pt_number(found, "lost_energy"), a->lost_energy);
    if (a->nonzero > 0)
        nearly("share", pt_number(found, "lost_share"), (double)a->lost / (double)a->nonzero);
    else
        assert_true(pt_is_null(found, "lost_share"));
}

static void ledger_is(const cJSON *param, const books *b) {
    for (int c = 0; c < CAUSES; c++) {
        if (c != UPDATE && !b->has[c])
            assert_true(pt_is_null(param, causes[c]));
        else
            account_is(param, c, &b->cause[c]);
    }
    if (b->cause[UPDATE].energy > 0) {
        double quality = b->moved / b->cause[UPDATE].energy;
        assert_true(fabs(pt_number(param, "direction_quality") - quality) <= 1e-9 * fmax(1, fabs(quality)));
    }
}

/* ---- in cells -------------------------------------------------------------------------------- */

enum { STEPS = 8, ROOM = 1024 };

static int64_t read(const ab_cell *cell, const char *name, const char *suffix, float *values) {
    char full[AB_PLAN_NAME + 16];
    ab_shape shape;
    snprintf(full, sizeof full, "%s%s", name, suffix);
    if (ab_cell_read(cell, full, &shape, NULL) != AB_OK) return 0;
    assert_true(ab_shape_count(&shape) <= ROOM);
    assert_int_equal(ab_cell_read(cell, full, &shape, values), AB_OK);
    return ab_shape_count(&shape);
}

typedef struct weights {
    float before[ROOM], after[ROOM], grad[ROOM], m[ROOM], v[ROOM];
} weights;

static void cell_is_booked(const ab_net *net, const char *level, const char *optimizer, double decay) {
    ab_cell_config config = pt_config(net, level, &ab_format_fp16, optimizer, "loss_scale=16");
    config.optim.weight_decay = decay;
    config.optim.lr = 0.004;
    ab_cell *cell = pt_cell(&config);
    pt_probing *p = calloc(1, sizeof *p);
    weights *w = calloc(PT_MOST, sizeof *w);
    books *b = calloc(PT_MOST, sizeof *b);
    assert_true(p && w && b);
    int index = -1;
    assert_int_equal(ab_probe_find("lost_updates", &index), AB_OK);
    pt_start(p, (uint64_t)1 << index, cell, &config, &ab_format_fp16);
    for (int step = 1; step <= STEPS; step++) {
        for (int i = 0; i < p->setup.params; i++) {
            read(cell, p->param[i].name, "", w[i].before);
            read(cell, p->param[i].name, ".state0", w[i].m);
            read(cell, p->param[i].name, ".state1", w[i].v);
        }
        pt_step(p, cell);
        for (int i = 0; i < p->setup.params; i++) {
            b[i].has[GRADIENT] = true;
            b[i].has[DECAY] = decay != 0;
            b[i].has[MOMENTUM] = strcmp(optimizer, "sgd") != 0;
            b[i].has[EPS] = strcmp(optimizer, "adam") == 0;
            int64_t n = read(cell, p->param[i].name, "", w[i].after);
            assert_int_equal(n, p->param[i].count);
            assert_int_equal(read(cell, p->param[i].name, ".grad", w[i].grad), n);
            for (int64_t k = 0; k < n; k++) {
                double term[4];
                element e = {(double)w[i].before[k], (double)w[i].after[k], (double)w[i].grad[k],
                             (double)w[i].m[k], (double)w[i].v[k]};
                terms_of(optimizer, &config.optim, step, &e, term);
                book_element(&b[i], p->param[i].format, &e, term);
            }
        }
    }
    cJSON *report = pt_set_report(p);
    for (int i = 0; i < p->setup.params; i++) {
        const cJSON *param = pt_find(pt_get(report, "lost_updates"), "name", p->param[i].name);
        assert_string_equal(pt_text(param, "format"), p->param[i].format->name);
        ledger_is(param, &b[i]);
        assert_true(b[i].cause[UPDATE].nonzero > 0);
    }
    bool half = strcmp(level, "O3") == 0;
    assert_string_equal(p->param[0].format->name, half ? "fp16" : "fp32"); /* O2 has masters */
    if (half) assert_true(b[0].cause[GRADIENT].lost > 0);
    cJSON_Delete(report);
    ab_probe_set_destroy(p->set);
    ab_cell_destroy(cell);
    free(p);
    free(w);
    free(b);
}

static void every_update_of_a_cell_is_in_the_books(void **state) {
    (void)state;
    static const char *const optimizers[] = {"sgd", "momentum", "nesterov", "adam"};
    ab_net *net = pt_net(pt_ops);
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++)
        for (size_t o = 0; o < AB_COUNT_OF(optimizers); o++)
            cell_is_booked(net, pt_levels[l], optimizers[o], l % 2 ? 0 : 0.05);
    cell_is_booked(net, "O3", "adam", 0.05);
    cell_is_booked(net, "O3", "nesterov", 0.05);
    ab_net_free(net);
}

/* ---- one parameter --------------------------------------------------------------------------- */

/* A parameter in a format, updated by an optimizer with the ledger listening. */
typedef struct subject {
    int64_t n;
    void *weight, *grad, *state0;
    const ab_format *format;
    ab_optimizer_config config;
    const ab_optimizer *optimizer;
    ab_probe_param about;
    void *probe;
    int64_t taken;
} subject;

static void hear(void *context, const ab_update_block *block) { ledger()->update(context, block); }

static void ignore(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self, (void)id, (void)thread, (void)values, (void)n;
}

static subject subject_of(const char *optimizer, const ab_format *format, int64_t n, double lr,
                          double decay) {
    subject s = {.n = n,
                 .weight = calloc((size_t)n, 4),
                 .grad = calloc((size_t)n, 4),
                 .state0 = calloc((size_t)n, 4),
                 .format = format};
    assert_true(s.weight && s.grad && s.state0);
    assert_int_equal(ab_optimizer_find(optimizer, &s.optimizer), AB_OK);
    s.config = s.optimizer->defaults;
    s.config.lr = lr;
    s.config.weight_decay = decay;
    s.about = (ab_probe_param){"w", "layer", n, 0, format, format};
    return s;
}

static void listen(subject *s) {
    const ab_probe_setup setup = {.threads = 1,
                                  .half = &ab_format_fp16,
                                  .param = &s->about,
                                  .params = 1,
                                  .optimizer = {.lr = s->config.lr, .second_moment = -1}};
    assert_int_equal(ledger()->create(&setup, &s->probe), AB_OK);
}

static void step(subject *s, int64_t number) {
    ab_tensor weight = {s->weight, {1, {s->n}}, s->format, &ab_device_cpu, -1}, grad = weight,
              state0 = weight;
    ab_tensor *state[] = {&state0, NULL, NULL};
    grad.data = s->grad;
    state0.data = s->state0;
    ab_observer nobody = {.see = ignore};
    const ab_watch watch = {.context = s->probe, .update = hear};
    const ab_optimizer_observers audience = {&nobody, -1, {-1, -1, -1}, &watch, 0};
    ab_optimizer_step_shown(s->optimizer, &s->config, ++s->taken, &weight, &grad, state, &audience);
    ledger()->step_end(s->probe, number);
}

/* The report's only parameter; *report is to be deleted. */
static const cJSON *finish(subject *s, cJSON **report) {
    *report = pt_report(ledger()->report, s->probe);
    ledger()->destroy(s->probe);
    free(s->weight);
    free(s->grad);
    free(s->state0);
    return cJSON_GetArrayItem(pt_get(*report, "lost_updates"), 0);
}

static double share_of(const cJSON *param, const char *cause, const char *key) {
    return pt_number(pt_get(param, cause), key);
}

/* Dyadic numbers: every product and every sum in double is exact, in any order, so the energies must be equal
 * to the bit. */
static void energies_are_exact(void **state) {
    (void)state;
    enum { N = 3000 };
    subject s = subject_of("momentum", &ab_format_bf16, N, 0.5, 0x1p-9);
    s.config.momentum = 0.5;
    float weight[N], grad[N];
    for (int i = 0; i < N; i++) {
        weight[i] = ldexpf((float)(128 + i % 128), -7 - i % 3) * (i % 5 ? 1 : -1);
        grad[i] = ldexpf((float)(i % 64 - 32), -12);
    }
    ab_narrow(s.weight, s.format, weight, N);
    ab_narrow(s.grad, s.format, grad, N);
    listen(&s);
    books b = {.has = {true, true, true, false}};
    for (int k = 0; k < 3; k++) {
        static float before[N], buffer[N], after[N];
        ab_widen(before, s.weight, s.format, N);
        ab_widen(buffer, s.state0, s.format, N);
        step(&s, k);
        ab_widen(after, s.weight, s.format, N);
        for (int i = 0; i < N; i++) {
            double term[4];
            element e = {(double)before[i], (double)after[i], (double)grad[i], (double)buffer[i], 0};
            terms_of("momentum", &s.config, s.taken, &e, term);
            book_element(&b, s.format, &e, term);
        }
    }
    cJSON *report;
    const cJSON *param = finish(&s, &report);
    for (int c = 0; c < CAUSES; c++) {
        if (c == EPS) continue;
        assert_int_equal(pt_integer(pt_get(param, causes[c]), "lost"), b.cause[c].lost);
        assert_true(share_of(param, causes[c], "energy") == b.cause[c].energy);
        assert_true(share_of(param, causes[c], "lost_energy") == b.cause[c].lost_energy);
    }
    assert_in_range(b.cause[UPDATE].lost, 1, b.cause[UPDATE].nonzero - 1);
    assert_true(pt_number(param, "direction_quality") == b.moved / b.cause[UPDATE].energy);
    cJSON_Delete(report);
}

/* All mantissas of a half format, a gradient step that carries every weight along, and decay far below half a
 * spacing. */
static void decay_below_half_a_spacing_is_all_lost(void **state) {
    (void)state;
    static const struct {
        const ab_format *format;
        bool lost;
    } cases[] = {{&ab_format_fp16, true}, {&ab_format_bf16, true}, {&ab_format_fp32, false}};
    static const double products[] = {1e-4, 1e-5}; /* lr * weight decay */
    for (size_t c = 0; c < AB_COUNT_OF(cases); c++)
        for (size_t d = 0; d < AB_COUNT_OF(products); d++) {
            enum { N = 1024 };
            subject s = subject_of("sgd", cases[c].format, N, 0.5, products[d] / 0.5);
            float weight[N], grad[N];
            for (int i = 0; i < N; i++) {
                weight[i] = (1 + (float)i / N) * (i % 2 ? 1 : -1);
                grad[i] = 0.25f;
            }
            ab_narrow(s.weight, s.format, weight, N);
            ab_narrow(s.grad, s.format, grad, N);
            listen(&s);
            step(&s, 0);
            cJSON *report;
            const cJSON *param = finish(&s, &report);
            assert_int_equal(pt_integer(pt_get(param, "weight_decay"), "nonzero"), N);
            assert_int_equal(pt_integer(pt_get(param, "weight_decay"), "lost"), cases[c].lost ? N : 0);
            assert_true(share_of(param, "weight_decay", "lost_share") == (cases[c].lost ? 1 : 0));
            assert_true(share_of(param, "weight_decay", "lost_energy_share") == (cases[c].lost ? 1 : 0));
            assert_int_equal(pt_integer(pt_get(param, "gradient"), "lost"), 0);
            assert_int_equal(pt_integer(pt_get(param, "update"), "lost"), 0);
            assert_true(pt_is_null(param, "momentum"));
            assert_true(pt_is_null(param, "eps"));
            cJSON_Delete(report);
        }
}

/* |update / weight| log-uniform in an octave, mantissas uniform: nothing survives below half the smallest
 * relative spacing, everything above the largest, and between the two 1 - (1 / ln 2 - 1) = 56 %. */
static void the_octave_of_the_ratio_decides(void **state) {
    (void)state;
    static const struct {
        const ab_format *format;
        int octave;
        double low, high;
    } cases[] = {{&ab_format_bf16, -10, 1, 1},       {&ab_format_bf16, -9, 0.42, 0.46},
                 {&ab_format_bf16, -8, 0, 0},        {&ab_format_fp16, -13, 1, 1},
                 {&ab_format_fp16, -12, 0.42, 0.46}, {&ab_format_fp16, -11, 0, 0}};
    enum { N = 40000 };
    for (size_t c = 0; c < AB_COUNT_OF(cases); c++) {
        subject s = subject_of("sgd", cases[c].format, N, 1, 0);
        float *weight = malloc(N * sizeof *weight), *grad = malloc(N * sizeof *grad);
        assert_true(weight && grad);
        for (uint64_t i = 0; i < N; i++) {
            double u = (double)ab_rng_uniform(1, AB_RNG_SAMPLE, 0, i),
                   r = (double)ab_rng_uniform(1, AB_RNG_SAMPLE, 1, i);
            weight[i] = (float)(1 + u);
            ab_round_array(&weight[i], s.format, &(ab_rounding){.mode = AB_ROUND_NEAREST_EVEN}, 1);
            grad[i] = weight[i] * (float)exp2(cases[c].octave + r) * (i % 2 ? 1.0f : -1.0f);
        }
        ab_narrow(s.weight, s.format, weight, N);
        s.about.format = s.format;
        listen(&s);
        /* the gradient in fp32: a half one would be rounded */
        ab_tensor w = {s.weight, {1, {N}}, s.format, &ab_device_cpu, -1},
                  g = {grad, {1, {N}}, &ab_format_fp32, &ab_device_cpu, -1};
        ab_observer nobody = {.see = ignore};
        const ab_watch watch = {.context = s.probe, .update = hear};
        const ab_optimizer_observers audience = {&nobody, -1, {-1, -1, -1}, &watch, 0};
        ab_tensor *const none[] = {NULL, NULL, NULL};
        ab_optimizer_step_shown(s.optimizer, &s.config, 1, &w, &g, none, &audience);
        ledger()->step_end(s.probe, 0);
        cJSON *report;
        double share = share_of(finish(&s, &report), "update", "lost_share");
        if (!(share >= cases[c].low && share <= cases[c].high))
            fail_msg("%s, octave %d: %.4f lost", cases[c].format->name, cases[c].octave, share);
        cJSON_Delete(report);
        free(weight);
        free(grad);
    }
}

/* ---- forecast -------------------------------------------------------------------------------- */

static double lost_share_at(double lr, double *stops) {
    enum { N = 20000 };
    subject s = subject_of("sgd", &ab_format_fp16, N, lr, 0);
    float *values = malloc(N * sizeof *values);
    assert_non_null(values);
    for (uint64_t i = 0; i < N; i++) values[i] = 0.1f * ab_rng_normal(1, AB_RNG_SAMPLE, 2, i);
    ab_narrow(s.weight, s.format, values, N);
    for (uint64_t i = 0; i < N; i++) values[i] = ab_rng_normal(1, AB_RNG_SAMPLE, 3, i);
    ab_narrow(s.grad, s.format, values, N);
    free(values);
    listen(&s);
    step(&s, 0);
    cJSON *report;
    const cJSON *param = finish(&s, &report);
    double share = share_of(param, "update", "lost_share");
    if (stops) *stops = pt_number(pt_get(param, "freeze"), "lr_stops");
    assert_true(pt_number(pt_get(param, "freeze"), "lr") == lr);
    assert_true(pt_number(pt_get(param, "freeze"), "lr_half_lost") >=
                pt_number(pt_get(param, "freeze"), "lr_stops"));
    cJSON_Delete(report);
    return share;
}

static void the_forecast_comes_true(void **state) {
    (void)state;
    double stops, again;
    assert_true(lost_share_at(0.05, &stops) < 0.2);
    assert_true(lost_share_at(stops / 1.15, &again) > 0.89);
    assert_true(lost_share_at(stops * 1.3, NULL) < 0.9);
    assert_true(again > stops / 1.3 && again < stops * 1.3); /* from any learning rate the same */
}

static void a_parameter_that_stops_is_named_with_the_step(void **state) {
    (void)state;
    enum { N = 100 };
    subject s = subject_of("sgd", &ab_format_fp16, N, 1, 0);
    float ones[N], grad[N];
    for (int i = 0; i < N; i++) ones[i] = 1;
    ab_narrow(s.weight, s.format, ones, N);
    listen(&s);
    for (int k = 0; k < 6; k++) {
        for (int i = 0; i < N; i++) grad[i] = k == 1 || k >= 4 ? 0x1p-14f : 0x1p-5f;
        ab_narrow(s.grad, s.format, grad, N);
        step(&s, 10 * k);
    }
    cJSON *report;
    const cJSON *param = finish(&s, &report);
    assert_int_equal(pt_integer(pt_get(param, "freeze"), "stopped_since_step"), 40);
    const cJSON *lost = pt_get(pt_get(param, "steps"), "lost");
    for (int k = 0; k < 6; k++)
        assert_int_equal(cJSON_GetArrayItem(lost, k)->valuedouble, k == 1 || k >= 4 ? N : 0);
    cJSON_Delete(report);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The same update in any order of blocks, on any threads. */
static cJSON *report_in_order(int seed) {
    enum { N = 5 * AB_UPDATE_BLOCK + 100, BLOCKS = 6 };
    static float before[N], after[N], grad[N];
    static double change[N];
    const ab_probe_param about = {"w", "layer", N, 0, &ab_format_fp16, &ab_format_fp16};
    const ab_probe_setup setup = {.threads = 3,
                                  .half = &ab_format_fp16,
                                  .param = &about,
                                  .params = 1,
                                  .optimizer = {.lr = 0.1, .second_moment = -1}};
    void *probe = NULL;
    assert_int_equal(ledger()->create(&setup, &probe), AB_OK);
    for (uint64_t i = 0; i < N; i++) {
        before[i] = ab_rng_normal(1, AB_RNG_SAMPLE, 4, i);
        change[i] = 1e-3 * (double)ab_rng_normal(1, AB_RNG_SAMPLE, 5, i);
        after[i] = i % 3 ? before[i] : before[i] + (float)change[i];
    }
    for (int k = 0; k < BLOCKS; k++) {
        int64_t first = (int64_t)((k * seed) % BLOCKS) * AB_UPDATE_BLOCK;
        ab_update_block block = {.thread = k % 3 * (seed > 1),
                                 .first = first,
                                 .n = N - first < AB_UPDATE_BLOCK ? N - first : AB_UPDATE_BLOCK,
                                 .taken = 1,
                                 .before = before + first,
                                 .after = after + first,
                                 .stored = after + first,
                                 .grad = grad + first,
                                 .update = change + first,
                                 .term = {change + first}};
        ledger()->update(probe, &block);
    }
    ledger()->step_end(probe, 0);
    cJSON *report = pt_report(ledger()->report, probe);
    ledger()->destroy(probe);
    return report;
}

static void the_order_of_blocks_and_lanes_changes_no_bit(void **state) {
    (void)state;
    cJSON *forward = report_in_order(1), *backward = report_in_order(5);
    char *a = cJSON_PrintUnformatted(forward), *b = cJSON_PrintUnformatted(backward);
    assert_string_equal(a, b);
    free(a);
    free(b);
    cJSON_Delete(forward);
    cJSON_Delete(backward);
}

/* An update that overflowed is in no account; the rest of the block is. */
static void updates_that_are_not_finite_are_left_out(void **state) {
    (void)state;
    static const double change[] = {1.0, (double)INFINITY, (double)NAN, 0.5};
    static const float before[] = {1, 1, 1, 1}, stored[] = {2, INFINITY, NAN, 1};
    const ab_probe_param about = {"w", "layer", 4, 0, &ab_format_fp16, &ab_format_fp16};
    const ab_probe_setup setup = {.threads = 1,
                                  .half = &ab_format_fp16,
                                  .param = &about,
                                  .params = 1,
                                  .optimizer = {.lr = 1, .second_moment = -1}};
    void *probe = NULL;
    assert_int_equal(ledger()->create(&setup, &probe), AB_OK);
    const ab_update_block block = {.n = 4,
                                   .taken = 1,
                                   .before = before,
                                   .after = stored,
                                   .stored = stored,
                                   .grad = before,
                                   .update = change,
                                   .term = {change}};
    ledger()->update(probe, &block);
    ledger()->step_end(probe, 0);
    cJSON *report = pt_report(ledger()->report, probe);
    const cJSON *param = cJSON_GetArrayItem(pt_get(report, "lost_updates"), 0);
    const cJSON *update = pt_get(param, "update");
    assert_int_equal(pt_integer(update, "nonzero"), 2);
    assert_int_equal(pt_integer(update, "lost"), 1);
    assert_true(pt_number(update, "energy") == 1.25 && pt_number(update, "lost_energy") == 0.25);
    assert_true(pt_number(param, "direction_quality") == 1.0 / 1.25);
    cJSON_Delete(report);
    ledger()->destroy(probe);
}

/* By the format's spacing alone: fp16 keeps 11 bits, so no update below |w| / |dw| = 2^11 is lost, and every
 * one from 2^12 on. The weights are normal numbers. */
static void an_update_is_lost_where_the_format_says_so(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    static const double rates[] = {1e-1, 1e-3, 1e-5};
    double below = 0, between = 0, above = 0;
    for (size_t k = 0; k < sizeof rates / sizeof *rates; k++) {
        ab_cell_config config = pt_config(net, "O3", &ab_format_fp16, "sgd", "loss_scale=16");
        config.optim.lr = rates[k];
        ab_cell *cell = pt_cell(&config);
        pt_probing p;
        int index = -1;
        assert_int_equal(ab_probe_find("lost_updates", &index), AB_OK);
        pt_start(&p, (uint64_t)1 << index, cell, &config, &ab_format_fp16);
        for (int i = 0; i < 4; i++) pt_step(&p, cell);
        cJSON *report = pt_set_report(&p);
        const cJSON *param;
        cJSON_ArrayForEach(param, pt_get(report, "lost_updates")) {
            const cJSON *sizes = pt_get(param, "sizes"), *counts = pt_get(sizes, "counts");
            for (int i = 0; i < cJSON_GetArraySize(counts); i++) {
                const double all = cJSON_GetArrayItem(counts, i)->valuedouble;
                const double lost = cJSON_GetArrayItem(pt_get(sizes, "lost"), i)->valuedouble;
                const int64_t octave = pt_integer(sizes, "first") + i;
                if (octave < 11) assert_true(lost == 0);
                if (octave >= 12) assert_true(lost == all);
                below += octave < 11 ? all : 0;
                between += octave == 11 ? lost : 0;
                above += octave >= 12 ? all : 0;
            }
        }
        cJSON_Delete(report);
        ab_probe_set_destroy(p.set);
        ab_cell_destroy(cell);
    }
    assert_true(below > 0 && between > 0 && above > 0);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_update_of_a_cell_is_in_the_books),
        cmocka_unit_test(energies_are_exact),
        cmocka_unit_test(decay_below_half_a_spacing_is_all_lost),
        cmocka_unit_test(the_octave_of_the_ratio_decides),
        cmocka_unit_test(the_forecast_comes_true),
        cmocka_unit_test(a_parameter_that_stops_is_named_with_the_step),
        cmocka_unit_test(the_order_of_blocks_and_lanes_changes_no_bit),
        cmocka_unit_test(updates_that_are_not_finite_are_left_out),
        cmocka_unit_test(an_update_is_lost_where_the_format_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
