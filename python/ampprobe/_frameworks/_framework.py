"""What an adapter says of a framework's optimizer. It changes nothing, and no other rank waits for it."""

from __future__ import annotations

import weakref
from typing import Any, Iterator, Optional


def kinds(thing: Any, package: str) -> set[str]:
    """Names of the classes of an object that a package defines."""
    return {kind.__name__ for kind in type(thing).__mro__ if kind.__module__.split(".")[0] == package}


class Framework:
    """One optimizer of a framework."""

    name = ""
    versions: tuple[str, ...] = ()  # beginnings of the versions whose sources the adapter was written for

    def __init__(self, optimizer: Any):
        found = self.version()
        if not found.startswith(self.versions):
            known = ", ".join(version + "*" for version in self.versions)
            raise RuntimeError(
                f"ampprobe.attach: {self.name} {found} is not a version whose optimizers are known ({known})"
            )
        self._optimizer = weakref.ref(optimizer)

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

    def skipped(self, result: Any) -> Optional[bool]:
        """Whether the step that has just returned `result` was skipped; None: not known."""
        raise NotImplementedError
