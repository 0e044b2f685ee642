"""What the graph of a loss says of it (ampprobe._loss), against numbers made without it; and what a loop does
to gradients after the backward pass."""

import json
import os
import tempfile
import unittest

from settings import ampprobe, torch, use_library

from ampprobe import _loss, _plateau

F = torch.nn.functional


def leaf(*shape):
    torch.manual_seed(4)
    return torch.randn(*shape, requires_grad=True)


class Multiplied(unittest.TestCase):
    def test_factors_are_followed_through_casts_and_views(self):
        loss = ((leaf(8).square().mean() * 3).double().reshape(1)[None].squeeze() / 4)
        loss = torch.tensor(2.0) * loss
        node, factor = _loss.multiplied(loss.grad_fn)
        self.assertTrue(node.name().startswith("MeanBackward"))
        self.assertAlmostEqual(factor, 1.5)

    def test_a_product_of_two_results_is_no_factor(self):
        self.assertEqual(_loss.multiplied((leaf(8).mean() * leaf(8).sum()).grad_fn)[1], 1.0)


class MaskedMean(unittest.TestCase):
    def of(self, loss):
        return _loss.masked_mean(loss.grad_fn)

    def test_the_mean_is_as_many_times_too_small_as_the_mask_leaves_few(self):
        costs, mask = leaf(4, 20).square(), (torch.arange(20) < 2).float()
        wanted = float((costs * mask).sum() / mask.expand(4, 20).sum() / (costs * mask).mean())
        self.assertAlmostEqual(wanted, 10, places=4)
        for loss in (
            (costs * mask).mean(),
            (mask * costs).mean() / 2,
            (costs * mask).sum() / costs.numel(),
            costs.masked_fill(mask == 0, 0).mean(),
        ):
            self.assertAlmostEqual(self.of(loss), wanted, places=4)

    def test_other_means_say_nothing(self):
        costs, mask = leaf(4, 20).square(), (torch.arange(20) < 2).float()
        for loss in (
            costs.mean(),
            (costs * mask).sum() / mask.sum(),  # of one row, and of all
            (costs * mask).sum() / 8,
            (costs * (mask + 0.5)).mean(),  # weights
            (costs * torch.ones(20)).mean(),
            (costs * leaf(20)).mean(),
            costs[:, :2].mean(),
        ):
            self.assertIsNone(self.of(loss))


class OutOfReach(unittest.TestCase):
    def of(self, loss):
        return dict(_loss.out_of_reach(loss.grad_fn))

    def test_a_relu_and_targets_of_both_signs(self):
        wanted = torch.randn(64, 1, generator=torch.Generator().manual_seed(1))
        output = (wanted + 0.0).requires_grad_().relu()  # as good as it can be
        below = wanted[wanted < 0].double()
        cost = float(len(below) * below.mean() ** 2 / ((wanted.double() - wanted.double().mean()) ** 2).sum())
        self.assertGreater(cost, 0.3)
        for loss in (
            F.mse_loss(output, wanted),
            F.smooth_l1_loss(output.squeeze(1), wanted[:, 0]),
            (output - wanted).pow(2).mean(),
            (wanted - output).abs().sum() / 64,
            0.5 * F.mse_loss(output, wanted) + leaf(3).square().sum(),
        ):
            self.assertAlmostEqual(self.of(loss)["relu"], cost, places=5)

    def test_the_range_is_scaled_with_the_output(self):
        wanted = torch.linspace(-3, 3, 64)
        output = (9 * wanted).requires_grad_().tanh()
        self.assertGreater(self.of(F.mse_loss(output, wanted))["tanh"], 0.1)
        self.assertEqual(self.of(F.mse_loss(4 * output, wanted))["tanh"], 0)
        self.assertGreater(self.of(F.mse_loss(output / 2, wanted))["tanh"], 0.2)

    def test_noise_round_targets_within_the_range_costs_next_to_nothing(self):
        torch.manual_seed(2)
        clean = torch.randn(4096).relu()
        output = clean.clone().requires_grad_().relu()
        self.assertLess(self.of(F.mse_loss(output, clean + 0.5 * torch.randn(4096)))["relu"], 0.01)

    def test_outputs_that_are_not_bounded_say_nothing(self):
        wanted = torch.randn(64)
        for loss in (
            F.mse_loss(leaf(64), wanted),
            F.mse_loss(leaf(64).relu() - 1, wanted),
            F.cross_entropy(leaf(8, 4).relu(), torch.arange(8) % 4),
        ):
            self.assertEqual(self.of(loss), {})


class Plateau(unittest.TestCase):
    def of(self, numbers, mode="max"):
        """What is stated of a scheduler that is told these numbers, one tuple for each cut."""
        stated = []
        probe = type("Probe", (), {"fact": lambda self, *row: stated.append(row)})()
        plateaus = _plateau.Plateaus(probe)
        optimizer = torch.optim.SGD([leaf(2)], lr=1.0)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode, patience=1)
        for number in numbers:
            before = _plateau.rates_of(schedule)
            schedule.step(number)
            plateaus.stepped(schedule, number, before)
        return stated

    def test_a_falling_loss_with_mode_max(self):
        self.assertEqual(self.of([1 / n for n in range(1, 20)])[-1], ("plateau_cuts_against", 1.0))

    def test_a_score_that_rises_and_stays(self):
        numbers = [1 - 1 / n for n in range(1, 9)] + [0.85, 0.87, 0.86, 0.85, 0.86, 0.87]
        stated = self.of(numbers)
        self.assertTrue(stated)
        self.assertEqual({value for _, value in stated}, {0.0})

    def test_a_loss_with_mode_min_is_not_looked_at(self):
        self.assertEqual(self.of([1 / n for n in range(1, 9)] + list(range(1, 9)), "min"), [])


@unittest.skipUnless(os.environ.get("AMPPROBE_LIBRARY"), "AMPPROBE_LIBRARY is not set")
class Saturated(unittest.TestCase):
    def test_the_mean_derivative_is_that_of_autograd(self):
        use_library()
        torch.manual_seed(0)
        nn = torch.nn
        model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8), nn.Sigmoid())
        with torch.no_grad():
            for layer in model[::2]:
                layer.weight.mul_(30)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        inputs = torch.randn(64, 8)
        hidden = model[0](inputs).detach().requires_grad_()
        logits = model[2](hidden.tanh()).detach().requires_grad_()
        wanted = {}
        rows = (("1", hidden, torch.tanh, 1), ("3", logits, torch.sigmoid, 0.25))
        for name, values, function, largest in rows:
            (slope,) = torch.autograd.grad(function(values).sum(), values)
            wanted[name] = 1 - float(slope.mean()) / largest
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "run.ampprobe.json")
            probe = ampprobe.attach(model, optimizer, out=out, every=1)
            for _ in range(3):
                optimizer.zero_grad()
                model(inputs).mean().backward()
                optimizer.step()
            probe.close()
            self.assertIsNone(probe.reason)
            with open(out, encoding="utf-8") as file:
                rows = json.load(file)["probe"]["facts"]
        found = {row["place"]: row["last"] for row in rows if row["name"] == "saturated"}
        self.assertEqual(sorted(found), sorted(wanted))
        for name, lost in wanted.items():
            self.assertGreater(lost, 0.5)
            self.assertAlmostEqual(found[name], lost, places=5)


@unittest.skipUnless(os.environ.get("AMPPROBE_LIBRARY"), "AMPPROBE_LIBRARY is not set")
class ScaledByHand(unittest.TestCase):
    def facts(self, then, hook=None):
        """Facts of a loop that multiplies its loss by 64 and does this before the step."""
        use_library()
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "run.ampprobe.json")
            torch.manual_seed(0)
            model = torch.nn.Linear(4, 1)
            if hook:
                model.weight.register_hook(hook)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
            probe = ampprobe.attach(model, optimizer, out=out, every=1)
            for _ in range(4):
                optimizer.zero_grad()
                (F.mse_loss(model(torch.randn(16, 4)), torch.zeros(16, 1)) * 64).backward()
                then(model)
                optimizer.step()
            probe.close()
            self.assertIsNone(probe.reason)
            with open(out, encoding="utf-8") as file:
                return {fact["name"]: fact["last"] for fact in json.load(file)["probe"]["facts"]}

    def test_gradients_that_nobody_touches(self):
        self.assertEqual(self.facts(lambda model: None)["loss_multiplied"], 64)

    def test_gradients_that_somebody_changes(self):
        def in_place(model):
            for parameter in model.parameters():
                parameter.grad /= 64

        def another(model):
            model.weight.grad = model.weight.grad / 64

        def clip(model):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)

        for then in (in_place, another, clip):
            self.assertNotIn("loss_multiplied", self.facts(then), then.__name__)
        self.assertNotIn("loss_multiplied", self.facts(lambda model: None, lambda grad: grad / 64))


if __name__ == "__main__":
    unittest.main()
