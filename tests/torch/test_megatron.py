"""Megatron-core's own optimizers on gloo: main_grad is counted, scale and skips are Megatron's.

Megatron asks for CUDA by name in places; a function mode puts those tensors on the CPU.
"""

import os
import unittest

import ranks

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
from torch.overrides import TorchFunctionMode
from test_record import exponents

class OnCpu(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.type and len(args) == 1 and not kwargs:
            return function(*args).replace("torch.", "torch.cuda.")
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        if str in map(type, args):
            args = tuple("cpu" if type(a) is str and a == "cuda" else a for a in args)
        return function(*args, **kwargs)

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


if __name__ == "__main__":
    unittest.main()
