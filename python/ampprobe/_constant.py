"""What the best constant prediction would cost, beside what the model's predictions cost, in looked-at steps.

A loss that fell may have fallen to what a prediction costs that knows no sample: the entropy of the labels,
the variance of the targets. Looks at the cross entropies, binary cross entropies and mean squared errors that
are differentiated, and compares them with a constant that is made from the targets of the *other* looked-at
micro-batches, so that it is no better than the best constant of all. Of a sum of several losses that one is
told that is most surely better than its constant. Says nothing where a run differentiates losses of several
lines, or others; of weighted losses; and of targets that are all alike, which is a game's between networks
(of more than two classes: the constant is then a uniform prediction).
"""

from __future__ import annotations

import math
from typing import Any, Iterator, Optional

_MOST = 1 << 20  # elements of a loss that are compared
_LAST = 3  # steps whose predictions are compared
_SAME = ("mean", "sum", "neg", "_to_copy", "clone")  # of one loss
_SCALED = ("mul", "div")
_SUMS = ("add", "stack", "cat")  # of several losses
_PRODUCTS = ("mm", "bmm")
_LAYOUTS = ("t", "transpose", "permute", "view", "_unsafe_view", "squeeze", "unsqueeze", "clone", "_to_copy")
_SCALINGS = ("_log_softmax", "mul", "div", "sub", "add", "clamp")
_CLASSES = ("nll_loss_forward", "nll_loss2d_forward")
_BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
_SQUARES = ("pow", "square", "mul")


class Batch:
    """Targets of one micro-batch at one loss, and what the model's predictions of them cost."""

    def __init__(self, step: int, kind: str, place: str, costs: Any, targets: Any, classes: int):
        self.step, self.kind, self.place, self.term, self.size = step, kind, place, 0, math.nan
        self.costs, self.targets, self.classes = costs, targets, classes  # costs: one of each target row


class Constants:
    """Looks at losses on behalf of a Looker."""

    def __init__(self, torch: Any):
        self._torch = torch
        self._batches: list[Batch] = []
        self._others = False  # losses that are not looked at were differentiated
        self._alike: dict[str, list[int]] = {}  # line -> losses over similarities, those of one target
        self.begins(0)

    def begins(self, step: int) -> None:
        """A step begins."""
        self._step = step
        self._open: dict[int, tuple] = {}  # operation -> kind, prediction, target, of losses
        self._differences: dict[int, tuple] = {}  # operation -> prediction, target
        self._passed: set[int] = set()  # operations whose result is that loss, averaged or times a number

    def after(self, op: Any, args: tuple) -> None:
        """An operation has run."""
        if op.stage != "forward" or not self._torch.is_grad_enabled():
            return
        if op.name in _SQUARES and self._is_square(op, args):
            self._open[op.index] = ("square", *self._differences[op.reads[0].index])
        elif op.name in _SAME or (op.name in _SCALED and _is_number(args[1])) or op.name in _SUMS:
            self._passed.add(op.index)
        elif op.name == "sub" and len(args) == 2:
            self._difference(op, *args)
        elif op.name in _CLASSES and args[2] is None:
            self._keep(op, f"class {args[4]}", *args[:2])
            self._one_target(op, *args[:2])
        elif op.name == "mse_loss":
            self._keep(op, "square", *args[:2])
        elif op.name in _BINARY and all(weight is None for weight in args[2:4] if not _is_number(weight)):
            self._keep(op, "logits" if op.name.endswith("logits") else "shares", *args[:2])

    def _one_target(self, op: Any, logs: Any, target: Any) -> None:
        """Of a cross entropy over the similarities of two batches: whether all rows have the same target."""
        square = logs.dim() == 2 and logs.shape[0] == logs.shape[1] == target.numel() > 2
        if square and logs.requires_grad and _is_similarity(op):
            row = self._alike.setdefault(op.place, [0, 0])
            row[0] += 1
            row[1] += bool((target == target[0]).all())

    def _keep(self, op: Any, kind: str, prediction: Any, target: Any) -> None:
        if prediction.requires_grad and not target.requires_grad and prediction.numel() <= _MOST:
            self._open[op.index] = (kind, prediction.detach(), target.detach())

    def _difference(self, op: Any, one: Any, other: Any) -> None:
        tensor = self._torch.Tensor
        if not (isinstance(one, tensor) and isinstance(other, tensor)) or one.shape != other.shape:
            return
        if one.requires_grad != other.requires_grad and one.numel() <= _MOST:
            pair = (one, other) if one.requires_grad else (other, one)
            self._differences[op.index] = tuple(each.detach() for each in pair)

    def _is_square(self, op: Any, args: tuple) -> bool:
        if len(op.reads) != 1 or op.reads[0].index not in self._differences:
            return False
        return args[1] == 2 if op.name == "pow" else op.name == "square" or args[0] is args[1]

    def differentiated(self, op: Any) -> None:
        """A loss is differentiated; op wrote it."""
        left, terms = [op], 0
        while left:
            op = left.pop()
            if op is not None and op.index in self._passed and op.reads:
                left += op.reads[:1] if op.name in _SCALED else op.reads  # a factor may lie where another lay
                continue
            found = self._open.get(op.index) if op is not None else None
            batch = self._batch(op.label, *found) if found else None
            if batch is None:
                self._others = True
                return
            batch.term, terms = terms, terms + 1
            self._batches.append(batch)

    def _batch(self, place: str, kind: str, prediction: Any, target: Any) -> Optional[Batch]:
        """None: of a shape that is not understood, or without rows."""
        if kind.startswith("class"):
            return self._classes(place, int(kind.split()[1]), prediction, target)
        if prediction.dim() == 0 or prediction.shape != target.shape or not len(target):
            return None
        made, wanted = (t.double().reshape(len(t), -1) for t in (prediction, target))
        functional = self._torch.nn.functional
        if kind == "square":
            costs = (made - wanted) ** 2
        elif kind == "logits":
            costs = functional.binary_cross_entropy_with_logits(made, wanted, reduction="none")
        else:
            costs = functional.binary_cross_entropy(made, wanted, reduction="none")
        found = Batch(self._step, "square" if kind == "square" else "binary", place, costs.mean(1), wanted, 2)
        found.size = float(made.square().mean().sqrt() / wanted.square().mean().sqrt())
        return found

    def _classes(self, place: str, ignored: int, logs: Any, target: Any) -> Optional[Batch]:
        if logs.dim() < 2:
            return None
        rows, labels = logs.movedim(1, -1).reshape(-1, logs.shape[1]), target.reshape(-1)
        rows, labels = rows[labels != ignored], labels[labels != ignored]
        if not len(labels):
            return None
        costs = -rows.gather(1, labels[:, None])[:, 0].double()
        return Batch(self._step, "class", place, costs, labels, logs.shape[1])

    # -- what was found ------------------------------------------------------------------------------

    def facts(self) -> Iterator[tuple[str, float, str]]:
        """Name, value and place: losses whose rows all have one target; mean cost of the last steps'
        predictions, that of the constant, and the standard error of their difference."""
        for place, (times, alike) in self._alike.items():
            if times == alike:
                yield "one_target_for_all", times, place
        terms: dict[tuple, list] = {}
        for batch in self._batches:
            terms.setdefault((batch.kind, batch.place, batch.term, batch.classes), []).append(batch)
        if self._others or len({place for _, place, _, _ in terms}) != 1:
            return
        rows = [self._compared(batches) for batches in terms.values()]
        if any(row is None for row in rows):
            return
        own, constant, error = max(rows, key=lambda row: (row[1] - row[0]) / max(row[2], 1e-300))
        place = self._batches[0].place
        yield "loss_of_model", own, place
        yield "loss_of_constant", constant, place
        yield "loss_of_constant_error", error, place
        first = min(self._batches, key=lambda batch: batch.step)
        size = first.size if first.kind == "square" else float(first.costs.mean()) / constant
        if first.step == 0 and math.isfinite(size):
            yield "first_prediction", size, place

    def _compared(self, batches: list) -> Optional[tuple]:
        """Mean costs of the last steps' predictions of one loss and of the constant; standard error."""
        first = max(batch.step for batch in batches) - _LAST + 1
        rows = [(batch, self._constant(batch, batches)) for batch in batches if batch.step >= first]
        if any(costs is None for _, costs in rows):
            return None
        own = self._torch.cat([batch.costs for batch, _ in rows])
        constant = self._torch.cat([costs for _, costs in rows])
        error = float((own - constant).std()) / math.sqrt(len(own)) if len(own) > 1 else math.nan
        found = (float(own.mean()), float(constant.mean()), error)
        return found if all(map(math.isfinite, found)) else None

    def _constant(self, batch: Batch, batches: list) -> Any:
        """What each target of a micro-batch costs if it is predicted from those of the others."""
        rest = [one.targets for one in batches if one is not batch and _alike(one, batch)]
        others = self._torch.cat(rest or [batch.targets[:0]])
        if not len(others):
            return None
        if bool((others == others[0]).all()) and bool((batch.targets == others[0]).all()):
            uniform = batch.kind == "class" and batch.classes > 2
            return self._torch.full_like(batch.costs, math.log(batch.classes)) if uniform else None
        if batch.kind == "class":
            counts = self._torch.bincount(others, minlength=batch.classes).double() + 0.5
            return -(counts / counts.sum()).log()[batch.targets]
        if batch.kind == "square":
            return ((batch.targets - others.mean(0)) ** 2).mean(1)
        share = (others.sum(0) + 0.5) / (len(others) + 1)
        return -(batch.targets * share.log() + (1 - batch.targets) * (1 - share).log()).mean(1)


def _is_similarity(op: Any) -> bool:
    """The logits of this loss are products of two things that were made from samples, with no weight."""
    while op.reads:
        products = [read for read in op.reads if read.name in _PRODUCTS]
        if products:
            factors = products[0].reads
            return len(factors) == 2 and not any(_of_weights(factor) for factor in factors)
        following = [read for read in op.reads if read.name in (*_LAYOUTS, *_SCALINGS)]
        if len(following) != 1:
            return False
        op = following[0]
    return False


def _of_weights(op: Any) -> bool:
    """A weight, but for its layout."""
    while op.name in _LAYOUTS and len(op.reads) == 1 and not op.of_weights:
        op = op.reads[0]
    return op.of_weights and op.name in _LAYOUTS


def _alike(one: Batch, other: Batch) -> bool:
    return one.targets.shape[1:] == other.targets.shape[1:]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or getattr(value, "shape", None) == ()
