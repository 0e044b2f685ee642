#!/usr/bin/env python3
"""PyTorch as ampbench's reference: the same network file, initial bits, batches and level.

    peer_pytorch.py --regenerate                      every trace of tests/golden
    peer_pytorch.py --net lenet5 --level O2 --out -   one trace
    peer_pytorch.py --compare A.json B.json           how far apart two traces are
    peer_pytorch.py --bench --net lenet5 --threads 1  step times

Not part of the build and not run by any test: it made the traces in tests/golden, and scripts/bench --peer
times it. Needs torch 2.11 and numpy (safetensors for --init). CPU only.

Half arithmetic does not use autocast: an op on half tensors widens them to fp32, computes in fp32 and rounds
its result once, forward and backward. Only the functions Narrow and Widen round, so that "one rounding per
op" is seen in the code and mistakes can be planted there (--plant).
"""
import argparse
import contextlib
import functools
import gzip
import json
import math
import os
import statistics
import struct
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

import golden_traces
import peer_ops
import peer_turns

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(ROOT, "tests", "golden")
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"  # Debian's and Ubuntu's dataset-fashion-mnist
HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}
SKETCHES = 8  # random-sign sums kept of each tensor

PLANTS = {
    "no_bias_correction": "adam without its bias corrections",
    "eps_inside_root": "adam with sqrt(v + eps) in place of sqrt(v) + eps",
    "biased_running_variance": "batch norm keeps the variance divided by n in place of n - 1",
    "unbiased_normalisation": "batch norm normalises with the variance divided by n - 1 in place of n",
    "sum_for_mean": "the loss is the sum over the batch",
    "truncation": "fp32 to half drops the low bits in place of rounding to nearest even",
    "subnormals_flushed": "half results below the smallest normal number become 0",
    "no_master_weights": "O2 that updates its half weights",
    "O0_as_O2": "fp32 arithmetic reported as O2",
    "O3_as_O2": "O3 under O2's loss scale, reported as O2",
    "decay_coupled": "adamw with its weight decay added to the gradient",
    "clip_before_unscale": "gradients are clipped while they are still multiplied by the loss scale",
    "accumulation_not_averaged": "gradients of micro-batches are summed as if each were the whole batch",
    "schedule_one_step_ahead": "the learning rate of the next step",
    "no_trust_ratio": "lamb without the ratio of its norms",
    "bias_after_rounding": "the product is rounded to half before the bias is added, and the sum again",
}

# ---- random numbers: kernels/core/rng.c in numpy -----------------------------------------------------------

RNG_INIT, RNG_SAMPLE = 1, 6


def fnv1a32(name):
    """The `step` of a parameter's numbers: FNV-1a of its name."""
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def fnv1a64(data, value=14695981039346656037):
    for byte in data:
        value = (value ^ byte) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
    return value


def philox(seed, stream, step, index):
    """Words 0 and 1 of Philox4x32-10 for counters (index, step, stream), as uint64 arrays."""
    low = np.uint64(0xFFFFFFFF)
    index = np.asarray(index, dtype=np.uint64)
    c = [index & low, index >> np.uint64(32), np.full_like(index, step), np.full_like(index, stream)]
    key0, key1 = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [p1 >> np.uint64(32) ^ c[1] ^ np.uint64(key0), p1 & low,
             p0 >> np.uint64(32) ^ c[3] ^ np.uint64(key1), p0 & low]
        key0, key1 = key0 + 0x9E3779B9 & 0xFFFFFFFF, key1 + 0xBB67AE85 & 0xFFFFFFFF
    return c[0], c[1]


def draw_uniform(seed, name, count, bound):
    word, _ = philox(seed, RNG_INIT, fnv1a32(name), np.arange(count))
    u = (word >> np.uint64(8)).astype(np.float64) * 2.0**-24
    return (bound * (2.0 * u - 1.0)).astype(np.float32)


def draw_normal(seed, name, count, std):
    word0, word1 = philox(seed, RNG_INIT, fnv1a32(name), np.arange(count))
    u, v = (word0.astype(np.float64) + 0.5) * 2.0**-32, word1.astype(np.float64) * 2.0**-32
    z = (np.sqrt(-2.0 * np.log(u)) * np.cos(6.283185307179586476925 * v)).astype(np.float32)
    return (std * z.astype(np.float64)).astype(np.float32)


# ---- data: MNIST-style IDX files ---------------------------------------------------------------------------


def read_idx(directory, stem):
    for suffix, opener in (("", open), (".gz", gzip.open)):
        path = os.path.join(directory, stem + suffix)
        if os.path.exists(path):
            with opener(path, "rb") as file:
                content = file.read()
            dims = content[3]
            shape = struct.unpack(f">{dims}i", content[4:4 + 4 * dims])
            return np.frombuffer(content, np.uint8, offset=4 + 4 * dims).reshape(shape)
    sys.exit(f"{directory}: expected {stem} or {stem}.gz, found neither")


class Data:
    """The training split, zero-padded to the network's input and normalised over all of it."""

    def __init__(self, directory, height, width, normalize="standard"):
        pixels = read_idx(directory, "train-images-idx3-ubyte")
        pad_h, pad_w = height - pixels.shape[1], width - pixels.shape[2]
        self.pixels = np.pad(pixels,
                             ((0, 0), (pad_h // 2, pad_h - pad_h // 2), (pad_w // 2, pad_w - pad_w // 2)))
        self.labels = read_idx(directory, "train-labels-idx1-ubyte")
        counts = np.bincount(self.pixels.reshape(-1), minlength=256).astype(np.float64)
        values = np.arange(256) / 255.0
        self.mean = float((counts * values).sum() / counts.sum())
        self.std = float(np.sqrt((counts * (values - self.mean) ** 2).sum() / counts.sum()))
        standard = (values - self.mean) / self.std
        self.table = {"standard": standard, "unit": values,
                      "none": np.arange(256)}[normalize].astype(np.float32)

    def batch(self, step, size):
        """Batch number `step` in file order; an epoch drops its incomplete last batch."""
        first = step % (len(self.labels) // size) * size
        images = self.table[self.pixels[first:first + size]]
        return (torch.from_numpy(images).unsqueeze(1),
                torch.from_numpy(self.labels[first:first + size].astype(np.int64)))

    def digest(self, size):
        return f"{fnv1a64(self.labels[:size].tobytes(), fnv1a64(self.pixels[:size].tobytes())):016x}"


# ---- the network file --------------------------------------------------------------------------------------


def torch_bound(fan_in):
    """torch's default bound for conv2d's and linear's weights and biases."""
    return ("uniform", 1.0 / math.sqrt(fan_in))


def pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def conv2d_params(a, shape):
    kernel, groups = pair(a["kernel_size"]), a.get("groups", 1)
    inputs = shape[1] // groups
    bound = torch_bound(inputs * kernel[0] * kernel[1])
    params = {"weight": ((a["out_channels"], inputs, *kernel), bound)}
    return params | ({"bias": ((a["out_channels"],), bound)} if a.get("bias", True) else {})


def linear_params(a, shape):
    bound = torch_bound(shape[-1])
    params = {"weight": ((a["out_features"], shape[-1]), bound)}
    return params | ({"bias": ((a["out_features"],), bound)} if a.get("bias", True) else {})


def batch_norm2d_params(a, shape):
    params = {}
    if a.get("affine", True):
        params = {"weight": ((shape[1],), ("ones",)), "bias": ((shape[1],), ("zeros",))}
    return params | {"running_mean": ((shape[1],), ("zeros",)), "running_var": ((shape[1],), ("ones",))}


def conv2d(run, a, x, p):
    options = [pair(a.get(k, d)) for k, d in (("stride", 1), ("padding", 0), ("dilation", 1))]
    return run.with_bias(lambda w, b: F.conv2d(x, w, b, *options, a.get("groups", 1)), p, (1, -1, 1, 1))


def linear(run, a, x, p):
    return run.with_bias(lambda w, b: F.linear(x, w, b), p, (1, -1))


def max_pool2d(run, a, x, p):
    return F.max_pool2d(x, a["kernel_size"], a.get("stride"), a.get("padding", 0), a.get("dilation", 1),
                        a.get("ceil_mode", False))


def avg_pool2d(run, a, x, p):
    return F.avg_pool2d(x, a["kernel_size"], a.get("stride"), a.get("padding", 0), a.get("ceil_mode", False),
                        a.get("count_include_pad", True))


def batch_norm2d(run, a, x, p):
    options = a.get("momentum", 0.1), a.get("eps", 1e-5)
    if run.plant == "unbiased_normalisation":
        return unbiased_batch_norm(x, p, *options)
    mean, var = p["running_mean"].clone(), p["running_var"].clone()
    y = F.batch_norm(x, mean, var, p.get("weight"), p.get("bias"), True, *options)
    if run.plant == "biased_running_variance":
        var = torch.lerp(p["running_var"], x.detach().var((0, 2, 3), correction=0), options[0])
    p["running_mean"].copy_(mean)
    p["running_var"].copy_(var)
    return y


def unbiased_batch_norm(x, p, momentum, eps):
    mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), correction=1, keepdim=True)
    p["running_mean"].lerp_(mean.detach().flatten(), momentum)
    p["running_var"].lerp_(var.detach().flatten(), momentum)
    y = (x - mean) / torch.sqrt(var + eps)
    return y * p["weight"].view(1, -1, 1, 1) + p["bias"].view(1, -1, 1, 1) if "weight" in p else y


def cross_entropy(run, a, x, p):
    weight = torch.tensor(a["weight"], dtype=x.dtype) if "weight" in a else None
    return F.cross_entropy(x.flatten(0, -2), run.targets.flatten(), weight,
                           ignore_index=a.get("ignore_index", -100),
                           reduction="sum" if run.plant == "sum_for_mean" else "mean")


# Class in apex's O1 lists (kernels/ops/ops.def), function of widened inputs, parameters from attributes and
# input shape.
OPS = {
    "conv2d": ("low", conv2d, conv2d_params),
    "linear": ("low", linear, linear_params),
    "batch_norm2d": ("follow", batch_norm2d, batch_norm2d_params),
    "relu": ("follow", lambda run, a, x, p: F.relu(x), None),
    "max_pool2d": ("follow", max_pool2d, None),
    "avg_pool2d": ("follow", avg_pool2d, None),
    "global_avg_pool": ("follow", lambda run, a, x, p: x.mean((2, 3)), None),
    "flatten": ("follow", lambda run, a, x, p: x.flatten(1), None),
    "add": ("promote", lambda run, a, xs, p: functools.reduce(torch.add, xs), None),
    "cross_entropy": ("fp32", cross_entropy, None),
    **peer_ops.OPS,
}
SEVERAL_INPUTS = {"add"} | peer_ops.SEVERAL_INPUTS
LOSSES = {"cross_entropy", "mse"}
BUFFERS = ("running_mean", "running_var")


class Net:
    """A network file: ops in order, their inputs, and their parameters' shapes and initializers."""

    def __init__(self, name_or_path):
        builtin = os.path.join(ROOT, "bench", "nets", name_or_path + ".json")
        with open(builtin if os.path.exists(builtin) else name_or_path) as file:
            self.document = json.load(file)
        self.name, self.defaults = self.document["name"], self.document.get("defaults", {})
        size = self.document["input"]
        self.height, self.width, self.channels = (size.get(k, 0) for k in ("height", "width", "channels"))
        self.ops, self.specs, self.attrs = [], {}, {}
        tokens = size.get("tokens")
        shapes = {"input": (2, tokens) if tokens else (2, self.channels, self.height, self.width)}
        before = "input"
        for op in self.document["ops"]:
            inputs = op.get("in", before)
            inputs = [i for i in ([inputs] if isinstance(inputs, str) else inputs) if i != "targets"]
            self.ops.append((op["name"], op["op"], inputs))
            self.attrs[op["name"]] = op
            self.add_specs(op, shapes[inputs[0]])
            shapes[op["name"]] = self.out_shape(op, [shapes[i] for i in inputs])
            before = op["name"]

    def add_specs(self, op, shape):
        make = OPS[op["op"]][2]
        rules = {} if op["op"] in peer_ops.NORMS else dict(self.document.get("init", {}))
        rules.update(op.get("init", {}))
        for key, (dims, init) in (make(op, shape) if make else {}).items():
            if key in rules:
                init = (rules[key]["kind"], rules[key].get("bound", rules[key].get("std")))
            self.specs[f"{op['name']}.{key}"] = (dims, init)

    def out_shape(self, op, shapes):
        run = Run(self, Policy("O0"))
        given = self.document["input"].get("tokens")
        whole = given and self.document.get("targets", {}).get("kind") == "tokens"
        run.targets, run.training = torch.zeros((2, given) if whole else 2, dtype=torch.long), False
        params = {k.rsplit(".", 1)[1]: torch.zeros(d) for k, (d, _) in self.specs.items()
                  if k.rsplit(".", 1)[0] == op["name"]}
        xs = [torch.zeros(s, dtype=torch.long if op["op"] == "embedding" else None) for s in shapes]
        return tuple(OPS[op["op"]][1](run, op, xs if op["op"] in SEVERAL_INPUTS else xs[0], params).shape)

    def initial(self, seed):
        """Every parameter and buffer, fp32, torch layouts, in file order."""
        draw = {"normal": draw_normal, "uniform": draw_uniform}
        tensors = {}
        for name, (shape, (kind, *size)) in self.specs.items():
            count = math.prod(shape)
            constant = np.full(count, kind == "ones", np.float32)
            values = draw[kind](seed, name, count, *size) if kind in draw else constant
            tensors[name] = torch.from_numpy(values.reshape(shape).copy())
        return tensors


def is_buffer(name):
    return name.endswith(BUFFERS)


# ---- levels ------------------------------------------------------------------------------------------------


class Policy:
    """apex's properties of a level, as far as arithmetic depends on them."""

    ROWS = {  # half model, O1 casts, fp32 batch norm, masters, loss scale
        "O0": (False, False, True, False, 1.0),
        "O1": (False, True, True, False, "dynamic"),
        "O2": (True, False, True, True, "dynamic"),
        "O3": (True, False, False, False, 1.0),
    }

    def __init__(self, level, half="fp16", scale=None):
        self.half_model, self.casts, self.keep_batchnorm, self.masters, default = self.ROWS[level]
        self.loss_scale = default if scale is None else scale
        self.half = HALF[half]

    def planted(self, plant):
        if plant == "no_master_weights":
            self.masters = False
        elif plant in ("O0_as_O2", "O3_as_O2"):
            self.half_model, self.casts, self.keep_batchnorm, self.masters, _ = self.ROWS[plant[:2]]
        return self


class Scaler:
    """apex's loss scaler: halves and skips on overflow, doubles after 2000 clean steps. A fixed scale never
    skips."""

    def __init__(self, loss_scale):
        self.dynamic = loss_scale == "dynamic"
        self.scale, self.clean = 65536.0 if self.dynamic else float(loss_scale), 0

    def update(self, overflow):
        if not self.dynamic:
            return False
        self.clean = 0 if overflow else self.clean + 1
        if overflow:
            self.scale /= 2
        if self.clean == 2000:
            self.scale, self.clean = min(2.0**24, self.scale * 2), 0
        return overflow


# ---- one rounding per op -----------------------------------------------------------------------------------


def round_half(x, half, plant):
    """fp32 to half: round to nearest even, once; a planted mistake rounds otherwise."""
    y = x.to(half)
    if plant == "truncation":
        away = y.to(x.dtype).abs() > x.abs()
        y = (y.view(torch.int16) - away.to(torch.int16)).view(half)
    elif plant == "subnormals_flushed":
        y = torch.where(y.abs() < torch.finfo(half).tiny, torch.zeros_like(y), y)
    return y


class Narrow(torch.autograd.Function):
    """Wide to half; the gradient comes back widened, exactly."""

    @staticmethod
    def forward(ctx, x, half, plant):
        ctx.wide = x.dtype
        return round_half(x, half, plant)

    @staticmethod
    def backward(ctx, grad):
        return grad.to(ctx.wide), None, None


class Widen(torch.autograd.Function):
    """Half to wide, exactly; the gradient comes back rounded once."""

    @staticmethod
    def forward(ctx, x, wide, plant):
        ctx.half, ctx.plant = x.dtype, plant
        return x.to(wide)

    @staticmethod
    def backward(ctx, grad):
        return round_half(grad, ctx.half, ctx.plant), None, None


class Run:
    """Forward pass of a network under a policy. `wide` is fp32, or float64 to measure fp32's own error."""

    def __init__(self, net, policy, plant=None, wide=torch.float32):
        self.net, self.policy, self.plant, self.wide = net, policy, plant, wide
        self.targets, self.cast_cache, self.out_half = None, {}, False
        self.seed, self.calls, self.training = 0, -1, True  # forward passes so far, for dropout

    def narrow(self, x):
        return Narrow.apply(x, self.policy.half, self.plant) if x.dtype == self.wide else x

    def widen(self, x):
        return Widen.apply(x, self.wide, self.plant) if x.dtype == self.policy.half else x

    def with_bias(self, product, p, shape):
        if self.plant == "bias_after_rounding" and self.out_half and "bias" in p:
            return self.widen(self.narrow(product(p["weight"], None))) + p["bias"].view(shape)
        return product(p["weight"], p.get("bias"))

    def read_params(self, params, op, low):
        """What op reads: half copies of its fp32 parameters where O1 casts, each made once per step."""
        found = {}
        for name in self.net.specs:
            owner, key = name.rsplit(".", 1)
            if owner != op:
                continue
            value = params[name]
            if low and value.dtype == self.wide:
                value = self.cast_cache.setdefault(name, self.narrow(value))
            found[key] = self.widen(value)
        return found

    def gives_half(self, kind, xs, stored):
        """Whether all floating inputs are half (for token ids, and where weights promote: the weights too).
        False for losses."""
        op_class = OPS[kind][0]
        numbers = [x.dtype for x in xs if x.is_floating_point()]
        read = numbers + (stored if op_class == "promote" or not numbers else [])
        lists = op_class == "fp32" and (self.policy.casts or kind in LOSSES)
        return all(dtype == self.policy.half for dtype in read) and not lists

    def step(self, name, kind, inputs, params):
        op_class, function, _ = OPS[kind]
        low = op_class == "low" and self.policy.casts
        xs = [self.narrow(x) if low and x.is_floating_point() else x for x in inputs]
        self.out_half = self.gives_half(kind, xs,
                                        [v.dtype for n, v in params.items() if n.rsplit(".", 1)[0] == name])
        p = self.read_params(params, name, low)
        wide = [self.widen(x) for x in xs]
        y = function(self, self.net.attrs[name], wide if kind in SEVERAL_INPUTS else wide[0], p)
        # running statistics kept in half: read, updated in fp32, stored with one rounding
        for key in BUFFERS:
            if key in p and params[f"{name}.{key}"].dtype == self.policy.half:
                params[f"{name}.{key}"].copy_(round_half(p[key], self.policy.half, self.plant))
        return self.narrow(y) if self.out_half else y

    def loss(self, params, images, targets):
        self.targets, self.cast_cache, self.calls = targets, {}, self.calls + 1
        images = images.to(self.wide) if images.is_floating_point() else images
        values = {"input": self.narrow(images) if self.policy.half_model else images}
        for name, kind, inputs in self.net.ops:
            values[name] = last = self.step(name, kind, [values[i] for i in inputs], params)
        return last


# ---- optimizers --------------------------------------------------------------------------------------------


class Lamb:
    """apex's FusedLAMB (csrc/multi_tensor_lamb.cu) without its gradient clipping, in torch operations."""

    def __init__(self, params, config, plant):
        self.params, self.config, self.plant, self.taken = list(params), config, plant, 0
        self.param_groups = [{"lr": config["lr"]}]
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.params]

    def step(self):
        self.taken += 1
        c, lr = self.config, self.param_groups[0]["lr"]
        for p, (m, v) in zip(self.params, self.moments):
            g, w = p.grad, p.detach()
            m.mul_(c["beta1"]).add_(g, alpha=1 - c["beta1"])
            v.mul_(c["beta2"]).add_(g * g, alpha=1 - c["beta2"])
            root = (v / (1 - c["beta2"]**self.taken)).sqrt() + c["eps"]
            d = m / (1 - c["beta1"]**self.taken) / root + c["weight_decay"] * w
            norms = float(w.norm()), float(d.norm())
            ratio = norms[0] / norms[1] if c["weight_decay"] and all(norms) else 1.0
            p.data.sub_((lr if self.plant == "no_trust_ratio" else lr * ratio) * d)


class Fused:
    """One update in fp32 from stored weight, gradient and state; each is rounded once when stored, and the
    weight uses the unrounded state. For half weights, where torch's own optimizers round after every
    elementary operation, and for planted mistakes."""

    def __init__(self, config, params, run):
        self.config, self.params, self.run, self.taken = config, params, run, 0
        self.state = {name: [torch.zeros_like(p), torch.zeros_like(p)] for name, p in params.items()}

    def update(self, w, g, s):
        c = self.config
        if c["optimizer"] == "adam":
            return self.adam(w, g, s)
        buffer = c["momentum"] * s[0] + g
        d = {"sgd": g, "momentum": buffer, "nesterov": g + c["momentum"] * buffer}[c["optimizer"]]
        return w - c["lr"] * d, [buffer, s[1]]

    def adam(self, w, g, s):
        c, plant = self.config, self.run.plant
        m = s[0] + (1 - c["beta1"]) * (g - s[0])
        v = c["beta2"] * s[1] + (1 - c["beta2"]) * g * g
        one, two = 1 - c["beta1"]**self.taken, 1 - c["beta2"]**self.taken
        if plant == "no_bias_correction":
            one = two = 1.0
        denominator = v.sqrt() / math.sqrt(two) + c["eps"]
        if plant == "eps_inside_root":
            denominator = (v / two + c["eps"]).sqrt()
        return w - c["lr"] / one * (m / denominator), [m, v]

    def step(self):
        self.taken += 1
        wide = self.run.wide
        for name, p in self.params.items():
            w, s = self.update(p.detach().to(wide), p.grad.to(wide), [x.to(wide) for x in self.state[name]])
            for stored, value in zip([p.data] + self.state[name], [w] + s):
                half = stored.dtype == self.run.policy.half
                stored.copy_(round_half(value, stored.dtype, self.run.plant) if half else value)


def make_optimizer(config, params, run):
    """torch's own optimizer wherever it computes in fp32."""
    half = any(p.dtype == run.policy.half for p in params.values())
    if half or run.plant in ("no_bias_correction", "eps_inside_root"):
        return Fused(config, params, run)
    betas, decay = (config["beta1"], config["beta2"]), config["weight_decay"]
    if config["optimizer"] == "lamb":
        return Lamb(params.values(), config, run.plant)
    if config["optimizer"] == "adam":
        return torch.optim.Adam(params.values(), config["lr"], betas, config["eps"], decay)
    if config["optimizer"] == "adamw":
        kind = torch.optim.Adam if run.plant == "decay_coupled" else torch.optim.AdamW
        return kind(params.values(), config["lr"], betas, config["eps"], decay)
    momentum = 0.0 if config["optimizer"] == "sgd" else config["momentum"]
    return torch.optim.SGD(params.values(), config["lr"], momentum, weight_decay=decay,
                           nesterov=config["optimizer"] == "nesterov")


def make_schedule(text, optimizer):
    """The schedule as torch has it, warm-up by a LinearLR from 0 (which is what transformers does too)."""
    if text == "constant":
        return None
    name, _, rest = text.partition(":")
    keys = {key: float(value) for key, _, value in (item.partition("=") for item in rest.split(","))}
    s, warmup, total = torch.optim.lr_scheduler, int(keys.get("warmup", 0)), int(keys["total"])
    after = {"cosine": lambda: s.CosineAnnealingLR(optimizer, total - warmup),
             "linear": lambda: s.LinearLR(optimizer, 1.0, 0.0, total - warmup)}[name]()
    if not warmup:
        return after
    # LinearLR needs a start above 0; LambdaLR may start at 0
    rise = s.LambdaLR(optimizer, lambda t: t / warmup)
    return s.SequentialLR(optimizer, [rise, after], [warmup])


# ---- training ----------------------------------------------------------------------------------------------


class Trainer:
    """A step: forward, loss * scale, backward, check and unscale, optimizer step or skip, scaler update."""

    def __init__(self, net, initial, config, plant=None, wide=torch.float32, channels_last=False):
        self.policy = Policy(config["level"], config["half"], config["scale"]).planted(plant)
        self.run, self.scaler = Run(net, self.policy, plant, wide), Scaler(self.policy.loss_scale)
        self.channels_last = channels_last
        self.params = {name: self.store(net, name, value.to(wide)) for name, value in initial.items()}
        self.model = {n: p.requires_grad_() for n, p in self.params.items() if not is_buffer(n)}
        self.trained = {n: self.master_of(p) for n, p in self.model.items()}
        self.optimizer = make_optimizer(config, self.trained, self.run)
        self.config, self.plant, self.run.seed = config, plant, config["seed"]
        stepped = isinstance(self.optimizer, torch.optim.Optimizer)
        # lamb is not in torch: its rate is copied from an optimizer that only holds it
        carrier = self.optimizer if stepped else torch.optim.SGD([torch.zeros(1, requires_grad=True)],
                                                                 config["lr"])
        self.carrier, self.schedule = carrier, make_schedule(config["schedule"], carrier)

    def store(self, net, name, value):
        batch_norm = next(kind for n, kind, _ in net.ops if n == name.rsplit(".", 1)[0]) == "batch_norm2d"
        if self.channels_last and value.dim() == 4:
            value = value.contiguous(memory_format=torch.channels_last)
        if self.policy.half_model and not (batch_norm and self.policy.keep_batchnorm):
            return round_half(value, self.policy.half, self.run.plant)
        return value.clone()

    def master_of(self, p):
        """As in apex, a master starts as the widened half weight."""
        wants = self.policy.masters and p.dtype == self.policy.half
        return p.detach().to(self.run.wide).requires_grad_() if wants else p

    def clip(self):
        grads = [p for p in self.trained.values() if p.grad is not None]
        if self.config["clip_norm"]:
            torch.nn.utils.clip_grad_norm_(grads, self.config["clip_norm"])
        if self.config["clip_value"]:
            torch.nn.utils.clip_grad_value_(grads, self.config["clip_value"])

    def unscale(self):
        """Unscaled gradients into the trained parameters; returns whether a scaled one was not finite."""
        if self.scaler.scale == 1.0 and not self.scaler.dynamic and not self.policy.masters:
            return False
        inverse = float(np.float32(1.0 / self.scaler.scale))
        overflow = False
        for name, p in self.model.items():
            scaled = self.sums[name] if name in self.sums else p.grad
            overflow |= not bool(torch.isfinite(scaled).all())
            grad = scaled.to(self.run.wide) * inverse
            half = self.trained[name].dtype == self.policy.half
            self.trained[name].grad = round_half(grad, self.policy.half, self.run.plant) if half else grad
        return overflow

    def backward(self, batches):
        """Scaled gradients of the mean over the batches; with masters summed in fp32, as apex does."""
        losses, share = [], 1.0 if self.plant == "accumulation_not_averaged" else 1.0 / len(batches)
        for images, targets in batches:
            if self.channels_last and images.dim() == 4:
                images = images.contiguous(memory_format=torch.channels_last)
            loss = self.run.loss(self.params, images, targets)
            (loss * (self.scaler.scale * share)).backward()
            losses.append(float(loss.detach()))
            for name, p in self.model.items():
                if len(batches) > 1 and self.trained[name] is not p:
                    self.sums[name] = self.sums.get(name, 0.0) + p.grad.to(self.run.wide)
                    p.grad = None
        return losses[0] if len(losses) == 1 else float(np.float32(sum(losses) / len(losses)))

    def step(self, batches):
        self.sums = {}
        for p in self.model.values():
            p.grad = None
        scale = self.scaler.scale
        loss = self.backward(batches)
        if self.plant == "schedule_one_step_ahead" and self.schedule:
            self.schedule.step()
        if self.plant == "clip_before_unscale":
            limit = self.config["clip_norm"]
            total = math.sqrt(sum(float(self.sums.get(n, p.grad).double().norm())**2
                                  for n, p in self.model.items()))
            for name, p in self.model.items():
                scaled = self.sums[name] if name in self.sums else p.grad
                scaled.mul_(min(1.0, limit / (total + 1e-6)))
        overflow = self.unscale()
        if self.plant != "clip_before_unscale":
            self.clip()
        skipped = self.scaler.update(overflow)
        if not skipped:
            self.optimizer.param_groups[0]["lr"] = self.carrier.param_groups[0]["lr"]
            self.optimizer.step()
            if self.carrier is not self.optimizer:
                self.carrier.step()
            self.copy_masters()
            if self.schedule and self.plant != "schedule_one_step_ahead":
                self.schedule.step()
        return {"loss": loss, "scale": scale, "skipped": skipped}

    def copy_masters(self):
        with torch.no_grad():
            for name, p in self.model.items():
                if self.trained[name] is not p:
                    p.copy_(round_half(self.trained[name].detach(), self.policy.half, self.run.plant))


# ---- traces ------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def sketch_signs(name, count):
    word, _ = philox(0, RNG_SAMPLE, fnv1a32(name), np.arange(count))
    return (word[None, :] >> np.arange(SKETCHES, dtype=np.uint64)[:, None] & np.uint64(1)) * 2.0 - 1.0


def describe(name, tensor):
    """Norm and random-sign sums, from which a distance to this tensor is estimated without storing it: the
    mean square of the differences of two tensors' sums estimates the squared norm of their difference (Alon,
    Matias, Szegedy 1996)."""
    values = tensor.detach().to(torch.float64).contiguous().reshape(-1).numpy()
    sums = sketch_signs(name, values.size) @ values
    return {"l2": float(np.sqrt((values * values).sum())), "sketch": [float(s) for s in sums]}


def record(net, initial, data, config, plant=None, **how):
    """Trains and returns losses, scales, skips and a summary of every tensor: its initial value, its gradient
    at the first step that is not skipped, and its value after the second such step."""
    trainer = Trainer(net, initial, config, plant, **how)
    start = {name: p.detach().clone() for name, p in trainer.trained.items()}
    tensors = {name: {"count": p.numel()} for name, p in trainer.params.items()
               if p.numel() <= config["largest"]}
    kept = {name: p for name, p in trainer.trained.items() if name in tensors}
    for name in kept:
        tensors[name]["precision"] = 1 - int(math.log2(torch.finfo(start[name].dtype).eps))
        tensors[name]["start"] = describe(name, start[name])
    steps, taken = [], 0
    for step in range(config["steps"]):
        micro = config["micro_batches"]
        steps.append(trainer.step([data.batch(step * micro + i, config["batch"]) for i in range(micro)]))
        taken += not steps[-1]["skipped"]
        if steps[-1]["skipped"] or taken > 2:
            continue
        for name, p in kept.items():
            if taken == 1:
                tensors[name]["gradient"] = describe(name, p.grad)
            else:
                tensors[name]["weight"] = describe(name, p)
                tensors[name]["update_l2"] = float((p.detach().double() - start[name].double()).norm())
        for name in filter(is_buffer, trainer.params):
            tensors[name]["buffer"] = describe(name, trainer.params[name])
    return {"steps": steps, "tensors": tensors}


def relative(a, b):
    return 0.0 if a == b else abs(a - b) / abs(b) if b else math.inf


def sketch_difference(a, b):
    return math.sqrt(statistics.fmean((x - y)**2 for x, y in zip(a["sketch"], b["sketch"])))


def sketch_distance(a, b):
    difference = sketch_difference(a, b)
    return 0.0 if difference == 0.0 else difference / b["l2"] if b["l2"] else math.inf


def weight_distance(a, b):
    """Relative to the update, not to the weight, less what rounding of the stored weight explains: one ulp
    in every fp32 weight, four elements of half weights."""
    l2 = b["weight"]["l2"]
    slack = (2.0**-23 + 2.0**(3 - b["precision"]) / math.sqrt(b["count"])) * l2
    difference = max(0.0, sketch_difference(a["weight"], b["weight"]) - slack)
    return 0.0 if difference == 0.0 else difference / b["update_l2"] if b["update_l2"] else math.inf


def distances(a, b):
    """Distances of trace a from trace b that tests/unit/bench/train/test_golden.c limits; worst tensor."""
    losses = [relative(x["loss"], y["loss"]) for x, y in zip(a["steps"], b["steps"])]
    both = [(t, b["tensors"][name]) for name, t in a["tensors"].items()]

    def worst(what, measure):
        return max((measure(x[what], y[what]) for x, y in both if what in x), default=0.0)

    return {
        "scales": sum((x["scale"], x["skipped"]) != (y["scale"], y["skipped"])
                      for x, y in zip(a["steps"], b["steps"])),
        "loss_1": losses[0], "loss_10": max(losses[:10]), "loss_60": max(losses[:60]),
        "start": worst("start", sketch_distance),
        "gradient_l2": worst("gradient", lambda x, y: relative(x["l2"], y["l2"])),
        "gradient": worst("gradient", sketch_distance),
        "weight": max(weight_distance(x, y) for x, y in both if "weight" in x),
        "buffer": worst("buffer", sketch_distance),
    }


@contextlib.contextmanager
def torch_settings(threads, onednn=True):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    with torch.backends.mkldnn.flags(enabled=onednn, allow_tf32=None):
        yield
    torch.set_num_threads(before)


VARIANTS = {  # threads, oneDNN, algorithm: all of them correct
    "2 threads": (2, True, {}),
    "1 thread, no oneDNN": (1, False, {}),
    "2 threads, no oneDNN": (2, False, {}),
    "channels last": (1, True, {"channels_last": True}),
    "fp64 in place of fp32": (1, True, {"wide": torch.float64}),
}


def drift(net, initial, data, config, base):
    """Distances between the trace and the same training with other threads, libraries or algorithms."""
    found = {}
    for label, (threads, onednn, how) in VARIANTS.items():
        with torch_settings(threads, onednn):
            measured = distances(record(net, initial, data, config, **how), base)
        found[label] = {key: float(f"{value:.2g}") for key, value in measured.items()}
    return found


def init_digest(initial):
    """FNV-1a of the trained parameters' fp32 bytes, in file order."""
    value = fnv1a64(b"")
    for name, tensor in initial.items():
        value = value if is_buffer(name) else fnv1a64(tensor.numpy().tobytes(), value)
    return f"{value:016x}"


def load_init(net, path, seed):
    if not path:
        return net.initial(seed)
    from safetensors.torch import load_file
    tensors = load_file(path)
    return {name: tensors[name].float().reshape(shape) for name, (shape, _) in net.specs.items()}


def resolve(path):
    """Paths of a configuration are relative to the project's root; a packed folder is <path>.txt."""
    inside = os.path.join(ROOT, path)
    there = os.path.exists(inside) or os.path.exists(inside + ".txt")
    return FASHION_MNIST if path == "fashion_mnist" else inside if there else path


def open_data(source, net, normalize):
    if source.startswith("bytes:"):
        return peer_ops.Text(resolve(source.removeprefix("bytes:")), net, fnv1a64)
    if source.startswith("arrays:"):
        return peer_ops.Arrays(resolve(source.removeprefix("arrays:")), fnv1a64)
    return Data(resolve(source), net.height, net.width, normalize)


def make_trace(config, plant=None):
    net = Net(resolve(config["net"]))
    data = open_data(config["data"], net, config["normalize"])
    initial = load_init(net, config["init"], config["seed"])
    with torch_settings(1):
        found = record(net, initial, data, config, plant)
    return {"format": "ampbench-golden-1", "made_by": f"scripts/peer_pytorch.py, torch {torch.__version__}",
            "config": config, "plant": plant, "init_digest": init_digest(initial),
            "data": {"mean": data.mean, "std": data.std, "first_batch_digest": data.digest(config["batch"])},
            "drift": None if plant else drift(net, initial, data, config, found), **found}


def shortened(value):
    """Numbers to 10 digits, more than any limit needs."""
    if isinstance(value, dict):
        return {k: shortened(v) for k, v in value.items()}
    if isinstance(value, list):
        return [shortened(v) for v in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value


def packed(document):
    """The document as text, one key or tensor a line; losses in hexadecimal (exact) and decimal."""
    steps = document["steps"]
    head = {key: value for key, value in document.items() if key not in ("steps", "tensors")}
    head["loss"] = [float(s["loss"]).hex() for s in steps]
    head["loss_decimal"] = [shortened(s["loss"]) for s in steps]
    head["scale"] = [s["scale"] for s in steps]
    head["skipped"] = [i for i, s in enumerate(steps) if s["skipped"]]
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in head.items()]
    rows = [f"{json.dumps(name)}: {json.dumps(shortened(parts))}"
            for name, parts in document["tensors"].items()]
    return "{\n" + ",\n".join(lines) + ',\n"tensors": {\n' + ",\n".join(rows) + "\n}}\n"


def unpacked(path):
    if os.path.exists(path):
        with open(path) as file:
            document = json.load(file)
    else:
        document = golden_traces.committed(path)
    document["steps"] = [{"loss": float.fromhex(loss), "scale": scale, "skipped": i in document["skipped"]}
                         for i, (loss, scale) in enumerate(zip(document["loss"], document["scale"]))]
    return document


# ---- the committed traces ----------------------------------------------------------------------------------

BASE = {"net": "lenet5", "data": "fashion_mnist", "normalize": "standard", "level": "O0", "half": "fp16",
        "scale": None,
        "optimizer": "momentum", "lr": 0.01, "momentum": 0.9, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8,
        "weight_decay": 0.0, "clip_norm": 0.0, "clip_value": 0.0, "micro_batches": 1, "schedule": "constant",
        "batch": 64, "steps": 10, "seed": 1, "init": None, "largest": 1 << 30}
TINY = {"net": "tests/golden/tiny.json", "data": "tests/golden/data", "batch": 8, "lr": 0.05, "steps": 3}
LENET5 = {"net": "lenet5", "lr": 0.01}
MLP = {"net": "mlp", "lr": 0.005}
# no input of a relu at step 1 is within rounding of 0: see the README
RESNET8 = {"net": "resnet8", "lr": 0.01, "seed": 4}
RESNET8_HALF = {**RESNET8, "seed": 17, "steps": 3}
TINY_TRANSFORMER = {**TINY, "net": "tests/golden/tiny_transformer.json", "optimizer": "momentum"}
RECIPE = {**TINY, "optimizer": "adamw", "lr": 0.003, "weight_decay": 0.1, "clip_norm": 0.5,
          "micro_batches": 2,
          "batch": 4, "schedule": "cosine:total=12,warmup=3", "steps": 10}
RECIPE_MOMENTUM = {**RECIPE, "optimizer": "momentum", "lr": 0.05, "clip_norm": 0.0, "clip_value": 0.02,
                   "weight_decay": 0.01}
GPT = {"net": "gpt", "data": "bytes:tests/golden/text/stream.txt"}
CLASSIFIER = {"net": "transformer_classifier", "data": "bytes:tests/golden/text/classes"}
LSTM_LM = {"net": "lstm_lm", "data": "bytes:tests/golden/text/stream.txt", "batch": 4, "lr": 0.5}
AUTOENCODER = {"net": "autoencoder", "data": "tests/golden/data", "batch": 8, "optimizer": "adam",
               "lr": 0.001}
UNET = {**AUTOENCODER, "net": "unet_small", "batch": 4, "optimizer": "momentum", "lr": 0.01}
RESNET50 = {"net": "tests/golden/resnet50_64.json", "data": "arrays:tests/golden/colours.npz", "batch": 6,
            "lr": 0.0001, "steps": 2,
            # larger tensors are slow to summarize; their errors show in the norms of later ones
            "largest": 20000}
VIT = {"net": "vit_tiny", "data": "tests/golden/data", "batch": 2, "steps": 3, "lr": 0.01}
HALF_LEVELS = ({"level": "O1"}, {"level": "O2"}, {"level": "O3"})

TRACES = [
    *({**TINY, "steps": 10, "optimizer": o} for o in ("sgd", "momentum", "nesterov")),
    {**TINY, "steps": 10, "optimizer": "adam", "lr": 0.001},
    *({**TINY, **level, "half": half} for level in HALF_LEVELS for half in HALF),
    {**TINY, "level": "O2", "optimizer": "adam", "lr": 0.001},
    {**TINY, "level": "O3", "scale": 128.0},
    {**TINY, "level": "O2", "scale": 1024.0},
    # skips the first three
    {**TINY, "net": "mlp", "level": "O2", "normalize": "none", "lr": 3e-6, "steps": 5},
    RECIPE,
    # with adam, half runs diverge soon after
    *({**RECIPE, "level": level, "steps": 4} for level in ("O1", "O2")),
    {**RECIPE, "optimizer": "lamb", "eps": 1e-6, "lr": 0.02, "schedule": "linear:total=12,warmup=2"},
    {**RECIPE, "optimizer": "lamb", "eps": 1e-6, "lr": 0.02, "level": "O2", "scale": 1024.0,
     "clip_value": 0.05,
     "steps": 4},
    RECIPE_MOMENTUM,
    *({**net, "steps": 60} for net in (LENET5, MLP)),
    *({**net, **level} for net in (LENET5, MLP) for level in HALF_LEVELS),
    {**LENET5, "level": "O2", "half": "bf16"},
    {**MLP, "optimizer": "adam", "lr": 0.001},
    {**MLP, "optimizer": "nesterov", "steps": 20},
    RESNET8,
    *({**RESNET8_HALF, **level} for level in HALF_LEVELS),
    {**TINY_TRANSFORMER, "steps": 10},
    *({**TINY_TRANSFORMER, **level, "half": half} for level in HALF_LEVELS for half in HALF),
]

# Larger built-in networks: in tests/golden/nets.
ADAMW = {**RECIPE, "lr": 0.001, "steps": 6}
LAMB = {**ADAMW, "steps": 4, "optimizer": "lamb", "eps": 1e-6, "lr": 0.01,
        "schedule": "linear:total=12,warmup=2"}
NET_TRACES = [
    *({**recipe, **net} for recipe in (ADAMW, LAMB) for net in (GPT, CLASSIFIER)),
    *({**ADAMW, **net, "level": level, "steps": 3} for net in (GPT, CLASSIFIER) for level in ("O1", "O2")),
    *({**LSTM_LM, "level": level, "steps": 3} for level in ("O0", "O1", "O2")),
    *({**net, "level": level, "steps": 3} for net in (AUTOENCODER, UNET) for level in ("O0", "O1", "O2")),
    RESNET50,  # in half, correct runs differ by as much as the norm of the gradients
    {**ADAMW, **VIT}, {**VIT, "level": "O2", "scale": 1024.0},  # the dynamic one skips the first steps
]

# The configuration in which each mistake is planted.
PLANTED = {
    "no_bias_correction": {"optimizer": "adam", "lr": 0.001},
    "eps_inside_root": {"optimizer": "adam", "lr": 0.001},
    "biased_running_variance": {},
    "unbiased_normalisation": {},
    "sum_for_mean": {},
    "truncation": {"level": "O2"},
    "subnormals_flushed": {"level": "O3"},
    "no_master_weights": {"level": "O2"},
    "O0_as_O2": {"level": "O2"},
    "O3_as_O2": {"level": "O2"},
    "bias_after_rounding": {"level": "O2"},
    "decay_coupled": {**RECIPE, "steps": 3},
    "clip_before_unscale": {**RECIPE, "level": "O2", "steps": 3},
    "accumulation_not_averaged": {**RECIPE_MOMENTUM, "steps": 3},
    "schedule_one_step_ahead": {**RECIPE, "steps": 3},
    "no_trust_ratio": {**RECIPE, "optimizer": "lamb", "eps": 1e-6, "lr": 0.02,
                       "schedule": "linear:total=12,warmup=2",
                       "steps": 3},
}


def trace_name(config):
    net = os.path.splitext(os.path.basename(config["net"]))[0]
    parts = [net, config["optimizer"], config["level"]]
    parts += [config["half"]] if config["level"] != "O0" else []
    parts += [f"scale{config['scale']:g}"] if config["scale"] is not None else []
    parts += ["recipe"] if config["micro_batches"] > 1 else []
    parts += [config["normalize"]] if config["normalize"] != "standard" else []
    return "-".join(parts) + ".json"


def write_trace(path, document):
    golden_traces.put(path, packed(document))


def regenerate(part):
    """The traces whose file name contains `part`."""
    for config in ({**BASE, **entry} for entry in TRACES):
        if part in trace_name(config):
            write_trace(os.path.join(GOLDEN, trace_name(config)), make_trace(config))
    for config in ({**BASE, **entry} for entry in NET_TRACES):
        if part in "nets/" + trace_name(config):
            write_trace(os.path.join(GOLDEN, "nets", trace_name(config)), make_trace(config))
    for plant, config in ((plant, {**BASE, **TINY, **entry}) for plant, entry in PLANTED.items()):
        if part in plant:
            steps = min(config["steps"], 3 if config["micro_batches"] > 1 else 2)
            document = {**make_trace({**config, "steps": steps}, plant), "honest": trace_name(config)}
            write_trace(os.path.join(GOLDEN, "planted", plant + ".json"), document)


# ---- the data of the tiny network --------------------------------------------------------------------------


def fixture_images(first, count):
    """12 x 12 images of ten classes: discs of a class's radius with a class's stripes, and noise."""
    n = np.arange(first, first + count)
    labels = n * 7 % 10
    y, x = np.mgrid[0:12, 0:12]
    c = labels[:, None, None]
    noise, _ = philox(0, RNG_SAMPLE, fnv1a32("fixture"), n[:, None, None] * 144 + y * 12 + x)
    stripes = (x * (1 + c % 3) + y * (1 + c // 3)) % 7 < 3
    disc = (x - 5.5)**2 + (y - 5.5)**2 < (3 + c % 4)**2
    pixels = np.where(disc, np.where(stripes, 200, 90), 10) + (noise % np.uint64(50)).astype(np.int64)
    return pixels.astype(np.uint8), labels.astype(np.uint8)


def write_fixture(directory):
    os.makedirs(directory, exist_ok=True)
    for stem, first, count in (("train", 0, 80), ("t10k", 80, 20)):
        for kind, array in zip(("images-idx3", "labels-idx1"), fixture_images(first, count)):
            with open(os.path.join(directory, f"{stem}-{kind}-ubyte"), "wb") as file:
                head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape)
                file.write(head + array.tobytes())


# ---- speed -------------------------------------------------------------------------------------------------


class Timed:
    """One arm: ordinary PyTorch training of a network in one layout and precision. Modes: fp32,
    autocast_fp16, autocast_bf16, and fp16, bf16: everything in that type, the loss in fp32."""
    warmup = 2

    def __init__(self, net, batches, mode, layout):
        self.net, self.mode, self.layout, self.times, self.first_loss = net, mode, layout, [], None
        self.format = torch.channels_last if layout == "channels_last" else torch.contiguous_format
        self.dtype = HALF.get(mode, torch.float32)
        self.batches = [(self.placed(x), y) for x, y in batches]
        self.params = {n: self.placed(t) if is_buffer(n) else self.leaf(t)
                       for n, t in net.initial(1).items()}
        self.owned = {name: {} for name, _, _ in net.ops}
        for name, tensor in self.params.items():
            owner, key = name.rsplit(".", 1)
            self.owned[owner][key] = tensor
        trained = [p for n, p in self.params.items() if not is_buffer(n)]
        adam, rate = net.defaults.get("optimizer", "").startswith("adam"), net.defaults.get("lr", 0.01)
        self.optimizer = (torch.optim.AdamW(trained, lr=rate) if adam
                          else torch.optim.SGD(trained, lr=rate, momentum=0.9))
        self.scaler = torch.amp.GradScaler("cpu", enabled=mode == "autocast_fp16")
        self.run = Run(net, Policy("O0"))

    def placed(self, tensor):
        if not tensor.is_floating_point():
            return tensor
        return tensor.to(self.dtype).contiguous(
            memory_format=self.format if tensor.dim() == 4 else torch.contiguous_format)

    def leaf(self, tensor):
        return self.placed(tensor).requires_grad_()

    def forward(self, images, targets):
        self.run.targets = targets
        values = {"input": images}
        for name, kind, inputs in self.net.ops:
            p, xs = self.owned[name], [values[i] for i in inputs]
            if kind == "batch_norm2d":  # in place, as nn.BatchNorm2d does it
                a = self.net.attrs[name]
                last = F.batch_norm(xs[0], p["running_mean"], p["running_var"], p.get("weight"),
                                    p.get("bias"), True,
                                    a.get("momentum", 0.1), a.get("eps", 1e-5))
            else:
                xs = [x.float() for x in xs] if kind in LOSSES else xs
                inputs = xs if kind in SEVERAL_INPUTS else xs[0]
                last = OPS[kind][1](self.run, self.net.attrs[name], inputs, p)
            values[name] = last
        return last

    def step(self):
        images, targets = self.batches[len(self.times) % len(self.batches)]
        begin = time.perf_counter_ns()
        self.optimizer.zero_grad()
        dtype = HALF.get(self.mode.removeprefix("autocast_"))
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            loss = self.forward(images, targets)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.times.append(time.perf_counter_ns() - begin)
        if self.first_loss is None:
            self.first_loss = loss.item()


def bench_batches(net, data, size):
    """Eight batches in file order."""
    text = "bytes:tests/golden/text/stream.txt"  # the values of tokens do not matter here
    source = open_data(text if "tokens" in net.document["input"] else data or FASHION_MNIST, net, "standard")
    return [source.batch(i, size) for i in range(8)]


def layouts_of(net, wanted):
    """Both layouts where there are images to lay out; a layout by its name."""
    if wanted != "both":
        return (wanted,)
    images = any(kind == "conv2d" for _, kind, _ in net.ops)
    return ("contiguous", "channels_last") if images else ("contiguous",)


def bench(options):
    """Step times of each arm, taken in turns (peer_turns.py)."""
    net = Net(options.net)
    batches = bench_batches(net, options.data, options.batch)
    with torch_settings(options.threads):
        arms = [Timed(net, batches, mode, layout) for mode in options.modes.split(",")
                for layout in layouts_of(net, "both" if mode == "fp32" else options.half_layout)]
        arms = peer_turns.take_turns(arms, options.seconds, options.max_steps)
        results = [peer_turns.result_of(arm, net=net.name, mode=arm.mode, layout=arm.layout,
                                        batch=options.batch, threads=torch.get_num_threads())
                   for arm in arms]
    json.dump({"torch": torch.__version__, "results": results}, sys.stdout)
    print()


# ---- command line ------------------------------------------------------------------------------------------


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0],
                                     formatter_class=argparse.RawTextHelpFormatter)
    for key, value in BASE.items():
        kind = float if key == "scale" else str if value is None else type(value)
        parser.add_argument("--" + key, type=kind, default=value, help=f"default {value}")
    parser.add_argument("--out", help="write one trace here (- for standard output)")
    parser.add_argument("--plant", choices=PLANTS, metavar="NAME",
                        help="\n".join(f"{name}: {text}" for name, text in PLANTS.items()))
    parser.add_argument("--regenerate", nargs="?", const="", metavar="PART",
                        help="the committed traces (those with PART in their names)")
    parser.add_argument("--write-data", metavar="DIR", help="the images of the tiny network")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), help="distances of trace A from trace B")
    parser.add_argument("--bench", action="store_true", help="time steps and print JSON")
    parser.add_argument("--threads", type=int, default=1, help="of --bench")
    parser.add_argument("--modes", default="fp32,autocast_fp16,autocast_bf16",
                        help="of --bench: fp32, autocast_fp16, autocast_bf16, fp16, bf16; see peer_cuda.py")
    parser.add_argument("--device", default="cpu",
                        help="of --bench: cpu (our data), or cuda and cpu:0 (peer_cuda.py)")
    parser.add_argument("--products", action="store_true",
                        help="of --bench --device: rates of torch's products too")
    parser.add_argument("--half-layout", default="contiguous",
                        choices=("contiguous", "channels_last", "both"))
    parser.add_argument("--seconds", type=float, default=3.0, help="of --bench, for each arm")
    parser.add_argument("--max-steps", type=int, default=200, help="of --bench, for each arm")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    if options.bench and options.device != "cpu":
        import peer_cuda
        peer_cuda.bench(sys.modules[__name__], options)
    elif options.bench:
        bench(options)
    elif options.compare:
        print(json.dumps(distances(*(unpacked(path) for path in options.compare)), indent=1))
    elif options.write_data:
        write_fixture(options.write_data)
        peer_ops.write_colours(os.path.join(os.path.dirname(os.path.abspath(options.write_data)),
                                            "colours.npz"))
        peer_ops.write_text(os.path.join(os.path.dirname(os.path.abspath(options.write_data)), "text"))
    elif options.regenerate is not None:
        regenerate(options.regenerate)
    elif options.out:
        document = make_trace({key: getattr(options, key) for key in BASE}, options.plant)
        if options.out == "-":
            sys.stdout.write(packed(document))
        else:
            with open(options.out, "w") as file:
                file.write(packed(document))
    else:
        sys.exit("nothing to do: expected --out, --regenerate, --compare, --write-data or --bench; "
                 "see --help")


if __name__ == "__main__":
    main(sys.argv[1:])
