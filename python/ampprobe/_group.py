"""One optimizer as the probe sees it: its gradients, its steps and skips, what it clips, its lost updates.

A step runs through: (clip) - before_unscale or before_scaler_step or before_optimizer_step, whichever comes
first, sees the gradients - the optimizer steps or not - after_scaler_step reads what the finite check said -
the step is ended by the scaler's update, or by the optimizer's step where there is no scaler. Nothing here
raises: a failure turns the probe off.
"""

from __future__ import annotations

import functools
import sys
import weakref
from time import perf_counter
from typing import Any, Callable, Optional

from . import _abi, _layout, _patches
from ._abi import WORD_COUNT, WORD_DATA, WORD_STORAGE, WORDS

_SLOTS = {"momentum_buffer": 0, "exp_avg": 0, "exp_avg_sq": 1, "square_avg": 1, "sum": 1}


def guarded(function: Callable) -> Callable:
    """A method that runs inside the user's loop: it does nothing when the probe is off, and never raises."""

    @functools.wraps(function)
    def wrapper(self: Any, *args: Any) -> Any:
        probe = self.probe
        if probe.off:
            return None
        try:
            return function(self, *args)
        except Exception as error:
            probe.fail(error)
            return None

    return wrapper


class Group:
    """What the probe knows of one optimizer."""

    def __init__(self, probe: Any, index: int, optimizer: Any):
        self.probe = probe
        self.index = index
        self.optimizer = weakref.ref(optimizer)
        self.parameters: list = []
        self.ids: list[int] = []
        self.item_bytes: list[int] = []
        self.dtypes: list = []
        self.table: Any = _abi.gradient_table([])
        self.step = 0
        self.plan = 0
        self.scaler: Any = None  # weak reference to the enabled scaler whose step is running or was last seen
        self.lr: Optional[float] = None
        self.skipped = False
        self.backwards = 0  # how many there had been when the gradients were counted
        self.schedule_moved = False
        self.unreadable: set = set()
        self._reset()

    def _reset(self) -> None:
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

    def watch(self) -> list:
        """Puts hooks on the optimizer's step; gives their handles."""

        def before_step(optimizer: Any, args: tuple, kwargs: dict) -> Any:
            return self.before_optimizer_step(optimizer, args, kwargs)

        def after_step(optimizer: Any, args: tuple, kwargs: dict) -> None:
            self.after_optimizer_step()

        before_step, after_step = _untraced(before_step), _untraced(after_step)
        optimizer = self.optimizer()
        return [optimizer.register_step_pre_hook(before_step), optimizer.register_step_post_hook(after_step)]

    def loss_divisor(self) -> float:
        """The loss that is differentiated is this many times the loss, where no GradScaler scaled it."""
        return 1.0

    # -- parameters ----------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Follows parameters that were added to the optimizer, or replaced."""
        optimizer = self.optimizer()
        if optimizer is None:
            return
        found = [p for group in optimizer.param_groups for p in group["params"]]
        known = self.parameters
        if len(found) == len(known) and all(map(_same, found, known)):
            return
        self.parameters = found
        self.ids = self.probe.describe_parameters(found, self.index)
        self.dtypes = [p.dtype for p in found]
        self.table = _abi.gradient_table(self.ids)
        codes = [_layout.dtype_code(dtype) for dtype in self.dtypes]
        self.item_bytes = [_abi.ITEM_BYTES.get(code, 0) for code in codes]
        for entry, code in zip(self.table.array, codes):
            entry.dtype = code
        _patches.watch_parameters(self, found)

    def optimizer_gone(self) -> None:
        """The user's optimizer was freed: nothing of it is kept."""
        self.parameters = []
        _patches.watch_parameters(self, [])

    # -- gradients -----------------------------------------------------------------------------------

    def _gather(self) -> list:
        """Fills the table with where the gradients lie; gives what must live until they were read."""
        words, array, keep = self.table.words, self.table.array, []
        plain = self.probe.plain_type
        at = 0
        for index, parameter in enumerate(self.parameters):
            gradient = parameter.grad
            if gradient is None:
                words[at + WORD_DATA] = 0
            elif (
                type(gradient) is plain
                and gradient.dtype is self.dtypes[index]
                and gradient.is_cpu
                and not gradient.is_sparse
                and gradient.is_contiguous()
            ):
                words[at + WORD_DATA] = gradient.data_ptr()
                words[at + WORD_COUNT] = gradient.numel()
                words[at + WORD_STORAGE] = (
                    gradient.untyped_storage().nbytes() - gradient.storage_offset() * self.item_bytes[index]
                )
                array[index].dtype = _layout.dtype_code(self.dtypes[index])
                keep.append(gradient)
            else:
                keep.append(self._put(self.table, index, gradient))
            at += WORDS
        return keep

    def _put(self, table: Any, index: int, tensor: Any) -> Any:
        """One tensor of any kind, by the slow way."""
        found = _layout.view(tensor)
        if isinstance(found, _layout.View):
            table.put(
                index, found.data, found.count, found.storage, found.dtype, found.device, 1, found.stream
            )
            return found.keep
        table.clear(index, found.dtype)
        if found.reason not in self.unreadable:
            self.unreadable.add(found.reason)
            self.probe.note(f"a gradient or weight was not counted: {found.reason}")
        return None

    def _count(self) -> None:
        """Shows the gradients of this step to the library."""
        self.counted = True
        self.backwards = self.probe.backwards
        started = perf_counter()
        if self.plan or not self.step:  # a step that shows nothing needs no parameters
            self.refresh()
        self._read_lr(self.optimizer())
        self.probe.settle(self)
        exact = self.scale is None
        if self.parameters and self.plan & _abi.PLAN_GRADIENTS:
            keep = self._gather()
            ready = perf_counter()
            seen = self.probe.record.gradients(self.index, self.table, _abi.FINITE if exact else 0)
            self.nonfinite = exact and seen.nonfinite > 0
            del keep
            self.probe.spent += ready - started
        else:
            self.probe.spent += perf_counter() - started

    def _read_lr(self, optimizer: Any) -> None:
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
        self._scaler_seen(scaler)
        if not self.counted:
            self._count()

    def _leave_abandoned(self) -> None:
        """A loop that saw a bad gradient may go on to the next batch: that step was skipped, too."""
        if self.counted and not self.inside and not self.decided and self.backwards != self.probe.backwards:
            self.finish()

    def _scaler_seen(self, scaler: Any) -> None:
        if self.decided:
            self.finish()  # the last step's scaler was never updated
        if scaler.is_enabled():
            if self.scaler is None or self.scaler() is not scaler:
                self.scaler = weakref.ref(scaler)
                self.probe.saw_scaler(scaler, self)
            if self.scale is None:
                self.scale = float(scaler.get_scale())

    def before_scaler_step(self, scaler: Any) -> bool:
        """At the entry of the scaler's step; whether after_scaler_step is wanted."""
        if self.probe.off or self.inside:
            return False
        try:
            self._scaler_seen(scaler)
            if not scaler.is_enabled():
                return False
            self.inside = True
            if not self.counted:  # also of fused optimizers, which are never unscaled
                self._count()
            return True
        except Exception as error:
            self.probe.fail(error)
            return False

    def scaler_step_raised(self) -> None:
        """The user's step raised; the error is theirs."""
        self._reset()

    @guarded
    def after_scaler_step(self, scaler: Any) -> None:
        """After the scaler's step: what the finite check said, which only this place knows."""
        self.inside = False
        states = getattr(scaler, "_per_optimizer_states", None)
        optimizer = self.optimizer()
        if self.stepped and not getattr(optimizer, "_step_supports_amp_scaling", False):
            self.found_inf = 0  # it is called only where the check found nothing
        elif states is not None and optimizer is not None:
            found = states[id(optimizer)]["found_inf_per_device"].values()
            self.found_inf = int(sum(float(value) for value in found) != 0)
        elif not getattr(optimizer, "_step_supports_amp_scaling", False):
            self.found_inf = int(not self.stepped)  # this scaler skips by not calling
        self.decided = True
        if self.found_inf == 1:
            self.stepped = False
            self._name_overflows()
        elif self.updating:
            self._after_update()

    def _name_overflows(self) -> None:
        started = perf_counter()
        self.refresh()
        keep = self._gather()
        ready = perf_counter()
        self.probe.record.gradients(self.index, self.table, _abi.CHECK)
        del keep
        self.probe.spent += ready - started

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
        if not self.probe.expects_scaler:
            self._leave_abandoned()
        scaler = self.scaler() if self.scaler is not None else None
        enabled = scaler is not None and scaler.is_enabled()
        if not self.counted and not enabled and not self.probe.expects_scaler:
            self._count()  # the optimizer will see them clipped
        self.clip = "unscaled" if self.counted else "scaled"
        if max_norm is not None:
            self.max_norm = float(max_norm)
            self.total_norm = float(total_norm)
            if not self.probe.clip_told:
                self.probe.clip_told = True
                self.probe.record.set("clip_norm", self.max_norm)

    def before_optimizer_step(self, optimizer: Any, args: tuple, kwargs: dict) -> Any:
        """The optimizer's pre hook. A closure is wrapped: gradients are there when it has returned."""
        if self.probe.off:
            return None
        try:
            closure = kwargs.get("closure")
            if closure is None and len(args) > 1 and callable(args[1]):
                closure = args[1]
            if closure is not None and not self.inside:
                wrapped = self._watch_closure(closure)
                if "closure" in kwargs:
                    return args, {**kwargs, "closure": wrapped}
                return (args[0], wrapped, *args[2:]), kwargs
            if self.scale is None:
                self._leave_abandoned()
            if not self.counted:
                self._count()
            self._before_update()
        except Exception as error:
            self.probe.fail(error)
        return None

    def _watch_closure(self, closure: Callable) -> Callable:
        @functools.wraps(closure)
        def watched(*args: Any, **kwargs: Any) -> Any:
            result = closure(*args, **kwargs)
            self._closure_returned(result)
            return result

        return watched

    @guarded
    def _closure_returned(self, result: Any) -> None:
        if not self.counted:
            if self.probe.losses == 0:
                self.probe.saw_loss(None, result)
            self.probe.freeze_loss()
            self._count()
            self._before_update()

    @guarded
    def after_optimizer_step(self) -> None:
        """The optimizer's post hook: it was called; a fused one may have skipped all the same."""
        if not self.counted and not self.inside:
            return  # a subclass called super().step(): both run the hooks, the inner one ended the step
        self.stepped = True
        if not self.inside:
            if self.updating:
                self._after_update()
            self.finish()

    # -- lost updates and optimizer state ------------------------------------------------------------

    def _weights(self) -> tuple[Any, list]:
        table = _abi.Table(self.ids, [_abi.WEIGHT] * len(self.ids), [0] * len(self.ids))
        return table, [self._put(table, i, p) for i, p in enumerate(self.parameters)]

    def _before_update(self) -> None:
        self.updating = False
        if self.plan & _abi.PLAN_UPDATE and self.parameters:
            started = perf_counter()
            table, keep = self._weights()
            self.probe.spent += perf_counter() - started
            self.probe.record.before_update(self.index, table)
            self.updating = True
            del keep

    def _after_update(self) -> None:
        self.updating = False
        started = perf_counter()
        table, keep = self._states(with_gradients=True)
        self.probe.spent += perf_counter() - started
        self.probe.record.after_update(self.index, table)
        del keep

    def _states(self, with_gradients: bool) -> tuple[Any, list]:
        """Weights, gradients as the optimizer got them, and the optimizer's state."""
        optimizer = self.optimizer()
        rows = []  # id, role, slot, tensor
        for number, parameter in zip(self.ids, self.parameters):
            rows.append((number, _abi.WEIGHT, 0, parameter))
            if with_gradients and parameter.grad is not None:
                rows.append((number, _abi.UNSCALED_GRADIENT, 0, parameter.grad))
            state = optimizer.state.get(parameter) if optimizer is not None else None
            for name, value in (state or {}).items():
                if name in _SLOTS and value is not None and getattr(value, "shape", None) == parameter.shape:
                    rows.append((number, _abi.OPTIMIZER_STATE, _SLOTS[name], value))
        table = _abi.Table([row[0] for row in rows], [row[1] for row in rows], [0] * len(rows))
        keep = []
        for index, row in enumerate(rows):
            keep.append(self._put(table, index, row[3]))
            table.array[index].slot = row[2]
        return table, keep

    # -- the end of a step ---------------------------------------------------------------------------

    def finish(self, scale_after: Optional[float] = None) -> None:
        """Ends the step: its facts go to the library, which says what the next one should show."""
        probe, record = self.probe, self.probe.record
        if self.plan & _abi.PLAN_STATE:
            probe.finder.weights(self)
        if self.plan & _abi.PLAN_STATE and self.stepped:
            table, keep = self._states(with_gradients=False)
            record.see(table)
            del keep
        facts = record.facts
        flags = 0
        facts.step, facts.group, facts.found_inf = self.step, self.index, self.found_inf
        facts.stepped = int(self.stepped)
        if self.scale is not None:
            flags |= _abi.HAS_SCALE
            facts.scale_before = self.scale
            facts.scale_after = self.scale if scale_after is None else scale_after
        loss = probe.take_loss()
        if loss is not None:
            flags |= _abi.HAS_LOSS
            facts.loss = loss
        if self.lr is not None:
            flags |= _abi.HAS_LR
            facts.lr = self.lr
        if self.total_norm is not None:
            flags |= _abi.HAS_NORM | _abi.HAS_CLIP
            divisor = self.scale if self.clip == "scaled" and self.scale else 1.0
            facts.norm_before_clip = self.total_norm / divisor
            facts.norm_after_clip = min(self.total_norm, self.max_norm) / divisor
            facts.clip_norm = self.max_norm
        if self.clip == "scaled":
            flags |= _abi.CLIPPED_SCALED
        if self.schedule_moved:
            flags |= _abi.SCHEDULE_ON_SKIP
        if self.index == 0 and probe.end_layers():
            flags |= _abi.LAYERS_SHOWN
            probe.tell_first(self, loss)
        facts.flags = flags
        facts.micro_batches = probe.micro_batches
        facts.spent = probe.spent
        probe.spent = 0.0
        plan = record.step()
        self.skipped = self.scale is not None and self.found_inf == 1
        if self.index == 0:
            probe.last_scale, probe.last_skipped = self.scale, self.skipped
        self.schedule_moved = False
        self.step += 1
        self._reset()
        self.plan = plan
        if self.index == 0:
            probe.begin_step(self.step, self.plan)


def _untraced(function: Callable) -> Callable:
    """A hook that torch.compile does not trace; torch.compiler.disable alone costs microseconds in eager."""
    torch = sys.modules.get("torch")
    if torch is None:
        return function
    disabled, is_compiling = torch.compiler.disable(function), torch.compiler.is_compiling

    def hook(*args: Any) -> Any:
        return disabled(*args) if is_compiling() else function(*args)

    return hook


def _same(one: Any, other: Any) -> bool:
    return one is other


def loss_value(outputs: Any) -> Optional[float]:
    """The value of a loss: a tensor of one element or a number; None for anything else."""
    torch = sys.modules.get("torch")
    if torch is not None and type(outputs) is torch.Tensor and outputs.numel() == 1:
        try:  # what nearly every loop has; less of torch is run here, whose code is in no cache at this point
            return float(outputs.item())
        except RuntimeError:  # on the meta device or inside a transform
            return None
    if isinstance(outputs, (int, float)):
        return float(outputs)
    if isinstance(outputs, (list, tuple)):
        values = [loss_value(item) for item in outputs]
        return None if not values or None in values else sum(values)  # type: ignore[arg-type]
    if hasattr(outputs, "item") and hasattr(outputs, "numel") and outputs.numel() == 1:
        if torch is not None and isinstance(outputs, torch.Tensor):
            if outputs.device.type == "meta" or torch._C._functorch.is_functorch_wrapped_tensor(outputs):
                return None
        return float(outputs.item())
    return None
