#!/usr/bin/env python3
"""Bytes that PyTorch saves for the backward pass of one op: rows for
tests/unit/bench/amp/test_plan_saved.c.

Counts the storages of the tensors that autograd saves (fp32, CPU, parameters left out), so that views of one
tensor count once. Run by hand with PyTorch 2.11; the test needs no Python."""
import torch
import torch.nn.functional as F

BATCH = 6


def kept(make, *shapes, ids=None):
    """Bytes of the storages that the graph of make(*inputs) references."""
    inputs = [torch.rand(s, requires_grad=True) + 0.1 for s in shapes]
    if ids is not None:
        inputs.append(ids)
    storages = {}
    parameters = set()

    def parameter(*shape):
        p = torch.nn.Parameter(torch.rand(*shape))
        parameters.add(p.untyped_storage().data_ptr())
        return p

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            storages[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = make(parameter, *inputs)
    del result
    return sum(size for size, _ in storages.values())


def main():
    image, wide, row = (BATCH, 8, 12, 12), (BATCH, 10, 32), (BATCH, 32)
    classes = torch.arange(BATCH) % 32
    rows = {
        "conv2d": kept(lambda p, x: F.conv2d(x, p(5, 8, 3, 3), p(5)), image),
        "linear": kept(lambda p, x: F.linear(x, p(7, 32), p(7)), row),
        "relu": kept(lambda p, x: F.relu(x), image),
        "max_pool2d": kept(lambda p, x: F.max_pool2d(x, 2), image),
        "avg_pool2d": kept(lambda p, x: F.avg_pool2d(x, 2), image),
        "batch_norm2d": kept(lambda p, x: F.batch_norm(x, None, None, p(8), p(8), True), image),
        "add": kept(lambda p, x, y: x + y, row, row),
        "sub": kept(lambda p, x, y: x - y, row, row),
        "mul": kept(lambda p, x, y: x * y, row, row),
        "div": kept(lambda p, x, y: x / y, row, row),
        "neg": kept(lambda p, x: -x, row),
        "exp": kept(lambda p, x: torch.exp(x), row),
        "log": kept(lambda p, x: torch.log(x), row),
        "sqrt": kept(lambda p, x: torch.sqrt(x), row),
        "rsqrt": kept(lambda p, x: torch.rsqrt(x), row),
        "square": kept(lambda p, x: torch.square(x), row),
        "abs": kept(lambda p, x: torch.abs(x), row),
        "clamp": kept(lambda p, x: torch.clamp(x, 0.2, 0.8), row),
        "scale": kept(lambda p, x: x * 3.0, row),
        "sum": kept(lambda p, x: x.sum(), row),
        "mean": kept(lambda p, x: x.mean(), row),
        "max": kept(lambda p, x: x.amax(), row),
        "reshape": kept(lambda p, x: x.reshape(BATCH, 320), wide),
        "permute": kept(lambda p, x: x.permute(0, 2, 1), wide),
        "concat": kept(lambda p, x, y: torch.cat((x, y), -1), row, row),
        "gelu": kept(lambda p, x: F.gelu(x), row),
        "silu": kept(lambda p, x: F.silu(x), row),
        "tanh": kept(lambda p, x: torch.tanh(x), row),
        "sigmoid": kept(lambda p, x: torch.sigmoid(x), row),
        "softmax": kept(lambda p, x: F.softmax(x, -1), row),
        "log_softmax": kept(lambda p, x: F.log_softmax(x, -1), row),
        "layer_norm": kept(lambda p, x: F.layer_norm(x, (32,), p(32), p(32)), wide),
        "group_norm": kept(lambda p, x: F.group_norm(x, 4, p(8), p(8)), image),
        "dropout": kept(lambda p, x: F.dropout(x, 0.5), row),
        "matmul": kept(lambda p, x, y: x @ y, (BATCH, 9, 16), (BATCH, 16, 11)),
        "cross_entropy": kept(lambda p, x, t: F.cross_entropy(x, t), row, ids=classes),
        "mse": kept(lambda p, x, t: F.mse_loss(x, t), row, row),
        "bce_with_logits": kept(lambda p, x, t: F.binary_cross_entropy_with_logits(x, t.detach()), row, row),
        "masked_fill": kept(lambda p, x, m: x.masked_fill(m, 0.0), row, ids=torch.rand(row) > 0.5),
        "scaled_dot_product_attention": kept(
            lambda p, q, k, v: F.scaled_dot_product_attention(q, k, v), *[(BATCH, 2, 10, 16)] * 3),
    }
    for name, size in rows.items():
        print(f'    {{"{name}", {size}}},')


if __name__ == "__main__":
    main()
