"""Megatron-core without a GPU: it asks for CUDA by name in places."""

import torch
from torch.overrides import TorchFunctionMode


class OnCpu(TorchFunctionMode):
    """What asks for a GPU gets the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.type and len(args) == 1 and not kwargs:
            return function(*args).replace("torch.", "torch.cuda.")
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        if str in map(type, args):
            args = tuple("cpu" if type(a) is str and a == "cuda" else a for a in args)
        return function(*args, **kwargs)
