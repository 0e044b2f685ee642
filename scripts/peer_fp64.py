#!/usr/bin/env python3
"""Errors of fp32 against fp64, in PyTorch, which the fp32 references of `ampbench diagnose` do not measure.

    peer_fp64.py                  a table for docs/diagnose.md
    peer_fp64.py --net lenet5     one network

Gradients: of the same weights and batches in fp32, in fp64 and at O2 (fp16, scale 1024), at steps 0, 20 and
40 of a training in fp64. For each tensor: norm of the difference over the norm of fp64's.
Losses: two trainings from the same bits, fp32 and fp64, compared as `--twins` does: means of 20 steps, which
differ if the difference is 5 %, and 2 % of the first one.
Rates: the same at increasing learning rates; the first step whose loss is NaN, inf or three times the first.

Not part of the build and run by no test. Needs torch and numpy, as peer_pytorch.py, whose networks and
training it uses.
"""
import argparse
import math
import statistics

import torch

import peer_pytorch as peer

WINDOW = 20
NETS = {"mlp": peer.MLP, "lenet5": peer.LENET5, "resnet8": {**peer.RESNET8, "batch": 16},
        "autoencoder": peer.AUTOENCODER,
        "transformer_classifier": {**peer.CLASSIFIER, "batch": 8}, "lstm_lm": peer.LSTM_LM,
        "vit_tiny": peer.VIT}


def config_of(name, **changes):
    return {**peer.BASE, **NETS[name], **changes}


def gradients(net, values, config, batch, **how):
    """Unscaled gradients of one batch at given weights, in double."""
    trainer = peer.Trainer(net, values, config, **how)
    trainer.backward([batch])
    trainer.sums = {}
    return {name: p.grad.detach().double() / trainer.scaler.scale for name, p in trainer.model.items()}


def errors(of, reference):
    return [float((of[n] - g).norm() / g.norm()) for n, g in reference.items() if float(g.norm()) > 0]


def gradient_errors(name):
    config = config_of(name)
    net = peer.Net(peer.resolve(config["net"]))
    data = peer.open_data(config["data"], net, config["normalize"])
    fp64 = peer.Trainer(net, net.initial(1), config, wide=torch.float64)
    found = {"fp32": [], "O2": []}
    for step in range(41):
        batch = data.batch(step, config["batch"])
        if step % 20 == 0:
            values = {n: p.detach().float() for n, p in fp64.params.items()}
            reference = gradients(net, values, config, batch, wide=torch.float64)
            found["fp32"] += errors(gradients(net, values, config, batch), reference)
            half = {**config, "level": "O2", "scale": 1024.0}
            found["O2"] += errors(gradients(net, values, half, batch), reference)
        fp64.step([batch])
    return found


def losses(name, steps, lr=None, **how):
    config = config_of(name)
    config["lr"] = lr or config["lr"]
    net = peer.Net(peer.resolve(config["net"]))
    data = peer.open_data(config["data"], net, config["normalize"])
    trainer, found = peer.Trainer(net, net.initial(1), config, **how), []
    for step in range(steps):
        found.append(trainer.step([data.batch(step, config["batch"])])["loss"])
        if not math.isfinite(found[-1]):
            break
    return found


def apart(a, b):
    """Largest difference of window means, in units of the limit above."""
    ends = range(WINDOW, min(len(a), len(b)) + 1)
    first = statistics.fmean(b[:WINDOW])
    means = [(statistics.fmean(a[t - WINDOW:t]), statistics.fmean(b[t - WINDOW:t])) for t in ends]
    return max(abs(x - y) / max(0.05 * y, 0.02 * first) for x, y in means)


def gone(curve):
    return next((t for t, x in enumerate(curve) if not x <= 3 * curve[0]), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", choices=NETS, action="append")
    parser.add_argument("--steps", type=int, default=150)
    arguments = parser.parse_args()
    print("| network | gradients, fp32: median, worst | the same, O2 | losses of "
          f"{arguments.steps} steps, in units of the arms' limit | rate x: first step gone, fp32 / fp64 |")
    print("|---|---|---|---|---|")
    for name in arguments.net or NETS:
        with peer.torch_settings(1):
            found = gradient_errors(name)
            distance = apart(losses(name, arguments.steps), losses(name, arguments.steps, wide=torch.float64))
            rates = []
            for factor in (10, 100, 1000):
                lr = factor * config_of(name)["lr"]
                times = [gone(losses(name, 40, lr, **how)) for how in ({}, {"wide": torch.float64})]
                rates.append(f"{factor}: " + " / ".join("stays" if t is None else str(t) for t in times))
        shown = [f"{statistics.median(found[k]):.1e}, {max(found[k]):.1e}" for k in ("fp32", "O2")]
        print(f"| `{name}` | {shown[0]} | {shown[1]} | {distance:.3f} | {'; '.join(rates)} |", flush=True)


if __name__ == "__main__":
    main()
