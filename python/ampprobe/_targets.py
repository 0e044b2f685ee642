"""Targets that nothing could predict: noise that was drawn for the target alone, in place of that which the
model's input was made with. A difference of the same shape (or a loss) of something that was computed from
weights and of random numbers that it was not made from.
"""

from __future__ import annotations

from typing import Any, Iterator

_RANDOM = ("randn", "rand", "normal", "uniform")
_DIFFERENCES = ("sub", "rsub", "mse_loss", "smooth_l1_loss", "huber_loss")
_FEWEST = 2  # times that a line was seen


def _is_noise(op: Any) -> bool:
    return op.fills and op.name.removesuffix("_like") in _RANDOM


class Targets:
    """Looks at differences on behalf of a Looker."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Looking begins again."""
        self._lines: dict[str, list] = {}  # times seen; of these, times that the noise was an ancestor

    def after(self, op: Any, args: tuple, first: int) -> None:
        """An operation has run; `first` is that of the step. Noise of an earlier one is a data set's."""
        if op.name not in _DIFFERENCES or op.stage != "forward" or len(op.reads) != 2 or not op.place:
            return
        shapes = [getattr(one, "shape", None) for one in args[:2]]
        if None in shapes or shapes[0] != shapes[1]:
            return
        for noise, other in (op.reads, op.reads[::-1]):
            if _is_noise(noise) and not _is_noise(other):
                weighs, related = _made_from(other, noise)
                if weighs:
                    seen = self._lines.setdefault(op.place, [0, 0])
                    seen[0] += 1
                    seen[1] += related or noise.index < first

    def facts(self) -> Iterator[tuple[str, float, str]]:
        """Name, value and place of what was found."""
        for place, (seen, related) in self._lines.items():
            if seen >= _FEWEST and not related:
                yield "target_is_fresh_noise", seen, place


def _made_from(op: Any, noise: Any) -> tuple[bool, bool]:
    """Whether it was computed from weights, and whether from this noise."""
    seen, left, weighs = set(), [op], False
    while left:
        one = left.pop()
        if one is noise:
            return True, True
        if one.index in seen or one.stage == "update":
            continue
        seen.add(one.index)
        weighs |= one.of_weights
        left += one.reads
    return weighs, False
