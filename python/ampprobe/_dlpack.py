"""Arrays that are not torch's: numpy's through their address, all others through DLPack, without a copy."""

from __future__ import annotations

import ctypes
from typing import Any

from . import _abi, _cuda
from ._layout import Unreadable, View, dtype_code

_FLOAT, _BFLOAT = 2, 4
_CPU, _CUDA, _CUDA_HOST = 1, 2, 3
_CODES = {(_FLOAT, 32): 0, (_FLOAT, 16): 1, (_BFLOAT, 16): 2, (_FLOAT, 64): 3}


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _is_contiguous(tensor: _DLTensor) -> bool:
    if not tensor.strides:
        return True
    wanted = 1
    for axis in range(tensor.ndim - 1, -1, -1):
        if tensor.shape[axis] != 1 and tensor.strides[axis] != wanted:
            return False
        wanted *= tensor.shape[axis]
    return True


def _capsule_view(array: Any) -> View | Unreadable:
    capsule = (
        array.__dlpack__()
    )  # frees itself when it is not consumed: it is kept until the values were read
    tensor = _DLTensor.from_address(_pointer(capsule, b"dltensor"))
    code = _CODES.get((tensor.code, tensor.bits), _abi.OTHER_DTYPE) if tensor.lanes == 1 else _abi.OTHER_DTYPE
    if code == _abi.OTHER_DTYPE:
        return Unreadable(f"its DLPack type is {tensor.code}, {tensor.bits} bits", code)
    if tensor.device_type not in (_CPU, _CUDA, _CUDA_HOST):
        return Unreadable(f"it is on DLPack device {tensor.device_type}", code)
    if not _is_contiguous(tensor):
        return Unreadable("it is not contiguous", code)
    count = 1
    for axis in range(tensor.ndim):
        count *= tensor.shape[axis]
    device = _abi.CUDA if tensor.device_type == _CUDA else _abi.HOST
    return View(
        (tensor.data or 0) + tensor.byte_offset,
        count,
        count * _abi.ITEM_BYTES[code],
        code,
        device,
        0,
        (array, capsule),
    )


def _numpy_view(array: Any) -> View | Unreadable:
    code = dtype_code(array.dtype)
    if code == _abi.OTHER_DTYPE:
        return Unreadable(f"its dtype is {array.dtype}", code)
    if not array.flags.c_contiguous and not array.flags.f_contiguous:
        array = array.copy()
    return View(array.ctypes.data, array.size, array.nbytes, code, _abi.HOST, 0, array)


def view(array: Any) -> View | Unreadable:
    """Where the values of an array lie, or why they cannot be read."""
    if hasattr(array, "ctypes") and hasattr(array, "flags"):
        return _numpy_view(array)
    if hasattr(array, "__cuda_array_interface__"):
        return _cuda.view(array)
    if hasattr(array, "__dlpack__"):
        return _capsule_view(array)
    return Unreadable(f"{type(array).__name__} has neither data_ptr nor __dlpack__", _abi.OTHER_DTYPE)
