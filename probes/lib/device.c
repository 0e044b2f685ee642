/* Calls of the CUDA plugin. */
#include "probes/lib/device.h"

#include "kernels/census/shown.h"
#include "kernels/core/plugin.h"
#include "kernels/core/text.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- the plugin ------------------------------------------------------------------------------ */

static const ab_shown_ops *ops;
static char missing[512];

static ab_status find_ops(void) {
    const ab_plugin *plugin;
    int devices;
    AB_TRY(ab_cuda_plugin(&devices, &plugin));
    if (!plugin->shown || plugin->shown->layout != ab_shown_layout())
        return ab_fail(AB_UNAVAILABLE, "libampbench_cuda.so was built for another version of libampprobe");
    ops = plugin->shown;
    return AB_OK;
}

static void open_plugin(void) {
    if (find_ops() != AB_OK) ab_text_show(missing, sizeof missing, "%s", ab_error_message());
}

const char *ab_lib_device_missing(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_plugin);
    return ops ? NULL : missing;
}

bool ab_lib_device_has(const ampprobe_tensor *t) {
    return !ab_lib_device_missing() && ops->device_of(t->data) >= 0;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static int32_t type_of(int32_t dtype) {
    switch (dtype) {
    case AMPPROBE_FP16:
        return AB_SHOWN_F16;
    case AMPPROBE_BF16:
        return AB_SHOWN_BF16;
    case AMPPROBE_FP64:
        return AB_SHOWN_F64;
    default:
        return AB_SHOWN_F32;
    }
}

/* The same values as ab_lib_census and ab_lib_nonfinite read. */
static ab_shown_ask ask_of(const ampprobe_tensor *t, int32_t every, int64_t turn, bool all) {
    const int64_t blocks = (t->count + AB_CENSUS_BLOCK - 1) / AB_CENSUS_BLOCK;
    const int64_t step = every < blocks ? every : blocks;
    const bool whole = step == 1;
    return (ab_shown_ask){.data = t->data,
                          .count = t->count,
                          .stride = t->count > 1 ? t->stride : 1,
                          .every = step,
                          .turn = step > 0 ? turn % step : 0,
                          .type = type_of(t->dtype),
                          .all = whole ? t->dtype == AMPPROBE_FP64 : all};
}

static bool is_known(const ampprobe_tensor *t, const ab_shown_ask *ask) {
    return ask->all || (ask->every == 1 && t->dtype != AMPPROBE_FP64);
}

/* ---- flights --------------------------------------------------------------------------------- */

static bool flies(const ampprobe_tensor *t) {
    return t->skipped == AMPPROBE_COUNTED && t->device == AMPPROBE_CUDA;
}

/* Whether two tensors may be counted together. */
static bool same_place(const ampprobe_tensor *a, const ampprobe_tensor *b) {
    return a->stream == b->stream && ops->device_of(a->data) == ops->device_of(b->data);
}

static ab_status new_flight(ab_lib_flight *f, const ab_lib_call *call, int32_t most) {
    *f = (ab_lib_flight){.call = *call,
                         .tensor = malloc((size_t)most * sizeof *f->tensor),
                         .place = malloc((size_t)most * sizeof *f->place)};
    if (f->tensor && f->place) return AB_OK;
    ab_lib_device_end(f, false);
    return ab_fail(AB_NO_MEMORY, "out of memory for tensors on a GPU");
}

/* Puts tensor i and those that can be counted with it into the flight. Returns how many are looked at. */
static int32_t board(ab_lib_flight *f, ampprobe_tensor *tensors, int32_t i, int32_t count) {
    const int32_t first = i;
    for (; i < count; i++) {
        ampprobe_tensor *t = &tensors[i];
        if (!flies(t)) continue;
        if (f->count > 0 && !same_place(t, &f->tensor[0])) break;
        f->place[f->count] = i;
        f->tensor[f->count++] = *t;
    }
    return i - first;
}

static void skip_all(const ab_lib_flight *f, ampprobe_tensor *tensors, int32_t reason) {
    for (int32_t i = 0; i < f->count; i++) tensors[f->place[i]].skipped = reason;
}

static ab_status start(ab_lib_flight *f, int32_t every, int64_t turn, ampprobe_tensor *tensors, bool *exact) {
    ab_shown_ask *ask = malloc((size_t)f->count * sizeof *ask);
    if (!ask) return ab_fail(AB_NO_MEMORY, "out of memory for tensors on a GPU");
    for (int32_t i = 0; i < f->count; i++)
        ask[i] = ask_of(&f->tensor[i], every, turn, ab_lib_wants_all(&f->call));
    const ab_status status =
        ops->begin(ops->device_of(f->tensor[0].data), f->tensor[0].stream, ask, f->count, &f->shown);
    for (int32_t i = 0; i < f->count && status == AB_OK; i++) {
        tensors[f->place[i]].counted = f->tensor[i].counted = ab_shown_counted(&ask[i]);
        *exact = *exact && is_known(&f->tensor[i], &ask[i]);
    }
    free(ask);
    return status;
}

/* One flight from tensor *i on, which moves on; without tensors where there is nothing to count. */
static ab_status next_flight(const ab_lib_call *call, int32_t every, int64_t turn, ampprobe_tensor *tensors,
                             int32_t count, int32_t *i, ab_lib_flight *f, bool *exact) {
    AB_TRY(new_flight(f, call, count - *i));
    *i += board(f, tensors, *i, count);
    if (every == 0 && !ab_lib_wants_all(call)) {
        skip_all(f, tensors, AMPPROBE_SKIP_BUDGET);
        f->count = 0;
    }
    const ab_status status = f->count > 0 ? start(f, every, turn, tensors, exact) : AB_OK;
    if (status != AB_OK) skip_all(f, tensors, AMPPROBE_SKIP_DEVICE);
    return status == AB_NO_MEMORY ? status : AB_OK;
}

ab_status ab_lib_device_begin(const ab_lib_call *call, int32_t every, int64_t turn, ampprobe_tensor *tensors,
                              int32_t count, ab_lib_flight **list, int32_t *flights, bool *exact) {
    int32_t first = 0;
    *list = NULL;
    *flights = 0;
    *exact = true;
    while (first < count && !flies(&tensors[first])) first++;
    while (first < count) {
        ab_lib_flight *longer = realloc(*list, (size_t)(*flights + 1) * sizeof **list);
        if (!longer) return ab_fail(AB_NO_MEMORY, "out of memory for tensors on a GPU");
        *list = longer;
        AB_TRY(next_flight(call, every, turn, tensors, count, &first, &longer[*flights], exact));
        if (longer[*flights].count > 0)
            ++*flights;
        else
            ab_lib_device_end(&longer[*flights], false);
    }
    return AB_OK;
}

ab_status ab_lib_device_wait(ab_lib_flight *f, double *seconds) { return ops->wait(f->shown, seconds); }

void ab_lib_device_answer(const ab_lib_flight *f, int32_t i, ampprobe_tensor *t, ab_census *census) {
    ab_shown_answer answer;
    ops->answer(f->shown, i, &answer);
    *census = answer.census;
    t->counted = census->count;
    t->nonfinite = answer.nonfinite;
    if (t->nonfinite < 0 && t->counted == t->count && t->dtype != AMPPROBE_FP64)
        t->nonfinite = census->nan + census->pos_inf + census->neg_inf;
}

void ab_lib_device_end(ab_lib_flight *f, bool own) {
    if (own && f->shown) ops->end(f->shown);
    free(f->tensor);
    free(f->place);
    *f = (ab_lib_flight){.shown = NULL};
}

ab_status ab_lib_device_pick(const ampprobe_tensor *t, int64_t first, int64_t step, int64_t n,
                             float *values) {
    const ab_shown_ask ask = ask_of(t, 1, 0, false);
    return ops->pick(ops->device_of(t->data), t->stream, &ask, first, step, n, values);
}
