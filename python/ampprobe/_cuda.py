"""Values in a GPU's memory: torch's gradients, and arrays with __cuda_array_interface__ (CuPy, Numba).

The library counts them there, on the stream that the loop uses, where its CUDA plugin is; without it they are
skipped and counted as skipped.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from . import _abi
from ._layout import Unreadable, View, dtype_code

# https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
_TYPES = {"<f4": 0, "<f2": 1, "<f8": 3}


def _is_contiguous(shape: tuple, strides: Any, size: int) -> bool:
    if strides is None:
        return True
    wanted = size
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != wanted:
            return False
        wanted *= length
    return True


def view(array: Any) -> View | Unreadable:
    """Where the values of an array with __cuda_array_interface__ lie, and the stream that orders them."""
    about = array.__cuda_array_interface__
    code = _TYPES.get(about["typestr"], _abi.OTHER_DTYPE)
    if code == _abi.OTHER_DTYPE:
        return Unreadable(f"its type is {about['typestr']}", code)
    shape, size = tuple(about["shape"]), _abi.ITEM_BYTES[code]
    if not _is_contiguous(shape, about.get("strides"), size):
        return Unreadable("it is not contiguous on a device", code)
    count = math.prod(shape)
    return View(about["data"][0], count, count * size, code, _abi.CUDA, about.get("stream") or 0, array)


def _stream(device: Any, torch: Any) -> int:
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw(device.index) if raw is not None else torch.cuda.current_stream(device).cuda_stream


def put(entry: Any, gradient: Any, plain: Any) -> bool:
    """Fills the entry of a plain contiguous gradient on a GPU; False: it is not one."""
    if type(gradient) is not plain or not gradient.is_cuda or gradient.is_sparse:
        return False
    code = dtype_code(gradient.dtype)
    if code == _abi.OTHER_DTYPE or not gradient.is_contiguous():
        return False
    entry.data, entry.count, entry.dtype = gradient.data_ptr(), gradient.numel(), code
    entry.storage_bytes = (
        gradient.untyped_storage().nbytes() - gradient.storage_offset() * _abi.ITEM_BYTES[code]
    )
    entry.device, entry.stride = _abi.CUDA, 1
    entry.stream = _stream(gradient.device, sys.modules["torch"]) or None
    return True
