#!/usr/bin/env python3
"""Records what torch's optimizers, schedules and clipping and apex's LARC and FusedLAMB formulas compute.

Writes tests/golden/optimizers.json, schedules.json and clipping.json.

    golden_optimizers.py            all files (torch 2.11, numpy; transformers for the warm-up schedules)
    golden_optimizers.py optimizers | schedules | clipping

Not part of the build and not run by any test. torch.optim is used unchanged. apex's optimizers need its
CUDA build, MindSpore's and Keras's their frameworks; their formulas are reimplemented here: lamb and LARC in
torch operations, from csrc/multi_tensor_lamb.cu and apex/parallel/LARC.py, the others in numpy's doubles.
Weights and gradients are multiples of 2^-30 made from Philox, exact in fp32, so that both sides start from
the same bits.
"""

import json
import math
import os
import sys

import numpy as np
import torch

from peer_pytorch import GOLDEN, philox

N, STEPS, KEPT = 33, 50, (1, 2, 5, 12, 50)
HALF_STEPS = 12
RNG_SAMPLE = 6


def uniform(step, scale):
    """scale * U(-1, 1), exact: 24 random bits and a power of two."""
    word, _ = philox(42, RNG_SAMPLE, step, np.arange(N))
    u = (word >> np.uint64(8)).astype(np.float64) * 2.0**-24
    return torch.from_numpy((scale * (2.0 * u - 1.0)).astype(np.float32))


# ---- apex's formulas ---------------------------------------------------------------------------------------


class Lamb:
    def __init__(self, params, lr, betas, eps, weight_decay, upside_down=False):
        (self.w,), self.lr, self.betas, self.eps, self.decay = params, lr, betas, eps, weight_decay
        self.m, self.v, self.t = torch.zeros_like(self.w), torch.zeros_like(self.w), 0
        self.upside_down = upside_down

    def step(self):
        self.t += 1
        (b1, b2), g = self.betas, self.w.grad
        self.m = self.m * b1 + (1 - b1) * g
        self.v = self.v * b2 + (1 - b2) * g * g
        unbiased = self.v / (1 - b2**self.t)
        d = self.m / (1 - b1**self.t) / (unbiased.sqrt() + self.eps) + self.decay * self.w.detach()
        w_norm, d_norm = float(self.w.detach().norm()), float(d.norm())
        adapts = self.decay != 0 and w_norm != 0 and d_norm != 0
        if self.upside_down:  # a mistake
            w_norm, d_norm = d_norm, w_norm
        self.w.data -= (self.lr * w_norm / d_norm if adapts else self.lr) * d


class Larc:
    def __init__(self, params, lr, momentum, weight_decay, trust_coefficient, eps, clip):
        (self.w,), self.decay, self.trust = params, weight_decay, trust_coefficient
        self.eps, self.clip = eps, clip
        self.lr, self.sgd = lr, torch.optim.SGD(params, lr, momentum)

    def step(self):
        w_norm, g_norm = self.w.detach().norm(), self.w.grad.norm()
        if w_norm != 0 and g_norm != 0:
            rate = self.trust * w_norm / (g_norm + w_norm * self.decay + self.eps)
            rate = min(float(rate) / self.lr, 1.0) if self.clip else float(rate)
            self.w.grad = rate * (self.w.grad + self.decay * self.w.detach())
        self.sgd.step()


# ---- formulas of other libraries, in doubles -------------------------------------------------------------


class Doubles:
    """One parameter in double precision; `number`: lr, beta1, ...; `key`: the optimizer's own switches."""

    def __init__(self, params, config):
        (self.p,), self.t = params, 0
        self.w = self.p.detach().double().numpy().copy()
        self.first, self.second = np.zeros_like(self.w), np.zeros_like(self.w)
        self.number, self.key = {"weight_decay": 0.0, **config}, config.get("keys", {})

    def step(self):
        self.t += 1
        self.w = self.updated(self.w, self.p.grad.double().numpy(), **self.number)
        self.p.data = torch.from_numpy(self.w).float()

    def unbiased(self, mean, beta):
        return mean / (1 - beta**self.t) if self.key.get("bias_correction", True) else mean


class FusedAdam(Doubles):
    """apex/optimizers/fused_adam.py"""

    def updated(self, w, g, lr, beta1, beta2, eps, weight_decay, keys=None):
        coupled = not self.key.get("adam_w_mode", True)
        if coupled:
            g = g + weight_decay * w
        self.first = beta1 * self.first + (1 - beta1) * g
        self.second = beta2 * self.second + (1 - beta2) * g**2
        step = self.unbiased(self.first, beta1) / (np.sqrt(self.unbiased(self.second, beta2)) + eps)
        return w - lr * step if coupled else w - lr * (step + weight_decay * w)


class FusedLamb(Doubles):
    """apex/optimizers/fused_lamb.py, with one parameter in the global norm"""

    def updated(self, w, g, lr, beta1, beta2, eps, weight_decay, keys=None):
        limit, norm = self.key.get("max_grad_norm", 1.0), math.sqrt(sum(g**2))
        if norm > limit:
            g = g / (norm / limit)
        coupled = not self.key.get("adam_w_mode", True)
        if coupled:
            g = g + weight_decay * w
        self.first = beta1 * self.first + (1 - beta1 if self.key.get("grad_averaging", True) else 1) * g
        self.second = beta2 * self.second + (1 - beta2) * g**2
        d = self.unbiased(self.first, beta1) / (np.sqrt(self.unbiased(self.second, beta2)) + eps)
        if not coupled:
            d = d + weight_decay * w
        adapts = weight_decay != 0 or self.key.get("use_nvlamb", False)
        return w - (lr * math.sqrt(sum(w**2)) / math.sqrt(sum(d**2)) if adapts else lr) * d


class FusedNovoGrad(Doubles):
    """apex/optimizers/fused_novograd.py"""

    def updated(self, w, g, lr, beta1, beta2, eps, weight_decay, keys=None):
        infinite = self.key.get("norm_type", 2) == 0
        size = max(abs(g)) if infinite else math.sqrt(sum(g**2))
        old = getattr(self, "norm", 0.0 if self.key.get("init_zero", False) else size)
        if infinite:
            self.norm = beta2 * old + (1 - beta2) * size
        else:
            self.norm = math.sqrt(beta2 * old**2 + (1 - beta2) * size**2)
        corrects = self.key.get("bias_correction", True)
        denominator = self.norm / (math.sqrt(1 - beta2**self.t) if corrects else 1) + eps
        fresh = 1 - beta1 if self.key.get("grad_averaging", True) else 1
        if self.key.get("reg_inside_moment", False):
            self.first = beta1 * self.first + fresh * (g / denominator + weight_decay * w)
            return w - lr * self.unbiased(self.first, beta1)
        self.first = beta1 * self.first + fresh * g
        return w - lr * (self.unbiased(self.first, beta1) / denominator + weight_decay * w)


class FusedAdagrad(Doubles):
    """apex/optimizers/fused_adagrad.py"""

    def updated(self, w, g, lr, eps, weight_decay, keys=None):
        beside = self.key.get("adagrad_w_mode", False)
        g = g if beside else g + weight_decay * w
        self.first = self.first + g**2
        step = g / (np.sqrt(self.first) + eps)
        return w - lr * (step + weight_decay * w if beside else step)


class FusedSgd(Doubles):
    """apex/optimizers/fused_sgd.py"""

    def updated(self, w, g, lr, momentum, weight_decay, dampening=0.0, keys=None):
        after, d = self.key.get("wd_after_momentum", False), g
        if not after:
            d = d + weight_decay * w
        if momentum != 0:
            self.first = d if self.t == 1 else momentum * self.first + (1 - dampening) * d
            d = d + momentum * self.first if self.key.get("nesterov", False) else self.first
        if after:
            d = d + weight_decay * w
        return w - lr * d


class AdamWeightDecay(Doubles):
    """mindspore.nn.AdamWeightDecay"""

    def updated(self, w, g, lr, beta1, beta2, eps, weight_decay, keys=None):
        self.first = beta1 * self.first + (1 - beta1) * g
        self.second = beta2 * self.second + (1 - beta2) * g**2
        return w - lr * (self.first / (eps + np.sqrt(self.second)) + weight_decay * w)


class KerasSgd(Doubles):
    """keras.optimizers.SGD"""

    nesterov = False

    def updated(self, w, g, lr, momentum, weight_decay, keys=None):
        w = w - w * weight_decay * lr
        self.first = self.first * momentum - g * lr
        return w + (self.first * momentum - g * lr if self.nesterov else self.first)


class KerasNesterov(KerasSgd):
    nesterov = True


# ---- mistakes that a comparison must find ------------------------------------------------------------------


class WrongAdam:
    """adamw with one mistake."""

    def __init__(self, params, lr, betas, eps, weight_decay, mistake):
        (self.w,), self.lr, self.betas, self.eps, self.decay = params, lr, betas, eps, weight_decay
        self.m, self.v, self.t, self.mistake = torch.zeros_like(self.w), torch.zeros_like(self.w), 0, mistake

    def step(self):
        self.t += 1
        (b1, b2), g, w = self.betas, self.w.grad, self.w.data
        if self.mistake == "decay_coupled":
            g = g + self.decay * w
        elif self.mistake == "decay_without_lr":
            w.mul_(1 - self.decay)
        else:
            w.mul_(1 - self.lr * self.decay)
        self.m = self.m * b1 + (1 - b1) * g
        self.v = self.v * b2 + (1 - b2) * g * g
        one, two = 1 - b1**self.t, 1 - b2**self.t
        if self.mistake == "no_bias_correction":
            one = two = 1
        denominator = (self.v / two).sqrt() + self.eps
        if self.mistake == "eps_inside_root":
            denominator = (self.v / two + self.eps).sqrt()
        w -= self.lr / one * self.m / denominator


class WrongRmsprop:
    def __init__(self, params, lr, alpha, eps):
        (self.w,), self.lr, self.alpha, self.eps = params, lr, alpha, eps
        self.s = torch.zeros_like(self.w)

    def step(self):
        g = self.w.grad
        self.s = self.alpha * self.s + (1 - self.alpha) * g * g
        self.w.data -= self.lr * g / (self.s + self.eps).sqrt()


# Name and hyper-parameters as ampbench calls them, what to run.
CASES = [
    ("sgd", {"lr": 0.1, "weight_decay": 0.05}, lambda p, c: torch.optim.SGD(p, c["lr"], weight_decay=0.05)),
    (
        "momentum",
        {"lr": 0.1, "momentum": 0.8, "dampening": 0.5, "weight_decay": 0.05},
        lambda p, c: torch.optim.SGD(p, c["lr"], 0.8, 0.5, 0.05),
    ),
    (
        "nesterov",
        {"lr": 0.1, "momentum": 0.8, "weight_decay": 0.05},
        lambda p, c: torch.optim.SGD(p, c["lr"], 0.8, 0, 0.05, nesterov=True),
    ),
    (
        "adam",
        {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": 0.1},
        lambda p, c: torch.optim.Adam(p, c["lr"], (0.8, 0.95), c["eps"], c["weight_decay"]),
    ),
    (
        "adamw",
        {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": 0.1},
        lambda p, c: torch.optim.AdamW(p, c["lr"], (0.8, 0.95), c["eps"], c["weight_decay"]),
    ),
    (
        "adamw",
        {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01},
        lambda p, c: torch.optim.AdamW(p, c["lr"]),
    ),
    (
        "rmsprop",
        {"lr": 0.01, "alpha": 0.9, "eps": 1e-3, "weight_decay": 0.1},
        lambda p, c: torch.optim.RMSprop(p, c["lr"], 0.9, c["eps"], 0.1),
    ),
    (
        "rmsprop_momentum",
        {"lr": 0.01, "alpha": 0.9, "eps": 1e-3, "weight_decay": 0.1, "momentum": 0.8},
        lambda p, c: torch.optim.RMSprop(p, c["lr"], 0.9, c["eps"], 0.1, 0.8),
    ),
    (
        "rmsprop_centered",
        {"lr": 0.01, "alpha": 0.9, "eps": 1e-2, "weight_decay": 0.1},
        lambda p, c: torch.optim.RMSprop(p, c["lr"], 0.9, c["eps"], 0.1, centered=True),
    ),
    (
        "adagrad",
        {"lr": 0.01, "lr_decay": 0.1, "eps": 1e-3, "weight_decay": 0.1},
        lambda p, c: torch.optim.Adagrad(p, c["lr"], 0.1, 0.1, eps=c["eps"]),
    ),
    (
        "lamb",
        {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": 0.1},
        lambda p, c: Lamb(p, c["lr"], (0.8, 0.95), c["eps"], 0.1),
    ),
    (
        "lamb",
        {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": 0.0},
        lambda p, c: Lamb(p, c["lr"], (0.8, 0.95), c["eps"], 0.0),
    ),
    (
        "lars",
        {"lr": 0.5, "momentum": 0.8, "weight_decay": 0.1, "trust_coefficient": 0.02, "eps": 1e-3},
        lambda p, c: Larc(p, c["lr"], 0.8, 0.1, 0.02, c["eps"], False),
    ),
    (
        "larc",
        {"lr": 0.05, "momentum": 0.8, "weight_decay": 0.1, "trust_coefficient": 0.02, "eps": 1e-3},
        lambda p, c: Larc(p, c["lr"], 0.8, 0.1, 0.02, c["eps"], True),
    ),
]

ADAM_NUMBERS = {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": 0.1}
SGD_NUMBERS = {"lr": 0.1, "momentum": 0.8, "weight_decay": 0.05}
CASES += [
    (name, {**numbers, "keys": keys} if keys else numbers, make)
    for name, make, numbers, variants in [
        ("fusedadam", FusedAdam, ADAM_NUMBERS, [{}, {"adam_w_mode": False}, {"bias_correction": False}]),
        (
            "fusedadagrad",
            FusedAdagrad,
            {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.1},
            [{}, {"adagrad_w_mode": True}],
        ),
        (
            "fusedsgd",
            FusedSgd,
            SGD_NUMBERS,
            [
                {},
                {"nesterov": True},
                {"wd_after_momentum": True},
                {"nesterov": True, "wd_after_momentum": True},
            ],
        ),
        ("fusedsgd", FusedSgd, {**SGD_NUMBERS, "dampening": 0.5}, [{}]),
        ("fusedsgd", FusedSgd, {**SGD_NUMBERS, "momentum": 0.0}, [{}]),
        (
            "fusedlamb",
            FusedLamb,
            ADAM_NUMBERS,
            [
                {"max_grad_norm": 0.25},
                {"max_grad_norm": 100.0},
                {"adam_w_mode": False},
                {"grad_averaging": False},
                {"bias_correction": False},
            ],
        ),
        ("fusedlamb", FusedLamb, {**ADAM_NUMBERS, "weight_decay": 0.0}, [{}, {"use_nvlamb": True}]),
        (
            "fusednovograd",
            FusedNovoGrad,
            ADAM_NUMBERS,
            [
                {},
                {"reg_inside_moment": True},
                {"norm_type": 0},
                {"init_zero": True},
                {"grad_averaging": False},
                {"bias_correction": False},
            ],
        ),
        ("adam_weight_decay", AdamWeightDecay, ADAM_NUMBERS, [{}]),
        ("keras_momentum", KerasSgd, SGD_NUMBERS, [{}]),
        ("keras_nesterov", KerasNesterov, SGD_NUMBERS, [{}]),
    ]
    for keys in variants
]

ADAM_CASE = {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": 0.1}
PLANTED = [
    (name, "adamw", ADAM_CASE, lambda p, c, m=name: WrongAdam(p, c["lr"], (0.8, 0.95), c["eps"], 0.1, m))
    for name in ("decay_coupled", "decay_without_lr", "no_bias_correction", "eps_inside_root")
] + [
    (
        "eps_inside_root",
        "rmsprop",
        {"lr": 0.01, "alpha": 0.9, "eps": 1e-3, "weight_decay": 0.0},
        lambda p, c: WrongRmsprop(p, c["lr"], 0.9, c["eps"]),
    ),
    (
        "other_keys",
        "fusedlamb",
        {**ADAM_NUMBERS, "keys": {"max_grad_norm": 0.25}},
        lambda p, c: FusedLamb(p, {**c, "keys": {"max_grad_norm": 100.0}}),
    ),
    (
        "other_keys",
        "fusednovograd",
        {**ADAM_NUMBERS, "keys": {"init_zero": True}},
        lambda p, c: FusedNovoGrad(p, ADAM_NUMBERS),
    ),
    (
        "other_keys",
        "fusedsgd",
        {**SGD_NUMBERS, "keys": {"wd_after_momentum": True}},
        lambda p, c: FusedSgd(p, SGD_NUMBERS),
    ),
    ("ratio_upside_down", "lamb", ADAM_CASE, lambda p, c: Lamb(p, c["lr"], (0.8, 0.95), c["eps"], 0.1, True)),
]


def trajectory(make, config):
    w = uniform(1000, 0.5).requires_grad_()
    optimizer, kept = make([w], config), {}
    for t in range(1, STEPS + 1):
        w.grad = uniform(t, 0.25)
        optimizer.step()
        if t in KEPT:
            kept[str(t)] = [float(x).hex() for x in w.detach()]
    return kept


BY_OP = [case for case in CASES if case[0] in ("sgd", "momentum", "nesterov", "adam", "adamw")]


def short_hex(x):
    """float.hex without the zeros at the end of its fraction."""
    digits, p, exponent = float(x).hex().partition("p")
    return (digits.rstrip("0").rstrip(".") if "." in digits else digits) + p + exponent


def half_trajectory(make, config, dtype):
    """The last weights of a for-loop optimizer on half tensors, which rounds after every operation."""
    w = uniform(1000, 0.5).to(dtype).requires_grad_()
    optimizer = make([w], config)
    for group in optimizer.param_groups:
        group["foreach"] = False
    for t in range(1, HALF_STEPS + 1):
        w.grad = uniform(t, 0.25).to(dtype)
        optimizer.step()
    return [short_hex(x) for x in w.detach()]


def by_op():
    formats = ("fp16", torch.float16), ("bf16", torch.bfloat16)
    return [
        {"optimizer": name, "config": config, "format": text, "weights": half_trajectory(make, config, dtype)}
        for name, config, make in BY_OP
        for text, dtype in formats
    ]


def optimizers():
    rows = [
        {"optimizer": name, "config": config, "planted": None, "weights": trajectory(make, config)}
        for name, config, make in CASES
    ]
    rows += [
        {"optimizer": name, "config": config, "planted": mistake, "weights": trajectory(make, config)}
        for mistake, name, config, make in PLANTED
    ]
    lines = ",\n".join(json.dumps(row) for row in rows)
    halves = ",\n".join(json.dumps(row) for row in by_op())
    return (
        f'{{"format": "ampbench-golden-optimizers-1", "made_by": "scripts/golden_optimizers.py, torch '
        f'{torch.__version__}", "count": {N}, "cases": [\n{lines}\n], "by_op": [\n{halves}\n]}}\n'
    )


# ---- schedules ---------------------------------------------------------------------------------------------


def rates(make, steps, lr=0.1, momentum=False):
    """Learning rate and momentum at steps 0, 1, ..., of one weight whose optimizer skips no step."""
    w = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr, momentum=0.9)
    schedule, found, momenta = make(optimizer), [], []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        momenta.append(optimizer.param_groups[0]["momentum"])
        w.grad = torch.zeros(1)
        optimizer.step()
        schedule.step()
    return [found, momenta if momentum else None]


def warmed(after, steps, start):
    s = torch.optim.lr_scheduler
    return lambda o: s.SequentialLR(o, [s.LinearLR(o, start, 1.0, steps), after(o)], [steps])


def schedule_cases():
    import transformers.optimization as hf

    s = torch.optim.lr_scheduler
    return [
        ("constant", {}, rates(lambda o: s.LambdaLR(o, lambda t: 1.0), 10)),
        ("constant", {"warmup": 4}, rates(lambda o: hf.get_constant_schedule_with_warmup(o, 4), 10)),
        ("step", {"step_size": 3, "gamma": 0.5}, rates(lambda o: s.StepLR(o, 3, 0.5), 14)),
        (
            "step",
            {"step_size": 3, "gamma": 0.5, "warmup": 4, "warmup_start": 0.25},
            rates(warmed(lambda o: s.StepLR(o, 3, 0.5), 4, 0.25), 14),
        ),
        ("cosine", {"total": 20, "final": 0.01}, rates(lambda o: s.CosineAnnealingLR(o, 20, 0.01), 20)),
        (
            "cosine",
            {"total": 20, "warmup": 5},
            rates(lambda o: hf.get_cosine_schedule_with_warmup(o, 5, 20), 21),
        ),
        (
            "linear",
            {"total": 20, "warmup": 5},
            rates(lambda o: hf.get_linear_schedule_with_warmup(o, 5, 20), 24),
        ),
        ("linear", {"total": 12, "final": 0.02}, rates(lambda o: s.LinearLR(o, 1.0, 0.2, 12), 16)),
        ("polynomial", {"total": 12, "power": 2.0}, rates(lambda o: s.PolynomialLR(o, 12, 2.0), 16)),
        (
            "polynomial",
            {"total": 20, "warmup": 5, "power": 1.5, "final": 0.01},
            rates(lambda o: hf.get_polynomial_decay_schedule_with_warmup(o, 5, 20, 0.01, 1.5), 24),
        ),
        ("one_cycle", {"total": 20}, rates(lambda o: s.OneCycleLR(o, 0.1, 20), 20, momentum=True)),
        (
            "one_cycle",
            {"total": 17, "pct_start": 0.4, "div_factor": 10.0, "final_div_factor": 100.0},
            rates(
                lambda o: s.OneCycleLR(o, 0.1, 17, pct_start=0.4, div_factor=10.0, final_div_factor=100.0),
                17,
                momentum=True,
            ),
        ),
    ]


def schedules():
    import transformers

    rows = [
        {
            "schedule": name,
            "config": {"lr": 0.1, **config},
            "lr": [float(x).hex() for x in found],
            "momentum": momenta and [float(x).hex() for x in momenta],
        }
        for name, config, (found, momenta) in schedule_cases()
    ]
    lines = ",\n".join(json.dumps(row) for row in rows)
    return (
        f'{{"format": "ampbench-golden-schedules-1", "made_by": "scripts/golden_optimizers.py, torch '
        f'{torch.__version__}, transformers {transformers.__version__}", "cases": [\n{lines}\n]}}\n'
    )


# ---- clipping ----------------------------------------------------------------------------------------------


def clip_case(dtype, sizes, scale, norm, value):
    grads = []
    for i, size in enumerate(sizes):
        word, _ = philox(42, RNG_SAMPLE, 2000 + i, np.arange(size))
        u = (word >> np.uint64(8)).astype(np.float64) * 2.0**-24
        grads.append(torch.from_numpy((scale * (2.0 * u - 1.0)).astype(np.float32)).to(dtype))
    params = [torch.zeros_like(g).requires_grad_() for g in grads]
    for p, g in zip(params, grads):
        p.grad = g.clone()
    total = torch.nn.utils.clip_grad_norm_(params, norm) if norm else torch.zeros(())
    if value:
        torch.nn.utils.clip_grad_value_(params, value)
    return {
        "format": str(dtype).replace("torch.float32", "fp32").replace("torch.float16", "fp16"),
        "scale": scale,
        "norm": norm,
        "value": value,
        "total": float(total).hex(),
        "grads": [[float(x).hex() for x in p.grad] for p in params],
    }


def clipping():
    f32, f16, sizes = torch.float32, torch.float16, (33, 7, 5)
    rows = [
        clip_case(f32, sizes, 0.5, 1.0, 0.0),
        clip_case(f32, sizes, 2.0**-7, 1.0, 0.0),
        clip_case(f32, sizes, 0.5, 0.0, 0.125),
        clip_case(f32, sizes, 0.5, 1.0, 0.0625),
        clip_case(f16, sizes, 0.5, 1.0, 0.0),
        clip_case(f16, sizes, 2.0**-12, 2.0**-14, 0.0),
        clip_case(f16, sizes, 2.0**15, 1.0, 0.0),
        clip_case(f16, sizes, 0.5, 0.0, 0.1),
    ]
    lines = ",\n".join(json.dumps(row) for row in rows)
    return (
        f'{{"format": "ampbench-golden-clipping-1", "made_by": "scripts/golden_optimizers.py, torch '
        f'{torch.__version__}", "cases": [\n{lines}\n]}}\n'
    )


def main():
    makers = {"optimizers": optimizers, "schedules": schedules, "clipping": clipping}
    wanted = sys.argv[1:] or list(makers)
    for name in wanted:
        with open(os.path.join(GOLDEN, name + ".json"), "w") as file:
            file.write(makers[name]())


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert math.isclose(float(uniform(1, 0.25).abs().max()), 0.25, rel_tol=0.2)
    main()
