"""An optimizer that is not torch's: its class's step is patched, an adapter of _frameworks says the rest."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable

from . import _abi, _patches
from ._frameworks import Framework
from ._group import Group, guarded


class ForeignGroup(Group):
    """What the probe knows of an optimizer of _frameworks."""

    def __init__(self, probe: Any, index: int, adapter: Framework):
        super().__init__(probe, index, adapter.optimizer)
        self.adapter = adapter

    def watch(self) -> None:
        """Patches the class's step, and what logs losses; there are no hooks."""
        _patches.patch_class(type(self.adapter.optimizer), {"step": _wrap_step})
        for log in self.adapter.logs():
            _patches.patch_function(log.owner, log.name, _wrap_logs(log.begins))

    def refresh(self) -> None:
        """Follows the optimizer's lists of parameters."""
        found = [parameter for parameter, _ in self.adapter.rows()]
        if [id(p) for p in found] == [id(p) for p in self.parameters]:
            return
        self.parameters = found
        shapes = [self.adapter.shape(parameter) for parameter in found]
        self.ids = self.probe.describe_parameters(found, self.index, shapes)
        self.table = _abi.gradient_table(self.ids)
        _patches.watch_parameters(self, found)

    def told(self) -> Any:
        """The adapter."""
        return self.adapter

    def _gather(self) -> list:
        keep = []
        for index, (_, gradient) in enumerate(self.adapter.rows()):
            if gradient is None:
                self.table.clear(index)
            else:
                keep.append(self._put(self.table, index, gradient))
        return keep

    def are_cleared(self) -> bool:
        """Frameworks take gradients to places of their own."""
        return False

    def loss_divisor(self) -> float:
        """The loss that is differentiated is this many times the loss."""
        return self.adapter.loss_factor()

    @guarded
    def before_step(self) -> None:
        """At the entry of the optimizer's step."""
        self.inside = True
        self.plan &= _abi.PLAN_LAYERS | _abi.PLAN_GRADIENTS
        self.scale = self.adapter.scale()
        self._count()

    @guarded
    def after_step(self, result: Any) -> None:
        """The optimizer's step has returned."""
        self.inside = False
        skipped = self.adapter.skipped(result)
        self.stepped = not skipped
        if skipped is not None:
            self.found_inf = int(skipped)
        self.finish(self.adapter.scale())


def _wrap_logs(begins: Callable) -> Callable:
    """Of a function of a framework that logs losses (_frameworks)."""

    def wrap(original: Callable) -> Callable:
        bind = inspect.signature(original).bind

        @functools.wraps(original)
        def log(*args: Any, **kwargs: Any) -> Any:
            ends = [(probe, probe.logs(begins, bind, args, kwargs)) for probe in _patches.open_probes()]
            result = original(*args, **kwargs)
            for probe, end in ends:
                probe.has_logged(end)
            return result

        return log

    return wrap


def _wrap_step(original: Any) -> Any:
    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        group = _patches.group_of(self)
        if not isinstance(group, ForeignGroup) or group.inside:
            return original(self, *args, **kwargs)
        group.before_step()
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            group.scaler_step_raised()
            raise
        group.after_step(result)
        return result

    return step
