/* Roles of layers in formats of their own: what is in fp32 is the number that was rounded before, for every
 * op and role; nothing else of the first step moves; and gradients that half would flush equal sums made here
 * in double. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/every_op_testing.h"

#include "bench/amp/layer_formats.h"
#include "kernels/backend/backend.h"
#include "kernels/format/convert.h"

#include <math.h>

static const ab_format *const fp16 = &ab_format_fp16, *const fp32 = &ab_format_fp32;

/* ---- what a step shows ----------------------------------------------------------------------- */

enum { MOST_SEEN = 1024, IN = 'i', PARAM = 'p', OUT = 'o', DOUT = 'y', DIN = 'x', DPARAM = 'w' };

/* A tensor of an op that ran. */
typedef struct seen {
    int op, place;
    char what;
    bool backward;
    const ab_format *format;
    int64_t n;
    float *value;
} seen;

typedef struct sight {
    int count;
    seen tensor[MOST_SEEN];
    float loss;
} sight;

static void look(sight *s, const ab_op_run *run, char what, int place, const ab_tensor *tensor) {
    if (!tensor || !tensor->format) return;
    assert_true(s->count < MOST_SEEN);
    seen *t = &s->tensor[s->count++];
    *t = (seen){run->number, place, what, run->backward, tensor->format, ab_tensor_count(tensor), NULL};
    t->value = malloc((size_t)t->n * sizeof *t->value);
    assert_non_null(t->value);
    assert_int_equal(ab_tensor_read(tensor, t->value), AB_OK);
}

static void look_at_run(void *context, const ab_op_run *run) {
    sight *s = context;
    for (int i = 0; i < AB_MAX_PARAMS && run->backward; i++) look(s, run, DPARAM, i, run->io->dparam[i]);
    for (int i = 0; i < AB_MAX_INPUTS && run->backward; i++) look(s, run, DIN, i, run->io->din[i]);
    if (run->backward) look(s, run, DOUT, 0, run->io->dout);
    if (run->backward) return;
    look(s, run, OUT, 0, run->io->out);
    for (int i = 0; i < AB_MAX_PARAMS; i++) look(s, run, PARAM, i, run->io->param[i]);
    for (int i = 0; i < AB_MAX_INPUTS; i++) look(s, run, IN, i, run->io->in[i]);
}

static void forget(sight *s) {
    for (int i = 0; i < s->count; i++) free(s->tensor[i].value);
    free(s);
}

static bool accumulate_half;

static ab_cell_config config_of(const ab_net *net, const char *level, const char *to) {
    ab_cell_config config = pt_config(net, level, fp16, "momentum", "loss_scale=1");
    config.data = eo_data(net);
    config.optim.lr = 1e-4;
    config.policy.layers = to;
    config.accumulate_half = accumulate_half;
    return config;
}

/* The step after `before` others. */
static sight *step_of(const ab_net *net, const char *level, const char *to, int before) {
    const ab_cell_config config = config_of(net, level, to);
    sight *s = calloc(1, sizeof *s);
    const ab_watch watch = {.context = s, .ran = look_at_run};
    ab_step_result result;
    assert_non_null(s);
    ab_cell *cell = pt_cell(&config);
    for (int i = 0; i < before; i++) assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
    ab_cell_follow(cell, &watch);
    if (ab_cell_step(cell, NULL, &result) != AB_OK) fail_msg("%s", ab_error_message());
    s->loss = result.loss;
    ab_cell_destroy(cell);
    return s;
}

static sight *first_step(const ab_net *net, const char *level, const char *to) {
    return step_of(net, level, to, 0);
}

static const seen *find(const sight *s, int op, char what, int place) {
    for (int i = 0; i < s->count; i++)
        if (s->tensor[i].op == op && s->tensor[i].what == what && s->tensor[i].place == place)
            return &s->tensor[i];
    fail_msg("op %d has no %c%d", op, what, place);
    return NULL;
}

static int number_of(const ab_net *net, const char *name) {
    for (int i = 0; i < net->ops; i++)
        if (strcmp(net->op[i].name, name) == 0) return i;
    fail_msg("no op %s", name);
    return -1;
}

/* ---- what was rounded ------------------------------------------------------------------------ */

static bool same_bits(const seen *a, const seen *b) {
    return a->n == b->n && memcmp(a->value, b->value, (size_t)a->n * sizeof *a->value) == 0;
}

/* b in fp32 is a before its rounding. *finer: some value was rounded. */
static void is_rounded(const ab_net *net, const seen *a, const seen *b, bool *finer) {
    static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    assert_ptr_equal(b->format, fp32);
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        const float rounded =
            a->format == fp32 ? b->value[i] : (float)ab_format_round(fp16, &nearest, (double)b->value[i]);
        if (a->value[i] != rounded && !(isnan(rounded) && isnan(a->value[i])))
            fail_msg("%s %c%d [%lld]: %a rounds to %a, not %a", net->op[a->op].name, a->what, a->place,
                     (long long)i, (double)b->value[i], (double)rounded, (double)a->value[i]);
        *finer = *finer || b->value[i] != rounded;
    }
}

/* Compares two first steps: where op `op` (-1: any) makes `what`, b is a unrounded; up to there, and for what
 * does not read it, they are the same. Returns how many values were compared as unrounded. */
static int compare(const ab_net *net, const sight *a, const sight *b, int op, char what, bool *finer) {
    int unrounded = 0;
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        const seen *x = &a->tensor[i], *y = &b->tensor[i];
        if (what != DPARAM && unrounded > 0 && !(x->op == op && x->what == what)) break;
        if ((op < 0 || x->op == op) && x->what == what && (what != OUT || !x->backward)) {
            is_rounded(net, x, y, finer);
            unrounded++;
        } else if (!same_bits(x, y)) {
            fail_msg("%s %c%d moved", net->op[x->op].name, x->what, x->place);
        }
    }
    return unrounded;
}

/* "op:role=format" if the op has the role. */
static bool role_of(const ab_net *net, int op, ab_layer_role role, const char *format, char text[96]) {
    ab_layer_format own[64];
    snprintf(text, 96, "%s:%s=%s", net->op[op].name, ab_layer_role_name(role), format);
    return ab_layer_formats(text, net, fp16, own) == AB_OK;
}

static const char *const half_levels[] = {"O1", "O2", "O3"};

typedef void (*net_visitor)(const ab_net *net, const char *level);

static void visit_nets(net_visitor visit) {
    for (size_t n = 0; n < EO_NETS; n++) {
        ab_net *net = eo_net(n);
        for (size_t l = 0; l < AB_COUNT_OF(half_levels); l++)
            if (eo_runs_at(n, half_levels[l])) visit(net, half_levels[l]);
        ab_net_free(net);
    }
}

static void all_weight_gradients(const ab_net *net, const char *level) {
    bool finer = false;
    sight *a = first_step(net, level, NULL), *b = first_step(net, level, "*:wgrad=fp32");
    assert_true(compare(net, a, b, -1, DPARAM, &finer) > 0);
    assert_true(finer && a->loss == b->loss);
    forget(a);
    forget(b);
}

static void weight_gradients_lose_their_rounding_and_nothing_else_moves(void **state) {
    (void)state;
    visit_nets(all_weight_gradients);
}

static bool recurs(const ab_net_op *op) {
    return op->op == &ab_op_lstm || op->op == &ab_op_rnn || op->op == &ab_op_gru;
}

static int each_role(const ab_net *net, const char *level, ab_layer_role role, char what) {
    sight *a = first_step(net, level, NULL);
    bool finer = false;
    int compared = 0;
    for (int op = 0; op < net->ops; op++) {
        char to[96];
        /* a recurrent layer reads its own output again, so in fp32 that is another one */
        if (!role_of(net, op, role, "fp32", to) || net->op[op].outside ||
            (what == OUT && recurs(&net->op[op])))
            continue;
        sight *b = first_step(net, level, to);
        compared += compare(net, a, b, op, what, &finer);
        forget(b);
    }
    assert_true(finer);
    forget(a);
    return compared;
}

static void input_gradients(const ab_net *net, const char *level) {
    assert_true(each_role(net, level, AB_LAYER_DGRAD, DIN) > 0);
}

static void outputs(const ab_net *net, const char *level) {
    assert_true(each_role(net, level, AB_LAYER_FORWARD, OUT) > 0);
}

static void input_gradients_lose_their_rounding(void **state) {
    (void)state;
    visit_nets(input_gradients);
}

static void outputs_lose_their_rounding(void **state) {
    (void)state;
    visit_nets(outputs);
}

/* Norms whose scratch is the largest there is. */
static const char norm_ops[] =
    "{\"name\": \"bn\", \"op\": \"batch_norm2d\"}, {\"name\": \"relu\", \"op\": \"relu\"}, "
    "{\"name\": \"gn\", \"op\": \"group_norm\", \"num_groups\": 1}, {\"name\": \"flat\", \"op\": "
    "\"flatten\"}, "
    "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, "
    "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";

static void half_role(const ab_net *net, const sight *a, int op, ab_layer_role role) {
    static const char what[] = {[AB_LAYER_FORWARD] = OUT, [AB_LAYER_DGRAD] = DIN, [AB_LAYER_WGRAD] = DPARAM};
    char to[96];
    bool finer = false;
    if (!role_of(net, op, role, "half", to) || (recurs(&net->op[op]) && role == AB_LAYER_FORWARD)) return;
    sight *b = first_step(net, "O0", to);
    for (int i = 0; i < a->count; i++) {
        const seen *x = &a->tensor[i], *y = &b->tensor[i];
        if (x->op != op || x->what != what[role]) continue;
        is_rounded(net, y, x, &finer);
        assert_ptr_equal(y->format, fp16);
    }
    forget(b);
}

/* The other way about: in a model in fp32 a role in half is what was there, rounded. */
static void roles_in_half_are_rounded_once(void **state) {
    (void)state;
    for (size_t n = 0; n <= EO_NETS; n++) {
        ab_net *net = n < EO_NETS ? eo_net(n) : pt_net(norm_ops);
        sight *a = first_step(net, "O0", NULL);
        for (int op = 0; op < net->ops; op++)
            for (int role = 0; role <= AB_LAYER_WGRAD; role++) half_role(net, a, op, (ab_layer_role)role);
        forget(a);
        ab_net_free(net);
    }
}

/* ---- by hand --------------------------------------------------------------------------------- */

/* Two linear layers between factors that make what reaches fc1's weights too small for fp16, and nothing
 * else. */
static const char small_ops[] =
    "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"less\", \"op\": \"scale\", \"factor\": 0.001}, "
    "{\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": 6}, "
    "{\"name\": \"back\", \"op\": \"scale\", \"factor\": 0.0001}, "
    "{\"name\": \"fc2\", \"op\": \"linear\", \"out_features\": 3}, "
    "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";

static int zeros(const seen *t) {
    int count = 0;
    for (int64_t i = 0; i < t->n; i++) count += t->value[i] == 0;
    return count;
}

/* a[rows x k] b[k x columns] in double against c, each by its own strides. */
static void is_product(const seen *c, int64_t rows, int64_t columns, int64_t k, const float *a, int64_t a_row,
                       int64_t a_k, const float *b, int64_t b_k) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0, size = 0;
            for (int64_t t = 0; t < k; t++) {
                const double term = (double)a[i * a_row + t * a_k] * (double)b[t * b_k + j];
                sum += term;
                size += fabs(term);
            }
            const double found = (double)c->value[i * columns + j];
            if (!(fabs(found - sum) <= 1e-6 * size)) fail_msg("%a instead of %a", found, sum);
            assert_true(sum == 0 || found != 0);
        }
}

static void a_flushed_weight_gradient_is_what_its_operands_make(void **state) {
    (void)state;
    ab_net *net = pt_net(small_ops);
    const int fc1 = number_of(net, "fc1");
    sight *a = first_step(net, "O3", NULL), *b = first_step(net, "O3", "fc1:wgrad=fp32");
    const seen *half = find(a, fc1, DPARAM, 0), *full = find(b, fc1, DPARAM, 0);
    const seen *x = find(b, fc1, IN, 0), *dy = find(b, fc1, DOUT, 0);
    assert_true(x->format == fp16 && dy->format == fp16 && half->format == fp16);
    assert_true(zeros(dy) == 0); /* it is the weights' gradient alone that half flushes */
    assert_true(zeros(half) > half->n * 9 / 10);
    is_product(full, 6, 64, PT_BATCH, dy->value, 1, 6, x->value, 64);
    assert_true(zeros(full) < half->n / 10);
    const ab_cell_config config = config_of(net, "O3", "fc1:wgrad=fp32");
    ab_cell *cell = pt_cell(&config);
    ab_step_result result;
    ab_shape shape;
    static float kept[384];
    assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
    assert_int_equal(ab_cell_read(cell, "fc1.weight.grad", &shape, kept), AB_OK);
    assert_memory_equal(kept, full->value, sizeof kept); /* as the optimizer gets it */
    ab_cell_destroy(cell);
    forget(a);
    forget(b);
    ab_net_free(net);
}

/* With sums rounded to half at every step, a gradient in fp32 is summed in fp32. */
static void a_gradient_in_fp32_is_summed_in_fp32(void **state) {
    (void)state;
    ab_net *net = pt_net(small_ops);
    const int fc2 = number_of(net, "fc2");
    accumulate_half = true;
    sight *a = first_step(net, "O3", NULL), *b = first_step(net, "O3", "fc2:wgrad=fp32");
    accumulate_half = false;
    const seen *dy = find(b, fc2, DOUT, 0), *x = find(b, fc2, IN, 0), *full = find(b, fc2, DPARAM, 0);
    bool rounded_once = true;
    is_product(full, 3, 6, PT_BATCH, dy->value, 1, 3, x->value, 6);
    for (int64_t i = 0; i < full->n; i++) {
        static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
        const double once = ab_format_round(fp16, &nearest, (double)full->value[i]);
        rounded_once = rounded_once && once == (double)find(a, fc2, DPARAM, 0)->value[i];
    }
    assert_false(rounded_once); /* or there would be nothing to tell apart */
    forget(a);
    forget(b);
    ab_net_free(net);
}

static void an_input_gradient_is_what_its_operands_make(void **state) {
    (void)state;
    ab_net *net = pt_net(small_ops);
    const int fc2 = number_of(net, "fc2"), back = number_of(net, "back");
    sight *b = first_step(net, "O3", "fc2:dgrad=fp32");
    const seen *dx = find(b, fc2, DIN, 0), *dy = find(b, fc2, DOUT, 0), *w = find(b, fc2, PARAM, 0);
    assert_true(dy->format == fp16 && w->format == fp16 && dx->format == fp32);
    is_product(dx, PT_BATCH, 6, 3, dy->value, 3, 1, w->value, 6);
    const seen *follows = find(b, back, DIN, 0); /* an op that follows hands the format on */
    assert_ptr_equal(follows->format, fp32);
    for (int64_t i = 0; i < follows->n; i++) assert_true(follows->value[i] == dx->value[i] * 0.0001f);
    forget(b);
    ab_net_free(net);
}

/* relu1 of pt_ops is read by conv2 and by sum, whose gradient comes first and is half. */
static void gradients_of_two_formats_are_added_in_fp32(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    const int conv2 = number_of(net, "conv2"), sum = number_of(net, "sum"), relu = number_of(net, "relu1");
    for (int k = 0; k < 2; k++) {
        sight *b =
            step_of(net, "O3", k ? "sum:dgrad=fp32" : "conv2:dgrad=fp32", 1); /* memory was used before */
        const seen *one = find(b, conv2, DIN, 0), *other = find(b, sum, DIN, 1),
                   *all = find(b, relu, DOUT, 0);
        assert_ptr_equal(one->format, k ? fp16 : fp32);
        assert_ptr_equal(other->format, k ? fp32 : fp16);
        assert_ptr_equal(all->format, fp32);
        for (int64_t i = 0; i < all->n; i++) assert_true(all->value[i] == one->value[i] + other->value[i]);
        forget(b);
    }
    ab_net_free(net);
}

/* ---- weights --------------------------------------------------------------------------------- */

static void weights_are_kept_and_read_as_they_are_asked_for(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    const int fc = number_of(net, "fc");
    sight *o0 = first_step(net, "O0", NULL), *o3 = first_step(net, "O3", NULL);
    for (size_t l = 0; l < AB_COUNT_OF(half_levels); l++) {
        sight *b = first_step(net, half_levels[l], "fc:weights=fp32");
        assert_ptr_equal(find(b, fc, PARAM, 0)->format, fp32);
        assert_true(same_bits(find(b, fc, PARAM, 0), find(o0, fc, PARAM, 0)));
        assert_ptr_equal(find(b, fc, IN, 0)->format, fp16); /* what it reads besides, and makes, stays half */
        assert_ptr_equal(find(b, fc, OUT, 0)->format, fp16);
        assert_ptr_equal(find(b, fc, DPARAM, 0)->format, fp16);
        forget(b);
    }
    sight *back = first_step(net, "O3", "fc=fp32,fc:weights=half");
    assert_true(same_bits(find(back, fc, PARAM, 0), find(o3, fc, PARAM, 0)));
    assert_ptr_equal(find(back, fc, IN, 0)->format, fp32);
    forget(back);
    forget(o0);
    forget(o3);
    ab_net_free(net);
}

/* ---- training -------------------------------------------------------------------------------- */

typedef struct recipe {
    const char *level, *set, *to;
    int64_t micro;
} recipe;

/* Several steps with masters, without, with summed micro-batches: finite, and the gradient as it is kept in
 * fp32. */
static void every_way_to_keep_gradients_takes_roles(void **state) {
    (void)state;
    static const recipe rows[] = {{"O1", NULL, "*:wgrad=fp32", 1},
                                  {"O1", NULL, "*:wgrad=half", 2},
                                  {"O2", NULL, "conv1:wgrad=fp32,fc:weights=fp32", 1},
                                  {"O2", NULL, "*:wgrad=fp32", 3},
                                  {"O3", NULL, "*:wgrad=fp32,*:dgrad=fp32", 1},
                                  {"O3", NULL, "*:wgrad=fp32", 3},
                                  {"O3", NULL, "*=fp32,*:wgrad=half,conv2:dgrad=half,relu1:forward=half", 2},
                                  {"O3", NULL, "bn1:forward=fp32,sum:dgrad=fp32,fc:weights=fp32", 2},
                                  {"O0", NULL, "conv2:dgrad=half,bn1:dgrad=half,fc:forward=half", 1}};
    ab_net *net = pt_net(pt_ops);
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        ab_cell_config config = config_of(net, rows[i].level, rows[i].to);
        config.recipe.micro_batches = rows[i].micro;
        ab_cell *cell = pt_cell(&config);
        ab_step_result result;
        for (int step = 0; step < 3; step++) {
            if (ab_cell_step(cell, NULL, &result) != AB_OK) fail_msg("%s", ab_error_message());
            assert_true(isfinite(result.loss) && !result.skipped);
        }
        for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++)
            if (c != AB_MEM_workspace)
                assert_int_equal(ab_cell_bytes(cell, (ab_mem_category)c), ab_cell_plan(cell)->bytes[c]);
        ab_cell_destroy(cell);
    }
    ab_net_free(net);
}

/* A backward pass and a scale for each loss: gradients are unscaled and added one loss after the other, in
 * fp32 where that is asked. */
static void losses_with_scales_of_their_own_take_roles(void **state) {
    (void)state;
    static const char *const to[] = {NULL, "*:wgrad=fp32,*:dgrad=fp32"};
    ab_net *net = eo_net(1);
    float loss[2];
    for (int k = 0; k < 2; k++) {
        ab_cell_config config = pt_config(net, "O3", fp16, "momentum", "num_losses=6");
        config.policy.layers = to[k];
        ab_cell *cell = pt_cell(&config);
        ab_step_result result;
        for (int step = 0; step < 3; step++) {
            if (ab_cell_step(cell, NULL, &result) != AB_OK) fail_msg("%s", ab_error_message());
            if (step == 0) loss[k] = result.loss;
        }
        const ab_plan *plan = ab_cell_plan(cell);
        for (int p = 0; p < plan->params; p++)
            if (plan->param[p].total != AB_NONE)
                assert_ptr_equal(plan->tensor[plan->param[p].total].format, k ? fp32 : fp16);
        ab_cell_destroy(cell);
    }
    assert_true(loss[0] == loss[1]);
    ab_net_free(net);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void roles_are_read_with_patterns_and_later_items_win(void **state) {
    (void)state;
    ab_layer_format own[16];
    ab_net *net = pt_net(pt_ops);
    assert_int_equal(ab_layer_formats("conv*:wgrad=fp32,fc=half,fc:weights=fp32", net, fp16, own), AB_OK);
    assert_ptr_equal(own[number_of(net, "conv1")].role[AB_LAYER_WGRAD], fp32);
    assert_ptr_equal(own[number_of(net, "conv2")].role[AB_LAYER_WGRAD], fp32);
    assert_null(own[number_of(net, "conv1")].whole);
    assert_ptr_equal(own[number_of(net, "fc")].whole, fp16);
    assert_ptr_equal(own[number_of(net, "fc")].role[AB_LAYER_WEIGHTS], fp32);
    assert_int_equal(ab_layer_formats("fc:weights=fp32,fc=half", net, fp16, own), AB_OK);
    assert_null(own[number_of(net, "fc")].role[AB_LAYER_WEIGHTS]);
    assert_int_equal(ab_layer_formats("*:wgrad=fp32", net, fp16, own),
                     AB_OK); /* of those that have weights */
    assert_null(own[number_of(net, "relu1")].role[AB_LAYER_WGRAD]);
    ab_net_free(net);
}

static void what_is_wrong_with_a_role_is_said(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"fc:wgrd=fp32", "did you mean 'wgrad'?"},
        {"fc:=fp32", "expected the role forward, dgrad, wgrad or weights after the colon, found ''"},
        {"relu1:wgrad=fp32", "no layer that matches 'relu1' has weights (relu1 is a relu)"},
        {"pool:weights=fp32", "has weights of its own"},
        {"conv1:dgrad=fp32", "has a gradient of its input: nothing below it is trained"},
        {"loss:forward=half", "a loss is fp32 at every level"},
        {"fx:wgrad=fp32", "no layer of tiny matches 'fx'"},
        {"fc:wgrad=fp8", "expected fp32, half or fp16"}};
    ab_net *net = pt_net(pt_ops);
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        ab_layer_format own[16];
        assert_int_equal(ab_layer_formats(rows[i][0], net, fp16, own), AB_USAGE);
        if (!strstr(ab_error_message(), rows[i][1])) fail_msg("%s: %s", rows[i][0], ab_error_message());
    }
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weight_gradients_lose_their_rounding_and_nothing_else_moves),
        cmocka_unit_test(input_gradients_lose_their_rounding),
        cmocka_unit_test(outputs_lose_their_rounding),
        cmocka_unit_test(roles_in_half_are_rounded_once),
        cmocka_unit_test(a_flushed_weight_gradient_is_what_its_operands_make),
        cmocka_unit_test(a_gradient_in_fp32_is_summed_in_fp32),
        cmocka_unit_test(an_input_gradient_is_what_its_operands_make),
        cmocka_unit_test(gradients_of_two_formats_are_added_in_fp32),
        cmocka_unit_test(weights_are_kept_and_read_as_they_are_asked_for),
        cmocka_unit_test(every_way_to_keep_gradients_takes_roles),
        cmocka_unit_test(losses_with_scales_of_their_own_take_roles),
        cmocka_unit_test(roles_are_read_with_patterns_and_later_items_win),
        cmocka_unit_test(what_is_wrong_with_a_role_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
