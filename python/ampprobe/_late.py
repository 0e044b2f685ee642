"""Numbers that are on a GPU, read without waiting for it: losses of quiet steps, and a GradScaler's state.

A loss is copied to host memory behind the step that made it; a step is complete when its copy has arrived,
which is looked at when later steps end. It is waited for only when steps are handed over. What a scaler's
update did is known from the loop: the optimizer has stepped, the scale was written once, and it is not yet
time for it to grow. Else it is read.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from typing import Any

ROOM = 1024  # losses that wait


def on_device(tensor: Any) -> bool:
    """Whether the tensor is not in host memory."""
    return not tensor.is_cpu


def is_copied(tensor: Any) -> bool:
    """Whether the tensor can be copied to host memory while the loop goes on."""
    return tensor.is_cuda


def is_recorded() -> bool:
    """Whether work is being recorded as a CUDA graph: then nothing may be asked, and nothing is computed."""
    return sys.modules["torch"].cuda.is_current_stream_capturing()


def new_event() -> Any:
    """What says when the work so far is done."""
    return sys.modules["torch"].cuda.Event()


def new_room(torch: Any) -> Any:
    """Host memory that a GPU copies to while the loop goes on."""
    return torch.empty(ROOM, dtype=torch.float64, pin_memory=torch.cuda.is_available())


class Losses:
    """The losses of quiet steps. `words`: the facts; `loss`, `seconds`: places in those of a step."""

    def __init__(self, words: Any, loss: int, seconds: int):
        self.words, self.loss_at, self.seconds_at = words, loss, seconds
        self.room = new_room(sys.modules["torch"])
        self.values = (ctypes.c_double * ROOM).from_address(self.room.data_ptr())
        self.next = 0
        self.slots: list[int] = []  # of the step that runs
        self.waiting: deque = deque()  # steps that have ended: place, seconds, slots, event

    def put(self, loss: Any) -> float:
        """Takes a loss of this step; the number is not known yet."""
        if loss.numel() != 1 or is_recorded():
            raise RuntimeError("a loss of several values, or of a graph that is being recorded")
        if len(self.slots) + sum(len(step[2]) for step in self.waiting) + 1 >= ROOM:
            self.settle(wait=True)
        slot = self.next = (self.next + 1) % ROOM
        self.room[slot].copy_(loss.detach(), non_blocking=True)
        self.slots.append(slot)
        return float("nan")

    def ended(self, at: int, seconds: float) -> None:
        """The step has ended; its facts begin at `at` and are complete when its losses are there."""
        slots, self.slots = self.slots, []
        if is_recorded():
            self.words[at + self.seconds_at] = seconds
            return
        event = new_event()
        event.record()
        self.waiting.append((at, seconds, slots, event))
        self.settle()

    def settle(self, wait: bool = False) -> None:
        """Completes the steps whose losses are there; wait: all."""
        while self.waiting:
            at, seconds, slots, event = self.waiting[0]
            if wait:
                event.synchronize()
            elif not event.query():
                return
            self.waiting.popleft()
            if slots:
                self.words[at + self.loss_at] = sum(self.values[slot] for slot in slots)
            self.words[at + self.seconds_at] = seconds

    def known(self) -> float:
        """The sum of this step's losses, waited for."""
        slots, self.slots = self.slots, []
        event = new_event()
        event.record()
        event.synchronize()
        return sum(self.values[slot] for slot in slots)


class Scale:
    """Item 0 is the number in a scaler's scale, read again when it was written."""

    def __init__(self, tensor: Any):
        self.tensor, self.version, self.value = tensor, -1, 0.0

    def __getitem__(self, _: int) -> float:
        if self.version != self.tensor._version:
            self.version, self.value = self.tensor._version, self.tensor.item()
        return self.value


class Clean:
    """Item 0 is the number of clean steps since the scale changed, after each update of the scaler."""

    def __init__(self, tensor: Any, scale: Scale, quiet: Any):
        self.tensor, self.scale, self.quiet = tensor, scale, quiet
        self.version, self.value = -1, 0

    def __getitem__(self, _: int) -> int:
        version = self.scale.tensor._version
        if version != self.version:
            self.value = self._predicted(version)
            self.version = version
        return self.value

    def _predicted(self, version: int) -> int:
        """The number after an update; read where it is not known from what the loop did."""
        quiet, stepped, more = self.quiet, self.quiet.stepped, self.quiet.clean + 1
        quiet.stepped = False
        once = version == self.scale.version + 1 == self.version + 1  # nobody else wrote the scale
        known = once and stepped and more < quiet.scaler()._growth_interval
        value = more if known else self.tensor.item()
        if once and value == more:
            self.scale.version = version  # it was written, and is what it was
        return value
