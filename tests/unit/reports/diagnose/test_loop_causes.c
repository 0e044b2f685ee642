/* Causes that lie in a training loop of the user's own, without an O0 beside it: each from a record that
 * libampprobe wrote here, and its healthy twin, which differs in that one thing and is called healthy. */
#include "unit/probe_lib_testing.h"

#include "kernels/format/convert.h"
#include "reports/diagnose/diagnose.h"
#include "reports/diagnose/known_issues.h"
#include "reports/record/observed.h"

enum { STEPS = 64, VALUES = 256 };

/* One run. What is 0 or NULL is as in a sound run at a dynamic loss scale. */
typedef struct loop {
    const char *config;     /* JSON members of the probe's configuration, with a comma in front */
    const char *half;       /* "fp16" */
    bool no_scaler;         /* steps have no loss scale */
    double scale, growth;   /* first scale; factor after every step that was applied */
    int skip_from, skip_to; /* steps [from, to) have inf in their gradients and are skipped */
    bool calls;             /* the optimizer is called in these steps all the same */
    bool never;             /* no step is made */
    double gradient;        /* size of the gradients, not scaled */
    int32_t weights;        /* dtype of weights and their gradients */
    int micro_batches;
    double last_loss;
    double dropped;        /* the first three losses were higher by so much */
    bool coarse_loss;      /* losses are numbers of bf16 */
    double moment;         /* second moments in fp16 that are not 0 have this size; 0: no state is shown */
    int zero_moments;      /* of them that are 0 */
    float logits;          /* largest output of the last layer; 0: no layer is shown */
    int nan_from;          /* losses are NaN from here on; 0: none */
    int nan_to;            /* ... up to here; 0: to the end */
    double peak;           /* of the losses of steps 10 to 29; 0: none */
    double factor, offset; /* of all losses; 0: 1 and 0 */
    double update;         /* of each step, of weights of size 1; 0: none is shown */
    double kept;           /* with bf16 weights: of an eighth of them, which alone changes them; 0: of none */
    int anew;              /* the scale is the first one again after so many steps; 0: never */
    bool silent;           /* the outputs of a layer act are all 0 */
    double clip, norm;     /* gradients of this norm are clipped to that while scaled; 0: they are not */
    double next_bias;      /* all gradients but those of the bias of a last layer out are 0; 0: not shown */
    bool has_front;        /* a layer in runs before fc, and its gradients are `front` times those of fc */
    double front;
    double back;    /* gradients of the outputs of in are this times those of fc and out; 0: none are shown */
    bool one_layer; /* those of fc are as large as those of in */
    bool listed_last; /* it is the last one of the parameters */
    const char *fact; /* stated at step 3 */
    const char *place;
    double value;
    int times;           /* and at the steps after it; 0: once */
    double loaded_scale; /* stated with it; 0: not */
    double cost;         /* of the last predictions, where the best constant costs 1; 0: not stated */
    double cost_error;   /* standard error of that; 0: 0.01 */
    double rate, base;   /* the rate rises to this from 0 (0: it is not given), and would go on to that */
    int rises_to;        /* ... by this step; 0: the last one */
    int ends_at;         /* it is 0 from this step on; 0: it is not */
    int slows_at;        /* it is a tenth from this step on, and the loss stays where it is; 0: it is not */
    int half_cycle;      /* it is a cosine, which takes so many steps from its top to 0; 0: it is not */
    double late_rise;    /* the last 20 losses are higher by so much */
    double first_cost;   /* of the predictions of the first step, times a constant's; 0: not stated */
} loop;

static ab_diagnosis diagnosis;
static int steps = STEPS; /* of a run */
static bool nan_hidden;   /* the known problem was named */
static char missing[AB_VERDICT_TEXT];

static uint16_t half_bits(double x, const ab_format *format) {
    uint16_t bits;
    const float value = (float)x;
    ab_narrow(&bits, format, &value, 1);
    return bits;
}

static void show_gradient(ampprobe *p, int32_t id, const loop *l, double scale, bool bad) {
    float wide[VALUES];
    uint16_t narrow[VALUES];
    for (int i = 0; i < VALUES; i++) {
        wide[i] = bad && i == 7 ? INFINITY : (float)(l->gradient * scale * (1 + i % 8) / 8);
        narrow[i] =
            half_bits((double)wide[i], l->weights == AMPPROBE_BF16 ? &ab_format_bf16 : &ab_format_fp16);
    }
    ampprobe_tensor t = pl_gradient(id, wide, VALUES);
    if (l->weights != AMPPROBE_FP32) {
        t.data = narrow;
        t.dtype = l->weights;
        t.storage_bytes = sizeof narrow;
    }
    assert_int_equal(ampprobe_gradients(p, 0, &t, 1, AMPPROBE_ALL, NULL), AMPPROBE_OK);
}

static void show_moments(ampprobe *p, int32_t id, const loop *l) {
    uint16_t values[VALUES];
    for (int i = 0; i < VALUES; i++)
        values[i] = half_bits(i < l->zero_moments ? 0 : l->moment, &ab_format_fp16);
    ampprobe_tensor t = {.id = id,
                         .role = AMPPROBE_OPTIMIZER_STATE,
                         .slot = 1,
                         .dtype = AMPPROBE_FP16,
                         .data = values,
                         .count = VALUES,
                         .stride = 1,
                         .storage_bytes = sizeof values};
    assert_int_equal(ampprobe_see(p, &t, 1, 0, NULL), AMPPROBE_OK);
}

/* Weights of size 1, of which every other grows by a step of sgd at the rate 0.5. */
static void show_update(ampprobe *p, int32_t id, const loop *l) {
    float before[VALUES], after[VALUES], gradient[VALUES];
    for (int i = 0; i < VALUES; i++) {
        before[i] = i % 2 ? 1 : -1;
        gradient[i] = (float)(2 * l->update);
        after[i] = before[i] - (float)l->update;
    }
    ampprobe_tensor t[2] = {pl_gradient(id, before, VALUES), pl_gradient(id, gradient, VALUES)};
    t[0].role = AMPPROBE_WEIGHT;
    t[1].role = AMPPROBE_UNSCALED_GRADIENT;
    assert_int_equal(ampprobe_see(p, t, 1, 0, NULL), AMPPROBE_OK);
    assert_int_equal(ampprobe_before_update(p, 0, t, 1), AMPPROBE_OK);
    t[0].data = after;
    assert_int_equal(ampprobe_after_update(p, 0, t, 2), AMPPROBE_OK);
}

/* The same of weights in bf16. */
static void show_narrow_update(ampprobe *p, int32_t id, const loop *l) {
    uint16_t before[VALUES], after[VALUES], gradient[VALUES];
    for (int i = 0; i < VALUES; i++) {
        const double weight = i % 2 ? 1 : -1, update = i % 8 || l->kept == 0 ? l->update : l->kept;
        before[i] = half_bits(weight, &ab_format_bf16);
        gradient[i] = half_bits(2 * update, &ab_format_bf16);
        after[i] = half_bits(weight - update, &ab_format_bf16);
    }
    ampprobe_tensor t[2];
    for (int i = 0; i < 2; i++)
        t[i] = (ampprobe_tensor){.id = id,
                                 .role = i ? AMPPROBE_UNSCALED_GRADIENT : AMPPROBE_WEIGHT,
                                 .dtype = AMPPROBE_BF16,
                                 .data = i ? gradient : before,
                                 .count = VALUES,
                                 .stride = 1,
                                 .storage_bytes = sizeof before};
    assert_int_equal(ampprobe_see(p, t, 1, 0, NULL), AMPPROBE_OK);
    assert_int_equal(ampprobe_before_update(p, 0, t, 1), AMPPROBE_OK);
    t[0].data = after;
    assert_int_equal(ampprobe_after_update(p, 0, t, 2), AMPPROBE_OK);
}

/* The loss of a step, with digits that no half format holds, or rounded to one. */
static double loss_at(const loop *l, int i) {
    const int moved = l->slows_at > 0 && i > l->slows_at ? l->slows_at : i;
    const double wide = 2.3 + (l->last_loss - 2.3) * moved / (steps - 1) + 1e-5 * (i % 3) +
                        (i < 3 ? l->dropped : 0) + (i >= steps - 20 ? l->late_rise : 0);
    static const ab_rounding nearest = {AB_ROUND_NEAREST_EVEN, false, AB_FTZ_NONE, 0, 0};
    if (l->nan_from > 0 && i >= l->nan_from && (l->nan_to == 0 || i < l->nan_to)) return (double)NAN;
    if (l->peak > 0 || l->factor > 0)
        return l->factor * (l->peak > 0 && i >= 10 && i < 30 ? l->peak : wide) + l->offset;
    return l->coarse_loss ? ab_format_round(&ab_format_bf16, &nearest, wide) : wide;
}

static int32_t front_id, last_id, bias_id;

static void show_output(ampprobe *p, const char *name, float size, int32_t role) {
    float values[VALUES];
    for (int i = 0; i < VALUES; i++) values[i] = size * (float)(i + 1) / VALUES;
    ampprobe_tensor t = {
        .role = role, .data = values, .count = VALUES, .stride = 1, .storage_bytes = sizeof values};
    assert_int_equal(ampprobe_see_named(p, name, &t), AMPPROBE_OK);
}

static void show_layer(ampprobe *p, const char *name, float size) {
    show_output(p, name, size, AMPPROBE_ACTIVATION);
}

static void show_last(ampprobe *p, const loop *l) {
    loop other = *l;
    other.gradient = 0;
    show_gradient(p, last_id, &other, 1, false);
    other.gradient = l->next_bias;
    show_gradient(p, bias_id, &other, 1, false);
    show_layer(p, "out", 1);
}

static void show_front(ampprobe *p, const loop *l, double scale) {
    loop other = *l;
    other.gradient *= l->front;
    show_gradient(p, front_id, &other, scale, false);
    show_layer(p, "in", 1);
    show_layer(p, "fc", 1);
    if (l->next_bias > 0) show_last(p, l);
    if (l->back <= 0) return;
    show_layer(p, "out", 1);
    show_output(p, "in", (float)l->back, AMPPROBE_ACTIVATION_GRADIENT);
    show_output(p, "fc", l->one_layer ? (float)l->back : 1, AMPPROBE_ACTIVATION_GRADIENT);
    show_output(p, "out", 1, AMPPROBE_ACTIVATION_GRADIENT);
}

static void state_costs(ampprobe *p, const loop *l, int i) {
    if (l->base > 0)
        assert_int_equal(ampprobe_fact(p, "base_learning_rate", "param_groups[0]", i, l->base), AMPPROBE_OK);
    if (l->first_cost > 0)
        assert_int_equal(ampprobe_fact(p, "first_prediction", "train.py:9", i, l->first_cost), AMPPROBE_OK);
    if (!(l->cost > 0)) return;
    assert_int_equal(ampprobe_fact(p, "loss_of_model", "train.py:9", i, l->cost), AMPPROBE_OK);
    assert_int_equal(ampprobe_fact(p, "loss_of_constant", "train.py:9", i, 1), AMPPROBE_OK);
    assert_int_equal(
        ampprobe_fact(p, "loss_of_constant_error", "train.py:9", i, l->cost_error > 0 ? l->cost_error : 0.01),
        AMPPROBE_OK);
}

static double rate_at(const loop *l, int i) {
    if (l->half_cycle > 0) return l->rate * (1 + cos(3.14159265358979 * i / l->half_cycle)) / 2;
    if (l->ends_at > 0 && i >= l->ends_at) return 0;
    return l->rate * fmin(1, (i + 1.0) / (l->rises_to ? l->rises_to : steps)) *
           (l->slows_at > 0 && i >= l->slows_at ? 0.1 : 1);
}

static double step(ampprobe *p, int32_t id, const loop *l, int i, double scale) {
    const bool bad = i >= l->skip_from && i < l->skip_to;
    double next = bad ? scale / 2 : scale * l->growth;
    if (l->no_scaler) next = scale;
    if (l->anew > 0 && i % l->anew == l->anew - 1) next = l->scale;
    if (l->has_front) show_front(p, l, l->no_scaler ? 1 : scale);
    show_gradient(p, id, l, l->no_scaler ? 1 : scale, bad);
    if (l->silent) show_layer(p, "act", 0);
    if (l->logits > 0) show_layer(p, "head", l->logits);
    if (l->moment > 0) show_moments(p, id, l);
    if (l->update > 0 && l->weights == AMPPROBE_BF16)
        show_narrow_update(p, id, l);
    else if (l->update > 0)
        show_update(p, id, l);
    if (l->fact && i >= 3 && i < 3 + (l->times ? l->times : 1))
        assert_int_equal(ampprobe_fact(p, l->fact, l->place, i, l->value), AMPPROBE_OK);
    if (l->loaded_scale > 0 && i == 3)
        assert_int_equal(ampprobe_fact(p, "loaded_scale", NULL, 0, l->loaded_scale), AMPPROBE_OK);
    if (i == steps - 1) state_costs(p, l, i);
    ampprobe_step_facts f = pl_facts(i);
    f.lr = rate_at(l, i);
    f.flags =
        AMPPROBE_HAS_LOSS | (l->no_scaler ? 0u : AMPPROBE_HAS_SCALE) | (l->rate > 0 ? AMPPROBE_HAS_LR : 0u);
    f.scale_before = scale, f.scale_after = next;
    f.loss = loss_at(l, i), f.seconds = 1e-3;
    f.found_inf = l->no_scaler ? -1 : bad;
    f.stepped = !l->never && (l->calls || !bad);
    if (l->clip > 0) {
        f.flags |= AMPPROBE_HAS_NORM | AMPPROBE_HAS_CLIP | AMPPROBE_CLIPPED_SCALED;
        f.norm_before_clip = l->norm / scale;
        f.norm_after_clip = fmin(l->norm, l->clip) / scale;
        f.clip_norm = l->clip;
    }
    f.micro_batches = l->micro_batches;
    assert_int_equal(ampprobe_step(p, &f), AMPPROBE_OK);
    return next;
}

static void find_hidden(void) {
    cJSON *list = ab_known_issue_json(&diagnosis);
    const cJSON *item;
    nan_hidden = false;
    cJSON_ArrayForEach(item, list) {
        if (strcmp(ab_json_text(item, "id", ""), "nan_hidden_by_log") == 0) nan_hidden = true;
    }
    cJSON_Delete(list);
}

static cJSON *record(loop l) {
    char config[600];
    if (l.gradient == 0) l.gradient = 1e-3;
    if (l.scale == 0) l.scale = 1024;
    if (l.growth == 0) l.growth = 1;
    if (l.last_loss == 0) l.last_loss = 0.5;
    snprintf(config, sizeof config,
             "{\"probe_every\": 1, \"model\": \"m\", \"half\": \"%s\", \"framework\": \"torch\"%s}",
             l.half ? l.half : "fp16", l.config ? l.config : ", \"level\": \"torch:autocast\"");
    ampprobe *p = pl_open(config);
    if (l.has_front && !l.listed_last) front_id = pl_parameter(p, "in.weight", l.weights, VALUES);
    const int32_t id = pl_parameter(p, "fc.weight", l.weights, VALUES);
    if (l.listed_last) front_id = pl_parameter(p, "in.weight", l.weights, VALUES);
    if (l.next_bias > 0) last_id = pl_parameter(p, "out.weight", l.weights, VALUES);
    if (l.next_bias > 0) bias_id = pl_parameter(p, "out.bias", l.weights, VALUES);
    double scale = l.scale;
    for (int i = 0; i < steps; i++) scale = step(p, id, &l, i, scale);
    return pl_close(p);
}

static const ab_diagnosis *diagnose(loop l) {
    cJSON *document = record(l);
    assert_int_equal(ab_diagnose(document, 0, &diagnosis), AB_OK);
    find_hidden();
    ab_missing_evidence(&diagnosis.found, missing, sizeof missing);
    cJSON_Delete(document);
    return &diagnosis;
}

static void expect(loop l, const char *id, const char *layer) {
    const ab_diagnosis *d = diagnose(l);
    if (d->verdicts == 0) fail_msg("no verdict where %s was expected", id);
    assert_string_equal(d->verdict[0].rule->id, id);
    assert_true(d->found.sick && d->verdict[0].evidences > 0 && d->verdict[0].remedy.text[0]);
    if (layer) assert_string_equal(d->verdict[0].layer, layer);
}

static void expect_healthy(loop l) {
    const ab_diagnosis *d = diagnose(l);
    if (d->verdicts > 0) fail_msg("%s in a healthy run", d->verdict[0].rule->id);
    assert_false(d->found.sick || d->found.undecided);
    assert_non_null(strstr(d->unnamed.missing, "--baseline"));
}

static void expect_no(loop l, const char *id) {
    const ab_diagnosis *d = diagnose(l);
    for (int i = 0; i < d->verdicts; i++)
        if (strcmp(d->verdict[i].rule->id, id) == 0) fail_msg("%s is not in this record", id);
}

/* ---- health ---------------------------------------------------------------------------------- */

static void sound_runs_are_healthy(void **state) {
    (void)state;
    expect_healthy((loop){.micro_batches = 1});
    expect_healthy((loop){.no_scaler = true, .half = "bf16"});
    const ab_diagnosis *d =
        diagnose((loop){.no_scaler = true, .gradient = 1, .config = ", \"level\": \"O0\""});
    assert_true(d->verdicts == 0 && !d->found.sick && !d->found.undecided);
    expect_healthy((loop){.scale = 0x1p20, .skip_to = 6}); /* a dynamic scale that is found first */
    expect_healthy((loop){.scale = 0x1p16, .skip_from = 40, .skip_to = 41}); /* and one overflow later */
}

static const char fused[] = ", \"level\": \"torch:autocast\", \"groups\": [{\"optimizer\": \"sgd\", \"lr\": "
                            "0.1, \"momentum\": 0.9, \"fused\": true}]";

/* What a loop stated is said of it, and not of the fp32 run that is given with it. */
static void what_a_loop_states_is_not_said_of_its_fp32_run(void **state) {
    (void)state;
    static const loop sick[] = {
        {.fact = "targets_ratio", .value = 8, .micro_batches = 4},
        {.fact = "gradients_not_cleared", .value = 1},
        {.fact = "steps_without_gradients", .value = STEPS},
        {.fact = "cut_off", .place = "encoder.weight", .value = STEPS},
        {.fact = "unscaled_by_hand", .place = "train.py:9", .value = 1024},
        {.fact = "angles_in_half", .place = "rotary", .value = 4000},
        {.fact = "whole_numbers_in_half", .place = "embedding", .value = 5000},
        {.fact = "passes_without_step", .value = STEPS, .no_scaler = true, .never = true},
        {.no_scaler = true, .half = "bf16", .skip_from = 4, .skip_to = STEPS},
        {.config = fused, .scale = 0x1p16, .skip_to = 2},
    };
    const loop plain = {.no_scaler = true, .config = ", \"level\": \"O0\""};
    for (size_t i = 0; i < sizeof sick / sizeof *sick; i++) {
        cJSON *document = record(sick[i]), *fp32 = record(plain);
        assert_int_equal(ab_observed_set_baseline(document, fp32, "run", "fp32"), AB_OK);
        assert_int_equal(ab_result_summarise(document), AB_OK);
        assert_int_equal(ab_diagnose(document, 0, &diagnosis), AB_OK);
        if (diagnosis.verdicts == 0) fail_msg("no verdict in run %zu", i);
        assert_int_equal(ab_diagnose(document, 1, &diagnosis), AB_OK);
        if (diagnosis.verdicts > 0) fail_msg("%s in the fp32 run %zu", diagnosis.verdict[0].rule->id, i);
        cJSON_Delete(fp32);
        cJSON_Delete(document);
    }
}

/* ---- one cause each, and its twin ------------------------------------------------------------ */

static void silent_skips(void **state) {
    (void)state;
    const loop l = {.no_scaler = true, .half = "bf16", .skip_from = 4, .skip_to = STEPS};
    expect(l, "silent_skips", "fc");
    assert_non_null(strstr(diagnosis.verdict[0].remedy.text, "optimizer.step()"));
    loop other = l;
    other.calls = true; /* the optimizer itself does nothing: losses stay finite */
    expect(other, "silent_skips", "fc");
    other.nan_from = 5; /* it did what it was asked to */
    expect_no(other, "silent_skips");
    other = l;
    other.no_scaler = false; /* a scaler says so */
    expect_no(other, "silent_skips");
    other = l;
    other.skip_to = 9; /* a few */
    expect_healthy(other);
    loop resumed = {.no_scaler = true, .fact = "passes_since_last_step", .value = 3 * STEPS};
    expect(resumed, "silent_skips", NULL);
    resumed.value = 3; /* as of an evaluation */
    expect_healthy(resumed);
}

static void scaler_missing(void **state) {
    (void)state;
    const loop l = {.no_scaler = true, .gradient = 2e-8};
    expect(l, "scaler_missing_or_not_saved", "fc");
    loop other = l;
    other.gradient = 1e-2; /* nothing is lost */
    expect_healthy(other);
    other = l;
    other.half = "bf16";
    expect_healthy(other);
    other = l;
    other.no_scaler = false;
    expect_no(other, "scaler_missing_or_not_saved");
}

static void scaler_not_saved(void **state) {
    (void)state;
    const loop l = {.scale = 0x1p16, .skip_to = 5, .fact = "resumed_steps", .value = 400};
    expect(l, "scaler_missing_or_not_saved", NULL);
    loop other = l;
    other.fact = NULL; /* a run from its beginning */
    expect_healthy(other);
    other = l;
    other.skip_to = 1; /* the scale was saved */
    expect_healthy(other);
    other = l;
    other.loaded_scale = l.scale; /* and loaded: it is too high for other reasons */
    expect_no(other, "scaler_missing_or_not_saved");
    other.loaded_scale = 0x1p10; /* into a scaler that is not the loop's */
    expect(other, "scaler_missing_or_not_saved", NULL);
}

static void scale_to_infinity(void **state) {
    (void)state;
    const loop l = {.growth = 2, .gradient = 1e-30};
    expect(l, "scale_to_infinity", NULL);
    loop other = l;
    other.growth = 1.1;
    expect_no(other, "scale_to_infinity");
    other = l;
    other.half = "bf16"; /* whose range ends far later */
    expect_no(other, "scale_to_infinity");
    other.scale = 0x1p66;
    expect(other, "scale_to_infinity", NULL);
    expect_no((loop){.scale = 0x1p44, .skip_to = 20}, "scale_to_infinity"); /* it began there, and fell */
}

/* A sick run that no rule explains: what is missing is said in the words of a loop. */
static void what_is_missing_is_said_in_the_words_of_a_loop(void **state) {
    (void)state;
    const ab_diagnosis *d = diagnose((loop){.no_scaler = true, .half = "bf16", .nan_from = 9});
    assert_true(d->found.sick && d->verdicts == 0);
    assert_string_equal(d->unnamed.evidence[0].text, "55 of 64 losses are NaN or inf, the first at step 9");
    assert_string_equal(d->unnamed.evidence[0].pointer, "/cells/0/loss/9");
    assert_int_equal(d->unnamed.since, 9);
    assert_string_equal(d->unnamed.missing, missing);
    assert_non_null(strstr(missing, "whether fp32 does better ("));
    assert_non_null(strstr(missing, "--baseline FP32.json"));
    assert_null(strstr(missing, "--levels"));
}

/* ---- a loss of which neither the zero nor the sign is known ----------------------------------- */

static const char autocast[] =
    ", \"level\": \"torch:autocast\", \"groups\": [{\"optimizer\": \"sgd\", \"lr\": 0.5}]";
static const char fp32[] = ", \"level\": \"O0\", \"groups\": [{\"optimizer\": \"sgd\", \"lr\": 0.5}]";

/* Of an fp32 loop, whatever is added to its loss and whatever it is multiplied by. */
static void expect_in_any_units(loop l, const char *id) {
    static const struct {
        double factor, offset;
    } units[] = {{1, 0}, {1, -2.3}, {1, -1000}, {1e-3, 0}, {1e3, 50}};
    l.no_scaler = true;
    l.config = fp32;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        l.factor = units[i].factor, l.offset = units[i].offset;
        const ab_diagnosis *d = diagnose(l);
        assert_string_equal(ab_diagnosis_first(d), id);
    }
}

static void a_rate_is_too_high_where_steps_replace_the_weights_and_the_loss_rises(void **state) {
    (void)state;
    const loop rises = {.peak = 9, .last_loss = 2.2, .update = 0.3};
    expect_in_any_units(rises, "learning_rate_too_high");
    assert_non_null(strstr(diagnosis.verdict[0].evidence[2].text, "a step is 0.3 of the weights"));
    loop other = rises;
    other.update = 0.01; /* a reward's loss, or a game's, may rise */
    expect_in_any_units(other, "healthy");
    other.update = 0; /* not recorded */
    expect_in_any_units(other, "healthy");
    other = rises;
    other.peak = 0; /* large steps, and it learns */
    expect_in_any_units(other, "healthy");
    other.last_loss = 2.4; /* it does not, and rises by as much as it did not fall */
    other.update = 0.01;
    expect_in_any_units(other, "undecided");
    assert_string_equal(
        diagnosis.unnamed.evidence[1].text,
        "learning_rate_too_high asks for more than 0.1: a step is 0.01 of the weights that it "
        "changes");
    assert_null(strstr(diagnosis.unnamed.missing, "--steps"));
    other = rises;
    other.peak = 0;
    other.nan_from = 20;
    expect_in_any_units(other, "learning_rate_too_high");
    other.update = 0.01;
    expect_in_any_units(other, "unknown");
    assert_int_equal(diagnosis.unnamed.since, 20);
}

/* ---- a loss that did not fall ------------------------------------------------------------------ */

/* Nothing is wrong with it that shows, and it is not called healthy: half without an fp32 run, or fp32. */
static void a_loop_whose_loss_did_not_fall_is_not_healthy(void **state) {
    (void)state;
    loop l = {.config = autocast, .micro_batches = 1, .last_loss = 2.3};
    const ab_diagnosis *d = diagnose(l);
    assert_true(d->found.undecided && d->found.idle && !d->found.sick && d->verdicts == 0);
    assert_string_equal(ab_diagnosis_first(d), "undecided");
    assert_string_equal(d->unnamed.evidence[0].text,
                        "the loss was 2.3 at step 0 and is 2.3 at the end of 64 steps");
    assert_string_equal(d->unnamed.evidence[1].text,
                        "learning_rate_too_high cannot be told: its number is not recorded");
    assert_int_equal(d->unnamed.evidences, 3);
    l.update = 0.01; /* of the numbers that are recorded the nearest to its limit is said first */
    d = diagnose(l);
    assert_non_null(
        strstr(d->unnamed.evidence[1].text, "learning_rate_too_high asks for more than 0.1: a step is 0.01"));
    assert_non_null(strstr(d->unnamed.evidence[2].text,
                           "learning_rate_too_low asks for less than 0.005: all steps together are 0.64"));
    l.last_loss = 1.5;
    expect_healthy(l);
    l = (loop){.config = autocast, .micro_batches = 1, .last_loss = 2.3, .dropped = 70};
    expect_healthy(l); /* in the first steps, far beyond the scatter of the last ones */
    l.dropped = 1e-6;
    assert_true(diagnose(l)->found.undecided);
    l.dropped = 0;
    l.nan_from = 9; /* a symptom of its own */
    assert_true(diagnose(l)->found.sick);
}

/* It fell, to what a prediction costs that knows no sample. */
static void a_loss_that_is_no_lower_than_a_constants_is_not_healthy(void **state) {
    (void)state;
    static const char *const configs[] = {autocast, fp32};
    for (size_t i = 0; i < AB_COUNT_OF(configs); i++) {
        loop l = {.config = configs[i], .no_scaler = true, .gradient = 1, .cost = 1, .update = 0.01};
        const ab_diagnosis *d = diagnose(l);
        assert_string_equal(ab_diagnosis_first(d), "undecided");
        assert_string_equal(d->unnamed.evidence[1].text,
                            "predictions of the last steps cost 1 at train.py:9, the best constant one 1");
        l.cost = 0.99; /* one standard error */
        assert_string_equal(ab_diagnosis_first(diagnose(l)), "undecided");
        l.cost_error = 0.001; /* ten of them, and one hundredth of what a constant costs: traces */
        assert_string_equal(ab_diagnosis_first(diagnose(l)), "undecided");
        l.cost_error = 0;
        l.cost = 0.97;
        assert_string_equal(ab_diagnosis_first(diagnose(l)), "healthy");
        l.update = 0.3; /* large steps, and it learns */
        assert_string_equal(ab_diagnosis_first(diagnose(l)), "healthy");
        l.cost = 1;
        expect(l, "learning_rate_too_high", NULL);
        l.update = 0;
        l.cost = 0; /* nobody looked */
        assert_string_equal(ab_diagnosis_first(diagnose(l)), "healthy");
    }
}

/* ---- schedules --------------------------------------------------------------------------------- */

static void a_warm_up_that_the_run_does_not_live_to_see_the_end_of(void **state) {
    (void)state;
    const loop l = {
        .no_scaler = true, .config = fp32, .gradient = 1, .rate = 1e-5, .base = 1e-3, .last_loss = 2.2};
    expect(l, "learning_rate_too_low", NULL);
    assert_non_null(strstr(diagnosis.verdict[0].evidence[0].text, "still rising: 1 % of the 0.001"));
    assert_non_null(strstr(diagnosis.verdict[0].remedy.text, "a warm-up did not end: its length"));
    loop other = l;
    other.base = 5e-5; /* a fifth of the way */
    expect_no(other, "learning_rate_too_low");
    other.base = 0; /* a rate that nobody says should be higher */
    expect_no(other, "learning_rate_too_low");
    other = l;
    other.rises_to = STEPS / 2; /* it stays where it is */
    expect_no(other, "learning_rate_too_low");
}

/* Without an fp32 run beside it: the less the loss falls, the less of the updates has to be lost. */
static void updates_are_lost_where_the_loss_does_not_fall(void **state) {
    (void)state;
    static const char pure[] = ", \"level\": \"O3\", \"groups\": [{\"optimizer\": \"sgd\", \"lr\": 0.5}]";
    loop l = {.half = "bf16",
              .config = pure,
              .no_scaler = true,
              .gradient = 1,
              .weights = AMPPROBE_BF16,
              .update = 0.0018,
              .kept = 0.004,
              .last_loss = 2.3};
    expect(l, "weight_update_lost", "fc");
    l.last_loss = 0.5;
    expect_no(l, "weight_update_lost"); /* it learns with what is left */
    l.kept = 0;
    expect(l, "weight_update_lost", "fc"); /* nothing is */
    l.update = 0.1;
    expect_no(l, "weight_update_lost");
    l.last_loss = 2.3; /* of other reasons */
    expect_no(l, "weight_update_lost");
}

static loop falling_rate(int ends_at) {
    return (loop){
        .no_scaler = true, .config = fp32, .gradient = 1, .rate = 0.1, .rises_to = 1, .ends_at = ends_at};
}

static void a_rate_that_is_gone_before_the_run_is(void **state) {
    (void)state;
    steps = 400;
    expect(falling_rate(300), "learning_rate_too_low",
           NULL); /* three quarters of the way, and it still fell */
    assert_non_null(strstr(diagnosis.verdict[0].evidence[0].text, "at step 300 of 400"));
    expect_no(falling_rate(370), "learning_rate_too_low"); /* where schedules end */
    expect_no(falling_rate(0), "learning_rate_too_low");
    loop cut = falling_rate(150); /* long after it had become too small to learn with */
    cut.slows_at = 60;
    expect(cut, "learning_rate_too_low", NULL);
    cut.dropped = 5; /* nearly all had been learned by then */
    expect_no(cut, "learning_rate_too_low");
    cut = falling_rate(300);
    cut.dropped = 9; /* so here: what is left to learn is little, though the loss still falls */
    expect_no(cut, "learning_rate_too_low");
    steps = STEPS;
}

static void a_rate_that_rises_again_until_the_end_and_the_loss_with_it(void **state) {
    (void)state;
    steps = 160;
    loop l = {.no_scaler = true,
              .config = fp32,
              .gradient = 1,
              .rate = 0.1,
              .half_cycle = 40,
              .late_rise = 1,
              .update = 0.01};
    expect(l, "learning_rate_too_high", NULL);
    assert_non_null(strstr(diagnosis.verdict[0].evidence[0].text, "came down to 0 at step 120 of 160"));
    assert_non_null(strstr(diagnosis.verdict[0].remedy.text, "T_max"));
    l.late_rise = 0; /* the loss does not mind */
    expect_no(l, "learning_rate_too_high");
    l.late_rise = 1;
    l.half_cycle = 32; /* it ends low */
    expect_no(l, "learning_rate_too_high");
    steps = STEPS;
}

/* ---- signals ---------------------------------------------------------------------------------- */

static void a_layer_that_is_always_zero_lets_nothing_through(void **state) {
    (void)state;
    loop l = {.silent = true,
              .factor = 1,
              .no_scaler = true,
              .config = ", \"level\": \"O0\", \"about\": {\"modules\": {\"act\": \"ReLU\"}}"};
    expect(l, "dead_activation", "act");
    l.config = ", \"level\": \"O0\", \"about\": {\"modules\": {\"act\": \"Dropout\"}}";
    expect_no(l, "dead_activation");
}

/* A relu that is no module: layers beside it are shown. */
static void a_relu_between_layers_that_makes_all_of_them_0(void **state) {
    (void)state;
    loop l = {.has_front = true,
              .factor = 1,
              .no_scaler = true,
              .config = fp32,
              .gradient = 1e-300,
              .next_bias = 0.1,
              .last_loss = 2.3};
    expect(l, "dead_activation", "fc");
    l.next_bias = 0; /* no gradient arrives behind it either: nothing is known of a relu */
    expect_no(l, "dead_activation");
    l.next_bias = 0.1;
    l.gradient = 1; /* out reads nothing but 0, and fc is of another branch */
    expect_no(l, "dead_activation");
}

/* Whatever the order in which the model lists its parameters. */
static void vanishes(bool listed_last) {
    loop l = {.has_front = true,
              .listed_last = listed_last,
              .factor = 1,
              .no_scaler = true,
              .gradient = 1,
              .config = fp32};
    expect(l, "vanishing_gradient", "in"); /* none at all, whatever the loss does */
    l.front = 1e-4;
    expect_no(l, "vanishing_gradient"); /* it learns */
    l.last_loss = 2.3;
    expect(l, "vanishing_gradient", "in");
    l.front = 1e-2;
    expect_no(l, "vanishing_gradient");
    l.front = 1e4; /* it is the other layer, which runs later, whose gradients are small */
    expect_no(l, "vanishing_gradient");
}

static void gradients_that_a_backward_function_casts_to_half_do_not_vanish(void **state) {
    (void)state;
    loop l = {.has_front = true,
              .factor = 1,
              .no_scaler = true,
              .gradient = 1,
              .config = fp32,
              .fact = "gradients_flushed",
              .place = "train.py:9 in Round.backward",
              .value = 0.5};
    expect(l, "gradient_underflow", l.place);
    expect_no(l, "vanishing_gradient");
    l.value = 0.01; /* it is not the cast that makes all of them 0 */
    expect(l, "vanishing_gradient", "in");
    l.value = 0.5;
    l.front = 1; /* and here some pass: the rest may be the end of learning */
    expect_no(l, "gradient_underflow");
    expect_no(l, "vanishing_gradient");
}

static void gradients_of_which_a_part_is_divided_by_the_number_of_the_loss(void **state) {
    (void)state;
    loop l = {.no_scaler = true, .fact = "loss_divided_in_part", .place = "head.weight", .value = 4096};
    expect(l, "gradients_left_scaled", "head.weight");
    l.value = 10; /* a weight of the loss */
    expect_healthy(l);
}

static void clipping_of_gradients_that_carry_the_scale(void **state) {
    (void)state;
    loop l = {.clip = 1, .norm = 100};
    expect(l, "clip_before_unscale", NULL);
    l.norm = 0.5; /* a limit that no norm reaches, scaled as it is */
    expect_healthy(l);
    l.norm = 100;
    l.fact = "unscaled_by_hand"; /* before that: the norm is the gradients' own */
    l.place = "train.py:9";
    l.value = 1024;
    expect(l, "unscale_order_in_accumulation", "train.py:9");
    expect_no(l, "clip_before_unscale");
}

static void first_predictions_that_are_far_off_explode(void **state) {
    (void)state;
    loop l = {.config = fp32,
              .no_scaler = true,
              .gradient = 1,
              .cost = 2,
              .first_cost = 1000,
              .update = 0.3,
              .has_front = true,
              .front = 1};
    expect(l, "exploding_signal", "in"); /* not the rate, which makes nothing worse than it was */
    l.first_cost = 10;
    expect_no(l, "exploding_signal");
    l.first_cost = 1000;
    l.cost = 0.5; /* it learns all the same */
    expect_no(l, "exploding_signal");
}

/* Though outputs are bounded and the loss falls. */
static void gradients_that_grow_on_their_way_back_explode(void **state) {
    (void)state;
    loop l = {.config = fp32,
              .no_scaler = true,
              .gradient = 1,
              .first_cost = 9,
              .has_front = true,
              .front = 1,
              .back = 120};
    expect(l, "exploding_signal", "in");
    l.back = 5; /* of sound initial weights they grow little */
    expect_no(l, "exploding_signal");
    l.back = 120;
    l.one_layer = true; /* one large layer is no growth from layer to layer */
    expect_no(l, "exploding_signal");
    l.one_layer = false;
    l.first_cost = 1.2; /* and first predictions cost what constant ones do */
    expect_no(l, "exploding_signal");
}

static void gradients_that_do_not_reach_the_layer_that_runs_first_vanish(void **state) {
    (void)state;
    vanishes(false);
    vanishes(true);
}

/* ---- scales ----------------------------------------------------------------------------------- */

static void a_scaler_that_is_made_anew_is_told_by_a_scale_that_rises_after_a_skipped_step(void **state) {
    (void)state;
    const loop l = {.scale = 0x1p16, .skip_to = STEPS, .anew = 4};
    expect(l, "scaler_missing_or_not_saved", NULL);
    loop other = l;
    other.anew = 0;
    expect_no(other, "scaler_missing_or_not_saved");
}

static void a_scale_that_moves_between_micro_batches_moves_by_more_than_one_update(void **state) {
    (void)state;
    static const char doubling[] = ", \"level\": \"torch:autocast\", \"about\": {\"scaler\": "
                                   "{\"growth_factor\": 2, \"backoff_factor\": 0.5}}";
    const loop l = {
        .config = doubling, .micro_batches = 4, .scale = 4, .growth = 1.5, .skip_from = 30, .skip_to = 34};
    expect_no(l, "unscale_order_in_accumulation"); /* slower than it may */
    loop other = l;
    other.growth = 4;
    other.scale = 0x1p-90;
    expect(other, "unscale_order_in_accumulation", NULL);
    other.micro_batches = 1;
    expect_no(other, "unscale_order_in_accumulation");
}

/* A batch with an outlier: its loss is not finite, the scaler skips the step, and the run goes on. */
static void a_loss_that_the_scaler_skipped_is_harmless_and_many_are_not(void **state) {
    (void)state;
    const loop l = {.skip_from = 40, .skip_to = 41, .nan_from = 40, .nan_to = 41};
    expect_healthy(l);
    assert_non_null(
        strstr(diagnosis.unnamed.evidence[0].text, "1 of 64 losses are NaN or inf, each in a step"));
    loop other = l;
    other.skip_from = other.skip_to = 0; /* nobody skipped it */
    assert_true(diagnose(other)->found.sick);
    other = l;
    other.skip_to = other.nan_to = 46;
    assert_true(diagnose(other)->found.sick);
    other = l;
    other.nan_from = STEPS - 1; /* it ends so */
    other.nan_to = 0;
    other.skip_from = STEPS - 1;
    other.skip_to = STEPS;
    assert_true(diagnose(other)->found.sick);
}

static void gradients_that_are_divided_by_the_scale_by_hand_and_by_the_scaler(void **state) {
    (void)state;
    const loop l = {.fact = "unscaled_by_hand", .place = "train.py:9", .value = 1024};
    expect(l, "unscale_order_in_accumulation", "train.py:9"); /* of one micro-batch, too */
    loop other = l;
    other.fact = "divided"; /* a fact of the user's own */
    expect_healthy(other);
}

static void a_target_that_is_noise_of_its_own_cannot_be_learned(void **state) {
    (void)state;
    const loop l = {.no_scaler = true,
                    .config = fp32,
                    .last_loss = 2.3,
                    .fact = "target_is_fresh_noise",
                    .place = "train.py:30",
                    .value = 3};
    expect(l, "label_corruption", "train.py:30");
    loop other = l;
    other.last_loss = 0.5; /* it learns */
    expect_no(other, "label_corruption");
    other = l;
    other.fact = "another";
    expect_no(other, "label_corruption");
}

static void targets_of_other_samples_than_the_inputs(void **state) {
    (void)state;
    const loop l = {.no_scaler = true,
                    .config = fp32,
                    .fact = "rows_in_another_order",
                    .place = "train.py:30",
                    .value = 3};
    expect(l, "label_corruption", "train.py:30"); /* whatever the loss does */
    loop other = l;
    other.last_loss = 2.3;
    expect(other, "label_corruption", "train.py:30");
    other.fact = "one_target_for_all";
    expect(other, "label_corruption", "train.py:30");
    other = l;
    other.fact = "rows_in_one_order";
    expect_no(other, "label_corruption");
}

static void half_moments(void **state) {
    (void)state;
    static const char eps[] = ", \"level\": \"O3\", \"groups\": [{\"optimizer\": \"adam\", \"lr\": 0.1, "
                              "\"eps\": 1e-8}]",
                      large[] = ", \"level\": \"O3\", \"groups\": [{\"optimizer\": \"adam\", \"lr\": 0.1, "
                                "\"eps\": 1e-3}]";
    const loop l = {.config = eps, .weights = AMPPROBE_FP16, .moment = 1e-3, .zero_moments = 100};
    expect(l, "optimizer_state_underflow", "fc");
    assert_non_null(strstr(diagnosis.verdict[0].evidence[1].text, "epsilon 1e-08 is 0"));
    loop other = l;
    other.zero_moments = 0;
    expect_healthy(other);
    other = l;
    other.config = large; /* bounds the update */
    expect_healthy(other);
}

static void accumulated_in_half(void **state) {
    (void)state;
    const loop l = {.no_scaler = true,
                    .half = "bf16",
                    .config = ", \"level\": \"O3\"",
                    .weights = AMPPROBE_BF16,
                    .micro_batches = 300};
    expect(l, "accumulated_in_half", "fc");
    loop other = l;
    other.micro_batches = 8;
    expect_healthy(other);
    other = l;
    other.weights = AMPPROBE_FP32;
    expect_healthy(other);
}

static void micro_batches_weighted_wrong(void **state) {
    (void)state;
    const loop l = {.micro_batches = 4, .fact = "targets_ratio", .value = 5};
    expect(l, "micro_batches_weighted_wrong", NULL);
    loop other = l;
    other.value = 1.2;
    expect_healthy(other);
    other = l;
    other.micro_batches = 1;
    expect_healthy(other);
}

static void mean_divided_again(void **state) {
    (void)state;
    static const char sgd[] =
        ", \"level\": \"torch:autocast\", \"groups\": [{\"optimizer\": \"sgd\", \"lr\": 0.1}]";
    const loop l = {.config = sgd, .fact = "mean_divided_again", .value = 192, .last_loss = 2};
    expect(l, "mean_divided_again", NULL);
    assert_non_null(strstr(diagnosis.verdict[0].evidence[0].text, "192"));
    loop other = l;
    other.last_loss = 0.5; /* the rate makes up for it */
    expect_healthy(other);
    other = l; /* its steps have the same size */
    other.config = ", \"level\": \"torch:autocast\", \"groups\": [{\"optimizer\": \"adam\", \"lr\": 0.1}]";
    expect_no(other, "mean_divided_again");
}

static void a_mean_over_what_a_mask_left_out(void **state) {
    (void)state;
    static const char sgd[] = ", \"level\": \"O0\", \"groups\": [{\"optimizer\": \"sgd\", \"lr\": 0.1}]";
    const loop l = {
        .config = sgd, .no_scaler = true, .fact = "mean_over_masked", .value = 16, .last_loss = 2};
    expect(l, "mean_divided_again", NULL);
    assert_non_null(strstr(diagnosis.verdict[0].evidence[0].text, "16 times too small"));
    assert_non_null(strstr(diagnosis.verdict[0].remedy.text, "mask"));
    loop other = l;
    other.value = 2; /* half of it is padding */
    expect_no(other, "mean_divided_again");
    other = l;
    other.last_loss = 0.5;
    expect_no(other, "mean_divided_again");
}

static void targets_out_of_reach(void **state) {
    (void)state;
    const loop l = {.fact = "targets_out_of_reach", .place = "relu", .value = 0.3};
    expect(l, "targets_out_of_reach", NULL);
    assert_non_null(strstr(diagnosis.verdict[0].evidence[0].text, "relu"));
    loop other = l;
    other.value = 0.02; /* noise at the edge */
    expect_healthy(other);
}

static void a_function_that_is_saturated_whenever_it_is_seen(void **state) {
    (void)state;
    const loop l = {
        .no_scaler = true, .config = fp32, .fact = "saturated", .place = "net.3", .value = 0.95, .cost = 1.2};
    expect(l, "vanishing_gradient", "net.3");
    loop other = l;
    other.cost = 0.3; /* it learns all the same */
    expect_no(other, "vanishing_gradient");
    other = l;
    other.value = 0.6;
    expect_no(other, "vanishing_gradient");
}

static void micro_batches_dropped(void **state) {
    (void)state;
    const loop l = {.fact = "micro_batches_dropped", .value = 0.9};
    expect(l, "micro_batches_dropped", NULL);
    loop other = l;
    other.value = 0.05; /* a bad batch now and then */
    expect_healthy(other);
}

static void a_scheduler_that_takes_a_loss_for_a_score(void **state) {
    (void)state;
    const loop l = {.fact = "plateau_cuts_against", .value = 0.9, .times = 5};
    expect(l, "learning_rate_too_low", NULL);
    assert_non_null(strstr(diagnosis.verdict[0].evidence[0].text, "5 times"));
    assert_non_null(strstr(diagnosis.verdict[0].remedy.text, "mode=\"min\""));
    loop other = l;
    other.times = 1;
    expect_healthy(other);
    other = l;
    other.value = 0.3; /* a score that reached its end */
    expect_healthy(other);
    other = l;
    other.last_loss = 2.4; /* what it watches falls as the run does badly */
    expect_no(other, "learning_rate_too_low");
}

/* The run, beside its fp32 run, which fails as it does. */
static const char *first_with_fp32(loop l) {
    loop plain = l;
    plain.fact = NULL;
    plain.config = fp32;
    cJSON *document = record(l), *other = record(plain);
    assert_int_equal(ab_observed_set_baseline(document, other, "run", "fp32"), AB_OK);
    assert_int_equal(ab_result_summarise(document), AB_OK);
    assert_int_equal(ab_diagnose(document, 0, &diagnosis), AB_OK);
    cJSON_Delete(other);
    cJSON_Delete(document);
    return ab_diagnosis_first(&diagnosis);
}

static void a_loss_that_is_scaled_by_hand_and_gradients_that_nobody_divides(void **state) {
    (void)state;
    static const char mixed[] =
        ", \"level\": \"torch:autocast\", \"groups\": [{\"optimizer\": \"sgd\", \"lr\": 0.5}]";
    const loop l = {.no_scaler = true,
                    .config = mixed,
                    .fact = "loss_multiplied",
                    .value = 1024,
                    .update = 0.3,
                    .nan_from = 20,
                    .peak = 9,
                    .factor = 1};
    assert_string_equal(first_with_fp32(l), "gradients_left_scaled");
    assert_non_null(strstr(diagnosis.verdict[0].evidence[0].text, "multiplied by 1024"));
    loop other = l;
    other.value = 10; /* a weight of the loss */
    assert_string_equal(first_with_fp32(other), "learning_rate_too_high");
    other = l;
    other.update = 300; /* too large without it, too */
    assert_string_equal(first_with_fp32(other), "learning_rate_too_high");
    other = l;
    other.config = fp32; /* there is no half format to scale for */
    assert_string_equal(first_with_fp32(other), "learning_rate_too_high");
    other = (loop){.fact = "loss_multiplied", .value = 1024};
    expect_healthy(other);
}

static void rotary_in_half(void **state) {
    (void)state;
    const loop l = {
        .no_scaler = true, .half = "bf16", .fact = "angles_in_half", .place = "attn.rotary", .value = 4096};
    expect(l, "rotary_in_half", "attn.rotary");
    loop other = l;
    other.value = 100; /* short sequences */
    expect_healthy(other);
    other = l;
    other.half = "fp16"; /* eight times as exact: 4096 / 2048 is too coarse still, 1000 / 2048 is not */
    expect(other, "rotary_in_half", "attn.rotary");
    other.value = 1000;
    expect_healthy(other);
}

static void integers_in_half(void **state) {
    (void)state;
    const loop l = {.fact = "whole_numbers_in_half", .place = "wpe", .value = 4000};
    expect(l, "integers_in_half", "wpe");
    loop other = l;
    other.value = 2048;
    expect_healthy(other);
    other.value = 300;
    other.half = "bf16";
    expect(other, "integers_in_half", "wpe");
}

/* What operations that were looked at show: a share that is too large, and one that is sound. */
static void what_rounding_loses(void **state) {
    static const struct {
        const char *fact, *id;
        double sick, sound; /* sound 0: none is */
    } rows[] = {
        {"whole_numbers_in_fp16", "integers_in_half", 5000, 2048},
        {"whole_numbers_in_bf16", "integers_in_half", 300, 256},
        {"count_increments_lost", "integers_in_half", 0.3, 0.01},
        {"sum_increments_lost", "accumulator_in_half", 0.3, 0.1},
        {"product_lost", "accumulator_in_half", 0.9, 0.1},
        {"sum_beyond_half", "reduction_overflow", 7e4, 6e4},
        {"gradient_increments_lost", "accumulated_in_half", 0.1, 0.001},
        {"average_increments_lost", "ema_in_half", 0.9, 0.1},
        {"weight_increments_lost", "weight_update_lost", 0.9, 0.1},
        {"state_flushed", "optimizer_state_underflow", 0.9, 0.001},
        {"running_mean_lost", "batch_norm_statistics_in_half", 0.8, 0.1},
        {"running_statistics_nonfinite", "batch_norm_statistics_in_half", 0.1, 0},
        {"fp8_overflowed", "activation_overflow", 0.01, 0},
        {"fp8_gradients_flushed", "gradient_underflow", 0.95, 0.5},
    };
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        loop l = {.fact = rows[i].fact, .place = "train.py:7", .value = rows[i].sick};
        if (strcmp(rows[i].id, "weight_update_lost") == 0) l.weights = AMPPROBE_FP16;
        expect(l, rows[i].id, "train.py:7");
        l.value = rows[i].sound;
        expect_healthy(l);
    }
}

static void logits_in_half(void **state) {
    (void)state;
    const loop l = {.no_scaler = true, .half = "bf16", .coarse_loss = true, .logits = 400, .last_loss = 0.25};
    expect(l, "logits_in_half", "head");
    loop other = l;
    other.coarse_loss = false; /* logits.float() */
    expect_healthy(other);
    other = l;
    other.logits = 6; /* rounding moves nothing that counts */
    expect_healthy(other);
}

static void masked_rows_nan(void **state) {
    (void)state;
    const loop l = {.skip_to = STEPS, .nan_from = 1, .fact = "masked_rows", .place = "attn", .value = 3};
    expect(l, "masked_rows_nan", "attn");
    loop other = l;
    other.skip_to = other.nan_from = 0; /* nothing reads those rows */
    expect_healthy(other);
}

static void gradients_not_cleared(void **state) {
    (void)state;
    const loop l = {.no_scaler = true, .fact = "gradients_not_cleared", .value = 1};
    expect(l, "gradients_not_cleared", NULL);
    loop other = l;
    other.value = 0.05; /* seldom, as before an epoch begins */
    expect_healthy(other);
    other = l; /* the sum of all gradients makes large steps at any rate */
    other.update = 0.5;
    other.peak = 300;
    other.factor = 1;
    expect(other, "gradients_not_cleared", NULL);
    assert_int_equal(diagnosis.verdicts, 1);
}

static void no_step_taken(void **state) {
    (void)state;
    const loop l = {.no_scaler = true, .never = true, .fact = "passes_without_step", .value = STEPS};
    expect(l, "no_step_taken", NULL);
    assert_int_equal(diagnosis.verdicts, 1);
    assert_non_null(strstr(diagnosis.verdict[0].remedy.text, "optimizer.step()"));
    loop other = l;
    other.fact = "passes_without_backward";
    expect(other, "no_step_taken", NULL);
    assert_non_null(strstr(diagnosis.verdict[0].evidence[0].text, "no backward pass"));
    other = l; /* it has a reason */
    other.skip_to = STEPS;
    expect(other, "silent_skips", "fc");
    expect_no(other, "no_step_taken");
    other = l; /* the loop made its steps itself: no such fact */
    other.fact = NULL, other.never = false;
    expect_healthy(other);
}

static void parameters_without_gradient(void **state) {
    (void)state;
    static const char *const facts[] = {"optimizer_without_gradients", "cut_off", "held_by_no_optimizer",
                                        "not_registered", "optimizer_of_others"};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const loop l = {.no_scaler = true, .fact = facts[i], .place = "encoder.weight", .value = STEPS};
        expect(l, "parameters_without_gradient", "encoder.weight");
        assert_non_null(strstr(diagnosis.verdict[0].evidence[0].text, "encoder.weight"));
        assert_non_null(strstr(diagnosis.verdict[0].remedy.text, "encoder.weight"));
    }
    const loop all = {.no_scaler = true, .fact = "no_gradients", .place = "head.weight", .value = STEPS};
    expect(all, "weights_stand_still", "head.weight");
    assert_int_equal(diagnosis.verdicts, 1);
    expect_healthy((loop){.no_scaler = true});
}

static void fused_first_skip(void **state) {
    (void)state;
    static const char plain[] =
        ", \"level\": \"torch:autocast\", \"groups\": [{\"optimizer\": \"sgd\", \"lr\": "
        "0.1, \"momentum\": 0.9, \"fused\": false}]",
                      adam[] =
                          ", \"level\": \"torch:autocast\", \"groups\": [{\"optimizer\": \"adam\", \"lr\": "
                          "0.1, \"fused\": true}]";
    const loop l = {.scale = 0x1p16, .skip_to = 2, .config = fused};
    expect(l, "fused_first_skip", NULL);
    loop other = l;
    other.config = plain;
    expect_healthy(other);
    other.config = adam;
    expect_healthy(other);
    other = l;
    other.skip_from = 1; /* the first step made the buffers */
    expect_healthy(other);
    other = l;
    other.fact = "resumed_steps";
    other.value = 10;
    expect_no(other, "fused_first_skip");
}

static void cast_in_place(void **state) {
    (void)state;
    const loop l = {.fact = "dtype_changed", .place = "fc.weight", .value = 2};
    expect(l, "cast_in_place", "fc.weight");
    loop other = l;
    other.value = 4;
    expect_healthy(other);
}

static void nan_hidden_by_log(void **state) {
    (void)state;
    expect((loop){.nan_from = 9, .fact = "logged_loss", .value = 0.7}, "nan_hidden_by_log", NULL);
    assert_true(nan_hidden);
    (void)diagnose((loop){.nan_from = 9, .fact = "logged_loss", .value = (double)NAN});
    assert_false(nan_hidden);
    (void)diagnose((loop){.fact = "logged_loss", .value = 0.7});
    assert_false(nan_hidden);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_runs_are_healthy),
        cmocka_unit_test(what_a_loop_states_is_not_said_of_its_fp32_run),
        cmocka_unit_test(silent_skips),
        cmocka_unit_test(a_relu_between_layers_that_makes_all_of_them_0),
        cmocka_unit_test(gradients_that_a_backward_function_casts_to_half_do_not_vanish),
        cmocka_unit_test(clipping_of_gradients_that_carry_the_scale),
        cmocka_unit_test(gradients_of_which_a_part_is_divided_by_the_number_of_the_loss),
        cmocka_unit_test(scaler_missing),
        cmocka_unit_test(scaler_not_saved),
        cmocka_unit_test(scale_to_infinity),
        cmocka_unit_test(what_is_missing_is_said_in_the_words_of_a_loop),
        cmocka_unit_test(a_rate_is_too_high_where_steps_replace_the_weights_and_the_loss_rises),
        cmocka_unit_test(a_loop_whose_loss_did_not_fall_is_not_healthy),
        cmocka_unit_test(a_loss_that_is_no_lower_than_a_constants_is_not_healthy),
        cmocka_unit_test(a_warm_up_that_the_run_does_not_live_to_see_the_end_of),
        cmocka_unit_test(updates_are_lost_where_the_loss_does_not_fall),
        cmocka_unit_test(a_rate_that_is_gone_before_the_run_is),
        cmocka_unit_test(a_rate_that_rises_again_until_the_end_and_the_loss_with_it),
        cmocka_unit_test(first_predictions_that_are_far_off_explode),
        cmocka_unit_test(gradients_that_grow_on_their_way_back_explode),
        cmocka_unit_test(a_layer_that_is_always_zero_lets_nothing_through),
        cmocka_unit_test(gradients_that_do_not_reach_the_layer_that_runs_first_vanish),
        cmocka_unit_test(a_scaler_that_is_made_anew_is_told_by_a_scale_that_rises_after_a_skipped_step),
        cmocka_unit_test(a_scale_that_moves_between_micro_batches_moves_by_more_than_one_update),
        cmocka_unit_test(a_loss_that_the_scaler_skipped_is_harmless_and_many_are_not),
        cmocka_unit_test(gradients_that_are_divided_by_the_scale_by_hand_and_by_the_scaler),
        cmocka_unit_test(a_target_that_is_noise_of_its_own_cannot_be_learned),
        cmocka_unit_test(targets_of_other_samples_than_the_inputs),
        cmocka_unit_test(half_moments),
        cmocka_unit_test(accumulated_in_half),
        cmocka_unit_test(micro_batches_weighted_wrong),
        cmocka_unit_test(mean_divided_again),
        cmocka_unit_test(a_mean_over_what_a_mask_left_out),
        cmocka_unit_test(targets_out_of_reach),
        cmocka_unit_test(a_function_that_is_saturated_whenever_it_is_seen),
        cmocka_unit_test(micro_batches_dropped),
        cmocka_unit_test(a_scheduler_that_takes_a_loss_for_a_score),
        cmocka_unit_test(a_loss_that_is_scaled_by_hand_and_gradients_that_nobody_divides),
        cmocka_unit_test(rotary_in_half),
        cmocka_unit_test(integers_in_half),
        cmocka_unit_test(what_rounding_loses),
        cmocka_unit_test(logits_in_half),
        cmocka_unit_test(masked_rows_nan),
        cmocka_unit_test(gradients_not_cleared),
        cmocka_unit_test(no_step_taken),
        cmocka_unit_test(parameters_without_gradient),
        cmocka_unit_test(fused_first_skip),
        cmocka_unit_test(cast_in_place),
        cmocka_unit_test(nan_hidden_by_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
