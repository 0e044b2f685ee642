"""Runs a script in fp32 that was written for a half format: what it would do with no half in it.

autocast stays off, a GradScaler's scale is 1, and where the script asks torch for a half dtype
(Module.half(), Tensor.to, dtype=torch.bfloat16, fp8) it gets fp32. What numpy or a library's own kernels make
in half stays.
"""

from __future__ import annotations

import functools
from typing import Any

_NEVER = 2**31 - 1  # steps
_METHODS = {"half": "float", "bfloat16": "float"}


def install(torch: Any) -> None:
    """From here on, in this process."""
    _disable_autocast(torch)
    _pin_scaler(torch)
    _mode(torch).__enter__()


def _disable_autocast(torch: Any) -> None:
    kind = torch.amp.autocast_mode.autocast
    original = kind.__enter__

    @functools.wraps(original)
    def enter(self: Any) -> Any:
        self._enabled = False
        return original(self)

    kind.__enter__ = enter


def _pin_scaler(torch: Any) -> None:
    """A GradScaler multiplies by 1 and never by more: the loop goes the ways that it goes with a scale."""
    kind = torch.amp.GradScaler
    original = kind.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self._init_scale, self._growth_interval = 1.0, _NEVER

    kind.__init__ = init


def _mode(torch: Any) -> Any:
    from torch.overrides import TorchFunctionMode

    names = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    halves = {getattr(torch, name) for name in names if hasattr(torch, name)}
    methods = {getattr(torch.Tensor, name): getattr(torch.Tensor, wide) for name, wide in _METHODS.items()}
    texts = {"torch.HalfTensor": "torch.FloatTensor", "torch.BFloat16Tensor": "torch.FloatTensor"}

    def widen(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return torch.float32 if value in halves else value
        return texts.get(value, value) if isinstance(value, str) else value

    class Fp32(TorchFunctionMode):
        """Every call of torch's functions from Python, with fp32 where a half dtype was asked for."""

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            function = methods.get(function, function)
            if function is torch.set_default_dtype or function is torch.finfo:
                return function(*args, **(kwargs or {}))
            args = tuple(map(widen, args))
            return function(*args, **{key: widen(value) for key, value in (kwargs or {}).items()})

    return Fp32()
