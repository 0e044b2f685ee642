/* Event files: records with any length, broken ones, tensors as TensorFlow 2 writes them, and histograms
 * whose counts by exponent are off by no more than they say. */
#include "bench/ingest/log/format.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a writer ---------------------------------------------------------------------------------- */

typedef struct bytes {
    uint8_t at[1 << 16];
    size_t size;
} bytes;

static void put(bytes *b, const void *from, size_t size) {
    memcpy(b->at + b->size, from, size);
    b->size += size;
}

static void put_varint(bytes *b, uint64_t value) {
    for (; value >= 0x80; value >>= 7) b->at[b->size++] = (uint8_t)(value | 0x80);
    b->at[b->size++] = (uint8_t)value;
}

static void put_field(bytes *b, unsigned number, const bytes *inner) {
    put_varint(b, number << 3 | 2);
    put_varint(b, inner->size);
    put(b, inner->at, inner->size);
}

static void put_text(bytes *b, unsigned number, const char *text) {
    put_varint(b, number << 3 | 2);
    put_varint(b, strlen(text));
    put(b, text, strlen(text));
}

static void put_double(bytes *b, unsigned number, double value) {
    put_varint(b, number << 3 | 1);
    put(b, &value, 8);
}

/* CRC-32C by its definition as a division of polynomials, most significant bit first on reflected bytes. */
static uint32_t checksum(const uint8_t *at, size_t size) {
    uint32_t table[256], crc = ~0u;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++) table[i] = table[i] & 1 ? table[i] >> 1 ^ 0x82F63B78u : table[i] >> 1;
    }
    for (size_t i = 0; i < size; i++) crc = crc >> 8 ^ table[(crc ^ at[i]) & 0xFF];
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static void put_record(bytes *b, const bytes *event) {
    const uint64_t length = event->size;
    uint8_t header[8];
    memcpy(header, &length, 8);
    const uint32_t crc = checksum(header, 8), end = checksum(event->at, event->size);
    put(b, header, 8);
    put(b, &crc, 4);
    put(b, event->at, event->size);
    put(b, &end, 4);
}

static void put_event(bytes *b, uint64_t step, const bytes *value) {
    static bytes event, summary;
    event.size = summary.size = 0;
    put_field(&summary, 1, value);
    put_double(&event, 1, 1.7e9);
    put_varint(&event, 2 << 3);
    put_varint(&event, step);
    put_field(&event, 5, &summary);
    put_record(b, &event);
}

static void put_scalar(bytes *b, uint64_t step, const char *tag, float x) {
    static bytes value;
    value.size = 0;
    put_text(&value, 1, tag);
    put_varint(&value, 2 << 3 | 5);
    put(&value, &x, 4);
    put_event(b, step, &value);
}

/* ---- tests ------------------------------------------------------------------------------------- */

static void scalars_of_a_step_are_one_point(void **state) {
    (void)state;
    static bytes file;
    static bytes value, tensor;
    file.size = value.size = tensor.size = 0;
    put_scalar(&file, 1, "train/loss", 2.5F);
    put_scalar(&file, 1, "Train/Samples/loss_scale", 65536);
    put_scalar(&file, 1, "eval/loss", 9);
    put_scalar(&file, 2, "train/loss", (float)NAN);
    const float x = 32768; /* a TensorProto with its bytes in tensor_content */
    put_varint(&tensor, 1 << 3);
    put_varint(&tensor, 1);
    put_varint(&tensor, 4 << 3 | 2);
    put_varint(&tensor, 4);
    put(&tensor, &x, 4);
    put_text(&value, 1, "loss_scale");
    put_field(&value, 8, &tensor);
    put_event(&file, 2, &value);
    ab_log log = {.points = 0};
    assert_int_equal(ab_log_read_bytes(&log, "e", file.at, file.size), AB_OK);
    assert_string_equal(log.reader, "events");
    assert_int_equal(log.points, 2);
    assert_true(log.point[0].value[AB_LOG_loss] == 2.5 && log.point[0].value[AB_LOG_scale] == 65536);
    assert_true(isnan(log.point[1].value[AB_LOG_loss]) && log.point[1].value[AB_LOG_scale] == 32768);
    ab_log_free(&log);
    /* cut anywhere: what is complete is read; a header that was changed is refused */
    for (size_t size = 1; size < file.size; size += 7) {
        const ab_status status = ab_log_read_bytes(&log, "e", file.at, size);
        assert_true(status == AB_OK || status == AB_INPUT);
        ab_log_free(&log);
    }
    file.at[file.size - 100] ^= 1;
    file.at[0] ^= 1;
    assert_int_equal(ab_log_read_bytes(&log, "e", file.at, file.size), AB_INPUT);
    ab_log_free(&log);
}

/* Magnitudes spread over many octaves, both signs, in torch's bins. */
static void exponents_are_within_their_error(void **state) {
    (void)state;
    enum { VALUES = 3000 };
    static bytes file, histogram, value, limits, counts;
    static double edge[2000], count[2000];
    double exact[AB_LOG_EXPONENTS] = {0}, v;
    int edges = 0;
    for (v = 1e-12; v < 1e6; v *= 1.1) edge[edges++] = v;
    const int half = edges;
    for (int i = 0; i < half; i++) edge[half + 1 + i] = edge[i];
    edge[half] = 0;
    for (int i = 0; i < half; i++) edge[i] = -edge[half + 1 + (half - 1 - i)];
    edges = 2 * half + 1;
    for (int i = 0; i < VALUES; i++) {
        const double x = (i % 2 ? -1 : 1) * exp2(-30 + 40.0 * i / VALUES);
        exact[ilogb(x) - AB_LOG_EXPONENT_LOW]++;
        for (int k = 1; k < edges; k++)
            if (edge[k - 1] <= x && x < edge[k]) count[k]++;
    }
    file.size = histogram.size = value.size = limits.size = counts.size = 0;
    put(&limits, edge, (size_t)edges * 8);
    put(&counts, count, (size_t)edges * 8);
    put_double(&histogram, 1, -3);
    put_double(&histogram, 2, 5);
    put_double(&histogram, 3, VALUES);
    put_field(&histogram, 6, &limits);
    put_field(&histogram, 7, &counts);
    put_text(&value, 1, "grads");
    put_field(&value, 5, &histogram);
    put_event(&file, 7, &value);
    ab_log log = {.points = 0};
    assert_int_equal(ab_log_read_bytes(&log, "e", file.at, file.size), AB_OK);
    assert_int_equal(log.histograms, 1);
    const ab_log_histogram *h = &log.histogram[0];
    double sum = h->below, worst = 0;
    assert_true(h->exponential && h->min == -3 && h->max == 5 && h->step == 7);
    for (int e = 0; e < AB_LOG_EXPONENTS; e++) {
        sum += h->count[e];
        worst = fmax(worst, fabs(h->count[e] - exact[e]));
    }
    assert_true(fabs(sum - VALUES) < 1e-6 && h->below == 0);
    assert_true(worst > 0 && worst <= h->straddling && worst < 12); /* 75 an octave, 10 a bin */
    ab_log_free(&log);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_of_a_step_are_one_point),
        cmocka_unit_test(exponents_are_within_their_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
