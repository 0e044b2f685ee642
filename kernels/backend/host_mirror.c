/* Walks the tensors of an op in a fixed order, which is the index of their host copies. */
#include "kernels/backend/host_mirror.h"

#include "kernels/backend/backend.h"
#include "kernels/ops/blocks.h"

#include <stdlib.h>

enum { MOST = 3 * AB_MAX_INPUTS + 2 * AB_MAX_PARAMS + AB_MAX_SAVED + 2 };

struct ab_host_mirror {
    ab_op_io io;
    ab_tensor tensor[MOST];
};

/* One tensor of an op and the index of its host copy. */
typedef struct member {
    const ab_tensor *tensor;
    unsigned set;
    int input; /* input index for AB_MIRROR_IN; else -1 */
} member;

/* Lists all possible tensors, present or not. Returns their number, which is constant. */
static int members(const ab_op_io *io, member *list) {
    int n = 0;
    for (int i = 0; i < AB_MAX_INPUTS; i++) {
        list[n++] = (member){io->in[i], AB_MIRROR_IN, i};
        list[n++] = (member){io->din[i], AB_MIRROR_DIN, -1};
    }
    for (int i = 0; i < AB_MAX_PARAMS; i++) {
        unsigned buffer = io->dparam[i] ? 0u : (unsigned)AB_MIRROR_BUFFERS;
        list[n++] = (member){io->param[i], AB_MIRROR_PARAM | buffer, -1};
        list[n++] = (member){io->dparam[i], AB_MIRROR_DPARAM, -1};
    }
    for (int i = 0; i < AB_MAX_SAVED; i++) list[n++] = (member){io->saved[i], AB_MIRROR_SAVED, -1};
    list[n++] = (member){io->out, AB_MIRROR_OUT, -1};
    list[n++] = (member){io->dout, AB_MIRROR_DOUT, -1};
    return n;
}

static ab_tensor *copy_or_null(ab_tensor *copy) { return copy->data ? copy : NULL; }

/* The same walk, over the copies. */
static void wire(ab_host_mirror *mirror) {
    ab_tensor *t = mirror->tensor;
    ab_op_io *io = &mirror->io;
    for (int i = 0; i < AB_MAX_INPUTS; i++) {
        io->in[i] = copy_or_null(t++);
        io->din[i] = copy_or_null(t++);
    }
    for (int i = 0; i < AB_MAX_PARAMS; i++) {
        io->param[i] = copy_or_null(t++);
        io->dparam[i] = copy_or_null(t++);
    }
    for (int i = 0; i < AB_MAX_SAVED; i++) io->saved[i] = copy_or_null(t++);
    io->out = copy_or_null(t++);
    io->dout = copy_or_null(t);
}

ab_status ab_host_mirror_create(const ab_op_io *io, ab_host_mirror **result) {
    member list[MOST];
    ab_host_mirror *mirror = calloc(1, sizeof *mirror);
    if (!mirror) return ab_fail(AB_NO_MEMORY, "host copies: out of memory");
    int n = members(io, list);
    for (int i = 0; i < n; i++) {
        if (!list[i].tensor) continue;
        ab_tensor *copy = &mirror->tensor[i];
        *copy = *list[i].tensor;
        copy->device = &ab_device_cpu;
        size_t bytes = (size_t)ab_tensor_count(copy) * ab_element_bytes(copy);
        if (ab_device_cpu.alloc(bytes, &copy->data) == AB_OK) continue;
        copy->data = NULL;
        ab_host_mirror_destroy(mirror);
        return ab_fail(AB_NO_MEMORY, "host copies: out of memory");
    }
    wire(mirror);
    *result = mirror;
    return AB_OK;
}

void ab_host_mirror_destroy(ab_host_mirror *mirror) {
    if (!mirror) return;
    for (int i = 0; i < MOST; i++)
        if (mirror->tensor[i].data) ab_device_cpu.free(mirror->tensor[i].data);
    free(mirror);
}

ab_op_io *ab_host_mirror_io(ab_host_mirror *mirror, const ab_op_io *io) {
    member list[MOST];
    int n = members(io, list);
    for (int i = 0; i < n; i++)
        if (list[i].tensor) mirror->tensor[i].id = list[i].tensor->id;
    mirror->io.attrs = io->attrs;
    mirror->io.op = io->op;
    mirror->io.instance = io->instance;
    mirror->io.params_version = io->params_version;
    return &mirror->io;
}

ab_status ab_host_mirror_pull(ab_host_mirror *mirror, const ab_op_io *io, unsigned sets, unsigned inputs) {
    member list[MOST];
    int n = members(io, list);
    for (int i = 0; i < n; i++) {
        bool left_out = list[i].input >= 0 && !(inputs >> list[i].input & 1u);
        if (list[i].tensor && (list[i].set & sets) && !left_out)
            AB_TRY(ab_tensor_download(list[i].tensor, mirror->tensor[i].data));
    }
    return AB_OK;
}

ab_status ab_host_mirror_push(ab_host_mirror *mirror, const ab_op_io *io, unsigned sets) {
    member list[MOST];
    int n = members(io, list);
    for (int i = 0; i < n; i++) {
        if (!list[i].tensor || !(list[i].set & sets)) continue;
        const ab_tensor *to = list[i].tensor;
        const ab_device *device = to->device ? to->device : &ab_device_cpu;
        AB_TRY(device->upload(to->data, mirror->tensor[i].data,
                              (size_t)ab_tensor_count(to) * ab_element_bytes(to)));
    }
    return AB_OK;
}
