"""Values that were not finite before any layer read them: which argument of the outermost module, or which
target of a loss of torch.nn.functional, holds them, and in how many of its rows.

Looked for only where an operation has read such a value; frames of the running program are read, nothing is
kept of them.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any, Callable, Iterator, NamedTuple, Optional

from . import _origin
from ._layers import tensors_in

_MOST = 4  # arguments of one step
_MOST_LOOKS = 64  # operations of one step whose frames are read


class Found(NamedTuple):
    """An argument with values that are not finite."""

    place: str  # Class(argument), function(target)
    rows: int  # that hold one
    of: int


def rows_of(tensor: Any) -> tuple[int, int]:
    """Rows (along the first axis) with a value that is not finite, and all."""
    bad = ~_origin.readable(tensor.detach()).isfinite()
    if bad.dim() == 0:
        return int(bad), 1
    return int(bad.reshape(bad.shape[0], -1).any(dim=1).sum()), int(bad.shape[0])


class Inputs:
    """The arguments that one step's operations have read, on behalf of a Looker."""

    def __init__(self, torch: Any, memory: Callable):
        self._torch, self._memory = torch, memory
        self._functional = torch.nn.functional.__file__
        self._call = torch.nn.Module._call_impl.__code__
        self.begins()

    def begins(self) -> None:
        """A step begins."""
        self.found: list[Found] = []
        self._looks = 0

    def read(self, tensor: Any) -> None:
        """An operation of the forward pass reads this tensor, which is not finite and no module's result."""
        if self._looks >= _MOST_LOOKS or len(self.found) >= _MOST:
            return
        self._looks += 1
        found = self._argument(self._memory(tensor), tensor.detach())
        if found is not None and all(found.place != other.place for other in self.found):
            self.found.append(found)

    def _argument(self, memory: int, tensor: Any) -> Optional[Found]:
        outermost: Any = None
        frame: Any = sys._getframe(2)
        while frame is not None:
            if frame.f_code is self._call:
                outermost = frame
            elif frame.f_code.co_filename == self._functional and self._is_target(frame, memory):
                return Found(f"{frame.f_code.co_name}(target)", *rows_of(tensor))
            frame = frame.f_back
        return self._of_module(outermost.f_locals, memory) if outermost is not None else None

    def _is_target(self, frame: Any, memory: int) -> bool:
        target = frame.f_locals.get("target")
        return isinstance(target, self._torch.Tensor) and self._memory(target) == memory

    def _of_module(self, local: dict, memory: int) -> Optional[Found]:
        module = local["self"]
        for name, value in _named(module, local.get("args", ()), local.get("kwargs", {})):
            for tensor in tensors_in(value, self._torch):
                if tensor.is_floating_point() and self._memory(tensor) == memory:
                    rows, of = rows_of(tensor)
                    if rows:
                        return Found(f"{type(module).__name__}({name})", rows, of)
        return None


def _named(module: Any, args: tuple, kwargs: dict) -> Iterator[tuple[str, Any]]:
    """The arguments of a call by the names that the module's forward() gives them."""
    try:
        names = list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        names = []
    for index, value in enumerate(args):
        yield names[index] if index < len(names) else f"argument {index}", value
    yield from kwargs.items()
