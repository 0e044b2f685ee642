"""Steps of which every operation is looked at: those that were asked for, and of every run those that follow
a step that was skipped with a loss that is not finite, whose weights are still as they were.

Looking (_ops) costs several plain steps, so it is done MOST_STEPS times in a run that did not ask for it.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Optional

from . import _layers, _ops

MOST_STEPS = 1


class Look:
    """When one probe looks at operations."""

    def __init__(self, probe: Any):
        self.probe = probe
        self.on = False
        self._looker: Any = None
        self._windows: list[tuple[int, float]] = []  # first and last of the steps that were asked for
        self._stop_after: Optional[int] = None
        self._times = 0

    def take(self, looker: Any, windows: list, stop_after: Optional[int]) -> None:
        """Looks at these steps; the looker has looked at what came before the first one."""
        self._looker, self._windows, self._stop_after = looker, windows, stop_after
        self.probe.quiet.end()
        self.probe.may_be_quiet = False
        looker.knows(self.probe.living_models())
        self.on = looker.on

    def begins(self, step: int, lost: bool) -> None:
        """A step begins; `lost`: the one before was skipped, and its loss was not finite."""
        if self._stop_after is not None and step > self._stop_after:
            self._end_of_script()
        asked = any(first <= step <= last for first, last in self._windows)
        wanted = asked or (lost and self._times < MOST_STEPS)
        if not wanted:
            if self.on:
                self.stop()
            return
        if not self.on:
            self._start()
        if self.on:
            self._times += not asked
            self._looker.begins(step)

    def _start(self) -> None:
        torch = sys.modules.get("torch")
        if torch is None or self.probe.world > 1:
            return
        models = [model for model in self.probe.living_models() if hasattr(model, "named_modules")]
        if any(_layers.is_compiled(list(model.named_modules())) for model in models):
            return
        if self._looker is None:
            self._looker = _ops.Looker(torch, running=True)
        self._looker.knows(models)
        self._looker.start()
        self.on = self._looker.on

    def stop(self) -> None:
        """Looks no more."""
        self.on = False
        if self._looker is not None:
            self._looker.on = False
            self.leave()
            if self._looker.failed:
                self.probe.note(f"operations are not looked at any more: {self._looker.failed}")
                self._looker.failed = None

    def tell_facts(self) -> None:
        """The run ends: states what the steps that were looked at last have shown."""
        for name, value, place in self._looker.facts() if self._looker is not None else ():
            self.probe.fact(name, value, place)

    def leave(self) -> None:
        """Leaves the mode that sees operations."""
        self._looker.leave()

    def ends_without_backward(self) -> None:
        """A script that makes forward passes only is not looked at any longer."""
        self.tell_without_backward()
        self._end_of_script()

    def tell_without_backward(self) -> None:
        """No backward pass says what the loss is: names where the last number that is not finite began."""
        if self.on and self._looker.tell_last_number():
            self.ends(self.probe.groups[0])
            self.stop()

    def _end_of_script(self) -> None:
        """The rest of a run that was only to be looked at is not needed, nor is what it would write."""
        self._stop_after = None
        self.probe.close()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)

    # -- what the loop tells -------------------------------------------------------------------------

    def loss(self, outputs: Any) -> None:
        """What is differentiated."""
        self._looker.tell_loss(outputs)

    def divides(self, gradient: Any, scale: float) -> bool:
        """Whether a line of this step has divided a gradient in place by a number, as far as is known."""
        return self.on and _ops.is_over(self._looker.factor_of(gradient), scale)

    def scaled(self, scale: float) -> None:
        """The loss is about to be multiplied by this."""
        self._looker.scale = scale

    def gradients(self, group: Any) -> None:
        """Gradients before they are unscaled."""
        self._looker.tell_gradients([p.grad for p in group.parameters])

    def ends(self, group: Any) -> bool:
        """The step has ended: names the operation where it became non-finite; whether there was one."""
        self.probe.spent += self._looker.spent
        self._looker.spent = 0.0
        self.probe.record.set("about", {"formats": sorted(self._looker.formats)})
        if self._looker.divided and group.scale is not None:
            self.probe.finder.unscaled_by_hand(group.scale, self._looker.divided)
        event = self._looker.origin()
        if group.step > 0:
            self._tell_before()
        if event is None:
            return False
        for place, rows, of in self._looker.inputs.found:
            self.probe.finder.nonfinite_input(place, rows, of)
        self.probe.keep_operation(
            {"step": group.step, **event, "last_step": group.step, "loss_scale": group.scale}
        )
        return True

    def _tell_before(self) -> None:
        """Whether what made the first non-finite value ran once, before the training."""
        name = self._looker.once()
        if name is not None:
            self.probe.finder.made_before(name)
