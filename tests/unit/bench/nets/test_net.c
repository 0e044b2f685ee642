/* Networks as data: the built-in ones against shapes and counts worked out by hand and with torch, the rules
 * of the file, and what every kind of bad file gets. Numbers that ops compute are the ops' tests' matter. */
#define _POSIX_C_SOURCE 200809L
#include "bench/nets/net.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <math.h>
#include <setjmp.h>

#include <cmocka.h>

/* A file with one op a line: the first op is on line 3. */
#define HEAD                                                                                                 \
    "{\"format\": \"ampbench-net-1\", \"name\": \"t\", \"input\": {\"height\": 8, \"width\": 8, "            \
    "\"channels\": 2},\n\"ops\": [\n"
#define TAIL "\n]}"
#define FLATTEN "{\"name\": \"flat\", \"op\": \"flatten\"}"
#define LINEAR "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 10}"
#define RELU "{\"name\": \"act\", \"op\": \"relu\"}"
#define LOSS "{\"name\": \"loss\", \"op\": \"cross_entropy\"}"
#define PLAIN HEAD FLATTEN ",\n" LINEAR ",\n" LOSS TAIL
/* The same with one more op between. */
#define WITH(op) HEAD op ",\n" FLATTEN ",\n" LINEAR ",\n" LOSS TAIL

static ab_net *parse(const char *text) {
    ab_net *net = NULL;
    ab_status status = ab_net_parse(text, strlen(text), "t.json", &net);
    if (status != AB_OK) print_error("%s\n", ab_error_message());
    assert_int_equal(status, AB_OK);
    return net;
}

static ab_net *load(const char *name) {
    ab_net *net = NULL;
    ab_status status = ab_net_load(name, &net);
    if (status != AB_OK) print_error("%s\n", ab_error_message());
    assert_int_equal(status, AB_OK);
    return net;
}

static void expect_printable(const char *message) {
    for (; *message; message++)
        if ((unsigned char)*message < 0x20 || (unsigned char)*message > 0x7E)
            fail_msg("byte 0x%02x in a message", (unsigned char)*message);
}

/* Expects AB_CONFIG and a message that begins with `start` and has `part` in it. */
static void expect_refused(const char *text, size_t length, const char *start, const char *part) {
    ab_net *net = NULL;
    ab_status status = ab_net_parse(text, length, "t.json", &net);
    const char *message = status == AB_OK ? "no error" : ab_error_message();
    if (status != AB_CONFIG || strncmp(message, start, strlen(start)) != 0 || !strstr(message, part))
        fail_msg("status %d, expected '%s... %s', found '%s'", (int)status, start, part, message);
    assert_null(net);
    expect_printable(message);
}

typedef struct bad_file {
    const char *text, *start, *part;
} bad_file;

static void expect_all_refused(const bad_file *bad, size_t count) {
    for (size_t i = 0; i < count; i++)
        expect_refused(bad[i].text, strlen(bad[i].text), bad[i].start, bad[i].part);
}

/* ---- built-in networks ----------------------------------------------------------------------- */

static const ab_net_op *op_named(const ab_net *net, const char *name) {
    for (int i = 0; i < net->ops; i++)
        if (strcmp(net->op[i].name, name) == 0) return &net->op[i];
    fail_msg("no op %s", name);
    return NULL;
}

static void lenet5_has_the_published_shapes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        ab_shape shape;
    } expected[] = {
        {"conv1", {4, {3, 28, 28, 6}}},
        {"relu1", {4, {3, 28, 28, 6}}},
        {"pool1", {4, {3, 14, 14, 6}}},
        {"conv2", {4, {3, 10, 10, 16}}},
        {"relu2", {4, {3, 10, 10, 16}}},
        {"pool2", {4, {3, 5, 5, 16}}},
        {"flatten", {2, {3, 400}}},
        {"fc1", {2, {3, 120}}},
        {"relu3", {2, {3, 120}}},
        {"fc2", {2, {3, 84}}},
        {"relu4", {2, {3, 84}}},
        {"fc3", {2, {3, 10}}},
        {"loss", {1, {1}}},
    };
    ab_shape shape[AB_COUNT_OF(expected)];
    ab_net *net = load("lenet5");
    assert_int_equal(net->ops, AB_COUNT_OF(expected));
    assert_int_equal(ab_net_infer(net, 3, shape), AB_OK);
    for (int i = 0; i < net->ops; i++) {
        assert_string_equal(net->op[i].name, expected[i].name);
        assert_true(ab_shape_equal(&shape[i], &expected[i].shape));
    }
    ab_net_free(net);
}

/* conv 6*(25+1) + 16*(150+1), linear 120*401 + 84*121 + 10*85 for lenet5; the others from torch's modules. */
static void parameter_counts_are_torchs(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters, buffers;
    } expected[] = {
        {"lenet5", 61706, 0}, {"mlp", 235146, 0}, {"resnet8", 77754, 672}, {"resnet20", 272186, 1568}};
    assert_true(ab_net_builtin_count() >=
                (int)AB_COUNT_OF(expected)); /* the others: test_nets_transformers */
    for (size_t i = 0; i < AB_COUNT_OF(expected); i++) {
        int64_t buffers = 0;
        ab_net *net = load(expected[i].name);
        for (int k = 0; k < net->ops; k++)
            for (int j = 0; j < net->op[k].params; j++)
                if (net->op[k].param[j].kind == AB_PARAM_BUFFER)
                    buffers += ab_shape_count(&net->op[k].param[j].shape);
        assert_int_equal(ab_net_parameters(net), expected[i].parameters);
        assert_int_equal(buffers, expected[i].buffers);
        assert_int_equal(net->classes, 10);
        assert_string_equal(net->name, expected[i].name);
        assert_string_equal(ab_net_builtin_name((int)i), expected[i].name);
        ab_net_free(net);
    }
}

static void residual_blocks_are_wired_with_projections_where_the_shape_changes(void **state) {
    (void)state;
    static const ab_shape projection = {4, {32, 16, 1, 1}};
    ab_net *net = load("resnet20");
    const ab_net_op *add = op_named(net, "stage1.1.add");
    assert_string_equal(net->op[add->input[0]].name, "stage1.1.bn2");
    assert_string_equal(net->op[add->input[1]].name, "stage1.0.relu2");
    add = op_named(net, "stage2.0.add");
    assert_string_equal(net->op[add->input[1]].name, "stage2.0.shortcut.bn");
    const ab_net_op *shortcut = op_named(net, "stage2.0.shortcut.conv");
    assert_string_equal(net->op[shortcut->input[0]].name, "stage1.2.relu2");
    assert_int_equal(shortcut->params, 1);
    assert_string_equal(shortcut->param[0].name, "weight");
    assert_true(ab_shape_equal(&shortcut->param[0].shape, &projection));
    ab_net_free(net);
}

static void first_op_reads_the_input_and_the_loss_the_targets(void **state) {
    (void)state;
    for (int i = 0; i < ab_net_builtin_count(); i++) {
        ab_net *net = load(ab_net_builtin_name(i));
        const ab_net_op *loss = &net->op[net->ops - 1];
        if (loss->op != &ab_op_cross_entropy) {
            ab_net_free(net);
            continue;
        }
        assert_int_equal(net->op[0].input[0], AB_NET_INPUT);
        assert_int_equal(loss->inputs, 2);
        assert_int_equal(loss->input[0], net->ops - 2);
        if (net->scored >= 0)
            assert_int_equal(loss->input[1], AB_NET_TARGETS); /* others rebuild their input */
        assert_true(loss->op->is_loss);
        ab_net_free(net);
    }
}

static void lenet5_recommends_its_tutorials_settings(void **state) {
    (void)state;
    ab_net *net = load("lenet5");
    assert_string_equal(net->defaults.optimizer, "momentum");
    assert_true(net->defaults.lr == 0.01);
    assert_int_equal(net->defaults.batch, 64);
    assert_int_equal(net->defaults.epochs, 1);
    const ab_param_spec *fc1 = op_named(net, "fc1")->param; /* torch's default: within 1 / sqrt(fan-in) */
    for (int k = 0; k < 2; k++) {
        assert_int_equal(fc1[k].init, AB_INIT_UNIFORM);
        assert_true(fabs(fc1[k].init_bound - 0.05) < 1e-12); /* 400 inputs */
    }
    ab_net_free(net);
}

/* ---- rules of the file ----------------------------------------------------------------------- */

static const void *attr_of(const ab_net *net, const char *op_name, const char *attr_name) {
    const ab_net_op *op = op_named(net, op_name);
    for (const ab_attr *attr = op->op->attrs; attr->name; attr++)
        if (strcmp(attr->name, attr_name) == 0) return (const char *)op->attrs + attr->offset;
    fail_msg("no attribute %s", attr_name);
    return NULL;
}

static void expect_pair(const ab_net *net, const char *op, const char *attr, int64_t first, int64_t second) {
    const int64_t *pair = attr_of(net, op, attr);
    assert_int_equal(pair[0], first);
    assert_int_equal(pair[1], second);
}

static void attributes_are_filled_by_kind_or_with_torchs_default(void **state) {
    (void)state;
    ab_net *net = parse(WITH("{\"name\": \"c\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": "
                             "[3, 1], \"padding\": 1, \"bias\": "
                             "false},\n{\"name\": \"b\", \"op\": \"batch_norm2d\", \"eps\": 0.25},\n"
                             "{\"name\": \"p\", \"op\": \"avg_pool2d\", \"kernel_size\": 2}"));
    assert_int_equal(*(const int64_t *)attr_of(net, "c", "out_channels"), 4);
    expect_pair(net, "c", "kernel_size", 3, 1);
    expect_pair(net, "c", "padding", 1, 1);
    expect_pair(net, "c", "stride", 1, 1);
    expect_pair(net, "p", "stride", 2, 2); /* the kernel size */
    assert_false(*(const bool *)attr_of(net, "c", "bias"));
    assert_true(*(const bool *)attr_of(net, "fc", "bias"));
    assert_true(*(const double *)attr_of(net, "b", "eps") == 0.25);
    assert_true(*(const double *)attr_of(net, "b", "momentum") == 0.1);
    assert_int_equal(op_named(net, "c")->params, 1);
    ab_net_free(net);
}

static void class_weights_are_kept_as_fp32(void **state) {
    (void)state;
    ab_net *net =
        parse(HEAD FLATTEN ",\n{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3},\n"
                           "{\"name\": \"loss\", \"op\": \"cross_entropy\", \"weight\": [1, 0.1, 2.5]}" TAIL);
    const ab_floats *weight = attr_of(net, "loss", "weight");
    assert_int_equal(weight->count, 3);
    assert_true(weight->value[0] == 1.0f && weight->value[1] == 0.1f && weight->value[2] == 2.5f);
    ab_net_free(net);
}

static void inputs_may_be_a_name_an_array_or_left_out(void **state) {
    (void)state;
    ab_net *net =
        parse(HEAD "{\"name\": \"a\", \"op\": \"relu\", \"in\": \"input\"},\n"
                   "{\"name\": \"b\", \"op\": \"add\", \"in\": [\"input\", \"a\"]},\n"
                   "{\"name\": \"c\", \"op\": \"add\", \"in\": [\"b\", \"b\"]},\n" FLATTEN ",\n" LINEAR ",\n"
                   "{\"name\": \"loss\", \"op\": \"cross_entropy\", \"in\": [\"fc\", \"targets\"]}" TAIL);
    assert_int_equal(net->op[0].input[0], AB_NET_INPUT);
    assert_int_equal(net->op[1].inputs, 2);
    assert_int_equal(net->op[1].input[0], AB_NET_INPUT);
    assert_int_equal(net->op[1].input[1], 0);
    assert_int_equal(net->op[2].input[1], 1);
    assert_int_equal(net->op[3].input[0], 2);
    assert_int_equal(net->op[5].input[0], 4);
    assert_int_equal(net->op[5].input[1], AB_NET_TARGETS);
    ab_net_free(net);
}

static void expect_init(const ab_net *net, const char *op, int param, ab_init_kind kind, double bound) {
    const ab_param_spec *spec = &op_named(net, op)->param[param];
    assert_int_equal(spec->init, kind);
    assert_true(spec->init_bound == bound);
}

static void init_of_an_op_beats_the_files_and_batch_norms_keep_theirs(void **state) {
    (void)state;
    enum { WEIGHT, BIAS };
    ab_net *net = parse(
        "{\"format\": \"ampbench-net-1\", \"name\": \"t\",\n"
        "\"input\": {\"height\": 8, \"width\": 8, \"channels\": 2},\n"
        "\"init\": {\"weight\": {\"kind\": \"normal\", \"std\": 0.5}},\n\"ops\": [\n"
        "{\"name\": \"c\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 1},\n"
        "{\"name\": \"b\", \"op\": \"batch_norm2d\"},\n"
        "{\"name\": \"d\", \"op\": \"batch_norm2d\", \"init\": {\"weight\": {\"kind\": "
        "\"zeros\"}}},\n" FLATTEN
        ",\n{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 10, \"init\": {\"weight\": {\"kind\": "
        "\"uniform\", \"bound\": 0.125}, \"bias\": {\"kind\": \"ones\"}}},\n" LOSS "]}");
    expect_init(net, "c", WEIGHT, AB_INIT_NORMAL, 0.5);
    assert_int_equal(op_named(net, "c")->param[BIAS].init, AB_INIT_UNIFORM); /* torch's */
    expect_init(net, "b", WEIGHT, AB_INIT_ONES, 0);
    expect_init(net, "d", WEIGHT, AB_INIT_ZEROS, 0);
    expect_init(net, "fc", WEIGHT, AB_INIT_UNIFORM, 0.125);
    expect_init(net, "fc", BIAS, AB_INIT_ONES, 0);
    ab_net_free(net);
}

static void parameters_do_not_depend_on_the_batch_and_shapes_follow_it(void **state) {
    (void)state;
    ab_shape shape[3];
    ab_net *net = parse(PLAIN);
    for (int64_t batch = 1; batch < 1000; batch *= 7) {
        assert_int_equal(ab_net_infer(net, batch, shape), AB_OK);
        assert_int_equal(shape[1].dim[0], batch);
    }
    assert_int_equal(ab_net_parameters(net), 128 * 10 + 10);
    ab_net_free(net);
}

static void lines_of_ops_are_those_of_the_file(void **state) {
    (void)state;
    ab_net *net = parse("{\"text\": \"a \\\"{[\\\\ \\u0041 brace, \xC3\xA9\",\r\n\"format\": "
                        "\"ampbench-net-1\", \"name\": \"t\",\n\n"
                        "\"input\": {\"height\": 8,\n\"width\": 8, \"channels\": 2}, \"ops\": [ {\n"
                        "\"name\": \"flat\", \"op\": \"flatten\"}\n,\n" LINEAR "," LOSS "]}");
    assert_string_equal(net->text, "a \"{[\\ A brace, \xC3\xA9");
    assert_int_equal(net->op[0].line, 5);
    assert_int_equal(net->op[1].line, 8);
    assert_int_equal(net->op[2].line, 8);
    ab_net_free(net);
}

static void absent_defaults_are_filled(void **state) {
    (void)state;
    ab_net *net = parse(PLAIN);
    assert_string_equal(net->defaults.optimizer, "momentum");
    assert_true(net->defaults.lr > 0);
    assert_true(net->defaults.batch >= 1 && net->defaults.epochs >= 1);
    assert_string_equal(net->text, "");
    ab_net_free(net);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void a_users_copy_is_the_built_in_network(void **state) {
    (void)state;
    char path[] = "/tmp/ampbench-test-net-XXXXXX";
    int file = mkstemp(path);
    const char *text = ab_net_builtin_text(2);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    assert_int_equal(close(file), 0);
    ab_net *built_in = load("resnet8"), *copy = load(path);
    assert_string_equal(copy->digest, built_in->digest);
    assert_string_equal(copy->path, path);
    assert_int_equal(copy->ops, built_in->ops);
    assert_int_equal(ab_net_parameters(copy), ab_net_parameters(built_in));
    ab_net_free(copy);
    ab_net_free(built_in);
    remove(path);
}

/* FNV-1a 64 of "a" is a published value; this file is not a network, so the digest is checked on one that is.
 */
static void digest_changes_with_any_byte(void **state) {
    (void)state;
    ab_net *one = parse(PLAIN), *same = parse(PLAIN), *spaced = parse(PLAIN " ");
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    char text[17];
    for (const char *at = PLAIN; *at; at++) hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    assert_string_equal(one->digest, text);
    assert_string_equal(one->digest, same->digest);
    assert_string_not_equal(one->digest, spaced->digest);
    ab_net_free(one);
    ab_net_free(same);
    ab_net_free(spaced);
}

static void unknown_or_unreadable_networks_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *name, *part;
    } bad[] = {
        {"lenet", "unknown network \"lenet\": expected a built-in name or a file; did you mean 'lenet5'?"},
        {"resnet-20", "did you mean 'resnet20'?"},
        {"", "unknown network \"\""},
        {"\x1b[31m", "unknown network \"?[31m\""},
        {"./nowhere/net.json", "./nowhere/net.json: cannot open the network: No such file"},
        {"missing.json", "missing.json: cannot open the network"},
        {"/tmp", "/tmp: cannot read the network: Is a directory"},
        {"/dev/zero", "/dev/zero: expected a network file of at most 1048576 bytes, found a larger one"},
        {"/dev/null", "/dev/null:1:1: malformed JSON: expected a value, found the end of the file"},
    };
    for (size_t i = 0; i < AB_COUNT_OF(bad); i++) {
        ab_net *net = NULL;
        assert_int_equal(ab_net_load(bad[i].name, &net), AB_CONFIG);
        assert_null(net);
        if (!strstr(ab_error_message(), bad[i].part))
            fail_msg("no '%s' in '%s'", bad[i].part, ab_error_message());
    }
}

/* ---- malformed JSON -------------------------------------------------------------------------- */

static void grammar_errors_have_line_and_column(void **state) {
    (void)state;
    static const bad_file bad[] = {
        {"", "t.json:1:1: malformed JSON: ", "expected a value, found the end of the file"},
        {"{\n  \"a\": 1,\n}", "t.json:3:1: ", "expected a key in double quotes, found '}'"},
        {"{\"a\" 1}", "t.json:1:6: ", "expected ':' after the key, found '1'"},
        {"{\"a\": 1 \"b\": 2}", "t.json:1:9: ", "expected ',' or '}', found '\"'"},
        {"[1 2]", "t.json:1:4: ", "expected ',' or ']', found '2'"},
        {"[1,]", "t.json:1:4: ", "expected a value, found ']'"},
        {"{} {}", "t.json:1:4: ", "expected nothing after the document, found '{'"},
        {"[01]", "t.json:1:3: ", "found '1'"},
        {"[+1]", "t.json:1:2: ", "expected a value, found '+'"},
        {"[1.]", "t.json:1:4: ", "expected a digit, found ']'"},
        {"[-]", "t.json:1:3: ", "expected a digit"},
        {"[1e]", "t.json:1:4: ", "expected a digit"},
        {"[.5]", "t.json:1:2: ", "expected a value"},
        {"[NaN]", "t.json:1:2: ", "expected a value, found 'N'"},
        {"[tru]", "t.json:1:2: ", "expected a value"},
        {"['a']", "t.json:1:2: ", "expected a value"},
        {"[\"a]", "t.json:1:5: ", "expected a closing '\"', found the end of the file"},
        {"[\"a\nb\"]", "t.json:1:4: ", "expected no control character in a string, found byte 0x0a"},
        {"[\"\\x41\"]", "t.json:1:4: ", "after a backslash, found 'x'"},
        {"[\"\\u00g1\"]", "t.json:1:7: ", "expected 4 hexadecimal digits, found 'g'"},
        {"[\"\\u0000\"]", "t.json:1:5: ", "expected no NUL character"},
        {"[\"\\ud800\"]", "t.json:1:5: ", "surrogate"},
        {"[\"\xC3\"]", "t.json:1:3: ", "expected UTF-8, found byte 0xc3"},
        {"[\"\xC0\x80\"]", "t.json:1:3: ", "expected UTF-8"},
        {"[\"\xED\xA0\x80\"]", "t.json:1:3: ", "expected UTF-8"},
        {"\xEF\xBB\xBF{}", "t.json:1:1: ", "found byte 0xef"},
        {"// x\n{}", "t.json:1:1: ", "expected a value, found '/'"},
        {"[1234567890123456789012345678901234567890123456789012345678901]",
         "t.json:1:2: ", "at most 60 characters"},
    };
    expect_all_refused(bad, AB_COUNT_OF(bad));
}

static void nul_bytes_are_refused(void **state) {
    (void)state;
    static const char inside[] = "{\"na\0me\": 1}", after[] = "{}\0{}", between[] = "[1,\0 2]";
    expect_refused(inside, sizeof inside - 1, "t.json:1:5: ", "found byte 0x00");
    expect_refused(after, sizeof after - 1, "t.json:1:3: ", "found byte 0x00");
    expect_refused(between, sizeof between - 1, "t.json:1:4: ", "found byte 0x00");
}

static void deep_nesting_is_refused(void **state) {
    (void)state;
    enum { DEPTH = 500000 };
    char *text = malloc(DEPTH);
    assert_non_null(text);
    memset(text, '[', DEPTH);
    expect_refused(text, DEPTH, "t.json:1:33: ", "at most 32 levels of nesting");
    for (int i = 0; i < DEPTH; i++) text[i] = "{\"a\":"[i % 5];
    expect_refused(text, DEPTH, "t.json:1:161: ", "at most 32 levels of nesting");
    free(text);
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    for (int i = 0; i < ab_net_builtin_count(); i += 2) { /* lenet5 and resnet8 */
        const char *text = ab_net_builtin_text(i);
        for (size_t length = 0; length + 2 < strlen(text); length++)
            expect_refused(text, length, "t.json:", "malformed JSON");
    }
}

/* Any bytes must end in a network or in one printable line, never in a crash: what ASan and UBSan watch. */
static void random_damage_never_crashes(void **state) {
    (void)state;
    static const char *const pieces[] = {"\"",
                                         "{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         "1e308",
                                         "-1",
                                         "0",
                                         "null",
                                         "true",
                                         "\\u0041",
                                         "9007199254740993",
                                         "65536",
                                         "\"in\": \"input\"",
                                         "add",
                                         "\x80",
                                         "1e-320"};
    uint32_t random = 7;
    char text[8192];
    for (int round = 0; round < 20000; round++) {
        snprintf(text, sizeof text, "%s", ab_net_builtin_text(round % ab_net_builtin_count()));
        size_t length = strlen(text);
        for (int hit = 0; hit < 1 + round % 3; hit++) {
            random = random * 1664525u + 1013904223u;
            const char *piece = pieces[(random >> 24) % AB_COUNT_OF(pieces)];
            size_t bytes = strlen(piece), at = (random >> 4) % (length - bytes);
            for (size_t i = 0; i < bytes; i++) text[at + i] = piece[i];
        }
        ab_net *net = NULL;
        ab_status status = ab_net_parse(text, length, "t.json", &net);
        assert_true(status == AB_OK ? net != NULL : status == AB_CONFIG && !net);
        if (status != AB_OK) expect_printable(ab_error_message());
        ab_net_free(net);
    }
}

/* ---- bad networks ---------------------------------------------------------------------------- */

#define SIXTEEN "sixteen_letters_"
#define TOP(rest)                                                                                            \
    "{\"format\": \"ampbench-net-1\", \"name\": \"t\",\n" rest "\n\"ops\": [" FLATTEN "," LINEAR "," LOSS "]}"
#define INPUT "\"input\": {\"height\": 8, \"width\": 8, \"channels\": 2},"

static void bad_heads_are_refused(void **state) {
    (void)state;
    static const bad_file bad[] = {
        {"[]", "t.json:1: ", "the network: expected an object, found an array"},
        {"{}", "t.json:1: ", "expected a key 'format', found none"},
        {TOP(INPUT "\"defualts\": {},"), "t.json:2: ", "unknown key \"defualts\"; did you mean 'defaults'?"},
        {TOP(INPUT INPUT), "t.json:2: ", "expected key 'input' once, found it again"},
        {"{\"format\": \"ampbench-net-2\"}",
         "t.json:1: ", "expected \"ampbench-net-1\", found \"ampbench-net-2\""},
        {"{\"format\": 1}", "t.json:1: ", "expected \"ampbench-net-1\", found 1"},
        {"{\"format\": \"ampbench-net-1\", \"name\": \"a b\"}", "t.json:1: ", "found \"a b\""},
        {TOP("\"input\": 3,"), "t.json:2: ", "'input': expected an object, found 3"},
        {TOP("\"input\": {\"height\": 8, \"width\": 8},"),
         "t.json:2: ", "expected a key 'channels', found none"},
        {TOP("\"input\": {\"height\": 0, \"width\": 8, \"channels\": 2},"),
         "t.json:2: ", "height: expected an integer from 1 to 65536, found 0"},
        {TOP("\"input\": {\"height\": 8.5, \"width\": 8, \"channels\": 2},"), "t.json:2: ", "found 8.5"},
        {TOP("\"input\": {\"height\": 1e999, \"width\": 8, \"channels\": 2},"), "t.json:2: ", "found inf"},
        {TOP(INPUT "\"text\": \"a\\u001b[31m\","),
         "t.json:2: ", "without control characters, found \"a?[31m\""},
        {TOP(INPUT "\"text\": \"\\u0085\","), "t.json:2: ", "without control characters"},
        {TOP(INPUT "\"defaults\": {\"lr\": \"fast\"},"),
         "t.json:2: ", "'lr': expected a number from 0 to 1000000"},
        {TOP(INPUT "\"defaults\": {\"batch\": -64},"), "t.json:2: ", "'batch': expected an integer from 1"},
        {TOP(INPUT "\"defaults\": {\"optimizer\": \"" SIXTEEN SIXTEEN "\"},"),
         "t.json:2: ", "at most 31 characters"},
    };
    expect_all_refused(bad, AB_COUNT_OF(bad));
}

static void bad_inits_are_refused(void **state) {
    (void)state;
    static const bad_file bad[] = {
        {TOP(INPUT "\"init\": {\"wieght\": {\"kind\": \"zeros\"}},"), "t.json:2: ", "did you mean 'weight'?"},
        {TOP(INPUT "\"init\": {\"weight\": \"zeros\"},"),
         "t.json:2: ", "init of 'weight': expected an object"},
        {TOP(INPUT "\"init\": {\"weight\": {}},"), "t.json:2: ", "expected a key 'kind', found none"},
        {TOP(INPUT "\"init\": {\"weight\": {\"kind\": \"gaussian\"}},"), "t.json:2: ",
         "init of 'weight': unknown kind \"gaussian\": expected zeros, ones, uniform or normal"},
        {TOP(INPUT "\"init\": {\"weight\": {\"kind\": \"normal\"}},"),
         "t.json:2: ", "expected a key 'std', found none"},
        {TOP(INPUT "\"init\": {\"weight\": {\"kind\": \"uniform\", \"std\": 1}},"),
         "t.json:2: ", "uniform: unknown key \"std\""},
        {TOP(INPUT "\"init\": {\"weight\": {\"kind\": \"normal\", \"std\": -1}},"), "t.json:2: ", "found -1"},
        {WITH("{\"name\": \"b\", \"op\": \"batch_norm2d\", \"init\": {\"running_mean\": {\"kind\": "
              "\"ones\"}}}"),
         "t.json:3: op 'b': ", "'init': unknown key \"running_mean\""},
        {WITH("{\"name\": \"a\", \"op\": \"relu\", \"init\": {\"weight\": {\"kind\": \"ones\"}}}"),
         "t.json:3: op 'a': ", "'init': unknown key \"weight\""},
    };
    expect_all_refused(bad, AB_COUNT_OF(bad));
}

static void bad_ops_are_refused(void **state) {
    (void)state;
    static const bad_file bad[] = {
        {TOP(INPUT "\"text\": \"\", \"ops\": 1,"), "t.json:3: ", "expected key 'ops' once"},
        {HEAD TAIL, "t.json:2: ", "'ops': expected an array of ops, found an empty one"},
        {HEAD "7" TAIL, "t.json:3: ", "ops[0]: expected an object, found 7"},
        {HEAD "{}" TAIL, "t.json:3: ", "expected a key 'name', found none"},
        {HEAD "{\"name\": \"\"}" TAIL, "t.json:3: ", "'name': expected 1 to 64 of the characters"},
        {HEAD "{\"name\": \"a\\u001b]0;x\\u0007\"}" TAIL, "t.json:3: ", "found \"a?]0;x?\""},
        {HEAD "{\"name\": \"a\\\"b\"}" TAIL, "t.json:3: ", "found \"a\"b\""},
        {HEAD "{\"name\": \"a\\nb\"}" TAIL, "t.json:3: ", "found \"a?b\""},
        {HEAD "{\"name\": \"input\"}" TAIL,
         "t.json:3: ", "other than \"input\" and \"targets\", found \"input\""},
        {HEAD FLATTEN ",\n" FLATTEN TAIL,
         "t.json:4: ", "expected distinct names, found \"flat\" also on line 3"},
        {HEAD "{\"name\": \"a\"}" TAIL, "t.json:3: op 'a': ", "expected a key 'op', found none"},
        {HEAD "{\"name\": \"a\", \"op\": \"conv2\"}" TAIL, "t.json:3: op 'a': ", "conv2d"},
        {HEAD "{\"name\": \"a\", \"op\": 2}" TAIL, "t.json:3: op 'a': ", "'op': expected 1 to 64"},
        {WITH("{\"name\": \"a\", \"op\": \"relu\", \"inplace\": true}"),
         "t.json:3: op 'a': ", "relu: unknown key \"inplace\""},
        {WITH("{\"name\": \"a\",\n\"op\": \"conv2d\", \"out_channels\": 4,\n\"kernel\": 3}"),
         "t.json:5: op 'a': ",
         "conv2d: unknown key \"kernel\"; did you mean 'kernel_size'? (keys: name, op, in, init, share, "},
        {WITH("{\"name\": \"a\", \"op\": \"conv2d\", \"kernel_size\": 3}"),
         "t.json:3: op 'a': ", "expected 'out_channels' ("},
        {WITH("{\"name\": \"a\",\n\"op\": \"conv2d\", \"out_channels\": 0, \"kernel_size\": 3}"),
         "t.json:4: op 'a': ", "'out_channels': expected an integer from 1"},
        {WITH("{\"name\": \"a\", \"op\": \"conv2d\", \"out_channels\": 1e30, \"kernel_size\": 3}"),
         "t.json:3: op 'a': ", "found 1e+30"},
        {WITH("{\"name\": \"a\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": [3, 3, 3]}"),
         "t.json:3: op 'a': ", "'kernel_size': expected a number or [height, width], found an array of 3"},
        {WITH("{\"name\": \"a\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": [3, \"3\"]}"),
         "t.json:3: op 'a': ", "'kernel_size': expected an integer from 1"},
        {WITH("{\"name\": \"a\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3, \"bias\": 0}"),
         "t.json:3: op 'a': ", "'bias': expected true or false, found 0"},
        {WITH("{\"name\": \"a\", \"op\": \"batch_norm2d\", \"eps\": -1}"),
         "t.json:3: op 'a': ", "'eps': expected a number"},
        {HEAD FLATTEN ",\n" LINEAR ",\n{\"name\": \"loss\", \"op\": \"cross_entropy\", \"weight\": []}" TAIL,
         "t.json:5: op 'loss': ", "'weight': expected an array of numbers, found an empty one"},
        {HEAD FLATTEN ",\n" LINEAR
                      ",\n{\"name\": \"loss\", \"op\": \"cross_entropy\", \"weight\": [1, null]}" TAIL,
         "t.json:5: op 'loss': ", "'weight': expected a number"},
    };
    expect_all_refused(bad, AB_COUNT_OF(bad));
}

static void bad_references_are_refused(void **state) {
    (void)state;
    static const bad_file bad[] = {
        {WITH("{\"name\": \"a\", \"op\": \"relu\",\n\"in\": \"a\"}"),
         "t.json:4: op 'a': ", "expected an earlier op, found the op itself"},
        {WITH("{\"name\": \"a\", \"op\": \"relu\", \"in\": \"fc\"}"),
         "t.json:3: op 'a': ", "expected an earlier op, found \"fc\" of line 5"},
        {WITH(RELU ",\n{\"name\": \"b\", \"op\": \"relu\", \"in\": \"acct\"}"),
         "t.json:4: op 'b': ", "expected \"input\" or an earlier op, found \"acct\"; did you mean 'act'?"},
        {WITH("{\"name\": \"a\", \"op\": \"relu\", \"in\": 0}"), "t.json:3: op 'a': ", "found 0"},
        {WITH("{\"name\": \"a\", \"op\": \"relu\", \"in\": []}"),
         "t.json:3: op 'a': ", "expected 1 to 8 names, found 0"},
        {WITH("{\"name\": \"a\", \"op\": \"relu\", \"in\": [[\"input\"]]}"),
         "t.json:3: op 'a': ", "found an array"},
        {WITH("{\"name\": \"a\", \"op\": \"relu\", \"in\": [\"input\", \"input\"]}"),
         "t.json:3: op 'a': ", "expected 1 name for relu, found 2"},
        {WITH("{\"name\": \"a\", \"op\": \"add\"}"),
         "t.json:3: op 'a': ", "add expects two inputs, or one and a number 'value'"},
        {WITH("{\"name\": \"a\", \"op\": \"relu\", \"in\": \"targets\"}"),
         "t.json:3: op 'a': ", "relu expects numbers, \"targets\" holds class or token ids"},
        {HEAD FLATTEN ",\n" LINEAR
                      ",\n{\"name\": \"loss\", \"op\": \"cross_entropy\", \"in\": [\"fc\", \"flat\"]}" TAIL,
         "t.json:5: op 'loss': ", "or one probability for each logit, found targets [64, 128]"},
        {HEAD FLATTEN
         ",\n" LINEAR
         ",\n{\"name\": \"loss\", \"op\": \"cross_entropy\", \"in\": [\"targets\", \"fc\"]}" TAIL,
         "t.json:5: op 'loss': ", "cross_entropy expects numbers, \"targets\" holds class or token ids"},
    };
    expect_all_refused(bad, AB_COUNT_OF(bad));
}

static void bad_structures_are_refused(void **state) {
    (void)state;
    static const bad_file bad[] = {
        {HEAD FLATTEN ",\n" LINEAR TAIL, "t.json:4: ",
         "op 'fc' (linear): expected a loss of one element, found [64, 10]; end the network with"},
        {HEAD FLATTEN ",\n" LINEAR ",\n" LOSS
                      ",\n{\"name\": \"x\", \"op\": \"linear\", \"out_features\": 1, \"in\": \"flat\"}" TAIL,
         "t.json:5: ", "op 'loss': expected a later op that reads its output"},
        {HEAD FLATTEN ",\n" LINEAR ",\n" LOSS "],\n\"losses\": [\"lossy\"]}",
         "t.json:6: ", "'losses': expected the name of an op, found \"lossy\"; did you mean 'loss'?"},
        {HEAD FLATTEN ",\n" LINEAR ",\n" LOSS "],\n\"losses\": [\"loss\", {\"op\": \"loss\"}]}",
         "t.json:6: ", "'losses': expected distinct ops, found \"loss\" twice"},
        {HEAD FLATTEN ",\n" LINEAR ",\n" LOSS "],\n\"losses\": [{\"op\": \"loss\", \"wieght\": 2}]}",
         "t.json:6: ", "did you mean 'weight'?"},
        {HEAD FLATTEN ",\n" LINEAR ",\n" LOSS "],\n\"losses\": [\"fc\"]}",
         "t.json:5: ", "op 'loss': expected a later op that reads its output"},
        {HEAD RELU ",\n{\"name\": \"flat\", \"op\": \"flatten\", \"in\": \"input\"},\n" LINEAR
                   ",\n" LOSS TAIL,
         "t.json:3: op 'act': ", "expected a later op that reads its output, found none"},
    };
    expect_all_refused(bad, AB_COUNT_OF(bad));
}

static void shapes_that_do_not_match_name_both_and_the_op(void **state) {
    (void)state;
    static const bad_file bad[] = {
        {WITH("{\"name\": \"c\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3},\n"
              "{\"name\": \"s\", \"op\": \"add\", \"in\": [\"c\", \"input\"]}"),
         "t.json:4: op 's': ", "[64, 6, 6, 4] and [64, 8, 8, 2]"},
        {WITH("{\"name\": \"p\", \"op\": \"max_pool2d\", \"kernel_size\": 9}"),
         "t.json:3: op 'p': ", "[64, 8, 8, 2]"},
        {WITH("{\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": 3}"),
         "t.json:3: op 'fc1': ", "[64, 8, 8, 2]"},
        {HEAD RELU ",\n" LOSS TAIL, "t.json:4: op 'loss': ", "[64, 8, 8, 2]"},
        {HEAD FLATTEN ",\n" LINEAR ",\n{\"name\": \"loss\", \"op\": \"cross_entropy\", \"weight\": [1]}" TAIL,
         "t.json:5: op 'loss': ", "[64, 10]"},
    };
    expect_all_refused(bad, AB_COUNT_OF(bad));
}

static void absurd_sizes_are_refused(void **state) {
    (void)state;
    static const bad_file bad[] = {
        {"{\"format\": \"ampbench-net-1\", \"name\": \"t\", \"input\": {\"height\": 65536, \"width\": 65536, "
         "\"channels\": "
         "65536},\n\"ops\": [" FLATTEN "," LINEAR "," LOSS "]}",
         "t.json:2: op 'flat': ", "expected an input of 1 to 2^40 elements, found [64, 65536, 65536, 65536]"},
        {"{\"format\": \"ampbench-net-1\", \"name\": \"t\", \"defaults\": {\"batch\": 1}, \"input\": "
         "{\"height\": 65536, "
         "\"width\": 65536, \"channels\": 200},\n\"ops\": [" FLATTEN "," LINEAR "," LOSS "]}",
         "t.json:2: op 'fc': ", "weight of 1 to 2^40 elements"},
    };
    ab_shape shape[3];
    expect_all_refused(bad, AB_COUNT_OF(bad));
    ab_net *net = parse(PLAIN);
    assert_int_equal(ab_net_infer(net, INT64_MAX, shape), AB_CONFIG);
    assert_int_equal(ab_net_infer(net, 0, shape), AB_CONFIG);
    assert_int_equal(ab_net_infer(net, -1, shape), AB_CONFIG);
    assert_non_null(
        strstr(ab_error_message(), "t.json:3: op 'flat': expected an input of 1 to 2^40 elements"));
    ab_net_free(net);
}

static void too_many_ops_are_refused(void **state) {
    (void)state;
    enum { OPS = 5000, BYTES = 40 * OPS };
    char *text = malloc(BYTES);
    assert_non_null(text);
    int used = snprintf(text, BYTES, "%s", HEAD);
    for (int i = 0; i < OPS; i++)
        used += snprintf(text + used, (size_t)(BYTES - used), "%s{\"name\": \"a%d\", \"op\": \"relu\"}",
                         i ? "," : "", i);
    used += snprintf(text + used, (size_t)(BYTES - used), "%s", TAIL);
    expect_refused(text, (size_t)used, "t.json:2: ", "expected at most 4096 ops, found 5000");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet5_has_the_published_shapes),
        cmocka_unit_test(parameter_counts_are_torchs),
        cmocka_unit_test(residual_blocks_are_wired_with_projections_where_the_shape_changes),
        cmocka_unit_test(first_op_reads_the_input_and_the_loss_the_targets),
        cmocka_unit_test(lenet5_recommends_its_tutorials_settings),
        cmocka_unit_test(attributes_are_filled_by_kind_or_with_torchs_default),
        cmocka_unit_test(class_weights_are_kept_as_fp32),
        cmocka_unit_test(inputs_may_be_a_name_an_array_or_left_out),
        cmocka_unit_test(init_of_an_op_beats_the_files_and_batch_norms_keep_theirs),
        cmocka_unit_test(parameters_do_not_depend_on_the_batch_and_shapes_follow_it),
        cmocka_unit_test(lines_of_ops_are_those_of_the_file),
        cmocka_unit_test(absent_defaults_are_filled),
        cmocka_unit_test(a_users_copy_is_the_built_in_network),
        cmocka_unit_test(digest_changes_with_any_byte),
        cmocka_unit_test(unknown_or_unreadable_networks_are_refused),
        cmocka_unit_test(grammar_errors_have_line_and_column),
        cmocka_unit_test(nul_bytes_are_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(random_damage_never_crashes),
        cmocka_unit_test(bad_heads_are_refused),
        cmocka_unit_test(bad_inits_are_refused),
        cmocka_unit_test(bad_ops_are_refused),
        cmocka_unit_test(bad_references_are_refused),
        cmocka_unit_test(bad_structures_are_refused),
        cmocka_unit_test(shapes_that_do_not_match_name_both_and_the_op),
        cmocka_unit_test(absurd_sizes_are_refused),
        cmocka_unit_test(too_many_ops_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
