"""Megatron-core's own optimizers on gloo: main_grad is counted, scale and skips are Megatron's.

Megatron asks for CUDA by name in places; a function mode puts those tensors on the CPU.
"""

import os
import unittest

import ranks
import settings  # noqa: F401  (where ampprobe is)

try:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import megatron.core
except ImportError:
    megatron = None

PROGRAM = """
from collections import Counter
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.transformer import TransformerConfig
from on_cpu import OnCpu
from recorded import exponents

def train(probed, half, shards):
    torch.manual_seed(0)
    kinds = {"fp16": half is torch.float16, "bf16": half is torch.bfloat16}
    config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1, **kinds)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to(half)
    net.config = config
    parallel = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=shards)
    model = DistributedDataParallel(config, parallel, net)
    optimizer = get_megatron_optimizer(OptimizerConfig(
        optimizer="adam", lr=1e-3, params_dtype=half, use_distributed_optimizer=shards,
        initial_loss_scale=2.0**20, loss_scale_window=3, hysteresis=1, clip_grad=1.0, **kinds), [model])
    name = f"{str(half)[6:]}-{int(shards)}"
    probe = ampprobe.attach(model, optimizer, out=name + ".json", every=1) if probed else None
    losses, scales, skips, seen = [], [], [], {}
    for step in range(14):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        total = 0.0
        for part in range(2):
            x, y = batch((step * 2 + part) * world + rank)
            loss = torch.nn.functional.cross_entropy(model(x.to(half)).float(), y) / 2
            total += loss.item()
            optimizer.scale_loss(loss).backward()
        scales.append(optimizer.get_loss_scale().item())
        model.finish_grad_sync()
        for key, p in net.named_parameters():
            found = exponents(p.main_grad.clone())
            seen.setdefault(key, Counter()).update({str(k): v for k, v in found.items()})
        skips.append(int(not optimizer.step()[0]))
        losses.append(total)
    if probe:
        probe.close()
        assert probe.reason is None, probe.reason
    weights = [p.double().sum().item() for p in net.parameters()]
    return name, {"losses": losses, "scales": scales, "skips": skips, "seen": seen, "weights": weights}

torch.cuda.current_device = lambda: "cpu"
parallel_state.initialize_model_parallel()
result = {}
with OnCpu():
    for half, shards in ((torch.float16, False), (torch.float16, True), (torch.bfloat16, False)):
        (name, plain), (_, probed) = train(False, half, shards), train(True, half, shards)
        result[name] = {**probed, "same": plain == probed}
"""


LOGGED = """
import types

logged = []

def training_log(loss_dict, total_loss_dict, learning_rate, iteration, loss_scale, report_memory_flag,
                 skipped_iter, grad_norm=None):
    # What Megatron-LM's does with its sums, in other words; the package of Megatron-core has no such module.
    steps = ("advanced iterations", "skipped iterations", "nan iterations")
    for name, more in zip(steps, (not skipped_iter, skipped_iter, 0)):
        total_loss_dict[name] = total_loss_dict.get(name, 0) + int(more)
    for name, loss in loss_dict.items():
        if not skipped_iter:
            total_loss_dict[name] = total_loss_dict.get(name, torch.zeros(1)) + loss
    if iteration % 4 == 0:
        applied = max(1, total_loss_dict[steps[0]])
        means = {name: total.item() / applied for name, total in total_loss_dict.items() if name not in steps}
        logged.append(means)
        for name in total_loss_dict:
            total_loss_dict[name] = 0 if name in steps else torch.zeros(1)
    return report_memory_flag

sys.modules["megatron.training"] = types.ModuleType("megatron.training")
training = sys.modules["megatron.training.training"] = types.ModuleType("megatron.training.training")
training.training_log = training_log
"""
CALL = """
        found = {"mtp loss": torch.tensor([9.0]), "lm loss": torch.tensor([total])}
        training.training_log(found, totals, 1e-3, step + 1, scales[-1], False, skips[-1], grad_norm=None)
"""


@unittest.skipIf(megatron is None, "megatron-core is not installed")
@unittest.skipUnless(
    os.environ.get("AMPPROBE_LIBRARY"), "AMPPROBE_LIBRARY is not set: libampprobe was not built"
)
class MegatronCore(unittest.TestCase):
    def test_optimizers(self):
        results, documents = ranks.run(PROGRAM, 1)
        for name, found in results[0].items():
            with self.subTest(name):
                cell = documents[name + ".json"]["cells"][0]
                self.assertTrue(found["same"])
                self.assertEqual([float(x) for x in cell["loss"]], found["losses"])
                self.assertEqual(cell["skipped_steps"], [i for i, skip in enumerate(found["skips"]) if skip])
                self.assertEqual(
                    [value for value, steps in cell["scale"] for _ in range(steps)], found["scales"]
                )
                rows = {t["name"]: t for t in cell["probes"]["tensors"] if t["kind"] == "weight_gradient"}
                for parameter, counts in found["seen"].items():
                    entry = rows[parameter + ".grad"]["exponents"]
                    shown = {str(entry["first"] + i): n for i, n in enumerate(entry["counts"]) if n}
                    self.assertEqual(shown, counts)
        self.assertIn(1, results[0]["float16-1"]["skips"])
        self.assertNotIn(1, results[0]["bfloat16-0"]["skips"])

    def test_what_its_loop_logs_is_stated(self):
        last = "        losses.append(total)\n"
        program = LOGGED + PROGRAM.replace(last, CALL + last)
        begin = "losses, scales, skips, seen ="
        program = program.replace(begin, f"totals, {begin} {{}},")
        program += "result = {'logged': logged, 'own': training.training_log is training_log}\n"
        results, documents = ranks.run(program, 1)
        losses = [entry["lm loss"] for entry in results[0]["logged"]]
        for index, name in enumerate(("float16-0", "float16-1", "bfloat16-0")):
            with self.subTest(name):  # three lines without the probe, then three with it
                mine = losses[6 * index + 3 : 6 * index + 6]
                facts = {fact["name"]: fact for fact in documents[name + ".json"]["probe"]["facts"]}
                found = facts["logged_loss"]
                self.assertEqual((found["times"], found["first"], found["last"]), (3, mine[0], mine[-1]))
        self.assertTrue(results[0]["own"])

    def test_a_log_that_is_not_known(self):
        from types import SimpleNamespace

        from ampprobe._frameworks import _framework, _megatron

        class Known(_megatron.Megatron):
            version = staticmethod(lambda: "0.16.9")

            @classmethod
            def logs(cls):
                loop = SimpleNamespace(training_log=lambda loss_dict: None)
                yield _framework.Log(loop, "training_log", None)

        with self.assertRaises(RuntimeError) as caught:
            Known(self)
        self.assertEqual(
            str(caught.exception),
            "ampprobe.attach: training_log of Megatron-core 0.16.9 has no argument total_loss_dict: "
            "it is not a version whose logged losses are known",
        )


if __name__ == "__main__":
    unittest.main()
