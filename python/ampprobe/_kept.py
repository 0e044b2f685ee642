"""Gradients that a loop does not clear: a backward pass adds to those of the step before.

One small gradient is remembered when a step has ended. If the same values are there when the next backward
pass begins, that pass changes them, and nobody clears them before the next step, it was added to them.
Gradients that a loop copies into place itself, as those of fp32 master weights, no backward pass changes.
Looked for in steps that show something only; nothing of the user's is changed, no tensor of theirs is kept.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

_MOST = 1 << 16  # elements of the gradient that is remembered
_FEW = 256


class Kept:
    """What one optimizer's gradients are between two steps."""

    def __init__(self) -> None:
        self._parameter: Any = None  # a weak reference
        self._values: Any = None
        self._there = False  # at every backward pass since the last step
        self._added = False  # one of those passes has changed them
        self._asked = False  # a backward pass has begun since then
        self._kept = self._looked = 0  # steps

    def remember(self, parameters: list, plain: Any) -> None:
        """A step has ended."""
        self.forget()
        found = [p for p in parameters if _readable(getattr(p, "grad", None), plain)]
        if found:
            parameter = min(found, key=lambda p: p.numel())
            values = parameter.grad.detach()
            if values.numel() <= _MOST and _tells_apart(values):
                self._parameter, self._values = weakref.ref(parameter), values.clone()

    def forget(self) -> None:
        """Nothing is known of the step that begins."""
        self._parameter = self._values = None
        self._there = self._asked = self._added = False

    def backward(self) -> None:
        """A backward pass begins."""
        if self._parameter is None:
            return
        gradient = getattr(self._parameter(), "grad", None)
        if not self._asked:
            self._asked = True
            same = gradient is not None and gradient.shape == self._values.shape
            self._there = same and bool((gradient.detach() == self._values).all())
        elif gradient is None or not bool(gradient.any()):
            self._there = False

    def backward_ran(self) -> None:
        """It has ended."""
        if self._there and not self._added:
            gradient = getattr(self._parameter(), "grad", None)
            self._added = gradient is not None and not bool((gradient.detach() == self._values).all())

    def cleared(self) -> None:
        """Gradients are set to zero."""
        self._there = False

    def steps(self, finder: Any) -> None:
        """The next step is made."""
        if self._parameter is not None and self._asked:
            self._looked += 1
            self._kept += self._there and self._added
            finder.kept_gradients(self._kept, self._looked)
        self.forget()


def _tells_apart(values: Any) -> bool:
    """Whether all are finite and not all are 0. Of few, as numbers of Python: one operation, not five."""
    if values.numel() > _FEW:
        return bool(values.isfinite().all()) and bool(values.any())
    numbers = values.flatten().tolist()
    return any(numbers) and all(map(math.isfinite, numbers))


def _readable(gradient: Any, plain: Any) -> bool:
    return type(gradient) is plain and not gradient.is_sparse and not gradient.is_meta
