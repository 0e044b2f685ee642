"""Waits for the first backward pass or step of a training that was not changed, and attaches a probe to it.

Optimizers are those that live then; a model is a module that holds their parameters and lies in no other such
module. torch is not imported here: the script may first set what torch reads when it is imported.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib.util
import os
import sys
import weakref
from typing import Any, Iterator, Optional

from . import _fp32, _never, _ops, _others, _patches
from ._attach import attach, plain_optimizer
from ._describe import parameters_of


def _living(kinds: Any) -> list:
    """Objects of a class or its subclasses. type() is asked, as isinstance runs code of proxies."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kinds)]


def _is_trained(parameter: Any) -> bool:
    """Master weights copied by hand need no graph: they only have a gradient."""
    return parameter.requires_grad or parameter.grad is not None


class Bare:
    """A model in place of one that is not there: an optimizer's parameters without a module."""

    def __init__(self, optimizers: list):
        held = (p for optimizer in optimizers for p in parameters_of(optimizer))
        self._rows = [(f"parameter{number}", parameter) for number, parameter in enumerate(held)]

    def named_parameters(self) -> Iterator:
        """Names by order."""
        return iter(self._rows)


def living_optimizers(torch: Any, first: Any = None) -> list:
    """Optimizers that train something, out of their wrappers; `first` before all others."""
    found: list = []
    held: set[int] = set()
    living = [
        plain_optimizer(item) for item in _living(torch.optim.Optimizer) if hasattr(item, "param_groups")
    ]
    for optimizer in [plain_optimizer(first), *living] if first is not None else living:
        own = {id(p) for p in parameters_of(optimizer) if _is_trained(p)}
        if own - held and not any(optimizer is other for other in found):
            found.append(optimizer)
            held |= own
    return found


def models_of(optimizers: list, torch: Any) -> list:
    """The outermost modules that hold the optimizers' parameters, the one with most of them first."""
    return outermost_modules([p for optimizer in optimizers for p in parameters_of(optimizer)], torch)


def outermost_modules(held_by_them: list, torch: Any) -> list:
    """The outermost modules that hold these parameters, the one with most of them first."""
    wanted = {id(p) for p in held_by_them}
    rows = []
    for module in _living(torch.nn.Module):
        try:
            own = {id(p) for p in module.parameters()} & wanted
        except Exception:  # a module that is not complete yet
            continue
        if own:
            rows.append((module, own))
    inside = {id(part) for module, _ in rows for part in module.modules() if part is not module}
    rows = [row for row in rows if id(row[0]) not in inside]
    rows.sort(key=lambda row: -len(row[1]))
    models, held = [], set()
    for module, own in rows:
        if own - held:
            models.append(module)
            held |= own
    return models


def parameters_of_modules(torch: Any) -> Iterator:
    """The parameters of every module."""
    for module in _living(torch.nn.Module):
        yield from list(getattr(module, "_parameters", {}).values())


class Waiting:
    """Stands where a probe stands, until there is something to attach one to."""

    def __init__(self, options: dict):
        own = ("look", "stop_after", "fp32")
        self.options = {key: value for key, value in options.items() if key not in own}
        self.look = options.get("look")  # first and last steps of which every operation is looked at
        self.stop_after = options.get("stop_after")
        self.fp32 = bool(options.get("fp32"))
        self.looker: Any = None
        self.probe: Any = None
        self.bare: Optional[Bare] = None  # kept: a probe refers to models weakly
        self.handle: Any = None
        self.failed: Optional[str] = None
        self.scaler_loaded: Any = lambda: None  # weak reference to a scaler whose state was loaded
        self.dtypes: set[str] = set()  # autocast was entered with
        self.undo: Any = None
        self.passes = _never.Passes(self._many_passes)
        self.stepped = False  # some optimizer was
        self.pid = os.getpid()

    def start(self) -> None:
        """Begins to wait, when torch has been imported."""
        atexit.register(self._end)
        if "torch" in sys.modules:
            self.install()
        else:
            sys.meta_path.insert(0, _OnImport("torch", self.install))

    def install(self) -> None:
        """Hooks on backward, GradScaler and every optimizer; they are the patches that probes use."""
        try:
            torch = sys.modules["torch"]
            from torch.optim.optimizer import register_optimizer_step_pre_hook

            self.handle = register_optimizer_step_pre_hook(torch.compiler.disable(self._before_step))
            _patches.register(self)
            self._note_autocast(torch)
            self.passes.start(torch)
            if self.look is not None and self.stop_after is not None:
                self.passes.at_pass(self.stop_after + 2)
            if self.fp32:
                _fp32.install(torch)
            if self.look is not None:
                self.looker = _ops.Looker(torch)
                self.looker.start()
        except Exception as error:
            self._say(error)

    def _note_autocast(self, torch: Any) -> None:
        """Notes which dtypes autocast is entered with, until a probe is attached: then it has been left."""
        kind = torch.amp.autocast_mode.autocast
        enter = kind.__enter__

        @functools.wraps(enter)
        def noted(context: Any) -> Any:
            if context._enabled:
                self.dtypes.add(str(context.fast_dtype).rsplit(".", 1)[-1])
            return enter(context)

        def undo() -> None:
            if kind.__enter__ is noted:
                kind.__enter__ = enter

        kind.__enter__ = noted
        self.undo = undo

    def _half(self, models: list) -> Optional[str]:
        """The format whose range matters, where the dtypes of the weights do not say it."""
        stored = any(p.dtype.itemsize < 4 for model in models for _, p in model.named_parameters())
        return "bf16" if self.dtypes == {"bfloat16"} and not stored else None

    # -- what _patches tells ---------------------------------------------------------------------------

    def saw_loss(self, scaler: Any, outputs: Any) -> None:
        """GradScaler.scale was called."""
        if self._attach(None, scaler):
            self.probe.saw_loss(scaler, outputs)

    def scaled(self, scaler: Any, outputs: Any, result: Any) -> None:
        """It has scaled: nothing was attached yet."""

    def asked_for_graph(self, outputs: Any, results: Any) -> None:
        """Gradients with a graph were asked for: nothing was attached yet."""

    def saw_backward(self, tensors: Any) -> None:
        """torch.autograd.backward was called."""
        if self._attach():
            self.probe.saw_backward(tensors)

    def saw_grad(self, outputs: Any) -> None:
        """torch.autograd.grad was called for gradients of parameters."""
        if self._attach():
            self.probe.saw_grad(outputs)

    def backward_ran(self) -> None:
        """It has ended without an optimizer: nothing was attached."""

    def loaded(self, thing: Any) -> None:
        """A scaler or an optimizer got its state back: a probe that is attached later is told."""
        if hasattr(thing, "get_scale"):
            self.scaler_loaded = weakref.ref(thing)

    def logged(self, values: Any) -> None:
        """Values were logged: nothing was attached yet."""

    def after_update(self, scaler: Any) -> None:
        """GradScaler.update was called: nothing was attached yet."""

    def made(self, optimizer: Any) -> None:
        """An optimizer was made: those that live at the first step are found then."""

    def comes(self, optimizer: Any) -> None:
        """A scaler is about to unscale or step an optimizer: nothing was attached yet."""

    def _many_passes(self) -> None:
        """There were many forward passes, and no backward pass. A probe attaches while there is a model."""
        if self._attach(early=True) and self.looker is not None and self.stop_after is not None:
            self.probe.look.ends_without_backward()

    def _before_step(self, optimizer: Any, args: tuple, kwargs: dict) -> None:
        self.stepped = True
        self._attach(optimizer)

    # -- attaching -------------------------------------------------------------------------------------

    def _attach(self, optimizer: Any = None, scaler: Any = None, early: bool = False) -> bool:
        """Attaches a probe, if there is an optimizer; whether this call did."""
        if self.probe is not None or self.failed or os.getpid() != self.pid:
            return False
        try:
            torch = sys.modules["torch"]
            optimizers = living_optimizers(torch, optimizer)
            if not optimizers:
                return False
            models = models_of(optimizers, torch)
            held = {id(p) for model in models for p in model.parameters()}
            loose = [o for o in optimizers if not any(id(p) in held for p in parameters_of(o))]
            if loose:
                self.bare = Bare(loose)
                models.append(self.bare)
            self.undo()
            half = self.options.pop("half", None) or self._half(models)
            if not early:
                self.passes.end()
            self.probe = attach(
                models,
                optimizers,
                scaler=scaler,
                half=half,
                **self.options,
                _everywhere=self.handle,
                _passes=self.passes if early else None,
            )
            known = self.scaler_loaded()
            if known is not None:
                self.probe.loaded(known)
            if self.looker is not None:
                self.probe.look.take(self.looker, self.look, self.stop_after)
        except Exception as error:
            self._say(error)
        finally:
            if self.probe is not None or self.failed:
                _patches.unregister(self)
                if self.probe is None:
                    _others.hook_everywhere(_others.nothing, self.handle)
        return self.probe is not None

    def _say(self, error: BaseException) -> None:
        self.failed = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        self._print(f"the run is not recorded: {self.failed}")

    def _print(self, text: str) -> None:
        try:
            print(f"ampprobe: {text}", file=sys.stderr)
        except Exception:  # stderr may be closed
            pass

    def _end(self) -> None:
        """At exit: says where the record is."""
        if os.getpid() != self.pid or self.failed:
            return
        if self.probe is None and self.passes.any():
            self._attach(early=True)
        if self.probe is None:
            what = "no optimizer made a step"
            if self.stepped:
                what = "an optimizer was stepped without a gradient"
            self._print(f"{what} in this process: nothing was recorded")
            return
        self.probe.close()
        steps = max(group.step for group in self.probe.groups)
        path = self.probe.record.path
        self._print(f"{path}: {steps} steps were recorded; ampbench diagnose {path}")


class _OnImport:
    """A finder of modules that calls a function when one module has been imported."""

    def __init__(self, name: str, function: Any):
        self.name, self.function = name, function

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec that others find, with a loader that tells."""
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader = getattr(spec, "loader", None)
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        function, execute = self.function, loader.exec_module

        def exec_module(module: Any) -> None:
            del loader.exec_module
            execute(module)
            function()

        loader.exec_module = exec_module
        return spec
