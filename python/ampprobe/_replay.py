"""Layer C: a step run again, given the closure that computes its loss.

    with probe.step(lambda: loss_fn(model(inputs), labels)):
        ... the step as it was ...

Of a compiled model, a step that should show layers is run before it is made, eagerly, with hooks on them.
After a step whose gradients overflowed, it is run again with every operation looked at: the first one that
made a non-finite value from finite ones is named, with what it gives in double precision. Every
`reference_every` steps, gradients are computed once more with autocast off, and compared element by element.
Random numbers, buffers and gradients are put back bit for bit; the scaler and the optimizer are not touched.
"""

from __future__ import annotations

import contextlib
import random
import sys
from time import perf_counter
from typing import Any, Callable, Iterator, Optional

from . import _layers, _origin


class _State:
    """Random numbers and buffers at one moment."""

    def __init__(self, models: list, torch: Any):
        self.torch = torch
        self.generator = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
        self.python = random.getstate()
        numpy = sys.modules.get("numpy")
        self.numpy = numpy.random.get_state() if numpy is not None else None
        self.buffers = [(buffer, buffer.detach().clone()) for model in models for buffer in model.buffers()]

    def put_back(self) -> None:
        """Makes the moment's state the current one."""
        self.torch.set_rng_state(self.generator)
        if self.cuda is not None:
            self.torch.cuda.set_rng_state_all(self.cuda)
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)
        with self.torch.no_grad():
            for buffer, value in self.buffers:
                if not self.torch.equal(buffer, value):  # an expanded or inference buffer cannot be written
                    buffer.copy_(value)


@contextlib.contextmanager
def _undone(models: list, start: _State, torch: Any) -> Iterator[None]:
    """Runs the body from the state at the beginning of the step; then all is as it was."""
    now = _State(models, torch)
    parameters = [p for model in models for p in model.parameters()]
    gradients = [p.grad for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        start.put_back()
        yield
    finally:
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient
        now.put_back()


# Operations that write the -inf of an attention mask on purpose.
_MASKS = ("masked_fill", "where", "full", "fill_", "triu", "tril", "scalar_tensor", "lift_fresh")


def _masks(function: Any, inputs: list, results: list) -> bool:
    """The operation has written -inf, and it is one that makes a mask, or had it in its inputs."""
    makes = any(part in str(function) for part in _MASKS)
    return _origin.sound(results) and (makes or not _origin.finite(inputs))


def _rows(function: Any, results: list) -> int:
    """Rows of a softmax's result that have a NaN."""
    if "softmax" not in str(function) and "attention" not in str(function):
        return 0
    return int(results[0].isnan().any(dim=-1).sum()) if results[0].dim() else 0


def _floats(value: Any, torch: Any) -> list:
    return [t for t in _layers.tensors_in(value, torch) if t.is_floating_point()]


def _in_double(function: Callable, args: Any, kwargs: Any, torch: Any) -> Optional[list]:
    """The same operation on the same inputs in double; None if it cannot."""

    def widen(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.double() if value.is_floating_point() else value
        if isinstance(value, (list, tuple)):
            return type(value)(widen(item) for item in value)
        if isinstance(value, torch.dtype) and value.is_floating_point:
            return torch.float64
        return value

    try:
        return _floats(function(*widen(args), **{key: widen(v) for key, v in kwargs.items()}), torch)
    except Exception:  # not every operation has a version in double
        return None


def watcher(torch: Any, layer: Callable[[], str], scale: float) -> Any:
    """A dispatch mode that keeps the first operation with finite inputs and a non-finite result."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watcher(TorchDispatchMode):
        """Looks at every operation until one has been found."""

        found: Optional[dict] = None
        stage = "forward"

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            before = None
            if self.found is None and "empty" not in str(function):  # memory that nobody has written yet
                inputs = _floats((args, kwargs), torch)
                before = inputs and _origin.sound(inputs)
                largest = _origin.largest(inputs) if before else None
            outputs = function(*args, **kwargs)
            if before:
                results = _floats(outputs, torch)
                if not _origin.finite(results) and not _masks(function, inputs, results):
                    self._keep(function, args, kwargs, results, largest, layer())
            return outputs

        def _keep(
            self, function: Any, args: Any, kwargs: Any, results: list, largest: Any, where: str
        ) -> None:
            inplace = str(function).split(".")[1].endswith("_")
            wide = None if inplace else _in_double(function, args, kwargs, torch)
            step_scale = scale if self.stage == "backward" else 1.0
            facts = {"op": where or _origin.LOSS, "type": str(function), "pass": self.stage, "tensor": "out"}
            self.found = _origin.event_of(
                results,
                _origin.cause_of(results, wide, step_scale, torch),
                by="cast" if "_to_copy" in str(function) else "op",
                read_largest=largest,
                ran_again=True,
                rows=_rows(function, results),
                **facts,
            )

    return Watcher()


class _Where:
    """Which layer runs, forward and backward."""

    def __init__(self, models: list, torch: Any):
        self.stack: list[str] = []
        self.last = ""
        self.handles = []
        self.torch = torch
        for model in models:
            for name, module in model.named_modules():
                if name and not isinstance(module, torch.jit.ScriptModule):
                    self._watch(_layers.clean_name(name), module)

    def _watch(self, name: str, module: Any) -> None:
        def enter(*_: Any) -> None:
            self.stack.append(name)

        def leave(module: Any, inputs: Any, outputs: Any) -> None:
            self.stack.pop()
            for tensor in _layers.tensors_in(outputs, self.torch):
                if tensor.requires_grad:
                    tensor.register_hook(self._backward(name))

        self.handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]

    def _backward(self, name: str) -> Callable:
        def hook(gradient: Any) -> None:
            self.last = name

        return hook

    def __call__(self) -> str:
        return self.stack[-1] if self.stack else self.last

    def end(self) -> None:
        """Takes the hooks away."""
        for handle in self.handles:
            handle.remove()


def find_origin(models: list, start: _State, closure: Callable, scale: float, torch: Any) -> Optional[dict]:
    """Runs the step again; the first operation that made a non-finite value, or None."""
    with _undone(models, start, torch), torch.compiler.set_stance("force_eager"):
        where = _Where(models, torch)
        try:
            with watcher(torch, where, scale) as watching:
                loss = closure()
                watching.stage = "backward"
                if watching.found is None:
                    _grad(models, loss * scale, torch)
                return watching.found
        finally:
            where.end()


def _grad(models: list, loss: Any, torch: Any) -> list:
    """Gradients without backward(): nothing is added to any .grad, no hook of the user's on it runs."""
    rows = [(n, p) for model in models for n, p in model.named_parameters() if p.requires_grad]
    found = torch.autograd.grad(loss, [p for _, p in rows], allow_unused=True)
    return [(name, gradient) for (name, _), gradient in zip(rows, found)]


def _gradients(models: list, closure: Callable, scale: float) -> dict:
    found = _grad(models, closure() * scale, sys.modules["torch"])
    return {_layers.clean_name(name): g for name, g in found if g is not None and not g.is_sparse}


def show_layers(probe: Any, models: list, start: _State, closure: Callable, torch: Any) -> None:
    """Runs the step that comes, without the compiler, for the hooks on its layers."""
    started, before = perf_counter(), probe.spent
    with _undone(models, start, torch), torch.compiler.set_stance("force_eager"):
        with probe.layers.beside(models):
            _grad(models, closure() * probe.next_scale(), torch)
    probe.spent = before + perf_counter() - started


def compare(half: dict, reference: dict, scale: float) -> list[dict]:
    """Gradients at the scale beside fp32 ones: relative error, cosine, zeros that fp32 has not."""
    rows = []
    for name, wide in reference.items():
        if name not in half:
            continue
        one, other = half[name].double() / scale, wide.double()
        norm = other.norm().item()
        finite = bool(one.isfinite().all())
        rows.append(
            {
                "name": name,
                "count": other.numel(),
                "overflowed": int((~one.isfinite()).sum()),
                "flushed": int(((one == 0) & (other != 0)).sum()),
                "natural_zeros": int((other == 0).sum()),
                "relative_error": (one - other).norm().item() / norm if finite and norm > 0 else None,
                "cosine": (
                    (one * other).sum().item() / (norm * one.norm().item())
                    if finite and norm > 0 and one.norm().item() > 0
                    else None
                ),
            }
        )
    return rows


def reference(models: list, start: _State, closure: Callable, scale: float, torch: Any) -> list[dict]:
    """Gradients as the run has them beside those with autocast off."""
    with torch.compiler.set_stance("force_eager"):
        with _undone(models, start, torch):
            half = _gradients(models, closure, scale)
        device = next(p.device.type for model in models for p in model.parameters())
        with _undone(models, start, torch):
            kind = torch.amp.autocast_mode.autocast
            enter, kind.__enter__ = kind.__enter__, _enter_off(kind.__enter__)
            try:
                with kind(device, enabled=False):
                    wide = _gradients(models, closure, 1.0)
            finally:
                kind.__enter__ = enter
    return compare(half, wide, scale)


def _enter_off(enter: Callable) -> Callable:
    """autocast.__enter__ that is always off, whatever name the closure knows the class by."""

    def off(self: Any) -> Any:
        kept, self._enabled = self._enabled, False
        try:
            return enter(self)
        finally:
            self._enabled = kept

    return off


class Step:
    """What Probe.step gives: a context that watches one step whose closure is known."""

    def __init__(self, probe: Any, closure: Callable):
        self.probe, self.closure = probe, closure
        self.start: Optional[_State] = None

    def __enter__(self) -> "Step":
        try:
            self.models = self.probe.living_models()
            if not self.probe.off and self.models:
                self.probe.quiet.end()
                self.start = _State(self.models, sys.modules["torch"])
                self.number = self.probe.groups[0].step
                self.probe.runs_again = self.probe.world == 1
                if self.probe.runs_again and self.probe.layers_wait():
                    self._show_layers()
        except Exception as error:
            self.probe.fail(error)
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.probe.runs_again = False
        if kind is not None or self.start is None or self.probe.off:
            return
        try:
            self._look()
        except Exception as error:
            self._could_not(error)

    def _show_layers(self) -> None:
        try:
            show_layers(self.probe, self.models, self.start, self.closure, sys.modules["torch"])
        except Exception as error:
            self._could_not(error)

    def _could_not(self, error: Exception) -> None:
        text = f"step {self.number} could not be run again: {type(error).__name__}: {error}"
        self.probe.note(text.split("\n", 1)[0])

    def _look(self) -> None:
        probe, torch = self.probe, sys.modules["torch"]
        if probe.world > 1:
            probe.note("probe.step does not run steps again in a distributed run: the other ranks would wait")
            return
        assert self.start is not None
        scale = probe.last_scale or 1.0
        if probe.last_skipped and probe.origin_steps < _origin.MOST_ORIGINS:
            with probe.paused():
                found = find_origin(self.models, self.start, self.closure, scale, torch)
            probe.tell_origin(self.number, scale, found)
        elif probe.reference_due(self.number):
            with probe.paused():
                rows = reference(self.models, self.start, self.closure, scale, torch)
            probe.tell_reference(self.number, scale, rows)
