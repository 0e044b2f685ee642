"""Trainings in which no optimizer makes a step are recorded, and what they do in its place is said."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
STEPS = 20

LOOP = """
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(1)
    F = torch.nn.functional

    def main():
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        criterion = torch.nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        losses = []
        for number in range(20):
            loss = criterion(model(torch.randn(32, 8)), torch.randint(0, 4, (32,)))
            losses.append(loss.item())
            pass  # the rest
        print(losses, torch.compile.__name__, len(torch.nn.modules.module._global_forward_hooks))

    main()
"""


@unittest.skipUnless(
    os.environ.get("AMPPROBE_LIBRARY"), "AMPPROBE_LIBRARY is not set: libampprobe was not built"
)
class Never(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)

    def record(self, body):
        """Cell, facts by name, and what the script printed, of a loop that ends so."""
        rest = textwrap.indent(textwrap.dedent(body), " " * 8)
        text = textwrap.dedent(LOOP).replace("        pass  # the rest", rest)
        with open(os.path.join(self.folder, "train.py"), "w", encoding="utf-8") as file:
            file.write(text)
        environment = {**os.environ, "PYTHONPATH": os.path.join(os.path.abspath(ROOT), "python")}
        run = subprocess.run(
            [sys.executable, "-m", "ampprobe", "train.py"],
            cwd=self.folder, capture_output=True, text=True, check=False, env=environment,
        )  # fmt: skip
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotIn("turned itself off", run.stderr)
        with open(os.path.join(self.folder, "run.ampprobe.json"), encoding="utf-8") as file:
            document = json.load(file)
        facts = {fact["name"]: fact["last"] for fact in document["probe"]["facts"]}
        return document["cells"][0], facts, run.stdout

    def check(self, cell, printed, applied):
        """Every iteration is a step, with the loss that the script printed."""
        self.assertEqual(cell["steps_total"], STEPS)
        self.assertEqual(cell["steps_applied"], applied)
        for mine, loss in zip(cell["loss"], json.loads(printed[: printed.index("]") + 1])):
            self.assertAlmostEqual(mine, loss, places=6)

    def test_forward_passes_alone_are_steps_that_were_not_made(self):
        cell, facts, printed = self.record("optimizer.zero_grad()")
        self.check(cell, printed, 0)
        self.assertEqual(facts, {"passes_without_backward": STEPS})

    def test_backward_passes_without_a_step_are_counted(self):
        for clear in ("optimizer.zero_grad()", "for p in model.parameters(): p.grad = None"):
            with self.subTest(clear):
                cell, facts, printed = self.record(f"{clear}\nloss.backward()")
                self.check(cell, printed, 0)
                self.assertEqual(facts, {"passes_without_step": STEPS})

    def test_gradients_that_are_neither_used_nor_cleared_are_one_step(self):
        cell, facts, _ = self.record("loss.backward()")
        self.assertEqual((cell["steps_total"], cell["steps_applied"]), (1, 0))
        self.assertEqual(facts, {"passes_without_step": STEPS})

    def test_a_loop_that_changes_its_weights_itself_makes_steps(self):
        cell, facts, printed = self.record(
            """\
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                parameter.data -= 0.05 * parameter.grad"""
        )
        self.check(cell, printed, STEPS)
        self.assertEqual(facts, {})

    def test_the_loss_of_gradients_that_are_asked_for_is_seen(self):
        cell, facts, printed = self.record(
            """\
            found = torch.autograd.grad(loss, list(model.parameters()))
            for parameter, gradient in zip(model.parameters(), found):
                parameter.grad = gradient
            optimizer.step()"""
        )
        self.check(cell, printed, STEPS)
        self.assertEqual(facts, {})

    def test_gradients_of_inputs_are_no_backward_pass(self):
        cell, facts, printed = self.record(
            """\
            inputs = torch.randn(32, 8, requires_grad=True)
            torch.autograd.grad(model(inputs).sum(), inputs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()"""
        )
        self.check(cell, printed, STEPS)
        self.assertEqual(facts, {})

    def test_a_second_use_of_the_graph_is_no_second_loss(self):
        """Gradients of single losses are asked for to be shown; the step is of the backward pass."""
        cell, facts, printed = self.record(
            """\
            torch.autograd.grad(3 * loss, list(model.parameters()), retain_graph=True)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()"""
        )
        self.check(cell, printed, STEPS)
        self.assertEqual(facts, {})

    def pairs(self, move="pass", loss="loss"):
        """The losses of a record, and those that it should have, of a loop that adds up two micro-batches and
        moves their gradients in between."""
        cell, _, printed = self.record(
            f"""\
            if number % 2 == 0: optimizer.zero_grad()
            ({loss}).backward()
            {move}
            if number % 2 == 1:
                for p in model.parameters(): p.grad.nan_to_num_(0, 0, 0)
                optimizer.step()"""
        )
        losses = json.loads(printed[: printed.index("]") + 1])
        self.assertEqual(cell["steps_applied"], STEPS // 2)
        return cell["loss"], [one + other for one, other in zip(losses[::2], losses[1::2])]

    def test_gradients_that_move_to_other_tensors_are_added_up(self):
        infinite = "loss + (model[0].weight - model[0].weight.detach()).sqrt().sum()"
        for loss in ("loss", infinite):
            with self.subTest(loss):
                found, losses = self.pairs("for p in model.parameters(): p.grad = p.grad.clone()", loss)
                for mine, loss in zip(found, losses):
                    self.assertAlmostEqual(mine, loss, places=5)

    def test_gradients_that_are_all_zero_are_not_taken_for_cleared_ones(self):
        found, losses = self.pairs(loss="loss if number else loss.detach() + 0 * loss")
        for mine, loss in zip(found, losses):
            self.assertAlmostEqual(mine, loss, places=5)

    def test_equal_gradients_that_are_asked_for_again_are_others(self):
        cell, _, _ = self.record(
            """\
            torch.manual_seed(0)
            loss = criterion(model(torch.randn(32, 8)), torch.randint(0, 4, (32,)))
            found = torch.autograd.grad(loss, list(model.parameters()))
            for parameter, gradient in zip(model.parameters(), found):
                parameter.grad = gradient"""
        )
        self.assertGreater(cell["steps_total"], STEPS // 2)

    def test_nothing_is_left_in_torch_after_the_first_backward_pass(self):
        _, _, printed = self.record("optimizer.zero_grad()\nloss.backward()\noptimizer.step()")
        self.assertIn("] compile 0", printed)

    def test_counting_ends_before_anything_is_compiled(self):
        _, _, printed = self.record("torch.compile(model)\nloss.backward()\noptimizer.step()")
        self.assertIn("] compile 0", printed)


if __name__ == "__main__":
    unittest.main()
