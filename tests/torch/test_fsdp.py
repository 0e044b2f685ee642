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


ADDED_UP = """
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.nn.parallel import DistributedDataParallel

def wrapped(model, kind):
    if kind == "fsdp2":
        for layer in (model[0], model[2], model):
            fully_shard(layer)
        return model
    if kind == "ddp":
        return DistributedDataParallel(model, gradient_as_bucket_view=True)
    options = {
        "use_orig_params": True, "device_id": torch.device("cpu"),
        "sharding_strategy": getattr(ShardingStrategy, kind),
    }
    for index in (0, 2):
        model[index] = FullyShardedDataParallel(model[index], **options)
    return FullyShardedDataParallel(model, **options)

def train(kind, clear):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    model = wrapped(model, kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    probe = None
    if rank == 0 or everywhere:
        probe = ampprobe.attach(model, optimizer, out=f"{kind}-{clear}.json", every=1)
    losses = []
    for step in range(4):
        for p in model.parameters():
            if p.grad is not None and clear == "zeros":
                p.grad.zero_()
            elif clear == "none":
                p.grad = None
        losses.append(0.0)
        for part in range(3):
            x, y = batch((step * 3 + part) * 2 + rank)
            loss = torch.nn.functional.cross_entropy(model(x), y) / 3
            loss.backward()
            losses[-1] += loss.item()
        optimizer.step()
    if probe:
        probe.close()
        assert probe.reason is None, probe.reason
    return losses

everywhere = os.environ["EVERYWHERE"] == "1"
kinds = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "ddp", "fsdp2")
result = {f"{kind}-{clear}": train(kind, clear) for kind in kinds for clear in ("none", "zeros")}
"""


TENSOR_PARALLEL = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

mesh = init_device_mesh("cpu", (world,))

def train(local):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    ways = {"0": ColwiseParallel(use_local_output=local), "2": RowwiseParallel(use_local_output=local)}
    parallelize_module(model, mesh, ways)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    probe = ampprobe.attach(model, optimizer, out=f"{local}.json", every=1) if rank == 0 else None
    losses = []
    for step in range(8):
        optimizer.zero_grad()
        x, y = batch(step)
        outputs = model(x * float("inf") if step == 3 else x)
        if not local:
            y = distribute_tensor(y, mesh, [Replicate()])
        loss = torch.nn.functional.cross_entropy(outputs, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        losses.append((loss if local else loss.full_tensor()).item())
    if probe:
        probe.close()
        assert probe.reason is None, probe.reason
    return losses[:3]

result = {str(local): train(local) for local in (True, False)}
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

    def test_micro_batches_are_added_up_where_gradients_move_to_other_tensors(self):
        """FSDP1 and DDP's buckets put the same gradients into other tensors before the next backward pass."""
        results, documents = ranks.run(ADDED_UP, environment={"EVERYWHERE": "1"})
        for rank, result in enumerate(results):
            self.check_losses(result, documents, rank)

    def test_a_probe_on_one_rank_sends_nothing(self):
        """The other rank would not answer."""
        results, documents = ranks.run(ADDED_UP, environment={"EVERYWHERE": "0"})
        self.check_losses(results[0], documents, 0)

    def test_neither_does_one_of_layers_that_are_parallel(self):
        """Of what layers read and write, and of their weights, each rank has a part."""
        results, documents = ranks.run(TENSOR_PARALLEL)
        for name, losses in results[0].items():
            document = documents[f"{name}.rank0.json"]
            found = document["cells"][0]["loss"]
            self.assertEqual((found[:3], found[3:]), (losses, [None] * 5))
            self.assertIn("first non-finite value: 0 read it", document["warnings"][0])

    def check_losses(self, result, documents, rank):
        for name, losses in result.items():
            with self.subTest(name, rank=rank):
                cell = documents[f"{name}.rank{rank}.json"]["cells"][0]
                self.assertEqual(cell["steps_applied"], len(losses))
                for mine, loss in zip(cell["loss"], losses):
                    self.assertAlmostEqual(float(mine), loss, places=6)

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
