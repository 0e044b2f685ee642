"""One optimizer as the probe sees it: its gradients, its steps and skips, what it clips, its lost updates.

A step runs through: (clip) - before_unscale or before_scaler_step or before_optimizer_step, whichever comes
first, sees the gradients - the optimizer steps or not - after_scaler_step reads what the finite check said -
the step is ended by the scaler's update, or by the optimizer's step where there is no scaler. Nothing here
raises: a failure turns the probe off.

What ends a step is that the loop tries to make it. A backward pass whose gradients are thrown away before
that is no step and none that was skipped: neither its loss nor its gradients are the step's. But where a step
is due by what the loop did before, and the gradients or the loss are not finite, the loop has made the finite
check itself, and that step was left out.
"""

from __future__ import annotations

import functools
import math
import sys
import weakref
from time import perf_counter
from typing import Any, Callable, Optional

from . import _abi, _cuda, _kept, _layout, _patches
from ._abi import WORD_DATA, WORDS
from ._describe import parameters_of

_KEPT_TABLES = 2  # beside the newest: weights, with gradients and states, with states
_SLOTS = {"momentum_buffer": 0, "exp_avg": 0, "exp_avg_sq": 1, "square_avg": 1, "sum": 1}


def guarded(function: Callable) -> Callable:
    """A method that runs inside the user's loop: it does nothing when the probe is off or while work is
    recorded as a CUDA graph, which a read would end, and never raises.

    Its time is the probe's, but for calls of the library (in_library), which measures itself."""

    @functools.wraps(function)
    def wrapper(self: Any, *args: Any) -> Any:
        probe = self.probe
        if probe.off or probe.is_recorded():
            return None
        outer, started = probe.guards, perf_counter()
        probe.guards = True
        try:
            return function(self, *args) if not probe.look.on else _unseen(probe, function, self, *args)
        except Exception as error:
            probe.fail(error)
            return None
        finally:
            probe.guards = outer
            if not outer:
                probe.spent += perf_counter() - started

    return wrapper


def _unseen(probe: Any, function: Callable, *args: Any) -> Any:
    """What the probe itself does is no operation of the training."""
    try:
        with _patches.without_modes(sys.modules["torch"]):
            return function(*args)
    finally:
        if not probe.look.on:  # it has just decided so, where the mode could not be left
            probe.look.leave()


def in_library(probe: Any, function: Callable, *args: Any) -> Any:
    """Calls a function of the record that measures its own time."""
    started = perf_counter()
    try:
        return function(*args)
    finally:
        probe.spent -= perf_counter() - started


class Group:
    """What the probe knows of one optimizer."""

    def __init__(self, probe: Any, index: int, optimizer: Any):
        self.probe = probe
        self.index = index
        self.optimizer = weakref.ref(optimizer)
        self.parameters: list = []
        self.ids: list[int] = []
        self.dtypes: list = []
        self.table: Any = _abi.gradient_table([])
        self.tables: list = []  # of weights and states: what they are of, and the table
        self.step = 0
        self.plan = 0
        self.scaler: Any = None  # weak reference to the enabled scaler whose step is running or was last seen
        self.lr: Optional[float] = None
        self.skipped = False
        self.backwards = 0  # how many there had been when the gradients were counted
        self.schedule_moved = False
        self.after: Any = None  # handles of the hooks on the optimizer's step
        self.before: Any = None
        self.compiled = False  # the optimizer's step runs inside torch.compile, which guards on its hooks
        self.unreadable: set = set()
        self.scaled_by: dict[int, float] = {}  # scalers of the losses since the gradients were thrown away
        self.fresh = False  # a backward pass has run since the last step
        self.made = False  # the last backward pass has left gradients
        self.filled = False  # and not all are zeros: known where it is looked at
        self.zeroes = False  # the loop fills gradients with zeros itself
        self.dropped = False  # the gradients of the last backward pass were thrown away
        self.left_out = False  # and they were those of a step that the loop left out
        self.drops = 0  # backward passes since the last step whose gradients were thrown away
        self.habit = 0  # and those before that step
        # Of the losses that the probe holds where there are several optimizers, those of this one's step
        self.first_loss, self.losses_end = 0, None  # None: it has not begun
        self.tried = False  # to make a step, ever
        self.ever_stepped = False
        self.kept = _kept.Kept()
        self.since = 0  # the step at which this optimizer came
        self.unlooked = False  # which of its parameters have gradients
        self.reset()

    def reset(self) -> None:
        """A step begins of which nothing is known."""
        self.regular = True  # no closure
        self.counted = False  # the gradients of this step were seen
        self.stepped = False
        self.found_inf = -1
        self.nonfinite = False  # a gradient is, where this probe makes the finite check
        self.inside = False  # in the scaler's step
        self.decided = False  # the scaler's step has returned
        self.scale: Optional[float] = None
        self.clip: Optional[str] = None
        self.max_norm: Any = None
        self.total_norm: Any = None
        self.updating = False
        self.stepping = False  # between the hooks of the optimizer's step

    def watch(self) -> None:
        """Puts hooks on the optimizer's step."""
        optimizer = self.optimizer()
        if optimizer is not None:
            if self.after is None:
                self.after_hook = self.untraced(self.after_optimizer_step)
                self.before_hook = self.untraced(self.before_optimizer_step)
                self.after = optimizer.register_step_post_hook(self.after_hook)
            self._exchange("_optimizer_step_post_hooks", self.after, self.after_hook)
            if self.before is None:
                self.before = optimizer.register_step_pre_hook(self.before_hook)

    def follow(self, optimizer: Any, before: Any, after: Any) -> None:
        """Another optimizer steps in this place from now on. Handles of hooks that it has already become this
        group's: where they are running, none may come or go."""
        _patches.forget(self)
        self.unwatch()
        self.optimizer, self.since, self.parameters = weakref.ref(optimizer), self.step, []
        self.compiled = self.stepping = False
        self.kept.forget()
        _patches.watch(self, optimizer)
        self.refresh()
        self.after_hook = self.untraced(self.after_optimizer_step)
        self.before_hook = self.untraced(self.before_optimizer_step)
        self.before, self.after = before, after
        self._exchange("_optimizer_step_pre_hooks", before, self.before_hook)
        if after is None:
            self.after = optimizer.register_step_post_hook(self.after_hook)
        self.watch()

    def leave(self) -> tuple:
        """The handles of the hooks, for the group that follows this optimizer from now on."""
        handles = self.before, self.after
        self.before = self.after = None
        _patches.forget(self)
        self.parameters, self.optimizer = [], lambda: None  # type: ignore[assignment,return-value]
        return handles

    def hush(self, after: Optional[Callable]) -> None:
        """`after` stands for both hooks until the next watch(); None: nothing does. Not while hooks of this
        optimizer are running before its step, nor after it where there is no `after`."""
        if after is not None:
            self._exchange("_optimizer_step_post_hooks", self.after, after)
        elif self.after is not None:
            self.after.remove()
            self.after = None
        if self.before is not None:
            self.before.remove()
            self.before = None

    def silence(self) -> None:
        """The hooks do nothing from here on. They may be running, so none goes."""
        self._exchange("_optimizer_step_post_hooks", self.after, _nothing)
        self._exchange("_optimizer_step_pre_hooks", self.before, _nothing)

    def _exchange(self, kind: str, handle: Any, hook: Callable) -> None:
        """Puts a hook in the place of another: where hooks are running, none may come or go."""
        hooks = getattr(self.optimizer(), kind, ())
        if getattr(handle, "id", None) in hooks:
            hooks[handle.id] = hook

    def unwatch(self) -> None:
        """Takes the hooks off."""
        for handle in (self.after, self.before):
            if handle is not None:
                handle.remove()
        self.after = self.before = None

    def untraced(self, function: Callable) -> Callable:
        """A hook that torch.compile does not trace; torch.compiler.disable alone costs time in eager."""
        torch = sys.modules.get("torch")
        if torch is None:
            return function

        def in_compiled(*args: Any) -> Any:
            self.compiled = True
            return function(*args)

        disabled, traced = torch.compiler.disable(in_compiled), _patches.tracing()

        def hook(*args: Any) -> Any:
            return disabled(*args) if traced() else function(*args)

        return hook

    def told(self) -> Any:
        """What the record's kind and numbers are of: the optimizer, or the adapter of a framework's."""
        return self.optimizer()

    def loss_divisor(self) -> float:
        """The loss that is differentiated is this many times the loss, where no GradScaler scaled it."""
        return 1.0

    # -- parameters ----------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Follows parameters that were added to the optimizer, or replaced."""
        optimizer = self.optimizer()
        if optimizer is None:
            return
        found = parameters_of(optimizer)
        known = self.parameters
        if len(found) == len(known) and all(map(_same, found, known)):
            return
        if known and found:
            self.probe.name_parameters()
        self.parameters = found
        self.unlooked = True
        self.ids = self.probe.describe_parameters(found, self.index)
        self.dtypes = [p.dtype for p in found]
        self.table = _abi.gradient_table(self.ids)
        for entry, dtype in zip(self.table.array, self.dtypes):
            entry.dtype = _layout.dtype_code(dtype)
        _patches.watch_parameters(self, found)

    def optimizer_gone(self) -> None:
        """The user's optimizer was freed: nothing of it is kept."""
        self.parameters = []
        _patches.watch_parameters(self, [])

    # -- gradients -----------------------------------------------------------------------------------

    def _gather(self) -> list:
        """Fills the table with where the gradients lie; gives what must live until they were read."""
        table, words, keep = self.table, self.table.words, []
        for index, parameter in enumerate(self.parameters):
            gradient = parameter.grad
            if gradient is None:
                words[index * WORDS + WORD_DATA] = 0
            else:
                keep.append(self._put(table, index, gradient))
        return keep

    def _put(self, table: Any, index: int, tensor: Any) -> Any:
        """One tensor of any kind; gives what must live until it was read."""
        if getattr(tensor, "is_cuda", False) and _cuda.put(table.array[index], tensor, self.probe.plain_type):
            return tensor
        found = _layout.place_of(tensor)
        if not isinstance(found, _layout.Unreadable):
            table.fill(index, found[0])
            return found[1]
        table.clear(index, found.dtype)
        if found.reason not in self.unreadable:
            self.unreadable.add(found.reason)
            self.probe.note(f"a gradient or weight was not counted: {found.reason}")
        return None

    def _count(self) -> None:
        """Shows the gradients of this step to the library."""
        self.counted = True
        self.backwards = self.probe.backwards
        if self.probe.look.on:
            self.probe.look.gradients(self)
        if not self.plan and self.step and not self.unlooked:  # it shows nothing and needs no parameters
            self.read_lr()
            return
        self.refresh()
        self.read_lr()
        if not self.step:
            self.probe.settle(self)
        exact = self.scale is None
        if self.unlooked and self.probe.plain_type is not None:
            self.unlooked = False
            self.probe.untrained.look(self)
        if self.parameters and self.plan & _abi.PLAN_GRADIENTS:
            keep = self._gather()
            flags = _abi.FINITE if exact else 0
            seen = in_library(self.probe, self.probe.record.gradients, self.index, self.table, flags)
            self.nonfinite = exact and seen.nonfinite > 0
            del keep

    def read_lr(self) -> None:
        """The rate of this step, and whether it moved after a skip."""
        optimizer = self.optimizer()
        lr = optimizer.param_groups[0].get("lr") if optimizer is not None and optimizer.param_groups else None
        if lr is not None and type(lr) is not float:
            lr = float(lr)
        if self.skipped and lr is not None and self.lr is not None and lr != self.lr:
            self.schedule_moved = True
        self.lr = lr

    # -- what the scaler and the optimizer tell ------------------------------------------------------

    @guarded
    def before_unscale(self, scaler: Any) -> None:
        """At the entry of unscale_: the gradients are what the finite check will see."""
        self._leave_abandoned()
        self._tries(scaler.is_enabled())
        self._scaler_seen(scaler)
        if not self.counted:
            self._count()

    @guarded
    def before_zero_grad(self) -> None:
        """Gradients are about to be thrown away: of a step that was made, or of a backward pass."""
        scales, self.scaled_by = self.scaled_by, {}
        self.kept.cleared()
        if len(self.probe.groups) == 1 and not self.fresh:
            self.probe.quiet.clears_late |= self.probe.awaits_backward()
        else:
            self._throw_away(scales)

    def look_for_gone(self) -> None:
        """Before the next backward pass: the loop may have set gradients of the last one to None or to zeros
        itself."""
        alone = len(self.probe.groups) == 1
        if self.are_cleared() and (self.fresh or not alone):
            scales, self.scaled_by = self.scaled_by, {}
            self.probe.may_be_quiet = False
            self._throw_away(scales, gone=True)

    def _throw_away(self, scales: dict[int, float], gone: bool = False) -> None:
        """Gradients of a backward pass; of several optimizers another one may use those that it has."""
        if self.inside or self.decided or self.dropped:
            return
        if len(self.probe.groups) == 1:
            self._drop(scales, gone)
        else:
            self.made, self.first_loss = False, self.probe.losses_passed()

    def are_cleared(self) -> bool:
        """Whether the loop has thrown away what the last backward pass has made, as far as is known. Zeros
        first: a loop that is seen to clear gradients, also by None, is looked at for zeros from then on."""
        return self.are_zeroed() or self.are_gone()

    def are_gone(self) -> bool:
        """Whether there were gradients after the last backward pass, and there are none now."""
        return self.made and not self.have_gradients()

    def watches_zeros(self) -> bool:
        """Whether zeros are looked for: in steps that are looked at, and in loops that make them."""
        return self.zeroes or bool(self.plan & _abi.PLAN_GRADIENTS) or self.probe.loss_is_bad()

    def are_zeroed(self) -> bool:
        """Whether only zeros are left of what the last backward pass has made, as far as is known."""
        found = self.filled and not self.have_values()
        self.zeroes |= found
        return found

    def have_values(self) -> bool:
        """Whether a gradient is not all zeros; the smallest is asked first."""
        found = [p.grad for p in self.parameters if p.grad is not None]
        found.sort(key=lambda gradient: gradient.numel())
        return any(map(_layout.has_values, found))

    def have_gradients(self) -> bool:
        """Whether a parameter has one."""
        return any(parameter.grad is not None for parameter in self.parameters)

    def _drop(self, scales: dict[int, float], gone: bool) -> None:
        if self.counted and self.stepping:
            return  # a closure is evaluated again
        self.refresh()
        if not gone and not self.have_gradients():
            return
        self.dropped = True
        if self.scale is not None:  # unscaled for a step
            self.left_out = True
            return
        due = self.is_due()
        if not self.counted and not gone and (due or self.plan & _abi.PLAN_GRADIENTS):
            self.nonfinite = self._has_overflowed()
        self.left_out = due and not self.stepping and (self.nonfinite or self.probe.loss_is_bad())
        if not self.counted and (self.left_out or not self.tried):  # they may be all that is ever to be seen
            self._count()
        if self.left_out and self.tried and len(scales) == 1:
            (self.scale,) = scales.values()

    def is_due(self) -> bool:
        """Whether gradients that are thrown away now would have been those of a step, if the loop goes on as
        it did: it may throw some away before each, of an attack on inputs or by mistake."""
        return (self.drops + 1) % (self.habit + 1) == 0

    def leave_dropped(self) -> None:
        """The loop goes on without a step."""
        self.dropped = self.fresh = False
        if self.left_out:
            scaler = self.scaler() if self.scale is not None and self.scaler is not None else None
            self.finish(scale_of(scaler) if scaler is not None else None)
            return
        self.drops += 1
        self.probe.finder.drops(self.probe.take_loss)
        if not self.stepping:
            self.reset()

    def _tries(self, enabled: bool = True) -> None:
        """The loop tries to make a step, by the optimizer's or an enabled scaler's."""
        if not self.tried and enabled:
            self.tried = True
            if self.probe.never is not None:
                self.probe.never.tries(self)

    def _has_overflowed(self) -> bool:
        """Whether a gradient is not finite; nothing is counted."""
        keep = self._gather()
        seen = in_library(self.probe, self.probe.record.gradients, self.index, self.table, _abi.CHECK)
        del keep
        return seen.nonfinite > 0

    def looks_finite(self) -> bool:
        """Whether the gradients that are there are finite, and the loss."""
        self.refresh()
        return not self.nonfinite and not self.probe.loss_is_bad() and not self._has_overflowed()

    def set_aside(self, record: Callable[[], None]) -> None:
        """Calls `record`, which ends other steps, in the middle of this one."""
        kept = vars(self).copy()
        self.reset()
        record()
        for name in _OF_STEP:
            setattr(self, name, kept[name])

    def _tell_left_scaled(self, scaler: Any) -> None:
        """Whether this step's loss was scaled by another scaler than the one that unscales it, or by one and
        nobody unscales it."""
        scales, self.scaled_by = self.scaled_by, {}
        if not scales or (scaler is not None and id(scaler) in scales):
            return
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        touched = any(getattr(gradient, "_version", 1) for gradient in gradients)
        divisor = scale_of(scaler) if scaler is not None else 1.0
        largest = max(scales.values()) / divisor if divisor > 0 else 0.0
        if gradients and not touched and largest > 1:
            self.probe.finder.left_scaled(largest, type(self.optimizer()).__name__)

    def _leave_abandoned(self) -> None:
        """A loop that saw a bad gradient may go on to the next batch: that step was skipped, too. One that
        was clipped and is finite is added to."""
        if self.counted and not self.inside and not self.decided and self.backwards != self.probe.backwards:
            if self.nonfinite or self.scale is not None:
                self.finish()
            else:
                self.counted, self.clip, self.max_norm, self.total_norm = False, None, None, None

    def _scaler_seen(self, scaler: Any) -> bool:
        """A scaler's method was called with this optimizer; whether it is enabled."""
        if self.decided:
            self.finish()  # the last step's scaler was never updated
        if not scaler.is_enabled():
            return False
        if self.scaler is None or self.scaler() is not scaler:
            self.scaler = weakref.ref(scaler)
            self.probe.saw_scaler(scaler, self)
        if self.scale is None:
            self.scale = scale_of(scaler)
            if self.scaled_by:
                self._tell_left_scaled(scaler)
        return True

    @guarded
    def before_scaler_step(self, scaler: Any) -> bool:
        """At the entry of the scaler's step; whether after_scaler_step is wanted."""
        if self.inside:
            return False
        self._tries(scaler.is_enabled())
        if not self._scaler_seen(scaler):
            return False
        self.inside = True
        self.probe.end_losses(self)
        if not self.counted:  # also of fused optimizers, which are never unscaled
            self._count()
        return True

    def scaler_step_raised(self) -> None:
        """The user's step raised; the error is theirs."""
        self.reset()

    @guarded
    def after_scaler_step(self, scaler: Any) -> None:
        """After the scaler's step: what the finite check said, which only this place knows."""
        self.inside = False
        self.decided = True
        if self.stepped and not getattr(self.optimizer(), "_step_supports_amp_scaling", False):
            self.found_inf = 0  # it is called only where the check found nothing
        else:
            self._read_check(scaler)
        if self.updating and self.stepped:
            self._after_update()

    def _read_check(self, scaler: Any) -> None:
        states = getattr(scaler, "_per_optimizer_states", None)
        optimizer = self.optimizer()
        if states is not None and optimizer is not None:
            found = states[id(optimizer)]["found_inf_per_device"].values()
            self.found_inf = int(sum(float(value) for value in found) != 0)
        elif not getattr(optimizer, "_step_supports_amp_scaling", False):
            self.found_inf = int(not self.stepped)  # this scaler skips by not calling
        if self.found_inf == 1:
            self.stepped = False
            self.name_overflows()

    def name_overflows(self) -> None:
        """Shows which gradients of a step overflowed."""
        self.refresh()
        self._has_overflowed()

    def overflowed(self) -> list:
        """Layer, its class, last part of the name and gradient of parameters known to have overflowed."""
        rows = []
        for entry, parameter in zip(self.table.array, self.parameters):
            gradient = getattr(parameter, "grad", None)
            if entry.nonfinite > 0 and type(gradient) is self.probe.plain_type and not gradient.is_sparse:
                name, kind = self.probe.parameter_name(parameter), self.probe.module_kind(parameter)
                layer, _, part = name.rpartition(".")
                rows.append((layer, kind, part, gradient.detach()))
        return rows

    @guarded
    def before_clip(self, max_norm: Any, total_norm: Any) -> None:
        """Gradients are about to be clipped."""
        if self.probe.quiet.on:
            self.clip = self.probe.quiet.clip_kind()
        else:
            self._before_loud_clip()
        norm = _layout.number(total_norm) if max_norm is not None else None
        if norm is not None:
            self.max_norm = float(max_norm)
            self.total_norm = norm
            if not self.probe.clip_told:
                self.probe.clip_told = True
                self.probe.record.set("clip_norm", self.max_norm)

    def _before_loud_clip(self) -> None:
        if not self.probe.expects_scaler:
            self._leave_abandoned()
        scaler = self.scaler() if self.scaler is not None else None
        enabled = scaler is not None and scaler.is_enabled()
        if not self.counted and not enabled and not self.probe.expects_scaler:
            self._count()  # the optimizer will see them clipped
        self.clip = "unscaled" if self.counted else "scaled"

    @guarded
    def before_optimizer_step(self, optimizer: Any, args: tuple, kwargs: dict) -> Any:
        """The optimizer's pre hook. A closure is wrapped: gradients are there when it has returned."""
        if not self.inside:
            self._tries()
        closure = kwargs.get("closure")
        if closure is None and len(args) > 1 and callable(args[1]):
            closure = args[1]
        if closure is not None and not self.inside:
            wrapped = self._watch_closure(closure)
            self.stepping = True
            if "closure" in kwargs:
                return args, {**kwargs, "closure": wrapped}
            return (args[0], wrapped, *args[2:]), kwargs
        self.kept.steps(self.probe.finder)
        self.probe.end_losses(self)
        if self.dropped:
            self.dropped = self.left_out = self.regular = False
            self.counted = True  # before they were thrown away, or not at all
            self.backwards = self.probe.backwards
            self.probe.finder.without_gradients()
        elif self.scale is None:
            self._leave_abandoned()
        if self.scaled_by and self.scale is None:
            self._tell_left_scaled(None)
        if not self.counted:
            self._count()
        if self.probe.finder.means and self.scale is None:
            self.probe.finder.steps(self.parameters)
        self._before_update()
        self.stepping = True
        return None

    def _watch_closure(self, closure: Callable) -> Callable:
        @functools.wraps(closure)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.regular = False
            result = closure(*args, **kwargs)
            self._closure_returned(result)
            return result

        return watched

    @guarded
    def _closure_returned(self, result: Any) -> None:
        if not self.counted:
            if not self.probe.has_loss():
                self.probe.saw_loss(None, result)
            self.probe.freeze_loss()
            self._count()
            self._before_update()

    @guarded
    def after_optimizer_step(self, optimizer: Any, args: tuple, kwargs: dict) -> None:
        """The optimizer's post hook: it was called; a fused one may have skipped all the same."""
        if not self.counted and not self.inside:
            return  # a subclass called super().step(): both run the hooks, the inner one ended the step
        self.stepped, self.stepping, self.ever_stepped = True, False, True
        if not self.inside:
            if self.updating:
                self._after_update()
            self.finish()

    # -- lost updates and optimizer state ------------------------------------------------------------

    def _weights(self) -> tuple[Any, list]:
        table = self._table(self.ids, [_abi.WEIGHT] * len(self.ids), [])
        return table, [self._put(table, i, p) for i, p in enumerate(self.parameters)]

    def _table(self, ids: list, roles: list, slots: list) -> Any:
        """A table of these, kept from one time to the next."""
        for key, table in self.tables:
            if key == (ids, roles, slots):
                return table
        table = _abi.Table(ids, roles, slots=slots)
        self.tables = [*self.tables[-_KEPT_TABLES:], ((ids, roles, slots), table)]
        return table

    def _before_update(self) -> None:
        self.updating = False
        if self.plan & _abi.PLAN_UPDATE and self.parameters:
            table, keep = self._weights()
            in_library(self.probe, self.probe.record.before_update, self.index, table)
            self.updating = True
            del keep

    def _after_update(self) -> None:
        self.updating = False
        table, keep = self._states(with_gradients=True)
        in_library(self.probe, self.probe.record.after_update, self.index, table)
        del keep

    def _states(self, with_gradients: bool) -> tuple[Any, list]:
        """Weights, gradients as the optimizer got them, and the optimizer's state."""
        optimizer = self.optimizer()
        states = optimizer.state if optimizer is not None else {}
        ids, roles, slots, tensors = [], [], [], []
        for number, parameter in zip(self.ids, self.parameters):
            shown = [(_abi.WEIGHT, 0, parameter)]
            if with_gradients and parameter.grad is not None:
                shown.append((_abi.UNSCALED_GRADIENT, 0, parameter.grad))
            for name, value in (states.get(parameter) or {}).items():
                if name in _SLOTS and value is not None and getattr(value, "shape", None) == parameter.shape:
                    shown.append((_abi.OPTIMIZER_STATE, _SLOTS[name], value))
            for role, slot, tensor in shown:
                ids.append(number)
                roles.append(role)
                slots.append(slot)
                tensors.append(tensor)
        table = self._table(ids, roles, slots)
        return table, [self._put(table, index, tensor) for index, tensor in enumerate(tensors)]

    # -- the end of a step ---------------------------------------------------------------------------

    def finish(self, scale_after: Optional[float] = None) -> None:
        """Ends the step: its facts go to the library, which says what the next one should show."""
        probe, record, scale = self.probe, self.probe.record, self.scale
        if self.plan & _abi.PLAN_STATE:
            self._show_states()
        (loss, micro_batches), lr, unscaled = probe.take_losses(self), self.lr, scale_after is None
        flags, norms = self.clipping() if self.clip is not None else (0, (0.0, 0.0, 0.0))
        if scale is not None:
            flags |= _abi.HAS_SCALE
            if scale_after is None:
                scale_after = scale
        if loss is not None:
            flags |= _abi.HAS_LOSS
        if lr is not None:
            flags |= _abi.HAS_LR
        if self.schedule_moved:
            flags |= _abi.SCHEDULE_ON_SKIP
            self.schedule_moved = False
        named = self.index == 0 and probe.look.on and probe.look.ends(self)
        if probe.layers.on and self.index == 0 and probe.end_layers():
            flags |= _abi.LAYERS_SHOWN
            if not named:
                probe.tell_first(self, loss)
        _abi.pack_facts(
            record.facts,
            0,
            _abi.FACTS_BYTES,
            flags,
            self.step,
            self.index,
            self.found_inf,
            self.stepped,
            micro_batches,
            scale or 0.0,
            scale_after or 0.0,
            loss or 0.0,
            lr or 0.0,
            *norms,
            0.0,  # the library measures the step
            max(0.0, probe.spent),
            0,
            0,
        )
        probe.spent = 0.0
        plan = in_library(probe, record.step)
        self.skipped = scale is not None and self.found_inf == 1
        self._remember(plan)
        self.step += 1
        self.fresh = False
        if not self.left_out:
            self.habit = self.drops
        self.drops, self.left_out = 0, False
        regular = self.regular and self.stepped and (scale is None) == unscaled
        self.reset()
        self.plan = plan
        if self.index == 0:
            probe.last_scale, probe.last_skipped = scale, self.skipped
            probe.look.begins(self.step, self.skipped and loss is not None and not math.isfinite(loss))
            if plan:
                probe.begin_step(plan)
            elif regular and probe.may_be_quiet and not self.compiled:
                probe.quiet.begin(self)
        else:
            probe.others.finished(self)

    def _remember(self, plan: int) -> None:
        """A step has been made: what its gradients are, if the next one shows something."""
        if self.stepped and (plan or self.probe.look.on):
            self.kept.remember(self.parameters, self.probe.plain_type)
        else:
            self.kept.forget()

    def _show_states(self) -> None:
        """Weights and the optimizer's state after the step."""
        self.probe.finder.weights(self)
        self.probe.finder.rates(self)
        if self.stepped:
            table, keep = self._states(with_gradients=False)
            in_library(self.probe, self.probe.record.see, table)
            del keep

    def clipping(self) -> tuple[int, tuple]:
        """Flags and norms of a step whose gradients were clipped."""
        flags, norms = (_abi.CLIPPED_SCALED if self.clip == "scaled" else 0), (0.0, 0.0, 0.0)
        if self.total_norm is not None:
            flags |= _abi.HAS_NORM | _abi.HAS_CLIP
            divisor = self.scale if self.clip == "scaled" and self.scale else 1.0
            after = min(self.total_norm, self.max_norm)
            norms = (self.total_norm / divisor, after / divisor, self.max_norm)
        return flags, norms


def scale_of(scaler: Any) -> float:
    """The scale of a scaler. Of a GradScaler it is read where get_scale() reads it, in fewer frames."""
    tensor = getattr(scaler, "_scale", None)
    return float(scaler.get_scale() if tensor is None else tensor.item())


_OF_STEP = (  # what reset() sets, and
    "fresh",
    *("regular", "counted", "stepped", "found_inf", "nonfinite", "inside", "decided", "scale", "clip"),
    *("max_norm", "total_norm", "updating", "stepping"),
)


def _nothing(*_: Any) -> None:
    """A hook of a probe that is off."""


def _same(one: Any, other: Any) -> bool:
    return one is other


def loss_value(outputs: Any) -> Optional[float]:
    """The value of a loss: a tensor of one element or a number; None for anything else."""
    torch = sys.modules.get("torch")
    if isinstance(outputs, (int, float)):
        return float(outputs)
    if isinstance(outputs, (list, tuple)):
        values = [loss_value(item) for item in outputs]
        return None if not values or None in values else sum(values)  # type: ignore[arg-type]
    if hasattr(outputs, "item") and hasattr(outputs, "numel") and outputs.numel() == 1:
        if torch is not None and isinstance(outputs, torch.Tensor):
            if outputs.device.type == "meta" or torch._C._functorch.is_functorch_wrapped_tensor(outputs):
                return None
        return _layout.number(outputs)
    return None
