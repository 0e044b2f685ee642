"""Small training programs, each with one mistake that people make in PyTorch loops, and its healthy twin.

Every program is a function of (twin, out): it trains with the probe attached and writes the record `out`;
with `twin` true it makes the same run without the mistake. The table is at the end of the file.
"""

import copy
import math

from settings import ampprobe, torch

F = torch.nn.functional
BF16, FP16 = torch.bfloat16, torch.float16


def samples(step, rows=32, width=8, classes=4):
    """Inputs and labels that a linear layer learns."""
    generator = torch.Generator().manual_seed(500 + step)
    inputs = torch.randn(rows, width, generator=generator)
    return inputs, inputs[:, :classes].argmax(dim=1)


def net(width=8, hidden=32, classes=4, dtype=None):
    """A perceptron."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(width, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, classes)
    )
    return model.to(dtype) if dtype else model


def sgd(model, **options):
    """SGD with momentum."""
    return torch.optim.SGD(model.parameters(), **{"lr": 0.05, "momentum": 0.9, **options})


def train(
    model,
    out,
    *,
    optimizer=None,
    scaler=None,
    half=FP16,
    autocast=True,
    steps=60,
    accumulate=1,
    loss=None,
    before=None,
    update=None,
    batch=samples,
    again=False,
):
    """The loop. `before(step)` runs before a step, `update()` in place of the optimizer's."""
    optimizer = optimizer or sgd(model)
    scaler = scaler or torch.amp.GradScaler("cpu", enabled=False)
    probe = ampprobe.attach(
        model, optimizer, scaler=scaler, out=out, every=1, half="fp16" if half is FP16 else "bf16"
    )
    loss = loss or (lambda outputs, labels: F.cross_entropy(outputs.float(), labels))

    def loss_of(number):
        inputs, labels = batch(number)
        with torch.autocast("cpu", dtype=half, enabled=autocast):
            outputs = model(*inputs) if isinstance(inputs, tuple) else model(inputs)
        return loss(outputs, labels) / accumulate

    def step(number):
        optimizer.zero_grad()
        for part in range(accumulate):
            scaler.scale(loss_of(number * accumulate + part)).backward()
        if update:
            update(optimizer)
            return
        scaler.step(optimizer)
        scaler.update()

    for number in range(steps):
        if before:
            before(number)
        if again:
            with probe.step(lambda number=number: loss_of(number)):
                step(number)
        else:
            step(number)
    probe.close()
    assert probe.reason is None, probe.reason


def forward_only(twin, out, step):
    """A loop of `step(model, optimizer, number)`, whose record is all that the probe sees of it."""
    model = net()
    optimizer = sgd(model)
    probe = ampprobe.attach(model, optimizer, out=out, every=1)
    for number in range(60):
        inputs, labels = samples(number)
        optimizer.zero_grad()
        step(F.cross_entropy(model(inputs), labels), optimizer)
    probe.close()
    assert probe.reason is None, probe.reason


# ---- the mistakes ----------------------------------------------------------------------------------


def silent_skips(twin, out):
    """A regulariser whose root has no finite gradient at 0, and a loop that then does nothing."""
    model = net()
    model.register_parameter("gate", torch.nn.Parameter(torch.zeros(1)))

    def loss(outputs, labels):
        root = (model.gate**2 + (1e-6 if twin else 0)).sqrt().sum()
        return F.cross_entropy(outputs.float(), labels) + 0.01 * root

    def update(optimizer):
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        if torch.isfinite(norm):
            optimizer.step()

    train(model, out, half=BF16, loss=loss, update=update)


def backward_forgotten(twin, out):
    """A loss that nobody differentiates."""

    def step(loss, optimizer):
        if twin:
            loss.backward()
            optimizer.step()

    forward_only(twin, out, step)


def step_forgotten(twin, out):
    """Gradients that nobody uses."""

    def step(loss, optimizer):
        loss.backward()
        if twin:
            optimizer.step()

    forward_only(twin, out, step)


def root_at_zero(twin, out):
    """The root of a sum of squares that is 0 has no derivative; the scaler skips every step."""
    model = net()
    model.register_parameter("gate", torch.nn.Parameter(torch.zeros(4)))

    def loss(outputs, labels):
        root = ((model.gate**2).sum() + (1e-6 if twin else 0)).sqrt()
        return F.cross_entropy(outputs.float(), labels) + 0.01 * root

    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    train(model, out, autocast=False, scaler=scaler, loss=loss, again=True)


class Parts(torch.nn.Module):
    """Two layers and a head; `between` is called on what the first one gives."""

    def __init__(self, between=None):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = torch.nn.Linear(8, 32), torch.nn.Linear(32, 32)
        self.head = torch.nn.Linear(32, 4)
        self.between = between

    def forward(self, inputs):
        hidden = self.first(inputs)
        if self.between:
            hidden = self.between(hidden)
        return self.head(F.relu(self.second(F.relu(hidden))))


def graph_cut(twin, out):
    """What the first layer gives is taken out of the graph."""
    train(Parts(None if twin else lambda hidden: hidden.data), out, autocast=False)


def graph_cut_by_grad_mode(twin, out):
    """The first layer runs without gradients, though it is to be trained."""

    class Net(Parts):
        def forward(self, inputs):
            with torch.set_grad_enabled(twin):
                hidden = self.first(inputs)
            return self.head(F.relu(self.second(F.relu(hidden))))

    train(Net(), out, autocast=False)


def plain_list(twin, out):
    """Blocks in a list, which their model does not know."""

    class Net(Parts):
        def __init__(self):
            super().__init__()
            blocks = [torch.nn.Linear(32, 32) for _ in range(2)]
            self.blocks = torch.nn.ModuleList(blocks) if twin else blocks

        def forward(self, inputs):
            hidden = self.first(inputs)
            for block in self.blocks:
                hidden = hidden + F.relu(block(hidden))
            return self.head(F.relu(self.second(F.relu(hidden))))

    train(Net(), out, autocast=False)


def head_replaced(twin, out):
    """The optimizer holds the head that was replaced; the new one stays as it is."""
    model = Parts()
    optimizer = None if twin else sgd(model)
    torch.manual_seed(7)
    model.head = torch.nn.Linear(32, 4)
    train(model, out, optimizer=optimizer, autocast=False)


def only_head_replaced(twin, out):
    """The same, and all other layers are frozen on purpose: nothing is trained."""
    model = Parts()
    for parameter in [*model.first.parameters(), *model.second.parameters()]:
        parameter.requires_grad_(False)
    optimizer = sgd(model)
    torch.manual_seed(7)
    model.head = torch.nn.Linear(32, 4)
    train(model, out, optimizer=sgd(model) if twin else optimizer, autocast=False)


def never_resumed(twin, out):
    """A run that goes on from a checkpoint at a scale that was cast to half, and checks gradients by hand."""
    model = net()
    optimizer = sgd(model)
    probe = ampprobe.attach(model, optimizer, out=out, every=1)

    def steps(optimizer, scale, numbers):
        for number in numbers:
            inputs, labels = samples(number)
            optimizer.zero_grad()
            (F.cross_entropy(model(inputs), labels) * scale).backward()
            gradients = [p.grad.div_(scale) for p in model.parameters()]
            if all(bool(gradient.isfinite().all()) for gradient in gradients):
                optimizer.step()

    scale = torch.tensor(2.0**16)
    steps(optimizer, scale, range(30))
    steps(sgd(model), scale if twin else scale.half().float(), range(30, 90))
    probe.close()
    assert probe.reason is None, probe.reason


class Calm(torch.optim.SGD):
    """An optimizer that leaves out an update with a gradient that is not finite, inside step()."""

    def step(self, closure=None):
        bad = [p for g in self.param_groups for p in g["params"] if not p.grad.isfinite().all()]
        kept = [p.grad for p in bad]
        for p in [p for g in self.param_groups for p in g["params"]] if bad else []:
            p.grad = None
        result = super().step(closure)
        for p, gradient in zip(bad, kept):
            p.grad = gradient
        return result


def silent_skips_inside(twin, out):
    """The same, by an optimizer whose step() does nothing."""
    model = net()
    model.register_parameter("gate", torch.nn.Parameter(torch.zeros(1)))

    def loss(outputs, labels):
        root = (model.gate**2 + (1e-6 if twin else 0)).sqrt().sum()
        return F.cross_entropy(outputs.float(), labels) + 0.01 * root

    train(model, out, half=BF16, loss=loss, optimizer=Calm(model.parameters(), lr=0.05))


def no_scaler(twin, out):
    """fp16 autocast, gradients below its smallest number, no scaler."""

    def loss(outputs, labels):
        return F.cross_entropy(outputs.float(), labels) * 1e-6

    scaler = torch.amp.GradScaler("cpu", enabled=twin)
    train(net(), out, scaler=scaler, loss=loss)


def scaler_not_saved(twin, out):
    """A run that goes on from a checkpoint with a new scaler, whose first scale is too high."""

    def loss(outputs, labels):
        return F.cross_entropy(outputs.float(), labels) * 400

    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    for number in range(20):
        inputs, labels = samples(number)
        with torch.autocast("cpu", dtype=FP16):
            outputs = model(inputs)
        optimizer.zero_grad()
        scaler.scale(loss(outputs, labels)).backward()
        scaler.step(optimizer)
        scaler.update()
    fresh = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    if twin:
        fresh.load_state_dict(scaler.state_dict())
    train(model, out, optimizer=optimizer, scaler=fresh, loss=loss)


def updates_lost(twin, out):
    """Pure bf16 at a small rate: no update changes a weight."""
    model = net(dtype=None if twin else BF16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0)

    def batch(step):
        inputs, labels = samples(step)
        return inputs if twin else inputs.to(BF16), labels

    train(model, out, optimizer=optimizer, half=BF16, autocast=twin, batch=batch)


def decay_lost(twin, out):
    """Pure bf16: lr x decay is below half an ulp of every weight."""
    model = net(dtype=None if twin else BF16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)

    def batch(step):
        inputs, labels = samples(step)
        return inputs if twin else inputs.to(BF16), labels

    train(model, out, optimizer=optimizer, half=BF16, autocast=twin, batch=batch, steps=120)


def half_moments(twin, out):
    """model.half() and Adam: the second moments and eps are 0 in fp16."""
    model = net(dtype=None if twin else FP16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def batch(step):
        inputs, labels = samples(step)
        return inputs if twin else inputs.to(FP16), labels

    train(
        model,
        out,
        optimizer=optimizer,
        autocast=twin,
        batch=batch,
        loss=lambda outputs, labels: F.cross_entropy(outputs.float(), labels) * 0.01,
        scaler=torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=twin),
    )


def accumulated_in_half(twin, out):
    """300 micro-batches added up in bf16."""
    model = net(dtype=None if twin else BF16)

    def batch(step):
        inputs, labels = samples(step, rows=4)
        return inputs if twin else inputs.to(BF16), labels

    train(model, out, half=BF16, autocast=twin, batch=batch, accumulate=300, steps=2)


def unequal_micro_batches(twin, out):
    """Padding: the second half of the micro-batches has one target each, and the same weight."""

    def batch(step):
        inputs, labels = samples(step)
        if step % 4 > 1:
            labels = labels.clone()
            labels[1:] = -100
        return inputs, labels

    def loss(outputs, labels):
        total = F.cross_entropy(outputs.float(), labels, reduction="sum" if twin else "mean")
        return total / 66 * 4 if twin else total

    train(net(), out, half=BF16, accumulate=4, batch=batch, loss=loss)


def mean_divided_again(twin, out):
    """The mean of 32 losses is divided by 32 once more."""

    def loss(outputs, labels):
        return F.cross_entropy(outputs.float(), labels) / (1 if twin else 32)

    model = net()
    train(model, out, half=BF16, accumulate=4, optimizer=sgd(model, lr=0.02), loss=loss)


def mean_over_masked(twin, out):
    """All but two of 32 samples are padding, and the mean is over all 32."""
    mask = (torch.arange(32) < 2).float()

    def loss(outputs, labels):
        costs = F.cross_entropy(outputs.float(), labels, reduction="none") * mask
        return costs.sum() / mask.sum() if twin else costs.mean()

    model = net()
    train(model, out, half=BF16, optimizer=sgd(model, lr=0.01, momentum=0), loss=loss, steps=200)


def targets_out_of_reach(twin, out):
    """A relu at the output, and targets of both signs, by a loss of torch's or one written by hand."""
    model = torch.nn.Sequential(*net(classes=1), torch.nn.Identity() if twin else torch.nn.ReLU())

    def batch(step):
        inputs, _ = samples(step)
        return inputs, inputs[:, :1] + inputs[:, 1:2]

    train(model, out, half=BF16, batch=batch, steps=120, loss=lambda y, t: F.mse_loss(y.float(), t))


def micro_batches_dropped(twin, out):
    """zero_grad() before every micro-batch."""
    model = net()
    optimizer = sgd(model, lr=0.02)
    probe = ampprobe.attach(model, optimizer, out=out, every=1)
    for number in range(240):
        inputs, labels = samples(number)
        if number % 4 == 0 or not twin:
            optimizer.zero_grad()
        (F.cross_entropy(model(inputs), labels) / 4).backward()
        if number % 4 == 3:
            optimizer.step()
    probe.close()
    assert probe.reason is None, probe.reason


def plateau_of_a_loss(twin, out):
    """ReduceLROnPlateau with mode="max" is told a loss."""
    model = net()
    optimizer = sgd(model, lr=0.02, momentum=0)
    mode = "min" if twin else "max"
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode, patience=1, threshold=0)
    inputs, labels = samples(1000)

    def before(step):
        if step and step % 10 == 0:
            with torch.no_grad():
                schedule.step(F.cross_entropy(model(inputs), labels))

    train(model, out, half=BF16, optimizer=optimizer, before=before, steps=120)


def scaled_by_hand(twin, out):
    """The loss is multiplied by 4096, and nobody divides its gradients."""
    model = net()
    optimizer = sgd(model, lr=0.2, momentum=0)

    def update(optimizer):
        for parameter in model.parameters() if twin else ():
            parameter.grad.div_(4096)
        optimizer.step()

    def loss(outputs, labels):
        return F.mse_loss(outputs.float(), F.one_hot(labels, 4).float()) * 4096

    train(model, out, half=FP16, optimizer=optimizer, loss=loss, update=update)


def penalty_left_scaled(twin, out):
    """A gradient penalty of the scaled outputs, which nobody divides by the scale."""
    model = net()
    optimizer = sgd(model, lr=0.02, momentum=0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**6)
    probe = ampprobe.attach(model, optimizer, scaler=scaler, out=out, every=1)
    for number in range(60):
        inputs, labels = samples(number)
        inputs.requires_grad_()
        outputs = model(inputs)
        (slope,) = torch.autograd.grad(scaler.scale(outputs.sum()), inputs, create_graph=True)
        if twin:
            slope = slope * (1 / scaler.get_scale())
        loss = F.cross_entropy(outputs, labels) + 1e-4 * slope.square().sum(dim=1).mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    probe.close()
    assert probe.reason is None, probe.reason
    assert probe.losses == 1, probe.losses


class Rotary(torch.nn.Module):
    """Angles of positions, as rotary embeddings have them."""

    def __init__(self, width=8):
        super().__init__()
        self.register_buffer("inv_freq", 10000.0 ** (-torch.arange(0, width, 2) / width))

    def forward(self, positions):
        angles = positions[..., None].to(self.inv_freq.dtype) * self.inv_freq
        return torch.cat([angles.cos(), angles.sin()], dim=-1)


class Rotated(torch.nn.Module):
    """A layer that reads what Rotary gives."""

    def __init__(self):
        super().__init__()
        self.rotary, self.head = Rotary(), net()

    def forward(self, inputs, positions):
        return self.head(inputs * self.rotary(positions).to(inputs.dtype))


def rotary_in_half(twin, out):
    """The frequencies went to bf16 with the rest of the model, and positions go up to 4,000."""
    torch.manual_seed(0)
    model = Rotated()
    if not twin:
        model.rotary.to(BF16)

    def batch(step):
        inputs, labels = samples(step)
        return (inputs, torch.arange(32) * 125), labels

    train(model, out, half=BF16, batch=batch)


class Positions(torch.nn.Module):
    """Reads positions as numbers."""

    def __init__(self):
        super().__init__()
        self.position, self.head = torch.nn.Linear(1, 8), net()

    def forward(self, inputs, positions):
        return self.head(inputs + 1e-3 * self.position(positions[:, None]))


def integers_in_half(twin, out):
    """Positions up to 620 in bf16."""

    def batch(step):
        inputs, labels = samples(step)
        positions = torch.arange(32) * 20
        return (inputs, positions.float() / 1000 if twin else positions.to(BF16)), labels

    torch.manual_seed(0)
    train(Positions(), out, half=BF16, batch=batch)


def logits_in_half(twin, out):
    """A loss from bf16 logits that have grown large."""
    model = net()
    with torch.no_grad():
        model[2].weight.mul_(300)

    def loss(outputs, labels):
        return F.cross_entropy(outputs.float() if twin else outputs.to(BF16), labels)

    with_float = torch.amp.GradScaler("cpu", enabled=False)
    train(model, out, half=BF16, loss=loss, scaler=with_float, optimizer=sgd(model, lr=0.02), steps=120)


class Attention(torch.nn.Module):
    """One attention over four tokens, some of which are padding."""

    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = net()

    def forward(self, inputs, padding):
        read, _ = self.attention(inputs, inputs, inputs, key_padding_mask=padding)
        return self.head(read.mean(dim=1))


def masked_rows(twin, out):
    """A sample that is nothing but padding."""
    torch.manual_seed(0)
    model = Attention()

    def batch(step):
        inputs, labels = samples(step, rows=8)
        padding = torch.zeros(8, 4, dtype=torch.bool)
        padding[0, 1 if twin else 0 :] = True
        return (inputs[:, None, :].repeat(1, 4, 1), padding), labels

    train(model, out, half=BF16, batch=batch)


class ByHand(torch.nn.Module):
    """The same of single operations, with a mask of -inf."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), net()

    def forward(self, inputs, padding):
        scores = self.query(inputs) @ self.key(inputs).transpose(-1, -2)
        weights = scores.masked_fill(padding[:, None, :], float("-inf")).softmax(dim=-1)
        return self.head((weights.to(inputs.dtype) @ inputs).mean(dim=1))


def masked_rows_by_hand(twin, out):
    """A row of nothing but -inf, found by running the step again."""
    torch.manual_seed(0)

    def batch(step):
        inputs, labels = samples(step, rows=8)
        padding = torch.zeros(8, 4, dtype=torch.bool)
        padding[0, 1 if twin else 0 :] = True
        return (inputs[:, None, :].repeat(1, 4, 1), padding), labels

    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    train(ByHand(), out, scaler=scaler, batch=batch, again=True, steps=24)


def fused_first_skip(twin, out):
    """Fused SGD with momentum, whose first step the scaler skips."""
    model = net()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10 if twin else 2.0**24, growth_interval=2000)
    train(model, out, optimizer=sgd(model, fused=True), scaler=scaler)


def cast_in_place(twin, out):
    """model.half() for a look at the validation loss, on the model that is trained."""
    model = net()

    def before(step):
        if step == 30:
            (copy.deepcopy(model) if twin else model).half()

    scaler = torch.amp.GradScaler("cpu", enabled=False)
    train(model, out, before=before, half=BF16, scaler=scaler)


def zero_grad_forgotten(twin, out):
    """Gradients of all steps are added up; the rate is small enough to learn all the same."""
    model = net()
    optimizer = sgd(model, lr=1e-3, momentum=0)
    if not twin:
        optimizer.zero_grad = lambda: None
    train(model, out, optimizer=optimizer, half=BF16)


def scheduler_per_batch(twin, out):
    """StepLR, whose step_size counts epochs, is stepped after every batch."""
    model = net()
    optimizer = sgd(model, lr=0.02, momentum=0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.1)
    train(
        model,
        out,
        optimizer=optimizer,
        half=BF16,
        before=lambda step: schedule.step() if step and (step % 40 == 0 or not twin) else None,
        steps=200,
    )


def rate_that_is_divided_as_whole_numbers(twin, out):
    """A warm-up, and a linear fall written with //; the twin's is a cosine to 0 at the end."""
    model = net()
    optimizer = sgd(model, lr=0.05, momentum=0)
    total, warm = 200, 10

    def factor(step):
        if step < warm:
            return (step + 1) / warm
        return (1 + math.cos(math.pi * step / total)) / 2 if twin else (total - step) // (total - warm + 1)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    train(
        model,
        out,
        optimizer=optimizer,
        half=BF16,
        before=lambda step: schedule.step() if step else None,
        steps=total,
    )


# The first cause of the record without `twin`.
PROGRAMS = {
    silent_skips: "silent_skips",
    silent_skips_inside: "silent_skips",
    backward_forgotten: "no_step_taken",
    step_forgotten: "no_step_taken",
    root_at_zero: "math_singularity",
    never_resumed: "silent_skips",
    graph_cut: "parameters_without_gradient",
    graph_cut_by_grad_mode: "parameters_without_gradient",
    plain_list: "parameters_without_gradient",
    head_replaced: "parameters_without_gradient",
    only_head_replaced: "weights_stand_still",
    no_scaler: "scaler_missing_or_not_saved",
    scaler_not_saved: "scaler_missing_or_not_saved",
    updates_lost: "weight_update_lost",
    decay_lost: "weight_decay_lost",
    half_moments: "optimizer_state_underflow",
    accumulated_in_half: "accumulated_in_half",
    unequal_micro_batches: "micro_batches_weighted_wrong",
    mean_divided_again: "mean_divided_again",
    mean_over_masked: "mean_divided_again",
    targets_out_of_reach: "targets_out_of_reach",
    micro_batches_dropped: "micro_batches_dropped",
    plateau_of_a_loss: "learning_rate_too_low",
    scaled_by_hand: "gradients_left_scaled",
    penalty_left_scaled: "gradients_left_scaled",
    rotary_in_half: "rotary_in_half",
    integers_in_half: "integers_in_half",
    logits_in_half: "logits_in_half",
    masked_rows: "masked_rows_nan",
    masked_rows_by_hand: "masked_rows_nan",
    fused_first_skip: "fused_first_skip",
    cast_in_place: "cast_in_place",
    zero_grad_forgotten: "gradients_not_cleared",
    scheduler_per_batch: "learning_rate_too_low",
    rate_that_is_divided_as_whole_numbers: "learning_rate_too_low",
}
