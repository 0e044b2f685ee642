"""Steps that show nothing, in a loop whose shape is known: as little as a record needs is run in them.

A small model's step takes a millisecond, after which nothing of the probe is left in the processor's caches:
a function costs ten times what it costs in a loop of its own. So the facts of such steps are written into an
array and handed to the library together, at least twenty times a second; other events of the step pass by.

The loop has one optimizer, with a GradScaler whose update ends a step, or without one. What else happens ends
the quiet: the step is then recorded in the usual way (_group).
"""

from __future__ import annotations

import ctypes
import sys
from time import perf_counter
from typing import Any, Optional

from . import _abi, _patches

MOST_STEPS = 64
MOST_SECONDS = 0.05
_FIRST_STEPS = 4
_NO_NORMS = (0.0, 0.0, 0.0)
_ALL_OF_IT = 3.0  # what the probe takes in a quiet step, by the part of it that is measured


class Quiet:
    """The quiet steps of one probe."""

    def __init__(self, probe: Any, every: int):
        self.probe = probe
        self.every = every
        self.on = False
        self.scaler: Any = None  # weak reference; None: the optimizer's step ends a step
        self.optimizer: Any = None  # weak reference
        self.tensor: Any = None  # the scaler's scale
        self.scale: Any = None  # has its value
        self.tracker: Any = None  # has the number of clean steps since the scale changed
        self.done: Any = None  # the stage of an optimizer whose step the scaler has made or skipped
        self.before, self.clean = 0.0, 0  # scale and tracker at the beginning of this step
        self.loss: Optional[float] = None  # of this step so far
        self.losses = self.backwards = 0
        self.steps: list = []  # that were not handed over
        self.facts = (_abi.StepFacts * MOST_STEPS)()
        self.room = 0
        self.ended = self.handed = 0.0  # when the last step was, and when steps were handed over

    # -- beginning and end ---------------------------------------------------------------------------

    def begin(self, group: Any) -> None:
        """After a step of the usual way of the only group: the next ones are quiet if they can be."""
        probe = self.probe
        if group.step < _FIRST_STEPS or group.skipped or probe.runs_again or not probe.micro_batches:
            return
        self.scaler = group.scaler if probe.last_scale is not None else None
        self.optimizer = group.optimizer
        if self.scaler is not None:
            if probe.losses != probe.micro_batches or not self._know(self.scaler()):
                return
        if _patches.be_quiet(self):
            self.on = True
            self._start()
            self._set_room(group)
            self.ended = self.handed = perf_counter()
            group.unwatch(everything=self.scaler is not None)

    def _know(self, scaler: Any) -> bool:
        """Where a scaler of torch keeps its state; False for one that keeps it elsewhere."""
        self.tensor, tracker = getattr(scaler, "_scale", None), getattr(scaler, "_growth_tracker", None)
        if self.tensor is None or tracker is None or not hasattr(scaler, "_per_optimizer_states"):
            return False
        self.done = sys.modules["torch"].amp.grad_scaler.OptState.STEPPED
        self.scale, self.tracker = _number(self.tensor, ctypes.c_float), _number(tracker, ctypes.c_int32)
        return True

    def _start(self) -> None:
        self.loss, self.losses, self.backwards = None, 0, 0

    def _set_room(self, group: Any) -> None:
        """How many steps may be handed over together: few at the beginning, none past one that is due."""
        self.room = max(1, min(MOST_STEPS, group.step // 4))
        if self.every:
            self.room = min(self.room, self.every - group.step % self.every)

    def end(self) -> None:
        """Steps are recorded in the usual way again; what is known of this one is handed on."""
        if self.on:
            self.on = False
            _patches.be_quiet(None)
            self.tensor = self.scale = self.tracker = None
            self.probe.groups[0].watch()
            self.probe.resume_loss(self.loss, self.losses)
            try:
                self.hand_over()
            except Exception as error:
                self.probe.fail(error)

    def hand_over(self) -> int:
        """The steps so far go to the library, which says what the next one should show."""
        steps, self.steps = self.steps, []
        group = self.probe.groups[0]
        first = group.step - len(steps)
        for index, step in enumerate(steps):
            at = index * _abi.FACTS_BYTES
            _abi.pack_facts(self.facts, at, _abi.FACTS_BYTES, step[0], first + index, 0, *step[1:], 0, 0)
        if steps:
            group.plan = self.probe.record.end_steps(self.facts, len(steps))
            self._set_room(group)
        return group.plan

    # -- what the loop does: only what every step needs, in few functions ----------------------------

    def saw_loss(self, scaler: Any, outputs: Any) -> None:
        """A scaler is about to scale a loss."""
        if self.scaler is None or getattr(scaler, "_scale", None) is not self.tensor:
            if scaler.is_enabled():
                self.end()
                self.probe.saw_loss(scaler, outputs)
        elif self.scaler() is scaler:
            if not self.losses:
                self.before, self.clean = self.scale.value, self.tracker.value
            self._add(outputs)

    def saw_backward(self, tensors: Any) -> None:
        """torch.autograd.backward is about to run; with a scaler, its loss is known."""
        self.probe.backwards += 1
        if self.scaler is None:
            self._add(tensors)
            return
        self.backwards += 1
        if self.backwards > self.losses:  # of a loss that was not scaled: another loop has begun
            self.end()
            self.probe.saw_backward(tensors)

    def _add(self, outputs: Any) -> None:
        probe = self.probe
        try:
            value = outputs.item() if type(outputs) is probe.plain_type else probe.value_of(outputs)
            if value is not None:
                self.loss = value if self.loss is None else self.loss + value
            self.losses += 1
            if self.losses == 1:  # the rate that this step will have, whenever a schedule changes it
                optimizer = self.optimizer()
                group = probe.groups[0]
                if optimizer is not None and optimizer.param_groups[0].get("lr") is not group.lr:
                    group.read_lr()
        except RuntimeError:  # a loss of several values
            self.losses += 1
        except Exception as error:
            probe.fail(error)

    def clip_kind(self) -> str:
        """Whether the gradients that are about to be clipped carry the scale."""
        if self.scaler is None:
            return "unscaled"
        state = self.scaler()._per_optimizer_states.get(id(self.optimizer()))
        return "unscaled" if state is not None and state["stage"].name == "UNSCALED" else "scaled"

    def updated(self, scaler: Any, states: Any) -> None:
        """The scaler's update has run; `states` is what it knew of its optimizers before."""
        if self.scaler is None or self.scaler() is not scaler:
            return
        try:
            started = perf_counter()
            state = states.get(id(self.optimizer()))
            if state is None:
                return
            if state["stage"] is not self.done:  # unscaled, and then left out by the loop
                self._step_ends(started, -1, 0)
            elif self.tracker.value == self.clean + 1:  # the scaler itself has counted a clean step
                self._step_ends(started, 0, 1)
            else:
                found = any([value.item() for value in state["found_inf_per_device"].values()])
                self._step_ends(started, int(found), int(not found))
        except Exception as error:
            self.probe.fail(error)

    def stepped(self, plain: bool) -> bool:
        """The optimizer's step has run. False: in another way than before, and the quiet has ended."""
        if self.scaler is not None:
            return True
        try:
            if plain and self.losses:
                self._step_ends(perf_counter(), -1, 1)
                return True
            self.end()
        except Exception as error:
            self.probe.fail(error)
        return False

    def _step_ends(self, started: float, found: int, stepped: int) -> None:
        probe, loss, before, after = self.probe, self.loss, 0.0, 0.0
        group = probe.groups[0]
        if found == 1:
            self.hand_over()
            group.name_overflows()
        flags = _abi.HAS_LOSS | _abi.HAS_LR
        if self.scaler is not None:
            flags |= _abi.HAS_SCALE
            before, after = self.before, self.scale.value
        if loss is None:
            flags, loss = flags & ~_abi.HAS_LOSS, 0.0
        lr = group.lr
        if lr is None:
            flags, lr = flags & ~_abi.HAS_LR, 0.0
        norms = _NO_NORMS
        if group.clip is not None:
            group.scale = before
            more, norms = group.clipping()
            flags |= more
            group.reset()
        now = perf_counter()
        spent = _ALL_OF_IT * (now - started)
        self.steps.append(
            (flags, found, stepped, self.losses, before, after, loss, lr, *norms, now - self.ended, spent)
        )
        if self.losses > probe.told_micro_batches:
            probe.tell_micro_batches(self.losses)
        self.ended = now
        group.step += 1
        self._start()
        if found == 1:
            group.skipped = probe.last_skipped = True
            probe.last_scale = before
            self.end()
        elif len(self.steps) >= self.room or now - self.handed >= MOST_SECONDS:
            self.handed = now
            if self.hand_over():
                self.end()
        if not self.on:
            probe.begin_step(group.plan)


class _OnDevice:
    """The number in a tensor that is not in host memory."""

    def __init__(self, tensor: Any):
        self.tensor = tensor

    @property
    def value(self) -> Any:
        """The number."""
        return self.tensor.item()


def _number(tensor: Any, kind: Any) -> Any:
    """What has, as its `value`, the number in a tensor that is changed in place and must be kept."""
    return kind.from_address(tensor.data_ptr()) if tensor.device.type == "cpu" else _OnDevice(tensor)
