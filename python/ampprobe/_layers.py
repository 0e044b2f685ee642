"""Layer B: outputs of layers and their gradients, at probed steps only.

Forward hooks stand on leaf modules (and on MultiheadAttention, whose projection never fires) for one step,
and register a hook on every output, which sees its gradient. Full backward hooks are not used: they break
in-place operations. What a hook does never raises and never returns a value.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from time import perf_counter
from typing import Any, Iterator, Optional

from . import _abi, _layout, _origin
from ._patches import without_modes


class _Nothing:
    """What a copy of a hook is: a deep copy of a model (an average of weights) must not go on probing."""

    def __call__(self, *_: Any) -> None:
        return None


class _Hook:
    """The forward hook of one module."""

    def __init__(self, layers: "Layers", name: str):
        self.layers = layers
        self.name = name

    def __deepcopy__(self, memo: dict) -> _Nothing:
        return _Nothing()

    def __reduce__(self) -> tuple:
        return _Nothing, ()

    def __call__(self, module: Any, inputs: Any, *more: Any) -> None:
        output = more[-1]
        if len(more) > 1:  # keyword arguments, of an attention: its mask
            inputs = (*inputs, more[0])
        torch = sys.modules["torch"]
        if torch.compiler.is_compiling():
            return
        self.layers.forward(self.name, module, inputs, output)


def tensors_in(value: Any, torch: Any, depth: int = 0) -> Iterator[Any]:
    """The tensors in tuples, lists and dicts; other containers are not opened."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 4 and isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item, torch, depth + 1)
    elif depth < 4 and isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item, torch, depth + 1)


def tensors_of(value: Any, torch: Any) -> list:
    """The same as a list, without a generator where it is one tensor, or a tuple of one."""
    if type(value) is tuple and len(value) == 1:
        value = value[0]
    return [value] if type(value) is torch.Tensor else list(tensors_in(value, torch))


def parts_of(value: Any, torch: Any) -> list:
    """Of those tensors what is in this process."""
    plain = torch.Tensor
    return [t if type(t) is plain else _layout.local(t) for t in tensors_of(value, torch)]


def probed_modules(modules: list, torch: Any) -> list[tuple[str, Any]]:
    """Of modules and their names, those that get a hook: leaves, and MultiheadAttention; TorchScript's refuse
    hooks."""
    found = []
    for name, module in modules:
        if isinstance(module, torch.jit.ScriptModule):
            continue
        inside = getattr(module, "_modules", True) and any(True for _ in module.children())
        if not inside or isinstance(module, torch.nn.MultiheadAttention):
            found.append((name or type(module).__name__, module))
    return found


def is_compiled(modules: list) -> bool:
    """Whether one of these modules and names was given to torch.compile."""
    return any(
        getattr(module, "_compiled_call_impl", None) is not None
        or "_orig_mod" in getattr(module, "_modules", ())
        for _, module in modules
    )


def is_wrapped(models: list) -> bool:
    """Whether torch.compile was given one of these models and what it made is elsewhere. Hooks on such a
    model are part of what it compiles, and it compiles again when they go."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    made = getattr(frames, "cached_backends", {0: True})  # without a compiler nothing was compiled
    if frames is None or all(compiler is None for compiler in made.values()):
        return False
    held = [(model, holder) for model in models for holder in gc.get_referrers(model)]
    return any(isinstance(holder, dict) and holder.get("_orig_mod") is model for model, holder in held)


class Layers:
    """The hooks of one probe."""

    def __init__(self, probe: Any):
        self.probe = probe
        self.handles: list = []
        self.fired: dict[str, int] = {}  # layer -> how often it fired forward in this step
        self.ever: set[str] = set()
        self.order: dict[str, list[int]] = {}  # layers as they ran, also without gradients: ids of parameters
        self.names: list[str] = []
        self.precision: dict[str, str] = {}  # layer -> dtype of its output
        self.autocast: dict[str, str] = {}
        self.findings: dict[str, str] = {}
        self.first = _origin.First()
        self._ids: dict[tuple, int] = {}
        self._tables: list = []  # of one entry, that are free: autograd's threads show gradients at once
        self._lock = threading.Lock()
        self._steps = 0
        self.shadow = False  # the step runs beside the training (_replay)
        self._shown = False  # by such a run, before the step itself
        self.compiled = False  # one of the models was given to torch.compile
        self.unheard = False  # no hook fired in a step where they stood: what runs is compiled

    @property
    def on(self) -> bool:
        """Whether hooks stand, or have seen this step."""
        return bool(self.handles) or self._shown

    def begin(self, models: list, compiled: bool = False) -> bool:
        """Puts the hooks on for one step; False: not on compiled models, unless that is meant."""
        torch = sys.modules["torch"]
        modules = [list(model.named_modules()) for model in models]
        self.compiled = self.compiled or any(map(is_compiled, modules)) or is_wrapped(models)
        if self.compiled and not compiled:
            return False
        self.end()
        self.fired.clear()
        self.order = {}
        self.first = _origin.First()
        self.names = []
        for row in modules:
            for name, module in probed_modules(row, torch):
                name = clean_name(name)
                self.names.append(name)
                named = isinstance(module, torch.nn.MultiheadAttention)
                self.handles.append(module.register_forward_hook(_Hook(self, name), with_kwargs=named))
        return True

    def end(self) -> bool:
        """Takes the hooks off; whether any layer was seen."""
        if not self.on:
            return False
        self._leave()
        self._shown = False
        seen = bool(self.fired)
        self.unheard = self.unheard or not self.order
        if seen:
            self.ever.update(self.fired)
            self.probe.untrained.ran(list(self.order.values()))
            self._steps += 1
        return seen

    def _leave(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles = []

    @contextlib.contextmanager
    def beside(self, models: list) -> Iterator[None]:
        """The body runs the step that comes, compiled or not, for the hooks; they are gone when the training
        does, and end() says what they saw."""
        self.shadow = self.begin(models, compiled=True)
        try:
            yield
        finally:
            self._leave()
            self.shadow, self._shown = False, bool(self.fired)

    def silent(self) -> list[str]:
        """Layers that have not fired in any probed step."""
        return sorted(set(self.names) - self.ever) if self._steps else []

    def forward(self, name: str, module: Any, inputs: Any, output: Any) -> None:
        """A module's forward pass has returned."""
        probe = self.probe
        if probe.off or not module.training or probe.is_recorded():
            return
        started = perf_counter()
        try:
            torch = sys.modules["torch"]
            recomputed = torch._C._current_graph_task_id() != -1
            if recomputed and name in self.fired:
                return  # activation checkpointing that runs the forward pass again; it was counted
            if name not in self.order:
                self.order[name] = [id(p) for p in module._parameters.values() if p is not None]
            if not torch.is_grad_enabled():
                return  # validation, or the first pass of reentrant checkpointing, which comes again
            self.fired[name] = self.fired.get(name, 0) + 1
            with without_modes(torch):  # selective checkpointing counts the operations
                read, written = parts_of(inputs, torch), tensors_of(output, torch)
                self._look_at_inputs(name, read, torch)
                probe.finder.layer(name, module, read, parts_of(written, torch), torch)
                self.first.fires(name)
                for index, tensor in enumerate(written):
                    label = name if index == 0 else f"{name}#{index}"
                    if self._output(label, name, module, tensor, torch):
                        read = [t.detach() for t in read if t.is_floating_point()]
                        self.first.forward(name, module, read, parts_of(tensor.detach(), torch), torch)
        except Exception as error:
            probe.fail(error)
        finally:
            probe.spent += perf_counter() - started

    def _output(self, label: str, name: str, module: Any, tensor: Any, torch: Any) -> bool:
        """Shows an output, and has its gradient shown; whether it holds inf or NaN."""
        if not tensor.is_floating_point():
            return False
        if name not in self.precision:
            self.precision[name] = str(tensor.dtype).rsplit(".", 1)[-1]
            device = tensor.device.type
            if torch.is_autocast_enabled(device):
                self.autocast[device] = str(torch.get_autocast_dtype(device)).rsplit(".", 1)[-1]
        nonfinite = self.show(label, name, type(module).__name__, tensor, _abi.ACTIVATION)
        if tensor.requires_grad:
            kind = type(module).__name__
            layers = self

            def saw_gradient(gradient: Any) -> None:
                layers.gradient(label, name, kind, gradient)

            handle = tensor.register_hook(saw_gradient)
            if tensor.is_leaf:  # a Parameter that a module returned as it is
                self.handles.append(handle)
        return bool(nonfinite)

    def gradient(self, label: str, name: str, kind: str, gradient: Any) -> None:
        """The gradient of an output; called from autograd's threads."""
        probe = self.probe
        if probe.off or not self.on or probe.is_recorded():
            return
        started = perf_counter()
        try:
            with without_modes(sys.modules["torch"]):
                self._gradient(label, name, kind, gradient)
        except Exception as error:
            probe.fail(error)
        finally:
            probe.spent += perf_counter() - started

    def _gradient(self, label: str, name: str, kind: str, gradient: Any) -> None:
        nonfinite = self.show(label, name, kind, gradient, _abi.ACTIVATION_GRADIENT)
        if nonfinite is not None:
            gradient = _layout.local(gradient.detach())
            self.first.gradient(name, kind, gradient, nonfinite, sys.modules["torch"])

    def show(self, label: str, name: str, kind: str, tensor: Any, role: int) -> Optional[bool]:
        """Shows one tensor of a layer; whether it holds inf or NaN, None where it was not read."""
        found = _layout.place_of(tensor)
        if isinstance(found, _layout.Unreadable):
            self.probe.note(f"{label}: not counted: {found.reason}")
            return None
        place, keep = found
        number = self._ids.get((label, place[0]))
        if number is None:
            number = self._describe(label, name, kind, place[0], tensor)
        try:
            table = self._tables.pop()
        except IndexError:
            table = _abi.Table([0], [role])
        table.aim(number, role)
        table.fill(0, place)
        self.probe.record.see(table)
        del keep
        nonfinite = table.array[0].nonfinite > 0
        self._tables.append(table)
        return nonfinite

    def _describe(self, label: str, name: str, kind: str, dtype: int, tensor: Any) -> int:
        """The number of what is shown under this label."""
        with self._lock:
            number = self._ids.get((label, dtype))
            if number is None:
                thing = {"name": label, "layer": name, "type": kind, "dtype": dtype}
                number = self.probe.record.describe([{**thing, "shape": tuple(tensor.shape)}])[0]
                self._ids[(label, dtype)] = number
            return number

    def _look_at_inputs(self, name: str, inputs: list, torch: Any) -> None:
        """Integers in half: ids or positions beyond the last integer that the format tells apart."""
        limit = {torch.float16: 2048.0, torch.bfloat16: 256.0}
        for tensor in inputs:
            if tensor.dtype in limit and name not in self.findings and 0 < tensor.numel() <= 1 << 16:
                values = tensor.detach().float()
                largest = values.abs().amax().item()
                if limit[tensor.dtype] < largest < 65536 and bool((values == values.round()).all()):
                    self.probe.finder.whole_numbers(name, largest)
                    self.findings[name] = (
                        f"its input is {tensor.dtype} and holds whole numbers up to "
                        f"{largest:.0f}, of which neighbours beyond "
                        f"{limit[tensor.dtype]:.0f} are the same number"
                    )


def clean_name(name: str) -> str:
    """A module's or parameter's name without what DDP, FSDP and torch.compile put before it."""
    parts = [part for part in name.split(".") if part not in ("_orig_mod", "_fsdp_wrapped_module")]
    return ".".join(parts[1:] if len(parts) > 1 and parts[0] == "module" else parts)
