"""The half formats by their significands."""

from __future__ import annotations

from typing import Any

BITS = {"float16": 11, "bfloat16": 8}  # of the significand


def bits_of(tensor: Any) -> int:
    """Significand bits of a half format; 0: another dtype."""
    return BITS.get(str(getattr(tensor, "dtype", "")).rsplit(".", 1)[-1], 0)
