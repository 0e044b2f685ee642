"""Gradients of a scaled loss that a loop asks for with a graph, to make a penalty of them
(torch.autograd.grad with create_graph). They are too large by the scale, until something divides them by it.

Only steps that are told one by one are looked at. The penalty is followed back from the loss that is scaled
next: where a path to such a gradient has no factor of one over the scale, nobody divided it.
"""

from __future__ import annotations

import weakref
from typing import Any, Optional

_MOST_NODES = 4096  # of a graph, and no further
_MOST_SCALED = 8  # scaled tensors of a step
_NEAR = 1e-3  # of the scale, in half formats too
_FACTORS = {"MulBackward0": -1, "DivBackward0": 1}  # the power of the scale that takes it away


class Penalty:
    """What one probe knows of such gradients in a step."""

    def __init__(self, probe: Any):
        self.probe = probe
        self._scaled: list[tuple] = []  # weak reference to what a scaler gave, the scale, the value it was of
        self._gradients: list[tuple] = []  # nodes of gradients, the scale

    def scaled(self, result: Any, scale: float, value: Optional[float]) -> None:
        """A scaler has scaled a loss of this value."""
        if len(self._scaled) < _MOST_SCALED:
            self._scaled.append((weakref.ref(result), scale, value))

    def asked(self, outputs: Any, results: Any) -> None:
        """Gradients were asked for with a graph. What they are of is no loss of the step."""
        if isinstance(outputs, (list, tuple)) and len(outputs) == 1:
            outputs = outputs[0]
        for reference, scale, value in self._scaled:
            if reference() is outputs and scale > 1:
                nodes = [getattr(one, "grad_fn", None) for one in results]
                self._gradients.append(({id(node): node for node in nodes if node is not None}, scale))
                self.probe.no_loss(value)

    def loss(self, outputs: Any) -> None:
        """A loss, before it is scaled."""
        root = getattr(outputs, "grad_fn", None)
        for nodes, scale in self._gradients:
            if root is not None and _reaches(root, nodes, scale):
                self.probe.finder.penalty_left_scaled(scale)

    def forget(self) -> None:
        """The step has ended."""
        self._scaled, self._gradients = [], []


def _reaches(root: Any, nodes: dict, scale: float) -> bool:
    """Whether a path leads to one of the nodes without a factor that takes the scale away."""
    stack, seen = [root], {id(root): root}
    while stack and len(seen) < _MOST_NODES:
        node = stack.pop()
        if id(node) in nodes:
            return True
        if _takes_away(node, scale):
            continue
        for following, _ in node.next_functions:
            if following is not None and id(following) not in seen:
                seen[id(following)] = following
                stack.append(following)
    return False


def _takes_away(node: Any, scale: float) -> bool:
    """A multiplication by one over the scale, or a division by it."""
    power = _FACTORS.get(node.name())
    if power is None:
        return False
    for key in ("_saved_other", "_saved_self"):
        value = getattr(node, key, None)
        if getattr(value, "numel", lambda: 1)() != 1 or value is None:
            continue
        if abs(float(value) * scale**-power - 1) < _NEAR:
            return True
    return False
