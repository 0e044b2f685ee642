"""The probe: what attach() gives back, and what the parts of a run tell it."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import threading
import weakref
from time import perf_counter
from typing import Any, Iterator, Optional, Sequence

from . import _abi, _describe, _facts, _late, _layers, _layout, _look, _never, _origin, _others, _patches
from . import _penalty, _plateau, _replay, _replicas, _untrained
from ._foreign import ForeignGroup
from ._frameworks import Framework
from ._group import Group, guarded, loss_value, scale_of
from ._quiet import Quiet


class Probe:
    """Watches training and writes the record. Made by attach()."""

    def __init__(self, models: Sequence, optimizers: Sequence, scaler: Any, record: Any, options: dict):
        self.probe = self  # for guarded()
        self.record = record
        self.off = False
        self.reason: Optional[str] = None
        self.spent = 0.0  # seconds of this step that the probe took outside the library
        self.guards = False  # inside a method whose time is added to it
        self.clip_told = False
        self.expects_scaler = scaler is not None and scaler.is_enabled()
        self.losses = 0
        self.loss_sources: list[str] = []  # what gave losses so far
        self._loss_sum: Optional[float] = None
        self._last_loss: Optional[float] = None
        self._each: list[float] = []  # of several optimizers, the losses since one's step has ended
        self._used = 0  # those before the last step that began
        self._loss_taken = False
        self._loss_frozen = False
        self._awaits_backward = 0
        self.scales_ahead = False  # losses before the backward pass of the one before
        self.micro_batches = 0
        self.backwards = 0  # calls of backward since the beginning
        self.told_micro_batches = 0
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.RLock()
        self._notes: set[str] = set()
        self._told_precision: Any = None  # of what precision and silent layers are in the record
        self._scalers: list = []
        self._models = [weakref.ref(model) for model in models]
        self._options = options
        self.world = int(options.get("world", 1))
        self.last_scale: Optional[float] = None  # of the step that ended last
        self.last_skipped = False
        self.origins: list[dict] = []
        self.graph: list[dict] = []  # operations round them
        self.origin_steps = 0
        self.runs_again = False  # inside probe.step
        self.references: list[dict] = []
        self._replica_hooks: list = []
        torch = sys.modules.get("torch")
        self.plain_type: Any = torch.Tensor if torch is not None else None
        self._names = _describe.parameter_names(models, optimizers)
        self.layers = _layers.Layers(self)
        self.untrained = _untrained.Untrained(self)
        self.look = _look.Look(self)
        self.finder = _facts.Finder(self)
        self.penalty = _penalty.Penalty(self)
        self.plateaus = _plateau.Plateaus(self)
        self.quiet = Quiet(self, int(options.get("every") or 0))
        self.on_device = False  # parameters are in a GPU's memory
        self.may_be_quiet = False
        self.groups = [
            (
                ForeignGroup(self, index, optimizer)
                if isinstance(optimizer, Framework)
                else Group(self, index, optimizer)
            )
            for index, optimizer in enumerate(optimizers)
        ]
        self.others = _others.Others(self, options.get("everywhere"))
        plain = self.plain_type is not None and all(type(group) is Group for group in self.groups)
        self.may_be_quiet = plain and len(self.groups) == 1
        self.never = _never.Never(self, options.get("passes")) if plain else None
        self._grads: list = []  # losses of torch.autograd.grad since the last step
        optimizers = [group.optimizer() for group in self.groups]
        try:
            _patches.register(self)
            for group, optimizer in zip(self.groups, optimizers):
                self._watch(group, optimizer)
            if scaler is not None:
                self.saw_scaler(scaler, None)
            self.finder.attached(optimizers)
            self._compare_ranks(models, optimizers)
            self.others.expect_living()
        except BaseException:  # nothing of a probe that could not be attached stays
            self.off = True
            self._detach(hooks=True)
            self.record.close()
            raise
        atexit.register(self.close)

    # -- attach --------------------------------------------------------------------------------------

    def _watch(self, group: Group, optimizer: Any) -> None:
        _patches.watch(group, optimizer)
        group.refresh()
        self.on_device |= any(hasattr(p, "is_cuda") and _late.is_copied(p) for p in group.parameters)
        group.plan = self.record.plan(0)
        group.watch()
        if group.index == 0 and self._options.get("passes") is None:
            self.begin_step(group.plan)

    def _compare_ranks(self, models: Sequence, optimizers: Sequence) -> None:
        every, torch = int(self._options.get("check_ranks") or 0), sys.modules.get("torch")
        if not every or torch is None:
            return
        optimizer = optimizers[0]
        if not hasattr(optimizer, "register_step_post_hook"):
            self.note("check_ranks: weights are compared where an optimizer of torch takes the steps")
            return
        self.replicas = _replicas.Replicas(self, models, every, torch)
        untraced = self.groups[0].untraced
        self._replica_hooks = [
            optimizer.register_step_pre_hook(untraced(self.replicas.steps_soon)),
            optimizer.register_step_post_hook(untraced(self.replicas.stepped)),
        ]

    def add_model(self, model: Any) -> None:
        """A model that the training came to later."""
        self._models.append(weakref.ref(model))

    def name_parameters(self) -> None:
        """Parameters may have come: all are named anew."""
        models = self.living_models()
        self._names = {**self._names, **_describe.parameter_names(models, ())}

    def made(self, optimizer: Any) -> None:
        """An optimizer was made."""
        if not self.off and os.getpid() == self._pid:
            try:
                self.others.unused.add(id(optimizer))
                self.others.expect(optimizer)
            except Exception as error:
                self.fail(error)

    @guarded
    def comes(self, optimizer: Any) -> Any:
        """A scaler is about to unscale or step an optimizer that is not followed; its group from now on."""
        return self.others.follow(optimizer)

    def parameter_name(self, parameter: Any) -> str:
        """The name of a parameter in the record."""
        return self._names.get(id(parameter), ("a parameter", None))[0]

    def module_kind(self, parameter: Any) -> Optional[str]:
        """The class of the module that holds a parameter."""
        return self._names.get(id(parameter), ("", None))[1]

    def describe_parameters(self, parameters: list, group: int, shapes: Optional[list] = None) -> list[int]:
        """Numbers of an optimizer's parameters, described to the library."""
        things = []
        for index, parameter in enumerate(parameters):
            name, kind = self._names.get(id(parameter), (f"group{group}.parameter{index}", None))
            things.append(
                {
                    "name": name,
                    "type": kind,
                    "dtype": _layout.dtype_code(parameter.dtype),
                    "shape": shapes[index] if shapes else tuple(getattr(parameter, "shape", ())),
                    "group": group,
                    "flags": _abi.PARAMETER,
                }
            )
        return self.record.describe(things)

    # -- what the loop tells -------------------------------------------------------------------------

    def saw_scaler(self, scaler: Any, group: Optional[Group]) -> None:
        """A scaler is used with an optimizer that is watched."""
        if any(known() is scaler for known in self._scalers):
            return
        self._scalers.append(weakref.ref(scaler))
        _patches.patch_scaler_class(type(scaler))
        facts = _describe.scaler_facts(scaler)
        self.record.set("about", {"scaler": facts})
        if facts.get("growth_interval") is not None:
            self.record.set("scale_window", facts["growth_interval"])

    @guarded
    def loaded(self, thing: Any) -> None:
        """A scaler or an optimizer got its state back."""
        mine = [group.optimizer() for group in self.groups]
        if any(thing is optimizer for optimizer in mine):
            self.finder.attached([thing])
        elif hasattr(thing, "get_scale") and thing.is_enabled():
            if not self._scalers or any(known() is thing for known in self._scalers):
                self.fact("loaded_scale", scale_of(thing))

    @guarded
    def logged(self, values: Any) -> None:
        """A loop hands these to its trackers."""
        for name in _LOSSES if isinstance(values, dict) else ():
            if isinstance(values.get(name), (int, float)):
                self.fact("logged_loss", values[name])
                return

    @guarded
    def logs(self, begins: Any, bind: Any, args: tuple, kwargs: dict) -> Any:
        """A framework is about to log losses; a function that says afterwards which."""
        return begins(bind(*args, **kwargs).arguments)

    @guarded
    def has_logged(self, end: Any) -> None:
        """It has."""
        value = end() if end is not None else None
        if value is not None:
            self.fact("logged_loss", value)

    @guarded
    def saw_loss(self, scaler: Any, outputs: Any) -> None:
        """A loss is about to be scaled (or was returned by a closure: scaler None)."""
        self._leave_dropped()
        if scaler is not None:
            if scaler.is_enabled():
                for group in self.groups:
                    group.scaled_by[id(scaler)] = scale_of(scaler)
            if self._scalers and not any(known() is scaler for known in self._scalers):
                return
            self.expects_scaler = scaler.is_enabled()
            self.scales_ahead |= self._awaits_backward > 0
            self._awaits_backward += 1
            self.penalty.loss(outputs)
            if self.look.on and self.expects_scaler:
                self.look.scaled(scale_of(scaler))
        self._add_loss(outputs, 1.0, "the optimizer's closure" if scaler is None else "GradScaler.scale")

    @guarded
    def scaled(self, scaler: Any, outputs: Any, result: Any) -> None:
        """A scaler has scaled a loss."""
        if type(result) is self.plain_type and scaler.is_enabled():
            self.penalty.scaled(result, scale_of(scaler), self._last_loss)

    @guarded
    def asked_for_graph(self, outputs: Any, results: Any) -> None:
        """torch.autograd.grad has made gradients with a graph."""
        self.penalty.asked(outputs, results)

    def no_loss(self, value: Optional[float]) -> None:
        """What was taken for a loss when it was scaled is none: a penalty is made of its gradients."""
        self.may_be_quiet = False
        self._awaits_backward -= 1
        if value is not None and self._loss_sum is not None:
            self.losses -= 1
            self._loss_sum = self._loss_sum - value if self.losses else None

    @guarded
    def saw_backward(self, tensors: Any) -> None:
        """torch.autograd.backward is about to run: one micro-batch."""
        self._leave_dropped()
        self.groups[0].fresh = True
        for group in self.groups:
            group.made = group.filled = False
            group.kept.backward()
        self.backwards += 1
        if self._awaits_backward:
            self._awaits_backward -= 1
        else:
            self._add_loss(tensors, self.groups[0].loss_divisor(), "torch.autograd.backward")
        if not self._loss_frozen:
            self.micro_batches += 1

    @guarded
    def saw_grad(self, outputs: Any) -> None:
        """torch.autograd.grad is about to run for gradients of parameters. In a step without a backward pass
        it is the one."""
        if self.quiet.on or self.layers.shadow:
            return  # a loop that calls backward; a run beside it
        self._leave_dropped()
        if self.never is not None:
            self.never.ran(asked=True)
        self.groups[0].fresh, self.groups[0].made = True, False
        self.backwards += 1
        self._grads.append(self.value_of(outputs))

    @guarded
    def backward_ran(self) -> None:
        """It has ended."""
        if self.never is not None:
            self.never.ran()
        for group in self.groups:
            group.made = group.have_gradients()
            group.filled = group.made and group.watches_zeros() and group.have_values()
            group.kept.backward_ran()
            if self.finder.means:
                self.finder.gradients_made(group.parameters)

    def _tell_unused(self) -> None:
        """Backward passes at the end of a run, for an optimizer that was made for them and never stepped."""
        passes = 0 if self._loss_taken else self.micro_batches
        if self.others.unused and self.groups[0].ever_stepped and passes > self.told_micro_batches:
            self.fact("passes_since_last_step", passes)

    @guarded
    def plateau_steps(self, scheduler: Any) -> list:
        """A ReduceLROnPlateau of an optimizer that is followed is about to be told a number."""
        return _plateau.rates_of(scheduler)

    @guarded
    def plateau_stepped(self, scheduler: Any, metric: Any, before: list) -> None:
        """It was."""
        self.plateaus.stepped(scheduler, metric, before)

    def _leave_dropped(self) -> None:
        """The loop goes on after a backward pass whose gradients were thrown away."""
        if self.never is not None:
            self.never.begins()
        for group in self.groups:
            if not self._awaits_backward:
                group.look_for_gone()
            if group.dropped:
                group.leave_dropped()

    def leave_out(self, loss: Optional[float]) -> None:
        """A step that no backward pass belongs to."""
        if loss is not None:
            self._add_loss(loss, 1.0, "a forward pass")
        self.groups[0].finish()

    def freeze_loss(self) -> None:
        """The loss of this step is known: later evaluations of its closure do not count."""
        self._loss_frozen = True

    def has_loss(self) -> bool:
        """Whether the step that runs has given a loss."""
        return self.losses > 0 and not self._loss_taken

    def _loss_from(self, source: str) -> None:
        """A loss was given by this."""
        if source not in self.loss_sources:
            self.loss_sources.append(source)
            self.record.set("loss_from", ", ".join(self.loss_sources))

    def _add_loss(self, outputs: Any, divisor: float, source: str) -> None:
        if self._loss_frozen:
            return
        if self.look.on:
            self.look.loss(outputs)
        if self._loss_taken:
            self._loss_taken = False
            self._loss_sum, self.losses, self.micro_batches = None, 0, 0
            self._each, self._used = [], 0
            for group in self.groups:
                group.first_loss, group.losses_end = 0, None
        value = self.value_of(outputs)
        if value is not None:
            self._loss_from(source)
            value /= divisor
            self._loss_sum = value if self._loss_sum is None else self._loss_sum + value
            self.losses += 1
            if len(self.groups) > 1:
                self._each.append(value)
        self._last_loss = value
        if self.groups[0].plan & _abi.PLAN_STATE or self.finder.dropped:
            self.finder.loss(outputs[0] if isinstance(outputs, (list, tuple)) and outputs else outputs)

    def value_of(self, outputs: Any) -> Optional[float]:
        """The value of a loss."""
        if self.is_recorded():
            return None
        if type(outputs) is not self.plain_type:
            return loss_value(outputs)
        try:  # what nearly every loop has
            return outputs.item()
        except RuntimeError:  # of several values, on the meta device or inside a transform
            return None

    def losses_passed(self) -> int:
        """How many losses of several optimizers have had their backward pass."""
        return max(0, len(self._each) - self._awaits_backward)

    def end_losses(self, group: Group) -> None:
        """An optimizer begins a step: losses from here on are of later ones, and of other optimizers'. One
        that begins without any since another's has that one's."""
        if group.losses_end is None and len(self.groups) > 1:
            group.losses_end = len(self._each)
            if self._used < group.losses_end:
                group.first_loss = max(group.first_loss, self._used)
            self._used = group.losses_end

    def take_losses(self, group: Group) -> tuple[Optional[float], int]:
        """The sum of the losses of an optimizer's step, and how many."""
        own = self._each[group.first_loss : group.losses_end]
        if group.losses_end is None or not own:
            return self.take_loss(), self.micro_batches
        all_passes, self.micro_batches = self.micro_batches, len(own)
        self.take_loss()
        self.micro_batches = all_passes
        return sum(own), len(own)

    def take_loss(self) -> Optional[float]:
        """The sum of the losses since the last step: what the gradients are the gradient of."""
        grads, self._grads = self._grads, []
        if grads and (self._loss_taken or not self.losses) and None not in grads:
            self._loss_from("torch.autograd.grad")
            self._loss_sum, self.losses, self.micro_batches = sum(grads), len(grads), len(grads)
            self.may_be_quiet = False
        self._loss_taken = True
        self._loss_frozen = False
        self._awaits_backward = 0
        self.penalty.forget()
        if self.finder.means or self.finder.dropped:
            self.finder.step_ends(self.micro_batches)
        if self.micro_batches > self.told_micro_batches:
            self.tell_micro_batches(self.micro_batches)
        return self._loss_sum

    def tell_micro_batches(self, count: int) -> None:
        """More micro-batches were added up in a step than in any before."""
        self.told_micro_batches = count
        self.record.set("accumulation", count)

    def take_held_loss(self) -> Optional[float]:
        """The loss of a backward pass that is no step yet."""
        known = self.has_loss() or bool(self._grads)
        self.finder.drops(lambda: None)
        taken = self.take_loss()
        return taken if known else None

    def loss_is_bad(self) -> bool:
        """Whether the loss of the step that runs is known and not finite."""
        return self.has_loss() and self._loss_sum is not None and not math.isfinite(self._loss_sum)

    def awaits_backward(self) -> bool:
        """Whether a loss was scaled, and no backward pass has begun since."""
        return self._awaits_backward > 0

    def set_loss_aside(self, record: Any) -> None:
        """Calls `record`, which ends other steps, in the middle of one."""
        kept = {name: getattr(self, name) for name in _OF_LOSS}
        dropped = self.finder.dropped
        record()
        self.finder.dropped = dropped
        for name, value in kept.items():
            setattr(self, name, value)

    def resume_loss(self, loss: Optional[float], micro_batches: int) -> None:
        """What is known of a step that began quietly."""
        self._loss_taken = not micro_batches
        self._loss_sum, self.losses, self.micro_batches = loss, micro_batches, micro_batches

    @guarded
    def after_update(self, scaler: Any) -> None:
        """The scaler has chosen the scale of the next step: steps that used it are over."""
        for group in self.groups:
            if group.decided and group.scaler is not None and group.scaler() is scaler:
                group.finish(scale_of(scaler))

    def settle(self, group: Group) -> None:
        """Before the first gradients are counted: says what precision was found."""
        if group.index == 0:
            self._tell_precision()

    # -- layers --------------------------------------------------------------------------------------

    def begin_step(self, plan: int) -> None:
        """A step begins that shows something: hooks stand if the library asks for layers."""
        if not plan & _abi.PLAN_LAYERS or "torch" not in sys.modules or self._options.get("layers") is False:
            return
        models = self.living_models()
        if not models or not all(hasattr(model, "named_modules") for model in models):
            return
        if not self.layers.begin(models):
            self.note(
                "the model is compiled: layers are not shown, as an eager step would change training "
                "(inside probe.step(closure) they are, from a run of the step beside it)"
            )

    def layers_wait(self) -> bool:
        """Whether this step should show layers and cannot, as an eager step would change the training."""
        wanted = self.groups[0].plan & _abi.PLAN_LAYERS and self._options.get("layers") is not False
        return bool(wanted) and (self.layers.unheard or not self.layers.on)

    def end_layers(self) -> bool:
        """The step is over: the hooks go. Whether layers were seen."""
        seen = self.layers.end()
        if seen:
            self._tell_precision()
        return seen

    def _tell_precision(self) -> None:
        models = self.living_models()
        if not models and self.groups[0].step:
            return  # what was found while the step saw it holds
        silent, known = self.layers.silent(), (self.layers.precision, self.layers.autocast)
        seen = (len(models), silent, *map(dict, known), len(self.finder.changed))
        if seen != self._told_precision:
            self._told_precision = seen
            found = _describe.precision(models, self.layers.autocast, self.layers.precision)
            self.record.set("level", found["level"])
            self.record.set("about", {"precision": found, "silent_layers": silent})
        guess = self._options.get("guess") if self._options.get("half") is None else None
        if guess == "fp16" and set(self.layers.autocast.values()) == {"bfloat16"}:
            self.note(_BFLOAT16)
        for name, text in self.layers.findings.items():
            self.note(f"{name}: {text}")

    # -- steps that run again ------------------------------------------------------------------------

    def living_models(self) -> list:
        """Models that the user still has."""
        return [model for model in (reference() for reference in self._models) if model is not None]

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """What runs meanwhile is the probe's own: it is not recorded, and its time is the probe's."""
        started, kept = perf_counter(), self.off
        self.off, hooks = True, self.layers.handles
        self.layers.handles = []
        for handle in hooks:
            handle.remove()
        try:
            yield
        finally:
            self.off = kept
            if hooks:
                self.layers.begin(self.living_models())
            self.record.spent(perf_counter() - started)

    def next_scale(self) -> float:
        """The loss scale of the step that comes, as far as its scaler is known."""
        known = [scaler for scaler in (reference() for reference in self._scalers) if scaler is not None]
        return scale_of(known[0]) if known and known[0].is_enabled() else 1.0

    def reference_due(self, step: int) -> bool:
        """Whether gradients are compared with fp32 ones at this step."""
        every = self._options.get("reference_every") or 0
        return every > 0 and step % every == 0

    def tell_origin(self, step: int, scale: float, found: Optional[dict]) -> None:
        """The first operation that made a non-finite value, of a step that overflowed."""
        if found is None:
            self.note(f"step {step} overflowed, and did not when it was run again")
            return
        rows = found.pop("rows", 0)
        self._keep_origin({"step": step, **found, "last_step": step, "loss_scale": scale}, rows)
        self.origin_steps += 1

    def tell_first(self, group: Group, loss: Optional[float]) -> None:
        """A step whose layers were seen ends. If it is not finite: the layer where that began."""
        bad_loss = loss is not None and not math.isfinite(loss)
        again = self.runs_again and self.origin_steps < _origin.MOST_ORIGINS  # names the operation
        first = self.layers.first
        if again or not (group.found_inf == 1 or group.nonfinite or bad_loss):
            return
        torch = sys.modules["torch"]
        first.parameters(group.overflowed(), torch)
        if bad_loss and first.order:
            first.loss(torch.tensor(loss), torch)
        if first.outside is not None:
            self.note(_origin.outside_in_words(first.outside))
        if first.event is not None:
            event = {"step": group.step, **first.event, "last_step": group.step, "loss_scale": group.scale}
            self._keep_origin(event, 0)

    def keep_operation(self, event: dict) -> None:
        """The operation that made the first non-finite value of a step, with those round it."""
        rows, graph, hidden = event.pop("rows"), event.pop("graph"), event.pop("hidden")
        if hidden:
            self.finder.hidden(event["op"], hidden)
        if (at := event.pop("singular_at", None)) is not None:
            self.finder.singular(event["op"], at)
        self.origins = [other for other in self.origins if other["cause"]["id"] != "cannot_tell"]
        self._keep_origin(event, rows)
        known = {row["op"] for row in self.graph}
        self.graph += [row for row in graph if row["op"] not in known]
        self.record.set("about", {"graph": {"ops": self.graph}})

    def _keep_origin(self, event: dict, rows: int) -> None:
        self.finder.origin({**event, "rows": rows})
        known = [other for other in self.origins if _origin.is_same(other, event)]
        if known:
            known[0].update(last_step=event["step"], times=known[0]["times"] + 1)
        elif len(self.origins) < _origin.MOST_ORIGINS:
            self.origins.append(event)
            self.note(_origin.in_words(event))
        self.record.set("about", {"origin": self.origins})

    def tell_reference(self, step: int, scale: float, rows: list) -> None:
        """Gradients beside fp32 ones."""
        self.references = [*self.references[-15:], {"step": step, "loss_scale": scale, "tensors": rows}]
        self.record.set("about", {"reference": self.references})

    # -- for the user --------------------------------------------------------------------------------

    @guarded
    def loss(self, value: Any) -> None:
        """Gives the loss of this step, where it does not go through torch.autograd.backward."""
        self.quiet.end()
        self._add_loss(value, 1.0, "probe.loss")

    def step(self, closure: Any) -> "_replay.Step":
        """A context round one step; `closure` computes its loss again (see _replay)."""
        return _replay.Step(self, closure)

    def is_recorded(self) -> bool:
        """Whether the loop's work is being recorded as a CUDA graph: then nothing may be read."""
        if not self.on_device or not _late.is_recorded():
            return False
        self.note("what was recorded as a CUDA graph is not seen, nor are the graph's replays")
        return True

    def see(self, name: str, array: Any, role: str = "activation") -> None:
        """Shows one array of any framework; the step that ends next holds it."""
        if not self.off and not self.is_recorded():
            try:
                self.quiet.hand_over()
                see_array(self.record, name, array, role)
            except Exception as error:
                self.fail(error)

    def fact(self, name: str, value: float = 1.0, place: str = "", step: Optional[int] = None) -> None:
        """States a fact that no tensor shows (docs/libampprobe.md); `step` as the probe counts: this one."""
        if not self.off:
            try:
                if step is None and getattr(self, "groups", None):
                    self.quiet.hand_over()
                    step = self.groups[0].step
                self.record.fact(name, float(value), place, step or 0)
            except Exception as error:
                self.fail(error)

    def note(self, text: str) -> None:
        """Puts a line into the record's warnings, once."""
        if text not in self._notes and not self.off:
            self._notes.add(text)
            try:
                self.record.note(text)
            except Exception as error:
                self.fail(error)

    def fail(self, error: BaseException) -> None:
        """The probe cannot go on: it turns itself off, says so once, and training goes on."""
        with self._lock:
            if self.off:
                return
            self.off = True
        self.reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        text = f"the probe turned itself off: {self.reason}"
        if os.getpid() == self._pid:
            try:
                print(f"ampprobe: {text}; training goes on", file=sys.stderr)
            except Exception:  # stderr may be closed
                pass
            try:
                self.record.note(text)
            except Exception:  # the record itself may be what failed
                pass
        self._detach()

    def _detach(self, hooks: bool = False) -> None:
        """Takes patches away; hooks on the optimizer's step only where none of them can be running."""
        self.quiet.stop()
        self.look.stop()
        for group in getattr(self, "groups", ()):
            group.unwatch() if hooks else group.silence()
        if hooks and hasattr(self, "others"):
            self.others.leave()
        while hooks and self._replica_hooks:
            self._replica_hooks.pop().remove()
        self.layers.end()
        if hasattr(self, "untrained"):
            self.untrained.leave()
        _patches.unregister(self)

    def close(self) -> None:
        """Writes the record as complete and takes every hook and patch away. Also called at exit."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        atexit.unregister(self.close)
        try:
            if not self.off:
                self.quiet.end()
                if self.never is not None:
                    self.never.closes()
                self._tell_unused()
                for group in self.groups:
                    if group.decided or group.stepped:
                        group.finish()
                    self.finder.weights(group)
                    self.finder.rates(group)
                self.untrained.tell()
                self._tell_precision()
                self.look.tell_facts()
        except Exception as error:
            self.fail(error)
        self.off = True
        self._detach(hooks=True)
        self.record.close()

    def __enter__(self) -> "Probe":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __deepcopy__(self, memo: dict) -> None:
        return None  # the copy of an object that holds a probe has none

    def __reduce__(self) -> tuple:
        return type(None), ()


_OF_LOSS = (
    "_loss_sum",
    *("losses", "micro_batches", "_each", "_used"),
    *("_loss_taken", "_loss_frozen", "_awaits_backward", "_grads"),
)

_BFLOAT16 = 'autocast runs in bf16, and ranges are judged by those of fp16: attach(..., half="bf16")'

_LOSSES = ("loss", "train_loss", "train/loss")  # under which a loop logs the loss of a step

_ROLES = {
    "gradient": _abi.WEIGHT_GRADIENT,
    "activation": _abi.ACTIVATION,
    "weight": _abi.WEIGHT,
    "activation_gradient": _abi.ACTIVATION_GRADIENT,
    "unscaled_gradient": _abi.UNSCALED_GRADIENT,
}


def see_array(record: Any, name: str, array: Any, role: str) -> None:
    """Shows an array: a tensor with data_ptr, one of DLPack, or one of numpy."""
    from . import _dlpack

    if role not in _ROLES:
        raise ValueError(f"role is one of {', '.join(_ROLES)}, not {role!r}")
    started = perf_counter()
    found = _layout.view(array) if hasattr(array, "data_ptr") else _dlpack.view(array)
    if not isinstance(found, _layout.View):
        record.note(f"{name}: not counted: {found.reason}")
        return
    table = _abi.Table([0], [_ROLES[role]], [found.dtype])
    table.put(0, found.data, found.count, found.storage, found.dtype, found.device, 1, found.stream)
    record.spent(perf_counter() - started)
    record.see_named(name, table)
