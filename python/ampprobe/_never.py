"""A training in which no optimizer has made a step yet: what it does in place of one.

A loop may leave out every step: it checks its gradients, or its loss, by hand, or forgets to call backward()
or step(). Then nothing ends a step, and there would be no record. So each backward pass whose gradients were
cleared or replaced before the next one is a step here; and at the end of the run, forward passes that no
backward pass followed are its steps. With the first step of an optimizer all of this ends.

Until the first try to make a step it is not known whether such a pass is all of a step, or comes before each,
as an attack on inputs does, or the clearing of gradients between micro-batches. So the first _MOST_HELD wait
for that try, or for the end of the run.
"""

from __future__ import annotations

import statistics
import sys
import weakref
from typing import Any, Callable, Optional

from . import _abi, _layout

_SAMPLE = 64  # values of a parameter
_SEARCHES = 3  # for a parameter that has a gradient, outside the models that are known
_MOST_LOSSES = 4096
_MOST_PASSES = 100_000  # that are recorded as steps
_MOST_HELD = 64  # backward passes that may yet belong to the first step
_FIRST_TRY = 8  # forward passes of one module, after which somebody is told


class Never:
    """Stands beside a probe until an optimizer makes a step."""

    def __init__(self, probe: Any, passes: Optional["Passes"]):
        self.probe = probe
        self.passes = passes
        self._witness: Any = None  # weak reference to a parameter that got a gradient
        self._made: Any = None  # that gradient as the last backward pass left it
        self._sample: Any = None  # values of that parameter
        self._moved = self._moves = False  # in any step; in this one
        self._searches = 0
        # Losses of backward passes that are no steps yet, and whether they were finite, with their gradients.
        self._held: list[tuple[Optional[float], bool]] = []
        self._holds = True

    def is_over(self) -> bool:
        """Whether an optimizer has made a step."""
        return any(getattr(group, "ever_stepped", True) for group in self.probe.groups)

    # -- backward passes -----------------------------------------------------------------------------

    def begins(self) -> None:
        """A loss is there, or a backward pass begins: the step before may have been left out."""
        if self.passes is not None:
            self.passes.end()
            self.passes = None
        if self.is_over():
            self.probe.never = None
            return
        group = self.probe.groups[0]
        busy = group.inside or group.decided or any(one.stepping for one in self.probe.groups)
        tried = any(one.tried for one in self.probe.groups)  # what is thrown away from then on: Group
        if not group.fresh or busy or tried or not self._is_cleared():
            return
        if self._moves or not self._holds:
            self._record_held()
            self._end(group)
        else:
            self._hold(group)

    def _hold(self, group: Any) -> None:
        """A backward pass is no step yet."""
        probe = self.probe
        finite = not group.nonfinite and not probe.loss_is_bad()
        group.dropped = group.left_out = group.fresh = False
        group.drops += 1
        self._held.append((probe.take_held_loss(), finite))
        group.reset()
        self._made = None
        if len(self._held) == _MOST_HELD:
            self._record_held()

    def _record_held(self) -> None:
        """They were all that there was of their steps. What is known of the step that runs stays."""
        held, self._held, self._holds = self._held, [], False
        group = self.probe.groups[0]

        def record() -> None:
            for loss, _ in held:
                self.probe.resume_loss(loss, 1)
                self.probe.finder.forget()
                group.finish()

        if held:
            group.set_aside(lambda: self.probe.set_loss_aside(record))

    def tries(self, group: Any) -> None:
        """The loop tries to make a step for the first time. What is held was left out by the loop's own
        finite check if all of it was not finite, and this is; else it is part of no step."""
        self._holds = False
        if self._held and not any(finite for _, finite in self._held) and group.looks_finite():
            self._record_held()
        self._held = []

    def _end(self, group: Any) -> None:
        """A step ends without an optimizer's; the loop may have made it itself."""
        group.refresh()
        if not group.counted:
            group._count()
        group.stepped, group.regular, group.dropped, group.left_out = self._moves, False, False, False
        if not self._moves:
            self.probe.finder.forget()
        self._moved, self._moves = self._moved or self._moves, False
        group.finish()
        self._made = None

    def _is_cleared(self) -> bool:
        """Whether the gradients of the last backward pass were thrown away, or others put there."""
        parameter = self._witness() if self._witness is not None else None
        if parameter is None or self._made is None:
            return False
        self._look(parameter)
        return self._made.is_gone(parameter.grad)

    def _look(self, parameter: Any) -> None:
        values = sample_of(parameter)
        known = self._sample is not None and self._sample.shape == values.shape  # FSDP1 shows parts
        if known and not bool((values == self._sample).all()):
            self._moves = True  # by the loop itself
        self._sample = values

    def ran(self, asked: bool = False) -> None:
        """A backward pass has ended; `asked`: gradients are about to be asked for, once more."""
        parameter = self._witness() if self._witness is not None else None
        if parameter is None or not _is_trained(parameter):
            found = self._with_gradients()
            parameter = next(filter(_is_trained, found), found[0] if found else None)
            if parameter is None:
                return
            self._witness, self._sample = weakref.ref(parameter), sample_of(parameter)
        self._made = _Made(parameter.grad, asked)

    def _with_gradients(self) -> list:
        """Parameters that have a gradient: of the optimizers and models, else of any module."""
        known = [p for group in self.probe.groups for p in group.parameters]
        for model in self.probe.living_models():
            known += [p for _, p in model.named_parameters()]
        found = [p for p in known if getattr(p, "grad", None) is not None]
        if not found and self._searches < _SEARCHES:
            from ._wait import parameters_of_modules

            self._searches += 1
            others = parameters_of_modules(sys.modules["torch"])
            found = [p for p in others if getattr(p, "grad", None) is not None]
        return found

    # -- the end of the run --------------------------------------------------------------------------

    def closes(self) -> None:
        """The run ends without a step of an optimizer: says what was seen in place of one."""
        probe, group = self.probe, self.probe.groups[0]
        if self.is_over():
            return
        if probe.backwards:
            if self._witness is not None and self._witness() is None:
                self._moves = self._moved  # gone with its model; as in the steps before
            self._is_cleared()
            self._record_held()
            if group.fresh and not group.decided:
                self._end(group)
            if not self._moved:
                probe.fact("passes_without_step", probe.backwards)
            return
        count, losses = self._forward_passes()
        for number in range(min(count, _MOST_PASSES)):
            probe.leave_out(losses[number] if number < len(losses) else None)
        if count:
            probe.fact("passes_without_backward", count)

    def _forward_passes(self) -> tuple[int, list]:
        if self.passes is not None:
            count, losses = self.passes.count(self.probe.living_models()), self.passes.losses()
            return count, losses if len(losses) == count else []
        return min(self.probe.layers.fired.values(), default=0), []


def sample_of(parameter: Any) -> Any:
    """Values of a parameter that show whether it has changed."""
    return _layout.local(parameter.detach()).reshape(-1)[:_SAMPLE].clone()


def _is_trained(parameter: Any) -> bool:
    """Whether it has a gradient that is not all zeros."""
    return parameter.grad is not None and _layout.has_values(parameter.grad)


def _digest(gradient: Any) -> Any:
    """A number of the bits of a gradient in any order; None: of a kind that is not known."""
    torch = sys.modules["torch"]
    try:
        kind = (torch.int8, torch.int16, torch.int32, torch.int64)[gradient.element_size().bit_length() - 1]
        return int(_layout.local(gradient.detach()).view(kind).sum())
    except (IndexError, RuntimeError, NotImplementedError):  # sparse, complex
        return None


class _Made:
    """What is known of a gradient when a backward pass has ended; nothing of it is kept."""

    def __init__(self, gradient: Any, asked: bool):
        self._gradient = weakref.ref(gradient)
        self._values = _layout.has_values(gradient)
        self._digest = None if asked else _digest(gradient)  # asked: the loop puts each there itself

    def is_gone(self, gradient: Any) -> bool:
        """Whether this one, which the parameter has now, is another: none, zeros, or other values elsewhere.
        FSDP1 and DDP put the same values into other tensors between backward passes that are added up."""
        if gradient is None:
            return True
        if gradient is not self._gradient() and (self._digest is None or _digest(gradient) != self._digest):
            return True
        return self._values and not _layout.has_values(gradient)


class Passes:
    """Forward passes in training mode before the first backward pass, of any module. It counts only, and is
    gone before torch.compile sees it."""

    def __init__(self, told: Callable[[], Any]):
        self._told = told  # called when there have been many
        self._calls: dict[int, int] = {}  # id of a module -> how often
        self._losses: list = []  # what modules gave that could be one
        self._next = _FIRST_TRY
        self._handle: Any = None
        self._compile: Any = None
        self._own: Any = None

    def start(self, torch: Any) -> None:
        """Begins to count."""
        self._handle = torch.nn.modules.module.register_module_forward_hook(self._ran)
        original = self._compile = torch.compile

        def compile(*args: Any, **kwargs: Any) -> Any:
            self.end()
            return original(*args, **kwargs)

        compile.__wrapped__ = original  # type: ignore[attr-defined]
        self._own = torch.compile = compile

    def end(self) -> None:
        """Counts no more; what was counted stays."""
        if self._handle is not None:
            torch = sys.modules["torch"]
            self._handle.remove()
            self._handle = None
            if torch.compile is self._own:
                torch.compile = self._compile

    def _ran(self, module: Any, inputs: Any, output: Any) -> None:
        """The hook of all modules."""
        torch = sys.modules["torch"]
        if self._handle is None or not module.training or not torch.is_grad_enabled():
            return
        count = self._calls[id(module)] = self._calls.get(id(module), 0) + 1
        if type(output) is torch.Tensor and output.dim() == 0 and output.requires_grad:
            if len(self._losses) < _MOST_LOSSES:
                self._losses.append(output.detach())
        if count >= self._next:
            self._next = 2 * count
            self._told()

    def any(self) -> bool:
        """Whether there was one."""
        return bool(self._calls)

    def count(self, models: list) -> int:
        """How many there were of these models; where they are called by their parts: of most parts."""
        whole = max((self._calls.get(id(model), 0) for model in models), default=0)
        return whole or (statistics.median_low(self._calls.values()) if self._calls else 0)

    def losses(self) -> list:
        """Numbers that modules gave and that could be differentiated."""
        return [float(loss) for loss in self._losses]

    def at_pass(self, number: int) -> None:
        """Tells when this one has begun to be one of many."""
        self._next = number
