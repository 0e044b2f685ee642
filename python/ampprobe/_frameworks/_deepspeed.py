"""DeepSpeed's optimizers: ZeRO 1 to 3, BF16_Optimizer, FP16_Optimizer, FP16_UnfusedOptimizer.

p.grad is freed in the backward pass there. What this rank holds of the gradients is in lists by group, which
the overflow check reads; so does the adapter. Stage 0 in fp32 uses torch's own optimizer and needs none.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Iterator, Optional

from ._framework import Framework, Log, kinds

_KINDS = {
    "DeepSpeedZeroOptimizer": "_zero_1_and_2",
    "DeepSpeedZeroOptimizer_Stage3": "_zero_3",
    "BF16_Optimizer": "_bf16",
    "FP16_Optimizer": "_fp16",
    "FP16_UnfusedOptimizer": "_fp16",
}


def _in_events(arguments: dict) -> Callable[[], Optional[float]]:
    """Of events, which are a name, a value and a count of samples each."""
    events = arguments["event_list"]
    if arguments["self"].enabled and isinstance(events, (list, tuple)):
        for name, value, *_ in events:
            if str(name).rsplit("/", 1)[-1] in ("loss", "train_loss"):
                return lambda: float(value)
    return lambda: None


class DeepSpeed(Framework):
    """One optimizer of DeepSpeed."""

    name = "DeepSpeed"
    versions = ("0.19.",)
    log_arguments = ("self", "event_list")

    @classmethod
    def optimizer_in(cls, thing: Any) -> Any:
        """Of an engine, or the optimizer itself."""
        if "DeepSpeedEngine" in kinds(thing, "deepspeed"):
            thing = thing.optimizer
        return thing if kinds(thing, "deepspeed") & set(_KINDS) else None

    @classmethod
    def version(cls) -> str:
        return str(sys.modules["deepspeed"].__version__).split("+", 1)[0]

    @classmethod
    def logs(cls) -> Iterator[Log]:
        """All trackers are told by one method, by the engine (PipelineEngine: the loss, too) and the loop."""
        monitor = sys.modules.get("deepspeed.monitor.monitor")
        if monitor is not None:
            yield Log(monitor.MonitorMaster, "write_events", _in_events)

    def rows(self) -> Iterator[tuple[Any, Any]]:
        optimizer = self.optimizer
        (kind,) = list(kinds(optimizer, "deepspeed") & set(_KINDS))[:1]
        return getattr(self, _KINDS[kind])(optimizer)

    @staticmethod
    def _zero_1_and_2(optimizer: Any) -> Iterator[tuple[Any, Any]]:
        held = optimizer.averaged_gradients
        for index, group in enumerate(optimizer.bit16_groups):
            mine = optimizer.params_in_partition[index]
            gradients = dict(zip(map(id, mine), held.get(index) or ()))
            for parameter in group:
                yield parameter, gradients.get(id(parameter))

    @staticmethod
    def _zero_3(optimizer: Any) -> Iterator[tuple[Any, Any]]:
        for index, group in enumerate(optimizer.fp16_groups):
            gradients = optimizer.averaged_gradients.get(index) or [None] * len(group)
            yield from zip(group, gradients)

    @staticmethod
    def _bf16(optimizer: Any) -> Iterator[tuple[Any, Any]]:
        for group, gradients in zip(optimizer.bf16_groups, optimizer.fp32_groups_gradients):
            yield from zip(group, gradients)

    @staticmethod
    def _fp16(optimizer: Any) -> Iterator[tuple[Any, Any]]:
        for group in optimizer.fp16_groups:
            for parameter in group:
                yield parameter, parameter.grad

    def shape(self, parameter: Any) -> tuple:
        return tuple(getattr(parameter, "ds_shape", parameter.shape))

    def scale(self) -> Optional[float]:
        """None for BF16_Optimizer and for the static scale 1, which stands for no scaler."""
        optimizer = self.optimizer
        found = getattr(optimizer, "loss_scale", None)
        scaler = getattr(optimizer, "loss_scaler", None) or getattr(optimizer, "loss_scale_config", None)
        dynamic = getattr(scaler, "dynamic", getattr(scaler, "dynamic_loss_scale", False))
        return float(found) if found is not None and (dynamic or float(found) != 1) else None

    def loss_factor(self) -> float:
        """The engine scales the loss for ZeRO's optimizers only."""
        return super().loss_factor() if "ZeROOptimizer" in kinds(self.optimizer, "deepspeed") else 1.0

    def skipped(self, result: Any) -> Optional[bool]:
        return bool(self.optimizer.overflow)
