"""Steps that show nothing, in a loop whose shape is known: as little as a record needs is run in them.

A small model's step takes a millisecond, after which nothing of the probe is left in the processor's caches:
a function costs ten times what it costs in a loop of its own. So a quiet step runs two functions of the probe
in place of those of _patches: with a GradScaler its scale and update, without one backward and a hook on the
optimizer's step. They write the step's numbers into the array that the library reads, which it is handed two
to ten times a second; all else of it was written before. The array is memory that outlives the process if
that is killed, so no step is lost; where there is none, each step is handed over by itself. They measure
themselves: as those seconds count against the budget, less is looked at where steps are short.

The loop has one optimizer, with a GradScaler whose update ends a step, or without one. What else happens ends
the quiet: the step is then recorded in the usual way (_group).
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
from array import array
from time import perf_counter
from typing import Any, Callable, Optional

from . import _abi, _late, _patches

MOST_STEPS = 128
# Steps are handed over when the first of them is so old: the least and the most. On a busy machine, where it
# takes longer, it is done less often: it takes at most this share of the time.
LEAST_SECONDS, MOST_SECONDS, _SHARE = 0.1, 0.5, 0.001
_FIRST_STEPS = 4
_WORDS = _abi.FACTS_BYTES // 8
# Words of a step's facts, which differ from step to step.
_STEP, _BEFORE, _AFTER, _LOSS, _LR, _SECONDS = (
    getattr(_abi.StepFacts, name).offset // 8
    for name in ("step", "scale_before", "scale_after", "loss", "lr", "seconds")
)


class Quiet:
    """The quiet steps of one probe."""

    __slots__ = (
        *("probe", "every", "on", "scaler", "optimizer", "tensor", "counter", "scale", "tracker", "done"),
        *("token", "flags", "usual", "facts", "bytes", "words", "steps_at", "full", "ended", "due", "spoilt"),
        *("outlives", "late", "stepped"),
        *("at", "losses", "odd", "loss", "lr", "before", "clean", "took", "cost", "spent", "in_library"),
        *("handing", "inside", "clears_late", "drops", "drops_of"),
    )

    def __init__(self, probe: Any, every: int):
        self.probe = probe
        self.every = every
        self.on = False
        self.scaler: Any = None  # weak reference; None: the optimizer's step ends a step
        self.optimizer: Any = None  # weak reference
        self.tensor: Any = None  # the scaler's scale
        self.counter: Any = None  # of clean steps since the scale changed
        self.scale: Any = None  # has the number in `tensor` as item 0
        self.tracker: Any = None  # and that in `counter`
        self.done: Any = None  # the stage of an optimizer whose step the scaler has made or skipped
        self.token: Any = None  # of this quiet: functions of an earlier one do nothing
        self.flags = 0  # of a step like most
        self.usual = 1  # losses of a step like most
        self.outlives: Optional[bool] = None  # whether the facts are in memory that outlives the process
        self.late: Any = None  # losses that are on a GPU
        self.stepped = False  # the optimizer has stepped without being handed what the finite check said
        self.facts: Any = None
        self.bytes: Any = None  # the facts as bytes, as words, and their numbers of the step
        self.words: Any = None
        self.steps_at: Any = None
        self.spoilt = True  # the facts are not yet, or no more, those of steps like most
        self.full = 0  # words of as many steps as may be handed over together
        self.at = 0  # words of the steps that were not handed over
        self.ended = self.due = 0.0  # when the last step was, and when steps are handed over
        # Seconds, by the function that saw the loss of the first step that is not handed over,
        self.took = 0.0
        self.cost = 0.0  # and by all functions of such a step; the others are taken to cost as much
        self.spent = 0.0  # more than that, by the steps that were not handed over
        self.in_library = self.handing = 0.0  # in the call that handed steps over; to do so
        self.before, self.clean, self.lr = 0.0, 0, 0.0  # scale, tracker and rate at the step's beginning
        self.clears_late = False  # between the scaling of a loss and its backward pass
        self.drops, self.drops_of = 0, -1  # backward passes of a step whose gradients were thrown away
        self._start()

    @property
    def steps(self) -> int:
        """How many steps were not handed over."""
        return self.at // _WORDS

    # -- beginning and end ---------------------------------------------------------------------------

    def begin(self, group: Any) -> None:
        """After a step of the usual way of the only group: the next ones are quiet if they can be."""
        probe, optimizer, scaler = self.probe, group.optimizer(), None
        known = group.step - group.since >= _FIRST_STEPS
        if not known or group.skipped or probe.runs_again or not probe.micro_batches:
            return
        if probe.last_scale is not None:
            scaler = group.scaler()
            if probe.losses != probe.micro_batches or not self._know(scaler):
                return
        if optimizer is None:
            return
        if self.outlives is None:
            facts = probe.record.latest(MOST_STEPS)
            self.outlives = facts is not None
            self._take(facts if self.outlives else (_abi.StepFacts * MOST_STEPS)())
        if not any(map(_late.is_copied, group.parameters)):
            self.late = None
        elif self.late is None:
            self.late = _late.Losses(self.words, _LOSS, _SECONDS)
        else:
            self.late.slots = []  # of a step that went on in the usual way
        self.scaler, self.optimizer = group.scaler if scaler is not None else None, group.optimizer
        self.token, self.usual = object(), probe.micro_batches
        self.flags = _abi.HAS_LOSS | (0 if group.lr is None else _abi.HAS_LR)
        if scaler is not None:
            self.flags |= _abi.HAS_SCALE
            self.clean = self.tracker[0]
        functions = _scaled(self) if scaler is not None else {"backward": _wrap_backward(self)}
        if _patches.be_quiet(self, functions, scaler):
            self.on = self.spoilt = True
            self.spent = 0.0
            self._start()
            probe.others.hush(_sees_step(self, probe.others.hook))
            group.hush(None if scaler is not None else _ends_step(self))
            self.ended = perf_counter()
            self._prepare(group)
            if self.late is not None:
                self.full = _WORDS  # the library holds the step before until this one is handed over

    def _take(self, facts: Any) -> None:
        """The array that steps are written to."""
        self.facts, self.bytes = facts, memoryview(facts).cast("B")
        self.words, self.steps_at = self.bytes.cast("d"), self.bytes.cast("q")[_STEP::_WORDS]

    def leave(self) -> None:
        """In a child made by fork(): the steps that it makes are not the probe's."""
        self.at = 0
        self.stop()

    def _know(self, scaler: Any) -> bool:
        """Where a scaler of torch keeps its state; False for one that keeps it elsewhere."""
        self.tensor, self.counter = getattr(scaler, "_scale", None), getattr(scaler, "_growth_tracker", None)
        if self.tensor is None or self.counter is None or not hasattr(scaler, "_per_optimizer_states"):
            return False
        self.done = sys.modules["torch"].amp.grad_scaler.OptState.STEPPED
        if _late.on_device(self.tensor):
            self.scale = _late.Scale(self.tensor)
            self.tracker = _late.Clean(self.counter, self.scale, self)
            self.stepped = False
            return math.isfinite(self.scale[0])
        self.scale, self.tracker = _number(self.tensor, ctypes.c_float), _number(self.counter, ctypes.c_int32)
        return True

    def _start(self) -> None:
        self.loss: Optional[float] = None
        self.losses, self.odd, self.inside = 0, False, False

    def _prepare(self, group: Any) -> None:
        """The facts of steps like most, for as many as may be handed over together: few at the beginning, and
        none past a step that is due."""
        own = group.step - group.since
        room = max(1, min(MOST_STEPS, own // 4)) if self.outlives else 1
        if self.every:
            room = min(room, self.every - group.step % self.every)
        if self.spoilt:
            self._pack(0, self.flags, 0, -1 if self.scaler is None else 0, 1, self.usual)
            self.bytes[:] = self.bytes[: _abi.FACTS_BYTES].tobytes() * MOST_STEPS
            self.spoilt = False
        self.steps_at[:room] = array("q", range(group.step, group.step + room))
        self.at, self.full = 0, room * _WORDS
        self.due = perf_counter() + min(max(self.handing / _SHARE, LEAST_SECONDS), MOST_SECONDS)

    def _pack(self, at: int, flags: int, step: int, found: int, stepped: int, losses: int, *most: Any):
        """Writes the facts of a step; `most`: its numbers but what it cost."""
        numbers = (*(most or (0.0,) * 8), 0.0)
        facts = (flags, step, 0, found, stepped, losses, *numbers, 0, 0)
        _abi.pack_facts(self.facts, 8 * at, _abi.FACTS_BYTES, *facts)

    def end(self) -> None:
        """Steps are recorded in the usual way again; what is known of this one is handed on."""
        if self.on:
            self.stop()
            self.probe.groups[0].watch()
            if self.late is not None and self.loss is not None:
                self.loss = self.late.known()
            self.probe.resume_loss(self.loss, self.losses)
            try:
                self.hand_over()
            except Exception as error:
                self.probe.fail(error)

    def stop(self) -> None:
        """The loop's functions are again what they were."""
        if self.on:
            self.on = False
            _patches.be_loud()
            self.probe.others.heed()
            self.token = self.tensor = self.counter = self.scale = self.tracker = None

    def hand_over(self) -> int:
        """The steps so far go to the library, which says what the next one should show."""
        count, group = self.steps, self.probe.groups[0]
        if self.late is not None:
            self.late.settle(wait=True)
        self.at = 0
        if count:
            group.step += count
            self.facts[0].spent = max(0.0, self.spent + self.cost * count)
            self.spent, called = 0.0, perf_counter()
            group.plan = self.probe.record.end_steps(self.facts, count)
            self.in_library = self.handing = perf_counter() - called
            self._prepare(group)
        return group.plan

    # -- what is not as most: the functions below call these -------------------------------------------

    def other_scaler(self, scaler: Any, outputs: Any) -> None:
        """A scaler that is not this loop's scales a loss."""
        if scaler.is_enabled():
            self.end()
            self.probe.saw_loss(scaler, outputs)

    def add_loss(self, outputs: Any) -> None:
        """A loss that is not the first of its step, or not a plain tensor."""
        try:
            if self.losses and type(outputs) is self.probe.plain_type and self._lost_gradients():
                self._go_on(outputs)
                return
            late = self.late is not None and type(outputs) is self.probe.plain_type
            late = late and outputs.numel() == 1 and not _late.is_recorded()
            value = self.late.put(outputs) if late else self.probe.value_of(outputs)
            if not self.losses:
                self._begin_step()
            self.losses += 1
            if value is None:
                self.odd = True
            else:
                self.loss = value if self.loss is None else self.loss + value
        except Exception as error:
            self.probe.fail(error)

    def _lost_gradients(self) -> bool:
        """Whether the loop has set those of the last backward pass to None itself; or to zeros: looked for
        where it does so between steps, or the loss is not finite, and nothing waits for a GPU."""
        if self.probe.scales_ahead:
            return False
        group = self.probe.groups[0]
        bad = self.loss is not None and not math.isfinite(self.loss)
        group.filled = self.late is None and (bad or group.zeroes)
        return group.are_cleared()

    def _go_on(self, outputs: Any) -> None:
        """In the usual way, with a loss."""
        scaler = self.scaler() if self.scaler is not None else None
        self.end()
        self.probe.groups[0].fresh = True
        if scaler is not None:
            self.probe.saw_loss(scaler, outputs)
        else:
            self.probe.saw_backward(outputs)

    def tell_clearing(self, owner: Any) -> None:
        """The same, never raising."""
        try:
            self.clears(owner)
        except Exception as error:
            self.probe.fail(error)

    def clears(self, owner: Any) -> None:
        """Gradients of an optimizer or a module are about to be thrown away, and this step has a loss:
        those of its backward pass, unless the step is made already."""
        group = self.probe.groups[0]
        if self.inside or self.is_made() or group not in _patches.owner_groups(owner):
            return
        if self.scaler is not None and self.clears_late:
            return
        if not group.have_gradients():
            return
        step = group.step + self.steps
        if step != self.drops_of:
            self.drops, self.drops_of = 0, step
        group.drops = self.drops
        if group.is_due():  # no habit of this loop: looked at
            self.end()
            group.fresh = True
            group.before_zero_grad()
            return
        self.drops += 1
        if self.late is not None:
            self.late.slots = []
        group.reset()
        self._start()

    def is_made(self) -> bool:
        """Whether the scaler has made or skipped the step that runs."""
        if self.scaler is None:
            return False
        state = self.scaler()._per_optimizer_states.get(id(self.optimizer()))
        return state is not None and state["stage"] is self.done

    def _begin_step(self) -> None:
        """What is known when the first loss of a step is there."""
        optimizer = self.optimizer()
        if self.flags & _abi.HAS_LR and optimizer is not None:
            self.lr = optimizer.param_groups[0]["lr"]  # of this step, whenever a schedule changes it
        if self.scaler is not None:
            self.before = self.scale[0]

    def clip_kind(self) -> str:
        """Whether the gradients that are about to be clipped carry the scale."""
        self.odd = True
        if self.scaler is None:
            return "unscaled"
        state = self.scaler()._per_optimizer_states.get(id(self.optimizer()))
        return "unscaled" if state is not None and state["stage"].name == "UNSCALED" else "scaled"

    def odd_update(self, states: Any, now: float) -> None:
        """An update that was none of a step like most; `states`: what the scaler knew of its optimizers."""
        state = states.get(id(self.optimizer()))
        if state is None:  # it was of other optimizers
            self.clean = self.tracker[0]
            return
        if state["stage"] is not self.done:  # unscaled, and then left out by the loop
            self.odd_step(now, -1, 0)
        elif self.tracker[0] == self.clean + 1:  # the scaler itself has counted a clean step
            self.odd_step(now, 0, 1)
        else:
            found = any([value.item() for value in state["found_inf_per_device"].values()])
            self.odd_step(now, int(found), int(not found))

    def odd_step(self, now: float, found: int, stepped: int) -> None:
        """The end of a step that differs from most."""
        probe, group, loss, lr = self.probe, self.probe.groups[0], self.loss, float(self.lr)
        if found == 1:
            self.hand_over()
            group.name_overflows()
        flags, norms = self.flags, (0.0, 0.0, 0.0)
        before, after = (0.0, 0.0) if self.scaler is None else (self.before, self.scale[0])
        if loss is None:
            flags, loss = flags & ~_abi.HAS_LOSS, 0.0
        if group.clip is not None:
            group.scale = before
            more, norms = group.clipping()
            flags |= more
            group.reset()
        seconds = now - self.ended
        numbers = (before, after, loss, lr, *norms, 0.0 if self.late is not None else seconds)
        self.spoilt = True
        self._pack(self.at, flags, group.step + self.steps, found, stepped, self.losses, *numbers)
        if self.late is not None:
            self.late.ended(self.at, seconds)
        if self.losses > probe.told_micro_batches:
            probe.tell_micro_batches(self.losses)
        if self.scaler is not None:
            self.clean = self.tracker[0]
        self.ended = now
        self.at += _WORDS
        self._start()
        if found == 1:
            group.lr = lr if flags & _abi.HAS_LR else None
            group.skipped = probe.last_skipped = True
            probe.last_scale = before
            self.end()
            probe.begin_step(group.plan)
        elif self.at >= self.full or now >= self.due:
            self.deliver()
        else:
            self.spent += perf_counter() - now

    def deliver(self) -> None:
        """Steps are handed over because it is time; the next one may show something."""
        began = perf_counter()
        plan = self.hand_over()
        if plan:
            self.end()
            self.probe.begin_step(plan)
        took = perf_counter() - began - self.in_library
        self.handing = took + self.in_library
        if self.on:
            self.spent += took
        else:
            self.probe.spent += took


# -- what the loop runs: a frame each, and in it only what every step needs ------------------------------


def _scaled(quiet: Quiet) -> dict[str, Optional[Callable]]:
    """What stands for functions of _patches in a loop with a scaler; None: the original does."""
    replaced = {"scale": _wrap_scale(quiet), "update": _wrap_update(quiet)}
    return {**replaced, "unscale_": None, "step": None, "backward": None}


def _wrap_scale(quiet: Quiet) -> Callable:
    traced, clock, plain = _patches.tracing(), perf_counter, quiet.probe.plain_type
    rated, value_of = quiet.flags & _abi.HAS_LR, plain.item if quiet.late is None else quiet.late.put
    token, tensor, number, optimizer = quiet.token, quiet.tensor, quiet.scale, quiet.optimizer

    def other(scaler: Any, outputs: Any) -> None:
        """What is no first and plain loss of this loop's scaler."""
        if scaler._scale is tensor:
            quiet.add_loss(outputs)
        else:
            quiet.other_scaler(scaler, outputs)

    def wrap(original: Callable) -> Callable:
        @functools.wraps(original)
        def scale(self: Any, *args: Any, **kwargs: Any) -> Any:
            if traced() or quiet.token is not token:
                return original(self, *args, **kwargs)
            if kwargs or len(args) != 1:
                other(self, args[0] if args else kwargs.get("outputs"))
                return original(self, *args, **kwargs)
            (outputs,) = args
            began = 0.0 if quiet.at else clock()
            if self._scale is not tensor or quiet.losses or type(outputs) is not plain:
                other(self, outputs)
            else:
                try:
                    quiet.loss = value_of(outputs)
                    quiet.before = number[0]
                    if rated:
                        quiet.lr = optimizer().param_groups[0]["lr"]
                    quiet.losses = 1
                except Exception:
                    quiet.loss = None
                    quiet.add_loss(outputs)
            if began:
                quiet.took = clock() - began
            return original(self, outputs)  # without * in the call: a frame in the interpreter, no more

        return scale

    return wrap


def _wrap_update(quiet: Quiet) -> Callable:
    traced, clock, words, usual = _patches.tracing(), perf_counter, quiet.words, quiet.usual
    token, tensor, tracker, done = quiet.token, quiet.tensor, quiet.tracker, quiet.done
    late = quiet.late
    key = id(quiet.optimizer())

    def wrap(original: Callable) -> Callable:
        @functools.wraps(original)
        def update(self: Any, *args: Any, **kwargs: Any) -> Any:
            if quiet.token is not token or self._scale is not tensor or not quiet.losses and traced():
                return original(self, *args, **kwargs)
            states = self._per_optimizer_states  # replaced by the original
            result = original(self, *args, **kwargs) if args or kwargs else original(self)
            try:
                now, clean, state = clock(), quiet.clean + 1, states.get(key)
                if (
                    tracker[0] == clean  # the scaler itself has counted a clean step
                    and state is not None
                    and state["stage"] is done
                    and quiet.losses == usual
                    and not quiet.odd
                ):
                    at = quiet.at
                    words[at + _BEFORE] = words[at + _AFTER] = quiet.before
                    words[at + _LOSS] = quiet.loss
                    words[at + _LR] = quiet.lr
                    if late is None:
                        words[at + _SECONDS] = now - quiet.ended
                    else:
                        late.ended(at, now - quiet.ended)
                    quiet.ended, quiet.clean, quiet.losses, quiet.inside = now, clean, 0, False
                    if not at:
                        quiet.cost = quiet.took + clock() - now
                    quiet.at = at = at + _WORDS
                    if at >= quiet.full or now >= quiet.due:
                        quiet.deliver()
                else:
                    quiet.odd_update(states, now)
            except Exception as error:
                quiet.probe.fail(error)
            return result

        return update

    return wrap


def _sees_step(quiet: Quiet, everywhere: Callable) -> Callable:
    """A hook of all optimizers: in place of `everywhere`, which it asks about others than this loop's. In a
    loop with a scaler the only hook on its step, which says whether there was a scaled loss."""
    traced, scaled, key = _patches.tracing(), quiet.scaler is not None, id(quiet.optimizer())

    def odd(optimizer: Any, args: tuple, kwargs: dict) -> Any:
        if id(optimizer) != key:
            return everywhere(optimizer, args, kwargs)
        if scaled and not traced():
            quiet.end()  # its hooks are there again, and see this step
        return None

    def steps(optimizer: Any, args: tuple, kwargs: dict) -> Any:
        if id(optimizer) != key or not quiet.losses:
            return odd(optimizer, args, kwargs)
        quiet.inside = True  # what it clears now is of a step that is made
        return None

    def steps_on_device(optimizer: Any, args: tuple, kwargs: dict) -> Any:
        quiet.stepped = not getattr(optimizer, "_step_supports_amp_scaling", False)
        return steps(optimizer, args, kwargs)

    return steps_on_device if isinstance(quiet.tracker, _late.Clean) else steps


def _wrap_backward(quiet: Quiet) -> Callable:
    traced, clock, plain = _patches.tracing(), perf_counter, quiet.probe.plain_type
    rated, value_of = quiet.flags & _abi.HAS_LR, plain.item if quiet.late is None else quiet.late.put
    token, optimizer = quiet.token, quiet.optimizer

    def wrap(original: Callable) -> Callable:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not traced() and quiet.token is token:
                began = 0.0 if quiet.at else clock()
                if quiet.losses or type(tensors) is not plain:
                    quiet.add_loss(tensors)
                else:
                    try:
                        quiet.loss = value_of(tensors)
                        if rated:
                            quiet.lr = optimizer().param_groups[0]["lr"]
                        quiet.losses = 1
                    except Exception:
                        quiet.loss = None
                        quiet.add_loss(tensors)
                if began:
                    quiet.took = clock() - began
            return original(tensors, *args, **kwargs)

        return backward

    return wrap


def _ends_step(quiet: Quiet) -> Callable:
    """A hook on the optimizer's step in a loop without a scaler."""
    traced, clock, words = _patches.tracing(), perf_counter, quiet.words
    usual, token, late = quiet.usual, quiet.token, quiet.late

    def stepped(_optimizer: Any, args: tuple, kwargs: dict) -> None:
        if traced() or quiet.token is not token:
            return
        try:
            now = clock()
            if (args[1] if len(args) > 1 else kwargs.get("closure")) is not None or not quiet.losses:
                quiet.end()
            elif quiet.losses == usual and not quiet.odd:
                at = quiet.at
                words[at + _LOSS] = quiet.loss
                words[at + _LR] = quiet.lr
                if late is None:
                    words[at + _SECONDS] = now - quiet.ended
                else:
                    late.ended(at, now - quiet.ended)
                quiet.ended, quiet.losses, quiet.inside = now, 0, False
                if not at:
                    quiet.cost = quiet.took + clock() - now
                quiet.at = at = at + _WORDS
                if at >= quiet.full or now >= quiet.due:
                    quiet.deliver()
            else:
                quiet.odd_step(now, -1, 1)
        except Exception as error:
            quiet.probe.fail(error)

    return stepped


def _number(tensor: Any, kind: Any) -> Any:
    """What has, as its item 0, the number in a tensor that is changed in place and must be kept."""
    return memoryview((kind * 1).from_address(tensor.data_ptr())).cast("B").cast(kind._type_)
