/* Ops against what torch computed from the same stored tensors (tests/golden/ops.jsonl, made by
 * scripts/golden_ops.py), in the formats that apex and torch store them in. */
#include "oracle/jacobian.h"
#include "support/json_file.h"

/* How far a value may be off: torch's own fp32 arithmetic, and one place of the stored format where that
 * moves a value over a rounding boundary. */
#define FP32_ERROR 3e-6

typedef struct golden {
    const cJSON *line, *tensors;
    op_run run;
    op_attrs attrs;
    int64_t compared, moved;
} golden;

static const ab_format *format_of(const golden *g, const char *role) {
    const char *name =
        cJSON_GetStringValue(cJSON_GetObjectItem(cJSON_GetObjectItem(g->line, "formats"), role));
    for (int i = 0; i < ab_format_count(); i++)
        if (strcmp(ab_format_at(i)->name, name) == 0) return ab_format_at(i);
    fail_msg("no format %s", name);
    return NULL;
}

static const cJSON *values_of(const golden *g, const char *name) {
    return cJSON_GetObjectItem(cJSON_GetObjectItem(g->tensors, name), "values");
}

static ab_shape shape_of(const golden *g, const char *name) {
    const cJSON *given = cJSON_GetObjectItem(cJSON_GetObjectItem(g->tensors, name), "shape"), *size;
    ab_shape shape = {.ndim = 0};
    cJSON_ArrayForEach(size, given) shape.dim[shape.ndim++] = (int64_t)size->valuedouble;
    return shape;
}

static void put(const golden *g, const char *name, const ab_tensor *tensor) {
    const cJSON *value;
    int64_t i = 0;
    cJSON_ArrayForEach(value, values_of(g, name)) oracle_put(tensor, i++, value->valuedouble);
    if (i != ab_tensor_count(tensor)) fail_msg("%s: %lld values", name, (long long)i);
}

static void set_attributes(golden *g) {
    const cJSON *value;
    g->attrs = op_attrs_default(g->run.op);
    cJSON_ArrayForEach(value, cJSON_GetObjectItem(g->line, "attributes")) {
        const double number = cJSON_IsNumber(value) ? value->valuedouble : cJSON_IsTrue(value);
        op_attrs_set(g->run.op, &g->attrs, value->string, number, number);
    }
}

/* The recorded tensors in the recorded formats. */
static void open_golden(golden *g) {
    const ab_format *out = format_of(g, "out");
    const ab_shape in = shape_of(g, "input");
    const ab_exec exec = {.training = true};
    const ab_op *op = NULL;
    op_run *r = &g->run;
    assert_int_equal(ab_op_find(cJSON_GetStringValue(cJSON_GetObjectItem(g->line, "op")), &op, NULL), AB_OK);
    r->op = op;
    set_attributes(g);
    op_run_open(r, op, &g->attrs, &in, 1, (op_formats){format_of(g, "input"), format_of(g, "param"), NULL},
                &exec);
    r->out = op_run_tensor(r, r->out.shape, out, 10);
    r->dout = op_run_tensor(r, r->out.shape, out, 110);
    put(g, "input", &r->in[0]);
    put(g, "dout", &r->dout);
    for (int i = 0; i < r->params; i++) put(g, r->spec[i].name, &r->param[i]);
    assert_int_equal(op_run_prepare(r), AB_OK);
}

static void compare(golden *g, const char *name, const ab_tensor *tensor) {
    double largest = 0.0;
    int64_t i = 0;
    const cJSON *value;
    cJSON_ArrayForEach(value, values_of(g, name)) largest = fmax(largest, fabs(value->valuedouble));
    cJSON_ArrayForEach(value, values_of(g, name)) {
        const double found = oracle_get(tensor, i), exact = value->valuedouble,
                     place = 2.0 * oracle_half_ulp(tensor->format, exact);
        if (!(fabs(found - exact) <= place * 1.001 + FP32_ERROR * largest))
            fail_msg("%s %s[%lld]: %.9g, torch %.9g", g->run.op->name, name, (long long)i, found, exact);
        g->moved += fabs(found - exact) > FP32_ERROR * largest;
        g->compared++;
        i++;
    }
    if (i != ab_tensor_count(tensor)) fail_msg("%s %s: %lld values", g->run.op->name, name, (long long)i);
}

static void check_golden(golden *g) {
    const op_run *r = &g->run;
    char name[64];
    compare(g, "out", &r->out);
    compare(g, "dinput", &r->din[0]);
    for (int i = 0; i < r->params; i++) {
        snprintf(name, sizeof name, "d%s", r->spec[i].name);
        compare(g, name, &r->dparam[i]);
    }
}

static void ops_are_torchs(void **state) {
    (void)state;
    char *text = ab_test_read(AB_SOURCE_DIR "/tests/golden/ops.jsonl");
    int64_t compared = 0, moved = 0;
    int lines = 0;
    assert_non_null(text);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        cJSON *tree = cJSON_Parse(line);
        assert_non_null(tree);
        golden g = {.line = tree, .tensors = cJSON_GetObjectItem(tree, "tensors")};
        open_golden(&g);
        op_run_both(&g.run);
        check_golden(&g);
        op_run_close(&g.run);
        compared += g.compared;
        moved += g.moved;
        cJSON_Delete(tree);
    }
    free(text);
    assert_true(lines >= 30);
    if (moved * 200 > compared)
        fail_msg("%lld of %lld values are a place off", (long long)moved, (long long)compared);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ops_are_torchs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
