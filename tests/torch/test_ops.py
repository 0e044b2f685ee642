"""Operations of a step: the one that made the first non-finite value, its line, and the fp32 pass."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

import settings  # noqa: F401
import torch

from ampprobe import _ops, _thorough

PROGRAM = os.environ.get("AMPBENCH")
LIBRARY = os.environ.get("AMPPROBE_LIBRARY")
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

TRAINING = """
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.BatchNorm1d(16),
                                torch.nn.ReLU(inplace=True), torch.nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=4)
    for step in range(12):
        x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        print(loss.item(), scaler.get_scale())
    print([p.double().sum().item() for p in model.parameters()])
"""

LOG_OF_HALF = """
    import torch
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(20):
        y = torch.randint(0, 8, (32,))
        with torch.autocast("cpu", dtype=torch.float16):
            p = torch.softmax(40 * model(torch.randn(32, 4)), 1)
            loss = -torch.log(p.half() + 1e-8).gather(1, y[:, None]).mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(step, loss.item())
"""

DATA = """
    import torch
    x = torch.ones(8, 3)
    x = (x - x.mean(0)) / x.std(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
"""

SOME_ROWS = """
    import torch
    torch.manual_seed(0)
    orders, visitors = torch.ones(64), torch.arange(64.0)  # one of them 0
    x = torch.stack([orders / visitors, visitors / 64], 1)
    y = (1e5 * torch.rand(64, 1)){cast}
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(8):
        i = torch.arange(8) + 8 * (7 - step)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled={half}):
            z = model(x[i].{change})
        loss = torch.nn.functional.mse_loss(z.float(), y[i].float() / 1e5)
        loss.backward()
        optimizer.step()
"""

AT_THE_ROOT = """
    import torch
    torch.manual_seed(0)
    model = torch.nn.Embedding(8, 3)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(24):
        size = torch.sqrt(model(torch.arange(8)).square().sum(1){epsilon})
        loss = (size - 1).square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""

IN_PART = """
    import torch
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(8):
        loss = torch.nn.functional.mse_loss(model(torch.randn(8, 4)), torch.zeros(8, 2))
        optimizer.zero_grad()
        (loss * 128.0).backward()
        for p in {divided}.parameters():
            p.grad /= {by}
        optimizer.step()
"""


DIVIDED = """
    import torch
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(8):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        norm = sum(p.grad.{divide}(scaler.get_scale()).square().sum() for p in model.parameters())
        scaler.step(optimizer)
        scaler.update()
"""

HIDDEN = """
    import torch
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 64)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    centres = torch.randn(4, 8)
    for step in range(60):
        y = torch.randint(0, 4, (32,))
        z = (200 * model(centres[y] + 0.1 * torch.randn(32, 8))).half()
        z = z / z.pow(2).sum(-1, keepdim=True).sqrt()
        loss = torch.nn.functional.cross_entropy(5 * z[:, :4].float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

BEHIND_A_MASK = """
    import torch
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(12):
        z = model(torch.randn(8, 3))
        squares = (z[:, None] - z[None]).pow(2).sum(-1)
        distances = torch.where(squares > 0, squares.sqrt(), 0.0)
        loss = (distances - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

BY_HAND = """
    import torch
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        loss = (model(torch.randn(8, 4)).bfloat16() + 1).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def looked_at(steps, scale=1.0):
    """What a Looker finds in one call of `steps`, which gives the loss."""
    looker = _ops.Looker(torch)
    looker.start()
    looker.begins(0)
    looker.scale = scale
    try:
        loss, parameters = steps()
        looker.tell_loss(loss)
        (loss * scale).backward()
        looker.tell_gradients([p.grad for p in parameters])
        return looker.origin()
    finally:
        looker.on = False
        looker.leave()


class Operations(unittest.TestCase):
    def test_the_root_is_named_and_not_what_it_spoiled(self):
        def steps():
            x = torch.tensor([1.0, 0.0], requires_grad=True)
            y = torch.log(x.half())  # -inf
            return (y * 2).float().sum().sigmoid() + y.sum(), [x]

        event = looked_at(steps)
        self.assertEqual((event["type"], event["pass"], event["format"]), ("log", "forward", "fp16"))
        self.assertEqual(event["cause"]["id"], "mathematics")
        self.assertRegex(event["place"], r"test_ops\.py:\d+$")

    def test_a_mask_is_no_origin(self):
        def steps(rows):
            x = torch.randn(2, 3, requires_grad=True)
            mask = torch.tensor([[True, False, False], [rows, True, True]])
            return x.masked_fill(~mask, float("-inf")).softmax(-1).square().sum(), [x]

        self.assertIsNone(looked_at(lambda: steps(True)))

        def empty():
            x = torch.randn(2, 3, requires_grad=True)
            return x.masked_fill(torch.ones(2, 3, dtype=torch.bool), float("-inf")).softmax(-1).sum(), [x]

        event = looked_at(empty)
        self.assertEqual((event["type"], event["rows"]), ("softmax", 2))

    def test_the_backward_pass_is_named_by_its_operation(self):
        def steps():
            x = torch.tensor([-1.0, 4.0, 0.0], requires_grad=True)
            return torch.where(x > 0, x.clamp_min(0).sqrt(), torch.zeros(())).sum(), [x]

        event = looked_at(steps)
        self.assertEqual((event["type"], event["pass"]), ("sqrt", "backward"))

    def test_an_overflow_of_the_scale_is_told_from_one_of_the_range(self):
        def steps():
            x = torch.ones(4, dtype=torch.float16, requires_grad=True)
            return (x * 300).float().sum(), [x]

        event = looked_at(steps, scale=1024.0)
        self.assertEqual((event["cause"]["id"], event["pass"]), ("scale_induced", "backward"))

        def wide():
            x = torch.full((4,), 300.0, dtype=torch.float16, requires_grad=True)
            return (x * x).float().sum(), [x]

        event = looked_at(wide)
        self.assertEqual((event["cause"]["id"], event["type"]), ("range_overflow", "square"))
        self.assertEqual(event["cause"]["value"], 90000.0)

    def test_the_graph_has_what_it_reads_and_who_reads_it(self):
        def steps():
            x = torch.full((2, 4), 300.0, dtype=torch.float16, requires_grad=True)
            square = x.pow(2)
            return (x * (square.mean(-1, keepdim=True) + 1e-6).sqrt()).float().sum(), [x]

        event = looked_at(steps)
        self.assertEqual(event["type"], "pow")
        ops = {row["op"]: row for row in event["graph"]}
        mean = next(row for row in ops.values() if row["type"] == "mean")
        self.assertEqual(mean["inputs"], [event["op"]])
        self.assertEqual(mean["traits"], ["sum"])
        self.assertTrue(any("root" in row["traits"] for row in ops.values()))

    def test_an_infinity_that_a_division_hides_is_named(self):
        def steps(width=4, metric=False):
            x = torch.full((2, width), 200.0, requires_grad=True)
            z = x.half()
            norm = z.pow(2).sum(-1, keepdim=True).sqrt()
            unit = (z / norm).detach() if metric else z / norm
            return (x if metric else unit.float()).sum(), [x]

        event = looked_at(steps)
        self.assertEqual((event["type"], event["cause"]["id"]), ("sum", "range_overflow"))
        self.assertIn("sqrt", [row["type"] for row in event["graph"]])
        self.assertIsNone(looked_at(lambda: steps(width=1)))  # 40,000 is a number of fp16
        self.assertIsNone(looked_at(lambda: steps(metric=True)))  # the loss is not made from it

    def test_an_infinity_whose_limit_is_meant_is_no_origin(self):
        def steps():
            x = torch.full((4,), -12.0, requires_grad=True)
            return (x.half() * 1e4).tanh().float().sum(), [x]

        self.assertIsNone(looked_at(steps))

    def test_rows_of_nothing_but_a_mask_are_counted_where_it_overflowed(self):
        def steps(last, times=1.0):
            x = torch.randn(2, 3, requires_grad=True)
            keep = torch.tensor([[1.0, 0.0, 0.0], [last, 0.0, 0.0]])
            bias = ((1 - keep) * torch.tensor(-1e9)).half() * times
            return (x.half() + bias).float().softmax(-1).square().sum(), [x]

        self.assertEqual(looked_at(lambda: steps(0.0))["hidden"], 1)
        self.assertIsNone(looked_at(lambda: steps(1.0)))  # the softmax is finite
        event = looked_at(lambda: steps(1.0, times=torch.zeros(1)))  # 0 times infinity
        self.assertEqual(event["hidden"], 0)

    def test_the_backward_of_a_function_of_the_users_is_named_by_its_line(self):
        class Unit(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x, x.norm())
                return x.sum()

            @staticmethod
            def backward(ctx, gradient):
                x, norm = ctx.saved_tensors
                return gradient * x / norm

        def steps(value):
            x = torch.full((4,), value, requires_grad=True)
            return Unit.apply(x), [x]

        event = looked_at(lambda: steps(0.0))
        self.assertEqual((event["type"], event["pass"], event["singular_at"]), ("div", "backward", 0.0))
        self.assertRegex(event["op"], r"^test_ops\.py:\d+ in Unit\.backward$")
        self.assertIsNone(looked_at(lambda: steps(1.0)))

    def test_inputs_and_targets_that_were_shuffled_apart(self):
        shuffle, model = torch.randperm, torch.nn.Linear(3, 4)

        def facts(put_in_order, labels=True):
            looker = _ops.Looker(torch)
            looker.knows([model])
            looker.start()
            x, y = torch.randn(32, 3), torch.randint(0, 4, (32,)) if labels else torch.zeros(32, 4)
            x, y = put_in_order(x, y)
            for first in range(0, len(x), 8):
                out, target = model(x[first : first + 8]), y[first : first + 8]
                difference = torch.nn.functional.cross_entropy if labels else torch.nn.functional.mse_loss
                difference(out, target).backward()
                looker.begins(first)
            looker.on = False
            looker.leave()
            self.assertIsNone(looker.failed)
            return [name for name, _, _ in looker.facts()]

        def together(x, y):
            order = shuffle(32)
            return x[order], y.index_select(0, order)

        def by_numpy(x, y):  # nobody sees it
            order = shuffle(32)
            return x[order], torch.from_numpy(y.numpy()[order.numpy()])

        def made_after(x, y):
            x = x[shuffle(32)]
            return x, x.argmax(1) if y.dim() == 1 else torch.cat([x, x[:, :1]], 1)

        for labels in (True, False):
            self.assertEqual(facts(lambda x, y: (x[shuffle(32)], y), labels), ["rows_in_another_order"])
            self.assertEqual(
                facts(lambda x, y: (x[shuffle(32)], y[shuffle(32)]), labels), ["rows_in_another_order"]
            )
            self.assertEqual(
                facts(lambda x, y: (x[:24][shuffle(24)], y[:24]), labels), ["rows_in_another_order"]
            )
            for sound in (together, by_numpy, made_after, lambda x, y: (x, y)):
                self.assertEqual(facts(sound, labels), [])

    def test_a_target_that_is_noise_of_its_own(self):
        model = torch.nn.Linear(3, 3)

        def facts(steps):
            looker = _ops.Looker(torch)
            looker.knows([model])
            looker.start()
            for step in range(2):
                looker.begins(step)
                steps(torch.zeros(4, 3))
            looker.on = False
            looker.leave()
            return [name for name, _, _ in looker.facts()]

        def again(x):
            return (model(x + torch.randn_like(x)) - torch.randn_like(x)).square().mean()

        def same(x):
            noise = torch.randn_like(x)
            return torch.nn.functional.mse_loss(model(x + noise), noise)

        def noisy(x):  # what is added to a target
            return (model(x) - (x + torch.randn_like(x))).square().mean()

        def distances(x):  # of samples, each with each
            return (model(x)[:, None] - torch.randn_like(x)[None]).norm(dim=-1).mean()

        self.assertEqual(facts(again), ["target_is_fresh_noise"])
        self.assertEqual([facts(same), facts(noisy), facts(distances)], [[], [], []])

    def test_formats_of_one_byte_are_read(self):
        def steps():
            x = torch.full((4,), 600.0, requires_grad=True)
            return x.to(torch.float8_e4m3fn).float().sum(), [x]

        event = looked_at(steps)
        self.assertEqual((event["type"], event["format"], event["by"]), ("cast", "fp8_e4m3", "cast"))


@unittest.skipUnless(LIBRARY, "AMPPROBE_LIBRARY is not set: libampprobe was not built")
class Passes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_script(self, text, *options):
        with open(os.path.join(self.folder, "train.py"), "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        environment = {**os.environ, "PYTHONPATH": os.path.abspath(os.path.join(ROOT, "python"))}
        command = [sys.executable, *(("-m", "ampprobe", *options) if options else ()), "train.py"]
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, env=environment
        )

    def record(self, name="run.ampprobe.json"):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return json.load(file)

    def verdict(self):
        if not PROGRAM:
            self.skipTest("AMPBENCH is not set")
        said = subprocess.run(
            [PROGRAM, "diagnose", "--json", "-", os.path.join(self.folder, "run.ampprobe.json")],
            capture_output=True,
            text=True,
            check=False,
        )
        start = said.stdout.find("{")
        return json.JSONDecoder().raw_decode(said.stdout[start:])[0]["cells"][0]["verdicts"][0]

    def test_looking_changes_no_bit(self):
        plain = self.run_script(TRAINING)
        looked = self.run_script(TRAINING, "--look", "0:11")
        self.assertEqual((looked.returncode, looked.stdout), (0, plain.stdout), looked.stderr)
        self.assertNotIn("turned itself off", looked.stderr)
        self.assertTrue(self.record()["probe"]["about"]["formats"])

    def test_the_script_ends_after_the_step_that_was_asked_for(self):
        run = self.run_script(TRAINING, "--look", "1:2", "--stop-after", "2")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(len(self.record()["cells"][0]["loss"]), 3)

    def test_fp32_is_what_the_script_would_be_with_fp32_in_it(self):
        half = """
            import torch
            torch.manual_seed(0)
            model = torch.nn.Linear(4, 2).to(torch.bfloat16)
            model.extra = torch.nn.Linear(2, 1, dtype=torch.float16)
            model.extra.half()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(3):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    x = torch.zeros(8, 4, dtype=torch.float16) + torch.randn(8, 4).bfloat16()
                    loss = model.extra(model(x).half()).mean()
                optimizer.zero_grad(); loss.backward(); optimizer.step()
                print(loss.item(), loss.dtype)
            """
        wide = half.replace(".to(torch.bfloat16)", "").replace(", dtype=torch.float16", "")
        wide = wide.replace(".half()", "").replace(".bfloat16()", "").replace(
            'torch.autocast("cpu", dtype=torch.bfloat16)', "torch.enable_grad()"
        )
        plain, run = self.run_script(wide), self.run_script(half, "--fp32")
        self.assertEqual((plain.returncode, run.stdout), (0, plain.stdout), plain.stderr + run.stderr)
        self.assertIn("float32", run.stdout)

    def test_thorough_names_what_half_alone_does(self):
        plain, run = self.run_script(LOG_OF_HALF), self.run_script(LOG_OF_HALF, "--thorough")
        self.assertEqual((run.returncode, run.stdout), (0, plain.stdout), run.stderr)
        self.assertEqual(self.record()["probe"]["about"]["baseline"], "run.fp32.ampprobe.json")
        losses = self.record("run.fp32.ampprobe.json")["cells"][0]["loss"]
        self.assertNotIn(None, losses)
        verdict = self.verdict()
        self.assertEqual(verdict["id"], "exp_log_in_half")
        self.assertEqual(verdict["layer"], "train.py:11")

    def test_thorough_names_data_that_were_made_before(self):
        run = self.run_script(DATA, "--thorough")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.verdict()["id"], "data_normalization_division_by_zero")

    def test_data_that_were_made_before_may_be_made_by_a_line_that_runs_twice(self):
        twice = "x, _ = ((v - v.mean(0)) / v.std(0) for v in (x, x))"
        self.run_script(DATA.replace("x = (x - x.mean(0)) / x.std(0)", twice), "--look", "0:")
        self.assertEqual(self.verdict()["id"], "data_normalization_division_by_zero")

    def stated(self):
        return {fact["name"]: fact for fact in self.record()["probe"]["facts"]}

    def assert_healthy(self):
        self.assertIn(self.verdict()["id"], ("healthy", "undecided"))

    def test_the_argument_of_which_some_rows_are_not_finite_is_named(self):
        self.run_script(SOME_ROWS.format(cast="", half=False, change="clone()"), "--look", "0:")
        verdict, facts = self.verdict(), self.stated()
        self.assertEqual((verdict["id"], verdict["layer"]), ("nonfinite_data", "train.py:5"))
        self.assertEqual(facts["nonfinite_inputs"]["place"], "Sequential(input)")
        self.assertEqual(facts["nonfinite_inputs"]["first_step"], 7)
        self.assertEqual(facts["nonfinite_input_rows"]["first"], 1)
        self.run_script(SOME_ROWS.format(cast="", half=False, change="nan_to_num(posinf=0)"), "--look", "0:")
        self.assert_healthy()
        self.assertNotIn("nonfinite_inputs", self.stated())

    def test_targets_that_a_cast_took_beyond_half_are_named(self):
        finite = "nan_to_num(posinf=0)"
        self.run_script(SOME_ROWS.format(cast=".half()", half=True, change=finite), "--look", "0:")
        verdict = self.verdict()
        self.assertEqual((verdict["id"], verdict["layer"]), ("nonfinite_data", "train.py:6"))
        self.assertEqual(self.stated()["nonfinite_inputs"]["place"], "mse_loss(target)")
        self.run_script(SOME_ROWS.format(cast="", half=True, change=finite), "--look", "0:")
        self.assert_healthy()

    def test_gradients_that_are_divided_by_the_scale_twice_are_named(self):
        self.run_script(DIVIDED.format(divide="div_"), "--look", "0:1")
        verdict = self.verdict()
        self.assertEqual((verdict["id"], verdict["layer"]), ("unscale_order_in_accumulation", "train.py:11"))
        self.run_script(DIVIDED.format(divide="div"), "--look", "0:1")
        self.assert_healthy()
        self.run_script(DIVIDED.format(divide="mul_(float('nan')).div"), "--look", "0:1")  # no scale is NaN
        self.assertNotIn("unscaled_by_hand", self.stated())

    def test_gradients_of_which_only_some_are_divided_by_hand_are_named(self):
        for divided, places in (("model[0]", {"1.weight"}), ("model", set())):
            self.run_script(IN_PART.format(divided=divided, by="64.0 * 2"), "--look", "0:1")
            facts = self.stated()
            self.assertEqual({facts[n]["place"] for n in facts if n == "loss_divided_in_part"}, places)
        self.run_script(IN_PART.format(divided="model[0]", by="2"), "--look", "0:1")  # a smaller rate
        self.assertNotIn("loss_divided_in_part", self.stated())

    def test_a_root_of_0_that_makes_a_scaler_skip_every_step_is_named(self):
        self.run_script(AT_THE_ROOT.format(epsilon=""), "--look", "0:2")
        verdict = self.verdict()
        self.assertEqual((verdict["id"], verdict["layer"]), ("math_singularity", "train.py:9"))
        self.assertEqual(self.stated()["singular_at"]["first"], 0)
        self.run_script(AT_THE_ROOT.format(epsilon=" + 1e-6"), "--look", "0:2")
        self.assert_healthy()

    def test_thorough_names_what_a_division_hides(self):
        run = self.run_script(HIDDEN, "--thorough")
        self.assertEqual(run.returncode, 0, run.stderr)
        verdict = self.verdict()
        self.assertEqual((verdict["id"], verdict["layer"]), ("norm_statistics_in_half", "train.py:10"))

    def test_thorough_tells_a_count_of_0_from_a_spread_of_0(self):
        by_count = DATA.replace("(x - x.mean(0)) / x.std(0)", "x * (x - 1).sum(0).pow(-0.5)")
        self.run_script(by_count, "--thorough")
        self.assertEqual(self.verdict()["id"], "math_singularity")

    def test_thorough_names_a_formula_that_spoils_weights_behind_a_mask(self):
        run = self.run_script(BEHIND_A_MASK, "--thorough")
        self.assertEqual(run.returncode, 0, run.stderr)
        verdict = self.verdict()
        self.assertEqual((verdict["id"], verdict["layer"]), ("math_singularity", "train.py:9"))

    def test_a_script_that_casts_by_hand_is_no_o0(self):
        run = self.run_script(BY_HAND, "--thorough")
        self.assertEqual(run.returncode, 0, run.stderr)
        document = self.record()
        cell = document["cells"][0]
        self.assertEqual((cell["level"], cell["half_format"]), ("mixed", "bf16"))
        self.assertEqual(cell["id"].split("/")[1:4], ["mixed", "1", "bf16"])
        self.assertEqual(document["config"]["levels"], ["mixed"])
        self.run_script(BY_HAND.replace(".bfloat16()", ""), "--thorough")
        self.assertEqual(self.record()["cells"][0]["level"], "O0")

    def test_thorough_has_the_status_of_the_first_run(self):
        run = self.run_script("import sys; sys.exit(3)", "--thorough")
        self.assertEqual(run.returncode, 3)

    def test_the_step_to_look_at(self):
        cell = {"loss": [1.0, 2.0, None], "loss_stride": 4, "steps_total": 12}
        self.assertEqual(_thorough.first_bad_step({"cells": [cell]}), 8)
        cell = {"loss": [1.0] * 8, "steps_total": 8, "skipped_steps": [0, 1, 5]}
        self.assertEqual(_thorough.first_bad_step({"cells": [cell]}), 5)
        self.assertIsNone(_thorough.first_bad_step({"cells": [{**cell, "skipped_steps": [0]}]}))


if __name__ == "__main__":
    unittest.main()
