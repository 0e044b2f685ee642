"""What a run is, read from its objects once: names of parameters, optimizers, scaler, precision, versions."""

from __future__ import annotations

import platform
import sys
from typing import Any, Iterable, Optional

from ._frameworks import Framework
from ._layers import clean_name

_OPTIMIZERS = {
    "SGD": "sgd",
    "Adam": "adam",
    "AdamW": "adamw",
    "RMSprop": "rmsprop",
    "Adagrad": "adagrad",
    "LBFGS": "lbfgs",
}


def parameter_names(models: Iterable, optimizers: Iterable) -> dict[int, tuple[str, Optional[str]]]:
    """id of a parameter -> its name and the class of its module. A shared one has its first name."""
    names: dict[int, tuple[str, Optional[str]]] = {}
    models = list(models)
    used: set[str] = set()
    for number, model in enumerate(models):
        prefix = f"model{number}." if len(models) > 1 else ""
        kinds = {}
        if hasattr(model, "named_modules"):
            kinds = {name: type(module).__name__ for name, module in model.named_modules()}
        for name, parameter in model.named_parameters():
            if id(parameter) not in names:
                label = prefix + clean_name(name)
                while label in used:
                    label += "_"
                used.add(label)
                names[id(parameter)] = (label, kinds.get(name.rpartition(".")[0]))
    return names


def parameters_of(optimizer: Any) -> list:
    """All parameters of an optimizer."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def group_facts(optimizer: Any, since: int = 0) -> dict:
    """One of the record's groups: kind and numbers of an optimizer, or of that in an adapter, and the step at
    which it came; nothing of one that is gone."""
    plain = optimizer.plain() if isinstance(optimizer, Framework) else optimizer
    if plain is None:
        return {}
    return {**_optimizer_facts(plain), **({"since": since} if since else {})}


def _optimizer_facts(optimizer: Any) -> dict:
    """Kind of an optimizer and numbers of its first parameter group."""
    first = dict(optimizer.param_groups[0]) if optimizer.param_groups else {}
    first.pop("params", None)
    kind = type(optimizer).__name__
    facts: dict[str, Any] = {"optimizer": _OPTIMIZERS.get(kind, kind.lower())}
    for name in ("lr", "momentum", "dampening", "eps", "weight_decay"):
        if isinstance(first.get(name), (int, float)):
            facts[name] = float(first[name])
        elif hasattr(first.get(name), "item"):
            facts[name] = float(first[name])
    for index, beta in enumerate(list(first.get("betas") or ())[:2], 1):  # some optimizers have three
        if isinstance(beta, (int, float)) or hasattr(beta, "item"):
            facts[f"beta{index}"] = float(beta)
    for name in ("nesterov", "fused"):
        if isinstance(first.get(name), bool):
            facts[name] = first[name]
    return facts


def scaler_facts(scaler: Any) -> dict:
    """Constants of a GradScaler."""
    facts: dict[str, Any] = {"class": type(scaler).__name__, "enabled": bool(scaler.is_enabled())}
    if facts["enabled"]:
        for name in ("growth_factor", "backoff_factor", "growth_interval"):
            get = getattr(scaler, f"get_{name}", None)
            if get is not None:
                facts[name] = get()
        facts["scale"] = float(scaler.get_scale())
    return facts


def dtype_name(dtype: Any) -> str:
    """float16 for torch.float16 and for numpy's."""
    return str(getattr(dtype, "name", dtype)).rsplit(".", 1)[-1]


def _dtype_counts(models: Iterable) -> dict[str, int]:
    counts: dict[str, int] = {}
    for model in models:
        for _, parameter in model.named_parameters():
            name = dtype_name(parameter.dtype)
            counts[name] = counts.get(name, 0) + 1
    return counts


def precision(models: Iterable, autocast: dict, layers: dict) -> dict:
    """What ran in which format, from the dtypes that were seen."""
    weights = _dtype_counts(models)
    halves = [name for name in weights if name in ("float16", "bfloat16")]
    if autocast:
        level = "torch:autocast"
    elif halves:
        level = "O3" if len(halves) == len(weights) else "O2"
    elif layers:
        level = "O0"
    else:
        level = "unknown"
    return {"level": level, "weights": weights, "autocast": dict(autocast), "layer_outputs": dict(layers)}


def half_format(models: Iterable, scaler: Any) -> str:
    """fp16 or bf16: the format whose range matters; a guess before the first step where nothing says it."""
    weights = _dtype_counts(models)
    if "bfloat16" in weights and "float16" not in weights:
        return "bf16"
    if scaler is None and not weights.get("float16") and _autocast_is_bfloat16():
        return "bf16"
    return "fp16"


def _autocast_is_bfloat16() -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) is torch.bfloat16


def module_tree(model: Any, most: int = 2000) -> dict[str, str]:
    """Name -> class of every module."""
    if not hasattr(model, "named_modules"):
        return {}
    tree = {}
    for name, module in model.named_modules():
        if len(tree) == most:
            tree["..."] = "more modules were left out"
            break
        tree[clean_name(name) or "(root)"] = type(module).__name__
    return tree


def framework() -> dict[str, str]:
    """Framework, its version and the language."""
    torch = sys.modules.get("torch")
    return {
        "framework": "torch" if torch is not None else "python",
        "framework_version": str(torch.__version__) if torch is not None else platform.python_version(),
        "language": f"Python {platform.python_version()}",
    }


def rank_and_world() -> tuple[int, int]:
    """Of torch.distributed, or of the environment that torchrun sets."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
