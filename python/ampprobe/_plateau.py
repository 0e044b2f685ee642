"""A ReduceLROnPlateau that is told the wrong direction: with mode="max" it cuts the rate while what it
watches, a loss, falls. Its cuts are counted, and those that mode="min" would not have made of these numbers.

The other direction is not looked at: a loss that rises while the training goes on may be overfitting.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

from . import _loss


class _Mirror:
    """What a scheduler with mode="min" would count of the same numbers."""

    def __init__(self) -> None:
        self.best = math.inf
        self.bad = 0  # calls since it was reached
        self.cuts = self.against = 0

    def saw(self, scheduler: Any, value: float) -> None:
        """One call of step()."""
        near = scheduler.threshold * (abs(self.best) if scheduler.threshold_mode == "rel" else 1.0)
        better = not math.isfinite(self.best) or value < self.best - near
        self.best, self.bad = (value, 0) if better else (self.best, self.bad + 1)


class Plateaus:
    """The schedulers of one probe's optimizers."""

    def __init__(self, probe: Any):
        self.probe = probe
        self._mirrors: Any = weakref.WeakKeyDictionary()

    def stepped(self, scheduler: Any, metric: Any, before: list) -> None:
        """A scheduler was told a number; the rates before it was."""
        value = _loss.scalar(metric)
        if scheduler.mode != "max" or value is None or not math.isfinite(value):
            return
        mirror = self._mirrors.setdefault(scheduler, _Mirror())
        mirror.saw(scheduler, value)
        if any(now < then for now, then in zip(rates_of(scheduler), before)):
            mirror.cuts += 1
            mirror.against += mirror.bad <= scheduler.patience
            self.probe.fact("plateau_cuts_against", mirror.against / mirror.cuts)


def rates_of(scheduler: Any) -> list:
    """The rates of a scheduler's optimizer."""
    return [_loss.scalar(row.get("lr")) or 0.0 for row in scheduler.optimizer.param_groups]
