#!/usr/bin/env python3
"""Losses of torch's DistributedDataParallel on gloo: golden values for simulated ranks.

    golden_ddp.py            writes tests/golden/ddp.npz (data), ddp_init.npz (weights), ddp.json

Trains a perceptron on 2 and 4 processes, plain and with fp16_compress_hook and bf16_compress_hook. Each
trace is made twice, the second time with other buckets and threads; the largest difference of their losses
is kept as the drift of DDP itself. Needs torch 2.11 and numpy. Not part of the build and not run by any
test.
"""

import json
import os
import sys
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "tests", "golden")
SAMPLES, TRAINED, FEATURES, HIDDEN, CLASSES = 320, 288, 20, 16, 4  # the last tenth is for tests
BATCH, STEPS, LR = 8, 30, 0.1
HOOKS = {"torch-ddp": None, "torch-ddp-fp16": fp16_compress_hook, "torch-ddp-bf16": bf16_compress_hook}


def make_arrays():
    """Samples of four shifted normal distributions, and torch's default initial weights."""
    draw = np.random.default_rng(20)
    y = draw.integers(0, CLASSES, SAMPLES)
    x = draw.standard_normal((SAMPLES, FEATURES)) + 0.4 * draw.standard_normal((CLASSES, FEATURES))[y]
    torch.manual_seed(20)
    arrays = {"x": x.astype(np.float32), "y": y.astype(np.int64)}
    for name, inputs, outputs in (("fc1", FEATURES, HIDDEN), ("fc2", HIDDEN, CLASSES)):
        layer = torch.nn.Linear(inputs, outputs)
        arrays[name + ".weight"] = layer.weight.detach().numpy()
        arrays[name + ".bias"] = layer.bias.detach().numpy()
    return arrays


def model_of(arrays):
    layers = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES)
    )
    with torch.no_grad():
        for layer, name in ((layers[0], "fc1"), (layers[2], "fc2")):
            layer.weight.copy_(torch.from_numpy(arrays[name + ".weight"]))
            layer.bias.copy_(torch.from_numpy(arrays[name + ".bias"]))
    return layers


def train(rank, ranks, preset, again, arrays, folder):
    """One process. Rank r's k-th batch is batch k * ranks + r of the samples in their order."""
    torch.set_num_threads(2 if again else 1)
    dist.init_process_group("gloo", init_method="file://" + folder + "/meet", rank=rank, world_size=ranks)
    model = torch.nn.parallel.DistributedDataParallel(model_of(arrays), bucket_cap_mb=1e-4 if again else 25)
    if HOOKS[preset]:
        model.register_comm_hook(None, HOOKS[preset])
    optimizer = torch.optim.SGD(model.parameters(), LR)
    x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
    losses = []
    for step in range(STEPS):
        first = (step * ranks + rank) * BATCH % TRAINED
        loss = torch.nn.functional.cross_entropy(model(x[first : first + BATCH]), y[first : first + BATCH])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    np.save(f"{folder}/{rank}.npy", np.array(losses))
    dist.barrier()
    os._exit(0)  # gloo's threads may still run: an ordinary exit can abort


def losses_of(ranks, preset, again, arrays):
    """Mean loss of the ranks in every step."""
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(train, (ranks, preset, again, arrays, folder), nprocs=ranks)
        return np.mean([np.load(f"{folder}/{r}.npy") for r in range(ranks)], axis=0)


def main():
    arrays = make_arrays()
    np.savez(os.path.join(GOLDEN, "ddp.npz"), x=arrays["x"], y=arrays["y"])
    np.savez(os.path.join(GOLDEN, "ddp_init.npz"), **{n: a for n, a in arrays.items() if n.startswith("fc")})
    traces = []
    for ranks in (2, 4):
        for preset in HOOKS:
            first, second = (losses_of(ranks, preset, again, arrays) for again in (False, True))
            drift = float(np.abs(first - second).max())
            print(f"{ranks} ranks, {preset}: last loss {first[-1]:.6f}, drift {drift:.2g}")
            traces.append(
                {"ranks": ranks, "ddp": preset, "drift": drift, "loss": [float(np.float32(l)) for l in first]}
            )
    about = f"scripts/golden_ddp.py, torch {torch.__version__}, gloo"
    with open(os.path.join(GOLDEN, "ddp.json"), "w", encoding="utf-8") as out:
        rows = ",\n  ".join(json.dumps(trace) for trace in traces)
        out.write(f'{{"made_by": "{about}", "batch": {BATCH}, "lr": {LR}, "traces": [\n  {rows}\n]}}\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())
