/* Tables over the codes of half formats; see by_code.h. */
#include "kernels/ops/elementwise/by_code.h"

#include "kernels/core/subnormals.h"
#include "kernels/format/convert.h"

#include <pthread.h>
#include <string.h>

/* Elements: of a tensor that is worth a table; of a piece, which stays in the L1 cache beside a table's most
 * used part. */
enum { LEAST = 4096, PIECE = 512 };

/* Of a tensor whose values are looked up: 0 fp16, 1 bf16; -1: none. */
static int table_of(const ab_exec *exec, const ab_tensor *x) {
    const int index = x->format == &ab_format_fp16 ? 0 : x->format == &ab_format_bf16 ? 1 : -1;
    const bool computed =
        exec->observer || ab_tensor_count(x) < LEAST || ab_subnormals_mode() != AB_SUBNORMALS_KEPT;
    return computed ? -1 : index;
}

/* ---- filling --------------------------------------------------------------------------------- */

static void values_of_codes(float *x, const ab_format *format, int64_t first) {
    uint16_t code[PIECE];
    for (int i = 0; i < PIECE; i++) code[i] = (uint16_t)(first + i);
    ab_widen(x, code, format, PIECE);
}

static void fill_values(uint16_t *to, const ab_format *format, ab_map value) {
    float x[PIECE], y[PIECE];
    for (int64_t first = 0; first < AB_CODES; first += PIECE) {
        values_of_codes(x, format, first);
        value(y, x, NULL, PIECE);
        ab_narrow(to + first, format, y, PIECE);
    }
}

static void fill_slopes(float *to, const ab_format *format, ab_map slope) {
    float x[PIECE], one[PIECE];
    for (int i = 0; i < PIECE; i++) one[i] = 1.0f;
    for (int64_t first = 0; first < AB_CODES; first += PIECE) {
        values_of_codes(x, format, first);
        slope(to + first, x, one, PIECE);
    }
}

/* Fills a table once, whoever comes first. */
static void ensure(bool *has, ab_code_tables *tables, int index, ab_map f, bool slopes) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const ab_format *format = index ? &ab_format_bf16 : &ab_format_fp16;
    if (__atomic_load_n(has, __ATOMIC_ACQUIRE)) return;
    pthread_mutex_lock(&lock);
    if (!*has && slopes) fill_slopes(tables->slope[index], format, f);
    if (!*has && !slopes) fill_values(tables->value[index], format, f);
    __atomic_store_n(has, true, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

/* ---- looking up ------------------------------------------------------------------------------ */

typedef struct lookup_job {
    const ab_exec *exec;
    ab_tensor *dst;
    const ab_tensor *x, *dout;
    const uint16_t *value;
    const float *slope;
} lookup_job;

static int64_t block_length(const lookup_job *job, int64_t at) {
    return ab_min64(AB_BLOCK, ab_tensor_count(job->dst) - at);
}

static void value_block(void *argument, int64_t chunk, int thread) {
    const lookup_job *job = argument;
    const int64_t at = chunk * AB_BLOCK;
    (void)thread;
    ab_look_up_codes((uint16_t *)job->dst->data + at, (const uint16_t *)job->x->data + at, job->value,
                     block_length(job, at));
}

static void look_up_slopes(float *AB_RESTRICT to, const uint16_t *AB_RESTRICT from,
                           const float *AB_RESTRICT slope, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = slope[from[i]];
}

static void multiply_piece(const lookup_job *job, int64_t at, const float *slope, int64_t n) {
    float buffer[PIECE], result[PIECE];
    const ab_format *format = job->dst->format;
    if (ab_is_half(format) && job->dout->format == format) {
        ab_scale_halves((uint16_t *)job->dst->data + at, format, (const uint16_t *)job->dout->data + at,
                        slope, n);
        return;
    }
    const float *dout = ab_read(job->dout, at, n, buffer);
    float *din = ab_target(job->dst, at, result);
    for (int64_t i = 0; i < n; i++) din[i] = dout[i] * slope[i];
    ab_emit(job->exec, job->dst, at, din, n);
}

static void slope_block(void *argument, int64_t chunk, int thread) {
    const lookup_job *job = argument;
    const int64_t first = chunk * AB_BLOCK, end = first + block_length(job, first);
    _Alignas(AB_ALIGN) float slope[PIECE];
    (void)thread;
    for (int64_t at = first; at < end; at += PIECE) {
        const int64_t n = ab_min64(PIECE, end - at);
        look_up_slopes(slope, (const uint16_t *)job->x->data + at, job->slope, n);
        multiply_piece(job, at, slope, n);
    }
}

void ab_values_by_code(const ab_exec *exec, const ab_op_io *io, ab_code_tables *tables, ab_map value) {
    const int index = io->out->format == io->in[0]->format ? table_of(exec, io->in[0]) : -1;
    if (index < 0) {
        ab_map_tensors(exec, io->out, value, io->in[0], NULL);
        return;
    }
    const int64_t n = ab_tensor_count(io->out);
    ensure(&tables->has_values[index], tables, index, value, false);
    lookup_job job = {.exec = exec, .dst = io->out, .x = io->in[0], .value = tables->value[index]};
    ab_for_chunks(n, ab_div_up(n, AB_BLOCK), value_block, &job);
}

void ab_slopes_by_code(const ab_exec *exec, const ab_op_io *io, ab_code_tables *tables, ab_map slope) {
    if (!io->din[0]) return;
    const int index = table_of(exec, io->in[0]);
    if (index < 0) {
        ab_map_tensors(exec, io->din[0], slope, io->in[0], io->dout);
        return;
    }
    const int64_t n = ab_tensor_count(io->din[0]);
    ensure(&tables->has_slopes[index], tables, index, slope, true);
    lookup_job job = {
        .exec = exec, .dst = io->din[0], .x = io->in[0], .dout = io->dout, .slope = tables->slope[index]};
    ab_for_chunks(n, ab_div_up(n, AB_BLOCK), slope_block, &job);
}
