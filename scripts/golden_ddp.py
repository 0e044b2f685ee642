#!/usr/bin/env python3
"""Losses of torch's DistributedDataParallel and FSDP on gloo: golden values for simulated ranks.

    golden_ddp.py [NAME...]  writes tests/golden/ddp.npz (data), ddp_init.npz (weights), ddp.json; with names
                             of TRACES those anew, and keeps the others

Trains a perceptron on 2 and 4 processes: DDP plain and with fp16_compress_hook and bf16_compress_hook,
FSDP2 (fully_shard) with reduce_dtype; torch's FSDP1 refuses to run without an accelerator. With two batches
a step too: reduced after each, and (no_sync) once; with gradients at the ends of fp16's range. apex's
DistributedDataParallel: APEX_DISTRIBUTED names its file (NVIDIA/apex, commit
e13873debc4699d39c6861074b9a3b2a02327f92, apex/parallel/distributed.py: the last before its removal), whose
CUDA streams are replaced by stand-ins. DeepSpeed 0.19.8 on the CPU, ZeRO 0 to 2. Each trace is made twice,
the second time with other buckets (or sharded modules) and threads; the largest difference of their losses
is kept as the drift of the framework itself. Needs torch 2.11 and numpy. Not part of the build and not run
by any test.
"""

import contextlib
import importlib.util
import json
import os
import sys
import tempfile
import types

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "tests", "golden")
SAMPLES, TRAINED, FEATURES, HIDDEN, CLASSES = 320, 288, 20, 16, 4  # the last tenth is for tests
BATCH, STEPS, LR = 8, 30, 0.1
WIRES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# name: preset of ampbench, format on the wire[, what is otherwise: what is reduced of accumulated batches,
# loss scale, predivide factor]
TRACES = {
    "torch-ddp": ("torch-ddp", "fp32"),
    "torch-ddp-fp16": ("torch-ddp-fp16", "fp16"),
    "torch-ddp-bf16": ("torch-ddp-bf16", "bf16"),
    "fsdp2": ("fsdp2", "fp32"),
    "fsdp2-bf16": ("fsdp2", "bf16"),
    "fsdp2-fp16": ("fsdp2-fp16", "fp16"),
    "torch-ddp-accumulated": ("torch-ddp", "fp32", {"every": "accumulated"}),
    "torch-ddp-fp16-accumulated": ("torch-ddp-fp16", "fp16", {"every": "accumulated"}),
    "torch-ddp-bf16-accumulated": ("torch-ddp-bf16", "bf16", {"every": "accumulated"}),
    "torch-ddp-no-sync": ("torch-ddp", "fp32", {"every": "step"}),
    "torch-ddp-bf16-no-sync": ("torch-ddp-bf16", "bf16", {"every": "step"}),
    "fsdp2-micro-batch": ("fsdp2", "fp32", {"every": "micro-batch"}),
    "fsdp2-bf16-micro-batch": ("fsdp2", "bf16", {"every": "micro-batch"}),
    "fsdp2-fp16-micro-batch": ("fsdp2-fp16", "fp16", {"every": "micro-batch"}),
    "torch-ddp-fp16-small": ("torch-ddp-fp16", "fp16", {"scale": 2.0**-17}),
    "torch-ddp-fp16-large": ("torch-ddp-fp16", "fp16", {"scale": 2.0**17}),
    "fsdp2-no-sync": ("fsdp2", "fp32", {"every": "step"}),
    "fsdp2-bf16-no-sync": ("fsdp2", "bf16", {"every": "step-in-wire"}),
    "fsdp2-fp16-no-sync": ("fsdp2-fp16", "fp16", {"every": "step-in-wire"}),
    "apex-ddp": ("apex-ddp", "fp32"),
    "apex-ddp-predivide": ("apex-ddp", "fp32", {"divide": "3"}),
    "apex-ddp-accumulated": ("apex-ddp", "fp32", {"every": "accumulated"}),
    "deepspeed-fp16": ("deepspeed", "fp16"),
    "deepspeed-bf16": ("deepspeed", "bf16"),
    "deepspeed-predivide-fp16": ("deepspeed", "fp16", {"divide": "3"}),
    "deepspeed-fp16-small": ("deepspeed", "fp16", {"scale": 2.0**-17}),
    "deepspeed-prescale-fp16-small": ("deepspeed-prescale", "fp16", {"scale": 2.0**-17}),
    "deepspeed-zero1-bf16": ("deepspeed", "bf16", {"every": "step"}),
    "deepspeed-zero2-bf16": ("deepspeed-zero2", "bf16", {"every": "micro-batch"}),
}
ACCUMULATED = 2  # batches a step of the traces that say what is reduced of them


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


def apex_module():
    """apex's distributed.py, with stand-ins for what it takes of CUDA; it falls back to torch's flatten."""
    package, applier = types.ModuleType("apex"), types.ModuleType("apex.multi_tensor_apply")
    package.deprecated_warning = lambda text: None
    package.__path__ = []
    applier.multi_tensor_applier = types.SimpleNamespace(available=False)
    stream = types.SimpleNamespace(wait_event=lambda e: None, record_event=lambda e: None)
    torch.cuda.current_stream = torch.cuda.Stream = torch.cuda.Event = lambda *a, **k: stream
    torch.cuda.stream = lambda s: contextlib.nullcontext()
    torch.cuda.IntTensor = torch.IntTensor
    torch.Tensor.record_stream = lambda tensor, s: None
    spec = importlib.util.spec_from_file_location("apex.parallel.distributed", os.environ["APEX_DISTRIBUTED"])
    module = importlib.util.module_from_spec(spec)
    sys.modules |= {"apex": package, "apex.multi_tensor_apply": applier}
    spec.loader.exec_module(module)
    module.split_half_float_double = lambda tensors: [tensors]  # all are fp32 on the CPU
    return module


def wrap_apex(model, factor, again):
    model = apex_module().DistributedDataParallel(
        model, message_size=100 if again else 10000000, gradient_predivide_factor=factor
    )
    model.param_type_to_tmp_i = {"torch.FloatTensor": 1}
    return model


def wrap_deepspeed(model, name, again):
    """The engine; its optimizer undoes the loss scale."""
    import deepspeed

    preset, wire, *more = TRACES[name]
    more = dict(*more)
    stage = int(name[14]) if name.startswith("deepspeed-zero") else 0
    bucket = 200 if again else 500000000
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": ACCUMULATED if "every" in more else 1,
        "prescale_gradients": preset == "deepspeed-prescale",
        "gradient_predivide_factor": float(more.get("divide", 1)),
        "communication_data_type": wire,
        "zero_optimization": {"stage": stage, "reduce_bucket_size": bucket, "overlap_comm": False},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    optimizer = torch.optim.SGD(model.parameters(), LR / more.get("scale", 1))
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def wrap(model, name, again):
    """The model as the framework trains it."""
    wire = WIRES[TRACES[name][1]]
    if name.startswith("apex"):
        return wrap_apex(model, float(dict(*TRACES[name][2:]).get("divide", 1)), again)
    if name.startswith("deepspeed"):
        return wrap_deepspeed(model, name, again)
    if name.startswith("fsdp2"):
        for part in ([model[0], model[2]] if again else []) + [model]:
            fully_shard(part, mp_policy=MixedPrecisionPolicy(reduce_dtype=wire))
        return model
    model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1e-4 if again else 25)
    if wire is not torch.float32:
        model.register_comm_hook(
            None, {torch.float16: fp16_compress_hook, torch.bfloat16: bf16_compress_hook}[wire]
        )
    return model


def set_sync(model, syncs):
    """Whether the next backward pass reduces: what `with model.no_sync()` says."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(syncs)
    else:
        model.require_backward_grad_sync = syncs


def train(rank, ranks, name, again, arrays, folder):
    """One process. Rank r's k-th batch is batch k * ranks + r of the samples in their order."""
    torch.set_num_threads(2 if again else 1)
    meeting = {"init_method": f"file://{folder}/meet", "rank": rank, "world_size": ranks}
    if name.startswith("deepspeed"):
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank)}
        import deepspeed

        sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # gloo alone; nothing is compiled
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False, **meeting)
    else:
        dist.init_process_group("gloo", **meeting)
    model = wrap(model_of(arrays), name, again)
    optimizer = torch.optim.SGD(model.parameters(), LR)
    x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
    losses = []
    more = dict(*TRACES[name][2:])
    scale = more.get("scale", 1)
    engine = model if name.startswith("deepspeed") else None
    batches = ACCUMULATED if "every" in more else 1
    for step in range(STEPS):
        if not engine:
            optimizer.zero_grad()
        losses.append(0)
        for k in range(batches):
            first = ((step * ranks + rank) * batches + k) * BATCH % TRAINED
            set_sync(model, not more.get("every", "").startswith("step") or k + 1 == batches)
            own, right = x[first : first + BATCH], y[first : first + BATCH]
            loss = torch.nn.functional.cross_entropy(model(own), right)
            losses[-1] += loss.item() / batches
            if engine:  # divides by the micro-batches itself
                engine.backward(loss * scale)
                engine.step()
            else:
                (loss * (scale / batches)).backward()
        if engine:
            continue
        for parameter in model.parameters() if scale != 1 else ():
            parameter.grad /= scale
        optimizer.step()
    np.save(f"{folder}/{rank}.npy", np.array(losses))
    dist.barrier()
    os._exit(0)  # gloo's threads may still run: an ordinary exit can abort


def losses_of(ranks, name, again, arrays):
    """Mean loss of the ranks in every step."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = (ranks, name, again, arrays, folder)
        processes.start_processes(train, arguments, nprocs=ranks, start_method="fork")
        return np.mean([np.load(f"{folder}/{r}.npy") for r in range(ranks)], axis=0)


def main():
    arrays = make_arrays()
    np.savez(os.path.join(GOLDEN, "ddp.npz"), x=arrays["x"], y=arrays["y"])
    np.savez(os.path.join(GOLDEN, "ddp_init.npz"), **{n: a for n, a in arrays.items() if n.startswith("fc")})
    wanted = sys.argv[1:] or list(TRACES)
    if any(name.startswith("deepspeed") for name in wanted):
        os.environ |= {"DS_ACCELERATOR": "cpu", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29611"}
        import deepspeed  # once for all processes  # noqa: F401
    path = os.path.join(GOLDEN, "ddp.json")
    traces = []
    if len(sys.argv) > 1 and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            traces = [trace for trace in json.load(file)["traces"] if trace["name"] not in wanted]
    for ranks in (2, 4):
        for name in wanted:
            first, second = (losses_of(ranks, name, again, arrays) for again in (False, True))
            drift = float(np.abs(first - second).max())
            print(f"{ranks} ranks, {name}: last loss {first[-1]:.6f}, drift {drift:.2g}", flush=True)
            losses = [float(np.float32(l)) for l in first]
            preset, wire, *more = TRACES[name]
            trace = {"name": name, "ranks": ranks, "ddp": preset, "wire": wire} | dict(*more)
            trace |= {"batches": ACCUMULATED} if "every" in trace else {}
            traces.append(trace | {"drift": drift, "loss": losses})
    about = f"scripts/golden_ddp.py, torch {torch.__version__}, gloo"
    with open(path, "w", encoding="utf-8") as out:
        rows = ",\n  ".join(json.dumps(trace) for trace in traces)
        out.write(f'{{"made_by": "{about}", "batch": {BATCH}, "lr": {LR}, "traces": [\n  {rows}\n]}}\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())
