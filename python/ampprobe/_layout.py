"""Where the values of a tensor lie in memory, or why they cannot be read.

Knows torch's tensors without importing torch, and anything that has data_ptr, dtype and numel. No pointer is
given away before the layout was checked: a gradient in a hook may be expanded (four bytes stored, thousands
claimed), sparse, freed, a meta tensor or a wrapper without storage.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Optional

from . import _abi

_dtype_codes: dict = {}


def dtype_code(dtype: Any) -> int:
    """The library's number of a dtype of torch, numpy or ml_dtypes; OTHER_DTYPE if it has none."""
    try:
        return _dtype_codes[dtype]
    except (KeyError, TypeError):
        name = str(getattr(dtype, "name", dtype)).rsplit(".", 1)[-1]
        code = _abi.DTYPES.get(name, _abi.OTHER_DTYPE)
        try:
            _dtype_codes[dtype] = code
        except TypeError:
            pass
        return code


class View(NamedTuple):
    """Values in memory. `keep` must live until they were read."""

    data: int
    count: int
    storage: int
    dtype: int
    device: int
    stream: int
    keep: Any


class Unreadable(NamedTuple):
    """Why a tensor was not read; `dtype` is the library's number."""

    reason: str
    dtype: int


def _plain(tensor: Any, torch: Any) -> Any:
    """The tensor in this process: the local part of a DTensor, the values of a sparse one."""
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if hasattr(tensor, "wait") and type(tensor).__name__ == "AsyncCollectiveTensor":
        tensor = tensor.wait()
    if tensor.layout is torch.sparse_coo:
        return tensor.coalesce()._values()
    return tensor


def _refusal(tensor: Any, torch: Any) -> Optional[str]:
    if tensor.device.type == "meta" or type(tensor).__name__ in ("FakeTensor", "FunctionalTensor"):
        return "it has no values (meta or fake tensor)"
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return "it is inside a function transform (vmap or grad)"
    if tensor.layout is not torch.strided:
        return f"its layout is {tensor.layout}"
    if tensor.is_quantized:
        return "it is quantised"
    if tensor.is_complex():
        return "it is complex"
    if tensor.device.type not in ("cpu", "cuda"):
        return f"it is on device {tensor.device.type}"
    return None


def _dense(tensor: Any, torch: Any) -> bool:
    """Whether the tensor's values fill its memory without gaps or overlaps, in any order of dimensions."""
    return tensor.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(tensor)


def is_usual(tensor: Any, torch: Any) -> bool:
    """Whether it is a tensor as nearly all are: of torch's own class, in host memory, contiguous."""
    return (
        (type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter)
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def _usual_view(tensor: Any) -> Optional[View]:
    """Of a usual tensor, in fewer calls; None: it is not as that."""
    code = dtype_code(tensor.dtype)
    if code == _abi.OTHER_DTYPE:
        return None
    size, count = _abi.ITEM_BYTES[code], tensor.numel()
    left = tensor.untyped_storage().nbytes() - tensor.storage_offset() * size
    return View(tensor.data_ptr(), count, left, code, _abi.HOST, 0, tensor) if count * size <= left else None


def _torch_view(tensor: Any, torch: Any) -> View | Unreadable:
    found = _usual_view(tensor) if is_usual(tensor, torch) else None
    if found is not None:
        return found
    tensor = _plain(tensor.detach(), torch)
    reason = _refusal(tensor, torch)
    if reason:
        return Unreadable(reason, _abi.OTHER_DTYPE)
    code = dtype_code(tensor.dtype)
    if code == _abi.OTHER_DTYPE:
        return Unreadable(f"its dtype is {tensor.dtype}", code)
    if tensor.is_neg() or not _dense(tensor, torch):
        if tensor.device.type != "cpu":
            return Unreadable("it is not contiguous on a device", code)
        tensor = tensor.resolve_neg().contiguous()
    left = tensor.untyped_storage().nbytes() - tensor.storage_offset() * _abi.ITEM_BYTES[code]
    if tensor.numel() * _abi.ITEM_BYTES[code] > left:
        return Unreadable("its storage was freed", code)
    if tensor.device.type == "cuda":
        stream = torch.cuda.current_stream(tensor.device).cuda_stream
        return View(tensor.data_ptr(), tensor.numel(), left, code, _abi.CUDA, stream, tensor)
    return View(tensor.data_ptr(), tensor.numel(), left, code, _abi.HOST, 0, tensor)


def _other_view(tensor: Any) -> View | Unreadable:
    """Of a stand-in: data_ptr, dtype, numel and, where it has them, is_contiguous, contiguous, nbytes."""
    code = dtype_code(tensor.dtype)
    if code == _abi.OTHER_DTYPE:
        return Unreadable(f"its dtype is {tensor.dtype}", code)
    if not getattr(tensor, "is_contiguous", lambda: True)():
        tensor = tensor.contiguous()
    count = tensor.numel()
    storage = getattr(tensor, "nbytes", None)
    storage = storage if isinstance(storage, int) else count * _abi.ITEM_BYTES[code]
    return View(tensor.data_ptr(), count, storage, code, _abi.HOST, 0, tensor)


def view(tensor: Any) -> View | Unreadable:
    """Where the values of any tensor lie, or why they cannot be read. Never raises."""
    try:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(tensor, torch.Tensor):
            return _torch_view(tensor, torch)
        return _other_view(tensor)
    except Exception as error:  # a tensor of a kind that nobody foresaw: skipped, training goes on
        return Unreadable(
            f"it cannot be read ({type(error).__name__}: {error})".split("\n", 1)[0], _abi.OTHER_DTYPE
        )
