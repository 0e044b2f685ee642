/* Initial weights: drawn from Philox by the parameter's name, or read from a safetensors file; then rounded to the model's
 * format. Masters start as fp32 copies of the rounded weights, as apex makes them. */
#include "bench/train/cell_state.h"

#include "bench/tensorfile/safetensors.h"
#include "kernels/core/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *ab_cell_param_name(const ab_cell *cell, const ab_plan_param *param, char *name) {
    snprintf(name, AB_PLAN_NAME, "%s.%s", cell->plan->net->op[param->net_op].name,
             ab_cell_param_spec(cell, param)->name);
    return name;
}

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

/* The smallest disturbance there is: each weight moves to a neighbouring fp32 number, up or down by a coin. */
static void move_one_ulp(float *values, int64_t n, uint64_t seed, const char *name) {
    uint32_t stream_step = ab_rng_name(name);
    for (int64_t i = 0; i < n; i++) {
        uint32_t coin = ab_rng_at(seed, AB_RNG_INIT, stream_step, (uint64_t)i).word[3] & 1u;
        values[i] = nextafterf(values[i], coin ? INFINITY : -INFINITY);
    }
}

/* `values` become what was stored. */
static ab_status store(ab_cell *cell, const ab_plan_param *param, float *values) {
    ab_tensor *stored = &cell->tensor[param->stored];
    AB_TRY(ab_tensor_write(stored, values));
    if (param->master == AB_NONE) return AB_OK;
    AB_TRY(ab_tensor_read(stored, values));
    return ab_tensor_write(&cell->tensor[param->master], values);
}

static ab_status set_param(ab_cell *cell, const ab_plan_param *param, const ab_tensorfile *file,
                           float *values) {
    const ab_param_spec *spec = ab_cell_param_spec(cell, param);
    int64_t n = ab_shape_count(&spec->shape);
    char name[AB_PLAN_NAME];
    ab_cell_param_name(cell, param, name);
    if (file)
        AB_TRY(ab_tensorfile_read_as(file, name, &spec->shape, values));
    else
        draw_all(spec, cell->config.seed, name, values, n);
    if (cell->config.ulp_twin && spec->kind == AB_PARAM_WEIGHT)
        move_one_ulp(values, n, cell->config.seed, name);
    return store(cell, param, values);
}

static int64_t largest_param(const ab_cell *cell) {
    int64_t largest = 1;
    for (int p = 0; p < cell->plan->params; p++) {
        int64_t n = ab_shape_count(&ab_cell_param_spec(cell, &cell->plan->param[p])->shape);
        if (n > largest) largest = n;
    }
    return largest;
}

/* A tensor of the file that no parameter is called after: the file belongs to another network. */
static ab_status check_no_strangers(const ab_cell *cell, const ab_tensorfile *file) {
    for (int i = 0; i < file->count; i++) {
        int found = ab_plan_find(cell->plan, file->tensor[i].name);
        if (found != AB_NONE && cell->plan->tensor[found].category == AB_MEM_weights) continue;
        char name[AB_TENSORFILE_TEXT];
        return ab_fail(AB_INPUT, "--init %s: tensor '%s' is not a parameter of network %s",
                       cell->config.init_file, ab_tensor_printable(file->tensor[i].name, name),
                       cell->plan->net->name);
    }
    return AB_OK;
}

ab_status ab_cell_set_initial(ab_cell *cell) {
    ab_status status = AB_OK;
    ab_tensorfile *file = NULL;
    float *values = malloc((size_t)largest_param(cell) * sizeof *values);
    if (!values) return ab_fail(AB_NO_MEMORY, "initial weights: out of memory");
    if (cell->config.init_file) {
        AB_TRY_GOTO(ab_safetensors_open(cell->config.init_file, &file));
        AB_TRY_GOTO(check_no_strangers(cell, file));
    }
    for (int p = 0; p < cell->plan->params; p++)
        AB_TRY_GOTO(set_param(cell, &cell->plan->param[p], file, values));
out:
    ab_tensorfile_close(file);
    free(values);
    return status;
}
