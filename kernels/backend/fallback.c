/* Runs on the host what a device does not support. */
#include "kernels/backend/fallback.h"

#include "kernels/backend/backend.h"
#include "kernels/core/text.h"
#include "kernels/ops/blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 96 };

/* io->state of a fallback. */
typedef struct fallback {
    const ab_op *op;
    ab_host_mirror *mirror;
    ab_op_io *io; /* tensors of the mirror */
    void *state, *workspace;
    size_t workspace_bytes;
    char text[3][TEXT]; /* descriptions of the passes */
} fallback;

static void release(ab_op_io *io) {
    fallback *f = io->state;
    if (!f) return;
    if (f->io && f->op->release) f->op->release(f->io);
    ab_host_mirror_destroy(f->mirror);
    if (f->state) ab_device_cpu.free(f->state);
    if (f->workspace) ab_device_cpu.free(f->workspace);
    free(f);
    io->state = NULL;
}

/* Zeroed, like a cell's memory. */
static ab_status host_block(size_t bytes, void **block) {
    if (bytes == 0) return AB_OK;
    AB_TRY(ab_device_cpu.alloc(bytes, block));
    return ab_device_cpu.fill_zero(*block, bytes);
}

static ab_status build(const ab_exec *exec, const ab_op_io *io, fallback *f) {
    size_t state = 0;
    AB_TRY(ab_host_mirror_create(io, &f->mirror));
    f->io = ab_host_mirror_io(f->mirror, io);
    if (f->op->prepare) AB_TRY(f->op->prepare(exec, f->io, &f->workspace_bytes, &state));
    AB_TRY(host_block(f->workspace_bytes, &f->workspace));
    AB_TRY(host_block(state, &f->state));
    if (f->op->bind) f->op->bind(f->io, f->state);
    return AB_OK;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    *workspace_bytes = *state_bytes = 0;
    fallback *f = calloc(1, sizeof *f);
    if (!f) return ab_fail(AB_NO_MEMORY, "host copies: out of memory");
    f->op = io->op;
    io->state = f;
    ab_status status = build(exec, io, f);
    if (status != AB_OK) release(io);
    return status;
}

static ab_exec host_exec(const ab_exec *exec, const fallback *f) {
    ab_exec host = *exec;
    host.workspace = f->workspace;
    host.workspace_bytes = f->workspace_bytes;
    return host;
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    fallback *f = io->state;
    ab_exec host = host_exec(exec, f);
    ab_op_io *copy = ab_host_mirror_io(f->mirror, io);
    AB_TRY(ab_host_mirror_pull(f->mirror, io, AB_MIRROR_IN | AB_MIRROR_PARAM, ~0u));
    AB_TRY(f->op->forward(&host, copy));
    unsigned written = AB_MIRROR_OUT;
    if (exec->training) written |= AB_MIRROR_SAVED | AB_MIRROR_BUFFERS;
    return ab_host_mirror_push(f->mirror, io, written);
}

/* Reads only what backward needs; the rest may already be freed on the device. */
static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    fallback *f = io->state;
    ab_exec host = host_exec(exec, f);
    ab_op_io *copy = ab_host_mirror_io(f->mirror, io);
    unsigned needs = ab_io_needs(f->op, io);
    unsigned read = AB_MIRROR_IN | AB_MIRROR_PARAM | AB_MIRROR_SAVED | AB_MIRROR_DOUT;
    if (needs & AB_NEEDS_OUT) read |= AB_MIRROR_OUT;
    AB_TRY(ab_host_mirror_pull(f->mirror, io, read, needs));
    AB_TRY(f->op->backward(&host, copy));
    return ab_host_mirror_push(f->mirror, io, AB_MIRROR_DIN | AB_MIRROR_DPARAM);
}

static const char *describe(const ab_op_io *io, const char *pass) {
    fallback *f = io->state;
    const char *own = f->op->describe ? f->op->describe(f->io, pass) : NULL;
    if (!own) return NULL;
    char *text = f->text[strcmp(pass, "forward") == 0 ? 0 : strcmp(pass, "backward_data") == 0 ? 1 : 2];
    ab_text_show(text, TEXT, "host:%s", own);
    return text;
}

const ab_op ab_op_fallback = {.name = "fallback",
                              .prepare = prepare,
                              .release = release,
                              .forward = forward,
                              .backward = backward,
                              .describe = describe};

/* ---- single tensors -------------------------------------------------------------------------- */

ab_status ab_host_copy(const ab_tensor *tensor, ab_tensor *copy) {
    *copy = *tensor;
    copy->device = &ab_device_cpu;
    copy->data = NULL;
    AB_TRY(ab_device_cpu.alloc((size_t)ab_tensor_count(tensor) * ab_element_bytes(tensor), &copy->data));
    return ab_tensor_download(tensor, copy->data);
}

void ab_host_copy_free(ab_tensor *copy) {
    if (copy->data) ab_device_cpu.free(copy->data);
    copy->data = NULL;
}

typedef void (*host_map)(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);

static ab_status on_host(const ab_exec *exec, host_map f, ab_tensor *dst, const ab_tensor *src) {
    ab_tensor from = {.data = NULL}, to = {.data = NULL};
    ab_status status = AB_OK;
    AB_TRY_GOTO(ab_host_copy(src, &from));
    AB_TRY_GOTO(ab_host_copy(dst, &to));
    f(exec, &to, &from);
    AB_TRY_GOTO(ab_tensor_upload(dst, to.data));
out:
    ab_host_copy_free(&from);
    ab_host_copy_free(&to);
    return status;
}

ab_status ab_fallback_cast(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    return on_host(exec, ab_cast, dst, src);
}

ab_status ab_fallback_accumulate(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    return on_host(exec, ab_accumulate, dst, src);
}

static ab_status unscale_one(const ab_exec *exec, const ab_unscale_item *item, float inverse, bool *found) {
    ab_tensor from = {.data = NULL}, to = {.data = NULL};
    ab_status status = AB_OK;
    AB_TRY_GOTO(ab_host_copy(item->from, &from));
    AB_TRY_GOTO(ab_host_copy(item->to, &to));
    const ab_unscale_item copy = {&to, &from, item->id, item->adds};
    AB_TRY_GOTO(ab_backend_cpu.unscale(exec, &copy, 1, inverse, found));
    AB_TRY_GOTO(ab_tensor_upload(item->to, to.data));
out:
    ab_host_copy_free(&from);
    ab_host_copy_free(&to);
    return status;
}

ab_status ab_fallback_unscale(const ab_exec *exec, const ab_unscale_item *item, int items, float inverse,
                              bool *found) {
    for (int i = 0; i < items; i++) AB_TRY(unscale_one(exec, &item[i], inverse, found));
    return AB_OK;
}

/* Walks the tensors of an op in a fixed order, which is the index of their host copies. */

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
