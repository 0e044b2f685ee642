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

    def place(self) -> tuple:
        """What Table.fill takes."""
        return self.dtype, self.device, self.data, self.count, 1, self.storage, self.stream


class Unreadable(NamedTuple):
    """Why a tensor was not read; `dtype` is the library's number."""

    reason: str
    dtype: int


def local(tensor: Any) -> Any:
    """The part of a tensor that is in this process, of a DTensor. Without it an operation may send to other
    ranks, which wait for nothing."""
    if hasattr(tensor, "to_local"):
        tensor = tensor.detach().to_local()
    if hasattr(tensor, "wait") and type(tensor).__name__ == "AsyncCollectiveTensor":
        tensor = tensor.wait()
    return tensor


def number(tensor: Any) -> Optional[float]:
    """What item() gives; None: of a DTensor whose ranks have parts of it, which would be sent for."""
    if hasattr(tensor, "to_local"):
        if not all(placement.is_replicate() for placement in tensor.placements):
            return None
        tensor = local(tensor)
    return float(tensor.item() if hasattr(tensor, "item") else tensor)


def has_values(tensor: Any) -> bool:
    """Whether not all of it that is in this process is 0; of what cannot tell, True."""
    here = local(tensor)
    return not hasattr(here, "any") or bool(here.any())


def _plain(tensor: Any, torch: Any) -> Any:
    """The tensor in this process; of a sparse one its values."""
    tensor = local(tensor)
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


_usual_types: tuple = ()  # torch's own classes, and its usual layout, once torch is there
_strided: Any = None


def usual_place(tensor: Any) -> Optional[tuple]:
    """What Table.fill takes of a tensor as nearly all are: of torch's own class, in host memory, contiguous.
    None: it is not one. Few calls. A tensor inside a function transform has no storage: that raises."""
    if type(tensor) not in _usual_types or not tensor.is_cpu or tensor.layout is not _strided:
        return None
    code = _dtype_codes.get(tensor.dtype)
    size = _abi.ITEM_BYTES.get(code)
    if size is None or not tensor.is_contiguous() or tensor.is_neg():
        return None
    count = tensor.numel()
    left = tensor.untyped_storage().nbytes() - tensor.storage_offset() * size
    return (code, _abi.HOST, tensor.data_ptr(), count, 1, left, 0) if count * size <= left else None


def place_of(tensor: Any) -> tuple | Unreadable:
    """What Table.fill takes of any tensor, and what must live until it was read; or why it cannot be read."""
    try:
        place = usual_place(tensor)
    except (RuntimeError, NotImplementedError):  # no storage
        place = None
    if place is not None:
        return place, tensor
    found = view(tensor)
    return (found.place(), found.keep) if isinstance(found, View) else found


def _learn(torch: Any) -> None:
    """The first tensor of torch: its classes and dtypes are looked up from now on."""
    global _usual_types, _strided
    for name in _abi.DTYPES:
        dtype_code(getattr(torch, name))
    _usual_types, _strided = (torch.Tensor, torch.nn.Parameter), torch.strided


def _torch_view(tensor: Any, torch: Any) -> View | Unreadable:
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
            if not _usual_types:
                _learn(torch)
            return _torch_view(tensor, torch)
        return _other_view(tensor)
    except Exception as error:  # a tensor of a kind that nobody foresaw: skipped, training goes on
        return Unreadable(
            f"it cannot be read ({type(error).__name__}: {error})".split("\n", 1)[0], _abi.OTHER_DTYPE
        )
