#!/usr/bin/env python3
"""Files that PyTorch saves, for the tests of the readers: writes tests/golden/checkpoints.tar.xz.

Run by hand with PyTorch 2.11 (CPU); the tests need no Python:

    scripts/golden_checkpoints.py tests/golden/checkpoints.tar.xz

files/    one torch.save each. Element k, in the order of the indices, of every floating-point tensor whose
          name has no "any" is (k - 5) / 4. tiny.*: one set of weights for tests/golden/tiny.json.
"""

import argparse
import io
import lzma
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
        pack(root, sys.argv[1])


if __name__ == "__main__":
    main()
