"""Optimizers, parameters and models that come after the probe, or that it was not given."""

import gc
import importlib
import unittest

from settings import ampprobe, batch, mlp, stderr, take_step, torch, use_library, use_recorder

from ampprobe import _abi


def loop(model, optimizer, steps, scaler=None):
    """Steps of one optimizer."""
    for step in range(steps):
        inputs, labels = batch(step)
        loss = torch.nn.functional.cross_entropy(model(inputs).float(), labels)
        optimizer.zero_grad()
        take_step(loss, optimizer, scaler, unscale=True)


class Others(unittest.TestCase):
    def setUp(self):
        gc.collect()
        self.addCleanup(use_library)
        use_recorder(lambda step: _abi.PLAN_GRADIENTS)
        self.model = mlp()
        self.first = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def attach(self, **options):
        return ampprobe.attach(self.model, self.first, **options)

    def test_a_second_stage_goes_on_where_the_first_ended(self):
        probe = self.attach()
        loop(self.model, self.first, 5)
        second = torch.optim.AdamW(self.model[6].parameters(), lr=1e-3)
        loop(self.model, second, 7)
        probe.close()
        record = probe.record
        self.assertIsNone(probe.reason)
        self.assertEqual(record.of("step"), list(range(12)))
        self.assertEqual([round(lr, 9) for lr in record.of("lr")], [0.1] * 5 + [1e-3] * 7)
        self.assertEqual(record.of("stepped"), [1] * 12)
        self.assertTrue(all(value > 0 for value in record.of("sum")))
        self.assertEqual(record.settings["groups"][0]["optimizer"], "adamw")
        self.assertEqual(record.settings["groups"][0]["since"], 5)
        self.assertIn(("optimizer_replaced", 0, "AdamW", 5), record.facts_stated)

    def test_attach_searches_no_objects_and_leaves_no_hook(self):
        hooks = importlib.import_module("torch.optim.optimizer")._global_optimizer_pre_hooks
        before, search = len(hooks), gc.get_objects
        self.addCleanup(setattr, gc, "get_objects", search)
        gc.get_objects = None
        probe = self.attach()
        self.assertIsNone(probe.reason)
        self.assertEqual(len(hooks), before + 1)
        probe.close()
        self.assertEqual(len(hooks), before)

    def test_attach_in_a_running_hook_of_all_optimizers_takes_its_place(self):
        register = importlib.import_module("torch.optim.optimizer").register_optimizer_step_pre_hook
        probes, seen = [], []

        def attach(*_):
            probes.append(self.attach(_everywhere=handle))

        handle = register(attach)
        other = register(lambda *_: seen.append(1))  # the user's, which runs after it
        self.addCleanup(other.remove)
        loop(self.model, self.first, 5)
        second = torch.optim.AdamW(self.model[6].parameters(), lr=1e-3)
        loop(self.model, second, 7)
        probes[0].close()
        self.assertEqual((len(probes), len(seen)), (1, 12))
        self.assertIsNone(probes[0].reason)
        self.assertEqual(probes[0].record.settings["groups"][0]["optimizer"], "adamw")

    def test_a_second_stage_in_quiet_steps(self):
        use_recorder(lambda step: 0)
        for scaled in (False, True):
            with self.subTest(scaled=scaled):
                scaler = torch.amp.GradScaler("cpu", init_scale=256.0) if scaled else None
                probe = self.attach()
                loop(self.model, self.first, 40, scaler)
                self.assertTrue(probe.quiet.on)
                second = torch.optim.SGD(self.model.parameters(), lr=0.01)
                loop(self.model, second, 40, scaler)
                self.assertTrue(probe.quiet.on)
                probe.close()
                self.assertIsNone(probe.reason)
                rates = probe.record.of("lr")
                self.assertGreaterEqual(rates.count(0.01), 39)
                self.assertEqual(rates.count(0.1), 40)
                self.assertIn(rates.count(0.01) - 39, (0, 1))

    def test_an_optimizer_that_is_made_anew_at_every_step(self):
        probe = self.attach()
        for _ in range(20):
            loop(self.model, torch.optim.SGD(self.model.parameters(), lr=0.1), 1)
        probe.close()
        self.assertIsNone(probe.reason)
        self.assertEqual(len(probe.record.of("step")), 20)
        self.assertEqual(len(probe.groups), 1)

    def test_an_optimizer_of_other_parameters_joins(self):
        probe = self.attach()
        head = torch.nn.Linear(4, 4)
        self.model.add_module("later", head)
        loop(self.model, self.first, 3)
        second = torch.optim.SGD(head.parameters(), lr=0.5)
        for step in range(4):
            loop(self.model, self.first, 1)
            head(batch(step)[0][:, :4]).square().mean().backward()
            second.step()
        probe.close()
        self.assertIsNone(probe.reason)
        self.assertEqual(len(probe.record.of("step", 0)), 7)
        self.assertEqual(probe.record.of("lr", 1), [0.5] * 4)
        self.assertIn("later.weight", [thing["name"] for thing in probe.record.things])

    def test_two_optimizers_in_turns_are_both_followed(self):
        second = torch.optim.SGD(self.model.parameters(), lr=0.01)
        probe = self.attach()
        for _ in range(6):
            loop(self.model, self.first, 1)
            loop(self.model, second, 1)
        probe.close()
        self.assertIsNone(probe.reason)
        self.assertEqual(len(probe.record.steps), 12)

    def test_one_of_another_model_is_named_and_not_recorded(self):
        other = torch.nn.Linear(8, 4)
        second = torch.optim.SGD(other.parameters(), lr=0.01)
        probe = self.attach()
        with stderr() as said:
            for _ in range(3):
                loop(other, second, 1)
                loop(self.model, self.first, 1)
        probe.close()
        self.assertEqual(said.getvalue().count("SGD"), 1)
        self.assertEqual(len([note for note in probe.record.notes if "not recorded" in note]), 1)
        self.assertEqual(set(probe.record.of("lr")), {0.1})
        self.assertFalse(second._optimizer_step_post_hooks)

    def test_the_inner_optimizer_of_a_wrapper_is_part_of_its_step(self):
        class Outer(torch.optim.Optimizer):
            def __init__(self, parameters, inner):
                super().__init__(parameters, {"lr": 0.1})
                self.inner = inner

            def step(self, closure=None):
                self.inner.step()

        inner = torch.optim.SGD(self.model.parameters(), lr=0.1)
        outer = Outer(self.model.parameters(), inner)
        probe = ampprobe.attach(self.model, outer)
        loop(self.model, outer, 12)
        probe.close()
        self.assertIsNone(probe.reason)
        self.assertEqual(record_steps(probe), 12)

    def test_parameters_that_are_added_have_names(self):
        probe = self.attach()
        loop(self.model, self.first, 2)
        later = torch.nn.Linear(4, 4)
        self.model.add_module("7", later)
        self.first.add_param_group({"params": later.parameters()})
        loop(self.model, self.first, 2)
        probe.close()
        self.assertIn("7.weight", [thing["name"] for thing in probe.record.things])

    def test_nothing_of_it_stays(self):
        probe = self.attach()
        second = torch.optim.SGD(self.model.parameters(), lr=0.01)
        third = torch.optim.SGD(self.model.parameters(), lr=0.01)
        loop(self.model, second, 2)
        probe.close()
        for optimizer in (self.first, second, third):
            self.assertFalse(optimizer._optimizer_step_pre_hooks)
            self.assertFalse(optimizer._optimizer_step_post_hooks)
        self.assertFalse(hasattr(torch.optim.Optimizer.__init__, "__wrapped__"))


def record_steps(probe):
    """Steps of all optimizers."""
    return len(probe.record.steps)


if __name__ == "__main__":
    unittest.main()
