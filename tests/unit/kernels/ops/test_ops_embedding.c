/* embedding, positional_embedding and select: rows moved exactly, gradients summed over every use of a row
 * and rounded once. */
#include "oracle/op_run.h"

#include "oracle/jacobian.h"

/* ---- embedding ------------------------------------------------------------------------------- */

typedef struct table_case {
    ab_shape ids;
    int64_t rows, dim, padding;
} table_case;

static const table_case tables[] = {
    {{1, {1}}, 1, 1, -1}, {{2, {3, 5}}, 7, 3, -1}, {{2, {4, 9}}, 11, 33, 2}, {{2, {40, 60}}, 300, 65, -1}};

static int32_t id_at(const table_case *k, int64_t i) {
    return (int32_t)((double)k->rows * 0.5 * (oracle_random(3, i) + 1.0));
}

static void open_table(op_run *r, const void *self, op_formats formats) {
    const table_case *k = self;
    static op_attrs attrs;
    ab_exec exec = {.training = true};
    attrs = op_attrs_default(&ab_op_embedding);
    op_attrs_set(&ab_op_embedding, &attrs, "num_embeddings", (double)k->rows, 0);
    op_attrs_set(&ab_op_embedding, &attrs, "embedding_dim", (double)k->dim, 0);
    op_attrs_set(&ab_op_embedding, &attrs, "padding_idx", (double)k->padding, 0);
    op_run_open(r, &ab_op_embedding, &attrs, &k->ids, 1, formats, &exec);
    op_run_fill_all(r, 6);
    for (int64_t i = 0; i < ab_shape_count(&k->ids); i++) ((int32_t *)r->in[0].data)[i] = id_at(k, i);
    assert_int_equal(op_run_prepare(r), AB_OK);
}

static void check_table(const op_run *r, const void *self) {
    const table_case *k = self;
    int64_t positions = ab_shape_count(&k->ids);
    oracle_sums gradient = oracle_sums_open(k->rows * k->dim);
    for (int64_t i = 0; i < positions; i++)
        for (int64_t c = 0; c < k->dim; c++) {
            int64_t from = id_at(k, i) * k->dim + c;
            assert_true(oracle_get(&r->out, i * k->dim + c) == oracle_get(&r->param[0], from));
            if (id_at(k, i) != k->padding) oracle_add(gradient, from, oracle_get(&r->dout, i * k->dim + c));
        }
    oracle_sums_check(r, "dweight", &r->dparam[0], gradient, 40);
    assert_null(r->io.din[0]);
    oracle_sums_close(&gradient);
}

static void rows_are_looked_up_and_their_gradients_summed(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(tables); k++)
        oracle_run_all((oracle_run){.open = open_table, .check = check_table, .self = &tables[k]});
}

static void an_id_beyond_the_table_is_named(void **state) {
    (void)state;
    op_run r;
    open_table(&r, &tables[1], (op_formats){&ab_format_fp32, &ab_format_fp32, NULL});
    const int32_t bad[] = {7, -1};
    for (int i = 0; i < 2; i++) {
        ((int32_t *)r.in[0].data)[4] = bad[i];
        assert_int_equal(r.op->forward(&r.exec, &r.io), AB_INPUT);
        assert_non_null(strstr(ab_error_message(), "position 4"));
        assert_non_null(strstr(ab_error_message(), i ? "id -1" : "id 7"));
    }
    op_run_close(&r);
}

/* ---- positional_embedding -------------------------------------------------------------------- */

typedef struct position_case {
    int64_t batch, tokens, dim, rows;
    bool class_token;
} position_case;

static const position_case positions[] = {
    {1, 1, 1, 0, false}, {2, 3, 5, 0, false}, {2, 3, 4, 6, false}, {3, 2, 5, 0, true}, {2, 3, 2, 7, true}};

static void add_positions(const void *self, double *const *x, double *out) {
    const position_case *k = self;
    int64_t extra = k->class_token, all = k->tokens + extra;
    for (int64_t b = 0; b < k->batch; b++)
        for (int64_t t = 0; t < all; t++)
            for (int64_t c = 0; c < k->dim; c++) {
                double token = t < extra ? x[2][c] : x[0][(b * k->tokens + t - extra) * k->dim + c];
                out[(b * all + t) * k->dim + c] = token + x[1][t * k->dim + c];
            }
}

static void open_positions(op_run *r, const void *self, op_formats formats) {
    const position_case *k = self;
    static op_attrs attrs;
    ab_exec exec = {.training = true};
    ab_shape in = {.ndim = 3, .dim = {k->batch, k->tokens, k->dim}};
    attrs = op_attrs_default(&ab_op_positional_embedding);
    op_attrs_set(&ab_op_positional_embedding, &attrs, "num_embeddings", (double)k->rows, 0);
    op_attrs_set(&ab_op_positional_embedding, &attrs, "class_token", k->class_token, 0);
    op_run_open(r, &ab_op_positional_embedding, &attrs, &in, 1, formats, &exec);
    op_run_fill_all(r, 8);
    assert_int_equal(op_run_prepare(r), AB_OK);
}

static void check_positions(const op_run *r, const void *self) {
    oracle_jacobian o = oracle_jacobian_open(r, add_positions, self);
    oracle_jacobian_check_out(r, &o, 1.0);
    oracle_jacobian_check_gradients(r, &o, 4.0);
    oracle_jacobian_close(&o);
}

static void positions_are_added_behind_the_class_token(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(positions); k++)
        oracle_run_all((oracle_run){.open = open_positions, .check = check_positions, .self = &positions[k]});
}

static void too_many_positions_are_refused(void **state) {
    (void)state;
    op_attrs attrs = op_attrs_default(&ab_op_positional_embedding);
    ab_shape in = {.ndim = 3, .dim = {2, 9, 4}}, flat = {.ndim = 2, .dim = {2, 9}}, out;
    op_attrs_set(&ab_op_positional_embedding, &attrs, "num_embeddings", 8, 0);
    assert_int_equal(ab_op_positional_embedding.infer(&attrs, &in, 1, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[2, 9, 4]"));
    assert_int_equal(ab_op_positional_embedding.infer(&attrs, &flat, 1, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[2, 9]"));
}

/* ---- select ---------------------------------------------------------------------------------- */

typedef struct select_case {
    ab_shape in;
    int64_t dim, index, chosen;
} select_case;

static const select_case selections[] = {{{3, {2, 5, 7}}, 1, 0, 0},
                                         {{3, {2, 5, 7}}, 1, -1, 4},
                                         {{3, {3, 4, 5}}, 2, 3, 3},
                                         {{4, {2, 3, 41, 60}}, 1, 1, 1},
                                         {{2, {1, 1}}, 1, 0, 0}};

static void open_selection(op_run *r, const void *self, op_formats formats) {
    const select_case *k = self;
    static op_attrs attrs;
    ab_exec exec = {.training = true};
    attrs = op_attrs_default(&ab_op_select);
    op_attrs_set(&ab_op_select, &attrs, "dim", (double)k->dim, 0);
    op_attrs_set(&ab_op_select, &attrs, "index", (double)k->index, 0);
    op_run_open(r, &ab_op_select, &attrs, &k->in, 1, formats, &exec);
    op_run_fill_all(r, 10);
    assert_int_equal(op_run_prepare(r), AB_OK);
}

static void check_selection(const op_run *r, const void *self) {
    const select_case *k = self;
    int64_t inner = 1, size = k->in.dim[k->dim], at = 0;
    for (int d = (int)k->dim + 1; d < k->in.ndim; d++) inner *= k->in.dim[d];
    for (int64_t i = 0; i < ab_shape_count(&k->in); i++) {
        bool chosen = i / inner % size == k->chosen;
        double expected = chosen ? oracle_get(&r->dout, at) : 0.0;
        assert_true(oracle_get(&r->din[0], i) == expected);
        if (chosen) assert_true(oracle_get(&r->out, at++) == oracle_get(&r->in[0], i));
    }
    assert_int_equal(at, ab_tensor_count(&r->out));
}

static void one_index_is_taken_and_its_gradient_given_back(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(selections); k++)
        oracle_run_all(
            (oracle_run){.open = open_selection, .check = check_selection, .self = &selections[k]});
    op_attrs attrs = op_attrs_default(&ab_op_select);
    ab_shape in = {.ndim = 3, .dim = {2, 5, 7}}, out;
    op_attrs_set(&ab_op_select, &attrs, "index", 5, 0);
    assert_int_equal(ab_op_select.infer(&attrs, &in, 1, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[2, 5, 7]"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_looked_up_and_their_gradients_summed),
        cmocka_unit_test(an_id_beyond_the_table_is_named),
        cmocka_unit_test(positions_are_added_behind_the_class_token),
        cmocka_unit_test(too_many_positions_are_refused),
        cmocka_unit_test(one_index_is_taken_and_its_gradient_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
