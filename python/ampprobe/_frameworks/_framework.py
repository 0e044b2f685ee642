"""What an adapter says of a framework's optimizer. It changes nothing, and no other rank waits for it."""

from __future__ import annotations

import inspect
import weakref
from typing import Any, Callable, Iterator, NamedTuple, Optional


def kinds(thing: Any, package: str) -> set[str]:
    """Names of the classes of an object that a package defines."""
    return {kind.__name__ for kind in type(thing).__mro__ if kind.__module__.split(".")[0] == package}


class Log(NamedTuple):
    """A function of a framework that logs losses."""

    owner: Any  # a class or a module
    name: str
    begins: Callable[[dict], Callable[[], Optional[float]]]  # see Framework.logs


class Framework:
    """One optimizer of a framework."""

    name = ""
    versions: tuple[str, ...] = ()  # beginnings of the versions whose sources the adapter was written for
    log_arguments: tuple[str, ...] = ()  # of the functions that log losses, those that are read

    def __init__(self, optimizer: Any):
        found = self.version()
        if not found.startswith(self.versions):
            known = ", ".join(version + "*" for version in self.versions)
            raise RuntimeError(
                f"ampprobe.attach: {self.name} {found} is not a version whose optimizers are known ({known})"
            )
        for log in self.logs():
            self._check(log, found)
        self._optimizer = weakref.ref(optimizer)

    def _check(self, log: Log, version: str) -> None:
        """That a function has the arguments that are read."""
        function = getattr(log.owner, log.name, None)
        known = inspect.signature(function).parameters if callable(function) else ()
        for name in self.log_arguments:
            if name not in known:
                raise RuntimeError(
                    f"ampprobe.attach: {log.name} of {self.name} {version} has no argument {name}: "
                    "it is not a version whose logged losses are known"
                )

    @property
    def optimizer(self) -> Any:
        """The framework's optimizer; None when it was freed."""
        return self._optimizer()

    @classmethod
    def optimizer_in(cls, thing: Any) -> Any:
        """The framework's optimizer that `thing` is or holds; None if it is not the framework's."""
        raise NotImplementedError

    @classmethod
    def version(cls) -> str:
        """The framework's version."""
        raise NotImplementedError

    def plain(self) -> Any:
        """The torch optimizer inside, for its kind and numbers; None if there is none."""
        return getattr(self.optimizer, "optimizer", None)

    def rows(self) -> Iterator[tuple[Any, Any]]:
        """Parameters of the model, each with what this rank holds of its gradient at the entry of step.

        That is summed over micro-batches, reduced over ranks, times the loss scale; None: nothing of it."""
        raise NotImplementedError

    def shape(self, parameter: Any) -> tuple:
        """Shape of the whole parameter."""
        return tuple(parameter.shape)

    def scale(self) -> Optional[float]:
        """The loss scale, None where there is none."""
        raise NotImplementedError

    def loss_factor(self) -> float:
        """What the loss is multiplied by before its backward pass."""
        return self.scale() or 1.0

    @classmethod
    def logs(cls) -> Iterator[Log]:
        """Functions that log losses. Before one of them runs, `begins` is called with its arguments by name,
        and gives a function that says, when it has returned, which loss it logged; None: no one."""
        yield from ()

    def skipped(self, result: Any) -> Optional[bool]:
        """Whether the step that has just returned `result` was skipped; None: not known."""
        raise NotImplementedError
