#!/usr/bin/env python3
"""Checkpoints of several processes, for the tests of the readers: writes tests/golden/distributed.tar.xz.

Run by hand with PyTorch 2.11 (CPU), transformers, DeepSpeed 0.19 and megatron-core 0.16; tests need none:

    scripts/golden_distributed.py tests/golden/distributed.tar.xz

dcp/          torch.distributed.checkpoint of two processes: rows, columns and whole tensors, objects
dcp_one/      the same of one process: rows, columns are no boxes
tiny/         the weights of golden_checkpoints.py's tiny.* in the same way: for tests/golden/tiny.json
sharded/      transformers' save_pretrained in several files of safetensors, with the index
sharded_bin/  the same tensors in files of torch.save, with an index
zero1/ zero2/ zero3/  DeepSpeed's engine with two processes, fp16
megatron/     a checkpoint of two tensor-parallel ranks, by megatron-core's parallel layers
truth/        NAME.safetensors: the whole tensors of each, as one process has them
"""
import json
import os
import socket
import sys
import tarfile
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch import nn

SHAPES = {"w": (5, 6), "rows": (7, 3), "columns": (4, 9), "cube": (3, 4, 5), "scalar": (), "empty": (0, 3)}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world),
                      LOCAL_RANK=str(rank), DS_ACCELERATOR="cpu")
    dist.init_process_group("gloo", rank=rank, world_size=world)


def tensors():
    torch.manual_seed(3)
    made = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    made["rows"] = made["rows"].bfloat16()
    made["cube"] = made["cube"].half()
    made["double"] = torch.randn(6, 2, dtype=torch.float64)
    return made


def dcp(rank, world, port, folder):
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    start(rank, world, port)
    mesh = init_device_mesh("cpu", (world,))
    whole = tensors()
    split = {"w": 0, "rows": 0, "columns": 1, "cube": 2, "double": 0}
    model = {name: distribute_tensor(t, mesh, [Shard(split[name])]) if name in split else t
             for name, t in whole.items()}
    optimizer = {"state": {"w": {"exp_avg": distribute_tensor(whole["w"] / 8, mesh, [Shard(0)]),
                                 "exp_avg_sq": distribute_tensor(whole["w"] ** 2, mesh, [Shard(0)]),
                                 "step": torch.tensor(7.0)}},
                 "param_groups": [{"lr": 0.125, "betas": (0.5, 0.75), "eps": 0.25, "params": ["w"]}]}
    scaler = {"scale": 1024.0, "_growth_tracker": 3}
    checkpoint.save({"model": model, "optimizer": optimizer, "scaler": scaler, "steps": 7},
                    checkpoint_id=folder / ("dcp" if world > 1 else "dcp_one"))
    if rank == 0 and world > 1:
        truth = {"model." + name: t for name, t in whole.items()}
        truth["optimizer.state.w.exp_avg"] = whole["w"] / 8
        truth["optimizer.state.w.exp_avg_sq"] = whole["w"] ** 2
        truth["optimizer.state.w.step"] = torch.tensor(7.0)
        save_file(truth, folder / "truth" / "dcp.safetensors")
    dist.destroy_process_group()


def tiny(rank, world, port, folder):
    import torch.distributed.checkpoint as checkpoint
    from golden_checkpoints import Tiny
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    start(rank, world, port)
    torch.manual_seed(2)
    mesh = init_device_mesh("cpu", (world,))
    state = {name: distribute_tensor(t, mesh, [Shard(t.ndim - 1)]) if t.ndim else t
             for name, t in Tiny().state_dict().items()}
    checkpoint.save({"model": state}, checkpoint_id=folder / "tiny")
    dist.destroy_process_group()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 7)
        self.norm = nn.LayerNorm(7)
        self.outer = nn.Linear(7, 3)

    def forward(self, x):
        return self.outer(torch.relu(self.norm(self.inner(x)))).float().pow(2).mean()


def zero(rank, world, port, folder, stage):
    start(rank, world, port)
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    type(get_accelerator()).is_fp16_supported = lambda self: True
    torch.manual_seed(4)
    config = {"train_batch_size": 4, "zero_optimization": {"stage": stage}, "fp16": {"enabled": True,
              "initial_scale_power": 8}, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10000}
    model = Net()
    groups = [{"params": [p for n, p in model.named_parameters() if p.ndim > 1], "weight_decay": 0.01},
              {"params": [p for n, p in model.named_parameters() if p.ndim == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for step in range(3):
        torch.manual_seed(10 + step + rank)
        engine.backward(engine(torch.randn(2, 5).half()))
        engine.step()
    for flat, state in engine.optimizer.optimizer.state.items():  # moments that can be told from the weights
        state["exp_avg"].copy_(flat.detach() / 8)
        state["exp_avg_sq"].copy_(flat.detach() ** 2)
    engine.save_checkpoint(folder / f"zero{stage}", tag="global_step3")
    dist.barrier()
    if rank == 0:
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

        whole = get_fp32_state_dict_from_zero_checkpoint(folder / f"zero{stage}")
        save_file({name: t.clone().contiguous() for name, t in whole.items()},
                  folder / "truth" / f"zero{stage}.safetensors")
    dist.barrier()
    dist.destroy_process_group()


def sharded(folder):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(5)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=8, n_embd=16, n_layer=1, n_head=2)).half()
    model.save_pretrained(folder / "sharded", max_shard_size="5KB")
    state = {k: v for k, v in model.state_dict().items() if k != "lm_head.weight"}
    save_file(state, folder / "truth" / "sharded.safetensors")
    target = folder / "sharded_bin"
    target.mkdir()
    names = sorted(state)
    parts = {"pytorch_model-00001-of-00002.bin": names[::2], "pytorch_model-00002-of-00002.bin": names[1::2]}
    for file, own in parts.items():
        torch.save({name: state[name] for name in own}, target / file)
    index = {"metadata": {"total_size": 1}, "weight_map": {n: f for f, own in parts.items() for n in own}}
    (target / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def megatron(rank, world, port, folder):
    start(rank, world, port)
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.model_parallel_config import ModelParallelConfig

    parallel_state.initialize_model_parallel(tensor_model_parallel_size=world)
    config = ModelParallelConfig(tensor_model_parallel_size=world, use_cpu_initialization=True,
                                 params_dtype=torch.bfloat16)
    torch.manual_seed(6)
    first = tensor_parallel.ColumnParallelLinear(6, 8, config=config, init_method=nn.init.normal_, bias=True)
    second = tensor_parallel.RowParallelLinear(8, 6, config=config, init_method=nn.init.normal_, bias=True,
                                               input_is_parallel=True, skip_bias_add=False)
    state = {f"decoder.{n}.{k}": v.detach().clone() for n, m in (("fc1", first), ("fc2", second))
             for k, v in m.state_dict().items() if torch.is_tensor(v)}
    place = folder / "megatron" / "iter_0000005" / f"mp_rank_{rank:02d}"
    place.mkdir(parents=True)
    moments = {i: {"exp_avg": v.float() / 8, "exp_avg_sq": v.float() ** 2, "step": 5}
               for i, v in enumerate(state.values())}
    torch.save({"iteration": 5, "model": state, "checkpoint_version": 3.0,
                "optimizer": {"optimizer": {"state": moments, "param_groups": [{"lr": 0.125, "eps": 0.25,
                              "betas": (0.5, 0.75), "params": list(moments)}]},
                              "grad_scaler": {"scale": torch.tensor([4096.0]), "growth_tracker": 2}}},
               place / "model_optim_rng.pt")
    dist.barrier()
    dist.destroy_process_group()


def spawn(what, world, *rest):
    mp.spawn(what, args=(world, free_port(), *rest), nprocs=world)


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "truth").mkdir()
        spawn(dcp, 2, folder)
        spawn(dcp, 1, folder)
        spawn(tiny, 2, folder)
        sharded(folder)
        for stage in (1, 2, 3):
            spawn(zero, 2, folder, stage)
        spawn(megatron, 2, folder)
        for extra in folder.rglob("*.py"):
            extra.unlink()
        write(folder, sys.argv[1])


def write(folder, archive):
    with tarfile.open(archive, "w:xz", preset=9) as target:
        for path in sorted(folder.rglob("*")):
            if not path.is_file():
                continue
            member = tarfile.TarInfo(str(path.relative_to(folder)))
            member.size = path.stat().st_size
            with path.open("rb") as content:
                target.addfile(member, content)


if __name__ == "__main__":
    main()
