/* Inspection of tensor files: every count in the JSON against casts done one by one, from the definition of
 * rounding, in double arithmetic; advice against those counts; and what may not change a result. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */

#include "bench/inspect/inspect.h"

#include "kernels/core/parallel.h"
#include "reports/inspect/histogram.h"
#include "tests/unit/tensorfile_testing.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <unistd.h>

/* ---- the oracle ------------------------------------------------------------------------------ */

/* A format by its numbers, not by our rows: significand bits, smallest and largest exponent, largest finite
 * number. */
typedef struct oracle_format {
    const char *name;
    int precision, emin;
    double largest;
} oracle_format;

static const oracle_format oracles[] = {{"fp16", 11, -14, 65504},
                                        {"bf16", 8, -126, 0x1.FEp127},
                                        {"fp8_e4m3", 4, -6, 448},
                                        {"fp8_e5m2", 3, -14, 57344}};

typedef enum outcome { FLUSHED, SUBNORMAL, NORMAL, OVERFLOWED, OUTCOMES } outcome;

static const char *const outcome_keys[OUTCOMES] = {"flushed", "subnormal", "normal", "overflowed"};

/* What becomes of a finite non-zero value: product in fp32, then one rounding to the spacing of its binade.
 * rint() rounds half to even. Beyond the largest number nothing more is asked than on which side of it the
 * rounded value lies. */
static outcome cast(const oracle_format *f, float value, float scale) {
    float product = fabsf(value * scale);
    if (isinf(product)) return OVERFLOWED;
    if (product == 0) return FLUSHED;
    int exponent = ilogb((double)product);
    double spacing = ldexp(1.0, (exponent > f->emin ? exponent : f->emin) - f->precision + 1);
    double rounded = rint((double)product / spacing) * spacing;
    if (rounded == 0) return FLUSHED;
    if (rounded > f->largest) return OVERFLOWED;
    return rounded < ldexp(1.0, f->emin) ? SUBNORMAL : NORMAL;
}

static void count_casts(const oracle_format *f, const float *values, int n, int k, int64_t counts[OUTCOMES]) {
    memset(counts, 0, OUTCOMES * sizeof *counts);
    for (int i = 0; i < n; i++)
        if (isfinite(values[i]) && values[i] != 0) counts[cast(f, values[i], ldexpf(1, k))]++;
}

/* ---- values and files ------------------------------------------------------------------------ */

enum { MOST_VALUES = 60000 };

static uint32_t next_random(uint32_t *state) { return *state = *state * 1664525U + 1013904223U; }

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Every binade with the mantissas at which some format changes its mind and their neighbours, both signs by
 * turns, and zeros, infinities, nans and random patterns. */
static int hostile_values(float *values) {
    static const uint32_t mantissas[] = {0,        1,        0x80,     0x81,     0x400,    0x401,
                                         0x400000, 0x5FFFFF, 0x600000, 0x680000, 0x680001, 0x6FFFFF,
                                         0x700000, 0x7EFFFE, 0x7EFFFF, 0x7F0000, 0x7F7FFF, 0x7F8000,
                                         0x7FDFFF, 0x7FE000, 0x7FEFFF, 0x7FF000, 0x7FFFFE, 0x7FFFFF};
    int n = 0;
    uint32_t state = 1;
    for (uint32_t exponent = 0; exponent < 256; exponent++)
        for (size_t m = 0; m < AB_COUNT_OF(mantissas); m++)
            values[n++] = from_bits((uint32_t)(m & 1) << 31 | exponent << 23 | mantissas[m]);
    for (uint32_t bit = 1; bit < 0x800000; bit <<= 1) values[n++] = from_bits(bit + 1);
    while (n < 20000) values[n++] = from_bits(next_random(&state));
    return n;
}

static void put_member(bytes *header, bytes *data, const char *name, const char *dtype, const void *at, int n,
                       int width) {
    char entry[256];
    snprintf(entry, sizeof entry, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[%zu,%zu]}",
             header->size > 1 ? "," : "", name, dtype, n, data->size, data->size + (size_t)n * (size_t)width);
    put_text(header, entry);
    put(data, at, (size_t)n * (size_t)width);
}

static char path[] = "/tmp/ampbench_inspect_XXXXXX";

static void write_file(const bytes *header, const bytes *data) {
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    bytes length = {0};
    put_number(&length, header->size + 1, 8);
    assert_int_equal(fwrite(length.at, 1, 8, out), 8);
    assert_int_equal(fwrite(header->at, 1, header->size, out), header->size);
    fputc('}', out);
    if (data->size > 0) assert_int_equal(fwrite(data->at, 1, data->size, out), data->size);
    assert_int_equal(fclose(out), 0);
    bytes_free(&length);
}

/* A file of one fp32 tensor called "x". */
static void write_values(const float *values, int n) {
    bytes header = {0}, data = {0};
    put_text(&header, "{");
    put_member(&header, &data, "x", "F32", values, n, 4);
    write_file(&header, &data);
    bytes_free(&header);
    bytes_free(&data);
}

static const char *file_list[] = {path};

static ab_inspect_request usual_request(void) {
    return (ab_inspect_request){
        .file = file_list,
        .files = 1,
        .question = {.format = {&ab_format_fp16, &ab_format_bf16, &ab_format_fp8_e4m3, &ab_format_fp8_e5m2},
                     .formats = 4,
                     .scale = 1,
                     .goal = {0.001, 1, AB_FTZ_NONE, AB_INSPECT_MIN, AB_INSPECT_MAX}},
    };
}

/* Runs the request; the JSON text is the caller's. */
static char *run_json(const ab_inspect_request *request) {
    ab_inspect_selection selection;
    ab_inspect_result *result = malloc(sizeof *result);
    assert_non_null(result);
    char *text = NULL;
    size_t length = 0;
    FILE *json = open_memstream(&text, &length);
    assert_non_null(json);
    assert_int_equal(ab_inspect_select(request, &selection), AB_OK);
    assert_int_equal(ab_inspect_run(request, &selection, json, result), AB_OK);
    fclose(json);
    ab_inspect_result_free(result);
    ab_inspect_selection_free(&selection);
    free(result);
    return text;
}

static cJSON *run_parsed(const ab_inspect_request *request) {
    char *text = run_json(request);
    cJSON *document = cJSON_Parse(text);
    if (!document) fail_msg("not JSON: %.200s", text);
    free(text);
    return document;
}

static double number(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(item)) fail_msg("expected a number under \"%s\"", key);
    return item->valuedouble;
}

static const cJSON *member(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!item) fail_msg("expected \"%s\"", key);
    return item;
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* Every row of the tensor's what-if against casts one by one; also the advice, which the same casts decide.
 */
static void assert_whatif(const cJSON *tensor, const float *values, int n) {
    for (size_t f = 0; f < AB_COUNT_OF(oracles); f++) {
        const cJSON *row = NULL, *advice = member(member(tensor, "advice"), oracles[f].name);
        int k = AB_INSPECT_LOW;
        cJSON_ArrayForEach(row, member(member(tensor, "whatif"), oracles[f].name)) {
            int64_t counts[OUTCOMES], nonzero = 0;
            count_casts(&oracles[f], values, n, k, counts);
            assert_int_equal((int)number(row, "scale_log2"), k);
            for (int o = 0; o < OUTCOMES; o++) {
                if ((int64_t)number(row, outcome_keys[o]) != counts[o])
                    fail_msg("%s at 2^%d, %s: expected %lld, found %g", oracles[f].name, k, outcome_keys[o],
                             (long long)counts[o], number(row, outcome_keys[o]));
                nonzero += counts[o];
            }
            assert_int_equal(number(tensor, "nonzero_finite"), nonzero);
            const cJSON *lo = member(advice, "k_lo"), *hi = member(advice, "k_hi");
            bool above_lo = cJSON_IsNumber(lo) && k >= lo->valuedouble,
                 below_hi = cJSON_IsNumber(hi) && k <= hi->valuedouble;
            assert_int_equal(above_lo, counts[FLUSHED] * 1000 <= nonzero);
            assert_int_equal(below_hi, counts[OVERFLOWED] == 0);
            k++;
        }
        assert_int_equal(k, AB_INSPECT_HIGH + 1);
    }
}

static void assert_basics(const cJSON *tensor, const float *values, int n) {
    int64_t zero = 0, nan = 0, inf = 0;
    float least = INFINITY, most = 0;
    for (int i = 0; i < n; i++) {
        float m = fabsf(values[i]);
        zero += m == 0;
        nan += isnan(m) != 0;
        inf += isinf(m) != 0;
        if (!isfinite(m) || m == 0) continue;
        if (m < least) least = m;
        if (m > most) most = m;
    }
    assert_int_equal(number(tensor, "count"), n);
    assert_int_equal(number(tensor, "zero"), zero);
    assert_int_equal(number(tensor, "nan"), nan);
    assert_int_equal(number(tensor, "inf"), inf);
    assert_true(number(tensor, "min_abs") == (double)least ||
                fabs(number(tensor, "min_abs") / (double)least - 1) < 1e-8);
    assert_true((float)number(tensor, "max_abs") == most);
}

static void counts_equal_casts_done_one_by_one(void **state) {
    (void)state;
    float *values = malloc(MOST_VALUES * sizeof *values);
    assert_non_null(values);
    int n = hostile_values(values);
    write_values(values, n);
    ab_inspect_request request = usual_request();
    cJSON *document = run_parsed(&request);
    const cJSON *tensor = member(document, "tensors")->child;
    assert_basics(tensor, values, n);
    assert_whatif(tensor, values, n);
    cJSON_Delete(document);
    free(values);
}

/* Ranges narrow enough that each format has scales that suit, so that both ends of the advice are met. */
static void advice_is_right_to_the_last_scale(void **state) {
    (void)state;
    enum { COUNT = 3000 };
    float values[COUNT];
    uint32_t random = 7;
    for (int octaves = 1; octaves <= 40; octaves += 3) {
        for (int i = 0; i < COUNT; i++) {
            uint32_t bits = next_random(&random);
            values[i] =
                ldexpf(1 + (float)(bits >> 9) * 0x1p-23F, (int)(next_random(&random) >> 8) % octaves - 20);
        }
        values[0] =
            ldexpf(1.9990234375F, octaves); /* 65504/65536 * 2^...: the overflow of fp16 is within reach */
        values[1] = ldexpf(1.99951171875F, octaves);
        write_values(values, COUNT);
        ab_inspect_request request = usual_request();
        cJSON *document = run_parsed(&request);
        assert_whatif(member(document, "tensors")->child, values, COUNT);
        cJSON_Delete(document);
    }
}

static uint16_t half_codes[65536];

static void every_stored_type_is_counted_by_its_values(void **state) {
    (void)state;
    float *values = malloc(65536 * sizeof *values);
    double *wide = malloc(1000 * sizeof *wide);
    uint8_t bytes256[256];
    assert_non_null(values);
    assert_non_null(wide);
    for (int i = 0; i < 65536; i++) half_codes[i] = (uint16_t)i;
    for (int i = 0; i < 256; i++) bytes256[i] = (uint8_t)i;
    for (int i = 0; i < 1000; i++) wide[i] = ldexp(1 + i / 1000.0, i - 500);
    bytes header = {0}, data = {0};
    put_text(&header, "{");
    put_member(&header, &data, "F64", "F64", wide, 1000, 8);
    put_member(&header, &data, "F16", "F16", half_codes, 65536, 2);
    put_member(&header, &data, "BF16", "BF16", half_codes, 65536, 2);
    put_member(&header, &data, "E4M3", "F8_E4M3", bytes256, 256, 1);
    put_member(&header, &data, "E5M2", "F8_E5M2", bytes256, 256, 1);
    write_file(&header, &data);
    ab_inspect_request request = usual_request();
    cJSON *document = run_parsed(&request);
    const cJSON *tensor = NULL;
    static const struct {
        const char *name;
        const ab_format *format;
        int codes;
    } rows[] = {{"fp64", NULL, 1000},
                {"fp16", &ab_format_fp16, 65536},
                {"bf16", &ab_format_bf16, 65536},
                {"fp8_e4m3", &ab_format_fp8_e4m3, 256},
                {"fp8_e5m2", &ab_format_fp8_e5m2, 256}};
    size_t r = 0;
    cJSON_ArrayForEach(tensor, member(document, "tensors")) {
        assert_string_equal(member(tensor, "dtype")->valuestring, rows[r].name);
        for (int i = 0; i < rows[r].codes; i++)
            values[i] =
                rows[r].format ? (float)ab_format_decode(rows[r].format, (uint64_t)i) : (float)wide[i];
        assert_basics(tensor, values, rows[r].codes);
        assert_whatif(tensor, values, rows[r].codes);
        r++;
    }
    assert_int_equal(r, AB_COUNT_OF(rows));
    int64_t flushed = 0, overflowed = 0;
    for (int i = 0; i < 1000; i++) {
        flushed += (float)wide[i] == 0;
        overflowed += isinf((float)wide[i]) != 0;
    }
    assert_true(flushed > 0 && overflowed > 0);
    assert_int_equal(number(member(document, "tensors")->child, "load_flushed"), flushed);
    assert_int_equal(number(member(document, "tensors")->child, "load_overflowed"), overflowed);
    cJSON_Delete(document);
    bytes_free(&header);
    bytes_free(&data);
    free(values);
    free(wide);
}

static void a_scale_that_is_no_power_of_two_gives_bounds_that_hold(void **state) {
    (void)state;
    float *values = malloc(MOST_VALUES * sizeof *values);
    assert_non_null(values);
    int n = hostile_values(values);
    write_values(values, n);
    static const float scales[] = {3, 1000, 0.1F, 65504};
    for (size_t s = 0; s < AB_COUNT_OF(scales); s++) {
        ab_inspect_request request = usual_request();
        request.question.scale = scales[s];
        cJSON *document = run_parsed(&request);
        const cJSON *at_scale = member(member(document, "tensors")->child, "at_scale");
        for (size_t f = 0; f < AB_COUNT_OF(oracles); f++) {
            const cJSON *found = member(at_scale, oracles[f].name);
            int64_t counts[OUTCOMES] = {0};
            for (int i = 0; i < n; i++)
                if (isfinite(values[i]) && values[i] != 0) counts[cast(&oracles[f], values[i], scales[s])]++;
            for (int o = 0; o < OUTCOMES; o++) {
                const cJSON *range = member(found, outcome_keys[o]);
                bool pair = cJSON_IsArray(range);
                double low = pair ? cJSON_GetArrayItem(range, 0)->valuedouble : range->valuedouble;
                double high = pair ? cJSON_GetArrayItem(range, 1)->valuedouble : range->valuedouble;
                assert_true(low <= (double)counts[o] && (double)counts[o] <= high);
            }
        }
        cJSON_Delete(document);
    }
    free(values);
}

/* ---- what may not matter --------------------------------------------------------------------- */

static void results_do_not_depend_on_the_number_of_threads(void **state) {
    (void)state;
    enum { COUNT = 3 * AB_TENSORFILE_BLOCK + 77 };
    float *values = malloc(COUNT * sizeof *values);
    assert_non_null(values);
    uint32_t random = 3;
    for (int i = 0; i < COUNT; i++) values[i] = from_bits(next_random(&random));
    write_values(values, COUNT);
    ab_inspect_request request = usual_request();
    char *one = run_json(&request);
    for (int threads = 2; threads <= 5; threads++) {
        assert_int_equal(ab_parallel_start(threads), AB_OK);
        char *more = run_json(&request);
        assert_string_equal(one, more);
        free(more);
    }
    ab_parallel_stop();
    free(one);
    free(values);
}

static void byte_order_packing_and_container_do_not_matter(void **state) {
    (void)state;
    static const char *const files[] = {"npy/v1.npy", "npy/v3.npy", "npy/big_endian.npy", "npz/deflated.npz",
                                        "npz/stored.npz"};
    char *expected = NULL;
    for (size_t i = 0; i < AB_COUNT_OF(files); i++) {
        char full[256];
        snprintf(full, sizeof full, AB_CORPUS_DIR "/%s", files[i]);
        const char *list[] = {full}, *pattern[] = {"x"};
        ab_inspect_request request = usual_request();
        request.file = list;
        request.pattern = pattern;
        request.patterns = strstr(full, "npz") != NULL; /* there it is one of several */
        cJSON *document = run_parsed(&request);
        const cJSON *tensor = member(document, "tensors")->child;
        assert_int_equal(number(tensor, "count"), 6);
        char *whatif = cJSON_PrintUnformatted(member(tensor, "whatif"));
        if (!expected) expected = strdup(whatif);
        assert_string_equal(whatif, expected);
        free(whatif);
        cJSON_Delete(document);
    }
    free(expected);
}

/* ---- several tensors ------------------------------------------------------------------------- */

/* small: 2^-30 .. 2^-28; large: 2^9; zeros: nothing; ids: integers; "a\"\n": a hostile name. */
static void write_several(void) {
    const float small[3] = {0x1p-30F, 0x1p-29F, 0x1.8p-29F}, large[2] = {512, -500}, zeros[2] = {0, -0.0F};
    const int64_t ids[1] = {5};
    bytes header = {0}, data = {0};
    put_text(&header, "{");
    put_member(&header, &data, "layer1.small", "F32", small, 3, 4);
    put_member(&header, &data, "layer2.large", "F32", large, 2, 4);
    put_member(&header, &data, "zeros", "F32", zeros, 2, 4);
    put_member(&header, &data, "ids", "I64", ids, 1, 8);
    put_member(&header, &data, "a\\\"\\n\\u001b[31m", "F32", large, 2, 4);
    write_file(&header, &data);
    bytes_free(&header);
    bytes_free(&data);
}

static void one_scale_for_all_is_decided_by_the_named_tensors(void **state) {
    (void)state;
    write_several();
    ab_inspect_request request = usual_request();
    cJSON *document = run_parsed(&request);
    const cJSON *fp16 = member(member(document, "advice"), "fp16"), *skipped = member(document, "skipped");
    assert_int_equal(number(fp16, "k_lo"), 6); /* 2^-30 * 2^5 is the tie, 2^-25 */
    assert_int_equal(number(fp16, "k_hi"), 6); /* 512 * 2^7 = 65536 overflows */
    assert_string_equal(member(fp16, "k_lo_decided_by")->valuestring, "layer1.small");
    assert_string_equal(member(fp16, "k_hi_decided_by")->valuestring, "layer2.large");
    assert_true(cJSON_IsTrue(member(fp16, "feasible")));
    const cJSON *e4m3 = member(member(document, "advice"), "fp8_e4m3");
    assert_true(cJSON_IsFalse(member(e4m3, "feasible")));
    assert_int_equal(number(e4m3, "k_lo"), 21);
    assert_int_equal((int)number(e4m3, "k_hi"), -1);
    assert_int_equal(cJSON_GetArraySize(skipped), 1);
    assert_string_equal(member(skipped->child, "dtype")->valuestring, "int64");
    assert_string_equal(member(skipped->child, "stored_as")->valuestring, "I64");
    const cJSON *zeros = cJSON_GetArrayItem(member(document, "tensors"), 2);
    assert_true(cJSON_IsNull(member(zeros, "min_abs")));
    assert_true(cJSON_IsTrue(member(member(member(zeros, "advice"), "fp16"), "vacuous")));
    assert_string_equal(member(cJSON_GetArrayItem(member(document, "tensors"), 3), "name")->valuestring,
                        "a\"\n\33[31m");
    cJSON_Delete(document);
}

static void patterns_choose_and_a_wrong_one_gets_near_names(void **state) {
    (void)state;
    write_several();
    static const struct {
        const char *pattern;
        int tensors;
    } rows[] = {{"layer*", 2}, {"layer?.s*", 1}, {"*", 4}, {"zeros", 1}};
    ab_inspect_request request = usual_request();
    ab_inspect_selection selection;
    const char *pattern[2];
    request.pattern = pattern;
    request.patterns = 1;
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        pattern[0] = rows[i].pattern;
        assert_int_equal(ab_inspect_select(&request, &selection), AB_OK);
        assert_int_equal(selection.picks, rows[i].tensors);
        ab_inspect_selection_free(&selection);
    }
    pattern[0] = "layer1.smal";
    assert_int_equal(ab_inspect_select(&request, &selection), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "\"layer1.smal\" among 5; nearest: layer1.small"));
    ab_inspect_selection_free(&selection);
    pattern[0] = "ids";
    assert_int_equal(ab_inspect_select(&request, &selection), AB_INPUT);
    assert_non_null(
        strstr(ab_error_message(), "expected floating-point tensors, found only others (\"ids\" is I64)"));
    ab_inspect_selection_free(&selection);
    pattern[0] = "zeros";
    pattern[1] = "nothing like it";
    request.patterns = 2;
    assert_int_equal(ab_inspect_select(&request, &selection), AB_CONFIG);
    ab_inspect_selection_free(&selection);
}

/* ---- for people ------------------------------------------------------------------------------ */

static char *printed(const ab_inspect_request *request, bool color) {
    ab_inspect_selection selection;
    ab_inspect_result *result = malloc(sizeof *result);
    assert_non_null(result);
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    assert_int_equal(ab_inspect_select(request, &selection), AB_OK);
    assert_int_equal(ab_inspect_run(request, &selection, NULL, result), AB_OK);
    ab_inspect_print(out, result, color);
    fclose(out);
    ab_inspect_result_free(result);
    ab_inspect_selection_free(&selection);
    free(result);
    return text;
}

static void the_text_marks_the_limits_and_names_who_decides(void **state) {
    (void)state;
    write_several();
    ab_inspect_request request = usual_request();
    char *text = printed(&request, false);
    static const char *const parts[] = {
        "4 tensors in 1 file: 9 values",      "ids is I64", "65520 and more overflow",
        "2^-25 and less are flushed to zero", "2^6",        "layer1.small needs 2^6",
        "layer2.large overflows at 2^7"};
    for (size_t i = 0; i < AB_COUNT_OF(parts); i++)
        if (!strstr(text, parts[i])) fail_msg("expected \"%s\" in\n%s", parts[i], text);
    assert_null(strchr(text, '\33')); /* neither colours nor what a tensor's name would bring in */
    free(text);
    text = printed(&request, true);
    assert_non_null(strstr(text, "\33[0m"));
    free(text);
}

static void extreme_histograms_are_printed_in_good_order(void **state) {
    (void)state;
    const float values[4] = {0x1p-149F, 0x1.fffffep127F, 1, INFINITY};
    static const ab_format *const formats[] = {&ab_format_fp16, &ab_format_bf16, &ab_format_fp32,
                                               &ab_format_fp8_e5m2};
    write_values(values, 4);
    for (size_t i = 0; i < AB_COUNT_OF(formats); i++) {
        ab_inspect_request request = usual_request();
        request.question.format[0] = formats[i];
        request.question.formats = 1;
        char *text = printed(&request, false);
        assert_non_null(strstr(text, "2^127"));
        assert_non_null(strstr(text, "2^-149"));
        free(text);
    }
}

static int make_file(void **state) {
    (void)state;
    int handle = mkstemp(path);
    return handle < 0 ? -1 : close(handle);
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_equal_casts_done_one_by_one),
        cmocka_unit_test(advice_is_right_to_the_last_scale),
        cmocka_unit_test(every_stored_type_is_counted_by_its_values),
        cmocka_unit_test(a_scale_that_is_no_power_of_two_gives_bounds_that_hold),
        cmocka_unit_test(results_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(byte_order_packing_and_container_do_not_matter),
        cmocka_unit_test(one_scale_for_all_is_decided_by_the_named_tensors),
        cmocka_unit_test(patterns_choose_and_a_wrong_one_gets_near_names),
        cmocka_unit_test(the_text_marks_the_limits_and_names_who_decides),
        cmocka_unit_test(extreme_histograms_are_printed_in_good_order),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
