"""The first non-finite value of a step: what is known of it, as an event of the record's schema and in words.

`watcher` of _replay finds the operation itself, given a closure. `First` finds the layer, without one, from
what layer B's hooks see: the first module in the forward pass whose output is not finite though its inputs
are; else, in the backward pass, the last gradient of an output that was finite before one that is not.
"""

from __future__ import annotations

import math
from typing import Any, Optional

from . import _layout


def readable(tensor: Any) -> Any:
    """The tensor, or its values in fp32: torch has no comparisons of formats of one byte."""
    return tensor if tensor.element_size() > 1 else tensor.float()


def largest(tensors: list) -> Optional[float]:
    """The largest finite magnitude; None: there is none."""
    tensors = [readable(t) for t in tensors]
    values = [t.detach()[t.isfinite()].abs() for t in tensors if t.numel()]  # a mask has -inf
    return max((value.amax().item() for value in values if value.numel()), default=None)


def finite(tensors: list) -> bool:
    """No NaN and no inf."""
    return all(bool(readable(t).isfinite().all()) for t in tensors)


def sound(tensors: list) -> bool:
    """No NaN and no +inf; -inf is what a mask has."""
    tensors = [readable(t) for t in tensors]
    return all(not bool((t.isnan() | (t == float("inf"))).any()) for t in tensors)


def cause_of(outputs: list, wide: Optional[list], scale: float, torch: Any) -> dict:
    """The `cause` of an origin event of the record's schema: what the same operation gives in double."""
    limit = min(torch.finfo(t.dtype).max for t in outputs)
    cause: dict[str, Any] = {
        "id": "cannot_tell",
        "samples": 0,
        "value": None,
        "unscaled": None,
        "partial": None,
        "limit": limit,
    }
    if wide is None:
        return cause
    cause["samples"] = sum(t.numel() for t in wide)
    if not finite(wide):
        return {**cause, "id": "mathematics"}
    value = largest(wide) or 0.0
    cause.update(value=value, unscaled=value / scale)
    if value <= limit:
        return {**cause, "id": "not_reproduced"}
    return {**cause, "id": "scale_induced" if value / scale <= limit else "range_overflow"}


def offending(results: list, inputs: list) -> Optional[float]:
    """What an operation read where its first value that is not finite is: the one nearest to 0."""
    for result in results:
        index = tuple((~readable(result.detach()).isfinite()).nonzero()[0].tolist())
        found = []
        for tensor in inputs:
            try:
                found.append(float(tensor.detach().expand(result.shape)[index]))
            except RuntimeError:  # of another shape: a reduction
                continue
        finite_ones = [value for value in found if math.isfinite(value)]
        if finite_ones:
            return min(finite_ones, key=abs)
    return None


LOSS = "loss"  # what comes after the last layer
MOST_ORIGINS = 8  # steps that are run again, and places that are kept

_CAUSES = {
    "cannot_tell": "it was not computed in double",
    "bad_weights": "its parameters are not finite",
    "mathematics": "in double it is not finite either: the operation is singular at these inputs",
    "poisoned_input": "it read values that are not finite, which no operation that was looked at had made",
    "not_reproduced": "in double it is in range",
}


_HOW = "for the operation itself run the step in `with probe.step(closure):`"


def in_words(event: dict) -> str:
    """An origin event as a line."""
    cause = event["cause"]
    text = _CAUSES.get(cause["id"]) or f"in double the largest is {cause['value']:.4g}"
    kind = f"{event['type']} in " if event["type"] else ""
    read, place, limit = event["read_largest"], event.get("place", ""), cause["limit"]
    at = f" at {place}" if place and place not in event["op"] else ""
    return (
        f"first non-finite value: {kind}{event['op']}{at}, {event['pass']} pass, {event['format']}; "
        + (f"its inputs reach {read:.4g}; " if read is not None else "")
        + text
        + (f", the format ends at {limit:.4g}" if limit is not None else "")
        + ("" if event["ran_again"] or place else f"; {_HOW}")
    )


def is_same(one: dict, other: dict) -> bool:
    """Whether two events are of one operation; a hook knows the layer's class in its place."""
    if (one["op"], one["pass"]) != (other["op"], other["pass"]):
        return False
    return one["type"] == other["type"] or ("place" in one) != ("place" in other)


def outside_in_words(layer: str) -> str:
    """No layer made what `layer` read."""
    return (
        f"first non-finite value: {layer} read it, and no layer before it had made it: "
        f"the data are not finite, or an operation outside the modules made it; {_HOW}"
    )


FORMATS = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float64": "fp64",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
}


def format_of(dtype: Any) -> str:
    """The record's name of a dtype."""
    return FORMATS.get(str(dtype).rsplit(".", 1)[-1], "fp32")


def event_of(results: list, cause: dict, **facts: Any) -> dict:
    """An origin event; `facts` are op, type, pass, by, tensor, read_largest and ran_again."""
    return {
        "last_step": 0,
        "times": 1,
        "loss_scale": None,
        "expected": False,
        "format": format_of(results[0].dtype) if results else "fp32",
        "count": sum(t.numel() for t in results),
        "infinite": sum(int(readable(t).isinf().sum()) for t in results),
        "nan": sum(int(readable(t).isnan().sum()) for t in results),
        "cause": cause,
        "history": [],
        "crossing_step": None,
        "flow": [],
        "appeared": 1,
        "propagated": 0,
        "vanished": 0,
        **facts,
    }


_MOST_PRODUCTS = 1 << 26  # what a layer is computed in double with at most, once


def _in_double(module: Any, inputs: list, results: list, torch: Any) -> Optional[list]:
    """A linear or convolution layer in double: a function of inputs and parameters that changes nothing."""
    nn = torch.nn
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    if type(module) not in kinds or len(inputs) != 1:
        return None
    weight, bias = module.weight, module.bias
    if hasattr(weight, "to_local"):  # a part of it gives a part of the result
        return None
    if results[0].numel() * (weight.numel() // max(weight.shape[0], 1)) > _MOST_PRODUCTS:
        return None
    with torch.no_grad(), torch.autocast(results[0].device.type, enabled=False):
        bias = None if bias is None else bias.double()
        if type(module) is nn.Linear:
            return [nn.functional.linear(inputs[0].double(), weight.double(), bias)]
        return [module._conv_forward(inputs[0].double(), weight.double(), bias)]


def _made_by(module: Any, inputs: list, results: list, torch: Any) -> tuple[str, dict, Optional[float]]:
    """How a layer made a non-finite output: `by` and `cause` of the event, and the largest of its inputs."""
    size, unknown = largest(inputs), cause_of(results, None, 1.0, torch)
    weights = [_layout.local(p.detach()) for p in module.parameters() if p.is_floating_point()]
    if not finite(weights):
        return "op", {**unknown, "id": "bad_weights"}, size
    for by, value in (("cast", size), ("weight_cast", largest(weights))):
        if value is not None and value > unknown["limit"]:  # a cast is the same in double
            return by, {**unknown, "id": "range_overflow", "value": value, "unscaled": value}, size
    try:
        cause = cause_of(results, _in_double(module, inputs, results, torch), 1.0, torch)
    except Exception:  # a weight of a kind that nobody foresaw
        return "op", unknown, size
    return "op", unknown if cause["id"] == "not_reproduced" else cause, size  # how it was summed is not known


class First:
    """The first non-finite value that the hooks of one step see."""

    def __init__(self) -> None:
        self.event: Optional[dict] = None
        self.outside: Optional[str] = None  # a layer that read what no layer before it had made
        self.finite = ""  # the layer whose output's gradient came last
        self.kind: Optional[str] = None
        self.order: list[str] = []  # layers as they fired

    @property
    def known(self) -> bool:
        """Whether there is nothing more to find in this step."""
        return self.event is not None or self.outside is not None

    def forward(self, name: str, module: Any, inputs: list, results: list, torch: Any) -> None:
        """The output of a layer is the first that is not finite."""
        if self.known or not results or (sound(results) and not any(True for _ in module.parameters())):
            return  # a module without parameters that writes -inf makes a mask
        written = {t.data_ptr() for t in results}
        inputs = [t for t in inputs if t.data_ptr() not in written]  # in place: what was read is gone
        if not sound(inputs):
            self.outside = name
            return
        by, cause, size = _made_by(module, inputs, results, torch)
        facts = {"op": name, "type": type(module).__name__, "pass": "forward", "by": by, "tensor": "out"}
        self.event = event_of(results, cause, read_largest=size, ran_again=False, **facts)

    def fires(self, name: str) -> None:
        """A layer's forward pass has returned."""
        self.order.append(name)
        self.finite = ""  # the next gradient is the first of a backward pass

    def gradient(self, name: str, kind: str, gradient: Any, nonfinite: bool, torch: Any) -> None:
        """The gradient of a layer's output, in the order of the backward pass."""
        if self.known:
            return
        if not nonfinite:
            self.finite, self.kind = name, kind
            return
        tensor = "in0.grad" if self.finite else None
        self._keep(
            [gradient], torch, self.finite or LOSS, self.kind if self.finite else None, "backward", tensor
        )

    def parameters(self, rows: list, torch: Any) -> None:
        """Where every output's gradient was finite. `rows` are of parameters that overflowed: layer, class,
        last part of the name, gradient. The backward pass meets the layer that fired last first."""
        place = {name: index for index, name in enumerate(self.order)}
        rows = [row for row in rows if row[0] in place]
        if self.known or not rows:
            return
        layer, kind, part, gradient = max(rows, key=lambda row: place[row[0]])
        self._keep([gradient], torch, layer, kind, "backward", f"{part}.grad")

    def loss(self, loss: Any, torch: Any) -> None:
        """The loss is not finite: no layer's output was to blame, so what computes it from them is."""
        if not self.known or (self.event is not None and self.event["op"] == LOSS):
            self._keep([loss], torch, LOSS, None, "forward", None)

    def _keep(self, values: list, torch: Any, op: str, kind: Any, stage: str, tensor: Any) -> None:
        cause = cause_of(values, None, 1.0, torch)
        facts = {"op": op, "type": kind, "pass": stage, "by": "op", "tensor": tensor}
        self.event = event_of(values, cause, read_largest=None, ran_again=False, **facts)
