"""What rounding loses in the operations of looked-at steps: increments of sums, averages, counters, states
and running statistics that are kept in a half format, sums that leave its range, and what casts to a format
of one byte, or of gradients to fp16 in a function's own backward(), overflow or flush.

A sum is an addition that reads what the same line wrote before, in place or through operations between. Its
increment is lost where the result is what was there before, although in double it is another number. Sums
that compensate (Kahan) are left out, and those of torch's own optimizers, whose states are shown elsewhere.
"""

from __future__ import annotations

import copy
import weakref
from typing import Any, Iterator, Optional

from . import _products
from ._formats import BITS, bits_of

_BYTES = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
ELEMENTWISE = ("add", "sub", "rsub", "mul", "div", "neg", "_to_copy", "clone", "copy", "lerp", "addcmul",
               "addcdiv", "detach", "pow", "square", "sqrt", "cat", "stack", "lift_fresh", "reciprocal",
               "scale")  # fmt: skip
_SUMS = ("add", "sub", "lerp", "addcmul", "copy")
_WITHIN = ("index_add", "scatter_add", "cumsum", "scatter_reduce")
_NORMS = ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update")
_DEEPEST = 6  # operations between an addition and the one before it
_MOST = 1 << 20  # elements of a tensor that are compared
_SHORT = 0.1  # relative distance at which an average may stop and be sound
_OFF = 0.5  # standard deviations between a running mean and the batch's


class Sum:
    """What was seen of the additions of one line."""

    def __init__(self) -> None:
        self.moved = self.lost = self.error = 0.0  # of the increments in double
        self.beyond = 0.0  # the first sum that the format does not hold, in double
        self.decay = [0.0, 0.0]  # of the decays of an average: all, lost
        self.elements = self.flushed = 0
        self.whole, self.compensated = True, False
        self.bits = 0
        self.rate: Optional[float] = None  # of an average

    def add(self, base: Any, exact: Any, out: Any) -> None:
        """One addition: before, as it is in double, after."""
        step = exact - base
        keep = step.isfinite() & out.isfinite()
        if not self.beyond and bool((step.isfinite() & ~out.isfinite()).any()):
            self.beyond = float(exact[step.isfinite() & ~out.isfinite()].abs().max())
        base, exact, out, step = base[keep], exact[keep], out[keep], step[keep].abs()
        self.moved += float(step.sum())
        self.lost += float(step[out == base].sum())
        self.error += float((out - exact).abs().sum())
        self.elements += int((step > 0).sum())
        self.flushed += int(((step > 0) & (out == 0) & (base == 0)).sum())
        self.whole &= bool((base == base.round()).all()) and bool((exact == exact.round()).all())

    def share(self) -> float:
        """Of the increments, by their size, that were lost; of whole numbers what they are off by."""
        rows = [(self.moved, self.error if self.whole else self.lost), self.decay]
        return max(min(1.0, part / moved) if moved > 0 else 0.0 for moved, part in rows)


class Rounding:
    """Looks at the arithmetic of operations on behalf of a Looker."""

    def __init__(self, torch: Any, parameters: set):
        self._torch, self._parameters = torch, parameters
        self.shapes: set = set()  # of parameters
        self._prepared: tuple[dict, dict] = ({}, {})
        self.products = _products.Products(torch)
        self.forget()

    def forget(self) -> None:
        """What was seen so far is no more of interest, but for what prepared the training: looking begins
        again."""
        sums, facts = self._prepared
        self._sums: dict[tuple, Sum] = {key: copy.copy(seen) for key, seen in sums.items()}
        self._results: dict[int, Any] = {}  # operation -> its result, for the next visit of the line
        self._facts: dict[tuple, list] = {key: list(row) for key, row in facts.items()}  # part, all
        self.products.forget()

    def prepared(self) -> None:
        """Training begins: a table that was made before is not made again."""
        self._prepared = (
            {key: copy.copy(seen) for key, seen in self._sums.items()},
            {key: list(row) for key, row in self._facts.items()},
        )
        self.products.prepared()

    # -- before and after an operation ---------------------------------------------------------------

    def before(self, name: str, args: tuple) -> Any:
        """What an operation is about to write over."""
        if name in _NORMS and len(args) > 5 and args[3] is not None:
            return [args[3].detach().double(), args[4].detach().double()]
        plain = name.removeprefix("_foreach_")
        if plain not in (*_SUMS, "mul") and name not in _WITHIN:
            return None
        first = args[0] if args else None
        rows = first if isinstance(first, (list, tuple)) else [first]
        return [self._copy(row) for row in rows]

    def _copy(self, tensor: Any) -> Any:
        if not bits_of(tensor) or tensor.numel() > _MOST or type(tensor) is not self._plain(tensor):
            return None
        return tensor.detach().double()

    def _plain(self, tensor: Any) -> Any:
        parameter = self._torch.nn.Parameter
        return parameter if type(tensor) is parameter else self._torch.Tensor

    def after(self, op: Any, before: Any, args: tuple, kwargs: dict, outputs: Any) -> None:
        """An operation has run: what it read was written by op.reads."""
        self._tag(op, args)
        self.products.after(op, args, outputs)
        if op.name == "_to_copy":
            self._narrowed(op, args[0], outputs)
        elif op.name in _NORMS and before is not None:
            self._statistics(op, before, args)
        elif before is None or op.stage == "backward" or op.library:
            return
        elif op.name in _WITHIN:
            self._within(op, before[0], args, kwargs, outputs)
        elif op.name.startswith("_foreach_"):
            self._each(op, before, args, kwargs, outputs)
        else:
            self._one(op, op.name, before[0], args, kwargs, outputs)
        if op.name == "sub":
            self._compensation(op)

    def _tag(self, op: Any, args: tuple) -> None:
        """From what it was made element by element: weights, gradients; and the factor of a product."""
        if op.stage == "backward":
            op.tags = {"gradient"}
            return
        if op.name.removeprefix("_foreach_") not in ELEMENTWISE:
            return
        if not op.writes_weights:
            op.tags = set().union(*(read.tags for read in op.reads))
        if op.of_weights:
            op.tags.add("weight")
        if "gradient" in op.tags and _squares(op.name, args):
            op.tags.add("square")
        if op.name.endswith("mul"):
            op.factor = next((float(a) for a in args if isinstance(a, (int, float))), None)

    # -- sums ----------------------------------------------------------------------------------------

    def _each(self, op: Any, before: list, args: tuple, kwargs: dict, outputs: Any) -> None:
        name = op.name.removeprefix("_foreach_")
        for index, base in enumerate(before):
            own = tuple(a[index] if isinstance(a, (list, tuple)) else a for a in args)
            result = outputs[index] if isinstance(outputs, (list, tuple)) else own[0]
            self._one(op, name, base, own, kwargs, result)

    def _one(self, op: Any, name: str, base: Any, args: tuple, kwargs: dict, out: Any) -> None:
        if name == "mul":
            if op.factor is not None and 0.5 < op.factor < 1 and base is not None and bits_of(out):
                now, lost = args[0].detach().double(), (1 - op.factor) * base.abs()
                op.decays.append((float(lost.sum()), float(lost[now == base].sum())))
            return
        if not op.place or not bits_of(out) or out.numel() > _MOST or base is None and not op.reads:
            return
        changed = getattr(out, "data_ptr", int)() == getattr(args[0], "data_ptr", int)()
        earlier = self._earlier(op)
        self._results[op.index] = weakref.ref(out)
        if earlier is None and not (changed and self._is_second_moment(op, args)):
            return
        exact = _exact(name, base, args, kwargs)
        if not changed:
            known = self._results.get(earlier.index, lambda: None)()
            base = known.detach().double() if known is not None and known.shape == out.shape else None
        if exact is None or base is None or exact.shape != base.shape or base.shape != out.shape:
            return
        seen = self._sums.setdefault((op.place, self._kind(op, name, args)), Sum())
        seen.bits = bits_of(out)
        seen.rate = _rate(op, name, args, kwargs) or seen.rate
        seen.add(base, exact, out.detach().double())
        for moved, lost in (decay for read in op.reads for decay in read.decays):
            seen.decay = [seen.decay[0] + moved, seen.decay[1] + lost]

    def _is_second_moment(self, op: Any, args: tuple) -> bool:
        """It writes squares of gradients over a state of the optimizer, perhaps for the first time."""
        return op.stage == "update" and "square" in op.tags and tuple(args[0].shape) in self.shapes

    def _earlier(self, op: Any) -> Any:
        """The same line's addition before, from which this one reads."""
        edge, seen = op.reads, set()
        if op.name.endswith("copy"):  # what it writes over is read only if what it writes was made from it
            edge = [one for one in edge if (one.place, one.name) != (op.place, op.name)]
        for _ in range(_DEEPEST):
            following = []
            for one in (one for one in edge if one.stage != "backward"):
                if one.place == op.place and one.name == op.name and one.index in self._results:
                    return one
                if one.index not in seen and one.name.removeprefix("_foreach_") in ELEMENTWISE:
                    seen.add(one.index)
                    following += one.reads
            edge = following
        return None

    def _kind(self, op: Any, name: str, args: tuple) -> str:
        if op.writes_weights:
            return "weight"
        if tuple(args[0].shape) in self.shapes:
            if "gradient" in op.tags:
                return "state" if op.stage == "update" or name in ("lerp", "addcmul") else "gradient"
            if "weight" in op.tags:
                return "average"
        return "sum"

    def _compensation(self, op: Any) -> None:
        """new - old of one sum: what the addition lost is kept for the next one."""
        sums = [one for one in op.reads if one.index in self._results]
        for one in op.reads:
            sums += [read for read in one.reads if one.name in ("clone", "copy", "_to_copy")]
        places = [one.place for one in sums if one.index in self._results]
        for place in {place for place in places if places.count(place) > 1}:
            for (where, _), seen in self._sums.items():
                seen.compensated |= where == place

    # -- sums within one operation -------------------------------------------------------------------

    def _within(self, op: Any, base: Any, args: tuple, kwargs: dict, out: Any) -> None:
        if base is None or not bits_of(out) or not op.place:
            return
        wide = [a.double() if hasattr(a, "is_floating_point") and a.is_floating_point() else a for a in args]
        wide[0] = base
        exact = getattr(self._torch, op.name)(*wide, **{k: v for k, v in kwargs.items() if k != "dtype"})
        if op.name == "cumsum":  # summed in fp32 and rounded
            return
        seen = self._sums.setdefault((op.place, "sum"), Sum())
        out = out.detach().double()
        moved, error = (exact - base).abs(), (out - exact).abs()
        keep = moved.isfinite() & out.isfinite()
        seen.whole &= bool((exact[keep] == exact[keep].round()).all())
        seen.moved += float(moved[keep].sum())
        seen.lost += float(error[keep].sum())
        seen.error += float(error[keep].sum())
        seen.bits = bits_of(args[0])

    # -- running statistics --------------------------------------------------------------------------

    def _statistics(self, op: Any, before: list, args: tuple) -> None:
        """A batch norm in training: whether its running mean follows."""
        mean, variance = args[3].detach(), args[4].detach()
        training, momentum = (args[5], args[6]) if len(args) > 7 else (True, args[5])
        wide, place = args[0].detach().double(), op.label
        broken = int((~mean.isfinite() | ~variance.isfinite()).sum())
        self._count("running_statistics_nonfinite", place, broken, mean.numel())
        if not training or not bits_of(mean) or wide.numel() > _MOST:
            return
        axes = [axis for axis in range(wide.dim()) if axis != 1]
        batch, spread = wide.mean(axes), wide.var(axes, correction=0).sqrt()
        off = (batch - before[0]).abs() > _OFF * spread
        nearer = (mean.double() - before[0]) * (batch - before[0]) > 0
        if momentum:
            self._count("running_mean_lost", place, int((off & ~nearer).sum()), mean.numel())

    # -- casts to fp16 and to formats of one byte ----------------------------------------------------

    def _narrowed(self, op: Any, source: Any, out: Any) -> None:
        """A cast of gradients to fp16, or of anything to a format of one byte."""
        form = str(getattr(out, "dtype", "")).rsplit(".", 1)[-1]
        if form == "float16" and op.function and op.place:
            self._flushed(op, source, out)
        if form not in _BYTES or not op.place:
            return
        wide, kept = source.detach().float(), out.detach().float()
        used = wide.isfinite() & (wide != 0)
        largest = self._torch.finfo(out.dtype).max
        over, flushed = used & (wide.abs() > largest), used & (kept == 0)
        self._count("fp8_overflowed", op.label, int(over.sum()), int(used.sum()))
        if op.stage == "backward":
            self._count("fp8_gradients_flushed", op.label, int(flushed.sum()), int(used.sum()))

    def _flushed(self, op: Any, source: Any, out: Any) -> None:
        """A cast that the backward() of the user's own function makes, by energy: what becomes 0, and all."""
        energy = source.detach().double().square()
        energy = energy.where(energy.isfinite(), energy.new_zeros(()))
        lost = energy[out.detach() == 0]
        self._count("gradients_flushed", op.label, float(lost.sum()), float(energy.sum()))

    # -- what was found ------------------------------------------------------------------------------

    def _count(self, name: str, place: str, part: float, whole: float) -> None:
        row = self._facts.setdefault((name, place), [0, 0])
        row[0] += part
        row[1] += whole

    def facts(self) -> Iterator[tuple[str, float, str]]:
        """Name, value and place of what was found."""
        for (name, place), (part, whole) in self._facts.items():
            if part:
                yield name, part / whole, place
        yield from self.products.facts()
        for (place, kind), seen in self._sums.items():
            if kind == "state":
                if seen.flushed and seen.bits == BITS["float16"]:
                    yield "state_flushed", seen.flushed / seen.elements, place
                continue
            if kind == "average" and seen.rate and 0.5 ** (seen.bits + 1) / seen.rate < _SHORT:
                continue  # it follows but for a small rest
            if kind == "sum" and seen.beyond:
                yield "sum_beyond_half", seen.beyond, place
            if seen.share() > 0 and not seen.compensated:
                name = "count" if seen.whole and kind == "sum" else kind
                yield f"{name}_increments_lost", seen.share(), place


def _exact(name: str, base: Any, args: tuple, kwargs: dict) -> Any:
    """The operation in double; base: its first argument as it was."""
    try:
        base = args[0].detach().double() if base is None else base
        others = [_wide(a) for a in args[1:]]
        if name in ("add", "sub"):
            alpha = float(kwargs.get("alpha", 1))
            return base + (alpha if name == "add" else -alpha) * others[0]
        if name == "lerp":
            return base + others[1] * (others[0] - base)
        if name == "addcmul":
            return base + float(kwargs.get("value", 1)) * others[0] * others[1]
        return others[0].expand_as(base)
    except Exception:  # arguments of another kind
        return None


def _squares(name: str, args: tuple) -> bool:
    """The operation squares something, or adds the square of something."""
    if name.endswith("pow"):
        return args[1] == 2
    factors = args[-2:] if name == "addcmul" else args[:2]
    return name == "square" or (name in ("mul", "addcmul") and len(factors) == 2 and factors[0] is factors[1])


def _wide(value: Any) -> Any:
    return value.detach().double() if hasattr(value, "detach") else value


def _rate(op: Any, name: str, args: tuple, kwargs: dict) -> Optional[float]:
    """The factor of an average's increment, where a number of the source says it."""
    found: list = [kwargs.get("alpha"), kwargs.get("value"), args[2] if name == "lerp" else None]
    found += [read.factor for read in op.reads]
    rates = [float(rate) for rate in found if isinstance(rate, (int, float)) and 0 < abs(rate) < 0.5]
    return min(map(abs, rates), default=None)
