"""Small trainings that the tests run with and without the probe. Everything is seeded."""

import contextlib
import io
import os
import shutil
import sys

sys.path[:0] = [
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"),
    os.path.dirname(os.path.abspath(__file__)),
]

import torch  # noqa: E402

import ampprobe  # noqa: E402
from ampprobe import _abi  # noqa: E402
from recorder import Recorder  # noqa: E402

torch.set_num_threads(1)

REAL_RECORD = _abi.Record
inductor = ("inductor",) if shutil.which(os.environ.get("CXX", "g++")) else ()  # it needs a C++ compiler


def use_recorder(plans=None):
    """Probes made from now on tell a Recorder; gives the list of those that were made."""
    _abi.Record = Recorder
    Recorder.plans = staticmethod(plans) if plans is not None else None
    Recorder.opened = []
    return Recorder.opened


def use_library():
    """Probes made from now on use the C library."""
    _abi.Record = REAL_RECORD


def mlp():
    """In-place ReLU, batch norm, dropout, a frozen layer and a parameter that no loss depends on."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16),
        torch.nn.ReLU(inplace=True),
        torch.nn.BatchNorm1d(16),
        torch.nn.Dropout(0.1),
        torch.nn.Linear(16, 16),
        torch.nn.ReLU(),
        torch.nn.Linear(16, 4),
    )
    model.register_parameter("unused", torch.nn.Parameter(torch.ones(3)))
    model[4].bias.requires_grad_(False)
    return model


def batch(step, rows=32):
    """Inputs and labels of a step."""
    generator = torch.Generator().manual_seed(1000 + step)
    return (torch.randn(rows, 8, generator=generator), torch.randint(0, 4, (rows,), generator=generator))


def take_step(loss, optimizer, scaler=None, unscale=False):
    """The backward pass and the step."""
    if scaler is None:
        loss.backward()
        optimizer.step()
        return
    scaler.scale(loss).backward()
    if unscale:
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()


class Run:
    """One training. Options say how; `probe` whether it is watched. What came out is in the attributes."""

    def __init__(
        self,
        probe=True,
        steps=24,
        optimizer=None,
        scaler=True,
        scale=2.0**20,
        half=torch.float16,
        accumulate=1,
        clip=None,
        set_to_none=True,
        schedule=None,
        compiled=None,
        model=None,
        give_scaler=True,
        closure=False,
        attach=None,
        window=5,
        keep=None,
        device="cpu",
    ):
        torch.manual_seed(0)
        self.device = device
        self.model = (model or mlp)().to(device)
        self.optimizer = (optimizer or (lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)))(
            [p for p in self.model.parameters() if p.requires_grad]
        )
        self.scaler = torch.amp.GradScaler(device, init_scale=scale, growth_interval=window, enabled=scaler)
        forward = torch.compile(self.model, backend=compiled) if compiled else self.model
        self.probe = None
        if probe:
            extra = {"scaler": self.scaler} if give_scaler else {}
            self.probe = (attach or ampprobe.attach)(self.model, self.optimizer, **extra)
        self.schedule = schedule(self.optimizer) if schedule else None
        self.losses, self.scales, self.skips = [], [], []
        self.keep = keep  # a list: copies of all gradients, step by step
        self.sums = []  # of |gradient| at the entry of the scaler's step, before anything is divided
        for step in range(steps):
            self._step(step, forward, half, accumulate, clip, set_to_none, closure)
        if self.probe is not None:
            self.probe.close()
        self.record = getattr(self.probe, "record", None)
        self.state = [value.clone() for value in self.model.state_dict().values()]

    def _loss(self, step, forward, half, accumulate, part):
        inputs, labels = (value.to(self.device) for value in batch(step * accumulate + part))
        with torch.autocast(self.device, dtype=half, enabled=half is not None):
            outputs = forward(inputs)
            return torch.nn.functional.cross_entropy(outputs.float(), labels) / accumulate

    def _step(self, step, forward, half, accumulate, clip, set_to_none, closure):
        self.optimizer.zero_grad(set_to_none=set_to_none)
        if closure:

            def calculate():
                self.optimizer.zero_grad(set_to_none=set_to_none)
                loss = self._loss(step, forward, half, 1, 0)
                loss.backward()
                return loss

            self.losses.append(float(self.optimizer.step(calculate)))
            return
        total = 0.0
        for part in range(accumulate):
            loss = self._loss(step, forward, half, accumulate, part)
            self.scaler.scale(loss).backward()
            total += loss.item()
        self.losses.append(total)
        if self.scaler.is_enabled():
            self.scales.append(self.scaler.get_scale())
        if self.keep is not None:
            self.keep.append(
                {name: p.grad.clone() for name, p in self.model.named_parameters() if p.grad is not None}
            )
        unclipped = [p.grad.clone() for p in self.model.parameters() if p.grad is not None]
        if clip == "scaled":
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        if not self.scaler.is_enabled():
            gradients = unclipped  # the optimizer sees them clipped, the probe does not
        self.sums.append(sum(g[g.isfinite()].double().abs().sum().item() for g in gradients))
        self.skips.append(int(not all(g.isfinite().all() for g in gradients)))
        if clip == "unscaled":
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.schedule is not None:
            self.schedule.step()


def equal(one, other):
    """Whether two runs have the same losses and final state, bit for bit."""
    same_losses = torch.equal(
        torch.tensor(one.losses, dtype=torch.float64), torch.tensor(other.losses, dtype=torch.float64)
    ) or str(one.losses) == str(other.losses)
    return same_losses and all(
        torch.equal(a.nan_to_num(7), b.nan_to_num(7)) if a.is_floating_point() else torch.equal(a, b)
        for a, b in zip(one.state, other.state)
    )


@contextlib.contextmanager
def stderr():
    """What is printed on stderr meanwhile."""
    kept, sys.stderr = sys.stderr, io.StringIO()
    try:
        yield sys.stderr
    finally:
        sys.stderr = kept
