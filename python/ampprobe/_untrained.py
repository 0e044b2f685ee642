"""Parameters that an optimizer holds and that never have a gradient: a graph that is cut, or an optimizer
that was made for other parameters.

Those without a gradient in the first step of an optimizer are suspects. A hook stands on each of them, and on
no other, until it gets a gradient: what is said at the end of the run is of every step. A part that is not
used, or seldom, has no gradient either; so only this is said: of an optimizer none of whose parameters ever
had one; of the first layers of the forward pass, before others that have one; of a layer that replaced
another one which the optimizer still holds; and of parameters that have gradients, are in no optimizer and
are never written: those of layers in a plain list, which are none of their model's parameters(), and those
of any module where two optimizers hold the very same other ones.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any, Iterator, Optional

from ._layers import clean_name
from ._never import sample_of

LEAST_STEPS = 8  # of an optimizer, from which on something is said
_MOST_NAMED = 8
_MOST_PARTS = 1024  # of a plain list that is looked through


class Suspect:
    """A parameter that had no gradient when it was first looked at."""

    __slots__ = ("reference", "name", "group", "since", "got", "orphan", "first", "later", "handle")

    def __init__(self, parameter: Any, name: str, group: Any, orphan: bool):
        self.reference = weakref.ref(parameter)
        self.name = name
        self.group = group
        self.since = group.step
        self.got = False  # a gradient, once
        self.orphan = orphan  # no model has it
        self.first = 0  # steps in which its layer was among the first, and none of them had a gradient
        self.later = 0  # and in which it was not
        self.handle = parameter.register_post_accumulate_grad_hook(self.gets)

    def gets(self, _: Any) -> None:
        """The hook. It is running, so it does not go yet."""
        self.got = True

    def __deepcopy__(self, memo: dict) -> None:
        return None

    def steps(self) -> int:
        """Of its optimizer since it was first looked at."""
        return int(self.group.step - self.since)


class Untrained:
    """The suspects of one probe."""

    def __init__(self, probe: Any):
        self.probe = probe
        self.suspects: dict[int, Suspect] = {}  # by the parameter's id
        self._trained: dict[int, int] = {}  # index of a group -> its parameters that had a gradient
        # Parameters with gradients that nobody writes: weak reference, name, values, group, its step, fact.
        self._hidden: dict[int, tuple] = {}
        self._twins: set[int] = set()  # indices of groups that hold the very same parameters as another
        self._unheld: list[str] = []  # parameters of the models that have gradients and are in no optimizer

    def look(self, group: Any) -> None:
        """The gradients of an optimizer's first step are there."""
        self._sweep()
        self._find_hidden(group)
        self._find_left_out(group)
        wanted = [p for p in group.parameters if getattr(p, "requires_grad", False) and p.is_leaf]
        bare = [p for p in wanted if p.grad is None and id(p) not in self.suspects]
        self._trained[group.index] = sum(p.grad is not None for p in wanted)
        if not bare:
            return
        models = [m for m in self.probe.living_models() if hasattr(m, "named_modules")]
        rows = [(name, p) for model in models for name, p in model.named_parameters()]
        own = {id(p) for _, p in rows}
        for parameter in bare:
            name, orphan = self.probe.parameter_name(parameter), id(parameter) not in own
            self.suspects[id(parameter)] = Suspect(parameter, name, group, orphan)
        held = self._held()
        found = [name for name, p in rows if id(p) not in held and p.requires_grad and p.grad is not None]
        self._unheld = found[:_MOST_NAMED]

    def _held(self) -> set:
        """Ids of the parameters that some optimizer holds."""
        return {id(p) for group in self.probe.groups for p in group.parameters}

    def _find_hidden(self, group: Any) -> None:
        held = self._held()
        for model in self.probe.living_models():
            for name, p in _unregistered(model):
                if id(p) not in held and _has_gradient(p):
                    self._hide(p, name, group, "not_registered")

    def _hide(self, parameter: Any, name: str, group: Any, fact: str) -> None:
        row = (weakref.ref(parameter), name, sample_of(parameter), group, group.step, fact)
        self._hidden.setdefault(id(parameter), row)

    def _find_left_out(self, group: Any) -> None:
        """Two optimizers hold the very same parameters: one of them was made for others, which have gradients
        before its own step, if not before each."""
        own = {id(p) for p in group.parameters}
        for other in self.probe.groups:
            if other is group or {id(p) for p in other.parameters} != own:
                continue
            if other.index not in self._twins:  # once more, in its own step
                self._twins |= {group.index, other.index}
                other.unlooked = True
            for name, p in _others_with_gradients(self._held()):
                self._hide(p, name, group, "optimizer_of_others")

    def _forget_written(self) -> None:
        """Those that somebody changes after all, or that an optimizer came to hold."""
        held = self._held()
        for key, (reference, _, values, *_) in list(self._hidden.items()):
            parameter = reference()
            if key in held or (parameter is not None and bool((sample_of(parameter) != values).any())):
                del self._hidden[key]

    def _sweep(self) -> None:
        """Takes the hooks off those that had a gradient, whoever put it there."""
        for key, suspect in list(self.suspects.items()):
            parameter = suspect.reference()
            suspect.got = suspect.got or getattr(parameter, "grad", None) is not None
            if suspect.got:
                suspect.handle.remove()
                del self.suspects[key]
                self._trained[suspect.group.index] = self._trained.get(suspect.group.index, 0) + 1

    def ran(self, layers: list) -> None:
        """A step has ended in which these layers ran, each a list of its parameters' ids, in their order."""
        if self._hidden:
            self._forget_written()
        if not self.suspects:
            return
        self._sweep()
        first: Optional[bool] = True
        for ids in layers:
            own = [self.suspects[key] for key in ids if key in self.suspects]
            if ids and len(own) < len(ids):
                first = False
            for suspect in own:
                suspect.first += first
                suspect.later += not first
        if first:  # no layer with a gradient came after them
            for suspect in self.suspects.values():
                suspect.first = 0

    def leave(self) -> None:
        """The hooks go."""
        for suspect in self.suspects.values():
            suspect.handle.remove()

    # -- the end of the run --------------------------------------------------------------------------

    def tell(self) -> None:
        """States what was found of the whole run."""
        self._sweep()
        self._forget_written()
        for _, name, _, group, since, fact in list(self._hidden.values())[:_MOST_NAMED]:
            if group.step - since >= LEAST_STEPS:
                self.probe.fact(fact, group.step - since, name)
        left = [suspect for suspect in self.suspects.values() if suspect.steps() >= LEAST_STEPS]
        steady = [group for group in self.probe.groups if group.ever_stepped]
        alone = [group for group in steady if self._trained.get(group.index) == 0]
        for group in alone:
            own = [suspect for suspect in left if suspect.group is group]
            if own:
                name = "no_gradients" if len(alone) == len(steady) else "optimizer_without_gradients"
                self.probe.fact(name, own[0].steps(), own[0].name)
        for suspect in left:
            if suspect.group not in alone and suspect.first > 0 and suspect.later == 0:
                self.probe.fact("cut_off", suspect.steps(), suspect.name)
        for name in self._unheld if any(suspect.orphan for suspect in left) else ():
            self.probe.fact("held_by_no_optimizer", left[0].steps(), name)


def _has_gradient(parameter: Any) -> bool:
    """Whether it is to be trained and a backward pass reaches it."""
    return bool(parameter.requires_grad and parameter.grad is not None and parameter.numel())


def _others_with_gradients(held: set) -> Iterator:
    """Names and parameters of all modules that have gradients and are in none of these."""
    from ._wait import outermost_modules, parameters_of_modules

    torch = sys.modules["torch"]
    others = (p for p in parameters_of_modules(torch) if p is not None and id(p) not in held)
    found = [p for p in others if _has_gradient(p)]
    wanted = {id(p) for p in found}
    for module in outermost_modules(found, torch) if found else ():
        for name, p in module.named_parameters():
            if id(p) in wanted:
                yield f"{type(module).__name__}.{clean_name(name)}", p


def _unregistered(model: Any) -> Iterator:
    """Names and parameters of modules that a module of the model keeps in a plain list, tuple or dict."""
    if not hasattr(model, "named_modules"):
        return
    registered = {id(p) for _, p in model.named_parameters()}
    for prefix, module in model.named_modules():
        for label, value in list(vars(module).items()):
            plain = isinstance(value, (list, tuple, dict)) and len(value) <= _MOST_PARTS
            if label.startswith("_") or not plain:
                continue
            rows = value.items() if isinstance(value, dict) else enumerate(value)
            for key, part in list(rows):
                if not hasattr(part, "named_parameters"):
                    continue
                head = ".".join(text for text in (clean_name(prefix), label, str(key)) if text)
                for name, p in part.named_parameters():
                    if id(p) not in registered:
                        yield f"{head}.{name}", p
