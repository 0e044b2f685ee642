/* Prints what a probe holds. A number that a probe cannot know is left out, and the list probe.missing says
 * why. */
#define _GNU_SOURCE
#include "probes/lib/document.h"

#include "kernels/core/subnormals.h"
#include "kernels/core/text.h"
#include "kernels/vec/isa.h"
#include "probes/lib/count.h"
#include "probes/lib/governor.h"
#include "probes/lib/json_write.h"
#include "probes/lib/named_facts.h"
#include "probes/lib/things.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST_TIMES = 1024, CELL_NAME = 200 };
static const double confidence = 0.95, ns = 1e9;

/* What the printers share. */
typedef struct printer {
    ab_lib_writer writer;
    ab_probe_sink *sink; /* of the writer */
    const ampprobe *p;
    const ab_lib_course *course;
    char level[64], policy[64], model[64], device[64], half_seen[8];
} printer;

/* ---- what was found -------------------------------------------------------------------------- */

static void setting(const printer *d, ab_lib_key key, const char *otherwise, char text[64]) {
    char *value = ab_lib_config_text(&d->p->config, key);
    ab_text_show(text, 64, "%s", value ? value : otherwise);
    free(value);
}

static bool is_half(int32_t dtype) { return dtype == AMPPROBE_FP16 || dtype == AMPPROBE_BF16; }

static const char *dtype_name(int32_t dtype) {
    const ab_format *format = ab_lib_format(dtype);
    return format ? format->name : "other";
}

/* The half dtype of any tensor of these slots; -1: none. */
static int32_t half_among(const ampprobe *p, unsigned slots) {
    for (int32_t i = 0; i < p->tensors; i++)
        if (slots >> p->tensor[i]->slot & 1u && is_half(p->tensor[i]->dtype)) return p->tensor[i]->dtype;
    return -1;
}

static int64_t size_of(const ab_lib_thing *thing) {
    int64_t size = 1;
    for (int i = 0; i < thing->dimensions; i++) size *= thing->shape[i];
    return size;
}

/* The format that most parameter values are stored in; -1: there are no parameters. */
static int32_t weights_dtype(const ampprobe *p) {
    static const int32_t dtypes[] = {AMPPROBE_FP32, AMPPROBE_FP16, AMPPROBE_BF16, AMPPROBE_FP64};
    double sizes[AB_COUNT_OF(dtypes)] = {0}, most = 0;
    int32_t best = -1;
    for (int32_t i = 0; i < p->things; i++)
        for (size_t k = 0; k < AB_COUNT_OF(dtypes); k++)
            if (p->thing[i].flags & AMPPROBE_PARAMETER && p->thing[i].dtype == dtypes[k])
                sizes[k] += (double)size_of(&p->thing[i]);
    for (size_t k = 0; k < AB_COUNT_OF(dtypes); k++)
        if (sizes[k] > most) {
            most = sizes[k];
            best = dtypes[k];
        }
    return best;
}

static bool is_scaled(const printer *d) { return d->course->group[0].scaled > 0; }

/* As the caller says, or as the dtypes seen say; and nobody scales a loss without gradients in half. */
static bool runs_ops_in_half(const printer *d) {
    const unsigned layers = 1u << AMPPROBE_ACTIVATION | 1u << AMPPROBE_ACTIVATION_GRADIENT;
    if (strstr(d->level, "autocast") || strcmp(d->level, "O1") == 0) return true;
    if (is_scaled(d) && d->course->group[0].first_scale != 1) return true;
    return !is_half(weights_dtype(d->p)) && half_among(d->p, layers) >= 0;
}

static bool is_dynamic(const printer *d) {
    const ab_lib_group *g = &d->course->group[0];
    return strcmp(d->policy, "dynamic") == 0 || (is_scaled(d) && g->least_scale != g->largest_scale);
}

static void find_policy(printer *d) {
    char digits[AB_TEXT_ROUND_TRIP];
    const double scale = is_scaled(d) ? d->course->group[0].first_scale : 1;
    setting(d, AB_LIB_KEY_scale_policy, "", d->policy);
    if (d->policy[0]) return;
    ab_text_show(d->policy, sizeof d->policy, "%s",
                 is_dynamic(d) ? "dynamic" : ab_text_round_trip(digits, scale));
}

/* ---- the run --------------------------------------------------------------------------------- */

static void now_text(char text[32]) {
    struct tm tm;
    const time_t now = time(NULL);
    if (!gmtime_r(&now, &tm) || strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0) text[0] = '\0';
}

static void print_generator(const printer *d) {
    ab_probe_sink *s = d->sink;
    s->begin_object(s, "generator");
    s->text(s, "name", "libampprobe");
    s->text(s, "version", AMPPROBE_VERSION);
    s->text(s, "git_sha", NULL);
    s->boolean(s, "git_dirty", false);
    s->text(s, "build_type", AMPPROBE_BUILD_TYPE);
    s->text(s, "compiler", AMPPROBE_COMPILER);
    s->text(s, "flags", AMPPROBE_FLAGS);
    s->text(s, "onednn_version", NULL);
    s->end(s);
}

static void print_run(const printer *d) {
    ab_probe_sink *s = d->sink;
    char ended[32];
    now_text(ended);
    s->begin_object(s, "run");
    s->text(s, "id", d->p->id);
    s->text(s, "started_utc", d->p->started);
    s->text(s, "finished_utc", d->p->complete ? ended : NULL);
    s->begin_array(s, "argv");
    s->end(s);
    s->boolean(s, "complete", d->p->complete);
    if (d->p->complete)
        s->integer(s, "exit_status", 0);
    else
        s->text(s, "exit_status", NULL);
    s->number(s, "elapsed_s", d->course->run_seconds + d->course->probe_seconds);
    s->end(s);
}

static void known_number(const printer *d, const char *key, double value) {
    if (!isnan(value)) d->sink->number(d->sink, key, value);
}

static void print_optimizer(const printer *d) {
    const ab_lib_optimizer *o = &d->p->config.optimizer[0];
    const ab_lib_group *g = &d->course->group[0];
    ab_probe_sink *s = d->sink;
    if (o->name[0])
        s->text(s, "optimizer", strcmp(o->name, "sgd") == 0 && o->momentum > 0 ? "momentum" : o->name);
    known_number(d, "lr", isnan(g->first_lr) ? o->lr : g->first_lr);
    known_number(d, "momentum", o->momentum);
    known_number(d, "dampening", o->dampening);
    known_number(d, "weight_decay", o->weight_decay);
    known_number(d, "beta1", o->beta1);
    known_number(d, "beta2", o->beta2);
    known_number(d, "eps", o->eps);
    if (o->name[0]) s->boolean(s, "nesterov", o->nesterov);
    if (o->name[0]) s->text(s, "weight_decay_kind", strcmp(o->name, "adamw") == 0 ? "decoupled" : "L2");
}

static void print_text_list(const printer *d, const char *key, const char *text) {
    d->sink->begin_array(d->sink, key);
    d->sink->text(d->sink, NULL, text);
    d->sink->end(d->sink);
}

static void given(const printer *d, ab_lib_key from, const char *key) {
    const char *value = d->p->config.value[from];
    if (value) ab_lib_write_json((ab_lib_writer *)(void *)d->sink, key, value);
}

static void print_config(const printer *d) {
    ab_probe_sink *s = d->sink;
    const ab_lib_group *g = &d->course->group[0];
    const bool clipped = d->p->config.value[AB_LIB_KEY_clip_norm] != NULL;
    s->begin_object(s, "config");
    s->text(s, "net", d->model);
    given(d, AB_LIB_KEY_data, "data");
    print_text_list(d, "levels", d->level);
    print_text_list(d, "scales", d->policy);
    print_text_list(d, "half", d->p->config.half->name);
    s->text(s, "device", d->device);
    given(d, AB_LIB_KEY_batch, "batch");
    s->integer(s, "steps", g->steps);
    print_optimizer(d);
    if (g->schedule_on_skip > 0) s->boolean(s, "schedule_on_skip", true);
    given(d, AB_LIB_KEY_clip_norm, "clip_norm");
    if (!clipped && g->clip_norm > 0) s->number(s, "clip_norm", g->clip_norm);
    if (d->p->config.value[AB_LIB_KEY_accumulation])
        given(d, AB_LIB_KEY_accumulation, "gradient_accumulation_steps");
    else if (g->micro_batches > 0)
        s->integer(s, "gradient_accumulation_steps", g->micro_batches);
    if (g->first_caller_step > 0) s->integer(s, "first_step", g->first_caller_step);
    given(d, AB_LIB_KEY_seed, "seed");
    s->integer(s, "rounds", 1);
    s->integer(s, "probe_every", d->p->config.every);
    s->number(s, "probe_budget", d->p->config.budget);
    given(d, AB_LIB_KEY_scale_window, "scale_window");
    s->boolean(s, "noise_floor", false);
    s->end(s);
}

static void print_determinism(const printer *d) {
    ab_probe_sink *s = d->sink;
    s->begin_object(s, "design");
    s->integer(s, "rounds", 1);
    s->integer(s, "order_seed", 0);
    s->begin_array(s, "order");
    s->begin_array(s, NULL);
    s->integer(s, NULL, 0);
    s->end(s);
    s->end(s);
    s->end(s);
}

static void print_network(const printer *d) {
    ab_probe_sink *s = d->sink;
    int64_t count = 0;
    for (int32_t i = 0; i < d->p->things; i++)
        if (d->p->thing[i].flags & AMPPROBE_PARAMETER) count += size_of(&d->p->thing[i]);
    s->begin_object(s, "network");
    s->text(s, "name", d->model);
    s->text(s, "text", "a training loop of the user's own");
    s->integer(s, "parameters_count", count);
    s->end(s);
}

/* ---- the cell -------------------------------------------------------------------------------- */

static void print_policy(const printer *d) {
    const int32_t dtype = weights_dtype(d->p);
    const ab_lib_group *g = &d->course->group[0];
    ab_probe_sink *s = d->sink;
    s->begin_object(s, "policy");
    s->text(s, "cast_model_type", is_half(dtype) ? dtype_name(dtype) : NULL);
    s->boolean(s, "patch_torch_functions", runs_ops_in_half(d));
    s->text(s, "keep_batchnorm_fp32", NULL);
    if (is_half(dtype)) /* what the optimizer stores is in half, so it has no others */
        s->boolean(s, "master_weights", false);
    else
        s->text(s, "master_weights", NULL);
    if (is_dynamic(d))
        s->text(s, "loss_scale", "dynamic");
    else
        s->number(s, "loss_scale", is_scaled(d) ? g->first_scale : 1);
    const int32_t state = half_among(d->p, 7u << AMPPROBE_OPTIMIZER_STATE);
    if (state >= 0) s->text(s, "optimizer_state", dtype_name(state));
    s->end(s);
}

/* How many neighbouring elements make one, so that each has a loss; 0: too few losses were given. */
static int64_t loss_group(const ab_lib_steps *c) {
    for (int64_t group = 1; group <= c->losses / 4 || group == 1; group *= 2) {
        bool all = c->losses > 0;
        for (int64_t i = 0; i < c->losses && all; i += group) {
            int64_t known = 0;
            for (int64_t k = i; k < i + group && k < c->losses; k++) known += c->known[k];
            all = known > 0;
        }
        if (all) return group;
    }
    return 0;
}

static void print_losses(const printer *d) {
    const ab_lib_steps *c = &d->course->steps;
    ab_probe_sink *s = d->sink;
    const int64_t group = loss_group(c);
    if (group == 0) return;
    if (c->stride * group > 1) s->integer(s, "loss_stride", c->stride * group);
    s->begin_array(s, "loss");
    for (int64_t i = 0; i < c->losses; i += group) {
        double sum = 0, known = 0;
        for (int64_t k = i; k < i + group && k < c->losses; k++) {
            sum += c->loss[k];
            known += c->known[k];
        }
        s->number(s, NULL, sum / known);
    }
    s->end(s);
    s->integer(s, "nonfinite_losses", c->nonfinite_losses);
}

static void print_scales(const printer *d) {
    const ab_lib_steps *c = &d->course->steps;
    ab_probe_sink *s = d->sink;
    s->begin_array(s, "scale");
    for (int64_t i = 0; i < c->scales; i++) {
        s->begin_array(s, NULL);
        s->number(s, NULL, c->scale[i]);
        s->integer(s, NULL, c->scale_steps[i]);
        s->end(s);
    }
    s->end(s);
}

static void print_steps(const printer *d) {
    const ab_lib_group *g = &d->course->group[0];
    const ab_lib_steps *c = &d->course->steps;
    ab_probe_sink *s = d->sink;
    s->integer(s, "steps_total", g->steps);
    s->integer(s, "steps_applied", g->steps - g->skipped);
    s->integer(s, "steps_skipped", g->skipped);
    if (g->first_skipped >= 0)
        s->integer(s, "first_skipped_step", g->first_skipped);
    else
        s->text(s, "first_skipped_step", NULL);
    print_losses(d);
    print_scales(d);
    s->integers(s, "skipped_steps", c->skip, c->skips);
    s->boolean(s, "skipped_steps_truncated", c->skips < g->skipped);
}

static void print_times(const printer *d) {
    const ab_lib_steps *c = &d->course->steps;
    const int64_t group = (c->losses + MOST_TIMES - 1) / MOST_TIMES;
    ab_probe_sink *s = d->sink;
    s->begin_array(s, "step_time_ns");
    for (int64_t i = 0; i < c->losses; i += group) {
        double sum = 0, steps = 0;
        for (int64_t k = i; k < i + group && k < c->losses; k++) {
            const int64_t left = d->course->group[0].steps - k * c->stride;
            sum += (double)c->seconds[k];
            steps += (double)(left < c->stride ? left : c->stride);
        }
        if (i > 0 || c->losses == 1)
            s->number(s, NULL, floor(sum / steps * ns)); /* not the first: it warms up */
    }
    s->end(s);
}

static void print_process(const printer *d) {
    ab_probe_sink *s = d->sink;
    s->begin_array(s, "processes");
    s->begin_object(s, NULL);
    s->integer(s, "round", 0);
    s->integer(s, "position", 0);
    s->text(s, "loss_digest", "");
    s->integer(s, "warmup_steps", 0);
    print_times(d);
    s->number(s, "first_step_ns", floor(d->course->steps.first_seconds * ns));
    s->text(s, "start_to_first_step_ns", NULL);
    s->number(s, "probe_time_ns", floor(d->course->probe_seconds * ns));
    s->text(s, "max_rss_bytes", NULL);
    s->number(s, "elapsed_ns", floor((d->course->run_seconds + d->course->probe_seconds) * ns));
    s->end(s);
    s->end(s);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void print_name(const printer *d, const ab_lib_tensor *t, const ab_lib_thing *thing) {
    static const char *const ends[AB_LIB_SLOTS] = {[AMPPROBE_WEIGHT_GRADIENT] = ".grad",
                                                   [AMPPROBE_ACTIVATION_GRADIENT] = ".out.grad",
                                                   [AMPPROBE_UNSCALED_GRADIENT] = ".grad",
                                                   [AMPPROBE_ACTIVATION] = ".out",
                                                   [AMPPROBE_WEIGHT] = "",
                                                   [AMPPROBE_OPTIMIZER_STATE] = ".state0",
                                                   [AMPPROBE_OPTIMIZER_STATE + 1] = ".state1",
                                                   [AMPPROBE_OPTIMIZER_STATE + 2] = ".state2"};
    char *name = ab_text_new("%s%s", thing->name, ends[t->slot]);
    d->sink->text(d->sink, "name", name ? name : thing->name);
    free(name);
}

static int role_of(const ab_lib_tensor *t) {
    return t->slot < AMPPROBE_OPTIMIZER_STATE ? t->slot : AMPPROBE_OPTIMIZER_STATE;
}

/* Whether values passed through a half format: they are stored in one, or come from ops that run in one. */
static bool is_cast(const printer *d, const ab_lib_tensor *t) {
    return is_half(t->dtype) || (ab_lib_carries_scale(t->slot) && runs_ops_in_half(d));
}

/* Gradients without the loss scale, where it changed. */
static void print_unscaled(const printer *d, const ab_lib_scaled *u, int columns) {
    int first = 0, last = AB_CENSUS_EXPONENTS - 1;
    ab_probe_sink *s = d->sink;
    while (first < last && u->exponent[first] == 0) first++;
    while (last > first && u->exponent[last] == 0) last--;
    s->begin_object(s, "unscaled");
    s->integer(s, "first", AB_CENSUS_EMIN + first);
    s->integers(s, "counts", u->exponent + first, last - first + 1);
    s->integer(s, "rounded", u->rounded);
    s->begin_array(s, "largest_octaves");
    for (int i = 0; i < columns; i++) s->number(s, NULL, (double)u->largest[i]);
    s->end(s);
    s->integers(s, "cut", u->cut, columns);
    s->end(s);
}

static void print_tensor(const printer *d, int32_t index) {
    const ab_lib_tensor *t = d->p->tensor[index];
    const ab_lib_thing *thing = &d->p->thing[t->thing];
    const ab_lib_scaled *scaled = d->p->scaled[index];
    const ab_columns *columns = &d->course->columns[t->axis];
    ab_probe_sink *s = d->sink;
    s->begin_object(s, NULL);
    print_name(d, t, thing);
    s->text(s, "layer", thing->layer);
    s->text(s, "kind", ab_probe_role_name((ab_probe_role)role_of(t)));
    s->boolean(s, "cast", is_cast(d, t));
    s->text(s, "stored", dtype_name(t->dtype));
    s->integer(s, "values_shown", t->values);
    ab_range_report(&t->history, d->p->config.half, columns, t->shown, d->course->group[0].steps, s);
    if (scaled) ab_range_report_periods(&t->history, &scaled->periods, columns, s);
    if (scaled && d->course->steps.scales > 1) print_unscaled(d, scaled, columns->count);
    s->end(s);
}

static void print_tensors(const printer *d, const char *key, unsigned roles) {
    d->sink->begin_array(d->sink, key);
    for (int32_t i = 0; i < d->p->tensors; i++) {
        const ab_lib_tensor *t = d->p->tensor[i];
        if (roles >> role_of(t) & 1u && t->history.total.count > 0) print_tensor(d, i);
    }
    d->sink->end(d->sink);
}

static void print_share(const printer *d, const char *key, double part, double whole) {
    d->sink->number(d->sink, key, whole > 0 ? fmin(1, part / whole) : (double)NAN);
}

static void print_account(const printer *d, const char *key, const ab_lib_account *a) {
    ab_probe_sink *s = d->sink;
    s->begin_object(s, key);
    s->integer(s, "nonzero", a->nonzero);
    s->integer(s, "lost", a->lost);
    s->number(s, "energy", a->energy);
    s->number(s, "lost_energy", a->lost_energy);
    print_share(d, "lost_share", (double)a->lost, (double)a->nonzero);
    print_share(d, "lost_energy_share", a->lost_energy, a->energy);
    s->end(s);
}

static void print_ledger(const printer *d, const ab_lib_ledger *l) {
    static const char *const unknown[] = {"momentum", "eps", "direction_quality"};
    const ab_columns *columns = &d->course->columns[AB_LIB_AFTER];
    ab_probe_sink *s = d->sink;
    s->begin_object(s, NULL);
    s->text(s, "name", d->p->thing[l->thing].name);
    s->text(s, "layer", d->p->thing[l->thing].layer);
    s->text(s, "format", dtype_name(l->dtype));
    print_account(d, "update", &l->update);
    s->text(s, "gradient", NULL);
    if (l->decay.nonzero > 0)
        print_account(d, "weight_decay", &l->decay);
    else
        s->text(s, "weight_decay", NULL);
    for (size_t i = 0; i < AB_COUNT_OF(unknown); i++) s->text(s, unknown[i], NULL);
    s->begin_object(s, "freeze");
    s->number(s, "lr", isnan(l->lr) ? 0 : l->lr);
    s->text(s, "lr_half_lost", NULL);
    s->text(s, "lr_stops", NULL);
    if (l->stopped_since >= 0)
        s->integer(s, "stopped_since_step", l->stopped_since);
    else
        s->text(s, "stopped_since_step", NULL);
    s->end(s);
    s->begin_object(s, "steps");
    ab_columns_report(columns, s);
    s->integers(s, "nonzero", l->nonzero, columns->count);
    s->integers(s, "lost", l->lost, columns->count);
    s->end(s);
    s->end(s);
}

static void print_ledgers(const printer *d) {
    bool any = false;
    for (int32_t i = 0; i < d->p->ledgers; i++) any = any || d->p->ledger[i]->update.nonzero > 0;
    if (!any) return;
    d->sink->begin_array(d->sink, "lost_updates");
    for (int32_t i = 0; i < d->p->ledgers; i++)
        if (d->p->ledger[i]->update.nonzero > 0) print_ledger(d, d->p->ledger[i]);
    d->sink->end(d->sink);
}

static void print_sampling(const printer *d) {
    ab_probe_sink *s = d->sink;
    s->begin_object(s, "sampling");
    s->text(s, "mode", d->p->config.every > 0 ? "fixed" : "governed");
    if (d->p->config.every > 0)
        s->text(s, "budget", NULL);
    else
        s->number(s, "budget", d->p->config.budget);
    s->integer(s, "steps_total", d->course->group[0].steps);
    s->integer(s, "cost_ns", (int64_t)(d->course->probe_seconds * ns));
    s->number(s, "cost_share",
              d->course->run_seconds > 0 ? d->course->probe_seconds / d->course->run_seconds : (double)NAN);
    s->number(s, "confidence", confidence);
    s->end(s);
}

static void print_probes(const printer *d) {
    ab_probe_sink *s = d->sink;
    s->begin_object(s, "probes");
    s->integer(s, "every", d->p->config.every > 0 ? d->p->config.every : 1);
    print_sampling(d);
    s->integer(s, "steps_probed", d->course->probed[AB_LIB_GRADIENTS]);
    s->text(s, "format", d->p->config.half->name);
    print_tensors(d, "tensors", 1u << AMPPROBE_WEIGHT_GRADIENT | 1u << AMPPROBE_ACTIVATION_GRADIENT);
    print_tensors(d, "unscaled_gradients", 1u << AMPPROBE_UNSCALED_GRADIENT);
    if (d->course->probed[AB_LIB_LAYERS] > 0) print_tensors(d, "activations", 1u << AMPPROBE_ACTIVATION);
    if (d->course->probed[AB_LIB_AFTER] > 0) {
        print_tensors(d, "weights", 1u << AMPPROBE_WEIGHT);
        print_tensors(d, "optimizer_state", 1u << AMPPROBE_OPTIMIZER_STATE);
    }
    print_ledgers(d);
    s->end(s);
}

/* ampbench computes the summary when it reads the document; here it says so. */
static void print_summary(const printer *d) {
    static const char *const keys[] = {"loss_final",          "loss_gap",
                                       "step_time_ns",        "step_time_ns_low",
                                       "step_time_ns_high",   "samples_per_s",
                                       "ratio_samples_to_o0", "peak_bytes",
                                       "ratio_bytes_to_o0",   "skipped_share",
                                       "flushed_share",       "overflowed",
                                       "worst_layer",         "worst_layer_flushed_share"};
    static const char reason[] = "computed by ampbench when it reads the record";
    ab_probe_sink *s = d->sink;
    s->begin_object(s, "summary");
    for (size_t i = 0; i < AB_COUNT_OF(keys); i++) {
        char name[64];
        s->text(s, keys[i], NULL);
        ab_text_show(name, sizeof name, "%s_reason", keys[i]);
        s->text(s, name, reason);
    }
    s->boolean(s, "flushed_modelled", true);
    s->begin_object(s, "certificate");
    s->boolean(s, "passed", false);
    s->begin_array(s, "reasons");
    s->text(s, NULL, reason);
    s->end(s);
    s->end(s);
    s->end(s);
}

static void print_cell(const printer *d) {
    ab_probe_sink *s = d->sink;
    char name[2 * CELL_NAME];
    ab_text_show(name, sizeof name, "%s/%s/%s/%s/%s", d->model, d->level, d->policy, d->p->config.half->name,
                 d->device);
    s->begin_object(s, NULL);
    s->text(s, "id", name);
    s->text(s, "observed_by", "probe");
    s->text(s, "model", d->model);
    s->text(s, "level", d->level);
    s->text(s, "scale_policy", d->policy);
    given(d, AB_LIB_KEY_scale_window, "scale_window");
    s->text(s, "half_format", d->p->config.half->name);
    s->text(s, "device", d->device);
    if (d->p->config.value[AB_LIB_KEY_seed])
        given(d, AB_LIB_KEY_seed, "seed");
    else
        s->integer(s, "seed", 0);
    s->text(s, "twin", NULL);
    s->text(s, "status", "ok");
    s->text(s, "reason", NULL);
    print_policy(d);
    print_steps(d);
    print_process(d);
    print_probes(d);
    print_summary(d);
    s->end(s);
}

/* ---- what only a probe knows ----------------------------------------------------------------- */

static void print_missing_key(const printer *d, const char *path, const char *reason) {
    ab_probe_sink *s = d->sink;
    s->begin_object(s, NULL);
    s->text(s, "path", path);
    s->text(s, "reason", reason);
    s->end(s);
}

/* Steps that the probe owes its time for are looked at less often (governor.h). */
static void print_waiting(const printer *d) {
    char text[200];
    const ab_lib_course *c = d->course;
    const int64_t steps = c->group[0].steps;
    if (d->p->config.every > 0 || steps <= AB_LIB_DEAR_STEPS ||
        !ab_lib_governor_owes(d->p->config.budget, c->probe_seconds, c->run_seconds))
        return;
    ab_text_show(
        text, sizeof text,
        "gradients of %lld of %lld steps were counted, after step %d less often: what the probe took "
        "was above its budget",
        (long long)c->probed[AB_LIB_GRADIENTS], (long long)steps, AB_LIB_DEAR_STEPS);
    print_missing_key(d, "cells.probes.steps_probed", text);
}

static void print_missing(const printer *d) {
    const ab_lib_steps *c = &d->course->steps;
    const char *const never = "a probe does not see it";
    d->sink->begin_array(d->sink, "missing");
    if (loss_group(c) == 0)
        print_missing_key(d, "cells.loss",
                          c->known_losses > 0 ? "the loss of too few steps was given"
                                              : "the loss was not given");
    if (!d->p->config.value[AB_LIB_KEY_seed])
        print_missing_key(d, "cells.seed", "not given; 0 stands for it");
    if (!d->p->config.value[AB_LIB_KEY_batch]) print_missing_key(d, "config.batch", "not given");
    if (d->course->probed[AB_LIB_LAYERS] == 0)
        print_missing_key(d, "cells.probes.activations", "no layer's output was shown");
    if (d->course->probed[AB_LIB_AFTER] == 0)
        print_missing_key(d, "cells.probes.lost_updates", "weights before and after updates were not shown");
    print_waiting(d);
    print_missing_key(d, "data", never);
    print_missing_key(d, "cells.memory_bytes", never);
    print_missing_key(d, "cells.implementations", never);
    print_missing_key(d, "cells.vitals", never);
    print_missing_key(d, "cells.probes.origin", never);
    print_missing_key(d, "cells.summary.loss_gap", "there is no fp32 run beside it");
    d->sink->end(d->sink);
}

/* ---- where numbers come from ----------------------------------------------------------------- */

static void print_source(const printer *d, const char *quantity, int64_t steps, const char *from) {
    if (steps == 0) return;
    d->sink->begin_object(d->sink, NULL);
    d->sink->text(d->sink, "quantity", quantity);
    d->sink->text(d->sink, "from", from);
    d->sink->integer(d->sink, "steps", steps);
    d->sink->end(d->sink);
}

/* A step's row is that of what decided it (ab_lib_skipped), so the rows add up to all steps. */
static void print_skip_sources(const printer *d) {
    const ab_lib_group *g = &d->course->group[0];
    print_source(d, "skipped", g->checked, "the caller's finite check (found_inf)");
    print_source(d, "skipped", g->called, "whether the optimizer made the step");
    print_source(d, "skipped", g->steps - g->checked - g->called - g->unknown,
                 "the probe's own finite check of all gradients");
    print_source(d, "skipped", g->unknown, "not known");
}

static void print_gradient_source(const printer *d) {
    const int64_t scaled = d->course->group[0].scaled;
    int64_t counted = 0, values = 0;
    char text[128];
    for (int32_t i = 0; i < d->p->tensors; i++) {
        const ab_lib_tensor *t = d->p->tensor[i];
        if (t->slot != AMPPROBE_WEIGHT_GRADIENT) continue;
        counted += t->history.total.count;
        values += t->values;
    }
    ab_text_show(text, sizeof text, "parameters' gradients before they are unscaled, %s the loss scale: %s",
                 scaled == 0                          ? "without"
                 : scaled < d->course->group[0].steps ? "some times"
                                                      : "times",
                 counted < values ? "a sample" : "all values");
    print_source(d, "gradients", d->course->probed[AB_LIB_GRADIENTS], text);
}

static int64_t rated_steps(const ab_lib_steps *s) {
    int64_t steps = 0;
    for (int64_t i = 0; i < s->rates; i++) steps += s->rated[i];
    return steps;
}

static void print_sources(const printer *d) {
    const ab_lib_course *c = d->course;
    char *loss = ab_lib_config_text(&d->p->config, AB_LIB_KEY_loss_from);
    d->sink->begin_array(d->sink, "sources");
    print_source(d, "loss", c->steps.known_losses, loss ? loss : "the caller");
    free(loss);
    print_source(d, "scale", c->group[0].scaled, "the loss scaler, before and after the step");
    print_skip_sources(d);
    print_source(d, "learning_rate", rated_steps(&c->steps),
                 "the caller, of the optimizer's first group of parameters");
    print_gradient_source(d);
    print_source(d, "layers", c->probed[AB_LIB_LAYERS], "outputs of layers and their gradients: all values");
    print_source(d, "weights", c->probed[AB_LIB_AFTER],
                 "weights and optimizer state after the step; updates from at most 1,024 values a parameter");
    d->sink->end(d->sink);
}

static void print_group(const printer *d, const ab_lib_group *g, const ab_lib_optimizer *o) {
    ab_probe_sink *s = d->sink;
    s->begin_object(s, NULL);
    s->text(s, "optimizer", o->name[0] ? o->name : NULL);
    s->boolean(s, "fused", o->fused);
    s->integer(s, "steps", g->steps);
    s->integer(s, "steps_skipped", g->skipped);
    s->integer(s, "steps_unknown", g->unknown);
    s->integer(s, "steps_skipped_silently", g->silent_skips);
    s->integer(s, "steps_with_scale", g->scaled);
    s->integer(s, "clipped_before_unscale", g->clipped_scaled);
    s->integer(s, "clipped", g->clipped);
    s->integer(s, "schedule_advanced_on_skip", g->schedule_on_skip);
    s->integer(s, "micro_batches", g->micro_batches);
    s->number(s, "lr_first", g->first_lr);
    s->number(s, "lr_last", g->lr);
    s->number(s, "norm_largest", g->norm_largest);
    s->number(s, "norm_last", g->norm_last);
    s->number(s, "scale_first", g->scaled ? g->first_scale : (double)NAN);
    s->number(s, "scale_last", g->scaled ? g->last_scale : (double)NAN);
    s->end(s);
}

static void print_rates(const printer *d) {
    const ab_lib_steps *c = &d->course->steps;
    ab_probe_sink *s = d->sink;
    s->begin_object(s, "learning_rate");
    s->integer(s, "stride", c->rate_stride);
    s->begin_array(s, "mean");
    for (int64_t i = 0; i < c->rates; i++)
        s->number(s, NULL, c->rated[i] ? c->rate[i] / c->rated[i] : (double)NAN);
    s->end(s);
    s->end(s);
}

static void print_overflows(const printer *d) {
    ab_probe_sink *s = d->sink;
    s->begin_array(s, "overflowed");
    for (int32_t i = 0; i < d->p->tensors; i++) {
        const ab_lib_tensor *t = d->p->tensor[i];
        if (t->overflow_steps == 0) continue;
        s->begin_object(s, NULL);
        print_name(d, t, &d->p->thing[t->thing]);
        s->text(s, "layer", d->p->thing[t->thing].layer);
        s->integer(s, "steps", t->overflow_steps);
        s->integer(s, "first_step", t->first_overflow);
        s->end(s);
    }
    s->end(s);
}

static void print_skipped_tensors(const printer *d) {
    static const char *const names[AB_LIB_REASONS] = {NULL,     NULL,        "dtype", "layout",
                                                      "device", "alignment", "id",    NULL};
    ab_probe_sink *s = d->sink;
    int64_t sums[AB_LIB_REASONS] = {0};
    for (int32_t i = 0; i < d->p->tensors; i++)
        for (int k = 1; k < AB_LIB_REASONS; k++) sums[k] += d->p->tensor[i]->skipped[k];
    s->begin_object(s, "not_counted");
    for (int k = 1; k < AB_LIB_REASONS; k++)
        if (names[k]) s->integer(s, names[k], sums[k]);
    s->end(s);
}

static void print_about(printer *d) {
    const ab_lib_config *c = &d->p->config;
    d->sink->begin_object(d->sink, "about");
    for (int i = 0; i < c->abouts; i++) {
        ab_lib_write_member(&d->writer, c->about[i].key, c->about[i].value);
    }
    d->sink->end(d->sink);
}

static void print_own(printer *d) {
    ab_probe_sink *s = d->sink;
    s->begin_object(s, "probe");
    s->integer(s, "abi", AMPPROBE_ABI);
    given(d, AB_LIB_KEY_framework, "framework");
    given(d, AB_LIB_KEY_framework_version, "framework_version");
    given(d, AB_LIB_KEY_language, "language");
    given(d, AB_LIB_KEY_rank, "rank");
    given(d, AB_LIB_KEY_world, "world");
    s->integer(s, "first_caller_step", d->course->group[0].first_caller_step);
    s->integer(s, "last_caller_step", d->course->group[0].last_caller_step);
    s->integer(s, "layer_steps", d->course->layer_steps);
    s->begin_array(s, "groups");
    for (int32_t i = 0; i < d->course->groups; i++)
        print_group(d, &d->course->group[i], &d->p->config.optimizer[i]);
    s->end(s);
    print_rates(d);
    print_overflows(d);
    print_skipped_tensors(d);
    print_missing(d);
    print_sources(d);
    ab_lib_facts_print(d->p, s);
    print_about(d);
    s->end(s);
}

static void print_warnings(const printer *d) {
    ab_probe_sink *s = d->sink;
    s->begin_array(s, "warnings");
    for (int64_t i = 0; i < d->p->notes && i < AB_LIB_NOTES; i++) s->text(s, NULL, d->p->note[i]);
    if (d->p->notes > AB_LIB_NOTES) {
        char text[64];
        ab_text_show(text, sizeof text, "%lld more notes", (long long)(d->p->notes - AB_LIB_NOTES));
        s->text(s, NULL, text);
    }
    s->end(s);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void print_all(printer *d) {
    ab_probe_sink *s = d->sink;
    s->begin_object(s, NULL);
    s->text(s, "schema", "ampbench-result");
    s->text(s, "schema_version", "1.0.0");
    print_generator(d);
    print_run(d);
    print_config(d);
    print_determinism(d);
    print_network(d);
    s->begin_array(s, "cells");
    print_cell(d);
    s->end(s);
    s->text(s, "noise_floor", NULL);
    print_warnings(d);
    print_own(d);
    s->end(s);
    fputc('\n', d->writer.out);
}

void ab_lib_document_print(const ampprobe *p, FILE *out) {
    printer d = {.p = p, .course = p->course};
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0),
             before = plain ? uselocale(plain) : (locale_t)0;
    ab_lib_writer_init(&d.writer, out);
    d.sink = &d.writer.sink;
    setting(&d, AB_LIB_KEY_level, "unknown", d.level);
    setting(&d, AB_LIB_KEY_model, "model", d.model);
    setting(&d, AB_LIB_KEY_device, "cpu", d.device);
    find_policy(&d);
    print_all(&d);
    if (plain) {
        uselocale(before);
        freelocale(plain);
    }
}

/* The text in memory first: a file beyond the limit of file sizes would end the process by a signal. */
static ab_status write_text(const ampprobe *p, const char *text, size_t size) {
    struct rlimit limit;
    ab_outfile out;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && size > limit.rlim_cur)
        return ab_fail(AB_OUTPUT, "%s: cannot write: %s", p->path, strerror(EFBIG));
    AB_TRY(ab_outfile_open(p->path, &out));
    out.unsynced = p->course->groups == 0 && !p->complete; /* a machine that stops loses no step */
    fwrite(text, 1, size, out.stream);
    return ab_outfile_close(&out, AB_OK);
}

ab_status ab_lib_document_write(const ampprobe *p) {
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (!memory) return ab_fail(AB_NO_MEMORY, "%s: out of memory", p->path);
    ab_lib_document_print(p, memory);
    const bool good = !ferror(memory);
    if (fclose(memory) == 0 && good) {
        const ab_status status = write_text(p, text, size);
        free(text);
        return status;
    }
    free(text);
    return ab_fail(AB_NO_MEMORY, "%s: out of memory", p->path);
}
