"""Whether the rows of the inputs and of the targets are in one order: a whole data set that was put into the
order of one torch.randperm, and targets that were there before and were not, or into that of another one.

Followed are tensors whose rows a batch is a part of, and only what is known for certain: targets that were
made after the permutation, or by somebody who was not seen, may be in its order.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, Iterator, NamedTuple, Optional

_BY_INDEX = ("index", "index_select")
_LOSSES = ("nll_loss_forward", "nll_loss2d_forward", "mse_loss", "smooth_l1_loss", "huber_loss",
           "binary_cross_entropy", "binary_cross_entropy_with_logits", "sub")  # fmt: skip
_FEWEST = 2  # batches
_MOST = 4096  # tensors that are known


class Known(NamedTuple):
    """What is known of the memory of a tensor."""

    alive: Any  # weak reference to the tensor that has it
    orders: frozenset  # permutations that its rows were put into
    since: int  # when these rows were made, before any permutation


class Order:
    """Follows orders on behalf of a Looker."""

    def __init__(self, torch: Any, memory: Callable):
        self._torch, self._memory = torch, memory
        self._time = 0
        self._known: dict[int, Known] = {}
        self._permutations: dict[int, tuple] = {}  # memory -> tensor, when it was drawn
        self._input: Optional[tuple] = None  # of this step: rows of the batch, orders
        self._lines: dict[str, list] = {}  # batches whose orders are not the same; the others

    def facts(self) -> Iterator[tuple[str, float, str]]:
        """Name, value and place of what was found."""
        for place, (apart, together) in self._lines.items():
            if apart >= _FEWEST and not together:
                yield "rows_in_another_order", apart, place

    def begins(self) -> None:
        """A step begins."""
        self._input = None

    def _of(self, tensor: Any) -> Optional[Known]:
        known = self._known.get(self._memory(tensor))
        return known if known is not None and known.alive() is not None else None

    def wrote(self, name: str, changed: bool, args: tuple, out: Any) -> None:
        """Any operation, also one of whole numbers."""
        if not isinstance(out, self._torch.Tensor) or out.dim() == 0:
            return
        self._time += 1
        memory = self._memory(out)
        if any(isinstance(a, self._torch.Tensor) and self._memory(a) == memory for a in args):
            if changed:  # in place: its rows may be others
                self._known.pop(memory, None)
            return
        if name == "randperm":
            self._permutations[memory] = (weakref.ref(out), self._time)
        orders, since = frozenset(), self._time
        drawn = self._permutation(name, args)
        if drawn is not None:
            source = self._of(args[0])
            orders = (source.orders if source is not None else frozenset()) | {drawn}
            since = source.since if source is not None else 0
        self._known[memory] = Known(weakref.ref(out), orders, since)
        if len(self._known) > _MOST:
            self._known.pop(next(iter(self._known)))

    def _permutation(self, name: str, args: tuple) -> Optional[int]:
        """When the permutation was drawn into whose order all rows of the first argument are put."""
        if name not in _BY_INDEX or len(args) < 2:
            return None
        index = args[1][0] if isinstance(args[1], (list, tuple)) and len(args[1]) == 1 else args[-1]
        if not isinstance(index, self._torch.Tensor) or index.dim() != 1 or len(index) != len(args[0]):
            return None
        tensor, drawn = self._permutations.get(self._memory(index), (lambda: None, 0))
        return drawn if tensor() is not None else None

    def _is_part(self, tensor: Any) -> bool:
        """Whether it is some rows of a tensor with more."""
        if tensor.dim() == 0 or not tensor.is_contiguous() or not len(tensor) or not tensor.stride(0):
            return False
        whole = tensor.untyped_storage().nbytes() // tensor.element_size() // tensor.stride(0)
        return whole > len(tensor)

    def reads(self, op: Any, args: tuple, inputs: list) -> None:
        """An operation of the forward pass: an input of the model, or a target?"""
        if op.stage != "forward" or not op.place:
            return
        if op.module is not None:
            for tensor in inputs:
                known = self._of(tensor)
                if known is not None and known.orders and self._is_part(tensor):
                    self._input = (len(tensor), known.orders)
        if self._input is None or op.name not in _LOSSES:
            return
        for target in args[:2]:
            if isinstance(target, self._torch.Tensor) and target.dim() and target.device.type != "meta":
                self._compare(op.place, target)

    def _compare(self, place: str, target: Any) -> None:
        batch, orders = self._input or (0, frozenset())
        known = self._of(target)
        if known is None or len(target) != batch or not self._is_part(target):
            return
        missing = orders - known.orders
        if not missing or known.since < min(missing):
            self._lines.setdefault(place, [0, 0])[not missing] += 1
