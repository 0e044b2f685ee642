"""Optimizers that a probe was not attached to: those made later, and those that had not stepped yet.

Each has a hook that costs nothing until it steps; those made before the probe are met by a hook of all
optimizers when they first step. Then it is followed: in the place of an optimizer whose parameters it
trains, or that is gone, as the next stage of the same training; else as one more. A wrapper's inner
optimizer, which steps inside another's step, is part of that step.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any, Optional

from . import _abi, _describe, _patches
from ._group import Group, guarded

MOST_GROUPS = 16  # of the library
_IDLE_STEPS = 16  # of an optimizer that came later, in which the first one made none: the next stage


def hook_everywhere(hook: Any, handle: Any) -> Any:
    """Puts `hook` on the steps of all optimizers and gives its handle: in the place that `handle` has, as no
    hook may come or go where they are running; None: in a place of its own."""
    from torch.optim import optimizer as torch_optimizers

    if handle is None:
        return torch_optimizers.register_optimizer_step_pre_hook(hook)
    torch_optimizers._global_optimizer_pre_hooks[handle.id] = hook
    return handle


class Others:
    """The optimizers of one probe that it does not follow. `everywhere`: handle of a hook on all optimizers,
    which the probe takes over; it then follows also those that train nothing of the models."""

    def __init__(self, probe: Any, everywhere: Any):
        self.probe = probe
        self.follows_all = everywhere is not None
        self._given, self._everywhere = everywhere, None
        self.hook: Any = nothing  # of all optimizers
        self._met: dict[int, weakref.ref] = {}  # id -> weak reference: told of, or asked, when they step
        self._handles: dict[int, Any] = {}  # id -> handle of its hook, until it is followed
        self._silent: list = []  # handles of hooks that do nothing any more
        self._left: list = []  # weak references to those that others took over from
        self._idle: dict[int, list] = {}  # of groups that came later: steps of the first group, own since
        self._said = False
        self.unused: set[int] = set()  # ids of optimizers that were made meanwhile and have not stepped

    def expect_living(self) -> None:
        """Optimizers that exist already. There is no list of them; a search takes longer than to ask each one
        that steps whether it was met."""
        if "torch" in sys.modules:
            self.hook = self.probe.groups[0].untraced(self._any_steps)
            self._everywhere = hook_everywhere(self.hook, self._given)

    def hush(self, hook: Any) -> None:
        """`hook` stands for the hook of all optimizers until heed()."""
        if self._everywhere is not None:
            hook_everywhere(hook, self._everywhere)

    def heed(self) -> None:
        """That hook stands again."""
        self.hush(self.hook)

    def _any_steps(self, optimizer: Any, args: tuple, kwargs: dict) -> Any:
        """The hook of all optimizers."""
        return None if id(optimizer) in self._met else self._steps_first(optimizer, args, kwargs)

    @guarded
    def _steps_first(self, optimizer: Any, args: tuple, kwargs: dict) -> Any:
        self.expect(optimizer)
        self.unused.discard(id(optimizer))
        return self.steps(optimizer, args, kwargs) if id(optimizer) in self._handles else None

    def expect(self, optimizer: Any) -> None:
        """Tells when this one steps, unless it is followed."""
        key, met, handles = id(optimizer), self._met, self._handles

        def gone(_: Any) -> None:
            met.pop(key, None)
            handles.pop(key, None)

        met[key] = weakref.ref(optimizer, gone)
        if "_optimizer_step_pre_hooks" not in getattr(optimizer, "__dict__", ()):
            return  # a wrapper, whose inner one steps
        if key not in handles and _patches.watched(optimizer) is None:
            handles[key] = optimizer.register_step_pre_hook(self.probe.groups[0].untraced(self.steps))

    def leave(self) -> None:
        """The hooks go."""
        if self._everywhere is not None:
            self._everywhere.remove()
            self._everywhere = None
        for handle in [*self._handles.values(), *self._silent]:
            handle.remove()
        self._handles.clear()

    def _forget(self, optimizer: Any) -> Any:
        """The handle of its hook; what is running may be that hook, so it does not go."""
        return self._handles.pop(id(optimizer), None)

    # -- one of them steps ---------------------------------------------------------------------------

    @guarded
    def steps(self, optimizer: Any, args: tuple, kwargs: dict) -> Any:
        """The hook."""
        quiet = self.probe.quiet.on
        self.probe.quiet.end()
        self.unused.discard(id(optimizer))
        if id(optimizer) not in self._handles:
            return None
        if any(group.stepping for group in self.probe.groups):
            self._silence(optimizer)  # inside another one's step
            return None
        group = self.follow(optimizer)
        if group is None or (quiet and self._in_scaler(optimizer)):
            return None  # its gradients were unscaled where nothing looked: followed from the next step on
        return group.before_optimizer_step(optimizer, args, kwargs)

    def _in_scaler(self, optimizer: Any) -> bool:
        """Whether a scaler's step calls this optimizer's."""
        states = [getattr(known(), "_per_optimizer_states", {}) for known in self.probe._scalers]
        return any(id(optimizer) in state for state in states)

    def follow(self, optimizer: Any) -> Optional[Group]:
        """The group that follows this optimizer from now on; None: it is none of this training."""
        if id(optimizer) not in self._handles or _patches.watched(optimizer) is not None:
            return None
        parameters = _describe.parameters_of(optimizer)
        kind = type(optimizer).__name__
        if not self.follows_all and not self._is_of_model(parameters):
            self._say(f"an optimizer ({kind}) steps that was not given to attach: it is not recorded")
            self._silence(optimizer)
            return None
        self._name(parameters)
        group = self._predecessor(optimizer, parameters)
        if group is not None:
            self._take_over(group, optimizer, self._forget(optimizer), None)
            return group
        return self._add(optimizer, kind)

    def _silence(self, optimizer: Any) -> None:
        handle = self._forget(optimizer)
        optimizer._optimizer_step_pre_hooks[handle.id] = nothing
        self._silent.append(handle)

    def _is_of_model(self, parameters: list) -> bool:
        held = {id(p) for model in self.probe.living_models() for _, p in model.named_parameters()}
        return any(id(p) in held for p in parameters)

    def _name(self, parameters: list) -> None:
        """Finds the names of parameters that came later; a model that replaced another is found, too."""
        probe, torch = self.probe, sys.modules.get("torch")
        if self.follows_all and torch is not None and not self._is_of_model(parameters):
            from ._wait import outermost_modules

            for model in outermost_modules(parameters, torch):
                probe.add_model(model)
        probe.name_parameters()

    def _predecessor(self, optimizer: Any, parameters: list) -> Optional[Group]:
        """The group whose place it takes: one that it shares parameters with, or whose optimizer is gone."""
        if any(reference() is optimizer for reference in self._left):
            return None  # both step in turns
        own = {id(p) for p in parameters}
        groups = [group for group in self.probe.groups if type(group) is Group]
        shared = [group for group in groups if any(id(p) in own for p in group.parameters)]
        return next(iter(shared + [group for group in groups if group.optimizer() is None]), None)

    def _take_over(self, group: Group, optimizer: Any, before: Any, after: Any) -> None:
        last = group.optimizer()
        group.follow(optimizer, before, after)
        if last is not None:
            self._left.append(weakref.ref(last, self._left.remove))
            self.expect(last)
        self.probe.fact("optimizer_replaced", group.index, type(optimizer).__name__)
        self._tell_groups()

    def _add(self, optimizer: Any, kind: str) -> Optional[Group]:
        probe = self.probe
        if len(probe.groups) == MOST_GROUPS:
            self._say(f"more than {MOST_GROUPS} optimizers step: this one ({kind}) is not recorded")
            self._silence(optimizer)
            return None
        group = Group(probe, len(probe.groups), optimizer)
        probe.groups.append(group)
        probe.may_be_quiet = False
        self._tell_groups()
        group.follow(optimizer, self._forget(optimizer), None)
        group.plan = probe.groups[0].plan & ~_abi.PLAN_LAYERS
        self._idle[group.index] = [probe.groups[0].step, 0]
        probe.note(f"an optimizer ({kind}) joined at step {probe.groups[0].step}")
        return group

    def finished(self, group: Group) -> None:
        """A step of a group that is not the first: one that came later and goes on alone becomes it."""
        idle, first = self._idle.get(group.index), self.probe.groups[0]
        if idle is None or type(first) is not Group:
            return
        idle[:] = [first.step, idle[1] + 1 if idle[0] == first.step else 0]
        optimizer = group.optimizer()
        if idle[1] < _IDLE_STEPS or optimizer is None:
            return
        del self._idle[group.index]
        before, after = group.leave()
        if group is self.probe.groups[-1]:
            self.probe.groups.pop()
        self.probe.may_be_quiet = [type(other) for other in self.probe.groups] == [Group]
        self._take_over(first, optimizer, before, after)

    # -- what is said --------------------------------------------------------------------------------

    def _tell_groups(self) -> None:
        facts = [_describe.group_facts(group.told(), group.since) for group in self.probe.groups]
        self.probe.record.set("groups", facts)

    def _say(self, text: str) -> None:
        self.probe.note(text)
        if not self._said:
            self._said = True
            try:
                print(f"ampprobe: {text}", file=sys.stderr)
            except Exception:  # stderr may be closed
                pass


def nothing(*_: Any) -> None:
    """The hook of an optimizer that is not asked about any more."""
