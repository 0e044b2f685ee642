/* Sets one parameter after the other; keeps no state. */
#include "bench/train/init/initial_weights.h"

#include "bench/tensorfile/open_set.h"
#include "bench/train/init/init_map.h"
#include "bench/train/memory/memory.h"
#include "kernels/core/rng.h"
#include "kernels/core/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One value of U(-bound, bound) or N(0, bound^2), computed in double and rounded once. */
static float draw(const ab_param_spec *spec, uint64_t seed, uint32_t name, int64_t i) {
    if (spec->init == AB_INIT_UNIFORM) {
        double u = (double)ab_rng_uniform(seed, AB_RNG_INIT, name, (uint64_t)i);
        return (float)(spec->init_bound * (2.0 * u - 1.0));
    }
    return (float)(spec->init_bound * (double)ab_rng_normal(seed, AB_RNG_INIT, name, (uint64_t)i));
}

static void draw_all(const ab_param_spec *spec, uint64_t seed, const char *name, float *values, int64_t n) {
    bool constant = spec->init == AB_INIT_ZEROS || spec->init == AB_INIT_ONES;
    uint32_t stream_step = ab_rng_name(name);
    for (int64_t i = 0; i < n; i++)
        values[i] = constant ? (spec->init == AB_INIT_ONES ? 1.0f : 0.0f) : draw(spec, seed, stream_step, i);
}

/* The random word that moves value i. Draws after the first have indices that no tensor reaches. */
static uint32_t moving_word(const ab_initial_weights *initial, const char *name, int64_t i) {
    const uint64_t index = (uint64_t)i | (uint64_t)initial->draw << 48;
    return ab_rng_at(initial->seed, AB_RNG_INIT, ab_rng_name(name), index).word[3];
}

/* The smallest perturbation: moves each weight to a neighbouring fp32 number, up or down at random. */
static void move_one_ulp(float *values, int64_t n, const ab_initial_weights *initial, const char *name) {
    for (int64_t i = 0; i < n; i++) {
        const uint32_t up = moving_word(initial, name, i) & 1u;
        values[i] = nextafterf(values[i], up ? INFINITY : -INFINITY);
    }
}

/* The distribution of rounding errors: uniform within half a spacing. Rounding moves no zeros. */
static void move_as_rounding(float *values, int64_t n, const ab_initial_weights *initial, const char *name) {
    const ab_format *half = initial->half;
    for (int64_t i = 0; i < n; i++) {
        int exponent;
        if (values[i] == 0 || !isfinite(values[i])) continue;
        frexp((double)values[i], &exponent); /* |value| is in [2^(exponent - 1), 2^exponent) */
        const int binade = exponent - 1 > half->emin ? exponent - 1 : half->emin;
        const double u = ((double)moving_word(initial, name, i) + 0.5) * 0x1p-32 - 0.5;
        values[i] = (float)((double)values[i] + ldexp(u, binade + 1 - half->precision));
    }
}

/* Stores `values`; masters get what was stored, or with masters_from=fp32 the values themselves. */
static ab_status store(const ab_cell_memory *memory, const ab_plan_param *param, float *values) {
    ab_tensor *stored = &memory->tensor[param->stored];
    AB_TRY(ab_tensor_write(stored, values));
    if (param->master == AB_NONE) return AB_OK;
    if (!memory->plan->policy.keep.fp32_masters) AB_TRY(ab_tensor_read(stored, values));
    return ab_tensor_write(&memory->tensor[param->master], values);
}

/* ---- from a file ----------------------------------------------------------------------------- */

typedef struct source {
    ab_tensorfile *file; /* NULL: drawn at random */
    ab_init_map *map;
} source;

/* Permutes src to dst in the order of `shape`: axis axis[d] of src is axis d of dst. */
static void reorder(const float *src, const ab_shape *shape, const int *axis, float *dst) {
    int64_t stride[AB_MAX_DIMS] = {0}, step[AB_MAX_DIMS] = {0}, there = 1;
    for (int a = shape->ndim - 1; a >= 0; a--) /* strides of the file's axes */
        for (int d = 0; d < shape->ndim; d++)
            if (axis[d] == a) {
                stride[d] = there;
                there *= shape->dim[d];
            }
    for (int64_t i = 0; i < ab_shape_count(shape); i++) {
        int64_t at = 0;
        for (int d = 0; d < shape->ndim; d++) at += step[d] * stride[d];
        dst[i] = src[at];
        for (int d = shape->ndim - 1; d >= 0 && ++step[d] == shape->dim[d]; d--) step[d] = 0;
    }
}

static ab_status read_param(const source *from, const char *name, const ab_shape *shape, float *values) {
    char there[AB_TENSORFILE_TEXT];
    const int *axis;
    ab_shape stored = *shape;
    AB_TRY(ab_init_map_find(from->map, name, shape->ndim, there, sizeof there, &axis));
    if (!axis) return ab_tensorfile_read_as(from->file, there, shape, values);
    for (int d = 0; d < shape->ndim; d++) stored.dim[axis[d]] = shape->dim[d];
    float *room = malloc((size_t)ab_shape_count(shape) * sizeof *room);
    if (!room) return ab_fail(AB_NO_MEMORY, "initial weights: out of memory");
    ab_status status = ab_tensorfile_read_as(from->file, there, &stored, room);
    if (status == AB_OK) reorder(room, shape, axis, values);
    free(room);
    return status;
}

/* Fails if tensors are missing or unused: the file belongs to another network. */
static ab_status check_tensors(const ab_plan *plan, const source *from) {
    ab_differences found = {0, ""};
    char(*source_name)[AB_TENSORFILE_TEXT] = calloc((size_t)plan->params + 1, sizeof *source_name);
    if (!source_name) return ab_fail(AB_NO_MEMORY, "initial weights: out of memory");
    ab_status status = AB_OK;
    for (int p = 0; p < plan->params; p++) {
        const ab_shape *shape = &ab_params_spec(plan, &plan->param[p])->shape;
        char name[AB_PLAN_NAME];
        const int *axis;
        if (plan->param[p].owner != AB_NONE) continue; /* read with its owner */
        ab_params_name(plan, &plan->param[p], name);
        AB_TRY_GOTO(
            ab_init_map_find(from->map, name, shape->ndim, source_name[p], sizeof source_name[p], &axis));
        ab_differ_from(&found, from->file, source_name[p], shape, axis);
    }
    for (int i = 0; i < from->file->count; i++) {
        const char *name = from->file->tensor[i].name;
        int p = 0;
        while (p < plan->params && strcmp(source_name[p], name) != 0) p++;
        if (p == plan->params && !ab_init_map_ignores(from->map, name))
            ab_differ(&found, name, "is unknown here");
    }
    status = ab_differences_status(&found, plan->net->name);
    if (status == AB_OK) status = ab_init_map_check_used(from->map);
out:
    free(source_name);
    return status;
}

/* Whether the file has a parameter of the network by its name. */
static bool has_own_names(const ab_plan *plan, const ab_tensorfile *file) {
    char name[AB_PLAN_NAME];
    for (int p = 0; p < plan->params; p++) {
        ab_params_name(plan, &plan->param[p], name);
        if (ab_entry_of(file, name)) return true;
    }
    return false;
}

static bool has_below(const ab_tensorfile *file, const char *key) {
    const size_t length = strlen(key);
    for (int i = 0; i < file->count; i++)
        if (strncmp(file->tensor[i].name, key, length) == 0 && file->tensor[i].name[length] == '.')
            return true;
    return false;
}

/* Of a training checkpoint, which has the weights under a key beside the optimizer's state, only these. */
static void narrow_to_model(ab_tensorfile *file) {
    static const char *const keys[] = {"state_dict", "model_state_dict", "model", "module", "net", "weights"};
    for (size_t k = 0; k < AB_COUNT_OF(keys); k++)
        if (has_below(file, keys[k])) {
            ab_tensorfile_narrow(file, keys[k]);
            return;
        }
}

static ab_status open_source(const char *file, const char *map, const ab_plan *plan, source *from) {
    if (!file) return AB_OK;
    AB_TRY(ab_tensorfile_open_set(file, &from->file));
    if (from->file->reader->values && !has_own_names(plan, from->file)) narrow_to_model(from->file);
    AB_TRY(ab_init_map_load(map, &from->map));
    ab_status status = check_tensors(plan, from);
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "--init %s", file);
}

static void close_source(source *from) {
    ab_tensorfile_close(from->file);
    ab_init_map_free(from->map);
}

ab_status ab_initial_weights_check(const char *file, const char *map, const ab_plan *plan) {
    source from = {NULL, NULL};
    ab_status status = open_source(file, map, plan, &from);
    close_source(&from);
    return status;
}

static ab_status set_param(const ab_initial_weights *initial, const ab_cell_memory *memory,
                           const ab_plan_param *param, const source *from, float *values) {
    const ab_plan *plan = memory->plan;
    const ab_param_spec *spec = ab_params_spec(plan, param);
    const int64_t n = ab_shape_count(&spec->shape);
    char name[AB_PLAN_NAME];
    ab_params_name(plan, param, name);
    if (from->file)
        AB_TRY(read_param(from, name, &spec->shape, values));
    else
        draw_all(spec, initial->seed, name, values, n);
    const int last = plan->param[plan->params - 1].net_op;
    if (initial->nan_weight && param->net_op == last && n > 1) values[n / 2] = NAN;
    if (initial->perturbation == AB_PERTURB_ULP && spec->kind == AB_PARAM_WEIGHT)
        move_one_ulp(values, n, initial, name);
    if (initial->perturbation == AB_PERTURB_ROUNDING && spec->kind == AB_PARAM_WEIGHT)
        move_as_rounding(values, n, initial, name);
    return store(memory, param, values);
}

ab_status ab_initial_weights_set(const ab_initial_weights *initial, const ab_cell_memory *memory) {
    const ab_plan *plan = memory->plan;
    ab_status status = AB_OK;
    source from = {NULL, NULL};
    float *values = ab_params_room(plan);
    if (!values) return ab_fail(AB_NO_MEMORY, "initial weights: out of memory");
    AB_TRY_GOTO(open_source(initial->file, initial->map, plan, &from));
    for (int p = 0; p < plan->params; p++)
        if (plan->param[p].owner == AB_NONE)
            AB_TRY_GOTO(set_param(initial, memory, &plan->param[p], &from, values));
out:
    close_source(&from);
    free(values);
    return status;
}

/* Differences between the tensors of a file and a network. */

enum { SHOWN = 6 };

void ab_differ(ab_differences *found, const char *name, const char *how) {
    char shown[AB_TENSORFILE_TEXT];
    if (found->count++ < SHOWN)
        ab_text_append(found->text, sizeof found->text, "%s'%s' %s", found->text[0] ? ", " : "",
                       ab_text_brief(ab_tensor_printable(name, shown), 60), how);
}

const ab_tensor_entry *ab_entry_of(const ab_tensorfile *file, const char *name) {
    for (int i = 0; i < file->count; i++)
        if (strcmp(file->tensor[i].name, name) == 0) return &file->tensor[i];
    for (int i = 0; i < file->aliases; i++)
        if (strcmp(file->alias[i].name, name) == 0) return &file->alias[i];
    return NULL;
}

static bool same_shape(const ab_tensor_entry *entry, const ab_shape *shape, const int *axis) {
    if (entry->ndim != shape->ndim) return false;
    for (int d = 0; d < shape->ndim; d++)
        if (entry->dim[axis ? axis[d] : d] != shape->dim[d]) return false;
    return true;
}

void ab_differ_from(ab_differences *found, const ab_tensorfile *file, const char *name, const ab_shape *shape,
                    const int *axis) {
    char there[AB_TENSORFILE_TEXT], here[AB_SHAPE_TEXT], how[AB_TENSORFILE_TEXT];
    const ab_tensor_entry *entry = ab_entry_of(file, name);
    if (!entry) {
        ab_differ(found, name, "is missing");
    } else if (!same_shape(entry, shape, axis)) {
        ab_text_show(how, sizeof how, "is %s there%s and %s here",
                     ab_text_brief(ab_tensor_shape_text(entry, there), 80),
                     axis ? " before its axes are permuted" : "",
                     ab_text_brief(ab_shape_text(shape, here), 80));
        ab_differ(found, name, how);
    }
}

ab_status ab_differences_status(const ab_differences *found, const char *net) {
    if (found->count == 0) return AB_OK;
    return ab_fail(AB_INPUT, "tensors differ from those of network %s: %s%s", net, found->text,
                   found->count > SHOWN ? ", ..." : "");
}
