#!/usr/bin/env python3
"""Files that PyTorch saves, for the tests of the readers: writes tests/golden/checkpoints.tar.xz.

Run by hand with PyTorch 2.11 (CPU); the tests need no Python:

    scripts/golden_checkpoints.py tests/golden/checkpoints.tar.xz

files/    one torch.save each. Element k, in the order of the indices, of every floating-point tensor whose
          name has no "any" is (k - 5) / 4. tiny.*: one set of weights for tests/golden/tiny.json.
runs/     what frameworks save: transformers' Trainer, accelerate, Lightning; DeepSpeed's and Megatron's loss
          scalers in files with the keys of their engines; apex's keys. expected.json: the share of updates
          that the next step of torch.optim.AdamW loses in every pure half run, by stepping it.
"""

import argparse
import io
import json
import lzma
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections import OrderedDict, defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import nn

FLOATS = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
OTHERS = ["float8_e4m3fnuz", "uint8", "int8", "int16", "int32", "int64", "bool", "complex64", "uint16"]


def ramp(*shape, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return ((torch.arange(count, dtype=torch.float64) - 5) / 4).reshape(shape).to(dtype)


def apart(tensor, *order):
    """The same values at the same indices, stored in another order of the dimensions."""
    return tensor.permute(*order).contiguous().permute(*torch.tensor(order).argsort().tolist())


def dtypes():
    tensors = {name: ramp(3, 4, dtype=getattr(torch, name)) for name in FLOATS}
    for name in OTHERS:
        tensors["any_" + name] = torch.ones(5).to(getattr(torch, name))
    return tensors


def views():
    flat = torch.zeros(40)
    flat[20:32] = ramp(12)
    spread = torch.zeros(12, 3)
    spread[:, 1] = ramp(12)
    tied = ramp(2, 3)
    whole = torch.cat([ramp(6), torch.ones(6)])
    return {
        "transposed": apart(ramp(3, 4), 1, 0),
        "channels_last": ramp(2, 3, 2, 2).to(memory_format=torch.channels_last),
        "offset": flat[20:32],
        "column": spread[:, 1],
        "half_column": spread.half()[:, 1],
        "double_column": spread.double()[:, 1],
        "any_expanded": torch.ones(1).expand(3, 2),
        "scalar": torch.tensor(-1.25),
        "empty": torch.zeros(0, 3),
        "tied.first": tied,
        "tied.second": tied.view(2, 3),
        "any_whole": whole,
        "part": whole[:6],
    }


def training():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.125, betas=(0.5, 0.75), eps=0.25)
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    scaler = {"scale": 65536.0, "growth_factor": 2.0, "growth_interval": 2000, "_growth_tracker": 17}
    counts = defaultdict(list)
    counts["seen"].append(3)
    return {
        "any_model": model.state_dict(),
        "any_optimizer": optimizer.state_dict(),
        "scaler": scaler,
        "epoch": 3,
        "big": 1 << 70,
        "done": False,
        "name": "réseau",
        "args": argparse.Namespace(lr=0.5, betas=[0.5, 0.75]),
        "counts": counts,
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        "pairs": OrderedDict(a=1, b=2),
        "set": {7},
    }


class Tiny(nn.Module):
    """The parameters of tests/golden/tiny.json, few different values."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.conv2 = nn.Conv2d(6, 8, 3, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.conv3 = nn.Conv2d(8, 8, 3, bias=False)
        self.bn3 = nn.BatchNorm2d(8)
        self.fc1 = nn.Linear(32, 24)
        self.fc2 = nn.Linear(24, 10)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randint(-4, 5, parameter.shape) / 16)


def weights(folder):
    torch.manual_seed(2)
    model = Tiny()
    np.savez(folder / "tiny.npz", **{name: value.numpy() for name, value in model.state_dict().items()})
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.save(model.state_dict(), folder / "tiny.pth")
    torch.save(
        {"epoch": 1, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()},
        folder / "tiny.ckpt",
    )


def rewritten(path, target, change, method=zipfile.ZIP_STORED):
    """A copy of an archive with other contents: change(name, bytes)."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", method) as new:
        for info in old.infolist():
            stamp = zipfile.ZipInfo(info.filename, (1980, 1, 1, 0, 0, 0))
            stamp.compress_type = method
            new.writestr(stamp, change(info.filename, old.read(info)))


def big_endian(name, content):
    """Storages of 32-bit elements with their bytes turned round, as a big-endian machine writes them."""
    if name.endswith("byteorder"):
        return b"big"
    if "/data/" not in name:
        return content
    return b"".join(content[i : i + 4][::-1] for i in range(0, len(content), 4))


def files(folder):
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(ramp(*parameter.shape))
    for name, things in (("dtypes", dtypes()), ("views", views()), ("training", training())):
        torch.save(things, folder / f"{name}.pt")
        torch.save(things, folder / f"{name}_protocol4.pt", pickle_protocol=4)
        torch.save(things, folder / f"{name}_old.pt", _use_new_zipfile_serialization=False)
    rewritten(folder / "dtypes.pt", folder / "dtypes_deflated.pt", lambda _, c: c, zipfile.ZIP_DEFLATED)
    torch.save({"a": ramp(3, 4), "b": apart(ramp(3, 4), 1, 0)}, folder / "little.pt")
    rewritten(folder / "little.pt", folder / "big.pt", big_endian)
    torch.save(module, folder / "module.pth")
    torch.save(ramp(3, 4), folder / "tensor.bin")
    torch.save(nn.Parameter(ramp(3, 4)), folder / "parameter.ckpt")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.inner = nn.Linear(12, 16)
        self.outer = nn.Linear(16, 1)

    def forward(self, x, labels=None):
        loss = (self.outer(torch.relu(self.inner(x))).squeeze(-1) - labels).square().mean()
        return {"loss": loss}


def batch(seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(16, 12, generator=generator)
    return x.to(dtype), x.sum(1).to(dtype)


def steps(model, optimizer, count, scale=1.0, first=0):
    for i in range(first, first + count):
        optimizer.zero_grad()
        x, y = batch(i, next(model.parameters()).dtype)
        (model(x, y)["loss"] * scale).backward()
        optimizer.step()


def next_step_loses(model, optimizer):
    """Stored updates that change nothing, of those that are not zero: moments as they are, decay left out."""
    lost = nonzero = 0
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state[p]
            t, (b1, b2) = state["step"].item(), group["betas"]
            m, v = state["exp_avg"].double() / (1 - b1**t), state["exp_avg_sq"].double() / (1 - b2**t)
            update = group["lr"] * (
                m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p.detach().double()
            )
            after = (p.detach().double() - update).to(p.dtype)
            nonzero += (update != 0).sum().item()
            lost += ((after == p.detach()) & (update != 0)).sum().item()
    return [lost, nonzero]


def plain(folder, dtype, lr, count, name, scaler=None, **more):
    model = Net().to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, **more)
    steps(model, optimizer, count)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": count}
    if scaler:
        state["scaler"] = scaler
    torch.save(state, folder / f"{name}.pt")
    return next_step_loses(model, optimizer)


def transformers_trainer(folder, dtype, lr, name):
    from transformers import Trainer, TrainingArguments

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, i):
            x, y = batch(i, dtype)
            return {"x": x[0], "labels": y[0]}

    arguments = TrainingArguments(
        output_dir=str(folder / name),
        use_cpu=True,
        max_steps=4,
        save_steps=2,
        learning_rate=lr,
        lr_scheduler_type="constant",
        per_device_train_batch_size=8,
        report_to=[],
        disable_tqdm=True,
        logging_steps=1,
    )
    Trainer(Net().to(dtype), arguments, train_dataset=Data()).train()
    for extra in list((folder / name).rglob("training_args.bin")) + list((folder / name).rglob("rng_state*")):
        extra.unlink()


def accelerate(folder):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    steps(model, optimizer, 3)
    accelerator.save_state(str(folder / "accelerate"))
    for extra in (folder / "accelerate").glob("random_states*"):
        extra.unlink()
    torch.save(fallen_scaler(), folder / "accelerate" / "scaler.pt")


def fallen_scaler():
    """A GradScaler that saw an overflow in every step."""
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(4):
        scaler.scale(weight.sum() * float("inf")).backward()
        scaler.step(optimizer)
        scaler.update()
    return scaler.state_dict()


def lightning(folder):
    import lightning as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, pair, _):
            return self.net(*pair)["loss"]

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-6)

    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=3,
        precision="bf16-true",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    pairs = torch.utils.data.TensorDataset(*batch(0))
    trainer.fit(Module(), torch.utils.data.DataLoader(pairs, batch_size=4))
    trainer.save_checkpoint(folder / "lightning.ckpt")


def deepspeed(folder):
    import deepspeed as library
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler

    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    library.init_distributed("gloo", auto_mpi_discovery=False)

    scaler = DynamicLossScaler(
        init_scale=4,
        
        scale_window=1000,
        min_scale=1,
        delayed_shift=1,
        consecutive_hysteresis=False,
        raise_error_at_min_scale=False,
        dtype=torch.half,
    )
    for _ in range(9):
        scaler.update_scale(True)
    root = folder / "deepspeed" / "global_step9"
    root.mkdir(parents=True)
    model = Net().half()
    flat = torch.cat([p.detach().float().flatten() for p in model.parameters()])
    state = {"step": torch.tensor(9.0), "exp_avg": flat * 1e-3, "exp_avg_sq": flat.square() * 1e-6}
    torch.save(
        {"module": model.state_dict(), "skipped_steps": 8, "global_steps": 9, "dp_world_size": 1},
        root / "mp_rank_00_model_states.pt",
    )
    torch.save(
        {
            "optimizer_state_dict": {
                "loss_scaler": scaler,
                "overflow": True,
                "base_optimizer_state": {"state": {0: state}},
                "single_partition_of_fp32_groups": [flat],
            }
        },
        root / "zero_pp_rank_0_mp_rank_00_optim_states.pt",
    )


def megatron(folder):
    root = folder / "megatron" / "iter_0000005" / "mp_rank_00"
    root.mkdir(parents=True)
    model = Net().bfloat16()
    master = Net()
    optimizer = torch.optim.AdamW(master.parameters(), lr=1e-3)
    steps(master, optimizer, 5)
    torch.save(
        {
            "iteration": 5,
            "model": model.state_dict(),
            "optimizer": {
                "optimizer": optimizer.state_dict(),
                "grad_scaler": {
                    "scale": torch.tensor([2.0**30]),
                    "growth_tracker": 3,
                    "hysteresis_tracker": 2,
                },
                "fp32_from_fp16_params": [list(master.parameters())],
            },
        },
        root / "model_optim_rng.pt",
    )


def apex(folder):
    model = Net().half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.save(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "amp": {"loss_scaler0": {"loss_scale": 2.0**-20, "unskipped": 0}},
        },
        folder / "apex.pt",
    )


def runs(folder):
    bf16, fp16 = torch.bfloat16, torch.float16
    expected = {
        "healthy": plain(
            folder, torch.float32, 1e-3, 5, "healthy", scaler={"scale": 65536.0, "_growth_tracker": 5}
        ),
        "lost_bf16": plain(folder, bf16, 1e-6, 5, "lost_bf16"),
        "some_bf16": plain(folder, bf16, 1e-3, 5, "some_bf16"),
        "some_fp16": plain(folder, fp16, 3e-5, 5, "some_fp16", eps=1e-4),
    }
    tiny = Net().half()
    optimizer = torch.optim.Adam(tiny.parameters(), lr=1e-3, eps=1e-4)
    steps(tiny, optimizer, 3, scale=2.0**-12)
    torch.save(
        {"model": tiny.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}, folder / "zero_fp16.pt"
    )
    transformers_trainer(folder, torch.float32, 1e-3, "trainer")
    transformers_trainer(folder, bf16, 1e-7, "trainer_bf16")
    accelerate(folder)
    lightning(folder)
    deepspeed(folder)
    megatron(folder)
    apex(folder)
    for empty in folder.rglob("__pycache__"):
        shutil.rmtree(empty)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def pack(folder, target):
    """The same bytes from the same files: no times, no owners."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            info = tar.gettarinfo(path, str(path.relative_to(folder)))
            info.mtime = info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mode = 0o755 if path.is_dir() else 0o644
            if path.is_dir():
                tar.addfile(info)
            else:
                with path.open("rb") as content:
                    tar.addfile(info, content)
    Path(target).write_bytes(lzma.compress(raw.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def main():
    with tempfile.TemporaryDirectory() as work:
        root = Path(work)
        (root / "files").mkdir()
        files(root / "files")
        weights(root / "files")
        (root / "runs").mkdir()
        runs(root / "runs")
        pack(root, sys.argv[1])


if __name__ == "__main__":
    main()
