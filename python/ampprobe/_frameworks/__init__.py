"""Frameworks whose optimizers are not torch's: each keeps gradients, scale and skips in its own place.

A new one is a file with a subclass of Framework, and its line below. No framework is imported here: an
adapter knows its objects by the names of their classes.
"""

from __future__ import annotations

from typing import Any, Optional

from ._deepspeed import DeepSpeed
from ._framework import Framework
from ._megatron import Megatron

ADAPTERS = (
    DeepSpeed,
    Megatron,
)


def adapter_of(thing: Any) -> Optional[Framework]:
    """The adapter of an optimizer or its holder; None for torch's own. RuntimeError: unknown version."""
    for kind in ADAPTERS:
        optimizer = kind.optimizer_in(thing)
        if optimizer is not None:
            return kind(optimizer)
    return None
