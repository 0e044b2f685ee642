"""Facts of a training loop that no tensor of a layer or a gradient shows, for `ampbench diagnose`.

Stated as probe.fact(name, value, place); docs/libampprobe.md lists the names. Looked for at the beginning and
in probed steps only; nothing of the user's is changed or kept.
"""

from __future__ import annotations

import math
import weakref
from typing import Any, Callable, Optional

from . import _layout, _loss

_MOST_CHANGED = 32
_MOST_VALUES = 1 << 16  # of an output
_SATURATED = 0.5  # outputs of a layer below it are not stated
_MOST_GROUPS = 16  # param_groups of an optimizer whose rates are stated
_MEAN = 1  # Reduction::Mean in the graph of a loss
_ROUNDING = 1e-3  # of factors such as 1/3 that are added up
_FEWEST = 8  # targets or rows of a micro-batch: fewer may be a weight of the loss by chance
_LOSSES = ("NllLoss", "MseLoss", "SmoothL1Loss", "HuberLoss", "BinaryCrossEntropy")


class Finder:
    """Looks for facts on behalf of one probe."""

    def __init__(self, probe: Any):
        self.probe = probe
        self.targets: list[tuple[float, float]] = []  # of this step's micro-batches: targets, factor
        self.means: list[Optional[float]] = []  # factors of mean losses, None: another loss
        self.sizes: list[set] = []  # numbers that each of them may be the mean over
        self.made: dict[int, tuple] = {}  # of a parameter: its gradient after the backward pass, its version
        self.dropped = 0  # micro-batches of this step whose gradients were thrown away
        self.looked = self.dropping = 0  # steps; those in which some were that the mean loss counts
        self.told: dict[tuple, float] = {}
        self.changed: set[int] = set()
        self.empty_steps = 0

    def _tell(self, name: str, value: float, place: str = "") -> None:
        """States a fact where it is new or larger than before."""
        if value > self.told.get((name, place), float("-inf")):
            self.told[(name, place)] = value
            self.probe.fact(name, value, place)

    # -- the run -------------------------------------------------------------------------------------

    def attached(self, optimizers: Any) -> None:
        """Whether the optimizers come from a checkpoint."""
        steps = [_steps_of(state) for optimizer in optimizers for _, state in optimizer.state.items()]
        if steps and max(steps) > 0:
            self._tell("resumed_steps", max(steps))

    def weights(self, group: Any) -> None:
        """Parameters that are in another dtype than when the optimizer was first seen."""
        for parameter, dtype in zip(group.parameters, group.dtypes):
            new = id(parameter) not in self.changed and len(self.changed) < _MOST_CHANGED
            if parameter.dtype is not dtype and new:
                self.changed.add(id(parameter))
                name = self.probe.parameter_name(parameter)
                self._tell("dtype_changed", parameter.element_size(), name)

    def rates(self, group: Any) -> None:
        """The rate that a schedule began from, and those of all param_groups but the first, whose rate every
        step has."""
        optimizer = group.optimizer()
        rows = optimizer.param_groups[:_MOST_GROUPS] if optimizer is not None else ()
        for index, row in enumerate(rows):
            place = f"{f'optimizer {group.index}, ' if group.index else ''}param_groups[{index}]"
            base, rate = _loss.scalar(row.get("initial_lr")), _loss.scalar(row.get("lr"))
            if base is not None:
                self._tell("base_learning_rate", base, place)
            if index and rate is not None:
                self.probe.fact("learning_rate", rate, place)

    # -- the loss ------------------------------------------------------------------------------------

    def loss(self, outputs: Any) -> None:
        """The loss of a micro-batch, before it is scaled: how many targets it is the mean of."""
        node = getattr(outputs, "grad_fn", None)
        mean, factor = _mean_loss(node)
        targets = _targets_of(mean)
        if targets is not None:
            self.targets.append((targets, factor))
        self.means.append(abs(factor) if mean is not None else None)
        self.sizes.append(_sizes_of(mean, targets))
        times = _loss.masked_mean(node)
        if times is not None:
            self.probe.fact("mean_over_masked", times)
        for function, lost in _loss.out_of_reach(node):
            self.probe.fact("targets_out_of_reach", lost, function)

    def forget(self) -> None:
        """What was seen of the losses of a step that was not made."""
        self.targets, self.means, self.sizes = [], [], []
        self.dropped, self.made = 0, {}

    def drops(self, take_loss: Callable[[], Any]) -> None:
        """The gradients of a micro-batch were thrown away, and the loop goes on without a step."""
        dropped = self.dropped
        self.forget()
        take_loss()
        self.dropped = dropped + 1

    def step_ends(self, micro_batches: int) -> None:
        """All micro-batches of the step were seen: whether their means had the same weight."""
        means, self.means = self.means, []
        sizes, self.sizes = self.sizes, []
        dropped, self.dropped, self.made = self.dropped, 0, {}
        if len(means) == micro_batches and None not in means:
            self._divided_again(means, sizes)
            self._dropped(sum(means) / micro_batches, micro_batches, dropped)
        if len(means) == micro_batches > 1 and None not in means and sum(means) > 1 + _ROUNDING:
            self._tell("sum_of_means", sum(means))
        targets, self.targets = self.targets, []
        if len(targets) < 2 or len(targets) != micro_batches:
            return
        counts = [count for count, _ in targets]
        if min(counts) > 0 and len({factor for _, factor in targets}) == 1 and max(counts) > min(counts):
            self._tell("targets_ratio", max(counts) / min(counts))

    def _dropped(self, factor: float, kept: int, dropped: int) -> None:
        """Of a step whose mean losses have this factor: whether it is a mean over all micro-batches, and some
        were thrown away. An attack, or a first pass for other weights, is no part of a mean."""
        self.looked += 1
        if dropped and abs(factor * (kept + dropped) - 1) < _ROUNDING:
            self.dropping += 1
        if self.dropping:
            self.probe.fact("micro_batches_dropped", self.dropping / self.looked)

    def _divided_again(self, means: list, sizes: list) -> None:
        """Whether mean losses were divided by the number of their targets, or of their rows, once more."""
        found = []
        for factor, known in zip(means, sizes):
            whole = 1 / factor if factor > 0 else 1.0  # what this mean is divided by
            of_step = whole / len(means)  # beside the number of micro-batches
            if abs(of_step - 1) < _ROUNDING:
                return
            found.append(next((n for n in known if min(abs(whole - n), abs(of_step - n)) < _ROUNDING * n), 0))
        if found and min(found) >= _FEWEST:
            self._tell("mean_divided_again", min(found))

    # -- layers --------------------------------------------------------------------------------------

    def layer(self, name: str, module: Any, inputs: list, outputs: list, torch: Any) -> None:
        """A module of a probed step has returned; tensors that it read and wrote."""
        if isinstance(module, torch.nn.MultiheadAttention):
            self._masked(name, module, inputs, outputs)
        if isinstance(module, (torch.nn.Tanh, torch.nn.Sigmoid)) and outputs and outputs[0].numel():
            self._saturated(name, outputs[0], isinstance(module, torch.nn.Sigmoid))
        for label, buffer in module.named_buffers(recurse=False):
            if "freq" in label and buffer.dtype in (torch.float16, torch.bfloat16) and buffer.numel():
                self._angles(name, _layout.local(buffer), inputs, outputs)

    def _saturated(self, name: str, output: Any, sigmoid: bool) -> None:
        """By how much the mean derivative of a function that saturates is below its largest one."""
        values = output.detach().float().flatten()[:_MOST_VALUES]
        values = 2 * values - 1 if sigmoid else values
        lost = float(values.square().mean())  # 1 - tanh^2, and 4 s (1 - s) of s = (1 + tanh) / 2
        if lost > _SATURATED or ("saturated", name) in self.told:
            self.told[("saturated", name)] = lost
            self.probe.fact("saturated", lost, name)

    def _masked(self, name: str, module: Any, inputs: list, outputs: list) -> None:
        read = [tensor for tensor in inputs if tensor.is_floating_point()]
        read += [_layout.local(parameter) for parameter in module.parameters()]
        masks = [t for t in inputs if not t.is_floating_point() or bool((t == float("-inf")).any())]
        read = [tensor for tensor in read if not any(tensor is mask for mask in masks)]
        if outputs and masks and all(bool(tensor.isfinite().all()) for tensor in read):
            rows = int(outputs[0].isnan().any(dim=-1).sum())
            if rows:
                self._tell("masked_rows", rows, name)

    def _angles(self, name: str, frequencies: Any, inputs: list, outputs: list) -> None:
        whole = [t for t in inputs if not t.is_floating_point() and not t.is_complex() and t.numel()]
        if whole:
            last = max(int(tensor.max()) for tensor in whole)
        else:
            last = max((tensor.shape[-2] for tensor in outputs if tensor.dim() > 1), default=1) - 1
        self._tell("angles_in_half", last * float(frequencies.detach().float().abs().max()), name)

    def made_before(self, name: str) -> None:
        """What made the first non-finite value ran before the training."""
        self._tell("made_before_training", 1, name)

    def nonfinite_input(self, place: str, rows: int, of: int) -> None:
        """Rows of an argument of the model, or of a loss's targets, that hold a NaN or inf."""
        self._tell("nonfinite_inputs", rows / max(of, 1), place)
        self._tell("nonfinite_input_rows", rows, place)

    def unscaled_by_hand(self, scale: float, place: str) -> None:
        """A line divides gradients by the scale, and the scaler does it again."""
        self._tell("unscaled_by_hand", scale, place)

    def singular(self, name: str, value: float) -> None:
        """What an operation read where it has no finite value."""
        if ("singular_at", name) not in self.told:
            self._tell("singular_at", value, name)

    def left_scaled(self, scale: float, place: str) -> None:
        """An optimizer steps with gradients of a scaled loss that nobody divided by that scale."""
        self._tell("gradients_left_scaled", scale, place)

    def penalty_left_scaled(self, scale: float) -> None:
        """A penalty is made of gradients of a scaled loss that nobody divided by that scale."""
        self._tell("penalty_left_scaled", scale)

    def gradients_made(self, parameters: list) -> None:
        """A backward pass has ended: what it made."""
        for parameter in parameters if None not in self.means and sum(self.means) > 1 + _ROUNDING else ():
            gradient = getattr(parameter, "grad", None)
            if gradient is not None:
                self.made[id(parameter)] = (weakref.ref(gradient), gradient._version)

    def steps(self, parameters: list) -> None:
        """An optimizer steps without a scaler: by which number its loss was multiplied, if these are the
        gradients as the backward pass left them, and no hook has changed them before; or if only some are,
        and all others were divided by that number."""
        times = sum(self.means) if self.means and None not in self.means else 0.0
        if not times > 1 + _ROUNDING:
            return
        left, others = [], []
        for parameter in (p for p in parameters if p.grad is not None):
            (left if self._is_as_made(parameter) else others).append(parameter)
        if not others:
            self._tell("loss_multiplied", times)
        elif left and all(self.probe.look.divides(p.grad, times) for p in others):
            self._tell("loss_divided_in_part", times, self.probe.parameter_name(left[0]))

    def _is_as_made(self, parameter: Any) -> bool:
        made, version = self.made.get(id(parameter), (lambda: None, 0))
        hooks = parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)
        return parameter.grad is made() and parameter.grad._version == version and not hooks

    def without_gradients(self) -> None:
        """An optimizer steps, and its gradients were thrown away after the backward pass."""
        self.empty_steps += 1
        self._tell("steps_without_gradients", self.empty_steps)

    def whole_numbers(self, name: str, largest: float) -> None:
        """A layer reads whole numbers in half, beyond those that it tells apart."""
        self._tell("whole_numbers_in_half", largest, name)

    def hidden(self, name: str, rows: int) -> None:
        """A softmax read rows of nothing but -inf, in a step whose first non-finite value this one made."""
        self._tell("hidden_rows", rows, name)

    def kept_gradients(self, kept: int, looked: int) -> None:
        """Steps that added their gradients to those of the step before, of those that were looked at."""
        if kept:
            self.probe.fact("gradients_not_cleared", kept / looked)

    def origin(self, event: dict) -> None:
        """The first operation of a step that made a non-finite value: a softmax of nothing but -inf?"""
        kind = event["type"] or ""
        softmax = "softmax" in kind or "attention" in kind
        if softmax and event["cause"]["id"] == "mathematics" and event.get("rows"):
            self._tell("masked_rows", event["rows"], event["op"])


def _steps_of(state: Any) -> float:
    step = state.get("step") if isinstance(state, dict) else None
    if step is None:
        return 1.0 if isinstance(state, dict) and state else 0.0  # a momentum buffer and no count
    return float(step)


def _mean_loss(node: Any) -> tuple[Any, float]:
    """The node of the mean loss and what that was multiplied by; no node: it is no such loss."""
    node, factor = _loss.multiplied(node)
    mean = node is not None and node.name().startswith(_LOSSES)
    return (node if mean and getattr(node, "_saved_reduction", None) == _MEAN else None), factor


def _sizes_of(mean: Any, targets: Optional[float]) -> set:
    """The numbers that a mean may be over, without a look at what its node keeps: its targets, its rows."""
    inputs = mean.next_functions[0][0] if mean is not None and mean.next_functions else None
    known = getattr(inputs, "_input_metadata", None)
    if not known:
        return {targets} - {None}
    shape = tuple(known[0].shape)
    return {targets if targets is not None else math.prod(shape), *shape[:1]}


def _targets_of(mean: Any) -> Optional[float]:
    """Targets that the mean is over, where its node keeps their number and they have one weight."""
    if mean is None or not mean.name().startswith("NllLoss") or mean._saved_weight is not None:
        return None
    return float(mean._saved_total_weight)
