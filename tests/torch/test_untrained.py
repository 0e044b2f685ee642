"""Which parameters are said to have no gradient: those that are cut off, and none that are meant to be so."""

import json
import os
import tempfile
import unittest

from settings import ampprobe, torch, use_library

F = torch.nn.functional
NAMES = {"not_registered", "no_gradients", "optimizer_without_gradients", "cut_off", "held_by_no_optimizer",
         "optimizer_of_others"}  # fmt: skip


def linear(*sizes):
    return torch.nn.Linear(*sizes)


class Untrained(unittest.TestCase):
    def setUp(self):
        use_library()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "run.ampprobe.json")

    def facts(self, models, optimizers, iteration, steps=24):
        """(name, place) of what is said of a run of `iteration(number)`."""
        probe = ampprobe.attach(models, optimizers, out=self.path, every=3)
        for number in range(steps):
            iteration(number)
        probe.close()
        self.assertIsNone(probe.reason)
        for model in models if isinstance(models, list) else [models]:
            for parameter in model.parameters():
                self.assertFalse(parameter._post_accumulate_grad_hooks)
        with open(self.path, encoding="utf-8") as file:
            facts = json.load(file)["probe"]["facts"]
        return sorted((fact["name"], fact["place"]) for fact in facts if fact["name"] in NAMES)

    def supervised(self, model, forward, optimizer=None):
        optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=1e-3)

        def iteration(number):
            optimizer.zero_grad()
            F.cross_entropy(forward(torch.randn(16, 8), number), torch.randint(0, 4, (16,))).backward()
            optimizer.step()

        return self.facts(model, optimizer, iteration)

    def test_a_generator_whose_output_is_detached(self):
        for detached in (True, False):
            generator, critic = linear(8, 4), linear(4, 1)
            mine = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())

            def iteration(number, detached=detached, g=generator, d=critic, optimizers=mine):
                fake = g(torch.randn(16, 8))
                optimizers[1].zero_grad()
                (F.softplus(-d(torch.randn(16, 4))) + F.softplus(d(fake.detach()))).mean().backward()
                optimizers[1].step()
                optimizers[0].zero_grad()
                F.softplus(-d(fake.detach() if detached else fake)).mean().backward()
                optimizers[0].step()

            with self.subTest(detached=detached):
                found = self.facts([generator, critic], list(mine), iteration)
                wanted = [("optimizer_without_gradients", "model0.weight")] if detached else []
                self.assertEqual(found, wanted)

    def test_an_optimizer_that_was_made_for_the_parameters_of_another(self):
        """Of which two are given to attach, or one; gradients may be gone when the other one steps."""
        for given, clears, mistake in (
            (2, False, True), (1, False, True), (1, True, True), (2, False, False), (1, False, False)
        ):  # fmt: skip
            generator, critic = linear(8, 4), linear(4, 1)
            critics = torch.optim.Adam(critic.parameters())
            mine = critics, torch.optim.Adam((critic if mistake else generator).parameters())

            def iteration(number, g=generator, d=critic, optimizers=mine, clears=clears):
                fake = g(torch.randn(16, 8))
                optimizers[0].zero_grad()
                if clears:
                    g.zero_grad()
                (F.softplus(-d(torch.randn(16, 4))) + F.softplus(d(fake.detach()))).mean().backward()
                optimizers[0].step()
                optimizers[1].zero_grad()
                F.softplus(-d(fake)).mean().backward()
                optimizers[1].step()

            with self.subTest(given=given, clears=clears, mistake=mistake):
                found = self.facts([generator, critic][-given:], list(mine)[:given], iteration)
                names = ["Linear.bias", "Linear.weight"] if mistake else []
                self.assertEqual(found, [("optimizer_of_others", name) for name in names])

    def test_parts_that_are_used_in_turns_or_never(self):
        class Parts(torch.nn.ModuleDict):
            def forward(self, inputs, number):
                hidden = F.relu(self["trunk"](inputs))
                with torch.no_grad():
                    self["teacher"](inputs)
                self["pooler"](hidden)  # as of a pretrained encoder, whose pooled output nobody reads
                return self[f"head{number % 7 % 2}"](hidden)

        model = Parts({"trunk": linear(8, 16), "pooler": linear(16, 16), "head0": linear(16, 4),
                       "head1": linear(16, 4), "spare": linear(16, 4), "teacher": linear(8, 4)})  # fmt: skip
        model["teacher"].requires_grad_(False)
        self.assertEqual(self.supervised(model, model), [])

    def test_first_layers_that_are_frozen_on_purpose(self):
        model = torch.nn.Sequential(linear(8, 16), torch.nn.ReLU(), linear(16, 4))
        model[0].requires_grad_(False)
        self.assertEqual(self.supervised(model, lambda inputs, _: model(inputs)), [])
        model[0].requires_grad_(True)
        head = torch.optim.Adam(model[2].parameters())  # a probe of fixed features
        self.assertEqual(self.supervised(model, lambda inputs, _: model(inputs), head), [])

    def test_experts_that_a_router_seldom_chooses(self):
        class Experts(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.router = linear(8, 2)
                self.experts = torch.nn.ModuleList(linear(8, 4) for _ in range(2))

            def forward(self, inputs, number):
                gate = self.router(inputs).softmax(1)
                chosen = int(number == 17)
                return gate[:, chosen : chosen + 1] * self.experts[chosen](inputs)

        model = Experts()
        self.assertEqual(self.supervised(model, model), [])

    def test_the_first_layers_are_named(self):
        model = torch.nn.Sequential(linear(8, 16), torch.nn.ReLU(), linear(16, 4))
        found = self.supervised(model, lambda inputs, _: model[2](model[:2](inputs).detach()))
        self.assertEqual(found, [("cut_off", "0.bias"), ("cut_off", "0.weight")])

    def test_helpers_that_a_model_hides_from_its_parameters(self):
        """A frozen one, one that runs without gradients, and one that the loop itself updates."""

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.head = linear(8, 4)
                self.helpers = [linear(8, 8).requires_grad_(False), linear(8, 8), linear(8, 8)]

            def forward(self, inputs, number):
                frozen, teacher, own = self.helpers
                with torch.no_grad():
                    teacher(inputs)
                    own.weight += 0.01
                    own.bias += 0.01
                return self.head(own(frozen(inputs)))

        model = Net()
        self.assertEqual(self.supervised(model, model), [])

    def test_layers_that_are_trained_later(self):
        model = torch.nn.Sequential(linear(8, 16), torch.nn.ReLU(), linear(16, 4))

        def forward(inputs, number):
            with torch.set_grad_enabled(number >= 20):
                hidden = model[:2](inputs)
            return model[2](hidden)

        self.assertEqual(self.supervised(model, forward), [])


if __name__ == "__main__":
    unittest.main()
