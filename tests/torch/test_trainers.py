"""HF Trainer and Lightning as people use them: records are of their steps, and training is the same."""

import json
import os
import tempfile
import unittest

from settings import ampprobe, stderr, torch, use_library

try:
    import transformers
except ImportError:
    transformers = None
try:
    import lightning
except ImportError:
    lightning = None

HAS_LIBRARY = bool(os.environ.get("AMPPROBE_LIBRARY"))


class Net(torch.nn.Module):
    """What both trainers train."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, inputs, labels=None):
        logits = self.last(torch.relu(self.first(inputs)))
        return {"loss": torch.nn.functional.cross_entropy(logits.float(), labels), "logits": logits}


def rows(count=96):
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(count, 8, generator=generator)
    return [{"inputs": x, "labels": (x.sum() > 0).long()} for x in inputs]


@unittest.skipUnless(HAS_LIBRARY, "AMPPROBE_LIBRARY is not set: libampprobe was not built")
class Trainers(unittest.TestCase):
    def setUp(self):
        use_library()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(folder.name, "run.json")

    def cell(self):
        with open(self.path, encoding="utf-8") as file:
            return json.load(file)["cells"][0]

    def hugging_face(self, probed, **options):
        """Weights and logged losses of a Trainer's run."""
        path = self.path

        class Probe(transformers.TrainerCallback):
            def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):
                self.probe = ampprobe.attach(model, optimizer, out=path, every=1)

        transformers.set_seed(0)
        arguments = transformers.TrainingArguments(
            self.folder,
            use_cpu=True,
            per_device_train_batch_size=8,
            logging_steps=1,
            report_to=[],
            disable_tqdm=True,
            save_strategy="no",
            **{"max_steps": 10, **options},
        )
        callback = Probe()
        model = Net()
        trainer = transformers.Trainer(
            model, arguments, train_dataset=rows(), callbacks=[callback] if probed else []
        )
        with stderr():
            trainer.train()
        if probed:
            callback.probe.close()
            self.assertIsNone(callback.probe.reason)
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return losses, [p.detach().clone() for p in model.parameters()]

    @unittest.skipIf(transformers is None, "transformers is not installed")
    def test_hugging_face(self):
        for name, options in {
            "fp32": {},
            "bf16": {"bf16": True},
            "accumulation": {"bf16": True, "gradient_accumulation_steps": 3, "max_steps": 4},
        }.items():
            with self.subTest(name):
                plain, probed = self.hugging_face(False, **options), self.hugging_face(True, **options)
                self.assertEqual(plain[0], probed[0])
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(plain[1], probed[1])))
                cell = self.cell()
                self.assertEqual(cell["steps_applied"], options.get("max_steps", 10))
                self.assertEqual(cell["steps_skipped"], 0)
                # The Trainer's log rounds to four digits.
                for seen, logged in zip(cell["loss"], probed[0]):
                    self.assertAlmostEqual(float(seen), logged, delta=1e-3)
                kinds = {t["kind"] for t in cell["probes"]["tensors"]}
                self.assertLessEqual({"weight_gradient", "activation_gradient"}, kinds)
                self.assertEqual(cell["level"], "O0" if name == "fp32" else "torch:autocast")

    def facts(self):
        """Names of the facts in the record, with their last values."""
        with open(self.path, encoding="utf-8") as file:
            return {fact["name"]: fact["last"] for fact in json.load(file)["probe"].get("facts", ())}

    @unittest.skipIf(transformers is None, "transformers is not installed")
    def test_the_callback_of_hugging_face_states_what_is_logged(self):
        arguments = transformers.TrainingArguments(
            self.folder, use_cpu=True, logging_steps=2, report_to=[], disable_tqdm=True, save_strategy="no",
            max_steps=6,
        )  # fmt: skip
        callback = ampprobe.trainers.hugging_face(out=self.path, every=1)
        trainer = transformers.Trainer(Net(), arguments, train_dataset=rows(), callbacks=[callback])
        with stderr():
            trainer.train()
        logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        self.assertEqual(self.cell()["steps_applied"], 6)
        self.assertEqual(self.facts()["logged_loss"], float(logged[-1]))

    @unittest.skipIf(lightning is None, "lightning is not installed")
    def test_the_callback_of_lightning_states_what_is_logged(self):
        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net, self.losses = Net(), []

            def training_step(self, batch, _):
                loss = self.net(batch["inputs"], batch["labels"])["loss"]
                self.losses.append(loss.item())
                self.log("train_loss", loss)
                return loss

            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters(), lr=1e-2)

        module = Module()
        with stderr():
            trainer = lightning.Trainer(
                max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                log_every_n_steps=4,
                enable_progress_bar=False, enable_model_summary=False,
                callbacks=[ampprobe.trainers.lightning(out=self.path, every=1)],
            )  # fmt: skip
            trainer.fit(module, torch.utils.data.DataLoader(rows(), batch_size=8))
        self.assertEqual(self.cell()["steps_applied"], 12)
        self.assertAlmostEqual(self.facts()["logged_loss"], module.losses[-1], places=6)

    def lightning_run(self, probed, precision, clip=None, accumulate=1, scale=2.0**22):
        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = Net()
                self.losses, self.scales = [], []
                self.probe = None

            def training_step(self, batch, _):
                loss = self.net(batch["inputs"], batch["labels"])["loss"]
                self.losses.append(loss.item())
                return loss

            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters(), lr=1e-2)

            def on_train_start(self):
                if probed:
                    self.probe = ampprobe.attach(self, self.optimizers(), out=path, every=1)

        path = self.path
        lightning.seed_everything(0, verbose=False)
        module = Module()
        plugins = None
        if precision == "16-mixed":
            scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=4)
            plugins = [lightning.pytorch.plugins.MixedPrecision("16-mixed", "cpu", scaler=scaler)]
        with stderr():
            trainer = lightning.Trainer(
                max_epochs=1,
                accelerator="cpu",
                precision=None if plugins else precision,
                plugins=plugins,
                gradient_clip_val=clip,
                accumulate_grad_batches=accumulate,
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
            )
            trainer.fit(module, torch.utils.data.DataLoader(rows(), batch_size=8))
        if probed:
            module.probe.close()
            self.assertIsNone(module.probe.reason)
        state = [p.detach().clone() for p in module.parameters()]
        return module.losses, state, plugins[0].scaler.get_scale() if plugins else None

    @unittest.skipIf(lightning is None, "lightning is not installed")
    def test_lightning(self):
        for precision, clip, accumulate in (
            ("16-mixed", None, 1),
            ("16-mixed", 0.5, 1),
            ("bf16-mixed", 0.5, 1),
            ("bf16-mixed", None, 2),
            ("bf16-true", None, 1),
        ):
            with self.subTest(precision=precision, clip=clip, accumulate=accumulate):
                plain = self.lightning_run(False, precision, clip, accumulate)
                probed = self.lightning_run(True, precision, clip, accumulate)
                self.assertEqual(plain[0], probed[0])
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(plain[1], probed[1])))
                cell = self.cell()
                steps = 12 // accumulate
                self.assertEqual(cell["steps_applied"] + cell["steps_skipped"], steps)
                if accumulate == 1:
                    self.assertEqual([float(x) for x in cell["loss"]], probed[0])
                if precision == "16-mixed":
                    self.assertEqual(plain[2], probed[2])
                    self.assertGreater(cell["steps_skipped"], 0)
                    self.assertGreater(cell["steps_applied"], 0)
                    scales = [value for value, count in cell["scale"] for _ in range(count)]
                    self.assertEqual(scales[0], 2.0**22)
                else:
                    self.assertEqual(cell["steps_skipped"], 0)
                self.assertEqual(cell["level"], "O3" if precision == "bf16-true" else "torch:autocast")


if __name__ == "__main__":
    unittest.main()
