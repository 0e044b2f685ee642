/* Reading, computing and storing in fixed blocks or whole images; see blocks.h. */
#include "kernels/blocks.h"

#include "kernels/convert.h"
#include "kernels/isa.h"

#include <omp.h>

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

void ab_map_tensors(const ab_exec *exec, ab_tensor *dst, ab_map f, const ab_tensor *a, const ab_tensor *b) {
    int64_t n = ab_tensor_count(dst);
#pragma omp parallel for schedule(static) if (n >= AB_PARALLEL_MIN)
    for (int64_t at = 0; at < n; at += AB_BLOCK) {
        float buffer_a[AB_BLOCK], buffer_b[AB_BLOCK], buffer_out[AB_BLOCK];
        int64_t block = ab_min64(AB_BLOCK, n - at);
        float *out = ab_target(dst, at, buffer_out);
        f(out, ab_read(a, at, block, buffer_a), b ? ab_read(b, at, block, buffer_b) : NULL, block);
        ab_emit(exec, dst, at, out, block);
    }
}

/* ---- images ----------------------------------------------------------------------------------------------- */

static int64_t image_count(const ab_tensor *tensor) {
    return tensor ? ab_tensor_count(tensor) / tensor->shape.dim[0] : 0;
}

static size_t image_bytes(const ab_tensor *tensor) {
    return tensor && !ab_is_f32(tensor) ? ab_floats_bytes(image_count(tensor)) : 0;
}

size_t ab_images_workspace(const ab_tensor *dst, const ab_tensor *a, const ab_tensor *b) {
    return (image_bytes(dst) + image_bytes(a) + image_bytes(b)) * (size_t)omp_get_max_threads();
}

static const float *read_image(const ab_tensor *tensor, int64_t i, char *buffer) {
    int64_t count = image_count(tensor);
    return tensor ? ab_read(tensor, i * count, count, (float *)(void *)buffer) : NULL;
}

void ab_map_images(const ab_exec *exec, ab_tensor *dst, ab_map_image f, const void *self, const ab_tensor *a,
                   const ab_tensor *b) {
    int64_t images = dst->shape.dim[0], count = image_count(dst);
    size_t a_bytes = image_bytes(a), b_bytes = image_bytes(b), bytes = a_bytes + b_bytes + image_bytes(dst);
    int threads = ab_threads(exec, 0, bytes);
#pragma omp parallel for schedule(static) num_threads(threads) if (ab_tensor_count(a) >= AB_PARALLEL_MIN)
    for (int64_t i = 0; i < images; i++) {
        char *buffer = (char *)exec->workspace + (size_t)omp_get_thread_num() * bytes;
        float *out = ab_target(dst, i * count, (float *)(void *)(buffer + a_bytes + b_bytes));
        f(self, out, read_image(a, i, buffer), read_image(b, i, buffer + a_bytes));
        ab_emit(exec, dst, i * count, out, count);
    }
}

int ab_threads(const ab_exec *exec, size_t fixed_bytes, size_t thread_bytes) {
    int threads = omp_get_max_threads();
    if (thread_bytes == 0) return threads;
    size_t room = (exec->workspace_bytes - fixed_bytes) / thread_bytes;
    return room < (size_t)threads ? (int)room : threads;
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
