/* Products are those of linear, through the code that trains, and the library's, whichever are faster; copies
 * are memcpy in chunks, shared out as kernels are. */
#include "bench/profile/limits.h"

#include "bench/profile/round_trip.h"
#include "bench/timer/timer.h"
#include "kernels/core/device.h"
#include "kernels/core/parallel.h"
#include "kernels/core/rng.h"
#include "kernels/format/convert.h"
#include "kernels/format/halves.h"
#include "kernels/ops/product/square.h"
#include "kernels/vec/vec_math.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_ATTEMPTS = 3, CHUNK = 32 << 10 }; /* values */

/* ---- products -------------------------------------------------------------------------------- */

/* Small enough that some attempts are not interrupted on a busy machine, large enough to be near the limit.
 */
static const int64_t sides[] = {256, 512};

typedef struct product {
    int64_t side;
    _Alignas(16) unsigned char attrs[64];
    ab_exec exec;
    ab_op_io io;
    ab_tensor in, weight, out;
    void *workspace, *state;
} product;

static void set_attr(unsigned char *attrs, const char *name, int64_t value) {
    for (const ab_attr *a = ab_op_linear.attrs; a->name; a++) {
        const bool truth = value != 0;
        if (strcmp(a->name, name) != 0) continue;
        if (a->kind == AB_ATTR_BOOL)
            memcpy(attrs + a->offset, &truth, sizeof truth);
        else
            memcpy(attrs + a->offset, &value, sizeof value);
    }
}

/* A square of small numbers; their sums stay within every format. */
static ab_status fill(ab_tensor *tensor, int64_t side, const ab_format *format) {
    *tensor = (ab_tensor){
        .shape = {.ndim = 2, .dim = {side, side}}, .format = format, .device = &ab_device_cpu, .id = -1};
    return ab_square_matrix(side, format, &tensor->data);
}

static ab_status open_product(product *p, const ab_format *format, ab_cpu_path path) {
    size_t workspace = 0, state = 0;
    p->exec = (ab_exec){.path = path};
    set_attr(p->attrs, "out_features", p->side);
    set_attr(p->attrs, "bias", 0);
    AB_TRY(fill(&p->in, p->side, format));
    AB_TRY(fill(&p->weight, p->side, format));
    AB_TRY(fill(&p->out, p->side, format));
    p->io = (ab_op_io){
        .op = &ab_op_linear, .attrs = p->attrs, .in = {&p->in}, .out = &p->out, .params_version = 1};
    p->io.param[0] = &p->weight;
    AB_TRY(ab_op_linear.prepare(&p->exec, &p->io, &workspace, &state));
    AB_TRY(ab_device_cpu.alloc(workspace, &p->workspace));
    AB_TRY(ab_device_cpu.alloc(state, &p->state));
    p->exec.workspace = p->workspace;
    p->exec.workspace_bytes = workspace;
    if (ab_op_linear.bind) ab_op_linear.bind(&p->io, p->state);
    return AB_OK;
}

static void close_product(product *p) {
    void *blocks[] = {p->in.data, p->weight.data, p->out.data, p->workspace, p->state};
    if (ab_op_linear.release) ab_op_linear.release(&p->io);
    for (size_t i = 0; i < AB_COUNT_OF(blocks); i++) free(blocks[i]);
}

static ab_status run_product(void *context) {
    product *p = context;
    return ab_op_linear.forward(&p->exec, &p->io);
}

static ab_status run_square(void *context) { return ab_square_run(context); }

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct block {
    float *memory;
    int64_t count, half; /* values of the working set */
    const ab_vec_math *math;
} block;

static int64_t chunk_values(int64_t first, int64_t all) { return all - first < CHUNK ? all - first : CHUNK; }

static void copy_chunk(void *argument, int64_t chunk, int thread) {
    const block *b = argument;
    const int64_t first = chunk * CHUNK;
    (void)thread;
    b->math->affine(b->memory + b->half + first, b->memory + first, 1, 0, chunk_values(first, b->half));
}

static void read_chunk(void *argument, int64_t chunk, int thread) {
    const block *b = argument;
    const int64_t first = chunk * CHUNK;
    (void)thread;
    b->math->row_max(b->memory + first, chunk_values(first, b->count));
}

static void update_chunk(void *argument, int64_t chunk, int thread) {
    const block *b = argument;
    float *x = b->memory + chunk * CHUNK;
    (void)thread;
    b->math->affine(x, x, 1, 0, chunk_values(chunk * CHUNK, b->count));
}

static void for_block(int64_t count, void (*chunk)(void *argument, int64_t chunk, int thread), block *b) {
    ab_parallel_for((count + CHUNK - 1) / CHUNK, chunk, b);
}

static ab_status run_copy(void *context) {
    block *b = context;
    for_block(b->half, copy_chunk, b);
    return AB_OK;
}

static ab_status run_read(void *context) {
    block *b = context;
    for_block(b->count, read_chunk, b);
    return AB_OK;
}

static ab_status run_update(void *context) {
    block *b = context;
    for_block(b->count, update_chunk, b);
    return AB_OK;
}

/* ---- elementary functions -------------------------------------------------------------------- */

enum { PER_CHUNK = 2048, CHUNKS = 64 }; /* values: a chunk stays in the L1 cache */

typedef struct functions {
    void (*run)(float *out, const float *in, const float *unused, int64_t n);
    float in[PER_CHUNK], out[CHUNKS][PER_CHUNK];
} functions;

static void function_chunk(void *argument, int64_t chunk, int thread) {
    functions *f = argument;
    (void)thread;
    f->run(f->out[chunk], f->in, NULL, PER_CHUNK);
}

static ab_status run_functions(void *context) {
    ab_parallel_for(CHUNKS, function_chunk, context);
    return AB_OK;
}

/* Look-ups of 16-bit values by 16-bit codes. */
typedef struct lookups {
    uint16_t table[AB_CODES], code[PER_CHUNK], out[CHUNKS][PER_CHUNK];
} lookups;

static void lookup_chunk(void *argument, int64_t chunk, int thread) {
    lookups *l = argument;
    (void)thread;
    ab_look_up_codes(l->out[chunk], l->code, l->table, PER_CHUNK);
}

static ab_status run_lookups(void *context) {
    ab_parallel_for(CHUNKS, lookup_chunk, context);
    return AB_OK;
}

const char *ab_elementary_name(ab_elementary function) {
    static const char *const names[] = {"exp", "tanh", "erf"};
    return names[function];
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Seconds of the fastest run, after one that warms up. */
static ab_status fastest(ab_status (*run)(void *context), void *context, int64_t attempts_ns,
                         double *seconds) {
    AB_TRY(run(context));
    const int64_t begun = ab_monotonic_ns();
    int64_t least = INT64_MAX, now = begun;
    for (int i = 0; i < LEAST_ATTEMPTS || now - begun < attempts_ns; i++) {
        const int64_t before = ab_monotonic_ns();
        AB_TRY(run(context));
        now = ab_monotonic_ns();
        if (now - before < least) least = now - before;
    }
    *seconds = (double)(least > 0 ? least : 1) * 1e-9;
    return AB_OK;
}

static void note_product(int64_t side, double seconds, double *flops) {
    const double n = (double)side, rate = 2 * n * n * n / seconds;
    if (rate > *flops) *flops = rate;
}

/* The op packs weights every time; the library here does not, so where it computes the op's products it is
 * what these could reach. */
static ab_status measure_library(int64_t side, const ab_format *format, int64_t attempts_ns, double *flops) {
    ab_square *square;
    double seconds = 0;
    AB_TRY(ab_square_open(side, format, &square));
    if (!square) return AB_OK;
    ab_status status = fastest(run_square, square, attempts_ns, &seconds);
    if (status == AB_OK) note_product(side, seconds, flops);
    ab_square_close(square);
    return status;
}

static ab_status measure_product(int64_t side, const ab_format *format, ab_cpu_path path, int64_t attempts_ns,
                                 double *flops) {
    product p = {.side = side};
    double seconds = 0;
    ab_status status = open_product(&p, format, path);
    if (status == AB_OK) status = fastest(run_product, &p, attempts_ns, &seconds);
    if (status == AB_OK) note_product(side, seconds, flops);
    close_product(&p);
    if (status != AB_OK || path == AB_PATH_REFERENCE) return status;
    return measure_library(side, format, attempts_ns, flops);
}

static ab_status measure_functions(int64_t attempts_ns, ab_machine_limits *limits) {
    const ab_vec_math *vec = ab_vec_math_get();
    void *memory;
    AB_TRY(ab_device_cpu.alloc(sizeof(functions), &memory));
    functions *f = memory;
    for (int i = 0; i < PER_CHUNK; i++) f->in[i] = (float)(i % 401 - 200) / 64.0f;
    ab_status status = AB_OK;
    for (int i = 0; i < AB_ELEMENTARY_COUNT && status == AB_OK; i++) {
        double seconds = 1;
        f->run = i == AB_ELEMENTARY_EXP ? vec->exp : i == AB_ELEMENTARY_TANH ? vec->tanh : vec->gelu;
        status = fastest(run_functions, f, attempts_ns, &seconds);
        const double rate = (double)CHUNKS * PER_CHUNK / seconds;
        if (status == AB_OK && rate > limits->functions[i]) limits->functions[i] = rate;
    }
    free(memory);
    return status;
}

/* The codes are those of normal numbers in bf16: such spread is what activations have. */
static ab_status measure_lookups(int64_t attempts_ns, ab_machine_limits *limits) {
    double seconds = 1;
    float normal[PER_CHUNK];
    void *memory;
    AB_TRY(ab_device_cpu.alloc(sizeof(lookups), &memory));
    lookups *l = memory;
    for (int i = 0; i < AB_CODES; i++) l->table[i] = (uint16_t)~i;
    for (int i = 0; i < PER_CHUNK; i++) normal[i] = ab_rng_normal(1, AB_RNG_SYNTHETIC, 0, (uint64_t)i);
    ab_narrow(l->code, &ab_format_bf16, normal, PER_CHUNK);
    ab_status status = fastest(run_lookups, l, attempts_ns, &seconds);
    const double rate = (double)CHUNKS * PER_CHUNK / seconds;
    if (status == AB_OK && rate > limits->lookups) limits->lookups = rate;
    free(memory);
    return status;
}

static ab_status measure_moves(int64_t attempts_ns, ab_machine_limits *limits) {
    const size_t largest = (size_t)ab_machine_limits_size(AB_LIMIT_SIZES - 1);
    const struct {
        ab_status (*run)(void *context);
        double *rate, passes; /* over a working set */
    } ways[] = {{run_copy, limits->copied, 1}, {run_read, limits->read, 1}, {run_update, limits->updated, 2}};
    void *memory;
    AB_TRY(ab_device_cpu.alloc(largest, &memory));
    memset(memory, 1, largest);
    ab_status status = AB_OK;
    for (size_t w = 0; w < AB_COUNT_OF(ways); w++)
        for (int i = 0; i < AB_LIMIT_SIZES && status == AB_OK; i++) {
            const double bytes = ab_machine_limits_size(i);
            const int64_t count = (int64_t)bytes / (int64_t)sizeof(float);
            block b = {memory, count, count / 2, ab_vec_math_get()};
            double seconds = 1;
            status = fastest(ways[w].run, &b, attempts_ns / 10, &seconds);
            const double rate = ways[w].passes * bytes / seconds;
            if (status == AB_OK && rate > ways[w].rate[i]) ways[w].rate[i] = rate;
        }
    free(memory);
    return status;
}

ab_status ab_machine_limits_measure(unsigned formats, ab_cpu_path path, int64_t attempts_ns,
                                    ab_machine_limits *limits) {
    static const ab_format *const all[AB_LIMIT_FORMATS] = {&ab_format_fp32, &ab_format_fp16, &ab_format_bf16};
    for (int i = 0; i < AB_LIMIT_FORMATS; i++) {
        limits->format[i] = all[i];
        for (size_t s = 0; s < AB_COUNT_OF(sides) && formats >> i & 1u; s++)
            AB_TRY(measure_product(sides[s], all[i], path, attempts_ns, &limits->flops[i]));
    }
    const double trip = ab_round_trip_ns(attempts_ns);
    if (trip > 0 && (limits->round_trip_ns <= 0 || trip < limits->round_trip_ns))
        limits->round_trip_ns = trip;
    AB_TRY(measure_functions(attempts_ns, limits));
    AB_TRY(measure_lookups(attempts_ns, limits));
    return measure_moves(attempts_ns, limits);
}

double ab_machine_limits_product(const ab_machine_limits *limits, const ab_format *format) {
    double best = limits->flops[0];
    for (int i = 1; i < AB_LIMIT_FORMATS; i++)
        if (limits->format[i] == format && limits->flops[i] > best) best = limits->flops[i];
    return best;
}

double ab_machine_limits_functions(const ab_machine_limits *limits, const double count[AB_ELEMENTARY_COUNT]) {
    double seconds = 0;
    for (int i = 0; i < AB_ELEMENTARY_COUNT; i++)
        if (count[i] > 0 && limits->functions[i] > 0) seconds += count[i] / limits->functions[i];
    return seconds;
}

double ab_machine_limits_size(int i) { return 65536.0 * (double)(1 << i); }

int ab_machine_limits_holding(double distance) {
    int i = 0;
    while (i < AB_LIMIT_SIZES - 1 && ab_machine_limits_size(i + 1) <= distance) i++;
    return i;
}

double ab_machine_limits_memory(const ab_machine_limits *limits, const ab_traffic *traffic) {
    double seconds = 0;
    for (int i = 0; i < AB_LIMIT_SIZES; i++) {
        if (!(limits->copied[i] > 0 && limits->read[i] > 0 && limits->updated[i] > 0)) continue;
        const double write = fmax(2 / limits->copied[i] - 1 / limits->read[i], 0);
        seconds += traffic->read[i] / limits->read[i] + traffic->written[i] * write +
                   2 * traffic->updated[i] / limits->updated[i];
    }
    return seconds;
}
