"""A loop on a GPU is not made to wait: what quiet steps tell is read when it is there, and is the same.

No GPU is needed: tensors of the CPU are taken for a GPU's, and copies arrive when the test says so.
"""

import unittest
from collections import deque

import test_quiet
from settings import torch

from ampprobe import _abi, _late
from recorder import Recorder


class Event:
    """Stands for torch.cuda.Event: work is done some questions after it was asked for, or when waited for."""

    waited = 0
    delay = 3

    def record(self):
        """The work so far is asked for."""
        self.questions = 0

    def query(self):
        """Whether it is done."""
        self.questions += 1
        return self.questions > Event.delay

    def synchronize(self):
        """Waits for it."""
        Event.waited += 1


class Items:
    """Counts the calls of Tensor.item."""

    def __enter__(self):
        self.count, items = 0, self

        def item(tensor):
            items.count += 1
            return torch._C.TensorBase.item(tensor)

        torch.Tensor.item = item
        return self

    def __exit__(self, *_):
        del torch.Tensor.item


class OnDevice(test_quiet.Quiet):
    """All of test_quiet's, with tensors that are taken for a GPU's."""

    def setUp(self):
        super().setUp()
        self.names = ("on_device", "is_copied", "is_recorded", "new_event", "new_room")
        self.originals = [getattr(_late, name) for name in self.names]
        _late.on_device = _late.is_copied = lambda tensor: True
        _late.is_recorded = lambda: False
        _late.new_event = Event
        _late.new_room = lambda torch: torch.empty(_late.ROOM, dtype=torch.float64)
        Event.waited = 0

    def tearDown(self):
        for name, original in zip(self.names, self.originals):
            setattr(_late, name, original)
        super().tearDown()

    def train(self, loop, count):
        """Steps that read nothing themselves."""
        for _ in range(count):
            loop.optimizer.zero_grad()
            loop.scaler.scale(loop.model(torch.ones(3, 4)).square().mean()).backward()
            loop.scaler.step(loop.optimizer)
            loop.scaler.update()

    def test_no_item_is_read_in_quiet_steps(self):
        for scaled in (True, False):
            with self.subTest(scaled=scaled):
                Recorder.plans = staticmethod(lambda step: _abi.PLAN_GRADIENTS if step < 4 else 0)
                loop = test_quiet.Loop(scaled=scaled)
                loop.scaler.set_growth_interval(2000)
                self.train(loop, 20)
                quiet = loop.probe.quiet
                self.assertTrue(quiet.on)
                quiet.hand_over()
                quiet.full, quiet.due = 16 * _abi.FACTS_BYTES // 8, float("inf")
                with Items() as items:
                    self.train(loop, 8)
                self.assertTrue(quiet.on)
                self.assertEqual(items.count, 8 if scaled else 0)  # the scaler's own, of the finite check
                loop.probe.close()
                self.assertIsNone(loop.probe.reason)

    def test_a_step_is_complete_when_its_loss_is_there(self):
        words = [0.0] * 64
        losses = _late.Losses(words, 1, 2)
        for at, value in ((0, 0.5), (8, 0.25), (16, 4.0)):
            losses.put(torch.tensor(value))
            losses.put(torch.tensor(value))
            losses.ended(at, 1.0 + at)
        self.assertEqual((words[2], words[10]), (0.0, 0.0))  # asked three times, and twice
        losses.settle()
        self.assertEqual((words[1], words[2], words[10]), (1.0, 1.0, 0.0))
        self.assertEqual(Event.waited, 0)
        losses.settle(wait=True)
        self.assertEqual((words[9], words[10], words[17], words[18]), (0.5, 9.0, 8.0, 17.0))
        self.assertEqual(losses.waiting, deque())

    def test_nothing_is_asked_while_a_graph_is_recorded(self):
        words = [0.0] * 16
        losses = _late.Losses(words, 1, 2)
        losses.put(torch.tensor(0.5))
        losses.ended(0, 3.0)
        asked = losses.waiting[0][3].questions
        _late.is_recorded = lambda: True
        with self.assertRaises(RuntimeError):
            losses.put(torch.tensor(0.5))
        losses.ended(8, 4.0)
        self.assertEqual((words[9], words[10]), (0.0, 4.0))
        self.assertEqual((len(losses.waiting), losses.waiting[0][3].questions), (1, asked))

    def test_what_is_recorded_is_not_seen(self):
        for every_step in (True, False):
            with self.subTest(every_step=every_step):
                loud = _abi.PLAN_GRADIENTS | _abi.PLAN_LAYERS
                Recorder.plans = staticmethod(lambda step: loud if every_step or step < 4 else 0)
                loop = test_quiet.Loop()
                loop.scaler.set_growth_interval(2000)
                self.train(loop, 8)
                seen = len(loop.probe.record.tensors)
                _late.is_recorded = lambda: True
                with Items() as items:
                    self.train(loop, 3)
                    loop.probe.see("shown", torch.ones(3))
                _late.is_recorded = lambda: False
                self.assertEqual(items.count, 3)  # the scaler's own, of the finite check
                self.assertEqual(len(loop.probe.record.tensors), seen)
                self.train(loop, 2)
                loop.probe.close()
                self.assertIsNone(loop.probe.reason)
                said = [note for note in loop.probe.record.notes if "recorded as a CUDA graph" in note]
                self.assertEqual(len(said), 1)

    def test_more_losses_than_there_is_room_for(self):
        words = [0.0] * 8
        losses = _late.Losses(words, 1, 2)
        for _ in range(3):
            for _ in range(_late.ROOM // 2):
                losses.put(torch.tensor(1.0))
            losses.ended(0, 1.0)
        losses.settle(wait=True)
        self.assertEqual(words[1], _late.ROOM // 2)


if __name__ == "__main__":
    unittest.main()
