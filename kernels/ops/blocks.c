/* Reading, computing and storing in fixed blocks or whole images; see blocks.h. */
#include "kernels/ops/blocks.h"

#include "kernels/format/convert.h"
#include "kernels/vec/isa.h"

/* Elements of a claim: many, where there are many claims; fewer where a thread would have one claim more than
 * another. */
enum { CLAIM_ELEMENTS = 32 * 1024, LEAST_CLAIM = 8 * 1024, EVEN_CLAIMS = 16 };

size_t ab_element_bytes(const ab_tensor *tensor) {
    return tensor->format ? ab_format_bytes(tensor->format, 1) : sizeof(int32_t);
}

bool ab_is_f32(const ab_tensor *tensor) { return tensor->format == &ab_format_fp32; }

char *ab_element(const ab_tensor *tensor, int64_t offset) {
    return (char *)tensor->data + (size_t)offset * ab_element_bytes(tensor);
}

const float *ab_read(const ab_tensor *tensor, int64_t offset, int64_t n, float *buffer) {
    if (ab_is_f32(tensor)) return (const float *)tensor->data + offset;
    ab_widen(buffer, ab_element(tensor, offset), tensor->format, n);
    return buffer;
}

float *ab_target(const ab_tensor *tensor, int64_t offset, float *buffer) {
    return ab_is_f32(tensor) ? (float *)tensor->data + offset : buffer;
}

/* Several chunks per claim, so the cost of claiming is small. */
typedef struct group_job {
    ab_work work;
    void *argument;
    int64_t chunks, per_group;
} group_job;

static void run_group(void *argument, int64_t group, int thread) {
    const group_job *job = argument;
    int64_t end = ab_min64((group + 1) * job->per_group, job->chunks);
    for (int64_t chunk = group * job->per_group; chunk < end; chunk++)
        job->work(job->argument, chunk, thread);
}

static int64_t chunks_per_claim(int64_t elements, int64_t chunks) {
    const int64_t claim = ab_min64(CLAIM_ELEMENTS, ab_max64(LEAST_CLAIM, elements / EVEN_CLAIMS));
    return ab_max64(1, chunks * claim / elements);
}

void ab_for_chunks(int64_t elements, int64_t chunks, ab_work work, void *argument) {
    group_job job = {work, argument, chunks, chunks};
    if (elements >= AB_PARALLEL_MIN) job.per_group = chunks_per_claim(elements, chunks);
    if (job.per_group >= chunks)
        for (int64_t chunk = 0; chunk < chunks; chunk++) work(argument, chunk, ab_parallel_thread());
    else
        ab_parallel_for(ab_div_up(chunks, job.per_group), run_group, &job);
}

void ab_for_prepared(int threads, int64_t chunks, ab_work work, void *argument) {
    if (ab_parallel_threads() <= threads)
        ab_parallel_for(chunks, work, argument);
    else
        for (int64_t chunk = 0; chunk < chunks; chunk++) work(argument, chunk, ab_parallel_thread());
}

bool ab_threads_fit(const ab_exec *exec, size_t fixed_bytes, size_t thread_bytes) {
    return exec->workspace_bytes >= fixed_bytes + (size_t)ab_parallel_threads() * thread_bytes;
}

typedef struct map_job {
    const ab_exec *exec;
    ab_tensor *dst;
    ab_map f;
    const ab_tensor *a, *b;
} map_job;

static void map_block(void *argument, int64_t chunk, int thread) {
    const map_job *job = argument;
    (void)thread;
    float buffer_a[AB_BLOCK], buffer_b[AB_BLOCK], buffer_out[AB_BLOCK];
    int64_t at = chunk * AB_BLOCK, block = ab_min64(AB_BLOCK, ab_tensor_count(job->dst) - at);
    float *out = ab_target(job->dst, at, buffer_out);
    job->f(out, ab_read(job->a, at, block, buffer_a), job->b ? ab_read(job->b, at, block, buffer_b) : NULL,
           block);
    ab_emit(job->exec, job->dst, at, out, block);
}

void ab_map_tensors(const ab_exec *exec, ab_tensor *dst, ab_map f, const ab_tensor *a, const ab_tensor *b) {
    map_job job = {exec, dst, f, a, b};
    int64_t n = ab_tensor_count(dst);
    ab_for_chunks(n, ab_div_up(n, AB_BLOCK), map_block, &job);
}

/* ---- images ---------------------------------------------------------------------------------- */

static int64_t image_count(const ab_tensor *tensor) {
    return tensor ? ab_tensor_count(tensor) / tensor->shape.dim[0] : 0;
}

static size_t image_bytes(const ab_tensor *tensor) {
    return tensor && !ab_is_f32(tensor) ? ab_floats_bytes(image_count(tensor)) : 0;
}

size_t ab_images_workspace(const ab_tensor *dst, const ab_tensor *a, const ab_tensor *b) {
    return (image_bytes(dst) + image_bytes(a) + image_bytes(b)) * (size_t)ab_parallel_threads();
}

static const float *read_image(const ab_tensor *tensor, int64_t i, char *buffer) {
    int64_t count = image_count(tensor);
    return tensor ? ab_read(tensor, i * count, count, (float *)(void *)buffer) : NULL;
}

typedef struct image_job {
    const ab_exec *exec;
    ab_tensor *dst;
    ab_map_image f;
    ab_map_image_bits bits; /* NULL: not for these tensors */
    const void *self;
    const ab_tensor *a, *b;
    size_t a_bytes, b_bytes, thread_bytes;
} image_job;

/* Code of the first element of an image. */
static const uint16_t *image_codes(const ab_tensor *tensor, int64_t i) {
    return tensor ? (const uint16_t *)tensor->data + i * image_count(tensor) : NULL;
}

static bool map_codes(const image_job *job, int64_t image) {
    if (!job->bits) return false;
    const int mantissa = job->dst->format->precision - 1;
    const uint16_t infinity = (uint16_t)(0x7fffu >> mantissa << mantissa);
    uint16_t *out = (uint16_t *)job->dst->data + image * image_count(job->dst);
    return job->bits(job->self, infinity, out, image_codes(job->a, image), image_codes(job->b, image));
}

static void map_image(void *argument, int64_t image, int thread) {
    const image_job *job = argument;
    int64_t count = image_count(job->dst);
    if (map_codes(job, image)) return;
    char *buffer = (char *)job->exec->workspace + (size_t)thread * job->thread_bytes;
    float *out = ab_target(job->dst, image * count, (float *)(void *)(buffer + job->a_bytes + job->b_bytes));
    job->f(job->self, out, read_image(job->a, image, buffer),
           read_image(job->b, image, buffer + job->a_bytes));
    ab_emit(job->exec, job->dst, image * count, out, count);
}

void ab_map_images(const ab_exec *exec, ab_tensor *dst, ab_map_image f, const void *self, const ab_tensor *a,
                   const ab_tensor *b) {
    ab_map_images_bits(exec, dst, f, NULL, self, a, b);
}

void ab_map_images_bits(const ab_exec *exec, ab_tensor *dst, ab_map_image f, ab_map_image_bits bits,
                        const void *self, const ab_tensor *a, const ab_tensor *b) {
    const bool one_format = a->format == dst->format && (!b || b->format == dst->format);
    const bool direct = one_format && !ab_is_f32(dst) && !exec->observer;
    image_job job = {exec, dst, f, direct ? bits : NULL, self, a, b, image_bytes(a), image_bytes(b), 0};
    job.thread_bytes = job.a_bytes + job.b_bytes + image_bytes(dst);
    int64_t elements = ab_threads_fit(exec, 0, job.thread_bytes) ? ab_tensor_count(a) : 0;
    ab_for_chunks(elements, dst->shape.dim[0], map_image, &job);
}

const char *ab_describe_own(const ab_op_io *io, const char *pass) {
    static const char *const texts[] = {[AB_ISA_PLAIN] = "own:plain",
                                        [AB_ISA_AVX2] = "own:avx2",
                                        [AB_ISA_AVX512] = "own:avx512",
                                        [AB_ISA_AVX512_BITALG] = "own:avx512"};
    (void)io;
    (void)pass;
    return texts[ab_isa_get()];
}

void ab_emit(const ab_exec *exec, ab_tensor *dst, int64_t offset, const float *values, int64_t n) {
    if (exec->observer && !ab_is_f32(dst))
        exec->observer->see(exec->observer, dst->id, ab_parallel_thread(), values, n);
    ab_narrow(ab_element(dst, offset), dst->format, values, n);
}
