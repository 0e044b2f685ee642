/* ampbench_census_bench: speed of the census at every CPU level compared with only reading the same memory,
 * on one thread. Levels alternate in every round, so that other load affects all equally. Reports the median
 * and the maximum over the rounds; the share of read bandwidth is the median of the shares per round. Does
 * not check results: the tests do. */
#include "kernels/census/census.h"
#include "kernels/core/rng.h"
#include "kernels/format/convert.h"
#include "kernels/vec/isa.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LEVELS = AB_ISA_AVX512_BITALG + 1,
    READ = LEVELS, /* the row that only reads */
    RUNNERS,
    MAX_ROUNDS = 101,
    PATTERN = 1 << 20, /* values drawn; repeated to fill the memory */
    CACHED = 256 << 10 /* bytes */
};

static const char usage[] =
    "usage: ampbench_census_bench [--mib N] [--rounds N] [--data NAME,...|all] [--format NAME,...|all]\n"
    "  --mib     size of the array that does not fit a cache; default 256\n"
    "  --rounds  default 9\n"
    "  --data    gradients, rectified (both by default), wide, bf16, constant\n"
    "  --format  fp32, fp16, bf16 (all by default)\n";

/* ---- data ------------------------------------------------------------------------------------ */

static double normal(uint64_t i) {
    ab_rng_block b = ab_rng_at(1, AB_RNG_SAMPLE, 0, i);
    double u = (b.word[0] + 0.5) * 0x1p-32, v = b.word[1] * 0x1p-32;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

static float gradient(uint64_t i) { return (float)(1e-3 * normal(i)); }
static float rectified(uint64_t i) { return fmaxf(gradient(i), 0.0f); }
static float wide(uint64_t i) { return (float)exp2(3.0 * normal(i) - 20.0); }
static float constant(uint64_t i) { return i < UINT64_MAX ? 0.37f : 0.0f; }

static float bf16_gradient(uint64_t i) {
    float x = gradient(i);
    uint16_t code = 0;
    ab_narrow(&code, &ab_format_bf16, &x, 1);
    ab_widen(&x, &code, &ab_format_bf16, 1);
    return x;
}

typedef struct kind {
    const char *name;
    float (*value)(uint64_t i);
} kind;

static const kind kinds[] = {{"gradients", gradient},
                             {"rectified", rectified},
                             {"wide", wide},
                             {"bf16", bf16_gradient},
                             {"constant", constant}};
static const ab_format *const formats[] = {&ab_format_fp32, &ab_format_fp16, &ab_format_bf16};

/* Fills the memory by repeating the pattern. */
static void fill(unsigned char *memory, size_t bytes, const kind *k, const ab_format *format,
                 float *pattern) {
    size_t length = ab_format_bytes(format, PATTERN);
    for (uint64_t i = 0; i < PATTERN; i++) pattern[i] = k->value(i);
    ab_narrow(memory, format, pattern, PATTERN);
    for (size_t done = length; done < bytes; done += length)
        memcpy(memory + done, memory, bytes - done < length ? bytes - done : length);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static volatile uint64_t sink;
static ab_census census;

/* CPU time: other load on the machine does not affect the results. */
static double now(void) { return (double)clock() / CLOCKS_PER_SEC; }

static void read_only(const unsigned char *memory, size_t bytes) {
    enum { LANES = 32 };
    const uint64_t *words = (const uint64_t *)(const void *)memory;
    uint64_t any[LANES] = {0};
    for (size_t i = 0; i < bytes / sizeof any; i++)
        for (size_t j = 0; j < LANES; j++) any[j] |= words[i * LANES + j];
    for (size_t j = 0; j < LANES; j++) sink |= any[j];
}

typedef struct job {
    const unsigned char *memory;
    size_t bytes;
    const ab_format *format;
    int passes; /* of one measurement */
} job;

/* GB/s of one runner: a level, or READ. */
static double speed_of(const job *j, int runner) {
    int64_t n = (int64_t)(j->bytes / ab_format_bytes(j->format, 1));
    double start = now();
    for (int i = 0; i < j->passes; i++) {
        if (runner == READ)
            read_only(j->memory, j->bytes);
        else
            ab_census_add_stored(&census, j->memory, j->format, n);
    }
    return (double)j->bytes * j->passes / (now() - start) * 1e-9;
}

static double best(const double *values, int n) {
    double most = values[0];
    for (int i = 1; i < n; i++) most = fmax(most, values[i]);
    return most;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof values[0], ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2.0;
}

/* Round 0 is warm-up and is not counted. */
static ab_status measure(const job *j, int rounds, double speed[RUNNERS][MAX_ROUNDS]) {
    for (int round = 0; round <= rounds; round++) {
        for (int turn = 0; turn < RUNNERS; turn++) {
            int runner = (turn + round) % RUNNERS;
            if (runner != READ && runner > (int)ab_isa_best()) continue;
            if (runner != READ) AB_TRY(ab_isa_force((ab_isa)runner));
            double s = speed_of(j, runner);
            if (round > 0) speed[runner][round - 1] = s;
        }
    }
    return AB_OK;
}

static ab_status report(const job *j, const kind *k, int rounds) {
    static double speed[RUNNERS][MAX_ROUNDS], share[RUNNERS][MAX_ROUNDS];
    AB_TRY(measure(j, rounds, speed));
    for (int level = 0; level <= (int)ab_isa_best(); level++)
        for (int r = 0; r < rounds; r++) share[level][r] = speed[level][r] / speed[READ][r];
    printf("%-10s %-5s %5zu %s %7.2f", k->name, j->format->name, j->bytes >> (j->bytes < 1 << 20 ? 10 : 20),
           j->bytes < 1 << 20 ? "KiB" : "MiB", median(speed[READ], rounds));
    for (int level = 0; level <= (int)ab_isa_best(); level++)
        printf("  %6.2f %6.2f %3.0f %%", median(speed[level], rounds), best(speed[level], rounds),
               100.0 * median(share[level], rounds));
    printf("\n");
    fflush(stdout);
    return AB_OK;
}

static void print_heading(int rounds) {
    printf("census on one thread: median and best GB/s, share of read bandwidth; %d interleaved rounds\n",
           rounds);
    printf("%-10s %-5s %9s %7s", "data", "type", "size", "read");
    for (int level = 0; level <= (int)ab_isa_best(); level++) printf("  %19s", ab_isa_name((ab_isa)level));
    printf("\n");
}

/* ---- the program ----------------------------------------------------------------------------- */

typedef struct request {
    int mib, rounds;
    const char *data, *format;
} request;

/* Whether `name` is one of the names between commas, or all are wanted. */
static bool chosen(const char *wanted, const char *name) {
    size_t length = strlen(name);
    if (strcmp(wanted, "all") == 0) return true;
    for (const char *at = wanted; at != NULL; at = strchr(at, ','), at += at != NULL)
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) return true;
    return false;
}

static ab_status run(const request *q, unsigned char *memory, float *pattern) {
    size_t bytes = (size_t)q->mib << 20;
    int done = 0;
    print_heading(q->rounds);
    for (size_t k = 0; k < AB_COUNT_OF(kinds); k++) {
        for (size_t f = 0; f < AB_COUNT_OF(formats); f++) {
            if (!chosen(q->data, kinds[k].name) || !chosen(q->format, formats[f]->name)) continue;
            const job cached = {memory, CACHED, formats[f], 100}, large = {memory, bytes, formats[f], 1};
            fill(memory, bytes, &kinds[k], formats[f], pattern);
            AB_TRY(report(&cached, &kinds[k], q->rounds));
            AB_TRY(report(&large, &kinds[k], q->rounds));
            done++;
        }
    }
    return done > 0 ? AB_OK : ab_fail(AB_USAGE, "no such data or format\n%s", usage);
}

static ab_status parse(int argc, char **argv, request *q) {
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--mib") == 0)
            q->mib = (int)strtol(value, NULL, 10);
        else if (strcmp(argv[i], "--rounds") == 0)
            q->rounds = (int)strtol(value, NULL, 10);
        else if (strcmp(argv[i], "--data") == 0)
            q->data = value;
        else if (strcmp(argv[i], "--format") == 0)
            q->format = value;
        else
            return ab_fail(AB_USAGE, "%s", usage);
    }
    if (q->mib < 8 || q->mib > 65536)
        return ab_fail(AB_USAGE, "--mib: expected 8 to 65536, found %d", q->mib);
    if (q->rounds < 1 || q->rounds > MAX_ROUNDS)
        return ab_fail(AB_USAGE, "--rounds: expected 1 to %d, found %d", MAX_ROUNDS, q->rounds);
    return AB_OK;
}

int main(int argc, char **argv) {
    request q = {256, 9, "gradients,rectified", "all"};
    unsigned char *memory = NULL;
    float *pattern = NULL;
    ab_status status = AB_OK;
    AB_TRY_GOTO(parse(argc, argv, &q));
    memory = aligned_alloc(2 << 20, (size_t)q.mib << 20);
    pattern = malloc(PATTERN * sizeof *pattern);
    if (memory == NULL || pattern == NULL) {
        status = ab_fail(AB_NO_MEMORY, "no memory for %d MiB", q.mib);
        goto out;
    }
    AB_TRY_GOTO(run(&q, memory, pattern));
out:
    if (status != AB_OK) fprintf(stderr, "ampbench_census_bench: %s\n", ab_error_message());
    free(memory);
    free(pattern);
    return ab_status_exit(status);
}
