"""attach(): checks what it was given, in one sentence each, and starts a probe."""

from __future__ import annotations

import os
from time import perf_counter
from typing import Any, Optional, Sequence

from . import _abi, _describe, _patches
from ._frameworks import Framework, adapter_of
from ._probe import Probe


class Off:
    """What attach() gives back when AMPPROBE=0: it does nothing."""

    off = True
    reason = "AMPPROBE=0"

    def loss(self, value: Any) -> None:
        """Does nothing."""

    def see(self, name: str, array: Any, role: str = "activation") -> None:
        """Does nothing."""

    def fact(self, name: str, value: float = 1.0, place: str = "", step: Optional[int] = None) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""

    def step(self, closure: Any = None) -> "Off":
        """Does nothing."""
        return self

    def __enter__(self) -> "Off":
        return self

    def __exit__(self, *_: Any) -> None:
        return None


def _as_list(value: Any) -> list:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def plain_optimizer(optimizer: Any) -> Any:
    """The optimizer itself, out of accelerate's or Lightning's wrapper; a framework's own in its adapter."""
    for optimizer in _patches.unwrapped(optimizer):
        adapter = adapter_of(optimizer)
        if adapter is not None:
            return adapter
    return optimizer


def _check_models(models: Sequence) -> None:
    for model in models:
        if not hasattr(model, "named_parameters"):
            raise TypeError(f"ampprobe.attach: model is {type(model).__name__}, not a torch.nn.Module")
    if not any(True for model in models for _ in model.named_parameters()):
        raise ValueError("ampprobe.attach: the model has no parameters")


def _check_optimizers(models: Sequence, optimizers: Sequence) -> None:
    held = {id(parameter) for model in models for _, parameter in model.named_parameters()}
    for optimizer in optimizers:
        if isinstance(optimizer, Framework):
            _check_adapter(held, optimizer)
            continue
        kind = type(optimizer).__name__
        if not hasattr(optimizer, "param_groups") or not hasattr(optimizer, "register_step_pre_hook"):
            raise TypeError(f"ampprobe.attach: optimizer is {kind}, not a torch.optim.Optimizer")
        if not any(id(p) in held for p in _describe.parameters_of(optimizer)):
            raise ValueError(f"ampprobe.attach: the optimizer {kind} holds none of the model's parameters")
        if _patches.watched(optimizer) is not None:
            raise ValueError(
                f"ampprobe.attach: this {kind} is watched by another probe; close that one first"
            )


def _check_adapter(held: set, adapter: Framework) -> None:
    kind = f"{adapter.name}'s {type(adapter.optimizer).__name__}"
    if not any(id(parameter) in held for parameter, _ in adapter.rows()):
        raise ValueError(f"ampprobe.attach: the optimizer, {kind}, holds none of the model's parameters")
    if _patches.watched(adapter.optimizer) is not None:
        raise ValueError(f"ampprobe.attach: {kind} is watched by another probe; close that one first")


def _check_scaler(scaler: Any) -> None:
    wanted = ("scale", "unscale_", "step", "update", "is_enabled", "get_scale")
    if scaler is not None and not all(callable(getattr(scaler, name, None)) for name in wanted):
        raise TypeError(f"ampprobe.attach: scaler is {type(scaler).__name__}, not a torch.amp.GradScaler")


def _config(models: Sequence, optimizers: Sequence, scaler: Any, options: dict) -> dict:
    rank, world = _describe.rank_and_world()
    config: dict[str, Any] = {
        "half": options["half"] or options["guess"],
        "budget": options["budget"],
        "model": type(models[0]).__name__,
        "rank": rank,
        "world": world,
        **_describe.framework(),
        "groups": [_describe.group_facts(optimizer) for optimizer in optimizers],
        "about": {
            "modules": {key: kind for model in models for key, kind in _describe.module_tree(model).items()},
            **{o.name: o.version() for o in optimizers if isinstance(o, Framework)},
        },
    }
    if options["every"]:
        config["probe_every"] = options["every"]
    if scaler is None or not scaler.is_enabled():
        config["scale_policy"] = "none" if scaler is not None else None
    device = next((getattr(p, "device", None) for m in models for _, p in m.named_parameters()), None)
    config["device"] = getattr(device, "type", "cpu")
    return {key: value for key, value in config.items() if value is not None}


def _rank_path(path: str) -> str:
    rank, world = _describe.rank_and_world()
    if world < 2:
        return path
    folder, name = os.path.split(path)
    stem, dot, end = name.partition(".")
    return os.path.join(folder, f"{stem}.rank{rank}{dot}{end}")


def attach(
    model: Any,
    optimizer: Any,
    scaler: Any = None,
    out: str | os.PathLike = "run.ampprobe.json",
    *,
    every: int = 0,
    budget: float = 0.01,
    half: Optional[str] = None,
    layers: Optional[bool] = None,
    reference_every: int = 100,
    check_ranks: int = 0,
    _everywhere: Any = None,
    _passes: Any = None,
) -> Any:
    """Starts to record the training of `model` by `optimizer` (each may be a list) into the file `out`.

    scaler   a GradScaler, if there is one; one that is used with the optimizer is found by itself
    every    show everything at every so many steps; 0: as the budget allows
    budget   share of the run's time that the probe may take
    half     "fp16" or "bf16", where it cannot be seen from the weights: the format whose range is judged
    layers   False: never put hooks on layers
    reference_every   with probe.step(closure): compare gradients with fp32 ones every so many steps; 0: never

    check_ranks   checksums of the weights every so many steps, which `ampbench diagnose` compares over the
                  records of all ranks; 0: none

    Wrong arguments raise TypeError or ValueError, a file that cannot be written OSError, a missing library or
    one of another version RuntimeError, all before the first step. Later nothing is raised: a probe that
    fails turns itself off and says so. With AMPPROBE=0 in the environment nothing is done.
    In a distributed run every rank writes its own file, with `.rankN` in its name.
    """
    if os.environ.get("AMPPROBE") == "0":
        return Off()
    began = perf_counter()
    models = _as_list(model)
    optimizers = [plain_optimizer(item) for item in _as_list(optimizer)]
    if not models or not optimizers:
        raise ValueError("ampprobe.attach: needs a model and an optimizer")
    _check_models(models)
    _check_optimizers(models, optimizers)
    _check_scaler(scaler)
    if half not in (None, "fp16", "bf16"):
        raise ValueError(f"ampprobe.attach: half is 'fp16' or 'bf16', not {half!r}")
    if not 0 <= budget <= 1 or every < 0 or check_ranks < 0:
        raise ValueError(
            "ampprobe.attach: budget is a share from 0 to 1, every and check_ranks are whole numbers from 0"
        )
    options = {
        "every": every,
        "budget": budget,
        "half": half,
        "guess": _describe.half_format(models, scaler),
        "layers": layers,
        "reference_every": reference_every,
        "check_ranks": check_ranks,
        "everywhere": _everywhere,
        "passes": _passes,
        "world": _describe.rank_and_world()[1],
    }
    path = _rank_path(os.fspath(out))
    try:
        record = _abi.Record(path, _config(models, optimizers, scaler, options))
    except _abi.LibraryError as error:
        raise RuntimeError(f"ampprobe.attach: {error}") from None
    except _abi.ProbeError as error:
        kind = OSError if error.status == _abi.OUTPUT else ValueError
        raise kind(f"ampprobe.attach: {error}") from None
    probe = Probe(models, optimizers, scaler, record, options)
    probe.spent += perf_counter() - began
    return probe
