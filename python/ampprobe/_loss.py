"""What the graph of a loss says before it is differentiated: by which number it is multiplied, whether it is
a mean over elements that a mask made 0, and whether its targets lie where no prediction can be.

Only nodes of torch's own are read, a few from the loss on, and what they keep for the backward pass.
"""

from __future__ import annotations

import math
from typing import Any, Iterator, Optional

_FAR = 16  # nodes from the loss
_FEWEST = 8  # elements
_MOST = 1 << 20
_AS_IT_IS = (
    "ToCopyBackward0", "ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0", "SqueezeBackward0",
    "SqueezeBackward1", "SqueezeBackward2", "UnsqueezeBackward0", "AliasBackward0", "CloneBackward0",
)  # fmt: skip
_RANGES = {"ReluBackward0": (0.0, math.inf), "SigmoidBackward0": (0.0, 1.0), "TanhBackward0": (-1.0, 1.0)}
_DIFFERENCES = ("MseLoss", "SmoothL1Loss", "HuberLoss")
_AT_BOUND = 0.05  # of the width of a range
_EXACT = 1e-3


def scalar(value: Any) -> Optional[float]:
    """A number, or a tensor of one."""
    if isinstance(value, (int, float)):
        return float(value)
    if hasattr(value, "numel") and value.numel() == 1:
        return float(value)
    return None


def saved(node: Any, name: str) -> Any:
    """What a node keeps; None: nothing, or it was written since."""
    try:
        return getattr(node, "_saved_" + name, None)
    except RuntimeError:
        return None


def following(node: Any, index: int = 0) -> Any:
    """The node of one of its operands; None: that one needs no gradient."""
    nodes = node.next_functions
    return nodes[index][0] if index < len(nodes) else None


def factor_of(node: Any) -> Optional[float]:
    """The number by which a node multiplies its only operand that needs a gradient; None: it does something
    else."""
    kind = node.name()
    if kind not in ("MulBackward0", "DivBackward0"):
        return 1.0 if kind in _AS_IT_IS else None
    first, second = following(node), following(node, 1)
    if (first is None) == (second is None) or (kind == "DivBackward0" and first is None):
        return None
    other = scalar(saved(node, "other" if second is None else "self"))
    if not other:
        return None
    return other if kind == "MulBackward0" else 1 / other


def multiplied(node: Any) -> tuple[Any, float]:
    """The first node below a loss that does more than to multiply by a number, and that number."""
    factor = 1.0
    for _ in range(_FAR):
        times = factor_of(node) if node is not None else None
        if times is None:
            break
        node, factor = following(node) or following(node, 1), factor * times
    return node, factor


# -- a mean over what a mask made 0 ----------------------------------------------------------------------


def masked_mean(node: Any) -> Optional[float]:
    """Of a mean over all elements of which a mask made some 0: all over those that are left; else None."""
    node, factor = multiplied(node)
    kind = node.name() if node is not None else ""
    if not kind.startswith(("MeanBackward", "SumBackward")):
        return None
    inside, _ = multiplied(following(node))
    left = _left(inside)
    if left is None:
        return None
    shape = getattr(inside, "_input_metadata", None)
    count = math.prod(shape[0].shape) if shape else 0
    if kind.startswith("SumBackward") and not abs(abs(factor) * count - 1) < _EXACT:
        return None
    return 1 / left if count >= _FEWEST else None


def _left(node: Any) -> Optional[float]:
    """The share of elements that a multiplication by a mask, or a masked fill with 0, leaves as they were."""
    kind = node.name() if node is not None else ""
    if kind == "MaskedFillBackward0":
        mask = saved(node, "mask")
        share = 1 - float(mask.float().mean()) if mask is not None and mask.numel() <= _MOST else 0.0
        return share if 0 < share < 1 else None
    for index, name in enumerate(("self", "other")) if kind == "MulBackward0" else ():
        mask = saved(node, name)
        if following(node, index) is None and getattr(mask, "numel", int)() >= _FEWEST:
            return _share_of_one(mask)
    return None


def _share_of_one(mask: Any) -> Optional[float]:
    """Of a mask that is 0 or 1: how much of it is 1."""
    mask = mask.detach()
    if mask.numel() > _MOST or not bool(((mask == 0) | (mask == 1)).all()):
        return None
    share = float(mask.float().mean())
    return share if 0 < share < 1 else None


# -- targets that are out of reach -----------------------------------------------------------------------


def out_of_reach(node: Any) -> Iterator[tuple[str, float]]:
    """Of each loss that compares the outputs of a bounded function with targets: the function, and what its
    bounds cost, as a share of the variance of the targets: outputs that are at a bound, in place of the mean
    of their targets if that lies beyond it."""
    for prediction, target, difference in _comparisons(node):
        function, factor = multiplied(prediction)
        bounds = _RANGES.get(function.name()) if function is not None else None
        values = saved(function, "result") if bounds else None
        if values is None or not _FEWEST <= values.numel() <= _MOST:
            continue
        values = values.detach().double().flatten()
        if target is None:
            target = values * factor - difference.detach().double().flatten()
        target = target.detach().double().flatten() / factor
        if len(target) == len(values) and bool(target.isfinite().all()):
            lost = _lost(values, target, *bounds)
            if lost is not None:
                yield function.name()[: -len("Backward0")].lower(), lost


def _comparisons(root: Any) -> Iterator[tuple]:
    """Node of the prediction, the target (None: not kept) and else what the prediction is above it."""
    left = [root]
    for _ in range(_FAR):
        node = left.pop() if left else None
        if node is None:
            return
        kind = node.name()
        if kind.startswith(_DIFFERENCES):
            if following(node, 1) is None and saved(node, "target") is not None:
                yield following(node), saved(node, "target"), None
        elif kind in ("PowBackward0", "AbsBackward0"):
            yield from _by_hand(node)
        elif kind == "AddBackward0" or kind.startswith(("MeanBackward", "SumBackward")) or factor_of(node):
            left += [one for one, _ in node.next_functions if one is not None]


def _by_hand(node: Any) -> Iterator[tuple]:
    """The same of the power or absolute value of a difference."""
    difference, above = saved(node, "self"), following(node)
    if difference is None or above is None or above.name() != "SubBackward0":
        return
    first, second = following(above), following(above, 1)
    if (first is None) != (second is None) and saved(above, "alpha") in (None, 1):
        yield (first, None, difference) if second is None else (second, None, -difference)


def _lost(values: Any, target: Any, low: float, high: float) -> Optional[float]:
    """What the bounds cost, as a share of the variance of the targets."""
    total = float(((target - target.mean()) ** 2).sum())
    near = _AT_BOUND * (high - low) if math.isfinite(high) else 0.0
    lost = 0.0
    for at, beyond in ((values <= low + near, low - target), (values >= high - near, target - high)):
        if bool(at.any()) and math.isfinite(float(beyond[0])):
            lost += int(at.sum()) * max(0.0, float(beyond[at].mean())) ** 2
    return lost / total if total > 0 else None
