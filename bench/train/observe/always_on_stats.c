/* Sums over batches and weights: a few passes over arrays that were just written. */
#include "bench/train/observe/always_on_stats.h"

#include "bench/train/memory/memory.h"
#include "kernels/core/text.h"
#include "kernels/format/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOME_BAD = 1, SOME_GOOD = 2 };

void ab_always_on_clear(ab_always_on_stats *stats) {
    free(stats->places);
    *stats = (ab_always_on_stats){.places = NULL};
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static uint32_t magnitude(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

/* A loop that compilers vectorise. */
static bool all_finite(const float *values, int64_t n) {
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = magnitude(values[i]);
        most = bits > most ? bits : most;
    }
    return most < 0x7f800000u;
}

static void describe_nonfinite(ab_always_on_stats *v, const int64_t *index, const float *values, int64_t n,
                               int64_t each) {
    ab_always_on_inputs *inputs = &v->inputs;
    for (int64_t i = 0; i < n; i++) {
        int64_t bad = -1;
        for (int64_t j = 0; j < each; j++) {
            const bool finite = isfinite(values[i * each + j]);
            v->places[j] |= finite ? SOME_GOOD : SOME_BAD;
            if (!finite && bad < 0) bad = j;
        }
        if (bad < 0 || inputs->samples++ > 0) continue;
        inputs->sample = index[i];
        inputs->feature = bad;
    }
    for (int64_t j = 0; j < each; j++) {
        inputs->features += (v->places[j] & SOME_BAD) != 0;
        if (v->places[j] == SOME_BAD && inputs->common++ == 0) inputs->constant = j;
    }
}

static ab_status count_inputs(ab_always_on_stats *v, int64_t step, const int64_t *index, const float *values,
                              int64_t n, int64_t each) {
    if (all_finite(values, n * each)) return AB_OK;
    if (v->inputs.batches++ > 0) return AB_OK;
    v->inputs.step = step;
    v->inputs.size = n;
    v->places = calloc((size_t)each, 1);
    if (!v->places) return ab_fail(AB_NO_MEMORY, "looking at inputs: out of memory");
    describe_nonfinite(v, index, values, n, each);
    return AB_OK;
}

/* ---- labels ---------------------------------------------------------------------------------- */

static int bin_of_token(int32_t token) {
    return (int)((uint32_t)token * 2654435761u >> 26); /* Fibonacci hashing (Knuth, volume 3, 6.4) */
}

/* Images: the last dimension; other inputs, and images with more than MOST channels: 1. */
static int64_t channels_of(const ab_data_shape *shape) {
    enum { MOST = 8 };
    const int64_t channels = shape->x.ndim > 0 ? shape->x.dim[shape->x.ndim - 1] : 1;
    return shape->input == AB_INPUT_IMAGES && channels > 0 && channels <= MOST ? channels : 1;
}

/* Sums of one channel's values, `count` of them `step` apart, over runs of them. */
static void pool_channel(const float *value, int64_t count, int64_t step, int64_t bins, double *bin) {
    int64_t rest = 0;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) { /* value i is in bin floor(i * bins / count) */
        sum += (double)value[i * step];
        rest += bins;
        if (rest < count) continue;
        *bin = sum;
        sum = 0;
        bin += rest / count;
        rest %= count;
    }
}

/* Pools one sample's inputs to AB_ALWAYS_ON_BINS numbers: sums over runs of elements, separate per channel,
 * because classes may differ in colour only, or token counts per bin. */
static void pool(const ab_data_shape *shape, const void *samples, int64_t i, int64_t each, double *bin) {
    const int64_t channels = channels_of(shape), bins = AB_ALWAYS_ON_BINS / channels;
    memset(bin, 0, AB_ALWAYS_ON_BINS * sizeof *bin);
    if (ab_data_ids_in(shape))
        for (int64_t j = 0; j < each; j++) bin[bin_of_token(((const int32_t *)samples)[i * each + j])] += 1;
    else
        for (int64_t c = 0; c < channels; c++)
            pool_channel((const float *)samples + i * each + c, each / channels, channels, bins,
                         bin + c * bins);
}

static int label_of(const ab_data_shape *shape, const void *targets, int64_t i, int classes) {
    if (shape->targets == AB_TARGETS_TOKENS)
        return bin_of_token(((const int32_t *)targets)[i]) % AB_ALWAYS_ON_CLASSES;
    if (shape->targets == AB_TARGETS_CLASSES) return ((const int32_t *)targets)[i];
    const float *share = (const float *)targets + i * classes;
    int best = 0;
    for (int c = 1; c < classes; c++) best = share[c] > share[best] ? c : best;
    return best;
}

static void add_sample(ab_always_on_labels *l, const double *bin, int label, int other) {
    const int chosen[2] = {label, other};
    for (int b = 0; b < AB_ALWAYS_ON_BINS; b++) {
        l->total[b] += bin[b];
        l->squares[b] += bin[b] * bin[b];
    }
    for (int k = 0; k < 2; k++) {
        l->count[k][chosen[k]] += 1;
        for (int b = 0; b < AB_ALWAYS_ON_BINS; b++) l->sum[k][chosen[k]][b] += bin[b];
    }
    l->seen++;
}

static int classes_of(const ab_data_shape *shape) {
    if (shape->targets == AB_TARGETS_VALUES) return 0;
    if (shape->targets == AB_TARGETS_TOKENS) return AB_ALWAYS_ON_CLASSES;
    if (shape->targets == AB_TARGETS_CLASSES && ab_shape_count(&shape->y) != 1) return 0;
    const int64_t classes = shape->targets == AB_TARGETS_ONE_HOT ? shape->y.dim[0] : shape->classes;
    return classes >= 2 && classes <= AB_ALWAYS_ON_CLASSES ? (int)classes : 0;
}

/* For next-token targets every position is a sample with one input. */
static void count_labels(ab_always_on_stats *v, const ab_data_shape *shape, const void *samples,
                         const void *targets, int64_t n, int64_t each) {
    ab_always_on_labels *l = &v->labels;
    double bin[AB_ALWAYS_ON_BINS];
    const bool places = shape->targets == AB_TARGETS_TOKENS;
    const int64_t count = places ? n * each : n, width = places ? 1 : each;
    l->classes = classes_of(shape);
    for (int64_t i = 0; i < count && l->classes > 0 && l->seen < AB_ALWAYS_ON_SAMPLES; i++) {
        const int label = label_of(shape, targets, i, l->classes);
        const int other = label_of(shape, targets, (i + count / 2) % count, l->classes);
        if (label < 0 || label >= l->classes || other < 0 || other >= l->classes) continue;
        pool(shape, samples, i, width, bin);
        add_sample(l, bin, label, other);
    }
}

/* Counted per step for every batch, because it is not yet known whether the step will be skipped. */
static void count_classes(ab_always_on_stats *v, const ab_data_shape *shape, int64_t step,
                          const void *targets, int64_t n, int64_t each) {
    const int classes = classes_of(shape);
    const int64_t count = shape->targets == AB_TARGETS_TOKENS ? n * each : n;
    int32_t *pending = v->classes.pending[step % AB_ALWAYS_ON_STEPS];
    for (int64_t i = 0; i < count && classes > 0; i++) {
        const int label = label_of(shape, targets, i, classes);
        if (label >= 0 && label < classes) pending[label]++;
    }
}

void ab_always_on_step_end(ab_always_on_stats *v, int64_t step, bool skipped) {
    int32_t *pending = v->classes.pending[step % AB_ALWAYS_ON_STEPS];
    v->classes.skips += skipped;
    for (int c = 0; c < AB_ALWAYS_ON_CLASSES; c++) {
        v->classes.all[c] += pending[c];
        if (skipped) v->classes.skipped[c] += pending[c];
        pending[c] = 0;
    }
}

double ab_always_on_label_ratio(const ab_always_on_labels *l, bool control) {
    double between = 0, all = 0, n = (double)l->seen;
    int met = 0;
    if (l->seen < 2) return (double)NAN;
    for (int c = 0; c < l->classes; c++) met += l->count[control][c] > 0;
    for (int b = 0; b < AB_ALWAYS_ON_BINS; b++) {
        const double mean = l->total[b] / n;
        for (int c = 0; c < l->classes; c++)
            if (l->count[control][c] > 0)
                between += l->sum[control][c][b] * l->sum[control][c][b] / l->count[control][c];
        between -= n * mean * mean;
        all += l->squares[b] - n * mean * mean;
    }
    return met > 1 && all > 0 ? between / all * (n - 1) / (met - 1) : (double)NAN;
}

bool ab_always_on_compares_labels(const ab_always_on_stats *v, const ab_data_shape *shape) {
    return classes_of(shape) > 0 && v->labels.seen < AB_ALWAYS_ON_SAMPLES && v->inputs.batches == 0;
}

ab_status ab_always_on_batch(ab_always_on_stats *v, const ab_data_shape *shape, int64_t step,
                             const int64_t *index, const void *samples, const void *targets, int64_t n,
                             int64_t each) {
    count_classes(v, shape, step, targets, n, each);
    if (samples && !ab_data_ids_in(shape)) AB_TRY(count_inputs(v, step, index, samples, n, each));
    if (samples && ab_always_on_compares_labels(v, shape)) count_labels(v, shape, samples, targets, n, each);
    return AB_OK;
}

/* ---- weights --------------------------------------------------------------------------------- */

void ab_always_on_add_weights(ab_always_on_weights *w, const char *name, const float *values, int64_t n,
                              const ab_format *half) {
    const double limit = ab_format_overflow_limit(half);
    for (int64_t i = 0; i < n; i++) {
        const double size = fabs((double)values[i]);
        w->count++;
        if (!isfinite(size)) {
            if (w->nonfinite++ == 0) ab_text_show(w->nonfinite_name, sizeof w->nonfinite_name, "%s", name);
            continue;
        }
        w->squares += size * size;
        if (size >= limit && w->beyond_half++ == 0)
            ab_text_show(w->beyond_name, sizeof w->beyond_name, "%s", name);
        if (size <= w->largest) continue;
        w->largest = size;
        ab_text_show(w->largest_name, sizeof w->largest_name, "%s", name);
    }
}

void ab_always_on_average_of(ab_always_on_average *a, const float *weight, const float *mean, int64_t n,
                             const ab_format *format, double decay) {
    const float fresh = (float)(1.0 - decay);
    static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    for (int64_t i = 0; i < n; i++) {
        float next = mean[i] + fresh * (weight[i] - mean[i]);
        const double gap = (double)weight[i] - (double)mean[i];
        a->weights += (double)weight[i] * (double)weight[i];
        if (gap == 0) continue;
        a->distance += gap * gap;
        a->differing++;
        ab_round_array(&next, format, &nearest, 1);
        a->stuck += next == mean[i];
    }
}

/* ---- report ---------------------------------------------------------------------------------- */

static void report_inputs(const ab_always_on_inputs *inputs, ab_probe_sink *sink) {
    sink->begin_object(sink, "nonfinite_inputs");
    sink->integer(sink, "batches", inputs->batches);
    sink->number(sink, "first_step", inputs->batches ? (double)inputs->step : (double)NAN);
    sink->integer(sink, "samples", inputs->samples);
    sink->integer(sink, "batch", inputs->size);
    sink->integer(sink, "features", inputs->features);
    sink->integer(sink, "features_in_every_sample", inputs->common);
    if (inputs->batches > 0) {
        sink->integer(sink, "first_sample", inputs->sample);
        sink->integer(sink, "first_feature", inputs->feature);
    }
    if (inputs->common > 0) sink->integer(sink, "first_feature_in_every_sample", inputs->constant);
    sink->end(sink);
}

static void report_labels(const ab_always_on_stats *v, ab_probe_sink *sink) {
    const ab_always_on_labels *labels = &v->labels;
    sink->begin_object(sink, "labels");
    sink->integer(sink, "samples", labels->seen);
    sink->integer(sink, "classes", labels->classes);
    sink->number(sink, "between_class_ratio", ab_always_on_label_ratio(labels, false));
    sink->number(sink, "control_ratio", ab_always_on_label_ratio(labels, true));
    if (v->classes.skips > 0 && labels->classes > 0) {
        sink->integers(sink, "counts", v->classes.all, labels->classes);
        sink->integers(sink, "skipped_counts", v->classes.skipped, labels->classes);
    }
    sink->end(sink);
}

static void report_name(const char *key, const char *name, ab_probe_sink *sink) {
    sink->text(sink, key, name[0] ? name : NULL);
}

static void report_weights(const char *key, const ab_always_on_weights *w, ab_probe_sink *sink) {
    const double finite = (double)(w->count - w->nonfinite);
    sink->begin_object(sink, key);
    sink->integer(sink, "count", w->count);
    sink->integer(sink, "nonfinite", w->nonfinite);
    report_name("nonfinite_name", w->nonfinite_name, sink);
    sink->integer(sink, "beyond_half", w->beyond_half);
    report_name("beyond_half_name", w->beyond_name, sink);
    sink->number(sink, "rms", finite > 0 ? sqrt(w->squares / finite) : (double)NAN);
    sink->number(sink, "largest", w->largest);
    report_name("largest_name", w->largest_name, sink);
    sink->end(sink);
}

static void report_resume(const ab_always_on_resume *r, ab_probe_sink *sink) {
    if (!r->resumed) return;
    sink->begin_object(sink, "resumed");
    sink->integer(sink, "tensors", r->tensors);
    sink->integer(sink, "tensors_differing", r->tensors_differing);
    sink->text(sink, "first_differing", r->tensors_differing > 0 ? r->tensor : NULL);
    sink->integer(sink, "states", r->states);
    sink->integer(sink, "states_differing", r->states_differing);
    sink->begin_array(sink, "differing_states");
    for (int i = 0; i < r->states_differing && i < AB_ALWAYS_ON_STATES; i++) {
        sink->begin_object(sink, NULL);
        sink->text(sink, "name", r->state[i].name);
        sink->number(sink, "saved", r->state[i].saved);
        sink->number(sink, "used", r->state[i].used);
        sink->end(sink);
    }
    sink->end(sink);
    sink->end(sink);
}

static void report_constant(const ab_always_on_constant *c, ab_probe_sink *sink) {
    if (c->batches == 0) {
        sink->text(sink, "constant_loss", NULL);
        return;
    }
    sink->begin_object(sink, "constant_loss");
    sink->number(sink, "loss", c->loss);
    sink->integer(sink, "batches", c->batches);
    sink->begin_array(sink, "parts");
    for (int i = 0; i < c->parts; i++) {
        sink->begin_object(sink, NULL);
        sink->text(sink, "op", c->part[i].op);
        sink->number(sink, "loss", c->part[i].loss);
        sink->number(sink, "factor", c->part[i].factor);
        sink->end(sink);
    }
    sink->end(sink);
    sink->end(sink);
}

void ab_always_on_report(const ab_always_on_stats *v, bool averaged, ab_probe_sink *sink) {
    sink->begin_object(sink, "vitals");
    report_inputs(&v->inputs, sink);
    report_labels(v, sink);
    report_weights("initial_weights", &v->first, sink);
    report_weights("final_weights", &v->last, sink);
    report_constant(&v->constant, sink);
    if (averaged) {
        sink->begin_object(sink, "average");
        sink->integer(sink, "differing", v->average.differing);
        sink->integer(sink, "stuck", v->average.stuck);
        sink->number(sink, "distance_rms_share",
                     v->average.weights > 0 ? sqrt(v->average.distance / v->average.weights) : (double)NAN);
        sink->end(sink);
    }
    report_resume(&v->resume, sink);
    sink->end(sink);
}

/* Reads every parameter once, in any format, on the host or the device. */

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "looking at weights: out of memory"); }

ab_status ab_weight_stats_take(const ab_cell_memory *memory, const ab_format *half,
                               ab_always_on_weights *weights) {
    const ab_plan *plan = memory->plan;
    ab_status status = AB_OK;
    float *values = ab_params_room(plan);
    if (!values) return no_memory();
    *weights = (ab_always_on_weights){.count = 0};
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        char name[AB_PLAN_NAME];
        if (param->grad == AB_NONE || param->owner != AB_NONE) continue;
        const ab_tensor *tensor = &memory->tensor[ab_params_weight(param)];
        AB_TRY_GOTO(ab_tensor_read(tensor, values));
        ab_always_on_add_weights(weights, ab_params_name(plan, param, name), values, ab_tensor_count(tensor),
                                 half ? half : &ab_format_fp16);
    }
out:
    free(values);
    return status;
}

ab_status ab_weight_stats_take_average(const ab_cell_memory *memory, double decay,
                                       ab_always_on_average *average) {
    const ab_plan *plan = memory->plan;
    float *weight = ab_params_room(plan), *mean = ab_params_room(plan);
    ab_status status = weight && mean ? AB_OK : no_memory();
    *average = (ab_always_on_average){.differing = 0};
    for (int p = 0; p < plan->params && status == AB_OK; p++) {
        const ab_plan_param *param = &plan->param[p];
        if (param->ema == AB_NONE) continue;
        const ab_tensor *tensor = &memory->tensor[param->ema];
        AB_TRY_GOTO(ab_tensor_read(&memory->tensor[ab_params_weight(param)], weight));
        AB_TRY_GOTO(ab_tensor_read(tensor, mean));
        ab_always_on_average_of(average, weight, mean, ab_tensor_count(tensor), tensor->format, decay);
    }
out:
    free(weight);
    free(mean);
    return status;
}
