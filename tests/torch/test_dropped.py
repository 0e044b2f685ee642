"""What ends a step where a loop throws gradients away: a step is what the loop tried to make, or left out
because something was not finite; its loss and its gradients are those that were kept."""

import math
import types
import unittest

from settings import _abi, ampprobe, torch, use_recorder

STEPS = 20
INFINITE = float("inf")


class Loop:
    """A training; what is true of its steps is noted by the loops below."""

    def __init__(self, scaled=False, scale=1024.0, optimizer=torch.optim.SGD, **options):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        self.optimizer = optimizer(self.model.parameters(), lr=0.01, **options)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=100, enabled=scaled)
        self.losses, self.stepped, self.sums = [], [], []

    def loss(self, factor=1.0):
        """The loss of a micro-batch."""
        inputs = torch.randn(16, 8)
        return (self.model(inputs) - inputs.sum(1, keepdim=True)).square().mean() * factor

    def backward(self, factor=1.0):
        """A backward pass; its loss."""
        loss = self.loss(factor)
        self.scaler.scale(loss).backward()
        return loss.item()

    def note(self, loss, stepped=True):
        """A step is about to be made, or left out."""
        self.losses.append(loss)
        self.stepped.append(int(stepped))
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        self.sums.append(sum(float(g[g.isfinite()].abs().double().sum()) for g in gradients))

    def step(self, loss):
        """The step; whether it was made."""
        before = self.model[0].weight.clone()
        self.note(loss)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.stepped[-1] = int(not torch.equal(before, self.model[0].weight))

    def clear(self, **options):
        """zero_grad of the optimizer."""
        self.optimizer.zero_grad(**options)


def cleared_before_each(clear=Loop.clear, bad=(), micro_batches=4):
    """Gradients are cleared before each micro-batch, so that only the last one's are used."""

    def run(loop):
        for step in range(STEPS):
            for number in range(micro_batches):
                clear(loop)
                loss = loop.backward(INFINITE if (step, number) in bad else 1.0)
            loop.step(loss)

    return run


def of_module(loop):
    loop.model.zero_grad()


def kept_in_place(loop):
    loop.clear(set_to_none=False)


def set_to_none(loop):
    """No function of torch tells of it."""
    for parameter in loop.model.parameters():
        parameter.grad = None


def filled_with_zeros(loop):
    """Nor of this."""
    for parameter in loop.model.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()


def filled_unseen(loop):
    """Nor does the gradient's version."""
    for parameter in loop.model.parameters():
        if parameter.grad is not None:
            parameter.grad.data.zero_()


def cleared_twice(loop):
    loop.clear()
    loop.model.zero_grad()


def epochs_cut_short(clear=Loop.clear, micro_batches=4):
    """Micro-batches at the end of each epoch are left, and cleared by the next one."""

    def run(loop):
        for _ in range(4):
            clear(loop)
            losses = []
            for number in range(5 * micro_batches + micro_batches // 2):
                losses.append(loop.backward())
                if number % micro_batches == micro_batches - 1:
                    loop.step(sum(losses))
                    loop.clear()
                    losses = []
            if micro_batches == 1:
                loop.backward()

    return run


def cleared_around(loop):
    for _ in range(STEPS):
        loop.clear(set_to_none=False)
        loop.step(loop.backward())
        loop.clear()


def accumulated(loop):
    for _ in range(STEPS):
        loop.step(sum(loop.backward() for _ in range(4)))
        loop.clear()


def warmed_up(loop):
    """A first pass whose gradients nobody uses."""
    loop.backward()
    loop.clear()
    cleared_around(loop)


def attacked(loop):
    """Gradients of inputs come first; in two steps the loss after them is not finite and left out."""
    for step in range(STEPS):
        inputs = torch.randn(16, 8, requires_grad=True)
        loop.scaler.scale(loop.model(inputs).sum()).backward()
        loop.clear()
        loss = loop.backward(INFINITE if step in (6, 13) else 1.0)
        if math.isfinite(loss):
            loop.step(loss)
        else:
            loop.note(loss, False)
        loop.clear()


def left_out_by_hand(loop, clear=Loop.clear):
    """The loop makes the finite check."""
    for step in range(STEPS):
        clear(loop)
        loss = loop.backward(INFINITE if step in (0, 1, 7, 15) else 1.0)
        if all(p.grad.isfinite().all() for p in loop.model.parameters()):
            loop.step(loss)
        else:
            loop.note(loss, False)


def clipped_each_time(loop):
    """Every micro-batch is clipped, and cleared."""
    for _ in range(STEPS):
        for _ in range(3):
            loop.clear()
            loss = loop.backward()
            torch.nn.utils.clip_grad_norm_(loop.model.parameters(), 1e9)
        loop.step(loss)


def clipped_and_added(loop):
    """Every micro-batch is clipped, and added to those before."""
    for _ in range(STEPS):
        loss = 0.0
        for _ in range(3):
            loss += loop.backward()
            torch.nn.utils.clip_grad_norm_(loop.model.parameters(), 1e9)
        loop.step(loss)
        loop.clear()


def unscaled_and_left_out(loop):
    """Unscaled, not finite, and the loop goes on by itself."""
    for step in range(STEPS):
        loop.clear()
        loss = loop.backward(INFINITE if step in (3, 9) else 1.0)
        loop.scaler.unscale_(loop.optimizer)
        if math.isfinite(loss):
            loop.step(loss)
        else:
            loop.note(loss, False)
            loop.scaler.update()


def two_passes(loop):
    for _ in range(STEPS):
        loop.clear()
        loss = loop.backward()
        loop.step(loss + loop.backward())


def scaled_ahead(loop):
    """Two losses are scaled before the first backward pass, in most steps but not in all."""
    for step in range(STEPS):
        set_to_none(loop)
        losses = [loop.loss() for _ in range(1 if step % 5 == 2 else 2)]
        for scaled in [loop.scaler.scale(loss) for loss in losses]:
            scaled.backward()
        loop.step(sum(loss.item() for loss in losses))


def cleared_between_scaling_and_backward(loop):
    for _ in range(STEPS):
        loss = loop.loss()
        scaled = loop.scaler.scale(loss)
        loop.clear()
        scaled.backward()
        loop.step(loss.item())


def cleared_before_update(loop):
    """By the loop between the scaler's step and its update."""
    for _ in range(STEPS):
        loss = loop.backward()
        loop.note(loss)
        loop.scaler.step(loop.optimizer)
        loop.clear()
        loop.scaler.update()


def checkpointed(loop):
    from torch.utils.checkpoint import checkpoint

    for _ in range(STEPS):
        loop.clear()
        inputs = torch.randn(16, 8)
        loss = checkpoint(loop.model, inputs, use_reentrant=False).square().mean()
        loss.backward()
        loop.step(loss.item())


def closures(loop):
    """A closure that is also called before the step, and clears between its micro-batches."""

    def closure():
        for _ in range(2):
            loop.clear()
            loss = loop.loss()
            loss.backward()
        return loss

    for _ in range(STEPS):
        closure()
        loop.losses.append(float(loop.optimizer.step(closure)))
        loop.stepped.append(1)


class ClearsItself(torch.optim.SGD):
    """An optimizer whose step ends with clearing."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(group["lr"] * parameter.grad)
        self.zero_grad()


def plainly(loop):
    for _ in range(STEPS):
        loop.step(loop.backward())


def sparsely(step):
    """Most steps show nothing, and are quiet."""
    return _abi.PLAN_GRADIENTS if step % 9 == 0 else 0


def always(step):
    return _abi.PLAN_GRADIENTS


class Dropped(unittest.TestCase):
    def check(self, run, scaled=(False, True), skips=0, sums=True, plans=None, **options):
        """The record's steps are those that the loop made, whatever they show; training is unchanged."""
        for enabled in scaled:
            plain = Loop(enabled, **options)
            run(plain)
            for plan in plans or (always, sparsely):
                with self.subTest(scaled=enabled, plan=plan.__name__):
                    use_recorder(plan)
                    loop = Loop(enabled, **options)
                    probe = ampprobe.attach(loop.model, loop.optimizer)
                    run(loop)
                    probe.close()
                    self.assertIsNone(probe.reason)
                    record = probe.record
                    self.assertEqual(record.of("stepped"), loop.stepped)
                    self.assertEqual(len(loop.stepped) - sum(loop.stepped), skips)
                    for seen, true in zip(record.of("loss"), loop.losses):
                        same = seen == true or math.isclose(seen, true, rel_tol=1e-6)
                        self.assertTrue(same, (record.of("loss"), loop.losses))
                    if plan is always and loop.sums and sums:
                        self.check_sums(record, loop)
                    weights = zip(plain.model.parameters(), loop.model.parameters())
                    self.assertTrue(all(torch.equal(one, other) for one, other in weights))

    def check_sums(self, record, loop):
        """Gradients of a step that was made are counted once; what was thrown away is not, but before the
        first step."""
        rows = list(zip(record.of("sum"), loop.sums, loop.stepped))
        for seen, true, stepped in rows[max(loop.stepped.index(1), 0) + 1 :]:
            if stepped:
                self.assertTrue(math.isclose(seen, true, rel_tol=1e-5), (seen, true))

    def test_cleared_before_each_micro_batch(self):
        ways = (Loop.clear, of_module, kept_in_place, cleared_twice, set_to_none, filled_with_zeros)
        for clear in (*ways, filled_unseen):
            with self.subTest(clear.__name__):
                self.check(cleared_before_each(clear))

    def test_what_is_thrown_away_anyway_may_be_infinite(self):
        self.check(cleared_before_each(bad={(0, 1), (7, 2), (12, 0)}))

    def test_steps_that_the_scaler_skips(self):
        self.check(cleared_before_each(), scaled=(True,), scale=2.0**127, skips=1)
        self.check(cleared_before_each(micro_batches=1), scaled=(True,), scale=2.0**127, skips=1)
        self.check(accumulated, scaled=(True,), scale=2.0**127, skips=2)

    def test_an_epoch_that_is_cut_short(self):
        for clear in (Loop.clear, set_to_none):
            for micro_batches in (1, 4):
                with self.subTest(clear=clear.__name__, micro_batches=micro_batches):
                    self.check(epochs_cut_short(clear, micro_batches))

        loop = epochs_cut_short(filled_with_zeros)
        self.check(loop, plans=(always, lambda step: always(step) if step < 3 else sparsely(step)))

    def test_two_losses_scaled_ahead(self):
        self.check(scaled_ahead, scaled=(True,))

    def test_cleared_before_and_after(self):
        self.check(cleared_around)

    def test_accumulation(self):
        self.check(accumulated)

    def test_a_pass_before_the_first_step(self):
        self.check(warmed_up)

    def test_attacks(self):
        self.check(attacked, skips=2)

    def test_steps_that_the_loop_leaves_out(self):
        for clear in (Loop.clear, filled_with_zeros):
            self.check(lambda loop, clear=clear: left_out_by_hand(loop, clear), skips=4)
        self.check(unscaled_and_left_out, scaled=(True,), sums=False, skips=2)  # noted as they are unscaled

    def test_clipping_is_no_step(self):
        for run in (clipped_each_time, clipped_and_added):  # gradients are counted before each clipping
            self.check(run, scaled=(False,), sums=False)

    def test_two_backward_passes(self):
        self.check(two_passes)

    def test_other_places_of_zero_grad(self):
        self.check(cleared_between_scaling_and_backward)
        self.check(cleared_before_update, scaled=(True,))
        self.check(plainly, optimizer=ClearsItself)

    def test_checkpointing(self):
        self.check(checkpointed, scaled=(False,))

    def test_closures(self):
        self.check(closures, scaled=(False,))
        self.check(closures, scaled=(False,), optimizer=torch.optim.LBFGS, max_iter=3)

    def test_two_optimizers(self):
        """In turns; the first pass of each turn is thrown away, and so are gradients of the other model."""
        for scaled in (False, True):
            for clear in (Loop.clear, of_module, set_to_none, filled_with_zeros):
                with self.subTest(scaled=scaled, clear=clear.__name__):
                    losses, record = self.train_two(scaled, clear)
                    for group in (0, 1):
                        self.assertEqual(record.of("stepped", group), [1] * STEPS)
                        self.assertEqual(record.of("loss", group), losses[group])
                        self.assertEqual(record.of("micro_batches", group), [1] * STEPS)
                    self.assertEqual(record.settings["accumulation"], 1)

    def train_two(self, scaled, clear):
        """The losses of both optimizers' steps, and the record."""
        use_recorder(always)
        torch.manual_seed(0)
        models = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
        loops = [types.SimpleNamespace(model=model) for model in models]
        for loop in loops:
            loop.optimizer = torch.optim.SGD(loop.model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, enabled=scaled)
        probe = ampprobe.attach(models, [loop.optimizer for loop in loops])
        losses = [[], []]
        for _ in range(STEPS):
            for index in (1, 0):
                for _ in range(2):
                    clear(loops[index])
                    loss = models[1](models[0](torch.randn(4, 4))).square().mean()
                    scaler.scale(loss).backward()
                losses[index].append(loss.item())
                scaler.step(loops[index].optimizer)
            scaler.update()
        probe.close()
        self.assertIsNone(probe.reason)
        return losses, probe.record

    def test_a_loss_of_two_optimizers(self):
        """Both step after one backward pass, or after two that are added up; one before is thrown away."""
        for scaled in (False, True):
            for passes in (1, 2):
                with self.subTest(scaled=scaled, passes=passes):
                    use_recorder(always)
                    loop = Loop(scaled)
                    optimizers = [torch.optim.SGD(loop.model[i].parameters(), lr=0.01) for i in (0, 2)]
                    probe = ampprobe.attach(loop.model, optimizers)
                    losses = []
                    for _ in range(STEPS):
                        loop.backward()
                        loop.model.zero_grad()
                        losses.append(sum(loop.backward() for _ in range(passes)))
                        for optimizer in optimizers:
                            loop.scaler.step(optimizer)
                        loop.scaler.update()
                        loop.model.zero_grad()
                    probe.close()
                    self.assertIsNone(probe.reason)
                    for group in (0, 1):
                        self.assertEqual(probe.record.of("loss", group), losses)
                        self.assertEqual(probe.record.of("micro_batches", group), [passes] * STEPS)

    def test_more_passes_than_are_held_are_steps(self):
        """A loop that has made no step for so long is one that makes none."""
        use_recorder(always)
        loop = Loop()
        probe = ampprobe.attach(loop.model, loop.optimizer)
        losses = []
        for _ in range(100):
            loop.clear()
            losses.append(loop.backward())
        self.assertGreater(len(probe.record.steps), 60)
        probe.close()
        self.assertIsNone(probe.reason)
        self.assertEqual(probe.record.of("stepped"), [0] * 100)
        self.assertEqual(probe.record.of("loss"), losses)


if __name__ == "__main__":
    unittest.main()
