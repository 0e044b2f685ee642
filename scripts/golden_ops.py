#!/usr/bin/env python3
"""Records what torch computes for ops whose formats no network trace shows: apex's fused norms, and gru.

    golden_ops.py            writes tests/golden/ops.jsonl (torch 2.11, CPU; numpy)

Not part of the build and not run by any test. apex's kernels need its CUDA build, so their formats are
written out around torch's functions: statistics and normalisation are torch's layer_norm and rms_norm in
fp32, the products and sums after them torch's on tensors of the output's format, each of which rounds, as
at::Half does in csrc/layer_norm_cuda_kernel.cu. Gradients are autograd's, of the fp32 function of the same
stored tensors; with memory_efficient those of the normalised values that the stored output gives back.

gru is torch.nn.GRU: in fp32 as it is; in half step by step by torch's gru_cell in fp32, each hidden state
rounded before the next step reads it and gradients rounded once, when they are stored.

A line of the file is one case: op, attributes, formats of input, parameters and output, and every tensor as
decimals that fp32 reads back exactly.
"""
import json
import os

import numpy as np
import torch
import torch.nn.functional as F

from peer_pytorch import GOLDEN, HALF, philox

FORMATS = {"fp32": torch.float32, **HALF}
RNG_SAMPLE = 6


def uniform(step, shape, format):
    """U(-1, 1) rounded to the format, from Philox."""
    word, _ = philox(42, RNG_SAMPLE, step, np.arange(int(np.prod(shape))))
    u = (word >> np.uint64(8)).astype(np.float64) * 2.0**-24
    values = torch.from_numpy((2.0 * u - 1.0).astype(np.float32)).reshape(shape)
    return values.to(FORMATS[format])


def decimals(tensor):
    return [float(f"{x:.9g}") for x in tensor.detach().to(torch.float32).reshape(-1).tolist()]


def case(op, attributes, formats, tensors):
    named = {name: {"shape": list(t.shape), "values": decimals(t)} for name, t in tensors.items()}
    return {"op": op, "attributes": attributes, "formats": formats, "tensors": named}


# ---- apex's fused norms ------------------------------------------------------------------------------------


def normalise(x, rms, eps):
    return F.rms_norm(x, x.shape[-1:], None, eps) if rms else F.layer_norm(x, x.shape[-1:], None, None, eps)


def stored_norm(x, weight, bias, rms, eps, out):
    """The arithmetic of the kernel: V is the output's type, as are weight and bias."""
    y = normalise(x.float(), rms, eps).to(out)
    if weight is None:
        return y
    return weight * y if bias is None else weight * y + bias


def recomputed_norm(y, x, weight, bias, rms, eps):
    """fp32 normalised values that (y - bias) / weight gives back, with the gradient of the norm there."""
    given = y.float() - (0 if bias is None else bias.float())
    given = given if weight is None else given / weight.float()
    exact = normalise(x, rms, eps)
    rstd = (exact.detach() / (x.detach() - (0 if rms else x.detach().mean(-1, keepdim=True)))).mean(-1, True)
    return Given.apply(x, given, rstd, rms)


class Given(torch.autograd.Function):
    """Normalised values that are known; their gradient by the input."""

    @staticmethod
    def forward(ctx, x, xhat, rstd, rms):
        ctx.save_for_backward(xhat, rstd)
        ctx.rms = rms
        return xhat.clone()

    @staticmethod
    def backward(ctx, g):
        xhat, rstd = ctx.saved_tensors
        centre = 0 if ctx.rms else g.mean(-1, keepdim=True)
        return rstd * (g - centre - xhat * (g * xhat).mean(-1, keepdim=True)), None, None, None


def norm_case(op, input, param, efficient, shape, step, affine=True):
    rms, mixed, eps = "rms" in op, op.startswith("mixed"), 1e-5
    out = param if mixed else input
    x = uniform(step, shape, input)
    weight = bias = None
    if affine:
        w = uniform(step + 1, shape[-1:], param).float()
        weight = (w.sign() * (0.25 + w.abs())).to(FORMATS[param])
        bias = None if rms else uniform(step + 2, shape[-1:], param)
    dout = uniform(step + 3, shape, out)
    y = stored_norm(x, weight, bias, rms, eps, FORMATS[out])
    wide = [None if t is None else t.float().requires_grad_() for t in (x, weight, bias)]
    if efficient:
        xhat = recomputed_norm(y, wide[0], weight, bias, rms, eps)
    else:
        xhat = normalise(wide[0], rms, eps)
    value = xhat if weight is None else wide[1] * xhat
    (value if bias is None else value + wide[2]).backward(dout.float())
    named = {"input": x, "weight": weight, "bias": bias, "dout": dout, "out": y,
             "dinput": wide[0].grad.to(FORMATS[input]),
             "dweight": None if weight is None else wide[1].grad.to(FORMATS[param]),
             "dbias": None if bias is None else wide[2].grad.to(FORMATS[param])}
    attributes = {"memory_efficient": efficient}
    if not mixed:
        attributes["elementwise_affine"] = affine
    return case(op, attributes, {"input": input, "param": param, "out": out},
                {name: t for name, t in named.items() if t is not None})


def norm_cases():
    step = 100
    for op in ("fused_layer_norm", "fused_rms_norm"):
        for format in FORMATS:
            for efficient in (False, True):
                yield norm_case(op, format, format, efficient, (4, 11), step)
                step += 10
        yield norm_case(op, "fp16", "fp16", True, (2, 3, 9), step, affine=False)
        step += 10
    for op in ("mixed_fused_layer_norm", "mixed_fused_rms_norm"):
        for formats in (("fp16", "fp32"), ("bf16", "fp32"), ("fp32", "fp16")):
            for efficient in (False, True):
                yield norm_case(op, *formats, efficient, (4, 11), step)
                step += 10


# ---- gru ---------------------------------------------------------------------------------------------------


def gru_case(format, shape, hidden, bias, step):
    half = None if format == "fp32" else FORMATS[format]
    net = torch.nn.GRU(shape[2], hidden, bias=bias, batch_first=True)
    stored = {"input": uniform(step, shape, format)}
    for number, (name, p) in enumerate(net.named_parameters(), 1):
        stored[name] = uniform(step + number, tuple(p.shape), format)
        p.data = stored[name].float()
    x = stored["input"].float().requires_grad_()
    dout = uniform(step + 9, (*shape[:2], hidden), format)
    if half is None:
        out = net(x)[0]
    else:
        h, states = torch.zeros(shape[0], hidden), []
        weights = [p for _, p in net.named_parameters()]
        for t in range(shape[1]):
            new = torch.gru_cell(x[:, t], h, *weights)
            h = new + (new.to(half).float() - new).detach()
            states.append(h)
        out = torch.stack(states, 1)
    out.backward(dout.float())
    gradients = {"d" + name: p.grad.to(FORMATS[format]) for name, p in net.named_parameters()}
    formats = {"input": format, "param": format, "out": format}
    return case("gru", {"hidden_size": hidden, "bias": bias}, formats,
                {**stored, "dout": dout, "out": out.to(FORMATS[format]), "dinput": x.grad.to(FORMATS[format]),
                 **gradients})


def gru_cases():
    yield gru_case("fp32", (3, 5, 4), 6, True, 1000)
    yield gru_case("fp32", (2, 4, 3), 5, False, 1020)
    yield gru_case("fp16", (3, 5, 4), 6, True, 1040)
    yield gru_case("bf16", (2, 4, 3), 5, True, 1060)


def main():
    torch.set_num_threads(1)
    path = os.path.join(GOLDEN, "ops.jsonl")
    with open(path, "w") as file:
        for one in [*norm_cases(), *gru_cases()]:
            file.write(json.dumps(one) + "\n")
    print(path, os.path.getsize(path))


if __name__ == "__main__":
    main()
