"""Logs made by the real frameworks, for tests/cli/log_diagnosis.sh: writes tests/golden/logs.tar.xz.

Needs torch, tensorboard, transformers, deepspeed and megatron-core (scripts/torch-env):
    python scripts/golden_logs.py tests/golden/logs.tar.xz
"""

import contextlib
import io
import json
import logging
import os
import random
import sys
import tarfile
import tempfile

import torch


def pattern(seed, steps, share):
    """Which steps overflow: bursts at first, then single ones."""
    choose = random.Random(seed)
    return [i < 3 or choose.random() < share for i in range(steps)]


def torch_scaler(path):
    """torch.amp.GradScaler, its scale logged by the user at every step as JSON Lines."""
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=20)
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    with open(path, "w", encoding="utf-8") as out:
        for step, overflow in enumerate(pattern(1, 200, 0.02)):
            scale = scaler.get_scale()
            loss = (weight * (float("inf") if overflow else 1.0)).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            out.write(json.dumps({"step": step, "loss": 2.0 - step / 1000, "scale": scale}) + "\n")


def deepspeed_scaler(path):
    """deepspeed's DynamicLossScaler: its own lines, through its own logger."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler
    from deepspeed.utils import logger
    import deepspeed.runtime.fp16.loss_scaler as module

    module.dist.is_initialized = lambda: True
    module.dist.get_rank = lambda *a, **k: 0
    buffer = io.StringIO()
    handler = logging.StreamHandler(buffer)
    handler.setFormatter(logger.handlers[0].formatter)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    scaler = DynamicLossScaler(
        init_scale=2**16,
        scale_window=20,
        min_scale=1,
        delayed_shift=2,
        consecutive_hysteresis=False,
        raise_error_at_min_scale=False,
        dtype=torch.half,
    )
    for overflow in pattern(2, 200, 0.03):
        scaler.update_scale(overflow)
    logger.removeHandler(handler)
    with open(path, "w", encoding="utf-8") as out:
        out.write(buffer.getvalue())


def megatron_scaler(path):
    """megatron-core's DynamicGradScaler, with lines as Megatron-LM's training_log prints them."""
    from megatron.core.optimizer.grad_scaler import DynamicGradScaler

    torch.cuda.FloatTensor = torch.FloatTensor  # it keeps its numbers on a GPU
    with contextlib.ExitStack():
        real = torch.tensor
        torch.tensor = lambda data, **k: real(data, **{a: b for a, b in k.items() if a != "device"})
        scaler = DynamicGradScaler(
            initial_scale=65536.0,
            min_scale=1.0,
            growth_factor=2.0,
            backoff_factor=0.5,
            growth_interval=20,
            hysteresis=2,
        )
        torch.tensor = real
    zero, one = torch.tensor([0.0]), torch.tensor([1.0])
    with open(path, "w", encoding="utf-8") as out:
        for step, overflow in enumerate(pattern(3, 200, 0.03), 1):
            scaler.update(one if overflow else zero)
            scale = scaler.scale.item()  # printed after the step
            out.write(
                f" [2026-01-01 00:00:{step % 60:02d}.000000] iteration {step:8d}/{200:8d} |"
                f" consumed samples: {step * 8:12d} | elapsed time per iteration (ms): 10.0 |"
                f" learning rate: {1e-4:.6E} | global batch size: {8:5d} | lm loss: {2.5:.6E} |"
                f" loss scale: {scale:.1f} | grad norm: {1.0:.3f} |"
                f" number of skipped iterations: {int(overflow):3d} | number of nan iterations: {0:3d} |\n"
            )


def trainer(folder, printed):
    """transformers.Trainer on a model whose loss becomes NaN: what it prints, and trainer_state.json."""
    import transformers

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))
            self.calls = 0

        def forward(self, x=None, labels=None):
            self.calls += 1
            factor = float("nan") if self.calls > 6 else 1.0
            return {"loss": ((self.weight * x).sum(-1) - labels).pow(2).mean() * factor}

    data = [{"x": torch.tensor([1.0, float(i)]), "labels": torch.tensor(1.0)} for i in range(24)]
    with tempfile.TemporaryDirectory() as work:
        arguments = transformers.TrainingArguments(
            output_dir=work,
            per_device_train_batch_size=2,
            num_train_epochs=1,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            seed=1,
            disable_tqdm=True,
            learning_rate=1e-3,
        )
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            run = transformers.Trainer(model=Model(), args=arguments, train_dataset=data)
            run.train()
        run.state.save_to_json(os.path.join(folder, "trainer_state.json"))
    with open(printed, "w", encoding="utf-8") as file:
        file.write(out.getvalue())


def events(folder):
    """torch's SummaryWriter: scalars and histograms of known values."""
    from torch.utils.tensorboard import SummaryWriter

    torch.manual_seed(4)
    with SummaryWriter(folder) as writer:
        for step in range(50):
            writer.add_scalar("train/loss", 2.0 - step / 100, step)
            writer.add_scalar("lr-other/value", 1.0, step)  # no name that is known
            writer.add_scalar("loss_scale", 65536.0 if step < 25 else 32768.0, step)
        values = torch.randn(20000, dtype=torch.float64) * 1e-3
        values[:100] = 0
        writer.add_histogram("grad/fc1", values, 3)
        writer.add_histogram("linear", values, 3, bins="auto")
    low = torch.floor(torch.log2(values.abs()))
    counts = {str(int(e)): int((low == e).sum()) for e in low[values != 0].unique()}
    with open(os.path.join(folder, "exponents.json"), "w", encoding="utf-8") as out:
        json.dump({"exponents": counts, "count": values.numel(), "max": values.max().item()}, out)


def main():
    with tempfile.TemporaryDirectory() as folder:
        torch_scaler(os.path.join(folder, "torch.jsonl"))
        deepspeed_scaler(os.path.join(folder, "deepspeed.log"))
        megatron_scaler(os.path.join(folder, "megatron.log"))
        trainer(folder, os.path.join(folder, "trainer.log"))
        os.mkdir(os.path.join(folder, "tb"))
        events(os.path.join(folder, "tb"))
        for name in os.listdir(os.path.join(folder, "tb")):
            if name.startswith("events"):
                os.rename(os.path.join(folder, "tb", name), os.path.join(folder, "events.tb"))
        os.rename(os.path.join(folder, "tb", "exponents.json"), os.path.join(folder, "exponents.json"))
        with tarfile.open(sys.argv[1], "w:xz") as archive:
            for name in sorted(os.listdir(folder)):
                if os.path.isfile(os.path.join(folder, name)):
                    archive.add(os.path.join(folder, name), name, filter=plain)


def plain(info):
    """Nothing of the machine in the archive."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    main()
