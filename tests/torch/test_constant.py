"""What the best constant prediction costs in looked-at steps, beside what the model's predictions cost:
counted again here from the numbers themselves; and runs that learn nothing, each beside one that learns."""

import json
import math
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

import settings  # noqa: F401
import torch
import torch.nn.functional as F

from ampprobe import _ops

PROGRAM = os.environ.get("AMPBENCH")
STEPS, ROWS, CLASSES = 5, 40, 3


def found(loss_of, ends=lambda: None):
    """The facts of STEPS steps, and the pairs of predictions and targets that they compared."""
    torch.manual_seed(0)
    model, looker, pairs = torch.nn.Linear(4, CLASSES), _ops.Looker(torch), []
    looker.knows([model])
    looker.start()
    try:
        for step in range(STEPS):
            looker.begins(step)
            made, target = model(torch.randn(ROWS, 4)), torch.randint(0, CLASSES, (ROWS,))
            loss = loss_of(made, target)
            looker.tell_loss(loss)
            loss.backward()
            pairs.append((made.detach().double(), target))
            ends()
    finally:
        looker.on = False
        looker.leave()
    assert looker.failed is None, looker.failed
    return {name: value for name, value, _ in looker.facts()}, pairs


def rows_of(pairs, own, constant):
    """Costs of the last three steps: of a row as predicted, and from the targets of the other steps."""
    costs = []
    for step in range(STEPS - 3, STEPS):
        others = [row for other in range(STEPS) if other != step for row in pairs[other][1].tolist()]
        known = constant(others)
        for made, target in zip(pairs[step][0].tolist(), pairs[step][1].tolist()):
            costs.append((own(made, target), known(target)))
    return costs


def entropy(made, label):
    top = max(made)
    return math.log(sum(math.exp(x - top) for x in made)) + top - made[label]


def shares(labels):
    counts = [labels.count(label) + 0.5 for label in range(CLASSES)]
    return lambda label: -math.log(counts[label] / sum(counts))


class Costs(unittest.TestCase):
    def compared(self, facts, costs):
        means = [sum(column) / len(costs) for column in zip(*costs)]
        gaps = [own - constant for own, constant in costs]
        mean = sum(gaps) / len(gaps)
        error = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1) / len(gaps))
        self.assertAlmostEqual(facts["loss_of_model"], means[0], places=5)
        self.assertAlmostEqual(facts["loss_of_constant"], means[1], places=5)
        self.assertAlmostEqual(facts["loss_of_constant_error"], error, places=5)

    def test_cross_entropies(self):
        losses = (
            F.cross_entropy,
            lambda made, labels: F.cross_entropy(made, labels) / 4,  # of four micro-batches
            lambda made, labels: F.cross_entropy(made, labels) * torch.tensor(1024.0),  # scaled
            lambda made, labels: F.cross_entropy(made, labels, reduction="none").mean(),
            lambda made, labels: F.nll_loss(F.log_softmax(made, 1), labels, reduction="sum"),
            lambda made, labels: F.cross_entropy(made.view(4, 10, 3).transpose(1, 2), labels.view(4, 10)),
        )
        for loss in losses:
            facts, pairs = found(loss)
            self.compared(facts, rows_of(pairs, entropy, shares))

    def test_labels_that_are_left_out_do_not_count(self):
        facts, pairs = found(lambda made, labels: F.cross_entropy(made, labels, ignore_index=0))
        kept = [(made[labels != 0], labels[labels != 0]) for made, labels in pairs]
        self.compared(facts, rows_of(kept, entropy, shares))

    def test_labels_of_one_class_are_compared_with_a_uniform_prediction(self):
        facts, _ = found(lambda made, labels: F.cross_entropy(made, torch.zeros_like(labels)))
        self.assertAlmostEqual(facts["loss_of_constant"], math.log(CLASSES))

    def test_squares(self):
        def target(labels):
            return F.one_hot(labels, CLASSES).float()

        losses = (
            lambda made, labels: F.mse_loss(made, target(labels)),
            lambda made, labels: ((made - target(labels)) ** 2).mean(),
            lambda made, labels: (target(labels) - made).square().sum() * 0.5,
        )

        def square(made, label):
            return sum((x - (k == label)) ** 2 for k, x in enumerate(made)) / CLASSES

        def means(labels):
            share = [labels.count(k) / len(labels) for k in range(CLASSES)]
            return lambda label: square(share, label)

        for loss in losses:
            facts, pairs = found(loss)
            self.compared(facts, rows_of(pairs, square, means))

    def test_binary_cross_entropies(self):
        def target(labels):
            return F.one_hot(labels, CLASSES).float()

        def cost(shares_of, label):
            logs = [math.log(s if k == label else 1 - s) for k, s in enumerate(shares_of)]
            return -sum(logs) / CLASSES

        def own(made, label):
            return cost([1 / (1 + math.exp(-x)) for x in made], label)

        def constant(labels):
            share = [(labels.count(k) + 0.5) / (len(labels) + 1) for k in range(CLASSES)]
            return lambda label: cost(share, label)

        for loss in (
            lambda made, labels: F.binary_cross_entropy_with_logits(made, target(labels)),
            lambda made, labels: F.binary_cross_entropy(made.sigmoid(), target(labels)),
        ):
            facts, pairs = found(loss)
            self.compared(facts, rows_of(pairs, own, constant))

    def test_of_a_sum_the_loss_that_knows_most_is_told(self):
        def both(made, labels):
            cost, sure = F.cross_entropy, made * 0 + 9 * F.one_hot(labels, CLASSES)
            return (cost(made, labels) + cost(sure, labels)) / 2

        self.assertLess(found(both)[0]["loss_of_model"], 0.01)

    def test_first_predictions_beside_their_targets(self):
        far = found(lambda made, labels: F.mse_loss(made * 0 + 300, F.one_hot(labels, CLASSES).float()))[0]
        self.assertAlmostEqual(far["first_prediction"], 300 * math.sqrt(CLASSES), places=3)
        facts, pairs = found(lambda made, labels: F.cross_entropy(100 * made, labels))
        costs = [entropy([100 * x for x in made], label) for made, label in zip(*map(list, map(
            torch.Tensor.tolist, pairs[0])))]  # fmt: skip
        mean = sum(costs) / len(costs)
        self.assertAlmostEqual(facts["first_prediction"], mean / facts["loss_of_constant"], places=4)

    def test_similarities_whose_rows_all_have_one_target(self):
        first, own, queue = torch.zeros(ROWS, dtype=torch.long), torch.arange(ROWS), torch.randn(3, ROWS - 1)

        def contrast(labels):
            return lambda made, _: F.cross_entropy(7 * F.normalize(made) @ F.normalize(made + 1).t(), labels)

        def positives_first(made, _):  # the first column is each row's own
            other = F.normalize(made + 1)
            return F.cross_entropy(torch.cat([(made * other).sum(1, keepdim=True), made @ queue], 1), first)

        self.assertEqual(found(contrast(first))[0]["one_target_for_all"], STEPS)
        self.assertNotIn("one_target_for_all", found(contrast(own))[0])
        self.assertNotIn("one_target_for_all", found(positives_first)[0])

    def test_what_is_not_understood_is_not_compared(self):
        weights, games = torch.ones(CLASSES), torch.ones(ROWS, CLASSES)
        for loss in (
            lambda made, labels: F.cross_entropy(made, labels) + made.square().mean(),  # a penalty
            lambda made, labels: F.cross_entropy(made, labels, weight=weights),
            lambda made, labels: (F.cross_entropy(made, labels, reduction="none") * labels).mean(),  # rewards
            lambda made, labels: F.binary_cross_entropy_with_logits(made, games),  # a game's
            lambda made, labels: made.exp().mean(),
        ):
            self.assertEqual(found(loss)[0], {})

    def test_an_evaluation_does_not_count(self):
        facts, _ = found(F.cross_entropy)

        def evaluate():
            with torch.no_grad():
                F.cross_entropy(torch.zeros(8, CLASSES), torch.zeros(8, dtype=torch.long))

        self.assertEqual(found(F.cross_entropy, evaluate)[0], facts)


SCRIPT = """
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))
    optimizer = torch.optim.AdamW([
        {"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": RATE / 2}], lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / WARM))
    truth = torch.randn(6, 3)
    for step in range(240):
        x = torch.randn(64, 6)
        labels = torch.randint(0, 3, (64,)) if CHANCE else (x @ truth).argmax(1)
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
"""


@unittest.skipUnless(PROGRAM, "AMPBENCH: no program")
class Runs(unittest.TestCase):
    def diagnosed(self, rate=1e-2, warm=10, chance=False, thorough=True):
        """The state, the first verdict and the record of a run."""
        with tempfile.TemporaryDirectory() as folder:
            script = textwrap.dedent(SCRIPT).replace("RATE", str(rate)).replace("WARM", str(warm))
            with open(os.path.join(folder, "train.py"), "w", encoding="utf-8") as file:
                file.write(script.replace("CHANCE", str(chance)))
            root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")
            environment = {**os.environ, "PYTHONPATH": root}
            how = ["--thorough"] if thorough else []
            command = [sys.executable, "-m", "ampprobe", *how, "train.py"]
            run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)
            command = [PROGRAM, "diagnose", "--json", "-", "run.ampprobe.json"]
            said = subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout
            with open(os.path.join(folder, "run.ampprobe.json"), encoding="utf-8") as file:
                record = json.load(file)
        cell = json.JSONDecoder().raw_decode(said[said.find("{") :])[0]["cells"][0]
        return cell["symptoms"] or cell["state"], cell["verdicts"][0], record

    def test_a_run_that_learns_is_healthy(self):
        state, verdict, record = self.diagnosed()
        self.assertEqual((state, verdict["id"]), ("healthy", "healthy"))
        facts = {(fact["name"], fact["place"]): fact for fact in record["probe"]["facts"]}
        rate = facts["learning_rate", "param_groups[1]"]
        self.assertAlmostEqual(rate["first"], 5e-4)
        self.assertAlmostEqual(rate["last"], 5e-3)
        self.assertAlmostEqual(facts["base_learning_rate", "param_groups[0]"]["last"], 1e-2)

    def test_labels_of_chance_leave_nothing_to_learn(self):
        state, verdict, _ = self.diagnosed(chance=True)
        self.assertEqual(state, "no known cause; the loss is no lower than that of a constant prediction")
        self.assertEqual(verdict["id"], "undecided")

    def test_steps_that_replace_the_weights_keep_nothing(self):
        _, verdict, _ = self.diagnosed(rate=10.0)
        self.assertEqual(verdict["id"], "learning_rate_too_high")

    def test_a_warm_up_of_tokens_does_not_end(self):
        _, verdict, _ = self.diagnosed(warm=64 * 240, thorough=False)
        self.assertEqual(verdict["id"], "learning_rate_too_low")
        self.assertIn("still rising", verdict["evidence"][0]["text"])


if __name__ == "__main__":
    unittest.main()
