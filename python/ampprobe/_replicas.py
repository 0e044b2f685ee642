"""Whether the ranks of a distributed run still have the same weights: checksums in the record of every rank.

Nothing is sent between ranks: a probe that waits for another rank could stop a training. `ampbench diagnose`
compares the records of all ranks. Shards (of FSDP, ZeRO 3, tensor parallelism) are no copies: left out.
"""

from __future__ import annotations

import hashlib
from typing import Any, Sequence

MOST_CHECKS = 64


def checksum(tensor: Any, torch: Any) -> str:
    """16 hex digits of the bits of a tensor's values."""
    plain = tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu()
    return hashlib.blake2b(memoryview(plain.numpy()), digest_size=8).hexdigest()


def is_copy(parameter: Any, torch: Any) -> bool:
    """Whether every rank has the whole of it: not a DTensor, not ZeRO's, not tensor parallel."""
    shard = hasattr(parameter, "to_local") or hasattr(parameter, "ds_id")
    if shard or getattr(parameter, "tensor_model_parallel", False):
        return False
    return parameter.requires_grad and parameter.layout is torch.strided and parameter.device.type != "meta"


def copies(models: Sequence, torch: Any) -> list:
    """Names and parameters of which every rank has the whole."""
    rows = []
    for model in models:
        sharded = any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())
        for name, parameter in model.named_parameters():
            if not sharded and is_copy(parameter, torch):
                rows.append((name.removeprefix("module."), parameter))
    return rows


class Replicas:
    """The checks of one rank: before the first step, and after every `every` steps of the optimizer."""

    def __init__(self, probe: Any, models: Sequence, every: int, torch: Any):
        self.probe = probe
        self.every = every
        self.torch = torch
        self.steps = 0
        self.checks: list = []
        self.models = models
        self.rows: list = []

    def steps_soon(self, *_: Any) -> None:
        """The optimizer's pre hook. Before the first step a wrapper has broadcast the weights."""
        if self.steps == 0 and not self.rows:
            self.rows = copies(self.models, self.torch)
            self.models = ()
            self.check()

    def stepped(self, *_: Any) -> None:
        """The optimizer's post hook."""
        self.steps += 1
        if self.steps % self.every == 0:
            self.check()

    def check(self) -> None:
        """Takes the checksums. Of many checks every second is kept, and only such are made from then on."""
        if self.probe.off or not self.rows:
            return
        try:
            self.take()
        except Exception as error:
            self.probe.fail(error)

    def take(self) -> None:
        """Adds a check."""
        self.checks.append([self.steps, [checksum(parameter, self.torch) for _, parameter in self.rows]])
        if len(self.checks) > MOST_CHECKS:
            self.every *= 2
            self.checks = [check for check in self.checks if check[0] % self.every == 0]
        self.tell()

    def tell(self) -> None:
        """Puts them into the record."""
        found = {"every": self.every, "tensors": [name for name, _ in self.rows], "checks": self.checks}
        self.probe.record.set("about", {"replicas": found})
