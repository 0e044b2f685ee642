"""DeepSpeed's own engine on gloo: gradients, scale and skips are DeepSpeed's, and training is the same."""

import os
import unittest

import ranks
import settings  # noqa: F401  (where ampprobe is)

try:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed
except ImportError:
    deepspeed = None

PROGRAM = """
from collections import Counter
import deepspeed
from deepspeed.accelerator import get_accelerator
from deepspeed.utils import safe_get_full_grad
from recorded import exponents
type(get_accelerator()).is_fp16_supported = lambda self: True  # it computes in fp16, and says it does not

def train(probed, kind, stage):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    config = {
        "train_micro_batch_size_per_gpu": 32, "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0, "steps_per_print": 10000, "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, kind: {"enabled": True},
    }
    if kind == "fp16":
        config[kind].update(initial_scale_power=22, hysteresis=1, loss_scale_window=2)
    if LOGGED:
        config["csv_monitor"] = {"enabled": True, "output_path": "log", "job_name": f"{kind}{stage}{probed}"}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    probe = None
    if probed:
        probe = ampprobe.attach(engine, optimizer, out=f"{kind}-{stage}.json", every=1)
    half = torch.float16 if kind == "fp16" else torch.bfloat16
    losses, scales, skips, seen = [], [], [], {}
    for step in range(12):
        total = 0.0
        for part in range(2):
            x, y = batch((step * 2 + part) * world + rank)
            loss = torch.nn.functional.cross_entropy(engine(x.to(half)).float(), y)
            total += loss.item() / 2
            engine.backward(loss)
            if part:
                scales.append(optimizer.loss_scale if kind == "fp16" else None)
                for name, p in engine.module.named_parameters():
                    whole = safe_get_full_grad(p)
                    found = seen.setdefault(name, Counter())
                    found.update({str(k): v for k, v in exponents(whole.float().clone()).items()})
            engine.step()
        losses.append(total)
        skips.append(int(optimizer.overflow))
        if LOGGED and step % 3 == 2:  # as PipelineEngine does
            engine.monitor.write_events([("Train/Samples/train_loss", total, engine.global_samples)])
    if probe:
        probe.close()
        assert probe.reason is None, probe.reason
    return {"losses": losses, "scales": scales, "skips": skips, "seen": seen}

result = {}
for kind, stage in CASES:
    plain, probed = train(False, kind, stage), train(True, kind, stage)
    result[f"{kind}-{stage}"] = {**probed, "same": plain == probed}
"""


@unittest.skipIf(deepspeed is None, "deepspeed is not installed")
@unittest.skipUnless(
    os.environ.get("AMPPROBE_LIBRARY"), "AMPPROBE_LIBRARY is not set: libampprobe was not built"
)
class DeepSpeed(unittest.TestCase):
    def check(self, cases, world, logged=False):
        program = PROGRAM.replace("CASES", repr(cases)).replace("LOGGED", repr(logged))
        results, documents = ranks.run(program, world, {"DS_ACCELERATOR": "cpu", "LOCAL_RANK": "0"})
        for case in (f"{kind}-{stage}" for kind, stage in cases):
            shown = {}
            for rank, result in enumerate(results):
                with self.subTest(case=case, rank=rank):
                    found = result[case]
                    name = f"{case}.json" if world == 1 else f"{case}.rank{rank}.json"
                    cell = documents[name]["cells"][0]
                    self.assertTrue(found["same"])
                    self.assertEqual([float(x) for x in cell["loss"]], found["losses"])
                    self.assertEqual(
                        cell["skipped_steps"], [i for i, skip in enumerate(found["skips"]) if skip]
                    )
                    if found["scales"][0] is not None:
                        scales = [value for value, steps in cell["scale"] for _ in range(steps)]
                        self.assertEqual(scales, found["scales"])
                    self.add(shown, cell)
            if logged:
                (fact,) = documents[f"{case}.json"]["probe"]["facts"]
                self.assertEqual((fact["name"], fact["times"]), ("logged_loss", 4))
                losses = results[0][case]["losses"]
                self.assertEqual([fact["first"], fact["last"]], [losses[2], losses[11]])
            with self.subTest(case=case, gradients="of all ranks"):
                for parameter, counts in results[0][case]["seen"].items():
                    self.assertEqual(shown[parameter + ".grad"], counts, parameter)

    def add(self, shown, cell):
        """Adds a rank's histograms, whose shards do not overlap."""
        for tensor in cell["probes"]["tensors"]:
            if tensor["kind"] == "weight_gradient" and tensor["exponents"]:
                first = tensor["exponents"]["first"]
                mine = shown.setdefault(tensor["name"], {})
                for index, count in enumerate(tensor["exponents"]["counts"]):
                    if count:
                        mine[str(first + index)] = mine.get(str(first + index), 0) + count

    def test_every_stage(self):
        self.check([("bf16", 0), ("bf16", 1), ("bf16", 2), ("bf16", 3), ("fp16", 1), ("fp16", 3)], 1)

    def test_what_its_monitor_writes_is_stated(self):
        self.check([("bf16", 1)], 1, logged=True)

    def test_two_ranks_hold_a_shard_each(self):
        self.check([("fp16", 1), ("bf16", 2), ("bf16", 3)], 2)

    def test_a_version_that_is_not_known(self):
        from ampprobe._frameworks import _deepspeed

        class Known(_deepspeed.DeepSpeed):
            versions = ("0.1.", "0.2.")

        with self.assertRaises(RuntimeError) as caught:
            Known(self)
        self.assertRegex(
            str(caught.exception),
            r"^ampprobe.attach: DeepSpeed [0-9.]+ is not a version whose optimizers are known "
            r"\(0.1.\*, 0.2.\*\)$",
        )


if __name__ == "__main__":
    unittest.main()
