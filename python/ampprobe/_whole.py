"""Whole numbers that pass through a half format in looked-at steps: ids and positions that come back from it
as integers and look something up, and positions whose neighbours have become one before a sine of them is
taken. Beyond 2^p, 2048 in fp16 and 256 in bf16, not every whole number is one of the format.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, Iterator

from ._layers import tensors_in
from ._formats import bits_of
from ._rounding import ELEMENTWISE

_LOOKUPS = ("embedding", "index", "index_select", "gather", "scatter", "index_add", "scatter_add",
            "embedding_bag", "index_put", "take", "nll_loss_forward")  # fmt: skip
_ANGLES = ("sin", "cos")
_THROUGH = (*ELEMENTWISE, "unsqueeze", "outer", "bmm", "mm", "einsum", "arange", "clamp")
_MOST = 1 << 20
_NAMES = {11: "fp16", 8: "bf16"}


class Whole:
    """Follows whole numbers on behalf of a Looker."""

    def __init__(self, torch: Any, memory: Callable):
        self._torch, self._memory = torch, memory
        self._prepared: dict[tuple, float] = {}
        self.forget()

    def forget(self) -> None:
        """Looking begins again. What prepared the training will not be seen again."""
        self._integers: dict[int, tuple] = {}  # memory -> tensor, largest, bits, place
        self._facts: dict[tuple, float] = dict(self._prepared)

    def prepared(self) -> None:
        """Training begins."""
        self._prepared = dict(self._facts)

    def facts(self) -> Iterator[tuple[str, float, str]]:
        """Name, value and place of what was found."""
        for (name, place), value in self._facts.items():
            yield name, value, place

    def _tell(self, name: str, place: str, value: float) -> None:
        if place:
            self._facts[(name, place)] = max(value, self._facts.get((name, place), 0.0))

    # -- integers ------------------------------------------------------------------------------------

    def integers(self, name: str, args: tuple, outputs: Any, place: Callable) -> None:
        """An operation, also one that writes no floating-point numbers."""
        source = args[0] if args else None
        if name in ("_to_copy", "copy"):
            source = args[1] if name == "copy" and len(args) > 1 else source
            bits = bits_of(source)
            if bits and _is_whole(outputs) and 0 < source.numel() <= _MOST:
                largest = float(source.detach().abs().amax().double())
                if 2**bits < largest < float("inf"):
                    self._keep(outputs, largest, bits, place())
                return
        if not self._integers:
            return
        for tensor in tensors_in(args, self._torch):
            known = self._known(tensor)
            if known is None:
                continue
            _, largest, bits, where = known
            if name in _LOOKUPS:
                self._tell(f"whole_numbers_in_{_NAMES[bits]}", where, largest)
            elif _is_whole(outputs) and outputs.dtype is not self._torch.bool:
                self._keep(outputs, largest, bits, where)

    def _keep(self, tensor: Any, largest: float, bits: int, place: str) -> None:
        self._integers[self._memory(tensor)] = (weakref.ref(tensor), largest, bits, place)

    def _known(self, tensor: Any) -> Any:
        known = self._integers.get(self._memory(tensor)) if _is_whole(tensor) else None
        return known if known is not None and known[0]() is not None else None

    # -- positions -----------------------------------------------------------------------------------

    def positions(self, op: Any, args: tuple, outputs: Any) -> None:
        """An operation that writes floating-point numbers."""
        if op.stage == "backward" or not hasattr(outputs, "numel"):
            return
        if op.name in ("_to_copy", "copy", "arange", "cumsum") and bits_of(outputs):
            op.whole = self._merged(args[-1 if op.name == "copy" else 0], outputs, op.name)
        if op.name in _THROUGH and op.whole is None:
            op.whole = next((read.whole for read in op.reads if read.whole is not None), None)
        if op.name in _ANGLES and (known := next((r.whole for r in op.reads if r.whole), None)):
            self._tell(f"whole_numbers_in_{_NAMES[known[1]]}", op.label, known[0])

    def _merged(self, source: Any, out: Any, name: str) -> Any:
        """Largest whole number and bits, if numbers that were different have become one."""
        bits, torch = bits_of(out), self._torch
        if not 1 < out.numel() <= _MOST:
            return None
        wide = out.detach().double()
        largest = float(wide.abs().amax())
        if not 2**bits < largest < float("inf") or not bool((wide == wide.round()).all()):
            return None
        if name in ("arange", "cumsum"):
            before = out.numel() if name == "arange" else 0
        else:
            before = torch.unique(source).numel()
            if source.is_floating_point() and not bool((source == source.round()).all()):
                return None
        return (largest, bits) if torch.unique(wide).numel() < before else None


def _is_whole(tensor: Any) -> bool:
    dtype = getattr(tensor, "dtype", None)
    return dtype is not None and not dtype.is_floating_point and not dtype.is_complex
