"""What half formats lose in looked-at operations: sums, averages, counters, states, whole numbers, casts to
fp8. Each beside a twin that is sound."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

import settings  # noqa: F401
import torch

from ampprobe import _ops

PROGRAM = os.environ.get("AMPBENCH")
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def found(steps, *models):
    """Names and values of the facts that a Looker finds in one call."""
    looker = _ops.Looker(torch)
    looker.knows(list(models))
    looker.start()
    looker.begins(0)
    try:
        steps()
    finally:
        looker.on = False
        looker.leave()
    assert looker.failed is None, looker.failed
    return {name: value for name, value, _ in looker.facts()}


class Sums(unittest.TestCase):
    def counted(self, dtype, one, times):
        def steps():
            seen = torch.zeros((), dtype=dtype)
            for _ in range(times):
                seen += one

        return found(steps)

    def test_a_counter_stands_still_beyond_its_whole_numbers(self):
        facts = self.counted(BF16, 1, 512)
        self.assertEqual(list(facts), ["count_increments_lost"])
        self.assertAlmostEqual(facts["count_increments_lost"], 256 / 511, places=2)  # from 256 on
        self.assertEqual(self.counted(BF16, 1, 256), {})
        self.assertEqual(self.counted(FP16, 1, 512), {})
        self.assertEqual(self.counted(FP32, 1, 512), {})

    def test_a_sum_written_anew_is_a_sum(self):
        def steps(dtype):
            where = torch.full((64,), 3.0, dtype=dtype)
            for _ in range(40):
                where = where + torch.full((64,), 0.004, dtype=dtype)

        self.assertEqual(found(lambda: steps(BF16)), {"sum_increments_lost": 1.0})
        self.assertEqual(found(lambda: steps(FP32)), {})

    def test_a_sum_that_leaves_the_format(self):
        def steps(dtype, times):
            squares = torch.zeros((), dtype=dtype)
            for _ in range(times):
                squares += torch.tensor(20000.5).to(dtype)

        self.assertAlmostEqual(found(lambda: steps(FP16, 8))["sum_beyond_half"], 80000, delta=100)
        self.assertNotIn("sum_beyond_half", found(lambda: steps(FP16, 3)))
        self.assertNotIn("sum_beyond_half", found(lambda: steps(BF16, 8)))

    def test_a_running_product_that_its_factors_do_not_move(self):
        def steps(dtype, beta, times=64):
            run = torch.ones((), dtype=dtype)
            for factor in (1 - torch.full((times,), beta)).to(dtype):  # 1 - 1e-3 is 1 in bf16
                run = run * factor

        self.assertEqual(found(lambda: steps(BF16, 1e-3)), {"product_lost": 1.0})
        self.assertLess(found(lambda: steps(BF16, 0.1)).get("product_lost", 0), 0.05)
        self.assertLess(found(lambda: steps(FP16, 1e-2)).get("product_lost", 0), 0.05)
        self.assertEqual(found(lambda: steps(FP32, 1e-3)), {})
        self.assertEqual(found(lambda: steps(BF16, 1e-3, times=8)), {})

    def test_a_cumulative_product_of_factors_that_a_cast_rounded(self):
        def steps(dtype, most):
            (1 - torch.linspace(1e-5, most, 100)).to(dtype).cumprod(0)

        self.assertEqual(found(lambda: steps(BF16, 1.9e-3)), {"product_lost": 1.0})
        self.assertLess(found(lambda: steps(FP16, 2e-2)).get("product_lost", 0), 0.05)
        self.assertEqual(found(lambda: steps(FP32, 1.9e-3)), {})

    def test_a_table_that_was_made_before_training_is_remembered(self):
        looker = _ops.Looker(torch)
        looker.start()
        (1 - torch.full((64,), 1e-3)).to(BF16).cumprod(0)
        torch.arange(600).to(BF16).sin()
        model = torch.nn.Linear(2, 2)
        model(torch.randn(3, 2))
        looker.on = False
        looker.start()  # later steps
        looker.on = False
        looker.leave()
        self.assertEqual({name for name, _, _ in looker.facts()}, {"product_lost", "whole_numbers_in_bf16"})

    def test_gradients_added_by_hand(self):
        model = torch.nn.Linear(3, 2, bias=False)

        def steps(dtype, times):
            total = torch.zeros(2, 3, dtype=dtype)
            for _ in range(times):
                (slope,) = torch.autograd.grad(model(torch.ones(1, 3)).sum(), model.weight)
                total += slope.to(dtype)

        self.assertGreater(found(lambda: steps(BF16, 400), model)["gradient_increments_lost"], 0.3)
        self.assertEqual(found(lambda: steps(BF16, 16), model), {})
        self.assertEqual(found(lambda: steps(FP32, 400), model), {})

    def average(self, dtype, move):
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 8)
        mean = [p.detach().to(dtype) * 0.5 for p in model.parameters()]

        def steps():
            with torch.no_grad():
                for _ in range(4):
                    move(mean, [p.to(dtype) for p in model.parameters()])

        return found(steps, model)

    def test_averages_of_weights_however_they_are_written(self):
        def two_steps(rate):
            return lambda m, w: [a.mul_(1 - rate).add_(b, alpha=rate) for a, b in zip(m, w)]

        def lerp(rate):
            return lambda m, w: [a.lerp_(b, rate) for a, b in zip(m, w)]

        def foreach(rate):
            return lambda m, w: torch._foreach_lerp_(m, w, rate)

        def back(rate):
            return lambda m, w: [a.add_(rate * (b - a)) for a, b in zip(m, w)]

        for form in (two_steps, lerp, foreach, back):
            with self.subTest(form=form.__name__):
                self.assertGreater(self.average(BF16, form(0.001))["average_increments_lost"], 0.7)
                self.assertEqual(self.average(FP32, form(0.001)), {})
                self.assertLess(self.average(BF16, form(0.2)).get("average_increments_lost", 0), 0.1)

    def test_a_sum_that_compensates_is_sound(self):
        model = torch.nn.Linear(4, 4, bias=False).to(BF16)

        def steps(compensated):
            rest = torch.zeros_like(model.weight)
            with torch.no_grad():
                for _ in range(6):
                    change = rest + 1e-4
                    old = model.weight.clone()
                    model.weight.add_(change)
                    if compensated:
                        rest = change - (model.weight - old)

        self.assertGreater(found(lambda: steps(False), model)["weight_increments_lost"], 0.8)
        self.assertEqual(found(lambda: steps(True), model), {})

    def test_what_is_computed_wide_and_stored_in_half(self):
        mean = torch.full((16,), 2.0, dtype=BF16)
        wide = torch.full((16,), 2.0)

        def steps(own):
            for _ in range(5):
                wide.add_(1e-3)
                mean.copy_(mean.float() + 1e-3 if own else wide)

        self.assertEqual(found(lambda: steps(True)), {"sum_increments_lost": 1.0})
        self.assertEqual(found(lambda: steps(False)), {})  # a copy of what is kept in fp32

    def test_states_of_an_optimizer_written_by_hand(self):
        class Mine(torch.optim.Optimizer):
            def __init__(self, parameters, dtype):
                super().__init__(parameters, {})
                self.dtype = dtype

            @torch.no_grad()
            def step(self):
                for p in self.param_groups[0]["params"]:
                    second = self.state[p].setdefault("energy", torch.zeros_like(p, dtype=self.dtype))
                    slope = p.grad.to(self.dtype)
                    second.mul_(0.999).addcmul_(slope, slope, value=0.001)

        def steps(dtype, times=3):
            model = torch.nn.Linear(4, 4)
            mine = Mine(model.parameters(), dtype)
            looker_models.append(model)
            for _ in range(times):
                (1e-3 * model(torch.ones(2, 4)).sum()).backward()
                mine.step()
                mine.zero_grad()

        looker_models: list = []
        model = torch.nn.Linear(4, 4)  # of the same shapes
        self.assertEqual(found(lambda: steps(FP16), model), {"state_flushed": 1.0})
        self.assertEqual(found(lambda: steps(FP16, 1), model), {"state_flushed": 1.0})  # the first square
        self.assertEqual(found(lambda: steps(FP32), model), {})

    def test_sums_by_index(self):
        def steps(dtype):
            where = torch.zeros(1000, dtype=torch.long)
            torch.zeros(4, dtype=dtype).index_add_(0, where, torch.ones(1000, dtype=dtype))

        self.assertAlmostEqual(found(lambda: steps(BF16))["count_increments_lost"], 0.744, places=2)
        self.assertEqual(found(lambda: steps(FP32)), {})


class Statistics(unittest.TestCase):
    def trained(self, dtype, momentum):
        norm = torch.nn.BatchNorm1d(6, momentum=momentum).to(dtype)
        with torch.no_grad():
            norm.running_mean.fill_(5.0)

        def steps():
            torch.manual_seed(0)
            for _ in range(3):
                norm((torch.randn(64, 6) + 6.5).to(dtype))

        return found(steps, norm)

    def test_a_running_mean_that_does_not_follow(self):
        self.assertEqual(self.trained(BF16, 0.002), {"running_mean_lost": 1.0})
        self.assertEqual(self.trained(BF16, 0.1), {})
        self.assertEqual(self.trained(FP32, 0.002), {})

    def test_a_running_variance_that_left_the_range(self):
        norm = torch.nn.BatchNorm1d(2)
        self.assertEqual(found(lambda: norm(torch.randn(8, 2)), norm), {})
        norm.running_var[0] = float("inf")
        self.assertEqual(found(lambda: norm(torch.randn(8, 2)), norm)["running_statistics_nonfinite"], 0.5)


class WholeNumbers(unittest.TestCase):
    def looked_up(self, dtype, first):
        table = torch.nn.Embedding(6000, 2)
        return found(lambda: table(torch.arange(first, first + 8).to(dtype).long().clamp(max=5999)), table)

    def test_ids_that_were_in_half(self):
        self.assertEqual(self.looked_up(FP16, 5000), {"whole_numbers_in_fp16": 5008.0})
        self.assertEqual(self.looked_up(BF16, 300), {"whole_numbers_in_bf16": 308.0})
        self.assertEqual(self.looked_up(FP16, 2000), {})
        self.assertEqual(self.looked_up(FP32, 5000), {})

    def test_numbers_that_look_nothing_up_are_no_ids(self):
        self.assertEqual(found(lambda: (torch.arange(5000, 5008).half().long() * 2).sum()), {})

    def test_positions_of_a_sine(self):
        def steps(dtype):
            (torch.arange(1000).to(dtype)[:, None] * torch.tensor([1.0, 0.1]).to(dtype)).sin()

        self.assertEqual(found(lambda: steps(BF16)), {"whole_numbers_in_bf16": 1000.0})
        self.assertEqual(found(lambda: steps(FP16)), {})


class OneByte(unittest.TestCase):
    def test_overflow_and_flush_of_casts(self):
        form = torch.float8_e4m3fn
        facts = found(lambda: torch.tensor([1.0, 448.0, 1000.0, 2000.0]).to(form))
        self.assertEqual(facts, {"fp8_overflowed": 0.5})
        self.assertEqual(found(lambda: torch.tensor([1.0, 448.0]).to(form)), {})

        class Narrow(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, slope):
                return slope.to(form).float()

        def steps(size):
            x = torch.ones(4, requires_grad=True)
            (Narrow.apply(x) * torch.tensor([size, size, size, 1.0])).sum().backward()

        self.assertEqual(found(lambda: steps(1e-4)), {"fp8_gradients_flushed": 0.75})
        self.assertEqual(found(lambda: steps(0.1)), {})


class Backward(unittest.TestCase):
    def test_gradients_that_a_function_casts_to_fp16_and_flushes(self):
        class Round(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.round()

            @staticmethod
            def backward(ctx, slope):
                return slope.half().float()

        def steps(*sizes):
            x = torch.ones(len(sizes), requires_grad=True)
            (Round.apply(x) * torch.tensor(sizes)).sum().backward()

        self.assertEqual(found(lambda: steps(1e-9, 1e-10)), {"gradients_flushed": 1.0})
        self.assertEqual(found(lambda: steps(0.5, 0.1)), {})
        self.assertLess(found(lambda: steps(0.5, 1e-9))["gradients_flushed"], 1e-12)
        x = torch.ones(3, requires_grad=True)  # the cast's own backward pass: what scales are for
        self.assertEqual(found(lambda: (x.half().float() * 1e-10).sum().backward()), {})


SCRIPT = """
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = torch.zeros((), dtype=torch.DTYPE)
    truth = torch.randn(6, 2)
    for step in range(300):
        x = torch.randn(16, 6)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = (model(x).float() - x @ truth).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += 16
"""


@unittest.skipUnless(PROGRAM, "AMPBENCH: no program")
class Passes(unittest.TestCase):
    def diagnosed(self, dtype):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "train.py"), "w", encoding="utf-8") as file:
                file.write(textwrap.dedent(SCRIPT).replace("DTYPE", dtype))
            root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")
            environment = {**os.environ, "PYTHONPATH": root}
            command = [sys.executable, "-m", "ampprobe", "--thorough", "train.py"]
            run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)
            command = [PROGRAM, "diagnose", "--json", "-", "run.ampprobe.json"]
            said = subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout
        cell = json.JSONDecoder().raw_decode(said[said.find("{") :])[0]["cells"][0]
        return cell["state"], [verdict["id"] for verdict in cell["verdicts"]]

    def test_what_is_lost_late_is_found_in_the_last_steps(self):
        self.assertEqual(self.diagnosed("bfloat16"), ("sick", ["integers_in_half"]))
        self.assertEqual(self.diagnosed("float32"), ("healthy", ["healthy"]))


if __name__ == "__main__":
    unittest.main()
