"""Megatron-core: Float16OptimizerWithFloat16Params, DistributedOptimizer, FP32Optimizer, chained ones.

Gradients are in p.main_grad, a view of DDP's buffer. With DistributedOptimizer a rank owns a range of it, and
only that range was reduced. The step says itself whether it was skipped.
"""

from __future__ import annotations

import sys
from typing import Any, Iterator, Optional

from ._framework import Framework, kinds

_GROUPS = (
    "model_float16_groups",  # DistributedOptimizer
    "model_fp32_groups",
    "float16_groups",  # Float16OptimizerWithFloat16Params
    "fp32_from_fp32_groups",
)


class Megatron(Framework):
    """One optimizer of Megatron-core."""

    name = "Megatron-core"
    versions = ("0.16.",)

    @classmethod
    def optimizer_in(cls, thing: Any) -> Any:
        return thing if "MegatronOptimizer" in kinds(thing, "megatron") else None

    @classmethod
    def version(cls) -> str:
        return str(sys.modules["megatron.core"].__version__)

    def plain(self) -> Any:
        return self._parts()[0].optimizer if self._parts() else None

    def _parts(self) -> list:
        chained = getattr(self.optimizer, "chained_optimizers", None)
        parts = [self.optimizer] if chained is None else chained
        return [part for part in parts if not getattr(part, "is_stub_optimizer", False)]

    def rows(self) -> Iterator[tuple[Any, Any]]:
        for part in self._parts():
            groups = [group for name in _GROUPS for group in getattr(part, name, ())]
            if not groups:  # FP32Optimizer has the model's parameters
                groups = [group["params"] for group in part.optimizer.param_groups]
            for parameter in (p for group in groups for p in group):
                yield parameter, self._gradient(part, parameter)

    @staticmethod
    def _gradient(part: Any, parameter: Any) -> Any:
        gradient = getattr(parameter, "main_grad", None)
        if gradient is None:
            return parameter.grad
        if hasattr(part, "model_param_gbuf_map"):
            mine = part._get_model_param_range_map(parameter)["param"]
            return gradient.view(-1)[mine.start : mine.end]
        return gradient

    def scale(self) -> Optional[float]:
        """None without a scaler: Megatron says 1 then."""
        scalers = [getattr(part, "grad_scaler", None) for part in self._parts()]
        return float(self.optimizer.get_loss_scale()) if any(scalers) else None

    def skipped(self, result: Any) -> Optional[bool]:
        return not result[0]
