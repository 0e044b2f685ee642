"""FSDP2 and FSDP1 on two processes: every rank records its shard of the gradients; training is the same."""

import json
import os
import subprocess
import tempfile
import unittest

import ranks

PROGRAM = """
from collections import Counter
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from recorded import exponents

def train(probed, half):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)
    for layer in (model[0], model[2], model):
        fully_shard(layer, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**26, growth_interval=3, enabled=half is torch.float16)
    probe = None
    if probed:
        probe = ampprobe.attach(model, optimizer, scaler=scaler, out=f"{half}.json".split(".", 1)[1], every=1)
    losses, skips, seen = [], [], {}
    for step in range(10):
        optimizer.zero_grad()
        x, y = batch(step * 2 + rank)
        loss = torch.nn.functional.cross_entropy(model(x.to(half)).float(), y % 3)
        scaler.scale(loss).backward()
        for name, parameter in model.named_parameters():
            local = parameter.grad.to_local()
            found = seen.setdefault(name, Counter())
            found.update({str(k): v for k, v in exponents(local.clone()).items()})
        found = [p.grad.full_tensor().isfinite().all() for p in model.parameters()]
        skips.append(int(not all(found)))
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    if probe:
        probe.close()
        assert probe.reason is None, probe.reason
    weights = [p.full_tensor().double().sum().item() for p in model.parameters()]
    return {"losses": losses, "weights": weights, "skips": skips, "seen": seen}

result = {}
for half in (torch.float16, torch.bfloat16):
    plain, probed = train(False, half), train(True, half)
    result[str(half)] = {**probed, "same": plain == probed}
"""


FSDP1 = """
from collections import Counter
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from recorded import exponents

def train(probed, half, original):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    options = {
        "mixed_precision": MixedPrecision(param_dtype=half, reduce_dtype=torch.float32),
        "use_orig_params": original, "device_id": torch.device("cpu"),
    }
    for index in (0, 2):
        model[index] = FullyShardedDataParallel(model[index], **options)
    model = FullyShardedDataParallel(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = ShardedGradScaler("cpu", init_scale=2.0**22, growth_interval=3, enabled=half is torch.float16)
    probe = None
    if probed:
        name = f"{str(half)[6:]}-{original}.json"
        probe = ampprobe.attach(model, optimizer, scaler=scaler, out=name, every=1)
    losses, skips, seen = [], [], {}
    for step in range(10):
        optimizer.zero_grad()
        x, y = batch(step * 2 + rank)
        loss = torch.nn.functional.cross_entropy(model(x.to(half)).float(), y % 3)
        scaler.scale(loss).backward()
        finite = torch.ones(())
        for name, parameter in model.named_parameters():
            if parameter.grad is not None and parameter.numel():  # else all of it is the other rank's
                found = seen.setdefault(name.replace("_fsdp_wrapped_module.", ""), Counter())
                found.update({str(k): v for k, v in exponents(parameter.grad.clone()).items()})
                finite *= float(parameter.grad.isfinite().all())
        dist.all_reduce(finite, op=dist.ReduceOp.MIN)
        skips.append(int(not finite))
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    if probe:
        probe.close()
        assert probe.reason is None, probe.reason
    weights = [p.detach().double().sum().item() for p in model.parameters()]
    return {"losses": losses, "weights": weights, "skips": skips, "seen": seen}

result = {}
for half in (torch.float16, torch.bfloat16):
    for original in (True, False):  # parameters by their names, or as one flat tensor
        plain, probed = train(False, half, original), train(True, half, original)
        result[f"{str(half)[6:]}-{original}"] = {**probed, "same": plain == probed}
"""


@unittest.skipUnless(
    os.environ.get("AMPPROBE_LIBRARY"), "AMPPROBE_LIBRARY is not set: libampprobe was not built"
)
class Fsdp(unittest.TestCase):
    def test_fsdp2(self):
        results, documents = ranks.run(PROGRAM)
        for rank, result in enumerate(results):
            for half in ("float16", "bfloat16"):
                found, document = result[f"torch.{half}"], documents[f"{half}.rank{rank}.json"]
                self.compare(found, document)
        self.assertIn(1, results[0]["torch.float16"]["skips"])
        self.merge(documents)

    def test_fsdp1(self):
        results, documents = ranks.run(FSDP1)
        for rank, result in enumerate(results):
            for name, found in result.items():
                with self.subTest(name, rank=rank):
                    self.compare(found, documents[f"{name}.rank{rank}.json"])
            self.assertEqual(set(result["bfloat16-True"]["skips"]), {0})
            self.assertEqual(set(result["float16-True"]["skips"]), {0, 1})

    def compare(self, found, document):
        """A rank's record has the losses, skips and gradients that the rank had; training is the same."""
        self.assertTrue(found["same"])
        cell = document["cells"][0]
        self.assertEqual([float(x) for x in cell["loss"]], found["losses"])
        self.assertEqual(cell["skipped_steps"], [i for i, skip in enumerate(found["skips"]) if skip])
        rows = {t["name"]: t for t in cell["probes"]["tensors"] if t["kind"] == "weight_gradient"}
        self.assertEqual(set(rows), {name + ".grad" for name in found["seen"]})
        for name, counts in found["seen"].items():
            exponents = rows[name + ".grad"]["exponents"]
            shown = {str(exponents["first"] + i): n for i, n in enumerate(exponents["counts"]) if n}
            self.assertEqual(shown, counts)

    def merge(self, documents):
        """ampbench report reads the ranks' records as one."""
        program = os.environ.get("AMPBENCH")
        if not program:
            return
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, f"{rank}.json") for rank in range(2)]
            for rank, path in enumerate(paths):
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(documents[f"float16.rank{rank}.json"], file)
            for arguments, status in ((paths, 0), ([paths[0], paths[0]], 2)):
                run = subprocess.run(
                    [program, "report", *arguments], capture_output=True, text=True, check=False
                )
                self.assertEqual(run.returncode, status, run.stderr)


if __name__ == "__main__":
    unittest.main()
