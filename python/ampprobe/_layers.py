"""Layer B: outputs of layers and their gradients, at probed steps only.

Forward hooks stand on leaf modules (and on MultiheadAttention, whose projection never fires) for one step,
and register a hook on every output, which sees its gradient. Full backward hooks are not used: they break
in-place operations. What a hook does never raises and never returns a value.
"""

from __future__ import annotations

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


def probed_modules(model: Any, torch: Any) -> list[tuple[str, Any]]:
    """Modules that get a hook: leaves, and MultiheadAttention; TorchScript's refuse hooks."""
    found = []
    for name, module in model.named_modules(remove_duplicate=True):
        if isinstance(module, torch.jit.ScriptModule):
            continue
        if not any(True for _ in module.children()) or isinstance(module, torch.nn.MultiheadAttention):
            found.append((name or type(module).__name__, module))
    return found


def is_compiled(model: Any, torch: Any) -> bool:
    """Whether the model, or a part of it, was given to torch.compile."""
    for module in model.modules():
        if getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod"):
            return True
    return False


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
        self._lock = threading.Lock()
        self._steps = 0

    @property
    def on(self) -> bool:
        """Whether hooks stand."""
        return bool(self.handles)

    def begin(self, models: list) -> None:
        """Puts the hooks on for one step."""
        torch = sys.modules["torch"]
        self.end()
        self.fired.clear()
        self.order = {}
        self.first = _origin.First()
        self.names = []
        for model in models:
            for name, module in probed_modules(model, torch):
                name = clean_name(name)
                self.names.append(name)
                named = isinstance(module, torch.nn.MultiheadAttention)
                self.handles.append(module.register_forward_hook(_Hook(self, name), with_kwargs=named))

    def end(self) -> bool:
        """Takes the hooks off; whether any layer was seen."""
        if not self.handles:
            return False
        for handle in self.handles:
            handle.remove()
        self.handles = []
        seen = bool(self.fired)
        if seen:
            self.ever.update(self.fired)
            self.probe.untrained.ran(list(self.order.values()))
            self._steps += 1
        return seen

    def silent(self) -> list[str]:
        """Layers that have not fired in any probed step."""
        return sorted(set(self.names) - self.ever) if self._steps else []

    def forward(self, name: str, module: Any, inputs: Any, output: Any) -> None:
        """A module's forward pass has returned."""
        probe = self.probe
        if probe.off or not module.training:
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
                self._look_at_inputs(name, module, inputs, torch)
                read, written = list(tensors_in(inputs, torch)), list(tensors_in(output, torch))
                probe.finder.layer(name, module, read, written, torch)
                self.first.fires(name)
                for index, tensor in enumerate(written):
                    label = name if index == 0 else f"{name}#{index}"
                    if self._output(label, name, module, tensor, torch):
                        read = [t.detach() for t in read if t.is_floating_point()]
                        self.first.forward(name, module, read, [tensor.detach()], torch)
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
        if probe.off or not self.on:
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
            self.first.gradient(name, kind, gradient.detach(), nonfinite, sys.modules["torch"])

    def show(self, label: str, name: str, kind: str, tensor: Any, role: int) -> Optional[bool]:
        """Shows one tensor of a layer; whether it holds inf or NaN, None where it was not read."""
        found = _layout.view(tensor)
        if not isinstance(found, _layout.View):
            self.probe.note(f"{label}: not counted: {found.reason}")
            return None
        key = (label, found.dtype)
        with self._lock:
            number = self._ids.get(key)
            if number is None:
                number = self.probe.record.describe(
                    [
                        {
                            "name": label,
                            "layer": name,
                            "type": kind,
                            "dtype": found.dtype,
                            "shape": tuple(tensor.shape),
                        }
                    ]
                )[0]
                self._ids[key] = number
        table = _abi.Table([number], [role], [found.dtype])
        table.put(0, found.data, found.count, found.storage, found.dtype, found.device, 1, found.stream)
        self.probe.record.see(table)
        return table.array[0].nonfinite > 0

    def _look_at_inputs(self, name: str, module: Any, inputs: Any, torch: Any) -> None:
        """Integers in half: ids or positions beyond the last integer that the format tells apart."""
        limit = {torch.float16: 2048.0, torch.bfloat16: 256.0}
        for tensor in tensors_in(inputs, torch):
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
