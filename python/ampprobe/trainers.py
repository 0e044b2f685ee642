"""Callbacks of trainers that own the loop: transformers' Trainer and Lightning.

    transformers.Trainer(..., callbacks=[ampprobe.trainers.hugging_face(out="run.ampprobe.json")])
    lightning.Trainer(..., callbacks=[ampprobe.trainers.lightning(out="run.ampprobe.json")])

Options are those of ampprobe.attach. A callback attaches when training begins, closes when it ends, and says
which losses the trainer logs, which need not be those of the steps (Trainer replaces NaN before it logs).
"""

from __future__ import annotations

import sys
from typing import Any

from ._attach import attach


class _Watch:
    """One probe, from the beginning of a training to its end."""

    def __init__(self, options: dict):
        self.options = options
        self.probe: Any = None

    def begin(self, model: Any, optimizers: Any) -> None:
        """Attaches; a second training of the same trainer gets a record of its own."""
        self.end()
        self.probe = attach(model, optimizers, **self.options)

    def logs(self, value: Any) -> None:
        """The trainer logs this as the loss of a step or of several."""
        if self.probe is not None and isinstance(value, (int, float)):
            self.probe.fact("logged_loss", value)

    def end(self) -> None:
        """The training is over, or failed."""
        probe, self.probe = self.probe, None
        if probe is not None:
            probe.close()


def hugging_face(**options: Any) -> Any:
    """A callback for transformers.Trainer."""
    import transformers

    watch = _Watch(options)

    class Probe(transformers.TrainerCallback):
        """Records what the Trainer trains."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            watch.begin(given["model"], given["optimizer"])

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            watch.logs((logs or {}).get("loss"))

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            watch.end()

    return Probe()


def lightning(loss: str = "train_loss", **options: Any) -> Any:
    """A callback for Lightning's Trainer; `loss` is the name under which the module logs its loss."""
    if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
        from pytorch_lightning import Callback
    else:
        from lightning.pytorch import Callback

    watch = _Watch(options)

    class Probe(Callback):
        """Records what the Trainer trains."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            watch.begin(pl_module, trainer.optimizers)

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            value = trainer.callback_metrics.get(loss)
            if value is not None and trainer.global_step % trainer.log_every_n_steps == 0:
                watch.logs(float(value))

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            watch.end()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            watch.end()

    return Probe()
