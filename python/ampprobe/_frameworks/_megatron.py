"""Megatron-core: Float16OptimizerWithFloat16Params, DistributedOptimizer, FP32Optimizer, chained ones.

Gradients are in p.main_grad, a view of DDP's buffer. With DistributedOptimizer a rank owns a range of it, and
only that range was reduced. The step says itself whether it was skipped.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Iterator, Optional

from ._framework import Framework, Log, kinds

_GROUPS = (
    "model_float16_groups",  # DistributedOptimizer
    "model_fp32_groups",
    "float16_groups",  # Float16OptimizerWithFloat16Params
    "fp32_from_fp32_groups",
)


_APPLIED, _SKIPPED = "advanced iterations", "skipped iterations"


def _in_totals(arguments: dict) -> Callable[[], Optional[float]]:
    """Losses are summed over the iterations that were not skipped. Where their mean is logged, the sums and
    the numbers of iterations begin anew; so nothing is read from a device before that."""
    losses, totals, skipped = (arguments[name] for name in ("loss_dict", "total_loss_dict", "skipped_iter"))
    name = next((key for key in losses if key == "lm loss"), next(iter(losses), None))
    before, applied = totals.get(name), totals.get(_APPLIED, 0) + (0 if skipped else 1)

    def logged() -> Optional[float]:
        if name is None or totals[_APPLIED] or totals[_SKIPPED]:
            return None
        parts = [part for part in (before, None if skipped else losses[name]) if part is not None]
        return float(sum(parts)) / max(1, applied)

    return logged


class Megatron(Framework):
    """One optimizer of Megatron-core."""

    name = "Megatron-core"
    versions = ("0.16.",)
    log_arguments = ("loss_dict", "total_loss_dict", "skipped_iter")

    @classmethod
    def optimizer_in(cls, thing: Any) -> Any:
        return thing if "MegatronOptimizer" in kinds(thing, "megatron") else None

    @classmethod
    def version(cls) -> str:
        return str(sys.modules["megatron.core"].__version__)

    @classmethod
    def logs(cls) -> Iterator[Log]:
        """Megatron-LM's own loop; Megatron-core has none."""
        training = sys.modules.get("megatron.training.training")
        if training is not None:
            yield Log(training, "training_log", _in_totals)

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
