"""Running products that are kept in a half format (noise schedules, decays, probabilities): what their
factors should have made of them, and what rounding left. A factor that a cast rounded counts as it was
before: 1 - 1e-3 is 1 in bf16, and a thousand of them leave 1 in place of 0.37.
"""

from __future__ import annotations

import weakref
from typing import Any, Iterator, NamedTuple, Optional

from ._formats import bits_of

_LONG = 16  # factors; a shorter product is no running one
_SMALL = 1 << 14  # elements that are followed
_MOST = 512  # products and casts at once


class Chain(NamedTuple):
    """A product so far."""

    start: Any
    wide: Any  # as it is in double
    factors: int
    memory: int  # of the product itself


def _memory(tensor: Any) -> int:
    return tensor.untyped_storage().data_ptr()


def _keep(table: dict, key: int, value: Any) -> None:
    table[key] = value
    if len(table) > _MOST:
        table.pop(next(iter(table)))


class Products:
    """Follows products on behalf of a Looker's Rounding."""

    def __init__(self, torch: Any):
        self._torch = torch
        self._prepared: dict[str, float] = {}
        self.forget()

    def forget(self) -> None:
        """Looking begins again. What prepared the training will not be seen again."""
        self._chains: dict[int, Chain] = {}  # by operation
        self._casts: dict[int, tuple] = {}  # memory -> result, its source in double
        self._lost: dict[str, float] = dict(self._prepared)

    def prepared(self) -> None:
        """Training begins."""
        self._prepared = dict(self._lost)

    def facts(self) -> Iterator[tuple[str, float, str]]:
        """Name, value and place of what was found."""
        for place, lost in self._lost.items():
            if lost > 0:
                yield "product_lost", lost, place

    def after(self, op: Any, args: tuple, out: Any) -> None:
        """An operation has run."""
        if op.stage != "forward" or not op.place or not bits_of(out) or not 0 < out.numel() <= _SMALL:
            return
        if op.name in ("_to_copy", "copy"):
            self._cast(args[-1 if op.name == "copy" else 0], out)
        elif op.name == "mul" and len(args) > 1 and not op.of_weights:
            self._multiplies(op, args, out)
        elif op.name == "cumprod" and (wide := self._wide(args[0])) is not None:
            if wide.dim() and wide.shape[args[1]] >= _LONG:
                self._tell(op.place, self._torch.ones_like(wide), wide.cumprod(args[1]), out)

    def _cast(self, source: Any, out: Any) -> None:
        if hasattr(source, "is_floating_point") and source.is_floating_point() and not bits_of(source):
            if out.is_contiguous() and source.shape == out.shape:
                wide = source.detach().double().contiguous()
                _keep(self._casts, _memory(out), (weakref.ref(out), wide))

    def _wide(self, value: Any) -> Optional[Any]:
        """In double, and as it was before a cast, where that is known."""
        if isinstance(value, (int, float)):
            return self._torch.tensor(float(value), dtype=self._torch.float64)
        if not hasattr(value, "numel") or value.numel() > _SMALL or not value.is_floating_point():
            return None
        result, source = self._casts.get(_memory(value), (lambda: None, None))
        whole = result()
        if whole is None or source is None or whole.storage_offset():
            return value.detach().double()
        return source.as_strided(value.shape, value.stride(), value.storage_offset())

    def _multiplies(self, op: Any, args: tuple, out: Any) -> None:
        line = (op.place, op.name)
        earlier = (one for one in op.reads if one.index in self._chains and (one.place, one.name) == line)
        before = next(earlier, None)
        if before is None:
            wide, factor = self._wide(args[0]), self._wide(args[1])
            if wide is not None and factor is not None:
                start = args[0].detach().double()
                _keep(self._chains, op.index, Chain(start, wide * factor, 1, _memory(out)))
            return
        chain = self._chains.pop(before.index)
        running = hasattr(args[0], "numel") and _memory(args[0]) == chain.memory
        factor = self._wide(args[1] if running else args[0])
        if factor is None:
            return
        chain = Chain(chain.start, chain.wide * factor, chain.factors + 1, _memory(out))
        _keep(self._chains, op.index, chain)
        if chain.factors >= _LONG:
            self._tell(op.place, chain.start, chain.wide, out)

    def _tell(self, place: str, start: Any, wide: Any, out: Any) -> None:
        """What of the change of a product is lost, by its size."""
        moved = float((wide - start).abs().sum())
        error = float((out.detach().double() - wide).abs().sum())
        if 0 < moved < float("inf") and error < float("inf"):
            self._lost[place] = min(1.0, error / moved)
