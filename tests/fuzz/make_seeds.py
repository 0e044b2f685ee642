"""Writes seeds of the tensor file fuzz targets with the reference packages (numpy, safetensors, torch).

The files are committed as tests/fuzz/corpus.tar.gz. To make them again:

    tests/fuzz/make_seeds.py corpus
    tar --sort=name --mtime=2026-11-21 --owner=0 --group=0 --numeric-owner -cf - corpus |
        gzip -9n >tests/fuzz/corpus.tar.gz

"""
import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save


def safetensors_seeds(folder):
    tensors = {
        "f64": torch.tensor([1.5, 1e-50, 1e300], dtype=torch.float64),
        "f32": torch.tensor([1e-45, -3.0]),
        "f16": torch.tensor([65504.0, 2.0**-24, -0.5]).half(),
        "bf16": torch.tensor([1.5 * 2.0**100, -2.0]).bfloat16(),
        "e4m3": torch.tensor([448.0, -0.5, float("nan")]).to(torch.float8_e4m3fn),
        "e5m2": torch.tensor([57344.0, 2.0**-16, float("inf")]).to(torch.float8_e5m2),
        "e8m0": torch.tensor([1.0, 2.0]).to(torch.float8_e8m0fnu),
        "i64": torch.arange(2),
        "u8": torch.arange(3).to(torch.uint8),
        "bool": torch.tensor(True),
        "empty": torch.zeros(0, 3),
    }
    (folder / "dtypes.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    (folder / "one.safetensors").write_bytes(save({"w": torch.arange(6.0).reshape(2, 3)}))
    (folder / "none.safetensors").write_bytes(save({}))


def npy_bytes(array, version=None):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def npy_seeds(folder):
    base = np.arange(6, dtype="<f4").reshape(2, 3) - 2.5
    seeds = {
        "v1.npy": npy_bytes(base, (1, 0)),
        "v2.npy": npy_bytes(base, (2, 0)),
        "v3.npy": npy_bytes(base, (3, 0)),
        "big_endian.npy": npy_bytes(base.astype(">f4")),
        "big_endian_f8.npy": npy_bytes(base.astype(">f8")),
        "fortran_f2.npy": npy_bytes(np.asfortranarray(base.astype("<f2"))),
        "scalar.npy": npy_bytes(np.float64(3.5).reshape(())),
        "empty.npy": npy_bytes(np.zeros((0, 4), "<f4")),
        "int64.npy": npy_bytes(np.arange(3)),
        "text.npy": npy_bytes(np.array(["ab", "c"])),
        "structured.npy": npy_bytes(np.zeros(2, dtype=[("x", "<f4"), ("y", "<i4")])),
    }
    for name, content in seeds.items():
        (folder / name).write_bytes(content)
    np.save(folder / "object.npy", np.array([1, "x"], dtype=object), allow_pickle=True)


def npz_seeds(folder):
    base = np.arange(6, dtype="<f4").reshape(2, 3) - 2.5
    arrays = {"x": base, "layer.0/w": base.astype("<f2"), "b": base.astype(">f8"), "n": np.arange(3)}
    np.savez(folder / "stored.npz", **arrays)
    np.savez_compressed(folder / "deflated.npz", **arrays)
    np.savez_compressed(folder / "repeated.npz", r=np.tile(np.arange(16, dtype="<f4"), 256))
    with zipfile.ZipFile(folder / "extra_member.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README.txt", "not an array")
        archive.writestr("x.npy", npy_bytes(base))
        archive.comment = b"a comment"


def main():
    root = Path(sys.argv[1])
    for name, write in (("safetensors", safetensors_seeds), ("npy", npy_seeds), ("npz", npz_seeds)):
        (root / name).mkdir(parents=True, exist_ok=True)
        write(root / name)


if __name__ == "__main__":
    main()
