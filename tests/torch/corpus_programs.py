"""Cases of the fault corpus (bench/corpus) as PyTorch programs, of causes that a record shows without an O0.

A program has the case's name, its kind of network, level, optimizer and mistake; sizes and data are this
file's. Nothing here runs ampbench on the corpus: what it says of the case is the name of the case's file.
"""

from programs import BF16, F, FP16, net, samples, sgd, train
from settings import torch


class Recurrent(torch.nn.Module):
    """An LSTM over the features as a sequence, cell by cell (the whole one has no fp16 on CPUs)."""

    def __init__(self, classes=4):
        super().__init__()
        torch.manual_seed(4)
        self.cell = torch.nn.LSTMCell(1, 24)
        self.decoder = torch.nn.Linear(24, classes)

    def forward(self, inputs):
        state = None
        for step in range(inputs.shape[1]):
            state = self.cell(inputs[:, step, None], state)
        return self.decoder(state[0])


class Attending(torch.nn.Module):
    """One block of a transformer over four tokens."""

    def __init__(self, classes=4):
        super().__init__()
        torch.manual_seed(5)
        self.block = torch.nn.TransformerEncoderLayer(8, 2, 32, dropout=0.0, batch_first=True)
        self.decoder = torch.nn.Linear(8, classes)

    def forward(self, inputs):
        tokens = torch.stack([inputs, inputs.roll(1, 1), inputs.roll(2, 1), inputs.flip(1)], dim=1)
        return self.decoder(self.block(tokens).mean(dim=1))


def convolutions(classes=4):
    """A convolution, a group norm and a decoder over the features as a line."""
    torch.manual_seed(6)
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 8)),
        torch.nn.Conv1d(1, 8, 3, padding=1),
        torch.nn.GroupNorm(2, 8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(64, classes),
    )


class Floor(torch.amp.GradScaler):
    """A scaler whose scale does not fall below the first one."""

    def update(self, new_scale=None):
        super().update()
        if self.get_scale() < self._init_scale:
            super().update(self._init_scale)


def window(model, steps, interval):
    """The scale doubles after `interval` clean steps."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**18, growth_interval=interval)
    return lambda out: train(model(), out, scaler=scaler, steps=steps)


def floor(model, exponent):
    """The scale cannot fall below a value at which gradients overflow."""
    return lambda out: train(model(), out, scaler=Floor("cpu", init_scale=2.0**exponent), steps=80)


def clipped(model, norm, scale, **options):
    """Gradients clipped while they carry the scale."""

    def program(out):
        built = model()
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)

        def update(optimizer):
            torch.nn.utils.clip_grad_norm_(built.parameters(), norm)
            scaler.step(optimizer)
            scaler.update()

        train(built, out, scaler=scaler, update=update, optimizer=sgd(built, **options))

    return program


def all_in_half(model, optimizer, dtype=FP16, factor=1.0, steps=60):
    """model.half() or model.bfloat16() and an optimizer over it."""

    def batch(step):
        inputs, labels = samples(step)
        return inputs.to(dtype), labels

    def program(out):
        built = model().to(dtype)
        train(
            built,
            out,
            optimizer=optimizer(built.parameters()),
            half=dtype,
            autocast=False,
            batch=batch,
            steps=steps,
            loss=lambda outputs, labels: F.cross_entropy(outputs.float(), labels) * factor,
        )

    return program


def adam(lr, **options):
    """Adam or AdamW with its defaults."""
    kind = torch.optim.AdamW if options.pop("decoupled", False) else torch.optim.Adam
    return lambda parameters: kind(parameters, lr=lr, **options)


def healthy(model, accumulate=1, half=FP16, scaled=True):
    """A run without a mistake."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, enabled=scaled)
    return lambda out: train(model(), out, scaler=scaler, half=half, accumulate=accumulate, steps=40)


def decayed(lr, decay):
    """Pure bf16, a decay below half an ulp of every weight, over enough steps to have shrunk them."""
    steps = round(0.12 / (lr * decay))
    return all_in_half(
        net, lambda p: torch.optim.AdamW(p, lr=lr, weight_decay=decay), dtype=BF16, steps=steps
    )


# Case of bench/corpus -> program
CASES = {
    "window_1_mlp": window(net, 80, 1),
    "window_2_mlp": window(net, 80, 2),
    "window_3_mlp": window(net, 80, 3),
    "window_1_lstm": window(Recurrent, 60, 1),
    "window_2_bert": window(Attending, 60, 2),
    "floor_mlp_o2": floor(net, 24),
    "floor_lstm_o1": floor(Recurrent, 26),
    "high_glu_floor2": floor(Attending, 25),
    "clip_denoise": clipped(net, 1.0, 32.0),
    "clip_conv_lstm": clipped(Recurrent, 5.0, 16.0),
    "clip_bert": clipped(Attending, 1.0, 2.0**10),
    "clip_colour_ae_o1": clipped(convolutions, 0.02, 2.0**12, nesterov=True),
    "adam_lenet_o3": all_in_half(convolutions, adam(1e-3), factor=0.01),
    "adam_bert_o3": all_in_half(Attending, adam(1e-3, decoupled=True), factor=0.01),
    "adam_char_o3": all_in_half(Recurrent, adam(3e-3), factor=0.01),
    "lost_glu_bf16": all_in_half(net, adam(1e-5), dtype=BF16),
    "lost_colour_bf16": all_in_half(convolutions, lambda p: torch.optim.SGD(p, lr=1e-5), dtype=BF16),
    "decay_bf16_32": decayed(1e-2, 0.1),
    "healthy_accumulation": healthy(net, accumulate=4),
    "healthy_accumulation_bert": healthy(Attending, accumulate=4),
    "healthy_accumulation_colour_bf16": healthy(convolutions, accumulate=4, half=BF16, scaled=False),
}
