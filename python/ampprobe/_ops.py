"""Looks at every operation of some steps: the first that made the non-finite value that a loss or a gradient
became, where in the user's source it is, and the operations round it.

The loss or gradient is followed back, through operations whose results are not finite, to one that read
finite values. A -inf that a mask wrote is no such value. Nothing of the run is changed: operations are
called as they are, and their results are only read.
"""

from __future__ import annotations

import math
import os
import sys
import sysconfig
import weakref
from time import perf_counter
from typing import Any, Optional

from . import _constant, _inputs, _kinds, _order, _origin, _rounding, _targets, _whole
from ._layers import clean_name, tensors_in
from ._replay import _floats, _in_double, _rows

MOST_OPS = 300_000  # kept at once; then the looking ends
_MOST_EXPLAINED = 64  # operations of one step that are computed in double
_MOST_NODES = 32  # later operations in the graph that is kept for one origin
_MOST_LATER = 400  # operations among which they are looked for
_SAME_SCALE = 1e-3  # relative difference of a factor and the loss scale
_FARTHEST = 8  # edges from the origin back to the first operation of that graph


_ENDS = {"product", "normalization"}  # beyond them are other values,
_ENDS_OF_ZERO = {"normalization"}  # but not other zeros: a formula without a value read one
_FILLS = ("empty", "uniform", "normal", "randn", "rand", "zeros", "ones", "full", "fill", "zero", "arange")

GOOD, MASKED, BAD = 0, 1, 2


class Op:
    """One operation as it ran."""

    __slots__ = ("index", "name", "type", "traits", "stage", "module", "leaf", "place", "reads", "bad",
                 "state", "partial", "event", "forward", "rows", "fills", "poison", "library", "of_weights",
                 "writes_weights", "tags", "factor", "decays", "whole", "function", "label",
                 "single")  # fmt: skip

    index: int
    name: str
    type: str
    traits: tuple
    stage: str
    module: Any  # the innermost that runs
    leaf: bool  # it is torch's, called from the user's source
    place: str  # file:line of the user's
    reads: list  # operations that wrote what it reads
    bad: list  # those whose values it reads are not finite; None: nobody's that is known
    state: int  # of its result
    partial: bool  # it wrote a part of the memory
    event: Optional[dict]
    forward: Any  # the operation that this one is the backward pass of
    rows: int  # of a softmax that are NaN
    poison: str  # what it reads that nobody is known to have made: "poisoned_input", "bad_weights" or ""
    fills: bool  # writes what it was not given
    library: bool  # an optimizer of torch's runs it
    of_weights: bool  # it reads a parameter
    writes_weights: bool  # over a parameter
    tags: set  # what it was made from, element by element: "weight", "gradient", "square" of one
    factor: Optional[float]  # of a product
    decays: list  # of averages that it multiplied in place: by how much, and what of that was lost
    function: str  # the autograd.Function of the user's whose backward() runs it; ""
    whole: Optional[tuple]  # largest of the whole numbers in half that it was made from, bits of the format
    label: str
    single: bool  # its result is one number, and not in a list


class _Frames:
    """Which line of the user's source is running, and which module."""

    def __init__(self, torch: Any):
        self._torch = os.path.dirname(torch.__file__)
        self._optim = os.path.join(self._torch, "optim")
        self._averages = os.path.join(self._optim, "swa_utils.py")
        own = os.path.dirname(_mode.__code__.co_filename)
        self._others = (own, sysconfig.get_paths()["stdlib"], "<frozen")
        self._packages = sysconfig.get_paths()["purelib"]
        self._call = torch.nn.Module._call_impl.__code__
        self._function = torch.autograd.function.BackwardCFunction.apply.__code__
        self._kinds: dict[Any, str] = {}

    def _kind(self, code: Any) -> str:
        path = code.co_filename
        kind = "user"
        if code is self._call:
            kind = "module"
        elif path.startswith(self._torch):
            kind = "update" if path.startswith(self._optim) and path != self._averages else "library"
        elif path.startswith(self._others) and not path.startswith(self._packages):
            kind = "library"
        self._kinds[code] = kind
        return kind

    def now(self) -> tuple[str, Any, bool, bool, bool, str]:
        """Place, innermost module, whether it runs no source of the user's, whether an optimizer steps,
        whether that is one of torch's, and the autograd.Function whose backward() runs."""
        frame: Any = sys._getframe(2)
        module, place, leaf, update, library, function = None, "", False, False, False, ""
        while frame is not None and not (place and module is not None):
            kind = self._kinds.get(frame.f_code) or self._kind(frame.f_code)
            if kind == "module" and module is None:
                module, leaf = frame.f_locals.get("self"), not place
            elif kind == "user" and not place:
                place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
            elif frame.f_code is self._function and place and not function:
                function = f"{frame.f_locals['self']._forward_cls.__name__}.backward"
            elif kind == "update":
                update, library = True, library or not place
            frame = frame.f_back
        return place, module, leaf, update, library, function


def is_over(times: float, scale: float) -> bool:
    """A factor that divides by the scale."""
    return abs(times * scale - 1) <= _SAME_SCALE


def _memory(tensor: Any) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except Exception:  # a tensor without memory of its own
        return 0


class Looker:
    """The operations that were looked at, and who wrote what."""

    def __init__(self, torch: Any, running: bool = False):
        """`running`: steps were made before; nothing that is seen prepares them."""
        self.torch = torch
        self.ops: list[Op] = []
        self.on = False
        self.full = False  # there is no room for more, or it has failed
        self.failed: Optional[str] = None
        self.formats: set[str] = set()  # below fp32 that operations wrote
        self.step = 0
        self.scale = 1.0
        self.loss: Optional[Op] = None
        self.gradients: list[Op] = []
        self.differentiated: list[Op] = []  # wrote the losses of this step
        self.divided = ""  # the line that has divided a gradient of this step by the loss scale
        self.factors: dict[int, float] = {}  # memory of a gradient -> what lines have multiplied it by
        self._models: list = []  # weak references
        self.hidden = 0  # rows of this step's softmaxes that read nothing but -inf
        self._first = 0  # operation of this step
        self._absorbed: list[Op] = []  # divisions of this step: finite results of what is not finite
        self._names: dict[int, str] = {}  # id of a module -> its name
        self._parameters: set[int] = set()  # their memory
        self._explained = 0
        self._before: Optional[Op] = None  # made a non-finite value before any module ran
        self._trained = 0 if running else None  # the first operation of a module
        self._begun = 0  # first operation since looking began again
        self._writers: dict[int, tuple] = {}  # memory -> operation, its result
        self._sequence: dict[int, Op] = {}
        self._changes: dict[Any, tuple] = {}
        self._frames = _Frames(torch)
        self.rounding = _rounding.Rounding(torch, self._parameters)
        self.whole = _whole.Whole(torch, _memory)
        self.inputs = _inputs.Inputs(torch, _memory)
        self.constants = _constant.Constants(torch)
        self.targets = _targets.Targets()
        self.order = _order.Order(torch, _memory)
        self._mode: Any = None
        self.pid = os.getpid()
        self.spent = 0.0  # seconds

    # -- beginning and ending ------------------------------------------------------------------------

    def start(self) -> None:
        """Looks from here on."""
        if not self.on and not self.full:
            self._begun = len(self.ops)
            self.rounding.forget()
            self.whole.forget()
            self.targets.forget()
            if self._mode is None:
                self._mode = _mode(self)
                self._mode.__enter__()
            self.on = True

    def leave(self) -> None:
        """Leaves the mode, if it is the innermost: one of the user's that was entered later stays."""
        from torch.utils._python_dispatch import _get_current_dispatch_mode

        if self._mode is not None and _get_current_dispatch_mode() is self._mode:
            mode, self._mode = self._mode, None
            mode.__exit__(None, None, None)

    def knows(self, models: list) -> None:
        """The names of the models' modules, and where their parameters are."""
        for model in models:
            if hasattr(model, "named_modules"):
                self._models.append(weakref.ref(model))
                self._names.update((id(module), clean_name(name)) for name, module in model.named_modules())
                self._parameters.update(_memory(parameter) for parameter in model.parameters())
                self.rounding.shapes.update(tuple(parameter.shape) for parameter in model.parameters())

    def fail(self, error: BaseException) -> None:
        """An operation was not understood: the looking ends."""
        self.failed = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        self.full = True
        self.on = False

    def begins(self, step: int) -> None:
        """A step begins."""
        self.step, self.loss, self.gradients, self._explained, self.scale = step, None, [], 0, 1.0
        self.differentiated, self.hidden, self._first, self._absorbed = [], 0, len(self.ops), []
        self.inputs.begins()
        self.order.begins()
        self.divided, self.factors = "", {}
        self.constants.begins(step)

    # -- what operations tell ------------------------------------------------------------------------

    def _writer(self, memory: int) -> Optional[Op]:
        op, result = self._writers.get(memory, (None, None))
        if op is None or (op.index < self._begun and result() is None):
            return None  # what was there when looking ended is gone; others may have the memory now
        return op

    def _read(self, tensor: Any) -> tuple[Optional[Op], int]:
        """Who wrote a tensor, and whether its values are finite."""
        writer = self._writer(_memory(tensor))
        if writer is not None and writer.state == GOOD and not writer.partial:
            return writer, GOOD
        if _origin.finite([tensor]):
            return writer, GOOD
        mask = _origin.sound([tensor]) and (writer is None or writer.state == MASKED)
        return writer, MASKED if mask else BAD

    def changed(self, function: Any) -> tuple:
        """Positions and names of arguments that an operation writes."""
        found = self._changes.get(function)
        if found is None:
            arguments = enumerate(function._schema.arguments)
            found = tuple((i, a.name) for i, a in arguments if a.alias_info and a.alias_info.is_write)
            self._changes[function] = found
        return found

    def begins_op(self, function: Any, args: tuple, kwargs: dict) -> tuple[list, Any]:
        """What an operation is about to read: tensor, who wrote it, whether it is finite; and a copy of what
        it writes over."""
        read = [(tensor, *self._read(tensor)) for tensor in _floats((args, kwargs), self.torch)]
        return read, self.rounding.before(_kinds.base_name(function), args)

    def ends_op(
        self, function: Any, args: tuple, kwargs: dict, outputs: Any, read: list, before: Any
    ) -> None:
        """An operation has run."""
        self.whole.integers(_kinds.base_name(function), args, outputs, self._here)
        schema, changed = function._schema, self.changed(function)
        self.order.wrote(_kinds.base_name(function), bool(changed), args, outputs)
        given = [args[i] if i < len(args) else kwargs.get(name) for i, name in changed]
        results = _floats((outputs, given), self.torch)
        if not results or (not changed and any(r.alias_info for r in schema.returns)):
            return  # a view: what was written is as it was
        self.formats.update(_origin.format_of(t.dtype) for t in results if t.dtype.itemsize < 4)
        op = Op()
        op.name, op.index = _kinds.base_name(function), len(self.ops)
        op.rows, op.event, op.forward = 0, None, None
        op.type, op.traits = _kinds.kind_of(op.name, args)
        op.place, op.module, op.leaf, update, op.library, op.function = self._frames.now()
        self._place(op, update)
        if op.module is not None and self._trained is None:
            self._trained = op.index
            self.rounding.prepared()
            self.whole.prepared()
        op.fills = op.name.removesuffix("_like") in _FILLS
        op.reads, op.bad, op.poison = [], [], ""
        op.tags, op.factor, op.decays, op.whole = set(), None, [], None
        op.of_weights = any(_memory(tensor) in self._parameters for tensor, _, _ in read)
        op.writes_weights = any(_memory(tensor) in self._parameters for tensor in results)
        for tensor, writer, state in read:
            if state == BAD and writer is None:
                op.poison = "bad_weights" if _memory(tensor) in self._parameters else "poisoned_input"
            if writer is not None and writer not in op.reads:
                op.reads.append(writer)
            if state == BAD:
                op.bad.append(writer)
                self._comes_in(op, tensor, writer)
        op.single = len(results) == 1 and results[0].dim() == 0
        op.state = self._state(op, results, any(state == MASKED for _, _, state in read))
        if op.bad and op.stage == "forward":
            self._goes_on(op, args)
        if op.state == BAD and not op.bad and self._explained < _MOST_EXPLAINED:
            self._explained += 1
            self._explain(op, function, args, kwargs, [t for t, _, _ in read], results, bool(changed))
        op.label = self._label(op.forward or op)
        self.rounding.after(op, before, args, kwargs, outputs)
        self._divides(op, args, changed)
        self.targets.after(op, args, self._first)
        self.order.reads(op, args, [tensor for tensor, _, _ in read])
        self.whole.positions(op, args, outputs)
        self.constants.after(op, args)
        self.ops.append(op)
        if len(self.ops) > MOST_OPS:
            self.full, self.on = True, False
        for tensor in results:
            whole = tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes()
            op.partial = not whole
            self._writers[_memory(tensor)] = (op, weakref.ref(tensor))

    def _divides(self, op: Op, args: tuple, changed: tuple) -> None:
        """Notes by which numbers lines of the user's multiply gradients in place, and the line that divides
        them by the loss scale."""
        name = op.name.removeprefix("_foreach_")
        if op.stage == "backward" or op.library or name not in ("mul", "div") or not changed or len(args) < 2:
            return
        written = args[0] if isinstance(args[0], (list, tuple)) else [args[0]]
        models = [model for model in (one() for one in self._models) if model is not None]
        parameters = (p for model in models for p in model.parameters() if p.grad is not None)
        found = {_memory(p.grad) for p in parameters} & {_memory(tensor) for tensor in written}
        factor = _number(args[1]) if found else None
        if not factor or not math.isfinite(factor):
            return
        times = factor if name == "mul" else 1 / factor
        for memory in found:
            self.factors[memory] = times * self.factors.get(memory, 1.0)
        if self.scale != 1 and is_over(times, self.scale):
            self.divided = op.place

    def factor_of(self, gradient: Any) -> float:
        """What lines of this step have multiplied a gradient by, in place."""
        return self.factors.get(_memory(gradient), 1.0)

    def _comes_in(self, op: Op, tensor: Any, writer: Optional[Op]) -> None:
        """An operation reads what is not finite: of an argument of the model, or of the targets?"""
        made = writer is not None and (writer.module is not None or writer.stage != "forward")
        if op.stage == "forward" and not made and _memory(tensor) not in self._parameters:
            self.inputs.read(tensor)

    def _goes_on(self, op: Op, args: tuple) -> None:
        """An operation of the forward pass has read what is not finite."""
        if op.state == GOOD:
            if "quotient" in op.traits:  # elsewhere the limit may be what was meant: exp(-inf), tanh(inf)
                self._absorbed.append(op)
        elif "softmax" in op.traits and not self.hidden:
            self.hidden = _hidden_rows(*args[:2])

    def _here(self) -> str:
        """The label of an operation that is not kept."""
        op = Op()
        op.place, op.module, op.leaf, _, _, op.function = self._frames.now()
        op.type = ""
        return self._label(op)

    def facts(self) -> list:
        """Name, value and place of what was found in the arithmetic since looking began."""
        found = (self.rounding, self.whole, self.targets, self.constants, self.order)
        return [fact for one in found for fact in one.facts()]

    def _place(self, op: Op, update: bool) -> None:
        """Forward or backward pass; of the latter, of which operation it is a part."""
        node = self.torch._C._current_autograd_node()
        if node is None:
            op.stage = "update" if update else "forward"
            self._sequence.setdefault(self.torch.autograd._get_sequence_nr() - 1, op)
            return
        op.stage = "backward"
        forward = self._sequence.get(node._sequence_nr())
        if forward is not None and not op.function:  # else it has a line of its own
            op.forward, op.place, op.module, op.leaf = forward, forward.place, forward.module, forward.leaf

    def _state(self, op: Op, results: list, masked: bool) -> int:
        if "empty" in op.name or _origin.finite(results):  # memory that nobody has written yet
            return GOOD
        mask = not op.bad and _origin.sound(results) and (masked or op.name in _kinds.MASKS)
        return MASKED if mask else BAD

    def _explain(
        self, op: Op, function: Any, args: tuple, kwargs: dict, inputs: list, results: list, changed: bool
    ) -> None:
        """The event of an operation that made what is not finite."""
        wide = None if changed else _in_double(function, args, kwargs, self.torch)
        scale = self.scale if op.stage == "backward" else 1.0
        bad = [t for t in results if not _origin.finite([t])]
        by = "op"
        if op.name == "_to_copy":
            by = "weight_cast" if inputs and _memory(inputs[0]) in self._parameters else "cast"
        op.rows = _rows(function, results)
        op.event = _origin.event_of(
            bad,
            _origin.cause_of(bad, wide, scale, self.torch),
            by=by,
            tensor="out",
            read_largest=None if changed else _origin.largest(inputs),
            ran_again=False,
            **{"pass": op.stage},
        )
        if op.event["cause"]["id"] == "mathematics":
            op.event["singular_at"] = _origin.offending(bad, inputs)

    # -- what the loop tells -------------------------------------------------------------------------

    def tell_loss(self, tensors: Any) -> None:
        """What is differentiated."""
        for tensor in tensors_in(tensors, self.torch):
            writer, state = self._read(tensor.detach())
            self.constants.differentiated(writer)
            if state != GOOD and self.loss is None:
                self.loss = writer
            elif writer is not None:
                self.differentiated.append(writer)

    def tell_last_number(self) -> bool:
        """Takes the last single number that is not finite for the loss; whether there is one."""
        numbers = [op for op in self.ops if op.single and op.state != GOOD and op.stage == "forward"]
        self.loss = numbers[-1] if numbers else None
        return self.loss is not None

    def tell_gradients(self, gradients: list) -> None:
        """The gradients of the step, before they are unscaled or clipped."""
        if self.loss is not None or self.gradients:
            return
        for gradient in gradients:
            if type(gradient) is self.torch.Tensor and not gradient.is_sparse:
                writer, state = self._read(gradient.detach())
                if state != GOOD and writer is not None:
                    self.gradients.append(writer)

    def origin(self) -> Optional[dict]:
        """The event of the step, with its graph; None: everything that was told is finite, and no infinity
        became a number again on the way to the loss."""
        told = [self.loss] if self.loss is not None else self.gradients
        roots = self._roots(told) if told else self._silent_roots()
        if not roots:
            return None
        root = min(roots, key=lambda op: op.index)
        return self._event(root)

    def _roots(self, told: list) -> list:
        """Operations whose results are not finite though what they read is, or whose input nobody wrote."""
        seen, left, roots = set(), list(told), []
        while left:
            op = left.pop()
            if op.index in seen:
                continue
            seen.add(op.index)
            known = [other for other in op.bad if other is not None]
            left += known
            if len(known) < len(op.bad) or not op.bad:
                roots.append(op)
        return roots

    def _silent_roots(self) -> list:
        """Operations that passed a half format's range although the loss is finite: what was divided by
        their result is 0. Of those only that the loss was made from, in this step."""
        if not self._absorbed:
            return []
        ends, seen = {op.index for op in self._absorbed}, set()
        found, left = [], list(self.differentiated)
        while left:
            op = left.pop()
            if op.index in seen or op.index < self._first:
                continue
            seen.add(op.index)
            left += op.reads
            if op.index in ends:
                found.append(op)
        return [op for op in self._roots(found) if _passed_range(op)]

    def _event(self, op: Op) -> dict:
        made = op.forward or op
        event = op.event or _nothing(op, op.poison or "cannot_tell")
        head = {"op": self._label(made), "type": made.type, "place": op.place}
        if op.index < self._training():
            self._before = op
        rows = {"rows": op.rows, "hidden": self.hidden}
        return {**event, **head, **rows, "graph": self._graph(made, event["cause"]["id"])}

    def once(self) -> Optional[str]:
        """The name of what was not finite before the first step, if no step makes it again."""
        op, self._before = self._before, None
        if op is None or any(o.place == op.place and o.type == op.type for o in self.ops[self._training() :]):
            return None
        return self._label(op)

    def _training(self) -> int:
        """The first operation of a module; what comes before it prepares."""
        return len(self.ops) if self._trained is None else self._trained

    # -- the graph round an origin -------------------------------------------------------------------

    def _label(self, op: Op) -> str:
        if op.function:
            return f"{op.place} in {op.function}"
        name = self._names.get(id(op.module), "") if op.module is not None else ""
        if op.leaf and name:
            return name
        return f"{op.place} in {name}" if name and op.place else op.place or name or op.type

    def _near(self, op: Op, cause: str) -> list[Op]:
        """The operation, and those that it reads or that read it, a few edges away."""
        found, edge = {op.index: op}, [op]
        ends = _ENDS_OF_ZERO if cause == "mathematics" else _ENDS
        for _ in range(_FARTHEST):
            edge = [
                other
                for one in edge
                if one is op or not ends & set(one.traits)
                for other in one.reads
                if other.index not in found and other.stage == "forward" and not other.fills
            ]
            found.update((other.index, other) for other in edge)
        most = len(found) + _MOST_NODES
        forward = {op.index}
        for other in self.ops[op.index + 1 : op.index + _MOST_LATER]:
            if len(found) >= most or other.stage != "forward":
                break
            if any(read.index in forward for read in other.reads):
                found[other.index] = other
                if not _ENDS & set(other.traits):
                    forward.add(other.index)
        return sorted(found.values(), key=lambda one: one.index)

    def _graph(self, op: Op, cause: str) -> list[dict]:
        """That as the record's graph, in the order in which it ran."""
        near, names, taken = self._near(op, cause), {}, {self._label(op)}
        for one in near:
            label = self._label(one) if one is op else f"{self._label(one)} {one.type}"
            name, number = label, 1
            while one is not op and name in taken:
                number += 1
                name = f"{label} {number}"
            taken.add(name)
            names[one.index] = name
        return [
            {
                "op": names[one.index],
                "type": one.type,
                "inputs": [names[read.index] for read in one.reads if read.index in names],
                "traits": list(one.traits),
            }
            for one in near
        ]


def _number(value: Any) -> Optional[float]:
    """A number, or the only value of a tensor."""
    if isinstance(value, (int, float)):
        return float(value)
    return float(value) if hasattr(value, "numel") and value.numel() == 1 else None


def _hidden_rows(scores: Any, dim: int) -> int:
    """Rows of what a softmax reads that hold nothing but -inf."""
    return int((scores.detach() == float("-inf")).all(dim=dim).sum()) if scores.dim() else 0


def _passed_range(op: Op) -> bool:
    """It read finite values and wrote an infinity that double would have held, in a half format."""
    event = op.event
    return (
        event is not None
        and op.stage == "forward"
        and "exponential" not in op.traits  # 1 / (1 + exp(x))
        and event["cause"]["id"] == "range_overflow"
        and event["format"] in ("fp16", "bf16")
    )


def _nothing(op: Op, cause: str) -> dict:
    """An event of an operation that was not computed again."""
    empty = {"samples": 0, "value": None, "unscaled": None, "partial": None, "limit": None}
    return {
        **_origin.event_of([], {"id": cause, **empty}, format="fp32"),
        **{"by": "op", "tensor": None, "read_largest": None, "ran_again": False, "pass": op.stage},
    }


def _mode(looker: Looker) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        """Hands every operation to a Looker. What that does wrong ends the looking, and nothing else."""

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if not looker.on or os.getpid() != looker.pid:
                return function(*args, **kwargs)
            started = perf_counter()
            read: Any = None
            try:
                read = looker.begins_op(function, args, kwargs)
            except Exception as error:
                looker.fail(error)
            looker.spent += perf_counter() - started
            outputs = function(*args, **kwargs)
            started = perf_counter()
            try:
                if read is not None:
                    looker.ends_op(function, args, kwargs, outputs, *read)
            except Exception as error:
                looker.fail(error)
            looker.spent += perf_counter() - started
            return outputs

    return Mode()
