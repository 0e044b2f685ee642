/* Looks up the table of a device; copies tensor values between device and host. */
#include "kernels/backend/backend.h"

#include "kernels/format/convert.h"
#include "kernels/ops/blocks.h"

enum { PIECE = 1 << 13 }; /* values: 64 KiB of stack at most */

const ab_backend *ab_backend_of(const ab_device *device) {
    return device && device->backend ? device->backend : &ab_backend_cpu;
}

static bool on_host(const ab_tensor *tensor) { return ab_backend_of(tensor->device)->host_memory; }

static size_t tensor_bytes(const ab_tensor *tensor) {
    return (size_t)ab_tensor_count(tensor) * ab_element_bytes(tensor);
}

ab_status ab_tensor_read(const ab_tensor *tensor, float *values) {
    int64_t count = ab_tensor_count(tensor);
    double piece[PIECE]; /* stored values; the largest element of any format */
    if (on_host(tensor)) {
        ab_widen(values, tensor->data, tensor->format, count);
        return AB_OK;
    }
    for (int64_t first = 0; first < count; first += PIECE) {
        int64_t n = ab_min64(PIECE, count - first);
        AB_TRY(
            tensor->device->download(piece, ab_element(tensor, first), ab_format_bytes(tensor->format, n)));
        ab_widen(values + first, piece, tensor->format, n);
    }
    return AB_OK;
}

ab_status ab_tensor_write(ab_tensor *tensor, const float *values) {
    int64_t count = ab_tensor_count(tensor);
    double piece[PIECE];
    if (on_host(tensor)) {
        ab_narrow(tensor->data, tensor->format, values, count);
        return AB_OK;
    }
    for (int64_t first = 0; first < count; first += PIECE) {
        int64_t n = ab_min64(PIECE, count - first);
        ab_narrow(piece, tensor->format, values + first, n);
        AB_TRY(tensor->device->upload(ab_element(tensor, first), piece, ab_format_bytes(tensor->format, n)));
    }
    return AB_OK;
}

ab_status ab_tensor_download(const ab_tensor *tensor, void *host) {
    const ab_device *device = tensor->device ? tensor->device : &ab_device_cpu;
    return device->download(host, tensor->data, tensor_bytes(tensor));
}

ab_status ab_tensor_upload(ab_tensor *tensor, const void *host) {
    const ab_device *device = tensor->device ? tensor->device : &ab_device_cpu;
    return device->upload(tensor->data, host, tensor_bytes(tensor));
}
